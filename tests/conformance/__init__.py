"""One conformance suite per kind of plug-in."""
