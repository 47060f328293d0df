"""What a fresh environment with the base alone must do: python tests/base_rows.py, from any folder without sources.

200 rows of random DP-SGD settings, each a proven bracket, and the five lines of the README; none of the packages of the
extras may be importable. Printed: seconds, and the size of the environment.
"""

import importlib.util
import random
import sysconfig
import time
from pathlib import Path

import tacit

ROWS = 200
ABSENT = ("torch", "sklearn", "matplotlib", "sqlalchemy", "jinja2", "pandas", "pyarrow", "mpmath")


def main() -> None:
    """Check, and print what it took."""
    there = [name for name in ABSENT if importlib.util.find_spec(name)]
    assert not there, f"{there} can be imported beside the base"
    draws, pld, start = random.Random(38), tacit.accountant("pld"), time.process_time()
    widest = 0.0
    for _ in range(ROWS):
        rate, noise = 10 ** draws.uniform(-4, -0.5), 0.3 + 10 ** draws.uniform(-1, 1)
        steps, delta = int(10 ** draws.uniform(0, 5)), 10 ** draws.uniform(-10, -3)
        answer = pld(tacit.Gaussian(noise).poisson(rate) * steps).epsilon(delta)
        assert 0 <= answer.lower <= answer.upper < float("inf")
        assert answer.standing is tacit.Standing.PROVEN
        widest = max(widest, (answer.upper - answer.lower) / answer.upper if answer.upper > 1e-6 else 0.0)
    seconds = time.process_time() - start
    folder = Path(sysconfig.get_paths()["purelib"])
    size = sum(each.stat().st_size for each in folder.rglob("*") if each.is_file()) / 1e6
    print(f"{ROWS} rows in {seconds:.1f} s of processor time, at most {widest:.1e} wide; environment {size:.0f} MB")


if __name__ == "__main__":
    main()
