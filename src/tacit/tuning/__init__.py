"""Private tuning: a random number of trials of random settings, of which the best alone is released."""

from tacit.tuning.search import PrivateSearchCV
from tacit.tuning.space import Space, space_of
from tacit.tuning.tune import Tuned, tune

__all__ = ["PrivateSearchCV", "Space", "Tuned", "space_of", "tune"]
