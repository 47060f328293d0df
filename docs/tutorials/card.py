# %% [markdown]
# # Reading a privacy card
#
# Every run writes `card.html` for people and `card.json` for programs. You make one, find the one number that counts,
# and see which of the other numbers are no bounds.

# %%
import json
from pathlib import Path

import matplotlib.pyplot as plt

from tacit.runs import read_config, train

train(read_config("digits", {"epochs": 2.0, "epsilon": 3.0}), out="run")
card = json.loads(Path("run/card.json").read_text())

# %% [markdown]
# ## What was promised, about whom
#
# The unit says who is protected, the relation what one neighbour differs by.

# %%
first = card["guarantees"][0]
print(f"{card['records']} records of {card['dataset']}, unit {card['unit']}, {card['relation']}")
print(f"epsilon {first['epsilon']:.3f} at delta {first['delta']:g}: {first['standing']} by {first['accountant']}")

# %% [markdown]
# ## Every accountant
#
# The same run costs the same, whoever counts. Bounds differ because some proofs are looser. What stands below the
# proven lower end is no bound at all: a limit theorem, or a formula that is refuted.

# %% alt="Epsilon of one run by each accountant on a logarithmic scale; proven ones are filled bars, others are hollow."
shown = [row for row in card["guarantees"] if isinstance(row["epsilon"], float)]
figure, axes = plt.subplots(figsize=(6, 4))
for row in shown:
    proven = row["standing"] == "proven"
    axes.barh(row["accountant"], row["epsilon"], fill=proven, edgecolor="C0" if proven else "C3")
axes.axvline(first["epsilon_lower"], color="grey", linestyle="--", label="proven lower end")
axes.set(xscale="log", xlabel="epsilon at delta 1e-4")
axes.legend()
plt.show()
for row in shown:
    if row["epsilon"] < first["epsilon_lower"]:
        print(f"{row['accountant']}: {row['epsilon']:.3f}, {row['standing']}, below what is proven to leak")

# %% [markdown]
# ## What it rests on
#
# Facts are verified in the run, declared by you, or assumed. One assumed fact makes every number `conditional`.

# %%
for fact in card["facts"]:
    print(f"{fact['how']:<9} {fact['id']}")

# %% [markdown]
# What a card does not say has [a page of its own](../explanation/card.md). Next: [audit a model](audit.md).
