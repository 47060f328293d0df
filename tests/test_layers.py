"""The import-layer rule: a room imports only rooms above it, and accounting never imports torch."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "tacit"
ORDER = [
    "errors",
    "check",
    "relation",
    "standing",
    "serialization",
    "root_finding",
    "tradeoff",
    "mechanisms",
    "noise",
    "accounting",
    "calibration",
    "clipping",
    "gradients",
    "sampling",
    "models",
    "lora",
    "training",
    "opacus",
    "attacks",
    "audit",
    "data",
    "tickets",
    "erm",
    "variational",
    "reports",
    "runs",
    "sweeps",
    "integrations",
    "papers",
    "cli",
]
TORCH_FREE = ORDER[: ORDER.index("calibration") + 1]
FORBIDDEN = {("attacks", "training"), ("audit", "training"), ("data", "training"), ("reports", "training")}


def _room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def _imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


FILES = [path for path in SOURCE.rglob("*.py") if _room(path) not in ("__init__", "__main__")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_rooms_import_only_rooms_above_them(path):
    room = _room(path)
    assert room in ORDER, f"{room} is not in the layer list; add it there and to docs/architecture.md"
    used = {name.split(".")[1] for name in _imports(path) if name.startswith("tacit.")} - {room, "__version__"}
    below = {other for other in used if ORDER.index(other) > ORDER.index(room) or (room, other) in FORBIDDEN}
    assert not below, f"{room} must not import {below}"


@pytest.mark.parametrize("path", [p for p in FILES if _room(p) in TORCH_FREE], ids=lambda p: p.name)
def test_everything_up_to_calibration_is_free_of_torch(path):
    assert not {name for name in _imports(path) if name.split(".")[0] == "torch"}


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
