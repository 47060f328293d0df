"""`tacit reproduce`: the command that the package tacit_papers brings through the entry point `tacit.papers`."""

from importlib.metadata import entry_points
from typing import Any

from tacit.errors import MissingExtra

GROUP = "tacit.papers"


def brought() -> Any:
    """The function behind the entry point; raises `MissingExtra` where no installed package has it."""
    try:
        (entry,) = entry_points(group=GROUP, name="reproduce")
        return entry.load()
    except (ValueError, ModuleNotFoundError) as error:
        if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("tacit_papers"):
            raise
        raise MissingExtra(
            "tacit_papers must be installed for this; it is not. Run pip install . in a clone of the project, "
            "whose build holds both packages."
        ) from None


command = brought()
