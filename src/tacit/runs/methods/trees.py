"""Boosted random trees on private distribution functions (`tacit.erm.DPBoostedTrees`), and when `auto` takes them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from tacit.calibration import smallest
from tacit.data import Dataset
from tacit.data.schema import CATEGORY
from tacit.erm import DPBoostedTrees
from tacit.erm.gradient import Shape
from tacit.mechanisms import Gaussian
from tacit.relation import Relation
from tacit.runs.config import Config
from tacit.runs.methods.base import Job, OneRelease, Predict, Released, Trained, outputs_of
from tacit.runs.settings import TreesSettings
from tacit.tradeoff import Epsilon
from tacit.training.ranks import world_size

LEAST_RECORDS, LEAST_SIGNAL = 3000, 800.0
"""Records n, and n mu, from which trees are better than a linear model."""
SIGNAL_OF_A_COLUMN = 3.0
"""n mu that every column needs."""


def choose_method(config: Config, dataset: Dataset) -> Config:
    """`config` with the method that "auto" stands for on these data, and in `chosen` which one it is and why.

    Boosted trees where a rule of the numbers of records and columns and of the target alone expects private
    distribution functions to pay for themselves; else a linear model by DP-SGD.
    """
    refusal = _no_trees(config, dataset)
    if refusal:
        return replace(config, method="gradient", chosen=f"Chosen by rule: a linear model, because {refusal}.")
    shape, why = _shape(config, dataset), f"at least {LEAST_SIGNAL:g}, and {SIGNAL_OF_A_COLUMN:g} for each column"
    told = f"{shape.records:,} records (at least {LEAST_RECORDS:,}) times mu {shape.mu:.3g} give "
    told += f"{shape.records * shape.mu:,.0f} ({why}) for {shape.columns} columns"
    enough = shape.records >= LEAST_RECORDS and shape.records * shape.mu >= LEAST_SIGNAL
    if enough and shape.signal >= SIGNAL_OF_A_COLUMN:
        found = f"Chosen by rule: boosted trees, because {told}; method=gradient trains a linear model."
        return replace(config, method="trees", average=None, chosen=found)
    found = f"Chosen by rule: a linear model, because trees need more: {told}; method=trees trains them all the same."
    return replace(config, method="gradient", chosen=found)


def _no_trees(config: Config, dataset: Dataset) -> str:
    """Why trees cannot be trained with these settings and data; empty where they can."""
    cases = {
        "trees predict classes of records of numbers": dataset.task != "classification" or not _has_rows(dataset),
        "whole persons are protected": dataset.units is not None,
        "records or classes have weights": dataset.weights is not None or bool(config.class_weights),
        "the noise multiplier is given": config.epsilon is None or not config.delta,
        "validation records are set aside": config.section("validation").type != "none",
        "the number of records is declared": config.public_size is not None,
        "several processes train": world_size() > 1,
    }
    return next((why for why, holds in cases.items() if holds), "")


def _has_rows(dataset: Dataset) -> bool:
    return dataset.x_train.dtype.kind == "f" and dataset.x_train.ndim == 2


def _shape(config: Config, dataset: Dataset) -> Shape:
    assert config.epsilon is not None, "see _no_trees"
    relation = Relation.parse(config.relation)
    target = Epsilon(config.epsilon, config.delta)
    multiplier = smallest("noise_multiplier", Gaussian, target, relation=relation).value
    return Shape(len(dataset.y_train), len(_widths(dataset)), relation.sensitivity / multiplier)


class EncodedTrees(Released):
    """`SymmetricTrees` on encoded rows, (n, features) to class probabilities."""

    columns: Tensor
    cuts: Tensor
    members: Tensor
    values: Tensor
    widths: Tensor

    def __init__(self, **tensors: Tensor):
        super().__init__(**tensors)
        self._blocks = self.widths.tolist()

    def forward(self, features: Tensor) -> Tensor:
        """Class probabilities, float64 (batch, classes)."""
        rows = _joined(features.double(), self._blocks)
        trees, depth = self.columns.shape
        asked = rows[:, self.columns.flatten()]
        cuts = self.cuts.flatten()
        members, question = self.members.flatten(0, 1), torch.arange(trees * depth)
        codes = asked.long().clamp(0, members.shape[1] - 1)
        # A numeric question has no members, and the cut of a category is NaN, above which nothing is.
        yes = members[question, codes].bool() | (asked > cuts)
        leaves = (yes.reshape(-1, trees, depth).long() * 2 ** torch.arange(depth)).sum(2)
        scores = self.values[torch.arange(trees), leaves].sum(1)
        if scores.shape[1] > 1:
            return torch.softmax(scores, dim=1)
        return torch.cat([torch.sigmoid(-scores), torch.sigmoid(scores)], dim=1)


class Trees(OneRelease[TreesSettings]):
    """Noisy sums of residuals in the leaves of random trees; of the loop's settings only epsilon, delta and relation.

    A category of a table is one column of codes; every other feature is a numeric column.
    """

    kind: ClassVar[type[Released]] = EncodedTrees

    def refusal(self, dataset: Dataset) -> str:
        """What it takes where that is no table of classes."""
        fits = dataset.task == "classification" and _has_rows(dataset)
        return "" if fits else "one of classes and columns of numbers"

    def release(self, job: Job) -> Trained:
        """Release the distribution functions and the trees once."""
        dataset, widths = job.dataset, np.array(_widths(job.dataset))
        low, high = (np.broadcast_to(np.asarray(end, dtype=float), dataset.x_train.shape[1:]) for end in dataset.bounds)
        first, hot = np.cumsum(widths) - widths, widths > 1
        estimator = DPBoostedTrees(
            trees=self.settings.trees,
            depth=self.settings.depth,
            data_bounds=(np.where(hot, 0.0, low[first]), np.where(hot, widths - 1.0, high[first])),
            categorical=np.flatnonzero(hot).tolist(),
            **self.given(job),
        )
        estimator.fit(_codes(dataset.x_train, widths.tolist()), dataset.y_train)
        job.ledger.save(job.folder / "ledger.json")
        trees = estimator.trees_
        # Without categories there is nothing to look up; one answer that nobody asks for keeps the shapes.
        members = trees.members if trees.members.shape[2] else np.zeros((*trees.columns.shape, 1))
        model = EncodedTrees(
            columns=torch.from_numpy(trees.columns),
            cuts=torch.from_numpy(trees.cuts),
            members=torch.from_numpy(members.astype(np.uint8)),
            values=torch.from_numpy(trees.values),
            widths=torch.from_numpy(widths),
        )
        return self._described(job, model)

    def untrained(self, job: Job) -> Trained:
        """One tree of zeros, whose classes are all alike."""
        whole = torch.zeros(1, 1, dtype=torch.int64)
        model = EncodedTrees(
            columns=whole,
            cuts=whole.double(),
            members=torch.zeros(1, 1, 1, dtype=torch.uint8),
            values=torch.zeros(1, 2, outputs_of(job.dataset), dtype=torch.float64),
            widths=torch.tensor(_widths(job.dataset)),
        )
        return self._described(job, model)

    def unprotected(self, job: Job) -> Predict:
        """Histogram boosting."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        dataset = job.dataset
        model = HistGradientBoostingClassifier(random_state=0).fit(dataset.x_train, dataset.y_train)

        def predict(inputs: np.ndarray) -> np.ndarray:
            chances = np.zeros((len(inputs), len(dataset.classes)))
            chances[:, model.classes_] = model.predict_proba(inputs)
            return chances

        return predict

    def _described(self, job: Job, model: EncodedTrees) -> Trained:
        trees, leaves, outputs = model.values.shape
        return self.kept(
            job,
            model,
            model=f"{trees:,} trees of {leaves} leaves, {trees * leaves * outputs:,} values",
            algorithm="boosted random trees on private distribution functions",
            settings={"trees": trees, "depth": leaves.bit_length() - 1, "delta": job.config.delta},
        )


def _widths(dataset: Dataset) -> list[int]:
    """How many features each column has: one for each of its categories, 1 for a number."""
    if dataset.schema is None:
        return [1] * dataset.x_train.shape[1]
    sizes = [(len(each.features), each.kind == CATEGORY) for each in dataset.schema.columns]
    return [width for size, hot in sizes for width in ([size] if hot else [1] * size)]


def _codes(inputs: np.ndarray, widths: Sequence[int]) -> np.ndarray:
    """Columns of encoded rows: numbers as they are, and the place of the 1 among the features of a category."""
    return _joined(torch.from_numpy(np.ascontiguousarray(inputs)).double(), list(widths)).numpy()


def _joined(rows: Tensor, widths: list[int]) -> Tensor:
    blocks = rows.split(widths, dim=1)
    return torch.cat([each if each.shape[1] == 1 else each.argmax(1, keepdim=True).double() for each in blocks], dim=1)
