"""`tacit serve`: the local workbench in the browser."""

from pathlib import Path
from typing import Annotated

import typer


def command(
    runs: Annotated[Path, typer.Argument(help="Folder that holds the folders of runs.", metavar="[RUNS]")] = Path(
        "runs"
    ),
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1.")] = 8765,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the browser.")] = False,
) -> None:
    """Serve runs, a calculator, jobs and budgets on 127.0.0.1; the address that it prints holds the token."""
    from tacit.workbench import serve

    serve(runs, port=port, open_browser=open_browser)
