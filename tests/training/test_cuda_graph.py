"""The graph of a device, by a stand-in that writes the recorded operations again into the same tensors."""

from contextlib import contextmanager

import pytest
import torch
from torch.optim import SGD
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tacit.noise import SeededStream
from tacit.training import private_step
from tacit.training.compile import replay
from tacit.training.cuda_graph import CudaGraph
from tests.training.cases import blobs, cross_entropy, flat, small_model


class Graph:
    """Operations with their tensors; a replay computes each anew and writes where it wrote before."""

    def __init__(self):
        self.operations = []

    def replay(self):
        for operation, args, named, outputs in self.operations:
            for kept, new in zip(outputs, tree_leaves(operation(*args, **named)), strict=True):
                if isinstance(kept, torch.Tensor) and kept.data_ptr() != new.data_ptr():
                    kept.copy_(new)


class Recorder(TorchDispatchMode):
    def __init__(self, graph):
        super().__init__()
        self.graph = graph

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        if operation is torch.ops.aten._local_scalar_dense.default:
            raise RuntimeError("operation not permitted when stream is capturing")
        found = operation(*args, **(kwargs or {}))
        self.graph.operations.append((operation, args, kwargs or {}, tree_leaves(found)))
        return found


@contextmanager
def capture(graph, pool, capture_error_mode):
    """Operations run once while they are recorded here, which a device does not do."""
    with Recorder(graph):
        yield


@pytest.fixture
def device(monkeypatch):
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", capture)


def scaled_sum(weight, x):
    return (weight * x).sum(0), x.isfinite().all()


def test_every_call_computes_its_own_batch_and_keeps_what_it_gave(device):
    weight = torch.ones(3)
    graph = CudaGraph(scaled_sum, 1, None)
    given = []
    for call in range(6):
        weight.fill_(call + 1)  # In place, as optimizers write.
        given.append(graph(weight, torch.full((2, 3), float(call)))[0])
    assert [each.tolist() for each in given] == [[2.0 * call * (call + 1)] * 3 for call in range(6)]


def test_a_batch_that_is_not_finite_is_told_by_each_launch(device):
    graph = CudaGraph(scaled_sum, 1, None)
    batches = [torch.ones(2, 3) for _ in range(6)]
    batches[3][1, 1] = torch.inf
    batches[5][0, 0] = torch.nan
    assert [bool(graph(torch.ones(3), each)[1]) for each in batches] == [True, True, True, False, True, False]


def test_a_weight_that_moves_is_read_where_it_lies(device):
    graph = CudaGraph(scaled_sum, 1, None)
    for call in range(6):
        found = graph(torch.full((3,), float(call)), torch.ones(2, 3))[0]
        assert found.tolist() == [2.0 * call] * 3


def test_what_waits_for_the_device_runs_operation_by_operation(device):
    graph = CudaGraph(lambda weight, x: ((weight * x).sum(0) * x.max().item(), x.isfinite().all()), 1, None)
    given = [graph(torch.ones(3), torch.full((2, 3), float(call)))[0].tolist() for call in range(5)]
    assert given == [[2.0 * call * call] * 3 for call in range(5)]


@pytest.mark.parametrize("most", [None, 5])
def test_steps_of_graphs_give_the_weights_of_recorded_steps(device, monkeypatch, most):
    def trained():
        torch.manual_seed(0)
        model, (x, y) = small_model(), blobs(64)
        optimizer = SGD(model.parameters(), lr=0.5, momentum=0.5)
        step = private_step(
            model, optimizer, cross_entropy, clip_norm=0.3, noise_multiplier=0.7, expected_batch_size=16,
            engine="recorded", stream=SeededStream(3), max_physical_batch_size=most)  # fmt: skip
        for number in range(12):
            size = (16, 15, 9)[number % 3]
            step(x[number : number + size], y[number : number + size])
        return flat(model)

    recorded = trained()
    launched = []

    def make(self, recorded):
        launched.append(CudaGraph(replay(recorded), len(self._parameters), None))
        return launched[-1]

    monkeypatch.setattr("tacit.training.compile.CompiledSum._replayed", make)
    assert torch.equal(trained(), recorded)
    assert any(graph._graph is not None for graph in launched)
