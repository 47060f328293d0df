"""One private training on several processes: torchrun --nproc-per-node 2 distributed_loop.py; or on one alone."""

import os

import torch
from torch import distributed as dist
from torch.nn.functional import cross_entropy

from tacit.training import make_private

if "RANK" not in os.environ:  # not started by torchrun
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
dist.init_process_group("gloo")

# Every process holds the whole data set, and the same model after make_private.
generator = torch.Generator().manual_seed(0)
inputs = torch.randn(400, 10, generator=generator)
targets = (inputs[:, 0] > 0).long()
model = torch.nn.Linear(10, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, targets), batch_size=40)

private = make_private(model, optimizer, loader, clip_norm=1.0, noise_multiplier=1.5, epochs=2, distributed=True)
for _ in range(2):
    for records, answers in private.loader:
        losses = cross_entropy(private.model(records), answers, reduction="none")
        losses.backward()
        private.optimizer.step()

if not dist.get_rank():
    ledger = private.ledger
    print(f"{dist.get_world_size()} processes, {ledger.steps} private steps, standing {ledger.standing.value}")
dist.destroy_process_group()
