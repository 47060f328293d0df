"""The lemmas of THEORY.md on numbers, its proofs, and the table of constants: every one of the room is listed."""

import re
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from scipy.special import ndtr

from tacit.accounting.pld import rounding
from tacit.accounting.pld.discrete_cumulants import cumulants_of
from tacit.accounting.pld.dispatch import Dispatch
from tacit.accounting.pld.gaussian_cover import gaussian_bounds
from tacit.accounting.pld.intervals import Contradiction
from tacit.accounting.pld.inversion import SaddleLine
from tacit.accounting.pld.lattice import round_down, round_up
from tacit.accounting.pld.lattice_sum import transform_error
from tacit.accounting.pld.schedule_cumulant import ScheduleCumulant
from tacit.accounting.pld.simple_bounds import Single
from tacit.mechanisms.pairs.discrete import AtomPair
from tacit.mechanisms.pairs.gaussian import GaussianPair, GaussianReplacePair, SampledGaussian, SampledGaussianPair
from tacit.mechanisms.pairs.laplace import LaplacePair
from tests.accounting.pld.constants import ROOM, TABLE, bounding, constants, listed, numbers_listed, written

THEORY, PROOFS = ((ROOM / name).read_text(encoding="utf-8") for name in ("THEORY.md", "PROOFS.md"))
_STATED = r"\*\*(?:Theorem|Lemma|Axiom) (\d+\.\d+[a-z]?)"


def test_the_table_has_the_values_of_the_code():
    assert written() == TABLE.read_text(encoding="utf-8"), "run python -m tests.accounting.pld.constants"
    assert bounding()
    assert "gone" not in bounding().values()


@pytest.mark.parametrize("path", sorted(ROOM.glob("*.py")), ids=lambda path: path.stem)
def test_every_constant_is_in_the_table(path):
    names, numbers = constants(path)
    assert not names - listed(), "say in CONSTANTS.md which statement these belong to, or that they steer speed alone"
    assert not numbers - numbers_listed(path.stem), "name these, or say in CONSTANTS.md what they are"


def test_the_table_lists_nothing_that_is_gone():
    there = set().union(*(constants(path)[0] for path in ROOM.glob("*.py")))
    assert not listed() - there
    for path in ROOM.glob("*.py"):
        assert not numbers_listed(path.stem) - constants(path)[1]


def test_every_test_that_the_table_names_exists():
    text = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("*.py"))
    files = {path.stem for path in Path(__file__).parent.glob("*.py")}
    named = re.findall(r"\btest_\w+", TABLE.read_text(encoding="utf-8"))
    assert named
    for name in named:
        assert name in files or f"def {name}(" in text, name


def test_every_lemma_that_the_code_cites_is_stated():
    stated = {*re.findall(_STATED, THEORY), "2.3"}
    for path in ROOM.glob("*.py"):
        cited = set(re.findall(r"(?:Theorem|Lemma|Axiom) (\d+\.\d+a?)", path.read_text(encoding="utf-8")))
        assert not {each for each in cited if each not in stated} - {"5.1", "8.2", "4.5", "3.4"}, path.name


def test_every_proof_is_of_a_statement_and_under_its_section():
    proven = re.findall(rf"^{_STATED}", PROOFS, flags=re.MULTILINE)
    assert len(set(proven)) == len(proven) > 20
    assert set(proven) <= set(re.findall(_STATED, THEORY))
    assert {*re.findall(r"^##.*$", PROOFS, re.MULTILINE)} <= {*re.findall(r"^##.*$", THEORY, re.MULTILINE)}
    assert len(f"{THEORY} {PROOFS}".split()) <= 10_000


def units_of(value: complex, exact: mpmath.mpc, size: float = 0.0) -> float:
    """The error in units of the exact value, or of a given size."""
    return float(abs(mpmath.mpc(value) - exact) / (size or abs(exact)) / rounding.UNIT)


def test_functions_stay_within_their_units():
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.normal(0, 5, 300), 10 ** rng.uniform(-12, 0, 100), -(10 ** rng.uniform(-12, 0, 100))])
    z = x + 1j * np.concatenate([rng.uniform(-3.2, 3.2, 250), 10 ** rng.uniform(-12, 0, 250)])
    with mpmath.workdps(40):
        for name in ("exp", "expm1", "sin", "cos"):
            found = getattr(np, name)(x)
            exact = [getattr(mpmath, name)(mpmath.mpf(v)) for v in x.tolist()]
            assert max(map(units_of, found.tolist(), exact)) <= rounding.FUNCTION
        for name in ("exp", "expm1"):
            exact = [mpmath.exp(mpmath.mpc(v)) - (name == "expm1") for v in z.tolist()]
            assert max(map(units_of, getattr(np, name)(z).tolist(), exact)) <= rounding.COMPLEX_FUNCTION


@given(some.integers(1, 5000), some.integers(0, 2**32 - 1), some.floats(0, 15))
@settings(max_examples=30, deadline=None)
def test_sums_stay_within_their_units(count, seed, spread):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=count) * 10.0 ** rng.uniform(-spread, 0, count)
    exact = mpmath.fsum(map(mpmath.mpf, x.tolist()))
    assert units_of(float(x.sum()), exact, float(np.abs(x).sum())) <= rounding.pairwise_units(count)


@given(some.floats(-37.0, 5.0))
@settings(max_examples=200, deadline=None)
def test_tail_masses_stay_within_their_units(x):
    with mpmath.workdps(40):
        assert units_of(float(ndtr(x)), mpmath.ncdf(mpmath.mpf(x))) <= rounding.mass_units(float(ndtr(x)))


def worst_inputs(size: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Inputs that make rounding errors add up: a chirp, a tone, equal signs, wide scales, single points."""
    k = np.arange(size)
    tone = np.cos(2 * np.pi * 3 * k / size)
    return [
        np.cos(np.pi * k**2 / size), tone, np.sign(tone), rng.normal(size=size), np.ones(size) / 3,
        10.0 ** rng.uniform(-16, 0, size), np.where(k == size // 3, 1 / 3, 0.0),
    ]  # fmt: skip


@pytest.mark.parametrize("size", [64, 96, 360, 625])
def test_transforms_stay_within_their_bound(size):
    """Against the transform in extended floats, whose own error is a thousandth of the bound."""
    k = np.arange(size)
    turn = np.longdouble(2) * np.arctan2(np.longdouble(0), np.longdouble(-1)) / size
    angles = turn * (np.outer(k[: size // 2 + 1], k) % size).astype(np.longdouble)
    for x in worst_inputs(size, np.random.default_rng(size)):
        exact = np.cos(angles) @ x.astype(np.longdouble) - 1j * (np.sin(angles) @ x.astype(np.longdouble))
        assert float(np.abs(np.fft.rfft(x) - exact).max()) <= transform_error(size) * float(np.abs(x).sum())


@pytest.mark.parametrize("pair", [LaplacePair(0.7), GaussianPair(0.9), SampledGaussianPair(1.1, 0.01, True)], ids=str)
@pytest.mark.parametrize("pitch", [0.1, 0.01, 1e-4])
def test_roundings_bracket_the_step(pair, pitch):
    size = int(8 / pitch)
    down, up = round_down(pair, -4.0, pitch, size, 2.0), round_up(pair, -4.0, pitch, size)
    for epsilon in (0.0, 0.05, 0.3):
        low, high = Single(pair).bounds(epsilon)
        for rounded, sign in ((down, 1), (up, -1)):
            moved = epsilon + sign * (rounded.loss_error + rounded.mass_error)
            value = float(rounded.masses @ np.maximum(-np.expm1(moved - rounded.losses), 0.0)) + rounded.infinity_mass
            slack = 1 + rounded.mass_error + size * rounding.UNIT
            assert value <= high * slack if sign > 0 else value * slack >= low


PAIRS = [
    SampledGaussianPair(1.1, 0.01, True), SampledGaussianPair(1.1, 0.01, False), SampledGaussianPair(0.3, 1e-4, True),
    SampledGaussianPair(20.0, 1e-5, False), GaussianReplacePair(0.9, 0.05), GaussianReplacePair(5.0, 1e-3),
]  # fmt: skip


def moment(pair: SampledGaussian, z: mpmath.mpc, width: str = "0.08") -> mpmath.mpc:
    """E_P e^{zL} at 30 digits; a larger frequency needs a smaller `width` of the rule."""
    s, p = mpmath.mpf(pair.sigma), mpmath.mpf(pair.rate)
    mix = lambda u: 1 - p + p * mpmath.exp(u / s - 1 / (2 * s**2))  # noqa: E731
    if pair.symmetric:
        g = lambda u: mpmath.npdf(u) * mix(u) * mpmath.exp(z * (mpmath.log(mix(u)) - mpmath.log(mix(-u))))  # noqa: E731
    elif pair.loss_sign > 0:
        g = lambda u: mpmath.npdf(u) * mpmath.exp((z + 1) * mpmath.log(mix(u)))  # noqa: E731
    else:
        g = lambda u: mpmath.npdf(u) * mpmath.exp(-z * mpmath.log(mix(u)))  # noqa: E731
    step = mpmath.mpf(width) * min(s, 1)  # The rule's error is below e^(-2 pi .9 pi s / step) of the integrand's size.
    return step * mpmath.fsum(g(k * step) for k in range(int(-16 / step), int((16 + 6 / s) / step)))


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_moments_and_transforms_hold_quadratures(pair):
    """The certificate of the trapezoid rule holds at 30 digits, for the moment and for the characteristic function."""
    theta = 2.5
    (cumulant,) = cumulants_of([(pair, 10)], theta, -25.0)
    centre = cumulant.mean_and_variance()[0]
    t = np.arange(40) * 0.5
    log_phi, error = cumulant.log_phi(t)
    with mpmath.workdps(30):
        exact = moment(pair, mpmath.mpf(theta))
        assert abs(10 * mpmath.log(exact) - cumulant.log_moment(theta)) <= cumulant.rounding() + cumulant.left_out
        for k in (1, 39):
            z = mpmath.mpc(theta, float(t[k]))
            phi = (moment(pair, z) / exact) ** 10 * mpmath.expj(-float(t[k]) * centre)
            found = mpmath.exp(mpmath.mpc(complex(log_phi[k])))
            assert abs(found / phi - 1) <= np.expm1(error[k]) + cumulant.left_out


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_the_decay_bounds_the_characteristic_function(pair):
    (cumulant,) = cumulants_of([(pair, 3)], 2.5, -25.0)
    assert isinstance(cumulant, ScheduleCumulant)
    grid = cumulant.cumulant_derivatives(2.5)[2] ** -0.5 * 1.15 ** np.arange(0, 60, 1)
    bound = cumulant.log_decay(grid)
    for k in range(0, 40, 3):
        for t in np.linspace(grid[k], grid[k + 1], 5):
            log_phi, error = cumulant.log_phi(np.array([0.0, t]))
            assert np.real(log_phi[1]) <= bound[k] + error[1]


SCHEDULES = [
    [SampledGaussianPair(sigma, 0.01, True) for sigma in (1.0, 1.15, 1.6)],
    [SampledGaussianPair(sigma, 0.01, False) for sigma in (1.0, 1.15, 1.6)],
    [GaussianReplacePair(sigma, 0.02) for sigma in (0.8, 0.9, 1.2)],
    [SampledGaussianPair(sigma, rate, True) for sigma, rate in ((0.5, 1e-3), (0.6, 0.1), (0.8, 1.0))],
]  # fmt: skip


@pytest.mark.slow_cases
@pytest.mark.parametrize("pairs", SCHEDULES, ids=str)
def test_steps_on_shared_nodes_hold_quadratures(pairs):
    """Lemma 6.8: the bounds of one rule for all noises, against each step at 30 digits."""
    theta, steps = 2.5, 10
    (cumulant,) = cumulants_of([(pair, steps) for pair in pairs], theta, -25.0)
    assert isinstance(cumulant, ScheduleCumulant)
    deviation, centre = cumulant.cumulant_derivatives(theta)[2] ** 0.5, cumulant.mean_and_variance()[0]
    t = np.arange(60) * 0.1 / deviation
    log_phi, error = cumulant.log_phi(t)
    grid = 1.15 ** np.arange(0, 60) / deviation
    bound = cumulant.log_decay(grid)
    with mpmath.workdps(30):
        moments = [moment(pair, mpmath.mpf(theta)) for pair in pairs]
        exact = steps * mpmath.fsum(mpmath.log(each) for each in moments)
        assert abs(exact - cumulant.log_moment(theta)) <= cumulant.rounding() + cumulant.left_out
        assert cumulant.log_moment_bound(theta) + cumulant.rounding() >= exact
        assert cumulant.rounding() + cumulant.left_out < 1e-9
        for k in (3, 59):
            z = mpmath.mpc(theta, float(t[k]))
            phi = mpmath.fprod(
                (moment(pair, z, "0.03") / each) ** steps for pair, each in zip(pairs, moments, strict=True)
            )
            found = mpmath.exp(mpmath.mpc(complex(log_phi[k])))
            assert abs(found / (phi * mpmath.expj(-float(t[k]) * centre)) - 1) <= np.expm1(error[k]) + cumulant.left_out
            assert error[k] < 1e-6
            cell = int(np.searchsorted(grid, t[k], side="right")) - 1
            assert cell < 0 or float(mpmath.log(abs(phi))) <= bound[cell] + 1e-9


@given(some.floats(-8, 2), some.floats(-3, 20))
@settings(max_examples=100, deadline=None)
def test_gaussian_bounds_hold_the_gaussian_delta(log_mu, t):
    """Also for a small mu, whose two Mills ratios cancel to a relative error of 1e-16 / mu."""
    mu = 10.0**log_mu
    epsilon = max(mu * t + mu * mu / 2, 0.0)
    low, high = gaussian_bounds(epsilon, mu)
    with mpmath.workdps(60):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        exact = mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)
    assert low <= exact <= high


@pytest.mark.parametrize("epsilon", [0.02, 0.1])
def test_lines_hold_quadratures(epsilon):
    """delta of a plain Gaussian composed of sampled ones at rate 1: closed form against the line's own bounds."""
    sigma, steps = 30.0, 3
    direction = Dispatch([(SampledGaussianPair(sigma, 1 - 1e-16, True), steps)])
    line = direction.at_epsilon(epsilon).line
    assert isinstance(line, SaddleLine)
    with mpmath.workdps(30):
        mu = mpmath.sqrt(steps) / mpmath.mpf(sigma)
        exact = mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)
    low, high = line.bounds(epsilon)
    assert low <= exact * (1 + 1e-14)
    assert exact * (1 - 1e-14) <= high


def test_a_wrong_engine_contradicts_the_others_at_every_question(monkeypatch):
    """The coarse lattice finds a line that is twice too low, and not only when the first question is asked."""
    direction = Dispatch([(SampledGaussianPair(1.1, 0.01, True), 1000)])
    assert direction.delta(0.3)[0] > 0
    right = SaddleLine.bounds
    monkeypatch.setattr(SaddleLine, "bounds", lambda line, epsilon: tuple(x / 2 for x in right(line, epsilon)))
    for epsilon in (0.4, 0.5, 0.6):
        with pytest.raises(Contradiction) as caught:
            direction.delta(epsilon)
        assert caught.value.report["question"].startswith("delta(")


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0, 4.0])
def test_a_lattice_says_nothing_far_below_the_epsilon_that_it_was_built_for(epsilon):
    """Its sums are relative to e^{K(theta) - theta epsilon}: beyond the doubles an upper bound of 0 was answered."""
    pair = AtomPair.response(0.5)
    bracket = Dispatch([(pair, 9)]).at_delta(1e-9).near
    low, high = bracket.bounds(epsilon)
    true = Dispatch([(pair, 9)]).delta(epsilon)
    assert low <= true[1]
    assert high >= true[0] > 0
