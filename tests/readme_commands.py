"""Print the shell commands of README.md, one a line: what CI runs is what a newcomer reads."""

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def commands() -> list[str]:
    """Every line of every ```sh block, in order."""
    blocks = re.findall(r"```sh\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.strip()]


if __name__ == "__main__":
    print("\n".join(commands()))
