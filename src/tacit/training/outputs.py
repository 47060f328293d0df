"""The outputs of a private model: what is computed from them ends in `backward()`, which clips."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from tacit.training.tape import Made, Tape, flat, mapped, writes

Backward = Callable[[Tensor, Made, Tape], None]


class PrivateOutputs(Tensor):
    """Outputs of a private model, or what became of them; every operation on them is recorded on their tape."""

    tape: Tape
    made: Made
    backpropagate: Backward

    @classmethod
    def of(cls, root: Tensor, backpropagate: Backward) -> PrivateOutputs:
        """`root`, a leaf that requires a gradient; `backpropagate` is given a loss and where it came from."""
        return root.view_as(root).as_subclass(cls)._marked(Tape(root), Made(0), backpropagate)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        origin = next((value for value in flat((args, named)) if isinstance(value, PrivateOutputs)), None)
        tape = getattr(origin, "tape", None)
        result = super().__torch_function__(func, types, args, named)
        if origin is None or tape is None:
            return result
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


def _source(value: Any, tape: Tape) -> Any:
    if not isinstance(value, PrivateOutputs):
        return value
    return value.made if getattr(value, "tape", None) is tape else value.as_subclass(Tensor).detach()
