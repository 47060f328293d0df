"""Programs at two numbers of records: where that number is more than the length of an axis, the line is told."""

import pytest
import torch
from torch import nn

from tacit.verification.programs import difference
from tacit.verification.record_mode import RecordMode
from tacit.verification.record_types import Records
from tacit.verification.recordwise import check_gradients, check_outputs, observed

ROWS = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))


def program(function, count):
    mode, rows = RecordMode(count), ROWS[torch.arange(count) % len(ROWS)].clone().requires_grad_()
    mode.records(rows, Records(0))
    with observed(mode):
        check_gradients(mode, check_outputs(mode, function(rows)))
    return mode.program


FREE = {
    "entries": lambda x: x.square().sum(1),
    "draws of each record": lambda x: x.sum(1) * torch.rand(len(x)),
    "zeros beside records": lambda x: torch.cat([x, torch.zeros(len(x), 1)], 1).sum(1),
    "views": lambda x: x.view(len(x) * 2, 2).view(len(x), -1).sum(1),
    "places of labels": lambda x: x[torch.arange(len(x)), torch.zeros(len(x), dtype=torch.long)],
    "record by record": lambda x: torch.stack([row.sum() for row in x]),
    "a recurrent state": lambda x: nn.LSTM(4, 3, batch_first=True)(x[:, None])[0].sum((1, 2)),
    "a mask that holds for all": lambda x: x.sum(1) * (2 if torch.ones(len(x), 3).bool().all() else 1),
}
FOLLOWING = {
    "threshold": lambda x: x.sum(1) * (2 if len(x) > 5 else 1),
    "branch": lambda x: x.sum(1) if len(x) > 5 else x.sum(1).abs(),
    "sum of draws": lambda x: x.sum(1) * torch.rand(len(x)).sum(),
    "norm of more draws": lambda x: x.sum(1) * torch.randn(5 * len(x)).norm(),
    "range of a draw": lambda x: x.sum(1) * torch.randint(0, len(x), (1,)),
    "sum of ones": lambda x: x.sum(1) * torch.ones(len(x)).sum(),
    "last number": lambda x: x.sum(1) + torch.arange(len(x))[-1],
    "a part of a table": lambda x: x.sum(1) * torch.linspace(0, 1, 64)[: len(x)].sum(),
    "copies of columns": lambda x: x.sum(1, keepdim=True).expand(-1, len(x)).sum(1),
    "columns": lambda x: x[:, : len(x) - 2].sum(1),
    "repeated additions": lambda x: sum(x.sum(1) for _ in range(len(x))),
    "padding": lambda x: nn.functional.pad(x, (0, len(x)), value=1.0).sum(1),
}


@pytest.mark.parametrize("name", FREE)
def test_a_number_of_records_may_be_the_length_of_an_axis(name):
    assert difference(program(FREE[name], 4), program(FREE[name], 6), (4, 6)) is None


@pytest.mark.parametrize("name", FOLLOWING)
def test_whatever_else_follows_the_number_of_records_is_found(name):
    assert "test_programs.py:" in difference(program(FOLLOWING[name], 4), program(FOLLOWING[name], 6), (4, 6))


@pytest.mark.parametrize("numbers", [True, False])
def test_other_numbers_are_compared_where_that_is_asked(numbers):
    programs = [program(lambda x, factor=factor: x.sum(1) * factor, 4) for factor in (1.0, 2.0)]
    assert (difference(*programs, (4, 4), numbers=numbers) is None) != numbers
