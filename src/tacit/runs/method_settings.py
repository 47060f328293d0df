"""Settings of the training methods: one frozen dataclass a method, the keys of its TOML section.

They are apart from `runs/methods/`, which trains, because the command line reads them without loading torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tacit import check
from tacit.runs.settings import setting

TICKET_MODES = ("paper", "T1", "T2", "T3", "T4")


@dataclass(frozen=True)
class GradientSettings:
    """The [gradient] section: empty, since the settings of the training loop are keys of the configuration itself."""


@dataclass(frozen=True)
class PerturbationSettings:
    """A section of `tacit.erm`: [input], [objective] or [output].

    Attributes:
        family: which of the three.
    """

    family: ClassVar[str]
    variant: str | None = setting(None, "A name of tacit.erm.METHODS for this method; its proven default if left out.")
    regularization: float | None = setting(None, "lambda >= 0; by default from n, the width and the target.")
    norm_bound: float | None = setting(None, "Public bound on a row's norm; by default what the bounds allow.")

    def __post_init__(self) -> None:
        if self.variant is not None:
            from tacit.erm import METHODS

            check.choice("variant", self.variant, METHODS[self.family])


class InputSettings(PerturbationSettings):
    """The [input] section: noise on the records themselves."""

    family = "input"


class ObjectiveSettings(PerturbationSettings):
    """The [objective] section: noise in the function that is minimised."""

    family = "objective"


class OutputSettings(PerturbationSettings):
    """The [output] section: noise on the minimiser."""

    family = "output"


@dataclass(frozen=True)
class TicketSettings:
    """The [ticket] section; epsilon, delta, epochs, batch_size, clip_norm and learning_rate are the run's own.

    Modes: "T1", a ticket of public origin; "T2", pruned from a privately trained dense network; "T3", the same, chosen
    on a private validation part; "T4", that with parallel composition; "paper", as published, which is only claimed.
    """

    mode: str = setting("T2", "paper, T1, T2, T3 or T4.")
    origin: str = setting("random", "Of T1: random, start_magnitude, synflow, or a public data set.")
    density: float = setting(0.1, "Of T1: share of weights kept; the largest allowed, for a public data set.")
    densities: tuple[float, ...] = setting((0.5, 0.25, 0.1, 0.05, 0.02), "Of T2 to T4: a density to choose from.")
    search_epochs: float = setting(10.0, "Of T2 to T4: epochs of the dense private network.")
    penalty: float = setting(0.0, "Accuracy, in [0, 1], that a ticket with all its weights loses in the choice.")
    validation_share: float = setting(0.2, "Of T3 and T4: probability that a record is kept for the choice.")
    selection: str = setting("exponential", "exponential or permute_and_flip.")
    rounds: int = setting(12, "Rounds of magnitude pruning (paper, and T1 with a data set).")
    iterations: int = setting(5000, "SGD steps of a round.")
    stop_epsilon: float | None = setting(
        None, "Training stops when the whole run has spent this epsilon; the noise is still that of epsilon."
    )
    stop_accuracy: float | None = setting(None, "Training stops after the first epoch that reaches this accuracy.")
    stop_on: str = setting("public", "Data for stop_accuracy: public (the test data) or private, which costs epsilon.")
    folder: str = setting("", "Folder of tickets that runs with the same start and data share; by default the run's.")

    def __post_init__(self) -> None:
        check.choice("mode of [ticket]", self.mode, TICKET_MODES)
        check.choice("selection of [ticket]", self.selection, ("exponential", "permute_and_flip"))
        check.count("rounds of [ticket]", self.rounds)
        check.count("iterations of [ticket]", self.iterations)
        check.probability("density of [ticket]", self.density, open_low=True)
        if not isinstance(self.densities, tuple) or not self.densities:
            raise check.fail("densities of [ticket]", "a list with at least one value", self.densities)


@dataclass(frozen=True)
class VariationalSettings:
    """The [vi] section; the noise, batch_size, epochs, clip_norm and delta are the run's own."""

    mode: str = setting("dpvi", "dpvi, or concealed: only samples are released, accounted as claimed and as proven.")
    samples: int = setting(10, "Of mode concealed: samples released for predictions.")
    family: str = setting("mean_field", "mean_field or full_rank.")
    prior_std: float = setting(1.0, "Prior standard deviation of every parameter, > 0.")
    noise_std: float = setting(1.0, "Standard deviation of a regression's target given the inputs, in its unit, > 0.")
    optimizer: str = setting("adam", "adam or adagrad.")
    learning_rate: float = setting(0.05, "Step size of the variational parameters.")

    def __post_init__(self) -> None:
        check.choice("mode of [vi]", self.mode, ("dpvi", "concealed"))
        check.count("samples of [vi]", self.samples)
        check.choice("family of [vi]", self.family, ("mean_field", "full_rank"))
        check.choice("optimizer of [vi]", self.optimizer, ("adam", "adagrad"))
        for name in ("prior_std", "noise_std", "learning_rate"):
            check.positive(f"{name} of [vi]", getattr(self, name))


METHOD_SETTINGS: dict[str, type] = {
    "gradient": GradientSettings,
    "input": InputSettings,
    "objective": ObjectiveSettings,
    "output": OutputSettings,
    "ticket": TicketSettings,
    "vi": VariationalSettings,
}
"""Section of each method by the method's name; the method itself is `runs.methods.METHODS` under the same name."""
