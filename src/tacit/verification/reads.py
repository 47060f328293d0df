"""Numbers that leave the tensors of a batch, and tensors that no observed operation made.

Where Python reads a number, which reads of libraries are answered, and what is a number of the source.
"""

import gc
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress
from pathlib import Path
from types import CellType, FrameType
from typing import Any
from weakref import ref

import torch
from torch import Tensor

_OWN = str(Path(__file__).parents[1])
_TORCH = str(Path(torch.__file__).parent)
# As it is here: in a loop `torch.arange` stands on a trace.
_ARANGE = torch.arange
# Methods that hand the values of a tensor, or its memory, to Python without an operation.
HANDED_OUT = frozenset(
    (
        *("tolist", "numpy", "__array__", "__dlpack__", "data_ptr", "untyped_storage", "storage", "__reduce_ex__"),
        *("__repr__", "__format__", "__cuda_array_interface__"),
    )
)
# Operations whose result has a size that follows the values, or that answers Python.
SIZED = frozenset(("nonzero", "unique", "_unique", "_unique2", "unique_dim", "unique_consecutive", "masked_select"))
ANSWERS = frozenset(("_local_scalar_dense", "equal", "is_nonzero", "item"))
# Only refuse values; where a handler goes on, the exception is the read.
CHECKS = frozenset(("_linalg_check_errors", "_assert_async", "_assert_scalar", "_assert_tensor_metadata"))


@dataclass(frozen=True)
class Answer:
    """A read of a library that chooses between two equal computations, or only refuses values.

    Attributes:
        package: path of the file, as "transformers/masking_utils.py", or its folder.
        function: the function that reads; empty for all.
        value: what leads to the general computation; None for the value itself.
    """

    package: str
    function: str = ""
    value: Any = None


ANSWERED = (
    # Whether a mask masks anything: without it the kernel needs no mask and computes the same.
    Answer("transformers/masking_utils.py", "", False),
    Answer("transformers/modeling_attn_mask_utils.py", "", False),
    # A distribution or loss that refuses values out of its range.
    Answer("torch/distributions/"),
    # A loss that refuses negative variances.
    Answer("torch/nn/functional.py", "gaussian_nll_loss"),
    # The range check of classes, where their number is given.
    Answer("torch/nn/functional.py", "one_hot"),
    # The number of rows of a first step, of which every record has one.
    Answer("torch/nn/modules/rnn.py", "forward"),
)


def _outside(frame: FrameType | None, folder: str) -> FrameType | None:
    """The innermost frame whose code lies outside of `folder`, from `frame` outwards; None where all are inside."""
    while frame is not None and frame.f_code.co_filename.startswith(folder):
        frame = frame.f_back
    return frame


def user_line(frame: FrameType | None = None) -> str:
    """File and number of the innermost line outside of torch and tacit; of the outermost where all are inside."""
    frame = frame if frame is not None else sys._getframe(1)
    while frame.f_back is not None and _inside(frame.f_code.co_filename):
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def answer_to(frame: FrameType | None = None) -> Answer | None:
    """The answer to a read by the library code that runs in `frame`, the caller's by default, if it is known."""
    frame = _outside(sys._getframe(1) if frame is None else frame, _OWN)
    for _ in range(8):
        if frame is None:
            return None
        answer, inside = _answer_of(frame.f_code.co_filename, frame.f_code.co_name)
        if answer is not None or not inside:
            return answer
        frame = frame.f_back
    return None


@lru_cache(4096)
def _answer_of(file: str, function: str) -> tuple[Answer | None, bool]:
    """The answer to a read by `function` of `file`, and whether that lies in a library."""
    answers = (each for each in ANSWERED if each.package in file and each.function in ("", function))
    return next(answers, None), _inside(file)


def is_own(frame: FrameType | None) -> bool:
    """Whether this library looks at a tensor itself, in `frame` or through torch."""
    frame = _outside(frame, _TORCH)
    return frame is not None and frame.f_code.co_filename.startswith(_OWN)


def runs_user_code(frame: FrameType | None) -> bool:
    """Whether a hook or a gradient of the user's runs, in a backward pass that this library started."""
    frame = _outside(_outside(frame, _OWN), _TORCH)
    return frame is not None and not frame.f_code.co_filename.startswith(_OWN)


@lru_cache(maxsize=4096)
def _inside(filename: str) -> bool:
    return filename.startswith((_OWN, _TORCH))


def is_literal(value: Tensor, own: set[int]) -> bool:
    """Whether `value`, first met as an argument, is a number that torch wrapped, or counts, or is all zero or one.

    A number such as the 0 of `x[0] = 0`, or a constant of TorchScript, becomes a tensor that nothing in Python holds.

    Args:
        value: the tensor.
        own: identities of the containers by which the call under way holds it.
    """
    return bool(plain_form(value)) or (value.dim() == 0 and not _is_held(value, own))


def plain_form(value: Tensor) -> str:
    """What a tensor of no record may hold, whoever made it: nothing, all zeros or ones, or counts; empty for others.

    Example:
        >>> plain_form(torch.ones(2)), plain_form(torch.arange(3)), plain_form(torch.tensor([2.0, 1.0]))
        ('constant', 'counts', '')
    """
    if not value.numel():
        return "empty"
    value = value.detach()
    first = value.flatten()[0]
    if bool((first == 0) | (first == 1)) and bool((value == first).all()):
        return "constant"
    counts = value.dim() > 0 and not value.is_complex()
    return "counts" if counts and bool((value == _ARANGE(value.shape[-1], device=value.device)).all()) else ""


def _is_held(value: Tensor, own: set[int]) -> bool:
    """Whether a variable, a closure or a container holds `value`."""
    frame = sys._getframe(2)
    while frame is not None:
        if not is_own(frame) and id(value) in set(map(id, frame.f_locals.values())):
            return True
        frame = frame.f_back
    # Without a generator expression: it would hold the value in a cell of its own.
    return any(
        isinstance(each, CellType | dict | list | tuple | set) and id(each) not in own for each in _holders(value)
    )


def _holders(value: Tensor) -> list[object]:
    return gc.get_referrers(value)


def tensors_alive() -> Callable[[Tensor], bool]:
    """Whether a tensor is one that Python holds now; another one may get the identity of one that is gone."""
    objects = gc.get_objects()  # Of a large process a million, so that nothing is called for each of them.
    kinds = {kind for kind in set(map(type, objects)) if issubclass(kind, Tensor)}
    held = {id(each): ref(each) for each in compress(objects, map(kinds.__contains__, map(type, objects)))}
    return lambda value: id(value) in held and held[id(value)]() is value
