"""`cotangents`: the gradient of each example's loss by its outputs."""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.errors import InvalidInput
from tacit.gradients.inputs import check_losses
from tacit.training.private_outputs import PrivateOutputs
from tacit.training.trace import network_of
from tacit.verification.recordwise import leaves_of


def cotangents(outputs: PrivateOutputs, reduction: str) -> Tensor:
    """Gradient  d loss_i / d outputs_i  for every example i, of the shape of the outputs.

    A vector of one loss per example needs no change. A single number, under `reduction` "mean" or "sum", is converted:
    a mean by the number of examples in this batch. That it is such a number is for `loss_doubt` to say.

    Args:
        outputs: what the loop called `backward` on, a number or shape (batch,).
        reduction: "none", "mean" or "sum".

    Raises:
        InvalidInput: a loss of another form, or with terms that do not come from the outputs.
    """
    loss, root = outputs.as_subclass(Tensor), outputs.root
    batch = len(root)
    if reduction == "none" or loss.dim():
        check_losses(loss, batch)
    if not batch:
        return torch.zeros_like(root)
    _check_leaves(loss, root)
    if not loss.requires_grad:
        return torch.zeros_like(root)
    (found,) = torch.autograd.grad(loss.sum(), root, retain_graph=True, allow_unused=True)
    if found is None:
        return torch.zeros_like(root)
    return found * batch if reduction == "mean" and not loss.dim() else found


def _check_leaves(loss: Tensor, root: Tensor) -> None:
    """Raise if a gradient reaches a parameter other than through the outputs: it would not be clipped."""
    for leaf in leaves_of([loss]):
        if leaf is not root:
            raise InvalidInput(
                "losses must depend on trainable values only through the outputs of one call of the private model; got "
                f"{network_of(leaf)}. Make one module of the networks that are trained, freeze the other one, or use "
                "the optimizer's weight_decay for a penalty."
            )
