"""What commands share when they print: numbers of sensible length."""


def short(value: float | None) -> str:
    """A number for a table: five digits, a dash when there is none."""
    return "-" if value is None else f"{value:.5g}"
