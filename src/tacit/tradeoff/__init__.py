"""Trade-off functions, their answers and the targets that they can meet."""

from tacit.tradeoff.curve import Curve, EpsilonCurve, ErrorPoints, GaussianCurve, ProfileCurve, WorstCurve, worst
from tacit.tradeoff.target import Advantage, Epsilon, Errors, Mu, Target, check_target, target_of
from tacit.tradeoff.tradeoff import Answer, MuReport, TradeOff

__all__ = [
    "Advantage",
    "Answer",
    "Curve",
    "Epsilon",
    "EpsilonCurve",
    "ErrorPoints",
    "Errors",
    "GaussianCurve",
    "Mu",
    "MuReport",
    "ProfileCurve",
    "Target",
    "TradeOff",
    "WorstCurve",
    "check_target",
    "target_of",
    "worst",
]
