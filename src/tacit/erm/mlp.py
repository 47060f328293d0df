"""`DPMLPClassifier`: a network with one hidden layer, trained by DP-SGD."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit import check
from tacit.erm.estimators import PrivateClassifier
from tacit.erm.gradient import MORE, TWO
from tacit.erm.linear_model import AdditiveModel
from tacit.erm.losses import softmax
from tacit.erm.quantiles import mechanism_of
from tacit.erm.release import Release, Terms
from tacit.erm.transformers import split_bill
from tacit.mechanisms import Gaussian, Mechanism

if TYPE_CHECKING:
    from torch import nn

Array = np.ndarray

# Heavy-ball momentum: the usual value, on which no privacy rests.
_MOMENTUM = 0.9
# Share of the hidden layer in a score, whose noise it then multiplies by as little.
_HIDDEN_SCALE = 0.25
_MOST_HIDDEN, _LEAST_STEPS, _LEAST_EPOCHS = 32, 100, 20.0
# The learning rate is whole from this n mu on and falls in proportion: noise moves weights by the rate over n mu.
_RATE, _FULL_SIGNAL, _LEAST_RATE = 16.0, 5000.0, 0.15


@dataclass(kw_only=True, eq=False, repr=False)
class DPMLPClassifier(PrivateClassifier, AdditiveModel):
    """A network of one hidden ReLU layer beside a linear model, trained by DP-SGD through `tacit.training.fit`.

    All weights that end in a score start from zero, so that it begins as the linear model of the same rows: on cosines
    of private distribution functions where the rule expects those to be better, as in `DPLogisticRegression`.

    Args:
        hidden: width of the hidden layer; None means the number of features, at most 32.
        linear: whether the scores of a linear model are added.
        features: "auto", "cosines" or None; see `AdditiveModel`.
        categorical: columns of codes, by place or name, for cosines; see `DPBoostedTrees`.
        epochs: passes over the records; None means 20, or as many as give 100 steps.
        batch_size: expected records of a step; cut to the number of rows.
        learning_rate: > 0; None means 16 min(1, max(.15, n mu / 5000)).
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
    linear: bool = True
    epochs: float | None = None
    batch_size: int = 8192
    learning_rate: float | None = None
    clip_norm: float = 0.5
    init_seed: int = 0

    def _fit(self, X: Array, targets: Array) -> Release:
        size, target = len(X), self._target(len(X))
        shape = self._shape(size, X.shape[1], target, TWO if len(self.classes_) == 2 else MORE)
        rate = min(check.count("batch_size", self.batch_size) / size, 1.0)
        epochs = max(_LEAST_EPOCHS, _LEAST_STEPS * rate) if self.epochs is None else self.epochs
        steps = max(1, round(check.positive("epochs", epochs) / rate))
        # In units of mu of all steps together, as far as the central limit theorem goes.
        unit = rate * math.sqrt(steps)

        def spent(noise: float) -> Mechanism:
            return Gaussian(noise * unit).poisson(rate) * steps

        if self._takes_cosines(shape):
            share = self._cosine_share(shape)
            terms = self._terms(X, target)
            (first, noise), mechanism = split_bill(terms, (share, mechanism_of), (1 - share, spent))
            self.design_ = self._cosine_design(X, shape, terms, first)
        else:
            self._refuse_set(("categorical",))
            terms = self._terms(X, target)
            (noise,), mechanism = split_bill(terms, (1.0, spent))
        rows = self.design_.features(X)
        width = min(rows.shape[1], _MOST_HIDDEN) if self.hidden is None else self.hidden
        self.model_ = self._network(rows.shape[1], check.count("hidden", width))
        pull = _RATE * min(1.0, max(_LEAST_RATE, size * shape.mu / _FULL_SIGNAL))
        learning_rate = pull if self.learning_rate is None else check.positive("learning_rate", self.learning_rate)
        self._train(rows, targets.astype(np.int64), terms, (noise * unit, rate, steps, learning_rate))
        facts = {"noise_std": noise * unit * self.clip_norm, "steps": steps, "sample_rate": rate}
        return terms.release(self._weights(), mechanism, facts)

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

    def _network(self, columns: int, width: int) -> nn.Module:
        """With the linear path; of equal scores, since random ones would have to be unlearned against the noise."""
        import torch

        from tacit.models import BesideLinear, mlp

        seed = check.count("init_seed", self.init_seed, minimum=0)
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(seed)
            network = mlp(columns, len(self.classes_), hidden=(width,))
            for parameter in network[-1].parameters():
                parameter.zero_()
            if not self.linear:
                return network
            # Unit rows keep their length, on average, so that steps move the hidden layer little against its noise.
            torch.manual_seed(seed)
            first = next(network.parameters())
            first.normal_(std=math.sqrt(2 / len(first)))
        return BesideLinear(network, columns, len(self.classes_), scale=_HIDDEN_SCALE)

    def _train(self, rows: Array, labels: Array, terms: Terms, plan: tuple[float, float, int, float]) -> None:
        import torch

        from tacit.losses import sequence_classification
        from tacit.training import AverageModel, fit

        noise, rate, steps, learning_rate = plan
        with terms.planned():
            fit(
                self.model_,
                rows,
                labels,
                loss=sequence_classification,
                optimizer=torch.optim.SGD(self.model_.parameters(), lr=learning_rate, momentum=_MOMENTUM),
                clip_norm=self.clip_norm,
                noise_multiplier=noise,
                sample_rate=rate,
                # Public by the declaration of every estimator; see `tacit.accounting.PLACES`.
                public_size=len(rows),
                steps=steps,
                ledger=terms.ledger,
                stream=terms.stream,
                callbacks=[AverageModel(self.model_)],
            )

    def _weights(self) -> Array:
        return np.concatenate([parameter.detach().numpy().ravel() for parameter in self.model_.parameters()])
