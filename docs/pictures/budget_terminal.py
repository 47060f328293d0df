"""Pictures of the terminal for docs/budget.md: each command of its console is run, in order, in an empty project.

    python docs/pictures/budget_terminal.py

Writes docs/pictures/budget/1.svg and so on, one for each command. Six commands, about two minutes.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

HERE = Path(__file__).parent
PAGE, PICTURES = HERE.parent / "budget.md", HERE / "budget"
WIDTH = 104  # characters
PROJECT = "/project"  # stands for the folder that the commands ran in


def commands(text):
    """The commands of the console of the page, in order."""
    (console,) = re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return re.findall(r"^\$ (.*)$", console, re.MULTILINE)


def output(command, folder):
    """What `command` prints in `folder`, errors included."""
    environment = os.environ | {"COLUMNS": str(WIDTH), "TACIT_KEY": str(folder / "team.key"), "NO_COLOR": "1"}
    environment.pop("TACIT_BUDGET", None)
    words = [sys.executable, "-m", *shlex.split(command)]
    ran = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return (ran.stdout + ran.stderr).replace(str(folder.resolve()), PROJECT).rstrip()


def picture(command, printed):
    """An SVG of a terminal that asks for no font from elsewhere."""
    console = Console(record=True, width=WIDTH, file=open(os.devnull, "w"), highlight=False)  # noqa: SIM115
    console.print(Text(f"$ {command}", style="bold"))
    console.print(Text(printed))
    svg = console.export_svg(title="", unique_id="terminal")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    return re.sub(r"font-family: Fira Code, monospace", "font-family: monospace", svg)


def main():
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for number, command in enumerate(commands(PAGE.read_text(encoding="utf-8")), start=1):
            printed = output(command, Path(folder))
            print(f"$ {command}\n{printed}\n")
            (PICTURES / f"{number}.svg").write_text(picture(command, printed), encoding="utf-8")


if __name__ == "__main__":
    main()
