"""JSON of results: plain numbers, infinities spelled "inf"."""

import json
import math
from typing import Any


def json_text(value: object) -> str:
    """JSON of plain values, infinity spelled "inf"."""
    return json.dumps(plain(value), indent=1)


def plain(value: object) -> Any:
    """`value` with every float made plain and every infinity spelled "inf" or "-inf"."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    return value
