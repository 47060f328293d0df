"""Drawings: pictures of discs, polygons and strokes that nobody took, made from a public seed."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tacit import check
from tacit.features.base import Shape

_SHAPES = 8
"""Most shapes of a drawing."""
_CORNERS = 5


def drawings(count: int, shape: Shape, seed: int = 0) -> np.ndarray:
    """Images float32 (count, *shape) in [0, 1] of up to eight overlapping shapes each ("dead leaves").

    A shape is a disc, a convex polygon or a stroke along a curve, of a random shade on a shade of its own or on black;
    sizes, places and numbers are random, edges a pixel soft. They come from RandomState, whose stream every version of
    NumPy keeps.

    Args:
        count: at least 1.
        shape: (channels, height, width).
        seed: public.

    Example:
        >>> drawings(3, (1, 28, 28)).shape
        (3, 1, 28, 28)
    """
    rng = np.random.RandomState(check.count("seed", seed, minimum=0, maximum=2**32 - 1))
    channels, height, width = shape
    side = float(min(height, width))
    y, x = np.meshgrid(np.arange(height) + 0.5, np.arange(width) + 0.5, indexing="ij")
    grid = np.stack([x, y]).astype(np.float32)
    shades = rng.uniform(size=(count, channels)) * (rng.uniform(size=(count, 1)) < 0.5)
    images = np.repeat(shades.astype(np.float32), height * width, axis=1).reshape(count, *shape)
    numbers = rng.randint(1, _SHAPES + 1, size=count)
    for layer in range(_SHAPES):
        kinds, ink = rng.randint(0, 3, size=count), rng.uniform(size=(count, channels)).astype(np.float32)
        centre = rng.uniform(0, 1, size=(count, 2)) * (width, height)
        size = side * rng.uniform(0.06, 0.45, size=count)
        turn = rng.uniform(0, 2 * np.pi, size=(count, _CORNERS))
        reach = rng.uniform(0.4, 1.0, size=(count, _CORNERS))
        for each in range(count):
            if layer >= numbers[each]:
                continue
            away = _distance(grid - centre[each][:, None, None], kinds[each], size[each], turn[each], reach[each])
            cover = np.clip(0.5 - away, 0, 1).astype(np.float32)
            images[each] += cover * (ink[each][:, None, None] - images[each])
    return images


def _distance(grid: np.ndarray, kind: int, size: float, turn: np.ndarray, reach: np.ndarray) -> np.ndarray:
    """Distance in pixels to the edge of a disc (0), polygon (1) or stroke (2), below 0 inside."""
    if kind == 0:
        return np.hypot(*grid) - size
    if kind == 1:
        sides = [grid[0] * np.cos(t) + grid[1] * np.sin(t) - size * r for t, r in zip(turn, reach, strict=True)]
        return np.max(sides, axis=0)
    ends = 1.6 * size * np.stack([np.cos(turn), np.sin(turn)], axis=1)[:3] * reach[:3, None]
    at = np.linspace(0, 1, 12)[:, None]
    curve = (1 - at) ** 2 * ends[0] + 2 * at * (1 - at) * ends[1] + at**2 * ends[2]
    parts = [_to_segment(grid, one, other) for one, other in pairwise(curve)]
    return np.min(parts, axis=0) - (0.5 + 2.5 * reach[3] * reach[4])


def _to_segment(grid: np.ndarray, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    step = other - one
    away = grid - one[:, None, None]
    share = np.clip((away * step[:, None, None]).sum(0) / max(float(step @ step), 1e-9), 0, 1)
    return np.hypot(away[0] - share * step[0], away[1] - share * step[1])
