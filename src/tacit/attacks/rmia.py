"""RMIA, the robust membership inference attack (Zarifzadeh, Liu & Shokri 2024)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tacit import check
from tacit.attacks.base import LEAST_PROBABILITY, Attack, Examples, Model, label_probability
from tacit.attacks.reference_models import References


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
