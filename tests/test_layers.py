"""The layers of src/tacit/layers.toml: no room imports a room below it, no circle, no torch in accounting."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "tacit"
ROOMS = tomllib.loads((SOURCE / "layers.toml").read_text(encoding="utf-8"))["room"]
ORDER = [room["name"] for room in ROOMS]
TORCH = {room["name"]: room.get("torch", True) for room in ROOMS}
FORBIDDEN = {(room["name"], other) for room in ROOMS for other in room.get("never", [])}


def module_of(path: Path) -> str:
    """The dotted name of a file."""
    return ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")


def room_of(module: str) -> str:
    """The room of a module; empty for the package itself."""
    return module.split(".")[1] if "." in module else ""


MODULES = {module_of(path): path for path in SOURCE.rglob("*.py")}


@cache
def imported(path: Path) -> set[str]:
    """Every name that a file imports, at its top or in a function, except under `if TYPE_CHECKING`."""
    names: set[str] = set()
    pending: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            pending += node.orelse
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} must import by full names"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        else:
            pending += [each for each in ast.iter_child_nodes(node) if not isinstance(each, ast.expr)]
    return names


def modules_used(path: Path) -> set[str]:
    """The modules of tacit behind the imported names: the longest prefix of each that is one."""
    found = set()
    for name in imported(path):
        parts = name.split(".")
        known = [".".join(parts[:end]) for end in range(len(parts), 0, -1)]
        found |= set([module for module in known if module in MODULES][:1])
    return found - {module_of(path)}


@cache
def all_used() -> dict[str, set[str]]:
    """The modules that each one uses."""
    return {module: modules_used(path) for module, path in MODULES.items()}


IN_ROOMS = sorted(module for module in MODULES if room_of(module) not in ("", "__main__"))


def test_every_room_is_in_the_list_and_every_entry_is_a_room():
    assert {room_of(module) for module in IN_ROOMS} == set(ORDER)
    assert len(ORDER) == len(set(ORDER))


def torch_in(module: str) -> bool:
    """Whether a module imports torch."""
    return any(name.split(".")[0] == "torch" for name in imported(MODULES[module]))


def test_a_room_imports_only_rooms_above_it_and_torch_only_where_it_may():
    wrong = []
    for module in IN_ROOMS:
        room = room_of(module)
        used = {room_of(other) for other in all_used()[module]} - {room, ""}
        wrong += [
            f"{module} imports {other}"
            for other in sorted(used)
            if ORDER.index(other) > ORDER.index(room) or (room, other) in FORBIDDEN
        ]
        may = TORCH[room] if isinstance(TORCH[room], bool) else module.split(".")[-1] in TORCH[room]
        wrong += [f"{module} imports torch"] if torch_in(module) and not may else []
    assert not wrong, "\n".join(wrong)


def test_nothing_of_the_library_imports_the_papers():
    assert not [module for module, path in MODULES.items() if any("tacit_papers" in name for name in imported(path))]


def circle(graph: dict[str, set[str]]) -> list[str]:
    """A path of imports that returns to its first module; empty where there is none (depth-first search)."""
    done: set[str] = set()
    for start in sorted(graph):
        path = [start]
        branches = [iter(sorted(graph[start]))]
        while path:
            following = next(branches[-1], None)
            if following is None:
                done.add(path.pop())
                branches.pop()
            elif following in path:
                return [*path[path.index(following) :], following]
            elif following not in done:
                path.append(following)
                branches.append(iter(sorted(graph[following])))
    return []


def test_the_search_finds_a_circle():
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["b", "c", "b"]
    assert circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_no_modules_import_each_other_in_a_circle_not_even_in_functions():
    found = circle({module: used - {"tacit"} for module, used in all_used().items()})
    assert not found, " -> ".join(found)


def test_the_architecture_page_shows_the_list():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", page, flags=re.MULTILINE)
    assert rows == [(room["name"], room["purpose"]) for room in ROOMS]


@pytest.mark.parametrize(
    "statement",
    [
        "import tacit",
        "import tacit.accounting, tacit.calibration",
        "import tacit.attacks, tacit.audit, tacit.reports",
        "from tacit.cli import main; main(['--help'])",
    ],
)
def test_light_paths_do_not_load_heavy_libraries(statement):
    code = f"{statement}\nimport sys; print(sorted({{'torch', 'sklearn', 'matplotlib', 'pandas'}} & set(sys.modules)))"
    environment = os.environ | {"PYTHONPATH": str(SOURCE.parent)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip().endswith("[]")


def test_checks_of_parts_need_no_test_framework():
    code = "import tacit.testing, sys; print(sorted({'pytest', 'hypothesis', '_pytest'} & set(sys.modules)))"
    environment = os.environ | {"PYTHONPATH": str(SOURCE.parent)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "[]"
