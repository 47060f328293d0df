"""Gradients of small parameters side by side: the same norms and sums as one by one."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from tacit.gradients.clipped import clipped_sum
from tacit.gradients.embedding_rows import EmbeddingRows
from tacit.gradients.engine import JoinedGradients, joins
from tacit.gradients.flat_gradient import Buffers
from tacit.gradients.per_sample_gradients import DenseGradients, OuterProductSum, sum_of_uses
from tacit.gradients.rounding import blocks
from tests.gradients.cases import assert_same, oracle

_SHAPES = st.lists(st.sampled_from([(), (1,), (3,), (2, 4), (5, 1, 2)]), min_size=1, max_size=5)


def _parts(shapes: list[tuple[int, ...]], units: int) -> list[DenseGradients]:
    torch.manual_seed(units)
    return [DenseGradients(str(place), torch.randn(units, *shape)) for place, shape in enumerate(shapes)]


@given(_SHAPES, st.integers(1, 300))
@settings(max_examples=60, deadline=None)
def test_norms_and_sums_are_those_of_the_parts(shapes: list[tuple[int, ...]], units: int) -> None:
    parts = _parts(shapes, units)
    joined = JoinedGradients.of(parts)
    expected = sum(part.gradients.double().reshape(units, -1).square().sum(1) for part in parts)
    torch.testing.assert_close(joined.squared_norms().double(), expected, rtol=1e-6, atol=0)
    factors = torch.rand(units)
    sums = {str(place): torch.zeros(shape) for place, shape in enumerate(shapes)}
    joined.add_in_blocks(sums, factors, blocks(units, units, torch.float32, 2**-8))
    for part in parts:
        exact = torch.tensordot(factors.double(), part.gradients.double(), dims=1)
        torch.testing.assert_close(sums[part.name].double(), exact, rtol=1e-5, atol=1e-5)


def test_large_gradients_and_those_in_other_forms_stay_alone() -> None:
    # The number of records does not matter: neighbouring batches take the same path.
    assert all(joins(DenseGradients("bias", torch.ones(units, 100))) for units in (0, 1, 16, 5000))
    assert not joins(DenseGradients("table", torch.ones(16, 10_000)))
    assert not joins(OuterProductSum.of_positions("weight", torch.ones(2, 3, 4), torch.ones(2, 3, 5), Buffers()))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_uses_are_added_in_any_order(order: tuple[int, int]) -> None:
    torch.manual_seed(0)
    rows = EmbeddingRows("table", torch.randint(4, (5, 7)), torch.randn(5, 7, 3), torch.Size((4, 3)))
    products = OuterProductSum.of_positions("table", torch.randn(5, 2, 4), torch.randn(5, 2, 3), Buffers())
    expected = rows.dense() + products.dense()[:, 0]
    uses = [(rows, products)[place] for place in order]
    found = sum_of_uses(uses, rows.shape).dense()
    torch.testing.assert_close(found, expected)


def test_a_sum_writes_into_nothing_that_it_was_given() -> None:
    dense = DenseGradients("table", torch.randn(3, 2, 2))
    kept = OuterProductSum.of_positions("table", torch.randn(3, 4, 2), torch.randn(3, 4, 2), Buffers())
    kept.squared_norms()
    before = dense.gradients.clone(), kept.dense().clone()
    for uses in ([dense, kept], [kept, dense]):
        torch.testing.assert_close(
            sum_of_uses(uses, torch.Size((2, 2))).dense().view(3, 2, 2), before[0] + before[1][:, 0]
        )
    assert torch.equal(dense.gradients, before[0])
    assert torch.equal(kept.dense(), before[1])


class _Tied(nn.Module):
    """A table that is looked up and multiplied with, and a bias: the sum over both uses is clipped."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(11, 6))
        self.bias = nn.Parameter(torch.randn(11))

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        return F.linear(F.embedding(index, self.table).tanh(), self.table, self.bias)


def test_a_tied_network_releases_the_clipped_sum_of_a_loop() -> None:
    torch.manual_seed(1)
    model, inputs, targets = _Tied(), torch.randint(11, (9, 5)), torch.randint(11, (9, 5))

    def losses(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="none").view(targets.shape).sum(1)

    found = clipped_sum(model, losses, inputs, targets, clip_norm=0.5)
    assert_same(found, oracle(model, losses, inputs, targets, 0.5), clip_norm=0.5)
