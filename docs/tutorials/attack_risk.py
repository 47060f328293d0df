# %% [markdown]
# # Choose epsilon and delta by attack risk
#
# Nobody knows what epsilon 2 means for a patient. You start from what an attack may reach, and let the library find
# the noise. Epsilon comes out at the end.

# %%
import matplotlib.pyplot as plt
import numpy as np

from tacit import Advantage, Epsilon, Errors
from tacit.calibration import noise_multiplier

SAMPLE_RATE, STEPS = 0.01, 1000

# %% [markdown]
# ## Three ways to say what you fear
#
# - The usual pair: epsilon at delta.
# - **Advantage**: true-positive rate less false-positive rate of any membership attack, at its best threshold.
# - **Errors**: at a false-positive rate `alpha`, the attack misses at least a share `beta` of the members.

# %%
targets = {
    "epsilon 2 at delta 1e-5": Epsilon(2.0, delta=1e-5),
    "advantage of at most 10 %": Advantage(0.1),
    "TPR of at most 5 % at FPR 1 %": Errors(alpha=0.01, beta=0.95),
}
found = {}
for words, target in targets.items():
    answer = noise_multiplier(target, sample_rate=SAMPLE_RATE, steps=STEPS)
    found[words] = answer.guarantee
    print(
        f"{words:<30} noise {answer.value:.2f}  epsilon {answer.guarantee.epsilon(1e-5):.2f}  "
        f"advantage {answer.guarantee.advantage():.3f}  TPR at 1 % {answer.guarantee.tpr(0.01):.3f}"
    )

# %% [markdown]
# ## One picture of all attacks
#
# Each curve bounds the ROC of every attack on its model, known or not. An attack that guesses is on the diagonal.

# %% alt="Three curves of the largest true-positive rate against the false-positive rate, all above the diagonal."
grid = np.geomspace(1e-4, 1, 25)
figure, axes = plt.subplots(figsize=(6, 4))
for words, curve in found.items():
    axes.plot(grid, [float(curve.tpr(rate)) for rate in grid], label=words)
axes.plot(grid, grid, "--", color="grey", label="guessing")
axes.set(xscale="log", yscale="log", xlabel="false-positive rate", ylabel="largest true-positive rate")
axes.legend()
plt.show()

# %% [markdown]
# ## What delta must be
#
# A mechanism that publishes each record with probability delta satisfies (0, delta). Among n records it publishes one
# with probability 1 - (1 - delta)^n, so delta has to be far below 1/n.

# %%
for delta in (1e-2, 1e-4, 1e-6):
    print(f"delta {delta:g}: among 10,000 records one is published with probability {1 - (1 - delta) ** 10_000:.3f}")

# %% [markdown]
# Next: [read a privacy card](card.md).
