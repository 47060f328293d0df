"""Private tuning: trials of random settings, of which one is released and everything is accounted for."""

from tacit.tuning.optuna_proposals import propose
from tacit.tuning.plan import SELECTIONS, FixedTrials, RandomTrials, Search
from tacit.tuning.search import PrivateSearchCV
from tacit.tuning.space import Candidates, Space, space_of
from tacit.tuning.tune import Tuned, resume_tuning, tune

__all__ = [
    "SELECTIONS",
    "Candidates",
    "FixedTrials",
    "PrivateSearchCV",
    "RandomTrials",
    "Search",
    "Space",
    "Tuned",
    "propose",
    "resume_tuning",
    "space_of",
    "tune",
]
