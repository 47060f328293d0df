"""A buffer is never handed out while a view of it is alive."""

import torch

from tacit.gradients.flat_gradient import Buffers


def test_a_view_of_a_view_keeps_its_values():
    buffers = Buffers()
    first = buffers.copy("patches", torch.arange(12.0)).view(3, 4).mT[1:]
    kept = first.clone()
    buffers.copy("patches", torch.zeros(12))
    assert torch.equal(first, kept)


def test_memory_is_used_again_once_every_view_is_gone():
    buffers = Buffers()
    first = buffers.copy("patches", torch.arange(12.0))
    address = first.data_ptr()
    del first
    assert buffers.copy("patches", torch.zeros(8)).data_ptr() == address
