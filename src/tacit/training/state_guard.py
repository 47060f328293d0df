"""The state guard: weights change by releases alone, and nothing else that the forward pass reads changes unnoticed.

After each release the trainable weights are copied. Before a forward pass and before a step they must equal the copy
bit by bit, the trainable set must be the same, and no parameter may hold a gradient: training through the wrapped
module, writes through `.data` and gradients of a warm-up are found by that. Frozen weights and buffers are compared by
value too. Attributes are compared by identity, which costs a dictionary look-up each; one that changed is named, so
that the model probe can tell whether it follows the records.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tacit.errors import TrainingMisuse
from tacit.gradients.module_state import same


class StateGuard:
    """Compares the state of a module with that after its last release.

    Args:
        model: the wrapped module.

    Example:
        >>> layer = nn.Linear(2, 1)
        >>> guard = StateGuard(layer)
        >>> guard.check_weights()
        >>> layer.weight.data.add_(1.0)
        tensor(...)
        >>> guard.check_weights()
        Traceback (most recent call last):
        ...
        tacit.errors.TrainingMisuse: weights must change by private steps alone; got ...
    """

    def __init__(self, model: nn.Module):
        self.model = model
        self.released()

    def released(self) -> None:
        """Take the present state as that of the last release."""
        self._weights = {name: (value, value.detach().clone()) for name, value in self.model.named_parameters()}
        self._buffers = {name: (value, value.detach().clone()) for name, value in self.model.named_buffers()}
        self._trainable = {name for name, (value, _) in self._weights.items() if value.requires_grad}
        self._attributes = [
            (path, own, {key: (value, _version(value)) for key, value in own.items() if _watched(key, value)})
            for path, own in ((path, vars(inner)) for path, inner in self.model.named_modules())
        ]

    def stepped(self) -> None:
        """Take the present trainable weights, which a release has just changed, as those of the last release."""
        for name in self._trainable:
            value, kept = self._weights[name]
            kept.copy_(value.detach())

    def check_weights(self) -> None:
        """Raise `TrainingMisuse` unless every weight, buffer and gradient is as the last release left it."""
        found = dict(self.model.named_parameters())
        if found.keys() != self._weights.keys() or any(
            found[name] is not value for name, (value, _) in self._weights.items()
        ):
            raise TrainingMisuse(
                "model must keep its parameters after make_private; got others. Add or replace layers before it."
            )
        trainable = {name for name, value in found.items() if value.requires_grad}
        if trainable - self._trainable:
            name = sorted(trainable - self._trainable)[0]
            raise TrainingMisuse(
                f"parameter {name!r} must keep requires_grad as it was in make_private; got True. "
                "Unfreeze parameters before make_private."
            )
        self._check_gradients(found)
        self._check_values()

    def _check_gradients(self, found: dict[str, nn.Parameter]) -> None:
        held = next((name for name, value in found.items() if value.grad is not None), None)
        if held is not None:
            raise TrainingMisuse(
                f"parameter {held!r} must hold no gradient before a private step; got one of another backward pass. "
                "Train through private.model alone, or call zero_grad() on the original model."
            )

    def _check_values(self) -> None:
        for name, (value, kept) in self._weights.items():
            if not same(value.detach(), kept):
                raise TrainingMisuse(
                    f"weights must change by private steps alone; got another change of {name!r}. For a change that "
                    'uses no private data write: with private.postprocessing("what it does"): ...'
                )

    def changed(self) -> list[str]:
        """Buffers and attributes that are not what they were after the last release, by dotted name."""
        names = [name for name, (value, kept) in self._buffers.items() if not same(value.detach(), kept)]
        buffers = dict(self.model.named_buffers())
        names += [name for name, (value, _) in self._buffers.items() if buffers.get(name) is not value]
        for path, own, before in self._attributes:
            prefix = f"{path}." if path else ""
            for key, (value, version) in before.items():
                now = own.get(key)
                if now is not value or (version is not None and _version(now) != version):
                    names.append(prefix + key)
            names += [prefix + key for key in own.keys() - before.keys() if _watched(key, own[key])]
        return list(dict.fromkeys(names))


def _watched(key: str, value: Any) -> bool:
    """Whether an attribute may hold state; hooks, modules, parameters and buffers stand elsewhere."""
    return key not in ("_parameters", "_buffers", "_modules", "training") and "_hooks" not in key


def _version(value: Any) -> Any:
    """What changes when a value is written into in place: version and address of a tensor, size of a container."""
    if isinstance(value, Tensor):
        return value._version, value.data_ptr(), _digest(value)
    if isinstance(value, list | dict | set):
        return len(value), tuple(map(id, value.values() if isinstance(value, dict) else value))
    return None


def _digest(value: Tensor) -> float:
    """The sum of a tensor's values: writes through `.data` leave version and address alone."""
    with torch.no_grad():
        return float(value.detach().double().nan_to_num().sum()) if value.numel() else 0.0
