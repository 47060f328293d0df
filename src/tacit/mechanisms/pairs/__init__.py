"""Dominating pairs: for each mechanism, the two output laws that no neighbouring data sets exceed."""

from tacit.mechanisms.pairs.adaptive import (
    AdaptivePair,
    AttainedPair,
    GridPair,
    JointPair,
    RevealedBlock,
    attained_lines,
)
from tacit.mechanisms.pairs.allocation import AllocationPair, SubsetSumPair
from tacit.mechanisms.pairs.base import LOSS_UNIT, MixedPair, Nodes, Pair
from tacit.mechanisms.pairs.discrete import (
    NOTHING,
    AtomPair,
    DiscreteGaussianPair,
    DiscreteGaussianReplacePair,
    EnclosedPair,
)
from tacit.mechanisms.pairs.gaussian import (
    CornersPair,
    GaussianPair,
    GaussianReplacePair,
    RectifiedGaussianPair,
    SampledGaussian,
    SampledGaussianPair,
)
from tacit.mechanisms.pairs.groups import (
    LARGEST_GROUP,
    GaussianMixturePair,
    IntegerMixturePair,
    LaplaceMixturePair,
    binomial_logs,
)
from tacit.mechanisms.pairs.laplace import (
    DiscreteLaplacePair,
    LaplacePair,
    LaplaceReplacePair,
    PermuteAndFlipPair,
    RangePair,
)
from tacit.mechanisms.pairs.subsampled import RevealedPair, SampledPair, SubstitutedPair, sampled_pairs
