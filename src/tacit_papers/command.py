"""`tacit reproduce`: the papers' tables and figures, published value beside ours."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.serialization import json_text

if TYPE_CHECKING:
    from tacit_papers.reproduce import Reproduced


def command(
    paper: Annotated[str | None, typer.Argument(help="all, PAPER or PAPER/ITEM; by default, list them.")] = None,
    quick: Annotated[bool, typer.Option("--quick/--full", help="Run reduced sizes, or the papers' own.")] = True,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the data files.")] = None,
    store: Annotated[
        Path, typer.Option(help="SQLite file of finished runs; a stopped command resumes from it.")
    ] = Path("results.sqlite"),
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the numbers, PAPER/ITEM.json and .csv, whose runs count."),
    ] = None,
    docs: Annotated[
        Path | None, typer.Option(help="Folder for the page PAPER.md and its figures, made from --out.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Number of processes; the number of cores by default.")] = None,
    engine: Annotated[str, typer.Option(help="Where runs execute: local or ray.")] = "local",
    minutes: Annotated[
        float | None, typer.Option(help="Start no run after this many minutes; 0 shows stored results.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Run a random share of the runs stored in --out (results) again; compare.")
    ] = False,
    share: Annotated[float, typer.Option(help="Share of each item's runs that --check draws.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Seed of the draw of --check.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Recompute tables and figures; exit code 1 where an item said to be reproduced misses a tolerance."""
    if check:
        _check(
            paper or "all",
            out or Path("results"),
            json=json,
            store=store,
            share=share,
            seed=seed,
            data_dir=data_dir,
            workers=workers,
            minutes=minutes,
        )
        return
    if paper is None:
        _list(out or Path("results"), json)
        return
    from tacit.check import fail
    from tacit.cli.console import screen, sweep_bar
    from tacit.sweeps import Store
    from tacit_papers import estimate, reproduce
    from tacit_papers.page import write_pages

    if docs is not None and out is None:
        raise fail("out", "given with --docs", None, "The page is made from what lies there.")
    size, finished = "quick" if quick else "full", Store(store)
    seconds = estimate(paper, size=size, store=finished, data_dir=data_dir, workers=workers, kept=out)
    screen(stderr=True).print(f"about {seconds / 60:.0f} minutes" if seconds > 90 else f"about {seconds:.0f} seconds")
    with sweep_bar(f"reproduce {paper}") as on_progress:
        done = reproduce(
            paper,
            size=size,
            store=finished,
            kept=out,
            data_dir=data_dir,
            workers=workers,
            engine=engine,
            minutes=minutes,
            on_progress=on_progress,
        )
    if out is not None:
        for each in done:
            each.save(out, figures=docs is None)
        if docs is not None:
            write_pages(out, docs, dict.fromkeys(each.paper.key for each in done))
    rows = [row for each in done for row in each.rows]
    if json:
        print(json_text([row.plain() for row in rows]))
    else:
        for each in done:
            left = each.planned - len(each.results)
            title = f"{each.paper.key}/{each.item.name}: {each.item.title}" + (f" ({left} runs left)" if left else "")
            screen().print(_table(title, [row.plain() for row in each.rows]))
    if any(row.passed is False for each in done if not _expects_misses(each) for row in each.rows):
        raise typer.Exit(1)


def _expects_misses(done: "Reproduced") -> bool:
    """Whether the verdict on the item says that numbers lie beyond their tolerance."""
    verdict = done.paper.summary.verdicts.get(done.item.name)
    return verdict is not None and verdict.expects_misses


def _check(name: str, results: Path, *, json: bool, store: Path, **given: Any) -> None:
    """Print what `check_results` found; exit code 1 where a run gives other numbers."""
    from tacit.cli.console import screen, sweep_bar
    from tacit.sweeps import Store
    from tacit_papers import check_results

    with sweep_bar(f"check {name}") as on_progress:
        found = check_results(name, results, store=Store(store), on_progress=on_progress, **given)
    if json:
        print(json_text([each.plain() for each in found]))
    else:
        from tacit.reports import plain_table

        screen().print(plain_table([each.plain() for each in found]))
        screen().print(f"{sum(each.passed for each in found)} of {len(found)} runs give what is stored.")
    if not all(each.passed for each in found):
        raise typer.Exit(1)


def _list(results: Path, json: bool) -> None:
    """One table a paper, with the numbers that are stored in `results`."""
    from tacit_papers import PAPERS
    from tacit_papers.page import overview, stored_items

    listed = {key: overview(paper, stored_items(paper, results)) for key, paper in PAPERS.items()}
    if json:
        print(json_text([{"paper": key} | row for key, rows in listed.items() for row in rows]))
        return
    from rich.table import Table
    from rich.text import Text

    from tacit.cli.console import screen

    for key, rows in listed.items():
        table = Table("item", "ours", "verdict", box=None)
        for row in rows:
            place = (results / key / f"{row['item']}.csv").resolve()
            linked = f"link {place.as_uri()}" if place.exists() else ""
            table.add_row(Text(row["item"], style=linked), Text(row["ours"]), Text(row["verdict"]))
        screen().print(f"\n{PAPERS[key].title} ({key}); evidence: {results}/{key}/ITEM.csv")
        screen().print(table)


def _table(title: str, rows: Iterable[Mapping[str, Any]]) -> Any:
    """Columns published, ours, difference, tolerance, pass; one row for each number, "–" where none is published."""
    from rich.table import Table
    from rich.text import Text

    from tacit.reports.tables import STYLES
    from tacit.reports.words import nearest
    from tacit.standing import Standing

    names = ("published", "ours", "difference", "tolerance")
    table = Table("quantity", box=None, title=title, title_justify="left")
    for heading in names:
        table.add_column(heading, justify="right")
    table.add_column("pass")
    table.add_column("standing")
    marks = {True: Text("pass", style="green"), False: Text("MISS", style="bold red")}
    for row in rows:
        numbers = [nearest(row[name]) if isinstance(row[name], float | int) else "–" for name in names]
        standing = Standing(str(row["standing"]))
        label = Text(standing.value, style=STYLES[standing])
        table.add_row(str(row["quantity"]), *numbers, marks.get(row["pass"], Text("")), label)
    return table
