"""`ModuleValidator`: which models can be trained privately, with the methods of Opacus."""

from __future__ import annotations

from torch import nn

from tacit.errors import UnsupportedModel
from tacit.gradients import fix, problems


class ModuleValidator:
    """Checks whether a module can be trained privately, and replaces layers that mix examples."""

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
    def fix(cls, module: nn.Module) -> nn.Module:
        """A copy of `module` in which layers that mix examples are replaced; see `tacit.gradients.fix`."""
        return fix(module).model

    @classmethod
    def fix_and_validate(cls, module: nn.Module) -> nn.Module:
        """`fix`, then `validate` strictly."""
        fixed = cls.fix(module)
        cls.validate(fixed, strict=True)
        return fixed
