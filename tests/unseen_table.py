"""A table that no code has seen: semicolons, DD.MM.YYYY, decimal commas, missing cells, identifiers, 40 tariffs."""

from datetime import date, timedelta
from pathlib import Path

import numpy as np

NAMES = ("customer_id", "born", "postcode", "income", "height", "visits", "tariff", "channel", "since", "cancelled")
TARIFFS = tuple(f"T{number:02d}" for number in range(1, 41))
CHANNELS = ("shop", "online", "phone")


def write_unseen(path: Path, rows: int = 50_000) -> Path:
    """Write the table to `path`, which is returned; who cancels depends on visits, income and tariff."""
    draw = np.random.default_rng(41)
    born = draw.integers(0, 20_000, rows)
    since = draw.integers(0, 5_000, rows)
    income = draw.gamma(4.0, 9_000.0, rows)
    visits = draw.poisson(6, rows)
    tariff = draw.integers(0, len(TARIFFS), rows)
    cancelled = visits / 6 - income / 40_000 + tariff / 40 + draw.normal(0, 0.5, rows) > 0.6
    gone = draw.random((3, rows)) < 0.08
    lines = [";".join(NAMES)]
    for row in range(rows):
        cells = (
            f"K{row:06d}",
            _german(date(1945, 1, 1), born[row]),
            f"{draw.integers(1_000, 99_999):05d}",
            ("", "NA")[row % 2] if gone[0, row] else f"{income[row]:.2f}".replace(".", ","),
            "" if gone[1, row] else f"{draw.normal(1.7, 0.1):.2f}".replace(".", ","),
            str(visits[row]),
            TARIFFS[tariff[row]],
            CHANNELS[draw.integers(3)],
            "" if gone[2, row] else _german(date(2010, 1, 1), since[row]),
            "yes" if cancelled[row] else "no",
        )
        lines.append(";".join(cells))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _german(start: date, days: int) -> str:
    return (start + timedelta(days=int(days))).strftime("%d.%m.%Y")
