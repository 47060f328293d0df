"""Train a classifier with differential privacy in one call, and ask every accountant what it costs."""

import torch
from sklearn.datasets import load_digits

import tacit

torch.manual_seed(0)
inputs, labels = load_digits(return_X_y=True)
inputs, labels = torch.tensor(inputs, dtype=torch.float32) / 16, torch.tensor(labels)
model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.Tanh(), torch.nn.Linear(32, 10))

result = tacit.fit(
    model,
    inputs[:1500],
    labels[:1500],
    loss=lambda outputs, targets: torch.nn.functional.cross_entropy(outputs, targets, reduction="none"),
    optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
    clip_norm=1.0,
    target=tacit.Epsilon(3.0, delta=1e-4),
    batch_size=150,
    epochs=10,
)

accuracy = (model(inputs[1500:]).argmax(1) == labels[1500:]).float().mean()
print(f"test accuracy {accuracy:.2f}")
for answer in tacit.account(result.ledger, delta=1e-4).results:
    print(f"{answer.tradeoff.source:>22}  epsilon {answer.epsilon:7.3f}  {answer.tradeoff.standing.value}")
