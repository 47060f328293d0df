"""Likelihoods: the log likelihood of one record given the parameters, and predictions."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from tacit import check
from tacit.accounting import Ledger
from tacit.standing import Standing
from tacit.training.captured import Memory, captured, holds_data, is_column, is_opaque, is_plain


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
    read: list[object] = [likelihood.log_likelihood]
    declared: tuple[str, ...] = ()
    if isinstance(likelihood, LogJoint):
        read = [*(likelihood.sources or [likelihood.density, likelihood.log_prior])]
        declared = likelihood.public
    found = {name: value for each in read for name, value in captured(each, _may_be_data).items()}
    own = [Memory(each) for each in records]
    for name, value in found.items():
        if any(each.overlaps(value) for each in own):
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


def _may_be_data(name: str, value: object) -> bool:
    """Whether the value called `name` may hold records; numbers and words are settings."""
    return holds_data(name, value) or is_opaque(value) or (is_column(value) and not is_plain(value, -1))
