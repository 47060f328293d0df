"""Lightning modules made private, with automatic and manual optimisation (extra `lightning`)."""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from tacit import check
from tacit.errors import TrainingMisuse
from tacit.integrations.trainer_logs import REPORTED, epsilon_of, reported_delta
from tacit.training.make_private import Private, make_private
from tacit.training.resume import RunFile

_STATE, _FILE = "tacit", "tacit_file"


def privatize(
    module: pl.LightningModule, loader: DataLoader[Any], network: str | None = None, **privacy: Any
) -> PrivateTraining:
    """Make the training of `module` private; then call `trainer.fit(module)` without a training loader.

    `training_step` computes one loss for each record from `self.<network>(...)`, and returns the vector (automatic
    optimisation) or hands it to `self.manual_backward` (manual). Checkpoints hold the ledger; a resumed run counts
    every step that may have run.

    Args:
        module: with one optimizer and its scheduler, if any.
        loader: of the training data; only its data set, batch size and `collate_fn` are used.
        network: name of the submodule that holds all trainable parameters; may be left out where one does.
        **privacy: of `make_private`: options, or clip_norm, noise_multiplier, epochs and so on. The progress bar shows
            epsilon at their delta, 1e-5 by default.

    Returns:
        The callback that does it, attached to `module`; `private` holds the parts of `make_private` once training runs.

    Raises:
        InvalidInput: no single submodule holds all parameters.
    """
    found = PrivateTraining(module, loader, network or _network_of(module), privacy)
    callbacks = module.configure_callbacks

    def configure_callbacks() -> list[Any]:
        given = callbacks()
        return [*(given if isinstance(given, list | tuple) else [given]), found]

    module.configure_callbacks = configure_callbacks
    module.configure_optimizers = lambda: found.optimizers()
    module.train_dataloader = lambda: found.loader()
    module.optimizer_step = found.step
    return found


class PrivateTraining(pl.Callback):
    """What `privatize` attaches to a module: its private parts, their ledger in checkpoints, epsilon in logs.

    Args:
        module: the module.
        loader: of the training data.
        network: name of the submodule that is trained.
        privacy: arguments of `make_private`.

    Attributes:
        private: the parts of `make_private`, once training has begun; None before.
    """

    def __init__(self, module: pl.LightningModule, loader: DataLoader[Any], network: str, privacy: dict[str, Any]):
        self._module, self._loader, self._network = module, loader, network
        self._delta, self._privacy = reported_delta(privacy), privacy
        self._original = module.configure_optimizers
        self._saved: bytes | None = None
        self._name = f"{uuid.uuid4().hex}.safetensors"
        self._file: RunFile | None = None
        self.private: Private | None = None

    def setup(self, trainer: Any, pl_module: pl.LightningModule, stage: str) -> None:
        """Raise `TrainingMisuse` for a setting of the trainer that takes over the update."""
        if stage == "fit":
            _check_trainer(trainer)

    def optimizers(self) -> Any:
        """The configuration of the module with the private optimizer in place of its own."""
        given = self._original()
        options, optimizer = _single(given)
        net = getattr(self._module, self._network)
        if self.private is not None:
            raise TrainingMisuse("fit must be called once on a private module; got a second call. Privatize a new one.")
        private = self.private = make_private(net, optimizer, self._loader, **self._privacy)
        private.model.session.run.loops += 1  # The trainer's own, which logs epsilon between passes.
        # Beside the submodule, not in its place: the state of the module keeps its names.
        self._module.__dict__[self._network] = _Routed(private, net)
        self._file = RunFile(private, Path(self._module.trainer.default_root_dir) / "tacit" / self._name)
        if self._saved is None:
            self._file.begin()
        else:
            with tempfile.TemporaryDirectory() as folder:
                copy = Path(folder) / self._name
                copy.write_bytes(self._saved)
                self._file.resume(copy)
        scheduler = options.get("lr_scheduler")
        if scheduler is not None:
            inner = scheduler["scheduler"] if isinstance(scheduler, dict) else scheduler
            inner.optimizer = private.optimizer
        return options | {"optimizer": private.optimizer}

    def loader(self) -> Any:
        """The private loader; raises `TrainingMisuse` before `fit` has made it."""
        if self.private is None:
            raise TrainingMisuse("the training loader must be asked for by trainer.fit; got a call before it.")
        return self.private.loader

    def step(self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None) -> None:
        """One step of automatic optimisation.

        Args:
            epoch: number of the pass.
            batch_idx: number of the batch.
            optimizer: whose step is taken.
            optimizer_closure: runs `training_step` and `backward`.
        """

        def closure() -> None:
            # Lightning returns the loss of the step: one value for each record.
            optimizer_closure()

        optimizer.step(closure=closure)

    def on_train_batch_start(self, trainer: Any, pl_module: pl.LightningModule, batch: Any, batch_idx: int) -> None:
        """Reserve the next steps on disk before one is taken.

        Args:
            trainer: of the run.
            pl_module: the module.
            batch: of the step.
            batch_idx: number of the batch.
        """
        assert self._file is not None
        self._file.before_step()

    def on_train_batch_end(
        self, trainer: Any, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Show epsilon, and stop after the last step that the plan and its budget allow.

        Args:
            trainer: of the run.
            pl_module: the module.
            outputs: of the step.
            batch: of the step.
            batch_idx: number of the batch.
        """
        assert self.private is not None
        run = self.private.model.session.run
        if not run.left:
            trainer.should_stop = True
        if not run.left or trainer.global_step % trainer.log_every_n_steps == 0:
            pl_module.log(REPORTED, epsilon_of(self.private.ledger, self._delta), prog_bar=True)

    def on_train_end(self, trainer: Any, pl_module: pl.LightningModule) -> None:
        """Give back the reserved steps that were not taken."""
        assert self._file is not None
        self._file.finish()

    def on_save_checkpoint(self, trainer: Any, pl_module: pl.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Put the ledger and the state of the run into the checkpoint."""
        if self._file is None:
            return
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / self._name
            self._file.save(copy)
            checkpoint[_STATE] = torch.frombuffer(bytearray(copy.read_bytes()), dtype=torch.uint8)
        checkpoint[_FILE] = self._name

    def on_load_checkpoint(self, trainer: Any, pl_module: pl.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Take the ledger of the run from the checkpoint; raises `TrainingMisuse` where there is none."""
        if _STATE not in checkpoint:
            raise TrainingMisuse("checkpoint must be one of a private run; got one without a ledger. Load its weights.")
        self._saved, self._name = checkpoint[_STATE].numpy().tobytes(), Path(checkpoint[_FILE]).name


class _Routed:
    """Stands for the trained submodule: calls go to the private model, all else to the submodule."""

    def __init__(self, private: Private, net: nn.Module):
        self._private, self._net = private, net

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        # `train` and `eval` of the Lightning module reach the submodule alone; a step asks for train mode.
        self._private.model.training = self._net.training
        try:
            return self._private.model(*inputs, **named)
        finally:
            self._private.model.training = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._net, name)


def _network_of(module: nn.Module) -> str:
    """The name of the child that holds all trainable parameters."""
    all_of_them = {id(each) for each in module.parameters() if each.requires_grad}
    for name, child in module.named_children():
        if all_of_them and all_of_them <= {id(each) for each in child.parameters()}:
            return name
    hint = "Put the layers into one submodule, such as self.net = nn.Sequential(...), and call that in training_step."
    raise check.fail("network", "the submodule with all trainable parameters", "several or none", hint)


def _single(given: Any) -> tuple[dict[str, Any], Optimizer]:
    """The configuration of the one optimizer as a table, and the optimizer."""
    match given:
        case ([optimizer], []) | [optimizer] | (Optimizer() as optimizer):
            given = {"optimizer": optimizer}
        case ([optimizer], [scheduler]):
            given = {"optimizer": optimizer, "lr_scheduler": scheduler}
    if not isinstance(given, dict):
        raise TrainingMisuse("configure_optimizers must return one optimizer in private training; got another number.")
    return given, given["optimizer"]


def _check_trainer(trainer: Any) -> None:
    refused = {
        "accumulate_grad_batches": (trainer.accumulate_grad_batches > 1, "1", "Give max_physical_batch_size."),
        "gradient_clip_val": (bool(trainer.gradient_clip_val), "None", "Give clip_norm."),
        "precision": (str(trainer.precision).startswith("16"), "32 or bf16", "bfloat16 needs no scaling of losses."),
        "devices": (trainer.world_size > 1, "1", "Noise is added once, in one process."),
        "overfit_batches": (bool(trainer.overfit_batches), "0", "It repeats batches of its own."),
    }
    for name, (wrong, rule, hint) in refused.items():
        if wrong:
            raise TrainingMisuse(f"{name} of the trainer must be {rule} in private training; got another. {hint}")
