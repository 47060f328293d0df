"""The arguments that both `make_private` calls share, checked: what each means here, or why it has no meaning."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from tacit import check
from tacit.clipping import FlatClip
from tacit.errors import InvalidInput
from tacit.noise import SecureStream, SeededStream, Stream

MODES = ("hooks", "functorch", "ew", "ghost")
CLIPPING = ("flat", "per_layer", "adaptive")


@dataclass(frozen=True)
class Settings:
    """As in `PrivacyEngine.make_private`."""

    criterion: nn.Module
    max_grad_norm: float | list[float]
    batch_first: bool
    loss_reduction: str
    poisson_sampling: bool
    clipping: str
    noise_generator: torch.Generator | None
    grad_sample_mode: str
    wrap_model: bool
    rand_on_empty: bool = False

    def __post_init__(self) -> None:
        if self.grad_sample_mode in ("ghost_fsdp", "ghost_tp", "no_op"):
            hint = "Training in several processes is not here yet, and no_op leaves the gradients to others."
            raise check.fail("grad_sample_mode", "one of " + ", ".join(MODES), self.grad_sample_mode, hint)
        check.choice("grad_sample_mode", self.grad_sample_mode, MODES)
        check.choice("loss_reduction", self.loss_reduction, ("mean", "sum"))
        check.choice("clipping", self.clipping, CLIPPING)
        if not self.batch_first:
            hint = "Examples are told apart along the first axis; transpose inside the model."
            raise check.fail("batch_first", "True", False, hint)
        if not self.wrap_model:
            hint = "Gradients are captured around the forward pass, so the model that is returned must be called."
            raise check.fail("wrap_model", "True", False, hint)
        if self.rand_on_empty:
            hint = "An empty batch adds noise and nothing else; made-up records would only disturb it."
            raise check.fail("rand_on_empty", "False", True, hint)

    @property
    def ghost(self) -> bool:
        """Whether the criterion is returned too."""
        return self.grad_sample_mode == "ghost"

    def clip(self) -> FlatClip:
        """The clip that `clipping` and `max_grad_norm` ask for."""
        if isinstance(self.max_grad_norm, list):
            hint = 'Use clipping="per_layer" for one bound per parameter.'
            raise check.fail("max_grad_norm", "one number for flat clipping", self.max_grad_norm, hint)
        return FlatClip(self.max_grad_norm)

    def stream(self, secure_mode: bool) -> Stream:
        """Where the noise comes from."""
        if self.noise_generator is None:
            return SecureStream()
        if not isinstance(self.noise_generator, torch.Generator):
            raise check.fail("noise_generator", "a torch.Generator or None", type(self.noise_generator).__name__)
        if secure_mode:
            raise InvalidInput("noise_generator must be None in secure mode; got a generator. Its seed would be known.")
        return SeededStream(self.noise_generator.initial_seed() % 2**63)
