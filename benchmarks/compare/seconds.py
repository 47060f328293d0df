"""Seconds of one call in each library, taken in turn so that a slow spell of the machine hits all of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from benchmarks.compare import features

ROUNDS = 20
Call = Callable[[], Any]


def step_of(library: str) -> Call:
    """One private step of a network of 55,050 weights on 256 records; noise, clipping and optimizer included."""
    import torch

    torch.manual_seed(0)
    model: Any = torch.nn.Sequential(torch.nn.Linear(64, 400), torch.nn.ReLU(), torch.nn.Linear(400, 73))
    records = torch.randn(256, 64), torch.randint(0, 73, (256,))
    if library == "opacus":
        from benchmarks.compare import opacus_interface
        from opacus import PrivacyEngine

        engine = PrivacyEngine(secure_mode=False)
        model, optimizer, _ = opacus_interface.attached(engine, model, records, batch_size=256, noise_multiplier=1.0)
        return lambda: opacus_interface.private_step(model, optimizer, *records)
    from tacit.training import private_step

    step = private_step(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        lambda outputs, answers: torch.nn.functional.cross_entropy(outputs, answers, reduction="none"),
        clip_norm=1.0,
        noise_multiplier=1.0,
        expected_batch_size=256,
    )
    return lambda: step(*records)


# What is timed -> library -> a function that returns what is called in every round.
SECONDS: dict[str, dict[str, Callable[[], Call]]] = {
    "seconds: epsilon of 1,000 sampled Gaussian steps": {
        "tacit": lambda: features.epsilon_tacit,
        "opacus": lambda: features.epsilon_opacus,
        "dp-accounting": lambda: features.epsilon_dp_accounting,
        "jax-privacy": lambda: features.epsilon_jax_privacy,
        "riskcal": lambda: features.epsilon_riskcal,
    },
    "seconds: a private step, 256 records": {
        "tacit": lambda: step_of("tacit"),
        "opacus": lambda: step_of("opacus"),
    },
    "seconds: a fit of logistic regression, 400 records": {
        "tacit": lambda: features.regression_tacit,
        "diffprivlib": lambda: features.regression_diffprivlib,
    },
}


def measured(calls: dict[str, Call]) -> dict[str, str]:
    """Library -> the least CPU seconds of `ROUNDS` rounds after one that is left out.

    The least is what the call takes when nothing else disturbs it: on a shared machine, medians of one library's step
    differed by a factor of three between runs.
    """
    taken: dict[str, list[float]] = {library: [] for library in calls}
    for number in range(ROUNDS + 1):
        for library, call in calls.items():
            began = time.process_time()
            call()
            if number:
                taken[library].append(time.process_time() - began)
    return {library: f"{min(each):.3g}" for library, each in taken.items()}
