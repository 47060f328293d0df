"""`DPMLPClassifier`: a network with one hidden layer, trained by DP-SGD or on perturbed records."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit import check
from tacit.calibration import noise_multiplier
from tacit.erm.estimators import PrivateClassifier
from tacit.erm.input import SHARES
from tacit.erm.losses import softmax
from tacit.erm.release import Release, Terms, local_gaussian
from tacit.erm.solver import sum_rounding
from tacit.relation import Relation

if TYPE_CHECKING:
    from torch import Tensor, nn

Array = np.ndarray

# Heavy-ball momentum of every training: the usual value, on which no privacy rests.
_MOMENTUM = 0.9


@dataclass(kw_only=True, eq=False, repr=False)
class DPMLPClassifier(PrivateClassifier):
    """A network of one hidden ReLU layer.

    "gradient" (default, proven) trains by DP-SGD through `tacit.training.fit`. "input" trains without further noise
    on perturbed records (proven): every row and its one-hot label is sent once through the Gaussian mechanism.
    Objective and output perturbation rest on convexity and are refused.

    Args:
        hidden: width of the hidden layer; None means the number of columns, as in the paper.
        epochs: passes over the records of "gradient".
        batch_size: expected records of a step of "gradient"; cut to the number of rows.
        learning_rate: > 0; by default 4 of "gradient", and 1 of "input", whose full steps diverge at 4.
        clip_norm: clipping norm of "gradient", > 0.
        steps: full-batch steps of "input".
        init_seed: public seed of the initial weights.

    All other parameters and attributes as in `DPLogisticRegression`; there are no coefficients.

    Example:
        >>> import numpy as np
        >>> x = np.random.default_rng(0).uniform(-1, 1, (200, 2))
        >>> model = DPMLPClassifier(epochs=1, batch_size=50, classes=[0, 1], data_bounds=(-1, 1), unsafe_seed=0)
        >>> model.fit(x, x[:, 0] > 0).predict_proba(x).shape
        (200, 2)
    """

    method: str = "gradient"
    hidden: int | None = None
    epochs: float = 20.0
    batch_size: int = 4096
    learning_rate: float | None = None
    clip_norm: float = 0.5
    steps: int = 50
    init_seed: int = 0

    def _unread(self) -> tuple[str, ...]:
        ignored = ("steps",) if self.method == "gradient" else ("epochs", "batch_size", "clip_norm")
        return (*super()._unread(), *ignored)

    def _fit(self, X: Array, targets: Array) -> Release:
        if self.method not in ("gradient", "input"):
            hint = "The network is not convex; use method='gradient' or 'input'."
            raise check.fail("method", "one of gradient, input", self.method, hint)
        terms = self._terms(X, self._target(len(X)))
        labels = targets.astype(np.int64)
        train = self._private if self.method == "gradient" else self._perturbed
        self.model_ = self._network(X.shape[1])
        return train(self.design_.features(X), labels, terms)

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

        rows = self._features(X)
        self.model_.eval()
        with torch.no_grad():
            return self.model_(torch.from_numpy(rows).float()).double().numpy()

    def _network(self, columns: int) -> nn.Module:
        import torch

        from tacit.models import mlp

        width = columns if self.hidden is None else check.count("hidden", self.hidden)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(check.count("init_seed", self.init_seed, minimum=0))
            model = mlp(columns, len(self.classes_), hidden=(width,))
        if self.method != "gradient":
            return model
        # Of equal scores at first: random ones would have to be unlearned against the noise.
        last = [each for each in model.modules() if isinstance(each, torch.nn.Linear)][-1]
        with torch.no_grad():
            last.weight.zero_()
            last.bias.zero_()
        return model

    def _rate(self) -> float:
        if self.learning_rate is None:
            return 4.0 if self.method == "gradient" else 1.0
        return check.positive("learning_rate", self.learning_rate)

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
            optimizer=torch.optim.SGD(self.model_.parameters(), lr=self._rate(), momentum=_MOMENTUM),
            clip_norm=self.clip_norm,
            noise_multiplier=found.value,
            sample_rate=rate,
            # Public by the declaration of every estimator; see `tacit.accounting.PLACES`.
            public_size=len(rows),
            steps=steps,
            ledger=terms.ledger,
            stream=terms.stream,
        )
        facts = {"noise_std": found.value * self.clip_norm, "steps": steps, "sample_rate": rate}
        return terms.release(self._weights(), fitted.plan.mechanism * steps, facts)

    def _perturbed(self, rows: Array, labels: Array, terms: Terms) -> Release:
        step = local_gaussian(terms.target)
        terms.ledger.assume(SHARES)
        terms.charge(step, "local messages", exact=True)
        # Sensitivity: ||(row, one-hot label)|| <= sqrt(2).
        std = math.sqrt(2) * step.noise_multiplier
        classes = len(self.classes_)
        sent = terms.noisy(np.eye(classes)[labels], std=std, rounding=sum_rounding(1))
        self._descend(terms.noisy(rows, std=std, rounding=sum_rounding(1)), sent.argmax(axis=1))
        mu, facts = 2 / step.noise_multiplier, {"noise_std": std, "steps": self.steps}
        return terms.release(self._weights(), step, facts, relation=Relation.REPLACE_ONE, local_mu=mu)

    def _descend(self, rows: Array, labels: Array) -> None:
        import torch

        from tacit.training import fit_nonprivate

        rate = self._rate()
        optimizer = torch.optim.SGD(self.model_.parameters(), lr=rate, momentum=_MOMENTUM)
        steps = check.count("steps", self.steps)
        fit_nonprivate(
            self.model_, rows, labels, loss=_cross_entropy, optimizer=optimizer, sample_rate=1.0, steps=steps
        )

    def _weights(self) -> Array:
        return np.concatenate([parameter.detach().numpy().ravel() for parameter in self.model_.parameters()])


def _cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    from torch.nn.functional import cross_entropy

    return cross_entropy(outputs, targets, reduction="none")
