"""`tacit doctor` on models of a file."""

import json

import pytest

from tacit.cli import main

MODELS = """
import torch
from torch import nn

def good():
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))

class Sick(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8 * 36, 2))

class Centred(nn.Module):
    def forward(self, x):
        return x - x.mean(0)

def leaky():
    return nn.Sequential(nn.Linear(4, 3), Centred())

def words():
    return nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(20, 2))

class Own(nn.Module):
    def __init__(self, finish):
        super().__init__()
        self.layer, self.finish = nn.Linear(4, 2), finish
    def forward(self, x):
        return self.finish(self.layer(x))

def pair():
    return Own(lambda y: (y, y))

def flat():
    return Own(lambda y: y[:, 0])

def single():
    return Own(torch.sum)

def undefined():
    return Own(lambda y: y * float("nan"))

def failing():
    return Own(lambda y: y.no_such_method())

def raising():
    raise RuntimeError("boom")

def leaving():
    raise SystemExit(7)

def bracketed():
    return nn.ModuleDict({"[/x]": nn.BatchNorm1d(4)})

ready = nn.Linear(2, 2)
number = 3
"""


@pytest.fixture
def where(tmp_path):
    path = tmp_path / "models.py"
    path.write_text(MODELS)
    return lambda name: f"{path}:{name}"


def test_a_healthy_model(where, capsys):
    assert main(["doctor", where("good"), "--input-shape", "4"]) == 0
    assert "Every operation is covered" in capsys.readouterr().out
    assert main(["doctor", where("ready")]) == 0
    assert main(["doctor", where("words"), "--input-shape", "5", "--vocabulary", "10"]) == 0


@pytest.mark.parametrize("name", ["pair", "flat"])
def test_outputs_of_other_forms(where, capsys, name):
    assert main(["doctor", where(name), "--input-shape", "4"]) == 0
    assert "Every operation is covered" in capsys.readouterr().out


def test_a_layers_name_is_printed_as_it_is(where, capsys):
    assert main(["doctor", where("bracketed")]) == 2
    assert "[/x]" in capsys.readouterr().out


def test_a_sick_model_and_its_repair(where, capsys):
    assert main(["doctor", where("Sick")]) == 2
    out = capsys.readouterr().out
    assert "BatchNorm2d" in out
    assert "nn.GroupNorm(4," in out
    assert main(["doctor", where("Sick"), "--fix", "--input-shape", "3,8,8"]) == 0
    out = capsys.readouterr().out
    assert "GroupNorm(4, 8" in out
    assert "model[1] = nn.GroupNorm(4, 8, eps=1e-05)" in out


def test_json(where, capsys):
    assert main(["doctor", where("Sick"), "--json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert [problem["path"] for problem in found["problems"]] == ["1"]
    assert not found["healthy"]
    assert main(["doctor", where("leaky"), "--input-shape", "4", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["problems"][0]["path"] == "1"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["{}:Absent"], "must be one of"),
        (["{}:number"], "CLASS must be"),
        (["{}"], "MODULE:CLASS must be a module and a class"),
        (["no.such.module:Model"], "MODULE must be importable"),
        (["{}:good", "--input-shape", "3,x"], "input_shape must be positive integers"),
        (["{}:good", "--input-shape", "0"], "input_shape must be"),
        (["{}:good", "--input-shape", ""], "input_shape must be positive integers"),
        (["{}:good", "--input-shape", ","], "input_shape must be positive integers"),
        (["{}:good", "--input-shape", "9" * 15], "input_shape must be one whose examples can be made"),
        (["{}:good", "--input-shape", "5"], "inputs must be examples of the shape that the model takes; got [(5,)]"),
        (["{}:words", "--input-shape", "5"], "inputs must be examples of the shape that the model takes"),
        (["{}:words", "--input-shape", "5", "--vocabulary", "99"], "IndexError"),
        (["{}:single", "--input-shape", "4"], "model must be a module that returns a real-valued tensor for a batch"),
        (["{}:undefined", "--input-shape", "4"], "It could not be tested"),
        (["{}:failing", "--input-shape", "4"], "AttributeError"),
        (["{}:raising"], "CLASS must be callable without arguments; got 'raising'. RuntimeError: boom."),
        (["{}:leaving"], "SystemExit: 7"),
        (["..:x"], "MODULE must be importable; got '..'"),
    ],
)
def test_bad_input_is_one_sentence(where, capsys, arguments, sentence):
    path = where("")[:-1]
    assert main(["doctor", *(argument.format(path) for argument in arguments)]) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
