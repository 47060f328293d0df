"""`PatchDictionary`: likeness of every patch of an image to patches of drawings (Coates & Ng 2011)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from tacit import check
from tacit.features.base import ImageFeatures, image_shape, images_of
from tacit.features.drawings import drawings

_SIDE = 6
_DRAWINGS, _SAMPLED = 4000, 200_000
# Pixels in [0, 1]: the variance 10 of pixels in [0, 255] that keeps flat patches from noise.
_FLAT = 10 / 255**2
_RIDGE = 0.1
_LEAST_NORM = 3.0
_THRESHOLD = 0.25
# The maps of so few images stay in a processor's cache; so many are not divided.
_IMAGES_AT_ONCE, _WHOLE = 2, 8


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
        check.count("patches", patches, maximum=8192)
        check.count("seed", seed, minimum=0, maximum=2**32 - 1)
        values = _SIDE**2 * self.image[0]
        self.register_buffer("weight", torch.zeros(2 * patches, values))
        self.register_buffer("shift", torch.zeros(2 * patches))
        places = (side - _SIDE + 1 for side in self.image[1:])
        self.register_buffer("_quadrants", _means_over_quadrants(*places), persistent=False)
        self.register_buffer("made", torch.zeros((), dtype=torch.bool))

    @property
    def width(self) -> int:
        """8 numbers a row of D and its mirror image, 16 without `mirror`."""
        return self.patches * (8 if self.mirror else 16)

    def _told(self) -> str:
        return f"{self.patches} patches of drawings of seed {self.seed}"

    def prepare(self, on_progress: object = None) -> None:
        """Draw, and choose the patches, where that was not done."""
        if self.made:
            return
        rng = np.random.RandomState(self.seed)
        images = torch.from_numpy(drawings(_DRAWINGS, self.image, self.seed))
        windows = nn.functional.unfold(images, _SIDE).transpose(1, 2)
        chosen = rng.randint(0, windows.shape[1], size=(_DRAWINGS, _SAMPLED // _DRAWINGS))
        rows = windows.gather(1, torch.from_numpy(chosen)[..., None].expand(-1, -1, windows.shape[2]))
        rows = _scaled(rows.flatten(0, 1)).double()
        mean = rows.mean(0)
        values, vectors = torch.linalg.eigh((rows - mean).T @ (rows - mean) / len(rows))
        zca = vectors @ torch.diag((values + _RIDGE).rsqrt()) @ vectors.T
        white = (rows - mean) @ zca
        order = torch.from_numpy(rng.permutation(len(white)))
        strong = white[order][white[order].norm(dim=1) > _LEAST_NORM][: self.patches]
        words = nn.functional.normalize(strong.repeat(-(-self.patches // len(strong)), 1)[: self.patches], dim=1)
        flipped = words.reshape(-1, self.image[0], _SIDE, _SIDE).flip(3).flatten(1)
        weight = torch.cat([words, flipped]) @ zca
        self.weight.copy_(weight)
        self.shift.copy_(-(weight @ mean))
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
