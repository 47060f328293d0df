"""A correct trainer in a dozen lines, and known violations of public libraries as changes of it.

Each follows the public description of an issue or a paper; no code of the libraries is used.
"""

from __future__ import annotations

import numpy as np


def clipped(batch, clip_norm, order=2):
    """Rows scaled to norm `clip_norm` at most; a row that is no number adds nothing."""
    with np.errstate(all="ignore"):
        rows = batch.astype(np.float64)
        rows[~np.isfinite(rows).all(axis=1)] = 0.0
        norms = np.linalg.norm(rows, ord=order, axis=1, keepdims=True)
        return rows * np.minimum(1.0, clip_norm / np.maximum(norms, 1e-12))


class Correct:
    """DP-SGD with Poisson batches; subclasses change one thing."""

    def __init__(self, seed=None):
        self.draw = np.random.default_rng(seed)

    def __call__(self, records, *, steps, clip_norm, noise_multiplier, sample_rate, expected_batch_size):
        self.clip_norm, self.noise_multiplier, self.rate = clip_norm, noise_multiplier, sample_rate
        self.expected = expected_batch_size
        self.begin(records, steps)
        releases = []
        for step in range(steps):
            batch = self.batch(records, step)
            noise = self.noise(records.shape[1], step)
            releases.append((self.total(batch) + noise) / self.divisor(batch, records))
        return np.array(releases)

    def begin(self, records, steps):
        pass

    def batch(self, records, step):
        return records[self.draw.random(len(records)) < self.rate]

    def total(self, batch):
        return clipped(batch, self.clip_norm).sum(axis=0)

    def noise(self, width, step):
        return self.draw.normal(0, self.noise_multiplier * self.clip_norm, width)

    def divisor(self, batch, records):
        return self.expected


class RealisedDivisor(Correct):
    """The sum is divided by the number of records that were drawn."""

    def divisor(self, batch, records):
        return max(1, len(batch))


class DivisorFromRecords(Correct):
    """opacus#571, #819: the expected batch size is int(n q), which shows n."""

    def divisor(self, batch, records):
        return max(1, int(len(records) * self.rate))


class Shuffle(Correct):
    """opacus#80, tensorflow/privacy#19: passes over shuffled records, accounted as Poisson."""

    def begin(self, records, steps):
        size = max(1, round(self.rate * len(records)))
        whole = len(records) // size * size
        self.order = np.concatenate([self.draw.permutation(len(records))[:whole] for _ in range(steps + 1)])

    def batch(self, records, step):
        size = max(1, round(self.rate * len(records)))
        return records[self.order[step * size : (step + 1) * size]]


class FixedSize(Correct):
    """jax_privacy#84: batches of a fixed size, accounted as Poisson."""

    def batch(self, records, step):
        size = max(1, round(self.rate * len(records)))
        return records[self.draw.choice(len(records), size, replace=False)]


class WithReplacement(Correct):
    """Batches drawn with replacement, in which a record may be twice."""

    def batch(self, records, step):
        size = self.draw.poisson(self.rate * len(records))
        return records[self.draw.integers(0, len(records), size)]


class Microbatches(Correct):
    """tensorflow/privacy#81, #620: means of microbatches are clipped, and neighbours differ by 2 C."""

    def total(self, batch):
        if not len(batch):
            return super().total(batch)
        means = [clipped(batch[i : i + 2], np.inf).mean(axis=0) for i in range(0, len(batch), 2)]
        return clipped(np.array(means), self.clip_norm).sum(axis=0)


class NoiseOnAverage(Correct):
    """tensorflow/privacy#153: noise of std sigma C / batch is forgotten to be that of the sum, or the reverse."""

    def noise(self, width, step):
        return super().noise(width, step) / self.expected


class WrongFactor(Correct):
    """Tramer et al. 2022: gradients of the mean loss are scaled by the batch size after the clip."""

    def total(self, batch):
        return super().total(batch) * max(1, len(batch))


class ReusedNoise(Correct):
    """opacus#143: two optimizer steps under one draw of the noise."""

    def noise(self, width, step):
        if step % 2 == 0:
            self.kept = super().noise(width, step)
        return self.kept


class NanPasses(Correct):
    """A NaN gradient passes the clip and reaches every weight."""

    def total(self, batch):
        with np.errstate(all="ignore"):
            rows = batch.astype(np.float64)
            norms = np.linalg.norm(rows, axis=1, keepdims=True)
            return (rows * np.minimum(1.0, self.clip_norm / np.maximum(norms, 1e-12))).sum(axis=0)


class LargestEntry(Correct):
    """The clip is of the largest entry and the noise that of the Euclidean norm."""

    def total(self, batch):
        return clipped(batch, self.clip_norm, order=np.inf).sum(axis=0)


class NoClip(Correct):
    """Gradients are not clipped."""

    def total(self, batch):
        return clipped(batch, np.inf).sum(axis=0)


class BatchClip(Correct):
    """The mean of the batch is clipped instead of its records."""

    def total(self, batch):
        if not len(batch):
            return super().total(batch)
        return clipped(batch.sum(axis=0, keepdims=True), self.clip_norm)[0] * len(batch)


class FixedSeed(Correct):
    """Noise is drawn from a seed that is the same in every call."""

    def begin(self, records, steps):
        self.draw = np.random.default_rng(0)


class VarianceAsDeviation(Correct):
    """The variance is given where the deviation is due."""

    def noise(self, width, step):
        return self.draw.normal(0, (self.noise_multiplier * self.clip_norm) ** 2, width)


class NoiseWithoutClip(Correct):
    """The clipping norm is left out of the noise."""

    def noise(self, width, step):
        return self.draw.normal(0, self.noise_multiplier, width)


class EmptyBatchSkipped(Correct):
    """A step on an empty batch adds no noise, which shows that it was empty."""

    def __call__(self, records, **given):
        self.found = 1
        return super().__call__(records, **given)

    def batch(self, records, step):
        batch = super().batch(records, step)
        self.found = len(batch)
        return batch

    def noise(self, width, step):
        return super().noise(width, step) * (self.found > 0)


class OneLayerWithoutNoise(Correct):
    """The last coordinates get no noise."""

    def noise(self, width, step):
        noise = super().noise(width, step)
        noise[-8:] = 0
        return noise


class UniformNoise(Correct):
    """Uniform noise of the right variance."""

    def noise(self, width, step):
        reach = np.sqrt(3) * self.noise_multiplier * self.clip_norm
        return self.draw.uniform(-reach, reach, width)


class SharedByWorkers(Correct):
    """Noise is divided by the square root of the number of workers, and only one adds it."""

    def noise(self, width, step):
        return super().noise(width, step) / np.sqrt(2)


class HalfPrecision(Correct):
    """Norms overflow in half precision, and the record passes as one that is not long."""

    def total(self, batch):
        with np.errstate(all="ignore"):
            norms = np.linalg.norm(batch.astype(np.float16), axis=1, keepdims=True).astype(np.float64)
        norms[~np.isfinite(norms)] = 0.0
        rows = np.nan_to_num(batch.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
        return (rows * np.minimum(1.0, self.clip_norm / np.maximum(norms, 1e-12))).sum(axis=0)


class Truncated(Correct):
    """Batches are cut at a memory limit that the account does not know."""

    def batch(self, records, step):
        return super().batch(records, step)[:9]


class TwiceTheRate(Correct):
    """Records are drawn at twice the accounted rate (one over the wrong number of batches)."""

    def batch(self, records, step):
        return records[self.draw.random(len(records)) < 2 * self.rate]


class DecayingNoise(Correct):
    """Noise falls by a thousandth at every step."""

    def noise(self, width, step):
        return super().noise(width, step) * 0.999**step


class CentredBatches(Correct):
    """The mean of the batch is taken off its records before they are clipped."""

    def total(self, batch):
        with np.errstate(all="ignore"):
            return super().total(batch - batch.mean(axis=0, keepdims=True) if len(batch) else batch)


class StepsFollowData(Correct):
    """The number of steps of a pass follows the number of records."""

    def __call__(self, records, *, steps, **given):
        return super().__call__(records, steps=steps + len(records) % 2, **given)


VIOLATIONS = [kind for kind in list(globals().values()) if isinstance(kind, type) and issubclass(kind, Correct)][1:]
