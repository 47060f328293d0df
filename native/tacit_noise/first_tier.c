/* The first tier of the rounded Gaussian mechanism in one pass: normals by Box-Muller in float32, addition, rounding.
 *
 * The statement and its error bounds are in tacit's docs/explanation/floating_point.md. Every operation is one of IEEE 754
 * and none may be contracted, so all compilers and processors give the same bits. Values that float32 does not decide are left to the
 * caller, who decides them exactly.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#ifndef SOURCE_DIGEST
#define SOURCE_DIGEST ""
#endif

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__gnu_linux__)
#define WIDEST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define WIDEST
#endif

enum { PAIRS = 512, GROUP = 64 };

static inline int32_t bits_of(float x) {
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Both normals of each pair; NaN where U is so near to an end that its 31 bits do not bound the radius. */
WIDEST static void normals(const uint64_t *restrict radius_words, const uint32_t *restrict angle_words,
                           float *restrict cosines, float *restrict sines, int pairs) {
    for (int i = 0; i < pairs; i++) {
        /* U = (u + 1/2) 2^-31 = m 2^(e - 31), m in [sqrt(1/2), sqrt(2)); f = m - 1 with one rounding. */
        int32_t u = (int32_t)(radius_words[i] >> 33);
        float high = (float)(u & ~127), low = (float)(u & 127) + 0.5f;
        int32_t e = (bits_of(high) - 0x3f3504f3) >> 23;
        float unit = float_of((uint32_t)(127 - e) << 23);
        float f = (high * unit - 1.0f) + low * unit;
        float square = f * f;
        float p = -0.10192846f;
        p = p * f + 0.16025998f;
        p = p * f - 0.17137401f;
        p = p * f + 0.1992436f;
        p = p * f - 0.24983245f;
        p = p * f + 0.3333425f;
        float log_m = (f - 0.5f * square) + (square * f) * p;
        float radius = sqrtf((float)(31 - e) * 1.3862944f - 2.0f * log_m);
        int far = (high < 131072.0f) | (high >= 2147483520.0f);
        radius = far ? float_of(0x7fc00000u) : radius;
        /* 2 pi V = q pi / 2 + t, |t| <= pi / 4. */
        uint32_t v = angle_words[i];
        uint32_t q = (v + 0x20000000u) >> 30;
        float t = (float)(int32_t)(v - (q << 30)) * 1.4629181e-09f;
        float y = t * t;
        float sine = t + (t * y) * ((-0.00019495634f * y + 0.008331979f) * y - 0.16666651f);
        float cosine = (1.0f - 0.5f * y) + (y * y) * (-0.0013652449f * y + 0.041661277f);
        float first = (q & 1) ? sine : cosine, second = (q & 1) ? cosine : sine;
        cosines[i] = radius * float_of((uint32_t)bits_of(first) ^ (((q + 1) & 2) << 30));
        sines[i] = radius * float_of((uint32_t)bits_of(second) ^ ((q & 2) << 30));
    }
}

/* out = grid RN(values / grid + scale * normals) where no error can change it, else out = values; the others' places.
 * out may be values: a group is read before it is written. */
#define ROUND_SUM(NAME, REAL, RINT, FABS)                                                                              \
    WIDEST static Py_ssize_t NAME(const REAL *values, const float *restrict normal, REAL *out,                         \
                                  int32_t *restrict places, int count, int first, REAL inverse, float scale,           \
                                  REAL grid, REAL limit) {                                                             \
        Py_ssize_t found = 0;                                                                                          \
        for (int start = 0; start < count; start += GROUP) {                                                           \
            int size = count - start < GROUP ? count - start : GROUP, any = 0;                                         \
            REAL group[GROUP] = {0}, result[GROUP];                                                                    \
            float noise[GROUP] = {0};                                                                                  \
            int open[GROUP];                                                                                           \
            memcpy(group, values + start, (size_t)size * sizeof(REAL));                                                \
            memcpy(noise, normal + start, (size_t)size * sizeof(float));                                               \
            for (int i = 0; i < GROUP; i++) {                                                                          \
                REAL centre = group[i] * inverse, whole = RINT(centre);                                                \
                REAL noisy = (REAL)(noise[i] * scale) + (centre - whole), nearest = RINT(noisy);                       \
                open[i] = !(FABS(noisy - nearest) < limit); /* true for NaN */                                         \
                result[i] = open[i] ? group[i] : (whole + nearest) * grid + 0; /* zero has one sign */                 \
                any |= open[i];                                                                                        \
            }                                                                                                          \
            memcpy(out + start, result, (size_t)size * sizeof(REAL));                                                  \
            if (any)                                                                                                   \
                for (int i = 0; i < size; i++)                                                                         \
                    if (open[i])                                                                                       \
                        places[found++] = first + start + i;                                                           \
        }                                                                                                              \
        return found;                                                                                                  \
    }

ROUND_SUM(round_single, float, rintf, fabsf)
ROUND_SUM(round_double, double, rint, fabs)

typedef struct {
    const uint64_t *radius_words;
    const uint32_t *angle_words;
    const void *values;
    void *out;
    int32_t *places;
    int size, is_double;
    double grid, scale, limit;
} Block;

static Py_ssize_t round_part(const Block *block, const float *normal, Py_ssize_t found, int first, int count) {
    double inverse = 1.0 / block->grid;
    if (block->is_double)
        return round_double((const double *)block->values + first, normal, (double *)block->out + first,
                            block->places + found, count, first, inverse, (float)block->scale, block->grid,
                            block->limit);
    return round_single((const float *)block->values + first, normal, (float *)block->out + first,
                        block->places + found, count, first, (float)inverse, (float)block->scale, (float)block->grid,
                        (float)block->limit);
}

/* A block holds the cosines of its pairs, then their sines. */
static Py_ssize_t round_block(const Block *block) {
    float cosines[PAIRS], sines[PAIRS];
    int pairs = (block->size + 1) / 2, second = block->size - pairs;
    Py_ssize_t found = 0;
    for (int start = 0; start < pairs; start += PAIRS) {
        int count = pairs - start < PAIRS ? pairs - start : PAIRS;
        int rest = second - start < count ? second - start : count;
        normals(block->radius_words + start, block->angle_words + start, cosines, sines, count);
        found += round_part(block, cosines, found, start, count);
        if (rest > 0)
            found += round_part(block, sines, found, pairs + start, rest);
    }
    return found;
}

static int fits(const Py_buffer *buffer, Py_ssize_t length) { return buffer->len == length; }

static PyObject *first_tier(PyObject *module, PyObject *args) {
    Py_buffer values, out, radius_words, angle_words, places;
    double grid, scale, limit;
    PyObject *result = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*w*y*y*w*ddd", &values, &out, &radius_words, &angle_words, &places, &grid, &scale,
                          &limit))
        return NULL;
    Py_ssize_t size = places.len / (Py_ssize_t)sizeof(int32_t), pairs = (size + 1) / 2;
    int is_double = values.len == size * (Py_ssize_t)sizeof(double);
    if (size > 1 << 24 || !fits(&places, size * (Py_ssize_t)sizeof(int32_t)) ||
        !(is_double || fits(&values, size * (Py_ssize_t)sizeof(float))) || !fits(&out, values.len) ||
        !fits(&radius_words, pairs * (Py_ssize_t)sizeof(uint64_t)) ||
        !fits(&angle_words, pairs * (Py_ssize_t)sizeof(uint32_t))) {
        PyErr_SetString(PyExc_ValueError, "the buffers of a block must have sizes that belong together");
    } else {
        Block block = {radius_words.buf, angle_words.buf, values.buf, out.buf, places.buf,
                       (int)size, is_double, grid, scale, limit};
        Py_ssize_t found;
        Py_BEGIN_ALLOW_THREADS
        found = round_block(&block);
        Py_END_ALLOW_THREADS
        result = PyLong_FromSsize_t(found);
    }
    PyBuffer_Release(&values);
    PyBuffer_Release(&out);
    PyBuffer_Release(&radius_words);
    PyBuffer_Release(&angle_words);
    PyBuffer_Release(&places);
    return result;
}

static PyMethodDef methods[] = {
    {"first_tier", first_tier, METH_VARARGS,
     "first_tier(values, out, radius_words, angle_words, places, grid, scale, limit) -> number of undecided places."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_first_tier", "Compiled first tier of tacit's rounded Gaussian mechanism.", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__first_tier(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && PyModule_AddStringConstant(module, "SOURCE", SOURCE_DIGEST) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
