"""`load`: the model of a finished run with its preprocessing, as an object with scikit-learn's methods.

Nothing of the folder is executed: the weights are safetensors, the rest is JSON. A file that was changed after the
run signed it is refused.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit import check
from tacit.data import Dataset
from tacit.data.delimited import TableFormat, is_parquet, read_columns, table_file
from tacit.data.schema import Schema
from tacit.data.table import frame, is_frame
from tacit.errors import InvalidInput
from tacit.runs.config import Config
from tacit.runs.methods import Job, method_of
from tacit.runs.open_run import OpenedRun, open_run
from tacit.runs.run_signature import CARD, FEATURES, MODEL, PREPROCESSING
from tacit.runs.settings import Folder
from tacit.serialization import json_text, write_text
from tacit.training import load_model

if TYPE_CHECKING:
    from tacit.features import PublicFeatures

_VERSION = 1


def write_preprocessing(folder: Path, config: Config, dataset: Dataset) -> None:
    """Write `preprocessing.json`: what turns rows of a file into features, and outputs into answers.

    It holds declarations and shapes alone; of a table whose bounds were read off the data those too, as its model does.
    """
    table, codes = None, dataset.x_train.dtype.kind == "i"
    if dataset.schema is not None and config.table is not None:
        table = {"columns": dataset.schema.spec(), "format": config.table.form.spec(), "target": config.table.target}
    highest = np.broadcast_to(np.asarray(dataset.bounds[1], float), dataset.x_train.shape[1:]).ravel()
    content = {
        "version": _VERSION,
        "dataset": dataset.name,
        "task": dataset.task,
        "classes": list(dataset.classes),
        "target_range": list(map(float, dataset.target_range)),
        "shape": list(dataset.x_train.shape[1:]),
        "codes": codes,
        "highest": highest.tolist() if codes else [],
        "feature_names": None if dataset.feature_names is None else list(dataset.feature_names),
        "table": table,
        "made_by": None if dataset.features is None else dataset.features.spec(),
    }
    write_text(folder / PREPROCESSING, json_text(content))


class LoadedModel:
    """The model of a run: rows in, answers out; `load` makes it.

    Attributes:
        folder: of the run.
        task: "classification", "ratings" or "regression".
        classes_: names of the classes; empty for a regression.
        feature_names_in_: names of the features after encoding, or None.
        schema: how the columns of a table become features; None for data that are no own table.
        form: how text files are written.
        target: the column that was predicted; empty for data that are no own table.
        ledger: what the model cost.
    """

    def __init__(self, run: OpenedRun, config: Config, content: Mapping[str, Any]):
        table, names, blank = content["table"], content["feature_names"], _blank(content)
        self.folder, self.ledger, self.task = run.folder, run.ledger, blank.task
        self.classes_ = np.array(blank.classes, dtype=object)
        self.feature_names_in_ = None if names is None else np.array(names, dtype=object)
        self.schema = None if table is None else Schema.from_spec(table["columns"])
        self.form = TableFormat() if table is None else TableFormat.from_spec(table["format"])
        self.target = "" if table is None else str(table["target"])
        self._shape, self._codes, self._best = blank.x_train.shape[1:], bool(content["codes"]), run.best
        self._job = Job(config, blank, run.ledger, run.folder)
        self._predict = method_of(config).load(self._job)
        self._made_by = _features(run.folder, content.get("made_by"))

    @property
    def n_features_in_(self) -> int:
        """The number of features after encoding."""
        return int(np.prod(self._shape))

    def predict(self, rows: Any) -> np.ndarray:
        """The answers, (n,): names of classes, values of a regression, expected ratings.

        Args:
            rows: a path to a file like the one of the run, a data frame (pandas, polars, Arrow, Hugging Face) or a
                mapping of its columns; or an array of encoded features, (n, ...).

        Raises:
            InvalidInput: a column is missing, or a cell breaks the declarations of the run.
        """
        outputs = self._outputs(rows)
        if self.task == "regression":
            return outputs
        if self.task == "ratings":
            return outputs @ self.classes_.astype(float)
        return self.classes_[outputs.argmax(axis=1)]

    def predict_proba(self, rows: Any) -> np.ndarray:
        """Class probabilities, (n, classes); raises `InvalidInput` for a regression, which has none."""
        check.that(self.task != "regression", "the run", "one with classes", "a regression", "Use predict.")
        return self._outputs(rows)

    def features(self, rows: Any) -> np.ndarray:
        """The encoded features of `rows`, as `predict` takes them."""
        if isinstance(rows, str | os.PathLike):
            rows = self._read(Path(rows))
        elif is_frame(rows) and not isinstance(rows, Mapping):
            rows = frame(rows)
        if isinstance(rows, Mapping):
            if self.schema is None:
                hint = "Columns by name belong to a table of one's own; give an array of features."
                raise check.fail("rows", f"an array of shape {_rows_of(self._shape)}", "columns", hint)
            return self.schema.encode({name: np.asarray(values) for name, values in rows.items()}, toml=True)
        if self._made_by is None:
            return self._checked(rows, self._shape)
        from tacit.features import HashedText

        features: Any = self._made_by
        if isinstance(features, HashedText):
            return features.of(rows)
        while not hasattr(features, "image"):  # Of the shape that the innermost ones take.
            features = features.features if hasattr(features, "features") else features.parts[0]
        return self._made_by.of(self._checked(rows, features.image))

    def onnx(self) -> bytes:
        """The content of an ONNX file with the model, its preprocessing and its guarantee.

        Inputs are the columns of the table, (rows, 1) each: float64 numbers (a date in days since 1970-01-01), NaN
        where a cell is missing, and texts for categories; or `features` for data that are no own table. Outputs are
        `prediction` and, but for a regression, `probabilities`; a row that `predict` would refuse gets NaN and "".
        Extra: pip install 'tacit[onnx]'.

        Raises:
            InvalidInput: the model is none that ONNX holds.
            TacitError: the extra is not installed.
        """
        from tacit.runs.onnx_model import onnx_model

        if self._made_by is not None:
            raise check.fail("the run", "one without public features", "one with them", "ONNX has no form of them.")
        best = self._best
        facts = {name: str(best[name]) for name in ("epsilon", "delta", "relation", "standing") if name in best}
        return onnx_model(
            method_of(self._job.config).module(self._job),
            self._job.dataset.x_train,
            task=self.task,
            classes=self._job.dataset.classes,
            schema=self.schema,
            facts=facts | {"ledger_hash": self.ledger.hash},
        )

    def __repr__(self) -> str:
        return f"LoadedModel({str(self.folder)!r}, {self.task}, features={self.n_features_in_})"

    def _outputs(self, rows: Any) -> np.ndarray:
        return self._predict(self.features(rows))

    def _checked(self, rows: Any, shape: tuple[int, ...]) -> np.ndarray:
        try:
            array = np.asarray(rows)
            array = array.astype(np.int64 if self._codes and array.dtype.kind in "iu" else np.float32)
        except (TypeError, ValueError):
            raise check.fail("rows", "numbers", "other values", "Give the table's columns by name.") from None
        if array.shape[1:] != shape or not len(array) or (self._codes and array.dtype.kind != "i"):
            kind = "integers" if self._codes else "numbers"
            raise check.fail("rows", f"{kind} of shape {_rows_of(shape)}", array.shape)
        check.that(np.isfinite(array).all(), "rows", "finite numbers", "NaN or inf among them")
        return array

    def _read(self, file: Path) -> Any:
        if file.suffix == ".npy" and file.is_file():
            try:
                return np.load(file, allow_pickle=False)
            except (ValueError, OSError, EOFError):
                raise check.fail("FILE", "a NumPy file of numbers", str(file)) from None
        if self.schema is None:
            hint = f"Of this run it holds an array of shape {_rows_of(self._shape)}."
            raise check.fail("FILE", "an existing .npy file for a run on no table of one's own", str(file), hint)
        file = table_file(file)
        return read_columns(file, None if is_parquet(file) else self.form)


def _rows_of(shape: Sequence[int]) -> str:
    return f"(rows, {', '.join(map(str, shape))})"


def load(run: Folder, *, trust_code: bool = False) -> LoadedModel:
    """The model of the finished run in the folder `run`, with its preprocessing; no data are read.

    Warns with `PrivacyWarning` where this user's key did not sign the run.

    Args:
        run: folder of a finished `tacit train`.
        trust_code: run the code that a received run names as its model; its file and hash are shown.

    Raises:
        InvalidInput: the folder is no finished run of this version, a file of it was changed after the run signed it,
            or its model is code that nobody vouches for.
    """
    opened = open_run(run)
    config = opened.config(trust_code=trust_code)
    opened.needs(MODEL, CARD, PREPROCESSING)
    opened.warn()
    try:
        return LoadedModel(opened, config, opened.table(PREPROCESSING))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise check.fail(PREPROCESSING, "as a run wrote it", type(error).__name__) from None


def _features(folder: Path, spec: Mapping[str, Any] | None) -> PublicFeatures | None:
    """The features that the model takes, with the matrices that were saved beside it."""
    if spec is None:
        return None
    from tacit.features import features_from  # Loads scikit-learn.

    features = features_from(spec)
    load_model(features, folder / FEATURES)
    return features


def _blank(content: Mapping[str, Any]) -> Dataset:
    """A data set of the run's shapes with one record of zeros in each part, from which a method builds its model."""
    shape = tuple(check.count("each of shape", size) for size in content["shape"])
    codes = bool(content["codes"])
    rows = np.zeros((1, *shape), dtype=np.int64 if codes else np.float32)
    regression = content["task"] == "regression"
    answers = np.zeros(1, dtype=np.float32 if regression else np.int64)
    low, high = content["target_range"]
    highest = np.array(content["highest"], dtype=float).reshape(shape) if codes else 1.0
    return Dataset(
        name=str(content["dataset"]),
        x_train=rows,
        y_train=answers,
        x_test=rows,
        y_test=answers,
        classes=tuple(map(str, content["classes"])),
        bounds=(np.zeros(shape) if codes else 0.0, highest),
        task=check.choice("task", content["task"], ("classification", "ratings", "regression")),
        target_range=(float(low), float(high)),
    )
