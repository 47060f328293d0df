"""Modules that only some users need: imported where they are used, with a clear error when they are absent."""

import importlib
from types import ModuleType

from tacit.errors import TacitError


def optional(module: str, purpose: str) -> ModuleType:
    """The imported `module`; raises `TacitError` with the install command when it is not there."""
    try:
        return importlib.import_module(module)
    except ImportError:
        sentence = f"{module} must be installed {purpose}; got no such module."
        raise TacitError(f"{sentence} Run `pip install 'tacit[data]'`.") from None
