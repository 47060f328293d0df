# %% [markdown]
# # The paper that claims too much
#
# *Input Perturbation: A New Paradigm between Central and Local Differential Privacy* (arXiv 2002.08570) lets every
# person add noise to their own record, and claims a small epsilon for the model that is trained on all of them. You
# refute the claim in four steps, if equation (9) is restored rightly, c = 1, and training takes 50 steps.

# %%
import math

import matplotlib.pyplot as plt
import numpy as np

from tacit.attacks import Scores
from tacit.audit import Trials, audit_scores
from tacit_papers.input_perturbation.counter_examples import counter_examples

# %% [markdown]
# ## Step 1: take the simplest model that the theorem covers
#
# For the loss |theta - x|^2 / 2 the trained model is the mean of the perturbed records. Everything can be computed by
# hand: the mean of n independent noises of standard deviation s has standard deviation s / sqrt(n).
#
# ## Step 2: compute what the published noise hides
#
# One record moves the mean by at most 2/n (records lie in the unit ball). So the release is a Gaussian mechanism with
# mu = (2 / n) / (s / sqrt(n)) = 2 / (s sqrt(n)), and the exact epsilon follows.

# %%
rows = counter_examples()
for row in rows:
    by_hand = 2 / (row.noise_std * math.sqrt(row.records))
    print(f"n {row.records:>6}  claimed {row.claimed:4.2f}  true {row.epsilon:6.2f}  mu {row.mu:.3f} = {by_hand:.3f}")

# %% alt="Claimed and true epsilon against the number of records: the true one grows while the claimed one stays."
figure, axes = plt.subplots(figsize=(6, 3.4))
few = [row for row in rows if row.claimed == 0.1]
axes.plot([row.records for row in few], [row.epsilon for row in few], "o-", label="true")
axes.plot([row.records for row in few], [row.claimed for row in few], "o--", label="claimed")
axes.set(xscale="log", yscale="log", xlabel="records", ylabel="epsilon")
axes.legend()
plt.show()

# %% [markdown]
# ## Step 3: find the mistake
#
# The paper gives the mean of n noises a variance of order 1 where it is of order 1/n. So the noise is short by a
# factor that grows with n, and no constant repairs it: for T steps the constant that is needed grows like n / T.

# %%
for row in rows:
    print(f"n {row.records:>6}  constant needed {row.constant:8.3g}, that over n {row.constant / row.records:.3f}")

# %% [markdown]
# ## Step 4: show it without any theory
#
# Run the release many times with and without a record and let an audit bound epsilon from below. This needs no
# formula for the leakage, and has a stated confidence.

# %%
row = rows[2]
draw = np.random.default_rng(0)
noise = row.noise_std / math.sqrt(row.records)
moved = row.mu * noise
scores = Scores(
    "released mean",
    members=moved + noise * draw.standard_normal(20_000),
    non_members=noise * draw.standard_normal(20_000),
    threshold=moved / 2,
)
found = audit_scores(scores, delta=row.delta, trials=Trials.INDEPENDENT, confidence=0.999)
print(f"claimed: epsilon <= {row.claimed}")
print(f"found:   epsilon >= {found.epsilon_lower:.2f} with 99.9 % confidence")
assert found.epsilon_lower > row.claimed

# %% [markdown]
# The method itself can be saved: the sum of noisy statistics does what the paper set out to do, with both guarantees
# proven ([Private linear models](../erm.md)). All numbers of the paper: [its page](../papers/input-perturbation.md).
# Next: [Bayesian learning with honest intervals](bayesian.md).
