"""The standing of a privacy number, printed wherever the number is printed."""

from enum import StrEnum


class Standing(StrEnum):
    """Strongest first; composition never upgrades: the weakest part wins.

    proven: a theorem with explicit constants, derived arithmetic and a checked code path; every fact that the theorem
        needs is enforced, checked in the run, or declared by name.
    conditional: the theorem holds if the named facts do, and nobody checked them; not a bound until they are.
    asymptotic: a limit theorem without an error bound (CLT).
    bayesian: an average over records or an empirical moment.
    claimed: nothing proves it for this run: a paper says so, the proof is refuted, the randomness came from a seed, or
        a value was read from private data.
    measured: a statistical lower bound found by an attack, with its confidence.
    """

    PROVEN = "proven"
    CONDITIONAL = "conditional"
    ASYMPTOTIC = "asymptotic"
    BAYESIAN = "bayesian"
    CLAIMED = "claimed"
    MEASURED = "measured"

    @staticmethod
    def weakest(*standings: "Standing") -> "Standing":
        """The standing of a composition: that of its weakest part."""
        order = list(Standing)
        return max(standings, key=order.index, default=Standing.PROVEN)
