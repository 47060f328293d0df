"""Rounding of one step's privacy loss to a lattice: up to a pair that dominates it, down to one that it dominates."""

import math
from dataclasses import dataclass

import numpy as np

from tacit.accounting.pld.rounding import PERTURBATION, UNIT
from tacit.accounting.pld.saddle_point import SMALLEST
from tacit.mechanisms.pairs.base import LOSS_UNIT, Pair

_MISFIT = 1e-13  # Relative distance up to which a loss counts as a lattice point; its true distance is in `loss_error`.
_ON_POINT = 1e-9  # Distance in points up to which an atom counts as one; the lattice moves down by as much.
_SPARE = 4  # Points below the lattice for cells that move down.
_CHAIN = 60  # Cells on either side of the heaviest one whose edges are chained.
_MOVES, _MATCHED = 8, 1e-7  # Places of the lattice to try, and the miss of the heaviest cell that ends this.
_FINE, _FINER = 64, 4096  # Grid points per cell of the chain, and near the heaviest cell.


@dataclass(frozen=True)
class RoundedLoss:
    """P-masses of the losses origin + i * pitch, i = 0, 1, ..., and the P-mass of infinite loss.

    `loss_error` bounds how far any of these losses is from the one that its masses belong to, `mass_error` how far the
    rounding of the masses moves losses besides, and what share of delta it adds or takes.
    """

    origin: float
    pitch: float
    masses: np.ndarray
    infinity_mass: float
    loss_error: float
    mass_error: float = 0.0

    @property
    def losses(self) -> np.ndarray:
        """Return the lattice points."""
        return self.origin + self.pitch * np.arange(len(self.masses))


def place_atoms(pair: Pair, first: float, pitch: float, size: int) -> RoundedLoss | None:
    """The pair itself where all its losses lie on the lattice (up to rounding), else None.

    Args:
        pair: a dominating pair.
        first: lowest loss of the lattice.
        pitch: distance of its points, > 0.
        size: number of its points.
    """
    nodes = pair.nodes(1.0, 0.0) if pair.discrete else None
    atoms, p = (nodes.loss, nodes.p) if nodes else pair.table[:2] if pair.table is not None else (np.zeros(0),) * 2
    index = np.round((atoms - first) / pitch).astype(int)
    miss = float(np.max(np.abs(first + index * pitch - atoms), initial=0.0))
    largest = float(np.abs(atoms).max(initial=0.0))
    if miss > _MISFIT * (1 + largest):
        return None
    heavy = p > 1e-300
    if not heavy.any() or index[heavy].min() < 0 or index[heavy].max() >= size:
        return None
    masses = np.bincount(index[heavy], p[heavy], size)
    return RoundedLoss(first, pitch, masses, pair.infinity_mass, miss + _point_error(pair, largest))


def _point_error(pair: Pair, largest: float) -> float:
    """A bound on the rounding of first + i * pitch, a product and a sum, and of an edge or a loss of a pair."""
    return 2 * LOSS_UNIT * largest + pair.edge_error(largest)


def _mass_error(pair: Pair) -> float:
    """`PERTURBATION`, and one unit for every atom of a table that a bin may add up."""
    return PERTURBATION + UNIT * (len(pair.table[0]) if pair.table is not None else 0)


def round_up(pair: Pair, first: float, pitch: float, size: int) -> RoundedLoss:
    """A pair on the lattice that dominates `pair` (connect-the-dots, Doroshenko et al. 2022).

    The (P, Q)-mass of each cell is split between its two ends so that both masses are kept, a mean-preserving
    spread of the likelihood ratio. Losses below the lattice move up to its first point; above its last point
    the P-mass that Q's mass cannot carry becomes infinite.

    Args:
        pair: the dominating pair to dominate.
        first: lowest loss of the lattice.
        pitch: distance of its points, > 0.
        size: number of its points.
    """
    points = first + pitch * np.arange(size)
    p, q = pair.bin_masses(points)
    q = np.where(q > SMALLEST, q, 0.0)  # less than there may be, which puts P's mass higher
    with np.errstate(divide="ignore"):
        given = np.exp(np.log(q[1:]) + points)
    high = np.clip((p[1:-1] - given[:-1]) / -np.expm1(-pitch), 0.0, p[1:-1])
    carried = min(float(given[-1]), float(p[-1]))
    masses = np.append(p[1:-1] - high, carried)
    masses[1:] += high
    masses[0] += p[0]
    lost = pair.infinity_mass + float(p[-1]) - carried
    error = _point_error(pair, float(np.abs(points).max()))
    return RoundedLoss(first, pitch, masses, lost, error, _mass_error(pair))


def round_down(pair: Pair, first: float, pitch: float, size: int, tilt: float, *, close: bool = True) -> RoundedLoss:
    """A pair on a lattice that `pair` dominates, by merging all outcomes of a cell (a garbling) around each point.

    Cells are laid so that the merged loss log(P/Q) meets its point: up to fourth order in the pitch where the density
    is smooth, and exactly around the bulk (`_chained`). What remains is a common shift down of the lattice, and the
    few cells that it does not cover move down by one point. Any edges give a lower bound; good ones a close one.

    Args:
        pair: the dominating pair to stay below.
        first: lowest loss of the lattice.
        pitch: distance of its points, > 0.
        size: number of its points.
        tilt: tilt under which the common shift is chosen, >= 0.
        close: whether edges may be adjusted for a closer bound.
    """
    if pair.table is not None and close:
        return _shared(pair, *pair.table[:2], first, pitch, size)
    points = first + pitch * np.arange(size)
    edges = points[:-1] + pitch / 2
    miss = _miss(points, edges, *pair.bin_masses(edges), pitch)
    edges = edges - np.clip((miss[:-1] + miss[1:]) / 2, -pitch / 4, pitch / 4)
    if close and not pair.atoms:
        points, edges = _chained(pair, points, edges, pitch, tilt)
    p, q = pair.bin_masses(edges)
    miss = _miss(points, edges, p, q, pitch)
    shift = _shift(miss, _tilted(p, points, tilt), pitch)
    error = _point_error(pair, float(np.abs(points).max()))
    shift += error  # So that no cell moves down a whole point for rounding alone.
    drop = np.clip(np.ceil(-(miss + shift) / pitch), 0.0, None)
    index = _SPARE + np.arange(size) - np.where(drop <= size, drop, size + _SPARE).astype(int)
    keep = (index >= 0) & (p > 0)
    masses = np.bincount(index[keep], p[keep], size + _SPARE)
    return RoundedLoss(points[0] - shift - _SPARE * pitch, pitch, masses, pair.infinity_mass, error, _mass_error(pair))


def _shared(pair: Pair, loss: np.ndarray, p: np.ndarray, first: float, pitch: float, size: int) -> RoundedLoss:
    """Many atoms, each merged with so much of its neighbour towards the mode that the merged loss is a lattice point.

    The mode must be a point of the lattice. Atoms whose neighbour cannot give enough move down to the next point.
    """
    masses = np.zeros(size)
    mode = int(np.argmax(p))
    rest = p.copy()
    error = _point_error(pair, abs(first) + size * pitch)
    slack = error + _ON_POINT * pitch
    for side in (1, -1):
        for index in range(0 if side > 0 else len(p) - 1, mode, side):
            place = (loss[index] - first) / pitch
            near = round(place)
            point = near if abs(place - near) < _ON_POINT else (math.ceil(place) if side > 0 else math.floor(place))
            if not 0 <= point < size:
                if point >= size:
                    masses[-1] += rest[index]
                continue
            goal, other = first + point * pitch, loss[index + side]
            share = 0.0
            if point != near or abs(place - near) >= _ON_POINT:
                above, below = math.expm1(goal - loss[index]), -math.expm1(goal - other)
                share = rest[index] * above / below if above * below > 0 else math.inf
            if share <= rest[index + side]:
                rest[index + side] -= share
                masses[point] += rest[index] + share
            elif place >= 0:
                masses[math.floor(place + _ON_POINT)] += rest[index]
    place = round((loss[mode] - first) / pitch)
    if 0 <= place < size:
        masses[place if loss[mode] >= first + place * pitch - slack else max(place - 1, 0)] += rest[mode]
    return RoundedLoss(first - slack, pitch, masses, pair.infinity_mass, error, _mass_error(pair))


def _chained(
    pair: Pair, points: np.ndarray, edges: np.ndarray, pitch: float, tilt: float
) -> tuple[np.ndarray, np.ndarray]:
    """Points and edges whose merged losses meet their points around the heaviest cell.

    Given its outer edge, a cell's inner edge follows from its point; errors shrink where the density rises, so the
    chain runs from both sides towards the heaviest cell, and the whole lattice moves until that one fits too: a root,
    by secants, of which the best is kept.
    """
    p, _ = pair.bin_masses(edges)
    with np.errstate(divide="ignore"):
        bulk = int(np.argmax(np.log(p) + tilt * points))
    left, right = max(bulk - _CHAIN, 1), min(bulk + _CHAIN, len(edges) - 2)
    if not left < bulk < right:
        return points, edges
    fine = points[left] + pitch / _FINE * np.arange(-2 * _FINE, (right - left + 2) * _FINE)
    closer = points[bulk] + pitch / _FINER * np.arange(-3 * _FINER, 3 * _FINER)
    fine = np.unique(np.concatenate([fine, closer]))
    p_fine, q_fine = (np.cumsum(mass[:-1]) for mass in pair.bin_masses(fine))
    best, found = np.inf, (points, edges)
    before, move = (0.0, 0.0), 0.0
    for _ in range(_MOVES):
        inner = edges + move
        for index in range(right, bulk, -1):
            inner[index - 1] = _inner_edge(fine, p_fine, q_fine, inner[index], points[index] + move, -pitch)
        for index in range(left, bulk):
            inner[index] = _inner_edge(fine, p_fine, q_fine, inner[index - 1], points[index] + move, pitch)
        ends = inner[bulk - 1 : bulk + 1]
        p_cell, q_cell = (float(np.diff(np.interp(ends, fine, total))[0]) for total in (p_fine, q_fine))
        if not (p_cell > 0 and q_cell > 0):
            break
        miss = math.log(p_cell / q_cell) - float(points[bulk]) - move
        if abs(miss) < best:
            chain = np.maximum.accumulate(inner[left - 1 : right + 1])
            inner[left - 1 : right + 1] = np.minimum(chain, inner[right])
            best, found = abs(miss), (points + move, inner)
        rise = (miss - before[1]) / (move - before[0]) if move != before[0] else -1.0
        before, move = (move, miss), float(np.clip(move - miss / (rise or -1.0), -pitch, pitch))
        if abs(miss) < _MATCHED * pitch or move == before[0]:
            break
    return found


def _inner_edge(fine: np.ndarray, p: np.ndarray, q: np.ndarray, outer: float, point: float, reach: float) -> float:
    """The edge on the side of `reach` with which the cell from `outer` has merged loss `point`."""
    p_outer, q_outer = np.interp(outer, fine, p), np.interp(outer, fine, q)
    first, last = np.searchsorted(fine, sorted((point, point + reach)))
    places = slice(first, last)
    excess = (p[places] - p_outer) - np.exp(point) * (q[places] - q_outer)
    x = fine[places]
    if reach < 0:
        excess, x = excess[::-1], x[::-1]
    index = int(np.argmax(excess > 0))
    if index == 0 or len(x) < 2:
        return point + reach if not len(x) or excess[0] <= 0 else float(x[0])
    before, after = excess[index - 1], excess[index]
    return float(x[index - 1] + (x[index] - x[index - 1]) * (-before / (after - before)))


def _miss(points: np.ndarray, edges: np.ndarray, p: np.ndarray, q: np.ndarray, pitch: float) -> np.ndarray:
    """Merged loss of each cell minus its point; 0 for empty cells, capped above (moving down is always allowed)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = np.log(p) - np.log(q)
    # A Q-mass near the smallest double is not known; the loss is at least the cell's lower edge.
    loss = np.where(q > SMALLEST, loss, np.append(-np.inf, edges))
    return np.minimum(np.where(p > 0, loss - points, 0.0), pitch)


def _shift(miss: np.ndarray, weights: np.ndarray, pitch: float) -> float:
    """The common shift that costs least: itself, plus one pitch for the weight of all cells it does not cover."""
    short = np.clip(-miss, 0.0, pitch)
    below = np.flatnonzero(short)
    order = below[np.argsort(short[below])]
    total = weights.sum()
    covered = np.cumsum(np.append(total - weights[below].sum(), weights[order])) / total
    shifts = np.append(0.0, short[order])
    return float(shifts[np.argmin(shifts + pitch * (1 - covered))])


def _tilted(p: np.ndarray, points: np.ndarray, tilt: float) -> np.ndarray:
    with np.errstate(divide="ignore"):
        exponent = np.log(p) + tilt * points
    return np.exp(exponent - exponent.max())
