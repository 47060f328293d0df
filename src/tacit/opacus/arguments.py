"""Arguments that both `make_private` methods of `PrivacyEngine` share, checked and translated."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from glob import escape
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from tacit import check
from tacit.clipping import Clip, FlatClip, GroupClip, PerLayerClip
from tacit.errors import InvalidInput, PrivacyWarning
from tacit.noise import SecureStream, SeededStream, Stream
from tacit.opacus.adaptive_clipping import Adaptive
from tacit.sampling import Sampling, ShuffledSampling, sampling_of
from tacit.training.plan import Plan
from tacit.training.plan_options import PlanOptions

MODES = ("hooks", "functorch", "ew", "ghost")
CLIPPING = ("flat", "per_layer", "adaptive")
FIXED = {
    "batch_first": (True, "Examples lie along the first axis; transpose inside the model."),
    "wrap_model": (
        True,
        "Gradients are captured around the forward pass, so the model that is returned must be called.",
    ),
    "rand_on_empty": (False, "An empty batch adds noise and nothing else; made-up records would only disturb it."),
}
"""Arguments with only one possible value here: name -> (value, reason)."""


@dataclass(frozen=True)
class Execution:
    """How the loop is run; see `PrivacyEngine.make_private`.

    Attributes:
        loss_reduction: "mean" or "sum".
        grad_sample_mode: one of `MODES`; "ghost" returns the criterion too.
        batch_first: True; other values are refused with the reason.
        wrap_model: True; other values are refused with the reason.
        rand_on_empty: False; other values are refused with the reason.

    Raises:
        InvalidInput: a field breaks its rule.
    """

    loss_reduction: str
    grad_sample_mode: str
    batch_first: bool
    wrap_model: bool
    rand_on_empty: bool = False

    def __post_init__(self) -> None:
        if self.grad_sample_mode in ("ghost_fsdp", "ghost_tp", "no_op"):
            hint = "Training in several processes is not here yet, and no_op leaves the gradients to others."
            raise check.fail("grad_sample_mode", "one of " + ", ".join(MODES), self.grad_sample_mode, hint)
        check.choice("grad_sample_mode", self.grad_sample_mode, MODES)
        check.choice("loss_reduction", self.loss_reduction, ("mean", "sum"))
        for name, (required, hint) in FIXED.items():
            if bool(getattr(self, name)) is not required:
                raise check.fail(name, str(required), not required, hint)


@dataclass(frozen=True)
class Arguments:
    """Arguments that both `make_private` methods share; see `PrivacyEngine.make_private`.

    Attributes:
        module: the model to train.
        optimizer: its optimizer.
        data_loader: its loader.
        criterion: used in ghost mode.
        max_grad_norm: bound on the norm of one record's gradient, or a list of one for each parameter.
        clipping: one of `CLIPPING`.
        adaptive: the settings of adaptive clipping.
        poisson_sampling: False for shuffled batches.
        noise_generator: makes the noise repeatable; None for secure noise.
        execution: how the loop is run.
        options: sampling of the run, as in `tacit.fit`.

    Raises:
        InvalidInput: a field breaks its rule.
    """

    module: nn.Module
    optimizer: Optimizer
    data_loader: DataLoader[Any]
    criterion: nn.Module
    max_grad_norm: float | list[float]
    clipping: str
    adaptive: Adaptive
    poisson_sampling: bool
    noise_generator: torch.Generator | None
    execution: Execution
    options: PlanOptions

    def __post_init__(self) -> None:
        check.choice("clipping", self.clipping, CLIPPING)

    def clip(self) -> Clip:
        """The clip of `clipping` and `max_grad_norm`; for adaptive clipping a flat clip with the first bound."""
        if self.clipping == "per_layer":
            return self._per_layer()
        if isinstance(self.max_grad_norm, list | tuple):
            hint = 'Use clipping="per_layer" for one bound for each parameter.'
            raise check.fail("max_grad_norm", f"one number for {self.clipping} clipping", self.max_grad_norm, hint)
        return FlatClip(self.max_grad_norm)

    def with_adaptive_clipping(self, plan: Plan) -> Plan:
        """`plan` with adaptive clipping, if `clipping` is "adaptive", at the same privacy cost per step."""
        if self.clipping != "adaptive":
            return plan
        clip, noise_multiplier = self.adaptive.split(plan.clip_norm, plan.noise_at(0))
        return replace(plan, clip=clip, noise_multiplier=noise_multiplier)

    def _per_layer(self) -> Clip:
        """One bound for each parameter in the order of the optimizer, or one number for all layers together."""
        if not isinstance(self.max_grad_norm, list | tuple):
            return PerLayerClip(self.max_grad_norm)
        names = {id(parameter): name for name, parameter in self.module.named_parameters()}
        held = [p for group in self.optimizer.param_groups for p in group["params"] if p.requires_grad]
        if len(held) != len(self.max_grad_norm):
            rule = f"a list of {len(held)}, one bound for each parameter"
            raise check.fail("max_grad_norm", rule, self.max_grad_norm)
        pairs = zip(held, self.max_grad_norm, strict=True)
        return GroupClip([(escape(names[id(parameter)]), bound) for parameter, bound in pairs])

    def sampling(self) -> Sampling:
        """The sampling that is named, or shuffled batches with a warning about their privacy cost."""
        if self.poisson_sampling:
            return sampling_of(self.options.sampling)
        if self.options.sampling != "poisson":
            raise check.fail("poisson_sampling", f"True with sampling={self.options.sampling!r}", False)
        warnings.warn(
            "poisson_sampling=False trains on shuffled batches, which are accounted without amplification by sampling: "
            "every pass costs as much as one step on all records. Leave it True for far smaller an epsilon.",
            PrivacyWarning,
            stacklevel=5,
        )
        return ShuffledSampling()

    def stream(self, secure_mode: bool) -> Stream:
        """Source of the noise: secure, or seeded by `noise_generator`."""
        if self.noise_generator is None:
            return SecureStream()
        if not isinstance(self.noise_generator, torch.Generator):
            raise check.fail("noise_generator", "a torch.Generator or None", type(self.noise_generator).__name__)
        if secure_mode:
            raise InvalidInput("noise_generator must be None in secure mode; got a generator. Its seed would be known.")
        return SeededStream(self.noise_generator.initial_seed() % 2**63)
