"""Sharded parameters (FSDP2): the whole model that one step computes with, beside the shards that the optimizer holds.

Clipping needs the norm of a record's gradient over all parameters, and every record is on one rank. So each rank
gathers all parameters for the forward and backward passes of a step, and frees them after it. Between steps it holds
its shards of the parameters and the optimizer's state for them.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from tacit.errors import TrainingMisuse

_HOOKS = tuple(name for name in vars(nn.Module()) if name.endswith("_hooks"))
_WRAPPER = "torch.distributed.fsdp"
_STATE = "__composable_api"  # what torch keeps in a module for its wrapper


def is_sharded(model: nn.Module) -> bool:
    """Whether parts of parameters are on other ranks: any of them is a `DTensor`, or `fully_shard` took a module.

    Example:
        >>> is_sharded(nn.Linear(2, 1))
        False
    """
    return any(_is_wrapped(module) for module in model.modules()) or any(map(is_shard, model.parameters()))


def is_shard(value: Tensor) -> bool:
    """Whether a tensor is one over several ranks, of which this one holds a part."""
    return hasattr(value, "to_local")


def local(value: Tensor) -> Tensor:
    """This rank's part of a sharded tensor, or any other tensor itself; both without a graph."""
    return value.detach().to_local() if is_shard(value) else value.detach()  # type: ignore[attr-defined]


class WholeModel:
    """A model without wrappers whose parameters exist from `gather` to `free`, beside its sharded counterpart.

    Buffers and frozen parameters that are not sharded are those of the counterpart itself.

    Args:
        sharded: the model after `fully_shard`, whose trainable parameters are all sharded over one mesh of all ranks.
        rank: of this process.
        size: number of processes.

    Raises:
        TrainingMisuse: it is sharded in another way.

    Attributes:
        sharded: the counterpart.
        module: the whole model.
    """

    def __init__(self, sharded: nn.Module, rank: int, size: int):
        _check_layout(sharded, size)
        self.sharded, self._rank, self._size = sharded, rank, size
        self.module = _without_wrappers(sharded)
        shards = dict(sharded.named_parameters())
        self._pairs = [
            (name, value, shards[name]) for name, value in self.module.named_parameters() if is_shard(shards[name])
        ]
        for name, value, shard in self._pairs:
            if self.pieces(name, value)[rank].shape != local(shard).shape:
                raise TrainingMisuse(f"parameter {name!r} must be sharded in even chunks; got others. {_WAY}")
        self._sums: list[float] = []
        self._present = True
        self.free()

    @torch.no_grad()
    def gather(self) -> None:
        """Fill the parameters from the shards of all ranks, unless they are there; every rank must call it."""
        for _, whole, shard in self._pairs:
            whole.requires_grad_(shard.requires_grad)
        if self._present:
            return
        for _, whole, shard in self._pairs:
            whole.untyped_storage().resize_(whole.numel() * whole.element_size())
            whole.copy_(shard.full_tensor())  # type: ignore[attr-defined]
        self._sums = [_sum(whole) for _, whole, _ in self._pairs]
        self._present = True

    def free(self) -> None:
        """Free the memory of the parameters; the next `gather` takes the shards as they are then."""
        if self._present:
            for _, whole, _ in self._pairs:
                whole.grad = None
                whole.untyped_storage().resize_(0)
        self._present = False

    def moved(self) -> str:
        """Name of a gathered parameter that is not what the shards say, or holds a gradient; empty if none is.

        This rank's part is compared bit by bit, the others by their sum.
        """
        if not self._present:
            return ""
        for (name, whole, shard), total in zip(self._pairs, self._sums, strict=True):
            own = self.pieces(name, whole.detach())[self._rank]
            if whole.grad is not None or not torch.equal(own, local(shard)) or _sum(whole) != total:
                return name
        return ""

    def pieces(self, name: str, values: Tensor) -> list[Tensor]:
        """Views of `values`, of the shape of parameter `name`: the part of each rank, empty ones too."""
        dim = self._shards[name].placements[0].dim
        chunks = list(values.chunk(self._size, dim))
        return chunks + [values.narrow(dim, 0, 0)] * (self._size - len(chunks))

    def as_shard(self, name: str, values: Tensor) -> Tensor:
        """This rank's `values` as its part of a tensor that is sharded like parameter `name`."""
        from torch.distributed.tensor import DTensor

        like = self._shards[name]
        return DTensor.from_local(
            values, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
        )

    @property
    def _shards(self) -> dict[str, Any]:
        return dict(self.sharded.named_parameters())


_WAY = "Call fully_shard(model) on the whole model, without a mesh of your own, before the optimizer is made."


def _check_layout(model: nn.Module, size: int) -> None:
    """Raise `TrainingMisuse` for what a whole model cannot stand in for."""
    for module in model.modules():
        for name in _HOOKS:
            if any(_origin(hook).startswith("torch.distributed.tensor") for hook in getattr(module, name).values()):
                raise TrainingMisuse(f"sharding must be by fully_shard alone; got a parallel layer. {_WAY}")
        if _is_wrapped(module):
            policy = module._get_fsdp_state()._mp_policy  # type: ignore[operator]
            if policy.param_dtype is not None or policy.output_dtype is not None:
                raise TrainingMisuse(
                    "fully_shard must be without a mixed precision policy; got one. Use torch.autocast with bfloat16, "
                    "which keeps norms and sums in float32."
                )
    for name, value in model.named_parameters():
        if not is_shard(value):
            if value.requires_grad:
                raise TrainingMisuse(f"trainable parameter {name!r} must be sharded; got a whole one. {_WAY}")
            continue
        mesh, placements = value.device_mesh, value.placements  # type: ignore[attr-defined]
        if mesh.ndim != 1 or mesh.mesh.tolist() != list(range(size)) or not placements[0].is_shard():
            raise TrainingMisuse(
                f"parameter {name!r} must be sharded over one mesh of all {size} ranks; got {placements} on a mesh of "
                f"shape {tuple(mesh.shape)}. {_WAY}"
            )
        if value.device.type != mesh.device_type:
            raise TrainingMisuse(f"parameter {name!r} must stay on its device; got an offload_policy. {_WAY}")


def _without_wrappers(model: nn.Module) -> nn.Module:
    """A copy of the model as it was before `fully_shard`: whole parameters, shared buffers, no hooks of the wrapper."""
    memo: dict[int, Any] = {id(value): _empty(value) if is_shard(value) else value for value in model.parameters()}
    memo |= {id(value): value for value in model.buffers()}
    for module in model.modules():
        for name in _HOOKS:
            hooks = getattr(module, name)
            kept = type(hooks)((key, hook) for key, hook in hooks.items() if not _origin(hook).startswith(_WRAPPER))
            memo[id(hooks)] = kept
        memo |= {id(state): type(state)() for name, state in vars(module).items() if name.startswith(_STATE)}
    with _original_classes(model):
        return copy.deepcopy(model, memo)


def _empty(shard: Tensor) -> nn.Parameter:
    return nn.Parameter(torch.empty(shard.shape, dtype=shard.dtype, device=shard.device), shard.requires_grad)


@contextmanager
def _original_classes(model: nn.Module) -> Iterator[None]:
    """Context in which modules have the classes that they had before `fully_shard`, which cannot be copied."""
    wrapped = [(module, type(module)) for module in model.modules() if _is_wrapped(module)]
    try:
        for module, kind in wrapped:
            module.__class__ = kind.__mro__[2]
        yield
    finally:
        for module, kind in wrapped:
            module.__class__ = kind


def _origin(hook: Any) -> str:
    return getattr(getattr(hook, "func", hook), "__module__", None) or ""


def _is_wrapped(module: nn.Module) -> bool:
    return any(kind.__name__ == "FSDPModule" for kind in type(module).__mro__)


def _sum(value: Tensor) -> float:
    return float(value.detach().sum(dtype=torch.float64)) if value.numel() else 0.0
