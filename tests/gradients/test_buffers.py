"""Rows that are added behind a batch in the memory that it lies in."""

import torch

from tacit.gradients.flat_gradient import Buffers, extended


def test_rows_of_a_buffer_are_extended_where_they_lie():
    buffers = Buffers()
    rows = buffers.like("x", torch.empty(8, 3)).copy_(torch.randn(8, 3))
    before = rows.clone()
    whole = extended(rows, 10)
    assert whole is not None
    assert whole.data_ptr() == rows.data_ptr()
    whole[8:] = 1.0
    assert torch.equal(rows, before)
    assert torch.equal(whole[:8], before)
    again = buffers.like("x", torch.empty(8, 3))  # Held by the extended rows, too.
    assert again.data_ptr() != rows.data_ptr()


def test_rows_elsewhere_are_not_extended():
    buffers = Buffers()
    rows = buffers.like("x", torch.empty(8, 3))
    table = torch.randn(20, 3)
    assert extended(rows, 11) is None  # beyond a quarter more than it took
    assert extended(rows[2:], 7) is None
    assert extended(rows.T, 4) is None
    assert extended(table[:8], 10) is None
    assert extended(rows.to(torch.float64), 10) is None


def test_a_new_buffer_of_the_name_leaves_rows_of_the_last_one_alone():
    buffers = Buffers()
    rows = buffers.like("x", torch.empty(8, 3)).copy_(torch.randn(8, 3))
    before = rows.clone()
    buffers.like("x", torch.empty(800, 3)).zero_()
    extended(rows, 10)
    assert torch.equal(rows, before)
