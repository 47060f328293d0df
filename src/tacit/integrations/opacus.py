"""Opacus with the accountant of `tacit`: `opacus.PrivacyEngine(accountant=register())`."""

from typing import Any

from opacus.accountants import IAccountant
from opacus.accountants.registry import register_accountant

from tacit import check
from tacit.accounting import Ledger, accountant
from tacit.mechanisms import Gaussian
from tacit.tradeoff import Answer


def register() -> str:
    """Make `Accountant` known to Opacus, and return the name that its `PrivacyEngine` knows it by.

    Example:
        >>> import opacus
        >>> engine = opacus.PrivacyEngine(accountant=register())
        >>> type(engine.accountant).__module__
        'tacit.integrations.opacus'
    """
    register_accountant(Accountant.mechanism(), Accountant, force=True)
    return Accountant.mechanism()


class Accountant(IAccountant):
    """Opacus's interface of an accountant, answered by `pld`.

    Opacus writes the steps: noise multiplier and sample rate of each, of Poisson samples under add/remove. With
    `poisson_sampling=False` its own batches are shuffled, and no accountant can see that.

    Attributes:
        history: (noise multiplier, sample rate, steps) of runs of equal steps, as Opacus saves them.

    Example:
        >>> steps = Accountant()
        >>> for _ in range(100):
        ...     steps.step(noise_multiplier=1.1, sample_rate=0.01)
        >>> len(steps), steps.get_epsilon(1e-5) == steps.bracket(1e-5).upper
        (100, True)
    """

    history: list[tuple[float, float, int]]

    def __init__(self) -> None:
        super().__init__()

    @classmethod
    def mechanism(cls) -> str:
        """Return "tacit"."""
        return "tacit"

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Record one step.

        Args:
            noise_multiplier: >= 0, noise in units of the clipping norm; 0 makes every epsilon infinite.
            sample_rate: in (0, 1].

        Raises:
            InvalidInput: a number is out of range.
        """
        _step(noise_multiplier, sample_rate)
        if self.history and self.history[-1][:2] == (noise_multiplier, sample_rate):
            self.history[-1] = (noise_multiplier, sample_rate, self.history[-1][2] + 1)
        else:
            self.history.append((noise_multiplier, sample_rate, 1))

    @property
    def ledger(self) -> Ledger:
        """The steps as a ledger, which `tacit account` reads once it is saved."""
        ledger = Ledger()
        for noise_multiplier, sample_rate, steps in self.history:
            ledger.add(_step(noise_multiplier, sample_rate), check.count("steps", steps), note="trained by Opacus")
        return ledger

    def bracket(self, delta: float) -> Answer:
        """Epsilon with its two proven ends.

        Args:
            delta: in [0, 1].
        """
        return accountant("pld")(self.ledger).epsilon(delta)

    def get_epsilon(self, delta: float, *args: Any, **kwargs: Any) -> float:
        """The upper end of epsilon; options of other accountants have no effect.

        Args:
            delta: in [0, 1].
            args: ignored.
            kwargs: ignored.
        """
        return float(self.bracket(delta))

    def __len__(self) -> int:
        return sum(steps for _, _, steps in self.history)


def _step(noise_multiplier: float, sample_rate: float) -> Any:
    return Gaussian(noise_multiplier, unsafe_no_noise=noise_multiplier == 0).poisson(sample_rate)
