"""`METHODS`: every method by family and name. A new one is a file with a `Method`, and a line here."""

from __future__ import annotations

from tacit import check
from tacit.erm.gradient import GradientDescent
from tacit.erm.input import Aggregate
from tacit.erm.objective import ObjectiveGaussian, PureObjective
from tacit.erm.output import GaussianOutput, OutputPerturbation
from tacit.erm.release import Method
from tacit.tradeoff import Epsilon, Target

FAMILIES = ("input", "objective", "output", "gradient")

# The first of a family is its default; the first pure one its default where delta is 0.
_METHODS: tuple[type[Method], ...] = (
    Aggregate,
    ObjectiveGaussian,
    PureObjective,
    GaussianOutput,
    OutputPerturbation,
    GradientDescent,
)
METHODS: dict[str, dict[str, type[Method]]] = {
    family: {kind.name: kind for kind in _METHODS if kind.family == family} for family in FAMILIES
}


def method_of(method: object, variant: object, target: Target) -> Method:
    """The method that an estimator's `method` and `variant` name; a `Method` instance is taken as it is.

    Without a variant it is the family's default, or its default pure method where `target` has delta 0.

    Raises:
        InvalidInput: a name is unknown (the nearest is suggested), or the method cannot meet a pure target.
    """
    pure = isinstance(target, Epsilon) and target.delta == 0.0
    if isinstance(method, Method):
        chosen = method
    else:
        known = METHODS[check.choice("method", method, FAMILIES)]
        default = next((kind.name for kind in known.values() if kind.pure or not pure), next(iter(known)))
        chosen = known[check.choice("variant", default if variant is None else variant, known)]()
    if pure and not chosen.pure:
        hint = "Gaussian noise gives no pure guarantee; use method='objective' or 'output'."
        raise check.fail("delta", f"> 0 for method {chosen.family!r}, variant {chosen.name!r}", 0.0, hint)
    return chosen
