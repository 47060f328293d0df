"""`METHODS`: the methods by name.

Published ones, such as output perturbation and input perturbation, are instances of classes in
`tacit_papers.input_perturbation`.
"""

from __future__ import annotations

from tacit import check
from tacit.erm.gradient import GradientDescent
from tacit.erm.objective import ObjectiveGaussian, PureObjective
from tacit.erm.release import Method
from tacit.tradeoff import Epsilon, Target

METHODS: dict[str, type[Method]] = {"objective": ObjectiveGaussian, "gradient": GradientDescent}


def method_of(method: object, target: Target) -> Method:
    """The method that an estimator's `method` names; a `Method` instance is taken as it is.

    "objective" is `PureObjective` where `target` has delta 0.

    Raises:
        InvalidInput: a name is unknown (the nearest is suggested), or the method cannot meet a pure target.
    """
    pure = isinstance(target, Epsilon) and target.delta == 0.0
    if isinstance(method, Method):
        chosen = method
    else:
        chosen = METHODS[check.choice("method", method, METHODS)]()
        chosen = PureObjective() if pure and isinstance(chosen, ObjectiveGaussian) else chosen
    if pure and not chosen.pure:
        hint = "Gaussian noise gives no pure guarantee; use method='objective'."
        raise check.fail("delta", f"> 0 for method {chosen.family!r}, {chosen.name!r}", 0.0, hint)
    return chosen
