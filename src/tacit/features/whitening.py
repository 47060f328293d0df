"""`SyntheticWhitening`: decorrelation of image features by drawings, so that no image of anybody is read."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import numpy as np
import torch
from torch import Tensor, nn

from tacit import check
from tacit.features import cache
from tacit.features.base import ImageFeatures, PublicFeatures
from tacit.features.drawings import drawings

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
        check.count("dimensions", dimensions, maximum=features.width)
        check.count("images", images, minimum=2)
        check.positive("floor", floor)
        check.positive("norm", norm)
        check.count("seed", seed, minimum=0, maximum=2**32 - 1)
        self.register_buffer("mean", torch.zeros(features.width))
        self.register_buffer("matrix", torch.zeros(dimensions, features.width))
        self.register_buffer("made", torch.zeros((), dtype=torch.bool))

    @property
    def width(self) -> int:
        """Number of dimensions, d."""
        return self.dimensions

    def _told(self) -> str:
        return f"{self.features._told()}, whitened by {self.images} drawings of seed {self.seed}"

    def prepare(self, on_progress: Callable[[str, int, int], None] | None = None) -> None:
        """Compute the matrix, or read it from the cache; calls do so where it was not done.

        Args:
            on_progress: called with (stage, done, total).
        """
        self.features.prepare(on_progress)
        if not self.made:
            shape = (self.dimensions + 1, self.features.width)
            path = cache.folder() / f"{self.key()[:40]}.npy"
            found = cache.kept(path, shape)
            if found is None:
                found = self._computed(on_progress or (lambda stage, done, total: None))
                with suppress(OSError):  # Without room it is computed again.
                    part = path.with_suffix(".part.npy")
                    np.save(part, found)
                    part.replace(path)
                    cache.seal(path)
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
        values, vectors = torch.linalg.eigh(torch.from_numpy(rows.T @ rows / np.float32(self.images)))
        top = values.flip(0)[: self.dimensions].clamp(min=0)
        scale = (top + self.floor * top[0]).rsqrt()
        on_progress("features of drawings", self.images + 1, self.images + 1)
        matrix = vectors.flip(1)[:, : self.dimensions].T * scale[:, None]
        return np.concatenate([mean[None], matrix.numpy()])

    def forward(self, rows: Tensor) -> Tensor:
        """(n, d), each of norm `norm`, or 0 where nothing is left of it."""
        self.prepare()
        found = (self.features(rows) - self.mean) @ self.matrix.T
        return nn.functional.normalize(found, dim=1) * self.norm
