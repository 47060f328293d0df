"""The cost of a private selection as a bracket: the whole-curve bound above, an attack below.

Let P and Q be the laws of one trial in the two worlds, delta the profile of (P, Q) and delta' of (Q, P), and phi the
generating function of the number of trials K. The best trial has density q(y) phi'(F(y)), F(y) the probability of a
lower score. An event of mass u under Q has at least mass low(u) under P,

    low(u) = max_e {e^-e (u - delta'(e)), 1 - delta(e) - e^e (1 - u)},

and phi' does not decrease. So with F under P and F' under Q phi'(F) <= R phi'(F'),

    R = sup_u phi'(1 - low(u)) / phi'(1 - u),     delta_best(epsilon) <= E K delta(epsilon - log R),

because (q phi'(F) - e^epsilon q' phi'(F'))_+ <= phi'(F) (q - e^epsilon q' / R)_+ and phi'(F) <= phi'(1) = E K. Each
direction has an R of its own. One
choice of e for every u is the bound of Koskela, Redberg & Wang 2024 (arXiv:2402.06701), which is never smaller.

Below: an analyst whose scores put first the outcomes H that the other world prefers, next the outcomes M that this one
does, finds M best with probability phi(1 - P(H)) - phi(1 - P(H) - P(M)), and likewise under Q.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from tacit.accounting.pld.profile_pairs import Parts, Profile, ProfilePair, profiles_of, reach_of
from tacit.accounting.pld.rounding import FUNCTION, UNIT
from tacit.mechanisms import TrialLaw
from tacit.tradeoff import Curve, GaussianCurve, worst

Deltas = Callable[[np.ndarray], np.ndarray]
_POINTS = 2000  # Positive losses of the grid: their pitch is the error of the floor's thresholds.
_TAIL = 1e-14  # delta at which the grid ends; what lies beyond counts as infinite.
_REACH = 200.0  # Largest loss of a grid, far below that at which e^loss leaves the doubles.
_EVENTS = 1200  # Events u at which the best line below f is looked for.
# Cells of u in the log and as many in u itself: they are 6e-4 of u or 2e-5 wide, log R as much too large.
_FINE = 50_000
_LEAST = 1e-13  # Smallest event: below it phi' is that of u = 0 but for E K 1e-13.
_INFINITE = 64.0  # Largest epsilon of lines where a trial may lose everything.
_LINE = 40.0  # Units that a line below f loses: all its terms are at most 1 where it is positive (Theorem 10.4).
_FOUND = 128.0  # Units of the four probabilities of an attack besides those of the sums of masses in them.
_FIRST, _NEXT = 160, 800  # Thresholds of H and of M in the attack.
_KEPT = 6  # Attacks that stand for all in compositions.
_SHOWN = 1e-13  # Share of an attack in compositions that shows nothing, above the rounding of its masses.


class SelectionCurve(Curve):
    """The whole-curve bound on the profile of the best trial, in one direction or in both.

    Args:
        base: upper curve of one trial.
        law: of the number of trials.
        deltas: epsilons >= 0, shape (n,), to upper bounds on delta of one trial; by default chords of `base.profile`.
        reverse: upper curve and deltas with the two worlds exchanged; by default the same.

    Example:
        >>> from tacit.mechanisms import law_of
        >>> from tacit.tradeoff import GaussianCurve
        >>> round(SelectionCurve(GaussianCurve(0.2680511232), law_of("logarithmic", trials=20)).epsilon(1e-5), 2)
        1.64
    """

    def __init__(
        self,
        base: Curve,
        law: TrialLaw,
        deltas: Deltas | None = None,
        reverse: tuple[Curve, Deltas] | None = None,
    ):
        self._base, self._law = base, law
        self._deltas = deltas if deltas is not None else _chords(base)
        self._reverse, self._reverse_deltas = reverse or (base, self._deltas)

    @cached_property
    def log_ratio(self) -> float:
        """Logarithm of R of the module's docstring, an upper bound."""
        last = max(self._base.epsilon(_LEAST), self._reverse.epsilon(_LEAST))
        epsilons = np.linspace(0.0, last if np.isfinite(last) else _INFINITE, _POINTS)
        return log_ratio(epsilons, self._deltas(epsilons), self._law, self._reverse_deltas(epsilons))

    def delta(self, epsilon: float) -> float:
        """Return E K times delta of one trial at epsilon - log R, at negative arguments by symmetry."""
        x = epsilon - self.log_ratio
        one = self._base.delta(x) if x >= 0 else -np.expm1(x) + np.exp(x) * self._reverse.delta(-x)
        return float(min(self._law.mean * one, 1.0))

    def epsilon(self, delta: float) -> float:
        """Return the base's epsilon at delta / E K, plus log R."""
        if delta / self._law.mean >= self._base.delta(0.0):
            return super().epsilon(delta)
        return self._base.epsilon(delta / self._law.mean) + self.log_ratio

    def at(self, epsilons: np.ndarray) -> np.ndarray:
        """`delta` at many epsilons >= 0, shape (n,)."""
        x = epsilons - self.log_ratio
        below = np.minimum(x, 0.0)
        mirrored = -np.expm1(below) + np.exp(below) * self._reverse_deltas(-below)
        return np.minimum(self._law.mean * np.where(x >= 0, self._deltas(np.maximum(x, 0.0)), mirrored), 1.0)


class AttackCurve(Curve):
    """What the attack of the module's docstring reaches: a lower bound on every answer.

    Args:
        profiles: of one trial, for each direction of the relation.
        law: of the number of trials.
    """

    def __init__(self, profiles: list[Profile], law: TrialLaw):
        found = [_attacks(profile.below, law) for profile in profiles]
        self._hit, self._alarm = (np.concatenate(each) for each in zip(*found, strict=True))

    def delta(self, epsilon: float) -> float:
        """The best attack's delta."""
        return float(np.clip(np.max(self._hit - np.exp(min(epsilon, 700.0)) * self._alarm), 0.0, 1.0))

    def epsilon(self, delta: float) -> float:
        """The best attack's epsilon."""
        gain = np.maximum(self._hit - delta, 0.0)
        return float(np.log(np.max(gain / self._alarm, initial=1.0)))


class SelectionCost:
    """What a private selection costs: both sides of the bracket, and pairs for its composition with others.

    Args:
        bases: upper curve of one trial, or one for each direction.
        directions: the pairs of one trial for each direction of the relation; None where they are envelopes that no
            single mechanism reaches, or too many.
        law: of the number of trials.
    """

    def __init__(self, bases: Sequence[Curve], directions: list[Parts] | None, law: TrialLaw):
        self._law, self._profiles = law, None
        if directions is not None and (reach := reach_of(directions, _TAIL)) < _REACH:
            self._profiles = profiles_of(directions, max(reach, 1e-9) / _POINTS, _POINTS)
        profiles = self._profiles
        if profiles is None or len(profiles) != 2 or len(bases) != 2:
            base = worst(bases)
            self._curves = [SelectionCurve(base, law, _largest(profiles) if profiles else None)]
        else:
            ways = [(base, _largest([profile])) for base, profile in zip(bases, profiles, strict=True)]
            self._curves = [
                SelectionCurve(one, law, deltas, other) for (one, deltas), other in zip(ways, ways[::-1], strict=True)
            ]
        self.upper = worst(self._curves)

    @cached_property
    def lower(self) -> Curve:
        """Proven lower bound; none better than 0 is known for envelopes."""
        return AttackCurve(self._profiles, self._law) if self._profiles else GaussianCurve(0.0)

    @cached_property
    def pairs(self) -> tuple[ProfilePair, ...]:
        """A dominating pair for each direction, with attacks below it that some mechanism reaches."""
        last = float(min(self.upper.epsilon(_TAIL), _REACH))
        epsilons = np.linspace(0.0, last, _POINTS + 1)
        sides = [np.minimum.accumulate(curve.at(epsilons)) for curve in self._curves]
        values = [
            np.concatenate([(other * np.exp(-epsilons))[:0:-1], one])
            for one, other in zip(sides, sides[::-1], strict=True)
        ]
        above = [Profile(last / _POINTS, each, each).above for each in values]
        if not self._profiles:
            return (replace(above[0], lower=(_merged(np.zeros((2, 0))),)),)
        attacks = [tuple(_attack_pairs(profile.below, self._law)) for profile in self._profiles]
        return tuple(replace(above[k % len(above)], lower=each) for k, each in enumerate(attacks))


def log_ratio(epsilons: np.ndarray, deltas: np.ndarray, law: TrialLaw, reverse: np.ndarray | None = None) -> float:
    """Logarithm of R of the module's docstring, an upper bound: both ends of each cell of u count.

    Args:
        epsilons: >= 0, shape (n,).
        deltas: upper bounds on delta of one trial there, shape (n,).
        law: of the number of trials.
        reverse: the same bounds with the two worlds exchanged, shape (n,); by default `deltas`.
    """
    others = deltas if reverse is None else reverse
    events = np.geomspace(_LEAST, 1.0, _EVENTS)
    best = np.argmax(np.exp(-epsilons)[:, None] * (events - others[:, None]), axis=0)
    u = np.union1d(np.geomspace(_LEAST, 1.0, _FINE), np.linspace(0.0, 1.0, _FINE + 1)[1:])
    at = np.clip(np.searchsorted(events, u, side="right") - 1, 0, _EVENTS - 2)
    low = np.zeros(len(u))
    for each in (best[at], best[at + 1]):  # Every line is below; those that are best nearby are close.
        low = np.maximum(low, np.exp(-epsilons[each]) * (u - others[each]))
    low = np.maximum(low, np.max(_reverse_lines(u, epsilons, deltas), axis=0))
    above = law.log_slope(np.maximum(np.concatenate([[0.0], low]) - _LINE * UNIT, 0.0))
    below = law.log_slope(np.append(u, 1.0))
    return float(np.max(above - below)) * (1 + _LINE * UNIT) + 2 * (law.slope_units + FUNCTION) * UNIT


def _reverse_lines(u: np.ndarray, epsilons: np.ndarray, deltas: np.ndarray) -> np.ndarray:
    """1 - delta(e) - e^e (1 - u) for a few e; only events of large mass u profit."""
    few = np.linspace(0, len(epsilons) - 1, 24).astype(int)
    with np.errstate(over="ignore"):
        return 1 - deltas[few, None] - np.exp(np.minimum(epsilons[few, None], 700.0)) * (1 - u)


def _chords(base: Curve) -> Deltas:
    """Upper bounds on delta between the points of a profile, which is convex in e^epsilon."""
    return _interpolated(*base.profile)


def _largest(profiles: list[Profile]) -> Deltas:
    """The same between the points of a grid, from every direction."""
    zero = len(profiles[0].high) // 2
    return _interpolated(profiles[0].losses[zero:], np.max([profile.high[zero:] for profile in profiles], axis=0))


def _interpolated(epsilons: np.ndarray, deltas: np.ndarray) -> Deltas:
    x = np.exp(np.minimum(epsilons, 700.0))
    return lambda at: np.interp(np.exp(np.minimum(at, 700.0)), x, deltas)


def _attacks(trial: ProfilePair, law: TrialLaw) -> tuple[np.ndarray, np.ndarray]:
    """P- and Q-probabilities that the best trial lies in M, for thresholds of H and M."""
    loss, p, q = trial.columns
    first = np.unique(np.linspace(0, len(loss), _FIRST).astype(int))
    following = np.unique(np.linspace(0, len(loss), _NEXT).astype(int))
    found = []
    for mass, lost in ((p, 0.0), (q, trial.negative_infinity_mass)):
        below = np.concatenate([[0.0], lost + np.cumsum(mass)])
        above = np.concatenate([np.cumsum(mass[::-1])[::-1], [0.0]])
        h, m = below[first][:, None], above[following][None, :]
        found.append((law.found(np.minimum(h + m, 1.0)) - law.found(np.minimum(h, 1.0))).ravel())
    # Differences of probabilities near 1 lose their digits; x found'(x) <= found(x) <= 1, as it is concave.
    unsure = UNIT * (4 * len(p) + _FOUND)
    return found[0] - unsure, found[1] + unsure


def _attack_pairs(trial: ProfilePair, law: TrialLaw) -> Iterator[ProfilePair]:
    """Laws of the best trial where scores put the outcomes of loss below a threshold first, then fall with the loss."""
    _, p, q = trial.columns
    lost = trial.negative_infinity_mass
    for share in np.linspace(0.0, 0.5, _KEPT):
        first = int(np.searchsorted(lost + np.cumsum(q), share)) if share else 0
        blocks = []
        for mass, less in ((p, 0.0), (q, lost if first else 0.0)):
            ordered = np.concatenate([[mass[:first].sum() + less], mass[first:][::-1]])
            blocks.append(np.diff(law.found(np.minimum(np.concatenate([[0.0], np.cumsum(ordered)]), 1.0))))
        masses = np.array(blocks)
        yield _merged(masses[:, np.all(masses > _SHOWN, axis=0)])


def _merged(masses: np.ndarray) -> ProfilePair:
    """A pair of outcomes with these P- and Q-masses, shape (2, outcomes); all other outcomes become one.

    A share of `_SHOWN` shows nothing, which covers the rounding of all masses.
    """
    shown = masses * (1 - _SHOWN)
    p, q = np.concatenate([shown, np.maximum(1.0 - shown.sum(axis=1, keepdims=True), _SHOWN / 2)], axis=1)
    order = np.argsort(p / q, kind="stable")
    loss = np.log(p / q)[order]
    return ProfilePair((loss, np.exp(loss) * q[order], q[order]))
