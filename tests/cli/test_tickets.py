"""`tacit tickets`: listing, one ticket, and how selective the choice is."""

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


def test_the_published_choice_is_nearly_uniform_and_the_sound_one_is_not(capsys):
    """soundness.md S3: ratio 1.034, distance .0038, .604 against .600 at epsilon 1; e^5 for a point of 10,000."""
    published, sound = printed(capsys, "--explain")["scores"]
    assert round(published["likeliest_over_unlikeliest"], 3) == 1.034
    assert round(published["from_uniform"], 4) == 0.0038
    assert (round(published["sparse"], 3), published["sparse_at_random"]) == (0.604, 0.6)
    assert published["one_point"] < 1.0001
    assert sound["one_point"] == pytest.approx(148.413, rel=1e-4)
    assert main(["tickets", "--explain", "--epsilon", "0.2"]) == 0
    assert "15 tickets, epsilon 0.02" in capsys.readouterr().out


def test_the_choice_among_saved_tickets(folder, capsys):
    told = printed(capsys, folder, "--explain", "--relation", "add_remove", "--records", 1000)
    published, sound = told["scores"]
    assert told["tickets"] == 3
    assert sound["from_uniform"] > 0.3 > 0.05 > published["from_uniform"]
    assert sound["one_point"] == pytest.approx(2.71828, rel=1e-4)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "PATH must be given, or --explain"),
        (["nowhere"], "path must be a ticket file that exists"),
        (["{empty}"], "PATH must be a ticket file, or a folder that has one"),
        (["{damaged}"], "measured must be JSON"),
        (["{one}", "--explain"], "PATH must be a folder with two measured tickets or more"),
        (["--explain", "--epsilon", "-1"], "epsilon must be in"),
        (["--explain", "--accuracy", "95"], "accuracy must be in"),
        (["--explain", "--records", "0"], "records must be an integer >= 1"),
        (["--explain", "--relation", "add-remove"], "relation must be one of add_remove"),
    ],
)
def test_bad_input_is_one_sentence(folder, capsys, arguments, sentence):
    (folder / "empty").mkdir()
    damaged = folder / "damaged.safetensors"
    tensors = {name: torch.ones(1, 1) for name in ("mask.w", "start.w")}
    save_file(tensors, damaged, {"provenance": "public", "measured": ""})
    places = {"damaged": damaged, "empty": folder / "empty", "one": folder / "tickets" / "ticket-00.safetensors"}
    assert main(["tickets", *(argument.format(**places) for argument in arguments)]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("note", ["r[/b]", "[red]", ":smile:"])
def test_a_note_is_printed_as_it_is(tmp_path, capsys, note):
    made, path = ticket(0.5), tmp_path / "one.safetensors"
    Ticket(made.masks, made.start, "public", note).save(path)
    assert main(["tickets", str(path)]) == 0
    assert note in capsys.readouterr().out
