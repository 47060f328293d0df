"""docs/speed.md prints what the stored results of the training benchmark hold."""

from pathlib import Path

from benchmarks.training_page import floors, memory, phases, table

PAGE = Path(__file__).parents[1] / "docs" / "speed.md"


def test_the_page_has_the_stored_tables():
    text = PAGE.read_text()
    assert table() in text
    assert phases() in text
    assert floors() in text
    assert memory() in text
