"""`tacit calibrate`: the parameter that just meets a target."""

from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.console import accountants
from tacit.serialization import json_text


def command(
    spec: Annotated[
        Path,
        typer.Argument(
            help='SPEC.json with "noise_multiplier" (or steps, sample_rate, scale): null.', metavar="SPEC.json"
        ),
    ],
    epsilon: Annotated[float | None, typer.Option(help="Target epsilon, at --delta.")] = None,
    delta: Annotated[float | None, typer.Option(help="Delta of the target epsilon, in (0, 1).")] = None,
    advantage: Annotated[float | None, typer.Option(help="Target membership advantage.")] = None,
    mu: Annotated[float | None, typer.Option(help="Target mu of Gaussian DP.")] = None,
    accountant: Annotated[
        str, typer.Option(help="Accountant that measures the guarantee.", autocompletion=accountants)
    ] = "pld",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Find the value of the parameter that SPEC.json leaves null which just meets the target, and its guarantee."""
    from tacit.accounting.registry import ask
    from tacit.calibration import parameter_of_spec
    from tacit.tradeoff import target_of

    target = target_of(epsilon=epsilon, delta=delta, advantage=advantage, mu=mu)
    found = parameter_of_spec(spec, target, accountant=accountant)
    guarantee = ask(found.guarantee, delta=1e-5 if delta is None else delta)
    if json:
        print(json_text({"parameter": found.parameter, "value": found.value, "guarantee": guarantee.row()}))
        return
    from tacit.standing import downward, leakage, upward

    standing = guarantee.tradeoff.standing
    told = [leakage(number, standing) for number in (guarantee.epsilon, guarantee.mu, guarantee.advantage)]
    rounded = downward if found.parameter in ("steps", "sample_rate") else upward
    print(f"{found.parameter} {rounded(found.value, 10)}")
    print(
        f"gives epsilon {told[0]} at delta {guarantee.delta:g}, mu {told[1]}, advantage {told[2]} "
        f"({standing.value}, {guarantee.tradeoff.source}, {guarantee.tradeoff.relation.value})"
    )
