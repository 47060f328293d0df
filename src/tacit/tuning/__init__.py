"""Private tuning: trials of random settings, of which one is released and everything is accounted for."""

from tacit.tuning.plan import Candidates, Search, Space, space_of
from tacit.tuning.search import PrivateSearchCV
from tacit.tuning.tune import Tuned, resume_tuning, tune

__all__ = ["Candidates", "PrivateSearchCV", "Search", "Space", "Tuned", "resume_tuning", "space_of", "tune"]
