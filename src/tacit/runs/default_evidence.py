"""The evidence of every run by default: canaries in its first steps, in the same process.

They show whether an attack could have refuted the claim, which the scores of records of one model seldom do.
"""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import replace

from tacit.accounting import Ledger
from tacit.accounting.claims import claim_of
from tacit.audit.evidence import CanaryEvidence, canary_power
from tacit.calibration import smallest
from tacit.data import Dataset
from tacit.errors import InvalidInput
from tacit.mechanisms import Gaussian, Mechanism
from tacit.reports.words import duration
from tacit.runs.audited_training import Training, training_of
from tacit.runs.audits import canary_scores
from tacit.runs.config import CANARIES, Config
from tacit.runs.methods.base import Progress
from tacit.runs.privileged_attacks import audit_result
from tacit.tradeoff import Epsilon

_STEPS = 100
"""Steps that are audited: of fewer, the claim is smaller beside what canaries can show."""
_FEWEST = 10
_CANARIES = 2000
_SECONDS = 5.0  # that the steps may take; the rest of ten seconds is for the simulated runs


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
    if config.unsafe_seed is not None:
        return "Canaries audit no seeded run, which is not private."
    if ledger.steps < 2 * _FEWEST:
        return f"Canaries audit runs of {2 * _FEWEST} steps or more by default; tacit audit RUN takes shorter ones."
    if config.section("sampling").type != "poisson":
        return "Canaries audit Poisson batches by default; tacit audit RUN takes more kinds."
    try:
        training = training_of(config, dataset, ledger)
    except InvalidInput as error:
        return str(error)
    whole = claim_of(ledger)
    if whole is None or training.strategy is not None or math.isinf(float(whole.epsilon(config.delta))):
        return "Canaries audit steps with noise of their own and a finite epsilon."
    wanted = min(_STEPS, training.steps // 2)
    steps = min(wanted, int(_SECONDS / max(per_step, 1e-9)))
    if steps < _FEWEST:
        return f"Canaries could not be measured: {wanted} steps with them take about {duration(wanted * per_step)}."
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # The training itself has told them.
            return _found(config, dataset, ledger, replace(training, steps=steps), on_progress)
    except Exception as error:  # Whatever a model makes of canaries, the run that is finished stays.
        return f"Canaries could not be measured: the training with them ended in {type(error).__name__}."


def _found(
    config: Config, dataset: Dataset, ledger: Ledger, training: Training, on_progress: Progress
) -> CanaryEvidence:
    prefix, noise, steps = Ledger(relation=ledger.relation), training.noise_multiplier, training.steps
    prefix.add(_step(noise, training), steps)
    claim, whole = claim_of(prefix), claim_of(ledger)
    assert claim is not None
    assert whole is not None
    epsilon = float(whole.epsilon(config.delta))
    found = canary_scores(config, dataset, training, canaries=_CANARIES, on_progress=on_progress)
    scores = replace(found.scores, attack=f"canaries in {steps} steps")
    on_progress("simulated runs", 0, 1)
    leaky = smallest(
        "noise_multiplier",
        lambda each: _step(each, training) * steps,
        Epsilon(epsilon, config.delta),
        relation=ledger.relation,
    ).value
    power = {
        words: canary_power(
            claim,
            noise_multiplier=noise,
            true_noise=true_noise,
            sample_rate=training.sample_rate,
            steps=steps,
            canaries=_CANARIES,
            delta=config.delta,
            confidence=config.confidence,
        )
        for words, true_noise in (
            ("without noise", 0.0),
            (f"in which these steps alone leak \u03b5 {epsilon:.3g}", leaky),
        )
    }
    on_progress("simulated runs", 1, 1)
    result = audit_result(scores, config, claim, trials="independent")
    own = float(claim.epsilon(config.delta))
    return CanaryEvidence(result, claim, own, steps, ledger.steps, found.monitors, power)


def _step(noise_multiplier: float, training: Training) -> Mechanism:
    base = Gaussian(noise_multiplier)
    return base if training.sample_rate == 1 else base.poisson(training.sample_rate)
