# %% [markdown]
# # Lottery tickets at small epsilon
#
# Noise is added to every trained weight, so at a small epsilon fewer weights can be better. You train a wide network, a
# sparse one with a mask that reads no data, and a small one, all at the same epsilon, and see which gain is the mask's.

# %%
import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits

import tacit
from tacit import models
from tacit.tickets import Ticket, prunable, random_masks

inputs, labels = load_digits(return_X_y=True)
inputs, labels = torch.tensor(inputs, dtype=torch.float32) / 16, torch.tensor(labels)


def wide():
    torch.manual_seed(0)
    return models.mlp(64, 10, hidden=(1000,))


def small():
    torch.manual_seed(0)
    return torch.nn.Linear(64, 10)


# %% [markdown]
# ## A ticket from no data
#
# A tenth of the first layer and half of the last one stay, at random. The weights that stay are scaled up, so that the
# neurons start with the same spread. Neither step reads a record, so the ticket is free.

# %%
first, last = prunable(wide())
masks = random_masks(wide(), {first: 0.1, last: 0.5}, torch.Generator().manual_seed(0))
start = {name: value.detach().clone() for name, value in wide().named_parameters()}
start[first] /= 0.1**0.5
start[last] /= 0.5**0.5
ticket = Ticket(masks, start, "public", note="random masks")
print(f"{ticket.density:.0%} of the weights are left; provenance {ticket.provenance}")

# %% [markdown]
# ## Three networks, two epsilons, two learning rates
#
# The learning rate matters as much as the mask, so each network has its choice of two. Choosing by a test result is not
# private: a real search pays for it ([tuning](../tune.md)).


# %%
def accuracy(model, epsilon, learning_rate):
    run = tacit.fit(
        model,
        inputs[:1500],
        labels[:1500],
        loss=lambda outputs, targets: torch.nn.functional.cross_entropy(outputs, targets, reduction="none"),
        optimizer=torch.optim.SGD(model.parameters(), lr=learning_rate),
        clip_norm=1.0,
        target=tacit.Epsilon(epsilon, delta=1e-4),
        batch_size=250,
        epochs=4,
    )
    assert run.ledger.standing.value == "proven"
    return float((model(inputs[1500:]).argmax(1) == labels[1500:]).double().mean())


networks = {"wide": wide, "ticket": lambda: ticket.apply(wide()), "small": small}
best = {}
for name, build in networks.items():
    for epsilon in (0.2, 1.0):
        best[name, epsilon] = max(accuracy(build(), epsilon, rate) for rate in (0.5, 2.0))
        print(f"{name:<7} epsilon {epsilon}: test accuracy {best[name, epsilon]:.2f}")

# %% alt="Bars of test accuracy of the wide network, the ticket and the small network at epsilon 0.2 and at epsilon 1."
figure, axes = plt.subplots(figsize=(6, 3))
for place, epsilon in enumerate((0.2, 1.0)):
    heights = [best[name, epsilon] for name in networks]
    axes.bar([number + 0.4 * place for number in range(3)], heights, 0.4, label=f"epsilon {epsilon}")
axes.set(xticks=[0.2, 1.2, 2.2], xticklabels=list(networks), ylabel="test accuracy", ylim=(0, 1))
axes.legend()
plt.show()

# %% [markdown]
# One run each, so a few points are noise. The stored runs with repeats are on
# [the paper's page](../papers/lottery-ticket.md): try a smaller network first. A mask that is read off the private data
# looks better and costs privacy that the published method does not count ([Lottery tickets](../tickets.md)).
