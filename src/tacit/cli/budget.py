"""`tacit budget`: the registry of what was spent on each data set, and its caps."""

from pathlib import Path

from tacit import check
from tacit.accounting.filters import KINDS
from tacit.budget import DatasetBudget, Registry, Scope, find_registry, totals
from tacit.budget.registry import FILE
from tacit.cli.console import CommandGroup
from tacit.cli.statement import about
from tacit.relation import Relation
from tacit.serialization import json_text, write_bytes, write_text
from tacit.statement import Subject
from tacit.statement.document import read_bounded
from tacit.statement.writing import budget_statement
from tacit.tradeoff import Epsilon, Target, target_of

NOT_TRACKED = (
    "Budget: the total over runs on these records is not tracked, so across runs this number is only claimed "
    "(tacit budget init)."
)
budget_app = CommandGroup("What was spent on each data set over all runs, and its caps.")


@budget_app.command()
def init(
    name: str,
    *,
    data: str | None = None,
    data_dir: Path | None = None,
    unit: str = "record",
    relation: str = "add_remove",
    epsilon: float | None = None,
    delta: float | None = None,
    advantage: float | None = None,
    mu: float | None = None,
    scope: str = "adaptive",
    plan: Path | None = None,
    order: float | None = None,
    registry: str | None = None,
) -> None:
    """Declare a data set, and make the registry in this folder where there is none.

    Args:
        name: What the data set will be called.
        data: Preset or CONFIG.toml whose training records are recognised later.
        unit: The privacy unit.
        relation: add_remove, replace_one or zero_out.
        epsilon: Of the cap; give one of epsilon (with delta), advantage and mu.
        delta: Of the cap; give one of epsilon (with delta), advantage and mu.
        advantage: Of the cap; give one of epsilon (with delta), advantage and mu.
        mu: Of the cap; give one of epsilon (with delta), advantage and mu.
        scope: What may follow earlier outputs: adaptive, fixed, odometer, or the filter renyi, gaussian, pure or
            zcdp, whose budget is epsilon and delta.
        plan: With --scope renyi: SPEC of what is meant to run, as for tacit account.
        order: With --scope odometer: Renyi order, above 1.
        registry: File or URL; by default TACIT_BUDGET, else tacit-budget.sqlite here or above.
        data_dir: Folder of the data files.
    """
    cap = _target(epsilon, delta, advantage, mu)
    Relation.parse(relation)
    declared, records = _scope(scope, cap, plan, order), None
    if data is not None:
        from tacit.runs import read_config
        from tacit.runs.builders import dataset_of

        records = dataset_of(read_config(data, {}), data_dir)
    found = find_registry() if registry is None else None
    book = found if found is not None else Registry.create(registry if registry is not None else FILE)
    if records is not None and (known := book.recognise(records.x_train, records.y_train)):
        hint = f"Use --budget {known[0]}: the same people have one budget."
        raise check.fail("data", "records that no data set has yet", known[0], hint)
    facts = {} if records is None else {"records": len(records.y_train)}
    dataset = book.declare(name, unit=unit, relation=relation, facts=facts, scope=declared)
    if records is not None:
        dataset.register(records.x_train, records.y_train)
    if cap is not None and not declared.is_filter:
        dataset.cap(cap)
    print(f"Registry: {book.store.place}")
    print(total_sentence(dataset))


@budget_app.command()
def show(name: str | None = None, *, registry: str | None = None, json: bool = False) -> None:
    """Show caps, the exact total and what is left of each data set.

    Args:
        name: A declared data set; all by default.
        registry: File or URL; by default TACIT_BUDGET, else tacit-budget.sqlite here or above.
        json: Print JSON.
    """
    chosen = _chosen(registry, name)
    if json:
        print(json_text([totals.total_table(dataset.known) for dataset in chosen]))
        return
    for dataset in chosen:
        print(total_sentence(dataset))
        for cap in dataset.known.caps.values():
            print(f"  {totals.left_in_words(dataset.known, cap)}")
        if dataset.known.scope.kind == "odometer":
            print(f"  {totals.odometer_in_words(dataset.known)}")
        for sentence in dataset.total().assumptions:
            print(f"  Assumed: {sentence}")


@budget_app.command()
def cap(
    name: str,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    advantage: float | None = None,
    mu: float | None = None,
    registry: str | None = None,
) -> None:
    """Set a cap; it replaces the one of its kind, which stays in the history.

    Args:
        name: A declared data set.
        epsilon: Of the cap; give one of epsilon (with delta), advantage and mu.
        delta: Of the cap; give one of epsilon (with delta), advantage and mu.
        advantage: Of the cap; give one of epsilon (with delta), advantage and mu.
        mu: Of the cap; give one of epsilon (with delta), advantage and mu.
        registry: File or URL; by default TACIT_BUDGET, else tacit-budget.sqlite here or above.
    """
    target = _target(epsilon, delta, advantage, mu)
    if target is None:
        raise check.fail("cap", "given by --epsilon and --delta, --advantage or --mu", None)
    dataset = _registry(registry).dataset(name)
    dataset.cap(target)
    print(total_sentence(dataset))


@budget_app.command()
def history(name: str | None = None, *, registry: str | None = None, json: bool = False) -> None:
    """List every entry, oldest first.

    Args:
        name: A declared data set; all by default.
        registry: File or URL; by default TACIT_BUDGET, else tacit-budget.sqlite here or above.
        json: Print JSON.
    """
    rows = [row for dataset in _chosen(registry, name) for row in totals.history_rows(dataset.history())]
    rows.sort(key=lambda row: row["number"])
    if json:
        print(json_text(rows))
        return
    for row in rows:
        print(f"{row['number']:>4}  {row['time']}  {row['dataset']}  {row['kind']:<11}  {row['says']}")


@budget_app.command()
def export(
    name: str | None = None, *, form: str = "json", out: Path | None = None, registry: str | None = None
) -> None:
    """Write releases and totals as JSON or CSV.

    Args:
        name: A declared data set; all by default.
        form (--format, FORMAT): json or csv; of a statement, see tacit statement.
        out: File to write; printed by default.
        registry: File or URL; by default TACIT_BUDGET, else tacit-budget.sqlite here or above.
    """
    text = totals.export_text([(each.known, each.history()) for each in _chosen(registry, name)], form)
    if out is None:
        print(text)
    else:
        write_text(out, text)
        print(out)


@budget_app.command()
def statement(
    name: str,
    *,
    out: Path | None = None,
    data_version: str = "",
    one_record: str = "",
    fact: list[str] | None = None,
    owner: str = "",
    contact: str = "",
    purpose: str = "",
    date: str = "",
    delta: list[float] | None = None,
    registry: str | None = None,
) -> None:
    """Write the signed statement of all releases on a data set together, which `tacit check` recomputes.

    A later one about the same data set takes the next number.

    Args:
        name: A declared data set.
        out: File to write (default NAME.statement.json here).
        data_version: Of the data, such as a date or a digest.
        one_record: What one record is, such as 'one patient'.
        fact: What is public about the data (repeatable).
        owner: Who answers for the data.
        contact: How to reach them.
        purpose: What the release is for.
        date: Of the release, as YYYY-MM-DD; today by default.
        delta: Bound epsilon at this delta too (repeatable).
        registry: File or URL; by default TACIT_BUDGET, else tacit-budget.sqlite here or above.
    """
    dataset = _registry(registry).dataset(name)
    given = {"data_version": data_version, "one_record": one_record, "fact": fact, "owner": owner}
    given |= {"contact": contact, "purpose": purpose, "date": date}
    path = out or Path(f"{name}.statement.json")
    earlier = read_bounded(path) if path.exists() else b""
    write_bytes(path, budget_statement(dataset, Subject(name, **about(**given)), delta or (), earlier=earlier))
    print(f"{path}: check it with tacit check {path}")


@budget_app.command()
def verify(*, registry: str | None = None) -> None:
    """Check every signature, the chain of entries, the fingerprints, and that none is missing.

    Args:
        registry: File or URL; by default TACIT_BUDGET, else tacit-budget.sqlite here or above.
    """
    book = _registry(registry)
    print(f"{book.verify()} entries, each signed with this key; none is missing. Registry: {book.store.place}")


def total_sentence(dataset: DatasetBudget | None) -> str:
    """What was spent on `dataset` by now, of what, and on which grounds."""
    if dataset is None:
        return NOT_TRACKED
    known = dataset.known
    runs = sum(held.status != "abandoned" and bool(held.steps) for held in known.held.values())
    return f"Budget {dataset.name}: {runs} run{'' if runs == 1 else 's'} {totals.spent_in_words(known)}."


def charged_name(budget: str | None, no_budget: bool) -> str | None:
    """The name that `train` takes for the flags `--budget` and `--no-budget`."""
    from tacit.runs.run_budget import NONE

    check.that(budget is None or not no_budget, "budget", "left out with --no-budget", budget)
    return NONE if no_budget else budget


def _registry(where: str | None) -> Registry:
    found = find_registry(where)
    if found is None:
        raise check.fail("registry", "in this folder or above it", None, "Run tacit budget init NAME.")
    return found


def _chosen(registry: str | None, name: str | None) -> list[DatasetBudget]:
    """The data set called `name`, or all of the registry."""
    book = _registry(registry)
    return [book.dataset(each) for each in ([name] if name is not None else book.names)]


def _target(epsilon: float | None, delta: float | None, advantage: float | None, mu: float | None) -> Target | None:
    if epsilon is delta is advantage is mu is None:
        return None
    return target_of(epsilon=epsilon, delta=delta, advantage=advantage, mu=mu)


def _scope(kind: str, cap: Target | None, plan: Path | None, order: float | None) -> Scope:
    """The scope of a data set; a filter's budget is the cap."""
    from tacit.runs.open_run import ledger_at

    meant = None if plan is None else ledger_at(plan)[0].mechanism
    if kind not in KINDS:
        return Scope(kind, plan=meant, order=order)
    if not isinstance(cap, Epsilon):
        raise check.fail("cap", "given by --epsilon and --delta for a filter, whose budget it is", cap)
    return Scope(kind, cap, meant, order)
