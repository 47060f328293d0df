"""Reference models, trained with and without each record, and the recipe by which shadow models are trained.

LiRA, the likelihood ratio attack (Carlini, Chien, Nasr, Song, Terzis & Tramer 2022).

RMIA, the robust membership inference attack (Zarifzadeh, Liu & Shokri 2024).

Shadow models (Shokri, Stronati, Song & Shmatikov 2017): membership learned from the attacker's own models.

`PRIVILEGED_ATTACKS`: attacks by name that need more than query access.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import ClassVar, Self

import numpy as np
from scipy.special import log_ndtr

from tacit import check
from tacit.attacks import base
from tacit.attacks.base import Examples, Model
from tacit.attacks.threshold_attacks import GradientNorm, QuantileRegression
from tacit.clipping import FlatClip

OPTIMIZERS = ("adam", "sgd")
PRECISIONS = ("float32", "bfloat16", "float64")


@dataclass(frozen=True)
class Recipe:
    """Settings of a network with softmax, trained with or without privacy.

    Attributes:
        hidden: widths of the hidden layers of a fully connected ReLU network; () is logistic regression.
        batch_size: records in a batch; with noise, the expected number in a Poisson batch.
        epochs: passes over a model's own records; steps = round(epochs * n / batch_size).
        learning_rate: > 0.
        optimizer: "adam" or "sgd".
        momentum: of "sgd", in [0, 1).
        l2_penalty: lambda of the penalty lambda |W|^2 on the weight matrices, added after any privatisation.
        clip_norm: clipping norm of DP-SGD; None, with `noise_multiplier`, to train without privacy. Shadow models
            belong to the attacker: they are not released and no ledger records them.
        noise_multiplier: of DP-SGD, >= 0.
        precision: of the matrix products; "bfloat16" is faster on wide layers, and only without privacy. With "float64"
            weights are double too.

    Raises:
        InvalidInput: a setting breaks its rule.

    Example:
        >>> Recipe(epochs=10, batch_size=20).steps(200)
        100
    """

    hidden: tuple[int, ...] = (256, 256)
    batch_size: int = 200
    epochs: float = 100.0
    learning_rate: float = 0.01
    optimizer: str = "adam"
    momentum: float = 0.0
    l2_penalty: float = 0.0
    clip_norm: float | None = None
    noise_multiplier: float | None = None
    precision: str = "float32"

    def __post_init__(self) -> None:
        for width in self.hidden:
            check.count("hidden", width)
        check.count("batch_size", self.batch_size)
        check.positive("epochs", self.epochs)
        check.positive("learning_rate", self.learning_rate)
        check.choice("optimizer", self.optimizer, OPTIMIZERS)
        check.real("momentum", self.momentum, low=0.0, high=1.0, open_high=True)
        check.real("l2_penalty", self.l2_penalty, low=0.0)
        check.choice("precision", self.precision, PRECISIONS)
        if (self.clip_norm is None) != (self.noise_multiplier is None):
            raise check.fail("noise_multiplier", "given together with clip_norm", self.noise_multiplier)
        if self.clip_norm is not None:
            FlatClip(self.clip_norm)
            check.real("noise_multiplier", self.noise_multiplier, low=0.0)
            if self.precision == "bfloat16":
                raise check.fail("precision", "float32 or float64 for private shadow models", self.precision)

    @property
    def private(self) -> bool:
        """Whether gradients are clipped and noised."""
        return self.clip_norm is not None

    def steps(self, records: float) -> int:
        """Number of steps on `records` records."""
        return max(1, round(self.epochs * records / self.batch_size))

    def fingerprint(self, included: np.ndarray, seed: int, first: int, models: int, *, network: str) -> str:
        """SHA-256 of all settings that the weights of a group of shadow models depend on, without the data.

        Args:
            included: boolean (models, records), the records of every model.
            seed: of the training.
            first: the group's first row of `included`.
            models: size of the group.
            network: its layers in words.
        """
        group = {"seed": seed, "shape": included.shape, "first": first, "models": models, "network": network}
        settings = json.dumps(asdict(self) | group, sort_keys=True)
        return hashlib.sha256(settings.encode() + np.packbits(included).tobytes()).hexdigest()


@dataclass(frozen=True)
class References:
    """Models trained on known parts of the records that will be scored.

    Attributes:
        models: K models.
        included: the records that each model was trained on, boolean (K, n), for the n records scored, members
            first. All False for models that were trained on other data.

    Raises:
        InvalidInput: no model, or `included` is not boolean with one row for each model.

    Example:
        >>> references = References([lambda inputs: inputs], np.array([[True]]))
        >>> references.answers((np.array([[0.25, 0.75]]), np.array([1])), base.label_probability)
        array([[0.75]])
    """

    models: Sequence[Model]
    included: np.ndarray = field(repr=False)

    def __post_init__(self) -> None:
        included = np.asarray(self.included)
        if not self.models or included.dtype != bool or included.ndim != 2 or len(included) != len(self.models):
            got = f"{included.dtype} of shape {included.shape} for {len(self.models)} models"
            raise check.fail("included", "boolean, one row for each of one or more models", got)

    def answers(self, examples: Examples, question: Callable[[Model, Examples], np.ndarray]) -> np.ndarray:
        """What every model answers to `question`, such as `base.logit_confidence`, on every example, shape (K, n)."""
        if len(examples[1]) != self.included.shape[1]:
            known = self.included.shape[1]
            raise check.fail("examples", f"the {known} records that the reference models know", len(examples[1]))
        return np.stack([question(model, examples) for model in self.models])

    def with_all_outside(self) -> Self:
        """These models, if every record is out of at least one of them; raises `InvalidInput` otherwise."""
        if np.any(self.included.all(axis=0)):
            raise check.fail("included", "false somewhere for every record", "a record in every model")
        return self


def half_splits(models: int, records: int, *, seed: int = 0) -> np.ndarray:
    """Boolean (models, records): each record is in exactly half of the models, in a random half (Carlini et al. 2022).

    With an odd number of models it is in one less than out. Each model is trained on about half of the records.

    Example:
        >>> half_splits(4, 10).sum(axis=0)
        array([2, 2, 2, 2, 2, 2, 2, 2, 2, 2])
    """
    models, records = check.count("models", models), check.count("records", records)
    order = np.random.default_rng(check.count("seed", seed, minimum=0)).random((models, records)).argsort(axis=0)
    return order < models // 2


_LEAST_SPREAD = 1e-6  # keeps densities finite where all models agree
_MODELS_FOR_OWN_VARIANCE = 64  # below, a variance for each record is too noisy (Carlini et al. 2022, Section VI)


class LikelihoodRatioOnline(base.Attack):
    """Score log N(a; m_in, s_in) - log N(a; m_out, s_out), the logit confidence a against shadow models.

    m and s are the mean and spread over the shadow models that did and did not train on the record. Below 64 models
    one spread for all records is used on each side, as the source advises. A record is flagged iff the score is >= 0.

    Args:
        references: every record must be in at least one model and out of at least one; two each, or 32 models in
            all, before the result beats the offline attack.

    Raises:
        InvalidInput: a record is on one side of all models.

    Example:
        >>> inside, outside = (lambda inputs: np.array([[0.9, 0.1]])), (lambda inputs: np.array([[0.4, 0.6]]))
        >>> references = References([inside, outside], np.array([[True], [False]]))
        >>> examples = np.zeros((1, 2)), np.array([0])
        >>> bool(LikelihoodRatioOnline(references).score(inside, examples)[0] > 0)
        True
    """

    name: ClassVar[str] = "lira_online"

    def __init__(self, references: References):
        inside = references.included.sum(axis=0)
        if np.any(inside == 0) or np.any(inside == len(references.models)):
            raise check.fail("included", "both true and false for every record", "a record on one side only")
        self.references = references

    def score(self, model: base.Model, examples: base.Examples) -> np.ndarray:
        """The log likelihood ratio of each example's confidence."""
        known = self.references.answers(examples, base.logit_confidence)
        answer = base.logit_confidence(model, examples)
        included = self.references.included
        return _log_density(answer, *_moments(known, included)) - _log_density(answer, *_moments(known, ~included))

    def threshold(self, member_scores: np.ndarray) -> float:
        """0: membership is likelier from there on."""
        return 0.0


class LikelihoodRatioOffline(base.Attack):
    """Score -log P[N(m_out, s_out) >= a], the p-value of the confidence a under models without the record.

    A record is flagged iff that probability is at most `fpr`. Source: Carlini et al. 2022, equation 4.

    Args:
        references: every record must be out of at least one model, of two for a spread.
        fpr: false positive rate of the attack's own rule, in (0, 1).

    Raises:
        InvalidInput: a record is in every model, or `fpr` breaks its rule.

    Example:
        >>> inside, outside = (lambda inputs: np.array([[0.9, 0.1]])), (lambda inputs: np.array([[0.4, 0.6]]))
        >>> references = References([outside, outside], np.array([[False], [False]]))
        >>> examples = np.zeros((1, 2)), np.array([0])
        >>> attack = LikelihoodRatioOffline(references)
        >>> bool(attack.score(inside, examples)[0] > attack.threshold(np.zeros(1)))
        True
    """

    name: ClassVar[str] = "lira_offline"

    def __init__(self, references: References, *, fpr: float = 0.5):
        self.references = references.with_all_outside()
        self.fpr = check.probability("fpr", fpr, open_low=True, open_high=True)

    def score(self, model: base.Model, examples: base.Examples) -> np.ndarray:
        """Minus the log of the probability of so high a confidence without the record."""
        known = self.references.answers(examples, base.logit_confidence)
        answer = base.logit_confidence(model, examples)
        mean, spread = _moments(known, ~self.references.included)
        return -log_ndtr((mean - answer) / spread)

    def threshold(self, member_scores: np.ndarray) -> float:
        """Score of a record at the false positive rate `fpr`."""
        return -float(np.log(self.fpr))


def _moments(values: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and spread of the chosen values of each column, shape (n,); the spread is shared when models are few."""
    count = chosen.sum(axis=0)
    mean = np.where(chosen, values, 0.0).sum(axis=0) / count
    square = np.where(chosen, (values - mean) ** 2, 0.0).sum(axis=0)
    if len(values) < _MODELS_FOR_OWN_VARIANCE:
        freedom = int((count - 1).sum())
        pooled = np.sqrt(square.sum() / freedom) if freedom > 0 else values.std()
        return mean, np.full(mean.shape, max(pooled, _LEAST_SPREAD))
    return mean, np.maximum(np.sqrt(square / np.maximum(count - 1, 1)), _LEAST_SPREAD)


def _log_density(value: np.ndarray, mean: np.ndarray, spread: np.ndarray) -> np.ndarray:
    return -0.5 * ((value - mean) / spread) ** 2 - np.log(spread)


class RelativeMembership(base.Attack):
    """Score the fraction of population records z with [p(x) / p_ref(x)] / [p(z) / p_ref(z)] >= gamma.

    p is the probability that the attacked model gives to the record's label, p_ref its average over reference
    models. Where no reference model was trained on x, a p_out + 1 - a stands for the average over those that were, so
    that p_ref = ((1 + a) p_out + 1 - a) / 2 (the offline form, Section 3.3). A record is flagged iff it exceeds more
    than half of the population.

    Args:
        references: models that know the scored records.
        population: records of the same distribution, not scored; reference models need not be trained on them.
        gamma: >= 1.
        offline_scale: the a above, in [0, 1]; .3 as the source's authors use on images.

    Raises:
        InvalidInput: a record is in every model, or a number breaks its rule.

    Example:
        >>> model, reference = (lambda inputs: inputs), (lambda inputs: np.full(inputs.shape, 0.5))
        >>> examples = np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([0, 0])
        >>> population = np.array([[0.5, 0.5], [0.3, 0.7]]), np.array([0, 0])
        >>> references = References([reference], np.array([[False, False]]))
        >>> RelativeMembership(references, population).score(model, examples)
        array([1., 0.])
    """

    name: ClassVar[str] = "rmia"

    def __init__(
        self, references: References, population: base.Examples, *, gamma: float = 1.0, offline_scale: float = 0.3
    ):
        self.references, self.population = references.with_all_outside(), population
        self.gamma = check.real("gamma", gamma, low=1.0)
        self.offline_scale = check.probability("offline_scale", offline_scale)

    def score(self, model: base.Model, examples: base.Examples) -> np.ndarray:
        """The fraction of the population whose ratio the record's exceeds."""
        included = self.references.included
        known = self.references.answers(examples, base.label_probability)
        outside = _average(known, ~included)
        reference = np.where(included.any(axis=0), (_average(known, included) + outside) / 2, self._offline(outside))
        ratio = base.label_probability(model, examples) / np.maximum(reference, base.LEAST_PROBABILITY)
        others = np.sort(self._population_ratios(model))
        return np.searchsorted(others, ratio / self.gamma, side="right") / len(others)

    def threshold(self, member_scores: np.ndarray) -> float:
        """1/2: more than half of the population is exceeded."""
        return 0.5

    def _population_ratios(self, model: base.Model) -> np.ndarray:
        known = np.mean([base.label_probability(each, self.population) for each in self.references.models], axis=0)
        return base.label_probability(model, self.population) / np.maximum(self._offline(known), base.LEAST_PROBABILITY)

    def _offline(self, outside: np.ndarray) -> np.ndarray:
        return ((1 + self.offline_scale) * outside + 1 - self.offline_scale) / 2


def _average(values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    return np.where(chosen, values, 0.0).sum(axis=0) / np.maximum(chosen.sum(axis=0), 1)


PRIVILEGED_ATTACKS: dict[str, type[base.Attack]] = {
    kind.name: kind
    for kind in (GradientNorm, QuantileRegression, LikelihoodRatioOffline, LikelihoodRatioOnline, RelativeMembership)
}
"""Attacks beyond query access: they need weights, public records or shadow models."""
