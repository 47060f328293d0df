"""The counter-example to input perturbation as published: claimed epsilon against the exact one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tacit.erm.base import default_delta
from tacit.erm.input_published import published_std, true_mu
from tacit.tradeoff.gaussian import gaussian_epsilon, gaussian_mu

# (records, claimed epsilon), from the size of iris over that of Adult to that of MNIST.
ROWS = ((150, 0.25), (984, 0.1), (45222, 0.1), (70000, 0.1), (70000, 0.25))


@dataclass(frozen=True)
class Refutation:
    """One row: n records, the epsilon claimed by equation (9), and what is exact for the loss ||theta - x||^2 / 2.

    Attributes:
        delta: min(1e-5, n^-1.1).
        noise_std: sigma by equation (9) with G = 2, Delta = 1.
        mu: exact leakage of the released parameter under replace-one.
        epsilon: the same leakage at `delta`.
        constant: the c that would make the claim true, which grows like n / T.
        local_mu: of a perturbed record itself.
    """

    records: int
    claimed: float
    delta: float
    noise_std: float
    mu: float
    epsilon: float
    constant: float
    local_mu: float


def counter_examples(
    rows: Sequence[tuple[int, float]] = ROWS, *, steps: int = 50, constant: float = 1.0
) -> tuple[Refutation, ...]:
    """The table for (records, claimed epsilon) pairs, `steps` gradient steps and the paper's constant c."""
    return tuple(_row(records, claimed, steps, constant) for records, claimed in rows)


def _row(records: int, claimed: float, steps: int, constant: float) -> Refutation:
    delta = default_delta(records)
    sigma = published_std(
        lipschitz=2.0,
        steps=steps,
        records=records,
        convexity=1.0,
        epsilon=claimed,
        delta=delta,
        constant=constant,
    )
    mu = true_mu(sigma, records)
    needed = constant * (mu / gaussian_mu(claimed, delta)) ** 2
    return Refutation(records, claimed, delta, sigma, mu, gaussian_epsilon(delta, mu), needed, 2 / sigma)


ASSUMED = "Equation (9) as restored, T = 50 steps, c = 1, delta min(1e-5, n^-1.1), loss |theta - x|^2 / 2, replace-one:"
LIMITS = "The c needed grows like n / T: with T of the order of n the claim holds on this loss."


def text(rows: Sequence[Refutation]) -> str:
    """The table of `counter_examples()` as aligned columns, between its assumptions and what they limit."""
    lines = [ASSUMED, "      n  claimed eps  true eps  c needed   c/n  local mu"]
    lines += [
        f"{row.records:7d}  {row.claimed:11g}  {row.epsilon:8.2f}  {row.constant:8.3g}"
        f"  {row.constant / row.records:.3f}  {row.local_mu:8.3g}"
        for row in rows
    ]
    return "\n".join([*lines, LIMITS])
