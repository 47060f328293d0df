"""Matplotlib figures as inline SVG: colours follow the page's CSS variables, letters its font, nothing is loaded."""

from __future__ import annotations

import html
import io
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK = {
    name: f"#fe{index:02x}ef"
    for index, name in enumerate(
        (
            *("ink", "faint", "paper"),
            *("proven", "conditional", "asymptotic", "bayesian", "claimed", "measured"),
            *("private", "nonprivate"),
        )
    )
}
"""Stand-in colours, one for each CSS variable `--NAME` of the card; `inline_svg` swaps them."""

_SETTINGS: Any = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 9,
    "axes.edgecolor": INK["faint"],
    "axes.labelcolor": INK["ink"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "xtick.color": INK["faint"],
    "ytick.color": INK["faint"],
    "xtick.labelcolor": INK["ink"],
    "ytick.labelcolor": INK["ink"],
    "text.color": INK["ink"],
}


def settings(salt: str) -> Any:
    """The matplotlib settings to draw a card figure under; `salt` keeps element ids of two figures apart."""
    import matplotlib

    chosen: Any = _SETTINGS | {"svg.hashsalt": salt}
    return matplotlib.rc_context(chosen)


def inline_svg(figure: Figure, *, description: str) -> str:
    """`figure`, drawn under `settings`, as one `<svg>` element for an HTML page."""
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    for name, colour in INK.items():
        text = text.replace(colour, f"var(--{name})")
    text = text.replace('<g id="', '<g class="')  # Two figures of a page must not share an id.
    text = re.sub(r"""font: ([\d.]+px) [^;"]*""", r"font-size: \1", text)
    text = re.sub(r"""font-family: [^;"]*;? ?""", "", text)
    view = re.search(r'viewBox="[^"]*"', text)
    head = f'<svg {view.group(0) if view else ""} role="img" aria-label="{html.escape(description)}">'
    return head + text[text.index(">") + 1 :].strip()
