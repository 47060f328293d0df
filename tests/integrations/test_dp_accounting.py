"""Events of dp-accounting become mechanisms and go back; what is not known by name is refused."""

import math

import attr
import pytest

import tacit
from tacit.errors import InvalidInput, Refused
from tacit.mechanisms import (
    Compose,
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    FixedSize,
    Gaussian,
    GaussianMixture,
    KaryRandomizedResponse,
    Laplace,
    MatrixGaussian,
    Parallel,
    PermuteAndFlip,
    Selection,
    Shuffled,
    ToeplitzStrategy,
    TruncatedPoisson,
    ZeroConcentrated,
)
from tacit.relation import Relation

dp = pytest.importorskip("dp_accounting.dp_event")
from dp_accounting import calibrate_dp_mechanism  # noqa: E402
from dp_accounting.privacy_accountant import NeighboringRelation, UnsupportedEventError  # noqa: E402

from tacit.integrations.dp_accounting import NO_PRIVACY, Accountant, from_event, to_event  # noqa: E402

GAUSSIAN = dp.GaussianDpEvent(1.5)
EVENTS = {
    GAUSSIAN: Gaussian(1.5),
    dp.NonPrivateDpEvent(): NO_PRIVACY,
    dp.LaplaceDpEvent(2.0): Laplace(2.0),
    dp.DiscreteLaplaceDpEvent(0.5, 3): DiscreteLaplace(0.5, 3),
    dp.RandomizedResponseDpEvent(0.3, 5): KaryRandomizedResponse(0.3, 5),
    dp.ZCDpEvent(0.5, 0.1): ZeroConcentrated(0.5, 0.1),
    dp.PoissonSampledDpEvent(0.1, GAUSSIAN): Gaussian(1.5).poisson(0.1),
    dp.PoissonSampledDpEvent(0.1, dp.LaplaceDpEvent(2.0)): Laplace(2.0).poisson(0.1),
    dp.PoissonSampledDpEvent(0.1, dp.DiscreteLaplaceDpEvent(0.5, 1)): DiscreteLaplace(0.5).poisson(0.1),
    dp.SampledWithoutReplacementDpEvent(1000, 10, GAUSSIAN): FixedSize(Gaussian(1.5), 1000, 10),
    dp.TruncatedSubsampledGaussianDpEvent(100, 0.1, 12, 1.5): TruncatedPoisson(Gaussian(1.5), 0.1, 100, 12),
    dp.RepeatAndSelectDpEvent(GAUSSIAN, 20.0, math.inf): Selection.of(Gaussian(1.5), law="poisson", trials=20),
    dp.RepeatAndSelectDpEvent(GAUSSIAN, 1.0, 0.5): Selection.of(Gaussian(1.5), law=0.5, trials=1),
    dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.1, GAUSSIAN), 7): Gaussian(1.5).poisson(0.1) * 7,
}


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_events_go_to_mechanisms_and_back(event):
    mechanism = from_event(event)
    assert Compose.of((mechanism, 1)) == Compose.of((EVENTS[event], 1))
    assert to_event(mechanism) == event


def test_lists_go_round_too():
    mixture = dp.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0, 2.0], [0.2, 0.6, 0.2])
    assert from_event(mixture) == GaussianMixture(1.0, (0.0, 1.0, 2.0), (0.2, 0.6, 0.2))
    composed = dp.ComposedDpEvent([mixture, dp.SelfComposedDpEvent(GAUSSIAN, 3), dp.LaplaceDpEvent(2.0)])
    assert to_event(from_event(composed)) == composed
    assert to_event(from_event(dp.ComposedDpEvent([]))) == to_event(from_event(dp.NoOpDpEvent())) == dp.NoOpDpEvent()


class OwnGaussian(dp.GaussianDpEvent):
    """A class derived from a known one, of which nothing else is known."""


@attr.s(frozen=True, auto_attribs=True)
class GaussianDpEvent(dp.DpEvent):
    """A foreign event that has the name of a known one."""

    noise_multiplier: float


@pytest.mark.parametrize(
    "event",
    [
        dp.UnsupportedDpEvent(),
        OwnGaussian(1.0),
        GaussianDpEvent(1.0),
        dp.PoissonSampledDpEvent(0.1, dp.ZCDpEvent(0.5)),
        dp.PoissonSampledDpEvent(0.1, dp.ComposedDpEvent([GAUSSIAN, dp.LaplaceDpEvent(1.0)])),
        dp.PoissonSampledDpEvent(0.1, dp.PoissonSampledDpEvent(0.1, GAUSSIAN)),
        dp.PoissonSampledDpEvent(0.1, dp.RandomizedResponseDpEvent(0.5, 3)),
        dp.PoissonSampledDpEvent(0.1, dp.MixtureOfGaussiansDpEvent(1.0, [1.0, 2.0], [0.5, 0.5])),
        dp.PoissonSampledDpEvent(0.1, dp.NoOpDpEvent()),
        dp.SampledWithoutReplacementDpEvent(100, 10, dp.ZCDpEvent(0.5)),
        dp.SampledWithReplacementDpEvent(100, 10, GAUSSIAN),
    ],
    ids=str,
)
@pytest.mark.parametrize("nested", [lambda event: event, lambda event: dp.SelfComposedDpEvent(event, 3)])
def test_what_is_not_known_by_name_is_refused(event, nested):
    with pytest.raises(Refused, match="no mechanism is known"):
        from_event(nested(event))
    assert not Accountant().supports(nested(event))


@pytest.mark.parametrize(
    "event",
    [
        dp.GaussianDpEvent(-1.0),
        dp.GaussianDpEvent(math.nan),
        dp.PoissonSampledDpEvent(1.1, GAUSSIAN),
        dp.LaplaceDpEvent(-1.0),
        dp.SelfComposedDpEvent(GAUSSIAN, -1),
        dp.SelfComposedDpEvent(GAUSSIAN, 1.5),
        dp.SampledWithoutReplacementDpEvent(10, 11, GAUSSIAN),
        dp.SingleEpochTreeAggregationDpEvent(1.0, [-3]),
        dp.SingleEpochTreeAggregationDpEvent(-1.0, [3]),
        dp.RepeatAndSelectDpEvent(GAUSSIAN, 0.5, 1.0),
        dp.MixtureOfGaussiansDpEvent(1.0, [1.0], [0.5]),
        dp.ZCDpEvent(-0.5),
    ],
    ids=str,
)
def test_numbers_out_of_range_raise_and_cost_nothing_less(event):
    with pytest.raises(InvalidInput):
        from_event(event, Relation.ZERO_OUT)


@pytest.mark.parametrize(
    "mechanism",
    [
        *(Exponential(1.0), PermuteAndFlip(1.0), DiscreteGaussian(2.0), Exponential(1.0).poisson(0.1)),
        *(Parallel.of(Gaussian(1.0), Laplace(1.0)), Selection.of(Exponential(1.0)), Gaussian(1.0).allocated(10)),
    ],
    ids=str,
)
def test_a_mechanism_that_they_lack_is_refused(mechanism):
    with pytest.raises(Refused, match="dp-accounting has no event"):
        to_event(mechanism)


def test_what_accountants_read_counts_in_the_event():
    assert to_event(Shuffled(Gaussian(1.5), 100, 10) * 25) == dp.SelfComposedDpEvent(GAUSSIAN, 3)
    assert to_event(MatrixGaussian(2.0, ToeplitzStrategy(20, (1.0, 0.5)))).noise_multiplier == pytest.approx(2.0)


def test_several_gaussians_on_one_sample_are_one_of_less_noise():
    event = dp.PoissonSampledDpEvent(0.1, dp.ComposedDpEvent([dp.GaussianDpEvent(3.0), dp.GaussianDpEvent(4.0)]))
    step = from_event(event)
    assert (step.base.noise_multiplier, step.sample_rate) == (pytest.approx(2.4), 0.1)
    none = dp.PoissonSampledDpEvent(0.1, dp.ComposedDpEvent([dp.GaussianDpEvent(3.0), dp.GaussianDpEvent(0.0)]))
    assert from_event(none).base == NO_PRIVACY


@pytest.mark.parametrize(("steps", "levels"), [(1, 1), (2, 2), (3, 2), (4, 3), ([7, 1600], 11), ([], 0), (0, 0)])
def test_a_tree_is_one_release_of_as_many_nodes_as_a_leaf_has(steps, levels):
    tree = dp.SingleEpochTreeAggregationDpEvent(2.0, steps)
    assert from_event(tree, Relation.ZERO_OUT) == (Gaussian(2.0 / levels**0.5) if levels else Compose(()))
    for nested in (tree, dp.ComposedDpEvent([GAUSSIAN, dp.SelfComposedDpEvent(tree, 2)])):
        with pytest.raises(Refused, match="under add_remove"):
            from_event(nested)


@pytest.mark.parametrize("relation", list(NeighboringRelation))
def test_the_accountant_reads_their_relation(relation):
    ours = {"ADD_OR_REMOVE_ONE": "add_remove", "REPLACE_ONE": "replace_one", "REPLACE_SPECIAL": "zero_out"}
    found = Accountant(relation).compose(dp.PoissonSampledDpEvent(0.1, GAUSSIAN), 20)
    expected = tacit.accountant("pld")(Gaussian(1.5).poisson(0.1) * 20, relation=ours[relation.name])
    assert found.get_epsilon(1e-5) == float(expected.epsilon(1e-5))
    assert found.get_delta(0.5) == float(expected.delta(0.5))
    assert found.bracket(1e-5).lower <= found.get_epsilon(1e-5)
    assert found.mechanism == Gaussian(1.5).poisson(0.1) * 20


def test_their_calibration_takes_the_accountant():
    found = calibrate_dp_mechanism(
        Accountant, lambda sigma: dp.SelfComposedDpEvent(dp.GaussianDpEvent(sigma), 4), 1.0, 1e-5
    )
    assert 0.99 <= float(tacit.accountant("pld")(Gaussian(found) * 4).epsilon(1e-5)) <= 1.0


def test_renyi_events_need_the_renyi_accountant():
    with pytest.raises(UnsupportedEventError):
        Accountant().compose(dp.ZCDpEvent(0.1))
    renyi = Accountant(name="rdp").compose(dp.ZCDpEvent(0.1))
    assert renyi.get_epsilon(1e-5) == float(tacit.accountant("rdp")(ZeroConcentrated(0.1)).epsilon(1e-5))
    assert renyi.bracket(1e-5).standing.value == "proven"
