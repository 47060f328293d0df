"""`PrivacyEngine`: private training with the calls of Opacus 1.6."""

import warnings
from contextlib import nullcontext
from dataclasses import fields, replace
from typing import Any, cast

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from tacit import check
from tacit.accounting import Ledger
from tacit.errors import InvalidInput, PrivacyWarning
from tacit.mechanisms import from_spec
from tacit.opacus import schedulers
from tacit.opacus.arguments import Adaptive, Arguments, Clipping, OpacusAccountant, PerExampleMean, check_fixed
from tacit.opacus.module_validator import ModuleValidator
from tacit.opacus.schedulers import Scheduler
from tacit.tradeoff import Epsilon
from tacit.training.batch_session import BatchSession
from tacit.training.loader import PrivateLoader, batches_in_a_pass
from tacit.training.make_private import validate_parts, wrap
from tacit.training.plan import resolve_plan, resolve_sample_rate, warn_about_delta
from tacit.training.plan_options import PlanFields, PlanOptions, options_of
from tacit.training.ranks import start_run
from tacit.training.wrappers import PrivateModel, PrivateOptimizer

_TAKEN = {"sampling", "noise", "epochs", "delta", "max_physical_batch_size", "public_size", "unsafe_no_noise"}
"""Fields of `PlanOptions` that Opacus has no argument for."""
Parts = (
    tuple[PrivateModel, PrivateOptimizer, PrivateLoader]
    | tuple[PrivateModel, PrivateOptimizer, nn.Module, PrivateLoader]
)
# Default of `criterion`, which only ghost mode uses; nothing changes it.
_CROSS_ENTROPY = nn.CrossEntropyLoss()
_COMPLETE = "Every step that any process took before a checkpoint was loaded is recorded in that checkpoint."
OWN_LENGTH = "the loop takes a number of passes of its own, which no output decides; with epochs= the plan counts"


class PrivacyEngine:
    """Makes PyTorch training private; every call writes into one ledger, so the privacy of several adds up.

    Differences that matter: the sample rate is batch_size / n, not 1 / len(data_loader); noise always comes from a
    cryptographic stream; a loss whose mean divides by something private is refused.

    Args:
        accountant: "prv" (the exact accountant `pld`), "rdp", "gdp" (the CLT, which bounds nothing and says so), or any
            accountant of tacit.
        secure_mode: forbids `noise_generator`; noise is secure in either case.
        ledger: continued if given, such as one of a registry (`tacit.budget`); a new one otherwise.

    Attributes:
        ledger: the steps that ran.
        accountant: answers `get_epsilon(delta)`.
    """

    def __init__(self, *, accountant: str = "prv", secure_mode: bool = False, ledger: Ledger | None = None):
        self.secure_mode = secure_mode
        self.ledger = ledger if ledger is not None else Ledger()
        self.accountant = OpacusAccountant(accountant, self.ledger)
        self._size: int | None = None  # Declared, or the number of records.
        self._saved_steps = 0

    def make_private(
        self,
        *,
        module: nn.Module,
        optimizer: Optimizer,
        criterion: nn.Module = _CROSS_ENTROPY,
        data_loader: DataLoader[Any],
        noise_multiplier: float,
        max_grad_norm: float | list[float],
        batch_first: bool = True,
        loss_reduction: str = "mean",
        poisson_sampling: bool = True,
        clipping: str = "flat",
        noise_generator: torch.Generator | None = None,
        grad_sample_mode: str = "hooks",
        wrap_model: bool = True,
        rand_on_empty: bool = False,
        options: PlanOptions | None = None,
        **named: Any,
    ) -> Parts:
        """Private (module, optimizer, loader), or (module, optimizer, criterion, loader) in ghost mode.

        The loop stays as it was: `criterion(module(x), y).backward()`, `optimizer.step()`.

        Args:
            module: in train mode; no layer may mix examples.
            optimizer: any `torch.optim` optimizer of the module's trainable parameters.
            criterion: used in ghost mode, which returns it with a mean that is taken example by example.
            data_loader: its data set, `batch_size` and `collate_fn` are used; the sample rate is batch_size / n. With
                a `collate_fn` that mixes records, as padding to the longest does, numbers are only `claimed`.
            noise_multiplier: noise std / max_grad_norm, > 0; with 0 training is not private, and the ledger says so.
            max_grad_norm: bound on the norm of one record's gradient, > 0; a list of one for each parameter with
                clipping="per_layer".
            batch_first: True; the first axis is the batch.
            loss_reduction: how the loop's loss reduces the losses of its batch, "mean" or "sum"; a vector of one loss
                per example may be given under either. Under "sum" the noisy sum is not divided by the batch size.
            poisson_sampling: False trains on shuffled batches, accounted as such: without amplification by sampling.
            clipping: "flat", "per_layer" or "adaptive".
            noise_generator: makes the noise repeatable from its seed, which voids the guarantee: numbers are then
                `claimed`.
            grad_sample_mode: "hooks", "functorch", "ew" or "ghost"; all run on one engine.
            wrap_model: True; the returned module must be called.
            rand_on_empty: False; an empty batch is noise and nothing else.
            options: sampling, noise, epochs, delta, max_physical_batch_size, public_size (the n of the sample rate
                then) and unsafe_no_noise as in `tacit.fit`; other fields are refused. `epochs` passes, >= 1, count
                as a whole; a run with correlated noise ends with them. Without it the loop takes a number of its own,
                which no output decides: the passes taken count. `unsafe_no_noise` allows noise_multiplier=0 silently.
            **named: fields of `options`, and of clipping="adaptive" the settings of `Adaptive`.

        Raises:
            InvalidInput: for an argument without a meaning here (batch_first=False, wrap_model=False,
                rand_on_empty=True, modes of several processes), with the reason.
            UnsupportedModel: as `tacit.make_private`.
            TrainingMisuse: as `tacit.make_private`.
        """
        adaptive, options = _split(options, named)
        check_fixed(batch_first=batch_first, wrap_model=wrap_model, rand_on_empty=rand_on_empty)
        clip = Clipping(clipping, max_grad_norm, adaptive)
        arguments = Arguments(
            module, optimizer, data_loader, criterion, poisson_sampling, noise_generator, grad_sample_mode
        )
        if options.epochs is not None:
            check.count("epochs", options.epochs)
        if noise_multiplier == 0 and not options.unsafe_no_noise:
            warnings.warn(
                "noise_multiplier=0 trains without privacy; the ledger says so.", PrivacyWarning, stacklevel=2
            )
            options = replace(options, unsafe_no_noise=True)
        return self._private(arguments, clip, loss_reduction, replace(options, noise_multiplier=noise_multiplier))

    def make_private_with_epsilon(
        self,
        *,
        module: nn.Module,
        optimizer: Optimizer,
        criterion: nn.Module = _CROSS_ENTROPY,
        data_loader: DataLoader[Any],
        target_epsilon: float,
        target_delta: float,
        epochs: int,
        max_grad_norm: float | list[float],
        batch_first: bool = True,
        loss_reduction: str = "mean",
        poisson_sampling: bool = True,
        clipping: str = "flat",
        noise_generator: torch.Generator | None = None,
        grad_sample_mode: str = "hooks",
        wrap_model: bool = True,
        options: PlanOptions | None = None,
        **named: Any,
    ) -> Parts:
        """`make_private` with the smallest noise multiplier after which the engine's whole ledger meets the target.

        Args:
            module: in train mode; no layer may mix examples.
            optimizer: any `torch.optim` optimizer of the module's trainable parameters.
            criterion: used in ghost mode, which returns it with a mean that is taken example by example.
            data_loader: its data set, `batch_size` and `collate_fn` are used; the sample rate is batch_size / n. With
                a `collate_fn` that mixes records, as padding to the longest does, numbers are only `claimed`.
            target_epsilon: > 0.
            target_delta: in (0, 1); 1/n or more is warned about.
            epochs: passes over the returned loader, >= 1; `BudgetExceeded` is raised before a step past the target.
            max_grad_norm: bound on the norm of one record's gradient, > 0; a list of one for each parameter with
                clipping="per_layer".
            batch_first: True; the first axis is the batch.
            loss_reduction: how the loop's loss reduces the losses of its batch, "mean" or "sum"; a vector of one loss
                per example may be given under either. Under "sum" the noisy sum is not divided by the batch size.
            poisson_sampling: False trains on shuffled batches, accounted as such: without amplification by sampling.
            clipping: "flat", "per_layer" or "adaptive".
            noise_generator: makes the noise repeatable from its seed, which voids the guarantee: numbers are then
                `claimed`.
            grad_sample_mode: "hooks", "functorch", "ew" or "ghost"; all run on one engine.
            wrap_model: True; the returned module must be called.
            options: sampling, noise, delta, public_size and max_physical_batch_size as in `tacit.fit`; no other field.
            **named: fields of `options`, and of clipping="adaptive" the settings of `Adaptive`.

        Raises:
            InvalidInput: as `make_private`.
            UnsupportedModel: as `tacit.make_private`.
            TrainingMisuse: as `tacit.make_private`.
        """
        adaptive, options = _split(options, named)
        check_fixed(batch_first=batch_first, wrap_model=wrap_model)
        clip = Clipping(clipping, max_grad_norm, adaptive)
        arguments = Arguments(
            module, optimizer, data_loader, criterion, poisson_sampling, noise_generator, grad_sample_mode
        )
        options.refuse(("epochs", "delta"), where="options", hint="Give the arguments epochs and target_delta.")
        options = replace(options, epochs=check.count("epochs", epochs), target=Epsilon(target_epsilon, target_delta))
        return self._private(arguments, clip, loss_reduction, options)

    def get_epsilon(self, delta: float) -> float:
        """Smallest epsilon at `delta` of the whole ledger; an `Answer` that includes its standing."""
        if self._size is not None:
            warn_about_delta(delta, self._size)
        return self.accountant.get_epsilon(delta)

    def is_compatible(
        self, *, module: nn.Module, optimizer: Optimizer | None, data_loader: DataLoader[Any] | None
    ) -> bool:
        """Whether `validate` finds nothing."""
        return ModuleValidator.is_valid(module)

    def validate(self, *, module: nn.Module, optimizer: Optimizer | None, data_loader: DataLoader[Any] | None) -> None:
        """Raise `UnsupportedModel` naming every layer of `module` that cannot be trained privately, and its fix."""
        ModuleValidator.validate(module, strict=True)

    @classmethod
    def get_compatible_module(cls, module: nn.Module) -> nn.Module:
        """A copy of `module` with the doctor's fixes applied; raises `UnsupportedModel` for what it cannot fix."""
        return ModuleValidator.fix_and_validate(module)

    def save_checkpoint(
        self,
        *,
        path: schedulers.Target,
        module: nn.Module,
        optimizer: Optimizer | None = None,
        noise_scheduler: Scheduler | None = None,
        grad_clip_scheduler: Scheduler | None = None,
        checkpoint_dict: dict[str, Any] | None = None,
        module_state_dict_kwargs: dict[str, Any] | None = None,
        torch_save_kwargs: dict[str, Any] | None = None,
    ) -> None:
        """Write the state of everything given and the ledger to `path`, without pickle; a file at once or not at all.

        Args:
            path: the file to write, or a binary file that is open.
            module: its state is written.
            optimizer: its state is written if given.
            noise_scheduler: its state is written if given.
            grad_clip_scheduler: its state is written if given.
            checkpoint_dict: more plain values and tensors to write.
            module_state_dict_kwargs: arguments of `module.state_dict`.
            torch_save_kwargs: None; the file is safetensors.

        Raises:
            TrainingMisuse: between backward and step: the gradients of a batch are not written.
            InvalidInput: `torch_save_kwargs` is given, or a value has no form without pickle.
        """
        if torch_save_kwargs:
            raise check.fail("torch_save_kwargs", "None", torch_save_kwargs, "The file is safetensors, not a pickle.")
        if isinstance(optimizer, PrivateOptimizer):
            optimizer.session.check_between("a checkpoint must be taken")
        state = dict(checkpoint_dict or {}) | {
            "module_state_dict": dict(module.state_dict(**(module_state_dict_kwargs or {}))),
            "ledger": self.ledger.resumable().spec(),
            "not_taken": [entry.mechanism.spec() | {"steps": entry.steps} for entry in self.ledger.not_taken],
        }
        parts = schedulers.named_parts(optimizer, noise_scheduler, grad_clip_scheduler)
        schedulers.write(path, state | {name: part.state_dict() for name, part in parts.items()})
        self._saved_steps = self.ledger.counted

    def load_checkpoint(
        self,
        *,
        path: schedulers.Target,
        module: nn.Module,
        optimizer: Optimizer | None = None,
        noise_scheduler: Scheduler | None = None,
        grad_clip_scheduler: Scheduler | None = None,
        module_load_dict_kwargs: dict[str, Any] | None = None,
        torch_load_kwargs: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Restore what `save_checkpoint` wrote; the ledger goes on from there, the noise from a new key.

        Shuffled batches begin a new pass, and the one that the checkpoint broke counts as whole. Steps that the process
        which wrote the file took afterwards cannot be known: that there are none becomes an assumption of the ledger.

        Args:
            path: what `save_checkpoint` wrote.
            module: its state is restored.
            optimizer: its state is restored if given.
            noise_scheduler: its state is restored if given.
            grad_clip_scheduler: its state is restored if given.
            module_load_dict_kwargs: arguments of `module.load_state_dict`.
            torch_load_kwargs: None; the file is safetensors.

        Returns:
            Everything in the file that was not restored, `checkpoint_dict` included.

        Raises:
            InvalidInput: this engine took steps since it last saved or loaded, its ledger holds some that the file does
                not, or a part that is given is not in the file.
        """
        if torch_load_kwargs:
            raise check.fail("torch_load_kwargs", "None", torch_load_kwargs, "The file is safetensors, not a pickle.")
        state = schedulers.read(path)
        parts = schedulers.named_parts(optimizer, noise_scheduler, grad_clip_scheduler)
        missing = [name for name in parts if name not in state]
        if missing:
            raise check.fail("path", f"a checkpoint with {missing[0]}", str(path), "Save it with that part.")
        self._advance(Ledger.from_spec(state.pop("ledger")))
        for mechanism, steps in map(from_spec, state.pop("not_taken")):
            self.ledger.owe(mechanism, steps)
        if isinstance(module, PrivateModel):
            module.session.run.goes_on(self.ledger)
        with module.session.checks.restored() if isinstance(module, PrivateModel) else nullcontext():
            module.load_state_dict(state.pop("module_state_dict"), **(module_load_dict_kwargs or {}))
        for name, part in parts.items():
            part.load_state_dict(state.pop(name))
        return state

    def _advance(self, saved: Ledger) -> None:
        """Continue from `saved`; raises if this engine took steps that no checkpoint holds."""
        unsaved = self.ledger.counted - self._saved_steps
        if unsaved:
            raise InvalidInput(
                f"ledger must hold no steps since a checkpoint was last saved or loaded; got {unsaved}. "
                "Load into a new PrivacyEngine before its first step."
            )
        self.ledger.advance(saved)
        self.ledger.assume(_COMPLETE)
        self._saved_steps = self.ledger.counted

    def _private(self, arguments: Arguments, clipping: Clipping, reduction: str, options: PlanOptions) -> Parts:
        check.choice("loss_reduction", reduction, ("mean", "sum"))
        module, optimizer, loader = arguments.module, arguments.optimizer, arguments.data_loader
        records = validate_parts(module, optimizer, loader)
        self._size = records if options.public_size is None else check.count("public_size", options.public_size)
        sample_rate = resolve_sample_rate(self._size, None, loader.batch_size)
        sampling, epochs = arguments.sampling(options), options.epochs
        options = replace(
            options,
            clipping=clipping.clip(module, optimizer),
            sampling=sampling,
            accountant=self.accountant.native if options.target is None else self.accountant.proven(),
            sample_rate=sample_rate,
            steps=int(epochs or 1) * batches_in_a_pass(sampling, records, sample_rate),
            epochs=None,
        )
        plan = clipping.adapted(resolve_plan(options, records, self.ledger))
        run = start_run(options, plan, self.ledger, arguments.stream(self.secure_mode))
        if epochs is None:
            self.ledger.facts.declare("steps", OWN_LENGTH)
        session = BatchSession(run, reduction, divided=reduction == "mean")
        size = options.max_physical_batch_size
        model, private_optimizer, private_loader, _ = wrap(module, optimizer, loader, session, size, strict=False)
        if arguments.grad_sample_mode == "ghost":
            return model, private_optimizer, PerExampleMean(arguments.criterion, reduction), private_loader
        return model, private_optimizer, private_loader


def _split(options: PlanOptions | None, named: dict[str, Any]) -> tuple[Adaptive, PlanOptions]:
    """The settings of adaptive clipping among `named`, and the options that Opacus has no argument for."""
    settings = {each.name for each in fields(Adaptive)}
    adaptive = Adaptive(**{name: value for name, value in named.items() if name in settings})
    rest = {name: value for name, value in named.items() if name not in settings}
    options = options_of(options, cast(PlanFields, rest), PrivacyEngine.make_private)
    options.refuse(options.given().keys() - _TAKEN, where="PrivacyEngine", hint="Its arguments are those of Opacus.")
    return adaptive, options
