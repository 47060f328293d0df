"""Membership by quantile regression (Bertran, Tang, Kearns, Morgenstern, Roth & Wu 2023)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tacit import check
from tacit.attacks.base import Attack, Examples, Model, logit_confidence

_TREES = 60  # enough for a quantile; more overfit some hundred public records


class QuantileRegression(Attack):
    """Score a(x, y) - q(x, y): the model's confidence above its quantile on similar records outside the training data.

    a is the logit of the label's probability; q, fitted on the public records, is its 1 - `fpr` quantile given the
    input and the label, by gradient-boosted trees with the pinball loss. A record is flagged iff the score is >= 0,
    which happens to a fraction `fpr` of non-members if the regression is right. One model is enough: no shadow models.

    Args:
        public: records from the same distribution that were not trained on, none of them among those scored.
        fpr: intended false positive rate, in (0, 1).

    Raises:
        InvalidInput: `fpr` breaks its rule.

    Example:
        >>> draw = np.random.default_rng(0)
        >>> probabilities = draw.uniform(0.2, 0.8, (100, 1))
        >>> public = np.hstack([probabilities, 1 - probabilities]), draw.integers(0, 2, 100)
        >>> QuantileRegression(public, fpr=0.1).score(lambda inputs: inputs, public).shape
        (100,)
    """

    name: ClassVar[str] = "quantile_regression"

    def __init__(self, public: Examples, *, fpr: float = 0.01):
        self.public = public
        self.fpr = check.probability("fpr", fpr, open_low=True, open_high=True)

    def score(self, model: Model, examples: Examples) -> np.ndarray:
        """Confidence minus the predicted quantile."""
        from sklearn.ensemble import HistGradientBoostingRegressor

        regressor = HistGradientBoostingRegressor(
            loss="quantile", quantile=1 - self.fpr, max_iter=_TREES, random_state=0
        )
        regressor.fit(_features(self.public), logit_confidence(model, self.public))
        return logit_confidence(model, examples) - regressor.predict(_features(examples))

    def threshold(self, member_scores: np.ndarray) -> float:
        """0: the predicted quantile itself."""
        return 0.0


def _features(examples: Examples) -> np.ndarray:
    inputs, labels = np.asarray(examples[0]), np.asarray(examples[1])
    return np.column_stack([inputs.reshape(len(inputs), -1), labels])
