"""Events of dp-accounting, which jax-privacy makes too, as mechanisms and back; `pld` as one of its accountants.

An event is known by its exact type: one of another library, or of a class derived from a known one, is refused.
"""

import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

from dp_accounting import dp_event as dp
from dp_accounting.privacy_accountant import NeighboringRelation, PrivacyAccountant

from tacit import check
from tacit.accounting import accountant
from tacit.errors import Refused
from tacit.mechanisms import (
    Compose,
    DiscreteLaplace,
    FixedSize,
    Gaussian,
    GaussianMixture,
    KaryRandomizedResponse,
    Laplace,
    Mechanism,
    NegativeBinomial,
    Poisson,
    PoissonTrials,
    Selection,
    TruncatedPoisson,
    ZeroConcentrated,
    law_of,
)
from tacit.relation import Relation
from tacit.tradeoff import Answer

RELATIONS = {
    NeighboringRelation.ADD_OR_REMOVE_ONE: Relation.ADD_REMOVE,
    NeighboringRelation.REPLACE_ONE: Relation.REPLACE_ONE,
    NeighboringRelation.REPLACE_SPECIAL: Relation.ZERO_OUT,
}
"""The relation of each of theirs; a record that is replaced by a special one is zeroed."""
NO_PRIVACY = Gaussian(0.0, unsafe_no_noise=True)
_NOTHING = Compose(())


def from_event(event: dp.DpEvent, relation: Relation = Relation.ADD_REMOVE) -> Mechanism:
    """The mechanism that an event describes.

    No noise is `Gaussian(0)`, whose epsilon is infinite, and an event that costs nothing the empty composition. The
    nodes of a tree are one Gaussian release, whose noise is that of a node over the root of its levels.

    Args:
        event: of one of the classes that the page "Only the accountant" lists.
        relation: neighbouring relation of what is accounted; a tree has none under add/remove, where a further record
            moves those after it to other leaves.

    Raises:
        Refused: the type is not known, or is not known inside of this sampling or under this relation.
        InvalidInput: a parameter is out of range.

    Example:
        >>> step = dp.PoissonSampledDpEvent(0.01, dp.GaussianDpEvent(1.1))
        >>> print(from_event(dp.SelfComposedDpEvent(step, 1000)))
        Gaussian(1.1).poisson(0.01) * 1000
    """
    tree = any(type(each) is dp.SingleEpochTreeAggregationDpEvent for each in _all(event))
    if tree and relation is Relation.ADD_REMOVE:
        raise Refused("no mechanism is known for a tree under add_remove. State zero_out or replace_one.")
    return _mechanism(event)


def _all(event: dp.DpEvent) -> Iterator[dp.DpEvent]:
    """An event and all inside of it."""
    yield event
    for each in (*getattr(event, "events", ()), *filter(None, [getattr(event, "event", None)])):
        yield from _all(each)


def _mechanism(event: dp.DpEvent) -> Mechanism:
    if type(event) not in _MECHANISMS:
        raise Refused(f"no mechanism is known for the event {type(event).__name__}. Describe it by one that is.")
    return _MECHANISMS[type(event)](event)


def to_event(mechanism: Mechanism) -> dp.DpEvent:
    """The event of a mechanism; `from_event` is its inverse.

    What accountants read in place of a mechanism counts: passes of disjoint batches, and the Gaussian release of a run
    with correlated noise.

    Args:
        mechanism: of a kind that dp-accounting has.

    Raises:
        Refused: it has none.

    Example:
        >>> to_event(Gaussian(1.1).poisson(0.01) * 3)
        SelfComposedDpEvent(event=PoissonSampledDpEvent(sampling_probability=0.01, event=GaussianDpEvent(...)), count=3)
    """
    parts = list(Compose.of((mechanism, 1)).accountable().parts())
    each = [dp.SelfComposedDpEvent(_event(part), times) if times > 1 else _event(part) for part, times in parts]
    return each[0] if len(each) == 1 else dp.ComposedDpEvent(each) if each else dp.NoOpDpEvent()


class Accountant(PrivacyAccountant):
    """dp-accounting's interface of an accountant, answered by `pld`: upper ends of epsilon and delta.

    `dp_accounting.calibrate_dp_mechanism` and what else takes one of their accountants takes it.

    Args:
        neighboring_relation: theirs.
        name: an accountant of `tacit`, such as "rdp" for events of which only Renyi divergences are known.

    Example:
        >>> found = Accountant().compose(dp.GaussianDpEvent(2.0), 4)
        >>> round(found.get_epsilon(1e-5), 6), found.bracket(1e-5).standing.value
        (4.377178, 'proven')
    """

    def __init__(
        self, neighboring_relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE, name: str = "pld"
    ):
        super().__init__(neighboring_relation)
        self._accountant, self._composed = accountant(name), _NOTHING

    def _maybe_compose(self, event: dp.DpEvent, count: int, do_compose: bool) -> Any:
        if isinstance(event, dp.ComposedDpEvent | dp.SelfComposedDpEvent):
            parts = event.events if isinstance(event, dp.ComposedDpEvent) else [event.event]
            found = (self._maybe_compose(part, 1, False) for part in parts)
            if (refused := next((each for each in found if each is not None), None)) is not None:
                return refused
        try:
            relation = RELATIONS[self.neighboring_relation]
            mechanism = from_event(event, relation)
            if mechanism != _NOTHING:
                self._accountant.curve(mechanism, relation)
        except Refused as error:
            return PrivacyAccountant.CompositionErrorDetails(event, str(error))
        if do_compose:
            self._composed = Compose.of((self._composed, 1), (mechanism, count))
        return None

    @property
    def mechanism(self) -> Mechanism:
        """All that was composed."""
        return self._composed

    def bracket(self, target_delta: float) -> Answer:
        """Epsilon with its two ends.

        Args:
            target_delta: in [0, 1].
        """
        return self._accountant(self._composed, relation=RELATIONS[self.neighboring_relation]).epsilon(target_delta)

    def get_epsilon(self, target_delta: float) -> float:
        """The upper end of epsilon.

        Args:
            target_delta: in [0, 1].
        """
        return float(self.bracket(target_delta))

    def get_delta(self, target_epsilon: float) -> float:
        """The upper end of delta.

        Args:
            target_epsilon: >= 0, perhaps infinite.
        """
        curve = self._accountant(self._composed, relation=RELATIONS[self.neighboring_relation])
        return float(curve.delta(min(target_epsilon, sys.float_info.max)))


def _gaussian(noise_multiplier: float) -> Mechanism:
    return Gaussian(noise_multiplier) if noise_multiplier != 0 else NO_PRIVACY


def _times(event: Any) -> Mechanism:
    base, count = _mechanism(event.event), check.count("count", event.count, minimum=0)
    return Compose.of((base, count)) if count else _NOTHING


def _on_a_sample(event: dp.DpEvent) -> Mechanism:
    """The mechanism that runs on one sample of records, several Gaussian ones as the one that they equal there."""
    base = _mechanism(event)
    noises = [(part.noise_multiplier, times) for part, times in base.parts() if isinstance(part, Gaussian)]
    if noises and len(noises) == len(list(base.parts())):
        return _gaussian(min(noises)[0] and sum(times / noise**2 for noise, times in noises) ** -0.5)
    if isinstance(base, Laplace | DiscreteLaplace):
        return base
    raise Refused(f"no mechanism is known for a sample of {type(event).__name__}: {base}.")


def _poisson(event: Any) -> Mechanism:
    rate = check.probability("Sampling rate", event.sampling_probability)
    base = _on_a_sample(event.event)
    return base.poisson(rate) if rate else _NOTHING


def _fixed_size(event: Any) -> Mechanism:
    base, size = _on_a_sample(event.event), check.count("sample_size", event.sample_size, minimum=0)
    return FixedSize(base, event.source_dataset_size, size) if size else _NOTHING


def _response(event: Any) -> Mechanism:
    if check.count("num_buckets", event.num_buckets) == 1:
        return _NOTHING
    noise = check.probability("noise_parameter", event.noise_parameter)
    return KaryRandomizedResponse(noise, event.num_buckets) if noise else NO_PRIVACY


def _repeated(event: Any) -> Mechanism:
    law = PoissonTrials(event.mean) if event.shape == math.inf else law_of(event.shape, trials=event.mean)
    return Selection(Compose.of((_mechanism(event.event), 1)), law)


def _mixture(event: Any) -> Mechanism:
    shifts = [*event.sensitivities]
    if shifts and max(shifts) == 0 == min(shifts):
        return _NOTHING
    if event.standard_deviation == 0:
        return NO_PRIVACY
    kept = [(float(c), float(p)) for c, p in zip(shifts, event.sampling_probs, strict=True) if p != 0]
    return GaussianMixture(event.standard_deviation, *(tuple(each) for each in zip(*kept, strict=True)))


def _truncated(event: Any) -> Mechanism:
    if 0 in (event.sampling_probability, event.truncated_batch_size, event.dataset_size):
        return _NOTHING
    base = Gaussian(event.noise_multiplier, unsafe_no_noise=event.noise_multiplier == 0)
    return TruncatedPoisson(base, event.sampling_probability, event.dataset_size, event.truncated_batch_size)


def _tree(event: Any) -> Mechanism:
    """A record is in one leaf, and in no more nodes than the deepest tree has levels."""
    steps = event.step_counts if isinstance(event.step_counts, list | tuple) else [event.step_counts]
    levels = max((check.count("step_counts", each, minimum=0).bit_length() for each in steps), default=0)
    if event.noise_multiplier == 0 or not levels:
        return NO_PRIVACY if levels else _NOTHING
    return Gaussian(event.noise_multiplier / levels**0.5)


_MECHANISMS: dict[type[dp.DpEvent], Callable[[Any], Mechanism]] = {
    dp.NoOpDpEvent: lambda event: _NOTHING,
    dp.NonPrivateDpEvent: lambda event: NO_PRIVACY,
    dp.GaussianDpEvent: lambda event: _gaussian(event.noise_multiplier),
    dp.LaplaceDpEvent: lambda event: Laplace(event.noise_multiplier) if event.noise_multiplier else NO_PRIVACY,
    dp.DiscreteLaplaceDpEvent: lambda event: (
        DiscreteLaplace(event.noise_parameter, event.sensitivity) if event.noise_parameter else NO_PRIVACY
    ),
    dp.RandomizedResponseDpEvent: _response,
    dp.ZCDpEvent: lambda event: (
        NO_PRIVACY if math.inf in (event.rho, event.xi) else ZeroConcentrated(event.rho, event.xi)
    ),
    dp.MixtureOfGaussiansDpEvent: _mixture,
    dp.SelfComposedDpEvent: _times,
    dp.ComposedDpEvent: lambda event: Compose.of(*((_mechanism(each), 1) for each in event.events)),
    dp.PoissonSampledDpEvent: _poisson,
    dp.SampledWithoutReplacementDpEvent: _fixed_size,
    dp.TruncatedSubsampledGaussianDpEvent: _truncated,
    dp.SingleEpochTreeAggregationDpEvent: _tree,
    dp.RepeatAndSelectDpEvent: _repeated,
}


def _event(part: Mechanism) -> dp.DpEvent:
    """The event of one step."""
    match part:
        case Gaussian():
            return dp.GaussianDpEvent(part.noise_multiplier) if part.noise_multiplier else dp.NonPrivateDpEvent()
        case Laplace():
            return dp.LaplaceDpEvent(part.scale / part.sensitivity)
        case DiscreteLaplace():
            return dp.DiscreteLaplaceDpEvent(part.parameter, part.sensitivity)
        case KaryRandomizedResponse():
            return dp.RandomizedResponseDpEvent(part.noise, part.choices)
        case ZeroConcentrated():
            return dp.ZCDpEvent(part.rho, part.xi)
        case GaussianMixture():
            shifts = list(part.sensitivities), list(part.probabilities)
            return dp.MixtureOfGaussiansDpEvent(part.noise_multiplier, *shifts)
        case Poisson(base=Gaussian() | Laplace() | DiscreteLaplace() as base):
            return dp.PoissonSampledDpEvent(part.sample_rate, _event(base))
        case FixedSize(base=Gaussian() | Laplace() | DiscreteLaplace() as base):
            return dp.SampledWithoutReplacementDpEvent(part.records, part.batch_size, _event(base))
        case TruncatedPoisson():
            sizes = part.records, part.sample_rate, part.cap, part.base.noise_multiplier
            return dp.TruncatedSubsampledGaussianDpEvent(*sizes)
        case Selection(law=NegativeBinomial() | PoissonTrials() as law):
            shape = law.shape if isinstance(law, NegativeBinomial) else math.inf
            return dp.RepeatAndSelectDpEvent(to_event(part.base), law.mean, shape)
    raise Refused(f"dp-accounting has no event for {part}.")
