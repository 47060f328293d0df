"""Public features of a run: made once from every record by itself, and saved with the model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from tacit import check
from tacit.data import Dataset
from tacit.data.words import COLUMNS
from tacit.features import (
    Beside,
    HashedText,
    PatchDictionary,
    PublicFeatures,
    Scattering2d,
    SyntheticWhitening,
    computed,
)
from tacit.runs.config import Config
from tacit.runs.methods.base import Progress
from tacit.runs.run_signature import FEATURES
from tacit.training import load_model

NORM = 50.0
"""Norm of the features of an image."""
_DIMENSIONS = {Scattering2d: 2000, PatchDictionary: 2500}
# Drawings, and the floor of the eigenvalues: patches need less of both than wavelets.
_DRAWINGS = {Scattering2d: (10_000, 1e-3), PatchDictionary: (5000, 5e-5)}
_COLOUR_DIMENSIONS = 3500
_PATCHES, _COLOUR_PATCHES = 512, 1024


def featured(
    config: Config, dataset: Dataset, folder: Path, on_progress: Progress = lambda stage, done, total: None
) -> Dataset:
    """`dataset` with the features of `config` in place of its inputs; the same data set where it names none.

    Args:
        config: its `features` say which.
        dataset: of images, or of codes of words.
        folder: of the run; what its model was saved with is used again.
        on_progress: called with (stage, done, total).

    Raises:
        InvalidInput: the features are not for such records.
    """
    if config.features == "none":
        return dataset
    features = features_of(config, dataset)
    if (folder / FEATURES).is_file():
        load_model(features, folder / FEATURES)
    made = [computed(features, rows, on_progress) for rows in (dataset.x_train, dataset.x_test)]
    ends = (-NORM, NORM)
    return replace(
        dataset, x_train=made[0], x_test=made[1], bounds=ends, feature_names=None, features=features, schema=None
    )


def features_of(config: Config, dataset: Dataset) -> PublicFeatures:
    """The features that `config` names for the shape of `dataset`, a function of that shape alone.

    Raises:
        InvalidInput: they are not for such records.
    """
    shape = dataset.x_train.shape[1:]
    if config.features == "words":
        if dataset.x_train.dtype != np.int64 or np.max(dataset.bounds[1]) != 2 * COLUMNS:
            hint = "imdb_words is one."
            raise check.fail("dataset", "one of codes of words for features of words", dataset.name, hint)
        return HashedText()
    if len(shape) != 3 or shape[0] not in (1, 3):
        hint = 'Use features = "none".'
        raise check.fail("features", f"none for {dataset.name!r}, which holds no images", config.features, hint)
    names = config.features.split("+")
    parts: list[PublicFeatures] = [_whitened(each, shape, NORM / len(names) ** 0.5) for each in names]
    return parts[0] if len(parts) == 1 else Beside(parts)


def _whitened(name: str, shape: tuple[int, ...], norm: float) -> PublicFeatures:
    colour = shape[0] == 3
    if name == "scattering":
        features = Scattering2d(shape)
    else:
        features = PatchDictionary(shape, _COLOUR_PATCHES if colour else _PATCHES, mirror=name == "patches")
    kind = type(features)
    images, floor = _DRAWINGS[kind]
    dimensions = min(_COLOUR_DIMENSIONS if colour else _DIMENSIONS[kind], features.width)
    return SyntheticWhitening(features, dimensions, images=images, floor=floor, norm=float(np.float32(norm)))
