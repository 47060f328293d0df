"""Nested plain values and tensors as JSON plus named tensors, so that state can be saved without pickle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit import check
from tacit.errors import InvalidInput
from tacit.standing import Standing
from tacit.tradeoff import Answer


def packed(value: object, tensors: dict[str, Tensor], path: str) -> Any:
    """JSON form of `value`; its tensors and arrays go to `tensors` under names that begin with `path`.

    Plain values stand for themselves, every other for a table of one key, its kind. Raises `InvalidInput` for values
    that have no such form, functions and objects of other classes among them, naming where they are.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Answer):
        return {"answer": [float(value), value.standing.value, *value.interval]}
    if isinstance(value, float):
        return float(value)
    if isinstance(value, np.generic):
        return packed(value.item(), tensors, path)
    if isinstance(value, Tensor):
        return {"tensor": _kept(value.detach().cpu().contiguous().clone(), tensors, path)}
    if isinstance(value, np.ndarray):
        return {"array": _kept(torch.from_numpy(value.copy()), tensors, path)}
    if isinstance(value, list | tuple):
        items = [packed(item, tensors, f"{path}/{i}") for i, item in enumerate(value)]
        return {"tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, Mapping):
        items = [[packed(key, tensors, path), packed(item, tensors, f"{path}/{key}")] for key, item in value.items()]
        # torch.optim.lr_scheduler.MultiStepLR counts its milestones.
        return {"counter" if isinstance(value, Counter) else "dict": items}
    raise check.fail(f"state at {path}", "made of plain values and tensors", type(value).__name__)


def unpacked(form: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The value whose JSON form and tensors `packed` made."""
    if isinstance(form, list):
        return [unpacked(item, tensors) for item in form]
    if not isinstance(form, dict):
        return form
    ((kind, content),) = form.items()
    if kind == "answer":
        number, standing, lower, upper = content
        return Answer(number, Standing(standing), lower, upper)
    if kind == "tuple":
        return tuple(unpacked(item, tensors) for item in content)
    if kind in ("dict", "counter"):
        items = {unpacked(key, tensors): unpacked(item, tensors) for key, item in content}
        return Counter(items) if kind == "counter" else items
    if kind in ("tensor", "array"):
        return tensors[content].clone() if kind == "tensor" else tensors[content].numpy().copy()
    raise InvalidInput(f"checkpoint must hold values of known kinds; got {kind!r}. It is of another version.")


def _kept(tensor: Tensor, tensors: dict[str, Tensor], path: str) -> str:
    name = path if path not in tensors else f"{path}#{len(tensors)}"
    tensors[name] = tensor
    return name
