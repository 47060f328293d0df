"""`CudaGraph`: a replayed clipped sum that the device launches whole.

A step of a small model on a GPU waits for Python to launch one kernel after another. A graph of the device holds all
launches of one size of batch with their addresses, so that a step launches once.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

_PLAIN_CALLS = 2  # that run operation by operation first: libraries allocate at their first call

StepGraph = Callable[..., tuple[Tensor, Tensor]]


class CudaGraph:
    """`run` on tensors of a CUDA device, captured at its third call and launched whole from then on.

    A capture runs nothing, so that every call computes its batch once. Draws of the device's default generator, such
    as those of dropout, go on in the graph where they were. A `run` that cannot be captured stays as it is.

    Args:
        run: `run(*resident, *batch)` gives tensors, without waiting for the device.
        resident: number of arguments that lie at one address for many steps: parameters and buffers. The graph reads
            them there; where one has moved, it is captured anew.
        pool: memory that graphs of one run share; a handle of `torch.cuda.graph_pool_handle`.
    """

    def __init__(self, run: StepGraph, resident: int, pool: Any):
        self._run, self._resident, self._pool = run, resident, pool
        self._calls, self._addresses = 0, ()
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, *arguments: Tensor) -> tuple[Tensor, Tensor]:
        """What `run` gives for `arguments`, in tensors of the caller's own."""
        self._calls += 1
        if self._calls <= _PLAIN_CALLS:
            return self._run(*arguments)
        addresses = tuple(each.data_ptr() for each in arguments[: self._resident])
        if addresses != self._addresses:
            self._addresses = addresses
            self._capture(arguments)
        if self._graph is None:
            return self._run(*arguments)
        for kept, given in zip(self._batch, arguments[self._resident :], strict=True):
            kept.copy_(given)
        self._graph.replay()
        total, in_range = self._outputs
        # The next launch writes the graph's own.
        return total.clone(), in_range.clone()

    def _capture(self, arguments: Sequence[Tensor]) -> None:
        self._batch = [each.clone() for each in arguments[self._resident :]]
        graph = torch.cuda.CUDAGraph()
        try:
            # Threads that load data may call the device meanwhile.
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                self._outputs = self._run(*arguments[: self._resident], *self._batch)
        except RuntimeError:  # An operation that waits for the device or reads from the host.
            self._graph = None
        else:
            self._graph = graph
