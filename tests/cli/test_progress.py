"""Progress bars: on a terminal alone, with names as they are."""

from tacit.cli.console import progress_bars, sweep_bar


def drawn():
    with sweep_bar("[/x] {y}") as on_progress:
        on_progress(1, 2)
    with progress_bars() as on_progress:
        on_progress("[red]stage", 1, 2)


def test_names_are_no_markup(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    drawn()
    error = capsys.readouterr().err
    assert "[/x] {y}" in error
    assert "[red]stage" in error


def test_nothing_is_drawn_where_nobody_looks(capsys, monkeypatch):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    drawn()
    assert capsys.readouterr().err == ""
