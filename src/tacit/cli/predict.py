"""`tacit predict`: answers of a run's model for the rows of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.console import ShowValues, TrustCode


def command(
    run: Annotated[Path, typer.Argument(help="Folder of a finished `tacit train`.", metavar="RUN")],
    file: Annotated[Path, typer.Argument(help="Table with the run's columns, or a .npy of features.", metavar="FILE")],
    out: Annotated[Path | None, typer.Option(help="CSV file to write; printed by default.")] = None,
    trust_code: TrustCode = False,
    show_values: ShowValues = False,
) -> None:
    """Predict the rows of FILE in their order, as CSV: a prediction a row, and the probability of each class."""
    from tacit import check
    from tacit.runs.prediction import load
    from tacit.serialization import write_text

    if out is not None and out.exists():
        raise check.fail("out", "a file that is not there yet", str(out), "Name another one.")
    model = load(run, trust_code=trust_code)
    features = model.features(file)
    header, columns = ["prediction"], [model.predict(features).tolist()]
    if model.task != "regression":
        header += [f"probability {name}" for name in model.classes_]
        columns += model.predict_proba(features).T.tolist()
    lines = [header, *([_cell(value) for value in row] for row in zip(*columns, strict=True))]
    text = _csv(lines)
    if out is None:
        print(text, end="")
    else:
        write_text(out, text)
        print(f"{len(lines) - 1} predictions: {out}")


def _cell(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _csv(lines: list[list[str]]) -> str:
    import csv
    import io

    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(lines)
    return stream.getvalue()
