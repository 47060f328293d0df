"""Time that a filter takes for a stream of small queries, chosen one at a time.

python benchmarks/filters.py
"""

from __future__ import annotations

import time

from tacit.accounting import Filter
from tacit.mechanisms import Gaussian, Laplace, Mechanism
from tacit.tradeoff import Epsilon

KINDS = ("renyi", "gaussian", "zcdp", "pure")
_NUMBERS = (250_000, 500_000, 1_000_000)


def charged(kind: str, queries: int) -> Filter:
    """A filter that admitted so many queries, of two kinds in turns, one call each."""
    first, second = _queries(kind)
    plan = first * queries if kind == "renyi" else None
    spent = Filter(kind, Epsilon(2.0, 0.0 if kind == "pure" else 1e-5), plan=plan)
    for number in range(queries):
        spent.charge(second if number % 100 == 0 else first)
    return spent


def _queries(kind: str) -> tuple[Mechanism, Mechanism]:
    return (Laplace(1e6), Laplace(2e6)) if kind == "pure" else (Gaussian(5000.0), Gaussian(6000.0))


def main() -> None:
    """Print seconds for each kind and number of queries."""
    print("| filter | " + " | ".join(f"{number:,} queries" for number in _NUMBERS) + " |")
    print("|---" * (1 + len(_NUMBERS)) + "|")
    for kind in KINDS:
        seconds = []
        for number in _NUMBERS:
            started = time.perf_counter()
            charged(kind, number)
            seconds.append(f"{time.perf_counter() - started:.2f} s")
        print(f"| {kind} | {' | '.join(seconds)} |", flush=True)


if __name__ == "__main__":
    main()
