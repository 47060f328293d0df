"""Measurements of the library; a package, so that no installed package of this name stands in its way."""
