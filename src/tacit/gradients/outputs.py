"""What a model returns, as the engine sees it: one tensor with a row for each record, however the outputs are nested.

Real-valued tensors with a row for each record are private outputs: a loss may use any of them. Integers with a row for
each record go with them as values. A tensor of another first axis mixes records, and is not handed out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from tacit.errors import UnsupportedModel
from tacit.gradients.module_state import Leaf, Path, leaf_at, leaves, named, with_leaves

_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, Enum)


class SeveralOutputs(UnsupportedModel):
    """The model returned something else than one tensor, where one was expected."""


class Kind(Enum):
    """Treatment of one leaf of a model's outputs."""

    OUTPUT = "real-valued rows: a loss may use them"
    VALUES = "rows of integers: they go with the outputs"
    MIXED = "a value of the whole batch: every use is refused"
    PUBLIC = "the same whatever the batch"
    DROPPED = "an object: None in its place"


@dataclass(frozen=True)
class RowShape(Leaf):
    """Stands for a private output: what one row of it is.

    Attributes:
        shape: of one row.
        dtype: of the output.
    """

    shape: torch.Size
    dtype: torch.dtype


@dataclass(frozen=True)
class OutputForm:
    """Which leaves of a model's outputs are private outputs.

    Attributes:
        outputs: paths of the private outputs, in order.
        kinds: path -> kind of every leaf, and its value where it is public.
        single: whether the model returns one tensor.
    """

    outputs: tuple[Path, ...]
    kinds: tuple[tuple[Path, Kind, object], ...] = ()
    single: bool = False

    @classmethod
    def of(cls, outputs: Any, size: int) -> OutputForm:
        """The form of the outputs for `size` records, a number that is no other length among them.

        Raises:
            UnsupportedModel: none of them has a row for each record.
        """
        if isinstance(outputs, Tensor):
            check_rows(outputs, size)
            return SINGLE
        kinds = tuple((path, *_kind(leaf, size)) for path, leaf in leaves(outputs))
        found = tuple(path for path, kind, _ in kinds if kind is Kind.OUTPUT)
        if not found:
            name = type(outputs).__name__
            raise UnsupportedModel(
                f"the model must return a real-valued tensor with one row for each of {size} examples; got none in "
                f"{name}."
            )
        return cls(found, kinds)

    def pack(self, outputs: Any) -> Tensor:
        """All private outputs as one tensor, shape (batch, ...); no copy where there is one.

        Raises:
            UnsupportedModel: the outputs have another form.
        """
        if self.single:
            if not isinstance(outputs, Tensor) or not outputs.dim():
                raise SeveralOutputs(f"the model must return one tensor; got {type(outputs).__name__}.")
            return outputs
        try:
            found = [leaf_at(outputs, path) for path in self.outputs]
        except (LookupError, AttributeError, TypeError):
            found = []
        if not found or not all(isinstance(value, Tensor) and value.dim() for value in found):
            raise UnsupportedModel(
                f"the model must return outputs of the same form for every batch; got {type(outputs).__name__} with "
                "others than on the first."
            )
        if len(found) == 1:
            return found[0]
        return torch.cat([value.flatten(1) if value.dim() > 1 else value.unsqueeze(1) for value in found], 1)

    def structure(self, parts: list[Any]) -> Any:
        """The outputs of `parts` of one batch with a `RowShape` in place of every private output."""
        known = {path: (kind, value) for path, kind, value in self.kinds}

        def described(path: Path, leaf: Any) -> Any:
            kind, value = known.get(path, (Kind.MIXED, None))
            if kind is Kind.OUTPUT:
                return RowShape(leaf.shape[1:], leaf.dtype)
            if kind is Kind.VALUES:
                return torch.cat([leaf_at(part, path) for part in parts]).detach()
            if kind is Kind.DROPPED:
                return None
            same = kind is Kind.PUBLIC and type(leaf) is type(value) and leaf == value
            return leaf if same else MixedValue(path)

        return with_leaves(parts[0], described)

    def inner_product(self, outputs: Any, cotangents: Tensor) -> Tensor:
        """<outputs_i, cotangents_i>: the loss whose gradient with respect to the outputs is `cotangents`."""
        outputs = self.pack(outputs)
        return (outputs * cotangents).flatten(1).sum(1) if outputs.dim() > 1 else outputs * cotangents

    def projection(self, outputs: Any, places: Tensor) -> Tensor:
        """A loss with an uneven gradient in every output, for examining a model before its loss is known."""
        outputs = self.pack(outputs)
        check_rows(outputs, len(places))
        flat = outputs.reshape(len(outputs), -1)
        return flat @ (1.0 + torch.arange(flat.shape[1], dtype=flat.dtype, device=flat.device).sin())


SINGLE = OutputForm(((),), (((), Kind.OUTPUT, None),), single=True)
"""Form of a model that returns one tensor."""


@dataclass(frozen=True)
class MixedValue(Leaf):
    """Stands for an output that mixes the records of a batch, or that is no tensor and follows the batch.

    Attributes:
        path: where it was.
    """

    path: Path

    @property
    def name(self) -> str:
        """The path as it is written behind the outputs."""
        return named(self.path)


@dataclass(frozen=True)
class Part:
    """Takes one private output out of the packed ones: columns `start` to `stop`, in rows of `row`.

    Attributes:
        start: first column.
        stop: column behind the last.
        row: shape and type of one row.
    """

    start: int
    stop: int
    row: RowShape

    @property
    def __name__(self) -> str:
        return "output_part"

    def __call__(self, packed: Tensor) -> Tensor:
        """The output, shape (batch, *row)."""
        return packed[:, self.start : self.stop].reshape(len(packed), *self.row.shape).to(self.row.dtype)


def parts_of(structure: Any) -> Iterable[tuple[Path, Part]]:
    """Path and place of every private output of a structure, in the order in which they are packed."""
    start = 0
    for path, leaf in leaves(structure):
        if isinstance(leaf, RowShape):
            stop = start + leaf.shape.numel()
            yield path, Part(start, stop, leaf)
            start = stop


def check_rows(outputs: Tensor, size: int) -> None:
    """Raise `UnsupportedModel` unless there is one row for each of `size` records."""
    if not outputs.dim() or len(outputs) != size:
        shape = tuple(outputs.shape)
        raise UnsupportedModel(f"the model must return one row for each of {size} examples; got shape {shape}.")


def _kind(leaf: Any, size: int) -> tuple[Kind, object]:
    if isinstance(leaf, Tensor):
        if not leaf.dim() or len(leaf) != size:
            return Kind.MIXED, None
        return (Kind.OUTPUT if leaf.is_floating_point() else Kind.VALUES), None
    return (Kind.PUBLIC, leaf) if isinstance(leaf, _PLAIN) else (Kind.DROPPED, None)
