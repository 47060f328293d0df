"""`check_accountant`: the suite of every accountant, whatever facet it reads."""

import math
from collections.abc import Callable

from tacit.accounting import Accountant, Ledger
from tacit.errors import InvalidInput, NotABound, Refused
from tacit.mechanisms import Gaussian, Laplace, Mechanism
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.testing.draws import require, require_close, require_raises, require_sorted
from tacit.tradeoff.gaussian import gaussian_epsilon

_DELTA = 1e-5
_ROUNDING = 1e-9  # Relative allowance for the last bits of a closed form in double precision.
Family = Callable[[float, int], Mechanism]
"""Noise and number of steps to a composition."""
_FAMILIES: tuple[Family, ...] = (
    lambda noise, steps: Gaussian(noise) * steps,
    lambda noise, steps: Gaussian(noise).poisson(0.02) * steps,
    lambda noise, steps: Laplace(noise) * steps,
)


def check_accountant(accountant: Accountant) -> None:
    """Check an accountant on every property that a privacy bound has.

    An empty ledger costs nothing; epsilon falls with noise and delta and grows with steps; epsilon, delta, beta and
    advantage describe one curve; a proven accountant brackets the closed form of the Gaussian mechanism; a number
    below standing `proven` is never readable as a bound; bad numbers are refused. A family of mechanisms that the
    accountant refuses is left out.

    Raises:
        AssertionError: a property does not hold; the sentence names it.

    Example:
        >>> from tacit.accounting import accountant
        >>> check_accountant(accountant("zcdp"))
    """
    require_close(accountant(Ledger()).epsilon(_DELTA), 0.0, "epsilon of an empty ledger", absolute=1e-6)
    _bad_numbers_are_refused(accountant)
    answered = 0
    for family in _FAMILIES:
        try:
            accountant(family(1.0, 10))
        except Refused:
            continue
        answered += 1
        _check_monotone(accountant, family)
        _check_one_curve(accountant, family)
    require(answered, f"{accountant.name} must answer for one of Gaussian, Poisson-subsampled Gaussian and Laplace.")
    _check_closed_form(accountant)
    _check_standing(accountant)


def _bad_numbers_are_refused(accountant: Accountant) -> None:
    curve = accountant(Ledger.of(Gaussian(2.0)))
    for bad in (2.0, -1e-5, math.nan, "1", True):
        question = lambda value=bad: curve.epsilon(value)  # type: ignore[arg-type]  # noqa: E731
        require_raises(InvalidInput, question, f"delta = {bad!r}", message=r"delta must be in \[0, 1\]; got")
    for bad in (-1.0, math.nan, math.inf, "1"):
        question = lambda value=bad: curve.delta(value)  # type: ignore[arg-type]  # noqa: E731
        require_raises(InvalidInput, question, f"epsilon = {bad!r}", message="epsilon must be in")


def _check_monotone(accountant: Accountant, family: Family) -> None:
    noises = (0.7, 1.0, 2.0, 5.0)
    by_noise = [accountant(family(noise, 20)).epsilon(_DELTA) for noise in noises]
    require_sorted(by_noise, f"epsilon at the noises {noises}", decreasing=True)
    counts = (1, 2, 10, 100)
    require_sorted([accountant(family(1.0, count)).epsilon(_DELTA) for count in counts], f"epsilon at {counts} steps")
    deltas = (1e-12, 1e-8, 1e-5, 1e-2, 1.0)
    by_delta = [accountant(family(1.0, 20)).epsilon(delta) for delta in deltas]
    require_sorted(by_delta, f"epsilon at the deltas {deltas}", decreasing=True)
    require(by_delta[-1] == 0.0, f"epsilon at delta = 1 must be 0; got {by_delta[-1]!r}.")


def _check_one_curve(accountant: Accountant, family: Family) -> None:
    """The privacy profile, the trade-off function and the advantage are three views of one curve."""
    curve = accountant(family(2.0, 10))
    epsilon = float(curve.epsilon(_DELTA))
    back = float(curve.delta(epsilon * (1 + 1e-6)))
    require(back <= _DELTA * (1 + 1e-6), f"delta at epsilon(delta = {_DELTA}) must be at most {_DELTA}; got {back!r}.")
    advantage = float(curve.advantage())
    require_close(float(curve.delta(0.0)), advantage, "delta at epsilon = 0, which is the advantage,")
    alphas = (0.0, 0.01, 0.1, 0.5, 1.0)
    betas = [float(curve.beta(alpha)) for alpha in alphas]
    require_sorted(betas, f"beta at alpha {alphas}", decreasing=True)
    require_close(betas[-1], 0.0, "beta at alpha = 1")
    guessing = all(beta <= 1 - alpha + 1e-12 for beta, alpha in zip(betas, alphas, strict=True))
    require(guessing, f"beta must be at most 1 - alpha, which guessing reaches; got {betas} at alpha {alphas}.")
    require_close(float(curve.tpr(0.1)), 1 - betas[2], "tpr at fpr = 0.1")
    require_close(float(curve.bayes_risk(0.5)), (1 - advantage) / 2, "Bayes risk at prior 1/2")


def _check_closed_form(accountant: Accountant) -> None:
    """A proven accountant is never below the exact epsilon of the Gaussian mechanism, its lower end never above."""
    if accountant.standing is not Standing.PROVEN:
        return
    for noise, steps, relation in ((1.0, 1, Relation.ADD_REMOVE), (3.0, 25, Relation.REPLACE_ONE)):
        curve = accountant(Gaussian(noise) * steps, relation=relation)
        exact = gaussian_epsilon(_DELTA, relation.sensitivity * math.sqrt(steps) / noise)
        upper = float(curve.epsilon(_DELTA))
        what = f"{steps} steps of Gaussian({noise}) under {relation.value}"
        require(upper >= exact * (1 - _ROUNDING), f"epsilon of {what} must be at least {exact}; got {upper}.")
        if curve.lower is not None:
            lower = float(curve.lower.epsilon(_DELTA))
            require(lower <= exact * (1 + _ROUNDING), f"lower epsilon of {what} must be at most {exact}; got {lower}.")


def _check_standing(accountant: Accountant) -> None:
    ledger = Ledger.of(Gaussian(2.0))
    ledger.mark_unsafe("unsafe_test", Standing.CLAIMED)
    weak = accountant(ledger)
    weakest = Standing.weakest(accountant.standing, Standing.CLAIMED)
    require(weak.standing is weakest, f"the standing of a claimed ledger must be {weakest}; got {weak.standing}.")
    require_raises(NotABound, lambda: weak.upper, "upper curve of a claimed ledger")
    require_raises(NotABound, lambda: weak.lower, "lower curve of a claimed ledger")
    require_raises(NotABound, lambda: weak.epsilon(_DELTA).upper, "upper epsilon of a claimed ledger")
    if accountant.standing is not Standing.PROVEN:
        strong = accountant(Ledger.of(Gaussian(2.0)))
        require_raises(NotABound, lambda: strong.upper, f"upper curve of {accountant.name}")
        require_raises(NotABound, lambda: strong.advantage().lower, f"lower advantage of {accountant.name}")
        interval = strong.epsilon(_DELTA).interval
        require(interval == (None, None), f"the interval of {accountant.name} must be empty; got {interval}.")
