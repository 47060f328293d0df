"""False alarms of `tacit audit`: white-box audits of correct runs, none of which may refute the claim.

    python benchmarks/audit_false_alarms.py [--runs 1000] [--out benchmarks/results/audit_false_alarms.json]

Every run trains a small model through the production path with canaries, counts refutations at 99.9 % (`band` and
`one_run_curve`, which share the failure probability as in `tacit audit`) and alarms of both monitors at 1e-6.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from tacit.accounting import accountant
from tacit.audit import LikelihoodRatio, audit_one_run_curve, audit_scores, one_run
from tacit.gradients.inputs import Loss
from tacit.mechanisms import Gaussian
from tacit.models import mlp
from tacit.runs.audits import REFUTED_AT
from tacit.runs.canaries import CanaryLane, LaneMonitors
from tacit.runs.canary_training import Training
from tacit.serialization import write_text
from tacit.training import Functions, fit
from tacit.training.execution_record import ExecutionRecord

NOISE, RATE, CLIP, RECORDS, IDLE, DELTA = 1.1, 0.1, 0.7, 200, 2000, 1e-5
ENGINES = ("eager", "recorded")


def correct_run(number: int, *, steps: int = 20, canaries: int = 300) -> dict[str, bool]:
    """Which tests raise an alarm about correct run `number`; engines and physical batches take turns.

    Args:
        number: of the run.
        steps: of training, >= 1.
        canaries: >= 2.
    """
    claim = accountant("pld")(Gaussian(NOISE).poisson(RATE) * steps)
    monitors = LaneMonitors(Training(NOISE, RATE, steps), CLIP)

    def train(
        model: nn.Module, inputs: tuple[Tensor, Tensor], targets: Tensor, *, loss: Loss, optimizer: Optimizer
    ) -> None:
        fit(
            model,
            inputs,
            targets,
            loss=loss,
            optimizer=optimizer,
            clip_norm=CLIP,
            sampling=monitors.sampling,
            noise_multiplier=NOISE,
            sample_rate=RATE,
            steps=steps,
            engine=ENGINES[number % 2],
            max_physical_batch_size=(None, 16)[number // 2 % 2],
            callbacks=[Functions(on_step=lambda done, total: lane.observe_step())],
        )

    draw = np.random.default_rng(number)
    lane = CanaryLane(
        train,
        lambda: mlp(5, 2, hidden=(4,)),
        draw.normal(size=(RECORDS, 5)).astype(np.float32),
        draw.integers(0, 2, RECORDS),
        classes=2,
        optimizer=lambda model: SGD(model.parameters(), lr=0.1),
        clip_norm=CLIP,
        sample_rate=RATE,
        observers=[LikelihoodRatio(NOISE, RATE)],
        width=canaries,
        idle=IDLE,
        monitors=monitors,
        after_steps=True,
    )
    scores = one_run(lane, attack="white_box", canaries=canaries)
    level = 1 - (1 - REFUTED_AT) / 2
    band = audit_scores(scores, delta=DELTA, trials="independent", confidence=level, claim=claim)
    guesses = audit_one_run_curve(scores, delta=DELTA, confidence=level, claim=claim)
    alarms = {f"{name} monitor": not passed for name, passed in monitors.verdicts().items()}
    return {"band": band.refutes(claim), "one_run_curve": bool(guesses.refuted)} | alarms


def main() -> None:
    """Run, print and keep the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--out", default=str(Path(__file__).parent / "results" / "audit_false_alarms.json"))
    options = parser.parse_args()
    started, counts = time.process_time(), {}
    for number in range(options.runs):
        for name, alarm in correct_run(number).items():
            counts[name] = counts.get(name, 0) + alarm
        if (number + 1) % 50 == 0:
            print(f"{number + 1} runs: {counts}", flush=True)
    found = {
        "runs": options.runs,
        "alarms": counts,
        "refuted_at": REFUTED_AT,
        "cpu_seconds": round(time.process_time() - started),
        "execution": ExecutionRecord.of(mlp(5, 2, hidden=(4,))).table() | {"engine": " and ".join(ENGINES)},
    }
    write_text(options.out, json.dumps(found, indent=1))
    print(json.dumps(found["alarms"]))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
