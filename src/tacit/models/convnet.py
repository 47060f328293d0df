"""The convolutional network of Bu et al. 2020."""

from __future__ import annotations

from torch import nn

from tacit import check
from tacit.models.start import glorot


def convnet(shape: tuple[int, int, int] = (1, 28, 28), classes: int = 10) -> nn.Module:
    """The convolutional network of Bu et al. 2020: (batch, *shape) -> (batch, classes) logits.

    Conv(16, 8x8, stride 2, same)-ReLU-MaxPool(2, 1)-Conv(32, 4x4, stride 2)-ReLU-MaxPool(2, 1)-Dense 32-ReLU-Dense;
    26010 parameters for MNIST. "Same" padding puts an odd column or row at the end, as TensorFlow does.

    Args:
        shape: channels, height, width; height and width at least 14.
    """
    channels, height, width = (check.count("shape", size) for size in shape)
    check.count("shape", min(height, width), minimum=14, hint="The two convolutions and pools need that much.")
    top, left = _same_padding(height), _same_padding(width)
    sides = [_pool(_second(_pool((size + 1) // 2))) for size in (height, width)]
    return glorot(
        nn.Sequential(
            nn.ZeroPad2d((left // 2, left - left // 2, top // 2, top - top // 2)),
            nn.Conv2d(channels, 16, 8, stride=2),
            nn.ReLU(),
            nn.MaxPool2d(2, stride=1),
            nn.Conv2d(16, 32, 4, stride=2),
            nn.ReLU(),
            nn.MaxPool2d(2, stride=1),
            nn.Flatten(),
            nn.Linear(32 * sides[0] * sides[1], 32),
            nn.ReLU(),
            nn.Linear(32, check.count("classes", classes)),
        )
    )


def _same_padding(size: int) -> int:
    return max(0, ((size + 1) // 2 - 1) * 2 + 8 - size)


def _second(size: int) -> int:
    return (size - 4) // 2 + 1


def _pool(size: int) -> int:
    return size - 1
