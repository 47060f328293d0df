"""The outputs of a private model: what is computed from them ends in `backward()`, which clips."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tacit.training.tape import Made, Tape, flat, mapped, writes

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
