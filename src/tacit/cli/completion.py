"""Values that the shell completes; `tacit --install-completion` sets it up."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def presets(incomplete: str) -> list[str]:
    """Presets and TOML files of the working directory that begin with `incomplete`.

    Example:
        >>> presets("dig")
        ['digits']
    """
    from tacit.runs.config import preset_names

    return _fitting([*preset_names(), *(path.name for path in sorted(Path().glob("*.toml")))], incomplete)


def accountants(incomplete: str) -> list[str]:
    """Accountants whose name begins with `incomplete`.

    Example:
        >>> accountants("pl")
        ['pld']
    """
    from tacit.accounting.registry import ACCOUNTANTS

    return _fitting(ACCOUNTANTS, incomplete)


def _fitting(known: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in known if name.startswith(incomplete)]
