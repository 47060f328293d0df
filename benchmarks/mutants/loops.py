"""Wrong training loops and models that mix or keep records, run with this library and with Opacus.

    python -m benchmarks.mutants.loops [START ...]     the table, stored in benchmarks/results/mutants.json;
                                                       others than those that start so keep their stored row
    python -m benchmarks.mutants.loops --opacus NAME   one of them with Opacus, which must be installed

The catalogue is that of the tests (`tests.training.wrong_loops`, `tests.gradients.modules`). A loop is refused
when an error ends it, and kept when it ends with a number; a number may be marked as conditional or claimed. Opacus has
one kind of number. Every loop runs in a process of its own, so that a crash is one more way to end.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch.optim import SGD

ROOT = Path(__file__).parents[2]
SETTINGS = {"clip_norm": 1.0, "noise_multiplier": 1.0, "steps": 30}
# Right by the contract: noise is recorded at its real value, and the unit is one record.
STATED = ("noise_turned_down", "person_repeated_six_times")
# Sound with Opacus, whose contract they keep or which replaces or leaves out what is wrong; not counted there.
SOUND_THERE = (
    "mean_loss",
    "sum_loss",
    "l2_penalty_in_loss",
    "lbfgs_closure",
    "gradscaler",
    "own_sampler",
    "unfreeze_after",
    "skip_batch_of_high_loss",
)


MARKED = ("conditional", "claimed")


def catalogue() -> tuple[dict[str, Any], dict[str, Any]]:
    """Wrong loops, with wrong models in the ordinary loop among them, and correct loops."""
    from tests.gradients.modules import WRONG as MODELS
    from tests.training.wrong_loops import CORRECT, WRONG, Case, correct

    models = {f"model: {name}": Case(correct, model=model) for name, model in MODELS.items()}
    return {name: case for name, case in WRONG.items() if name not in STATED} | models, CORRECT


def with_tacit(case: Any) -> str:
    """Standing of the number that the loop ends with, or the error that ends it."""
    from tests.training.wrong_loops import LR, records

    from tacit.training import make_private

    x, y = records()
    model = case.model()
    optimizer = SGD([p for p in model.parameters() if p.requires_grad], lr=LR)
    private = make_private(model, optimizer, case.loader(x, y), **SETTINGS)
    case.loop(private, x, y)
    return private.ledger.standing.value


def with_opacus(case: Any) -> str:
    """The same with `opacus.PrivacyEngine`, whose losses must be numbers: a vector of losses becomes its mean."""
    from tests.training.wrong_loops import LR, records

    from opacus import PrivacyEngine

    backward = torch.Tensor.backward
    torch.Tensor.backward = lambda self, *a, **k: backward(self.mean() if self.dim() else self, *a, **k)
    x, y = records()
    model = case.model()
    engine = PrivacyEngine()
    optimizer = SGD([p for p in model.parameters() if p.requires_grad], lr=LR)
    given = {"noise_multiplier": 1.0, "max_grad_norm": 1.0}
    module, optimizer, loader = engine.make_private(
        module=model, optimizer=optimizer, data_loader=case.loader(x, y), **given
    )
    # The loops name the parts by this library's names.
    object.__setattr__(module, "module", module._module)
    optimizer.original = optimizer.original_optimizer
    case.loop(SimpleNamespace(model=module, optimizer=optimizer, loader=loader), x, y)
    return "kept" if engine.accountant.history else "kept, no step recorded"


def outcome(name: str, library: str) -> str:
    """How the loop `name` ends, in a process of its own."""
    arguments = [sys.executable, "-m", "benchmarks.mutants.loops", f"--{library}", name]
    done = subprocess.run(arguments, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=600)
    if done.returncode:
        return f"crash: exit code {done.returncode}"
    return done.stdout.strip().splitlines()[-1]


def report(name: str, library: str) -> str:
    """How the loop `name` ends, in this process."""
    wrong, correct = catalogue()
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    try:
        return (with_tacit if library == "tacit" else with_opacus)((wrong | correct)[name])
    except Exception as error:
        # Any error refuses; which one is told beside it.
        return f"refused: {type(error).__name__}: {str(error)[:120]}".replace("\n", " ")


def main() -> None:
    """One loop, or all of them by both libraries, stored."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants.loops")
    parser.add_argument("starts", nargs="*", metavar="START", help="of the names that run; all, if none is given")
    parser.add_argument("--tacit", metavar="NAME")
    parser.add_argument("--opacus", metavar="NAME")
    given = parser.parse_args()
    if name := given.tacit or given.opacus:
        print(report(name, "tacit" if given.tacit else "opacus"))
        return
    if importlib.util.find_spec("opacus") is None:
        parser.error("Opacus is not installed, and a missing library refuses nothing; pip install opacus")
    from benchmarks.mutants.__main__ import RESULTS, locked, stored
    from tacit.serialization import write_text

    wrong, correct = catalogue()
    kept = {row["name"]: row for row in stored().get("loops", [])}
    rows = []
    for name in (*wrong, *correct):
        if given.starts and not name.startswith(tuple(given.starts)) and name in kept:
            rows.append(kept[name])
            continue
        rows.append({"name": name, "wrong": name in wrong} | {lib: outcome(name, lib) for lib in ("tacit", "opacus")})
        print(" | ".join(map(str, rows[-1].values())), flush=True)
    with locked():
        write_text(RESULTS, json.dumps(stored() | {"loops": rows}, indent=1) + "\n")
    print(table(rows))


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Totals by library as a Markdown table."""
    lines = ["| loops | library | refused | marked | kept |", "|---|---|---|---|---|"]
    for wrong, kind in ((True, "wrong"), (False, "correct")):
        for library in ("tacit", "opacus"):
            chosen = [row for row in rows if row["wrong"] is wrong]
            if library == "opacus":
                chosen = [row for row in chosen if row["name"] not in SOUND_THERE]
            ends = [row[library] for row in chosen]
            refused, marked = (sum(end.startswith(start) for end in ends) for start in (("refused", "crash"), MARKED))
            counts = f"{refused} | {marked} | {len(ends) - refused - marked}"
            lines.append(f"| {len(ends)} {kind} | {library} | {counts} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
