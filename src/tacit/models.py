"""Networks of the presets, with the data-independent initial weights of the papers' code.

Fully connected networks, and three of Bu et al. 2020: the convolutional network for images, the neural collaborative
filter for MovieLens, and the text classifier for IMDb. `module_at` finds a module of the user's own by its name.
"""

import copy
import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import PathFinder
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from tacit import check
from tacit.errors import told

__all__ = ["MeanOfWords", "Recommender", "convnet", "glorot", "linear", "mlp"]


def module_at(where: str) -> nn.Module:
    """The model at MODULE:CLASS or FILE.py:CLASS: a copy of a module, or what a class or function makes.

    The code at `where` runs.

    Raises:
        InvalidInput: there is no such module or class, or it makes no `torch.nn.Module` without arguments.
    """
    name = where.partition(":")[2]
    made = _object_at(where, "CLASS")
    if isinstance(made, nn.Module):
        return copy.deepcopy(made)
    try:
        made = made()
    except (Exception, SystemExit) as error:
        raise check.fail("CLASS", "callable without arguments", name, f"{told(error)} Write a function.") from error
    if not isinstance(made, nn.Module):
        raise check.fail("CLASS", "a torch.nn.Module or a function that returns one", type(made).__name__)
    return made


def function_at(where: str) -> Callable[..., Any]:
    """The function at MODULE:FUNCTION or FILE.py:FUNCTION, which the user named: the code at `where` runs.

    Raises:
        InvalidInput: there is no such module or function.
    """
    found = _object_at(where, "FUNCTION")
    check.that(callable(found), "FUNCTION", "callable", type(found).__name__)
    return found


def _object_at(where: str, kind: str) -> Any:
    """What MODULE calls by the name after the colon; `kind` is how messages call it."""
    source, _, name = where.partition(":")
    hint = f"E.g. package.module:{kind.title()} or file.py:{kind.title()}."
    check.that(source and name, f"MODULE:{kind}", f"a module and a {kind.lower()}", where, hint)
    try:
        found = _module(source)
    except (Exception, SystemExit) as error:
        raise check.fail("MODULE", "importable", source, told(error)) from error
    check.choice(f"{kind} of {source}", name, sorted(key for key in vars(found) if not key.startswith("_")))
    return getattr(found, name)


def code_of(where: str) -> list[Path]:
    """The files that importing MODULE runs first: `__init__.py` of each package around it, then its own.

    Nothing is imported and nothing runs. Empty where there is no such module; what these files import is not followed.
    """
    path: Sequence[str] | None = [str(Path.cwd()), *sys.path]
    files = []
    parts = where.partition(":")[0].split(".")
    for end in range(1, len(parts) + 1):
        spec = PathFinder.find_spec(".".join(parts[:end]), path)
        if spec is None:
            return []
        if spec.origin is not None:
            files.append(Path(spec.origin).resolve())
        path = list(spec.submodule_search_locations or [])
    return files


def _module(source: str) -> ModuleType:
    if not source.endswith(".py"):
        sys.path.insert(0, str(Path.cwd()))
        try:
            return importlib.import_module(source)
        finally:
            del sys.path[0]
    spec = importlib.util.spec_from_file_location(Path(source).stem, source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Half width of Keras's uniform start of an embedding; torch's N(0, 1) start costs four points of accuracy on IMDb.
EMBEDDING_WIDTH = 0.05


def glorot(model: nn.Module) -> nn.Module:
    """Glorot-uniform weights and zero biases (Glorot & Bengio 2010) in every linear and convolution layer."""
    for layer in model.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return model


def embedding(rows: int, width: int) -> nn.Embedding:
    """A table of `rows` vectors of `width` values, uniform in +-0.05."""
    table = nn.Embedding(rows, width)
    nn.init.uniform_(table.weight, -EMBEDDING_WIDTH, EMBEDDING_WIDTH)
    return table


def convnet(shape: tuple[int, int, int] = (1, 28, 28), classes: int = 10) -> nn.Module:
    """The convolutional network of Bu et al. 2020: (batch, *shape) -> (batch, classes) logits.

    Conv(16, 8x8, stride 2, same)-ReLU-MaxPool(2, 1)-Conv(32, 4x4, stride 2)-ReLU-MaxPool(2, 1)-Dense 32-ReLU-Dense;
    26010 parameters for MNIST. "Same" padding puts an odd column or row at the end, as TensorFlow does.

    Args:
        shape: channels, height, width; height and width at least 14.
        classes: number of logits, >= 1.

    Raises:
        InvalidInput: a size is too small.
    """
    channels, height, width = (check.count("shape", size) for size in shape)
    check.count("shape", min(height, width), minimum=14, hint="The two convolutions and pools need that much.")
    top, left = _same_padding(height), _same_padding(width)
    sides = [_features(size) for size in (height, width)]
    padding = nn.ZeroPad2d((left // 2, left - left // 2, top // 2, top - top // 2))
    first = (nn.Conv2d(channels, 16, 8, stride=2), nn.ReLU(), nn.MaxPool2d(2, stride=1))
    second = (nn.Conv2d(16, 32, 4, stride=2), nn.ReLU(), nn.MaxPool2d(2, stride=1))
    head = (nn.Linear(32 * sides[0] * sides[1], 32), nn.ReLU(), nn.Linear(32, check.count("classes", classes)))
    return glorot(nn.Sequential(padding, *first, *second, nn.Flatten(), *head))


def _same_padding(size: int) -> int:
    return max(0, ((size + 1) // 2 - 1) * 2 + 8 - size)


def _features(size: int) -> int:
    """Side of the last feature map: a first convolution, a pool, a second convolution, a pool."""
    pooled = (size + 1) // 2 - 1
    return (pooled - 4) // 2 + 1 - 1


def linear(inputs: int, classes: int) -> nn.Module:
    """Logistic regression: (batch, inputs) -> (batch, classes) logits."""
    return mlp(inputs, classes, hidden=())


def mlp(inputs: int, classes: int, *, hidden: Sequence[int] = (16,)) -> nn.Sequential:
    """Fully connected ReLU network: (batch, inputs) -> (batch, classes) logits."""
    widths = [check.count("inputs", inputs), *(check.count("hidden", width) for width in hidden)]
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    network = nn.Sequential(*layers, nn.Linear(widths[-1], check.count("classes", classes)))
    glorot(network)
    return network


class BesideLinear(nn.Module):
    """`scale network(x) + linear(x)`: the scores of a network beside those of a linear model, which start at zero.

    Args:
        network: (batch, inputs) -> (batch, classes).
        inputs: their number.
        classes: their number.
        scale: of the network's scores.
    """

    def __init__(self, network: nn.Module, inputs: int, classes: int, *, scale: float):
        super().__init__()
        self.scale = scale
        self.network, self.linear = network, nn.Linear(inputs, classes, bias=False)
        nn.init.zeros_(self.linear.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Logits, (batch, classes)."""
        return self.scale * self.network(x) + self.linear(x)


class Recommender(nn.Module):
    """Pairs of user and item number, int64 (batch, 2), to logits of the stars, (batch, classes).

    Dense([u * v, u', v']) for vectors u, v of `product_width` and u', v' of `width` of user and item.

    Args:
        users: number of users, >= 1.
        items: number of items, >= 1.
        classes: number of logits, >= 1.
        product_width: length of the vectors that are multiplied, >= 1.
        width: length of the vectors that are concatenated, >= 1.
    """

    def __init__(self, users: int, items: int, classes: int = 5, *, product_width: int = 5, width: int = 10):
        super().__init__()
        for name, size in (("users", users), ("items", items), ("product_width", product_width), ("width", width)):
            check.count(name, size)
        self.product_user, self.product_item = embedding(users, product_width), embedding(items, product_width)
        self.user, self.item = embedding(users, width), embedding(items, width)
        self.head = glorot(nn.Linear(product_width + 2 * width, check.count("classes", classes)))

    def forward(self, pairs: Tensor) -> Tensor:
        """Logits of the stars, (batch, classes)."""
        user, item = pairs[:, 0], pairs[:, 1]
        product = self.product_user(user) * self.product_item(item)
        return self.head(torch.cat([product, self.user(user), self.item(item)], dim=1))


# Smaller numbers are padding and the start mark.
FIRST_WORD = 2


class MeanOfWords(nn.Module):
    """Word numbers (batch, places), int64 in [0, words), to logits (batch, classes).

    Embedding(words, width)-mean over the places-Dense `hidden`-ReLU-Dense. Numbers 0 and 1 are padding and the start
    mark, as in `tacit.data.words`.

    Args:
        words: size of the vocabulary, >= 2.
        classes: number of logits, >= 1.
        width: length of the word vectors, >= 1.
        hidden: width of the hidden layer, >= 1.
        count_padding: whether the mean is over all places, padding and mark among them, as in the paper's code.
            Otherwise it is over the places that hold a word; a record without words gets the zero vector.
    """

    def __init__(
        self, words: int = 10_000, classes: int = 2, *, width: int = 16, hidden: int = 16, count_padding: bool = False
    ):
        super().__init__()
        self.count_padding = count_padding
        self.words = embedding(check.count("words", words, minimum=2), check.count("width", width))
        self.body = mlp(width, classes, hidden=(hidden,))

    def forward(self, numbers: Tensor) -> Tensor:
        """Logits, (batch, classes)."""
        vectors = self.words(numbers)
        if self.count_padding:
            return self.body(vectors.mean(dim=1))
        present = (numbers >= FIRST_WORD).to(vectors.dtype)
        total = (vectors * present.unsqueeze(-1)).sum(dim=1)
        return self.body(total / present.sum(dim=1, keepdim=True).clamp(min=1.0))
