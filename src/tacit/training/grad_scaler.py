"""`GradScaler`: losses of a private model scaled for autocast to float16."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from tacit.errors import InvalidInput, TrainingMisuse
from tacit.training.private_outputs import PrivateOutputs


class GradScaler:
    """Loss scaling with the calls of `torch.amp.GradScaler`, for private training under autocast to float16.

    Gradients pass back through the model `init_scale` times as large, so that small ones stay above the least number of
    float16. They are divided by it in float32 before they are clipped: the clipping norm, the noise and the guarantee
    are those of a run without scaling. A record whose scaled gradient exceeds the range of float16 inside of the model
    is computed again alone; one that exceeds it at the outputs of the model contributes nothing.

    The scale is constant. `torch.amp.GradScaler` halves its own when a gradient overflows and skips the step, and both
    would tell of the records of the batch.

    Args:
        device: as of `torch.amp.GradScaler`; unused, as the scale is a number.
        init_scale: the scale, a power of two in [1, 65536], so that scaling rounds nothing.
        enabled: False for a scale of 1.

    Raises:
        InvalidInput: `init_scale` is no such number.

    Examples:
        >>> import torch, tacit
        >>> from torch import nn
        >>> data = torch.utils.data.TensorDataset(torch.randn(40, 5), torch.randint(2, (40,)))
        >>> model = nn.Linear(5, 2)
        >>> private = tacit.make_private(
        ...     model,
        ...     torch.optim.SGD(model.parameters(), lr=0.1),
        ...     torch.utils.data.DataLoader(data, batch_size=8),
        ...     clip_norm=1.0,
        ...     noise_multiplier=1.0,
        ...     epochs=1,
        ... )
        >>> scaler = tacit.training.GradScaler()
        >>> for x, y in private.loader:
        ...     with torch.autocast("cpu", dtype=torch.float16):
        ...         losses = nn.functional.cross_entropy(private.model(x), y, reduction="none")
        ...     scaler.scale(losses).backward()
        ...     scaler.step(private.optimizer)
        ...     scaler.update()
    """

    def __init__(self, device: str = "cuda", init_scale: float = 1024.0, *, enabled: bool = True):
        if not (1 <= init_scale <= 65536 and math.frexp(init_scale)[0] == 0.5):
            raise InvalidInput(f"init_scale must be a power of two in [1, 65536]; got {init_scale}.")
        self._scale = float(init_scale) if enabled else 1.0
        self._enabled = enabled

    def scale(self, outputs: Tensor) -> Tensor:
        """The loss times the scale; `backward` must be called on what this returns.

        Args:
            outputs: a loss of the outputs of a private model.

        Raises:
            TrainingMisuse: the loss comes from no private model, or was scaled before.
        """
        if not isinstance(outputs, PrivateOutputs):
            raise TrainingMisuse(
                "scale must be given a loss of the outputs of private.model in train mode; got another value. Use "
                "torch.amp.GradScaler for a model that is not private."
            )
        if outputs.trace.loss_scale != 1:
            raise TrainingMisuse("scale must be called once for each batch; got a second call.")
        scaled = outputs * self._scale
        assert isinstance(scaled, PrivateOutputs)
        scaled.trace.loss_scale = scaled.loss_scale = self._scale
        return scaled

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """Do nothing: gradients of a private step are unscaled before they are clipped."""

    def step(self, optimizer: torch.optim.Optimizer, *args: Any, **named: Any) -> Any:
        """`optimizer.step(*args, **named)`; no step is skipped."""
        return optimizer.step(*args, **named)

    def update(self, new_scale: float | None = None) -> None:
        """Do nothing, as the scale is constant; raise `InvalidInput` for another scale."""
        if new_scale is not None and new_scale != self._scale:
            raise InvalidInput("new_scale must be left out: the scale of private gradients is constant; got one.")

    def get_scale(self) -> float:
        """The scale."""
        return self._scale

    def is_enabled(self) -> bool:
        """Whether losses are scaled."""
        return self._enabled

    def state_dict(self) -> dict[str, float]:
        """State for a checkpoint: the scale."""
        return {"scale": self._scale}

    def load_state_dict(self, state_dict: dict[str, float]) -> None:
        """Load the scale of a checkpoint; raises `InvalidInput` where it is another."""
        self.update(state_dict["scale"])
