"""Variational inference with concealed parameters: samples as the only release, their claimed and their proven cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from tacit import check
from tacit.accounting import Ledger, accountant, exact_path
from tacit.accounting.bayesian import Bayesian
from tacit.clipping import FlatClip
from tacit.erm.release import ledger_and_stream
from tacit.gradients import ClippedSum
from tacit.mechanisms import Approximate, Gaussian, Mechanism
from tacit.noise import Stream, rounded_gaussian
from tacit.sampling import PoissonSampler
from tacit.tradeoff import TradeOff
from tacit.tradeoff.gaussian import gaussian_epsilon
from tacit.variational.dpvi import first
from tacit.variational.likelihoods import Likelihood, check_captured
from tacit_papers.improved_accounting.bayesian_observer import Pairs

# mu beyond which a path costs everything at any usual delta; the accountants' grids do not hold larger ones.
_LARGEST_MU = 50.0
# The tail of the binomial is computed to a few units of the last place.
_ROUNDED_UP = 1 + 1e-9
# Records, in units of the public size, that the allowance for rounding of the state holds for.
_MOST_RECORDS = 4


@dataclass(frozen=True, eq=False)
class Samples:
    """Parameter vectors that were released in place of a posterior, shape (count, d).

    Example:
        >>> from tacit.variational import LogisticLikelihood
        >>> Samples(torch.zeros(3, 2), LogisticLikelihood()).predict_proba(torch.ones(1, 2)).tolist()
        [[0.5, 0.5]]
    """

    values: Tensor
    likelihood: Likelihood

    def predict_proba(self, inputs: Tensor | np.ndarray) -> Tensor:
        """Predictions averaged over the samples."""
        x = torch.as_tensor(inputs, dtype=self.values.dtype)
        return torch.stack([self.likelihood.predict(w, x) for w in self.values]).mean(0)


@dataclass(frozen=True, eq=False)
class Concealed:
    """Releases of an inference with concealed parameters, and their cost.

    Attributes:
        drawn: samples of the final posterior, with which predictions are made.
        path: the samples of training, shape (steps, d).
        std: of every sample in every coordinate, public.
        cost: proven cost of path and drawn samples together.
        ledger: its record.
        claimed: the paper's generic accountant, sample by sample; standing claimed. It is below the truth.
        bayesian: the paper's Bayesian accountant on held-out pairs, where such were given; no DP guarantee either.

    Example:
        >>> Concealed.__dataclass_fields__["bayesian"].type
        'TradeOff | None'
    """

    drawn: Samples
    path: Tensor
    std: float
    cost: PathCost
    ledger: Ledger
    claimed: TradeOff
    bayesian: TradeOff | None


def infer_concealed(
    likelihood: Likelihood,
    inputs: Tensor,
    targets: Tensor,
    *,
    clip_norm: float,
    steps: int,
    sample_rate: float,
    noise_multiplier: float,
    learning_rate: float,
    public_size: int | None = None,
    prior_std: float = 1.0,
    samples: int = 10,
    held_out: tuple[Tensor, Tensor] | None = None,
    pairs: int = 64,
    failure: float = 1e-7,
    ledger: Ledger | None = None,
    stream: Stream | None = None,
    seed: int = 0,
    on_plan: Callable[[Mechanism], object] | None = None,
    on_step: Callable[[int, int], None] | None = None,
) -> Concealed:
    """The inference of Triastcyn & Faltings (2019): no noise on gradients, the posterior's own samples as release.

        theta_t ~ N(phi_t, s^2 I)
        phi_{t+1} = phi_t - eta ( (1 / b) sum_{i in batch} clip(g_i(theta_t)) + phi_t / (n v) )

    with n the `public_size`, b = sample_rate n, v = prior_std^2 and s = noise_multiplier eta clip_norm / b, so that one
    record moves phi by clip_norm eta / b in a step, 1 / noise_multiplier standard deviations. The paper accounts for
    each sample as for a fresh Gaussian mechanism of that size. But phi persists: a change made in one step remains in
    every later sample, so that sample t differs by up to as many such shifts as batches the record was in. The ledger
    records that (`path_cost`), which is exact up to the worst order of those batches; `claimed` and `bayesian` are the
    paper's.
    Noise is exact, and larger by what rounding adds to a shift (`state_rounding`, `ClippedSum.slack`).
    (The paper also learns s. Then nothing finite is proven at all, because s depends on the data, too.)

    Args:
        likelihood: see `tacit.variational.likelihoods`.
        inputs: (n, features), with a column of ones if an intercept is wanted.
        targets: (n,).
        clip_norm: > 0, of one record's gradient.
        steps: >= 1; as many samples are released along the way.
        sample_rate: of Poisson sampling, in (0, 1].
        noise_multiplier: > 0, see above.
        learning_rate: eta > 0, at most n prior_std^2.
        public_size: public number of records, >= 1, which b and the prior's part follow; without it the private number
            decides both, and add_remove is stated as zero_out.
        prior_std: of every parameter, > 0.
        samples: released at the end, for predictions, >= 1.
        held_out: records that training must not see, for the Bayesian accountant; none, no such number.
        pairs: of held-out records; see `Pairs`.
        failure: see `path_cost`.
        ledger: written to before the first step; a new one by default.
        stream: source of samples and batches; the secure stream by default.
        seed: of the pairs.
        on_plan: called before the first step with the mechanism for the ledger.
        on_step: called with (steps taken, steps).

    Raises:
        InvalidInput: an argument is out of range, before anything is spent.

    Example:
        >>> from tacit.variational import LogisticLikelihood
        >>> x, y = torch.randn(50, 2), torch.arange(50) % 2
        >>> settings = {"clip_norm": 1.0, "steps": 3, "sample_rate": 0.2, "noise_multiplier": 5.0, "learning_rate": 1.0}
        >>> infer_concealed(LogisticLikelihood(), x, y, **settings).path.shape
        torch.Size([3, 2])
    """
    n = len(targets) if public_size is None else check.count("public_size", public_size)
    if len(targets) > _MOST_RECORDS * n:
        raise check.fail("public_size", "near the number of records", public_size, "Declare a public number like it.")
    size = likelihood.size(inputs.shape[1])
    sigma = check.positive("noise_multiplier", noise_multiplier)
    rate = check.probability("sample_rate", sample_rate, open_low=True, hint="Use batch_size / n.")
    planned, count = check.count("steps", steps), check.count("samples", samples)
    pull = check.positive("learning_rate", learning_rate) / (n * check.positive("prior_std", prior_std) ** 2)
    check.real("learning_rate / (n prior_std^2)", pull, low=0.0, high=1.0)
    step_size = learning_rate / (rate * n)
    std = sigma * step_size * check.positive("clip_norm", clip_norm)
    paid = path_cost(
        noise_multiplier=sigma, sample_rate=rate, steps=planned, samples=count, kept=1 - pull, failure=failure
    )
    point = Point(likelihood, size)
    observer = None
    if held_out is not None:
        x, y = held_out
        both = {"inputs": x, "targets": y}
        observer = _HeldOutAccountant(Pairs(point, both, y, loss=first, count=pairs, clip_norm=clip_norm, seed=seed))
    clipped = ClippedSum(point, FlatClip(clip_norm), expected_batch_size=rate * n)
    nu = clipped.slack + state_rounding(planned, _MOST_RECORDS * n, pull)
    ledger, stream = ledger_and_stream(ledger, stream, exact=exact_path(nu))
    if public_size is None:
        ledger.leave_places()
    check_captured(likelihood, (inputs, targets), ledger)
    if on_plan is not None:
        on_plan(paid.mechanism)
    for part, times in paid.mechanism.parts():
        ledger.add(part, times, "samples around concealed parameters")
    sampler = PoissonSampler(len(targets), rate, stream)
    phi, path = torch.zeros(size, dtype=torch.float64), []

    def released() -> Tensor:
        return torch.from_numpy(rounded_gaussian(phi.numpy(), stream, std=std * (1 + nu)))

    for taken in range(planned):
        point.place(released())
        path.append(point.w.detach().clone())
        if observer is not None:
            observer.observe(rate, sigma, clip_norm, steps=1 if taken + 1 < planned else 1 + count)
        batch = sampler.issue()
        sampler.redeem(batch)
        x, y = inputs[batch.indices], targets[batch.indices]
        total, _ = clipped(first, {"inputs": x, "targets": y}, y)
        phi = (1 - pull) * phi - step_size * total.flat.double()
        if on_step is not None:
            on_step(taken + 1, planned)
    last = torch.stack([released().float() for _ in range(count)])
    published = Ledger.of(Gaussian(sigma).poisson(rate) * (planned + count), relation=ledger.relation)
    published.absorb_marks(ledger)
    bayesian = None if observer is None else observer.trade_off(published)
    drawn = Samples(last, likelihood)
    return Concealed(drawn, torch.stack(path), std, paid, ledger, accountant("generic")(published), bayesian)


@dataclass(frozen=True)
class PathCost:
    """Cost of a path of samples: that of one Gaussian mechanism, and with a small probability everything.

    Attributes:
        mu: of that mechanism, where a record is in no more batches than all but `missed` of the runs have it.
        missed: probability of the other runs.
        worst_mu: mu where the record is in all batches.

    Example:
        >>> PathCost(mu=1.0, missed=1e-6, worst_mu=9.0).epsilon(1e-7)
        inf
    """

    mu: float
    missed: float
    worst_mu: float

    def epsilon(self, delta: float) -> float:
        """Epsilon of path and samples under add_remove: delta = missed + (1 - missed) delta_mu(epsilon); inf below."""
        if check.delta(delta) <= self.missed:
            return float("inf")
        return gaussian_epsilon((delta - self.missed) / (1 - self.missed), self.mu)

    @property
    def mechanism(self) -> Mechanism:
        """Mechanism for a ledger; that of `worst_mu` where mu is too large for composition, and for any use."""
        if self.missed == 0 or self.mu > _LARGEST_MU:
            return Gaussian(1 / self.worst_mu)
        return Gaussian(1 / self.mu) + Approximate(0.0, self.missed)


def path_cost(
    *, noise_multiplier: float, sample_rate: float, steps: int, samples: int, kept: float = 1.0, failure: float = 1e-7
) -> PathCost:
    """Proven cost of the samples around concealed parameters, those along the way and those at the end.

        mu^2 = ( sum_{t < steps} a_t^2 + samples a_steps^2 ) / noise_multiplier^2,   a_t = sum_{j < min(t, k)} kept^j

    Given which batches a record is in, which no data decide, sample t is a Gaussian mechanism of sensitivity
    sum_{s < t, in batch s} kept^{t - 1 - s}, because every other record's gradient is taken at the same released point;
    Gaussian mechanisms compose exactly, also adaptively (Dong, Roth & Su 2019, Corollary 2). With probability at least
    1 - `failure` a record is in at most k batches, and a_t bounds what any k of them move. A mixture over data-free
    coins is no easier to tell apart than its worst part.

    Args:
        noise_multiplier: std of a sample over what one record moves in a step, > 0.
        sample_rate: Poisson, in (0, 1].
        steps: samples released along the way, >= 1.
        samples: samples released at the end, >= 1.
        kept: share of the shift that a step of the prior leaves, in [0, 1].
        failure: in (0, 1); adds to delta.

    Raises:
        InvalidInput: an argument is out of range.

    Example:
        >>> round(path_cost(noise_multiplier=10.0, sample_rate=1.0, steps=2, samples=1).mu, 3)
        0.224
    """
    from scipy.special import bdtrc

    sigma = check.positive("noise_multiplier", noise_multiplier)
    rate = check.probability("sample_rate", sample_rate, open_low=True)
    check.probability("failure", failure, open_low=True, open_high=True)
    times = np.arange(check.count("steps", steps) + 1)
    tails = bdtrc(times, steps, rate)
    k = max(int(np.argmax(tails <= failure)), 1)
    reach = np.concatenate([[0.0], np.cumsum(check.probability("kept", kept) ** np.arange(steps))])

    def mu(most: int) -> float:
        shifts = reach[np.minimum(times, most)]
        return float(np.sqrt(np.sum(shifts[:-1] ** 2) + check.count("samples", samples) * shifts[-1] ** 2)) / sigma

    return PathCost(mu(k), float(tails[k]) * _ROUNDED_UP, mu(steps))


def state_rounding(steps: int, records: int, pull: float) -> float:
    """What rounding of the state phi adds to the distance of neighbours, as a share of the shift of one step.

    An update errs by 3 units of ||phi||, in double precision, which m = min(steps, 1 / pull) times records shifts
    bound, and errors add up to m of them; neighbours may err in opposite directions. Before a record's first batch
    nothing differs, and after it the shift of one step is the least that the accounting takes.

    Args:
        steps: >= 1.
        records: n, which bounds a batch.
        pull: of the prior, in [0, 1].

    Example:
        >>> state_rounding(1000, 60_000, 0.0) < 1e-4
        True
    """
    lasting = min(float(steps), 1 / pull) if pull else float(steps)
    # Twice the norm that a real state can have: computed ones are within a share of it.
    return 2 * 3 * 2.0**-53 * lasting**2 * 2 * records


class Point(nn.Module):
    """The negative log likelihood of each record at one parameter vector."""

    def __init__(self, likelihood: Likelihood, size: int):
        super().__init__()
        self.likelihood = likelihood
        self.w = nn.Parameter(torch.zeros(size))

    @torch.no_grad()
    def place(self, w: Tensor) -> None:
        """Set the parameter vector to `w`."""
        self.w.copy_(w)

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Negative log likelihood of each record, shape (batch,)."""
        return -self.likelihood.log_likelihood(self.w, inputs, targets)


class _HeldOutAccountant:
    """The Bayesian accountant, v1, on pairs of held-out records."""

    def __init__(self, pairs: Pairs):
        self._pairs, self._accountant = pairs, Bayesian()

    def observe(self, sample_rate: float, noise_multiplier: float, clip_norm: float, *, steps: int) -> None:
        """Count the pairs' differences at the present parameters for `steps` steps."""
        self._accountant.observe(
            self._pairs.differences().double().numpy(),
            sample_rate=sample_rate,
            noise_multiplier=noise_multiplier,
            clip_norm=clip_norm,
            steps=steps,
        )

    def trade_off(self, ledger: Ledger) -> TradeOff:
        """The estimate for the steps of `ledger`."""
        return self._accountant(ledger, relation=ledger.relation)
