"""`PrivateSearchCV`: private selection over tacit's estimators with scikit-learn's interface."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from tacit import check
from tacit.accounting import Ledger, one_shot_facts
from tacit.calibration import smallest
from tacit.erm.base import PrivateEstimator, target_for
from tacit.mechanisms import Approximate, DiscreteGaussian, Mechanism, Parallel, Selection, TrialLaw, law_of
from tacit.noise import SecureStream, SeededStream, Stream
from tacit.noise.discrete import discrete_gaussian
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tradeoff import Epsilon
from tacit.tuning.plan import Space
from tacit.tuning.search_state import HIDDEN, OWN_COIN, Standings, best_trial, draw_trials

_SHARE_OF_DELTA = 0.9
"""Share of delta that all trials may lose together: the rest pays for a smaller log R of the whole-curve bound."""


@dataclass(eq=False, repr=False)
class PrivateSearchCV(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    """The best of a random number of private fits; everything together is (epsilon, delta)-DP.

    Each trial draws parameters uniformly from `distributions`, with replacement, fits a clone of `estimator`, and
    counts right answers on records that were set aside, with exact noise. A fit is known here only by its target
    (epsilon_0, delta_0), found backwards from the total, so that any of tacit's classifiers will do. There is no
    `cv_results_`: scores of other trials, and how many there were, stay secret.

    Args:
        estimator: a private classifier, such as `DPLogisticRegression`; its own epsilon, delta and ledger are ignored.
        distributions: name of a parameter -> list of values, public.
        epsilon: > 0, of everything together.
        delta: in (0, 1), of everything together; None means min(1e-5, n^-1.1).
        trials: the mean number of trials, > 1.
        law: "logarithmic", "geometric", or the shape in (-1, 1] of a negative binomial law.
        validation_share: in (0, 1), the probability with which a record is set aside for scores.
        relation: neighbouring relation of the guarantee, and of the estimator's.
        unsafe_seed: repeatable, not private.

    Attributes:
        best_estimator_: the winner, fitted.
        best_params_: its parameters.
        ledger_: the whole search as one entry.

    Example:
        >>> from tacit.erm import DPLogisticRegression
        >>> model = DPLogisticRegression(classes=[0, 1], data_bounds=(0, 1))
        >>> PrivateSearchCV(model, {"C": [0.1, 1.0]}, epsilon=3.0).trials
        20.0
    """

    estimator: Any
    distributions: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    epsilon: float = 1.0
    delta: float | None = None
    trials: float = 20.0
    law: str | float = "logarithmic"
    validation_share: float = 0.2
    relation: str = "add_remove"
    unsafe_seed: int | None = None

    def fit(self, X: Any, y: Any) -> PrivateSearchCV:
        """Search, and keep the winner."""
        if not isinstance(self.estimator, PrivateEstimator):
            raise check.fail("estimator", "a private classifier of tacit.erm", type(self.estimator).__name__)
        space = Space(self.distributions)
        check.keys("distributions", space.values, self.estimator.get_params())
        for name in ("epsilon", "delta", "target", "ledger", "relation", "unsafe_seed"):
            if name in space.values:
                raise check.fail("distributions", "without what decides the cost", name)
        checked: Any = validate_data(self, X, y)
        features, labels = checked
        found = target_for(None, self.epsilon, self.delta, len(labels))
        assert isinstance(found, Epsilon)
        law = law_of(self.law, trials=self.trials)
        stream = SecureStream() if self.unsafe_seed is None else SeededStream(self.unsafe_seed)
        share = check.probability("validation_share", self.validation_share, open_low=True, open_high=True)
        aside = stream.uniform(len(labels)) < share
        if not aside.any() or aside.all():
            raise check.fail("validation_share", "one that leaves records for fits and for scores", share)
        trial, noise = _solved(found, law, self.relation)
        self.ledger_ = self._ledger(Selection.of(Parallel.of(trial, DiscreteGaussian(noise)), law=law), stream)

        def run() -> tuple[float, tuple[Any, dict[str, Any]]]:
            parameters = space.draw(stream)
            model = self._fitted(parameters, trial, stream, features[~aside], labels[~aside])
            right = int(np.count_nonzero(model.predict(features[aside]) == labels[aside]))
            return float(right + discrete_gaussian(stream, Fraction(noise) ** 2)), (model, parameters)

        best = best_trial(Standings(draw_trials(law, stream)), stream, run)
        if best is None:
            raise check.fail("law", "one that makes at least one trial", self.law)
        self.best_estimator_, self.best_params_ = best
        self.classes_ = self.best_estimator_.classes_
        return self

    def predict(self, X: object) -> np.ndarray:
        """Predictions of the winner."""
        check_is_fitted(self)
        return self.best_estimator_.predict(X)

    def __getattr__(self, name: str) -> NoReturn:
        if name == "cv_results_":
            raise AttributeError("cv_results_ does not exist: the scores of other trials are private, and so is K.")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _ledger(self, mechanism: Mechanism, stream: Stream) -> Ledger:
        """The ledger of the whole search, written before its first trial."""
        ledger = Ledger(relation=Relation.parse(self.relation))
        ledger.begin(*one_shot_facts(unit="record", secure=stream.secure, exact=True))
        ledger.assume(HIDDEN)
        ledger.assume(OWN_COIN)
        if not stream.secure:
            ledger.mark_unsafe("unsafe_seeded_stream", Standing.CLAIMED)
        for part, steps in mechanism.parts():
            ledger.add(part, steps, "search: the best of a secret number of trials")
        return ledger

    def _fitted(
        self, parameters: dict[str, Any], trial: Approximate, stream: Stream, X: np.ndarray, y: np.ndarray
    ) -> Any:
        """A clone that is fitted at the cost of one trial; what weakens its guarantee weakens that of the search."""
        seed = None if stream.secure else int(stream.bits(1)[0] >> np.uint64(33))
        settings = {"epsilon": trial.epsilon, "delta": trial.delta, "target": None, "ledger": None}
        model: Any = clone(self.estimator)
        model.set_params(**settings, relation=self.relation, unsafe_seed=seed, **parameters)
        model.fit(X, y)
        own = model.ledger_
        for sentence in own.assumptions:
            self.ledger_.assume(sentence)
        for switch in own.unsafe:
            self.ledger_.mark_unsafe(switch, own.standing)
        if own.standing is not Standing.PROVEN:
            self.ledger_.mark_unsafe(f"a trial was {own.standing.value}", own.standing)
        if own.relation is Relation.ZERO_OUT:
            self.ledger_.leave_places()
        if own.relation is not self.ledger_.relation:
            self.ledger_.mark_unsafe(f"trials are certified under {own.relation.value}", Standing.CLAIMED)
        return model


def _solved(target: Epsilon, law: TrialLaw, relation: str) -> tuple[Approximate, float]:
    """The (epsilon, delta) of one fit, and the standard deviation of its noisy count, with which all meet `target`."""
    delta = _SHARE_OF_DELTA * target.delta / law.mean

    def smallest_of(name: str, trial: Callable[[float], Mechanism]) -> float:
        return smallest(name, lambda each: Selection.of(trial(each), law=law), target, relation=relation).value

    inverse = smallest_of("1 / epsilon", lambda inverse: Approximate(1 / inverse, delta))
    return Approximate(1 / inverse, delta), smallest_of("score_noise", DiscreteGaussian)
