"""A Lightning module with manual optimisation made private: `manual_backward` takes one loss for each record."""

import tempfile

import lightning.pytorch as pl
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from tacit.integrations.lightning import privatize


class Classifier(pl.LightningModule):
    automatic_optimization = False

    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(10, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))

    def training_step(self, batch, index):
        records, answers = batch
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(cross_entropy(self.net(records), answers, reduction="none"))
        optimizer.step()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.5)


torch.manual_seed(0)
inputs = torch.randn(400, 10)
data = TensorDataset(inputs, (inputs[:, 0] > 0).long())
module = Classifier()
private = privatize(module, DataLoader(data, batch_size=40), clip_norm=1.0, noise_multiplier=1.5, epochs=2)
with tempfile.TemporaryDirectory() as folder:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(max_epochs=2, accelerator="cpu", default_root_dir=folder, **quiet)
    trainer.fit(module)

ledger = private.private.ledger
print(f"{ledger.steps} private steps, standing {ledger.standing.value}")
