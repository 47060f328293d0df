"""`DPMLPClassifier`: the paper's network with one hidden layer, trained privately."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from tacit import check
from tacit.accounting import Ledger
from tacit.calibration import noise_multiplier, smallest
from tacit.erm.base import checked_rows
from tacit.erm.classifiers import PrivateClassifier
from tacit.erm.input import SHARES
from tacit.erm.input_published import LABELS, published_std, true_mu
from tacit.erm.losses import softmax
from tacit.erm.release import Release, Terms
from tacit.mechanisms import Approximate, Gaussian
from tacit.noise import gaussian
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tradeoff import Target

if TYPE_CHECKING:
    from torch import Tensor, nn

Array = np.ndarray

VARIANTS = {"gradient": ("sgd",), "input": ("local", "paper")}


class DPMLPClassifier(PrivateClassifier):
    """A network of one hidden ReLU layer.

    "gradient" (default, proven) trains by DP-SGD through `tacit.training.fit`. "input" trains without further noise
    on perturbed records: variant "local" (proven) sends every row and its one-hot label once through the Gaussian
    mechanism, "paper" (claimed, refuted) perturbs the features as Kang et al. calibrate them under a
    Polyak-Lojasiewicz condition, which cannot be checked and is taken from `pl_constant`. Objective and output
    perturbation rest on convexity and are refused.

    Args:
        hidden: width of the hidden layer; None means the number of columns, as in the paper.
        epochs, batch_size, learning_rate, clip_norm: of "gradient"; batch_size is cut to the number of rows.
        steps: full-batch steps of "input".
        pl_constant: > 0, declared; only for variant "paper".
        init_seed: public seed of the initial weights.

    All other parameters and attributes as in `DPLogisticRegression`.
    """

    def __init__(
        self,
        *,
        method: str = "gradient",
        variant: str | None = None,
        epsilon: float = 1.0,
        delta: float | None = None,
        target: Target | None = None,
        relation: str = "add_remove",
        classes: Sequence[object] | None = None,
        data_bounds: tuple[Any, Any] | None = None,
        norm_bound: float | None = None,
        hidden: int | None = None,
        epochs: float = 10.0,
        batch_size: int = 1024,
        learning_rate: float = 1.0,
        clip_norm: float = 0.5,
        steps: int = 50,
        pl_constant: float = 0.01,
        init_seed: int = 0,
        ledger: Ledger | None = None,
        strict: bool = False,
        unsafe_seed: int | None = None,
    ):
        self.method = method
        self.variant = variant
        self.epsilon = epsilon
        self.delta = delta
        self.target = target
        self.relation = relation
        self.classes = classes
        self.data_bounds = data_bounds
        self.norm_bound = norm_bound
        self.hidden = hidden
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.clip_norm = clip_norm
        self.steps = steps
        self.pl_constant = pl_constant
        self.init_seed = init_seed
        self.ledger = ledger
        self.strict = strict
        self.unsafe_seed = unsafe_seed

    def _fit(self, X: Array, targets: Array) -> Release:
        hint = "The network is not convex; use method='gradient' or 'input'."
        known = VARIANTS.get(str(self.method))
        if known is None:
            raise check.fail("method", "one of " + ", ".join(VARIANTS), self.method, hint)
        variant = check.choice("variant", self.variant if self.variant is not None else known[0], known)
        terms = self._terms(X, self._target(len(X)))
        labels = targets.astype(np.int64)
        train = {"sgd": self._private, "local": self._local, "paper": self._paper}[variant]
        self.model_ = self._network(X.shape[1])
        self.release_ = train(self.design_.features(X), labels, terms)
        self.ledger_ = terms.ledger
        return self.release_

    def decision_function(self, X: Any) -> Array:
        """Scores: (n,), that of the second class less that of the first, or (n, classes)."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: Any) -> Array:
        """Class probabilities, (n, classes)."""
        return softmax(self._scores(X))

    def optimality_gap(self, X: Any, y: Any) -> float:
        """Refused: the minimum of a network's loss is not known."""
        raise NotImplementedError("optimality_gap must be asked of a convex model; a network's minimum is not known.")

    def _scores(self, X: Any) -> Array:
        import torch

        check_is_fitted(self)
        rows = self.design_.features(checked_rows(self, X, reset=False))
        self.model_.eval()
        with torch.no_grad():
            return self.model_(torch.from_numpy(rows).float()).double().numpy()

    def _constant(self) -> float:
        """The layers have biases of their own."""
        return 0.0

    def _network(self, columns: int) -> nn.Module:
        import torch

        from tacit.models import mlp

        width = columns if self.hidden is None else check.count("hidden", self.hidden)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(check.count("init_seed", self.init_seed, minimum=0))
            return mlp(columns, len(self.classes_), hidden=(width,))

    def _private(self, rows: Array, labels: Array, terms: Terms) -> Release:
        import torch

        from tacit.training import fit

        rate = min(check.count("batch_size", self.batch_size) / len(rows), 1.0)
        steps = max(1, round(check.positive("epochs", self.epochs) / rate))
        found = noise_multiplier(terms.target, sample_rate=rate, steps=steps, relation=terms.relation)
        fitted = fit(
            self.model_,
            rows,
            labels,
            loss=_cross_entropy,
            optimizer=torch.optim.SGD(self.model_.parameters(), lr=check.positive("learning_rate", self.learning_rate)),
            clip_norm=self.clip_norm,
            noise_multiplier=found.value,
            sample_rate=rate,
            steps=steps,
            ledger=terms.ledger,
            stream=terms.stream,
        )
        facts = {"noise_std": found.value * self.clip_norm, "steps": steps, "sample_rate": rate}
        return self._result(fitted.plan.mechanism * steps, terms.relation, terms.standing, facts=facts)

    def _local(self, rows: Array, labels: Array, terms: Terms) -> Release:
        step = Gaussian(smallest("noise_multiplier", Gaussian, terms.target, relation=Relation.REPLACE_ONE).value)
        terms.ledger.assume(SHARES)
        terms.charge(step, "local messages")
        # ||(row, one-hot label)|| <= sqrt(2)
        std = math.sqrt(2) * step.noise_multiplier
        classes = len(self.classes_)
        sent = np.eye(classes)[labels] + gaussian(terms.stream, (len(rows), classes), std=std)
        self._descend(rows + gaussian(terms.stream, rows.shape, std=std), sent.argmax(axis=1))
        mu, facts = 2 / step.noise_multiplier, {"noise_std": std, "steps": self.steps}
        return self._result(step, Relation.REPLACE_ONE, terms.standing, local_mu=mu, facts=facts)

    def _paper(self, rows: Array, labels: Array, terms: Terms) -> Release:
        epsilon, delta = terms.approximate("paper")
        sigma = published_std(
            lipschitz=1.0,
            steps=check.count("steps", self.steps),
            records=len(rows),
            convexity=check.positive("pl_constant", self.pl_constant),
            epsilon=epsilon,
            delta=delta,
        )
        mechanism = Approximate(epsilon, delta)
        terms.ledger.mark_unsafe("claimed_calibration", Standing.CLAIMED)
        terms.ledger.assume(LABELS)
        terms.charge(mechanism, "input perturbation, calibration of the paper")
        self._descend(rows + gaussian(terms.stream, rows.shape, std=sigma), labels)
        return self._result(
            mechanism,
            terms.relation,
            Standing.CLAIMED,
            local_mu=2 / sigma,
            local_standing=Standing.CLAIMED,
            floor_mu=true_mu(sigma, len(rows), terms.relation),
            facts={"noise_std": sigma, "steps": self.steps},
        )

    def _descend(self, rows: Array, labels: Array) -> None:
        import torch

        from tacit.training import fit_nonprivate

        rate = check.positive("learning_rate", self.learning_rate)
        optimizer = torch.optim.SGD(self.model_.parameters(), lr=rate, momentum=0.9)
        steps = check.count("steps", self.steps)
        fit_nonprivate(
            self.model_, rows, labels, loss=_cross_entropy, optimizer=optimizer, sample_rate=1.0, steps=steps
        )

    def _result(self, *parts: Any, **named: Any) -> Release:
        weights = [parameter.detach().numpy().ravel() for parameter in self.model_.parameters()]
        return Release(np.concatenate(weights), *parts, **named)


def _cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    from torch.nn.functional import cross_entropy

    return cross_entropy(outputs, targets, reduction="none")
