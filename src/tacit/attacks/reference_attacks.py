"""LiRA, the likelihood ratio attack (Carlini, Chien, Nasr, Song, Terzis & Tramer 2022).

RMIA, the robust membership inference attack (Zarifzadeh, Liu & Shokri 2024).

Shadow models (Shokri, Stronati, Song & Shmatikov 2017): membership learned from the attacker's own models.

Attacks by name: black-box attacks, and those that need more than query access.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
from scipy.special import log_ndtr

from tacit import check
from tacit.attacks.base import (
    LEAST_PROBABILITY,
    Attack,
    Examples,
    Model,
    class_probabilities,
    label_probability,
    logit_confidence,
)
from tacit.attacks.reference_models import Recipe, References
from tacit.attacks.stacked_training import Stack, train_stacked
from tacit.attacks.threshold_attacks import (
    Entropy,
    GradientNorm,
    LabelOnly,
    LossThreshold,
    ModifiedEntropy,
    QuantileRegression,
)

_LEAST_SPREAD = 1e-6  # keeps densities finite where all models agree
_MODELS_FOR_OWN_VARIANCE = 64  # below, a variance for each record is too noisy (Carlini et al. 2022, Section VI)


class LikelihoodRatioOnline(Attack):
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

    def score(self, model: Model, examples: Examples) -> np.ndarray:
        """The log likelihood ratio of each example's confidence."""
        known, answer = self.references.confidences(examples), logit_confidence(model, examples)
        included = self.references.included
        return _log_density(answer, *_moments(known, included)) - _log_density(answer, *_moments(known, ~included))

    def threshold(self, member_scores: np.ndarray) -> float:
        """0: membership is likelier from there on."""
        return 0.0


class LikelihoodRatioOffline(Attack):
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
        if np.any(references.included.all(axis=0)):
            raise check.fail("included", "false somewhere for every record", "a record in every model")
        self.references = references
        self.fpr = check.probability("fpr", fpr, open_low=True, open_high=True)

    def score(self, model: Model, examples: Examples) -> np.ndarray:
        """Minus the log of the probability of so high a confidence without the record."""
        known, answer = self.references.confidences(examples), logit_confidence(model, examples)
        mean, spread = _moments(known, ~self.references.included)
        standard = (answer - mean) / spread
        return -log_ndtr(-standard)

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


class RelativeMembership(Attack):
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

    def __init__(self, references: References, population: Examples, *, gamma: float = 1.0, offline_scale: float = 0.3):
        if np.any(references.included.all(axis=0)):
            raise check.fail("included", "false somewhere for every record", "a record in every model")
        self.references, self.population = references, population
        self.gamma = check.real("gamma", gamma, low=1.0)
        self.offline_scale = check.probability("offline_scale", offline_scale)

    def score(self, model: Model, examples: Examples) -> np.ndarray:
        """The fraction of the population whose ratio the record's exceeds."""
        included = self.references.included
        known = self.references.label_probabilities(examples)
        outside = _average(known, ~included)
        guessed = self._offline(outside)
        both = included.any(axis=0)
        reference = np.where(both, (_average(known, included) + outside) / 2, guessed)
        ratio = label_probability(model, examples) / np.maximum(reference, LEAST_PROBABILITY)
        return np.searchsorted(np.sort(self._population_ratios(model)), ratio / self.gamma, side="right") / len(
            self.population[1]
        )

    def threshold(self, member_scores: np.ndarray) -> float:
        """1/2: more than half of the population is exceeded."""
        return 0.5

    def _population_ratios(self, model: Model) -> np.ndarray:
        known = np.mean([label_probability(each, self.population) for each in self.references.models], axis=0)
        return label_probability(model, self.population) / np.maximum(self._offline(known), LEAST_PROBABILITY)

    def _offline(self, outside: np.ndarray) -> np.ndarray:
        return ((1 + self.offline_scale) * outside + 1 - self.offline_scale) / 2


def _average(values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    return np.where(chosen, values, 0.0).sum(axis=0) / np.maximum(chosen.sum(axis=0), 1)


HIDDEN = (64, 64)
_CLASSES_TOGETHER = 10  # attack networks trained as one stack
Progress = Callable[[int, int], None]


class ShadowModels(Attack):
    """Score the probability of "member" that the attack network of the record's class gives to the model's output.

    Every shadow model k was trained on A_k and not on B_k. Its probabilities on both, labelled in and out, train one
    network for each class: classes-64-64-2 with ReLU, Adam at .01, batches of 100, 100 epochs, L2 penalty 1e-6, as in
    the evaluation of Jayaraman & Evans 2019. A record is flagged iff the probability is above 1/2; it is 1/2 in a
    class without members or without non-members among the shadow models' records.

    Args:
        shadows: (model, its training examples A_k, other examples B_k), five in the source.
        epochs: of the attack networks.
        seed: of their first weights and batches.
        on_progress: called with (classes done, classes).

    Raises:
        InvalidInput: there is no shadow model, or an argument breaks its rule.

    Example:
        >>> draw = np.random.default_rng(0)
        >>> inside, outside = [(draw.uniform(size=20), np.zeros(20, int)) for _ in range(2)]
        >>> model = lambda inputs: np.column_stack([inputs, 1 - inputs])
        >>> attack = ShadowModels([(model, inside, outside)], epochs=1)
        >>> attack.score(model, inside).shape
        (20,)
    """

    name: ClassVar[str] = "shadow_models"

    def __init__(
        self,
        shadows: Sequence[tuple[Model, Examples, Examples]],
        *,
        epochs: int = 100,
        seed: int = 0,
        on_progress: Progress = lambda done, total: None,
    ):
        if not shadows:
            raise check.fail("shadows", "one shadow model at least", 0)
        parts = [_training_rows(*shadow) for shadow in shadows]
        outputs, labels, inside = (np.concatenate(column) for column in zip(*parts, strict=True))
        self._stacks: dict[int, tuple[Stack, int]] = {}
        known = [c for c in range(outputs.shape[1]) if {True, False} <= set(np.unique(inside[labels == c]).tolist())]
        recipe = Recipe(
            hidden=HIDDEN, batch_size=100, epochs=check.count("epochs", epochs), learning_rate=0.01, l2_penalty=1e-6
        )
        for start in range(0, len(known), _CLASSES_TOGETHER):
            together = known[start : start + _CLASSES_TOGETHER]
            of_class = np.stack([labels == c for c in together])
            stack = train_stacked(
                (outputs, inside.astype(np.int64)), of_class, recipe=recipe, classes=2, seed=seed + start
            )
            self._stacks |= {c: (stack, place) for place, c in enumerate(together)}
            on_progress(start + len(together), len(known))

    def score(self, model: Model, examples: Examples) -> np.ndarray:
        """The attack networks' probability of membership."""
        probabilities, labels = class_probabilities(model, examples)
        scores = np.full(len(labels), 0.5)
        for c, (stack, place) in self._stacks.items():
            rows = np.flatnonzero(labels == c)
            if len(rows):
                scores[rows] = stack.model(place)(probabilities[rows].astype(np.float32))[:, 1]
        return scores

    def threshold(self, member_scores: np.ndarray) -> float:
        """The next number above 1/2."""
        return float(np.nextafter(0.5, 1.0))


def shadow_splits(
    pool: np.ndarray, *, models: int = 5, records: int, seed: int = 0
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows (A_k, B_k) for each shadow: two disjoint samples of `records` each, stratified by the pool's labels.

    Samples of different shadows overlap.

    Args:
        pool: labels of the records to sample from, shape (n,).
        models: number of shadow models, >= 1.
        records: size of each sample.
        seed: of the samples.

    Raises:
        InvalidInput: the pool holds fewer than 2 `records`, or a number breaks its rule.

    Example:
        >>> [(len(inside), len(outside)) for inside, outside in shadow_splits(np.tile([0, 1], 10), models=2, records=6)]
        [(6, 6), (6, 6)]
    """
    from sklearn.model_selection import train_test_split

    labels = np.asarray(pool)
    records = check.count("records", records)
    if len(labels) < 2 * records:
        raise check.fail("records", f"at most half of the pool of {len(labels)}", records)
    splits = []
    for k in range(check.count("models", models)):
        inside, outside = train_test_split(
            np.arange(len(labels)), train_size=records, test_size=records, stratify=labels, random_state=seed + k
        )
        splits.append((inside, outside))
    return splits


def _training_rows(model: Model, inside: Examples, outside: Examples) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    outputs, labels = zip(class_probabilities(model, inside), class_probabilities(model, outside), strict=True)
    membership = np.repeat([True, False], [len(inside[1]), len(outside[1])])
    return np.concatenate(outputs).astype(np.float32), np.concatenate(labels), membership


ATTACKS: dict[str, type[Attack]] = {kind.name: kind for kind in (LossThreshold, Entropy, ModifiedEntropy, LabelOnly)}
"""Black-box attacks: they need the predictions of the model alone."""

PRIVILEGED_ATTACKS: dict[str, type[Attack]] = {
    kind.name: kind
    for kind in (
        GradientNorm,
        QuantileRegression,
        ShadowModels,
        LikelihoodRatioOffline,
        LikelihoodRatioOnline,
        RelativeMembership,
    )
}
"""Attacks beyond query access: they need weights, public records or shadow models."""


def attack_named(name: str) -> Attack:
    """The attack called `name` with its defaults; raises `InvalidInput` with the list and the nearest name.

    Example:
        >>> attack_named("entropy").name
        'entropy'
    """
    return ATTACKS[check.choice("attack", name, ATTACKS)]()
