"""The standing of a privacy number, printed wherever the number is printed."""

from enum import StrEnum


class Standing(StrEnum):
    """Strongest first; composition never upgrades: the weakest part wins.

    proven: a theorem with explicit constants covers the code path that ran.
    asymptotic: a limit theorem without an error bound (CLT).
    bayesian: an average over records or an empirical moment.
    claimed: a paper says so; no proof is known, or the proof is refuted.
    measured: a statistical lower bound found by an attack, with its confidence.
    """

    PROVEN = "proven"
    ASYMPTOTIC = "asymptotic"
    BAYESIAN = "bayesian"
    CLAIMED = "claimed"
    MEASURED = "measured"

    @staticmethod
    def weakest(*standings: "Standing") -> "Standing":
        """The standing of a composition: that of its weakest part."""
        order = list(Standing)
        return max(standings, key=order.index, default=Standing.PROVEN)
