"""Monitors of the noise and the sampler: wrong ones are found, right ones are not.

Every draw is seeded. Each assertion about a right one is a false alarm with probability below 1e-6.
"""

import numpy as np
import pytest

from tacit.audit import NoiseMonitor, SamplerMonitor
from tacit.errors import InvalidInput

STEPS, WIDTH = 25, 8_000  # N = 200,000


def noise_seen(make, steps=STEPS, width=WIDTH, seed=0):
    monitor, draw, earlier = NoiseMonitor(), np.random.default_rng(seed), []
    for step in range(steps):
        earlier.append(np.asarray(make(draw, step, width, earlier), dtype=float))
        monitor.add(earlier[-1])
    return monitor


def good(draw, step, width, earlier):
    return draw.normal(size=width)


def half_a_vector_reused(draw, step, width, earlier):
    half = draw.normal(size=width // 2)
    return np.concatenate([half, half])


def half_reused_at_the_next_step(draw, step, width, earlier):
    fresh = draw.normal(size=width)
    return fresh if not earlier else np.concatenate([earlier[-1][: width // 2], fresh[width // 2 :]])


def reused_after_ten_steps(draw, step, width, earlier):
    return earlier[-10] if len(earlier) >= 10 else draw.normal(size=width)


def autoregressive(draw, step, width, earlier):
    fresh = draw.normal(size=width + 1)
    return (fresh[1:] + 0.02 * fresh[:-1]) / np.sqrt(1 + 0.02**2)


def one_coordinate_silent(draw, step, width, earlier):
    return draw.normal(size=width) * (np.arange(width) != 17)


def every_tenth_step_silent(draw, step, width, earlier):
    return draw.normal(size=width) * (step % 10 != 9)


def not_a_number(draw, step, width, earlier):
    return np.where(np.arange(width) == 3, np.nan, draw.normal(size=width))


WRONG_NOISE = {
    "0.97 of its size": lambda draw, *_: 0.97 * draw.normal(size=WIDTH),
    "1.03 of its size": lambda draw, *_: 1.03 * draw.normal(size=WIDTH),
    "divided by the square root of two threads": lambda draw, *_: draw.normal(size=WIDTH) / np.sqrt(2),
    "none": lambda draw, *_: np.zeros(WIDTH),
    "uniform of the right variance": lambda draw, *_: draw.uniform(-np.sqrt(3), np.sqrt(3), WIDTH),
    "truncated": lambda draw, *_: np.clip(draw.normal(size=WIDTH), -2.3, 2.3),
    "one value for all coordinates": lambda draw, *_: np.full(WIDTH, draw.normal()),
    "drawn once": lambda draw, step, width, earlier: earlier[0] if earlier else draw.normal(size=width),
    "shifted": lambda draw, *_: draw.normal(size=WIDTH) + 0.02,
    **{
        f.__name__: f
        for f in (
            half_a_vector_reused,
            half_reused_at_the_next_step,
            reused_after_ten_steps,
            autoregressive,
            one_coordinate_silent,
            every_tenth_step_silent,
            not_a_number,
        )
    },
}


@pytest.mark.parametrize("name", WRONG_NOISE)
def test_wrong_noise_is_found(name):
    assert not noise_seen(WRONG_NOISE[name]).passed


@pytest.mark.parametrize(("steps", "width"), [(1, 200_000), (25, 8_000), (1000, 200), (4000, 10), (3, 2)])
def test_right_noise_passes_at_every_shape(steps, width):
    assert noise_seen(good, steps, width).passed


def test_p_values_of_right_noise_are_not_too_small():
    """The corrected p-values are conservative: of 80, 30 % below .1 has probability below 1e-6."""
    found = np.array([noise_seen(good, 20, 300, seed).p_value for seed in range(80)])
    assert np.mean(found < 0.1) < 0.3
    assert found.min() > 1e-5


def batches(make, n, q, steps, seed=0):
    monitor, draw, earlier = SamplerMonitor(n, q), np.random.default_rng(seed), []
    for step in range(steps):
        earlier.append(make(draw, step, n, q, earlier))
        monitor.add(earlier[-1])
    return monitor


def poisson(draw, step, n, q, earlier):
    return np.flatnonzero(draw.random(n) < q)


def shuffled(draw, step, n, q, earlier):
    size = round(n * q)
    if step % round(1 / q) == 0:
        shuffled.order = draw.permutation(n)
    start = (step % round(1 / q)) * size
    return shuffled.order[start : start + size]


WRONG_SAMPLERS = {
    "fixed size": lambda draw, step, n, q, earlier: draw.choice(n, round(n * q), replace=False),
    "shuffled": shuffled,
    "twice the rate": lambda draw, step, n, q, earlier: poisson(draw, step, n, 2 * q, earlier),
    "a tenth more": lambda draw, step, n, q, earlier: poisson(draw, step, n, 1.1 * q, earlier),
    "mask reused": lambda draw, step, n, q, earlier: earlier[-1] if step % 2 else poisson(draw, step, n, q, earlier),
    "drawn once": lambda draw, step, n, q, earlier: earlier[0] if earlier else poisson(draw, step, n, q, earlier),
    "with replacement": lambda draw, step, n, q, earlier: draw.integers(0, n, round(n * q)),
    "one record always": lambda draw, step, n, q, earlier: np.union1d([5], poisson(draw, step, n, q, earlier)),
    "half of the records never": lambda draw, step, n, q, earlier: poisson(draw, step, n // 2, 2 * q, earlier),
    "cut at the mean": lambda draw, step, n, q, earlier: poisson(draw, step, n, q, earlier)[: round(n * q)],
}


@pytest.mark.parametrize("name", WRONG_SAMPLERS)
def test_wrong_samplers_are_found(name):
    assert not batches(WRONG_SAMPLERS[name], 1000, 0.05, 200).passed


@pytest.mark.parametrize(
    ("n", "q", "steps"),
    [(1000, 0.05, 200), (2000, 0.0005, 300), (50, 0.5, 3), (30, 1.0, 10), (1, 0.5, 40), (9, 0.1, 1)],
)
def test_right_samplers_pass_where_events_are_rare_too(n, q, steps):
    found = [batches(poisson, n, q, steps, seed).p_value for seed in range(8)]
    assert min(found) > 1e-5


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: NoiseMonitor().passed, "steps must be one at least"),
        (lambda: NoiseMonitor().add(np.zeros(1)), "z must be of two coordinates"),
        (lambda: [m := NoiseMonitor(), m.add(np.zeros(3)), m.add(np.zeros(4))], "z must be of 3 coordinates"),
        (lambda: SamplerMonitor(5, 0.5).passed, "steps must be one at least"),
        (lambda: SamplerMonitor(5, 0.5).add(np.array([5])), "batch must be of records below 5"),
        (lambda: SamplerMonitor(0, 0.5), "records must be"),
        (lambda: SamplerMonitor(5, 0.0), "sample_rate must be"),
    ],
)
def test_bad_arguments_are_refused(make, said):
    with pytest.raises(InvalidInput, match=said):
        make()
