"""Which models can be trained privately, and what to change in the others."""

from __future__ import annotations

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.modules.lazy import LazyModuleMixin

from tacit.errors import UnsupportedModel


def problems(model: nn.Module) -> list[str]:
    """One sentence for every layer that mixes examples or keeps statistics of private data, with its fix."""
    found = []
    for path, layer in model.named_modules():
        name = f"layer {path!r} ({type(layer).__name__})" if path else f"the model ({type(layer).__name__})"
        if isinstance(layer, _InstanceNorm):
            if layer.track_running_stats:
                found.append(f"{name} keeps statistics of the data. Set track_running_stats=False.")
        elif isinstance(layer, _BatchNorm):
            groups = next(groups for groups in (32, 16, 8, 4, 2, 1) if not layer.num_features % groups)
            fix = f"nn.GroupNorm({groups}, {layer.num_features})"
            found.append(f"{name} mixes the examples of a batch. Replace it by {fix}.")
        elif isinstance(layer, LazyModuleMixin) and layer.has_uninitialized_params():  # type: ignore[misc]
            found.append(f"{name} has no parameters yet. Run the model once before making it private.")
    return found


def examine(model: nn.Module) -> None:
    """Raise `UnsupportedModel` naming every layer that cannot be trained privately, and its fix."""
    if not isinstance(model, nn.Module):
        raise UnsupportedModel(f"model must be a torch.nn.Module; got {type(model).__name__}.")
    found = problems(model)
    if found:
        raise UnsupportedModel(" ".join(found))
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UnsupportedModel("the model has no trainable parameter. Set requires_grad=True on what is to be trained.")
