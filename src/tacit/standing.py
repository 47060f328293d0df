"""The standing of a privacy number, and its digits: bounds are rounded to the safe side, never to the nearest."""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context
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
        return max(standings, key=list(Standing).index, default=Standing.PROVEN)


def upward(value: float | None, digits: int = 4) -> str:
    """`value` rounded up at `digits` significant digits: for upper bounds."""
    return _rounded(value, digits, ROUND_CEILING)


def downward(value: float | None, digits: int = 4) -> str:
    """`value` rounded down at `digits` significant digits: for lower bounds."""
    return _rounded(value, digits, ROUND_FLOOR)


def nearest(value: float | None, digits: int = 4) -> str:
    """`value` at `digits` significant digits: for numbers that bound nothing."""
    return _rounded(value, digits, ROUND_HALF_EVEN)


def leakage(value: float, standing: str) -> str:
    """A number of an accountant: rounded up when it is a bound, one if the assumed facts hold, or stated as one."""
    bounds_nothing = (Standing.ASYMPTOTIC, Standing.BAYESIAN, Standing.CLAIMED, Standing.MEASURED)
    return nearest(value) if standing in bounds_nothing else upward(value)


def _rounded(value: float | None, digits: int, rounding: str) -> str:
    if value is None:
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{float(Context(prec=digits, rounding=rounding).create_decimal(repr(float(value) + 0.0))):.{digits}g}"
