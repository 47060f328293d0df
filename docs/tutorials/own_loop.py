# %% [markdown]
# # Your own PyTorch loop
#
# You keep your loop and replace three objects: model, optimizer and loader. You learn what the library checks while
# your code runs, and how a small change of the loop takes a proven number away.

# %%
import matplotlib.pyplot as plt
import torch
from torch.nn.functional import cross_entropy

import tacit


def start(seed):
    torch.manual_seed(seed)
    inputs = torch.randn(1000, 20)
    targets = (inputs[:, 0] + inputs[:, 1] > 0).long()
    model = torch.nn.Linear(20, 2)
    return tacit.make_private(
        model,
        torch.optim.SGD(model.parameters(), lr=0.5),
        torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, targets), batch_size=100),
        clip_norm=1.0,
        target=tacit.Epsilon(2.0, delta=1e-4),
        epochs=3,
    )


# %% [markdown]
# ## The loop
#
# One loss for each record, `backward` on the vector of losses, one step. Batches are Poisson samples, so their sizes
# differ.

# %%
private = start(0)
for _ in range(3):
    for records, answers in private.loader:
        losses = cross_entropy(private.model(records), answers, reduction="none")
        losses.backward()
        private.optimizer.step()
print(private.ledger.standing.value, private.ledger.mechanism)
print(tacit.accountant("pld")(private.ledger).epsilon(1e-4))

# %% [markdown]
# ## What the budget looks like, step by step

# %% alt="A rising curve: epsilon at delta 1e-4 after each of thirty steps, ending at two."
step = tacit.Gaussian(private.ledger.entries[0].mechanism.base.noise_multiplier).poisson(0.1)
counts = [1, 5, 10, 20, 30]
spent = [float(tacit.accountant("pld")(step * count).epsilon(1e-4)) for count in counts]
figure, axes = plt.subplots(figsize=(6, 3.2))
axes.plot(counts, spent, "o-")
axes.set(xlabel="steps", ylabel="epsilon at delta 1e-4", ylim=(0, None))
plt.show()

# %% [markdown]
# ## A loop that leaks
#
# This loop stops when its loss is small. The number of steps then depends on private values, which no theorem above
# covers. The run says so, and names the line.

# %%
private = start(1)  # other records: a second run on the same ones would cost more, and say so
for records, answers in private.loader:
    losses = cross_entropy(private.model(records), answers, reduction="none")
    losses.backward()
    private.optimizer.step()
    if float(losses.mean().detach()) < 0.3:
        break
print(private.ledger.standing.value)
for fact in private.facts:
    if fact.how.value == "assumed":
        print(fact.id, "-", fact.says)

# %% [markdown]
# **Try it:** leave out the `break` and read the loss inside of `with private.unreleased("progress"):`, which declares
# that the number stays on this computer. The standing comes back. Next: [fine-tuning with LoRA](lora.md).
