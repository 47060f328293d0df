"""Print the shell commands of README.md, or its five lines of Python (`--lines`): CI runs what a newcomer reads."""

import re
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def commands() -> list[str]:
    """Every line of every ```sh block, in order."""
    blocks = re.findall(r"```sh\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.strip()]


def five_lines() -> str:
    """The block below "Five lines"."""
    return (
        README.read_text(encoding="utf-8").partition("## Five lines")[2].partition("```python\n")[2].partition("```")[0]
    )


if __name__ == "__main__":
    print(five_lines() if "--lines" in sys.argv else "\n".join(commands()))
