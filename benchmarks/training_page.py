"""Table and picture of the stored training benchmark: python benchmarks/training_page.py

Writes docs/pictures/speed.svg and prints the tables of docs/speed.md, from benchmarks/results/training.json,
training_memory.json, training_cuda.json, training_phases.json and training_floors.json.
"""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PICTURE = ROOT / "docs" / "pictures" / "speed.svg"
OURS = ("eager", "recorded", "compiled")
NUMPY = "no compiler"
"""The recorded engine with noise by numpy, as where `tacit-noise` is not installed."""
CLOCK = ("recorded",)
PEERS = ("opacus hooks", "opacus ghost")
SHOWN = ("adult", "mlp784", "mnist", "imdb", "llama", "unet")
"""Models of the tables of parts; the others stand in the results."""


def rows(stored: str = "training.json") -> list[dict]:
    """The stored rows."""
    return json.loads((RESULTS / stored).read_text())["rows"]


def table() -> str:
    """One line for each model: processor time of all threads and time by the clock, as ratios to the plain step.

    A peer that takes less than each of ours is bold.
    """
    columns = [*OURS, NUMPY, *PEERS, *(f"{way}, clock" for way in CLOCK)]
    lines = [f"| model (batch) | plain, ms | {' | '.join(columns)} |"]
    lines.append(f"|---|---:|{'---:|' * len(columns)}")
    for row in rows():
        found = row["processor_time"]
        least = min(found[way] for way in OURS if way in found)
        cells = [f"{row['model']} ({row['batch']})", f"{row['plain_ms']:.2f}"]
        cells += [f"{found[way]:.2f}" if way in found else "-" for way in (*OURS, NUMPY)]
        for way in PEERS:
            ratio = f"{found[way]:.2f}" if way in found else "-"
            cells.append(f"**{ratio}**" if found.get(way, least) < least else ratio)
        cells += [f"{row['time'][way]:.2f}" if way in row["time"] else "-" for way in CLOCK]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def on_device() -> str:
    """One line for each model measured on a GPU: ratios by the clock, and memory of the step."""
    ways = ("eager", "recorded", "opacus hooks", "opacus ghost")
    kept = ("eager", "recorded", "opacus ghost")
    lines = [f"| model (batch) | plain, ms | {' | '.join(ways)} | memory: {' | '.join(kept)} |"]
    lines.append(f"|---|---:|{'---:|' * (len(ways) + len(kept))}")
    for row in rows("training_cuda.json"):
        cells = [f"{row['model']} ({row['batch']})", f"{row['plain_ms']:.2f}"]
        cells += [f"{row['time'][way]:.2f}" if way in row["time"] else "-" for way in ways]
        cells += [f"{row['memory'][way]:.1f}" if way in row["memory"] else "-" for way in kept]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def memory() -> str:
    """One line for each model measured in quarters: MB of the plain step, ratios to it, time of a step in quarters."""
    ways = ("eager", "eager quarters", "recorded", "opacus hooks", "opacus ghost")
    lines = [f"| model (batch) | plain, MB | {' | '.join(ways)} | quarters, time |"]
    lines.append(f"|---|---:|{'---:|' * len(ways)}---:|")
    for row in rows("training_memory.json"):
        ratios = " | ".join(f"{row['memory'][way]:.1f}" if way in row["memory"] else "-" for way in ways)
        name, base = f"{row['model']} ({row['batch']})", row["megabytes"]["plain"]
        time = f"{row['time']['eager quarters']:.2f}"
        lines.append(f"| {name} | {base:.1f} | {ratios} | {time} |")
    return "\n".join(lines)


def phases() -> str:
    """One line for each phase of the eager step, one column for each model: shares of the plain step."""
    every = json.loads((RESULTS / "training_phases.json").read_text())["shares_of_plain"]
    found = {name: every[name] for name in SHOWN if name in every}
    names = [phase for phase in next(iter(found.values())) if phase != "batch"]
    lines = [f"| phase | {' | '.join(found)} |", f"|---|{'---:|' * len(found)}"]
    lines += [f"| {name} | {' | '.join(f'{row[name]:.2f}' for row in found.values())} |" for name in names]
    return "\n".join(lines)


def floors() -> str:
    """One line for each model: parts of the least private step as shares of the plain one, and what was measured."""
    found = json.loads((RESULTS / "training_floors.json").read_text())["shares_of_plain"]
    times = {row["model"]: row["time"] for row in rows()}
    names = [part for part in next(iter(found.values())) if part not in ("plain step", "floor")]
    lines = [f"| model | {' | '.join(names)} | floor | eager | fastest |"]
    lines.append(f"|---|{'---:|' * (len(names) + 3)}")
    for model, shares in ((name, found[name]) for name in SHOWN):
        ours = [time for way, time in times[model].items() if way in ("eager", "recorded", "compiled")]
        least = [shares["floor"], times[model]["eager"], min(ours)]
        values = [*(shares[name] for name in names), *least]
        lines.append(f"| {model} | {' | '.join(f'{value:.2f}' for value in values)} |")
    return "\n".join(lines)


def draw() -> None:
    """One bar for each way and model, on a logarithmic axis."""
    import matplotlib as mpl

    mpl.use("svg")
    # The same bytes whenever the figures are the same.
    mpl.rcParams["svg.hashsalt"] = "tacit"
    import matplotlib.pyplot as plt

    shown = {"eager": "eager", "recorded": "recorded", "opacus hooks": "Opacus, hooks", "opacus ghost": "Opacus, ghost"}
    found = rows()
    figure, axes = plt.subplots(figsize=(8, 0.55 * len(found) + 1.2))
    for place, (way, label) in enumerate(shown.items()):
        having = [(at, row["processor_time"][way]) for at, row in enumerate(found) if way in row["processor_time"]]
        axes.barh([at + 0.2 * (place - 1.5) for at, _ in having], [value for _, value in having], 0.18, label=label)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yticks(range(len(found)), [row["model"] for row in found])
    axes.invert_yaxis()
    axes.set_xlabel("processor time of a step / that of a plain step of PyTorch")
    axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    draw()
    print(table())
    print()
    print(phases())
    print()
    print(floors())
    print()
    print(memory())
    print()
    print(on_device())
