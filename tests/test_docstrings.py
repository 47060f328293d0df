"""The docstring contract: sections that name what a reader needs, and examples that run."""

import ast
import doctest
import importlib
import inspect
import io
import re
from contextlib import redirect_stdout
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "tacit"
FILES = sorted([*SOURCE.rglob("*.py"), *SOURCE.with_name("tacit_papers").rglob("*.py")])
ROOMS = (
    "accounting",
    "mechanisms",
    "tradeoff",
    "clipping",
    "sampling",
    "gradients",
    "training",
    "erm",
    "attacks",
    "audit",
    "variational",
    "tickets",
    "features",
    "testing",
)
MANY = 4  # From so many parameters on, names alone do not explain a function.
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
# Modules that need an optional package for their import.
OPTIONAL = "tacit.integrations.pyro"
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def public(name: str) -> bool:
    return not name.startswith("_") or name == "__call__"


def definitions(path: Path):
    """Every public function and method of a file: (qualified name, node, the class or None)."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, FUNCTIONS) and public(node.name):
            yield node.name, node, None
        elif isinstance(node, ast.ClassDef) and public(node.name):
            for inner in node.body:
                if isinstance(inner, FUNCTIONS) and (public(inner.name) or inner.name == "__init__"):
                    yield f"{node.name}.{inner.name}", inner, node


def parameters(node) -> list[str]:
    arguments = node.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return [each.arg for each in every if each is not None and each.arg not in ("self", "cls")]


def decorated(node, name: str) -> bool:
    return any(name in ast.unparse(each) for each in node.decorator_list)


def raises_itself(node) -> bool:
    """Whether the body raises an error of its own, or calls an argument check, outside of nested functions."""
    pending = list(node.body)
    while pending:
        part = pending.pop()
        if isinstance(part, (*FUNCTIONS.__args__, ast.Lambda, ast.ClassDef)):
            continue
        if isinstance(part, ast.Raise) and part.exc is not None and "AttributeError" not in ast.unparse(part.exc):
            return True
        called = ast.unparse(part.func) if isinstance(part, ast.Call) else ""
        if called.startswith("check.") and called != "check.fail":  # `check.fail` makes the error that `raise` raises.
            return True
        pending += ast.iter_child_nodes(part)
    return False


def says_raises(text: str) -> bool:
    return "Raises:" in text or "raises `" in text or "Raises `" in text


def overrides(owner) -> bool:
    """Whether a class has bases, so that a method without a docstring inherits the one of its base."""
    return owner is not None and bool(owner.bases)


def is_command(path: Path, name: str) -> bool:
    """A command of the command line: the help texts of its options are what its readers see."""
    declared = re.search(rf"@\w*app\.command\(.*\)\ndef {name}\(", path.read_text(encoding="utf-8"))
    return path.parent.name in ("cli", "tacit_papers") and bool(name.endswith("command") or declared)


def problems(path: Path) -> list[str]:
    """What the docstrings of the functions with many parameters of one file lack."""
    found = []
    for name, node, owner in definitions(path):
        if is_command(path, name):
            continue
        text = ast.get_docstring(node) or ""
        if not text and (decorated(node, "override") or overrides(owner)):
            continue
        if node.name in ("__init__", "__post_init__") and owner is not None:
            text += ast.get_docstring(owner) or ""
        named = parameters(node)
        if len(named) < MANY:
            continue
        missing = [each for each in named if each not in args_section(text)]
        if missing:
            found.append(f"{name}: Args: must name {', '.join(missing)}")
        if raises_itself(node) and not says_raises(text):
            found.append(f"{name}: Raises: must say when it raises")
    return found


def args_section(text: str) -> str:
    """The text of `Args:` or `Attributes:` up to the next section."""
    kept, inside = [], False
    for line in text.splitlines():
        if line and not line[0].isspace():
            inside = line.strip() in ("Args:", "Attributes:")
        elif inside:
            kept.append(line.split(":")[0])
    return " ".join(" ".join(kept).replace(",", " ").replace("`", " ").split())


def without_example(room: str):
    """The exported names of a room whose docstring has no example."""
    module = importlib.import_module(f"tacit.{room}")
    for name in module.__all__:
        value = getattr(module, name)
        if (inspect.isclass(value) or inspect.isfunction(value)) and ">>> " not in (inspect.getdoc(value) or ""):
            yield f"tacit.{room}.{name}: no example"


def test_docstrings_name_parameters_and_errors_and_have_an_example():
    found = [f"{path.relative_to(SOURCE.parent)}: {each}" for path in FILES for each in problems(path)]
    found += [each for room in ROOMS for each in without_example(room)]
    assert not found, "\n".join(found)


def modules_with_examples():
    """Room -> its modules with examples."""
    found = {}
    for path in FILES:
        name = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
        if ">>> " in path.read_text(encoding="utf-8") and not name.startswith(OPTIONAL):
            found.setdefault(name.split(".")[1], []).append(name)
    return found


@pytest.mark.parametrize(("room", "names"), modules_with_examples().items(), ids=modules_with_examples())
def test_examples_run(room, names, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = io.StringIO()
    with redirect_stdout(said):
        failed = [name for name in names if doctest.testmod(importlib.import_module(name), optionflags=FLAGS).failed]
    assert not failed, said.getvalue()


def test_a_missing_section_is_found(tmp_path):
    file = tmp_path / "part.py"
    file.write_text(
        'def f(a, b, c, d):\n    """F.\n\n    Args:\n        a, b: x.\n        c: y.\n    """\n    raise ValueError\n'
    )
    assert problems(file) == ["f: Args: must name d", "f: Raises: must say when it raises"]
