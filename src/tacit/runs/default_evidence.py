"""The evidence of every run by default: canaries in its first steps, in the same process.

They show whether an attack could have refuted the claim, which the scores of records of one model seldom do.
"""

import math
import time
import warnings
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from tacit.accounting import Ledger
from tacit.accounting.claims import claim_of
from tacit.audit.evidence import SIMULATED, CanaryEvidence, canary_power
from tacit.calibration import smallest
from tacit.data import Dataset
from tacit.errors import InvalidInput
from tacit.mechanisms import Gaussian, Mechanism, Poisson, RandomAllocation
from tacit.reports import coarse_seconds
from tacit.reports.words import duration
from tacit.runs.audits import attack_model, audit_result, canary_scores
from tacit.runs.canary_training import Training, training_of
from tacit.runs.config import CANARIES, Config
from tacit.runs.methods.base import Job, Method, Predict, Progress
from tacit.tradeoff import Epsilon
from tacit.training.ranks import world_size

_STEPS = 100
"""Steps that are audited: of fewer, the claim is smaller beside what canaries can show."""
_FEWEST = 10
_CANARIES = 2000
_SECONDS = 5.0  # that the steps may take; the rest of ten seconds is for the simulated runs
_SIMULATION_SECONDS = 4.0
_FEWEST_SIMULATED = 4
_COPY_SECONDS = 20.0  # that one more training may take
_LOOSER = 10  # times epsilon, of a broken copy that attacks on records are measured on


class StepClock:
    """Passes progress on and measures how long the steps of private training take, without what goes before them.

    Args:
        on_progress: called with (stage, done, total).
    """

    def __init__(self, on_progress: Progress):
        self._on_progress = on_progress
        self._first: tuple[int, float] | None = None
        self.per_step = 0.0

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Pass on one call of a method."""
        now = time.perf_counter()
        if stage == "private training":
            first, began = self._first = self._first or (done, now)
            self.per_step = (now - began) / max(done - first, 1)
        self._on_progress(stage, done, total)


def canary_evidence(
    config: Config, dataset: Dataset, ledger: Ledger, per_step: float, on_progress: Progress
) -> CanaryEvidence | str:
    """What canaries found; a sentence instead where there are none, and "" where none were asked for.

    Args:
        config: of the run.
        dataset: of the run.
        ledger: of the run, finished.
        per_step: seconds that a step of the run took.
        on_progress: called with (stage, done, total).
    """
    if CANARIES not in config.attacks:
        return ""
    if ledger.steps < 2 * _FEWEST:
        return f"Canaries audit runs of {2 * _FEWEST} steps or more by default; tacit audit RUN takes shorter ones."
    try:
        training = training_of(config, dataset, ledger)
    except InvalidInput as error:
        return str(error)
    whole = claim_of(ledger)
    if whole is None or math.isinf(float(whole.epsilon(config.delta))):
        return "Canaries audit steps with a finite epsilon."
    affordable = int(_SECONDS / max(per_step, 1e-9))
    audited = training.audited(max(affordable, _FEWEST), _STEPS)
    if audited.steps > affordable:
        took = duration(audited.steps * per_step)
        return f"Canaries could not be measured: {audited.steps:,} steps with them take about {took}."
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # The training itself has told them.
            return _found(config, dataset, ledger, audited, on_progress)
    except Exception as error:  # Whatever a model makes of canaries, the run that is finished stays.
        return f"Canaries could not be measured: the training with them ended in {type(error).__name__}."


def _found(
    config: Config, dataset: Dataset, ledger: Ledger, training: Training, on_progress: Progress
) -> CanaryEvidence:
    began, steps = time.perf_counter(), training.steps
    prefix = Ledger(relation=ledger.relation)
    prefix.add(ledger.entries[0].mechanism, steps)
    claim = claim_of(ledger if steps == ledger.steps else prefix)
    assert claim is not None
    found = canary_scores(config, dataset, training, canaries=_CANARIES, on_progress=on_progress)
    scores = replace(found.scores, attack=f"canaries in {steps} steps")
    on_progress("simulated runs", 0, 1)
    copies = {"without noise": 0.0} | dict([_leaky(config, ledger, training)])
    runs = _simulated_runs(training, len(copies))
    bounds = {"canaries": _CANARIES, "confidence": config.confidence, "runs": runs}
    power = {
        words: canary_power(claim, partial(training.simulated, true_noise=noise), **bounds)
        for words, noise in copies.items()
    }
    on_progress("simulated runs", 1, 1)
    result = audit_result(scores, config, claim, trials="independent")
    took = coarse_seconds(time.perf_counter() - began)
    seeded = config.unsafe_seed is not None
    own = float(claim.epsilon(config.delta))
    return CanaryEvidence(result, claim, own, steps, ledger.steps, found.monitors, power, runs, took, seeded)


def _simulated_runs(training: Training, copies: int) -> int:
    """How many runs of each broken copy the time allows, by that of one."""
    began = time.perf_counter()
    training.simulated(np.zeros(_CANARIES, dtype=bool), 0, true_noise=1.0)
    each = max(time.perf_counter() - began, 1e-9)
    return min(SIMULATED, max(_FEWEST_SIMULATED, int(_SIMULATION_SECONDS / (copies * each))))


def _leaky(config: Config, ledger: Ledger, training: Training) -> tuple[str, float]:
    """A broken copy in words, and its noise: its steps alone leak what is claimed of the run, or it has half of it."""
    if training.steps == ledger.steps:
        return "with half of the noise", training.noise_multiplier / 2
    whole = claim_of(ledger)
    assert whole is not None
    epsilon, step = float(whole.epsilon(config.delta)), ledger.entries[0].mechanism

    def steps_with(noise: float) -> Mechanism:
        base = Gaussian(noise)
        return (replace(step, base=base) if isinstance(step, Poisson | RandomAllocation) else base) * training.steps

    target = Epsilon(epsilon, config.delta)
    noise = smallest("noise_multiplier", steps_with, target, relation=ledger.relation).value
    return f"in which these steps alone leak \u03b5 {epsilon:.3g}", noise


def record_power(
    job: Job, method: Method, epsilon: float, nonprivate: Predict | None, seconds: float
) -> dict[str, dict[str, float]]:
    """Attack -> broken copy in words -> the epsilon that the attack on records finds in the copy.

    The copies are the same training without clipping and noise, where the run has it anyway, and with the noise of
    `_LOOSER` times epsilon, where test records are public and one more training is quick.

    Args:
        job: of the run.
        method: that trained.
        epsilon: that is claimed of the run.
        nonprivate: predictions of the same training without privacy, where it was made.
        seconds: that the training took.
    """
    copies = [] if nonprivate is None else [("without clipping and noise", nonprivate)]
    quick = seconds <= _COPY_SECONDS and world_size() == 1 and math.isfinite(epsilon) and epsilon > 0
    if quick and job.measures_test and set(job.config.attacks) - {CANARIES}:
        with suppress(Exception):  # Whatever a copy ends in, the run that is finished stays.
            copies.append((f"with the noise of \u03b5 {_LOOSER * epsilon:.3g}", _copy(job, method, _LOOSER * epsilon)))
    found: dict[str, dict[str, float]] = {}
    for words, predict in copies:
        for result in attack_model(job.config, job.dataset, predict, None):
            found.setdefault(result.attack, {})[words] = result.epsilon_lower
    return found


def _copy(job: Job, method: Method, epsilon: float) -> Predict:
    """The same training at another epsilon; nothing of it is kept."""
    config = replace(job.config, epsilon=epsilon, noise_multiplier=None)
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = {"ledger": Ledger(relation=job.config.relation), "checkpoints": False, "measures_test": False}
        return method.train(Job(config, job.dataset, folder=Path(folder), data_dir=job.data_dir, **given)).predict
