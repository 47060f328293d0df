"""Input perturbation on summed statistics and records, proven.

`Aggregate` (mode A2) adds up perturbed statistics, with a local guarantee for each contributor beside the central one;
`Fukuchi` (Fukuchi, Tran & Sakuma 2017) sums up to objective perturbation; `Shuffled` (Feldman, McMillan & Talwar 2021)
trusts a shuffler.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tacit import check
from tacit.calibration import smallest
from tacit.erm.losses import HuberHinge, Logistic, Squared
from tacit.erm.release import Method, Release, Terms, stated
from tacit.erm.solver import Problem, check_unit_rows, sum_rounding
from tacit.mechanisms import Approximate, Gaussian, Mechanism
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
