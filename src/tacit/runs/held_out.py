"""What a run tells of its test records: exact results of public ones, one result with noise of private ones.

Private validation records of a run: set aside before it trains, by the [validation] section.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tacit import check, training
from tacit.accounting import EXACT_RELEASE, Account, Ledger, accountant, common_facts
from tacit.calibration import smallest
from tacit.data import Dataset
from tacit.errors import InvalidInput, Refused
from tacit.mechanisms import DiscreteGaussian
from tacit.noise import SecureStream, SeededStream
from tacit.noise.discrete import discrete_gaussian
from tacit.runs.builders import stream_of
from tacit.runs.config import Config
from tacit.runs.decision_metrics import expected_numbers, numbers_of, ratings_of
from tacit.runs.open_run import open_run
from tacit.runs.run_signature import VALIDATION
from tacit.runs.settings import ValidationSettings
from tacit.serialization import json_text, write_text
from tacit.signing import new_id, signing_key
from tacit.standing import Standing, upward
from tacit.tradeoff import Epsilon
from tacit.training.holdout import LEVELS, NOISY, OWN_COIN, HoldoutScore, rounded_sum, set_aside, unit_means

SWITCH = "unsafe_test_metrics"
"""The switch that measures private test records exactly."""
DISJOINT = (
    "Test records are in no training batch, which positions and a public seed, or the name of a record's user, decide; "
    "a record is a neighbour within its own part, and the sizes of both parts are public."
)
"""The assumption behind a result with noise."""
PUBLISHED = "The test records are those of a published data set: results on them cost nothing."
DECLARED = "The test records were declared public: results on them cost nothing."
UNSAFE = f"The test records are private and were measured without noise ({SWITCH}): no guarantee covers the results."
_LARGEST = 20.0


def public_test(config: Config) -> bool:
    """Whether the test records are public: declared, or by default those of a published data set."""
    own = config.table is not None or config.folder is not None
    return (config.test_records or ("private" if own else "public")) == "public"


def measured_exactly(config: Config) -> bool:
    """Whether results on the test records are measured without noise, because they are public or by `SWITCH`."""
    return config.unsafe_test_metrics or public_test(config)


def told_exactly(config: Config) -> dict[str, Any]:
    """The `held_out` of a card with exact results."""
    if public_test(config):
        return {"records": "public", "test": "exact", "says": DECLARED if config.test_records else PUBLISHED}
    return {"records": "private", "test": "exact", "standing": Standing.CLAIMED.value, "says": UNSAFE}


def not_measured(why: str) -> dict[str, Any]:
    """The `held_out` of a card without test results."""
    return {"records": "private", "test": "not measured", "says": f"The test records are private: {why}."}


def planned_cost(config: Config, dataset: Dataset, unit: str) -> Ledger | None:
    """What test records pay where `test_epsilon` says so, known before anything runs; None otherwise."""
    if measured_exactly(config) or not config.test_epsilon or (unit != "record" and dataset.test_units is None):
        return None
    return _ledger(config, dataset, unit, Epsilon(config.test_epsilon, config.delta), secure=True)


def noisy_result(
    config: Config, dataset: Dataset, predicted: np.ndarray, answers: Account, ledger: Ledger
) -> tuple[float, dict[str, Any]]:
    """The test metric with exact discrete Gaussian noise, and what `card.json` says of it under `held_out`.

    A test record pays for this result, a training record for the training. Each result of a unit lies in [0, 1]:
    whether a label is right, or a squared error as a share of the declared range; of a user, the mean over its
    records. It is rounded at random to a multiple of 1 / 16, and the sum over units gets the noise.

    Args:
        config: of the run; `test_epsilon` is what a test record pays, by default the epsilon of the training.
        dataset: with the test records.
        predicted: of the test records.
        answers: of the accountants for the training.
        ledger: of the training, whose relation and unit count here too.

    Raises:
        Refused: there is none; the sentence says why.

    Source: McSherry 2009, Theorem 4; Canonne, Kamath & Steinke 2020.
    """
    if ledger.unit != "record" and dataset.test_units is None:
        raise Refused("a user may have records on both sides")
    units, target = None if ledger.unit == "record" else dataset.test_units, _target(config, answers)
    stream = stream_of(config) or SecureStream()
    paid = _ledger(config, dataset, ledger.unit, target, secure=stream.secure)
    (mechanism, _), *_ = paid.mechanism.parts()
    assert isinstance(mechanism, DiscreteGaussian)
    levels, shares = mechanism.sensitivity, unit_means(_losses(dataset, predicted), units)
    total = rounded_sum(shares, levels, stream) + discrete_gaussian(stream, Fraction(mechanism.scale) ** 2)
    mean = min(max(total / levels / len(shares), 0.0), 1.0)
    metric = mean if dataset.task == "classification" else _span(dataset) * math.sqrt(mean)
    return metric, _told(paid, mechanism, config.delta)


def _target(config: Config, answers: Account) -> Epsilon:
    if config.test_epsilon is not None:
        if config.test_epsilon == 0:
            raise Refused("test_epsilon is 0")
        return Epsilon(config.test_epsilon, config.delta)
    if config.delta == 0:
        raise Refused("the noise of their result needs a delta above 0")
    found = [result.epsilon for result in answers.results if result.tradeoff.source == "pld"]
    epsilon = found[0] if found else config.epsilon
    if epsilon is None or not epsilon > 0:
        raise Refused("the training states no epsilon that they could pay; test_epsilon names one")
    return Epsilon(min(epsilon, _LARGEST), config.delta)


def _ledger(config: Config, dataset: Dataset, unit: str, target: Epsilon, *, secure: bool) -> Ledger:
    """What test records pay for one result that meets `target`."""
    levels = 1 if dataset.task == "classification" and unit == "record" else LEVELS
    name, relation = "noise of the test result", config.relation
    found = smallest(name, lambda noise: DiscreteGaussian(noise, levels), target, relation=relation)
    ledger = Ledger(relation=config.relation, unit=unit)
    ledger.begin(*common_facts(unit=unit, secure=secure, arithmetic=EXACT_RELEASE))
    ledger.assume(DISJOINT)
    if not secure:
        ledger.mark_unsafe("unsafe_seeded_stream", Standing.CLAIMED)
    ledger.add(DiscreteGaussian(found.value, levels), note="test result")
    return ledger


def _told(paid: Ledger, mechanism: DiscreteGaussian, delta: float) -> dict[str, Any]:
    cost = accountant("pld")(paid)
    epsilon, standing = float(cost.epsilon(delta)), cost.standing.value
    says = (
        f"The test result has discrete Gaussian noise of {upward(mechanism.noise_multiplier, 3)} {paid.unit}s: a test "
        f"{paid.unit}, in no training batch, has a guarantee of its own, epsilon {upward(epsilon)} at delta {delta:g} "
        f"(pld, {standing})."
    )
    told = {"records": "private", "test": "noisy", "standing": standing, "epsilon": epsilon, "delta": delta}
    return told | {"mechanisms": paid.spec()["mechanisms"], "assumptions": list(paid.assumptions), "says": says}


def _losses(dataset: Dataset, predicted: np.ndarray) -> np.ndarray:
    """1 for a right label, the squared error of a number as a share of its largest: in [0, 1] whatever is predicted."""
    if dataset.task == "classification":
        return ((predicted.argmax(axis=1) == dataset.y_test) & np.isfinite(predicted).all(axis=1)).astype(float)
    found, values = expected_numbers(dataset, predicted).astype(float), numbers_of(dataset, dataset.y_test)
    shares = ((found - values) / _span(dataset)) ** 2
    return np.where(np.isfinite(shares), np.clip(shares, 0.0, 1.0), 1.0)


def _span(dataset: Dataset) -> float:
    if dataset.task == "regression":
        return float(dataset.target_range[1] - dataset.target_range[0])
    return float(np.ptp(ratings_of(dataset)))


def check_declared(config: Config) -> None:
    """Raise `InvalidInput` for settings of the test records that contradict each other."""
    if config.test_epsilon and measured_exactly(config):
        hint = "Results without noise cost nothing, or are covered by nothing."
        raise check.fail("test_epsilon", "left out where test results have no noise", config.test_epsilon, hint)


@dataclass(frozen=True)
class SetAside:
    """The two parts of the training records.

    Attributes:
        training: the data set without the records set aside.
        holdout: the records set aside.
        id: by which this user's key makes the same parts again; without the key it tells nothing about a record.
    """

    training: Dataset
    holdout: training.PrivateHoldout
    id: str

    def write(self, folder: Path) -> None:
        """Keep the id in the folder of the run."""
        write_text(folder / VALIDATION, json_text({"id": self.id}))


def set_aside_of(config: Config, dataset: Dataset, folder: Path, *, again: bool) -> SetAside | None:
    """What [validation] sets aside; None without private validation.

    Each record, or each user where users are protected, goes there by a coin of its own. The coins follow from the id
    and this user's key, so that a run that goes on has the same parts.

    Args:
        config: of the run.
        dataset: with all training records.
        folder: of the run.
        again: take the id from the folder.

    Raises:
        InvalidInput: as `holdout_of`, or a part is empty.
    """
    section: ValidationSettings = config.section("validation")
    if section.type != "private":
        return None
    score_of(config, dataset)
    id = _stored(folder) if again and (folder / VALIDATION).exists() else new_id()
    aside = set_aside(len(dataset.y_train), section.share, SeededStream(_seed(id)), dataset.units)
    return SetAside(dataset.without(aside), holdout_of(config, dataset.without(~aside)), id)


def holdout_of(config: Config, aside: Dataset) -> training.PrivateHoldout:
    """The holdout of [validation] for one training, of the records `aside`.

    Raises:
        InvalidInput: the settings are not those of the task, or neither epsilon nor noise is given.
    """
    section: ValidationSettings = config.section("validation")
    epsilon = section.epsilon if section.epsilon is not None or section.noise is not None else config.epsilon
    if epsilon is None and section.noise is None:
        raise check.fail("epsilon of [validation]", "given where the training has a noise_multiplier", None)
    holdout = training.PrivateHoldout(
        torch.from_numpy(aside.x_train),
        torch.from_numpy(aside.y_train),
        epsilon=epsilon,
        delta=config.delta if section.checkpoint == NOISY else 0.0,
        noise=section.noise,
        checkpoint=section.checkpoint,
        score=score_of(config, aside),
        owners=aside.units,
        stream=stream_of(config),
    )
    holdout.assumption = OWN_COIN
    return holdout


def score_of(config: Config, dataset: Dataset) -> HoldoutScore:
    """The score of a validation record: accuracy, or that of a regression with the bound that [validation] declares.

    Raises:
        InvalidInput: a bound is missing, or given for another task, or the data are ratings.
    """
    section: ValidationSettings = config.section("validation")
    bounds = {"tolerance": section.tolerance, "error_bound": section.error_bound}
    given = [name for name, bound in bounds.items() if bound is not None]
    if dataset.task == "regression":
        if section.tolerance is not None:
            return training.WithinTolerance(section.tolerance, dataset.target_range)
        if section.error_bound is not None:
            return training.ClippedSquaredError(section.error_bound, dataset.target_range)
        raise check.fail("[validation]", "one with a tolerance or an error_bound for a regression", "neither")
    if dataset.task != "classification":
        raise check.fail("validation", "none for data that are neither classes nor a regression", dataset.task)
    if given:
        raise check.fail(f"{given[0]} of [validation]", "left out for classes, whose right answers are counted", given)
    return training.Accuracy()


def trained_on(config: Config, dataset: Dataset, folder: Path) -> Dataset:
    """The data of the run in `folder` without the private validation records, where this user's key finds them."""
    aside = set_aside_of(config, dataset, folder, again=True) if (folder / VALIDATION).exists() else None
    return dataset if aside is None else aside.training


def callbacks_of(config: Config, dataset: Dataset, model: torch.nn.Module) -> list[training.Callback]:
    """What [validation] does with its noisy scores: stop early, restore the best epoch."""
    section: ValidationSettings = config.section("validation")
    if section.type != "private" or section.checkpoint != NOISY:
        return []
    score = score_of(config, dataset)
    made = [training.BestModel(model, score.metric, better=score.better)] if section.best else []
    if section.patience is None:
        return [*made]
    return [*made, training.EarlyStopping(score.metric, patience=section.patience, better=score.better)]


def _stored(folder: Path) -> str:
    id = open_run(folder).table(VALIDATION).get("id")
    if not isinstance(id, str) or not id:
        raise InvalidInput(f"{VALIDATION} must be as the run wrote it; it was edited. Start anew in another folder.")
    return id


def _seed(id: str) -> int:
    """A seed that nobody without the key can tell from the id."""
    key = signing_key()
    return int(id if key is None else key.mac("private validation", id.encode()), 16)


def told_of(config: Config, dataset: Dataset, history: Any) -> dict[str, Any]:
    """The last noisy score, which its records paid for, as a metric of the card."""
    if config.section("validation").type != "private":
        return {}
    metric = score_of(config, dataset).metric
    found = [row[metric] for row in history if metric in row]
    return {metric: found[-1]} if found else {}
