"""Records whose looked-up rows all get one gradient: the same norms and sums as by position, record by record."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.gradients import embedding_rows
from tacit.gradients.embedding_rows import EmbeddingRows
from tacit.gradients.rounding import blocks, single_slack

KINDS = ("equal", "padded", "unlike", "empty")


def made(kinds, positions=7, words=5, width=3, dtype=torch.float32, seed=0):
    """Rows of records of these kinds: one gradient, one beside padding, one for each position, none."""
    draw = torch.Generator().manual_seed(seed)
    index = torch.randint(words, (len(kinds), positions), generator=draw)
    gradient = torch.randn(len(kinds), 1, width, generator=draw, dtype=dtype).repeat(1, positions, 1)
    for record, kind in enumerate(kinds):
        if kind == "padded":
            gradient[record, torch.rand(positions, generator=draw) < 0.5] = 0.0
        elif kind == "unlike":
            gradient[record] = torch.randn(positions, width, generator=draw, dtype=dtype)
        elif kind == "empty":
            gradient[record] = 0.0
    return EmbeddingRows("table", index, gradient, torch.Size((words, width)))


def exact(rows):
    """Per-sample gradients in double precision, shape (B, V, d)."""
    return EmbeddingRows(rows.name, rows.index, rows.gradient.double(), rows.shape).dense()


def weighted_sum(rows, factors):
    total = torch.zeros(rows.shape, dtype=rows.gradient.dtype)
    rows.add_in_blocks(total, factors, blocks(len(factors), len(factors), rows.gradient.dtype, single_slack()))
    return total.double()


@settings(max_examples=60, deadline=None)
@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=9),
    positions=st.sampled_from([1, 2, 7, 30]),
    double=st.booleans(),
    seed=st.integers(0, 2**20),
)
def test_norms_and_sums_are_those_of_a_loop(kinds, positions, double, seed):
    rows = made(kinds, positions, dtype=torch.float64 if double else torch.float32, seed=seed)
    factors = torch.rand(len(kinds), generator=torch.Generator().manual_seed(seed)).to(rows.gradient.dtype)
    every = exact(rows)
    tolerance = 1e-12 if double else 1e-6
    expected = every.square().sum((1, 2))
    assert torch.allclose(rows.squared_norms().double(), expected, rtol=tolerance, atol=tolerance)
    total = torch.tensordot(factors.double(), every, dims=1)
    assert torch.allclose(weighted_sum(rows, factors), total, rtol=tolerance, atol=10 * tolerance)


@settings(max_examples=40, deadline=None)
@given(kinds=st.lists(st.sampled_from(KINDS), min_size=2, max_size=6), seed=st.integers(0, 2**20))
def test_the_norm_of_a_record_is_the_same_in_every_batch(kinds, seed):
    """Neighbouring batches differ in one record: no other record's clipping factor may differ."""
    rows = made(kinds, seed=seed)
    together = rows.squared_norms()
    for record in range(len(kinds)):
        alone = EmbeddingRows("table", rows.index[[record]], rows.gradient[[record]], rows.shape).squared_norms()
        assert torch.equal(alone[0], together[record])


def test_a_large_table_is_summed_by_the_rows_looked_up(monkeypatch):
    rows, factors = made(["equal", "padded", "unlike"], words=50), torch.tensor([0.5, 1.0, 0.25])
    whole = weighted_sum(rows, factors)
    monkeypatch.setattr(embedding_rows, "WHOLE_TABLE", 0)
    assert torch.equal(weighted_sum(rows, factors), whole)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_rows_that_are_not_finite_show_in_their_own_norm_alone(bad):
    rows = made(["equal", "padded", "equal"])
    rows.gradient[1, :, 0] = bad
    squares = rows.squared_norms()
    assert not squares[1].isfinite()
    assert squares[[0, 2]].isfinite().all()


def test_few_records_and_positions():
    assert made([]).squared_norms().shape == (0,)
    nowhere = EmbeddingRows("table", torch.zeros(2, 0, dtype=torch.long), torch.zeros(2, 0, 3), torch.Size((5, 3)))
    assert nowhere.squared_norms().tolist() == [0.0, 0.0]
