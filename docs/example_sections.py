"""Extension of griffe: an `Example:` section is rendered as code, as an `Examples:` section is."""

import re
from typing import Any

import griffe


class ExampleSections(griffe.Extension):
    """Rename the section before it is parsed; griffe takes the singular for plain text with Markdown links."""

    def on_object(self, *, obj: griffe.Object, **given: Any) -> None:
        """Rename the section of one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
