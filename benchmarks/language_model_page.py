"""The tables and the picture of docs/language_models.md, from the results that benchmarks/language_model.py stores."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "language_model.svg"


def show(path: Path) -> None:
    """Print the tables of the page from stored results, and draw its picture."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    print(utility_table(stored), audit_table(stored), sep="\n\n")
    draw(stored)


def utility_table(stored: dict[str, Any]) -> str:
    """Bits for a byte of held-out public text, and the perplexity of a byte, by arm."""
    lines = [
        "| trained | unit | privacy | weights trained | bits per byte | perplexity |",
        "|---|---|---|---:|---:|---:|",
    ]
    for row in stored["rows"]:
        bits, private = row["bits_per_byte"], row.get("epsilon")
        privacy = "" if "unit" not in row else "none" if private is None else f"epsilon {private:g}"
        weights = f"{row['trained_weights']:,}" if "unit" in row else ""
        unit = row.get("unit", "")
        lines.append(f"| {row['arm']} | {unit} | {privacy} | {weights} | {bits:.3f} | {2**bits:.2f} |")
    return "\n".join(lines)


def audit_table(stored: dict[str, Any]) -> str:
    """What the canaries of each arm showed beside what they could show at most and what is certified."""
    lines = ["| trained | privacy | area under ROC | measured | could show | certified | verdict |"]
    lines.append("|---|---|---:|---:|---:|---:|---|")
    for row in stored["rows"]:
        if "audit" in row:
            found, private = row["audit"], row["epsilon"] is not None
            certified = f"{found['certified']:.2f}" if private else f"none; {found['certified']:.2f} put to the test"
            verdict = "refuted" if found["refuted"] else "not refuted"
            lower, ceiling = (math.floor(100 * found[name]) / 100 for name in ("epsilon_lower", "ceiling"))
            privacy = f"epsilon {row['epsilon']:g}" if private else "none"
            numbers = f"{found['area']:.3f} | {lower:.2f} | {ceiling:.2f} | {certified}"
            lines.append(f"| {row['arm']} | {privacy} | {numbers} | {verdict} |")
    return "\n".join(lines)


def draw(stored: dict[str, Any]) -> None:
    """Perplexities beside each other, and the trade-off picture of the canaries of every arm under its certificate."""
    import matplotlib as mpl

    mpl.use("svg")
    # The same bytes whenever the figures are the same.
    mpl.rcParams["svg.hashsalt"] = "tacit"
    import matplotlib.pyplot as plt

    rows = [row for row in stored["rows"] if "audit" in row]
    arms = list(dict.fromkeys(row["arm"] for row in rows))
    figure, (bars, errors) = plt.subplots(1, 2, figsize=(9.5, 3.8), width_ratios=(1, 1))
    base = next(row["bits_per_byte"] for row in stored["rows"] if row["arm"] == "base")
    for shift, private in ((-0.19, True), (0.19, False)):
        heights = [row["bits_per_byte"] for row in rows if (row["epsilon"] is not None) == private]
        label = f"epsilon {rows[0]['epsilon']:g}" if private else "without privacy"
        bars.bar([place + shift for place in range(len(arms))], heights, 0.36, label=label)
    bars.axhline(base, color="0.4", linewidth=1, linestyle="--", label="base")
    bars.set(ylabel="bits per byte of held-out text", ylim=(0.9 * min(r["bits_per_byte"] for r in rows), 1.02 * base))
    bars.set_xticks(range(len(arms)), [arm.replace(", ", ",\n") for arm in arms], fontsize="small")
    bars.legend(fontsize="small")
    certificate = rows[0]["audit"]["certificate"]
    errors.plot(
        certificate["alpha"], certificate["beta"], color="black", label=f"certified, epsilon {rows[0]['epsilon']:g}"
    )
    for row in rows:
        found = row["audit"]["rates"]
        style = {"linestyle": "-" if row["epsilon"] else ":", "color": f"C{arms.index(row['arm'])}"}
        name = f"{row['arm']}, {'private' if row['epsilon'] else 'not private'}"
        errors.plot(found["fpr"], [1 - rate for rate in found["tpr"]], linewidth=1, label=name, **style)
    errors.plot([0, 1], [1, 0], color="0.7", linewidth=0.8)
    errors.set(xlabel="type I error (canaries out, guessed in)", ylabel="type II error", xlim=(0, 1), ylim=(0, 1))
    errors.set_aspect("equal")
    errors.legend(fontsize="x-small", loc="upper right")
    figure.tight_layout()
    figure.savefig(PICTURE, metadata={"Date": None})
