"""Replayed recordings: the same numbers by fewer operations."""

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from tacit.training.compile import replay

X = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))


def replayed(function, *arguments):
    recorded = make_fx(function, tracing_mode="fake")(*arguments)
    before = len(recorded.graph.nodes)
    return replay(recorded)(*arguments), before - len(recorded.graph.nodes)


def test_operations_that_change_nothing_are_left_out():
    found, fewer = replayed(lambda x: (x.square().view(4, 3).sum(), x.detach().square()), X)
    torch.testing.assert_close(found, [X.square().sum(), X.square()])
    assert fewer == 2


def test_values_are_read_as_they_were_before_a_write():
    def function(x):
        first = x * 2
        view = first.view(-1)
        before = first.sum()
        view.add_(1.0)
        return before, first.sum(), x * 2

    found, _ = replayed(function, X)
    torch.testing.assert_close(found, [(X * 2).sum(), (X * 2 + 1).sum(), X * 2])


def test_writing_into_an_argument_is_kept():
    target = X.clone()

    def function(x):
        x.mul_(3.0)
        return x.sum(), x.sum()

    recorded = make_fx(function, tracing_mode="fake")(target)
    start = target.clone()
    found = replay(recorded)(target)
    torch.testing.assert_close(target, start * 3)
    torch.testing.assert_close(found, [target.sum()] * 2)


def test_random_operations_are_not_shared():
    found, _ = replayed(lambda x: (torch.rand_like(x), torch.rand_like(x)), X)
    assert not torch.equal(*found)


def test_constants_of_every_kind_survive():
    found, _ = replayed(lambda x: (x.clamp(max=float("inf")), x.to(torch.float64), torch.full((2,), float("nan"))), X)
    assert torch.equal(found[0], X)
    assert found[1].dtype == torch.float64
    assert found[2].isnan().all()
