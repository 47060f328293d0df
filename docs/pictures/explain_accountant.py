"""Draw the two pictures of docs/explanation/accountant.md: `python docs/pictures/explain_accountant.py`."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm

import tacit

HERE = Path(__file__).parent
NOISE, RATE = 1.0, 0.1


def losses(steps: int, count: int = 200_000) -> np.ndarray:
    """Privacy losses of `count` simulated runs with the record, of so many sampled Gaussian steps."""
    draw = np.random.default_rng(0)
    total = np.zeros(count)
    for _ in range(steps):
        x = NOISE * draw.standard_normal(count) + (draw.random(count) < RATE)
        total += np.log1p(RATE * np.expm1((x - 0.5) / NOISE**2))
    return total


def main() -> None:
    plt.rcParams.update({"svg.hashsalt": "tacit", "figure.autolayout": True})
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4))
    grid = np.linspace(-4, 5, 400)
    left.plot(grid, norm.pdf(grid, 0, NOISE), label="without the record (Q)")
    left.plot(grid, (1 - RATE) * norm.pdf(grid, 0, NOISE) + RATE * norm.pdf(grid, 1, NOISE), label="with it (P)")
    left.set(xlabel="one released sum", ylabel="density", title="one step")
    left.legend(fontsize=7)
    for steps in (1, 10, 100):
        right.hist(losses(steps), bins=120, density=True, histtype="step", label=f"{steps} steps")
    right.set(xlabel="privacy loss log P/Q", ylabel="density", xlim=(-3, 5), ylim=(0, 3), title="losses add up")
    right.legend(fontsize=7)
    figure.savefig(HERE / "losses.svg", metadata={"Date": None})

    step = tacit.Gaussian(NOISE).poisson(RATE)
    figure, axes = plt.subplots(figsize=(6, 3.4))
    steps = [1, 3, 10, 30, 100, 300]
    for name, style in (("pld", "k-"), ("rdp", "C0--"), ("advanced", "C1--"), ("clt", "C3:")):
        found = [float(tacit.accountant(name)(step * count).epsilon(1e-5)) for count in steps]
        axes.plot(steps, found, style, label=name)
    axes.set(xscale="log", yscale="log", xlabel="steps", ylabel="epsilon at delta 1e-5")
    axes.legend(fontsize=7)
    figure.savefig(HERE / "accountants.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
