"""The commands of docs/tables.md run in their order, on made data."""

import csv
import random
import shlex

import pytest

from tacit.cli import main
from tests.pages.commands import blocks, page, typed

PAGE = (page("tables"),)


def made(folder):
    """The files that the page is about, and the configurations that stand on it."""
    draw = random.Random(0)
    for part in blocks("toml", pages=PAGE):
        (folder / part.file).write_text(part.text, encoding="utf-8")
    (head,) = blocks("csv", pages=PAGE)
    lines = [head.text.strip()]
    for row in range(400):
        age = draw.randint(20, 90)
        labs = [draw.choice(["", "NA", f"{draw.uniform(10, 150):.1f}".replace(".", ",")]) for _ in range(2)]
        day = f"2020-{draw.randint(1, 12):02d}-{draw.randint(1, 28):02d}"
        sick = "yes" if age > 75 else "no"
        lines.append(";".join([f"p{row // 2}", day, draw.choice("AB"), str(age), *labs, sick]))
    (folder / "patients.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    areas = [draw.uniform(20, 250) for _ in range(300)]
    houses = [f"{area:.1f},{3 * area + draw.uniform(0, 50):.1f}\n" for area in areas]
    (folder / "houses.csv").write_text("area,price\n" + "".join(houses), encoding="utf-8")
    stars = [f"{draw.randint(1, 40)}\t{draw.randint(1, 20)}\t{draw.randint(1, 5)}\t9\n" for _ in range(400)]
    (folder / "u.data").write_text("".join(stars), encoding="utf-8")


@pytest.mark.slow
def test_a_table_goes_from_a_draft_to_a_card_and_predictions(tmp_path, monkeypatch):
    """The shortest of the page's journeys, in one epoch and without an attack, and the draft of another."""
    monkeypatch.chdir(tmp_path)
    made(tmp_path)
    assert main(["table", "init", "patients.csv"]) == 0
    settings = (tmp_path / "price.toml").read_text().replace("epochs = 5", "epochs = 1\nattacks = []")
    (tmp_path / "price.toml").write_text(settings)
    assert main(["train", "price.toml", "--out", "runs/price", "--set", "engine=eager"]) == 0
    assert main(["predict", "runs/price", "houses.csv", "--out", "prices.csv"]) == 0
    assert len((tmp_path / "prices.csv").read_text().splitlines()) == 301
    assert (tmp_path / "runs" / "price" / "card.html").exists()


@pytest.mark.slow
def test_the_journeys_of_tables_end_in_cards_and_predictions(tmp_path, monkeypatch):
    pytest.importorskip("onnxscript", reason="the extra `onnx` is not installed")
    monkeypatch.chdir(tmp_path)
    made(tmp_path)
    commands = typed("tables")
    assert len(commands) >= 9
    for line in commands:
        assert main(shlex.split(line.removeprefix("tacit "))) == 0, line
    rows = list(csv.DictReader((tmp_path / "predictions.csv").open()))
    assert len(rows) == 400
    assert {row["prediction"] for row in rows} <= {"no", "yes"}
    assert all((tmp_path / "runs" / name / "card.html").exists() for name in ("patients", "price", "ratings"))


def test_the_configurations_of_the_page_are_valid(tmp_path):
    from tacit.runs import read_config

    made(tmp_path)
    for name in ("finished.toml", "price.toml", "ratings.toml"):
        assert read_config(str(tmp_path / name), {}).table is not None
