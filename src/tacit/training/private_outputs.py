"""The outputs of a private model: what is computed from them ends in `backward()`, which clips.

From a loss to the gradient of each example's own loss with respect to its own outputs, or an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tacit.errors import InvalidInput
from tacit.gradients.inputs import check_losses
from tacit.training.autograd import Cut, Made, Sizes, Tape, flat, mapped, writes

Backward = Callable[[Tensor, Made, Tape], None]


class PrivateOutputs(Tensor):
    """Outputs of a private model, or what became of them; every operation on them is recorded on their tape."""

    tape: Tape
    made: Made
    backpropagate: Backward

    @classmethod
    def of(cls, root: Tensor, batch: object, backpropagate: Backward) -> PrivateOutputs:
        """`root`, a leaf that requires a gradient or outputs without one, for the examples of `batch`.

        `backpropagate` is given a loss and where it came from.
        """
        return root.view_as(root).as_subclass(cls)._marked(Tape(root, batch), Made(0), backpropagate)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        origin = _origin([value for value in flat((args, named)) if isinstance(value, PrivateOutputs)])
        if origin is None:
            return super().__torch_function__(func, types, args, named)
        tape = origin.tape
        before = None if tape.root.requires_grad else _generator(tape.root.device)
        result = super().__torch_function__(func, types, args, named)
        if before is not None and not torch.equal(before, _generator(tape.root.device)):
            # A draw cannot be made again for one example; beside the outputs it is a value like the targets.
            return mapped(result, plain)
        made = [value for value in flat(result) if isinstance(value, PrivateOutputs)]
        if made or writes(func):
            place = tape.append(func, *mapped((args, named), lambda value: _source(value, tape)))
            several = isinstance(result, list | tuple)
            for item, value in enumerate(made):
                value._marked(tape, Made(place, item if several else None), origin.backpropagate)
        return result

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Hand the loss to the private model; of the arguments of a tensor's `backward` none has a meaning here."""
        if gradient is not None or create_graph or inputs is not None:
            raise TypeError("backward of a private loss takes no gradient, create_graph or inputs.")
        self.backpropagate(self.as_subclass(Tensor), self.made, self.tape)

    def _marked(self, tape: Tape, made: Made, backpropagate: Backward) -> PrivateOutputs:
        self.tape, self.made, self.backpropagate = tape, made, backpropagate
        return self


def _origin(values: list[PrivateOutputs]) -> PrivateOutputs | None:
    """The value whose tape goes on: one that a gradient flows from, where there is one."""
    marked = [value for value in values if hasattr(value, "tape")]
    return next((value for value in marked if value.tape.root.requires_grad), marked[0] if marked else None)


def _source(value: Any, tape: Tape) -> Any:
    if not isinstance(value, PrivateOutputs) or not hasattr(value, "tape"):
        return plain(value)
    return value.made if value.tape is tape else tape.place_of(value.made, value.tape)


def plain(value: Any) -> Any:
    """A value without its tape, and without a gradient."""
    return value.as_subclass(Tensor).detach() if isinstance(value, PrivateOutputs) else value


def _generator(device: torch.device) -> Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


REDUCTIONS = ("none", "mean", "sum")


def cotangents(loss: Tensor, made: Made, tape: Tape, reduction: str, turn: int, sizes: Sizes) -> Tensor:
    """d loss_i / d outputs_i for every example i, shape of the outputs.

    A vector of one loss per example is taken as it is. A single number, under `reduction` "mean" or "sum", is undone:
    a mean by the number of examples in this batch.

    Checked on every batch: that what the loss makes of the outputs is every example's own, and that a number is the
    mean or the sum of such losses. The loss is computed again from one example alone (its place given by `turn`) and at
    the first turn from several, with every other tensor of the batch's length cut alike, and the gradients must agree.
    `sizes` is the loop's memory of which sizes in its losses are the batch's. What another pass of the private model
    over this batch put out is followed like the outputs; what came of an earlier batch's outputs is refused. Assumed,
    as `engine.LOOP` says: that all other values (inputs, targets, weights) are each example's own or public.

    Raises `InvalidInput` for a loss of another form, or with terms that do not come from the outputs.
    """
    root, batch = tape.root, len(tape.root)
    if reduction == "none" or loss.dim():
        check_losses(loss, batch)
    if not batch:
        return torch.zeros_like(root)
    _check_leaves(loss, root)
    if not loss.requires_grad:
        return torch.zeros_like(root)
    scale = batch if reduction == "mean" and not loss.dim() else 1
    (found,) = torch.autograd.grad(loss.sum(), root, retain_graph=True, allow_unused=True)
    if found is None:
        return torch.zeros_like(root)
    found = found * scale if scale > 1 else found
    if batch > 1:
        if loss.dim() and turn == 0:
            _check_rows(loss, root, found)
        _check_alone(found, made, tape, "none" if loss.dim() else reduction, turn, sizes.cuts(tape))
    return found


def _check_rows(losses: Tensor, root: Tensor, found: Tensor) -> None:
    """Entry i of a vector of losses depends on row i of the outputs: another weighted sum has the weighted gradient."""
    weights = 1.0 + torch.arange(1, len(losses) + 1, dtype=losses.dtype, device=losses.device).mul(0.6180339887).frac()
    (weighted,) = torch.autograd.grad((losses * weights).sum(), root, retain_graph=True)
    if not _close(weighted, found * weights.to(found.dtype).view(-1, *[1] * (found.dim() - 1))):
        raise InvalidInput(_SENTENCES["none"])


def _check_alone(found: Tensor, made: Made, tape: Tape, reduction: str, turn: int, cuts: list[Cut]) -> None:
    batch = len(tape.root)
    chosen = [torch.tensor([turn % batch], device=found.device)]
    if turn == 0:
        chosen.append(torch.arange(batch // 2, batch, device=found.device))
        chosen.append(torch.tensor([batch // 2], device=found.device))
    for index in chosen:
        if not any(_agrees(found, made, tape, reduction, index, cut) for cut in cuts):
            raise InvalidInput(_SENTENCES[reduction])


def _agrees(found: Tensor, made: Made, tape: Tape, reduction: str, index: Tensor, cut: Cut) -> bool:
    """Whether the examples `index` have the same gradients when the loss sees nothing but them."""
    try:
        loss, rows = tape.again(made, index, cut)
        (alone,) = torch.autograd.grad(loss.sum(), rows, allow_unused=True)
    except (RuntimeError, ValueError, IndexError, TypeError):
        # This way of cutting the targets does not fit the loss.
        return False
    if loss.dim() and len(loss) != len(index):
        return False
    alone = torch.zeros_like(rows) if alone is None else alone
    alone = alone * len(index) if reduction == "mean" else alone
    return _close(alone, found[index])


def _close(left: Tensor, right: Tensor) -> bool:
    tolerance = _TOLERANCE.get(right.dtype, 1e-4)
    size = right.abs()
    least = tolerance * size.nan_to_num(0.0, 0.0, 0.0).amax() if right.numel() else 0.0
    near = (left - right).abs() <= tolerance * size + least + torch.finfo(right.dtype).tiny
    return bool((near | (left.isnan() & right.isnan()) | (left == right)).all())


_TOLERANCE = {torch.float16: 1e-2, torch.bfloat16: 5e-2}
_SENTENCES = {
    "none": "losses must each depend on their own example only; got losses that mix the batch. "
    'Use reduction="none" and no statistics of the batch.',
    "mean": "loss must be the mean over the batch of one loss per example, each of its own example only; got another. "
    'Use reduction="none" and call backward on the vector of losses, or loss_reduction="sum" for a sum. Class weights '
    "and ignored targets make a mean divide by a private number.",
    "sum": "loss must be the sum over the batch of one loss per example, each of its own example only; got another. "
    'Use reduction="none" and call backward on the vector of losses, or loss_reduction="mean" for a mean.',
}


def _check_leaves(loss: Tensor, root: Tensor) -> None:
    """Gradients flow into the outputs and nowhere else: what reaches a parameter past them would not be clipped."""
    waiting, seen = [loss.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None and leaf is not root:
            raise InvalidInput(
                "losses must depend on trainable values only through the outputs of one call of the private model; got "
                f"a term in another one, of shape {tuple(leaf.shape)}. Use the optimizer's weight_decay for a penalty."
            )
        waiting.extend(following for following, _ in node.next_functions)
