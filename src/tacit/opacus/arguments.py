"""Arguments that both `make_private` methods of `PrivacyEngine` share, checked and translated.

The accountants of `PrivacyEngine`, under the names that Opacus gives them.

The criterion of ghost mode: any `nn` loss with a mean that is taken example by example.

Adaptive clipping (Andrew et al. 2021) with the arguments of Opacus.
"""

import copy
import math
import warnings
from dataclasses import dataclass, replace
from glob import escape
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from tacit import check
from tacit.accounting import ACCOUNTANTS, Accountant, Ledger, accountant
from tacit.clipping import AdaptiveClip, Clip, FlatClip, GroupClip, PerLayerClip
from tacit.errors import InvalidInput, PrivacyWarning
from tacit.noise import SecureStream, SeededStream, Stream
from tacit.sampling import Sampling, ShuffledSampling, sampling_of
from tacit.standing import Standing
from tacit.training.plan import Plan
from tacit.training.plan_options import PlanOptions
from tacit.training.records import with_units


@dataclass(frozen=True)
class BoundedAdaptiveClip(AdaptiveClip):
    """`AdaptiveClip` with its bound limited to [lowest, highest].

    Attributes:
        lowest: smallest bound, > 0.
        highest: largest bound.
    """

    lowest: float = 1e-9
    highest: float = 1e12

    def after(self, statistic: float, expected_batch_size: float) -> AdaptiveClip:
        """Clip of the next step, its bound limited to [lowest, highest]."""
        following = super().after(statistic, expected_batch_size)
        return replace(following, clip_norm=min(max(following.clip_norm, self.lowest), self.highest))


@dataclass(frozen=True)
class Adaptive:
    """Adaptive clipping by the arguments of Opacus (Andrew et al. 2021).

    Args:
        target_unclipped_quantile: share of the records to be left unclipped, in (0, 1).
        clipbound_learning_rate: > 0.
        max_clipbound: upper limit of the bound.
        min_clipbound: lower limit of the bound.
        unclipped_num_std: noise of the count of unclipped records; more than half the noise multiplier. None for 5
            times the noise multiplier, where the count costs half a percent.
    """

    target_unclipped_quantile: float = 0.5
    clipbound_learning_rate: float = 0.2
    max_clipbound: float = 1e12
    min_clipbound: float = 1e-9
    unclipped_num_std: float | None = None

    def split(self, max_grad_norm: float, noise_multiplier: float) -> tuple[AdaptiveClip, float]:
        """The clip, and the noise multiplier of the gradient that together with the count costs `noise_multiplier`.

        1 / noise_multiplier^2 = 1 / gradient_noise^2 + 1 / (2 unclipped_num_std)^2  (Theorem 1 there).
        """
        check.positive("noise_multiplier", noise_multiplier, "Adaptive clipping counts under noise.")
        check.real("max_clipbound", self.max_clipbound, low=self.min_clipbound, open_low=True)
        count = 2 * (5 * noise_multiplier if self.unclipped_num_std is None else self.unclipped_num_std)
        hint = f"It is more than half of noise_multiplier, {noise_multiplier:g}."
        check.real("unclipped_num_std", count / 2, low=noise_multiplier / 2, open_low=True, hint=hint)
        # A relative 1e-12 above the exact value, so that rounding never makes the step cost more than a flat one.
        gradient = (1 + 1e-12) / math.sqrt(noise_multiplier**-2 - count**-2)
        clip = BoundedAdaptiveClip(
            max_grad_norm,
            self.target_unclipped_quantile,
            self.clipbound_learning_rate,
            count / gradient,
            self.min_clipbound,
            self.max_clipbound,
        )
        return clip, gradient


class PerExampleMean(nn.Module):
    """`criterion` without its reduction, then a mean over each example's own positions, then over the batch.

    Positions whose target is `criterion.ignore_index` do not count; class weights weigh without dividing by the sum of
    the batch's weights, which would mix the examples.

    Args:
        criterion: a loss module with an attribute `reduction`, such as nn.CrossEntropyLoss(ignore_index=0).
        reduction: "mean" or "sum", over the batch.
    """

    def __init__(self, criterion: nn.Module, reduction: str = "mean"):
        super().__init__()
        if getattr(criterion, "reduction", None) not in ("mean", "sum", "none"):
            hint = 'Give one such as nn.CrossEntropyLoss(), or use grad_sample_mode="hooks" with your own function.'
            raise check.fail("criterion", "a loss module with an attribute `reduction`", type(criterion).__name__, hint)
        self.criterion = copy.deepcopy(criterion)
        self.criterion.reduction = "none"  # type: ignore[assignment]
        self.reduction = reduction

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Mean or sum over the batch of one loss per example."""
        losses = self._per_example(outputs, targets)
        return losses.sum() if self.reduction == "sum" else losses.mean()

    def _per_example(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """One loss per example, shape (batch,)."""
        losses = self.criterion(outputs, targets)
        if losses.dim() == 1:
            return losses
        losses = losses.flatten(1)
        ignored = getattr(self.criterion, "ignore_index", None)
        if ignored is None:
            return losses.mean(1)
        return losses.sum(1) / (targets.flatten(1) != ignored).sum(1).clamp(min=1)


OPACUS_NAMES = {"prv": "pld", "gdp": "clt"}
"""Name in Opacus -> name in tacit, where the two differ."""


class OpacusAccountant:
    """Accountant of an engine, with the methods of an Opacus accountant.

    Args:
        name: "prv", "rdp", "gdp", or an accountant of tacit.
        ledger: the ledger that it reads.

    Attributes:
        native: the accountant of tacit that answers.

    Raises:
        InvalidInput: no accountant has this name.
    """

    def __init__(self, name: str, ledger: Ledger):
        check.choice("accountant", name, [*OPACUS_NAMES, *ACCOUNTANTS])
        self.native: Accountant = accountant(OPACUS_NAMES.get(name, name))
        self._ledger = ledger

    def __len__(self) -> int:
        return self._ledger.steps

    def get_epsilon(self, delta: float) -> float:
        """Smallest epsilon at `delta` of the whole ledger, an `Answer` that includes its standing.

        An accountant without a proof warns and names the proven number.
        """
        answer = self.native(self._ledger).epsilon(delta)
        if self.native.standing is not Standing.PROVEN:
            proven = accountant("pld")(self._ledger).epsilon(delta)
            warnings.warn(
                f"epsilon={answer:.4g} of accountant {self.native.name!r} is {answer.standing.value} and bounds "
                f'nothing; accountant="prv" gives {proven:.4g} ({proven.standing.value}).',
                PrivacyWarning,
                stacklevel=3,
            )
        return answer

    def proven(self) -> Accountant:
        """The accountant for calibration; the exact one, with a warning, where this one is not proven."""
        if self.native.standing is Standing.PROVEN:
            return self.native
        warnings.warn(
            f"accountant {self.native.name!r} is {self.native.standing.value}: noise for it would miss the target. "
            'The exact accountant "prv" is used for the noise.',
            PrivacyWarning,
            stacklevel=4,
        )
        return accountant("pld")


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


def check_fixed(**given: bool) -> None:
    """Refuse arguments with another value than the only possible one, with the reason."""
    for name, value in given.items():
        required, hint = FIXED[name]
        if bool(value) is not required:
            raise check.fail(name, str(required), not required, hint)


@dataclass(frozen=True)
class Clipping:
    """Arguments of clipping; see `PrivacyEngine.make_private`.

    Attributes:
        clipping: one of `CLIPPING`.
        max_grad_norm: bound on the norm of one record's gradient, or a list of one for each parameter.
        adaptive: the settings of adaptive clipping.
    """

    clipping: str
    max_grad_norm: float | list[float]
    adaptive: Adaptive

    def __post_init__(self) -> None:
        check.choice("clipping", self.clipping, CLIPPING)

    def clip(self, module: nn.Module, optimizer: Optimizer) -> Clip:
        """The clip of `clipping` and `max_grad_norm`; for adaptive clipping a flat clip with the first bound.

        A list for per-layer clipping has one bound for each parameter in the order of the optimizer; one number is for
        all layers together.
        """
        bounds = self.max_grad_norm
        if not isinstance(bounds, list | tuple):
            return (PerLayerClip if self.clipping == "per_layer" else FlatClip)(bounds)
        if self.clipping != "per_layer":
            hint = 'Use clipping="per_layer" for one bound for each parameter.'
            raise check.fail("max_grad_norm", f"one number for {self.clipping} clipping", bounds, hint)
        names = {id(parameter): name for name, parameter in module.named_parameters()}
        held = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
        if len(held) != len(bounds):
            raise check.fail("max_grad_norm", f"a list of {len(held)}, one bound for each parameter", bounds)
        pairs = zip(held, bounds, strict=True)
        return GroupClip([(escape(names[id(parameter)]), bound) for parameter, bound in pairs])

    def adapted(self, plan: Plan) -> Plan:
        """`plan` with adaptive clipping, if `clipping` is "adaptive", at the same privacy cost per step."""
        if self.clipping != "adaptive":
            return plan
        clip, noise_multiplier = self.adaptive.split(plan.clip_norm, plan.noise_at(0))
        return replace(plan, clip=clip, noise_multiplier=noise_multiplier)


@dataclass(frozen=True)
class Arguments:
    """Further arguments that both `make_private` methods share; see `PrivacyEngine.make_private`.

    Attributes:
        module: the model to train.
        optimizer: its optimizer.
        data_loader: its loader.
        criterion: used in ghost mode.
        poisson_sampling: False for shuffled batches.
        noise_generator: makes the noise repeatable; None for secure noise.
        grad_sample_mode: one of `MODES`; "ghost" returns the criterion too.

    Raises:
        InvalidInput: a field breaks its rule.
    """

    module: nn.Module
    optimizer: Optimizer
    data_loader: DataLoader[Any]
    criterion: nn.Module
    poisson_sampling: bool
    noise_generator: torch.Generator | None
    grad_sample_mode: str

    def __post_init__(self) -> None:
        if self.grad_sample_mode in ("ghost_fsdp", "ghost_tp", "no_op"):
            hint = "Training in several processes is not here yet, and no_op leaves the gradients to others."
            raise check.fail("grad_sample_mode", "one of " + ", ".join(MODES), self.grad_sample_mode, hint)
        check.choice("grad_sample_mode", self.grad_sample_mode, MODES)

    def sampling(self, options: PlanOptions) -> Sampling:
        """The sampling of `options`, or shuffled batches with a warning about their privacy cost."""
        drawn = with_units(options, self.data_loader).sampling
        if self.poisson_sampling:
            return sampling_of(drawn)
        if drawn != "poisson":
            raise check.fail("poisson_sampling", f"True with sampling={drawn!r}", False)
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
