"""Every clip against the conformance suite, and what each alone promises."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import dblquad
from torch import nn

from tacit.clipping import (
    AdaptiveClip,
    AutomaticClip,
    BatchMeanClip,
    FlatClip,
    GroupClip,
    PerLayerClip,
    clip_from_spec,
    clip_of,
)
from tacit.errors import InvalidInput
from tacit.gradients import ClippedSum, UnitIds, clipped_sum
from tacit.testing import check_clip
from tacit.testing.clip import contribution_bound, norm, product, released_sum, small_model
from tacit.tradeoff.gaussian import gaussian_delta

NAMES = ("0.weight", "0.bias", "2.weight")
KEEPING = (FlatClip(0.7), FlatClip(1e6), PerLayerClip(0.7), GroupClip({"0.*": 0.2, "2.weight": 1.5}), AdaptiveClip(0.7))
CHANGING = (AutomaticClip(0.7), AutomaticClip(2.0, 1e-6), AutomaticClip(0.3, 5.0), BatchMeanClip(0.7))


def mostly(clips):
    """The clips, those of a kind that was there before among the slow tests."""
    kinds = [type(clip) for clip in clips]
    return [
        pytest.param(clip, marks=pytest.mark.slow, id=str(clip))
        if type(clip) in kinds[:place]
        else pytest.param(clip, id=str(clip))
        for place, clip in enumerate(clips)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("clip", mostly(KEEPING))
def test_clips_that_keep_short_gradients(clip):
    check_clip(clip, keeps_short_gradients=True)


@pytest.mark.slow
@pytest.mark.parametrize("clip", mostly(CHANGING))
def test_clips_that_change_every_gradient(clip):
    check_clip(clip, keeps_short_gradients=False)


def per_record(x, y):
    """Gradient of every record by parameter, float64."""
    net = small_model().double()
    rows = []
    for i in range(len(y)):
        loss = product(net(x[i : i + 1].double()), y[i : i + 1].double()).sum()
        rows.append(torch.autograd.grad(loss, list(net.parameters())))
    return [dict(zip(NAMES, row, strict=True)) for row in rows]


def data(records=7, seed=3):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(records, 3, generator=generator), 2 * torch.randn(records, 2, generator=generator)


def expected(clip, x, y):
    """The finished sum by the formulas, one record and one group at a time."""
    total = dict.fromkeys(NAMES, 0.0)
    for row in per_record(x, y):
        for names, bound in BOUNDS[type(clip)](clip):
            length = math.sqrt(sum(float(row[name].square().sum()) for name in names))
            factor = clip.clip_norm / (length + clip.stability) if bound is None else min(1.0, bound / length)
            for name in names:
                total[name] = total[name] + factor * row[name]
    return torch.cat([total[name].flatten() for name in NAMES])


BOUNDS = {
    FlatClip: lambda clip: [(NAMES, clip.clip_norm)],
    AdaptiveClip: lambda clip: [(NAMES, clip.clip_norm)],
    AutomaticClip: lambda clip: [(NAMES, None)],
    PerLayerClip: lambda clip: [(NAMES[:2], clip.clip_norm / 2**0.5), (NAMES[2:], clip.clip_norm / 2**0.5)],
    GroupClip: lambda clip: [(NAMES[:2], 0.2), (NAMES[2:], 1.5)],
}


@pytest.mark.parametrize("clip", [*KEEPING, *CHANGING[:-1]], ids=str)
def test_sums_follow_the_formulas(clip):
    x, y = data()
    torch.testing.assert_close(released_sum(clip, x, y), expected(clip, x, y), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("clip", [*KEEPING, *CHANGING], ids=str)
@pytest.mark.parametrize("slow", [False, True], ids=["captured", "fallback"])
def test_pieces_of_any_size_give_the_same_sum(clip, slow):
    x, y = data(11)
    net = nn.utils.parametrizations.weight_norm(small_model()[0]) if slow else small_model()
    y = y[:, :2] if not slow else torch.cat([y, y], 1)
    if slow and isinstance(clip, GroupClip):
        clip = GroupClip({"bias": 0.2, "*": 1.5})
    totals = [ClippedSum(net, clip, max_physical_batch_size=size)(product, x, y) for size in (1, 3, 7, None)]
    for total, norms in totals[:-1]:
        torch.testing.assert_close(total.as_released().flat, totals[-1][0].flat, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(norms, totals[-1][1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("physical", [None, 1, 3, 8])
def test_a_users_gradients_are_clipped_together(average, physical):
    x, y = data(12)
    owners = np.array([3, 0, 1, 1, 0, 3, 3, 2, 1, 3, 3, 1])
    total, norms = ClippedSum(small_model(), FlatClip(0.7), max_physical_batch_size=physical)(
        product, x, y, UnitIds(owners, average=average)
    )
    rows = per_record(x, y)
    summed = torch.zeros_like(total.flat, dtype=torch.float64)
    for user in range(4):
        mine = [
            torch.cat([row[name].flatten() for name in NAMES]) for row, o in zip(rows, owners, strict=True) if o == user
        ]
        gradient = sum(mine) / (len(mine) if average else 1)
        assert float(norms[user]) == pytest.approx(float(gradient.norm()), rel=1e-5)
        summed += gradient * min(1.0, 0.7 / float(gradient.norm()))
    torch.testing.assert_close(total.flat.double(), summed, rtol=1e-5, atol=1e-5)


def test_users_are_clipped_together_by_embeddings_convolutions_and_fallback():
    torch.manual_seed(0)
    cases = (
        (nn.Sequential(nn.Embedding(9, 3), nn.Flatten(), nn.Linear(15, 2)), torch.randint(9, (8, 5))),
        (nn.Sequential(nn.Conv1d(2, 3, 2), nn.Flatten(), nn.Linear(12, 2)), torch.randn(8, 2, 5)),
        (nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.Linear(3, 2)), torch.randn(8, 4)),
        (nn.utils.parametrizations.weight_norm(nn.Linear(4, 2)), torch.randn(8, 4)),
    )
    owners = np.array([0, 0, 0, 1, 2, 2, 2, 2])
    for net, x in cases:
        y = torch.randn(8, 2)
        total, _ = ClippedSum(net, FlatClip(0.05))(product, x, y, UnitIds(owners))
        expected = torch.zeros_like(total.flat)
        for user in range(3):
            chosen = torch.from_numpy(owners == user)
            gradients = torch.autograd.grad(product(net(x[chosen]), y[chosen]).sum(), list(net.parameters()))
            gradient = torch.cat([each.flatten() for each in gradients])
            expected += gradient * min(1.0, 0.05 / float(gradient.norm()))
        torch.testing.assert_close(total.flat, expected, rtol=1e-4, atol=1e-6)


class TestGroups:
    def test_sensitivity_is_the_root_of_the_sum_of_squares(self):
        assert GroupClip({"a": 3.0, "b": 4.0}).sensitivity == 5.0
        assert PerLayerClip(0.7).sensitivity == 0.7

    def test_a_record_with_long_gradients_everywhere_reaches_it(self):
        for clip in (PerLayerClip(0.7), GroupClip({"0.*": 0.2, "2.weight": 1.5})):
            total = released_sum(clip, torch.ones(1, 3), torch.full((1, 2), 1e4))
            assert norm(total) == pytest.approx(clip.sensitivity, rel=1e-5)

    def test_layers_are_modules_that_hold_parameters(self):
        assert PerLayerClip(1.0).groups(NAMES) == {"0.weight": 0, "0.bias": 0, "2.weight": 1}

    def test_the_first_pattern_wins(self):
        assert GroupClip({"*.bias": 1.0, "*": 1.0}).groups(NAMES) == {"0.weight": 1, "0.bias": 0, "2.weight": 1}

    def test_patterns_that_do_not_fit_the_model(self):
        with pytest.raises(InvalidInput, match=r"bounds must cover every .*; got none for '2\.weight'"):
            GroupClip({"0.*": 1.0}).groups(NAMES)
        with pytest.raises(InvalidInput, match=r"bounds must name parameters of the model; got '1\.weight'"):
            GroupClip({"1.weight": 1.0, "*": 1.0}).groups(NAMES)
        with pytest.raises(InvalidInput, match="bounds must be at least one pattern"):
            GroupClip({})
        for wrong in (5, None, "*"):
            with pytest.raises(InvalidInput, match="bounds must be a table of patterns"):
                GroupClip(wrong)
        for bad in (0, -1.0, math.nan, math.inf, "1", None, True):
            with pytest.raises(InvalidInput, match="bound of 'a' must be in"):
                GroupClip({"a": bad})


class TestAdaptive:
    def test_the_ledger_gets_the_joint_gaussian_of_sum_and_count(self):
        """Hockey-stick divergence of the pair (sum, count) by quadrature in the plane, against one Gaussian."""
        clip, noise_multiplier = AdaptiveClip(2.0, count_noise=0.8), 1.3
        count_std = 0.5 * noise_multiplier * clip.count_noise
        record = np.array([clip.clip_norm / (noise_multiplier * clip.clip_norm), 0.5 / count_std])
        combined = clip.mechanism(noise_multiplier).noise_multiplier

        def excess(y, x, epsilon):
            with_record = math.exp(-((x - record[0]) ** 2 + (y - record[1]) ** 2) / 2)
            return max(with_record - math.exp(epsilon - (x**2 + y**2) / 2), 0.0) / (2 * math.pi)

        for epsilon in (0.0, 0.5, 2.0):
            value, _ = dblquad(excess, -9, 10, -9, 10, args=(epsilon,), epsabs=1e-7, epsrel=1e-6)
            assert gaussian_delta(epsilon, 1 / combined) == pytest.approx(value, abs=3e-6)

    def test_no_record_moves_the_pair_further_than_the_ledger_says(self):
        clip, noise_multiplier = AdaptiveClip(0.4, count_noise=2.0), 0.9
        reach = 1 / clip.mechanism(noise_multiplier).noise_multiplier
        count_std = 0.5 * noise_multiplier * clip.count_noise
        moves = []
        for length in (0.0, 1e-3, 0.2, 0.39999, 0.4, 0.40001, 3.0, 1e20, math.inf, math.nan):
            norms = torch.tensor([[length]], dtype=torch.float64)
            released = float(clip.factors(norms, rounding=1e-16)) * (length if math.isfinite(length) else 0.0)
            count = float(clip.contributions(norms[0]))
            assert abs(count) <= 0.5
            moves.append(math.hypot(released / (noise_multiplier * clip.clip_norm), count / count_std))
        assert max(moves) == pytest.approx(reach, rel=1e-9)
        assert moves[-2:] == [0.0, 0.0]

    def test_the_bound_finds_the_quantile(self):
        clip = AdaptiveClip(20.0, quantile=0.8)
        generator = torch.Generator().manual_seed(0)
        lengths = torch.rand(1000, generator=generator)
        for _ in range(150):
            clip = clip.after(clip.statistic(lengths), 1000.0)
        assert clip.clip_norm == pytest.approx(0.8, abs=0.05)

    def test_noise_on_the_count_is_that_of_the_ledger(self):
        clip = AdaptiveClip(1.0, learning_rate=0.1, quantile=0.5, count_noise=4.0)
        count = clip.statistic(torch.tensor([0.2, 3.0]))
        moved = clip.after(count + clip.statistic_std(1.5), 10.0)
        assert math.log(moved.clip_norm) == pytest.approx(-0.1 * (0.5 * 1.5 * 4.0 / 10), rel=1e-6)

    def test_the_bound_stays_an_ordinary_number(self):
        clip = AdaptiveClip(1e-9)
        for noise in (1e9, -1e9):
            assert 1e-9 <= clip.after(clip.statistic(torch.ones(3)) + noise, 1.0).clip_norm <= 1e12


class TestBatchMean:
    def test_the_mean_is_clipped(self):
        x, y = data(40)
        sums, _ = clipped_sum(small_model(), product, x, y, clip_norm=1e12)
        mean = torch.cat([value.flatten() for value in sums.values()]).double() / 40
        torch.testing.assert_close(released_sum(BatchMeanClip(1e6), x, y), mean, rtol=1e-5, atol=1e-6)
        short = released_sum(BatchMeanClip(0.01), x, y)
        torch.testing.assert_close(short, 0.01 * mean / mean.norm(), rtol=1e-5, atol=1e-8)

    def test_one_record_can_turn_the_mean_around(self):
        x, y = torch.ones(10, 3), torch.full((10, 2), 1.0)
        there = y.clone()
        there[0] = -1e6
        distance = norm(released_sum(BatchMeanClip(0.3), x, y) - released_sum(BatchMeanClip(0.3), x, there))
        assert distance > 1.9 * 0.3
        assert distance <= BatchMeanClip(0.3).sensitivity

    def test_its_bound_is_half_the_sensitivity(self):
        assert contribution_bound(BatchMeanClip(0.3)) == 0.3


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"type": "flt"}, "Did you mean 'flat'"),
        ({"type": "flat"}, "clip_norm must be given for a flat clip"),
        ({"type": "flat", "clipnorm": 1}, "Did you mean 'clip_norm'"),
        ({"type": "groups"}, "bounds must be given"),
        (3, "clip must be a table"),
    ],
)
def test_specs_with_mistakes_are_refused(spec, message):
    with pytest.raises(InvalidInput, match=message):
        clip_from_spec(spec)


def test_exactly_one_of_clip_norm_and_clipping_is_accepted():
    assert clip_of(2.0, None) == FlatClip(2.0)
    assert clip_of(None, PerLayerClip(1.0)) == PerLayerClip(1.0)
    for given in ((None, None), (1.0, FlatClip(1.0))):
        with pytest.raises(InvalidInput, match="clip_norm must be given"):
            clip_of(*given)
    with pytest.raises(InvalidInput, match="clipping must be a clip"):
        clip_of(None, 1.0)


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf, "1", None, True])
@pytest.mark.parametrize("kind", [PerLayerClip, AutomaticClip, AdaptiveClip, BatchMeanClip])
def test_bad_bounds_are_refused(kind, bad):
    with pytest.raises(InvalidInput, match="clip_norm must be in"):
        kind(bad)


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda: AutomaticClip(1.0, 0.0), "stability"),
        (lambda: AdaptiveClip(1.0, quantile=1.0), "quantile"),
        (lambda: AdaptiveClip(1.0, learning_rate=-1.0), "learning_rate"),
        (lambda: AdaptiveClip(1.0, count_noise=0.0), "count_noise"),
    ],
)
def test_bad_settings_are_refused(build, name):
    with pytest.raises(InvalidInput, match=f"{name} must be in"):
        build()
