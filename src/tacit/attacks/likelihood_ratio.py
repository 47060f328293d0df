"""LiRA, the likelihood ratio attack (Carlini, Chien, Nasr, Song, Terzis & Tramer 2022)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from scipy.special import log_ndtr

from tacit import check
from tacit.attacks.base import Attack, Examples, Model, logit_confidence
from tacit.attacks.reference_models import References

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
