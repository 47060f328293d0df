"""Write a mechanism and let tacit check that its facets agree with each other and with its sampler."""

from dataclasses import dataclass
from typing import ClassVar

from tacit import Mechanism, accountant
from tacit.mechanisms import RandomizedResponse
from tacit.mechanisms.spec import TYPES
from tacit.noise import SeededStream
from tacit.testing import check_mechanism


@dataclass(frozen=True)
class CoinSurvey(Mechanism):
    """Answer the truth with probability `honesty`, else by a fair coin (Warner 1965)."""

    type: ClassVar[str] = "coin_survey"
    honesty: float

    @property
    def response(self):
        """The randomized response that it is: the true bit has the odds (1 + honesty) : (1 - honesty)."""
        import math

        return RandomizedResponse(math.log((1 + self.honesty) / (1 - self.honesty)))

    def pure_epsilon(self, relation):
        return self.response.pure_epsilon(relation)

    def rdp(self, orders, relation):
        return self.response.rdp(orders, relation)

    def dominating_pairs(self, relation):
        return self.response.dominating_pairs(relation)


TYPES[CoinSurvey.type] = CoinSurvey  # A ledger of it can then be saved and loaded.
stream = SeededStream(0)


def draw(record, count):
    """Return what persons answer whose true bit is `record`."""
    honest, coin = stream.uniform(count) < 0.4, stream.uniform(count) < 0.5
    return honest * record + ~honest * coin


check_mechanism(CoinSurvey(0.4), draw=draw)
curve = accountant("pld")(CoinSurvey(0.4) * 20)
print(f"20 answers cost epsilon {curve.epsilon(1e-5):.3f} at delta = 1e-5")
