"""Every accountant by name, and the question all of them are asked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tacit import check
from tacit.accounting.base import Accountant
from tacit.accounting.bayesian import Bayesian
from tacit.accounting.classical import Advanced, AdvancedPublished, Naive, NaivePublished, Optimal
from tacit.accounting.clt import Clt
from tacit.accounting.concentrated import Cdp, Zcdp
from tacit.accounting.ledger import Ledger
from tacit.accounting.pld.accountant import Pld
from tacit.accounting.renyi import Generic, GenericSound, Moments, Rdp, RdpPublished
from tacit.errors import Refused
from tacit.tradeoff import TradeOff

ACCOUNTANTS: dict[str, Accountant] = {
    kind.name: kind()
    for kind in (
        Pld,
        Rdp,
        Moments,
        RdpPublished,
        GenericSound,
        Zcdp,
        Cdp,
        Optimal,
        Advanced,
        Naive,
        Clt,
        Generic,
        AdvancedPublished,
        NaivePublished,
        Bayesian,
    )
}


@dataclass(frozen=True)
class Result:
    """One accountant's answer about a ledger at one delta (or one epsilon)."""

    tradeoff: TradeOff
    epsilon: float
    epsilon_lower: float | None
    delta: float
    delta_lower: float | None
    mu: float
    advantage: float

    def row(self) -> dict[str, Any]:
        """JSON form; infinities are left for the writer to spell."""
        return {
            "accountant": self.tradeoff.source,
            "standing": self.tradeoff.standing.value,
            "relation": self.tradeoff.relation.value,
            "epsilon": self.epsilon,
            "epsilon_lower": self.epsilon_lower,
            "delta": self.delta,
            "delta_lower": self.delta_lower,
            "mu": self.mu,
            "advantage": self.advantage,
        }


@dataclass(frozen=True)
class Account:
    """What every accountant says, and why the others refuse."""

    results: tuple[Result, ...]
    refused: tuple[tuple[str, str], ...]


def accountant(name: str) -> Accountant:
    """The accountant called `name`; raises `InvalidInput` with the list and the nearest name."""
    return ACCOUNTANTS[check.choice("accountant", name, ACCOUNTANTS)]


def account(
    ledger: Ledger,
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    accountants: Iterable[str] | None = None,
) -> Account:
    """Ask every accountant (or the named ones) for epsilon at `delta`, or for delta at `epsilon`.

    Raises:
        InvalidInput: for bad numbers, unknown names, or when not exactly one of delta and epsilon is given.
    """
    if (delta is None) == (epsilon is None):
        raise check.fail("delta", "given, or epsilon instead", delta)
    chosen = [accountant(name) for name in (ACCOUNTANTS if accountants is None else accountants)]
    if delta is not None:
        check.delta(delta)
    if epsilon is not None:
        check.epsilon(epsilon)
    results: list[Result] = []
    refused: list[tuple[str, str]] = []
    for each in chosen:
        try:
            results.append(ask(each(ledger), delta=delta, epsilon=epsilon))
        except Refused as refusal:
            refused.append((each.name, str(refusal)))
        except (ArithmeticError, MemoryError) as failure:
            # One that fails on numbers out of its range must not take the answers of the others with it.
            refused.append((each.name, f"{each.name} cannot compute with numbers of this size: {failure}"))
    return Account(tuple(results), tuple(refused))


def ask(tradeoff: TradeOff, *, delta: float | None = None, epsilon: float | None = None) -> Result:
    """One curve's answers at `delta`, or at `epsilon` when no delta is given."""
    mu, advantage = float(tradeoff.mu()), float(tradeoff.advantage())
    if delta is not None:
        asked = tradeoff.epsilon(delta)
        return Result(tradeoff, float(asked), asked.interval[0], delta, None, mu, advantage)
    asked = tradeoff.delta(epsilon or 0.0)
    return Result(tradeoff, epsilon or 0.0, None, float(asked), asked.interval[0], mu, advantage)
