"""`AdamBC`, which corrects for the privacy noise, and the step of any optimizer.

Released gradients and the optimizer's own state make the next weights, and nothing else.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

from tacit import check
from tacit.errors import TrainingMisuse


class AdamBC(Optimizer):
    """DP-AdamBC: Adam with the second moment corrected for the bias of the privacy noise.

    With g the noisy mean gradient and s its noise's standard deviation on every coordinate,

        m = beta_1 m + (1 - beta_1) g            v = beta_2 v + (1 - beta_2) g^2      f = beta_2 f + (1 - beta_2) s^2
        theta -= lr m' / sqrt(max(v' - f', floor))

    where ' divides by 1 - beta^t. Adam itself divides by sqrt(v'), in which s^2 = (noise_multiplier clip_norm /
    expected_batch_size)^2 drowns the gradient's own second moment. The private step reports s before every
    update, which covers noise schedules and adaptive clips; s is public, and the update is post-processing.

    Args:
        params: as for every `torch.optim` optimizer.
        lr: > 0.
        betas: both in [0, 1).
        floor: > 0; smallest second moment, in squared units of the gradient. Choose it near the square of a typical
            gradient coordinate: where v' - f' is only noise, the step is lr m' / sqrt(floor).

    Raises:
        InvalidInput: an argument breaks its rule.

    Example:
        >>> weight = torch.nn.Parameter(torch.zeros(1))
        >>> optimizer = AdamBC([weight], lr=0.1)
        >>> weight.grad = torch.ones(1)
        >>> optimizer.expect_noise(0.0)
        >>> optimizer.step()
        >>> round(weight.item(), 4)
        -0.1

    Source: Tang, Shpilevskiy & Lecuyer 2023, Algorithm 1.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        floor: float = 5e-8,
    ):
        check.positive("lr", lr)
        for beta in betas:
            check.probability("betas", beta, open_high=True)
        check.positive("floor", floor)
        super().__init__(params, {"lr": lr, "betas": betas, "floor": floor})
        self._noise_std: float | None = None

    def expect_noise(self, std: float) -> None:
        """Report the noise of the current gradients, N(0, std^2) on every coordinate; the private step calls this."""
        self._noise_std = check.real("std", std, low=0.0)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Make one update; raises `TrainingMisuse` if no private step has reported the noise of these gradients."""
        if closure is not None or self._noise_std is None:
            raise TrainingMisuse(
                "AdamBC must step on gradients of a private step; got others. Pass it to fit, make_private or "
                "private_step, which tell it the noise."
            )
        noise, self._noise_std = self._noise_std**2, None
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update_parameter(parameter, group, noise)

    def _update_parameter(self, parameter: Tensor, group: dict[str, Any], noise: float) -> None:
        gradient, state = parameter.grad, self.state[parameter]
        assert gradient is not None
        if not state:
            zeros = torch.zeros_like(gradient)
            state |= {"step": 0, "noise": 0.0, "first": zeros, "second": zeros.clone()}
        fast, slow = group["betas"]
        state["step"] += 1
        state["noise"] = slow * state["noise"] + (1 - slow) * noise
        state["first"].lerp_(gradient, 1 - fast)
        state["second"].mul_(slow).addcmul_(gradient, gradient, value=1 - slow)
        correction = 1 - slow ** state["step"]
        second = (state["second"] - state["noise"]).div_(correction).clamp_(min=group["floor"])
        parameter.addcdiv_(state["first"], second.sqrt_(), value=-group["lr"] / (1 - fast ** state["step"]))


# Settings under which a step of SGD is p -= lr g.
_PLAIN_SGD = {"momentum": 0, "weight_decay": 0, "dampening": 0, "nesterov": False, "maximize": False}


def apply_gradients(optimizer: Optimizer, trainable: dict[str, nn.Parameter], gradients: dict[str, Tensor]) -> None:
    """Make one step of `optimizer` with `gradients`, by parameter name, then clear them."""
    steps = [gradients[name].to(parameter.dtype) for name, parameter in trainable.items()]
    parameters: list[Tensor] = list(trainable.values())
    if is_plain(optimizer):
        with torch.no_grad():
            rate = optimizer.param_groups[0]["lr"]
            torch._foreach_add_(parameters, steps, alpha=-rate)  # pyright: ignore[reportPrivateImportUsage]
        return
    for parameter, step in zip(parameters, steps, strict=True):
        parameter.grad = step
    with steps_allowed():
        optimizer.step()
    for parameter in parameters:
        parameter.grad = None


_ALLOWED: ContextVar[bool] = ContextVar("steps_allowed", default=False)


def steps_allowed() -> AbstractContextManager[None]:
    """Context in which an optimizer with `refuse_other_steps` may step."""
    return check.within(_ALLOWED, True)


def refuse_other_steps(optimizer: Optimizer) -> None:
    """Make `optimizer.step()` raise `TrainingMisuse` outside of `steps_allowed`."""
    if _only_private not in optimizer._optimizer_step_pre_hooks.values():
        optimizer.register_step_pre_hook(_only_private)


def _only_private(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    if not _ALLOWED.get():
        raise TrainingMisuse(
            "the original optimizer must not step by itself after make_private; got a step. Use "
            "private.optimizer.step(). For training on public data alone write: with "
            'private.postprocessing("fine-tuned on public data"): ...'
        )


def settings_of(optimizer: Optimizer) -> list[tuple[Any, ...]]:
    """Every setting of every parameter group; a tensor of one number counts by that."""
    return [
        tuple(
            float(value) if isinstance(value, Tensor) and value.numel() == 1 else value
            for key, value in group.items()
            if key != "params"
        )
        for group in optimizer.param_groups
    ]


def state_of(optimizer: Optimizer) -> list[object]:
    """What tells the state of an optimizer from one that was written into: tensors by identity and version."""
    return [
        (name, id(value), value._version) if isinstance(value, Tensor) else (name, repr(value))
        for state in list(optimizer.state.values())
        for name, value in state.items()
    ]


def is_plain(optimizer: Optimizer) -> bool:
    """Whether a step is p -= lr g and nothing else: no momentum, hooks, schedulers that count steps or subclasses."""
    if type(optimizer) is not SGD or "step" in vars(optimizer) or len(optimizer.param_groups) != 1:
        return False
    group = optimizer.param_groups[0]
    before = [hook for hook in optimizer._optimizer_step_pre_hooks.values() if hook is not _only_private]
    hooks = before or optimizer._optimizer_step_post_hooks
    return (
        not hooks and isinstance(group["lr"], float) and all(group[key] == value for key, value in _PLAIN_SGD.items())
    )


MEND = "train by a class of torch.optim without hooks, or declare it: facts.declare('weights', 'why')"


def update_doubt(optimizer: Optimizer) -> str:
    """Why more than released gradients may move the weights; empty for optimizers of torch and tacit as they are.

    Example:
        >>> import torch
        >>> optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=0.1)
        >>> update_doubt(optimizer)
        ''
        >>> _ = optimizer.register_step_pre_hook(lambda *given: None)
        >>> update_doubt(optimizer).partition(":")[0]
        'a hook on the optimizer runs at every step'
    """
    kind = type(optimizer)
    if kind.__module__.partition(".")[0] not in ("torch", "tacit"):
        return f"the optimizer {kind.__name__} is a class of its own: {MEND}"
    step = vars(optimizer).get("step")
    if step is not None and not getattr(step, "_wrapped_by_lr_sched", False):
        return f"the optimizer's step was replaced: {MEND}"
    hooks = [*optimizer._optimizer_step_post_hooks.values(), *optimizer._optimizer_step_pre_hooks.values()]
    others = [hook for hook in hooks if hook is not _only_private]
    if others or _global_optimizer_pre_hooks or _global_optimizer_post_hooks:
        return f"a hook on the optimizer runs at every step: {MEND}"
    return ""
