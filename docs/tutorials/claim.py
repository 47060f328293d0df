# %% [markdown]
# # Checking somebody's claim
#
# A report says: *trained with noise multiplier 1.1, sampling rate 0.01, 500 steps; epsilon 0.9 at delta 1e-5*. You
# check whether that can be true, and learn what usually went wrong when it is not.

# %%
import json
from pathlib import Path

import matplotlib.pyplot as plt

from tacit import Gaussian, Ledger, accountant
from tacit.accounting.claims import Claim, examine
from tacit.cli import main

mechanism = Gaussian(1.1).poisson(0.01) * 500
claim = Claim(Ledger.of(mechanism), epsilon=0.9, delta=1e-5, records=25_600)
answer = examine(claim)
print(answer.verdict.value)
for sentence in (*answer.refutations, *answer.objections):
    print("-", sentence)

# %% [markdown]
# ## Two-sided is what makes a refutation
#
# An upper bound cannot refute anything: a smaller epsilon might still be true. The exact accountant also says how
# much is proven to leak. A claim below that is false. The gap between both is too small to be seen below.

# %% alt="Epsilon against delta: the proven curve, and the claim as a point below it."
deltas = [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3]
curve = accountant("pld")(mechanism)
limit = accountant("clt")(mechanism)
figure, axes = plt.subplots(figsize=(6, 3.6))
axes.plot(deltas, [curve.epsilon(delta).lower for delta in deltas], "C0", label="proven to leak")
axes.plot(deltas, [curve.epsilon(delta).upper for delta in deltas], "k:", label="proven to be enough")
axes.plot(deltas, [float(limit.epsilon(delta)) for delta in deltas], "C3--", label="central limit theorem")
axes.plot([1e-5], [0.9], "rx", markersize=10, label="the claim")
axes.set(xscale="log", xlabel="delta", ylabel="epsilon")
axes.legend()
plt.show()

# %% [markdown]
# The claim lies on the curve of the central limit theorem: the report took a limit for a bound.
#
# ## The same from the command line
#
# Save what the report says and run `tacit verify claim.json`; exit code 3 means refuted ([all that is
# recognised](../claims.md)).

# %%
spec = {
    "relation": "add_remove",
    "mechanisms": [{"type": "gaussian", "noise_multiplier": 1.1, "sample_rate": 0.01, "steps": 500}],
    "claim": {"epsilon": 0.9, "delta": 1e-5, "records": 25600, "accountant": "clt"},
}
Path("claim.json").write_text(json.dumps(spec))
print("exit code", main(["verify", "claim.json"]))

# %% [markdown]
# Next: [accounting from Poisson to correlated noise](accounting.md).
