"""Reductions along axes, and operations that keep the shape and compute along axes."""

from torch import Tensor

from tacit.verification.calls import Call, axes_of, rule
from tacit.verification.record_types import PUBLIC, Records, RecordType

_SCALARS = ("correction", "unbiased", "ord", "p", "dtype", "k", "descending", "stable", "largest", "sorted", "forward",
            "half_to_float", "input_dtype", "normalization", "onesided", "last_dim_size", "mask_type")  # fmt: skip


def read_scalars(call: Call) -> None:
    """Arguments that are equal for all records and do not say along which axis."""
    call.read(*_SCALARS)


@rule(
    *("sum", "nansum", "mean", "prod", "amax", "amin", "var", "std", "var_mean", "std_mean", "logsumexp", "any"),
    *("all", "argmax", "argmin", "norm", "linalg_vector_norm", "median", "nanmedian", "mode", "kthvalue"),
    *("count_nonzero", "aminmax"),
)
def reduction(call: Call) -> RecordType:
    """Along other axes the type stays; along the records the result is a number of the whole batch."""
    read_scalars(call)
    value = call["self"]
    name = "dim" if "dim" in call else "dims"
    keep = bool(call["keepdim"]) if "keepdim" in call else False
    return reduced(call, value, axes_of(value, call[name]), keep)


def reduced(call: Call, value: Tensor, axes: list[int], keep: bool) -> RecordType:
    """The type of a reduction.

    Args:
        call: the call.
        value: what is reduced.
        axes: those that go, >= 0.
        keep: whether they stay with size 1.
    """
    kind = call.records(value)
    if kind is None:
        return PUBLIC
    if kind.axis in axes:
        return call.whole()
    return kind if keep else Records(kind.axis - sum(axis < kind.axis for axis in axes), kind.inner)


@rule("max", "min")
def extreme(call: Call) -> RecordType | list[RecordType]:
    """Along an axis, of all entries, or of two tensors."""
    return call.aligned(call.all_tensors()) if "other" in call else reduction(call)


@rule(
    *("_softmax", "_log_softmax", "_safe_softmax", "cumsum", "cumprod", "logcumsumexp", "cummax", "cummin", "sort"),
    *("flip", "_softmax_backward_data", "_log_softmax_backward_data", "_fft_r2c", "_fft_c2c", "_fft_c2r"),
    *("topk", "_masked_softmax", "glu", "glu_backward", "renorm"),
)
def along(call: Call) -> RecordType:
    """Computes along one axis or several, which must not be that of the records."""
    read_scalars(call)
    values = call.all_tensors()
    name = next((each for each in ("dim", "dims") if each in call), "")
    kind = call.same_axis(values)
    if isinstance(kind, Records):
        axes = axes_of(values[0], call[name]) if name else [0]
        if any(value.dim() != values[0].dim() for value in values):
            call.refuse("its arguments have different shapes")
        if call.name == "aten.renorm":
            call.read("maxnorm")
            axes = [axis for axis in range(values[0].dim()) if axis not in axes]
        if kind.axis in axes:
            if not values[0].is_floating_point() and name and not isinstance(call[name], list):
                # Offsets and orders of sequences are made so, and so are capacities.
                call.refuse("it computes along the records, on whole numbers", "Pad to a public length instead")
            call.refuse("it computes along the records", "Compute along another axis")
    return kind


@rule("roll")
def roll(call: Call) -> RecordType:
    """Shifts along axes other than the records'; without axes it shifts all entries."""
    value = call["self"]
    axes = axes_of(value, call["dims"])
    axes = axes if any(call["shifts"]) else []
    return call.apart(call.records(value), axes, "it shifts the records", "Shift along another axis")


@rule("tril", "triu", "linalg_inv_ex", "linalg_cholesky_ex", "_linalg_eigh", "_linalg_svd", "linalg_qr", "_linalg_det",
      "_linalg_slogdet", "linalg_lu_factor_ex", "linalg_lu", "triangular_solve", "cholesky_solve", "linalg_pinv",
      "linalg_matrix_exp", "_cdist_forward", "_euclidean_dist",
      "cholesky_inverse", "linalg_eig", public=())  # fmt: skip
def matrices(call: Call) -> RecordType:
    """Computes within the last two axes; those before them are a batch.

    Outputs of `_cdist_forward` with public points on one side keep the rows or columns of the other.
    """
    values = call.all_tensors()
    if call.name in ("aten._cdist_forward", "aten._euclidean_dist") and len(values) == 2:
        return _distances(call, values)
    kind = call.same_axis(values) if call.name == "aten.linalg_lu_solve" else call.aligned(values)
    dims = max(value.dim() for value in values)
    mend = "Keep the records on an axis before the matrices"
    return call.apart(kind, range(dims - 2, dims), "it computes along the records", mend)


@rule("_linalg_solve_ex", "linalg_solve_triangular", "linalg_lu_solve")
def solved(call: Call) -> RecordType | list[RecordType]:
    """X of A X = B, or of X A = B: a record's own matrices, or its own columns or rows of B beside a public A."""
    matrix = call["A"] if "A" in call else call["LU"] if "LU" in call else call["self"]
    given = call["B"]
    call.read("upper", "unitriangular", "check_errors", "adjoint")
    left = call["left"]
    kind = call.records(given)
    apart = given.dim() - (1 if left else 2)
    vector = call.name == "aten._linalg_solve_ex" and (given.dim() == 1 or given.shape == matrix.shape[:-1])
    shared = call.records(matrix) is None and call.records(call["pivots"]) is None
    if not shared or kind is None or vector or kind.axis != apart:
        return matrices(call)
    call.all_tensors()
    return [kind, *[PUBLIC] * 3] if call.name == "aten._linalg_solve_ex" else kind


@rule("linalg_cross")
def cross(call: Call) -> RecordType:
    """The product of vectors along `dim`, entry by entry along all other axes."""
    values = call.all_tensors()
    kind, axis = call.aligned(values), call["dim"] % max(value.dim() for value in values)
    return call.apart(kind, (axis,), "it computes along the records", "Keep the vectors on another axis")


@rule("rot90")
def rot90(call: Call) -> RecordType:
    """Turns the plane of two axes, neither of them the records'."""
    value = call["self"]
    call.read("k")
    return call.apart(call.records(value), axes_of(value, call["dims"]), "it turns the records", "Turn other axes")


def _distances(call: Call, values: list[Tensor]) -> RecordType:
    first, second = values
    one, two = call.records(first), call.records(second)
    if one is not None and two is None and one.axis == first.dim() - 2:
        return one
    if two is not None and one is None and two.axis == second.dim() - 2:
        return Records(second.dim() - 1, two.inner)
    points = range(first.dim() - 2, first.dim())
    return call.apart(call.aligned(values), points, _COMPARES, "Compare each with public values")


_COMPARES = "it compares the records with each other"


@rule("_cdist_backward")
def distances_backward(call: Call) -> RecordType:
    """The gradient of the points `x1`: a record's own, or a sum where they are public."""
    grad, first, second = call["grad"], call["x1"], call["x2"]
    call.read("p", "cdist")
    one, two, given = call.records(first), call.records(second), call.records(grad)
    rows = first.dim() - 2
    if two is None and one == given and one is not None and one.axis == rows:
        return one
    if one is None and two == Records(rows, given.inner if given else 1) and given and given.axis == rows + 1:
        return call.whole()
    return call.apart(call.same_axis([grad, first, second]), range(rows, rows + 2), _COMPARES)


@rule("diagonal_backward", "select_backward", "slice_backward", "unfold_backward")
def placed(call: Call) -> RecordType:
    """A gradient at the place of a view; the axis of the view is not that of the records."""
    given, sizes = call["grad_output"] if "grad_output" in call else call["grad_in"], call["input_sizes"]
    kind = call.records(given)
    call.read("start", "end", "step", "index", "size", "offset")
    if kind is None:
        return PUBLIC
    dim = call["dim"] % len(sizes) if "dim" in call else -1
    if call.name == "aten.slice_backward":
        whole = given.shape[dim] == sizes[dim]
        ordered = sizes[dim] % (kind.inner * call.count) == 0 and call["step"] == 1
        if dim == kind.axis and not whole and not (ordered and call["start"] % (kind.inner * call.count) == 0):
            call.refuse("it takes some of the records", "Keep all of them")
        return kind
    if call.name == "aten.select_backward":
        return Records(kind.axis + (dim <= kind.axis), kind.inner)
    if call.name == "aten.unfold_backward":
        return call.apart(kind, (dim,), "it unfolds the records", "Unfold another axis")
    call.apart(kind, (given.dim() - 1,), _ON_DIAGONAL)
    diagonal = call["dim1"] % len(sizes), call["dim2"] % len(sizes)
    rest = [axis for axis in range(len(sizes)) if axis not in diagonal]
    return Records(rest[kind.axis], kind.inner)


_ON_DIAGONAL = "it places the records on a diagonal"


@rule("diag_embed")
def diag_embed(call: Call) -> RecordType:
    """The last axis becomes the diagonal of the last two."""
    value = call["self"]
    call.read("offset")
    if (call["dim1"], call["dim2"]) not in ((-2, -1), (value.dim() - 1, value.dim())):
        call.refuse("it places the diagonal on other axes than the last two")
    return call.apart(call.records(value), (value.dim() - 1,), _ON_DIAGONAL)


@rule("multinomial")
def multinomial(call: Call) -> RecordType:
    """Draws from each row its own."""
    value = call["self"]
    call.read("num_samples", "replacement")
    return call.apart(
        call.records(value), (value.dim() - 1,), "it draws among the records", "Draw among public entries"
    )


@rule("nonzero", "masked_select", "bincount", "histc", "_unique2", "unique_dim", "unique_consecutive", "_unique",
      "histogram", "trace", "repeat_interleave", "_is_all_true", "_is_any_true", public=())  # fmt: skip
def counted(call: Call) -> RecordType:
    """Rows, values or counts of all records together."""
    call.all_tensors()
    return call.whole()
