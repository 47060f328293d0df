"""The numbers of a card against its own ledger: what it repeats is compared, what it computed is computed anew."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from typing import Any

from tacit import check
from tacit.accounting import Ledger, account
from tacit.errors import Changed
from tacit.mechanisms import Mechanism
from tacit.relation import Relation
from tacit.reports.card import ledger_table
from tacit.runs.run_signature import CARD
from tacit.serialization import json_text
from tacit.standing import Standing

_AGREEMENT = 1e-6  # relative: sums in another order, of another processor, differ by less
_MOST = 100  # guarantees of a card, each of which takes a second at most
_COMPARED = ("epsilon", "epsilon_lower", "mu", "advantage")


@dataclass(frozen=True)
class Number:
    """A guarantee of a card and the epsilon that its ledger gives.

    Attributes:
        accountant: by name.
        delta: of both.
        stated: epsilon of the card.
        recomputed: epsilon from the ledger, here.
    """

    accountant: str
    delta: float
    stated: float
    recomputed: float


def best_guarantee(card: Mapping[str, Any]) -> dict[str, Any]:
    """The guarantee of the best standing with the smallest epsilon on a card; empty where there is none."""
    order = [standing.value for standing in Standing]
    rows = [row for row in card.get("guarantees") or [] if isinstance(row, dict) and row.get("standing") in order]
    return min(rows, key=lambda row: (order.index(row["standing"]), float(row.get("epsilon", "inf"))), default={})


def check_of_ledger(card: Mapping[str, Any], ledger: Ledger) -> None:
    """Raise `Changed` unless what `card` repeats of its ledger is what `ledger` says."""
    for name, value in json.loads(json_text(ledger_table(ledger))).items():
        # Cards from before facts and scopes have neither.
        if name in card and card[name] != value:
            raise Changed(CARD, f"is not the card of its ledger.json, by its {name}")


def ledger_of_card(card: Mapping[str, Any]) -> Ledger:
    """The mechanisms that a card lists, as a ledger without facts."""
    rows = [{key: value for key, value in row.items() if key != "hash"} for row in card["mechanisms"]]
    return Ledger.from_spec({"relation": card["relation"], "mechanisms": rows})


def numbers_of(
    card: Mapping[str, Any], ledger: Ledger, rows: Sequence[Mapping[str, Any]], *, holds: bool = False
) -> list[Number]:
    """Each of the guarantees `rows` beside what `ledger` gives.

    Args:
        card: with the version that computed them: another one's accountants may have been looser, so that of its cards
            only what must be false is refused.
        ledger: of the card.
        rows: the guarantees to compute anew.
        holds: refuse only what must be false, whatever the version.

    Raises:
        Changed: one differs by more than rounding, or is stated by an accountant that refuses the ledger.
    """
    check.count("guarantees", len(rows), minimum=0, maximum=_MOST)
    agree = _agree if not holds and card.get("versions", {}).get("tacit") == version("tacit") else _holds
    found = list[Number]()
    for delta in dict.fromkeys(row["delta"] for row in rows):
        asked = [row for row in rows if row["delta"] == delta]
        known = _answers(ledger.mechanism, ledger.relation, delta, tuple(row["accountant"] for row in asked))
        for row in asked:
            ours = known.get(row["accountant"])
            if ours is None or not agree(row, ours, ledger.standing):
                # Without the number itself, which nobody should read.
                raise Changed(CARD, f"states another number by {row['accountant']} than its ledger.json gives")
            found.append(Number(row["accountant"], float(delta), float(row["epsilon"]), ours["epsilon"]))
    return found


@lru_cache(maxsize=64)
def _answers(
    mechanism: Mechanism, relation: Relation, delta: float, accountants: tuple[str, ...]
) -> dict[str, dict[str, Any]]:
    """Rows of accountants by name; each reader of a run asks for the same ones."""
    # Facts that a file lacks would weaken the standing, which leaves no lower end to compare.
    answers = account(Ledger.of(mechanism, relation=relation), delta=delta, accountants=accountants).results
    return {answer.tradeoff.source: answer.row() for answer in answers}


def _agree(stated: Mapping[str, Any], ours: Mapping[str, Any], known: Standing) -> bool:
    standing = Standing.weakest(Standing(ours["standing"]), known)
    if (stated["standing"], stated.get("relation")) != (standing, ours["relation"]):
        return False
    for name in _COMPARED:
        first, second = stated.get(name), ours[name]
        if first is None and name == "epsilon_lower" and standing is not Standing.PROVEN:
            continue
        if first is None or second is None:
            if first is not second:
                return False
        elif not (float(first) == second or math.isclose(float(first), second, rel_tol=_AGREEMENT, abs_tol=1e-9)):
            return False
    return True


def _holds(stated: Mapping[str, Any], ours: Mapping[str, Any], known: Standing) -> bool:
    """Whether a bound of another version is not below what is proven to leak."""
    bound = stated["standing"] in (Standing.PROVEN, Standing.CONDITIONAL) and known is not Standing.CLAIMED
    lower = ours["epsilon_lower"] or 0.0
    return not bound or float(stated["epsilon"]) >= lower * (1 - _AGREEMENT)
