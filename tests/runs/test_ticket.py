"""`tacit train ... --method ticket`."""

import json

import pytest
import torch

from tacit.cli import main
from tacit.tickets import Ticket
from tacit.tickets.public import data_free_ticket, transferred_ticket
from tests.tickets.test_tickets import data, network

SHORT = ["--method", "ticket", "--epsilon", "4", "--model", "mlp", "--hidden", "16", "--epochs", "2"]


def trained(tmp_path, *extra):
    folder = tmp_path / "run"
    code = main(["train", "digits", *SHORT, "--ticket-search-epochs", "1", "--out", str(folder), "--json", *extra])
    return code, folder


@pytest.mark.parametrize("mode", ["T1", "T2", "T4"])
def test_a_ticket_is_trained_and_the_card_shows_every_phase(tmp_path, capsys, mode):
    code, folder = trained(tmp_path, "--ticket-mode", mode)
    assert code == 0
    card = json.loads(capsys.readouterr().out)
    proven = next(each for each in card["guarantees"] if each["accountant"] == "pld")
    assert proven["standing"] == "proven"
    assert proven["epsilon"] <= 4.0
    assert card["metrics"]["density"] < 0.6
    ticket = Ticket.load(folder / "ticket.safetensors")
    assert ticket.provenance == ("public" if mode == "T1" else "private")
    assert main(["audit", str(folder), "--json"]) == 0


def test_the_papers_mode_is_claimed_on_the_card(tmp_path, capsys):
    code, _ = trained(tmp_path, "--ticket-mode", "paper", "--ticket-rounds", "2", "--ticket-iterations", "20")
    assert code == 0
    card = json.loads(capsys.readouterr().out)
    assert {each["standing"] for each in card["guarantees"]} == {"claimed"}
    assert card["unsafe"] == ["unsafe_ticket_of_private_data"]


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        (["--ticket-mode", "T7"], "mode of [ticket] must be one of paper, T1, T2, T3, T4"),
        (["--ticket-density", "0"], "density of [ticket] must be in (0, 1]"),
        (["--ticket-origin", "kmnst", "--ticket-mode", "T1"], "Did you mean 'kmnist'"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, capsys, extra, sentence):
    code, _ = trained(tmp_path, *extra)
    assert code == 2
    assert sentence in capsys.readouterr().err


def test_a_noise_multiplier_alone_is_refused(tmp_path, capsys):
    arguments = ["train", "digits", "--method", "ticket", "--noise-multiplier", "1", "--out", str(tmp_path)]
    assert main(arguments) == 2
    assert "epsilon must be given for method ticket" in capsys.readouterr().err


def test_a_ticket_moves_to_another_width_through_a_projection():
    x, y = data(200)

    def build(classes):
        torch.manual_seed(0)
        return network(7, classes)

    ticket = transferred_ticket(
        build, (x, y, x, y), shape=(7,), classes=5, largest_density=0.5, rounds=2, iterations=30
    )
    assert ticket.masks["0.weight"].shape == (10, 7)
    assert bool((ticket.masks["4.weight"] == 1).all())
    assert ticket.masks["2.weight"].mean() < 0.6
    assert ticket.provenance == "public"
    ticket.apply(build(5))


@pytest.mark.parametrize("origin", ["random", "start_magnitude", "synflow"])
def test_data_free_tickets_have_the_asked_density(origin):
    ticket = data_free_ticket(network(), origin, density=0.3, shape=(12,), seed=4)
    assert ticket.density == pytest.approx(0.3, abs=0.02)
