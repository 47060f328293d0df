# %% [markdown]
# # Accounting, from Poisson batches to correlated noise
#
# The same noise costs a different epsilon with each way of drawing batches. You compare them, and then let the noise
# of different steps cancel.

# %%
import matplotlib.pyplot as plt

from tacit import Gaussian, accountant
from tacit.accounting.comparison import compare

RECORDS, BATCH, EPOCHS, NOISE = 10_000, 500, 4, 1.0
RATE, STEPS = BATCH / RECORDS, EPOCHS * RECORDS // BATCH

# %% [markdown]
# ## Composition
#
# A mechanism is an object. `*` repeats it, `+` puts another one beside it, and an accountant answers questions about
# all.

# %%
without = Gaussian(NOISE) * EPOCHS  # every record in every one of four full batches
sampled = Gaussian(NOISE).poisson(RATE) * STEPS
for words, run in {"four full batches": without, "Poisson batches": sampled}.items():
    print(f"{words:<18} epsilon {accountant('pld')(run).epsilon(1e-5):.3f}")

# %% [markdown]
# ## Who is drawn when, and with which noise
#
# Correlated noise has a larger epsilon at the same noise multiplier, or none of the amplification, but the noise of
# different steps cancels in the sum of all updates. So compare both columns.

# %%
rows = compare(NOISE, records=RECORDS, batch_size=BATCH, epochs=EPOCHS, delta=1e-5, bands=4)
for row in rows:
    cost = "refused" if row.epsilon is None else f"{row.epsilon[1]:.3f}"
    print(f"{row.sampling:<18} {row.noise:<12} epsilon {cost:>8}   error {row.error:6.3f}")

# %% alt="Error of prefix sums against epsilon for each sampling and noise; points towards the lower left are better."
figure, axes = plt.subplots(figsize=(6, 4))
for row in rows:
    if row.epsilon is not None:
        axes.plot(row.epsilon[1], row.error, "o")
        axes.annotate(f"{row.sampling}\n{row.noise}", (row.epsilon[1], row.error), fontsize=6)
axes.set(xlabel="epsilon at delta 1e-5", ylabel="error of prefix sums", xscale="log", yscale="log")
plt.show()

# %% [markdown]
# `tacit train digits --noise banded:4 --sampling cyclic_poisson` trains with it ([settings](../train.md#settings)).
# Next: [the paper that claims too much](too_much.md).
