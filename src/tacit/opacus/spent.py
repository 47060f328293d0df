"""What has been spent, asked the way Opacus scripts ask."""

from __future__ import annotations

import warnings

from tacit import check
from tacit.accounting import ACCOUNTANTS, ALIASES, Accountant, Ledger, accountant
from tacit.errors import PrivacyWarning
from tacit.standing import Standing

NAMES = {"prv": "pld", "gdp": "clt"}


class Spent:
    """The accountant of an engine.

    Args:
        name: "prv", "rdp", "gdp", or an accountant of tacit.
        ledger: what it reads.

    Attributes:
        judge: the accountant of tacit that answers.
    """

    def __init__(self, name: str, ledger: Ledger):
        name = ALIASES.get(name, name)
        check.choice("accountant", name, [*NAMES, *ACCOUNTANTS])
        self.judge: Accountant = accountant(NAMES.get(name, name))
        self._ledger = ledger

    def __len__(self) -> int:
        return self._ledger.steps

    def get_epsilon(self, delta: float) -> float:
        """The smallest epsilon at `delta` of everything that ran, an `Answer` that knows its standing.

        An accountant without a proof warns and names the number that is proven.
        """
        answer = self.judge(self._ledger).epsilon(delta)
        if self.judge.standing is not Standing.PROVEN:
            proven = accountant("pld")(self._ledger).epsilon(delta)
            warnings.warn(
                f"epsilon={answer:.4g} of accountant {self.judge.name!r} is {answer.standing.value} and bounds "
                f'nothing; accountant="prv" gives {proven:.4g} ({proven.standing.value}).',
                PrivacyWarning,
                stacklevel=3,
            )
        return answer
