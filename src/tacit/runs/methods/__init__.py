"""Training methods by name. A new one is a file with a `Method`, and a line here."""

from tacit.runs.methods.base import Job, Method, Trained
from tacit.runs.methods.gradient import Gradient

METHODS: dict[str, type[Method]] = {
    "gradient": Gradient,
}

__all__ = ["METHODS", "Job", "Method", "Trained"]
