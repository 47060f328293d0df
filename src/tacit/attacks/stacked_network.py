"""The stacked form of a network, where one is known."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from tacit.attacks.stacked_images import image_layer
from tacit.attacks.stacked_layers import Dense, Flatten, Layer, Relu, Tanh, Weighted


def layers_of(network: nn.Module, *, images: bool) -> list[Layer] | str:
    """The stacked layers of a network, or the name of the first thing in it that cannot be stacked.

    Args:
        network: of one model.
        images: whether its inputs are (channels, height, width).

    Example:
        >>> len(layers_of(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), images=False))
        3
        >>> layers_of(nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)), images=True)
        'BatchNorm2d'
    """
    layers: list[Layer] = []
    for name, module in _sequence(network):
        found = _layer_of(name, module, images, bool(layers) and isinstance(layers[-1], Weighted))
        if found is None:
            return type(module).__name__
        images = images and not isinstance(found, Flatten)
        layers.append(found)
    names = [name for layer in layers if isinstance(layer, Weighted) for name in layer.shapes]
    parameters = list(network.parameters())  # a shared one once
    whole = names == list(network.state_dict()) and len(names) == len(parameters)
    whole = whole and all(value.requires_grad for value in parameters)
    return layers if names and whole and not images else "a parameter used twice, frozen or outside of the layers"


def _sequence(network: nn.Module, prefix: str = "") -> Iterable[tuple[str, nn.Module]]:
    if type(network) is not nn.Sequential or _hooked(network):
        yield prefix, network
        return
    # named_children leaves out a module that was there before, such as one ReLU in two places.
    for name, module in network._modules.items():
        assert module is not None
        yield from _sequence(module, f"{prefix}.{name}" if prefix else name)


def _hooked(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


def _layer_of(name: str, module: nn.Module, images: bool, after_weights: bool) -> Layer | None:
    """None for what is not known to be the same stacked; kinds are exact, as a subclass may do anything."""
    kind = type(module)
    if _hooked(module):
        return None
    if kind is nn.Linear and not images:
        return Dense(name, module)
    if isinstance(module, nn.ReLU) and kind is nn.ReLU:
        return Relu(after_weights)
    if kind is nn.Tanh:
        return Tanh()
    if isinstance(module, nn.Flatten) and kind is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1):
        return Flatten()
    return image_layer(name, module) if images else None
