"""Public features: maps of one record by itself that no private data shaped, as modules and transformers."""

from tacit.features.base import PublicFeatures
from tacit.features.beside import Beside, Frozen
from tacit.features.cache import clear, computed
from tacit.features.drawings import drawings
from tacit.features.patches import PatchDictionary
from tacit.features.scattering import Scattering2d
from tacit.features.specs import features_from
from tacit.features.text import HashedText
from tacit.features.whitening import SyntheticWhitening

__all__ = [
    "Beside",
    "Frozen",
    "HashedText",
    "PatchDictionary",
    "PublicFeatures",
    "Scattering2d",
    "SyntheticWhitening",
    "clear",
    "computed",
    "drawings",
    "features_from",
]
