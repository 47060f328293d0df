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
from tacit.runs.open_run import open_run
from tacit.runs.run_signature import VALIDATION
from tacit.serialization import json_text, write_text
from tacit.signing import new_id, signing_key
from tacit.training import (
    Accuracy,
    BestModel,
    Callback,
    ClippedSquaredError,
    EarlyStopping,
    PrivateHoldout,
    WithinTolerance,
)
from tacit.training.holdout import NOISY, OWN_COIN, set_aside
from tacit.training.holdout_scores import HoldoutScore


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
        write_text(folder / VALIDATION, json_text({"id": self.id}))


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
        InvalidInput: as `holdout_of`, or a part is empty.
    """
    section: ValidationSettings = config.section("validation")
    if section.type != "private":
        return None
    score_of(config, dataset)
    id = _stored(folder) if again and (folder / VALIDATION).exists() else new_id()
    aside = set_aside(len(dataset.y_train), section.share, SeededStream(_seed(id)), dataset.units)
    return SetAside(dataset.without(aside), holdout_of(config, dataset.without(~aside)), id)


def holdout_of(config: Config, aside: Dataset) -> PrivateHoldout:
    """The holdout of [validation] for one training, of the records `aside`.

    Raises:
        InvalidInput: the settings are not those of the task, or neither epsilon nor noise is given.
    """
    section: ValidationSettings = config.section("validation")
    epsilon = section.epsilon if section.epsilon is not None or section.noise is not None else config.epsilon
    if epsilon is None and section.noise is None:
        raise check.fail("epsilon of [validation]", "given where the training has a noise_multiplier", None)
    holdout = PrivateHoldout(
        torch.from_numpy(aside.x_train),
        torch.from_numpy(aside.y_train),
        epsilon=epsilon,
        delta=config.delta if section.checkpoint == NOISY else 0.0,
        noise=section.noise,
        checkpoint=section.checkpoint,
        score=score_of(config, aside),
        owners=aside.units,
        stream=stream_of(config),
    )
    holdout.assumption = OWN_COIN
    return holdout


def score_of(config: Config, dataset: Dataset) -> HoldoutScore:
    """The score of a validation record: accuracy, or that of a regression with the bound that [validation] declares.

    Raises:
        InvalidInput: a bound is missing, or given for another task, or the data are ratings.
    """
    section: ValidationSettings = config.section("validation")
    bounds = {"tolerance": section.tolerance, "error_bound": section.error_bound}
    given = [name for name, bound in bounds.items() if bound is not None]
    if dataset.task == "regression":
        if section.tolerance is not None:
            return WithinTolerance(section.tolerance, dataset.target_range)
        if section.error_bound is not None:
            return ClippedSquaredError(section.error_bound, dataset.target_range)
        raise check.fail("[validation]", "one with a tolerance or an error_bound for a regression", "neither")
    if dataset.task != "classification":
        raise check.fail("validation", "none for data that are neither classes nor a regression", dataset.task)
    if given:
        raise check.fail(f"{given[0]} of [validation]", "left out for classes, whose right answers are counted", given)
    return Accuracy()


def trained_on(config: Config, dataset: Dataset, folder: Path) -> Dataset:
    """The data of the run in `folder` without the private validation records, where this user's key finds them."""
    if not (folder / VALIDATION).exists():
        return dataset
    found = set_aside_of(config, dataset, folder, again=True)
    return dataset if found is None else found.training


def callbacks_of(config: Config, dataset: Dataset, model: torch.nn.Module) -> list[Callback]:
    """What [validation] does with its noisy scores: stop early, restore the best epoch."""
    section: ValidationSettings = config.section("validation")
    if section.type != "private" or section.checkpoint != NOISY:
        return []
    score = score_of(config, dataset)
    made: list[Callback] = [BestModel(model, score.metric, better=score.better)] if section.best else []
    if section.patience is None:
        return made
    return [*made, EarlyStopping(score.metric, patience=section.patience, better=score.better)]


def _stored(folder: Path) -> str:
    id = open_run(folder).table(VALIDATION).get("id")
    if not isinstance(id, str) or not id:
        raise InvalidInput(f"{VALIDATION} must be as the run wrote it; it was edited. Start anew in another folder.")
    return id


def _seed(id: str) -> int:
    """A seed that nobody without the key can tell from the id."""
    key = signing_key()
    return int(id if key is None else key.mac("private validation", id.encode()), 16)


def told_of(config: Config, dataset: Dataset, history: Any) -> dict[str, Any]:
    """The last noisy score, which its records paid for, as a metric of the card."""
    if config.section("validation").type != "private":
        return {}
    metric = score_of(config, dataset).metric
    found = [row[metric] for row in history if metric in row]
    return {metric: found[-1]} if found else {}
