"""Every accountant by name, and `account`, which asks all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tacit import check
from tacit.accounting.base import Accountant
from tacit.accounting.bayesian import Bayesian
from tacit.accounting.classical import (
    Advanced,
    AdvancedJayaramanEvans,
    Cdp,
    Clt,
    Naive,
    NaiveJayaramanEvans,
    Optimal,
    Zcdp,
)
from tacit.accounting.ledger import Ledger
from tacit.accounting.pld.accountant import Pld
from tacit.accounting.renyi import Generic, GenericSound, Moments, Rdp, RdpJayaramanEvans
from tacit.errors import Refused
from tacit.standing import Standing
from tacit.tradeoff import TradeOff

if TYPE_CHECKING:
    from tacit.judge import Checked

REFUTED = (
    "ball arithmetic refutes its bracket of epsilon, so the bracket is withheld. This is a bug of tacit: please report "
    "the mechanisms, the relation and delta."
)
"""Reason why a bracket is missing."""
_KINDS: tuple[type[Accountant], ...] = (
    *(Pld, Rdp, Moments, RdpJayaramanEvans, GenericSound, Zcdp, Cdp, Optimal, Advanced, Naive),
    *(Clt, Generic, AdvancedJayaramanEvans, NaiveJayaramanEvans, Bayesian),
)
ACCOUNTANTS: dict[str, Accountant] = {kind.name: kind() for kind in _KINDS}


@dataclass(frozen=True)
class Result:
    """One accountant's answer about a ledger at one delta (or one epsilon).

    Attributes:
        tradeoff: the accountant's trade-off curve.
        epsilon: the epsilon at `delta`, or the one that was asked about.
        epsilon_lower: proven lower bound on the true epsilon; None where there is none.
        delta: the delta that was asked about, or the one at `epsilon`.
        delta_lower: proven lower bound on the true delta; None where there is none.
        mu: the smallest mu of Gaussian DP that covers the curve.
        advantage: the largest advantage of a membership attack.

    Example:
        >>> from tacit.mechanisms import Gaussian
        >>> result = account(Ledger.of(Gaussian(1.0)), epsilon=1.0, accountants=["clt"]).results[0]
        >>> round(result.delta, 4), result.row()["standing"]
        (0.1269, 'asymptotic')
    """

    tradeoff: TradeOff
    epsilon: float
    epsilon_lower: float | None
    delta: float
    delta_lower: float | None
    mu: float
    advantage: float

    @property
    def is_bound(self) -> bool:
        """Whether it is a bound, or one if the assumed facts hold."""
        return self.tradeoff.standing in (Standing.PROVEN, Standing.CONDITIONAL)

    def row(self) -> dict[str, Any]:
        """JSON form; the writer spells infinities."""
        numbers = ("epsilon", "epsilon_lower", "delta", "delta_lower", "mu", "advantage")
        return {
            "accountant": self.tradeoff.source,
            "standing": self.tradeoff.standing.value,
            "relation": self.tradeoff.relation.value,
        } | {name: getattr(self, name) for name in numbers}


@dataclass(frozen=True)
class Account:
    """Answers of all accountants that apply, and the reasons of those that do not.

    Attributes:
        results: one for each accountant that answers.
        refused: (accountant, reason) of each of the others.
        checked: what ball arithmetic says of the two-sided answer, where that was asked for.

    Example:
        >>> from tacit.mechanisms import Laplace
        >>> found = account(Ledger.of(Laplace(2.0)), delta=1e-5, accountants=["naive", "clt"])
        >>> [round(result.epsilon, 6) for result in found.results], [name for name, _ in found.refused]
        ([0.5], ['clt'])
    """

    results: tuple[Result, ...]
    refused: tuple[tuple[str, str], ...]
    checked: Checked | None = None

    @property
    def is_refuted(self) -> bool:
        """Whether a bracket was found wrong, and withheld."""
        return self.checked is not None and self.checked.verdict == "refuted"


def accountant(name: Accountant | str) -> Accountant:
    """The accountant called `name`; an accountant is returned as it is.

    Raises `InvalidInput` with the list and the nearest name when there is none.

    Example:
        >>> accountant("rdp").standing.value
        'proven'
    """
    if isinstance(name, Accountant):
        return name
    return ACCOUNTANTS[check.choice("accountant", name, ACCOUNTANTS)]


def account(
    ledger: Ledger,
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    accountants: Iterable[str] | None = None,
    group: int = 1,
    check_brackets: bool = False,
) -> Account:
    """Ask every accountant (or the named ones) for epsilon at `delta`, or for delta at `epsilon`.

    Args:
        ledger: what ran.
        delta: in [0, 1]; exactly one of `delta` and `epsilon` is given.
        epsilon: >= 0.
        accountants: names of the accountants to ask; all by default.
        group: >= 1, the number of records that are added or removed together, as those of a user are.
        check_brackets: whether the bracket of epsilon is decided in ball arithmetic too (needs tacit[judge]); one that
            is refuted is withheld.

    Raises:
        InvalidInput: a number or name breaks its rule, brackets are to be checked without a delta, or not exactly one
            of delta and epsilon is given.

    Example:
        >>> from tacit.mechanisms import Gaussian
        >>> found = account(Ledger.of(Gaussian(2.0) * 10), delta=1e-5, accountants=["zcdp", "rdp"])
        >>> [(result.tradeoff.source, round(result.epsilon, 2)) for result in found.results]
        [('zcdp', 8.84), ('rdp', 8.08)]
    """
    if (delta is None) == (epsilon is None):
        raise check.fail("delta", "given, or epsilon instead", delta)
    check.that(not check_brackets or delta is not None, "delta", "given where brackets of epsilon are checked", delta)
    chosen = [accountant(name) for name in (ACCOUNTANTS if accountants is None else accountants)]
    if delta is not None:
        check.delta(delta)
    if epsilon is not None:
        check.epsilon(epsilon)
    check.count("group", group)
    results: list[Result] = []
    refused: list[tuple[str, str]] = []
    for candidate in chosen:
        try:
            tradeoff = candidate(ledger) if group == 1 else candidate.grouped(ledger, group)
            results.append(ask(tradeoff, delta=delta, epsilon=epsilon))
        except Refused as refusal:
            refused.append((candidate.name, str(refusal)))
        except (ArithmeticError, MemoryError) as failure:
            # One that fails on numbers out of its range must not take the answers of the others with it.
            refused.append((candidate.name, f"{candidate.name} cannot compute with numbers of this size: {failure}"))
    found = Account(tuple(results), tuple(refused))
    return found if delta is None or not check_brackets else _judged(found, ledger, delta, group)


def _judged(found: Account, ledger: Ledger, delta: float, group: int) -> Account:
    """`found` with the verdict of ball arithmetic on its bracket, without one that is refuted."""
    from tacit.judge import Checked, Verdict, check_bracket

    bracket = next((result for result in found.results if result.epsilon_lower is not None), None)
    if bracket is None:
        nothing = Checked(Verdict.NOT_DECIDED, None, None, 0.0, "no accountant that was asked has a bracket of epsilon")
        return replace(found, checked=nothing)
    lower, upper = bracket.epsilon_lower or 0.0, bracket.epsilon
    checked = check_bracket(ledger.mechanism, delta, lower, upper, relation=ledger.relation, group=group)
    if checked.verdict is not Verdict.REFUTED:
        return replace(found, checked=checked)
    others = tuple(result for result in found.results if result is not bracket)
    return replace(found, results=others, refused=(*found.refused, (bracket.tradeoff.source, REFUTED)), checked=checked)


def ask(tradeoff: TradeOff, *, delta: float | None = None, epsilon: float | None = None) -> Result:
    """Answers of one curve at `delta`, or at `epsilon` when no delta is given."""
    mu, advantage = float(tradeoff.mu()), float(tradeoff.advantage())
    if delta is not None:
        answer = tradeoff.epsilon(delta)
        return Result(tradeoff, float(answer), answer.interval[0], delta, None, mu, advantage)
    answer = tradeoff.delta(epsilon or 0.0)
    return Result(tradeoff, epsilon or 0.0, None, float(answer), answer.interval[0], mu, advantage)
