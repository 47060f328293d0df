"""`ModuleValidator`: which models can be trained privately, with the methods of Opacus.

The layers that Opacus needs in the place of torch's; here torch's own, whose per-sample gradients are made.

States are those of torch's layers, as the states of Opacus's are.

`BatchMemoryManager`: logical batches as physical batches that fit into memory.
"""

import copy
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import ClassVar

from torch import nn

from tacit import check
from tacit.errors import UnsupportedModel
from tacit.gradients import fix, problems
from tacit.training.loader import PrivateLoader
from tacit.training.wrappers import PrivateOptimizer

_INSTANCE = {nn.BatchNorm1d: nn.InstanceNorm1d, nn.BatchNorm2d: nn.InstanceNorm2d, nn.BatchNorm3d: nn.InstanceNorm3d}
_REPLACED = (*_INSTANCE, nn.SyncBatchNorm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)


class ModuleValidator:
    """Checks whether a module can be trained privately, and replaces layers that mix examples.

    Attributes:
        VALIDATORS: type of a layer -> function of the layer that gives one error for each of its problems.
        FIXERS: type of a layer -> function that gives the layer that takes its place, or the layer itself.
    """

    VALIDATORS: ClassVar[Mapping[type[nn.Module], Callable[[nn.Module], list[UnsupportedModel]]]] = dict.fromkeys(
        _REPLACED, lambda layer: [UnsupportedModel(str(problem)) for problem in problems(layer)]
    )
    FIXERS: ClassVar[Mapping[type[nn.Module], Callable[[nn.Module], nn.Module]]] = dict.fromkeys(
        _REPLACED, lambda layer: fix(layer).model if problems(layer) else layer
    )

    @classmethod
    def validate(cls, module: nn.Module, *, strict: bool = False) -> list[UnsupportedModel]:
        """One error for everything that keeps `module` from being trained privately; `strict` raises them in one."""
        found = [str(problem) for problem in problems(module)]
        if not module.training:
            found.append("the model is in eval mode. Call model.train() first.")
        if strict and found:
            raise UnsupportedModel(" ".join(found))
        return [UnsupportedModel(sentence) for sentence in found]

    @classmethod
    def is_valid(cls, module: nn.Module) -> bool:
        """Whether `validate` finds nothing."""
        return not cls.validate(module)

    @classmethod
    def fix(cls, module: nn.Module, *, replace_bn_with_in: bool = False, num_groups: int | None = None) -> nn.Module:
        """A copy of `module` in which layers that mix examples are replaced; see `tacit.gradients.fix`.

        Args:
            module: left as it is.
            replace_bn_with_in: batch normalisation becomes instance normalisation, not group normalisation.
            num_groups: of the group normalisations, >= 1; the largest power of two that fits by default.

        Raises:
            InvalidInput: both options are given, or `num_groups` does not divide the channels of a layer.
            UnsupportedModel: a layer has no repair.
        """
        if replace_bn_with_in and num_groups is not None:
            raise check.fail("num_groups", "None with replace_bn_with_in", num_groups, "Give one of the two.")
        if not replace_bn_with_in and num_groups is None:
            return fix(module).model
        groups = None if num_groups is None else check.count("num_groups", num_groups)
        return fix(_with_normalisation(copy.deepcopy(module), groups)).model

    @classmethod
    def fix_and_validate(cls, module: nn.Module) -> nn.Module:
        """`fix`, then `validate` strictly."""
        fixed = cls.fix(module)
        cls.validate(fixed, strict=True)
        return fixed


def _with_normalisation(module: nn.Module, groups: int | None) -> nn.Module:
    """`module` with its batch normalisations replaced by normalisations of `groups`, or of instances."""
    for name, child in module.named_children():
        setattr(module, name, _with_normalisation(child, groups))
    kind = next((kind for kind in _INSTANCE if isinstance(module, kind)), None)
    if kind is None:
        return module
    assert isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d)
    channels = module.num_features
    if groups is None:
        new: nn.Module = _INSTANCE[kind](channels, eps=module.eps, affine=module.affine)
    elif channels % groups:
        raise check.fail("num_groups", f"a divisor of the {channels} channels of a layer", groups)
    else:
        new = nn.GroupNorm(groups, channels, eps=module.eps, affine=module.affine)
    if module.affine:
        new.weight, new.bias = module.weight, module.bias
    return new.train(module.training)


class DPLSTM(nn.LSTM):
    """`torch.nn.LSTM` under the name of Opacus."""


class DPGRU(nn.GRU):
    """`torch.nn.GRU` under the name of Opacus."""


class DPRNN(nn.RNN):
    """`torch.nn.RNN` under the name of Opacus."""


class DPMultiheadAttention(nn.MultiheadAttention):
    """`torch.nn.MultiheadAttention` under the name of Opacus."""


class BatchMemoryManager(nullcontext[PrivateLoader]):
    """Context in which the private loader yields physical batches of at most `max_physical_batch_size` records.

        with BatchMemoryManager(data_loader=loader, max_physical_batch_size=64, optimizer=optimizer) as batches:
            for inputs, targets in batches:
                optimizer.zero_grad()
                criterion(model(inputs), targets).backward()
                optimizer.step()

    `step` does nothing until the last physical batch of a logical batch; then it adds noise once, to the whole sum. The
    result does not depend on `max_physical_batch_size`.

    Args:
        data_loader: the loader that `make_private` returned.
        max_physical_batch_size: >= 1.
        optimizer: the optimizer that the same call returned.

    Raises:
        InvalidInput: an argument breaks its rule.
    """

    def __init__(self, *, data_loader: PrivateLoader, max_physical_batch_size: int, optimizer: PrivateOptimizer):
        if not isinstance(data_loader, PrivateLoader):
            rule = "the loader that make_private returned"
            raise check.fail("data_loader", rule, type(data_loader).__name__)
        if not isinstance(optimizer, PrivateOptimizer) or optimizer.session is not data_loader.session:
            rule = "the optimizer that make_private returned together with data_loader"
            raise check.fail("optimizer", rule, type(optimizer).__name__)
        check.count("max_physical_batch_size", max_physical_batch_size)
        # Nothing is to be undone: the original loader is left as it is.
        super().__init__(data_loader.with_physical_batches(max_physical_batch_size))
