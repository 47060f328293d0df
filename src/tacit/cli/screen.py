"""What commands print on: text as it is, since names and paths are the user's and no markup."""

from rich.console import Console


def screen(*, stderr: bool = False) -> Console:
    """The terminal; brackets and colons in what is printed stand for themselves."""
    return Console(stderr=stderr, markup=False, emoji=False, highlight=False)
