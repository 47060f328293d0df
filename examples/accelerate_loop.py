"""A loop of Hugging Face accelerate made private: `prepare` of tacit takes the place of the accelerator's."""

import accelerate
import torch
from torch.nn.functional import cross_entropy

from tacit.integrations.accelerate import prepare

torch.manual_seed(0)
inputs = torch.randn(400, 10)
targets = (inputs[:, 0] > 0).long()
model = torch.nn.Linear(10, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, targets), batch_size=40)

accelerator = accelerate.Accelerator(cpu=True)
private = prepare(accelerator, model, optimizer, loader, clip_norm=1.0, noise_multiplier=1.5, epochs=2)
for _ in range(2):
    for records, answers in private.loader:
        losses = cross_entropy(private.model(records), answers, reduction="none")
        accelerator.backward(losses)
        private.optimizer.step()

print(private.ledger.steps, "private steps, standing", private.ledger.standing.value)
