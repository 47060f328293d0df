"""Membership by loss (Yeom, Giacomelli, Fredrikson & Jha 2018): training lowers the loss of its records.

Membership by the entropy of the prediction (Salem et al. 2019; Song & Mittal 2021).

Membership from predicted labels alone (Choquette-Choo, Tramer, Carlini & Papernot 2021).

Membership by quantile regression (Bertran, Tang, Kearns, Morgenstern, Roth & Wu 2023).

Membership by the norm of the record's gradient, for an attacker who holds the weights (Nasr et al. 2019).

`ATTACKS`: black-box attacks by name.
"""

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from tacit import check
from tacit.attacks import base

_LEAST_PROBABILITY = 1e-6  # as in the evaluation of Jayaraman & Evans


class LossThreshold(base.Attack):
    """Flag (x, y) as a member iff loss(x, y) <= mean training loss; the score is minus the loss.

    loss(x, y) = -log max(p_y(x), 1e-6), as in the evaluation of Jayaraman & Evans (USENIX Security 2019).

    Args:
        training_loss: the mean training loss that the trainer reported, >= 0; None for the mean over the scored
            members, the usual case when every training record is scored.

    Raises:
        InvalidInput: the training loss breaks its rule.

    Example:
        >>> LossThreshold().from_losses(np.array([0.1, 0.3]), np.array([0.4])).threshold
        -0.2
    """

    name: ClassVar[str] = "loss_threshold"

    def __init__(self, *, training_loss: float | None = None):
        self.training_loss = None if training_loss is None else check.real("training_loss", training_loss, low=0.0)

    def score(self, model: base.Model, examples: base.Examples) -> np.ndarray:
        """Minus the loss of each example."""
        return -record_losses(model, examples)

    def threshold(self, member_scores: np.ndarray) -> float:
        """Minus the mean training loss."""
        return float(member_scores.mean()) if self.training_loss is None else -self.training_loss

    def from_losses(self, member_losses: np.ndarray, non_member_losses: np.ndarray) -> base.Scores:
        """Scores from the loss of each member, shape (n,), and each non-member, shape (m,)."""
        members = -base.vector("member losses", member_losses)
        others = -base.vector("non-member losses", non_member_losses)
        return base.Scores(self.name, members, others, self.threshold(members))


def record_losses(model: base.Model, examples: base.Examples) -> np.ndarray:
    """-log max(p[y], 1e-6) of each example, shape (n,); raises `InvalidInput` as `class_probabilities` does.

    Example:
        >>> record_losses(lambda inputs: inputs, (np.array([[0.25, 0.75]]), np.array([1]))).round(4)
        array([0.2877])
    """
    return -np.log(np.maximum(base.label_probability(model, examples), _LEAST_PROBABILITY))


class Entropy(base.Attack):
    """Score sum_c p_c log p_c, minus the entropy of the prediction: models are confident on their training records.

    The label is not used, so a confident wrong prediction counts as membership.

    Example:
        >>> Entropy().score(lambda inputs: inputs, (np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([0, 0]))).round(3)
        array([ 0.   , -0.693])
    """

    name: ClassVar[str] = "entropy"

    def score(self, model: base.Model, examples: base.Examples) -> np.ndarray:
        """Minus the entropy of each prediction."""
        probabilities, _ = base.class_probabilities(model, examples)
        return np.sum(probabilities * base.safe_log(probabilities), axis=1)


class ModifiedEntropy(base.Attack):
    """Score (1 - p_y) log p_y + sum_{c != y} p_c log(1 - p_c).

    It is 0 for a confident right prediction and low for a confident wrong one. Source: Song & Mittal 2021, equation 8,
    with the sign turned.

    Example:
        >>> model, labels = lambda inputs: inputs, np.array([0, 0])
        >>> ModifiedEntropy().score(model, (np.array([[1.0, 0.0], [0.5, 0.5]]), labels)).round(3)
        array([ 0.   , -0.693])
    """

    name: ClassVar[str] = "modified_entropy"

    def score(self, model: base.Model, examples: base.Examples) -> np.ndarray:
        """Minus the modified entropy of each prediction."""
        probabilities, labels = base.class_probabilities(model, examples)
        rows = np.arange(len(labels))
        terms = probabilities * base.safe_log(1 - probabilities)
        of_label = probabilities[rows, labels]
        terms[rows, labels] = (1 - of_label) * base.safe_log(of_label)
        return terms.sum(axis=1)


class LabelOnly(base.Attack):
    """Score the fraction of noisy copies of the record, itself included, that the model labels right.

    Members lie further inside their class. Only the argmax of the prediction is used. With `copies=0` it is the
    gap attack: a record is flagged iff it is labelled right.

    Args:
        noise: standard deviation of the Gaussian noise on every input value, as a fraction of the standard deviation
            of that value over the examples scored, >= 0.
        copies: noisy copies of each record, >= 0; the model predicts copies + 1 times.
        seed: of the noise, which is not for privacy.

    Raises:
        InvalidInput: an argument breaks its rule.

    Example:
        >>> examples = np.array([[0.25, 0.75], [0.75, 0.25]]), np.array([1, 1])
        >>> LabelOnly(copies=0).score(lambda inputs: inputs, examples)
        array([1., 0.])
    """

    name: ClassVar[str] = "label_only"

    def __init__(self, *, noise: float = 0.5, copies: int = 20, seed: int = 0):
        self.noise = check.real("noise", noise, low=0.0)
        self.copies = check.count("copies", copies, minimum=0)
        self.seed = check.count("seed", seed, minimum=0)

    def score(self, model: base.Model, examples: base.Examples) -> np.ndarray:
        """The fraction of right labels."""
        inputs, draw = np.asarray(examples[0]), np.random.default_rng(self.seed)
        scale = self.noise * inputs.std(axis=0)
        right, tried = np.zeros(len(examples[1])), inputs
        for _ in range(self.copies + 1):
            probabilities, labels = base.class_probabilities(model, (tried, examples[1]))
            right += probabilities.argmax(axis=1) == labels
            tried = (inputs + scale * draw.standard_normal(inputs.shape)).astype(inputs.dtype)
        return right / (self.copies + 1)


_TREES = 60  # enough for a quantile; more overfit some hundred public records


class QuantileRegression(base.Attack):
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

    def __init__(self, public: base.Examples, *, fpr: float = 0.01):
        self.public = public
        self.fpr = check.probability("fpr", fpr, open_low=True, open_high=True)

    def score(self, model: base.Model, examples: base.Examples) -> np.ndarray:
        """Confidence minus the predicted quantile."""
        from sklearn.ensemble import HistGradientBoostingRegressor

        law = {"loss": "quantile", "quantile": 1 - self.fpr}
        regressor = HistGradientBoostingRegressor(**law, max_iter=_TREES, random_state=0)
        regressor.fit(_features(self.public), base.logit_confidence(model, self.public))
        return base.logit_confidence(model, examples) - regressor.predict(_features(examples))

    def threshold(self, member_scores: np.ndarray) -> float:
        """0: the predicted quantile itself."""
        return 0.0


def _features(examples: base.Examples) -> np.ndarray:
    inputs, labels = np.asarray(examples[0]), np.asarray(examples[1])
    return np.column_stack([inputs.reshape(len(inputs), -1), labels])


Norms = Callable[[base.Examples], np.ndarray]
"""Examples to the L2 norm of the loss gradient of each of them in all weights, shape (n,)."""


class GradientNorm(base.Attack):
    """Score minus the gradient norm: training drives the gradients of its records towards 0.

    Args:
        norms: gives the per-example gradient norms of the attacked model; its predictions are not used.

    Raises:
        InvalidInput: `norms` is no function.

    Example:
        >>> attack = GradientNorm(lambda examples: np.abs(examples[0]))
        >>> attack.score(lambda inputs: inputs, (np.array([0.5, -2.0]), np.array([0, 1])))
        array([-0.5, -2. ])
    """

    name: ClassVar[str] = "gradient_norm"

    def __init__(self, norms: Norms):
        if not callable(norms):
            raise check.fail("norms", "a function from examples to gradient norms", type(norms).__name__)
        self.norms = norms

    def score(self, model: base.Model, examples: base.Examples) -> np.ndarray:
        """Minus the gradient norm of each example."""
        norms = base.vector("gradient norms", self.norms(examples))
        if len(norms) != len(examples[1]) or np.any(norms < 0):
            raise check.fail("gradient norms", "one number >= 0 for each example", f"shape {norms.shape}")
        return -norms


ATTACKS: dict[str, type[base.Attack]] = {
    kind.name: kind for kind in (LossThreshold, Entropy, ModifiedEntropy, LabelOnly)
}
"""Black-box attacks: they need the predictions of the model alone."""


def attack_named(name: str) -> base.Attack:
    """The attack called `name` with its defaults; raises `InvalidInput` with the list and the nearest name.

    Example:
        >>> attack_named("entropy").name
        'entropy'
    """
    return ATTACKS[check.choice("attack", name, ATTACKS)]()
