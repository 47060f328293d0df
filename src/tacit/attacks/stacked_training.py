"""Training of many shadow models at a time, as one tensor program.

The weights of a group of models are stacked along a first axis, and `torch.func` makes one batched operation of each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tacit import check
from tacit.attacks.base import Examples, Model
from tacit.attacks.reference_attacks import Recipe, References
from tacit.noise import SecureStream, Stream
from tacit.serialization import write_bytes

if TYPE_CHECKING:
    from torch import Tensor, nn

GROUP = 16
"""Models of one saved file."""
_ROWS_PER_BATCH = 4096  # of predictions, so that activations stay small
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Stack:
    """Trained models of one network.

    Attributes:
        network: that turns inputs (n, ...) into logits (n, classes), with any weights.
        state: parameters and buffers by their names in `network`, (models, *shape) each.
        integers: whether `network` takes integers, such as numbers of words.

    Example:
        >>> import torch
        >>> network = torch.nn.Linear(3, 4)
        >>> stack = Stack(network, {"weight": torch.zeros(2, 4, 3), "bias": torch.zeros(2, 4)})
        >>> len(stack), stack.model(0)(np.zeros((1, 3)))
        (2, array([[0.25, 0.25, 0.25, 0.25]]))
    """

    network: nn.Module
    state: dict[str, Tensor] = field(repr=False)
    integers: bool = False

    def __len__(self) -> int:
        return len(next(iter(self.state.values())))

    def model(self, place: int) -> Model:
        """One of the models as a callable: inputs (n, ...) to class probabilities (n, classes)."""
        import torch

        own = {name: values[place] for name, values in self.state.items()}
        network = self.network.eval()

        def answer(inputs: np.ndarray) -> np.ndarray:
            values = torch.from_numpy(_numbers(inputs, integers=self.integers))
            if not self.integers:
                values = values.to(next(iter(own.values())).dtype)
            with torch.no_grad():
                logits = [torch.func.functional_call(network, own, (part,)) for part in values.split(_ROWS_PER_BATCH)]
            return torch.softmax(torch.cat(logits).double(), dim=1).numpy()

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
    network: Callable[[int], nn.Module] | None = None,
    seed: int = 0,
    group: int = GROUP,
    folder: str | Path | None = None,
    on_progress: Progress = lambda done, total: None,
    stream: Stream | None = None,
) -> Stack:
    """Train one model on each row of `included`, `group` of them at a time on the threads that torch may use.

    Apart from rounding, and from the noise of private models, the result does not depend on `group` or on threads. With
    a `folder`, each finished group is saved there, and a call with the same arguments continues from the saved groups.

    Networks of layers of torch and of this library are stacked, and give the weights of models trained one by one,
    apart from rounding. Those with statistics, dropout, recurrence, shared or frozen weights, or a class of their own
    are trained one by one, and one line of the log says why.

    Args:
        examples: inputs (n, ...), and integer labels in [0, classes), shape (n,).
        included: boolean (models, n), at least one record in each row.
        recipe: how each model is trained.
        classes: number of classes, >= 2.
        network: `network(seed)` makes a new network with the initial weights of that seed, logits (batch, classes); the
            fully connected one of `recipe.hidden` on flattened inputs by default.
        seed: of initial weights and batches, which do not depend on the group; not of noise.
        group: models of one saved file, >= 1.
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

    from tacit.attacks.group_training import GroupTraining

    included = np.asarray(included)
    labels = np.asarray(examples[1])
    if included.dtype != bool or included.ndim != 2 or included.shape[1] != len(labels) or not included.any(1).all():
        raise check.fail("included", "boolean (models, records) with a record in each row", included.shape)
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= check.count("classes", classes, minimum=2):
        raise check.fail("labels", f"integers in [0, {classes})", f"{labels.dtype} labels with others among them")
    group, sizes = check.count("group", group), included.sum(axis=1)
    fitted = replace(recipe, batch_size=min(recipe.batch_size, int(sizes.min())))
    integers = network is not None and np.asarray(examples[0]).dtype.kind in "iu"
    inputs, targets = map(torch.from_numpy, (_numbers(examples[0], integers=integers), labels.astype(np.int64)))
    source, steps = stream if stream is not None else SecureStream(), fitted.steps(float(sizes.mean()))
    training = GroupTraining(inputs, targets, fitted, steps, classes, network, source)
    done: list[dict[str, Tensor]] = []
    for start in range(0, len(included), group):
        rows = included[start : start + group]
        path = None if folder is None else Path(folder) / f"shadows-{start:05d}.safetensors"
        fingerprint = recipe.fingerprint(included, seed, start, len(rows), network=str(training.template))
        state = _load(path, fingerprint) if path is not None else None
        if state is None:
            state = training.train(rows, [np.random.default_rng([seed, start + place]) for place in range(len(rows))])
            if path is not None:
                _save(state, path, fingerprint)
        done.append(state)
        on_progress(start + len(rows), len(included))
    return Stack(training.template, {name: torch.cat([state[name] for state in done]) for name in done[0]}, integers)


def _numbers(values: np.ndarray, *, integers: bool) -> np.ndarray:
    return np.ascontiguousarray(values, dtype=np.int64 if integers else np.float32)


def _save(state: dict[str, Tensor], path: Path, fingerprint: str) -> None:
    from safetensors.torch import save

    tensors = {name: values.contiguous() for name, values in state.items()}
    write_bytes(path, save(tensors, metadata={"fingerprint": fingerprint}))


def _load(path: Path, fingerprint: str) -> dict[str, Tensor] | None:
    """The group saved at `path`; None when there is none. A file of another training is refused, not overwritten."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as stored:
            known = (stored.metadata() or {}).get("fingerprint")
            state = {name: stored.get_tensor(name) for name in list(stored.keys())}
    except SafetensorError as error:
        raise check.fail("folder", "free of damaged files", path.name, str(error)) from None
    if known != fingerprint:
        hint = "Choose an empty folder."
        raise check.fail("folder", "of the same recipe, records and seed", f"another training in {path.name}", hint)
    return state
