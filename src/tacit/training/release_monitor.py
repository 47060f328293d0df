"""`ReleaseMonitor`: what a run releases, measured against its ledger by other code than that which made it.

Every step: the step is in the ledger, a batch holds no record twice, released sums lie on the grid of exact noise, and
what the noise was drawn for is what the ledger has. At the first steps, and at later ones further and further apart:
the clipped sum against separate backward passes in double precision, and the law of noise and batches so far.
A correct run raises an alarm with a probability below one in a million; no message holds a private value.
"""

import math
import operator
import random

import numpy as np
import torch
from torch import Tensor

from tacit.accounting import Ledger
from tacit.clipping import AdaptiveClip, Clip
from tacit.errors import Refused, TacitError
from tacit.gradients import ClippedSum, FlatGradient
from tacit.gradients.inputs import PhysicalBatch
from tacit.gradients.sums import TOLERANCE, difference_of_sum
from tacit.mechanisms import Gaussian, MatrixGaussian, Mechanism, Strategy
from tacit.noise import SecureStream, SeededStream, Stream
from tacit.noise.correlated import Whitening
from tacit.noise.rounded_gaussian import grid_of
from tacit.sampling import Batch
from tacit.standing import Standing
from tacit.training.release import Correlation, Release
from tacit.training.release_statistics import BatchStatistics, NoiseStatistics, refuse

_WINDOW = 2**17  # coordinates of a release that are looked at, a stretch that is chosen anew for every run
_LATER = 1024  # of so many later steps one more is looked at, of a run whose choices need not repeat
_FULL = (torch.float32, torch.float64)
_BRANCH = "A model or loss that branches on len(x) computes something else for one: leave that out. Otherwise"
_GROSS = 0.1  # relative difference of a clipped sum that no rounding makes; a smaller one must come twice


class ReleaseMonitor:
    """Measurements of one run.

    Args:
        ledger: of the run.
        records: number of records.
        stream: of the run; the law of other streams than the library's own is not tested.
        uniform: see `Sampling`; batches of other samplings are not tested for their law.
        strategy: of correlated noise, see `begins`; None for noise that is independent from step to step.

    Attributes:
        due: whether the clipped sum of the step under way is to be compared.

    Example:
        >>> from tacit.noise import SeededStream
        >>> import numpy as np
        >>> monitor = ReleaseMonitor(Ledger(), 10, SeededStream(0))
        >>> monitor.issued(Batch(np.array([3])), step=1)
        >>> monitor.due
        True
    """

    def __init__(
        self, ledger: Ledger, records: int, stream: Stream, *, uniform: bool = True, strategy: Strategy | None = None
    ):
        self._ledger = ledger
        self._noise, self._batches = NoiseStatistics(), BatchStatistics(records)
        self._tested, self._secure = type(stream) in (SecureStream, SeededStream), stream.secure
        self._uniform = uniform
        self._draw = random.SystemRandom()
        self._start = self._draw.random()
        self._step, self._differed = 0, False
        self._noise_multiplier = self._slack = 0.0
        self._before: tuple[np.ndarray, Clip] | None = None
        self._released = 0
        self.due = False
        self._batch: Batch | None = None
        self._said = 1
        self._stated: tuple[float, Mechanism, Clip] | None = None
        self._whitening: Whitening | None = None
        self._correlated, self._width = strategy is not None, _WINDOW
        if strategy is not None:
            self.begins(strategy)

    def begins(self, strategy: Strategy) -> None:
        """Measure the noise of a run from its first step on, or of what is left of one, correlated by `strategy`."""
        self._slack_of = Correlation(strategy).slack
        self._width = max(1, _WINDOW // min(strategy.bands, _WINDOW))
        self._whitening = Whitening(strategy)

    def goes_on(self) -> None:
        """Leave correlated noise unmeasured: a seeded run goes on, and its earlier releases are not kept."""
        self._whitening = None

    def issued(self, batch: Batch, step: int) -> None:
        """Take `batch` as that of the step under way, counted from 1."""
        if batch is not self._batch:
            self.due = self._differed or self._is_due(step)
        self._batch, self._said = batch, step

    def charged(self, batch: Batch, noise_multiplier: float, clip: Clip, steps: int) -> None:
        """Measure a step that is charged.

        Args:
            batch: the batch.
            noise_multiplier: that its noise will have.
            clip: of the step.
            steps: that the ledger had before, or that were covered.

        Raises:
            Refused: the ledger does not hold this step, or the batches are not those that it states.
        """
        self._step += 1
        if self._ledger.counted != steps + 1:
            self._refuse("every step must be in the ledger; one is missing.")
            return
        mechanism = self._ledger.latest
        self._noise_multiplier = self._stated_noise(noise_multiplier, mechanism, clip)
        if said := self._batches.add(batch, mechanism):
            self._refuse(f"batches must be those that the ledger states; they {said}.")
        if self._looks and self._tested and self._uniform and (said := self._batches.alarm()):
            self._refuse(f"batches must be those that the ledger states; they {said}.")

    def compare_sum(self, clipped: ClippedSum, batch: PhysicalBatch, total: FlatGradient, clip: Clip) -> None:
        """Compare a clipped sum with one by another way; see `difference_of_sum`.

        Args:
            clipped: the model.
            batch: the records and their loss.
            total: the clipped sum.
            clip: that the noise follows.

        Raises:
            UnsupportedModel: a contribution is longer than the sensitivity.
            Refused: the sum is another.
        """
        drawn = self._batch
        owners = None if drawn is None or drawn.owners is None else torch.from_numpy(drawn.owners)
        try:
            found = difference_of_sum(
                clipped, batch, clip, total.flat, owners, average=drawn is not None and drawn.average
            )
        except TacitError as error:
            self._claimed()
            refuse(error)
            return
        if found is None:
            return
        if not found <= TOLERANCE:
            if self._differed or not found <= _GROSS:
                self._refuse("the clipped sum of a batch must equal that of its records one by one.", _BRANCH)
                return
            # Where an activation is 0 up to rounding, two ways may take either of two gradients: once, not twice.
            self._differed = True
            return
        self._differed = False
        self._ledger.facts.checked("arithmetic", step=self._said)

    def summed(self, clip: Clip, total: FlatGradient, units: int) -> None:
        """Keep what is about to be released, before its noise; raises `Refused` for more units than the batch has."""
        drawn = self._batch
        if drawn is not None and units > len(drawn.indices if drawn.owners is None else np.unique(drawn.owners)):
            self._refuse("every unit of a batch must be in its sum once; one is in it again.")
        self._slack = total.slack
        flat = total.flat.clone() if clip.of_mean else total.flat
        if clip.of_mean:
            clip.finish(flat, units)
        self._before = np.array(_array(self._part(flat))), clip

    def released(self, release: Release, divisor: float) -> None:
        """Measure the noise that was added since `summed`.

        Args:
            release: the noisy mean.
            divisor: public, of the noisy sum; 1 for a clip of the mean.

        Raises:
            Refused: the noise is not what the ledger states.
        """
        assert self._before is not None
        (before, clip), self._before = self._before, None
        self._released = self._step
        if self._correlated:
            self._measure_estimate(self._part(release.mean.flat) * divisor, before, clip)
            return
        std = self._noise_multiplier * clip.sensitivity * (1 + self._slack)
        if not std or not 2.0**-100 <= std <= 2.0**100:
            return
        tau, grid = grid_of(std)
        # Few values are measured by numpy in a third of the time that as many operations of torch take.
        multiples = _array(self._part(release.mean.flat)) * ((1.0 if clip.of_mean else divisor) / grid)
        # Where single precision resolves less than a thousandth of the grid, its rounding hides both.
        if not multiples.size or not _within(multiples, 1e-3 * 2.0**22):
            return
        whole = np.rint(multiples)
        if not _within(np.subtract(multiples, whole, out=multiples), 1e-2):
            self._refuse("released sums must lie on the grid of exact noise; one does not.")
        if not self._tested:
            return
        # A rounded normal value has the variance of the cell besides its own.
        size = math.sqrt(1 + (grid / tau) ** 2 / 12) * tau
        whole *= grid / size
        before /= size
        whole -= before
        self._judge_noise(whole)

    def _measure_estimate(self, noisy: Tensor, before: np.ndarray, clip: Clip) -> None:
        """Measure correlated noise: that of the rows which the estimates so far are made of."""
        if self._whitening is None or not self._tested:
            return
        std = self._noise_multiplier * clip.sensitivity * (1 + self._slack_of(self._slack))
        largest = float(noisy.abs().max()) if noisy.numel() else 0.0
        if not noisy.numel() or not largest * 2.0**-22 < 1e-3 * std or noisy.dtype not in _FULL:
            # A row is made of all steps before it.
            self._whitening = None
            return
        self._judge_noise(self._whitening.add(_array(noisy) - before) / std)

    def _part(self, flat: Tensor) -> Tensor:
        """The coordinates of a release that are looked at."""
        others = flat.numel() - self._width
        if others <= 0:
            return flat
        first = int(self._start * (others + 1))
        return flat[first : first + self._width]

    def _judge_noise(self, values: np.ndarray) -> None:
        self._noise.add(values)
        if self._looks and (said := self._noise.alarm()):
            self._refuse(f"noise must be that which the ledger states; it is {said}.")

    def taken(self) -> None:
        """Raise `Refused` where the step that was charged last has released nothing, as it must on an empty batch."""
        if self._released != self._step:
            self._refuse("every step must release a noisy sum; one did not.")

    def resumed(self, continues: bool) -> None:
        """Raise `Refused` unless the stream of a resumed run `continues` where the checkpoint was taken."""
        if not continues:
            self._refuse("a resumed run must draw on where it stopped; its stream would repeat noise.")

    def follows(self, clip: Clip, noise: Clip) -> None:
        """Raise `Refused` unless sums are clipped by the `clip` that the `noise` is drawn for."""
        if clip is not noise and clip != noise:
            self._refuse("sums must be clipped by the bound that the noise follows; they would be by another.")

    @property
    def _looks(self) -> bool:
        """Whether the laws so far are tested: at step 1, 2, 4, 8, ..."""
        return self._step & (self._step - 1) == 0

    def _is_due(self, step: int) -> bool:
        """Whether the sum of step 1, 2, 4, 16, 64, ... is compared, or a later one now and then.

        In a seeded run, which must repeat however often it is stopped, the number of the step decides alone.
        """
        if step == 2 or (step & (step - 1) == 0 and step.bit_length() % 2 == 1):
            return True
        return self._secure and (not self._step or self._draw.random() * _LATER < 1)

    def _stated_noise(self, noise_multiplier: float, mechanism: Mechanism, clip: Clip) -> float:
        """`noise_multiplier`, unless the ledger has another."""
        step = noise_multiplier, mechanism, clip
        if self._stated is not None and all(map(operator.is_, step, self._stated)):
            return noise_multiplier
        stated = _gaussian(mechanism)
        if stated is None:
            return 0.0
        made = clip.mechanism(noise_multiplier, unsafe_no_noise=not noise_multiplier).noise_multiplier
        if isinstance(clip, AdaptiveClip) and noise_multiplier:
            # Sum and count together are one mechanism, whose noise is the root of the sum of inverse squares.
            count = clip.statistic_std(noise_multiplier)
            largest = max(abs(clip.statistic(torch.tensor([norm * clip.clip_norm]))) for norm in (0.0, 0.5, 2.0))
            inverse = noise_multiplier**-2 + ((largest / count) ** 2 if count else math.inf)
            made = inverse**-0.5
        if not math.isclose(made, stated.noise_multiplier, rel_tol=1e-9):
            self._refuse("noise must be that which the ledger states; a step would have another.")
        else:
            self._stated = step
        return noise_multiplier

    def _refuse(self, says: str, unless: str = "This is no fault of the loop:") -> None:
        self._claimed()
        refuse(Refused(f"{says} {unless} report it, with the versions of tacit and torch."))

    def _claimed(self) -> None:
        if self._said > 1:
            self._ledger.mark_unsafe("a measurement of the releases failed after private steps", Standing.CLAIMED)


def _array(values: Tensor) -> np.ndarray:
    """In double precision; may share memory with `values`."""
    return values.detach().cpu().double().numpy()


def _within(values: np.ndarray, bound: float) -> bool:
    """Whether no value exceeds `bound`, or is NaN; mostly known from the sum of squares, which takes one pass."""
    return bool(values @ values <= bound * bound or np.abs(values).max() <= bound)


def _gaussian(mechanism: Mechanism) -> Gaussian | MatrixGaussian | None:
    """The Gaussian mechanism that runs on a sample."""
    inner: object = mechanism
    while isinstance(inner, Mechanism) and not isinstance(inner, Gaussian | MatrixGaussian):
        inner = getattr(inner, "base", None)
    return inner if isinstance(inner, Gaussian | MatrixGaussian) else None
