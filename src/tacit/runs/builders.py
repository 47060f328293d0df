"""The parts of a run that a configuration names: data, network, loss, optimizer, predictions.

`execution.json`: the execution records of a run, one for each way in which its steps were computed.

Public features in place of the inputs of a data set, the same in the run and in the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LRScheduler

from tacit import check, models, sampling
from tacit.clipping import Clip, clip_from_spec
from tacit.data import Dataset, load
from tacit.data.image_folder import image_folder
from tacit.data.table import dataset_from
from tacit.data.words import COLUMNS
from tacit.gradients import examine
from tacit.noise import SeededStream, Stream
from tacit.runs.config import Config
from tacit.runs.decision_metrics import metric_on_test
from tacit.runs.open_run import open_run
from tacit.runs.run_signature import CONFIG, EXECUTION, FEATURES
from tacit.runs.settings import Folder
from tacit.serialization import json_text, write_text
from tacit.training import load_model, plan_options
from tacit.training.execution_record import ExecutionRecord
from tacit.training.optimizers import AdamBC

if TYPE_CHECKING:
    from tacit.features import PublicFeatures

Progress = Callable[[str, int, int], None]
"""Called with (stage, done, total)."""
ROWS_AT_ONCE = 4096
"""Rows of a forward pass without gradients: enough to keep the cores busy, few enough for any memory."""


def no_progress(stage: str, done: int, total: int) -> None:
    """The `Progress` that nobody follows."""


def dataset_of(config: Config, data_dir: Folder | None, on_progress: Progress = no_progress) -> Dataset:
    """The data that `config` names, encoded by declared public knowledge."""
    on_progress("loading data", 0, 1)
    if config.folder is not None:
        dataset = image_folder(config.folder, size=config.image_size, channels=config.image_channels)
    elif (table := config.table) is not None:
        dataset = dataset_from(table.file(data_dir), table, form=table.form, strict=config.strict, toml=True)
    else:
        dataset = load(config.dataset, data_dir=data_dir, strict=config.strict)
    on_progress("loading data", 1, 1)
    return dataset


def network_of(config: Config, dataset: Dataset) -> nn.Module:
    """The network that `config` names for the shapes of `dataset`, its weights drawn from the public `init_seed`.

    Raises `UnsupportedModel` for one that cannot be trained privately.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.init_seed)
        model = models.module_at(config.model) if ":" in config.model else _network(config, dataset)
        if config.zero_start:
            last = [each for each in model.modules() if isinstance(each, nn.Linear)][-1:]
            for parameter in (each for layer in last for each in layer.parameters()):
                nn.init.zeros_(parameter)
    examine(model)
    return model


def _network(config: Config, dataset: Dataset) -> nn.Module:
    """The network of tacit's own; raises `InvalidInput` for one that cannot read these data, naming one that can."""
    shape, codes = dataset.x_train.shape[1:], dataset.x_train.dtype == np.int64
    outputs, needs = 1 if dataset.task == "regression" else len(dataset.classes), "numeric features"
    match config.model:
        case "linear" | "mlp" if not codes:
            body = models.mlp(int(np.prod(shape)), outputs, hidden=config.hidden if config.model == "mlp" else ())
            return nn.Sequential(nn.Flatten(), body) if len(shape) > 1 else body
        case "convnet" if not codes:
            if len(shape) == 3:
                return models.convnet(shape, outputs)
            needs = "images"
        case "text":
            if codes and dataset.task == "classification":
                words = int(np.max(dataset.bounds[1])) + 1
                return models.MeanOfWords(words, outputs, count_padding=config.count_padding)
            needs = "word numbers with classes"
        case "recommender":
            if dataset.task == "ratings":
                users, items = (int(highest) + 1 for highest in np.asarray(dataset.bounds[1]))
                return models.Recommender(users, items, outputs)
            needs = "user-item ratings"
    fitting = "'recommender'" if dataset.task == "ratings" else "'text'" if codes else "'mlp' or 'linear'"
    raise check.fail(f"model for {dataset.name!r}", fitting, config.model, f"{config.model!r} needs {needs}.")


def optimizer_of(config: Config, model: nn.Module) -> torch.optim.Optimizer:
    """A fresh optimizer for `model`."""
    kinds = {"adam": torch.optim.Adam, "adam_bc": AdamBC, "adagrad": torch.optim.Adagrad, "sgd": torch.optim.SGD}
    own = {"adam_bc": {"floor": config.adam_floor}, "sgd": {"momentum": config.momentum}}.get(config.optimizer, {})
    return kinds[config.optimizer](model.parameters(), lr=config.learning_rate, **own)


def scheduler_of(config: Config, optimizer: torch.optim.Optimizer, steps: int) -> LRScheduler | None:
    """How the learning rate goes on from step to step; None where it stays."""
    if config.learning_rate_schedule == "cosine":
        return CosineAnnealingLR(optimizer, T_max=steps)
    if config.learning_rate_schedule == "linear":
        return LambdaLR(optimizer, lambda step: max(0.0, 1 - step / steps))
    return None


def stream_of(config: Config) -> Stream | None:
    """The seeded stream that a configuration asks for; None for the secure one."""
    return None if config.unsafe_seed is None else SeededStream(config.unsafe_seed)


def clip_of(config: Config) -> Clip:
    """The clipping of [clip] at `clip_norm`, or at its `bounds` for groups.

    Raises `InvalidInput` for a setting of another kind of clipping.
    """
    section = config.section("clip")
    norm = {} if section.type == "groups" else {"clip_norm": config.clip_norm}
    return clip_from_spec({"type": section.type} | norm | section.given())


def sampling_of(config: Config, dataset: Dataset) -> sampling.Sampling:
    """The sampling of [sampling] for the training rows of `dataset`."""
    section = config.section("sampling")
    if section.cap is not None:
        return sampling.TruncatedPoissonSampling(section.cap)
    if section.users is not None and dataset.units is not None:
        return sampling.GroupedPoissonSampling(dataset.units, average=bool(section.average))
    if section.users is not None:
        names = dataset.feature_names or ()
        column = check.choice("users of [sampling]", section.users, names)
        return sampling.GroupedPoissonSampling(dataset.x_train[:, names.index(column)], average=bool(section.average))
    kind: Any = sampling.SAMPLINGS[section.type]
    return kind() if section.groups is None else kind(section.groups)


def noise_of(config: Config) -> plan_options.Noise | None:
    """The noise multiplier, or the schedule of [noise] that starts with it; None where epsilon calibrates it."""
    section, start = config.section("noise"), config.noise_multiplier
    if section.type == "constant":
        return start
    if start is None:
        raise check.fail("type of [noise]", "constant where epsilon is given", section.type, "Give noise_multiplier.")
    return getattr(plan_options, f"{section.type.capitalize()}Noise")(start, **section.given())


Loss = Callable[[Tensor, Tensor], Tensor]


def loss_of(dataset: Dataset, config: Config | None = None) -> Loss:
    """One value per example, shape (batch,): cross-entropy, or squared error on a regression's unit scale.

    It is multiplied by the weight of the record and of its class, where there are weights; the gradient is clipped
    after that, so no weight moves a clipped sum by more than the clipping norm.
    """
    loss = cross_entropy if dataset.task != "regression" else _squared_error(dataset.target_range)
    weights = {} if config is None else config.class_weights
    if weights:
        if dataset.task != "classification":
            raise check.fail("class_weights", "left out for data without classes", sorted(weights))
        check.keys("class_weights", weights, dataset.classes)
        loss = _by_class(loss, [weights.get(name, 1.0) for name in dataset.classes])
    return loss if dataset.weights is None else _by_record(loss, classes=dataset.task != "regression")


def targets_of(dataset: Dataset) -> np.ndarray:
    """What `loss_of` takes as targets of the training rows: labels or values, with their weights beside them."""
    if dataset.weights is None:
        return dataset.y_train
    return np.stack([dataset.y_train.astype(np.float32), dataset.weights], axis=1)


def _squared_error(span: tuple[float, float]) -> Loss:
    low, high = span
    return lambda outputs, targets: (outputs.squeeze(-1) - (targets - low) / (high - low)) ** 2


def _by_class(loss: Loss, weights: Sequence[float]) -> Loss:
    """`loss` times the weight of the class; the weights are public numbers, no tensor."""

    def weighted(outputs: Tensor, targets: Tensor) -> Tensor:
        factor = sum(weight * (targets == place) for place, weight in enumerate(weights))
        return loss(outputs, targets) * factor

    return weighted


def _by_record(loss: Loss, *, classes: bool) -> Loss:
    """`loss` times the weight beside each target; targets without weights, of an attack, count as they are."""

    def weighted(outputs: Tensor, targets: Tensor) -> Tensor:
        if targets.dim() == 1:
            return loss(outputs, targets)
        answers = targets[:, 0].long() if classes else targets[:, 0]
        return loss(outputs, answers) * targets[:, 1]

    return weighted


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """-log softmax probability of the label, one value per example, shape (batch,)."""
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


def evaluator(dataset: Dataset) -> Callable[[nn.Module], dict[str, float]]:
    """The function from a model to its metric `test` on the held-out rows; see `metric_on_test`."""
    return lambda model: {"test": metric_on_test(dataset, predictor(model, dataset)(dataset.x_test))}


def predictor(model: nn.Module, dataset: Dataset) -> Callable[[np.ndarray], np.ndarray]:
    """`model` in evaluation mode: inputs (n, ...) to class probabilities (n, classes), or to values of a regression."""
    answers = Answers(model, dataset)

    def answer(inputs: np.ndarray) -> np.ndarray:
        training = model.training
        model.eval()
        with torch.no_grad():
            found = [answers(chunk) for chunk in torch.from_numpy(inputs).split(ROWS_AT_ONCE)]
        model.train(training)
        return torch.cat(found).numpy()

    return answer


class Answers(nn.Module):
    """`predictor` as a module: features to class probabilities, or to values of a regression, float64.

    Args:
        model: scores (batch, outputs) of features.
        dataset: the task, and the range of a regression.
    """

    def __init__(self, model: nn.Module, dataset: Dataset):
        super().__init__()
        self.model = model
        self.span = dataset.target_range if dataset.task == "regression" else None

    def forward(self, features: Tensor) -> Tensor:
        """Probabilities (batch, classes), or values (batch,)."""
        outputs = self.model(features).double()
        if self.span is None:
            return torch.softmax(outputs, dim=1)
        low, high = self.span
        return low + (high - low) * outputs.squeeze(-1).clamp(0, 1)


def store_execution(folder: Path, record: ExecutionRecord) -> None:
    """Add `record` to those of the run in `folder`, unless it is the latest of them already.

    A run that is resumed with other threads or another version so has two records.
    """
    # A repetition for an audit is no run of its own.
    earlier = open_run(folder).execution if (folder / CONFIG).is_file() else ()
    if earlier and not earlier[-1].differences(record):
        return
    write_text(folder / EXECUTION, json_text({"records": [each.table() for each in (*earlier, record)]}))


def differences(stored: Sequence[ExecutionRecord], audit: ExecutionRecord) -> tuple[str, ...]:
    """Why `audit` did not run what the records say was run; empty where it did."""
    if not stored:
        return ("no execution record is stored with the run",)
    changed = (change.partition(":")[0] for one, other in pairwise(stored) for change in one.differences(other))
    names = ", ".join(dict.fromkeys(changed))
    several = (f"the run was computed in {len(stored)} ways, which differ in {names}",) if len(stored) > 1 else ()
    return (*several, *stored[-1].differences(audit))


NORM = 50.0
"""Norm of the features of an image."""
_DIMENSIONS = {"scattering": 2000, "patches": 2500}
# Drawings, and the floor of the eigenvalues: patches need less of both than wavelets.
_DRAWINGS = {"scattering": (10_000, 1e-3), "patches": (5000, 5e-5)}
_COLOUR_DRAWINGS = {"scattering": (5000, 1e-3), "patches": (5000, 5e-5)}
_COLOUR_DIMENSIONS = {"scattering": 2000, "patches": 3500}
_SCATTERING_BESIDE = 0.7  # its norm where that of patches of colour beside it is 1
_PATCHES, _COLOUR_PATCHES = 512, 1024


def featured(config: Config, dataset: Dataset, folder: Path, on_progress: Progress = no_progress) -> Dataset:
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
    from tacit.features import computed  # Loads scikit-learn, and most runs have no features.

    features = features_of(config, dataset)
    if (folder / FEATURES).is_file():
        load_model(features, folder / FEATURES)
    train, test = (computed(features, rows, on_progress) for rows in (dataset.x_train, dataset.x_test))
    known = replace(dataset, features=features, feature_names=None, schema=None)
    return replace(known, x_train=train, x_test=test, bounds=(-NORM, NORM))


def features_of(config: Config, dataset: Dataset) -> PublicFeatures:
    """The features that `config` names for the shape of `dataset`, a function of that shape alone.

    Raises:
        InvalidInput: they are not for such records.
    """
    from tacit.features import Beside, HashedText

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
    shares = [_SCATTERING_BESIDE if "scattering" in each and shape[0] == 3 else 1.0 for each in names]
    norms = [NORM * share / math.hypot(*shares) for share in shares]
    parts = [_whitened(each, shape, norm) for each, norm in zip(names, norms, strict=True)]
    return parts[0] if len(parts) == 1 else Beside(parts)


def _whitened(name: str, shape: tuple[int, ...], norm: float) -> PublicFeatures:
    from tacit.features import PatchDictionary, Scattering2d, SyntheticWhitening

    colour = shape[0] == 3
    kind = "patches" if name.startswith("patches") else "scattering"
    if kind == "scattering":
        features = Scattering2d(shape, mirror=name == "mirrored_scattering")
    else:
        features = PatchDictionary(shape, _COLOUR_PATCHES if colour else _PATCHES, mirror=name == "patches")
    images, floor = (_COLOUR_DRAWINGS if colour else _DRAWINGS)[kind]
    dimensions = min((_COLOUR_DIMENSIONS if colour else _DIMENSIONS)[kind], features.width)
    return SyntheticWhitening(features, dimensions, images=images, floor=floor, norm=float(np.float32(norm)))
