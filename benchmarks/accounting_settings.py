"""One stored list of settings of the exact accountant: width and processor time of epsilon, before and after a change.

python -m benchmarks.accounting_settings --draw            the list itself, drawn once with a fixed seed
python -m benchmarks.accounting_settings --column after    answers every setting and stores the column
python -m benchmarks.accounting_settings                   the table: median, 95 % and largest, before and after

Envelopes, such as the exponential mechanism's, are not in it: their two ends are a theorem apart.
"""

import argparse
import csv
import io
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track

from tacit.accounting.pld.accountant import Pld
from tacit.mechanisms import (
    Compose,
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Laplace,
    Mechanism,
    RandomizedResponse,
)  # fmt: skip
from tacit.relation import Relation
from tacit.serialization import write_text
from tacit.tradeoff import Answer

RESULTS = Path(__file__).parent / "results" / "accounting_settings.csv"
SETTING = ("kind", "noise", "rate", "steps", "delta", "relation")
MEASURED = ("seconds", "lower", "upper")
STEPS = {
    "gaussian": Gaussian, "laplace": Laplace, "discrete_gaussian": DiscreteGaussian,
    "discrete_laplace": lambda noise: DiscreteLaplace(1 / noise),
    "response": lambda noise: RandomizedResponse(1 / noise),
}  # fmt: skip
# Kind, how many settings, and the ranges of noise, rate and steps, each log-uniform.
DRAWN = (
    ("gaussian", 36, (0.4, 10.0), (1e-5, 0.5), (1, 1e6)), ("gaussian", 10, (0.3, 0.8), (1e-6, 1e-3), (10, 1e4)),
    ("gaussian", 10, (0.4, 2.0), (1e-3, 1.0), (1, 4)), ("discrete_gaussian", 10, (0.4, 30.0), (1e-3, 1.0), (1, 1e3)),
    ("laplace", 10, (0.5, 30.0), (1e-3, 1.0), (1, 1e4)), ("discrete_laplace", 6, (0.5, 30.0), (1e-3, 1.0), (1, 1e3)),
    ("response", 4, (0.5, 30.0), (1e-3, 1.0), (1, 1e3)), ("noises", 6, (0.6, 3.0), (1e-3, 0.1), (10, 1e4)),
    ("beside_laplace", 4, (0.6, 3.0), (1e-3, 0.1), (10, 1e4)),
)  # fmt: skip


def draw(seed: int = 2026) -> list[dict[str, str]]:
    """The 96 settings."""
    random = np.random.default_rng(seed)

    def between(low: float, high: float) -> float:
        return float(f"{10 ** random.uniform(np.log10(low), np.log10(high)):.4g}")

    rows = []
    for kind, count, noise, rate, steps in DRAWN:
        for _ in range(count):
            relation = list(Relation)[int(random.integers(2))].value
            values = between(*noise), between(*rate), round(between(*steps)), between(1e-10, 1e-3), relation
            rows.append(dict(zip(SETTING, map(str, (kind, *values)), strict=True)))
    return rows


def mechanism(row: dict[str, str]) -> Mechanism:
    """The composition of one row; `noises` are eight unlike ones, `beside_laplace` has one Laplace count besides."""
    noise, rate, steps = float(row["noise"]), float(row["rate"]), int(row["steps"])
    if row["kind"] == "noises":
        sigmas = np.geomspace(noise, 2 * noise, 8).tolist()
        return Compose.of(*((Gaussian(sigma).poisson(rate), -(-steps // 8)) for sigma in sigmas))
    if row["kind"] == "beside_laplace":
        return Gaussian(noise).poisson(rate) * steps + Laplace(5.0)
    step = STEPS[row["kind"]](noise)
    return (step.poisson(rate) if rate < 1 else step) * steps


def asked(row: dict[str, str]) -> tuple[Answer, float]:
    """Epsilon of one setting, and the processor time of the question."""
    composition, delta = mechanism(row), float(row["delta"])
    start = time.process_time()
    answer = Pld()(composition, relation=Relation(row["relation"])).epsilon(delta)
    return answer, time.process_time() - start


def stored() -> list[dict[str, str]]:
    """The rows of the stored file."""
    return list(csv.DictReader(io.StringIO(RESULTS.read_text(encoding="utf-8"))))


def save(rows: list[dict[str, str]]) -> None:
    """Write all rows, whose columns are those of the first one."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(RESULTS, text.getvalue())


def measure(column: str) -> None:
    """Answer every setting and store its time and bounds under `column`."""
    rows = stored()
    asked(rows[0])  # Imports are not counted.
    for row in track(rows, description=column, console=Console(stderr=True)):
        answer, seconds = asked(row)
        values = f"{seconds:.3f}", repr(answer.lower), repr(answer.upper)
        row |= {f"{column}_{name}": value for name, value in zip(MEASURED, values, strict=True)}
    save(rows)


def summary(column: str) -> str:
    """One line of figures of a column."""
    rows = stored()
    seconds, low, high = (np.array([float(row[f"{column}_{name}"]) for row in rows]) for name in MEASURED)
    widths = np.where(high > 0, (high - low) / np.where(high > 0, high, 1), 0.0)
    times = ", ".join(
        f"{name} {np.quantile(seconds, at):.3f}" for name, at in (("p50", 0.5), ("p95", 0.95), ("max", 1))
    )
    wide = ", ".join(f"wider than {limit:.0e}: {int((widths > limit).sum())}" for limit in (1e-6, 1e-3))
    return f"{column}: processor seconds {times}; width p95 {np.quantile(widths, 0.95):.1e}; {wide} of {len(rows)}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", action="store_true")
    parser.add_argument("--column", choices=["before", "after"])
    arguments = parser.parse_args()
    if arguments.draw:
        save(draw())
    if arguments.column:
        measure(arguments.column)
    for each in ("before", "after"):
        if f"{each}_upper" in stored()[0]:
            print(summary(each))
