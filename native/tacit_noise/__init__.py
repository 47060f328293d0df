"""Compiled first tier of the rounded Gaussian mechanism; tacit alone uses it, where both versions are equal."""

from tacit_noise._first_tier import SOURCE, first_tier

__version__ = "0.2.0"
__all__ = ["SOURCE", "__version__", "first_tier"]
