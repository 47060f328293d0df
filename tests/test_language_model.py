"""The journey of docs/language_models.md: a quick run of it, and the page shows what the long run stored."""

import json
from pathlib import Path

import pytest
from benchmarks import language_model as journey
from benchmarks import language_model_page as page

PAGE = Path(__file__).parents[1] / "docs" / "language_models.md"


@pytest.mark.slow
def test_a_quick_run_stores_every_row(tmp_path, capsys):
    last = "LoRA, windows of a review"  # users and LoRA; the other arms have less
    journey.main(["run", "--quick", "--arms", last, "--out", str(tmp_path / "found.json")])
    stored = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    private = [row for row in stored["rows"] if row.get("epsilon")]
    (row,) = private
    assert (row["arm"], row["standing"]) == (last, "proven")
    assert row["audit"]["certified"] <= row["epsilon"] == 8.0
    assert 1.0 < row["bits_per_byte"] < 10.0
    assert "user" in row["audit"]["statement"]
    assert stored["weights"] < 5_000_000
    assert "CPU seconds" in capsys.readouterr().out


def test_texts_are_cut_into_windows_of_bytes():
    rows = journey.coded("ab<br />cé", 4, 3)
    assert bytes(rows.flatten().tolist()) == "ab cé\0\0".encode()
    assert journey.coded("", 4, 3).tolist() == [[32, 0, 0, 0]]
    assert journey.coded("x" * 99, 4, 3).shape == (3, 4)
    assert journey.labels_of(rows)[1].tolist() == [0xC3, 0xA9, -100, -100]


def test_the_page_shows_what_is_stored():
    stored = json.loads(journey.RESULTS.read_text(encoding="utf-8"))
    text = PAGE.read_text(encoding="utf-8")
    for table in (page.utility_table(stored), page.audit_table(stored)):
        assert table in text
    assert stored["weights"] <= 5_000_000
    for row in stored["rows"]:
        if row.get("epsilon"):
            assert row["audit"]["epsilon_lower"] <= row["audit"]["certified"] <= row["epsilon"]
