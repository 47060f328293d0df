"""`PrivateHoldout`: private records that no step trains on, to stop a run or to choose its checkpoint by."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tacit import check
from tacit.calibration import smallest
from tacit.mechanisms import DiscreteGaussian, Mechanism
from tacit.noise import SecureStream, Stream
from tacit.noise.choice import METHODS, Scores, choice_mechanism, choose
from tacit.noise.discrete import discrete_gaussian
from tacit.relation import Relation
from tacit.tradeoff import Epsilon
from tacit.training.callbacks import Row
from tacit.training.plan import Plan

NOISY = "noisy"
"""Every epoch gives a noisy accuracy."""
CHECKPOINTS = (NOISY, *METHODS)
METRIC = "validation_accuracy"
"""The name of the noisy accuracy in a row of the history."""
DISJOINT = "The records of the private holdout are none of those trained on, and the sizes of both parts are public."
"""The assumption behind a holdout that was not made by `PrivateHoldout.split`."""
OWN_COIN = "Each record went to the private holdout by a coin of its own, and the sizes of both parts are public."
"""The assumption behind a holdout that was."""
_ROWS_AT_ONCE = 4096


class PrivateHoldout:
    """Private validation records of a classification, for `fit(holdout=...)`.

    A record that is trained on pays for the training, one of the holdout for what is told of its count: the guarantee
    is the larger of the two (parallel composition). What is told is one of

    - `checkpoint="noisy"`: after every planned epoch the number of records that are classified right, with exact
      discrete Gaussian noise, as `validation_accuracy` in the history. `EarlyStopping("validation_accuracy")` and
      `BestModel(model, "validation_accuracy")` are post-processing of it.
    - `checkpoint="exponential"` or `"permute_and_flip"`: nothing but which epoch's weights are restored at the end, a
      private choice by the counts that costs `epsilon` once however many epochs there are.

    A run with a holdout writes no checkpoint file and cannot be resumed: its noise may not be drawn twice.

    Args:
        inputs: tensor or array (n, ...), none of it trained on.
        targets: class of each, int64 (n,).
        epsilon: > 0, of everything that is told of the holdout.
        delta: in [0, 1), of the same; above 0 for "noisy".
        checkpoint: "noisy", "exponential" or "permute_and_flip".
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
        epsilon: float,
        delta: float = 0.0,
        checkpoint: str = NOISY,
        stream: Stream | None = None,
    ):
        self._inputs, self._targets = torch.as_tensor(inputs), torch.as_tensor(targets)
        if self._targets.ndim != 1 or len(self._inputs) != len(self._targets) or not len(self._targets):
            raise check.fail("targets", "one class for each row of inputs, at least one", tuple(self._targets.shape))
        self.checkpoint = check.choice("checkpoint", checkpoint, CHECKPOINTS)
        self._target = Epsilon(check.positive("epsilon", epsilon), delta)
        if self.checkpoint == NOISY and delta == 0:
            raise check.fail("delta", "above 0 for noisy accuracies", delta)
        self._stream = SecureStream() if stream is None else stream
        self.assumption = DISJOINT
        self._relation, self._looks, self._noise = Relation.ADD_REMOVE, 0, 0.0
        self._kept: list[tuple[int, Mapping[str, Tensor]]] = []

    @classmethod
    def split(
        cls, inputs: Any, targets: Any, *, share: float, stream: Stream | None = None, **given: Any
    ) -> tuple[Any, Any, PrivateHoldout]:
        """Inputs and targets to train on, and the holdout: each record goes there by a coin of its own.

        Args:
            inputs: tensor or array (n, ...).
            targets: class of each, (n,).
            share: in (0, 1), the probability with which a record goes to the holdout.
            stream: source of the coins and of the noise.
            given: other arguments of `PrivateHoldout`.

        Raises:
            InvalidInput: one of the two parts is empty.
        """
        check.probability("share", share, open_low=True, open_high=True)
        stream = SecureStream() if stream is None else stream
        aside = stream.uniform(len(targets)) < share
        if not aside.any() or aside.all():
            raise check.fail("share", "one that leaves records for training and for the holdout", share)
        holdout = cls(inputs[aside], targets[aside], stream=stream, **given)
        holdout.assumption = OWN_COIN
        return inputs[~aside], targets[~aside], holdout

    def __len__(self) -> int:
        """Number of records."""
        return len(self._targets)

    @property
    def secure(self) -> bool:
        """Whether the noise comes from a secure stream."""
        return self._stream.secure

    def mechanism(self, plan: Plan, relation: Relation) -> Mechanism:
        """All that a run of `plan` tells of the holdout; called once, before the first step.

        Raises:
            InvalidInput: the holdout was used by a run before, or the plan protects other units than records.
        """
        if self._looks:
            raise check.fail("holdout", "a new one for each run", "one that was used")
        if plan.sampling.unit != "record" or plan.strategy is not None:
            raise check.fail("sampling", "one of records with independent noise, beside a holdout", plan.sampling.type)
        self._relation, self._looks = relation, epochs_of(plan)
        if self.checkpoint != NOISY:
            return choice_mechanism(self._target.epsilon, method=self.checkpoint)

        def told(noise: float) -> Mechanism:
            return DiscreteGaussian(noise) * self._looks

        self._noise = smallest("noise", told, self._target, relation=relation).value
        return told(self._noise)

    def look(self, model: nn.Module) -> Row:
        """The noisy accuracy of `model`, or nothing where a checkpoint is chosen at the end; once for each epoch."""
        if not self._looks:
            raise check.fail("holdout", "looked at once for each planned epoch", "another look")
        self._looks -= 1
        right = self._right(model)
        if self.checkpoint == NOISY:
            return {METRIC: (right + discrete_gaussian(self._stream, Fraction(self._noise) ** 2)) / len(self)}
        self._kept.append((right, {name: value.detach().clone() for name, value in model.state_dict().items()}))
        return {}

    def restore_chosen(self, model: nn.Module) -> None:
        """Restore the weights of the epoch that the private choice picks, once, and forget the others."""
        if not self._kept:
            return
        scores = Scores(np.array([right for right, _ in self._kept], dtype=float), 1.0, monotone=True)
        epsilon, relation = self._target.epsilon, self._relation
        chosen = choose(scores, epsilon, self._stream, relation=relation, method=self.checkpoint)
        model.load_state_dict(self._kept[chosen][1])
        self._kept = []

    def _right(self, model: nn.Module) -> int:
        """How many records are classified right; an output that is not finite is wrong."""
        right = 0
        for start in range(0, len(self), _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            device = next(model.parameters()).device
            outputs = model(self._inputs[rows].to(device)).detach().cpu()
            hit = outputs.argmax(dim=1) == self._targets[rows]
            right += int((hit & torch.isfinite(outputs).all(dim=1)).sum())
        return right


def epochs_of(plan: Plan) -> int:
    """How often a run of `plan` ends an epoch; its last step ends one too."""
    last = round(plan.steps * plan.sample_rate) + 1
    ends = {round(epoch / plan.sample_rate) for epoch in range(1, last + 1)}
    return len({step for step in ends if step <= plan.steps} | {plan.steps})
