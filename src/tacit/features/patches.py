"""`PatchDictionary`: likeness of every patch of an image to patches of drawings (Coates & Ng 2011).

Drawings: pictures of discs, polygons and strokes that nobody took, made from a public seed.

`SyntheticWhitening`: decorrelation of image features by drawings, so that no image of anybody is read.
"""

import functools
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from tacit import check
from tacit.features.base import ImageFeatures, PublicFeatures, Shape, folder, image_shape, images_of, kept

_SIDE = 6
_DRAWINGS, _SAMPLED = 4000, 200_000
# Pixels in [0, 1]: the variance 10 of pixels in [0, 255] that keeps flat patches from noise.
_FLAT = 10 / 255**2
_RIDGE = 0.1
_LEAST_NORM = 3.0
_THRESHOLD = 0.25
# The maps of so few images stay in a processor's cache; so many are not divided.
_IMAGES_AT_ONCE, _WHOLE = 2, 8


@functools.lru_cache(8)
def _words(image: tuple[int, int, int], patches: int, seed: int) -> tuple[Tensor, Tensor]:
    """Rows of D, whitened, and what they are shifted by; the drawings take seconds, and nothing else decides them."""
    rng = np.random.RandomState(seed)
    windows = nn.functional.unfold(torch.from_numpy(drawings(_DRAWINGS, image, seed)), _SIDE).transpose(1, 2)
    chosen = rng.randint(0, windows.shape[1], size=(_DRAWINGS, _SAMPLED // _DRAWINGS))
    rows = windows.gather(1, torch.from_numpy(chosen)[..., None].expand(-1, -1, windows.shape[2]))
    rows = _scaled(rows.flatten(0, 1)).double()
    mean = rows.mean(0)
    values, vectors = torch.linalg.eigh((rows - mean).T @ (rows - mean) / len(rows))
    zca = vectors @ torch.diag((values + _RIDGE).rsqrt()) @ vectors.T
    white = (rows - mean) @ zca
    order = torch.from_numpy(rng.permutation(len(white)))
    strong = white[order][white[order].norm(dim=1) > _LEAST_NORM][:patches]
    words = nn.functional.normalize(strong.repeat(-(-patches // len(strong)), 1)[:patches], dim=1)
    flipped = words.reshape(-1, image[0], _SIDE, _SIDE).flip(3).flatten(1)
    weight = torch.cat([words, flipped]) @ zca
    return weight, -(weight @ mean)


class PatchDictionary(ImageFeatures):
    """relu(D p - 1/4) and relu(-D p - 1/4) for the 6 x 6 patches p of an image, averaged over its quadrants.

    A patch loses its mean and is divided by sqrt(variance + 10) (of pixels up to 255), then whitened (ZCA + .1). The
    rows of D are patches of drawings, of norm above 3, scaled to 1, and their mirror images. The square roots of the
    averages are scaled to norm 1 for each image.

    Args:
        shape: (channels, height, width) of an image with pixels in [0, 1]; sides of at least 8.
        patches: rows of D before their mirror images.
        mirror: add the features of the mirror image; leave it out where mirrored images mean something else.
        seed: public, of the drawings.

    Raises:
        InvalidInput: an argument breaks its rule.

    Example:
        >>> PatchDictionary((1, 28, 28), patches=16)(torch.rand(2, 1, 28, 28)).shape
        torch.Size([2, 128])
    """

    weight: Tensor
    shift: Tensor
    made: Tensor
    _quadrants: Tensor

    def __init__(self, shape: Sequence[int] = (1, 28, 28), patches: int = 512, mirror: bool = True, seed: int = 0):
        nn.Module.__init__(self)
        self.shape, self.patches, self.mirror, self.seed = shape, patches, mirror, seed
        self.image = image_shape(shape)
        # 8 numbers a row of D and its mirror image, 16 where the features of the mirror image are not added.
        self.width = check.count("patches", patches, maximum=8192) * (8 if mirror else 16)
        check.count("seed", seed, minimum=0, maximum=2**32 - 1)
        self.register_buffer("weight", torch.zeros(2 * patches, _SIDE**2 * self.image[0]))
        self.register_buffer("shift", torch.zeros(2 * patches))
        places = (side - _SIDE + 1 for side in self.image[1:])
        self.register_buffer("_quadrants", _means_over_quadrants(*places), persistent=False)
        self.register_buffer("made", torch.zeros((), dtype=torch.bool))

    def _told(self) -> str:
        return f"{self.patches} patches of drawings of seed {self.seed}"

    def prepare(self, on_progress: object = None) -> None:
        """Draw, and choose the patches, where that was not done."""
        if not self.made:
            weight, shift = _words(self.image, self.patches, self.seed)
            self.weight.copy_(weight)
            self.shift.copy_(shift)
            self.made.fill_(True)

    def forward(self, rows: Tensor) -> Tensor:
        """Features of images (n, *shape) or flat rows, (n, width)."""
        self.prepare()
        images = images_of(rows, self.image)
        if len(images) > _WHOLE:
            return torch.cat([self(part) for part in images.split(_IMAGES_AT_ONCE)])
        pooled = self._pooled(images)
        if self.mirror:
            # A mirror image has the mirrored patches, in quadrants whose left and right are exchanged.
            halves = pooled.unflatten(1, (2, 2, self.patches)).flip(2).flatten(1, 3).flip(-1)
            pooled = (pooled + halves).unflatten(1, (2, 2, self.patches))[:, :, 0].flatten(1, 2)
        return nn.functional.normalize(pooled.flatten(1).clamp(min=0).sqrt(), dim=1)

    def _pooled(self, images: Tensor) -> Tensor:
        """(n, 4 patches, 2, 2): likeness and unlikeness of the rows of D in the quadrants."""
        windows = _scaled(nn.functional.unfold(images, _SIDE).transpose(1, 2))
        like = torch.addmm(self.shift, windows.flatten(0, 1), self.weight.T).reshape(len(images), -1, len(self.weight))
        found = [self._quadrants @ (like - _THRESHOLD).relu_(), self._quadrants @ like.neg_().sub_(_THRESHOLD).relu_()]
        return torch.cat(found, dim=2).transpose(1, 2).unflatten(2, (2, 2))


def _means_over_quadrants(high: int, wide: int) -> Tensor:
    """Matrix (4, high wide) of the means over the quarters of a map; a middle row or column belongs to two."""
    upper, left = ((torch.arange(size) < (size + 1) // 2).float() for size in (high, wide))
    down, right = torch.stack([upper, upper.flip(0)]), torch.stack([left, left.flip(0)])
    found = torch.einsum("ih,jw->ijhw", down, right).flatten(0, 1).flatten(1)
    return found / found.sum(1, keepdim=True)


def _scaled(windows: Tensor) -> Tensor:
    """Patches (..., values) without their mean, over their deviation; flat ones near 0."""
    away = windows - windows.mean(-1, keepdim=True)
    return away * (away.square().mean(-1, keepdim=True) + _FLAT).rsqrt()


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


_ROWS_AT_ONCE = 256


class SyntheticWhitening(PublicFeatures):
    """z -> diag((e_i + floor e_1)^(-1/2)) U_d^T (z - m), scaled to one norm for every image by itself.

    m and C = U diag(e) U^T are mean and covariance of the features of drawings (`drawings`) made from a seed. They are
    computed once, kept in this user's cache with a digest, and saved with a model: `state_dict` holds them.

    Args:
        features: of images; `Scattering2d` or `PatchDictionary`.
        dimensions: d, at most the width of `features`.
        images: number of drawings.
        floor: > 0, relative to the largest eigenvalue.
        norm: > 0, of every result.
        seed: public, of the drawings.

    Raises:
        InvalidInput: an argument breaks its rule.

    Example:
        >>> from tacit.features import Scattering2d
        >>> features = SyntheticWhitening(Scattering2d((1, 8, 8)), dimensions=20, images=50)
        >>> features(torch.rand(2, 64)).norm(dim=1).round().tolist()
        [50.0, 50.0]
    """

    mean: Tensor
    matrix: Tensor
    made: Tensor

    def __init__(
        self,
        features: ImageFeatures,
        dimensions: int = 2000,
        images: int = 10_000,
        floor: float = 1e-3,
        norm: float = 50.0,
        seed: int = 0,
    ):
        nn.Module.__init__(self)
        if not isinstance(features, ImageFeatures):
            raise check.fail("features", "Scattering2d or PatchDictionary", type(features).__name__)
        self.features, self.dimensions, self.images = features, dimensions, images
        self.floor, self.norm, self.seed = floor, norm, seed
        self.width = check.count("dimensions", dimensions, maximum=features.width)
        check.count("images", images, minimum=2)
        check.positive("floor", floor)
        check.positive("norm", norm)
        check.count("seed", seed, minimum=0, maximum=2**32 - 1)
        self.register_buffer("mean", torch.zeros(features.width))
        self.register_buffer("matrix", torch.zeros(dimensions, features.width))
        self.register_buffer("made", torch.zeros((), dtype=torch.bool))

    def _told(self) -> str:
        return f"{self.features._told()}, whitened by {self.images} drawings of seed {self.seed}"

    def prepare(self, on_progress: Callable[[str, int, int], None] | None = None) -> None:
        """Compute the matrix, or read it from the cache; calls do so where it was not done.

        Args:
            on_progress: called with (stage, done, total).
        """
        self.features.prepare(on_progress)
        if not self.made:
            path, shape = folder() / f"{self.key()[:40]}.npy", (self.dimensions + 1, self.features.width)
            found = kept(path, shape, lambda: [self._computed(on_progress or (lambda stage, done, total: None))])
            self.mean.copy_(torch.from_numpy(found[0].copy()))
            self.matrix.copy_(torch.from_numpy(found[1:].copy()))
            self.made.fill_(True)

    def _computed(self, on_progress: Callable[[str, int, int], None]) -> np.ndarray:
        """The mean above the matrix."""
        shape = self.features.image
        rows = np.empty((self.images, self.features.width), np.float32)
        pictures = drawings(self.images, shape, self.seed)
        for start in range(0, self.images, _ROWS_AT_ONCE):
            rows[start : start + _ROWS_AT_ONCE] = self.features.of(pictures[start : start + _ROWS_AT_ONCE])
            on_progress("features of drawings", min(start + _ROWS_AT_ONCE, self.images), self.images + 1)
        mean = rows.mean(axis=0)
        rows -= mean
        values, vectors = self._principal(torch.from_numpy(rows))
        scale = (values.clamp(min=0) + self.floor * values[0]).rsqrt()
        on_progress("features of drawings", self.images + 1, self.images + 1)
        return np.concatenate([mean[None], (vectors.T * scale[:, None]).numpy()])

    def _principal(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The d largest eigenvalues of C, falling, and the eigenvectors as columns."""
        if self.dimensions < self.images < rows.shape[1]:
            # Z Z^T / n has the eigenvalues of Z^T Z / n, and Z^T u, scaled, its eigenvectors: with fewer drawings than
            # features it is the smaller matrix.
            values, vectors = torch.linalg.eigh((rows.double() @ rows.T.double()) / self.images)
            vectors = nn.functional.normalize(rows.T @ vectors.float(), dim=0)
        else:
            values, vectors = torch.linalg.eigh(rows.T @ rows / self.images)
        return values.float().flip(0)[: self.dimensions], vectors.flip(1)[:, : self.dimensions]

    def forward(self, rows: Tensor) -> Tensor:
        """(n, d), each of norm `norm`, or 0 where nothing is left of it."""
        self.prepare()
        found = (self.features(rows) - self.mean) @ self.matrix.T
        return nn.functional.normalize(found, dim=1) * self.norm
