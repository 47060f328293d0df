"""Likelihoods: the log likelihood of one record given the parameters, and predictions.

What the functions of a model read besides their arguments: values that may come from private data.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from tacit import check
from tacit.accounting import Ledger
from tacit.standing import Standing

# Packages whose functions read no data of the user.
_KNOWN = ("torch", "pyro", "numpy", "scipy", "math", "builtins", "functools", "operator", "typing", "tacit")
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type, types.ModuleType, torch.dtype, torch.device)
# Depth of containers and functions that are searched; deeper ones count as data.
_DEPTH = 8


def captured_data(*functions: object) -> dict[str, list[object]]:
    """Names of the values that `functions` read besides their arguments and that could hold records, and the values.

    Searched are closure cells, defaults, bound objects, and what the code names among its globals, also in functions
    that these call. Numbers and words count as settings, which are declared to be public; arrays, tensors, tables and
    all objects that cannot be searched count as data. It is a list for a declaration, not a proof: a value that is
    read from a file or through a module attribute does not show.

    Example:
        >>> mean = torch.zeros(2)
        >>> sorted(captured_data(lambda w: -(w - mean).square().sum()))
        ['mean']
    """
    found: dict[str, list[object]] = {}
    seen: set[int] = set()
    for function in functions:
        for name, value in _read_by(function):
            _search(name, value, found, seen, _DEPTH)
    return found


def shares_memory(values: list[object], records: tuple[Tensor, ...]) -> bool:
    """Whether one of `values` lies in the memory of `records`."""
    storages = {record.untyped_storage().data_ptr() for record in records if record.numel()}
    return any(_address(value) in storages for value in values)


def _address(value: object) -> int | None:
    if isinstance(value, Tensor):
        return value.untyped_storage().data_ptr()
    if isinstance(value, np.ndarray):
        while isinstance(value.base, np.ndarray):
            value = value.base
        return value.__array_interface__["data"][0]
    return None


def _search(name: str, value: object, found: dict[str, list[object]], seen: set[int], depth: int) -> None:
    if isinstance(value, _PLAIN) or id(value) in seen or _is_known(value):
        return
    seen.add(id(value))
    inner = _parts(name, value) if depth else None
    if inner is None:
        found.setdefault(name, []).append(value)
        return
    for part, each in inner:
        _search(part, each, found, seen, depth - 1)


def _parts(name: str, value: object) -> list[tuple[str, object]] | None:
    """What there is to search in `value`; None where it counts as data itself."""
    if isinstance(value, Tensor | np.ndarray):
        return None
    if isinstance(value, types.FunctionType | types.MethodType):
        return list(_read_by(value))
    if isinstance(value, Mapping):
        return [(name, each) for each in value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        return [(name, each) for each in value]
    if is_dataclass(value) or hasattr(value, "__dict__"):
        return [(f"{name}.{key}", each) for key, each in vars(value).items()]
    return None


def _read_by(function: object) -> Iterator[tuple[str, object]]:
    if isinstance(function, types.MethodType):
        yield "self", function.__self__
        yield from _read_by(function.__func__)
    elif isinstance(function, types.FunctionType):
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        yield from ((name, cell.cell_contents) for name, cell in cells if _is_bound(cell))
        yield from (("default", each) for each in function.__defaults__ or ())
        yield from (function.__kwdefaults__ or {}).items()
        names = dict.fromkeys(_names(function.__code__))
        yield from ((name, function.__globals__[name]) for name in names if name in function.__globals__)
    else:
        yield type(function).__name__, function


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _is_bound(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _is_known(value: object) -> bool:
    """Whether `value` is a function of a package that reads no data of the user."""
    if isinstance(value, types.BuiltinFunctionType | np.ufunc):
        return True
    module = getattr(value, "__module__", None) if callable(value) and not hasattr(value, "__dict__") else None
    if isinstance(value, types.FunctionType):
        module = value.__module__
    return isinstance(module, str) and module.split(".")[0] in _KNOWN


class Likelihood(Protocol):
    """Log likelihood log p(y_i | x_i, w) of every record of a batch, and the predictive distribution.

    Example:
        >>> LogisticLikelihood().size(features=4)
        4
    """

    def size(self, features: int) -> int:
        """Number of parameters for so many features."""
        ...

    def log_likelihood(self, w: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        """Log likelihood of each record, shape (batch,), for parameters w of shape (size,)."""
        ...

    def predict(self, w: Tensor, inputs: Tensor) -> Tensor:
        """Class probabilities (batch, classes), or means (batch,) of a regression, for w of shape (size,)."""
        ...


@dataclass(frozen=True)
class LogisticLikelihood:
    """Logistic regression: P(y = 1) = sigmoid(x^T w), y in {0, 1}.

    Example:
        >>> LogisticLikelihood().predict(torch.zeros(2), torch.ones(1, 2)).tolist()
        [[0.5, 0.5]]
    """

    def size(self, features: int) -> int:
        """Number of parameters for so many features."""
        return features

    def log_likelihood(self, w: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        """Log likelihood of each record, shape (batch,)."""
        return -F.binary_cross_entropy_with_logits(inputs @ w, targets.to(w.dtype), reduction="none")

    def predict(self, w: Tensor, inputs: Tensor) -> Tensor:
        """Predictions for w, as in `Likelihood`."""
        positive = torch.sigmoid(inputs @ w)
        return torch.stack([1 - positive, positive], 1)


@dataclass(frozen=True)
class SoftmaxLikelihood:
    """Softmax regression: P(y = c) proportional to e^{x^T w_c}; w holds one row a class.

    Example:
        >>> SoftmaxLikelihood(3).size(features=4)
        12
    """

    classes: int

    def __post_init__(self) -> None:
        check.count("classes", self.classes, minimum=2)

    def size(self, features: int) -> int:
        """Number of parameters for so many features."""
        return features * self.classes

    def log_likelihood(self, w: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        """Log likelihood of each record, shape (batch,)."""
        return -F.cross_entropy(F.linear(inputs, w.view(self.classes, -1)), targets, reduction="none")

    def predict(self, w: Tensor, inputs: Tensor) -> Tensor:
        """Predictions for w, as in `Likelihood`."""
        return torch.softmax(F.linear(inputs, w.view(self.classes, -1)), 1)


@dataclass(frozen=True)
class LinearLikelihood:
    """Linear regression: y ~ N(x^T w, noise_std^2).

    Example:
        >>> LinearLikelihood(noise_std=0.5).size(features=4)
        4
    """

    noise_std: float = 1.0

    def __post_init__(self) -> None:
        check.positive("noise_std", self.noise_std)

    def size(self, features: int) -> int:
        """Number of parameters for so many features."""
        return features

    def log_likelihood(self, w: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        """Log likelihood of each record, shape (batch,)."""
        residual = (targets.to(w.dtype) - inputs @ w) / self.noise_std
        return -0.5 * residual.square() - math.log(self.noise_std) - 0.5 * math.log(2 * math.pi)

    def predict(self, w: Tensor, inputs: Tensor) -> Tensor:
        """Predictions for w, as in `Likelihood`."""
        return inputs @ w


@dataclass(frozen=True)
class LogJoint:
    """Any model given as the log density of one record, e.g. built from `torch.distributions`.

    Args:
        density: (w, inputs, targets) -> log p of every record, shape (batch,); records must not meet in it.
        parameters: number of values in w.
        predictor: (w, inputs) -> predictions, where wanted.
        log_prior: w -> log density of the prior, a scalar; N(0, prior_std^2 I) where it is not given.
        public: names of arrays, tensors and other objects that density and log_prior read besides their arguments and
            that hold nothing of the private data. What is read and not named leaves an inference at most claimed.
        sources: the functions of the user that density and log_prior wrap, to be searched in their place.

    Example:
        >>> LogJoint(lambda w, x, y: -(x @ w - y).square(), parameters=3).size(features=2)
        3
    """

    density: Callable[[Tensor, Tensor, Tensor], Tensor]
    parameters: int
    predictor: Callable[[Tensor, Tensor], Tensor] | None = None
    log_prior: Callable[[Tensor], Tensor] | None = None
    public: tuple[str, ...] = ()
    sources: tuple[Callable[..., object], ...] = ()

    def size(self, features: int) -> int:
        """Number of parameters for so many features."""
        return check.count("parameters", self.parameters)

    def log_likelihood(self, w: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        """Log likelihood of each record, shape (batch,)."""
        return self.density(w, inputs, targets)

    def predict(self, w: Tensor, inputs: Tensor) -> Tensor:
        """Predictions for w, as in `Likelihood`."""
        if self.predictor is None:
            raise check.fail("predictor", "given to predict from a log density", None)
        return self.predictor(w, inputs)


def check_captured(likelihood: Likelihood, records: tuple[Tensor, ...], ledger: Ledger) -> None:
    """Look for private data that the model reads besides its arguments; what is not declared falls to claimed.

    A density that reads the other records moves by far more than its clipped gradient when one of them changes; a prior
    that reads them is not clipped at all.

    Args:
        likelihood: the model; a `LogJoint`, or one's own `Likelihood`.
        records: the private tensors.
        ledger: marked where a value is neither a setting nor declared to be public.

    Raises:
        InvalidInput: the model reads the private records themselves, or `public` names what it does not read.
    """
    if isinstance(likelihood, LogJoint):
        wrapped = [likelihood.density, *([likelihood.log_prior] if likelihood.log_prior is not None else [])]
        found, declared = captured_data(*(likelihood.sources or wrapped)), likelihood.public
    else:
        found, declared = captured_data(likelihood.log_likelihood), ()
    for name, values in found.items():
        if shares_memory(values, records):
            hint = "Use the inputs and targets that are passed, and a prior of public numbers."
            raise check.fail("density", "free of private records other than its arguments", f"{name!r}", hint)
    unknown = sorted(set(declared) - found.keys())
    if unknown:
        raise check.fail("public", f"names of what the model reads: {', '.join(found) or 'nothing'}", unknown)
    undeclared = sorted(found.keys() - set(declared))
    if undeclared:
        ledger.mark_unsafe(f"undeclared_density: {', '.join(undeclared)}", Standing.CLAIMED)
        ledger.assume(f"The density reads {', '.join(undeclared)}, not declared to be free of the private data.")
    if declared:
        ledger.assume(f"Declared to be free of the private data: {', '.join(sorted(declared))}, read by the density.")
