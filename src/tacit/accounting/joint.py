"""Two steps whose profiles are known in closed form, composed by the best split of epsilon and delta."""

from __future__ import annotations

from tacit.mechanisms import Gaussian, Mechanism, ObjectivePerturbation
from tacit.relation import Relation
from tacit.tradeoff import Curve
from tacit.tradeoff.gaussian import gaussian_delta

_SHARES = (2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)


class JointCurve(Curve):
    """An objective perturbation, for any number of corners, and the Gaussian step that hides its solver's error.

    delta(epsilon) <= min over t of delta_objective(epsilon - t) + delta_gaussian(t): either loss may be large.
    """

    def __init__(self, objective: ObjectivePerturbation, mu: float, relation: Relation):
        self._objective = objective
        self._mu = mu
        self._relation = relation

    def delta(self, epsilon: float) -> float:
        shares = [share * self._mu for share in _SHARES if share * self._mu < epsilon] or [0.0]
        return min(
            min(self._objective.delta_at(epsilon - share, self._relation) + gaussian_delta(share, self._mu), 1.0)
            for share in shares
        )


def joint(mechanism: Mechanism, relation: Relation) -> JointCurve | None:
    """The curve of these two steps; None for anything else."""
    parts = list(mechanism.parts())
    if len(parts) != 2 or any(steps > 1 for _, steps in parts):
        return None
    kinds = {type(part): part for part, _ in parts}
    objective, rounding = kinds.get(ObjectivePerturbation), kinds.get(Gaussian)
    if not isinstance(objective, ObjectivePerturbation) or not isinstance(rounding, Gaussian):
        return None
    return JointCurve(objective, rounding.mu(relation), relation)
