"""Latency of the workbench's calculator: a person moves one setting at a time, and waits for each answer.

    python -m benchmarks.calculator_latency [--moves 200]

Every move is one request through the whole application: form, accountants, picture, page. Settings walk at random by
steps of 1 % to 20 %, so no answer repeats. The distribution is kept in benchmarks/results/calculator_latency.json.
"""

import argparse
import json
import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from starlette.testclient import TestClient

from tacit.workbench import application
from tacit.workbench.calculator import SAMPLERS, SOLVED

RESULTS = Path(__file__).parent / "results" / "calculator_latency.json"
LIMIT = 100.0  # milliseconds
BOUNDS = {
    "noise_multiplier": (0.7, 8.0),
    "epochs": (2.0, 60.0),
    "epsilon": (0.5, 9.0),
    "batch_size": (50, 1000),
    "delta": (1e-8, 1e-5),
}


def moved(form, draw):
    """The form after one move of one setting, and what moved."""
    name = str(draw.choice([each for each in BOUNDS if each != form["solve"]]))
    factor = 1 + draw.choice([-1, 1]) * draw.uniform(0.01, 0.2)
    value = float(np.clip(float(form[name]) * factor, *BOUNDS[name]))
    return form | {name: str(round(value)) if name == "batch_size" else f"{value:.6g}"}


def waits(solve, sampler, moves, seed):
    """Milliseconds of each of so many moves, by the clock and by the processor."""
    draw = np.random.default_rng(seed)
    form = {"records": "20000", "batch_size": "200", "delta": "1e-6", "epochs": "10", "noise_multiplier": "1.2"}
    if sampler == "shuffled":
        form["noise_multiplier"] = "6"
    form |= {"epsilon": "4", "solve": solve, "sampler": sampler}
    by_clock, by_processor = [], []
    with TemporaryDirectory() as folder:
        client = TestClient(application(Path(folder), token="t", port=8765), base_url="http://127.0.0.1:8765")
        for move in range(moves + 1):
            start, busy = time.perf_counter(), time.process_time()
            reply = client.get("/calculator/answer", params=form | {"token": "t"})
            assert reply.status_code == 200
            # The first request loads modules and templates; a refusal takes no time.
            if move and 'role="alert"' not in reply.text:
                by_clock.append(1e3 * (time.perf_counter() - start))
                by_processor.append(1e3 * (time.process_time() - busy))
            form = moved(form, draw)
    return np.array(by_clock), np.array(by_processor)


def told(values):
    """Quantiles of milliseconds, and the share within the limit."""
    names = {"median": 50, "p90": 90, "p99": 99, "most": 100}
    return (
        {"moves": len(values)}
        | {name: round(float(np.percentile(values, at)), 1) for name, at in names.items()}
        | {"within_100_ms": round(float(np.mean(values <= LIMIT)), 3)}
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--moves", type=int, default=200)
    moves = parser.parse_args().moves
    rows = []
    for seed, (sampler, solve) in enumerate((sampler, solve) for sampler in SAMPLERS for solve in SOLVED):
        clock, processor = waits(solve, sampler, moves, seed)
        rows.append({"sampler": sampler, "finds": solve, "clock_ms": told(clock), "processor_ms": told(processor)})
        print(f"{sampler:9s} {solve:17s} clock {rows[-1]['clock_ms']}")
        print(f"{'':27s} processor {rows[-1]['processor_ms']}")
    load = [round(each, 2) for each in os.getloadavg()]
    RESULTS.write_text(
        json.dumps({"moves": moves, "cores": os.cpu_count(), "load": load, "rows": rows}, indent=1) + "\n"
    )
    print(f"{os.cpu_count()} cores, load {load[0]}")


if __name__ == "__main__":
    main()
