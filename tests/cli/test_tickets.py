"""`tacit tickets`: listing, and one ticket."""

import json

import pytest
import torch
from safetensors.torch import save_file

from tacit.cli import main
from tacit.tickets import Ticket
from tests.tickets.test_tickets import ticket


@pytest.fixture
def folder(tmp_path):
    for number, (density, accuracy) in enumerate([(0.9, 0.95), (0.5, 0.94), (0.08, 0.9)]):
        made = ticket(density)
        measured = Ticket(made.masks, made.start, "public", "by hand", {"accuracy": accuracy})
        measured.save(tmp_path / "tickets" / f"ticket-{number:02d}.safetensors")
    return tmp_path


def printed(capsys, *arguments):
    assert main(["tickets", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_folder_is_listed(folder, capsys):
    found = printed(capsys, folder)["tickets"]
    assert [each["file"] for each in found] == [f"tickets/ticket-{number:02d}.safetensors" for number in range(3)]
    assert [each["accuracy"] for each in found] == [0.95, 0.94, 0.9]
    for each in found:
        assert each["kept"] == sum(layer["kept"] for layer in each["layers"])
        assert each["density"] == pytest.approx(each["kept"] / each["weights"])
    assert main(["tickets", str(folder)]) == 0
    assert "public" in capsys.readouterr().out


def test_one_ticket_is_shown_layer_by_layer(folder, capsys):
    file = folder / "tickets" / "ticket-02.safetensors"
    (one,) = printed(capsys, file)["tickets"]
    mask = Ticket.load(file).masks["0.weight"]
    assert one["layers"][0]["unread_inputs"] == int((mask.sum(0) == 0).sum())
    assert one["layers"][0]["outputs_without_weights"] == int((mask.sum(1) == 0).sum())
    assert main(["tickets", str(file)]) == 0
    assert "by hand" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "Missing argument"),
        (["nowhere"], "path must be a ticket file that exists"),
        (["{empty}"], "PATH must be a ticket file, or a folder that has one"),
        (["{damaged}"], "measured must be JSON"),
    ],
)
def test_bad_input_is_one_sentence(folder, capsys, arguments, sentence):
    (folder / "empty").mkdir()
    damaged = folder / "damaged.safetensors"
    tensors = {name: torch.ones(1, 1) for name in ("mask.w", "start.w")}
    save_file(tensors, damaged, {"provenance": "public", "measured": ""})
    places = {"damaged": damaged, "empty": folder / "empty"}
    assert main(["tickets", *(argument.format(**places) for argument in arguments)]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("note", ["r[/b]", "[red]", ":smile:"])
def test_a_note_is_printed_as_it_is(tmp_path, capsys, note):
    made, path = ticket(0.5), tmp_path / "one.safetensors"
    Ticket(made.masks, made.start, "public", note).save(path)
    assert main(["tickets", str(path)]) == 0
    assert note in capsys.readouterr().out
