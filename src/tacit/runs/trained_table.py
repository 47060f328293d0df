"""`train_table`: a data frame in, a private model with its card and signed statement out."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tacit import check
from tacit.data.answers import usual_delta, usual_settings
from tacit.data.declarations import Declarations
from tacit.data.delimited import TableFormat
from tacit.data.table import dataset_from, is_frame
from tacit.reports import Card
from tacit.runs.config import AUTO, Config, trains_otherwise
from tacit.runs.folders import write_statement
from tacit.runs.methods import choose_method, method_of
from tacit.runs.prediction import LoadedModel, load
from tacit.runs.run import train_by
from tacit.runs.settings import Folder, TableConfig
from tacit.serialization import tuples


@dataclass(frozen=True)
class TrainedTable:
    """What `train_table` returns.

    Attributes:
        model: with `predict` and `predict_proba` for frames like the one that was given.
        card: what the run promises, and what was found against it.
        statement: the file of the signed privacy statement, which anybody can check by `tacit check`.
        folder: of the run.
    """

    model: LoadedModel
    card: Card
    statement: Path
    folder: Path


def train_table(
    rows: Any,
    *,
    target: str,
    epsilon: float,
    schema: Mapping[str, Any] | None = None,
    delta: float | None = None,
    out: Folder | None = None,
    **settings: Any,
) -> TrainedTable:
    """Train privately on a data frame, as `tacit train` does on a file: account, attack, card, statement.

    Boosted trees where a rule of the numbers of records and columns and of the target expects them to be better, else a
    linear model from zero by DP-SGD, and the exponential mean of its weights, with batches of an eighth of the records
    (constants looked at on Adult); the card says which and why, and every setting of a training can be given in place
    of the rule. The test records are a part of the frame, and private. The frame itself is written nowhere.

    Args:
        rows: a frame of pandas, polars or Arrow, or a mapping of columns.
        target: the column of the answers.
        epsilon: > 0, of the training.
        schema: what is declared, by the names that `tacit.data.table` has: classes or task and target_range, bounds,
            categories, dates, fill, drop, ...; what is not is read from the data, with a `LeakWarning`, and the
            guarantee is only claimed.
        delta: min(1e-5, n^-1.1) by default.
        out: folder to write; `runs/NAME-DATE-TIME` by default.
        **settings: of `tacit.runs.Config`, such as model="mlp" or epochs=10.

    Raises:
        InvalidInput: as `tacit.data.table` and `tacit.runs.train`.

    Example:
        >>> found = train_table(people, target="ill", epsilon=1.0, schema={"classes": ["no", "yes"]})  # doctest: +SKIP
        >>> found.model.predict(people)  # doctest: +SKIP
    """
    hint = "Give the columns names, e.g. pandas.DataFrame(rows, columns=[...]); tacit train takes files."
    check.that(is_frame(rows), "rows", "a data frame or a mapping of columns", check.Told(type(rows).__name__), hint)
    declared = dict(schema or {})
    check.keys("schema", declared, [each.name for each in fields(Declarations) if each.name != "target"])
    # What a folder of the run says of its table; the frame itself is written nowhere.
    table = TableConfig(path="frame.csv", target=target, **tuples(declared))
    dataset = dataset_from(rows, table, form=TableFormat(), strict=bool(settings.get("strict")))
    records = len(dataset.y_train)
    by_rule: dict[str, Any] = {} if trains_otherwise(settings) else {"method": AUTO}
    config = Config(
        name=settings.pop("name", "table"),
        dataset="table",
        table=table,
        epsilon=check.positive("epsilon", epsilon),
        delta=usual_delta(records) if delta is None else delta,
        **usual_settings(records, dataset.task) | by_rule | settings,
    )
    config = choose_method(config, dataset)
    run = train_by(method_of(config), config, dataset, out=out)
    return TrainedTable(load(run.folder), run.card, write_statement(run.folder), run.folder)
