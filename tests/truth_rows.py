"""`tacit account` on rows with known exact epsilons: prints each bracket, fails if one is unsound or wider than 1 %."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path


def main(path: str) -> int:
    """Check every row of the truth file; returns the exit code."""
    bad = 0
    for row in json.loads(Path(path).read_text())["rows"]:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as spec:
            json.dump(row["spec"], spec)
            spec.flush()
            question = ["account", spec.name, "--delta", str(row["delta"]), "--accountant", "pld", "--json"]
            done = subprocess.run(["tacit", *question], capture_output=True, text=True, check=True)
        result = json.loads(done.stdout)["results"][0]
        low, high, exact = result["epsilon_lower"], result["epsilon"], row["exact_epsilon"]
        sound = low * (1 - 1e-9) <= exact <= high * (1 + 1e-9) and high - low <= 0.01 * high
        bad += not sound
        print(f"{row['id']:<26} [{low:.8f}, {high:.8f}] exact {exact:.8f} {'ok' if sound else 'UNSOUND'}")
    return bad


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
