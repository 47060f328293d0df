"""`cotangents`: the gradient of each example's loss by its outputs, and what a loss of fewer examples refutes.

A Python number that follows the size of the batch shows in no type. So a loss runs again on fewer rows of the outputs,
with every other tensor of the batch's length restricted alike: where a gradient changes, it followed the others or
their number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, count
from typing import Any

import torch
from torch import Tensor

from tacit.errors import InvalidInput
from tacit.gradients.inputs import check_losses
from tacit.gradients.neighbours import is_near
from tacit.training.private_outputs import PrivateOutputs
from tacit.training.trace import EARLIER, Node, Ref, item_of, network_of, untraced
from tacit.verification.recordwise import leaves_of


def cotangents(outputs: PrivateOutputs, reduction: str) -> Tensor:
    """Gradient  d loss_i / d outputs_i  for every example i, of the shape of the outputs.

    A vector of one loss per example needs no change. A single number, under `reduction` "mean" or "sum", is converted:
    a mean by the number of examples in this batch.

    Args:
        outputs: what the loop called `backward` on, a number or shape (batch,).
        reduction: "none", "mean" or "sum".

    Raises:
        InvalidInput: a loss of another form, or with terms that do not come from the outputs.
    """
    loss, root = untraced(outputs), outputs.root
    if reduction == "none" or loss.dim():
        check_losses(loss, len(root))
    if not len(root) or not loss.requires_grad:
        return torch.zeros_like(root)
    _check_leaves(loss, root)
    (found,) = torch.autograd.grad(loss.sum(), root, retain_graph=True, allow_unused=True)
    if found is None:
        return torch.zeros_like(root)
    return found * len(root) if reduction == "mean" and not loss.dim() else found


def check_alone(outputs: PrivateOutputs, found: Tensor, reduction: str, turn: int, sizes: SizeTracker) -> None:
    """Require the gradient of one example's loss to be that of the loss computed from this example alone.

    So a number is the mean or the sum of single losses, and no number that the loop gives follows the size of the
    batch. Every other tensor of the batch's length is restricted alike. Outputs of another pass of the private model
    over this batch are treated like the outputs.

    Args:
        outputs: what the loop called `backward` on, a number or shape (batch,).
        found: its cotangents.
        reduction: "none", "mean" or "sum".
        turn: number of the batch, which selects the example.
        sizes: which sizes in the loop's losses follow the batch size, learned from batch to batch.

    Raises:
        InvalidInput: the gradient is another.
    """
    if len(found) < 2 or not outputs.requires_grad:
        return
    kind, loss = "none" if outputs.dim() else reduction, LossOfRows(outputs)
    index = torch.tensor([turn % loss.size], device=found.device)
    if not any(_agrees(found, loss, kind, index, selection) for selection in sizes.selections(loss)):
        raise InvalidInput(_SENTENCES[kind])


def _agrees(found: Tensor, loss: LossOfRows, reduction: str, index: Tensor, selection: RowSelection) -> bool:
    """Whether the examples `index` have the same gradients when the loss sees nothing but them."""

    def gradients(index: Tensor, *, precise: bool) -> Tensor:
        value, rows = loss.again(index, selection, precise=precise)
        if value.dim() and len(value) != len(index):
            raise ValueError("losses of other rows")
        (gradient,) = torch.autograd.grad(value.sum(), rows, allow_unused=True)
        gradient = torch.zeros_like(rows) if gradient is None else gradient
        return gradient * len(index) if reduction == "mean" else gradient

    try:
        if is_near(gradients(index, precise=False), found[index], _TOLERANCE):
            return True
        whole = torch.arange(loss.size, device=index.device)
        return is_near(gradients(index, precise=True), gradients(whole, precise=True)[index], _TOLERANCE)
    except (RuntimeError, ValueError, IndexError, TypeError):
        # This selection of rows does not fit the loss.
        return False


_TOLERANCE = 1e-4  # about ten roundings of a gradient from another number of records
_SENTENCES = {
    "none": "losses must each depend on their own example only; got losses that mix the batch or follow its size. "
    'Use reduction="none" and no statistics of the batch.',
    "mean": "loss must be the mean over the batch of one loss per example, each of its own example only; got another. "
    'Use reduction="none" and call backward on the vector of losses, or loss_reduction="sum" for a sum. Class weights '
    "and ignored targets make a mean divide by a private number.",
    "sum": "loss must be the sum over the batch of one loss per example, each of its own example only; got another. "
    'Use reduction="none" and call backward on the vector of losses, or loss_reduction="mean" for a mean.',
}


def _check_leaves(loss: Tensor, root: Tensor) -> None:
    """Raise if a gradient reaches a parameter other than through the outputs: it would not be clipped."""
    for leaf in leaves_of([loss]):
        if leaf is not root:
            raise InvalidInput(
                "losses must depend on trainable values only through the outputs of one call of the private model; got "
                f"{network_of(leaf)}. Make one module of the networks that are trained, freeze the other one, or use "
                "the optimizer's weight_decay for a penalty."
            )


@dataclass(frozen=True)
class RowSelection:
    """Restriction of values that are no outputs to the rows of a smaller batch.

    Attributes:
        following: sizes, by entry and order among its sizes, that are multiples of the batch size: numbers scale with
            it, tensors are restricted example by example.
        counting: those of index tensors 0, 1, 2, ..., which start at 0 again.
    """

    following: frozenset[tuple[int, int]]
    counting: frozenset[tuple[int, int]]

    def __call__(self, value: Any, place: tuple[int, int], index: Tensor, batch: int) -> Any:
        """The value restricted to the rows `index` of a batch.

        Args:
            value: of the whole batch.
            place: its entry and its order among the sizes of that entry.
            index: the rows, shape (rows,).
            batch: size of the whole batch.
        """
        if place not in self.following:
            return value
        if not isinstance(value, Tensor):
            return value // batch * len(index)
        if place in self.counting:
            return value[: len(value) // batch * len(index)]
        return value[index] if len(value) == batch else value.unflatten(0, (batch, -1))[index].flatten(0, 1)


class SizeTracker:
    """Which sizes in a loop's losses are multiples of the batch size, learned from batch to batch.

    A size may be a multiple of one batch size by chance; the same multiple of two different sizes is taken as one.
    """

    def __init__(self) -> None:
        self._fixed: set[tuple[object, ...]] = set()
        self._following: set[tuple[object, ...]] = set()
        self._once: dict[tuple[object, ...], tuple[int, int]] = {}
        self._not_counting: set[tuple[object, ...]] = set()

    def selections(self, loss: LossOfRows) -> list[RowSelection]:
        """Every row selection of `loss` that is still possible, the likeliest first."""
        sure, unsure, counting = set(), [], set()
        for place, (operation, sized) in enumerate(loss.sized):
            for order, value in enumerate(sized):
                key = (operation, place, order)
                self._learn(key, value, loss.size)
                if key in self._following:
                    sure.add((place, order))
                elif key not in self._fixed:
                    unsure.append((place, order))
                if isinstance(value, Tensor) and key not in self._not_counting:
                    counting.add((place, order))
        ways = [frozenset(sure | set(chosen)) for chosen in _subsets(unsure)]
        kinds = [frozenset(chosen) for chosen in reversed(_subsets(sorted(counting)))]
        return [RowSelection(way, kind) for kind in kinds for way in ways]

    def _learn(self, key: tuple[object, ...], sized: Tensor | int, batch: int) -> None:
        if isinstance(sized, Tensor) and key not in self._not_counting and not _counts(sized):
            self._not_counting.add(key)
        if key in self._fixed or key in self._following:
            return
        value = len(sized) if isinstance(sized, Tensor) else sized
        if value < batch or value % batch:
            self._fixed.add(key)
            return
        before, size = self._once.setdefault(key, (value, batch))
        if size != batch:
            (self._following if before * batch == value * size else self._fixed).add(key)


def _subsets(values: list[tuple[int, int]]) -> list[tuple[tuple[int, int], ...]]:
    """All subsets, larger first; of more than `_MANY` values only those that omit none, one, all but one, or all."""
    lengths = range(len(values), -1, -1)
    if len(values) > _MANY:
        lengths = (len(values), len(values) - 1, 1, 0)
    return [chosen for length in lengths for chosen in combinations(values, length)]


# 2**5 = 32 subsets is the most that one check tries.
_MANY = 5


class LossOfRows:
    """The operations from the rows and outputs of one pass to a loss, which run again on fewer rows.

    Args:
        loss: of the outputs.

    Attributes:
        size: number of records.
        device: of the outputs.
        sized: of every operation on rows, what ran, and the integers and tensors with a length that it was given,
            values of rows left out.
    """

    def __init__(self, loss: PrivateOutputs):
        trace, self._wanted = loss.trace, loss.ref
        self._trace, self.size = trace, trace.size
        self._root = next(place for place, outputs in trace.outputs.items() if outputs is loss.root)
        self.device = loss.root.device
        self._whole: dict[int, Any] = {}
        self._steps: list[tuple[int, Node]] = []
        self._run_whole()
        self.sized = [(node.function, [*filter(_has_size, self._others(node))]) for _, node in self._steps]

    def _run_whole(self) -> None:
        """All values at their whole size; the steps are those that follow rows, draws from them excepted."""
        trace = self._trace
        rows = {place for place, root in trace.roots.items() if root.dim() and len(root) == self.size}
        following, of_root = set(trace.outputs) | rows, {self._root}
        with trace.generators_kept(), torch.no_grad():
            for place in trace.behind(self._wanted):
                node = trace.nodes[place]
                if node is None:
                    root = trace.roots[place]
                    self._whole[place] = root.clone() if trace.written else root
                    continue
                self._whole[place] = node.again(
                    lambda value: item_of(self._whole, value) if isinstance(value, Ref) else value
                )
                if node.generators is not None and getattr(node.function, "__name__", "").endswith("_like"):
                    continue  # A draw of the form of rows follows none of their values.
                sources = node.sources
                if sources & of_root:
                    of_root.add(place)
                # A draw cannot be repeated for one example; what it gave is a value like the targets.
                if sources & of_root or (sources & following and node.generators is None):
                    following.add(place)
                    self._steps.append((place, node))
        self._following = following

    def _others(self, node: Node) -> Iterator[Any]:
        """What a node was given besides values of rows."""
        for value in node.leaves:
            if not isinstance(value, Ref):
                yield value
            elif value.node not in self._following:
                yield item_of(self._whole, value)

    def again(self, index: Tensor, selection: RowSelection, *, precise: bool = False) -> tuple[Tensor, Tensor]:
        """The loss of the rows `index` of the outputs alone; and those rows, a leaf.

        Args:
            index: the rows, shape (rows,).
            selection: which other values are restricted to these rows.
            precise: compute in float64. Where terms cancel, such as p - 1 for a confident softmax, single precision
                leaves a gradient of few digits, which differ with the number of rows.

        Raises:
            ValueError: a value of an earlier batch is in it.
        """

        def widened(value: Any) -> Any:
            return value.double() if precise and isinstance(value, Tensor) and value.is_floating_point() else value

        rows = widened(self._trace.outputs[self._root].detach()[index]).requires_grad_()
        roots = self._following & self._trace.roots.keys() & self._whole.keys()
        values: dict[int, Any] = {place: widened(self._whole[place][index]) for place in roots}
        values[self._root] = rows.view_as(rows)
        with self._trace.generators_kept():
            for place, (made, node) in enumerate(self._steps):
                orders = count()

                def now(value: Any, place: int = place, orders: Iterator[int] = orders) -> Any:
                    if isinstance(value, Ref):
                        if value.node in self._following:
                            return item_of(values, value)
                        value = item_of(self._whole, value)
                    value = selection(value, (place, next(orders)), index, self.size) if _has_size(value) else value
                    return widened(value)

                values[made] = node.again(now)
                if values[made] is EARLIER:
                    raise ValueError("a value of another batch")
        return item_of(values, self._wanted), rows


def _has_size(value: Any) -> bool:
    return bool(value.dim()) if isinstance(value, Tensor) else isinstance(value, int) and not isinstance(value, bool)


def _counts(value: Tensor) -> bool:
    return value.dim() == 1 and torch.equal(value, torch.arange(len(value), device=value.device))
