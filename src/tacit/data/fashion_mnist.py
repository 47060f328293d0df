"""Fashion-MNIST: pictures of clothes, 28x28 grey values (Xiao, Rasul, Vollgraf 2017)."""

from tacit.data.files import File
from tacit.data.images import NAMES, mnist_like

_MIRRORS = (
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
)
_PUBLISHED = (
    ("3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84", 26421880),
    ("a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845", 29515),
    ("346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073", 4422102),
    ("67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5", 5148),
)

SOURCE = mnist_like(
    "fashion_mnist",
    summary="pictures of clothes, 28x28 grey images",
    classes=[
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ],
    licence="MIT (Zalando SE)",
    published=[
        File(f"fashion_mnist/{name}", digest, size, tuple(mirror + name for mirror in _MIRRORS))
        for name, (digest, size) in zip(NAMES, _PUBLISHED, strict=True)
    ],
)
