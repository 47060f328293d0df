"""Training methods by name. A new one is a file with a `Method`, and a line here."""

from tacit.runs.methods.base import Job, Method, Trained
from tacit.runs.methods.gradient import Gradient
from tacit.runs.methods.perturbation import Input, Objective, Output
from tacit.runs.methods.ticket import TicketMethod
from tacit.runs.methods.vi import Variational

METHODS: dict[str, type[Method]] = {
    "gradient": Gradient,
    "input": Input,
    "objective": Objective,
    "output": Output,
    "ticket": TicketMethod,
    "vi": Variational,
}

__all__ = ["METHODS", "Job", "Method", "Trained"]
