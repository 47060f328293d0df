"""What a run of canaries repeats: noise, sampling and steps, as the ledger of the run states them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tacit import audit, check, mechanisms
from tacit import sampling as samplings
from tacit.accounting import Ledger
from tacit.audit.canaries import Separated
from tacit.data import Dataset
from tacit.errors import InvalidInput
from tacit.noise import SeededStream
from tacit.noise.correlated import CorrelatedNoise
from tacit.relation import Relation
from tacit.runs.config import Config
from tacit.sampling.cyclic import CyclicSampler

TAKES = (
    "White-box audits take runs of method gradient on classes with flat clipping, add_remove or zero_out, and the same "
    "Gaussian noise at every step: on Poisson batches, by random allocation or balanced iteration, or, "
    "correlated or not, on batches of groups in turn."
)
_AGREEMENT = 1e-9  # relative; settings and ledger print the same double

Allocated = mechanisms.BalancedIteration | mechanisms.RandomAllocation
"""Mechanisms whose records take part in a known number of steps, in secret ones."""


Observer = audit.LikelihoodRatio | audit.AllocationLikelihoodRatio | audit.GroupedLikelihoodRatio
"""Scores canaries, as `total`, from their coordinates of the releases that it is given one after another by `add`."""


@dataclass(frozen=True)
class Training:
    """What the ledger of a run says was run: `steps` times Gaussian noise on a sample.

    Attributes:
        noise_multiplier: std / clip_norm.
        sample_rate: in (0, 1].
        steps: number of steps, those lost to an interruption included.
        sampling: of the batches.
        mechanism: of a run whose records take part in the steps of one group alone, or in a known number of steps; None
            for Poisson batches.
        strategy: of noise that is correlated over the steps; None for independent noise.
    """

    noise_multiplier: float
    sample_rate: float
    steps: int
    sampling: samplings.Sampling = field(default_factory=samplings.PoissonSampling)
    mechanism: Separated | Allocated | None = None
    strategy: mechanisms.Strategy | None = None

    @property
    def noise(self) -> str | mechanisms.Strategy:
        """As `fit` takes it."""
        return "independent" if self.strategy is None else self.strategy

    @property
    def block(self) -> int | None:
        """Turns of a group in which each record has one; None where it is drawn at every turn by itself."""
        return self.mechanism.steps_per_block if isinstance(self.mechanism, mechanisms.CyclicAllocation) else None

    @property
    def allocation(self) -> tuple[int, int] | None:
        """(T, k) where every record is in k of every T steps, of no group; None otherwise."""
        if isinstance(self.mechanism, mechanisms.BalancedIteration):
            return self.mechanism.iterations, self.mechanism.participations
        return (self.mechanism.steps_per_epoch, 1) if isinstance(self.mechanism, mechanisms.RandomAllocation) else None

    def observer(self, groups: Callable[[], np.ndarray]) -> Observer:
        """The likelihood ratio of canaries, whose group `groups` gives after the run."""
        if self.mechanism is None:
            return audit.LikelihoodRatio(self.noise_multiplier, self.sample_rate)
        if isinstance(self.mechanism, Allocated):
            assert self.allocation is not None
            return audit.AllocationLikelihoodRatio(self.noise_multiplier, *self.allocation)
        strategy = self.strategy if self.strategy is not None else mechanisms.ToeplitzStrategy(self.steps, (1.0,))
        return audit.GroupedLikelihoodRatio(self.mechanism, strategy, self.noise_multiplier, groups)

    def audited(self, affordable: int, wanted: int) -> Training:
        """The steps that default evidence repeats: the first ones where they are a mechanism of their own, else all.

        Args:
            affordable: steps that the time allows, where the first ones do.
            wanted: how many of them at most.
        """
        first = max(1, min(affordable, wanted, self.steps // 2))
        if self.mechanism is None:
            return replace(self, steps=first)
        if isinstance(self.mechanism, mechanisms.RandomAllocation):
            epoch = self.mechanism.steps_per_epoch
            return replace(self, steps=epoch * max(1, first // epoch))
        return self

    def simulated(self, included: np.ndarray, seed: int, *, true_noise: float) -> np.ndarray:
        """Scores of canaries in a simulated run whose noise may be another than is claimed.

        Args:
            included: whether each canary takes part, shape (canaries,).
            seed: of the run.
            true_noise: that is added, >= 0, in units of the clipping norm.
        """
        draw, count = np.random.default_rng(seed), len(included)
        correlation = None if self.strategy is None else CorrelatedNoise.of(self.strategy)
        sampler = self.sampling.sampler(count, self.sample_rate, SeededStream(seed))
        observer = self.observer(lambda: sampler.group_of() if isinstance(sampler, CyclicSampler) else np.zeros(count))
        for _ in range(self.steps):
            total = np.zeros(count)
            batch = sampler.draw().indices
            total[batch] = included[batch]
            rows = total if correlation is None else correlation.encode(total)
            rows = rows + true_noise * draw.standard_normal(rows.shape)
            observer.add(rows if correlation is None else correlation.decode(rows))
        return np.asarray(observer.total)


def training_of(config: Config, dataset: Dataset, ledger: Ledger) -> Training:
    """What the canary run repeats, from the ledger.

    Raises:
        InvalidInput: white-box audits do not take the run; the sentence says which they take.
    """
    if config.method != "gradient" or dataset.task == "regression":
        raise _not_taken(f"method {config.method} on {dataset.task}")
    if config.section("clip").type != "flat":
        raise _not_taken(f"{config.section('clip').type} clipping")
    if ledger.relation is Relation.REPLACE_ONE:
        raise _not_taken(f"the relation {ledger.relation.value}")
    mechanisms = list({entry.mechanism for entry in ledger.entries})
    steps = sum(entry.steps for entry in ledger.entries)
    training = _training(mechanisms[0], steps) if len(mechanisms) == 1 else None
    if training is None:
        raise _not_taken("steps of another kind, or of several kinds")
    return training


def check_settings(config: Config, dataset: Dataset, card: Mapping[str, Any], training: Training) -> None:
    """Compare the settings of config.json and card.json with what the ledger recorded.

    Args:
        config: of the run.
        dataset: of the run.
        card: content of card.json; empty where there is none.
        training: from the ledger.

    Raises:
        InvalidInput: a setting is not what the ledger recorded.
    """
    records = config.public_size or len(dataset.y_train)
    settings = check.instance("settings of card.json", card.get("settings", {}), dict, "a table")
    of_card = {name: settings.get(name) for name in ("noise_multiplier", "sample_rate", "clip_norm")}
    of_card["sample_rate"] = _drawn_at(training, of_card["sample_rate"])
    asked = config.batch_size and _drawn_at(training, config.batch_size / records) * records
    of_config = {"noise_multiplier": config.noise_multiplier, "batch_size": asked}
    recorded = {name: getattr(training, name) for name in ("noise_multiplier", "sample_rate")}
    recorded |= {"clip_norm": config.clip_norm, "batch_size": training.sample_rate * records}
    for file, stated in (("card.json", of_card), ("config.json", of_config)):
        for name, value in stated.items():
            if value is not None and not _agree(value, recorded[name]):
                rule = f"{recorded[name]:g}, as in {'config.json' if name == 'clip_norm' else 'ledger.json'}"
                raise check.fail(f"{name} of {file}", rule, value, "One of the two files was changed.")


def _drawn_at(training: Training, sample_rate: Any) -> Any:
    """The rate at which batches are drawn where `sample_rate` was asked for: whole turns or bins round it down."""
    known = training.mechanism
    if not isinstance(sample_rate, int | float) or known is None or isinstance(known, mechanisms.CyclicPoisson):
        return sample_rate
    independent = mechanisms.ToeplitzStrategy(training.steps, (1.0,))
    run = mechanisms.MatrixGaussian(training.noise_multiplier, training.strategy or independent)
    base = known.base if isinstance(known, mechanisms.RandomAllocation) else run
    drawn = _training(training.sampling.mechanism(base, 1, sample_rate), training.steps)
    return None if drawn is None else drawn.sample_rate


def _training(mechanism: mechanisms.Mechanism, steps: int) -> Training | None:
    """`steps` of `mechanism`; None unless it is Gaussian noise on a Poisson sample, `Allocated` or of groups."""
    rate, sampling, whole = 1.0, samplings.PoissonSampling(), steps
    match mechanism:
        case mechanisms.Poisson():
            rate = mechanism.sample_rate
        case mechanisms.RandomAllocation():
            rate, sampling = 1 / mechanism.steps_per_epoch, samplings.RandomAllocationSampling()
        case mechanisms.BalancedIteration():
            whole = mechanism.iterations
            rate, sampling = mechanism.participations / whole, samplings.BalancedIterationSampling(iterations=whole)
        case mechanisms.BallsAndBins():
            rate, sampling = 1 / mechanism.steps_per_epoch, samplings.BallsAndBinsSampling()
        case mechanisms.MinSeparation():
            rate, sampling = 1 / mechanism.separation, samplings.BallsAndBinsSampling()
        case mechanisms.CyclicPoisson():
            rate, sampling = mechanism.sample_rate / mechanism.groups, samplings.CyclicPoissonSampling(mechanism.groups)
        case mechanisms.CyclicAllocation():
            sampling = samplings.CyclicAllocationSampling(mechanism.groups)
            rate = 1 / (mechanism.groups * mechanism.steps_per_block)
    known = mechanism if isinstance(mechanism, Separated | Allocated) else None
    base = mechanism.base if isinstance(mechanism, Separated | Allocated | mechanisms.Poisson) else mechanism
    strategy = None
    if isinstance(base, mechanisms.MatrixGaussian) and isinstance(known, Separated):
        whole = base.strategy.iterations
        strategy = base.strategy if base.strategy.bands > 1 else None
    elif type(base) is not mechanisms.Gaussian:  # The law of a kind of Gaussian may be another one.
        return None
    if steps != whole or not base.noise_multiplier > 0:
        return None
    return Training(base.noise_multiplier, rate, steps, sampling, known, strategy)


def _not_taken(got: str) -> InvalidInput:
    return check.fail("run", "one that white-box audits take", got, TAKES)


def _agree(value: Any, recorded: float) -> bool:
    return isinstance(value, int | float) and bool(np.isclose(value, recorded, rtol=_AGREEMENT, atol=0.0))
