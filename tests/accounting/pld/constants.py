"""Constants of the exact accountant, as its modules assign them and as CONSTANTS.md lists them.

python -m tests.accounting.pld.constants    write the values of the code into CONSTANTS.md
"""

import ast
import re
from pathlib import Path

from tacit.accounting.pld import rounding

ROOM = Path(rounding.__file__).parent
TABLE = ROOM / "CONSTANTS.md"
SMALL = {-1, 0, 1, 2, 3, 4, 8, 0.25, 0.5}
LONGEST = 60
"""Characters of a value in the table; a longer one is cut."""
_ROW = re.compile(r"^\| `(\w+\.\w+)` \| `(.*?)` \|", flags=re.MULTILINE)
_LISTS = re.compile(r"^\| `(\w+)` \| (`.*?) \|", flags=re.MULTILINE)


def bounding() -> dict[str, str]:
    """Constants that a bound counts on, with the values that the table has."""
    return dict(_ROW.findall(_section("bounds")))


def listed() -> set[str]:
    """All constants that the page names, those that steer speed alone among them."""
    return {*bounding()} | {f"{module}.{name}" for module, names in _named("speed").items() for name in names}


def numbers_listed(module: str) -> set[float]:
    """Numbers inside of functions that the page names for a module."""
    return {float(value) for value in _named("inside").get(module, [])}


def constants(path: Path) -> tuple[set[str], set[float]]:
    """Upper-case names that a module assigns at its top, and the numbers everywhere else in it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    top = [node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    targets = [target for node in top for target in (node.targets if isinstance(node, ast.Assign) else [node.target])]
    names = {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    skipped = {id(each) for node in top for each in ast.walk(node)}
    numbers = {
        float(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and type(node.value) in (int, float) and id(node) not in skipped
    }
    return {f"{path.stem}.{name}" for name in names if name.lstrip("_").isupper()}, numbers - SMALL


def values() -> dict[str, str]:
    """Every constant of the room as its module writes it, cut where it is long."""
    found = {}
    for path in ROOM.glob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
                continue
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    each = zip(target.elts, node.value.elts, strict=True)
                else:
                    each = [(target, node.value)]
                found |= {f"{path.stem}.{ast.unparse(name)}": ast.unparse(value) for name, value in each}
    return {name: text if len(text) <= LONGEST else f"{text[:LONGEST]}..." for name, text in found.items()}


def written() -> str:
    """The page with the values of the code."""
    code = values()
    return _ROW.sub(lambda row: f"| `{row[1]}` | `{code.get(row[1], 'gone')}` |", _page())


def _page() -> str:
    return TABLE.read_text(encoding="utf-8")


def _section(word: str) -> str:
    return next(part for part in _page().split("\n## ") if word in part.split("\n")[0])


def _named(word: str) -> dict[str, list[str]]:
    return {module: re.findall(r"`([^`]+)`", names) for module, names in _LISTS.findall(_section(word))}


if __name__ == "__main__":
    TABLE.write_text(written(), encoding="utf-8")
