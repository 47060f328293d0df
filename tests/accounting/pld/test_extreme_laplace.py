"""Laplace steps of very much and of very little noise, against ball arithmetic and within a budget of work."""

import pytest

from tacit.accounting.pld.accountant import Pld
from tacit.accounting.pld.lattice_sum import LatticeSum
from tacit.mechanisms import Gaussian, Laplace

pytest.importorskip("flint")  # The arbiter's arithmetic.


@pytest.fixture
def lattices(monkeypatch):
    """Sizes of the lattices that are summed: no lattice beyond a few of full size, whatever the processor's speed."""
    sizes, init = [], LatticeSum.__init__

    def counted(*arguments):
        sizes.append(arguments[-1])
        init(*arguments)

    monkeypatch.setattr(LatticeSum, "__init__", counted)
    return sizes


@pytest.mark.parametrize("delta", [1e-7, 1e-10, 1e-13])
@pytest.mark.parametrize("scale", [1e12, 1e9, 3e6, 1e5, 1e3, 1.0, 1 / 59.0, 1 / 61.0, 1e-3, 1e-6])
def test_sums_of_laplace_steps_are_bracketed_at_any_scale(scale, delta, lattices):
    from tacit.judge import Verdict, check_bracket

    mechanism = Laplace(scale) * 3
    low, high = Pld()(mechanism).epsilon(delta).interval
    assert sum(lattices) <= 1 << 22
    assert low <= high <= 3 / scale * (1 + 1e-9)
    assert check_bracket(mechanism, delta, low, high).verdict is not Verdict.REFUTED


@pytest.mark.parametrize(
    ("scale", "steps", "delta"), [(3e6, 3, 1e-7), (3e6, 10, 1e-7), (3e6, 1000, 1e-9), (3e7, 1000, 1e-10)]
)
def test_many_laplace_steps_of_much_noise_have_a_narrow_epsilon(scale, steps, delta):
    """No saddle settles there: the largest losses are too small for any tilt to make epsilon typical."""
    low, high = Pld()(Laplace(scale) * steps).epsilon(delta).interval
    assert high - low <= 0.02 * high


def test_laplace_steps_of_little_noise_beside_others_move_their_epsilon():
    """All but e^-60 of their law is a fair coin and an exponential loss below the largest."""
    others = Gaussian(1.0).poisson(0.01) * 100
    near, far = (Pld()(Laplace(scale) * 3 + others).epsilon(1e-6) for scale in (1 / 60, 1e-6))
    assert far.lower - 3e6 == pytest.approx(near.lower - 180, abs=1e-5)
    assert far.upper - far.lower < 1e-5
    curve = Pld()(Laplace(1e-6) * 3 + others)
    assert curve.delta(3e6).lower <= curve.delta(3e6 - 1.0).upper
    assert curve.delta(1.0).upper == 1.0
    assert 0.0 <= curve.beta(0.1).lower <= curve.beta(0.1).upper < 1e-6
