"""`DPMLPClassifier`: a network with one hidden layer, trained by DP-SGD."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit import check
from tacit.calibration import noise_multiplier
from tacit.erm.estimators import PrivateClassifier
from tacit.erm.losses import softmax
from tacit.erm.release import Release, Terms

if TYPE_CHECKING:
    from torch import Tensor, nn

Array = np.ndarray

# Heavy-ball momentum: the usual value, on which no privacy rests.
_MOMENTUM = 0.9


@dataclass(kw_only=True, eq=False, repr=False)
class DPMLPClassifier(PrivateClassifier):
    """A network of one hidden ReLU layer, trained by DP-SGD through `tacit.training.fit`.

    Args:
        hidden: width of the hidden layer; None means the number of columns, as in the paper.
        epochs: passes over the records.
        batch_size: expected records of a step; cut to the number of rows.
        learning_rate: > 0.
        clip_norm: clipping norm, > 0.
        init_seed: public seed of the initial weights.

    All other parameters and attributes as in `DPLogisticRegression`; there are no coefficients.

    Example:
        >>> import numpy as np
        >>> x = np.random.default_rng(0).uniform(-1, 1, (200, 2))
        >>> model = DPMLPClassifier(epochs=1, batch_size=50, classes=[0, 1], data_bounds=(-1, 1), unsafe_seed=0)
        >>> model.fit(x, x[:, 0] > 0).predict_proba(x).shape
        (200, 2)
    """

    hidden: int | None = None
    epochs: float = 20.0
    batch_size: int = 4096
    learning_rate: float = 4.0
    clip_norm: float = 0.5
    init_seed: int = 0

    def _fit(self, X: Array, targets: Array) -> Release:
        terms = self._terms(X, self._target(len(X)))
        self.model_ = self._network(X.shape[1])
        # Of equal scores at first: random ones would have to be unlearned against the noise.
        for parameter in list(self.model_.parameters())[-2:]:
            parameter.data.zero_()
        return self._private(self.design_.features(X), targets.astype(np.int64), terms)

    def decision_function(self, X: Any) -> Array:
        """Scores: (n,), that of the second class less that of the first, or (n, classes)."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: Any) -> Array:
        """Class probabilities, (n, classes)."""
        return softmax(self._scores(X))

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
            return mlp(columns, len(self.classes_), hidden=(width,))

    def _private(self, rows: Array, labels: Array, terms: Terms) -> Release:
        import torch

        from tacit.training import fit

        learning_rate = check.positive("learning_rate", self.learning_rate)
        rate = min(check.count("batch_size", self.batch_size) / len(rows), 1.0)
        steps = max(1, round(check.positive("epochs", self.epochs) / rate))
        found = noise_multiplier(terms.target, sample_rate=rate, steps=steps, relation=terms.relation)
        fitted = fit(
            self.model_,
            rows,
            labels,
            loss=_cross_entropy,
            optimizer=torch.optim.SGD(self.model_.parameters(), lr=learning_rate, momentum=_MOMENTUM),
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

    def _weights(self) -> Array:
        return np.concatenate([parameter.detach().numpy().ravel() for parameter in self.model_.parameters()])


def _cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    from torch.nn.functional import cross_entropy

    return cross_entropy(outputs, targets, reduction="none")
