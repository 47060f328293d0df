"""`tacit doctor`: whether a model can be trained privately, and what to change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tacit.serialization import json_text

if TYPE_CHECKING:
    from torch import Tensor, nn


def command(
    model: Annotated[str, typer.Argument(help="The model, as package.module:Class or file.py:Class.")],
    fix: Annotated[bool, typer.Option("--fix", help="Print the repaired model and the code that repairs it.")] = False,
    input_shape: Annotated[
        str | None,
        typer.Option(help="Shape of one example, e.g. 3,32,32. With it, the model is also tested numerically."),
    ] = None,
    vocabulary: Annotated[
        int | None, typer.Option(help="Size of the vocabulary, for inputs that are integers below it.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Find layers that mix the examples of a batch or keep private data, with the fix; exit code 2 if there are any."""
    from tacit import gradients
    from tacit.models import module_at

    network = module_at(model)
    found = gradients.problems(network)
    changes: dict[str, str] = {}
    if fix and found:
        network, changes = gradients.fix(network)
    leaks, speed = [], None
    if input_shape is not None and not gradients.problems(network):
        inputs = _inputs(input_shape, vocabulary)
        leaks = gradients.leakage(network, inputs)
        speed = None if leaks else _speed(network, inputs)
    rows = [{"path": p.path, "layer": p.layer, "reason": p.reason, "fix": p.fix} for p in found]
    rows += [{"path": leak.path, "layer": leak.layer, "reason": str(leak), "fix": ""} for leak in leaks]
    healthy = not leaks and (fix or not found)
    if json:
        print(json_text({"problems": rows, "changes": changes, "slow": speed, "healthy": healthy}))
    else:
        _print(rows, changes, network if fix else None, speed)
    if not healthy:
        raise typer.Exit(2)


def _inputs(shape: str, vocabulary: int | None) -> Tensor:
    import torch

    from tacit import check
    from tacit.errors import told

    sizes = [size.strip() for size in shape.split(",") if size.strip()]
    if not sizes or not all(size.isdecimal() and int(size) for size in sizes):
        raise check.fail("input_shape", "positive integers separated by commas", shape, "E.g. 3,32,32.")
    words = None if vocabulary is None else check.count("vocabulary", vocabulary)
    try:
        whole = (4, *map(int, sizes))
        return torch.randn(whole) if words is None else torch.randint(words, whole)
    except (RuntimeError, TypeError, ValueError) as error:
        raise check.fail("input_shape", "one whose examples can be made", shape, told(error)) from error


def _speed(model: nn.Module, inputs: Tensor) -> str:
    """Why gradients take a slower way; empty when every operation is covered."""
    import torch

    from tacit.clipping import FlatClip
    from tacit.gradients import ClippedSum
    from tacit.gradients.batch_independence import main_output

    def readout(outputs: object, _: Tensor) -> Tensor:
        found = main_output(outputs)
        return found.reshape(len(found), -1).square().sum(1)

    return ClippedSum(model.train(), FlatClip(1.0)).fallback_reason(readout, inputs, torch.zeros(len(inputs)))


def _print(rows: list[dict[str, str]], changes: dict[str, str], repaired: nn.Module | None, speed: str | None) -> None:
    from rich.table import Table

    from tacit.cli.console import screen

    console = screen()
    if rows:
        table = Table(box=None)
        for column in ("layer", "type", "problem", "fix"):
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(row["path"] or "(the model)", row["layer"], row["reason"], row["fix"])
        console.print(table)
    else:
        console.print("No layer mixes examples or keeps private data.")
    if speed is not None:
        console.print("Every operation is covered: the fast way." if not speed else f"Slower way: {speed}.")
    if repaired is not None and changes:
        console.print("\nThe repaired model:", str(repaired), "\nThe same in code:", *changes.values(), sep="\n")
        console.print("or  model, changes = tacit.gradients.fix(model)")
