"""Rounding of computed clipped sums: what is measured against float64 never exceeds what is derived."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tacit.accounting import How, Ledger
from tacit.clipping import BatchMeanClip, FlatClip
from tacit.errors import UnsupportedModel
from tacit.gradients import ClippedSum, UnitIds, per_sample_gradients, rounding
from tacit.gradients.flat_gradient import Buffers
from tacit.gradients.rounding import (
    DOUBLE_SLACK,
    MOST_UNITS,
    NORM_TERMS,
    SINGLE_SLACKS,
    Blocks,
    blocks,
    covering,
    norm_slack,
    precise_products,
    raised,
    single_slack,
    slack,
    square_sums,
)
from tacit.gradients.rules.linear import OuterProduct
from tacit.noise import SeededStream
from tacit.training import fit, release
from tacit.training.compile import CompiledSum

pytestmark = pytest.mark.usefixtures("without_types")

EXPECTED = [None, 8, 37, 90]


def inner(outputs: Tensor, targets: Tensor) -> Tensor:
    """A loss whose gradients of the outputs are the targets, exactly."""
    return (outputs * targets).flatten(1).sum(1)


class Positions(nn.Module):
    """One matrix at every position of a sequence, whose gradients may cancel."""

    def __init__(self, width: int, outputs: int):
        super().__init__()
        self.matrix = nn.Linear(width, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.matrix(x)


def rows(kind: str, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Inputs and gradients of outputs of one linear layer."""
    draw = torch.Generator().manual_seed(seed)
    x, y = torch.rand(count, 40, generator=draw) + 0.5, torch.rand(count, 3, generator=draw) + 0.5
    if kind == "cancelling":
        x[1::2] = x[::2][: count // 2] * (1 + 2.0**-20)
        y[1::2] = -y[::2][: count // 2]
    if kind == "magnitudes":
        x *= 10.0 ** torch.randint(-20, 12, (count, 1), generator=draw)
    if kind == "alike":
        x[:], y[:] = x[0], y[0]
    return x, y


@pytest.mark.slow_cases
@pytest.mark.parametrize("kind", ["positive", "cancelling", "magnitudes", "alike"])
@pytest.mark.parametrize("count", [2, 180, 400, 700])
@pytest.mark.parametrize("physical", [None, 1, 96])
@pytest.mark.parametrize("expected", EXPECTED)
def test_the_error_of_a_sum_is_below_the_derived_bound(kind, count, physical, expected):
    if physical == 1 and count > 180:
        pytest.skip("one record at a time is tried on small batches")
    x, y = rows(kind, count, seed=count)
    model = nn.Linear(40, 3)
    # Nothing is clipped, so that every contribution is known exactly.
    clipped = ClippedSum(model, FlatClip(1e12), max_physical_batch_size=physical, expected_batch_size=expected)
    chosen = (x.double().norm(dim=1).square() + 1).sqrt() * y.double().norm(dim=1) < 9e11
    x, y = x[chosen], y[chosen]
    found = clipped(inner, x, y)[0]
    weight = y.double().t() @ x.double()
    error = torch.cat([(found.parts["weight"] - weight).flatten(), found.parts["bias"] - y.double().sum(0)]).norm()
    lengths = (x.double().square().sum(1) + 1).sqrt() * y.double().norm(dim=1)
    assert float(error) <= single_slack(expected) / 2 * float(lengths.sum()) / len(x) + 1e-30


@settings(max_examples=40, deadline=None)
@given(
    exponents=st.lists(st.integers(-20, 18), min_size=3, max_size=3),
    clip=st.sampled_from([1e-9, 1e-3, 1.0, 1e6]),
    kind=st.sampled_from(["positive", "cancelling", "alike"]),
    count=st.sampled_from([3, 64, 300]),
    expected=st.sampled_from(EXPECTED),
)
def test_neighbouring_sums_differ_by_at_most_the_clip_and_its_slack(exponents, clip, kind, count, expected):
    x, y = rows(kind, count, seed=sum(exponents) + count)
    for place, exponent in enumerate(exponents):
        x[place % count] *= 10.0**exponent
    clipped = ClippedSum(nn.Linear(40, 3), FlatClip(clip), expected_batch_size=expected)
    whole = clipped(inner, x, y)[0]
    for removed in (0, count // 2, count - 1):
        keep = torch.arange(count) != removed
        rest = clipped(inner, x[keep], y[keep])[0]
        moved = float((whole.flat.double() - rest.flat.double()).norm())
        assert moved <= clip * (1 + whole.slack)
    assert whole.slack == slack(torch.float32, 2, single_slack(expected))


def cancelling_positions(count: int, positions: int, width: int, outputs: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(count)
    half = positions // 2
    x, y = torch.randn(count, half, width, generator=draw), torch.randn(count, half, outputs, generator=draw)
    return 1e3 * torch.cat([x, x], 1), torch.cat([y, -y * (1 + 2.0**-18)], 1)


@pytest.mark.parametrize(("count", "positions", "width", "outputs"), [(80, 12, 300, 200), (1100, 40, 64, 64)])
def test_gradients_that_cancel_over_positions_stay_within_the_bound(count, positions, width, outputs):
    """By Gram matrices, and by matrices that are made twice."""
    x, y = cancelling_positions(count, positions, width, outputs)
    clipped = ClippedSum(Positions(width, outputs), FlatClip(1.0))
    found, norms = clipped(inner, x, y)
    exact = torch.einsum("btp,btd->bpd", y.double(), x.double())
    lengths = exact.flatten(1).norm(dim=1)
    assert (norms.double() * (1 + norm_slack(torch.float32, 1)) >= lengths).all()
    exact /= norms.double().clamp(min=1.0).view(-1, 1, 1)
    # The computed factor is off by a few units of rounding.
    assert float((found.parts["matrix.weight"] - exact.sum(0)).norm()) <= single_slack() / 2 + 2e-6 * count


@pytest.mark.parametrize(("positions", "width", "outputs"), [(12, 3000, 200), (300, 40, 60)])
def test_norms_of_ordinary_records_are_not_raised(positions, width, outputs, monkeypatch):
    """By Gram matrices of long rows, and by matrices that are made in parts."""
    monkeypatch.setattr(per_sample_gradients, "MOST_KEPT_VALUES", 40 * outputs)
    draw = torch.Generator().manual_seed(positions)
    x = torch.randn(6, positions, width, generator=draw)
    y = torch.randn(6, positions, outputs, generator=draw) + 0.3
    norms = ClippedSum(Positions(width, outputs), FlatClip(1.0))(inner, x, y)[1]
    exact = torch.einsum("btp,btd->bpd", y.double(), x.double()).flatten(1).norm(dim=1)
    assert float((norms.double() / exact - 1).abs().max()) <= 1e-6


def test_norms_of_repeated_rows_are_not_raised():
    draw = torch.Generator().manual_seed(4)
    x, y = torch.randint(0, 3, (6, 600), generator=draw), torch.randn(6, 600, 5, generator=draw)
    norms = ClippedSum(Table(), FlatClip(1.0))(inner, x, y)[1]
    exact = torch.einsum("btp,btd->bpd", y.double(), nn.functional.one_hot(x, 3).double()).flatten(1).norm(dim=1)
    assert float((norms.double() / exact - 1).abs().max()) <= 1e-6


@pytest.mark.parametrize(
    ("count", "positions", "width", "outputs"), [(40, 12, 8, 6), (40, 12, 30, 20), (80, 12, 300, 200)]
)
def test_neighbours_whose_gradients_cancel_over_positions_differ_by_at_most_the_slack(count, positions, width, outputs):
    x, y = cancelling_positions(count, positions, width, outputs)
    clipped = ClippedSum(Positions(width, outputs), FlatClip(1e-3))
    whole = clipped(inner, x, y)[0]
    for removed in (0, count - 1):
        keep = torch.arange(count) != removed
        rest = clipped(inner, x[keep], y[keep])[0]
        assert float((whole.flat.double() - rest.flat.double()).norm()) <= 1e-3 * (1 + whole.slack)


class OrderOfSums(Positions):
    """`Positions` on a processor whose order of sums follows the size of the batch and the row."""

    def forward(self, x: Tensor) -> Tensor:
        if len(x) == 1:
            return super().forward(x)
        otherwise = x[:, 1::2].flip(-1) @ self.matrix.weight.flip(-1).t()
        return torch.stack([super().forward(x[:, ::2]), otherwise], 2).flatten(1, 2)


def test_losses_that_cancel_are_not_taken_for_mixed_where_the_order_of_sums_follows_the_batch():
    x, y = (
        value.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2) for value in cancelling_positions(80, 12, 300, 200)
    )
    model = OrderOfSums(300, 200)
    alone = torch.cat([inner(model(x[i : i + 1]), y[i : i + 1]) for i in range(80)])
    together = inner(model(x), y)
    assert float(((together - alone).abs() / alone.abs()).detach().max()) > 1e-2  # rounding alone is that large here
    ClippedSum(model, FlatClip(1e-3))(inner, x, y)


def test_a_small_mixing_of_losses_that_cancel_is_still_refused():
    class Mixing(OrderOfSums):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + 1e-3 * x.mean(0).sum()

    x, y = cancelling_positions(80, 12, 300, 200)
    with pytest.raises(UnsupportedModel, match=r"mixes the examples|depends on the other examples"):
        ClippedSum(Mixing(300, 200), FlatClip(1e-3))(inner, x, y.abs())


@pytest.mark.parametrize("length", [1, 1000, 1025, 300_000])
def test_no_square_sum_is_below_its_value_by_more_than_the_slack(length):
    values = torch.rand(2, length, generator=torch.Generator().manual_seed(length)) + 0.1
    exact = values.double().square().sum(1)
    unit = 2.0**-24
    assert (square_sums(values).double() >= exact * (1 - NORM_TERMS * unit)).all()
    assert torch.allclose(square_sums(values).double(), exact, rtol=1e-6)


@given(
    units=st.integers(1, MOST_UNITS),
    share=st.integers(1, 64),
    single=st.sampled_from(SINGLE_SLACKS),
    in_parts=st.booleans(),
)
def test_blocks_keep_every_batch_within_the_bound(units, share, single, in_parts):
    size = -(-units // share)
    additions = 2 * share if in_parts else 0
    chosen = blocks(size, units, torch.float32, single, additions)
    unit = torch.finfo(chosen.dtype).eps / 2
    parts = -(-size // chosen.rows)
    roundings = chosen.rows + parts + 2 + additions if chosen.dtype == torch.float32 else MOST_UNITS * 2
    assert roundings * units * unit / (1 - roundings * unit) <= single / 2
    # A sum over the positions of one unit is a function of it; the others err by units * rows / 2^29.
    assert chosen.position_rows * units / 2**29 <= single / 4 or chosen.position_rows == 1
    assert blocks(size, units, torch.float64, single).position_rows == 1


def test_raised_norms_cover_what_cancels():
    # |sum| is 0 in float32 where the terms differ in digits that float32 drops.
    share = 1 + norm_slack(torch.float32, 1)
    assert float(raised(torch.zeros(1), torch.tensor([1e4]), 100)) * share**2 >= (100 * 2.0**-24 * 1e4) ** 2


@given(computed=st.floats(0.0, 1e6), hidden=st.floats(0.0, 1e6), dtype=st.sampled_from([torch.float32, torch.float64]))
def test_the_slack_of_norms_covers_what_is_not_raised(computed, hidden, dtype):
    squares = torch.tensor([computed], dtype=dtype)
    highest = squares + torch.tensor([hidden], dtype=dtype)
    share = 1 + norm_slack(dtype, 1)
    found = covering(squares, highest)
    assert found >= squares
    assert float(found) ** 0.5 * share >= float(highest) ** 0.5


@pytest.mark.parametrize("engine", ["eager", "recorded"])
def test_lanes_in_single_and_double_precision_agree(engine):
    model = nn.Sequential(nn.Linear(40, 30), nn.Tanh(), nn.Linear(30, 3))
    for count in (60, 300, 900):
        x, y = rows("positive", count, seed=1)
        clipped = ClippedSum(model, FlatClip(0.1))
        found = clipped(inner, x, y)[0]
        assert found.flat.dtype == (torch.float64 if count == 900 else torch.float32)
        if engine == "recorded":
            found = CompiledSum(clipped, inner, 64, 64, compiler=False)(x, y)
            assert found.slack == clipped.slack
        exact = ClippedSum(model.double(), FlatClip(0.1))(inner, x.double(), y.double())[0].flat
        model.float()
        assert float((found.flat - exact).norm()) <= 1e-5 * count * 0.1


def test_the_noise_grows_by_the_slack_and_the_ledger_says_so(monkeypatch):
    stds = []
    rounded = release.rounded_gaussian

    def seen(*given, std, **named):
        stds.append(std)
        return rounded(*given, std=std, **named)

    monkeypatch.setattr(release, "rounded_gaussian", seen)
    model, ledger = nn.Linear(3, 2), Ledger()
    settings = {"noise_multiplier": 2.0, "sample_rate": 0.01, "steps": 4, "ledger": ledger, "clip_norm": 0.5}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    # Most of these batches are empty: the noise is the same.
    fit(model, torch.randn(40, 3), torch.randn(40, 2), loss=inner, optimizer=optimizer, **settings)
    nu = slack(torch.float32, 2, single_slack(0.4))
    # Before them noise is drawn twice to see that it differs.
    assert stds == [1.0, 1.0] + [pytest.approx(1.0 * (1 + nu), rel=1e-12)] * 4
    fact = ledger.facts["arithmetic"]
    assert fact.how is How.ENFORCED
    assert f"nu = {nu:.2%}" in fact.says
    assert ledger.entries[0].mechanism.base.noise_multiplier == 2.0
    assert 0 < nu <= 0.005


def test_a_release_does_not_show_the_precision_of_its_sum():
    model = nn.Linear(40, 3)
    x, y = rows("positive", 300, seed=2)
    single = ClippedSum(model, FlatClip(1.0))(inner, x, y)[0]
    double = ClippedSum(model, FlatClip(1.0), max_physical_batch_size=2)(inner, x, y)[0]
    assert (single.flat.dtype, double.flat.dtype) == (torch.float32, torch.float64)
    double.flat.copy_(single.flat)
    means = []
    for total in (single, double):
        noisy = release.NoisyMean(SeededStream(3))
        means.append(noisy(FlatClip(1.0), total, torch.ones(300), 1.3, 7.0).mean.flat)
    assert means[0].dtype == means[1].dtype == torch.float32
    assert torch.equal(*means)


@pytest.mark.parametrize("large", [False, True])
def test_parts_are_added_in_the_precision_of_one_sum_of_the_model(large):
    """Quarters of a batch, and one record of it whose squares overflow, which has a part of its own."""
    model = nn.Linear(40, 3)
    x, y = rows("cancelling", 60, seed=5)
    if large:
        x[7] = 1e25
    whole, norms = ClippedSum(model, FlatClip(0.5))(inner, x, y)
    clipped = ClippedSum(model, FlatClip(0.5), max_physical_batch_size=15, expected_batch_size=60)
    quarters, again = clipped(inner, x, y)
    assert quarters.flat.dtype == torch.float32
    assert torch.allclose(again, norms, rtol=1e-5)
    assert torch.allclose(quarters.flat.double(), whole.flat.double(), atol=0.5 * 60 * single_slack(60))
    assert not torch.equal(quarters.flat, torch.zeros_like(quarters.flat))


def test_units_of_several_records_in_small_parts_are_all_in_the_sum():
    """As many records in a block of units as there are units: the block is not the whole batch."""
    model = nn.Linear(40, 3)
    x, y = rows("positive", 6, seed=6)
    ids = UnitIds(np.array([0, 0, 1, 1, 2, 3]))
    whole = ClippedSum(model, FlatClip(0.5))(inner, x, y, ids)[0]
    parts = ClippedSum(model, FlatClip(0.5), max_physical_batch_size=2, expected_batch_size=4)(inner, x, y, ids)[0]
    assert torch.allclose(parts.flat.double(), whole.flat.double(), rtol=1e-5, atol=1e-6)


def test_a_clipped_mean_has_no_slack():
    assert ClippedSum(nn.Linear(2, 2), BatchMeanClip(1.0)).slack == 0.0
    assert math.isclose(slack(torch.float64, 4, single_slack()), DOUBLE_SLACK, rel_tol=1e-6)


class Table(nn.Module):
    """One embedding, whose rows a record looks up several times."""

    def __init__(self):
        super().__init__()
        self.rows = nn.Embedding(3, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.rows(x)


def lone_sums(clipped, x, y):
    """Exact sum of what each record gives by itself."""
    return sum(clipped(inner, x[i : i + 1], y[i : i + 1])[0].flat.double() for i in range(len(x)))


@pytest.mark.parametrize("kind", ["matrix", "table"])
def test_what_cancels_in_one_unit_of_double_precision_rounds_no_other(kind, monkeypatch):
    """Terms 1e19 times the sum, which double precision hides: each record is to give the same in every batch."""
    monkeypatch.setattr(per_sample_gradients, "MOST_KEPT_VALUES", 1)
    draw = torch.Generator().manual_seed(3)
    count, half = 40, 12
    signs = torch.randn(count, half, 5, generator=draw, dtype=torch.float64) * 1e10
    order = torch.randperm(2 * half, generator=draw)
    y = torch.cat([signs, -signs], 1)[:, order]
    if kind == "table":
        model, x = Table().double(), torch.randint(0, 3, (count, half), generator=draw)
    else:
        model, x = Positions(4, 5).double(), torch.randn(count, half, 4, generator=draw, dtype=torch.float64)
    x = torch.cat([x, x], 1)[:, order]
    clipped = ClippedSum(model, FlatClip(1e-9))
    # The model is examined on a first batch in which nothing cancels.
    clipped(inner, x, y.abs())
    whole = clipped(inner, x, y)[0].flat
    assert float((whole - lone_sums(clipped, x, y)).norm()) <= 1e-9 * DOUBLE_SLACK / 2


@pytest.mark.parametrize(("expected", "most"), [(1, 0.0005), (20, 0.0005), (40, 0.001), (64, 0.0025), (10_000, 0.0041)])
def test_small_batches_cost_little_noise(expected, most):
    assert 0 < slack(torch.float32, 8, single_slack(expected)) <= most


@pytest.fixture
def on_a_device(monkeypatch):
    """Settings of CUDA's libraries, which exist without a device, are taken too; all are restored."""
    holders = [getattr(getattr(torch.backends, room), kind) for room, kind in PRODUCTS]
    before = [each.fp32_precision for each in holders]
    monkeypatch.setattr(rounding, "_settings", lambda: holders)
    yield
    torch.set_float32_matmul_precision("highest")
    for each, value in zip(holders, before, strict=True):
        each.fp32_precision = value


PRODUCTS = [
    ("mkldnn", "matmul"),
    ("mkldnn", "conv"),
    ("mkldnn", "rnn"),
    ("cuda", "matmul"),
    ("cudnn", "conv"),
    ("cudnn", "rnn"),
]


@pytest.mark.skipif(not hasattr(torch.backends.cudnn, "conv"), reason="torch before 2.9 has no such settings")
@pytest.mark.parametrize("loosen", [*PRODUCTS, None, "medium", "high"])
def test_no_product_is_made_in_less_than_single_precision(loosen, on_a_device):
    """Convolutions of cuDNN are made in TensorFloat-32 by default; a caller may ask for it anywhere, by either door."""
    if isinstance(loosen, tuple):
        getattr(getattr(torch.backends, loosen[0]), loosen[1]).fp32_precision = "tf32"
    elif loosen is not None:
        torch.set_float32_matmul_precision(loosen)
    holders = [getattr(getattr(torch.backends, room), kind) for room, kind in PRODUCTS]
    before = [each.fp32_precision for each in holders]
    assert "tf32" in before
    with precise_products():
        assert {each.fp32_precision for each in holders} <= {"ieee", "none"}
    assert [each.fp32_precision for each in holders] == before


@pytest.mark.parametrize("slack", [2.0**-8, 2.0**-12])
def test_equal_blocks_take_no_more_roundings_than_those_that_they_replace(slack):
    for units in (*range(400), 999, 1024, 4095):
        chosen = blocks(units, max(units, 1), torch.float32, slack)
        parts = chosen.equal_parts(units)
        assert not parts or units % parts == 0
        assert not parts or units // parts + parts <= chosen.rows + max(1, units / chosen.rows)


def test_no_record_adds_nothing():
    empty = OuterProduct("weight", torch.zeros(0, 3), torch.zeros(0, 4), Buffers())
    total = torch.zeros(3, 4)
    empty.add_in_blocks(total, torch.zeros(0), Blocks(10, torch.float32, 1))
    assert not total.any()
