"""Keep your own PyTorch loop: make_private gives it a private model, optimizer and loader."""

import torch

import tacit

torch.manual_seed(0)
inputs = torch.randn(1000, 20)
targets = (inputs[:, 0] > 0).long()
model = torch.nn.Linear(20, 2)
data = torch.utils.data.TensorDataset(inputs, targets)
private = tacit.make_private(
    model,
    torch.optim.SGD(model.parameters(), lr=0.5),
    torch.utils.data.DataLoader(data, batch_size=100),
    clip_norm=1.0,
    target=tacit.Epsilon(2.0, delta=1e-4),
    epochs=3,
)

for _ in private.epochs:  # the passes that the plan has steps for, and pays for
    for batch, answers in private.loader:  # Poisson batches
        losses = torch.nn.functional.cross_entropy(private.model(batch), answers, reduction="none")
        losses.backward()  # per-sample losses: each gradient is clipped on its own
        private.optimizer.step()

epsilon = tacit.accountant("pld")(private.ledger).epsilon(1e-4)
print(f"{private.ledger.mechanism}: {epsilon.lower:.4f} <= epsilon <= {epsilon.upper:.4f}")
