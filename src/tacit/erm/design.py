"""`Design`: the map from raw rows to feature rows of norm at most 1, by public constants and the row alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit.data.dataset import declared_ends
from tacit.root_finding import minimum

Array = np.ndarray
Ends = float | Array

# Shrinks unit rows so that rounding errors of sums over columns leave their norm at most 1.
SAFE = 1 - 1e-12
_SPARSE = 3.0  # norm of the box over that of a row, where columns are many


@dataclass(frozen=True, eq=False)
class Design:
    """Rows clipped to the declared box and ball, moved to `center`, and scaled with the intercept's constant.

    A row becomes ((x - center) / radius, c) / sqrt(1 + c^2), c = intercept_scale. A row that is still longer than the
    radius is scaled down to it, so its norm is at most 1 whatever x was and however the center was chosen. The
    intercept is regularised like every other coordinate, since the sensitivity of a minimiser rests on that.

    Args:
        low: lower bound of each column, a number or one value for each column; public.
        high: upper bound of each column, a number or one value for each column; public.
        norm_bound: > 0, bound on a row's L2 norm after clipping; public.
        intercept_scale: c >= 0; 0 leaves the intercept out.
        center: what becomes 0, public; other than 0 only with an intercept, which takes the move back.
        radius: > 0, bound on a row's norm around the center; `norm_bound` by default.
        scale: > 0, what a column is divided by after the move, public; `radius` is in these units.
    """

    low: Ends
    high: Ends
    norm_bound: float
    intercept_scale: float = 1.0
    center: Ends = 0.0
    radius: float | None = None
    scale: Ends = 1.0

    @classmethod
    def of_box(cls, low: Array, high: Array, intercept_scale: float, *, sparse: bool = False) -> Design:
        """The design of declared boxes alone: every column becomes [-1, 1], whatever its unit, and costs nothing.

        Without an intercept nothing can be moved, so that columns are divided by their largest distance from 0.

        Args:
            low: (p,), declared.
            high: (p,), declared.
            intercept_scale: c >= 0; > 0 where `sparse`.
            sparse: for many columns of which a row has few. A 0 inside of the box stays 0, and rows are cut to a third
                of the box's norm: mostly a row's direction is left, which of sparse rows says more than their place
                around the middle of the box.
        """
        stays = (low <= 0) & (high >= 0) if sparse else not intercept_scale
        center = np.where(stays, 0.0, low / 2 + high / 2)
        scale = np.maximum(np.abs(low - center), np.abs(high - center))
        # A constant column is divided by infinity: it says nothing, and its coefficient is 0.
        radius = math.sqrt(int((scale > 0).sum())) / (_SPARSE if sparse else 1.0) or 1.0
        norm = largest_norm(low, high, len(low))
        return cls(low, high, norm, intercept_scale, center, radius, np.where(scale > 0, scale, math.inf))

    @property
    def reached(self) -> float:
        """Radius in use: `radius`, or `norm_bound` where it is not given."""
        return self.norm_bound if self.radius is None else self.radius

    @property
    def reach(self) -> float:
        """Factor sqrt(1 + c^2) by which the constant lengthens the longest row."""
        return math.hypot(1.0, self.intercept_scale)

    def clipped(self, x: Array) -> Array:
        """Rows inside the declared box and ball, in their own units, float64."""
        return _shortened(np.clip(np.asarray(x, dtype=np.float64), self.low, self.high), self.norm_bound)

    def inputs(self, x: Array) -> Array:
        """What `coefficients` multiply: the rows as they are."""
        return x

    def features(self, x: Array) -> Array:
        """Feature rows, (n, columns) or (n, columns + 1) with the constant last; every norm is at most 1."""
        rows = self.clipped(x)
        if self.radius is not None:
            rows = _shortened((rows - self.center) / self.scale, self.radius)
        rows *= SAFE / (self.reached * self.reach)
        if not self.intercept_scale:
            return rows
        constant = np.full((len(rows), 1), SAFE * self.intercept_scale / self.reach)
        return np.hstack([rows, constant])

    def coefficients(self, theta: Array) -> tuple[Array, Array]:
        """Coefficients (k, columns) and intercepts (k,) for raw rows, from theta (p, k)."""
        scale = SAFE / self.reach
        if not self.intercept_scale:
            return theta.T * (scale / self.reached) / self.scale, np.zeros(theta.shape[1])
        slopes = theta[:-1].T * (scale / self.reached) / self.scale
        moved = slopes @ np.broadcast_to(self.center, slopes.shape[1:])
        return slopes, theta[-1] * (scale * self.intercept_scale) - moved


def smallest_ball(low: Ends, high: Ends, norm_bound: float, columns: int) -> tuple[Array, float]:
    """Center and radius of a ball that holds the box [low, high] cut by the ball of `norm_bound` around 0.

    For every w in [0, 1] and center c, ||x - c||^2 <= w norm_bound^2 + sum_j max over x_j in {low_j, high_j} of
    (1 - w) x_j^2 - 2 c_j x_j + c_j^2, since ||x|| <= norm_bound and the summand is convex in x_j. The best c_j at w is
    (1 - w) (low_j + high_j) / 2 clipped to the box; w, by a search on the convex bound, weighs the two.

    Args:
        low: lower bounds of the columns.
        high: upper bounds of the columns.
        norm_bound: > 0, of a row.
        columns: number of columns.
    """
    low, high = (np.broadcast_to(np.asarray(end, dtype=np.float64), (columns,)) for end in (low, high))

    def bound(w: float) -> tuple[float, Array]:
        center = np.clip((1 - w) * (low + high) / 2, low, high)
        ends = [(1 - w) * end**2 - 2 * center * end + center**2 for end in (low, high)]
        return w * norm_bound**2 + float(np.maximum(*ends).sum()), center

    weight = minimum(lambda w: bound(w)[0], 0.0, 1.0, accuracy=1e-10)
    square, center = min((bound(w) for w in (0.0, weight)), key=lambda found: found[0])
    if square < norm_bound**2:
        return center, math.sqrt(max(square, 0.0)) or 1.0
    return np.zeros(columns), norm_bound


def _shortened(rows: Array, norm: float) -> Array:
    """Rows scaled down to `norm` where they are longer; changes `rows`."""
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    longer = norms > norm
    if longer.any():
        rows[longer] *= (norm / norms[longer])[:, None]
    return rows


def largest_norm(low: Ends, high: Ends, columns: int) -> float:
    """The largest norm of a row inside the box: a public constant; 1 for a box that holds only 0."""
    ends = np.broadcast_to(np.maximum(np.abs(low), np.abs(high)), (columns,))
    return float(np.linalg.norm(ends)) or 1.0


def declared_bounds(bounds: object, columns: int) -> tuple[Ends, Ends]:
    """Lower and upper bounds of the columns from `data_bounds`; see `declared_ends`."""
    each = f"one value for each of {columns} columns"
    return declared_ends("data_bounds", bounds, (columns,), each, kind=np.float64)


def column_bounds(bounds: object, columns: int) -> tuple[Array, Array]:
    """`declared_bounds` as one value for each column, twice (columns,)."""
    low, high = declared_bounds(bounds, columns)
    return np.broadcast_to(low, (columns,)), np.broadcast_to(high, (columns,))
