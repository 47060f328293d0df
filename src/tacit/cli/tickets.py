"""`tacit tickets`: what saved tickets hold, and how selective the choice among tickets is."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.serialization import json_text


def command(
    path: Annotated[
        Path | None, typer.Argument(help="A ticket file, or a folder of tickets such as that of a run.")
    ] = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Compare how selective the published choice and the sound one are; without PATH, among 15 tickets.",
        ),
    ] = False,
    epsilon: Annotated[
        float, typer.Option(help="With --explain: total epsilon, of which the choice takes a tenth.")
    ] = 1.0,
    accuracy: Annotated[float, typer.Option(help="With --explain and no PATH: accuracy of every ticket.")] = 0.95,
    records: Annotated[
        int, typer.Option(help="With --explain: number of private records that score a ticket.")
    ] = 10_000,
    relation: Annotated[str, typer.Option(help="With --explain: add_remove, replace_one or zero_out.")] = "replace_one",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List saved tickets and the layers of a single one, or explain how the choice among tickets is made."""
    from tacit import check
    from tacit.relation import Relation
    from tacit.tickets.ticket import compared, described, saved_tickets

    if path is None and not explain:
        raise check.fail("PATH", "given, or --explain", None)
    found: list[dict[str, Any]] = (
        [] if path is None else [{"file": name} | described(each) for name, each in saved_tickets(path).items()]
    )
    if not explain:
        print(json_text({"tickets": found})) if json else _list(found)
        return
    known = [each for each in found if each["accuracy"] is not None]
    if found and len(known) < 2:
        raise check.fail("PATH", "a folder with two measured tickets or more", str(path), "Or leave it out.")
    share = check.probability("accuracy", accuracy, open_low=True)
    accuracies = [each["accuracy"] for each in known] or [share] * 15
    densities = [each["density"] for each in known] or [0.7**i for i in range(1, 16)]
    rows = compared(accuracies, densities, epsilon=epsilon, records=records, relation=Relation.parse(relation))
    if json:
        print(json_text({"tickets": len(densities), "records": records, "relation": relation, "scores": rows}))
        return
    _explain(rows, len(densities), records)


def _list(found: list[dict[str, Any]]) -> None:
    from tacit.cli.console import screen
    from tacit.reports import plain_table

    console = screen()
    columns = ("file", "provenance", "weights", "kept", "density", "accuracy")
    console.print(plain_table([{name: each[name] for name in columns} for each in found]))
    if len(found) == 1:
        console.print(plain_table(found[0]["layers"]))
        console.print(found[0]["note"])


def _explain(rows: list[dict[str, Any]], tickets: int, records: int) -> None:
    from tacit.cli.console import screen
    from tacit.reports import plain_table

    console = screen()
    named = {
        "score": "score",
        "likeliest_over_unlikeliest": "likeliest / unlikeliest",
        "from_uniform": "distance from uniform",
        "sparse": "P(density <= .1)",
        "sparse_at_random": "at random",
        "one_point": "factor of one point",
    }
    console.print(plain_table([{word: row[name] for name, word in named.items()} for row in rows]))
    published, sound = rows
    console.print(
        f"{tickets} tickets, epsilon {published['epsilon']:g} for the choice. published: accuracy (1 - 50 density), "
        f"sensitivity taken as {published['sensitivity']:g}. sound: records classified right, of {records:,}, "
        f"sensitivity {sound['sensitivity']:g}. A draw at random has the numbers 1 and 0. Factor of one point: by how "
        "much another point of accuracy raises the odds of the sparsest ticket.",
    )
