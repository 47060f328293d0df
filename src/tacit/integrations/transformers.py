"""The Trainer of Hugging Face transformers made private (extra `transformers`)."""

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn, cast

import torch
import transformers
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from tacit import check, losses
from tacit.accounting import Ledger
from tacit.errors import TrainingMisuse
from tacit.integrations.trainer_logs import PRIVATE, REPORTED, epsilon_of, reported_delta
from tacit.noise import Stream
from tacit.sampling import sampling_of
from tacit.training.loader import batches_in_a_pass, records_of
from tacit.training.make_private import Private, make_private
from tacit.training.plan_options import PlanFields, PlanOptions, options_of
from tacit.training.records import with_units
from tacit.training.resume import RUN_FILE, RunFile

Loss = Callable[[Any, Mapping[str, Any]], Tensor]
"""`loss(outputs, batch)`: one value for each record, shape (batch,)."""
LABELS = ("labels", "label", "label_ids")
# End of the class name of a model, and the loss of its outputs.
_HEADS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "ForCausalLM": losses.causal_lm,
    "LMHeadModel": losses.causal_lm,
    "ForMaskedLM": losses.masked_lm,
    "ForSequenceClassification": losses.sequence_classification,
    "ForImageClassification": losses.sequence_classification,
    "ForTokenClassification": losses.token_classification,
    "ForConditionalGeneration": losses.seq2seq_lm,
}


class PrivateTrainer(transformers.Trainer):
    """`transformers.Trainer` whose steps are those of `make_private`.

    `per_device_train_batch_size` is the expected size of a Poisson batch, `max_steps` or `num_train_epochs` the plan.
    Checkpoints hold the ledger; a resumed run counts every step that may have run. Logs hold epsilon, and neither the
    training loss nor gradient norms, which are numbers of private records.

    Args:
        *args: as `transformers.Trainer`.
        options: clip, noise and target of the run, as `make_private` takes them; or its fields as keywords. Logs show
            epsilon at its delta, 1e-5 by default.
        ledger: continued if given; a new one otherwise.
        stream: source of sampling and noise; a new `SecureStream` by default.
        public: as in `make_private`.
        loss: `loss(outputs, batch)` of one value for each record; by default the one of `tacit.losses` for the class
            of the model, on `batch["labels"]`.
        **named: as `transformers.Trainer`; fields of `PlanOptions` replace those of `options`.

    Raises:
        TrainingMisuse: an argument lets the trainer clip, accumulate, scale or select by private numbers.
        InvalidInput: the model has no head that `tacit.losses` knows, and `loss` is not given.

    Attributes:
        private: the parts of `make_private`, once training has begun; None before.
    """

    def __init__(
        self,
        *args: Any,
        options: PlanOptions | None = None,
        ledger: Ledger | None = None,
        stream: Stream | None = None,
        public: Mapping[str, Tensor] | None = None,
        loss: Loss | None = None,
        **named: Any,
    ):
        fields = {name: named.pop(name) for name in PlanFields.__annotations__ if name in named}
        options = options_of(options, cast(PlanFields, fields), make_private)
        hint = "TrainingArguments hold max_steps, num_train_epochs and per_device_train_batch_size."
        options.refuse(("steps", "epochs", "batch_size"), where="PrivateTrainer", hint=hint)
        self._privacy = {"options": options, "ledger": ledger, "stream": stream, "public": public}
        super().__init__(*args, **named)
        _check_arguments(self)
        _check_methods(self, loss)
        self.private: Private | None = None
        self._delta = reported_delta(self._privacy)
        self._loss = loss if loss is not None else _loss_of(self.model)
        # Poisson batches of a resumed run are drawn anew: none is skipped.
        self.args.ignore_data_skip = True
        self._records: DataLoader[Any] | None = None
        self._file: RunFile | None = None
        self._planned = 0
        self._batches: Iterator[Any] = iter(())
        self.add_callback(PrivacyCallback(self))

    def get_train_dataloader(self) -> Any:
        """One entry for each step of a pass; `training_step` draws the batches."""
        dataset, collate = self.train_dataset, self.data_collator
        if hasattr(dataset, "remove_columns"):
            dataset = self._remove_unused_columns(dataset, "training")  # type: ignore[arg-type]
        elif collate is not None:
            collate = self._get_collator_with_removed_columns(collate, "training")
        size = self.args.per_device_train_batch_size
        self._records = DataLoader(dataset, batch_size=size, collate_fn=collate)  # type: ignore[arg-type]
        options = with_units(self._privacy["options"], self._records)
        sampling, records = sampling_of(options.sampling), records_of(self._records)
        rate = options.sample_rate or min(1.0, size / (options.public_size or sampling.units(records)))
        return [{} for _ in range(batches_in_a_pass(sampling, records, rate))]

    def _prepare_for_training(self, max_steps: int, train_dataloader: Any, resume_from_checkpoint: str | None) -> Any:
        self._planned = max_steps
        prepared = super()._prepare_for_training(max_steps, train_dataloader, resume_from_checkpoint)
        assert self.private is not None
        self._file = RunFile(self.private, Path(self._get_output_dir(None)) / RUN_FILE)
        if resume_from_checkpoint is None:
            self._file.begin()
        else:
            self._file.resume(Path(resume_from_checkpoint) / RUN_FILE)
        return prepared

    def create_optimizer(self, model: nn.Module | None = None) -> Optimizer:
        """The private optimizer around the one that the trainer makes or was given."""
        if self.private is not None:
            raise TrainingMisuse("train must be called once; got a second call. Make a PrivateTrainer with ledger=.")
        optimizer = super().create_optimizer(model)
        if self._records is None:
            says = "get_train_dataloader must call that of PrivateTrainer, which draws the batches; got another."
            raise TrainingMisuse(f"{says} Give train_dataset= and data_collator=.")
        assert isinstance(self.model, nn.Module)
        self.private = make_private(self.model, optimizer, self._records, steps=self._planned, **self._privacy)
        self.private.model.session.run.loops += 1  # The trainer's own, which logs epsilon between passes.
        self.optimizer = self.private.optimizer
        return self.optimizer

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """Clipped sums of one batch; returns zero, as the loss of private records is not released."""
        private = self.private
        assert private is not None
        assert self._file is not None
        self._file.before_step()
        private.model.train()
        while not private.optimizer.batch_complete:
            batch = self._prepare_inputs(self._next_batch(private))
            with self.compute_loss_context_manager():
                outputs = private.model(**{name: value for name, value in batch.items() if name not in LABELS})
                values = self._loss(outputs, batch)
            values.backward()
        return torch.zeros((), device=self.args.device)

    def _next_batch(self, private: Private) -> Any:
        """The next physical batch, of this pass or the next one."""
        batch = next(self._batches, None)
        if batch is None:
            self._batches = iter(private.loader)
            batch = next(self._batches)
        return batch

    def floating_point_ops(self, inputs: Any) -> int:
        """Zero: the number of tokens follows the private batch."""
        return 0

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log epsilon in place of numbers of private records."""
        if self.private is not None and self.is_in_train:
            # In place: the trainer returns the same table at the end of training.
            for name in PRIVATE:
                logs.pop(name, None)
            logs[REPORTED] = epsilon_of(self.private.ledger, self._delta)
        super().log(logs, start_time)

    def hyperparameter_search(self, *args: Any, **named: Any) -> NoReturn:
        """Raise `TrainingMisuse`: choosing between private runs has a cost, which `tacit.tuning` accounts for."""
        raise TrainingMisuse("settings must be chosen by tacit.tuning, which accounts for the choice; got a search.")

    def _finalize_training(self, trial: Any, num_train_samples: Any, start_time: Any) -> Any:
        output = super()._finalize_training(trial, num_train_samples, start_time)
        if self._file is not None:
            self._file.finish()
        return output._replace(training_loss=math.nan)

    def _clip_grad_norm(self, model: nn.Module) -> None:
        return None

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> None:
        return None

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        assert self._file is not None
        folder = f"{transformers.trainer_utils.PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        self._file.save(Path(self._get_output_dir(trial)) / folder / RUN_FILE)
        super()._save_checkpoint(model, trial)


class PrivacyCallback(transformers.TrainerCallback):
    """Epsilon in the progress bar, and the end of training where the plan or its budget allows no further step.

    `PrivateTrainer` adds one to itself.

    Args:
        trainer: whose run is watched.
    """

    def __init__(self, trainer: PrivateTrainer):
        self._trainer = trainer

    def on_step_end(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        """Stop after the last step that the plan and its budget allow.

        Args:
            args: of the trainer.
            state: of the trainer.
            control: whose `should_training_stop` is set.
            **named: other parts of the trainer.
        """
        private = self._trainer.private
        if private is not None and not private.model.session.run.left:
            control.should_training_stop = True

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **named: Any) -> None:
        """Show epsilon in the progress bar.

        Args:
            args: of the trainer.
            state: of the trainer.
            control: of the trainer.
            logs: what is logged.
            **named: other parts of the trainer.
        """
        for callback in self._trainer.callback_handler.callbacks:
            bar = getattr(callback, "training_bar", None)
            if bar is not None and logs and REPORTED in logs:
                bar.set_postfix({REPORTED: f"{logs[REPORTED]:.3g}"})


def _loss_of(model: Any) -> Loss:
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    name = type(inner).__name__
    head = next((head for end, head in _HEADS.items() if name.endswith(end)), None)
    if head is None:
        hint = "Give loss=lambda outputs, batch: a vector of one value for each record."
        raise check.fail("model", "one whose head tacit.losses knows, or loss given", name, hint)
    return lambda outputs, batch: head(outputs.logits, batch["labels"])


# Setting of TrainingArguments -> values that leave the update to `make_private`, and what to do.
_ALLOWED: dict[str, tuple[tuple[Any, ...], str]] = {
    "gradient_accumulation_steps": ((1,), "Raise per_device_train_batch_size, and give max_physical_batch_size."),
    "max_grad_norm": ((0, 1.0, None), "It has no effect; give clip_norm."),
    "fp16": ((False,), "bf16 needs no scaling of losses."),
    "label_smoothing_factor": ((0, None), "Give loss= with the smoothing, one value for each record."),
    "neftune_noise_alpha": ((None,), "Its noise follows the lengths of the texts."),
    "torch_compile": ((False,), "Compile the model before it is given."),
    "auto_find_batch_size": ((False,), "A restart releases steps again; bound memory by max_physical_batch_size."),
    "load_best_model_at_end": ((False,), "The choice follows numbers; choose by public data after training."),
    "include_num_input_tokens_seen": (("no", False), "The number of tokens follows the private batches."),
    "deepspeed": ((None,), "Train in one process."),
    "save_only_model": ((False,), "A checkpoint keeps the ledger beside all that the run needs to go on."),
}


def _check_methods(trainer: transformers.Trainer, loss: Loss | None) -> None:
    """Raise for a method that private steps would not call, unless its remedy is there."""
    own, base = type(trainer), transformers.Trainer
    if loss is None and own.compute_loss is not base.compute_loss:
        says = "private steps call a loss of one value for each record alone. Give it as loss=."
        raise TrainingMisuse(f"compute_loss must not be overridden by {own.__name__}: {says}")
    if own._get_train_sampler is not base._get_train_sampler:
        says = "private steps draw their own batches. Give sampling=."
        raise TrainingMisuse(f"_get_train_sampler must not be overridden by {own.__name__}: {says}")


def _check_arguments(trainer: transformers.Trainer) -> None:
    for name, (allowed, hint) in _ALLOWED.items():
        value = getattr(trainer.args, name, allowed[0])
        if value not in allowed:
            rules = " or ".join(map(repr, allowed[:1]))
            raise TrainingMisuse(f"{name} must be {rules} in private training; got {value!r}. {hint}")
    if trainer.compute_loss_func is not None:
        raise TrainingMisuse("compute_loss_func must be None in private training; got one. Give loss= instead.")
    if trainer.args.world_size > 1 or trainer.args.n_gpu > 1:
        raise TrainingMisuse("PrivateTrainer must run in one process on one device; got several. Noise is added once.")
