"""`tacit audit`: attacks on an earlier run, canaries through its training, and repetitions of it with fresh noise."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from tacit import check
from tacit.accounting import Ledger
from tacit.attacks import ATTACKS, PRIVILEGED_ATTACKS, Model, Scores, overlaps
from tacit.audit import Finding, LikelihoodRatio, Report, audit_normal, audit_one_run_curve, one_run
from tacit.data import Dataset
from tacit.relation import Relation
from tacit.runs.attacks import audit_result, claim_of, scores_of
from tacit.runs.builders import dataset_of, network_of, optimizer_of
from tacit.runs.canaries import CanaryLane
from tacit.runs.config import Config
from tacit.runs.methods import Job, method_of
from tacit.runs.methods.base import Progress
from tacit.runs.privileged_attacks import PrivilegedAttacks, trained_with
from tacit.runs.stored_run import stored_config, stored_ledger, warn_of_origin
from tacit.tradeoff import TradeOff
from tacit.training import fit

WHITE_BOX = "white_box"


def attack_names() -> list[str]:
    """The names that `tacit audit --attack` takes."""
    return [*ATTACKS, *PRIVILEGED_ATTACKS, WHITE_BOX]


def audit_run(
    run: str | os.PathLike[str],
    *,
    data_dir: str | os.PathLike[str] | None = None,
    attacks: Iterable[str] | None = None,
    confidence: float | None = None,
    runs: int = 1,
    shadows: int = 32,
    canaries: int = 2000,
    trust_code: bool = False,
    on_progress: Progress = lambda stage, done, total: None,
) -> Report:
    """Attack the model in the folder of an earlier `train`.

    Args:
        run: the folder. Shadow models and repetitions are kept in `audit/` there; a stopped audit goes on from them.
        data_dir: folder of the original data files.
        attacks: names as in `attack_names`; those of the run's settings by default.
        confidence: of every bound, in (0, 1); that of the run's settings by default.
        runs: how many runs to attack, >= 1: this one, and repetitions of its training with fresh noise.
        shadows: models for the attacks that compare with shadow models, >= 2.
        canaries: of the white-box audit, >= 2, which trains once more with half of them among the records.
        trust_code: run the code that a received run names as its model; its file and hash are shown.
        on_progress: called with (stage, done, total).

    Raises:
        InvalidInput: the folder is not a complete run or its ledger was changed, its model is code that is not trusted,
            or an attack is unknown or does not fit the run.
    """
    folder = Path(run)
    config = stored_config(folder, {"confidence": confidence}, trust_code=trust_code)
    canaries = check.count("canaries", canaries, minimum=2)
    names = list(config.attacks if attacks is None else attacks)
    for name in names:
        check.choice("attack", name, attack_names())
    runs = check.count("runs", runs)
    dataset, ledger = dataset_of(config, data_dir), stored_ledger(folder)
    claim = claim_of(ledger)
    privileged = PrivilegedAttacks(config, dataset, folder, check.count("shadows", shadows, minimum=2), on_progress)
    targets = [(method_of(config).load(Job(config, dataset, ledger, folder)), folder)]
    targets += [_repetition(config, dataset, folder, number, on_progress) for number in range(2, runs + 1)]
    results, findings, shared = [], [], {}
    for done, name in enumerate(names):
        on_progress("attacks", done, len(names))
        if name == WHITE_BOX:
            scores = white_box(config, dataset, folder, canaries=canaries, on_progress=on_progress)
            results.append(audit_result(scores, config, claim, trials="independent"))
            findings += _findings(scores, config, claim)
            continue
        by_run = [_scores(name, privileged, *target) for target in targets]
        results.append(audit_result(by_run[0], config, claim))
        if runs > 1:
            shared[name] = tuple(overlaps(by_run))
    on_progress("attacks", len(names), len(names))
    warn_of_origin(folder)
    return Report(config.delta, tuple(results), tuple(findings), shared, claim)


def white_box(
    config: Config, dataset: Dataset, folder: Path, *, canaries: int, on_progress: Progress = lambda *_: None
) -> Scores:
    """Scores of Dirac canaries after one more training of the run, half of them among the records.

    The run's own settings train it: the same clipping norm, noise, sampling rate and steps, through `fit`.

    Args:
        config: of the run.
        dataset: of the run.
        folder: of the run, whose card tells what it was trained with.
        canaries: how many, >= 2.
        on_progress: called with (stage, done, total).

    Raises:
        InvalidInput: the run is not DP-SGD of a classifier with flat clipping, Poisson batches, constant noise and the
            relation add_remove.
    """
    known = trained_with(config, folder)
    noise, rate, steps = (known.get(name) for name in ("noise_multiplier", "sample_rate", "steps"))
    constant = all(isinstance(value, int | float) for value in (noise, rate, steps))
    standard = (known.get("sampling"), known.get("clipping")) == ("poisson", "flat") and constant
    if config.method != "gradient" or dataset.task == "regression" or not standard:
        hint = "It audits DP-SGD of classifiers, of flat clipping, Poisson batches and constant noise."
        raise check.fail("attack", "another one for this run", WHITE_BOX, hint)
    if config.relation != Relation.ADD_REMOVE:
        raise check.fail("relation", f"add_remove for {WHITE_BOX}", config.relation, "Its canaries come and go.")
    noise, rate = float(known["noise_multiplier"]), float(known["sample_rate"])
    train = partial(
        fit,
        clip_norm=config.clip_norm,
        noise_multiplier=noise,
        sample_rate=rate,
        steps=int(known["steps"]),
        on_step=lambda done, total: on_progress("training with canaries", done, total),
    )
    lane = CanaryLane(
        train,
        lambda: network_of(config, dataset),
        dataset.x_train,
        dataset.y_train,
        classes=len(dataset.classes),
        optimizer=lambda model: optimizer_of(config, model),
        clip_norm=config.clip_norm,
        sample_rate=rate,
        observers=[LikelihoodRatio(noise, rate)],
        width=canaries,
    )
    return one_run(lane, attack=WHITE_BOX, canaries=canaries)


def _scores(name: str, privileged: PrivilegedAttacks, predict: Model, home: Path) -> Scores:
    if name in PRIVILEGED_ATTACKS:
        return privileged(name, predict, home=home)
    return scores_of(name, privileged.dataset, predict)


def _findings(scores: Scores, config: Config, claim: TradeOff | None) -> list[Finding]:
    delta, confidence = config.delta, config.confidence
    return [
        audit_normal(scores, delta=delta, confidence=confidence, claim=claim, relation=config.relation),
        audit_one_run_curve(scores, delta=delta, confidence=confidence, claim=claim),
    ]


def _repetition(
    config: Config, dataset: Dataset, folder: Path, number: int, on_progress: Progress
) -> tuple[Model, Path]:
    """Run `number`: trained as the first was, with fresh noise, or loaded if an earlier audit trained it."""
    home = folder / "audit" / f"run-{number}"
    job = Job(config, dataset, Ledger(relation=config.relation), home, on_progress=on_progress)
    finished = home / "finished"
    if finished.is_file():
        return method_of(config).load(job), home
    home.mkdir(parents=True, exist_ok=True)
    predict = method_of(config).train(job).predict
    job.ledger.save(home / "ledger.json")
    finished.touch()
    return predict, home
