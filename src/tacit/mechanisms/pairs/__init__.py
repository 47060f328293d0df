"""Dominating pairs: for each mechanism, the two output laws that no neighbouring data sets exceed."""

from tacit.mechanisms.pairs.adaptive import AdaptivePair, RevealedBlock, attained_lines
from tacit.mechanisms.pairs.atoms import AtomPair
from tacit.mechanisms.pairs.bounded_range import RangePair
from tacit.mechanisms.pairs.discrete_gaussian import DiscreteGaussianPair, DiscreteGaussianReplacePair
from tacit.mechanisms.pairs.floored import FlooredGaussianPair
from tacit.mechanisms.pairs.gaussian import GaussianPair, GaussianReplacePair, SampledGaussianPair
from tacit.mechanisms.pairs.laplace import LaplacePair, LaplaceReplacePair
from tacit.mechanisms.pairs.mixed import MixedPair
from tacit.mechanisms.pairs.nodes import Nodes
from tacit.mechanisms.pairs.pair import Pair
from tacit.mechanisms.pairs.sampled import RevealedPair, SampledPair, SubstitutedPair, sampled_pairs

__all__ = [
    "AdaptivePair",
    "AtomPair",
    "DiscreteGaussianPair",
    "DiscreteGaussianReplacePair",
    "FlooredGaussianPair",
    "GaussianPair",
    "GaussianReplacePair",
    "LaplacePair",
    "LaplaceReplacePair",
    "MixedPair",
    "Nodes",
    "Pair",
    "RangePair",
    "RevealedBlock",
    "RevealedPair",
    "SampledGaussianPair",
    "SampledPair",
    "SubstitutedPair",
    "attained_lines",
    "sampled_pairs",
]
