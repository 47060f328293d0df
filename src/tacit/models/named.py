"""A module of the user's own by its name."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from tacit import check
from tacit.errors import told


def module_at(where: str) -> nn.Module:
    """The model at MODULE:CLASS or FILE.py:CLASS: a copy of a module, or what a class or function makes.

    The code at `where` runs.

    Raises:
        InvalidInput: there is no such module or class, or it makes no `torch.nn.Module` without arguments.
    """
    name = where.partition(":")[2]
    made = _object_at(where, "CLASS")
    if isinstance(made, nn.Module):
        return copy.deepcopy(made)
    try:
        made = made()
    except (Exception, SystemExit) as error:
        hint = f"{told(error)} Write a function."
        raise check.fail("CLASS", "callable without arguments", name, hint) from error
    if not isinstance(made, nn.Module):
        raise check.fail("CLASS", "a torch.nn.Module or a function that returns one", type(made).__name__)
    return made


def function_at(where: str) -> Callable[..., Any]:
    """The function at MODULE:FUNCTION or FILE.py:FUNCTION, which the user named: the code at `where` runs.

    Raises:
        InvalidInput: there is no such module or function.
    """
    found = _object_at(where, "FUNCTION")
    if not callable(found):
        raise check.fail("FUNCTION", "callable", type(found).__name__)
    return found


def _object_at(where: str, kind: str) -> Any:
    """What MODULE calls by the name after the colon; `kind` is how messages call it."""
    source, _, name = where.partition(":")
    if not source or not name:
        hint = f"E.g. package.module:{kind.title()} or file.py:{kind.title()}."
        raise check.fail(f"MODULE:{kind}", f"a module and a {kind.lower()}", where, hint)
    try:
        found = _module(source)
    except (Exception, SystemExit) as error:
        raise check.fail("MODULE", "importable", source, told(error)) from error
    check.choice(f"{kind} of {source}", name, sorted(key for key in vars(found) if not key.startswith("_")))
    return getattr(found, name)


def home_of(where: str) -> Path | None:
    """The file that `module_at` would run, found without running anything; None where there is none."""
    files = code_of(where)
    return files[-1] if files else None


def code_of(where: str) -> list[Path]:
    """The files that importing MODULE runs first: `__init__.py` of each package around it, then its own.

    Nothing is imported and nothing runs. Empty where there is no such module; what these files import is not followed.
    """
    path: Sequence[str] | None = [str(Path.cwd()), *sys.path]
    files = []
    parts = where.partition(":")[0].split(".")
    for end in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:end]), path)
        if spec is None:
            return []
        if spec.origin is not None:
            files.append(Path(spec.origin).resolve())
        path = list(spec.submodule_search_locations or [])
    return files


@contextmanager
def _working_directory_first() -> Iterator[None]:
    sys.path.insert(0, str(Path.cwd()))
    try:
        yield
    finally:
        sys.path.remove(str(Path.cwd()))


def _module(source: str) -> ModuleType:
    if not source.endswith(".py"):
        with _working_directory_first():
            return importlib.import_module(source)
    spec = importlib.util.spec_from_file_location(Path(source).stem, source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
