"""Table of raw models under `make_private`: python -m benchmarks.architectures [part of a name ...].

Every row is one architecture of `tests/architectures/zoo.py` with random weights: the error of one clipped sum against
a float64 loop over its records, relative to the longest there can be; private steps with noise; how many on empty
batches; and whether the engine captured all operations.
"""

from __future__ import annotations

import sys

from tests.architectures.compare import compare
from tests.architectures.zoo import ARCHITECTURES, define_torchvision_operators, installed


def main(parts: list[str]) -> None:
    """Print the table of the architectures whose name holds one of `parts`."""
    define_torchvision_operators()
    print("| model | library | error | steps (empty) | engine |\n|---|---|---|---|---|")
    for one in ARCHITECTURES:
        if not installed(one.library) or (parts and not any(part in one.name for part in parts)):
            continue
        row = compare(one)
        engine = "captured" if row.engine == "captured" else "slower method for a part"
        told = row.refused or f"{row.error:.0e} | {row.steps} ({row.empty}) | {engine}"
        print(f"| {row.name} | {row.library} | {told} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
