"""Fine-tune low-rank adapters privately: the pretrained weights stay frozen and need no per-sample gradient."""

import torch
from sklearn.datasets import load_digits
from torch import nn

import tacit
from tacit.lora import add_lora, merge_lora

torch.manual_seed(0)
inputs, labels = load_digits(return_X_y=True)
inputs, labels = torch.tensor(inputs, dtype=torch.float32) / 16, torch.tensor(labels)
public, private = slice(0, 600), slice(600, 1500)

model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(30):  # Pretraining on public records, without privacy.
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(inputs[public]), labels[public]).backward()
    optimizer.step()

model = add_lora(model, rank=4, patterns=["0", "2"], keep=["4"])
trained = [weights for weights in model.parameters() if weights.requires_grad]
print(f"{sum(w.numel() for w in trained)} of {sum(w.numel() for w in model.parameters())} weights are trained")
tacit.fit(
    model,
    inputs[private],
    labels[private],
    loss=lambda outputs, targets: nn.functional.cross_entropy(outputs, targets, reduction="none"),
    optimizer=torch.optim.SGD(trained, lr=0.5),
    clip_norm=1.0,
    target=tacit.Epsilon(2.0, delta=1e-4),
    batch_size=100,
    epochs=5,
)
model = merge_lora(model)
accuracy = (model(inputs[1500:]).argmax(1) == labels[1500:]).float().mean()
print(f"test accuracy {accuracy:.2f} at epsilon 2")
