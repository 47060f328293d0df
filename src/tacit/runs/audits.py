"""`tacit audit`: attacks on an earlier run, canaries through its training, and repetitions of it with fresh noise.

The white-box audit: canaries through one more training of the run, by its execution record and its ledger.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from tacit import attacks, check
from tacit.accounting import Ledger
from tacit.accounting.claims import claim_of
from tacit.attacks import ATTACKS, PRIVILEGED_ATTACKS, Model, Scores, overlaps
from tacit.audit import AuditResult, Finding, Report, audit_one_run_curve, audit_scores, one_run
from tacit.audit.run import REFUTED_AT
from tacit.data import Dataset
from tacit.errors import InvalidInput
from tacit.gradients.inputs import Loss
from tacit.gradients.rounding import single_slack, slack
from tacit.runs.builders import dataset_of, differences, featured, network_of, no_progress, optimizer_of, scheduler_of
from tacit.runs.canaries import CanaryLane, LaneMonitors
from tacit.runs.canary_training import Training, check_settings, training_of
from tacit.runs.config import CANARIES, Config
from tacit.runs.held_out import trained_on
from tacit.runs.methods import Job, method_of
from tacit.runs.methods.base import Predict, Progress
from tacit.runs.open_run import OpenedRun, open_run
from tacit.runs.privileged_attacks import PrivilegedAttacks, needs_classes
from tacit.runs.run_budget import note_audit
from tacit.runs.settings import Folder
from tacit.tradeoff import TradeOff
from tacit.training import Functions, fit
from tacit.training.execution_record import ExecutionRecord, with_threads
from tacit.training.release import Correlation
from tacit.training.release_statistics import collected_refusals

WHITE_BOX = "white_box"
_VALUES = 200_000  # of noise that the monitor should see: an error of its size of .8 % is then an alarm


def attack_names() -> list[str]:
    """The names that `tacit audit --attack` takes."""
    return [*ATTACKS, *PRIVILEGED_ATTACKS, WHITE_BOX]


def audit_run(
    run: Folder,
    *,
    data_dir: Folder | None = None,
    attacks: Iterable[str] | None = None,
    confidence: float | None = None,
    runs: int = 1,
    shadows: int = 32,
    canaries: int = 2000,
    trust_code: bool = False,
    on_progress: Progress = no_progress,
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
    opened = open_run(run)
    folder, config = opened.folder, opened.config({"confidence": confidence}, trust_code=trust_code)
    canaries = check.count("canaries", canaries, minimum=2)
    for name in () if attacks is None else (attacks := list(attacks)):
        check.choice("attack", name, attack_names())
    runs = check.count("runs", runs)
    dataset, ledger = trained_on(config, featured(config, dataset_of(config, data_dir), folder), folder), opened.ledger
    claim = claim_of(ledger)
    training, why_not = _repeatable(config, dataset, opened)
    if attacks is None:
        attacks = [*(() if why_not else (WHITE_BOX,)), *(name for name in config.attacks if name != CANARIES)]
    privileged = PrivilegedAttacks(config, dataset, folder, check.count("shadows", shadows, minimum=2), on_progress)
    targets = [(method_of(config).load(Job(config, dataset, ledger, folder)), folder)]
    results, shared, findings = [], {}, list[Finding]()
    scored: dict[str, Scores] = {}
    repeated: WhiteBox | None = None
    names = list(dict.fromkeys(attacks))
    with collected_refusals() as refusals:
        targets += [_repetition(config, dataset, folder, number, on_progress) for number in range(2, runs + 1)]
        for done, name in enumerate(names):
            on_progress("attacks", done, len(names))
            if name == WHITE_BOX:
                if training is None:
                    raise InvalidInput(why_not)
                known = opened.execution[-1] if opened.execution else None
                repeated = canary_scores(config, dataset, training, known, canaries=canaries, on_progress=on_progress)
                scored[name] = repeated.scores
                results.append(audit_result(repeated.scores, config, claim, trials="independent"))
                given = {"delta": config.delta, "confidence": config.confidence, "claim": claim}
                findings = [audit_one_run_curve(repeated.scores, **given)]
                continue
            by_run = [_scores(name, privileged, *target) for target in targets]
            scored[name] = by_run[0]
            results.append(audit_result(by_run[0], config, claim))
            if runs > 1:
                shared[name] = tuple(overlaps(by_run))
    on_progress("attacks", len(names), len(names))
    opened.warn()
    note_audit(folder)
    report = Report(
        config.delta,
        tuple(results),
        tuple(findings),
        shared,
        claim,
        differences=(why_not or "the run was not repeated: attack white_box was not asked for",),
        refuted_by=_refuting(scored, config, claim),
        refusals=tuple(refusals),
    )
    if repeated is None:
        return report
    unlike = differences(opened.execution, repeated.execution)
    return replace(report, monitors=repeated.monitors, differences=unlike, audited_steps=ledger.steps)


def _repeatable(config: Config, dataset: Dataset, run: OpenedRun) -> tuple[Training | None, str]:
    """What a canary run repeats, or why white-box audits do not take the run.

    Raises `InvalidInput` where its settings contradict its ledger.
    """
    try:
        training = training_of(config, dataset, run.ledger)
    except InvalidInput as error:
        return None, str(error)
    check_settings(config, dataset, run.own_card, training)
    return training, ""


def _refuting(scored: Mapping[str, Scores], config: Config, claim: TradeOff | None) -> tuple[str, ...]:
    """The attacks that refute the claim at `REFUTED_AT`, which all tests share evenly.

    `band` counts errors and `one_run_curve` counts right guesses.
    """
    if claim is None:
        return ()
    level = 1 - (1 - REFUTED_AT) / max(1, len(scored) + (WHITE_BOX in scored))
    found, strict = [], replace(config, confidence=level)
    for name, scores in scored.items():
        trials = "independent" if name == WHITE_BOX else "records"
        refuted = audit_result(scores, strict, claim, trials=trials).refutes(claim)
        if name == WHITE_BOX and not refuted:
            refuted = audit_one_run_curve(scores, delta=config.delta, confidence=level, claim=claim).refuted
        found += [name] if refuted else []
    return tuple(found)


def _scores(name: str, privileged: PrivilegedAttacks, predict: Model, home: Path) -> Scores:
    if name in PRIVILEGED_ATTACKS:
        return privileged(name, predict, home=home)
    return scores_of(name, privileged.dataset, predict)


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


@dataclass(frozen=True)
class WhiteBox:
    """Result of the canary run.

    Attributes:
        scores: of the canaries, independent trials.
        monitors: whether the monitor of that name passed.
        execution: by what the canary run was computed.
    """

    scores: Scores
    monitors: dict[str, bool]
    execution: ExecutionRecord


def canary_scores(
    config: Config,
    dataset: Dataset,
    training: Training,
    known: ExecutionRecord | None = None,
    *,
    canaries: int,
    on_progress: Progress,
) -> WhiteBox:
    """One training with half of the canaries among the records, and the score of each.

    Mechanisms are those of the ledger; engine, precision, physical batch size, schedule and threads are those of the
    run's execution record, or of its settings where there is none.

    Args:
        config: of the run.
        dataset: of the run.
        training: what is repeated.
        known: by what it is computed; the settings of `config` by default.
        canaries: how many, >= 2.
        on_progress: called with (stage, done, total).
    """
    known = known or ExecutionRecord.of(nn.Module(), **config.execution)
    monitors = LaneMonitors(training, config.clip_norm)
    computed: list[ExecutionRecord | None] = []

    def after_step(done: int, total: int) -> None:
        lane.observe_step()
        on_progress("training with canaries", done, total)

    def train(
        model: nn.Module, inputs: tuple[Tensor, Tensor], targets: Tensor, *, loss: Loss, optimizer: Optimizer
    ) -> None:
        # The number of parameters changes it by 1e-6: 16 stands for that of the lane and its body.
        monitors.slack = slack(torch.float32, 16, single_slack(training.sample_rate * len(targets)))
        if training.strategy is not None:
            monitors.slack = Correlation(training.strategy).slack(monitors.slack)
        fitted = fit(
            model,
            inputs,
            targets,
            loss=loss,
            optimizer=optimizer,
            clip_norm=config.clip_norm,
            sampling=monitors.sampling,
            scheduler=scheduler_of(config, optimizer, training.steps),
            scheduler_per="step",
            callbacks=[Functions(on_step=after_step)],
            **{name: getattr(training, name) for name in ("noise", "noise_multiplier", "sample_rate", "steps")},
            **{name: getattr(known, name) for name in config.execution},
        )
        computed.append(fitted.execution)

    lane = CanaryLane(
        train,
        lambda: network_of(config, dataset),
        dataset.x_train,
        dataset.y_train,
        classes=len(dataset.classes),
        optimizer=lambda model: optimizer_of(config, model),
        clip_norm=config.clip_norm,
        sample_rate=training.sample_rate,
        observers=[training.observer(lambda: _groups(lane, monitors, training))],
        width=canaries,
        idle=_idle(network_of(config, dataset), canaries, training.steps),
        monitors=monitors,
        after_steps=True,
    )
    with with_threads(known.threads):
        scores = one_run(lane, attack=WHITE_BOX, canaries=canaries)
    assert computed[-1] is not None
    return WhiteBox(scores, monitors.verdicts(), computed[-1])


def _groups(lane: CanaryLane, monitors: LaneMonitors, training: Training) -> np.ndarray:
    """The group of every canary: of those that took part, theirs; of the others, a random one."""
    assert training.mechanism is not None
    assert monitors.group_of is not None
    groups = int(monitors.group_of.max()) + 1
    found = np.random.default_rng().integers(groups, size=lane.width)
    found[lane.chosen] = monitors.group_of[len(monitors.group_of) - len(lane.chosen) :]
    return found


def _idle(body: nn.Module, canaries: int, steps: int) -> int:
    """Coordinates of the lane besides the canaries: for enough values, and for noise of the body to recur in it."""
    size = sum(parameter.numel() for parameter in body.parameters() if parameter.requires_grad)
    return max(0, max(-(-_VALUES // steps), size + 1) - canaries)


def attack_model(
    config: Config, dataset: Dataset, predict: Predict, claim: TradeOff | None, on_progress: Progress = no_progress
) -> tuple[AuditResult, ...]:
    """Every attack of `config` on records: training records are the members, held-out records the non-members.

    Args:
        config: names the attacks, delta, relation and confidence.
        dataset: its training records are the members.
        predict: inputs -> class probabilities.
        claim: trade-off function that the ledger proves; None without one.
        on_progress: called with (stage, done, total).
    """
    results, names = [], [name for name in config.attacks if name != CANARIES]
    for done, name in enumerate(names):
        on_progress("attacks", done, len(names))
        results.append(audit_result(scores_of(name, dataset, predict), config, claim))
        on_progress("attacks", done + 1, len(names))
    return tuple(results)


def audit_result(
    scores: attacks.Scores, config: Config, claim: TradeOff | None, *, trials: str = "records"
) -> AuditResult:
    """The bounds that `scores` give, at the delta, relation and confidence of `config`.

    Args:
        scores: of members and non-members.
        config: gives delta, relation and confidence.
        claim: trade-off function that the ledger proves; None without one.
        trials: what one score is of, e.g. "records".
    """
    return audit_scores(
        scores,
        delta=config.delta,
        trials=trials,
        relation=config.relation if claim is None else claim.relation,
        confidence=config.confidence,
        claim=claim,
    )


def scores_of(name: str, dataset: Dataset, predict: Predict) -> attacks.Scores:
    """Scores of a black-box attack: training records are the members, held-out records the non-members."""
    attack = attacks.attack_named(name)
    members, non_members = (dataset.x_train, dataset.y_train), (dataset.x_test, dataset.y_test)
    if dataset.task != "regression":
        return attack(predict, members=members, non_members=non_members)
    if not isinstance(attack, attacks.LossThreshold):
        raise needs_classes(name)
    losses = [(predict(x) - y) ** 2 for x, y in (members, non_members)]
    return attack.from_losses(*losses)
