"""`Scattering2d`: the scattering transform of images (Bruna & Mallat 2013; Oyallon & Mallat 2015), two scales."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tacit import check
from tacit.features.base import ImageFeatures, image_shape, images_of

SCALES = 2  # J
_STRIDE = 2**SCALES
_WRAPS = range(-2, 3)
LARGEST_SIDE = 64
# ITU-R BT.601: brightness and two colour differences.
_YUV = ((0.299, 0.587, 0.114), (-0.147, -0.289, 0.436), (0.615, -0.515, -0.1))


class Scattering2d(ImageFeatures):
    """Averages of moduli of wavelet coefficients, two layers deep, of every channel of an image.

    S0 = x * phi, S1 = |x * psi_{j1,t1}| * phi, S2 = ||x * psi_{0,t1}| * psi_{1,t2}| * phi, one number in 4 x 4 pixels,
    1 + 2 L + L^2 channels. psi_{j,t} is a Morlet wavelet of envelope .8 2^j, frequency 3 pi / 4 / 2^j, slant 4 / L and
    mean zero, phi a Gaussian of deviation .8 2^(J-1), J = 2. Borders are mirrored. Colour becomes Y, U, V first. An
    image with a side above 64 is made smaller by means over areas.

    Args:
        shape: (channels, height, width) of an image; 1 or 3 channels, sides of at least 8.
        orientations: L >= 1.
        normalise: take the mean off groups of three channels of each image (all, where 3 does not divide their
            number), and divide by their deviation.
        mirror: take the mean of the features of an image and of its mirror image, for twice the time; leave it out
            where mirrored images mean something else.

    Raises:
        InvalidInput: an argument breaks its rule.

    Example:
        >>> Scattering2d((3, 32, 32))(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 15552])
    """

    _fine: Tensor
    _coarse: Tensor

    def __init__(
        self, shape: Sequence[int] = (1, 28, 28), orientations: int = 8, normalise: bool = True, mirror: bool = False
    ):
        nn.Module.__init__(self)
        self.shape, self.orientations, self.normalise, self.mirror = shape, orientations, normalise, mirror
        count = check.count("orientations", orientations, maximum=16)
        self.image = image_shape(shape)
        self._sides = tuple(min(side, LARGEST_SIDE) for side in self.image[1:])
        self._padded = tuple((-(-side // _STRIDE) + 2) * _STRIDE for side in self._sides)
        self._cells = tuple(size // _STRIDE - 2 for size in self._padded)
        self._channels = self.image[0] * (1 + SCALES * count + count**2)
        self.width = self._channels * math.prod(self._cells)
        angles, slant = [math.pi * each / count for each in range(count)], 4 / count
        fine, coarse = (torch.stack([morlet(self._padded, j, angle, slant) for angle in angles]) for j in (0, 1))
        self.register_buffer("_fine", fine.to(torch.float32), persistent=False)
        self.register_buffer("_coarse", _aliases(coarse).to(torch.float32), persistent=False)
        for name, halved in (("_means", 1), ("_coarse_means", 2)):
            for axis, size in enumerate(self._padded):
                self.register_buffer(f"{name}{axis}", _low_pass(size, halved), persistent=False)

    def _told(self) -> str:
        return f"{self._channels} fixed channels of wavelets{' of an image and its mirror image' * self.mirror}"

    def forward(self, rows: Tensor) -> Tensor:
        """Features of images (n, *shape) or flat rows, (n, features)."""
        images = images_of(rows, self.image)
        if self.image[0] == 3:
            images = torch.einsum("nchw,dc->ndhw", images, images.new_tensor(_YUV))
        if self._sides != self.image[1:]:
            images = nn.functional.interpolate(images, size=self._sides, mode="area")
        found = self._features(images)
        return (found + self._features(images.flip(3))) / 2 if self.mirror else found

    def _features(self, images: Tensor) -> Tensor:
        found = self._scattered(images.flatten(0, 1))
        found = found.reshape(len(images), self._channels, *self._cells)
        if self.normalise:
            found = nn.functional.group_norm(found, 1 if self._channels % 3 else self._channels // 3)
        return found.flatten(1)

    def _scattered(self, x: Tensor) -> Tensor:
        """(n, height, width) -> (n, channels of one, cells...)."""
        more = [size - side - _STRIDE for size, side in zip(self._padded, self._sides, strict=True)]
        x = nn.functional.pad(x[:, None], (_STRIDE, more[1], _STRIDE, more[0]), mode="reflect")[:, 0]
        spectrum = torch.fft.fft2(x)
        first = torch.fft.ifft2(spectrum[:, None] * self._fine).abs()
        second = self._wavelet_moduli(_aliases(torch.fft.fft2(first))).flatten(1, 2)
        other = self._wavelet_moduli(_aliases(spectrum[:, None])).flatten(1, 2)
        whole = self._averaged(torch.cat([x[:, None], first], dim=1), "_means")
        return torch.cat([whole, self._averaged(torch.cat([other, second], dim=1), "_coarse_means")], dim=1)

    def _wavelet_moduli(self, spectra: Tensor) -> Tensor:
        """(n, k, 4, h, w) aliases of spectra -> moduli at half the resolution, (n, k, orientations, h, w)."""
        filters = self._coarse
        total = spectra[:, :, None, 0] * filters[:, 0]
        for alias in range(1, 4):
            total = torch.addcmul(total, spectra[:, :, None, alias], filters[:, alias].to(total.dtype))
        return torch.fft.ifft2(total / 4).abs()

    def _averaged(self, maps: Tensor, name: str) -> Tensor:
        return getattr(self, f"{name}0") @ maps @ getattr(self, f"{name}1").T


def morlet(size: Sequence[int], scale: int, angle: float, slant: float) -> Tensor:
    """Spectrum, float64 of `size`, of the Morlet wavelet on a grid that wraps around; it is real.

    psi(u) = g(u) (e^{i xi . u} - b) with a Gaussian g of deviation .8 2^scale along xi and that over slant across, of
    sum 1, |xi| = 3 pi / 4 / 2^scale, and b so that the sum of psi is 0.

    Args:
        size: (height, width).
        scale: 0 or 1.
        angle: of xi, in radians.
        slant: > 0.
    """
    sigma, frequency = 0.8 * 2**scale, 3 * math.pi / 4 / 2**scale
    height, width = (torch.arange(each, dtype=torch.float64) for each in size)
    wave = torch.zeros(tuple(size), dtype=torch.complex128)
    envelope = torch.zeros(tuple(size), dtype=torch.float64)
    for down in _WRAPS:
        for right in _WRAPS:
            y, x = height[:, None] + down * size[0], width[None, :] + right * size[1]
            along, across = x * math.cos(angle) + y * math.sin(angle), y * math.cos(angle) - x * math.sin(angle)
            bell = torch.exp(-(along**2 + (slant * across) ** 2) / (2 * sigma**2)) * slant / (2 * math.pi * sigma**2)
            envelope += bell
            wave += bell * torch.exp(1j * frequency * along)
    return torch.fft.fft2(wave - wave.sum() / envelope.sum() * envelope).real


def _low_pass(size: int, halved: int) -> Tensor:
    """The matrix of phi along one side, (cells, size / halved): the rows of the cells inside of the border."""
    sigma = 0.8 * 2 ** (SCALES - 1) / halved
    places = torch.arange(size // halved, dtype=torch.float64)
    centres = torch.arange(1, size // _STRIDE - 1, dtype=torch.float64) * (_STRIDE // halved)
    away = places - centres[:, None]
    bells = (torch.exp(-((away + wrap * len(places)) ** 2) / (2 * sigma**2)) for wrap in _WRAPS)
    return (sum(bells, torch.zeros(())) / (sigma * math.sqrt(2 * math.pi))).to(torch.float32)


def _aliases(spectra: Tensor) -> Tensor:
    """The four parts (..., 4, h / 2, w / 2) of a spectrum (..., h, w) that fall together at half the resolution."""
    high, wide = spectra.shape[-2] // 2, spectra.shape[-1] // 2
    parts = [spectra[..., down : down + high, right : right + wide] for down in (0, high) for right in (0, wide)]
    return torch.stack(parts, dim=-3)
