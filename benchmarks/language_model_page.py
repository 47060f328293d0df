"""The tables and the picture of docs/language_models.md, from the results that benchmarks/language_model.py stores."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

DRAWN = ("all weights", "all weights, few reviews")
PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "language_model.svg"


def show(path: Path) -> None:
    """Print the tables of the page from stored results, and draw its picture."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    print(utility_table(stored), audit_table(stored), sep="\n\n")
    draw(stored)


def utility_table(stored: dict[str, Any]) -> str:
    """Bits for a byte of held-out public text by arm."""
    lines = [
        "| trained | privacy | weights trained | bits per byte |",
        "|---|---|---:|---:|",
    ]
    for row in stored["rows"]:
        bits, private = row["bits_per_byte"], row.get("epsilon")
        privacy = "" if "unit" not in row else "none" if private is None else f"epsilon {private:g}"
        weights = f"{row['trained_weights']:,}" if "unit" in row else ""
        lines.append(f"| {row['arm']} | {privacy} | {weights} | {bits:.3f} |")
    return "\n".join(lines)


def audit_table(stored: dict[str, Any]) -> str:
    """What the canaries of each arm showed beside what they could show at most and what is certified."""
    lines = ["| trained | privacy | area under ROC | measured | could show | certified |"]
    lines.append("|---|---|---:|---:|---:|---:|")
    for row in stored["rows"]:
        if "audit" in row:
            found, private = row["audit"], row["epsilon"] is not None
            certified = f"{math.ceil(100 * found['certified']) / 100:.2f}{', refuted' if found['refuted'] else ''}"
            lower, ceiling = (math.floor(100 * found[name]) / 100 for name in ("epsilon_lower", "ceiling"))
            privacy = f"epsilon {row['epsilon']:g}" if private else "none"
            numbers = f"{found['area']:.3f} | {lower:.2f} | {ceiling:.2f} | {certified}"
            lines.append(f"| {row['arm']} | {privacy} | {numbers} |")
    return "\n".join(lines)


def draw(stored: dict[str, Any]) -> None:
    """Bits per byte of every arm, and for two arms the trade-off picture of certificate, measured bound and guesses."""
    import matplotlib as mpl

    mpl.use("svg")
    # The same bytes whenever the figures are the same.
    mpl.rcParams["svg.hashsalt"] = "tacit"
    import matplotlib.pyplot as plt

    figure, (bits, *errors) = plt.subplots(1, 3, figsize=(12, 3.7), width_ratios=(1.25, 1, 1))
    rows = [row for row in stored["rows"] if "audit" in row]
    draw_bits(bits, stored, rows)
    for axes, arm in zip(errors, DRAWN, strict=True):
        draw_errors(axes, [row for row in rows if row["arm"] == arm], stored["delta"])
    figure.tight_layout()
    figure.savefig(PICTURE, metadata={"Date": None})


def draw_bits(axes: Any, stored: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """Bits per byte of held-out text, with and without privacy, beside the base."""
    arms = list(dict.fromkeys(row["arm"] for row in rows))
    for private, marker in ((True, "o"), (False, "s")):
        found = {row["arm"]: row["bits_per_byte"] for row in rows if (row["epsilon"] is not None) == private}
        label = f"epsilon {rows[0]['epsilon']:g}" if private else "without privacy"
        axes.plot([found[arm] for arm in arms], range(len(arms)), marker, label=label)
    base = next(row["bits_per_byte"] for row in stored["rows"] if row["arm"] == "base")
    axes.axvline(base, color="0.4", linewidth=1, linestyle="--", label="base")
    axes.set_yticks(range(len(arms)), [arm.replace(", ", ",\n") for arm in arms], fontsize="small")
    axes.set(xlabel="bits per byte of held-out text", ylim=(len(arms) - 0.5, -0.5))
    axes.grid(axis="x", linewidth=0.4)
    axes.legend(fontsize="small")


def draw_errors(axes: Any, rows: list[dict[str, Any]], delta: float) -> None:
    """The certified curve of an arm, the line of its measured epsilon, and the guesses with and without privacy."""
    private, other = (next(row["audit"] for row in rows if bool(row["epsilon"]) == wanted) for wanted in (True, False))
    certificate = private["certificate"]
    axes.plot(certificate["alpha"], certificate["beta"], color="black", label=f"certified {private['certified']:.2f}")
    for found, name, color in ((private, "private run", "C0"), (other, "without privacy", "C1")):
        fpr, missed = found["rates"]["fpr"], [1 - rate for rate in found["rates"]["tpr"]]
        axes.plot(fpr, missed, linewidth=1, color=color, label=f"guesses, {name}")
        gain, alpha = math.exp(found["epsilon_lower"]), certificate["alpha"]
        line = [max(0.0, 1 - delta - gain * a, (1 - delta - a) / gain) for a in alpha]
        lower = math.floor(100 * found["epsilon_lower"]) / 100
        axes.plot(alpha, line, linestyle="--", linewidth=1, color=color, label=f"measured {lower:.2f}, {name}")
    axes.set(xlabel="type I error (out, guessed in)", ylabel="type II error", xlim=(0, 1), ylim=(0, 1))
    axes.set_title(rows[0]["arm"], fontsize="medium")
    axes.set_aspect("equal")
    axes.legend(fontsize="xx-small", loc="upper right")
