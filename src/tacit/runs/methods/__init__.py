"""Training methods by name: a new one is a file here, its settings in `runs.method_settings`, and a line in both."""

from typing import Any

from tacit.runs.config import Config
from tacit.runs.methods.base import Job, Method, Trained
from tacit.runs.methods.gradient import Gradient
from tacit.runs.methods.perturbation import Perturbation
from tacit.runs.methods.ticket import TicketMethod
from tacit.runs.methods.trees import Trees, choose_method
from tacit.runs.methods.vi import Variational

METHODS: dict[str, type[Method[Any]]] = {
    # What nothing has chosen for, such as a search, trains by DP-SGD.
    "auto": Gradient,
    "gradient": Gradient,
    "objective": Perturbation,
    "ticket": TicketMethod,
    "trees": Trees,
    "vi": Variational,
}

__all__ = ["METHODS", "Job", "Method", "Trained", "choose_method", "method_of"]


def method_of(config: Config) -> Method[Any]:
    """The training method that `config` names, with its settings."""
    return METHODS[config.method](config.method_settings)
