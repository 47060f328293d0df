"""`tacit audit`: attack the model of an earlier run."""

from pathlib import Path
from typing import Any

import numpy as np
import typer

from tacit import check
from tacit.accounting.claims import claim_of, claims_of, states_claim
from tacit.attacks import Scores
from tacit.audit import Report, audit_foreign_scores
from tacit.cli.console import REFUTED, progress_bars, screen
from tacit.data.declarations import column_named
from tacit.data.delimited import is_parquet, read_columns, table_file
from tacit.data.draft import format_of
from tacit.data.labels import numbers, text
from tacit.errors import InvalidInput
from tacit.reports import audit_files, audit_table, audit_table_of, words
from tacit.reports.audit_page import audited_sentence, finding_table, overlap_table
from tacit.runs.open_run import ledger_at, run_of
from tacit.runs.run_signature import append
from tacit.serialization import json_text


def audit_command(
    run: Path | None = None,
    *,
    data_dir: Path | None = None,
    attack: list[str] | None = None,
    confidence: float | None = None,
    runs: int = 1,
    shadows: int = 32,
    canaries: int = 2000,
    trust_code: bool = False,
    scores: Path | None = None,
    member: str = "member",
    score: str = "score",
    claim: Path | None = None,
    delta: float | None = None,
    trials: str = "records",
    coins: bool = False,
    out: Path | None = None,
    show_values: bool = False,
    json: bool = False,
) -> None:
    """Attack the model of RUN and write the results there (audit.html, audit.json), or judge --scores of another model.

    Exit code 3 where the claim is refuted at 99.9 %, 0 otherwise.

    Args:
        run ([RUN]): Folder of a finished `tacit train`; or --scores instead.
        attack: Only this attack (repeatable), e.g. lira_offline. By default white_box, where the run can be
            repeated, and those of its settings.
        confidence: Confidence of every bound, in (0, 1).
        runs: Number of runs to attack: RUN and repetitions with fresh noise.
        shadows: Number of shadow models, for attacks that need them.
        canaries: Number of canaries of the white-box audit.
        data_dir: Folder of the data files.
        trust_code: Run the model's own code that RUN names; shows its file and hash.
        show_values: Error messages may quote values of the data.
        json: Print JSON.

    Scores of another model:
        scores: Instead of RUN: a CSV file of scores of any attack on any model.
        member: Its column of members: 1 or 0.
        score: Its column of scores: higher means trained on.
        claim: With --scores: SPEC, ledger or card.json of the claim under test.
        delta: With --scores: delta, where the claim states none.
        trials: With --scores: records of one model, or independent training runs.
        coins: With --scores: each record was in or out by its own fair coin.
        out: With --scores: folder to write audit.html and audit.json into.
    """
    if (run is None) == (scores is None):
        raise InvalidInput("RUN must be given, or --scores instead; got both or neither. Name one of them.")
    if scores is not None:
        options: dict[str, Any] = {"trials": trials, "coins": coins}
        options |= {"confidence": 0.95 if confidence is None else confidence}
        judged = read_scores(scores, member=member, score=score)
        report, title = _judged(judged, claim, delta, options), scores.stem
    else:
        from tacit.runs import audit_run

        assert run is not None
        options = {"data_dir": data_dir, "attacks": attack, "confidence": confidence, "runs": runs}
        options |= {"shadows": shadows, "canaries": canaries, "trust_code": trust_code}
        with progress_bars() as on_progress:
            report = audit_run(run, on_progress=on_progress, **options)
        out, title = run, run.resolve().name
    if out is not None:
        append(out, "audit", audit_files(report, title=title))
    if json:
        print(json_text(audit_table_of(report)))
    else:
        _print(report, None if out is None else out / "audit.html")
    if report.refuted:
        raise typer.Exit(REFUTED)


def _judged(scores: Scores, claimed: Path | None, delta: float | None, options: dict[str, Any]) -> Report:
    """The verdict on scores, and on the claim of the file `claimed`, by the `options` of `audit_foreign_scores`."""
    claim = None
    if claimed is not None:
        if (opened := run_of(claimed)) is not None:  # A claim of a run that was changed is none.
            opened.warn()
        if states_claim(claimed):
            stated = claims_of(claimed)
            claim = claim_of(stated[0].ledger, stated)
            delta = stated[0].delta if delta is None else delta
        else:
            claim = claim_of(ledger_at(claimed)[0])
            if claim is None:
                raise InvalidInput('claim must be mechanisms that `pld` accounts for, or a table "claim"; got neither.')
    relation = "add_remove" if claim is None else claim.relation
    at = 1e-5 if delta is None else delta
    return audit_foreign_scores(scores, delta=at, claim=claim, relation=relation, **options)


def _print(report: Report, page: Path | None) -> None:
    console = screen()
    console.print(audited_sentence(report), style="bold")
    if report.claim is not None:
        console.print(f"Claim: epsilon {words.upward(float(report.claim.epsilon(report.delta)))} at {report.delta:g}.")
    console.print(audit_table(report.results))
    if report.findings:
        console.print(finding_table(report.findings))
    for name, rows in report.overlaps.items():
        console.print(overlap_table(name, rows))
    for statement in dict.fromkeys(result.statement for result in report.results):
        console.print(statement, style="dim")
    together = words.together(report.confidences, jointly=report.refuted_by is not None)
    if together:
        console.print(together, style="dim")
    for name, passed in report.monitors.items():
        console.print(f"{name} monitor: {'passed' if passed else 'failed'}", style="dim" if passed else "bold red")
    for sentence in report.refusals:
        console.print(f"The releases of the repeated run refute the claim: {sentence}", style="bold red")
    if report.undeclared and report.claim is not None:
        declare = "Declare it with --trials independent or --coins."
        console.print(f"No verdict on the claim: it would take that {report.undeclared}. {declare}", style="bold")
    for attack in report.refuted_by or ():
        console.print(f"{attack} refutes the claim at 99.9 %.", style="bold red")
    if page is not None:
        console.print(str(page), style="dim", soft_wrap=True)


_MEMBERS: dict[str, bool] = dict.fromkeys(("1", "true", "yes", "in", "member", "1.0"), True)
_MEMBERS |= dict.fromkeys(("0", "false", "no", "out", "non-member", "non_member", "0.0"), False)
_LARGEST = 1 << 30  # bytes of a file: a column of scores of thirty million records


def read_scores(path: Path, *, member: str = "member", score: str = "score") -> Scores:
    """The scores in a CSV or Parquet file.

    The file holds per-record secrets: messages count rows that break a rule and quote none. The threshold is the mean
    score of the members, which no estimator but `fixed` uses.

    Args:
        path: of the file.
        member: name of the column that says whether a record was trained on: 1 or 0, true or false, in or out.
        score: name of the column of scores, higher meaning "was trained on".

    Raises:
        InvalidInput: the file, its header or a cell breaks its rule.
    """
    file = table_file(path)
    if file.stat().st_size > _LARGEST:
        raise check.fail("scores", f"a file of at most {_LARGEST >> 20} MiB", f"{file.stat().st_size >> 20} MiB")
    columns = read_columns(file, None if is_parquet(file) else format_of(file))
    cells, values = (columns[column_named(f"the column {name!r}", name, columns)] for name in (member, score))
    inside = [_MEMBERS.get(text(cell).lower()) for cell in cells]
    unknown, scored = sum(each is None for each in inside), numbers(values)
    check.that(not unknown, f"column {member!r}", "1 or 0, true or false, in or out in every row", f"{unknown} others")
    missing = int(np.isnan(scored).sum())
    hint = "Write numbers with a decimal point; leave out records without a score."
    check.that(not missing, f"column {score!r}", "a number in every row", f"{missing} others", hint)
    kept = np.array(inside, dtype=bool)
    got = "members only" if kept.all() else "non-members only"
    check.that(not kept.all() and kept.any(), "scores", "of members and of non-members", got)
    finite = scored[kept & np.isfinite(scored)]
    return Scores(path.stem, scored[kept], scored[~kept], float(finite.mean()) if len(finite) else 0.0)
