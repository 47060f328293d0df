# %% [markdown]
# # Bayesian learning with honest intervals
#
# Noise for privacy makes estimates less certain. An interval that ignores it is too short. You count how often
# intervals contain the truth, with and without the noise in the model.

# %%
import matplotlib.pyplot as plt
import numpy as np

from tacit.variational import DPBayesianLinearRegression

TRUTH = np.array([1.0, -0.5])
draw = np.random.default_rng(0)


def records():
    x = draw.uniform(-1, 1, (1000, 2))
    return x, x @ TRUTH + 0.1 * draw.standard_normal(len(x))


# %% [markdown]
# ## One private posterior
#
# Bounds are declared. `noise_std` is the spread of the answers in units of half their range, here .1 / 2.

# %%
x, y = records()
model = DPBayesianLinearRegression(
    epsilon=0.5, delta=1e-5, data_bounds=(-1, 1), target_bounds=(-2, 2), noise_std=0.05
).fit(x, y)
print(model.coef_)
print(model.credible_intervals(0.9))
print(f"epsilon {model.guarantee_.epsilon(1e-5):.3f}, {model.guarantee_.standing.value}")

# %% [markdown]
# ## Repeat, and count
#
# The naive interval is that of ordinary Bayesian regression on the same number of records: centred at the private
# estimate, as wide as if there had been no noise for privacy.

# %%
honest, naive, shown = 0, 0, []
RUNS = 30
for _ in range(RUNS):
    x, y = records()
    model = DPBayesianLinearRegression(
        epsilon=0.5, delta=1e-5, data_bounds=(-1, 1), target_bounds=(-2, 2), noise_std=0.05
    ).fit(x, y)
    low, high = model.credible_intervals(0.9)[0]
    width = 1.645 * 0.1 / np.sqrt((x[:, 0] ** 2).sum())
    honest += low <= TRUTH[0] <= high
    naive += abs(model.coef_[0] - TRUTH[0]) <= width
    shown.append((low, high, model.coef_[0], width))
print(f"of {RUNS} intervals at 90 %: honest ones contain the truth {honest} times, naive ones {naive} times")

# %% alt="Thirty wide intervals, of which nearly all cross the true coefficient, and thirty short ones, of which few do"
figure, axes = plt.subplots(figsize=(6, 3.6))
for number, (low, high, centre, width) in enumerate(shown):
    axes.plot([number, number], [low, high], color="C0", linewidth=3, alpha=0.5)
    axes.plot([number, number], [centre - width, centre + width], color="C3", linewidth=3)
axes.axhline(TRUTH[0], color="k", linestyle="--")
axes.set(xlabel="run", ylabel="first coefficient: blue honest, red naive")
plt.show()

# %% [markdown]
# The paper's page has 1,000 simulations ([improved accounting](../papers/improved-accounting.md)). Next: [lottery
# tickets at small epsilon](tickets.md).
