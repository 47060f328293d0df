"""`tacit account`: what a SPEC, a ledger or DP-SGD costs, by every accountant.

`tacit calibrate`: the parameter that just meets a target.
"""

from pathlib import Path
from typing import Any

import typer

from tacit import check
from tacit.accounting import Account, Ledger, account, registry
from tacit.cli.console import REFUTED, screen
from tacit.errors import InvalidInput
from tacit.mechanisms import Gaussian
from tacit.serialization import json_text

_Named = tuple[str, Ledger, str]


def account_command(
    specs: list[Path] | None = None,
    *,
    noise_multiplier: float | None = None,
    sample_rate: float = 1.0,
    steps: int = 1,
    records: int | None = None,
    batch_size: float | None = None,
    epochs: float | None = None,
    bands: int = 8,
    relation: str = "add_remove",
    delta: float | None = None,
    epsilon: float | None = None,
    claim: float | None = None,
    check_brackets: bool = False,
    group: int = 1,
    unit: str = "",
    records_per_user: int | None = None,
    accountant: list[str] | None = None,
    json: bool = False,
    plot: Path | None = None,
) -> None:
    """Compute the privacy cost of mechanisms by every accountant that applies, with its standing.

    Each of several files is answered by itself; runs on the same data cost their composition.

    Args:
        specs ([SPEC.json]): SPEC.json, a ledger or RUN, - for standard input.
        delta: Compute epsilon at this delta (default 1e-5).
        epsilon: Compute delta at this epsilon instead.
        claim: A claimed epsilon at --delta; exit code 3 where more is proven to leak.
        check_brackets (--check): Check the bracket in ball arithmetic (needs tacit[judge]); exit code 3 where it is
            wrong.
        accountant: Use only this accountant (repeatable).
        plot: Draw trade-off curves and epsilon by step into FILE (.svg, .png, .pdf).
        json: Print JSON.

    DP-SGD without SPEC.json:
        noise_multiplier: Without SPEC.json: DP-SGD with this noise multiplier, std / clip norm.
        sample_rate: Its Poisson sampling rate, in (0, 1].
        steps: Its number of steps.
        relation: Its neighbouring relation.

    Comparison of samplers and noises:
        records: With --batch-size and --epochs: compare samplers and noises.
        batch_size: Of that comparison: expected size of a batch.
        epochs: Of that comparison: expected passes over the data.
        bands: Of that comparison: bands of banded noise.

    What is protected:
        group: Protect groups of so many units, which are added or removed together.
        unit: What is protected: the ledger's own unit, or a user of records.
        records_per_user: With --unit user: the most records of one user, as enforced before the run.
    """
    if any(each is not None for each in (records, batch_size, epochs)):
        given = {"noise_multiplier": noise_multiplier, "records": records, "batch_size": batch_size, "epochs": epochs}
        _compare(given, delta=1e-5 if delta is None else delta, relation=relation, bands=bands, json=json)
        return
    if delta is None and epsilon is None:
        delta = 1e-5
    if claim is not None:
        check.epsilon(claim)
        check.that(epsilon is None, "claim", "asked at a delta", check.Told("epsilon as well"), "Leave out --epsilon.")
    if plot is not None:
        # Before the computation, which may take minutes.
        check.choice("ending of the plot file", plot.suffix, [".svg", ".png", ".pdf"])
    ledgers = _ledgers(specs, noise_multiplier, sample_rate, steps, relation)
    group = _group(unit, records_per_user, group, ledgers)
    check.that(plot is None or len(ledgers) == 1, "plot", "of one SPEC", len(ledgers), "Name one file.")
    asked: dict[str, Any] = {"delta": delta, "epsilon": epsilon, "accountants": accountant, "group": group}
    found = [account(each, check_brackets=check_brackets, **asked) for _, each, _ in ledgers]
    if json:
        tables = [_table(each, word, answer) for (_, each, word), answer in zip(ledgers, found, strict=True)]
        named = [{"name": name} | table for (name, *_), table in zip(ledgers, tables, strict=True)]
        print(json_text(tables[0] if len(tables) == 1 else {"ledgers": named}))
    else:
        from tacit.reports import account_table, facts_table

        for (name, each, word), answer in zip(ledgers, found, strict=True):
            if len(ledgers) > 1:
                screen().print(name)
            screen().print(account_table(answer, each, group=group, word=word))
            if each.is_run:
                screen().print(facts_table(each, word))
    if plot is not None:
        from tacit.reports.plots import plot_account

        plot_account(ledgers[0][1], found[0], delta=1e-5 if delta is None else delta, path=plot)
    if any(answer.is_refuted for answer in found):
        typer.echo(f"pld: {registry.REFUTED}", err=True)
        raise typer.Exit(REFUTED)
    if claim is not None and delta is not None:
        _check_claim(ledgers, claim, delta, group)


def _compare(given: dict[str, Any], *, delta: float, relation: str, bands: int, json: bool) -> None:
    """Print what each sampler and noise costs at this noise multiplier, and its error."""
    from tacit.accounting.comparison import check_compared, compare

    check_compared(given)
    rows = compare(**given, delta=delta, relation=relation, bands=bands)
    if json:
        print(json_text({"delta": delta, "compared": [row.row() for row in rows]}))
        return
    from tacit.reports import plain_table, words

    table = []
    for row in rows:
        low, high = row.epsilon if row.epsilon is not None else (None, None)
        cost = "refused" if high is None else words.upward(high)
        named = {"sampling": row.sampling, "noise": row.noise, f"epsilon at delta {delta:g}": cost}
        table.append(named | {"at least": words.downward(low), "error of prefix sums": f"{row.error:.4g}"})
    screen().print(plain_table(table))
    screen().print("Groups and bins of correlated noise count as known. Errors are in units of the clipping norm.")


def _group(unit: str, records_per_user: int | None, group: int, ledgers: list[_Named]) -> int:
    """How many records are added or removed together; a user is a group of the most records that one may have."""
    if not unit:
        if records_per_user is not None:
            raise InvalidInput("records_per_user must be given with --unit user; got no unit. Add --unit user.")
        return group
    check.choice("unit", unit, ["user"])
    others = [each.unit for _, each, _ in ledgers if each.unit != "record"]
    if others:
        raise InvalidInput(f"unit must be asked of a ledger of records; got one of {others[0]!r}. Leave out --unit.")
    if records_per_user is None:
        raise InvalidInput("records_per_user must be given with --unit user; got none. Name the most that one has.")
    return check.count("records_per_user", records_per_user) * check.count("group", group)


def _ledgers(
    specs: list[Path] | None, noise_multiplier: float | None, sample_rate: float, steps: int, relation: str
) -> list[_Named]:
    """The ledgers to account for, each with its name and the word in place of a received run's standings."""
    if (noise_multiplier is None) == (not specs):
        raise InvalidInput("SPEC must be given, or --noise-multiplier instead; got both or neither. Name one of them.")
    if noise_multiplier is None:
        return [(str(path), *_ledger_of(path)) for path in specs or []]
    base = Gaussian(noise_multiplier)
    step = base if sample_rate == 1.0 else base.poisson(sample_rate)
    return [("DP-SGD", Ledger.of(step * check.count("steps", steps), relation=relation), "")]


def _ledger_of(path: Path) -> tuple[Ledger, str]:
    """The ledger of a run or a file; `open_run`, which loads what cards and data need, is asked about runs alone."""
    from tacit.runs.run_signature import in_run

    if path.is_file() and not in_run(path):
        ledger = Ledger.load(path)
        if not ledger.is_run:
            return ledger, ""
    from tacit.runs.open_run import ledger_at

    return ledger_at(path)


def _table(ledger: Ledger, word: str, answer: Account) -> dict[str, Any]:
    of = "run" if ledger.is_evidence and not word else "spec"
    rows = [result.row() | ({"standing": word} if word and result.is_bound else {}) for result in answer.results]
    refused = [{"accountant": name, "why": why} for name, why in answer.refused]
    checked = {} if answer.checked is None else {"checked": answer.checked.row()}
    return {"of": of, "scope": ledger.scope, "results": rows, "refused": refused} | checked


def _check_claim(ledgers: list[_Named], claim: float, delta: float, group: int) -> None:
    """One sentence about the claim for every ledger; exit code 3 where one is refuted."""
    from tacit.accounting.pld.accountant import Pld
    from tacit.reports import words

    lowers = [(name, Pld().grouped(ledger, group).epsilon(delta).interval[0] or 0.0) for name, ledger, _ in ledgers]
    for name, lower in lowers:
        verdict = f"is consistent with what is proven to leak at delta {delta:g}"
        if claim < lower:
            verdict = f"is refuted: at least epsilon {words.downward(lower)} is proven to leak at delta {delta:g}"
        typer.echo(f"{name}: the claim epsilon <= {claim:g} {verdict}.", err=True)
    if any(claim < lower for _, lower in lowers):
        raise typer.Exit(REFUTED)


def calibrate_command(
    spec: Path,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    advantage: float | None = None,
    mu: float | None = None,
    accountant: str = "pld",
    json: bool = False,
) -> None:
    """Find the value of the parameter that SPEC.json leaves null which just meets the target, and its guarantee.

    Args:
        spec (SPEC.json): SPEC.json with "noise_multiplier" (or steps, sample_rate, scale): null.
        epsilon: Target epsilon, at --delta.
        delta: Delta of the target epsilon, in (0, 1).
        advantage: Target membership advantage.
        mu: Target mu of Gaussian DP.
        accountant: Accountant that measures the guarantee.
        json: Print JSON.
    """
    from tacit.calibration import parameter_of_spec
    from tacit.tradeoff import target_of

    target = target_of(epsilon=epsilon, delta=delta, advantage=advantage, mu=mu)
    found = parameter_of_spec(spec, target, accountant=accountant)
    guarantee = registry.ask(found.guarantee, delta=1e-5 if delta is None else delta)
    if json:
        print(json_text({"parameter": found.parameter, "value": found.value, "guarantee": guarantee.row()}))
        return
    from tacit.standing import downward, leakage, upward

    standing = guarantee.tradeoff.standing
    told = [leakage(number, standing) for number in (guarantee.epsilon, guarantee.mu, guarantee.advantage)]
    rounded = downward if found.parameter in ("steps", "sample_rate") else upward
    print(f"{found.parameter} {rounded(found.value, 10)}")
    print(
        f"gives epsilon {told[0]} at delta {guarantee.delta:g}, mu {told[1]}, advantage {told[2]} "
        f"({standing.value}, {guarantee.tradeoff.source}, {guarantee.tradeoff.relation.value})"
    )
