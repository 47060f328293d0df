"""Private validation records of a run: set aside before it trains, by the [validation] section."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tacit import check
from tacit.data import Dataset
from tacit.errors import InvalidInput
from tacit.noise import SeededStream
from tacit.runs.builders import stream_of
from tacit.runs.config import Config
from tacit.runs.loop_settings import ValidationSettings
from tacit.serialization import json_table, json_text, write_text
from tacit.signing import new_id, signing_key
from tacit.training import BestModel, Callback, EarlyStopping, PrivateHoldout
from tacit.training.holdout import METRIC, NOISY, OWN_COIN, set_aside

FILE = "validation.json"
"""The file in a run's folder by which this user's key finds its private validation records again."""


@dataclass(frozen=True)
class SetAside:
    """The two parts of the training records.

    Attributes:
        training: the data set without the records set aside.
        holdout: the records set aside.
        id: by which this user's key makes the same parts again; without the key it tells nothing about a record.
    """

    training: Dataset
    holdout: PrivateHoldout
    id: str

    def write(self, folder: Path) -> None:
        """Keep the id in the folder of the run."""
        write_text(folder / FILE, json_text({"id": self.id}))


def set_aside_of(config: Config, dataset: Dataset, folder: Path, *, again: bool) -> SetAside | None:
    """What [validation] sets aside; None without private validation.

    Each record, or each user where users are protected, goes there by a coin of its own. The coins follow from the id
    and this user's key, so that a run that goes on has the same parts.

    Args:
        config: of the run.
        dataset: with all training records.
        folder: of the run.
        again: take the id from the folder.

    Raises:
        InvalidInput: the data are no classification, epsilon is missing, or a part is empty.
    """
    section: ValidationSettings = config.section("validation")
    if section.type != "private":
        return None
    if dataset.task != "classification":
        raise check.fail(
            "validation", "none for data without classes, whose right answers can be counted", dataset.task
        )
    epsilon = section.epsilon if section.epsilon is not None else config.epsilon
    if epsilon is None:
        raise check.fail("epsilon of [validation]", "given where the training has a noise_multiplier", None)
    id = _stored(folder) if again and (folder / FILE).exists() else new_id()
    aside = set_aside(len(dataset.y_train), section.share, SeededStream(_seed(id)), dataset.units)
    holdout = PrivateHoldout(
        torch.from_numpy(dataset.x_train[aside]),
        torch.from_numpy(dataset.y_train[aside]),
        epsilon=epsilon,
        delta=config.delta if section.checkpoint == NOISY else 0.0,
        checkpoint=section.checkpoint,
        owners=None if dataset.units is None else dataset.units[aside],
        stream=stream_of(config),
    )
    holdout.assumption = OWN_COIN
    return SetAside(dataset.without(aside), holdout, id)


def trained_on(config: Config, dataset: Dataset, folder: Path) -> Dataset:
    """The data of the run in `folder` without the private validation records, where this user's key finds them."""
    if not (folder / FILE).exists():
        return dataset
    found = set_aside_of(config, dataset, folder, again=True)
    return dataset if found is None else found.training


def callbacks_of(config: Config, model: torch.nn.Module) -> list[Callback]:
    """What [validation] does with its noisy accuracies: stop early, restore the best epoch."""
    section: ValidationSettings = config.section("validation")
    if section.type != "private" or section.checkpoint != NOISY:
        return []
    made: list[Callback] = [BestModel(model, METRIC)] if section.best else []
    return made if section.patience is None else [*made, EarlyStopping(METRIC, patience=section.patience)]


def _stored(folder: Path) -> str:
    id = json_table(FILE, folder / FILE).get("id")
    if not isinstance(id, str) or not id:
        raise InvalidInput(f"{FILE} must be as the run wrote it; it was edited. Start anew in another folder.")
    return id


def _seed(id: str) -> int:
    """A seed that nobody without the key can tell from the id."""
    key = signing_key()
    return int(id if key is None else key.mac("private validation", id.encode()), 16)


def told_of(config: Config, history: Any) -> dict[str, Any]:
    """The last noisy accuracy, which its records paid for, as a metric of the card."""
    found = [row[METRIC] for row in history if METRIC in row]
    return {METRIC: found[-1]} if found and config.section("validation").type == "private" else {}
