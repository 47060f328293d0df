"""`features_from`: features made anew from their `spec`, for a model that is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tacit import check
from tacit.features.base import PublicFeatures
from tacit.features.beside import Beside
from tacit.features.patches import PatchDictionary
from tacit.features.scattering import Scattering2d
from tacit.features.text import HashedText
from tacit.features.whitening import SyntheticWhitening

_KINDS: dict[str, type[PublicFeatures]] = {
    kind.__name__: kind for kind in (Beside, HashedText, PatchDictionary, Scattering2d, SyntheticWhitening)
}


def features_from(spec: Mapping[str, Any]) -> PublicFeatures:
    """The features that gave `spec`; what they compute first is read from a model's file or computed anew.

    Args:
        spec: of `PublicFeatures.spec`, from anybody.

    Raises:
        InvalidInput: it is none of features that have such a form.

    Example:
        >>> from tacit.features import Scattering2d
        >>> features_from(Scattering2d((3, 32, 32)).spec()).width
        15552
    """
    spec = dict(check.instance("features", spec, Mapping, "a table"))
    kind = _KINDS[check.choice("kind of features", spec.pop("kind", None), _KINDS)]
    for name in ("features", "parts"):
        if name in spec:
            inner = spec[name]
            spec[name] = [features_from(each) for each in inner] if isinstance(inner, list) else features_from(inner)
    try:
        return kind(**spec)
    except TypeError:
        raise check.fail("features", f"the parameters of {kind.__name__}", sorted(spec)) from None
