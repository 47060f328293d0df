"""The gate that every record passes before a proof is applied to it: finite values, declared labels, unit rows."""

from __future__ import annotations

import numpy as np

from tacit import check

Array = np.ndarray

# Allowance for rounding errors in the norm of a unit row.
NORM_SLACK = 1e-9


def finite_records(features: Array, targets: Array) -> tuple[Array, Array]:
    """The records, those with a value that is not finite replaced by a blank one: a row of zeros with target 0.

    So is a row whose squared norm overflows, since no gradient of it could be clipped. A blank record contributes
    nothing; what becomes blank depends on the record alone, so neighbours stay neighbours. How many there were is
    private and told to nobody.

    Args:
        features: (n, p).
        targets: (n,), or (n, 2) with weights beside them.

    Raises:
        InvalidInput: the shapes do not fit together.
    """
    features, targets = np.asarray(features), np.asarray(targets)
    if features.ndim != 2 or targets.shape not in (features.shape[:1], (len(features), 2)):
        shapes = f"{features.shape} and {targets.shape}"
        raise check.fail("features and targets", "of shapes (n, p) and (n,) or (n, 2)", shapes)
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.einsum("ij,ij->i", features, features)
        fine = np.isfinite(squares) & np.isfinite(targets).all(axis=tuple(range(1, targets.ndim)))
    if fine.all():
        return features, targets
    kept = fine.reshape(-1, *[1] * (targets.ndim - 1))
    return np.where(fine[:, None], features, 0.0), np.where(kept, targets, np.zeros((), targets.dtype))


def are_unit_rows(features: Array) -> bool:
    """Whether every row has norm at most 1, rounding errors allowed for."""
    return float(np.einsum("ij,ij->i", features, features).max(initial=0.0)) <= (1 + NORM_SLACK) ** 2


def check_unit_rows(features: Array) -> None:
    """Raise `InvalidInput` where a row is longer than 1: sensitivities are proven for unit rows."""
    if not are_unit_rows(features):
        raise check.fail("features", "rows of norm <= 1", "longer ones", "Scale them by a public constant.")
