"""Parts of the judge against closed forms and quadrature at 40 digits."""

import math

import mpmath
import pytest

pytest.importorskip("flint")
from flint import acb, arb, ctx

from tacit.judge import contour, finite_laws
from tacit.judge.contour import Question
from tacit.judge.finite_laws import AtomLaw, LaplaceSum
from tacit.judge.sampled_gaussian import WHOLE, Cut, Line, SampledGaussian


@pytest.fixture(autouse=True)
def precision():
    before, ctx.prec = ctx.prec, 160
    yield
    ctx.prec = before


def exact_moment(law, s, cut=WHOLE):
    """E[w(x)^p w(-x)^n], at 25 digits."""
    with mpmath.workdps(25):
        sigma, k, q = mpmath.mpf(law.sigma), law.size, mpmath.mpf(law.rate)

        weights = [mpmath.binomial(k, j) * q**j * (1 - q) ** (k - j) for j in range(k + 1)]

        def w(x):
            return sum(each * mpmath.exp((2 * j * x - j * j) / (2 * sigma**2)) for j, each in enumerate(weights))

        p, n = (-s, 0) if law.direction == "added" else (1 + s, -s if law.direction == "replaced" else 0)

        def integrand(x):
            share = 1 if cut is WHOLE else mpmath.ncdf(cut.sign * (x - cut.place) / cut.width)
            return share * mpmath.npdf(x / sigma) / sigma * w(x) ** p * (w(-x) ** n if n else 1)

        places = mpmath.linspace(-12 * sigma, 12 * sigma + 6 * k, 10)
        return mpmath.quad(integrand, places, method="gauss-legendre")


def holds(ball, value):
    """Whether a ball holds a value known to 1e-18."""
    near = acb(arb(mpmath.nstr(value.real, 28)), arb(mpmath.nstr(mpmath.im(value), 28)))
    return ball.overlaps(near + acb(arb(0, 1e-18), arb(0, 1e-18)))


LAWS = [
    SampledGaussian(1.3, 0.05, 1, "removed"),
    SampledGaussian(0.6, 0.3, 1, "added"),
    SampledGaussian(2.0, 0.1, 2, "removed"),
    SampledGaussian(2.0, 0.1, 2, "added"),
    SampledGaussian(1.0, 0.2, 1, "replaced"),
]


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize(
    "cut", [WHOLE, Cut(0.4, 0.5, rare=True), Cut(0.4, 0.5, rare=False)], ids=["whole", "rare", "usual"]
)
def test_moments_on_a_line_hold_those_of_quadrature(law, cut):
    if cut is not WHOLE and law.direction == "replaced":
        pytest.skip("no part of a replaced record is taken out")
    line = Line(law, 2.5, -40.0, cut)
    values = line.values(3.0, 6)
    assert all(value.real.rad() < 1e-12 for value in values)
    for n in (0, 5):
        assert holds(values[n], exact_moment(law, mpmath.mpc(2.5, 3.0 * n), cut))
        bound = line.beyond(3.0 * n)
        assert all(bound >= abs(value) for value in values[n:])
    assert line.beyond(60.0) < line.beyond(3.0)


def test_one_sampled_step_has_the_delta_of_its_closed_form():
    sigma, rate, epsilon = 0.8, 0.02, 0.5
    with mpmath.workdps(40):
        place = sigma**2 * mpmath.log((mpmath.exp(epsilon) - 1 + mpmath.mpf(rate)) / rate) + mpmath.mpf(1) / 2
        above, moved = mpmath.ncdf(-place / sigma), mpmath.ncdf((1 - place) / sigma)
        exact = (1 - mpmath.mpf(rate)) * above + rate * moved - mpmath.exp(epsilon) * above
    step = SampledGaussian(sigma, rate, 1, "removed")
    found = contour.delta(Question(((step, 1),), arb(0), epsilon, math.log(1e-24)))
    assert found.rad() < 1e-20
    assert found.overlaps(arb(mpmath.nstr(exact, 30)) + arb(0, 1e-26))


def test_an_added_record_has_no_delta_beyond_its_largest_loss():
    step = SampledGaussian(1.0, 0.1, 1, "added")
    assert contour.delta(Question(((step, 3),), arb(0), 0.4, math.log(1e-20))) == 0
    assert contour.delta(Question(((step, 3),), arb(0), 0.3, math.log(1e-20))) > 0


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.1])
def test_laplace_steps_have_the_delta_of_a_nested_integral(epsilon):
    """One step has an atom at either end and density between; two are integrated over the second one."""
    size = 0.7
    with mpmath.workdps(30):
        e, at = mpmath.mpf(size), mpmath.mpf(epsilon)

        def one(rest):
            """E[(1 - e^{rest - L})_+] of one step."""
            if rest >= e:
                return mpmath.mpf(0)
            if rest <= -e:
                return 1 - mpmath.exp(rest)
            return 1 - mpmath.exp((rest - e) / 2)

        inner = mpmath.quad(
            lambda loss: mpmath.exp((loss - e) / 2) / 4 * one(at - loss), [-e, at - e, e] if at < 2 * e else [-e, e]
        )
        exact = one(at - e) / 2 + mpmath.exp(-e) / 2 * one(at + e) + inner
    found = finite_laws.delta([], LaplaceSum(((arb(size), 2),)), epsilon)
    assert found.rad() < 1e-40
    assert abs(found - arb(mpmath.nstr(exact, 25))) < 1e-20


def test_atoms_of_a_sampled_discrete_gaussian_have_mass_one_under_both_laws():
    for law in (
        AtomLaw.discrete_gaussian(arb(1.5), 2),
        AtomLaw.discrete_gaussian(arb(1.5), 2).sampled(0.2, added=True),
    ):
        p = sum((mass for _, mass in law.atoms), arb(0))
        q = sum((mass * (-loss).exp() for loss, mass in law.atoms), arb(0))
        assert abs(p - 1) < 1e-30
        assert abs(q - 1) < 1e-30
    lattice, off = AtomLaw.response(0.4), AtomLaw.response(0.4)
    merged = sum((mass for _, mass in AtomLaw(off.atoms, lattice=False, dropped=arb(0)).composed(7)), arb(0))
    assert merged.overlaps(sum((mass for _, mass in lattice.composed(7)), arb(0)))
