"""Training of many shadow models at a time, as one tensor program.

The weights of a group of models are stacked along a first axis, so that one batched matrix product serves all of
them; gradients are written out by hand, which for private models gives every example's norm from two vectors a layer
(sum over layers of |delta|^2 (|activation|^2 + 1)) without forming a single per-example gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tacit import check
from tacit.attacks.base import Examples, Model
from tacit.attacks.batches import batches
from tacit.attacks.reference_models import Recipe, References
from tacit.noise import SecureStream, Stream
from tacit.serialization import write_bytes

if TYPE_CHECKING:
    from torch import Tensor

GROUP = 16
"""Models trained together: within a few percent of the fastest on wide and on narrow layers (benchmarks/audit.py)."""

_ROWS_PER_BATCH = 4096  # of predictions, so that activations stay small
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Stack:
    """Trained models, layer by layer.

    Attributes:
        weights: (models, inputs, outputs) of each layer.
        biases: (models, 1, outputs) of each layer.

    Example:
        >>> import torch
        >>> stack = Stack([torch.zeros(2, 3, 4)], [torch.zeros(2, 1, 4)])
        >>> len(stack), stack.model(0)(np.zeros((1, 3)))
        (2, array([[0.25, 0.25, 0.25, 0.25]]))
    """

    weights: list[Tensor]
    biases: list[Tensor]

    def __len__(self) -> int:
        return len(self.weights[0])

    def model(self, place: int) -> Model:
        """One of the models as a callable: inputs (n, ...) to class probabilities (n, classes)."""
        import torch

        layers = [(weight[place], bias[place]) for weight, bias in zip(self.weights, self.biases, strict=True)]

        def answer(inputs: np.ndarray) -> np.ndarray:
            flat = np.ascontiguousarray(inputs, dtype=np.float32).reshape(len(inputs), -1)
            parts = []
            for start in range(0, len(flat), _ROWS_PER_BATCH):
                h = torch.from_numpy(flat[start : start + _ROWS_PER_BATCH])
                for weight, bias in layers[:-1]:
                    h = torch.addmm(bias, h, weight).relu_()
                parts.append(torch.softmax(torch.addmm(layers[-1][1], h, layers[-1][0]).double(), dim=1))
            return torch.cat(parts).numpy()

        return answer

    def references(self, included: np.ndarray) -> References:
        """The models and the records that each was trained on, for attacks."""
        return References([self.model(place) for place in range(len(self))], included)


def train_stacked(
    examples: Examples,
    included: np.ndarray,
    *,
    recipe: Recipe,
    classes: int,
    seed: int = 0,
    group: int = GROUP,
    folder: str | Path | None = None,
    on_progress: Progress = lambda done, total: None,
    stream: Stream | None = None,
) -> Stack:
    """Train one model on each row of `included`, `group` of them at a time.

    Apart from rounding, and from the noise of private models, the result does not depend on `group`. With a `folder`,
    each finished group is saved there, and a call with the same arguments continues from the saved groups.

    Args:
        examples: inputs (n, ...), flattened, and integer labels in [0, classes), shape (n,).
        included: boolean (models, n), at least one record in each row.
        recipe: how each model is trained.
        classes: number of classes, >= 2.
        seed: of initial weights and batches, which do not depend on the group; not of noise.
        group: models trained together, >= 1.
        folder: where finished groups are saved.
        on_progress: called with (models done, models).
        stream: source of the noise of private models; a new `SecureStream` by default.

    Raises:
        InvalidInput: an argument breaks its rule, or `folder` holds groups of another training.

    Example:
        >>> examples = np.random.default_rng(0).normal(size=(20, 3)), np.tile([0, 1], 10)
        >>> included = np.random.default_rng(1).random((2, 20)) < 0.5
        >>> len(train_stacked(examples, included, recipe=Recipe(hidden=(4,), epochs=1), classes=2))
        2
    """
    import torch

    included = np.asarray(included)
    inputs = np.ascontiguousarray(examples[0], dtype=np.float32).reshape(len(examples[0]), -1)
    labels = np.asarray(examples[1])
    if included.dtype != bool or included.ndim != 2 or included.shape[1] != len(labels) or not included.any(1).all():
        raise check.fail("included", "boolean (models, records) with a record in each row", included.shape)
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= check.count("classes", classes, minimum=2):
        raise check.fail("labels", f"integers in [0, {classes})", f"{labels.dtype} labels with others among them")
    group, data = check.count("group", group), (torch.from_numpy(inputs), torch.from_numpy(labels.astype(np.int64)))
    sizes = included.sum(axis=1)
    fitted = recipe.fitted(int(sizes.min()))
    settings = (fitted, [inputs.shape[1], *recipe.hidden, classes], fitted.steps(float(sizes.mean())))
    source = stream if stream is not None else SecureStream()
    done: list[Stack] = []
    # Penalties and idle units drive weights into denormals, which are many times slower.
    torch.set_flush_denormal(True)
    try:
        for start in range(0, len(included), group):
            rows = included[start : start + group]
            path = None if folder is None else Path(folder) / f"shadows-{start:05d}.safetensors"
            fingerprint = recipe.fingerprint(included, seed, start, len(rows))
            stack = _load(path, fingerprint) if path is not None else None
            if stack is None:
                draws = [np.random.default_rng([seed, start + place]) for place in range(len(rows))]
                stack = _train_group(data, rows, draws, settings, source)
                if path is not None:
                    _save(stack, path, fingerprint)
            done.append(stack)
            on_progress(start + len(rows), len(included))
    finally:
        torch.set_flush_denormal(False)
    return Stack(
        [torch.cat(parts) for parts in zip(*(stack.weights for stack in done), strict=True)],
        [torch.cat(parts) for parts in zip(*(stack.biases for stack in done), strict=True)],
    )


def _train_group(
    data: tuple[Tensor, Tensor],
    included: np.ndarray,
    draws: list[np.random.Generator],
    settings: tuple[Recipe, list[int], int],
    stream: Stream,
) -> Stack:
    import torch

    from tacit.attacks.stacked_group import Group

    recipe, widths, steps = settings
    trained = Group(widths, [_glorot(widths, draw) for draw in draws], recipe)
    rows = [np.flatnonzero(row) for row in included]
    inputs = data[0].to(trained.dtype)
    with torch.no_grad():
        for index, kept in batches(rows, draws, recipe, steps=steps):
            trained.step(inputs[index], data[1][index], kept, stream)
    return Stack([w.clone() for w in trained.weights], [b.clone() for b in trained.biases])


def _glorot(widths: list[int], draw: np.random.Generator) -> list[np.ndarray]:
    """Glorot-uniform weight matrices, (inputs, outputs) for each layer."""
    pairs = list(pairwise(widths))
    return [draw.uniform(-1, 1, pair).astype(np.float32) * np.float32(np.sqrt(6 / sum(pair))) for pair in pairs]


def _save(stack: Stack, path: Path, fingerprint: str) -> None:
    from safetensors.torch import save

    layers = enumerate(zip(stack.weights, stack.biases, strict=True))
    tensors = {f"{kind}.{i}": value for i, pair in layers for kind, value in zip(("weight", "bias"), pair, strict=True)}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, save(tensors, metadata={"fingerprint": fingerprint}))


def _load(path: Path, fingerprint: str) -> Stack | None:
    """The group saved at `path`; None when there is none. A file of another training is refused, not overwritten."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as stored:
            known = (stored.metadata() or {}).get("fingerprint")
            layers = range(len(list(stored.keys())) // 2)
            stack = Stack(
                [stored.get_tensor(f"weight.{i}") for i in layers], [stored.get_tensor(f"bias.{i}") for i in layers]
            )
    except SafetensorError as error:
        raise check.fail("folder", "free of damaged files", path.name, str(error)) from None
    if known != fingerprint:
        hint = "Choose an empty folder."
        raise check.fail("folder", "of the same recipe, records and seed", f"another training in {path.name}", hint)
    return stack
