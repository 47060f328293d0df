"""`PrivateHoldout`: private records that no step trains on, to stop a run or to choose its checkpoint by; scores.

What is told of each record or unit is a score in [0, 1], whose sum one of them moves by at most 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tacit import check
from tacit.calibration import smallest
from tacit.mechanisms import DiscreteGaussian, Mechanism
from tacit.noise import SecureStream, Stream
from tacit.noise.discrete import METHODS, Scores, choice_mechanism, choose, discrete_gaussian
from tacit.relation import Relation
from tacit.signing import signing_key
from tacit.tradeoff import Epsilon
from tacit.training.callbacks import Row
from tacit.training.plan import Plan

NOISY = "noisy"
"""Every epoch gives a noisy mean score."""
CHECKPOINTS = (NOISY, *METHODS)
DISJOINT = "The records of the private holdout are none of those trained on, and the sizes of both parts are public."
"""The assumption behind a holdout that was not made by `PrivateHoldout.split`."""
OWN_COIN = "Each unit went to the private holdout by a coin of its own, and the sizes of both parts are public."
"""The assumption behind a holdout that was."""
_ROWS_AT_ONCE = 4096


class PrivateHoldout:
    """Private validation records, for `fit(holdout=...)`.

    A record that is trained on pays for the training, one of the holdout for what is told of its score: the guarantee
    is the larger of the two (parallel composition). A score is 1 for the right class and 0 for another one; for a
    regression `score` is `WithinTolerance` or `ClippedSquaredError`, with a bound that is declared. What is told is one
    of

    - `checkpoint="noisy"`: after every planned epoch the mean score, its sum with exact discrete Gaussian noise, as
      `validation_accuracy` (of a regression `validation_within` or `validation_error`) in the history.
      `EarlyStopping("validation_accuracy")` and `BestModel(model, "validation_accuracy")` are post-processing of it.
    - `checkpoint="exponential"` or `"permute_and_flip"`: nothing but which epoch's weights are restored at the end, a
      private choice by the sums that costs `epsilon` once however many epochs there are.

    With `owners` what is protected is a user: each counts with the mean over its records, all of which are on one side,
    and the run must sample users.

    A resumed run passes the same holdout. Epochs that an interruption may have lost are not looked at again, because
    their noise may not be drawn twice.

    Args:
        inputs: tensor or array (n, ...), none of it trained on.
        targets: class of each, int64 (n,), or its value for a score of a regression.
        epsilon: > 0, of everything that is told of the holdout.
        delta: in [0, 1), of the same; above 0 for "noisy".
        noise: > 0, of "noisy" instead of epsilon: standard deviation of the noise of each sum, in units.
        checkpoint: "noisy", "exponential" or "permute_and_flip".
        score: of each record; `Accuracy` by default.
        owners: whose record each is, (n,), where users are protected.
        stream: source of the noise; a new `SecureStream` by default.

    Raises:
        InvalidInput: an argument breaks its rule.

    Example:
        >>> import torch
        >>> x = torch.randn(200, 3)
        >>> x, y, holdout = PrivateHoldout.split(x, (x[:, 0] > 0).long(), share=0.2, epsilon=1.0, delta=1e-5)
        >>> len(x) + len(holdout)
        200

    Source: McSherry 2009, Theorem 4; Canonne, Kamath & Steinke 2020; McSherry & Talwar 2007; McKenna & Sheldon 2020.
    """

    def __init__(
        self,
        inputs: Any,
        targets: Any,
        *,
        epsilon: float | None = None,
        delta: float = 0.0,
        noise: float | None = None,
        checkpoint: str = NOISY,
        score: HoldoutScore | None = None,
        owners: Any = None,
        stream: Stream | None = None,
    ):
        self._inputs, self._targets = torch.as_tensor(inputs), torch.as_tensor(targets)
        if self._targets.ndim != 1 or len(self._inputs) != len(self._targets) or not len(self._targets):
            rule = "one class or value for each row of inputs, at least one"
            raise check.fail("targets", rule, tuple(self._targets.shape))
        self.score: HoldoutScore = Accuracy() if score is None else score
        if self.score.classes and self._targets.is_floating_point():
            hint = "For a regression give score=WithinTolerance(...) or ClippedSquaredError(...)."
            raise check.fail("targets", "whole numbers, the classes", self._targets.dtype, hint)
        self._owners = None if owners is None else np.asarray(owners)
        if self._owners is not None and self._owners.shape != (len(self._targets),):
            raise check.fail("owners", "one for each row of inputs", self._owners.shape)
        self.checkpoint = check.choice("checkpoint", checkpoint, CHECKPOINTS)
        if (epsilon is None) == (noise is None):
            raise check.fail("epsilon", "given, or noise instead", epsilon if noise is None else (epsilon, noise))
        if noise is not None and self.checkpoint != NOISY:
            raise check.fail("noise", f"left out for {self.checkpoint}, which costs epsilon", noise)
        if epsilon is not None and self.checkpoint == NOISY and delta == 0:
            raise check.fail("delta", "above 0 for noisy scores", delta)
        self._target = None if epsilon is None else Epsilon(check.positive("epsilon", epsilon), delta)
        self._epsilon = 0.0 if epsilon is None else epsilon  # `noise` is of "noisy" alone.
        self._levels = self.score.levels if self._owners is None else LEVELS
        self._noise = 0.0 if noise is None else check.positive("noise", noise)
        self._stream = SecureStream() if stream is None else stream
        self.assumption = DISJOINT
        self.aside: np.ndarray | None = None
        self._relation, self._looks = Relation.ADD_REMOVE, 0
        self._kept: list[tuple[float, Mapping[str, Tensor]]] = []

    @classmethod
    def split(
        cls, inputs: Any, targets: Any, *, share: float, stream: Stream | None = None, owners: Any = None, **given: Any
    ) -> tuple[Any, Any, PrivateHoldout]:
        """Inputs and targets to train on, and the holdout: each record, or each user, goes there by a coin of its own.

        Args:
            inputs: tensor or array (n, ...).
            targets: class or value of each, (n,).
            share: in (0, 1), the probability with which a record goes to the holdout.
            stream: source of the coins and of the noise.
            owners: whose record each is, (n,): all records of a user go to one side. `~holdout.aside` picks those of
                the training part.
            given: other arguments of `PrivateHoldout`.

        Raises:
            InvalidInput: one of the two parts is empty.
        """
        check.probability("share", share, open_low=True, open_high=True)
        stream = SecureStream() if stream is None else stream
        aside = set_aside(len(targets), share, stream, owners)
        owned = None if owners is None else np.asarray(owners)[aside]
        holdout = cls(inputs[aside], targets[aside], stream=stream, owners=owned, **given)
        holdout.assumption, holdout.aside = OWN_COIN, aside
        return inputs[~aside], targets[~aside], holdout

    def __len__(self) -> int:
        """Number of records."""
        return len(self._targets)

    @property
    def unit(self) -> str:
        """What is protected: "record", or "user" where the records have owners."""
        return "record" if self._owners is None else "user"

    @property
    def units(self) -> int:
        """Number of units."""
        return len(self) if self._owners is None else len(np.unique(self._owners))

    def identity(self) -> str:
        """Keyed hash of the records, the same for the same holdout; without a key that of their number."""
        key, parts = signing_key(), [self._inputs.cpu().numpy(), self._targets.cpu().numpy()]
        parts += [] if self._owners is None else [self._owners.astype(str)]
        content = b"".join(str(part.shape).encode() + part.tobytes() for part in parts)
        cost = f"noise {self._noise:g}" if self._target is None else self._target
        said = f"{len(self)} records, {self.checkpoint}, {cost}"
        said += "" if self.score == Accuracy() else f", {self.score}"
        return said if key is None else f"{said}, {key.mac('private holdout', content)}"

    @property
    def secure(self) -> bool:
        """Whether the noise comes from a secure stream."""
        return self._stream.secure

    def mechanism(self, plan: Plan, relation: Relation) -> Mechanism:
        """All that a run of `plan` tells of the holdout; called once, before the first step.

        Raises:
            InvalidInput: the holdout was used by a run before, or the plan protects other units than records.
        """
        check.that(not self._looks, "holdout", "a new one for each run", "one that was used")
        if plan.sampling.unit != self.unit or plan.strategy is not None:
            rule = f"one of {self.unit}s with independent noise, beside a holdout of {self.unit}s"
            raise check.fail("sampling", rule, plan.sampling.type)
        self._relation, self._looks = relation, len(epoch_ends(plan.sample_rate, plan.steps))
        if self.checkpoint != NOISY:
            return choice_mechanism(self._epsilon, method=self.checkpoint)

        def told(noise: float) -> Mechanism:
            return DiscreteGaussian(noise, self._levels) * self._looks

        if self._target is not None:
            self._noise = smallest("noise", told, self._target, relation=relation).value
        return told(self._noise)

    def look(self, model: nn.Module) -> Row:
        """The noisy score of `model`, or nothing where a checkpoint is chosen at the end; once for each epoch."""
        check.that(self._looks, "holdout", "looked at once for each planned epoch", "another look")
        self._looks -= 1
        total = self._total(model)
        if self.checkpoint == NOISY:
            noisy = total + discrete_gaussian(self._stream, Fraction(self._noise * self._levels) ** 2)
            return {self.score.metric: self.score.told(noisy / self._levels / self.units)}
        weights = {name: value.detach().clone() for name, value in model.state_dict().items()}
        self._kept.append((total / self._levels, weights))
        return {}

    def state(self) -> list[Mapping[str, Tensor]]:
        """The weights to choose from so far, for a checkpoint; their scores are private and stay out of it."""
        return [weights for _, weights in self._kept]

    def resume(self, plan: Plan, relation: Relation, model: nn.Module, taken: int, kept: list[Any]) -> None:
        """Go on after `taken` steps, those that may have been lost among them: their epochs have no look any more.

        Args:
            plan: of the run.
            relation: of its ledger.
            model: whose weights are to choose from; it has its own again afterwards.
            taken: steps taken or lost.
            kept: the `state` of the checkpoint.
        """
        self.mechanism(plan, relation)
        self._looks = sum(end > taken for end in epoch_ends(plan.sample_rate, plan.steps))
        now = {name: value.detach().clone() for name, value in model.state_dict().items()}
        training = model.training
        model.eval()
        with torch.no_grad():
            for weights in kept:
                model.load_state_dict(weights)
                self._kept.append((self._total(model) / self._levels, weights))
        model.load_state_dict(now)
        model.train(training)

    def restore_chosen(self, model: nn.Module) -> None:
        """Restore the weights of the epoch that the private choice picks, once, and forget the others."""
        if not self._kept:
            return
        scores = Scores(np.array([total for total, _ in self._kept], dtype=float), 1.0, monotone=True)
        chosen = choose(scores, self._epsilon, self._stream, relation=self._relation, method=self.checkpoint)
        model.load_state_dict(self._kept[chosen][1])
        self._kept = []

    def _total(self, model: nn.Module) -> int:
        """The sum of the scores of all units, in levels."""
        scores = np.zeros(len(self))
        for start in range(0, len(self), _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            device = next(model.parameters()).device
            outputs = model(self._inputs[rows].to(device)).detach().cpu()
            scores[rows] = self.score.of(outputs, self._targets[rows]).numpy()
        return rounded_sum(unit_means(scores, self._owners), self._levels, self._stream)


def set_aside(records: int, share: float, stream: Stream, owners: Any = None) -> np.ndarray:
    """Which of so many records go to a holdout, each unit by a coin of its own, bool (records,).

    Args:
        records: their number.
        share: in (0, 1), the probability with which a unit goes there.
        stream: source of the coins.
        owners: whose record each is, (records,); None where each is a unit.

    Raises:
        InvalidInput: one of the two parts is empty.
    """
    if owners is None:
        aside = stream.uniform(records) < share
    else:
        found, places = np.unique(np.asarray(owners), return_inverse=True)
        aside = (stream.uniform(len(found)) < share)[places]
    if not aside.any() or aside.all():
        raise check.fail("share", "one that leaves records for training and for the holdout", share)
    return aside


def epoch_ends(sample_rate: float, steps: int) -> set[int]:
    """After which steps a run of so many steps at this sampling rate ends an epoch; its last step ends one too."""
    last = round(steps * sample_rate) + 1
    ends = {round(epoch / sample_rate) for epoch in range(1, last + 1)}
    return {step for step in ends if step <= steps} | {steps}


LEVELS = 16
"""Steps of a score that is no count: its sum in steps moves by so many with one unit."""


def unit_means(scores: NDArray[np.float64], units: NDArray[np.generic] | None) -> NDArray[np.float64]:
    """The mean score of each unit, in the order of their names; `scores` where each record is a unit.

    Args:
        scores: of the records, shape (n,).
        units: whose record each is, shape (n,), or None.

    Example:
        >>> unit_means(np.array([1.0, 0.0, 1.0]), np.array([7, 7, 9])).tolist()
        [0.5, 1.0]
    """
    if units is None:
        return scores
    _, places = np.unique(units, return_inverse=True)
    return np.bincount(places, scores) / np.bincount(places)


def rounded_sum(scores: NDArray[np.float64], levels: int, stream: Stream) -> int:
    """The sum of `levels` times each score, each rounded up or down at random; one score moves it by at most `levels`.

    Args:
        scores: those outside of [0, 1] count as its ends, shape (n,).
        levels: steps from 0 to 1, >= 1.
        stream: source of the roundings.

    Example:
        >>> from tacit.noise import SeededStream
        >>> rounded_sum(np.array([1.0, 0.0, 1.0]), 1, SeededStream(0))
        2
    """
    scaled = np.clip(scores, 0.0, 1.0) * levels
    whole = np.floor(scaled)
    up = stream.uniform(len(scores)) < scaled - whole
    return int(np.minimum(whole + up, levels).sum())


class HoldoutScore(ABC):
    """A score of each record in [0, 1], higher is better; one whose output is not finite has 0.

    Attributes:
        metric: the name in the history of the mean that is told.
        better: "higher" or "lower", of what is told.
        levels: steps from 0 to 1 in which a record counts.
        classes: whether targets are classes.
    """

    metric: ClassVar[str]
    better: ClassVar[str] = "higher"
    levels: ClassVar[int] = 1
    classes: ClassVar[bool] = False

    @abstractmethod
    def of(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Score of each record, shape (n,), in [0, 1].

        Args:
            outputs: of the model, shape (n, ...).
            targets: shape (n,).
        """

    def told(self, mean: float) -> float:
        """What the history says of a mean score, which noise may have moved out of [0, 1]."""
        return mean


@dataclass(frozen=True)
class Accuracy(HoldoutScore):
    """1 for the right class, 0 for another one; told as `validation_accuracy`.

    Example:
        >>> Accuracy().of(torch.tensor([[0.1, 0.9], [0.8, 0.2]]), torch.tensor([1, 1])).tolist()
        [1.0, 0.0]
    """

    metric: ClassVar[str] = "validation_accuracy"
    classes: ClassVar[bool] = True

    def of(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """1 where the largest output is that of the class; outputs must be of the shape (n, classes)."""
        if outputs.ndim != 2:
            raise check.fail("outputs of the model", "of the shape (batch, classes)", tuple(outputs.shape))
        return ((outputs.argmax(dim=1) == targets) & torch.isfinite(outputs).all(dim=1)).double()


@dataclass(frozen=True)
class _RegressionScore(HoldoutScore):
    bound: float
    span: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        check.positive(type(self).__name__, self.bound)
        if self.span is not None and not self.span[0] < self.span[1]:
            raise check.fail("span", "a lowest and a highest value", self.span)

    def errors(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Prediction - target of each record, float64 (n,).

        Raises `InvalidInput` for outputs that are not one number for each record.
        """
        if outputs.numel() != len(targets):
            raise check.fail("outputs of the model", "one number for each record", tuple(outputs.shape))
        predicted = outputs.reshape(-1).double()
        if self.span is not None:
            low, high = self.span
            predicted = low + (high - low) * predicted.clamp(0.0, 1.0)
        return predicted - targets.double()


@dataclass(frozen=True)
class WithinTolerance(_RegressionScore):
    """Of a regression: 1 for a prediction at most `bound` off, else 0; told as `validation_within`, their share.

    Args:
        bound: the tolerance, > 0, in the unit of the targets; public.
        span: declared lowest and highest target, where the model gives their place in between, in [0, 1].

    Example:
        >>> WithinTolerance(0.5).of(torch.tensor([[1.2], [2.0]]), torch.tensor([1.0, 1.0])).tolist()
        [1.0, 0.0]
    """

    metric: ClassVar[str] = "validation_within"

    def of(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """1 where |prediction - target| <= bound."""
        return (self.errors(outputs, targets).abs() <= self.bound).double()


@dataclass(frozen=True)
class ClippedSquaredError(_RegressionScore):
    """Of a regression: 1 - min(e^2, B) / B for the error e; told as `validation_error`, the mean of min(e^2, B).

    One record moves the sum of errors by at most B. It counts in whole steps of B / 16, rounded at random without bias.

    Args:
        bound: B > 0, in the squared unit of the targets; public. Errors beyond its root count as if they were there.
        span: declared lowest and highest target, where the model gives their place in between, in [0, 1].

    Example:
        >>> score = ClippedSquaredError(4.0)
        >>> score.of(torch.tensor([1.0, 9.0]), torch.tensor([0.0, 0.0])).tolist(), score.told(0.75)
        ([0.75, 0.0], 1.0)
    """

    metric: ClassVar[str] = "validation_error"
    better: ClassVar[str] = "lower"
    levels: ClassVar[int] = LEVELS

    def of(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """1 - min(e^2, B) / B; 0 where the error is not a number."""
        errors = torch.nan_to_num(self.errors(outputs, targets) ** 2, nan=self.bound, posinf=self.bound)
        return 1.0 - errors.clamp(max=self.bound) / self.bound

    def told(self, mean: float) -> float:
        """The mean clipped error."""
        return self.bound * (1.0 - mean)
