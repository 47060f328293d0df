# %% [markdown]
# # Fine-tuning with LoRA
#
# A model was pretrained on public records. You adapt it to private ones by training small low-rank matrices beside
# its frozen weights. Fewer trained weights carry less noise in all.

# %%
import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn

import tacit
from tacit.lora import add_lora, merge_lora

torch.manual_seed(0)
inputs, labels = load_digits(return_X_y=True)
inputs, labels = torch.tensor(inputs, dtype=torch.float32) / 16, torch.tensor(labels)
public, private, test = slice(0, 300), slice(300, 1500), slice(1500, None)


def accuracy(model):
    return float((model(inputs[test]).argmax(1) == labels[test]).double().mean())


# %% [markdown]
# ## Pretrain on public records
#
# Public means: these records need no protection, and none of them is among the private ones.

# %%
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(15):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(inputs[public]), labels[public]).backward()
    optimizer.step()
results = {"pretrained": accuracy(model)}

# %% [markdown]
# ## Add the low-rank matrices and train them privately

# %%
model = add_lora(model, rank=4, patterns=["0", "2"], keep=["4"])
trained = [weights for weights in model.parameters() if weights.requires_grad]
print(f"{sum(w.numel() for w in trained)} of {sum(w.numel() for w in model.parameters())} weights are trained")
run = tacit.fit(
    model,
    inputs[private],
    labels[private],
    loss=lambda outputs, targets: nn.functional.cross_entropy(outputs, targets, reduction="none"),
    optimizer=torch.optim.SGD(trained, lr=0.5),
    clip_norm=1.0,
    target=tacit.Epsilon(2.0, delta=1e-4),
    batch_size=120,
    epochs=5,
)
results["LoRA at epsilon 2"] = accuracy(model)
model = merge_lora(model)  # ordinary layers again
print(run.ledger.standing.value, results)

# %% alt="Two bars: test accuracy of the pretrained model and of the model after private fine-tuning with LoRA."
figure, axes = plt.subplots(figsize=(6, 2.6))
axes.barh(list(results), list(results.values()))
axes.set(xlabel="test accuracy", xlim=(0, 1))
plt.show()

# %% [markdown]
# A Hugging Face model works in the same way, with the matrices of `peft`: see [Trainers](../trainers.md). Next: [a
# private scikit-learn pipeline](pipeline.md).
