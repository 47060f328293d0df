"""Wrong programs are refused at their operation and line, or told by their line; right ones pass."""

import inspect
from pathlib import Path

import pytest
import torch

from tacit.errors import MixesRecords
from tacit.verification import check_recordwise
from tests.refusals import sentence, stored
from tests.verification import catalogue_wrong
from tests.verification.catalogue_right import RIGHT
from tests.verification.catalogue_wrong import WRONG


def records():
    torch.manual_seed(0)
    return torch.randn(8, 6), torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])


def lines_of(program):
    source, first = inspect.getsourcelines(program)
    return range(first, first + len(source))


@pytest.mark.parametrize(
    "name", [name for name, (_, operation) in WRONG.items() if operation not in ("read", "unknown")]
)
def test_a_program_that_mixes_records_is_refused_at_its_operation_and_line(name):
    program, operation = WRONG[name]
    with pytest.raises(MixesRecords) as caught:
        check_recordwise(program, *records())
    assert caught.value.operation in (operation, f"aten.{operation}")
    file, _, line = caught.value.line.partition(":")
    if operation != "backward":
        assert file == Path(catalogue_wrong.__file__).name
        assert line.isdigit()
    assert sentence(caught.value) == stored("operations", name)


@pytest.mark.parametrize("name", [name for name, (_, operation) in WRONG.items() if operation == "read"])
def test_a_number_that_python_reads_is_told_by_its_line(name):
    program, _ = WRONG[name]
    found = check_recordwise(program, *records())
    assert {int(line.rpartition(":")[2]) for line in found.reads} & set(lines_of(program))


@pytest.mark.parametrize("name", [name for name, (_, operation) in WRONG.items() if operation == "unknown"])
def test_a_value_of_unknown_origin_is_told_by_its_line(name):
    program, _ = WRONG[name]
    found = check_recordwise(program, *records())
    assert {int(line.rpartition(":")[2]) for line in found.foreign} & set(lines_of(program))


@pytest.mark.parametrize("name", RIGHT)
def test_a_program_that_treats_records_apart_is_not_refused(name):
    found = check_recordwise(RIGHT[name], *records())
    assert found.operations
    assert not found.reads
    assert not found.foreign


def test_the_catalogue_is_as_long_as_it_says():
    assert len(WRONG) >= 120
    assert len(RIGHT) >= 60
