"""`TicketPlan`: settings of the private phases of a ticket."""

from __future__ import annotations

from dataclasses import dataclass

from tacit import check
from tacit.tickets.stop import STOP_ON
from tacit.tradeoff import Epsilon


@dataclass(frozen=True)
class TicketPlan:
    """Settings of the private phases; the defaults are the paper's.

    Attributes:
        mode: see `spend`.
        epsilon, delta: target of everything together.
        batch_size: expected size of a Poisson batch of the training part.
        epochs: of the final training; `search_epochs` of the dense one whose weights T2 to T4 prune.
        densities: shares of weights that T2 to T4 choose from.
        patterns: names of the weights that T2 to T4 may prune; see `prunable`.
        penalty: accuracy points (of 1) that a ticket with all its weights loses to an empty one in the sound score.
        public_size: declared number of records behind those points; not the private count.
        validation_share: probability with which T3 and T4 keep a record for the choice.
        stop_epsilon: ends the final training where everything together has cost this much, at the noise of `epsilon`.
        stop_accuracy: ends it at the first epoch of this accuracy.
        stop_on: where that accuracy is measured: "public" (the metric "test" of `evaluate`, free of charge) or
            "private" (the choosing part, or the training records; see `PrivateStop`, charged to the ledger).
    """

    mode: str = "T2"
    epsilon: float = 1.0
    delta: float = 1e-5
    batch_size: float = 400
    epochs: float = 50
    search_epochs: float = 10
    clip_norm: float = 1.0
    learning_rate: float = 0.1
    densities: tuple[float, ...] = (0.5, 0.25, 0.1, 0.05, 0.02)
    patterns: tuple[str, ...] = ("*.weight", "weight")
    penalty: float = 0.0
    public_size: int = 10_000
    validation_share: float = 0.2
    selection: str = "exponential"
    stop_epsilon: float | None = None
    stop_accuracy: float | None = None
    stop_on: str = "public"

    def __post_init__(self) -> None:
        Epsilon(self.epsilon, self.delta)
        for name in ("batch_size", "epochs", "search_epochs", "clip_norm", "learning_rate"):
            check.positive(name, getattr(self, name))
        if not self.densities:
            raise check.fail("densities", "a list with at least one value", self.densities)
        for density in self.densities:
            check.probability("density", density, open_low=True)
        check.probability("validation_share", self.validation_share, open_low=True, open_high=True)
        check.choice("stop_on", self.stop_on, STOP_ON)
        if self.stop_epsilon is not None:
            check.real("stop_epsilon", self.stop_epsilon, low=0.0, high=self.epsilon, open_low=True)
        if self.stop_accuracy is not None:
            check.probability("stop_accuracy", self.stop_accuracy, open_low=True)

    @property
    def stops_privately(self) -> bool:
        """Whether private records are asked when to stop."""
        return self.stop_accuracy is not None and self.stop_on == "private"
