"""Input perturbation: on summed statistics, tables and labels, proven, and as published.

`InputPerturbation` makes a perturbed table for any other learner, `randomised_labels` its labels.
`Aggregate` (mode A2) adds up perturbed statistics, with a local guarantee for each contributor beside the central one;
`PaperInput` (Kang, Liu, Niu, Tong, Zhang & Wang, arXiv 2002.08570) is claimed, refuted if T is small against n;
`Fukuchi` (Fukuchi, Tran & Sakuma 2017) sums up to objective perturbation; `Shuffled` (Feldman, McMillan & Talwar 2021)
trusts a shuffler.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from sklearn.base import OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from tacit import check
from tacit.accounting import Ledger
from tacit.calibration import smallest
from tacit.erm.base import PUBLIC, PrivateEstimator, checked_rows, indices_of, target_for
from tacit.erm.design import Design, declared_bounds, largest_norm
from tacit.erm.losses import HuberHinge, Logistic, Squared
from tacit.erm.release import Method, Release, Terms, guarantee_of, lipschitz, stated
from tacit.erm.solver import Problem, check_unit_rows, sum_rounding
from tacit.mechanisms import Approximate, Gaussian, Mechanism, RandomizedResponse
from tacit.noise import SecureStream, Stream
from tacit.noise.discrete import uniform_integers
from tacit.relation import Relation
from tacit.root_finding import bracketed_root
from tacit.standing import Standing
from tacit.tradeoff import GaussianCurve, Target, TradeOff
from tacit.tradeoff.gaussian import gaussian_mu
from tacit.variational.linear import noisy_symmetric
from tacit_papers.input_perturbation.objective_methods import KiferObjective, approximate

# What the ledger records as assumed of the contributors.
SHARES = "every one of the n places sends its message, a removed record the message of a zero row"
LABELS = "labels are not perturbed: the local guarantee covers the features of a record alone"


def published_std(
    *,
    lipschitz: float,
    steps: int,
    records: int,
    convexity: float,
    epsilon: float,
    delta: float,
    constant: float = 1.0,
    convexity_power: float = 0.5,
) -> float:
    """Noise standard deviation of equation (9): sigma^2 = c G^2 T log(1/delta) / (n (n - 1) Delta^a epsilon^2).

    Delta is the strong convexity of the mean loss, or its Polyak-Lojasiewicz constant (equation 52). The paper leaves c
    open ("for some constant c") and its proof gives a = 1 where the only public code has a = 1/2.

    Args:
        lipschitz: G, of the loss of one record.
        steps: T >= 1.
        records: n >= 2.
        convexity: Delta > 0.
        epsilon: > 0.
        delta: in (0, 1).
        constant: c > 0.
        convexity_power: a.
    """
    fraction = lipschitz**2 * steps * math.log(1 / delta) / (records * (records - 1) * convexity**convexity_power)
    return math.sqrt(constant * fraction) / epsilon


def true_mu(sigma: float, records: int, relation: Relation = Relation.REPLACE_ONE) -> float:
    """Exact mu of the method on the loss ||theta - x||^2 / 2, which the paper's theorem covers: 2 / (sqrt(n) sigma).

    Gradient descent returns a known multiple of mean(x_i) + N(0, sigma^2 / n I), whatever the number of steps, and one
    replaced record of the unit ball moves the mean by 2 / n (1 / n when it is zeroed). Scaling the loss by a <= G / 2
    gives an instance for any G and Delta = a, so no proof of the theorem can exist below this mu.
    """
    return relation.sensitivity / (math.sqrt(records) * sigma)


@dataclass(frozen=True, eq=False)
class LocalRelease(Release):
    """A release from records that were perturbed themselves, or of sums of their perturbed statistics.

    Attributes:
        local_mu: mu of a record's own perturbed message under replace-one.
    """

    local_mu: float = math.inf

    @property
    def local_guarantee(self) -> TradeOff:
        """Local guarantee: of one record, against whoever sees the message that it sent."""
        return gaussian_trade_off(self.local_mu, Relation.REPLACE_ONE, self.standing)

    @property
    def exchange_rate(self) -> float:
        """Local mu over central mu; sqrt(n) for aggregated statistics of n contributors."""
        return self.local_mu / float(self.guarantee.mu())

    def summary(self, delta: float) -> str:
        """Central and local epsilon at `delta`, each with its standing, and their exchange rate."""
        local = stated("local", self.local_guarantee, delta)
        return f"{super().summary(delta)}\n{local}\nexchange rate  local mu = {self.exchange_rate:.4g} x central mu"


def gaussian_trade_off(mu: float, relation: Relation, standing: Standing) -> TradeOff:
    """The trade-off of a Gaussian mechanism of `mu`."""
    return TradeOff(GaussianCurve(mu), standing, relation, "gaussian", floor=GaussianCurve(mu))


@dataclass(frozen=True, eq=False)
class ClaimedRelease(LocalRelease):
    """A release whose local guarantee is at most claimed, since a message covers only a part of its record.

    Attributes:
        floor_mu: where the central guarantee is claimed too, the mu that the true leakage is proven to reach.
    """

    floor_mu: float | None = None

    @property
    def local_guarantee(self) -> TradeOff:
        """Local guarantee, of the part of the record that is covered."""
        found = super().local_guarantee
        return replace(found, standing=Standing.weakest(found.standing, Standing.CLAIMED))

    @property
    def floor(self) -> TradeOff | None:
        """Leakage floor of a claim: reached exactly on an instance which the claim covers."""
        return None if self.floor_mu is None else gaussian_trade_off(self.floor_mu, self.relation, Standing.PROVEN)

    def summary(self, delta: float) -> str:
        """As of `Release`, with the epsilon that is proven to leak at least."""
        floor = "" if self.floor is None else f"\nleaks at least epsilon {float(self.floor.epsilon(delta)):.4g}, proven"
        return super().summary(delta) + floor


@dataclass(frozen=True)
class PaperInput(Method):
    """x_i + N(0, sigma^2 I) once per record, then T full-batch gradient steps; sigma by equation (9).

    The guarantee is the paper's and `claimed`; the release's floor is the proven leakage of the same noise on a loss
    that the theorem covers (`true_mu`). The theorem counts fresh noise in every step; `fresh_noise` draws it so.
    The strong convexity is checked: strength must be positive.

    Args:
        steps: T >= 1.
        constant: c > 0, left open by the paper.
        convexity_power: a, 1/2 or 1 by the two readings.
        fresh_noise: new noise for every record in every step.
        step_scale: step size in units of 1 / smoothness, > 0; the claim does not depend on it.

    Source: Algorithm 1 and equation (9).

    Example:
        >>> PaperInput(steps=10).standing.value
        'claimed'
    """

    family: ClassVar[str] = "input"
    name: ClassVar[str] = "paper"
    standing: ClassVar[Standing] = Standing.CLAIMED
    steps: int = 50
    constant: float = 1.0
    convexity_power: float = 0.5
    fresh_noise: bool = False
    step_scale: float = 1.0

    def __post_init__(self) -> None:
        check.count("steps", self.steps)
        check.positive("step_scale", self.step_scale)
        check.positive("constant", self.constant)
        check.real("convexity_power", self.convexity_power, low=0.0, high=1.0)

    def strength(self, problem: Problem, terms: Terms, prior_norm: float) -> float:
        """Strength n / 1000: the paper needs strong convexity and says no more."""
        return 1e-3 * problem.records

    def std(self, problem: Problem, terms: Terms) -> float:
        """Noise standard deviation sigma for this problem."""
        epsilon, delta = approximate(terms, self.name)
        check.positive("strength", problem.strength, "Theorem 1 needs strong convexity.")
        return published_std(
            lipschitz=lipschitz(problem, self.name),
            steps=self.steps,
            records=problem.records,
            convexity=problem.strength / problem.records,
            epsilon=epsilon,
            delta=delta,
            constant=self.constant,
            convexity_power=self.convexity_power,
        )

    def release(self, problem: Problem, terms: Terms) -> Release:
        """Release the last iterate of gradient descent on the perturbed records."""
        epsilon, delta = approximate(terms, self.name)
        sigma = self.std(problem, terms)
        mechanism = Approximate(epsilon, delta)
        claim_in(terms, mechanism)
        theta = self._descend(problem, terms, sigma)
        return claimed_release(theta, mechanism, terms, sigma, problem.records, self.steps)

    def _descend(self, problem: Problem, terms: Terms, sigma: float) -> np.ndarray:
        eta = self.step_scale / (problem.loss.smoothness + problem.strength / problem.records)
        theta, noisy = problem.zero(), perturbed(problem, terms, sigma)
        for taken in range(self.steps):
            if self.fresh_noise and taken:
                noisy = perturbed(problem, terms, sigma)
            theta = theta - eta / problem.records * noisy.gradient(theta)
        return theta


def perturbed(problem: Problem, terms: Terms, sigma: float) -> Problem:
    """The problem with N(0, sigma^2) added to every private feature; labels stay."""
    return replace(problem, features=perturbed_rows(problem, terms, sigma))


def claim_in(terms: Terms, mechanism: Approximate) -> None:
    """Write the paper's mechanism into the ledger, whose every number is then at most claimed."""
    terms.ledger.mark_unsafe("claimed_calibration", Standing.CLAIMED)
    terms.ledger.assume(LABELS)
    terms.charge(mechanism, "input perturbation, calibration of the paper")


def claimed_release(
    theta: np.ndarray, mechanism: Approximate, terms: Terms, sigma: float, records: int, steps: int
) -> Release:
    """Release of records that were perturbed as the paper does, with the claim, and the floor beside it.

    Args:
        theta: released parameters.
        mechanism: the claim.
        terms: which set the relation.
        sigma: noise standard deviation of every feature.
        records: n.
        steps: T, for the facts.
    """
    facts = {"noise_std": sigma, "steps": steps}
    floor, standing = true_mu(sigma, records, terms.relation), Standing.CLAIMED
    return ClaimedRelease(theta, mechanism, terms.certified, standing, facts, 2 / sigma, floor)


def perturbed_rows(problem: Problem, terms: Terms, std: float) -> np.ndarray:
    """Rows with N(0, std^2) added to every private feature, (n, p); the intercept's constant is public and stays."""
    rows, private = problem.features.copy(), problem.private_columns
    rows[:, :private] = terms.noisy(rows[:, :private], std=std, rounding=sum_rounding(1))
    return rows


def moments(problem: Problem) -> tuple[float, np.ndarray]:
    """Curvature h and answers (n, k) of the quadratic approximation of the loss: h theta^T H theta / 2 - g theta.

    H = sum x x^T, g = sum x answer^T. Squared loss: h = 1, answer = y, exact for |y| <= 1. Logistic loss:
    log 2 - m / 2 + m^2 / 8, its expansion at 0, so h = 1/4 and answer = +-1/2. Softmax likewise: h = 1/k and answer
    e_y - 1/k (the expansion's curvature is at most that of h I on the scores). Huber hinge: h = 1, answer = +-1.
    """
    loss, y = problem.loss, problem.targets
    if isinstance(loss, Squared):
        return 1.0, np.clip(y, -1.0, 1.0)[:, None]
    if isinstance(loss, Logistic):
        return 0.25, (y - 0.5)[:, None]
    if isinstance(loss, HuberHinge):
        return 1.0, (2.0 * y - 1.0)[:, None]
    return 1 / loss.outputs, np.eye(loss.outputs)[y] - 1 / loss.outputs


def answer_bound(problem: Problem) -> float:
    """Bound on the norm of one record's answer in `moments`."""
    loss = problem.loss
    if isinstance(loss, Squared | HuberHinge):
        return 1.0
    return 0.5 if isinstance(loss, Logistic) else math.sqrt(1 - 1 / loss.outputs)


def ridge(problem: Problem, curvature: float, second: np.ndarray, first: np.ndarray, floor: float) -> np.ndarray:
    """Ridge solution (h H + strength I)^{-1} g after raising H's eigenvalues to 0 and the strength to `floor`.

    Args:
        problem: which declares the strength.
        curvature: h.
        second: (p, p), noisy H; symmetrised here.
        first: (p, k), noisy g.
        floor: >= 0, public.
    """
    values, vectors = np.linalg.eigh((second + second.T) / 2)
    lifted = curvature * np.maximum(values, 0.0) + max(problem.strength, floor)
    return vectors @ ((vectors.T @ first) / lifted[:, None])


@dataclass(frozen=True)
class Aggregate(Method):
    """A2, sufficient statistics perturbation: the trainer sees only sum_i (phi_i + w_i).

    phi_i = (a svec(x x^T), c x answer^T / A), w_i ~ N(0, s^2 / n I).

    ||phi_i|| <= Phi = sqrt(a^2 + c^2), so the sum is one Gaussian step, mu = Phi / s (zero-out: the record's
    contribution is zeroed, its share of noise kept) or `replaced` / s (replace-one), whatever is computed from it. Each
    contributor adds its own w_i before a secure sum, so against whoever sees a single message it has
    mu_local = `replaced` sqrt(n) / s: the exchange rate between local and central is exactly sqrt(n) under replace-one.
    theta solves the ridge equations of `moments`, with the strength lifted to the spectral norm that the noise has
    in expectation, a public number.

    Args:
        second_share: a^2 / Phi^2 in (0, 1), how much of the budget the second moments get.

    Source: sufficient statistics perturbation (Vu & Slavkovic 2009; Wang 2018), distributed; derived here.

    Example:
        >>> Aggregate(second_share=0.3).second_share
        0.3
    """

    family: ClassVar[str] = "input"
    reads_loss: ClassVar[bool] = False
    name: ClassVar[str] = "aggregate"
    second_share: float = 0.5

    def __post_init__(self) -> None:
        check.probability("second_share", self.second_share, open_low=True, open_high=True)

    def release(self, problem: Problem, terms: Terms) -> Release:
        """Release the ridge solution of the noisy sums."""
        check_unit_rows(problem.features)
        n, width = problem.records, problem.shape[0]
        step = Gaussian(terms.gaussian())
        # Accountants take a replaced record to move the sum by 2; it moves it by `replaced`.
        moved = self.replaced / 2 if terms.relation is Relation.REPLACE_ONE else 1.0
        std = step.noise_multiplier * moved
        terms.ledger.assume(SHARES)
        terms.charge(step, "sum of perturbed statistics", exact=True)
        second, first = self.statistics(problem, terms, std)
        curvature, _ = moments(problem)
        floor = curvature * math.sqrt(2 * width) * std / math.sqrt(self.second_share)
        facts = {"noise_std": std, "local_noise_std": std / math.sqrt(n), "strength": max(problem.strength, floor)}
        theta = ridge(problem, curvature, second, first, floor)
        local_mu = self.replaced * math.sqrt(n) / std
        return LocalRelease(theta, step, terms.certified, terms.standing, facts, local_mu)

    @property
    def replaced(self) -> float:
        """Sensitivity under replace-one in units of Phi: sqrt(2 + c^4 / (2 a^2)), or 2 c where c^2 > 2 a^2; below 2.

        With u = <x, x'>, ||phi - phi'||^2 <= a^2 (|x|^4 + |x'|^4 - 2 u^2) + c^2 (|x|^2 + |x'|^2 + 2 |u|), answers being
        the worst opposite ones. For a given u it grows with |x| and |x'|, so both are 1: 2 - 2 a^2 u^2 + 2 c^2 |u|,
        which is largest at |u| = min(1, c^2 / (2 a^2)).
        """
        a, c = self.second_share, 1 - self.second_share
        u = min(1.0, c / (2 * a))
        return math.sqrt(2 - 2 * a * u**2 + 2 * c * u)

    def statistics(self, problem: Problem, terms: Terms, std: float) -> tuple[np.ndarray, np.ndarray]:
        """Sums of x x^T and of x answer^T with the sum of the contributors' noise, in their own units.

        The n shares of variance std^2 / n add up to one draw of variance std^2.
        """
        a, c = math.sqrt(self.second_share), math.sqrt(1 - self.second_share)
        _, answers = moments(problem)
        second = problem.features.T @ problem.features
        first = problem.features.T @ answers
        scale, rounding = std * answer_bound(problem) / c, sum_rounding(problem.most_records)
        return (
            noisy_symmetric(terms.stream, second, std / a * (1 + rounding)),
            terms.noisy(first, std=scale, rounding=rounding),
        )


@dataclass(frozen=True)
class Local(Method):
    """A1, local model: every record is sent once as (x, tau answer / A) + N(0, s^2 I).

    Training on the messages is post-processing.
    ||(x, tau answer / A)|| <= sqrt(r^2 + tau^2), r = 1 / sqrt(1 + c^2) the longest row without the intercept's constant
    c, which is public and not sent, so two records' messages are mu_local = 2 sqrt(r^2 + tau^2) / s apart.
    theta solves the ridge equations on the messages' moments, H less its known bias n s^2 I. The target is met locally,
    under replace-one, by every single message; the curator needs no trust.

    Args:
        label_scale: tau > 0.

    Source: the Gaussian mechanism in the local model.

    Example:
        >>> Local(label_scale=0.5).label_scale
        0.5
    """

    family: ClassVar[str] = "input"
    reads_loss: ClassVar[bool] = False
    name: ClassVar[str] = "local"
    label_scale: float = 1.0

    def __post_init__(self) -> None:
        check.positive("label_scale", self.label_scale)

    def budget(self, records: int, terms: Terms) -> tuple[float, Mechanism, Relation]:
        """Local mu, mechanism for the ledger, and the relation under which it meets the target."""
        step = local_gaussian(terms.target)
        return 2 / step.noise_multiplier, step, Relation.REPLACE_ONE

    def release(self, problem: Problem, terms: Terms) -> Release:
        """Release the ridge solution of the messages."""
        check_unit_rows(problem.features)
        check_unit_rows(problem.features[:, : problem.private_columns] / problem.private_norm)
        mu, mechanism, relation = self.budget(problem.records, terms)
        std = 2 * math.hypot(problem.private_norm, self.label_scale) / mu
        terms.ledger.assume(SHARES)
        terms.charge(mechanism, f"{self.name} messages", exact=True)
        rows, sent = self.messages(problem, terms, std)
        curvature, _ = moments(problem)
        bound, private = answer_bound(problem), problem.private_columns
        second = rows.T @ rows
        second[np.arange(private), np.arange(private)] -= problem.records * std**2
        first = rows.T @ sent * (bound / self.label_scale)
        floor = curvature * math.sqrt(2 * problem.records * problem.shape[0]) * std**2
        theta = ridge(problem, curvature, second, first, floor)
        facts = {"noise_std": std, "strength": max(problem.strength, floor)}
        return LocalRelease(theta, mechanism, relation, terms.standing, facts, mu)

    def messages(self, problem: Problem, terms: Terms, std: float) -> tuple[np.ndarray, np.ndarray]:
        """Perturbed rows (n, p) and perturbed tau answer / A (n, k)."""
        rows = perturbed_rows(problem, terms, std)
        _, answers = moments(problem)
        scaled = self.label_scale / answer_bound(problem) * answers
        return rows, terms.noisy(scaled, std=std, rounding=sum_rounding(1))


@dataclass(frozen=True)
class Shuffled(Local):
    """A3, the shuffle model: (e0, d0)-DP messages, order removed by a trusted shuffler; the target is met centrally.

    For e0 <= log(n / (16 log(2 / d))), with d the delta of the bound,

        epsilon = log(1 + (e^e0 - 1) / (e^e0 + 1) (8 sqrt(e^e0 log(4 / d) / n) + 8 e^e0 / n)),
        delta = d + (e^epsilon + 1) (1 + e^-e0 / 2) n d0;

    d takes half of delta and d0 the rest. Replace-one; a removed record's place sends a zero row.

    Source: Feldman, McMillan & Talwar 2021, Theorem 3.1 and its (e0, d0) form.

    Example:
        >>> shuffled_epsilon(1.0, 1e-6, 100_000) < 0.1
        True
    """

    name: ClassVar[str] = "shuffled"

    def budget(self, records: int, terms: Terms) -> tuple[float, Mechanism, Relation]:
        """The largest (e0, d0) that the shuffler brings down to the target."""
        epsilon, delta = approximate(terms, self.name)
        first = largest_local_epsilon(epsilon, delta / 2, records)
        d0 = delta / 2 / ((math.exp(epsilon) + 1) * (1 + math.exp(-first) / 2) * records)
        mechanism = Approximate(epsilon, delta)
        return gaussian_mu(first, d0), mechanism, terms.certified


def shuffled_epsilon(first: float, delta: float, records: int) -> float:
    """Epsilon after shuffling (e0, 0)-DP messages, by the closed form of `Shuffled`; `first` is e0."""
    power = math.exp(first)
    spread = 8 * math.sqrt(power * math.log(4 / delta) / records) + 8 * power / records
    return math.log1p(math.expm1(first) / (power + 1) * spread)


def largest_local_epsilon(epsilon: float, delta: float, records: int) -> float:
    """Largest e0 that a shuffler brings down to `epsilon`; epsilon itself where the bound does not help."""
    limit = math.log(max(records / (16 * math.log(2 / delta)), 1.0))
    if limit <= epsilon or shuffled_epsilon(epsilon, delta, records) > epsilon:
        return epsilon
    if shuffled_epsilon(limit, delta, records) <= epsilon:
        return limit
    root = bracketed_root(lambda first: shuffled_epsilon(first, delta, records) - epsilon, epsilon, limit)
    # brentq's root may lie on either side; the smaller epsilon is the safe one.
    return root * (1 - 1e-12)


@dataclass(frozen=True)
class Fukuchi(KiferObjective):
    """Every contributor adds b_i ~ N(0, nu^2 / n I) to the linear term of its own loss; nu as in `KiferObjective`.

    The n shares sum to Kifer's b, so the central guarantee is that of objective perturbation. Locally only the linear
    statistic (gradient at 0, norm <= G) is hidden, by mu_local = 2 G sqrt(n) / nu: of order epsilon sqrt(n), and the
    rest of the loss is in the clear, hence `claimed`. The random quadratic part of the original, which must keep the
    objective convex, is replaced by the deterministic strength 2 c / epsilon.

    Source: Fukuchi et al. 2017; the linear-term version is derived here.

    Example:
        >>> Fukuchi().family
        'input'
    """

    family: ClassVar[str] = "input"
    any_size: ClassVar[bool] = False
    name: ClassVar[str] = "fukuchi"

    def release(self, problem: Problem, terms: Terms) -> Release:
        """Release as in `KiferObjective`, with the local guarantee of a share."""
        terms.ledger.assume(SHARES)
        central = super().release(problem, terms)
        mu = 2 * problem.loss.lipschitz * math.sqrt(problem.records) / central.facts["noise_std"]
        share = central.facts["noise_std"] / math.sqrt(problem.records)
        facts = {**central.facts, "local_noise_std": share}
        return ClaimedRelease(central.theta, central.mechanism, central.relation, central.standing, facts, mu)


def local_gaussian(target: Target) -> Gaussian:
    """The Gaussian mechanism of least noise that meets `target` under replace-one, for one message."""
    return Gaussian(smallest("noise_multiplier", Gaussian, target, relation=Relation.REPLACE_ONE).value)


@dataclass(kw_only=True, eq=False, repr=False)
class InputPerturbation(OneToOneFeatureMixin, TransformerMixin, PrivateEstimator):
    """x -> clip(x) + N(0, s^2 I): each transformed row is mu-GDP locally, mu = 2 norm_bound / s, under replace-one.

    Rows are clipped to `data_bounds` and scaled down to `norm_bound`, and stay in their own units. Every call of
    `transform` draws new noise and adds a step to the ledger: transforming the same rows twice costs twice. Labels are
    not touched; see `randomised_labels`.

    Args:
        epsilon: of the local guarantee of one call; see `PrivateEstimator`.
        delta: of the local guarantee of one call.
        target: another local guarantee of one call, instead of epsilon and delta.
        data_bounds: (low, high) of the columns, public; the default is a constant, not read from the data.
        norm_bound: of a row's norm, public; the default is a constant, not read from the data.
        relation: of a new ledger; the local guarantee itself is replace-one.
        ledger: see `PrivateEstimator`.
        unsafe_seed: see `PrivateEstimator`.

    Attributes:
        ledger_: what was spent.
        local_guarantee_: guarantee of a row's own message.
        noise_std_: of every cell, in the units of X.

    Example:
        >>> import numpy as np
        >>> table = InputPerturbation(epsilon=1.0, delta=1e-5, unsafe_seed=0).fit_transform(np.zeros((3, 2)))
        >>> table.shape
        (3, 2)
    """

    data_bounds: tuple[Any, Any] = (-1.0, 1.0)
    norm_bound: float | None = None
    relation: str = "replace_one"

    def fit(self, X: Any, y: Any = None) -> InputPerturbation:
        """Calibrate to the number of rows; reads nothing else of X."""
        X = checked_rows(self, X, reset=True)
        low, high = declared_bounds(self.data_bounds, X.shape[1])
        norm = largest_norm(low, high, X.shape[1]) if self.norm_bound is None else self.norm_bound
        self.design_ = Design(low, high, check.positive("norm_bound", norm), 0.0)
        self.ledger_ = self._open_ledger()
        self.ledger_.assume(PUBLIC)
        self.ledger_.assume(SHARES)
        self.target_ = self._target(len(X))
        self.step_ = local_gaussian(self.target_)
        self.noise_std_ = self.step_.noise_multiplier * self.design_.norm_bound
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Perturbed rows, float64 of the shape of X; one more step in the ledger."""
        check_is_fitted(self)
        rows = self.design_.clipped(checked_rows(self, X, reset=False))
        terms = self._terms()
        terms.charge(self.step_, "perturbed table", exact=True)
        return terms.noisy(rows, std=self.noise_std_, rounding=sum_rounding(1))

    @property
    def local_guarantee_(self) -> TradeOff:
        """Local guarantee of one row, against whoever sees its perturbed copy of one call."""
        check_is_fitted(self)
        return guarantee_of(self.step_, Relation.REPLACE_ONE, self._terms().standing)

    def _terms(self) -> Terms:
        return Terms(self.target_, self.ledger_, self._stream(), weakened=self._weakened)


def randomised_labels(
    y: Any, *, classes: Sequence[Any], epsilon: float, ledger: Ledger, stream: Stream | None = None
) -> np.ndarray:
    """K-ary randomised response: each label is kept with odds e^epsilon : 1 against every other class.

    epsilon-DP for each label under replace-one, recorded in `ledger`; e^epsilon / (e^epsilon + k - 1) are kept.

    Args:
        y: labels, (n,), each one of `classes`.
        classes: k >= 2 declared labels.
        epsilon: > 0.
        ledger: written to before any label is drawn.
        stream: source of the noise; the secure stream by default.

    Raises:
        InvalidInput: a label is not declared, or epsilon is not positive.

    Example:
        >>> from tacit.accounting import Ledger
        >>> from tacit.noise import SeededStream
        >>> randomised_labels([0, 1, 1], classes=[0, 1], epsilon=9.0, ledger=Ledger(), stream=SeededStream(0)).tolist()
        [0, 1, 1]
    """
    with check.reading("y", "one label for each record"):
        labels = np.asarray(y)
    known, places = indices_of(labels, classes, strict=True)
    check.positive("epsilon", epsilon)
    source = stream if stream is not None else SecureStream()
    terms = Terms(target_for(None, epsilon, 0.0, len(places)), ledger, source)
    terms.charge(RandomizedResponse(epsilon), "labels", exact=True)
    return known[randomised_response(source, places, len(known), epsilon)]


def randomised_response(stream: Stream, answers: np.ndarray, count: int, epsilon: float) -> np.ndarray:
    """Each of `answers` kept with odds of at most e^epsilon : 1 against every other of `count`, in integers.

    An answer stays where a random word is below K, the largest integer with K (count - 1) <= E (2^64 - K) for a
    rational E <= e^epsilon.

    Args:
        stream: source of the bits.
        answers: in 0, ..., count - 1, shape (n,).
        count: number of possible answers, >= 2.
        epsilon: > 0.

    Raises:
        InvalidInput: `count` is below 2, or epsilon not positive.

    Example:
        >>> from tacit.noise import SeededStream
        >>> randomised_response(SeededStream(0), np.array([0, 1]), 2, 40.0).tolist()
        [0, 1]
    """
    others = check.count("count", count, minimum=2) - 1
    odds = Fraction(math.exp(min(check.positive("epsilon", epsilon), 600.0))) * (1 - Fraction(1, 2**50))
    kept = stream.bits(len(answers)) < np.uint64(min(int(2**64 * odds / (odds + others)), 2**64 - 1))
    moves = np.zeros(len(answers), np.int64)
    moves[~kept] = 1 + uniform_integers(stream, others, int((~kept).sum()))
    return (answers + moves) % count
