"""Lightning trains privately in both ways of optimisation, with the ledger in its checkpoints."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from tacit.errors import InvalidInput, TrainingMisuse
from tacit.noise import SeededStream
from tacit.training import make_private
from tests.architectures.zoo import define_torchvision_operators
from tests.training.cases import blobs, cross_entropy, flat, plain_sgd, small_model

define_torchvision_operators()
pl = pytest.importorskip("lightning.pytorch")

PRIVACY = {"clip_norm": 1.0, "noise_multiplier": 1.0, "steps": 12}


class Module(pl.LightningModule):
    def __init__(self, manual=False):
        super().__init__()
        self.net = small_model()
        self.automatic_optimization = not manual

    def training_step(self, batch, index):
        x, y = batch
        losses = cross_entropy(self.net(x), y)
        if self.automatic_optimization:
            return losses
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(losses)
        optimizer.step()
        return None

    def validation_step(self, batch, index):
        assert not self.net.training
        self.log("val", cross_entropy(self.net(batch[0]), batch[1]).mean())

    def configure_optimizers(self):
        optimizer = plain_sgd(self.net)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 100)}


def loader():
    return DataLoader(TensorDataset(*blobs()), batch_size=50)


def trainer(folder, **arguments):
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return pl.Trainer(accelerator="cpu", default_root_dir=folder, **({"max_epochs": 3} | quiet | arguments))


@pytest.mark.parametrize("manual", [False, True], ids=["automatic", "manual"])
def test_weights_and_ledger_are_those_of_a_loop_of_make_private(tmp_path, manual):
    from tacit.integrations.lightning import privatize

    module = Module(manual)
    found = privatize(module, loader(), **PRIVACY, stream=SeededStream(3))
    fit = trainer(tmp_path, enable_checkpointing=False)
    fit.fit(module, val_dataloaders=loader())
    model = small_model()
    private = make_private(model, plain_sgd(model), loader(), **PRIVACY, stream=SeededStream(3))
    for _ in range(3):
        for x, y in private.loader:
            cross_entropy(private.model(x), y).backward()
            private.optimizer.step()
    assert torch.allclose(flat(module.net), flat(model), atol=1e-6)
    assert found.private.ledger.steps == fit.global_step == 12
    assert fit.callback_metrics["epsilon"] > 0
    assert set(module.state_dict()) == {f"net.{name}" for name in model.state_dict()}


def test_a_resumed_run_goes_on_with_its_ledger_and_counts_what_an_older_checkpoint_left_out(tmp_path):
    from tacit.integrations.lightning import privatize

    keep = pl.callbacks.ModelCheckpoint(dirpath=tmp_path, filename="{epoch}", save_top_k=-1)
    first = Module()
    privatize(first, loader(), **PRIVACY)
    trainer(tmp_path, max_epochs=2, callbacks=[keep]).fit(first)
    module = Module()
    found = privatize(module, loader(), **PRIVACY)
    trainer(tmp_path).fit(module, ckpt_path=str(tmp_path / "epoch=1.ckpt"), weights_only=False)
    assert found.private.ledger.steps == 12
    assert found.private.ledger.standing.value == "proven"
    older = Module()
    found = privatize(older, loader(), **PRIVACY)
    trainer(tmp_path).fit(older, ckpt_path=str(tmp_path / "epoch=0.ckpt"), weights_only=False)
    assert found.private.ledger.steps == 12 + 8


@pytest.mark.parametrize(
    "setting", [{"accumulate_grad_batches": 2}, {"gradient_clip_val": 1.0}, {"overfit_batches": 1}]
)
def test_settings_that_take_over_the_update_are_refused_by_name(tmp_path, setting):
    from tacit.integrations.lightning import privatize

    module = Module()
    privatize(module, loader(), **PRIVACY)
    with pytest.raises(TrainingMisuse, match=f"{next(iter(setting))} of the trainer must be"):
        trainer(tmp_path, **setting).fit(module)


def test_parameters_outside_of_one_submodule_are_refused():
    from tacit.integrations.lightning import privatize

    module = Module()
    module.other = torch.nn.Linear(1, 1)
    with pytest.raises(InvalidInput, match="Put the layers into one submodule"):
        privatize(module, loader(), **PRIVACY)
