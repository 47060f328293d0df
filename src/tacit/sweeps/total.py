"""The total of a sweep: all of its runs read the same records, and whoever reads the table may keep the best."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tacit import check
from tacit.accounting import Ledger, accountant
from tacit.budget import find_registry
from tacit.errors import Refused
from tacit.runs import config_from_table
from tacit.runs.run_budget import NONE, planned_run
from tacit.sweeps.store import LEDGER, Result
from tacit.sweeps.task import Task
from tacit.tradeoff import TradeOff

Group = tuple[str, str, str]


def sweep_totals(results: Sequence[Result]) -> dict[Group, Ledger]:
    """What all runs on each (data set, relation, unit) spent together.

    Raises:
        InvalidInput: a stored ledger was edited.
    """
    totals: dict[Group, Ledger] = {}
    for result in results:
        if not isinstance(result.value, dict) or LEDGER not in result.value:
            continue
        ledger = Ledger.from_spec(result.value[LEDGER])
        group = (_records(result.settings), ledger.relation.value, ledger.unit)
        total = totals.setdefault(group, Ledger(relation=ledger.relation, unit=ledger.unit))
        with total.planned():  # A grid is fixed before its first run.
            total.absorb(ledger)
    return totals


def check_affordable(name: str, tasks: Sequence[Task], dataset: str) -> None:
    """Refuse a sweep whose runs would cross a cap together, before the first of them begins and reads records.

    What a run costs is known beforehand where the data set declares its number of records and the method is "gradient";
    other runs are checked one by one as they begin.

    Args:
        name: of the sweep.
        tasks: its runs that are to be made.
        dataset: of the registry, to which they are charged; `NONE` for none.

    Raises:
        BudgetExceeded: with what is left.
        InvalidInput: there is no registry, or no such data set in it.
    """
    registry = find_registry()
    if dataset == NONE:
        return
    if registry is None:
        raise check.fail("budget", "the name of a data set in a registry", dataset, "Run tacit budget init NAME.")
    found = registry.dataset(dataset)
    records, ahead = found.known.facts.get("records"), Ledger(relation=found.relation, unit=found.unit)
    for task in {task.key(None): task for task in tasks}.values():
        planned = planned_run(config_from_table({**task.settings, "unsafe_seed": None}), records)
        if planned is not None:
            ahead.add(planned)
    if ahead.entries:
        found.check(ahead, name)


def total_sentences(results: Sequence[Result]) -> Iterator[str]:
    """One sentence for each data set: how many runs were made and what they cost together."""
    unknown = sum(not isinstance(result.value, dict) or LEDGER not in result.value for result in results)
    for (records, relation, unit), ledger in sweep_totals(results).items():
        mine = [each for each in results if _records(each.settings) == records and LEDGER in each.value]
        delta = max(float(each.settings.get("delta", 1e-5)) for each in mine)
        try:
            spent = accountant("pld")(ledger)
        except Refused as refusal:
            yield f"Total of {len(mine)} runs on {records}: no accountant answers. {refusal}"
            continue
        yield (
            f"Total of {len(mine)} runs on {records}: {_cost(spent, delta)}, {relation}, unit {unit}. Whoever keeps "
            "the best of them has spent all of it."
        )
    if unknown:
        yield f"{unknown} stored results are from before ledgers were kept; no total holds them."


def _cost(spent: TradeOff, delta: float) -> str:
    return f"epsilon {float(spent.epsilon(delta)):.4g} at delta {delta:g} ({spent.source}, {spent.standing.value})"


def _records(settings: dict[str, Any]) -> str:
    """What tells whose records a run reads: the data set, and the file of a table."""
    table = settings.get("table")
    return str(table["path"] if isinstance(table, dict) else settings.get("dataset", "digits"))
