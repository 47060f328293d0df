"""`tacit train ... --method ticket`."""

import json
from dataclasses import replace
from hashlib import sha256

import pytest
import torch

from tacit.cli import main
from tacit.data import published
from tacit.data.files import File
from tacit.tickets import Ticket
from tacit.tickets.iterative_pruning import data_free_ticket, transferred_ticket
from tests.tickets.test_tickets import data, network

SHORT = ["--method", "ticket", "--epsilon", "4", "--model", "mlp", "--hidden", "16", "--epochs", "2"]


def settings(*given):
    """Settings of the section [ticket]."""
    return [text for each in given for text in ("--set", f"ticket.{each}")]


def trained(tmp_path, *extra):
    folder = tmp_path / "run"
    code = main(["train", "digits", *SHORT, "--set", "ticket.search_epochs=1", "--out", str(folder), "--json", *extra])
    return code, folder


@pytest.mark.slow
@pytest.mark.parametrize("mode", [*(pytest.param(mode, marks=pytest.mark.slow) for mode in ("T1", "T2")), "T4"])
def test_a_ticket_is_trained_and_the_card_shows_every_phase(tmp_path, capsys, mode):
    code, folder = trained(tmp_path, "--set", f"ticket.mode={mode}")
    assert code == 0
    card = json.loads(capsys.readouterr().out)
    proven = next(each for each in card["guarantees"] if each["accountant"] == "pld")
    assert proven["standing"] == "proven"
    assert proven["epsilon"] <= 4.0
    assert card["metrics"]["density"] < 0.6
    ticket = Ticket.load(folder / "ticket.safetensors")
    assert ticket.provenance == ("public" if mode == "T1" else "private")
    assert main(["audit", str(folder), "--json"]) == 0


@pytest.mark.slow
def test_the_papers_mode_is_claimed_on_the_card(tmp_path, capsys):
    code, _ = trained(tmp_path, *settings("mode=paper", "rounds=2", "iterations=20"))
    assert code == 0
    card = json.loads(capsys.readouterr().out)
    assert {each["standing"] for each in card["guarantees"]} == {"claimed"}
    assert card["unsafe"] == ["unsafe_ticket_of_private_data"]


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        (["--set", "ticket.mode=T7"], "mode of [ticket] must be one of paper, T1, T2, T3, T4"),
        (["--set", "ticket.density=0"], "density of [ticket] must be in (0, 1]"),
        (["--set", "ticket.origin=kmnst", "--set", "ticket.mode=T1"], "Did you mean 'kmnist'"),
        (["--set", "ticket.origin=digits", "--set", "ticket.mode=T1"], "other data than those that are protected"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, capsys, extra, sentence):
    code, _ = trained(tmp_path, *extra)
    assert code == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.slow
def test_the_origin_of_a_public_ticket_is_an_assumption(tmp_path, capsys):
    given = settings("mode=T1", "origin=iris", "rounds=3", "iterations=5")
    assert trained(tmp_path, *given, "--set", "ticket.density=0.9")[0] == 0
    (said,) = [each for each in json.loads(capsys.readouterr().out)["assumptions"] if "shares no record" in each]
    assert "on iris" in said


def test_an_origin_of_the_same_records_is_refused(tmp_path, monkeypatch, capsys):
    for name in ("digits", "iris"):
        monkeypatch.setitem(published._SOURCES, name, replace(published.source(name), family="alike"))
    assert trained(tmp_path, "--set", "ticket.mode=T1", "--set", "ticket.origin=iris")[0] == 2
    assert "other data than those that are protected" in capsys.readouterr().err


def test_a_table_that_is_the_origin_itself_is_refused(tmp_path, monkeypatch, capsys):
    rows = b"a,b,y\n" + b"".join(b"%d,%d,%d\n" % (i % 7, i % 5, i % 2) for i in range(200))
    (tmp_path / "mine.csv").write_bytes(rows)
    known = replace(published.source("creditcard"), files=(File("other.csv", sha256(rows).hexdigest(), len(rows)),))
    monkeypatch.setitem(published._SOURCES, "creditcard", known)
    (tmp_path / "config.toml").write_text(
        """
        dataset = "table"
        method = "ticket"
        model = "mlp"
        epsilon = 4.0
        [ticket]
        mode = "T1"
        origin = "creditcard"
        [table]
        path = "mine.csv"
        target = "y"
        classes = [0, 1]
        bounds = {a = [0, 7], b = [0, 5]}
        """
    )
    arguments = ["train", str(tmp_path / "config.toml"), "--data-dir", str(tmp_path), "--out", str(tmp_path / "run")]
    assert main(arguments) == 2
    assert "other data than those that are protected" in capsys.readouterr().err


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


def test_a_ticket_moves_to_the_same_architecture_as_it_is():
    x, y = data(200)
    ticket = transferred_ticket(
        lambda classes: network(12, classes), (x, y, x, y), shape=(12,), classes=3, largest_density=0.5, rounds=2,
        iterations=30, name="made up",
    )  # fmt: skip
    assert ticket.density < 0.5
    assert all(bool((mask == 0).any()) for mask in ticket.masks.values())
    assert all(torch.equal(ticket.start[name], value) for name, value in network(12, 3).named_parameters())
    assert "on made up" in ticket.note


@pytest.mark.slow
def test_runs_share_the_tickets_in_a_folder(tmp_path, capsys):
    shared = tmp_path / "shared"
    given = settings("mode=paper", "rounds=2", "iterations=20", f"folder={shared}")
    assert trained(tmp_path / "one", *given, "--epochs", "1")[0] == 0
    (place,) = shared.iterdir()
    before = {file.name: file.stat().st_mtime_ns for file in place.iterdir()}
    assert trained(tmp_path / "other", *given, "--epochs", "1")[0] == 0
    assert {file.name: file.stat().st_mtime_ns for file in place.iterdir()} == before
    assert trained(tmp_path / "third", *(text.replace("=20", "=30") for text in given))[0] == 0
    assert len(list(shared.iterdir())) == 2


@pytest.mark.slow
def test_what_is_private_in_one_run_and_public_in_another_has_two_folders(tmp_path):
    rows = "".join(f"{i % 7},{i % 5},{i % 3},{i % 2},{i % 3}\n" for i in range(200))
    (tmp_path / "mine.csv").write_text("a,b,c,d,y\n" + rows)
    common = """
        method = "ticket"
        model = "mlp"
        hidden = [8]
        epsilon = 4.0
        batch_size = 20
        epochs = 1
    """
    ticket = """
        rounds = 6
        iterations = 5
        folder = "tickets"
    """
    (tmp_path / "iris.toml").write_text(f'dataset = "iris"\n{common}[ticket]\nmode = "paper"\n{ticket}')
    (tmp_path / "mine.toml").write_text(
        f"""
        dataset = "table"
        {common}
        [ticket]
        mode = "T1"
        origin = "iris"
        density = 0.9
        {ticket}
        [table]
        path = "mine.csv"
        target = "y"
        classes = [0, 1, 2]
        bounds = {{a = [0, 7], b = [0, 5], c = [0, 3], d = [0, 2]}}
        """
    )
    shared = ["--set", f"ticket.folder={tmp_path}/tickets", "--data-dir", str(tmp_path)]
    for name in ("iris", "mine"):
        arguments = ["train", str(tmp_path / f"{name}.toml"), *shared, "--out", str(tmp_path / name)]
        assert main(arguments) == 0
    public, private = sorted((tmp_path / "tickets").iterdir(), key=lambda each: "paper" in each.name)
    assert public.name.replace("public", "paper") == private.name


@pytest.mark.parametrize("origin", ["random", "start_magnitude", "synflow"])
def test_data_free_tickets_have_the_asked_density(origin):
    ticket = data_free_ticket(network(), origin, density=0.3, shape=(12,), seed=4)
    assert ticket.density == pytest.approx(0.3, abs=0.02)
