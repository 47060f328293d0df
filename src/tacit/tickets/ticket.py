"""`Ticket`: masks, the weights to rewind to, and where both came from.

Scores of tickets, published and sound, and descriptions of saved tickets.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn.utils import parametrize

from tacit import check
from tacit import serialization as atomic
from tacit.errors import InvalidInput
from tacit.noise.discrete import Scores
from tacit.signing import Origin, origin_of, signature_of
from tacit.training.checkpoint import digest_of, read_safetensors

PROVENANCES = ("public", "private", "paper")
_KIND = "ticket"
_DESCRIBED = ("provenance", "note", "measured")
# Patterns of the names of weights, in modules at any depth; biases do not fit.
WEIGHTS = ("*.weight", "weight")


@dataclass(frozen=True)
class Ticket:
    """A sparse network at its start.

    Attributes:
        masks: parameter name -> 1 where a weight survives, 0 where it is pruned; of the weights that may be pruned.
        start: parameter name -> initial values of every parameter.
        provenance: "public" (no private data were touched), "private" (post-processing of a private release, paid for
            in a ledger) or "paper" (read off private data as the paper does, which protects nothing).
        note: how it was made.
        measured: accuracies by name, in [0, 1]: `accuracy` after training, `before` that of the network it came from.
        origin: of the file that it was loaded from, or that a ticket was which it is made of; None for one made here.
            What another wrote says nothing that a guarantee can rest on: runs with such a ticket are only claimed.

    Example:
        >>> from tacit.tickets import random_masks
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        >>> start = {name: value.detach().clone() for name, value in model.named_parameters()}
        >>> Ticket(random_masks(model, {"0.weight": 0.25}, torch.Generator()), start, "public").density
        0.25
    """

    masks: Mapping[str, Tensor]
    start: Mapping[str, Tensor]
    provenance: str
    note: str = ""
    measured: Mapping[str, float] = field(default_factory=dict)
    origin: Origin | None = None

    def __post_init__(self) -> None:
        check.choice("provenance", self.provenance, PROVENANCES)
        unknown = sorted(self.masks.keys() - self.start.keys())
        if unknown or not self.masks:
            raise check.fail("masks", "of parameters that have a start", ", ".join(unknown) or "no mask")
        for name, value in check.instance("measured", self.measured, Mapping, "a table of accuracies by name").items():
            check.probability(f"measured {name}", value)
        for name, mask in self.masks.items():
            if not mask.dim() or not mask.numel():
                raise check.fail(f"mask of {name}", "a tensor with at least one value", f"shape {tuple(mask.shape)}")
            if mask.shape != self.start[name].shape or not bool(((mask == 0) | (mask == 1)).all()):
                raise check.fail(f"mask of {name}", f"zeros and ones of shape {tuple(self.start[name].shape)}", mask)

    @property
    def density(self) -> float:
        """Surviving weights over all weights that may be pruned, in [0, 1]."""
        masks = self.masks.values()
        return sum(float(mask.sum()) for mask in masks) / sum(mask.numel() for mask in masks)

    @property
    def trusted(self) -> bool:
        """Whether it was made here, or loaded as this user's key signed it."""
        return self.origin is None or self.origin.trusted

    def apply(self, model: nn.Module) -> nn.Module:
        """`model` at the ticket's start with its masks in place: pruned weights are zero and get no gradient.

        The masks are parametrisations, so any optimizer and any private trainer can be used; `solid` removes them.

        Raises:
            InvalidInput: the model has other parameters than the ticket.
        """
        own = dict(model.named_parameters())
        if own.keys() != self.start.keys() or any(own[name].shape != value.shape for name, value in self.start.items()):
            raise check.fail("model", "of the ticket's architecture", type(model).__name__, "See `transfer`.")
        with torch.no_grad():
            for name, value in self.start.items():
                own[name].copy_(value)
        for name, mask in self.masks.items():
            path, _, leaf = name.rpartition(".")
            parametrize.register_parametrization(model.get_submodule(path), leaf, Mask(mask.to(own[name])))
        return model

    def save(self, path: str | Path) -> None:
        """Write one safetensors file, atomically; masks as bytes. This user's key signs what it made."""
        tensors = {f"mask.{name}": mask.to(torch.uint8) for name, mask in self.masks.items()}
        tensors |= {f"start.{name}": value.detach().cpu().contiguous() for name, value in self.start.items()}
        described = {"provenance": self.provenance, "note": self.note, "measured": json.dumps(dict(self.measured))}
        signature = signature_of(_KIND, _digest(described, tensors)) if self.trusted else None
        described |= {} if signature is None else {"signature": json.dumps(signature)}
        atomic.write_bytes(path, save(tensors, described))

    @classmethod
    def load(cls, path: str | Path) -> Ticket:
        """Read what `save` wrote; raises `InvalidInput` for an incomplete file, or one changed after it was signed."""
        described, tensors = read_safetensors("path", path, "ticket file")
        origin = _origin(described, tensors)
        if origin.refused:
            raise check.fail("path", "a ticket file as it was signed", str(path), "It was changed since: make it anew.")
        masks = {n.removeprefix("mask."): t.float() for n, t in tensors.items() if n.startswith("mask.")}
        start = {n.removeprefix("start."): t for n, t in tensors.items() if n.startswith("start.")}
        try:
            measured = json.loads(described.get("measured", "{}"))
        except ValueError as error:
            raise InvalidInput(f"measured must be JSON; got a damaged ticket file {str(path)!r}. {error}") from None
        return cls(masks, start, described.get("provenance", ""), described.get("note", ""), measured, origin)


def _digest(described: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    return digest_of(json.dumps({name: described.get(name, "") for name in _DESCRIBED}), tensors)


def _origin(described: Mapping[str, str], tensors: Mapping[str, Tensor]) -> Origin:
    """Where a file came from; a signature that is no JSON counts as changed."""
    try:
        signature = json.loads(described.get("signature", "null"))
    except ValueError:
        signature = {}
    return origin_of(_KIND, _digest(described, tensors), signature)


class Mask(nn.Module):
    """The parametrisation of a sparse weight by its surviving values alone: they are the parameter, the rest is zero.

    So gradients, noise and an optimizer's state are of the surviving coordinates only.

    Example:
        >>> mask = Mask(torch.tensor([[1.0, 0.0]]))
        >>> mask(mask.right_inverse(torch.tensor([[3.0, 4.0]])))
        tensor([[3., 0.]])
    """

    places: Tensor
    empty: Tensor

    def __init__(self, mask: Tensor):
        super().__init__()
        self._shape = mask.shape
        self.register_buffer("places", mask.flatten().nonzero().flatten())
        self.register_buffer("empty", torch.zeros(mask.numel(), dtype=mask.dtype, device=mask.device), persistent=False)

    def forward(self, values: Tensor) -> Tensor:
        """The weight, zero where it is pruned, from its surviving values."""
        return torch.index_copy(self.empty, 0, self.places, values).view(self._shape)

    def right_inverse(self, weight: Tensor) -> Tensor:
        """The surviving values of a weight."""
        return weight.detach().flatten()[self.places]


def prunable(model: nn.Module, patterns: Sequence[str] = WEIGHTS) -> list[str]:
    """Names of the parameters that may be pruned: two or more dimensions, and a name that fits one of `patterns`.

    Biases and the scales of norm layers are never pruned.

    Raises:
        InvalidInput: nothing is left.

    Example:
        >>> prunable(nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3)))
        ['0.weight']
    """
    named = [name for name, value in model.named_parameters() if value.dim() >= 2]
    found = [name for name in named if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
    if not found:
        raise check.fail("patterns", f"fitting one of {', '.join(named) or 'no weight at all'}", list(patterns))
    return found


def solid(model: nn.Module) -> nn.Module:
    """`model` with its masks multiplied into the weights: pruned weights are exact zeros, in place.

    Example:
        >>> sorted(name for name, _ in solid(nn.Linear(2, 3)).named_parameters())
        ['bias', 'weight']
    """
    for module in list(model.modules()):
        for leaf in list(getattr(module, "parametrizations", {})):
            parametrize.remove_parametrizations(module, leaf, leave_parametrized=True)
    return model


def transfer(ticket: Ticket, model: nn.Module) -> Ticket:
    """The ticket for another architecture: masks and start of every layer that both have, the rest of `model` dense.

    Layers match by name and shape; a new output layer, or an input layer of another width, starts as `model` has it
    and keeps all its weights.

    Raises:
        InvalidInput: no masked layer matches.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 3))
        >>> start = {name: value.detach() for name, value in model.named_parameters()}
        >>> ticket = Ticket({"0.weight": torch.eye(3, 2)}, start, "public", "eye")
        >>> transfer(ticket, nn.Sequential(nn.Linear(2, 3))).note
        'eye; transferred'
    """
    own = {name: value.detach().clone() for name, value in model.named_parameters()}
    shared = [name for name, value in own.items() if name in ticket.start and ticket.start[name].shape == value.shape]
    masks = {name: ticket.masks[name] for name in shared if name in ticket.masks}
    if not masks:
        raise check.fail("model", "one that shares a masked layer with the ticket", type(model).__name__)
    masks |= {name: torch.ones_like(own[name]) for name in ticket.masks.keys() & own.keys() - masks.keys()}
    start = own | {name: ticket.start[name] for name in shared}
    return Ticket(masks, start, ticket.provenance, f"{ticket.note}; transferred", ticket.measured, ticket.origin)


def paper_scores(accuracies: Sequence[float], densities: Sequence[float], *, nu: float = 50.0) -> Scores:
    """S_i = A_i (1 - nu C_i) with the published sensitivity |1 - nu| (Lemma 1 of the paper, which is wrong).

    The range of S is nu, not |1 - nu|, and a data-dependent set of tickets is not covered at all; and with this
    sensitivity the exponential mechanism is close to a uniform draw.

    Example:
        >>> paper_scores([0.9, 0.8], [0.5, 0.1]).sensitivity
        49.0
    """
    accuracy, density = np.asarray(accuracies, dtype=float), np.asarray(densities, dtype=float)
    return Scores(accuracy * (1 - check.positive("nu", nu) * density), abs(1 - nu))


def count_scores(correct: Sequence[int], densities: Sequence[float], *, penalty: float = 0.0, size: int = 1) -> Scores:
    """Sound scores u_k = (records classified right) - penalty * size * density_k, of sensitivity 1.

    Args:
        correct: counts on private records, for networks that are fixed or privately released.
        densities: of the tickets, in [0, 1].
        penalty: how many points of accuracy a ticket with all its weights loses to an empty one, >= 0.
        size: a declared public number of records, never the private one.

    Raises:
        InvalidInput: a count or a density is not finite, or penalty or size is out of range.

    Example:
        >>> count_scores([90, 80], [0.5, 0.1], penalty=0.1, size=100).values.tolist()
        [85.0, 79.0]
    """
    counts = np.asarray(correct, dtype=float)
    weight = check.real("penalty", penalty, low=0.0) * check.count("size", size)
    return Scores(counts - weight * np.asarray(densities, dtype=float), 1.0, monotone=True)
