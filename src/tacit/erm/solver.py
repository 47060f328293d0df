"""`Problem`, the regularised empirical risk, and `minimise`, its minimiser to a certified gradient norm.

L-BFGS comes close where the problem is large, Newton steps finish. The certificate is the norm of the gradient
recomputed at the answer, from which ||theta - theta*|| <= norm / strength by strong convexity.

The gate that every record passes before a proof is applied to it: finite values, declared labels, unit rows.

Rounding errors of sums over records in double precision, which noise and tolerances pay for.

With u = 2^-53 and gamma_n = n u / (1 - n u), a sum of n products errs by at most gamma_n times the sum of their sizes,
in any order (Higham 2002, sections 3.1 and 4.2). For contributions of norm <= C the error vector of their sum has norm
at most gamma_n n C, so that neighbouring computed sums are at most C + 2 gamma_n n C apart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tacit import check
from tacit.erm.losses import Loss
from tacit.errors import TacitError
from tacit.root_finding import bracketed_root

# Allowance for rounding errors in the norm of a unit row.
NORM_SLACK = 1e-9


def finite_records(features: Array, targets: Array) -> tuple[Array, Array]:
    """The records, those with a value that is not finite replaced by a blank one: a row of zeros with target 0.

    So is a row whose squared norm overflows, since no gradient of it could be clipped. A blank record contributes
    nothing; what becomes blank depends on the record alone, so neighbours stay neighbours. How many there were is
    private and told to nobody.

    Args:
        features: (n, p).
        targets: (n,).

    Raises:
        InvalidInput: the shapes do not fit together.
    """
    features, targets = np.asarray(features), np.asarray(targets)
    if features.ndim != 2 or targets.shape != features.shape[:1]:
        shapes = f"{features.shape} and {targets.shape}"
        raise check.fail("features and targets", "of shapes (n, p) and (n,)", shapes)
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.einsum("ij,ij->i", features, features)
        fine = np.isfinite(squares) & np.isfinite(targets)
    if fine.all():
        return features, targets
    return np.where(fine[:, None], features, 0.0), np.where(fine, targets, np.zeros((), targets.dtype))


def are_unit_rows(features: Array) -> bool:
    """Whether every row has norm at most 1, rounding errors allowed for."""
    return float(np.einsum("ij,ij->i", features, features).max(initial=0.0)) <= (1 + NORM_SLACK) ** 2


def check_unit_rows(features: Array) -> None:
    """Raise `InvalidInput` where a row is longer than 1: sensitivities are proven for unit rows."""
    if not are_unit_rows(features):
        raise check.fail("features", "rows of norm <= 1", "longer ones", "Scale them by a public constant.")


Array = np.ndarray

# Default bound on the gradient's norm: far above rounding errors of 10^6 records, far below any noise.
TOLERANCE = 1e-8
# Parameters up to which the Hessian is stored and factorised (18 MB); beyond, L-BFGS and conjugate gradients take over.
_DENSE = 1500
# Rows whose weighted copy is held at once while the Hessian is summed.
_ROWS_AT_ONCE = 65536
# Steps of Newton, of L-BFGS and of conjugate gradients; convergence takes a few dozen.
_STEPS = 500
# L-BFGS's own tolerance, per record: Newton steps finish from there.
_ROUGH_TOLERANCE = 1e-9
BLOCK_ROWS = 1024
"""Records whose gradients one product adds up: the error of a sum grows with them and with the number of blocks."""
# Records may be so many times the declared size.
MOST_RECORDS = 2
# Doublings of a step length.
_LENGTHS = 60
_LENGTH_ACCURACY = 1e-2  # relative: a Newton step need not be exact
# Share of the residual at which conjugate gradients stop: an inexact Newton step is good enough.
_RESIDUAL = 1e-5


@dataclass(frozen=True, eq=False)
class Problem:
    """F(theta) = sum_i w_i l(theta^T x_i, y_i) + (strength / 2) ||theta||^2, theta of shape (p, k), w_i in [0, 1].

    A sum, so that adding, removing or zeroing one record changes one term: its gradient by at most `lipschitz`, and
    by twice that when the record is replaced. `strength` = size * regularization and size are public constants.

    Records with values that are not finite become blank (`finite_records`).

    Every constant of l holds for w l. Proof. One record's gradient is x (w dl/ds)^T. With dl/ds in the hull of 0 and
    v_1, .., v_m and w in [0, 1] so is w dl/ds = w dl/ds + (1 - w) 0: the corners are those of l, the norm is at most
    w G <= G = `lipschitz`. So one record moves the gradient of F by at most G, or 2 G if it is replaced, and a strongly
    convex minimiser by G / strength, whatever its weight. The Hessian w h lies in [0, h] for h of l, so its eigenvalues
    are at most `smoothness`; and since log det is monotone on positive definite matrices, log det(H + w h + strength I)
    is at most what l adds. w depends on the record alone, so neighbouring data sets stay neighbours.

    Attributes:
        features: float64 (n, p), every row of norm at most 1 (enforced by `Design`; what rests on it checks it).
        targets: (n,), of the loss's alphabet.
        loss: see `losses`.
        strength: >= 0; F is strength-strongly convex.
        constant: whether the last column is the intercept's public constant, which no noise needs to hide.
        private_norm: bound on the norm of a row's `private_columns`, in (0, 1]; below 1 with an intercept's constant.
        public_size: declared size from which steps, rates and strengths derive in place of n; see `size`.
        weights: w, (n,), or one number for all records.

    Raises:
        InvalidInput: a target is outside the loss's alphabet, for which its constants are not proven, or a weight is
            outside [0, 1].
    """

    features: Array
    targets: Array
    loss: Loss
    strength: float
    constant: bool = False
    public_size: int | None = None
    private_norm: float = 1.0
    weights: Array | float = 1.0

    def __post_init__(self) -> None:
        features, targets = finite_records(self.features, self.targets)
        if not self.loss.accepts(targets).all():
            hint = "Map the labels by declared classes."
            raise check.fail("targets", f"{self.loss.alphabet} for {type(self.loss).__name__}", "others", hint)
        weights = np.asarray(self.weights, dtype=np.float64)
        if weights.shape not in ((), features.shape[:1]) or not ((weights >= 0) & (weights <= 1)).all():
            raise check.fail("weights", "one in [0, 1] for each record", "others")
        if len(features) > self.most_records:
            rule = f"at least 1/{MOST_RECORDS} of the number of records, as rounding errors are bounded by it"
            raise check.fail("public_size", rule, self.public_size)
        object.__setattr__(self, "features", features)
        object.__setattr__(self, "targets", targets)
        object.__setattr__(self, "weights", weights)

    @property
    def private_columns(self) -> int:
        """Number of columns that come from the records."""
        return self.features.shape[1] - self.constant

    @property
    def records(self) -> int:
        """Number n of records."""
        return len(self.features)

    @property
    def size(self) -> int:
        """Public number that all settings derive from: `public_size`, or n, which is public then.

        Where it is n, a neighbour with one record less has other settings, so add/remove guarantees hold only for a
        record whose place is left blank (zero_out).
        """
        return self.records if self.public_size is None else self.public_size

    @property
    def most_records(self) -> int:
        """Public bound on the number of records, for what grows with it beside the noise: rounding errors."""
        return self.records if self.public_size is None else MOST_RECORDS * self.public_size

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (p, k) of theta."""
        return self.features.shape[1], self.loss.outputs

    @property
    def dimension(self) -> int:
        """Number p k of parameters."""
        return self.shape[0] * self.shape[1]

    def zero(self) -> Array:
        """Theta = 0."""
        return np.zeros(self.shape)

    def with_strength(self, strength: float) -> Problem:
        """The same data under another regularisation."""
        return replace(self, strength=strength)

    def value(self, theta: Array) -> float:
        """Objective F(theta)."""
        risk = self.weights * self.loss.values(self.features @ theta, self.targets)
        return float(risk.sum() + self.strength / 2 * (theta**2).sum())

    def gradient(self, theta: Array) -> Array:
        """The gradient of F, (p, k)."""
        return self.gradient_at(self.features @ theta, theta)

    def gradient_at(self, scores: Array, theta: Array) -> Array:
        """The gradient of F, (p, k), where the scores (n, k) of theta are known already."""
        return blocked_sum(self.features, self.slopes(scores)) + self.strength * theta

    def slopes(self, scores: Array) -> Array:
        """Derivatives of each record's term in its scores, (n, k)."""
        return self.loss.slopes(scores, self.targets) * np.reshape(self.weights, (-1, 1))

    def curvatures(self, scores: Array) -> Array:
        """Second derivatives of each record's term in its scores, (n, k, k)."""
        return self.loss.curvatures(scores, self.targets) * np.reshape(self.weights, (-1, 1, 1))


def blocked_sum(features: Array, slopes: Array) -> Array:
    """sum_i x_i slope_i^T, (p, k): blocks of `BLOCK_ROWS` records, added one after another.

    Every value meets at most `BLOCK_ROWS` + n / `BLOCK_ROWS` + 1 roundings; see `tacit.erm.solver`.
    """
    total = np.zeros((features.shape[1], slopes.shape[1]))
    for start in range(0, len(features), BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        total += features[block].T @ slopes[block]
    return total


def minimise(problem: Problem, *, linear: Array | None = None, tolerance: float = TOLERANCE) -> Array:
    """Minimiser of F(theta) + <linear, theta>, (p, k).

    Args:
        problem: its strength must be positive.
        linear: (p, k), the linear term of objective perturbation; none by default.
        tolerance: > 0, bound on the gradient's norm (of the sum, not of the mean).

    Raises:
        InvalidInput: the strength is not positive.
        TacitError: the tolerance is below what double precision reaches for this problem.
    """
    check.positive("strength", problem.strength, "Strong convexity is what bounds the minimiser's sensitivity.")
    tilt = np.zeros(problem.shape) if linear is None else linear
    theta = problem.zero()
    if problem.dimension > _DENSE:
        theta = _descend(problem, tilt, theta)
    for _ in range(_STEPS):
        scores = problem.features @ theta
        gradient = problem.gradient_at(scores, theta) + tilt
        if float(np.linalg.norm(gradient)) <= tolerance:
            return theta
        step = -_newton(problem, scores, gradient)
        theta = theta + _length(problem, tilt, theta, scores, step) * step
    raise TacitError(f"tolerance must be within reach of double precision; got {tolerance:g}. Use a larger one.")


def _descend(problem: Problem, tilt: Array, theta: Array) -> Array:
    from scipy.optimize import minimize

    def both(flat: Array) -> tuple[float, Array]:
        point = flat.reshape(problem.shape)
        value = problem.value(point) + float((tilt * point).sum())
        scale = problem.records
        return value / scale, (problem.gradient(point) + tilt).ravel() / scale

    found = minimize(
        both, theta.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": _STEPS, "gtol": _ROUGH_TOLERANCE}
    )
    return found.x.reshape(problem.shape)


def _length(problem: Problem, tilt: Array, theta: Array, scores: Array, step: Array) -> float:
    """Step length at which the slope of the convex line function has lost half of its size.

    The slope is continuous for every loss here, so that such a place is found; it costs no product with the feature
    matrix but one.
    """
    along = problem.features @ step
    inner = float(((problem.strength * theta + tilt) * step).sum())
    curve = problem.strength * float((step**2).sum())

    def slope(length: float) -> float:
        slopes = problem.slopes(scores + length * along)
        return float((slopes * along).sum()) + inner + length * curve

    start, length = slope(0.0), 1.0
    while slope(length) < -abs(start) / 2 and length < 2.0**_LENGTHS:
        length *= 2
    if start >= 0 or slope(length) <= -start / 2:  # At the minimum, rounding leaves no direction that goes down.
        return length
    return bracketed_root(slope, 0.0, length, relative=_LENGTH_ACCURACY)


def _newton(problem: Problem, scores: Array, gradient: Array) -> Array:
    """Newton step H^{-1} gradient."""
    curvatures = problem.curvatures(scores)
    if problem.dimension > _DENSE:
        return _conjugate(problem, curvatures, gradient)
    from scipy.linalg import cho_factor, cho_solve

    factor = cho_factor(_hessian(problem, curvatures), lower=True, check_finite=False)
    return cho_solve(factor, gradient.ravel(), check_finite=False).reshape(problem.shape)


def _hessian(problem: Problem, curvatures: Array) -> Array:
    p, k = problem.shape
    total = np.zeros((p, k, p, k))
    for start in range(0, problem.records, _ROWS_AT_ONCE):
        rows = problem.features[start : start + _ROWS_AT_ONCE]
        part = curvatures[start : start + _ROWS_AT_ONCE]
        for a in range(k):
            for b in range(a, k):
                block = rows.T @ (rows * part[:, a, b, None])
                total[:, a, :, b] += block
                if a != b:
                    total[:, b, :, a] += block
    matrix = total.reshape(p * k, p * k)
    matrix[np.diag_indices_from(matrix)] += problem.strength
    return matrix


def _conjugate(problem: Problem, curvatures: Array, gradient: Array) -> Array:
    """Newton step H^{-1} gradient by conjugate gradients, for problems whose Hessian is too large to store."""
    from scipy.sparse.linalg import LinearOperator, cg

    def curved(flat: Array) -> Array:
        direction = flat.reshape(problem.shape)
        bent = np.einsum("nab,nb->na", curvatures, problem.features @ direction)
        return (problem.features.T @ bent + problem.strength * direction).ravel()

    operator = LinearOperator((problem.dimension, problem.dimension), curved, dtype=np.float64)  # type: ignore[call-arg]
    return cg(operator, gradient.ravel(), rtol=_RESIDUAL, maxiter=_STEPS)[0].reshape(problem.shape)


UNIT = 2.0**-53
# Rounding of one contribution and of its norm: a few dozen operations on each of its entries.
ELEMENTWISE = 2.0**-40
ROUNDED_DOWN = 1 - 2.0**-40
"""Factor that keeps a rate below its real value, which a few operations in double precision compute."""


def gamma(terms: int) -> float:
    """gamma_n = n u / (1 - n u) of Higham.

    Example:
        >>> gamma(1) == 2.0**-53 / (1 - 2.0**-53)
        True
    """
    return terms * UNIT / (1 - terms * UNIT)


def sum_rounding(records: int) -> float:
    """Share by which the sensitivity of a computed sum over at most `records` records exceeds that of the exact one.

    2 gamma_n n for the sum, and what rows may be longer than 1 by.

    Example:
        >>> sum_rounding(1000) < 1e-8
        True
    """
    return 2 * records * gamma(records) + 2 * NORM_SLACK + ELEMENTWISE


def step_rounding(problem: Problem, theta: Array, bound: float) -> float:
    """`sum_rounding` of clipped gradients at `theta`, whose scores may come out otherwise in another batch.

    A score of one record errs by at most gamma_p ||theta||, its clipped gradient by 2 c times that, c the smoothness,
    and neighbouring batches may err in opposite directions.

    Args:
        problem: the records.
        theta: (p, k), which is released already.
        bound: clipping norm, > 0.
    """
    n = problem.most_records
    moved = 4 * n * problem.loss.smoothness * gamma(theta.shape[0] + 2) * float(np.linalg.norm(theta))
    return sum_rounding(n) + moved / bound


def gradient_rounding(problem: Problem, bound: float, linear_norm: float = 0.0) -> float:
    """Bound on the error of the computed gradient of F + <linear, theta> wherever the solver accepts its answer.

    Sums err by gamma_h n G, G = `bound` and h the roundings of `blocked_sum`. A score errs by gamma_p ||theta||, which
    moves the gradient by c n times that, c the smoothness. The regulariser and the linear term err by a few units. At
    an accepted point strength ||theta|| is at most n G + ||linear|| + 1, so that no term follows the records' values.

    Args:
        problem: F, with a positive strength.
        bound: G, on the gradient of one record.
        linear_norm: norm of the linear term, which follows no record.

    Raises:
        InvalidInput: the strength is 0.
    """
    check.positive("strength", problem.strength, "The answer is that of a strongly convex problem.")
    n, p = problem.most_records, problem.dimension
    pull = n * bound + linear_norm + 1.0
    scores = problem.loss.smoothness * n * gamma(p + 2) * pull / problem.strength
    return gamma(roundings(n)) * n * bound + ELEMENTWISE * n * bound + scores + 8 * UNIT * (pull + linear_norm)


def roundings(records: int) -> int:
    """Roundings that a value of `blocked_sum` meets, and those of its product and of the regulariser."""
    return min(records, BLOCK_ROWS) + records // BLOCK_ROWS + 4
