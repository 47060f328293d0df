"""Programs at two numbers of records: where that number is more than the length of an axis, the line is told."""

import pytest
import torch
from torch import nn

from tacit.verification.programs import difference
from tacit.verification.record_mode import RecordMode
from tacit.verification.record_types import Records
from tacit.verification.recordwise import check_gradients, check_outputs, observed
from tests.architectures.zoo import ARCHITECTURES, define_torchvision_operators, installed
from tests.verification.catalogue_right import RIGHT
from tests.verification.test_catalogue import records
from tests.verification.test_zoo import MODULES, SIZE

ROWS = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))


def program(function, count, *given):
    torch.manual_seed(0)
    mode, values = RecordMode(count), [each[torch.arange(count) % len(each)].clone() for each in given or (ROWS,)]
    for value in values:
        mode.records(value.requires_grad_() if value.is_floating_point() else value, Records(0))
    with observed(mode):
        check_gradients(mode, check_outputs(mode, function(*values)))
    return mode.program


def differs(function, *given):
    program(function, 4, *given)  # What a first pass makes and keeps is no part of the program.
    return difference(program(function, 4, *given), program(function, 7, *given), (4, 7))


FREE = {
    "entries": lambda x: x.square().sum(1),
    "draws of each record": lambda x: x.sum(1) * torch.rand(len(x)),
    "zeros beside records": lambda x: torch.cat([x, torch.zeros(len(x), 1)], 1).sum(1),
    "views": lambda x: x.view(len(x) * 2, 2).view(len(x), -1).sum(1),
    "places of labels": lambda x: x[torch.arange(len(x)), torch.zeros(len(x), dtype=torch.long)],
    "record by record": lambda x: torch.stack([row.sum() for row in x]),
    "a recurrent state": lambda x: nn.LSTM(2, 5, batch_first=True)(x.view(len(x), 2, 2))[0].sum((1, 2)),
    "normalised channels": lambda x: nn.GroupNorm(2, 4)(x[..., None]).flatten(1).sum(1),
    "a length for each record": lambda x: nn.functional.ctc_loss(
        x.view(len(x), 1, 4).transpose(0, 1).log_softmax(2),
        torch.ones(len(x), 1, dtype=torch.long),
        *([1] * len(x), [1] * len(x)),
        reduction="none",
    ),
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


@pytest.mark.parametrize("name", [name for name in RIGHT if "packed" not in name])
def test_a_program_that_treats_records_apart_is_one_at_two_sizes(name):
    assert differs(RIGHT[name], *records()) is None


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_one_program_at_two_sizes(name):
    model, shape = MODULES[name]
    assert differs(model, torch.randn(8, *shape)) is None


@pytest.mark.parametrize(
    "name", ["GPT2LMHeadModel", "BertForMaskedLM", "LlamaForCausalLM", "T5ForConditionalGeneration"]
)
def test_a_raw_transformer_is_one_program_at_two_sizes(name):
    if not installed("transformers"):
        pytest.skip("transformers is not installed")
    define_torchvision_operators()
    architecture = next(each for each in ARCHITECTURES if each.name == name)
    model, data = architecture.build(raw=True).train(), architecture.data()

    def outputs(*values):
        given = dict(zip(data, values, strict=True))
        labels = given["labels"] if model.config.is_encoder_decoder else given.pop("labels")
        return architecture.loss(model(**given), labels)

    assert differs(outputs, *(value[:SIZE] for value in data.values())) is None


def test_distances_to_few_and_to_many_rows_are_one_program():
    book = torch.randn(6, 4)

    def near(rows):
        return torch.cdist(rows, book).amin(1)

    assert difference(program(near, 20), program(near, 30), (20, 30)) is None


@pytest.mark.parametrize("numbers", [True, False])
def test_other_numbers_are_compared_where_that_is_asked(numbers):
    programs = [program(lambda x, factor=factor: x.sum(1) * factor, 4) for factor in (1.0, 2.0)]
    assert (difference(*programs, (4, 4), numbers=numbers) is None) != numbers
