"""The field's own words: every term of the glossary is used by its room, and retired names are gone."""

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "tacit"
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
TERMS = re.findall(r"^\| ([^|]+?) \|[^|]*\|[^|]*\|[^|]*\| `(\w+)` \|$", GLOSSARY, flags=re.MULTILINE)

RETIRED_MODULES = [
    *("accounting/loss", "accounting/pld/direction", "accounting/pld/apart", "accounting/pld/jumps"),
    *("accounting/pld/plan", "accounting/pld/views", "accounting/pld/revealed", "gradients/apart", "gradients/proof"),
    *("gradients/audit", "gradients/scratch", "gradients/units", "gradients/total", "training/settle"),
    *("training/setting", "training/ready", "training/exchange", "training/nonprivate", "runs/pieces"),
    *("runs/informed", "plain", "atomic"),
]
# Identifiers that a reader of the field would not look for; docs/glossary.md has the terms to use.
RETIRED_NAMES = {
    *("Scratch", "scratch", "Members", "GradientSum", "Exchange", "Informed", "Direction", "prove"),
    *("twin", "jet", "jets", "infinite_mass", "setting_of", "naive_je", "advanced_je", "rdp_je"),
    *("physical_batch_size", "max_physical_batch", "watchers", "judge", "informed"),
}


def files(room: str) -> list[Path]:
    """The files of a room, be it a folder or one file."""
    return sorted((SOURCE / room).rglob("*.py")) or [SOURCE / f"{room}.py"]


@functools.cache
def words_of(room: str) -> str:
    """Docstrings and file names of a room in lower case, blanks for hyphens, underscores and line ends."""
    found = []
    for path in files(room):
        found.append(path.stem)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                found.append(ast.get_docstring(node) or "")
    return plain("\n".join(found))


def plain(text: str) -> str:
    """Lower case, blanks for hyphens, underscores and line ends, American spelling of the one term that has two."""
    return " ".join(re.sub(r"[-_\s]+", " ", text.lower()).replace("randomised", "randomized").split())


def test_the_glossary_has_the_terms_of_the_field():
    assert len(TERMS) >= 31
    assert len({term for term, _ in TERMS}) == len(TERMS)


def test_a_room_uses_the_term_for_what_it_implements():
    lacking = [f"tacit.{room} must name the {term}" for term, room in TERMS if plain(term) not in words_of(room)]
    assert not lacking, "\n".join(lacking)


def identifiers(path: Path) -> set[str]:
    """Every name that a file defines or uses; none where no retired one is in its text."""
    found: set[str] = set()
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)) if any(name in text for name in RETIRED_NAMES) else ():
        for field in ("id", "attr", "arg", "name", "asname"):
            value = getattr(node, field, None)
            if isinstance(value, str):
                found |= set(value.split("."))
    return found


def test_retired_names_and_modules_are_gone():
    used = {
        path.relative_to(SOURCE.parent): RETIRED_NAMES & identifiers(path)
        for path in sorted([*SOURCE.rglob("*.py"), *SOURCE.with_name("tacit_papers").rglob("*.py")])
    }
    left = [f"{path} still uses {sorted(names)}" for path, names in used.items() if names]
    left += [name for name in RETIRED_MODULES if (SOURCE / name).is_dir() or (SOURCE / f"{name}.py").exists()]
    assert not left, "\n".join(map(str, left))
