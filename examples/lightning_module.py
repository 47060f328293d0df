"""Lightning modules made private, with automatic and manual optimisation: a step gives one loss for each record."""

import tempfile

import lightning.pytorch as pl
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from tacit.integrations.lightning import privatize


class Automatic(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(10, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))

    def training_step(self, batch, index):
        records, answers = batch
        return cross_entropy(self.net(records), answers, reduction="none")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.5)


class Manual(Automatic):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch, index):
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(super().training_step(batch, index))
        optimizer.step()


torch.manual_seed(0)
for module in (Automatic(), Manual()):
    inputs = torch.randn(400, 10)
    data = TensorDataset(inputs, (inputs[:, 0] > 0).long())
    private = privatize(module, DataLoader(data, batch_size=40), clip_norm=1.0, noise_multiplier=1.5, epochs=2)
    with tempfile.TemporaryDirectory() as folder:
        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        trainer = pl.Trainer(max_epochs=2, accelerator="cpu", default_root_dir=folder, **quiet)
        trainer.fit(module)
    ledger = private.private.ledger
    print(f"{type(module).__name__}: {ledger.steps} private steps, standing {ledger.standing.value}")
    print(f"epsilon {float(trainer.callback_metrics['epsilon']):.2f} at delta 1e-5")
