"""Public features: maps of one record by itself that no private data shaped, as modules and transformers."""

from tacit.features.base import PublicFeatures, clear, computed
from tacit.features.beside import Beside, Frozen, features_from
from tacit.features.patches import PatchDictionary, SyntheticWhitening, drawings
from tacit.features.scattering import Scattering2d
from tacit.features.text import HashedText

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
