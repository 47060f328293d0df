"""A device that this machine lacks, played on the host: tensors put there and tensors of the host do not mix.

    with Elsewhere() as device:
        x = device.put(torch.ones(3))
        x + torch.ones(3)  # RuntimeError, as on CUDA

The device of such a tensor reads "cuda:0"; what is made or moved with it lies there, what is made without a device on
the host. Scalars mix, and places of the host index tensors of the device, as on CUDA.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

_aten = torch.ops.aten
_INDEXED = (_aten.index.Tensor, _aten.index_put_.default, _aten.index_put.default, _aten._index_put_impl_.default)
_THERE, _HERE = torch.device("cuda", 0), torch.device("cpu")


class Elsewhere(TorchFunctionMode):
    """Context in which tensors that were `put` lie on a device of their own."""

    def __init__(self) -> None:
        super().__init__()
        self._there: dict[int, Tensor] = {}
        self._placement = _Placement(self)
        played = {"get_rng_state": torch.get_rng_state, "set_rng_state": torch.set_rng_state, "get_device_name": str}
        self._functions = patch.multiple(torch.cuda, **played)

    def __enter__(self) -> Elsewhere:
        self._functions.start()
        super().__enter__()
        self._placement.__enter__()
        return self

    def __exit__(self, *given: Any) -> None:
        self._placement.__exit__(*given)
        super().__exit__(*given)
        self._functions.stop()

    def put(self, tensor: Tensor) -> Tensor:
        """`tensor`, there from now on."""
        with torch._C._DisableTorchDispatch():
            self._there[tensor.untyped_storage()._cdata] = tensor.detach()  # Kept, so that no other takes its number.
        return tensor

    def put_module(self, module: nn.Module) -> nn.Module:
        """`module`, with parameters and buffers there."""
        for each in (*module.parameters(), *module.buffers()):
            self.put(each)
        return module

    def holds(self, tensor: Tensor) -> bool:
        """Whether `tensor` lies there."""
        return tensor.layout is torch.strided and tensor.untyped_storage()._cdata in self._there

    def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if function == Tensor.device.__get__:  # type: ignore[attr-defined]
            return _THERE if self.holds(args[0]) else function(*args, **kwargs)
        if function is Tensor.numpy and self.holds(args[0]):
            raise TypeError("can't convert a tensor of the device to numpy.")
        if function is Tensor.cpu and self.holds(args[0]):
            with torch._C._DisableTorchDispatch():
                return args[0].detach().clone()
        wanted = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.device) and each == _THERE]
        if wanted:
            args, kwargs = tree_map(lambda each: _HERE if isinstance(each, torch.device) else each, (args, kwargs))
        found = function(*args, **kwargs)
        read = args if function is Tensor.__deepcopy__ else args[1:] if function is Tensor.to else ()
        like = any(isinstance(each, Tensor) and self.holds(each) for each in read)
        if isinstance(found, Tensor) and (wanted or like) and not self.holds(found):
            return self.put(found.clone() if function is Tensor.to else found)
        return found


class _Placement(TorchDispatchMode):
    """What an operation gives lies where its tensors lie, which is one place."""

    def __init__(self, device: Elsewhere):
        super().__init__()
        self._device = device

    def __torch_dispatch__(self, operation: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        found = operation(*args, **(kwargs or {}))
        if operation is _aten.copy_.default:
            return found
        read = args[:1] if operation in _INDEXED else (args, kwargs or {})
        given = [each for each in tree_leaves(read) if isinstance(each, Tensor)]
        there = [each for each in given if self._device.holds(each)]
        here = [each for each in given if each.dim() and not self._device.holds(each)]
        if there and here:
            raise RuntimeError(f"Expected all tensors to be on the same device: {operation}")
        if operation in _INDEXED and here and any(map(self._device.holds, self._places(args))):
            raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor")
        if there:
            for each in tree_leaves(found):
                if isinstance(each, Tensor) and each.layout is torch.strided and not self._device.holds(each):
                    self._device.put(each)
        return found

    @staticmethod
    def _places(args: tuple) -> list[Tensor]:
        return [each for each in tree_leaves(args[1]) if isinstance(each, Tensor)]
