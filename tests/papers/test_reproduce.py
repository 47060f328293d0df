"""`tacit reproduce`: every item runs, resumes, and puts its numbers beside the published ones."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tacit.cli import main
from tacit.cli.console import _command
from tacit.errors import InvalidInput
from tacit.standing import Standing
from tacit.sweeps import Store, Task, sweep
from tacit_papers import PAPERS, Item, Paper, Row, estimate, items_of, reproduce
from tacit_papers.base import VERDICTS, Summary, Verdict, published
from tacit_papers.page import overview, page_text, stored_items
from tacit_papers.stored import read_item


def row(**given):
    return Row("paper", "item", "quantity", **({"published": 1.0, "ours": 1.2, "tolerance": 0.1} | given))


def test_a_row_passes_within_its_tolerance_and_only_there():
    assert row(ours=1.09).passed is True
    assert row().passed is False
    assert row(ours=None).passed is False
    assert row(published=None).passed is None
    assert row(tolerance=None).passed is None
    assert row(at_least=True).passed is True
    assert row(ours=0.8, at_least=True).passed is False
    assert row().plain() == {
        "paper": "paper",
        "item": "item",
        "quantity": "quantity",
        "published": 1.0,
        "ours": 1.2,
        "difference": pytest.approx(0.2),
        "tolerance": 0.1,
        "pass": False,
        "standing": "measured",
        "repeats": None,
    }


def test_a_row_that_has_not_run_is_neither_passed_nor_missed():
    assert row(ours=None, repeats=0).passed is None


def test_items_are_found_by_name_and_typos_name_the_nearest():
    assert len(items_of("all")) == sum(len(paper.items) for paper in PAPERS.values())
    assert [item.name for _, item in items_of("gaussian-dp/table-1")] == ["table-1"]
    with pytest.raises(InvalidInput, match="Did you mean 'gaussian-dp'"):
        items_of("gausian-dp")
    with pytest.raises(InvalidInput, match="Did you mean 'table-1'"):
        items_of("gaussian-dp/tabel-1")
    with pytest.raises(InvalidInput, match="paper must be one of gaussian-dp"):
        items_of("all/x")


def test_table_1_prints_every_published_privacy_number(tmp_path):
    (done,) = reproduce("gaussian-dp/table-1", size="quick", store=Store(tmp_path / "s.sqlite"), workers=1)
    compared = [each for each in done.rows if each.tolerance is not None]
    assert len(compared) == 18
    assert all(each.passed for each in compared)
    standings = {each.quantity.rsplit(": ")[-1]: each.standing for each in done.rows}
    assert standings["epsilon by the CLT"] is Standing.ASYMPTOTIC
    assert standings["epsilon, exact"] is Standing.PROVEN


def test_a_reproduction_is_stored_and_not_run_again(tmp_path, capsys):
    store, out, docs = tmp_path / "s.sqlite", tmp_path / "results", tmp_path / "docs"
    arguments = ["reproduce", "gaussian-dp/figure-3", "--store", str(store), "--workers", "1", "--json"]
    assert main([*arguments, "--out", str(out), "--docs", str(docs)]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {"paper", "item", "quantity", "published", "ours", "tolerance", "pass", "standing"} <= rows[0].keys()
    assert [each["pass"] for each in rows] == [True, True, None]
    saved = read_item(out / "gaussian-dp" / "figure-3.json")
    assert saved["rows"] == rows
    assert saved["versions"]["python"]
    page = (docs / "gaussian-dp.md").read_text()
    assert "[numbers](../../results/gaussian-dp/figure-3.csv), quick, 1 runs" in page
    drawn = list((docs / "gaussian-dp").glob("*.svg"))
    assert len(drawn) == len(saved["figures"]) == 1
    assert drawn[0].read_text().count("<svg") == 1
    assert estimate("gaussian-dp/figure-3", size="quick", store=Store(store)) == 0.0


def test_a_missed_tolerance_is_exit_code_1_and_a_typo_2(tmp_path, monkeypatch, capsys):
    wrong = Item("wrong", "a wrong number", lambda size: [], lambda size, values: [row()])
    monkeypatch.setitem(PAPERS, "wrong-paper", Paper("wrong-paper", "Wrong", (wrong,)))
    assert main(["reproduce", "wrong-paper", "--store", str(tmp_path / "s")]) == 1
    assert "MISS" in capsys.readouterr().out
    assert main(["reproduce", "wrong-papr", "--store", str(tmp_path / "s")]) == 2
    assert main(["reproduce"]) == 0
    assert "table-1" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["{", "[1]", "{}"])
def test_stored_rows_that_are_damaged_are_named(text, tmp_path, monkeypatch, capsys):
    item = Item("item", "one number", lambda size: [], lambda size, values: [row(ours=1.0)])
    monkeypatch.setitem(PAPERS, "paper", Paper("paper", "Paper", (item,)))
    arguments = ["reproduce", "paper", "--store", str(tmp_path / "s"), "--docs", str(tmp_path / "docs")]
    assert main(arguments) == 2
    assert "out must be given with --docs" in capsys.readouterr().err
    assert main([*arguments, "--out", str(tmp_path)]) == 0
    (tmp_path / "paper" / "item.json").write_text(text)
    assert main([*arguments, "--out", str(tmp_path)]) == 2
    assert "item.json must be a" in capsys.readouterr().err


def test_the_page_has_one_row_an_item_with_ours_the_verdict_and_the_evidence():
    item = {
        "item": "i",
        "title": "Title",
        "rows": [row().plain()],
        "figures": ["drawn"],
        "size": "quick",
        "runs": [{"settings": {}, "value": 1, "seconds": 1.0}],
        "tasks": 3,
    }
    verdicts = {
        "i": Verdict(
            "refuted, if", "{{ ours('i', 'quantity') }} | {{ passed('i') }}", "{{ ours('i', 'other') }} holds."
        ),
        "absent": Verdict("not comparable", "{{ ours('absent', 'quantity') }}", ""),
    }
    items = tuple(Item(name, "title", lambda size: [], lambda size, values: []) for name in verdicts)
    paper = Paper(
        "key",
        "A paper",
        items,
        "{{ ours('i', 'quantity') }} of {{ published('i', 'quantity') }}",
        Summary("It says.", verdicts, {"i": "text"}),
    )
    text = page_text(paper, [item])
    evidence = "[numbers](../../results/key/i.csv), quick, 1 of 3 runs, [drawing 1](key/drawn.svg)"
    assert f"| Title (`i`) | text | 1.2 \\| 0 of 1 | **refuted, if** not run holds. | {evidence} |" in text
    assert "| Title (`absent`) |  | not run | **not comparable** | not run |" in text
    assert text.startswith("# A paper\n\nIt says.\n\n| row of the paper |")
    assert text.endswith("\n\n1.2 of 1\n")


def test_a_page_is_one_screen_and_all_of_them_have_twelve_thousand_words():
    pages = Path(__file__).parents[2].glob("docs/papers/*.md")
    words = [len(page.read_text(encoding="utf-8").split()) for page in pages]
    assert len(words) == len(PAPERS)
    assert max(words) <= 1_500
    assert sum(words) <= 12_000


@pytest.mark.parametrize("key", PAPERS)
def test_the_stored_page_is_what_the_stored_results_give(key):
    """So that no number of a page is typed, and no verdict is older than its results."""
    root = Path(__file__).parents[2]
    stored = (root / "docs" / "papers" / f"{key}.md").read_text(encoding="utf-8")
    assert page_text(PAPERS[key], stored_items(PAPERS[key], root / "results")) == stored


def test_all_but_two_of_the_rows_of_the_papers_work_at_full_size():
    """The criteria are those of docs/reproduce.md."""
    results, rows, works = Path(__file__).parents[2] / "results", [], []
    for paper in PAPERS.values():
        stored = {item["item"]: item for item in stored_items(paper, results)}
        for row in overview(paper, list(stored.values())):
            if paper.summary.verdicts[row["item"]].word != "ours":
                rows.append(f"{paper.key}/{row['item']}")
                item = stored.get(row["item"])
                full = item is not None and item["size"] == "full"
                full &= row["item"] == "random-ticket" or (item is not None and len(item["runs"]) == item["tasks"])
                works += rows[-1:] if full and "not run" not in row["ours"] + row["verdict"] else []
    assert len(rows) == 45
    assert set(rows) - set(works) == {"evaluating-dp/purchase-nn", "gaussian-dp/figure-4-readings"}


def _halves(size, values):
    done = [value["square"] for value in values if value is not None]
    return [row(ours=float(len(done)), published=3.0, repeats=len(done))]


def test_an_item_that_was_cut_short_shows_what_has_run_and_goes_on(tmp_path, monkeypatch):
    def planned(size):
        return [Task("tests.sweeps.chores:square", {"x": x, "folder": str(tmp_path)}) for x in range(3)]

    whole = Item("whole", "all or nothing", planned, _halves)
    partial = Item("partial", "what there is", planned, _halves, partial=True)
    monkeypatch.setitem(PAPERS, "cut", Paper("cut", "Cut", (whole, partial)))
    store = Store(tmp_path / "s.sqlite")
    sweep("cut", whole.versioned("full")[:1], store, workers=1)
    first = reproduce("cut", size="full", store=store, workers=1, minutes=0)
    assert [len(each.results) for each in first] == [1, 1]
    assert first[0].rows == ()
    assert first[1].rows[0].repeats == 1
    assert first[0].save(tmp_path) is None
    assert first[1].save(tmp_path) == tmp_path / "cut" / "partial.json"
    last = reproduce("cut", size="full", store=store, workers=1)
    assert all(each.rows[0].passed for each in last)
    last[1].save(tmp_path)
    (again,) = reproduce("cut/partial", size="full", store=Store(tmp_path / "t"), workers=1, minutes=0, kept=tmp_path)
    assert [result.value["square"] for result in again.results] == [0, 1, 4]
    monkeypatch.setitem(PAPERS, "cut", Paper("cut", "Cut", (replace(partial, version=2),)))
    for kept, at in (
        (tmp_path, Store(tmp_path / "t")),
        (None, store),
    ):  # neither the folder nor the store has version 2
        (changed,) = reproduce("cut/partial", size="full", store=at, workers=1, minutes=0, kept=kept)
        assert changed.results == ()
    monkeypatch.setitem(PAPERS, "cut", Paper("cut", "Cut", (whole, partial)))
    (quick,) = reproduce("cut/partial", size="quick", store=store, workers=1)
    assert quick.save(tmp_path) is None
    assert json.loads((tmp_path / "cut" / "partial.json").read_text())["size"] == "full"


@pytest.mark.parametrize("item", [item for _, item in items_of("all")], ids=lambda item: item.name)
def test_every_item_is_planned_in_both_sizes(item):
    for size in ("quick", "full"):
        for task in item.tasks(size):
            assert isinstance(task, Task)
            assert task.key()
    seconds = sum(task.seconds for task in item.tasks("quick"))
    assert seconds <= 120


@pytest.mark.parametrize("absent", ["entry point", "package"])
def test_without_the_papers_the_command_says_what_to_install(absent, monkeypatch, capsys):
    monkeypatch.setattr("tacit.cli.app.info.cls.get_command", lambda self, context, name: _command(name))
    if absent == "package":
        monkeypatch.setitem(sys.modules, "tacit_papers.command", None)
    else:
        monkeypatch.setattr("tacit.cli.console.entry_points", lambda **given: [])
    assert main(["reproduce"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("tacit_papers must be installed for this; it is not. Run pip install")


def test_published_numbers_lie_beside_the_code():
    for paper in PAPERS.values():
        package = f"tacit_papers.{paper.key.replace('-', '_')}"
        assert published(package)


@pytest.mark.parametrize("key", PAPERS)
def test_the_reading_of_a_paper_holds_before_anything_has_run(key):
    text = page_text(PAPERS[key], [])
    assert text.startswith(f"# {PAPERS[key].title}")
    assert not {"{{", "{%", "}}"} & set(text.split())


@pytest.mark.parametrize("key", PAPERS)
def test_every_item_of_a_paper_has_a_verdict_with_its_cause_or_assumptions(key):
    summary = PAPERS[key].summary
    assert list(summary.verdicts) == [item.name for item in PAPERS[key].items]
    assert {verdict.word for verdict in summary.verdicts.values()} <= set(VERDICTS)
    explained = set(VERDICTS) - {"reproduced", "ours"}
    assert all(verdict.why for verdict in summary.verdicts.values() if verdict.word in explained)
    assert summary.says


@pytest.mark.parametrize("key", PAPERS)
def test_what_is_reproduced_has_no_number_outside_its_tolerance(key):
    results = Path(__file__).parents[2] / "results"
    missed = {
        item["item"] for item in stored_items(PAPERS[key], results) if any(row["pass"] is False for row in item["rows"])
    }
    assert [name for name in missed if PAPERS[key].summary.verdicts[name].word == "reproduced"] == []


def test_the_list_has_ours_and_the_verdict_of_every_item(capsys):
    assert main(["reproduce", "--json", "--out", str(Path(__file__).parents[2] / "results")]) == 0
    listed = {f"{row['paper']}/{row['item']}": row for row in json.loads(capsys.readouterr().out)}
    assert len(listed) == len(items_of("all"))
    assert listed["gaussian-dp/figure-3"]["verdict"] == "reproduced"
    assert "3.813" in listed["input-perturbation/counter-examples"]["ours"]
    assert listed["input-perturbation/counter-examples"]["verdict"].startswith("refuted, if T = 50 steps, c = 1")
