"""MNIST: handwritten digits, 28x28 grey values (LeCun, Cortes, Burges 1998)."""

from tacit.data.files import File
from tacit.data.images import NAMES, mnist_like

_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
_PUBLISHED = (
    ("440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", 9912422),
    ("3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28881),
    ("8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", 1648877),
    ("f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", 4542),
)

SOURCE = mnist_like(
    "mnist",
    summary="handwritten digits, 28x28 grey images",
    classes=[str(digit) for digit in range(10)],
    licence="CC BY-SA 3.0 as commonly stated (Y. LeCun and C. Cortes hold the copyright)",
    published=[
        File(f"mnist/{name}", digest, size, tuple(mirror + name for mirror in _MIRRORS))
        for name, (digest, size) in zip(NAMES, _PUBLISHED, strict=True)
    ],
)
