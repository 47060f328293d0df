"""Training methods by name: a new one is a file here, its settings in `runs.method_settings`, and a line in both."""

from pkgutil import resolve_name
from typing import Any

from tacit.data import Dataset
from tacit.runs.config import AUTO, Config
from tacit.runs.methods.base import Job, Method, Trained

METHODS = {
    # What nothing has chosen for, such as a search, trains by DP-SGD.
    "auto": "tacit.runs.methods.gradient:Gradient",
    "gradient": "tacit.runs.methods.gradient:Gradient",
    "objective": "tacit.runs.methods.perturbation:Perturbation",
    "ticket": "tacit.runs.methods.ticket:TicketMethod",
    "trees": "tacit.runs.methods.trees:Trees",
    "vi": "tacit.runs.methods.vi:Variational",
}
"""Module and class of each method; loaded when it is asked for, as some load scikit-learn."""

__all__ = ["METHODS", "Job", "Method", "Trained", "choose_method", "method_of"]


def method_of(config: Config) -> Method[Any]:
    """The training method that `config` names, with its settings."""
    return resolve_name(METHODS[config.method])(config.method_settings)


def choose_method(config: Config, dataset: Dataset) -> Config:
    """`config` with the method that "auto" stands for on these data; see `tacit.runs.methods.trees`."""
    if config.method != AUTO:
        return config
    from tacit.runs.methods.trees import choose_method

    return choose_method(config, dataset)
