"""What commands share when they print: JSON with spelled infinities, numbers of sensible length."""

from tacit.plain import json_text as json_text


def short(value: float | None) -> str:
    """A number for a table: five digits, a dash when there is none."""
    return "-" if value is None else f"{value:.5g}"
