"""`recommend`: batch size, steps, learning rate and clip norm of a private training, by a rule of public numbers."""

import math
from dataclasses import dataclass

from torch import nn

from tacit import calibration, check
from tacit.mechanisms import Gaussian
from tacit.tradeoff import Epsilon
from tacit.training.plan_options import PlanOptions

_SHARE, _LARGEST_BATCH = 8, 4096
"""A batch is an eighth of the records, and at most this many."""
_SIGNAL_OF_A_PASS, _LEAST_PASSES, _MOST_PASSES = 6.0, 10.0, 40.0
_FULL_MU = 0.7
"""Mu from which the learning rate is whole; below it falls in proportion."""
_LINEAR_STEP, _NETWORK_STEP = 20.0, 0.4
"""Learning rate times clip norm: of a linear model, for rows of norm 1, and of a network."""
_LONG_ROWS = 10.0
_MOMENTUM = 0.9


@dataclass(frozen=True, kw_only=True)
class Recommendation(PlanOptions):
    """What `recommend` answers: the `options` of `fit` and `make_private`, and the settings of the optimizer.

    Attributes:
        records: n that it was made for.
        parameters: trainable ones of the model.
        learning_rate: of SGD.
        momentum: of SGD.
        expected_noise: the noise multiplier that meets the target in a new ledger.
        signal_to_noise: of a step: the norm of its clipped sum if all records pulled one way, over that of its noise.

    Example:
        >>> import torch
        >>> found = recommend(torch.nn.Linear(64, 10), records=1437, epsilon=4.0, delta=1e-4)
        >>> found.parameters, found.records
        (650, 1437)
    """

    records: int
    parameters: int
    learning_rate: float
    momentum: float
    expected_noise: float
    signal_to_noise: float

    def __str__(self) -> str:
        assert isinstance(self.target, Epsilon)
        assert self.batch_size is not None
        assert self.steps is not None
        passes = self.steps * self.batch_size / self.records
        warning = ": noise outweighs what records agree on; take fewer parameters, such as a linear model on features"
        return (
            f"batch size {self.batch_size:,} of {self.records:,} records, {self.steps:,} steps ({passes:.3g} epochs), "
            f"clip norm {self.clip_norm:g}\n"
            f"SGD with learning rate {self.learning_rate:.3g} and momentum {self.momentum:g}\n"
            f"noise multiplier {self.expected_noise:.4g} for epsilon {self.target.epsilon:g} at delta "
            f"{self.target.delta:g}\n"
            f"signal-to-noise of a step at most {self.signal_to_noise:.3g} over {self.parameters:,} parameters"
            f"{warning if self.signal_to_noise < 1 else ''}"
        )

    def row(self) -> dict[str, float]:
        """The numbers by name."""
        assert isinstance(self.target, Epsilon)
        names = ("records", "parameters", "batch_size", "steps", "clip_norm", "learning_rate", "momentum")
        found = {name: getattr(self, name) for name in (*names, "expected_noise", "signal_to_noise")}
        return found | {"epsilon": self.target.epsilon, "delta": self.target.delta}


def recommend(
    model: nn.Module | int, *, records: int, epsilon: float, delta: float, row_norm: float | None = None
) -> Recommendation:
    """Settings of DP-SGD for `model`, a function of public numbers alone.

    With mu of the target, n records and p parameters, n mu / sqrt(p) is what all steps together can tell of a mean
    gradient against their noise. The passes over the data are a sixth of it, from 10 to 40; batches are an eighth of
    the records and at most 4,096; the learning rate is in units of the clip and falls with mu below .7.

    Fitted on settings of prototypes for linear models on scattering of MNIST and on hashed words of IMDb,
    each at epsilon 1, 3 and 8, which were looked at with test data; of these it gives the batch, steps and learning
    rate within a factor of 2. The learning rate of networks is the best of .1, .2, ..., 1.6 over the clip for a hidden
    layer of 32 on the digits of scikit-learn at epsilon 1 and 3 (.8 was better at 8), twice the one of De et al. on
    CIFAR-10. On other data all of it is a start, and `tacit.tuning` pays for a search.

    Args:
        model: in the state in which it is trained, or the number of its trainable parameters, >= 1.
        records: n, declared or public, >= 8.
        epsilon: of the target, > 0.
        delta: of the target, in (0, 1).
        row_norm: public norm of the rows of a linear model, > 0; None for a network that is trained from end to end.

    Raises:
        InvalidInput: an argument breaks its rule, or the model has nothing to train.

    Source: De et al. 2022 (arXiv 2204.13650) for networks: large batches, learning rate 2 in units of the clip.

    Example:
        >>> found = recommend(nn.Linear(2000, 10), records=60_000, epsilon=3.0, delta=1e-5, row_norm=50.0)
        >>> found.batch_size, found.steps, found.clip_norm
        (4096, 586, 0.1)
    """
    if isinstance(model, nn.Module):
        model = sum(each.numel() for each in model.parameters() if each.requires_grad)
    parameters = check.count("parameters of model", model, hint="Set requires_grad on some.")
    check.count("records", records, minimum=_SHARE)
    target = Epsilon(check.positive("epsilon", epsilon), check.probability("delta", delta, open_low=True))
    mu = 1 / calibration.smallest("noise_multiplier", Gaussian, target).value
    passes = records * mu / math.sqrt(parameters) / _SIGNAL_OF_A_PASS
    batch = min(records // _SHARE, _LARGEST_BATCH)
    steps = max(1, round(min(max(passes, _LEAST_PASSES), _MOST_PASSES) * records / batch))
    noise = calibration.noise_multiplier(target, sample_rate=batch / records, steps=steps).value
    clip, step = 1.0, _NETWORK_STEP
    if row_norm is not None:
        clip = 0.5 if check.positive("row_norm", row_norm) <= _LONG_ROWS else 0.1
        step = _LINEAR_STEP / row_norm
    return Recommendation(
        clip_norm=clip,
        batch_size=batch,
        steps=steps,
        target=target,
        records=records,
        parameters=parameters,
        learning_rate=step / clip * min(1.0, mu / _FULL_MU),
        momentum=_MOMENTUM,
        expected_noise=noise,
        signal_to_noise=batch / (noise * math.sqrt(parameters)),
    )
