"""Private training on the workers of Ray Train: one plan, one ledger, and noise once in the sum of all workers."""

import tempfile
from pathlib import Path

import ray
import torch
from ray.train import Checkpoint, RunConfig, ScalingConfig, get_context, report
from ray.train.torch import TorchConfig, TorchTrainer
from torch.nn.functional import cross_entropy

from tacit.accounting import Ledger
from tacit.training import make_private


def loop(settings):
    """What every worker runs; the process group is there. Prepare neither the model nor the loader by Ray."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(400, 10, generator=generator)
    targets = (inputs[:, 0] > 0).long()
    model = torch.nn.Linear(10, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, targets), batch_size=40)
    private = make_private(model, optimizer, loader, clip_norm=1.0, epochs=2, distributed=True, **settings)
    for _ in range(2):
        for records, answers in private.loader:
            cross_entropy(private.model(records), answers, reduction="none").backward()
            private.optimizer.step()
    with tempfile.TemporaryDirectory() as folder:
        private.ledger.save(Path(folder, "ledger.json"))
        # No metrics: a training loss is a number of private records.
        report({}, checkpoint=None if get_context().get_world_rank() else Checkpoint.from_directory(folder))


ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
with tempfile.TemporaryDirectory() as storage:
    trainer = TorchTrainer(
        loop,
        train_loop_config={"noise_multiplier": 1.5},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1}),
        run_config=RunConfig(storage_path=storage),
    )
    with trainer.fit().checkpoint.as_directory() as folder:
        ledger = Ledger.load(Path(folder, "ledger.json"))
ray.shutdown()
print(f"2 workers, {ledger.steps} private steps, standing {ledger.standing.value}")
