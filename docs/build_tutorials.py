"""Run the tutorials as notebooks, and store them as pages with outputs and pictures.

    python docs/build_tutorials.py                      run all, write docs/tutorials/*.md and their pictures
    python docs/build_tutorials.py --check NAME ...     run these and write nothing; exit code 1 where one fails, or
                                                        says anything but its page, numbers aside, which are noisy

The sources are the percent scripts docs/tutorials/*.py of jupytext, in an empty folder each; `jupytext --to ipynb FILE`
makes a notebook of one. A cell that draws has the alternative text of its picture in its metadata: `# %% alt="..."`.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "tutorials"
# In the order in which they are meant to be read.
NAMES = (
    *("first_model", "own_loop", "lora", "pipeline", "attack_risk", "card", "audit", "claim", "accounting"),
    *("too_much", "bayesian", "tickets"),
)
_DRAWN = "image/svg+xml"
_SET_UP = (
    "%config InlineBackend.figure_formats = ['svg']\n"
    "import matplotlib.pyplot as _plt\n"
    "_plt.rcParams.update({'svg.hashsalt': 'tacit', 'figure.autolayout': True})"
)
# A notebook ends its cell before this; the longest takes about 15 CPU seconds, on machines that are shared.
_CELL_SECONDS = 300


def execute(name: str, folder: Path) -> tuple[Any, float]:
    """The notebook with its outputs after a run in `folder`, and the seconds that it took."""
    import jupytext
    import nbformat
    from nbclient import NotebookClient

    notebook = jupytext.read(FOLDER / f"{name}.py")
    notebook.cells.insert(0, nbformat.v4.new_code_cell(_SET_UP))
    began = time.perf_counter()
    client = NotebookClient(
        notebook, timeout=_CELL_SECONDS, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    manager = client.create_kernel_manager()
    with tempfile.TemporaryDirectory() as sockets:  # over TCP every user of the machine could read along
        manager.transport, manager.ip = "ipc", str(Path(sockets) / "kernel")
        client.execute()
    del notebook.cells[0]
    return notebook, time.perf_counter() - began


def page(name: str, notebook: Any, seconds: float) -> tuple[str, dict[str, str]]:
    """The Markdown of the page, and file name -> SVG of its pictures."""
    pictures: dict[str, str] = {}
    blocks: list[str] = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            blocks.append(cell.source)
            continue
        blocks.append(f"```python\n{cell.source}\n```")
        text = "".join(_texts(cell)).rstrip()
        if text:
            blocks.append(f"```text\n{text}\n```")
        for drawn in _pictures(cell):
            file = f"{name}-{len(pictures) + 1}.svg"
            pictures[file] = drawn
            blocks.append(f"![{cell.metadata['alt']}]({file})")
    source = f"[{name}.py]({name}.py){{ download }}"
    note = f"*Run it yourself: {source}, a script and a notebook. This run took {seconds:.0f} s on two shared cores.*"
    blocks.insert(1, note)
    return "\n\n".join(blocks) + "\n", pictures


def outline(text: str) -> str:
    """The text with # for every number and one blank for all white space."""
    return " ".join(re.sub(r"[-+]?\d[\d.,e+-]*", "#", text).split())


def _texts(cell: Any) -> Iterator[str]:
    for output in cell.outputs:
        if output.output_type == "stream" and output.name == "stdout":
            yield output.text
        elif output.output_type == "execute_result" and _DRAWN not in output.data:
            yield output.data["text/plain"] + "\n"


def _pictures(cell: Any) -> list[str]:
    found = [output.data[_DRAWN] for output in cell.outputs if _DRAWN in output.get("data", {})]
    if "alt" in cell.metadata and not found:
        raise ValueError(f"a cell must draw what its alternative text describes: {cell.metadata['alt']}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], help="all where none is named")
    parser.add_argument("--check", action="store_true", help="write nothing")
    given = parser.parse_args()
    source = str(FOLDER.parents[1] / "src")
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"  # another one would draw into no cell
    os.environ["PYTHONPATH"] = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    failed = []
    for name in given.names or NAMES:
        with tempfile.TemporaryDirectory() as folder:
            try:
                notebook, seconds = execute(name, Path(folder))
                text, pictures = page(name, notebook, seconds)
            except Exception as error:  # the next tutorial is run all the same, and the exit code says it
                failed.append(name)
                print(f"{name}: {error}", file=sys.stderr, flush=True)
                continue
        print(f"{name}: {seconds:.1f} s", flush=True)
        if given.check:
            if outline(text) != outline((FOLDER / f"{name}.md").read_text(encoding="utf-8")):
                failed.append(name)
                print(f"{name}: its page says something else; build it again", file=sys.stderr, flush=True)
        else:
            (FOLDER / f"{name}.md").write_text(text, encoding="utf-8")
            for file, drawn in pictures.items():
                (FOLDER / file).write_text(drawn.rstrip() + "\n", encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
