"""The accountants of `PrivacyEngine`, under the names that Opacus gives them."""

from __future__ import annotations

import warnings

from tacit import check
from tacit.accounting import ACCOUNTANTS, Accountant, Ledger, accountant
from tacit.errors import PrivacyWarning
from tacit.standing import Standing

OPACUS_NAMES = {"prv": "pld", "gdp": "clt"}
"""Name in Opacus -> name in tacit, where the two differ."""


class OpacusAccountant:
    """Accountant of an engine, with the methods of an Opacus accountant.

    Args:
        name: "prv", "rdp", "gdp", or an accountant of tacit.
        ledger: the ledger that it reads.

    Attributes:
        native: the accountant of tacit that answers.

    Raises:
        InvalidInput: no accountant has this name.
    """

    def __init__(self, name: str, ledger: Ledger):
        check.choice("accountant", name, [*OPACUS_NAMES, *ACCOUNTANTS])
        self.native: Accountant = accountant(OPACUS_NAMES.get(name, name))
        self._ledger = ledger

    def __len__(self) -> int:
        return self._ledger.steps

    def get_epsilon(self, delta: float) -> float:
        """Smallest epsilon at `delta` of the whole ledger, an `Answer` that includes its standing.

        An accountant without a proof warns and names the proven number.
        """
        answer = self.native(self._ledger).epsilon(delta)
        if self.native.standing is not Standing.PROVEN:
            proven = accountant("pld")(self._ledger).epsilon(delta)
            warnings.warn(
                f"epsilon={answer:.4g} of accountant {self.native.name!r} is {answer.standing.value} and bounds "
                f'nothing; accountant="prv" gives {proven:.4g} ({proven.standing.value}).',
                PrivacyWarning,
                stacklevel=3,
            )
        return answer


def proven_accountant(chosen: OpacusAccountant) -> Accountant:
    """The accountant of an engine for calibration; the exact one, with a warning, where it is not proven."""
    if chosen.native.standing is Standing.PROVEN:
        return chosen.native
    warnings.warn(
        f"accountant {chosen.native.name!r} is {chosen.native.standing.value}: noise for it would miss the target. "
        'The exact accountant "prv" is used for the noise.',
        PrivacyWarning,
        stacklevel=4,
    )
    return accountant("pld")
