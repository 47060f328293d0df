# %% [markdown]
# # First private model
#
# You train a small network on handwritten digits so that nobody can tell from its weights whether any one image was
# used. You learn what `epsilon` buys and what it costs.

# %%
import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits

import tacit

torch.manual_seed(0)
inputs, labels = load_digits(return_X_y=True)
inputs, labels = torch.tensor(inputs, dtype=torch.float32) / 16, torch.tensor(labels)
held_out = (inputs[1500:], labels[1500:])


def loss(outputs, targets):
    return torch.nn.functional.cross_entropy(outputs, targets, reduction="none")  # one value for each record


def accuracy(model):
    return {"accuracy": float((model(held_out[0]).argmax(1) == held_out[1]).double().mean())}


# %% [markdown]
# ## Ask for a guarantee, not for noise
#
# `target` says what must hold at the end. The noise that this needs is found before the first step.


# %%
def train(epsilon):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Tanh(), torch.nn.Linear(32, 10))
    return tacit.fit(
        model,
        inputs[:1500],
        labels[:1500],
        loss=loss,
        optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
        clip_norm=1.0,
        target=tacit.Epsilon(epsilon, delta=1e-4),
        batch_size=150,
        epochs=8,
        evaluate=accuracy,
    )


runs = {epsilon: train(epsilon) for epsilon in (0.5, 3.0)}
for epsilon, run in runs.items():
    print(f"epsilon {epsilon}: test accuracy {run.history[-1]['accuracy']:.2f}")

# %% [markdown]
# ## See what was spent
#
# Every epoch spends a part of the budget. A smaller epsilon allows less leakage and needs more noise, so the model
# learns less in the same number of steps.

# %% alt="Two lines: test accuracy against the epsilon spent, one run that ends at epsilon 0.5 and one that ends at 3."
figure, axes = plt.subplots(figsize=(6, 3.4))
for epsilon, run in runs.items():
    spent = [float(row["epsilon"]) for row in run.history]
    axes.plot(spent, [row["accuracy"] for row in run.history], "o-", label=f"target epsilon {epsilon}")
axes.set(xlabel="epsilon spent, at delta 1e-4", ylabel="test accuracy", ylim=(0, 1))
axes.legend()
plt.show()

# %% [markdown]
# ## Read the standing
#
# The number is `proven` only if the theorem, its arithmetic, the code path and the declared facts are all there. The
# ledger says what ran.

# %%
answer = tacit.accountant("pld")(runs[3.0].ledger).epsilon(1e-4)
print(f"{answer.lower:.4f} <= epsilon <= {answer.upper:.4f}, {answer.standing.value}")
print(runs[3.0].ledger.mechanism)
assert answer.upper <= 3.0

# %% [markdown]
# **Try it:** double `epochs`. The noise grows, because the same target has to last for more steps. Next: [your own
# PyTorch loop](own_loop.md).
