# %% [markdown]
# # Auditing a model
#
# A theorem bounds leakage from above. An attack shows leakage from below. You attack a private model and the same
# model without privacy, and set both beside the proven curve.

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits

import tacit
from tacit.attacks import LossThreshold
from tacit.audit import audit_scores

torch.manual_seed(0)
inputs, labels = load_digits(return_X_y=True)
inputs, labels = (inputs / 16).astype(np.float32)[:400], labels[:400]
members, others = (inputs[:200], labels[:200]), (inputs[200:], labels[200:])


def loss(outputs, targets):
    return torch.nn.functional.cross_entropy(outputs, targets, reduction="none")


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))


# %% [markdown]
# ## Two models of the same 200 records

# %%
private, open_model = network(), network()
run = tacit.fit(
    private,
    *map(torch.tensor, members),
    loss=loss,
    optimizer=torch.optim.SGD(private.parameters(), lr=0.5),
    clip_norm=1.0,
    noise_multiplier=1.0,
    batch_size=20,
    epochs=6,
)
optimizer = torch.optim.Adam(open_model.parameters(), lr=3e-3)
for _ in range(120):
    optimizer.zero_grad()
    loss(open_model(torch.tensor(members[0])), torch.tensor(members[1])).mean().backward()
    optimizer.step()


# %% [markdown]
# ## The attack
#
# It sees class probabilities alone and calls a record a member where the loss is small.


# %%
def attack(model):
    def predict(batch):
        with torch.no_grad():
            return model(torch.as_tensor(batch)).softmax(1).double().numpy()

    return LossThreshold()(predict, members=members, non_members=others)


proven = tacit.accountant("pld")(run.ledger)
for words, model in {"with privacy": private, "without": open_model}.items():
    found = audit_scores(attack(model), delta=1e-4)
    print(f"{words:<13} the attack shows epsilon >= {found.epsilon_lower:.2f} with 95 % confidence")
print(f"{'theorem':<13} epsilon <= {proven.epsilon(1e-4).upper:.2f} for the private model, whatever the attack")

# %% alt="ROC curves of one attack on two models: the private one lies near the diagonal and below the proven curve."
figure, axes = plt.subplots(figsize=(5, 4.4))
for words, model in {"with privacy": private, "without": open_model}.items():
    scores = attack(model)
    cuts = np.sort(np.concatenate([scores.members, scores.non_members]))[::-1]
    rates = [[(part >= cut).mean() for cut in cuts] for part in (scores.non_members, scores.members)]
    axes.plot(*rates, label=f"attack, {words}")
grid = np.linspace(0, 1, 15)[1:-1]
axes.plot(grid, [float(proven.tpr(rate)) for rate in grid], "k", label="no attack can pass, by proof")
axes.plot([0, 1], [0, 1], "--", color="grey")
axes.set(xlabel="false-positive rate", ylabel="true-positive rate")
axes.legend(loc="lower right")
plt.show()

# %% [markdown]
# An attack that finds nothing is no evidence of privacy: a better one may come. `tacit audit RUN` adds canaries,
# which find far more ([Attacks and audits](../audit.md)). Next: [check somebody's claim](claim.md).
