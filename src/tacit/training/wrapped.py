"""The model, optimizer and loader that `make_private` hands back: an ordinary loop over them is a private run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, TensorDataset, default_collate

from tacit.errors import InvalidInput, TrainingMisuse, UnsupportedModel
from tacit.gradients import ClippedSum, GradientSum, audit
from tacit.gradients.batch import per_example
from tacit.sampling import Batch
from tacit.training.plan import PrivateRun, members_of
from tacit.training.step import check_mode, update


class Exchange:
    """What the three parts tell one another: the batch in hand and its clipped sum."""

    def __init__(self, run: PrivateRun):
        self.run = run
        self.batch: Batch | None = None
        self.total: tuple[GradientSum, Tensor] | None = None


class PrivateOutputs(Tensor):
    """Outputs of a private model; what is computed from them must end in `losses.backward()`, one loss per example."""

    backpropagate: Callable[[Tensor], None]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(result, PrivateOutputs):
            origin = next((value for value in _flat((args, kwargs)) if isinstance(value, PrivateOutputs)), None)
            if hasattr(origin, "backpropagate"):
                result.backpropagate = origin.backpropagate  # type: ignore[union-attr]
        return result

    def backward(self, *_: Any, **__: Any) -> None:  # type: ignore[override]
        self.backpropagate(self.as_subclass(Tensor))


class PrivateModel(nn.Module):
    """`module` whose training-mode outputs carry private gradients; in evaluation mode it is `module` itself."""

    def __init__(self, module: nn.Module, exchange: Exchange):
        super().__init__()
        self.module = module
        self._exchange = exchange
        self.clipped = ClippedSum(module, exchange.run.plan.clip)
        self._audited = False

    def forward(self, *inputs: Tensor) -> Tensor:
        if not self.training or not torch.is_grad_enabled():
            return self.module(*inputs)
        batch = self._exchange.batch
        if batch is None or any(len(value) != len(batch) for value in inputs):
            raise TrainingMisuse(
                "model must be given the batch that the private loader yielded last; got another. "
                "Iterate the loader that make_private returned, not the original one."
            )
        outputs = self.module(*inputs)
        if not isinstance(outputs, Tensor):
            raise UnsupportedModel(f"the model must return one tensor; got {type(outputs).__name__}.")
        root = outputs.detach().requires_grad_()
        private = root.view_as(root).as_subclass(PrivateOutputs)
        private.backpropagate = lambda losses: self._backpropagate(losses, root, inputs)
        return private

    def _backpropagate(self, losses: Tensor, root: Tensor, inputs: tuple[Tensor, ...]) -> None:
        if self._exchange.total is not None:
            raise TrainingMisuse("backward must be called once for each batch; got a second call. Step first.")
        check_mode(self)
        cotangents = _cotangents(per_example(losses, len(root)), root)
        batch = self._exchange.batch
        assert batch is not None
        if len(batch) and not self._audited:
            audit(self.clipped, _cotangent_loss, inputs, cotangents)
            self._audited = True
        self._exchange.total = self.clipped(_cotangent_loss, inputs, cotangents, members_of(batch))

    def state_dict(self, *args: Any, **named: Any) -> Any:
        return self.module.state_dict(*args, **named)

    def load_state_dict(self, *args: Any, **named: Any) -> Any:
        return self.module.load_state_dict(*args, **named)


class PrivateOptimizer(Optimizer):
    """`optimizer` whose step releases one noisy gradient and records it; its state and groups are the original's."""

    def __init__(self, optimizer: Optimizer, model: PrivateModel, exchange: Exchange):
        # Optimizer.__init__ is left out: it would make second parameter groups.
        self.original = optimizer
        self._model = model
        self._exchange = exchange
        self.defaults = optimizer.defaults
        self._step_count = 0

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        return self.original.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        return self.original.state

    def state_dict(self) -> dict[str, Any]:
        return self.original.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.original.load_state_dict(state_dict)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.original.zero_grad(set_to_none)

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Add noise to the clipped sum of the batch in hand, record it in the ledger, and let the original step."""
        check_mode(self._model)
        batch, total = self._exchange.batch, self._exchange.total
        if closure is not None or batch is None or total is None:
            raise TrainingMisuse(
                "step must follow losses.backward() on a batch of the private loader; got none since the last step. "
                'Compute the losses from model(inputs) in train mode with reduction="none".'
            )
        self._exchange.batch = self._exchange.total = None
        released = self._exchange.run.release(batch, *total)
        self._model.clipped.clip = released.clip
        update(self._model.clipped.trainable, self.original, released)


class PrivateLoader:
    """Poisson batches of the original loader's data set, about 1 / sample_rate of them in one pass."""

    def __init__(self, loader: DataLoader[Any], exchange: Exchange):
        self.dataset = loader.dataset
        self._collate = loader.collate_fn or default_collate
        self._exchange = exchange

    def __len__(self) -> int:
        return max(1, round(1 / self._exchange.run.plan.sample_rate))

    def __iter__(self) -> Iterator[Any]:
        for _ in range(len(self)):
            self._exchange.batch = self._exchange.run.issue()
            self._exchange.total = None
            yield self._gathered(self._exchange.batch)

    def _gathered(self, batch: Batch) -> Any:
        if isinstance(self.dataset, TensorDataset):
            index = torch.from_numpy(batch.indices)
            return [tensor[index] for tensor in self.dataset.tensors]
        if len(batch):
            return self._collate([self.dataset[i] for i in batch.indices.tolist()])
        # An empty batch still needs its shapes and types: those of the first record, none of its values.
        return _emptied(self._collate([self.dataset[0]]))


def _cotangent_loss(outputs: Tensor, cotangents: Tensor) -> Tensor:
    """The loss whose gradient with respect to the outputs is `cotangents`."""
    return (outputs * cotangents).flatten(1).sum(1)


def _cotangents(losses: Tensor, root: Tensor) -> Tensor:
    """d losses_i / d outputs_i, after checking that losses_i depends on no other row of the outputs.

    The check compares the gradients of two differently weighted sums of the losses.
    """
    if not len(losses):
        return torch.zeros_like(root)
    weights = 1.0 + torch.arange(1, len(losses) + 1, dtype=losses.dtype, device=losses.device).mul(0.6180339887).frac()
    (plain,) = torch.autograd.grad(losses.sum(), root, retain_graph=True)
    (weighted,) = torch.autograd.grad((losses * weights).sum(), root)
    expected = plain * weights.view(-1, *[1] * (root.dim() - 1))
    tolerance = 1e-4 * weighted.abs().nan_to_num().amax() + torch.finfo(root.dtype).tiny
    if ((weighted - expected).abs() > tolerance).any():
        raise InvalidInput(
            "losses must each depend on their own example only; got losses that mix the batch. "
            'Use reduction="none" and no statistics of the batch.'
        )
    return plain


def _emptied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value[:0]
    if isinstance(value, dict):
        return {key: _emptied(item) for key, item in value.items()}
    return type(value)(_emptied(item) for item in value) if isinstance(value, list | tuple) else value


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _flat(item)
    elif isinstance(value, dict):
        yield from _flat(list(value.values()))
    else:
        yield value
