"""`make_private`: an existing PyTorch loop made private by one call."""

import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, NamedTuple, Unpack

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from tacit import check
from tacit.accounting import Ledger
from tacit.accounting.facts import FACTS, Facts
from tacit.errors import TrainingMisuse
from tacit.gradients import examine
from tacit.noise import Stream
from tacit.training.batch_session import DRAWS, BatchSession
from tacit.training.execution_record import plan_in_words
from tacit.training.loader import PrivateLoader, Transform, records_of
from tacit.training.loop_checks import LoopChecks
from tacit.training.other_loaders import tell_of_other_loaders
from tacit.training.plan import resolve_plan
from tacit.training.plan_options import PlanFields, PlanOptions, options_of
from tacit.training.private_step import check_optimizer
from tacit.training.ranks import Ranks, check_processes, start_run
from tacit.training.records import StreamedRecords, with_units
from tacit.training.sharded import WholeModel, is_sharded
from tacit.training.wrappers import PrivateModel, PrivateOptimizer


class Private(NamedTuple):
    """Result of `make_private`: private model, optimizer and loader, and the ledger that they write.

    Attributes:
        model: computes per-sample gradients in train mode; the original model in eval mode.
        optimizer: its `step` clips, adds noise and records the step.
        loader: yields the batches that the private sampler draws.
        ledger: the steps that ran.

    Example:
        >>> Private._fields
        ('model', 'optimizer', 'loader', 'ledger')
    """

    model: PrivateModel
    optimizer: PrivateOptimizer
    loader: PrivateLoader
    ledger: Ledger

    @property
    def epochs(self) -> Iterator[int]:
        """The passes over the loader for the planned steps, all of which are charged; the last ends with the plan."""
        session = self.model.session
        passes = math.ceil(session.run.unfinished / self.loader.batches)
        session.within_plan = True
        session.run.loops += 1
        try:
            yield from range(passes)
        finally:
            session.within_plan = False
            session.run.loops -= 1

    @property
    def facts(self) -> Facts:
        """What the guarantee rests on, and how each fact is known by now."""
        return self.ledger.facts

    def public(self, tensor: Tensor, name: str) -> Tensor:
        """Declare that `tensor` was made without private records, so that losses may use it; returns it."""
        return self.model.session.checks.public(tensor, name)

    def declare(self, fact: str, sentence: str) -> None:
        """Declare that a fact holds in this run, whatever is found; ledger and card print the sentence.

        Args:
            fact: a key of `tacit.accounting.facts.FACTS`, such as "rows".
            sentence: why it holds.
        """
        check.choice("fact", fact, FACTS)
        self.ledger.facts.declare(fact, check.text("sentence", sentence), whole=True)

    def unreleased(self, name: str) -> AbstractContextManager[None]:
        """Context in which numbers are read that neither leave this computer nor steer the run."""
        return self.model.session.checks.unreleased(name)

    def postprocessing(self, name: str) -> AbstractContextManager[None]:
        """Context in which weights are changed without private data, as by clamping them."""
        return self.model.session.checks.postprocessing(name)

    def resume(self, state: Mapping[str, Any], ledger: Ledger) -> None:
        """Load the weights of an earlier private run on these records, whose `ledger` this one must begin.

        Args:
            state: `state_dict` of the earlier model.
            ledger: of the earlier run; every step in it counts.

        Raises:
            InvalidInput: `ledger` does not begin with what this run's ledger holds.
        """
        self.model.session.check_between("weights must be loaded")
        self.ledger.advance(ledger)
        self.model.session.run.goes_on(ledger)
        with self.model.session.checks.restored():
            self.model.load_state_dict(state)


def make_private(
    model: nn.Module,
    optimizer: Optimizer,
    loader: DataLoader[Any],
    *,
    options: PlanOptions | None = None,
    ledger: Ledger | None = None,
    stream: Stream | None = None,
    transform: Transform | None = None,
    public: Mapping[str, Tensor] | None = None,
    distributed: bool = False,
    **named: Unpack[PlanFields],
) -> Private:
    """Private model, optimizer, loader and ledger for an ordinary training loop.

    One pass over the loader yields about 1 / sample_rate Poisson batches, some of which may be empty. Each step clips,
    adds noise, divides by the expected batch size and writes the ledger. The run checks what the loop makes of a batch:
    `Private.facts` lists what was enforced, checked, declared or assumed.

    Args:
        model: in train mode whenever a step is taken; returns one tensor.
        optimizer: holds exactly the model's trainable parameters.
        loader: only its data set, `batch_size` and `collate_fn` are used.
        options: clip, noise, batches, length and target of the run; or its fields as keywords. With `engine="auto"`
            passes of the model are replayed where one recording stands for all and was measured to pay, in a run
            without a seed; your own code between them runs at every step. With `max_physical_batch_size` the loader
            yields each batch in physical batches of at most so many records; the loop stays: backward on each, and
            `step` waits for the last and adds noise once.
        ledger: continued if given; a new one otherwise.
        stream: source of sampling and noise; a new `SecureStream` by default.
        transform: `transform(record, generator)` makes another record of one; applied before records are stacked.
        public: name -> tensor made without private records that losses use, such as class weights.
        distributed: this process is one of the initialised process group, and each holds the whole data set. Rank 0
            draws batches of all records and keeps the ledger, of which other ranks have copies; each rank clips its own
            part of the records; noise is added once. `batch_size` is that of the union. Each rank holds the whole
            model, or a shard of its parameters after `torch.distributed.fsdp.fully_shard`.
        **named: fields of `PlanOptions`, in place of those of `options`.

    Returns:
        The private counterparts of the three, and the ledger.

    Raises:
        TrainingMisuse: the original loader is iterated, backward is called twice on a batch or never, the model is in
            eval mode, or the optimizer belongs to another model.
        InvalidInput: a loss that is one number, or that mixes examples; a `collate_fn` that pads to the longest record.
        BudgetExceeded: before the step that would cross `target`.

    Example:
        >>> import torch
        >>> from torch.nn.functional import cross_entropy
        >>> x = torch.randn(100, 3)
        >>> data = torch.utils.data.TensorDataset(x, (x[:, 0] > 0).long())
        >>> model = torch.nn.Linear(3, 2)
        >>> private = make_private(
        ...     model, torch.optim.SGD(model.parameters(), lr=0.1), torch.utils.data.DataLoader(data, batch_size=20),
        ...     clip_norm=1.0, noise_multiplier=2.0, epochs=1)
        >>> for _ in private.epochs:
        ...     for inputs, targets in private.loader:
        ...         losses = cross_entropy(private.model(inputs), targets, reduction="none")
        ...         losses.backward()
        ...         private.optimizer.step()
        >>> private.ledger.steps
        5
    """
    options = options_of(options, named, make_private)
    ranks = Ranks() if distributed else None
    if ranks is not None and isinstance(model, nn.parallel.DistributedDataParallel):
        model = model.module  # The wrapper would average what it hooks; ranks exchange clipped sums instead.
    whole = WholeModel(model, ranks.rank, ranks.size) if ranks is not None and is_sharded(model) else None
    records = validate_parts(model, optimizer, loader, 1 if ranks is None else ranks.size, whole)
    options = _options_of_loop(options, loader)
    ledger = (ledger if ledger is not None else Ledger()) if ranks is None else ranks.ledger(ledger)
    plan = resolve_plan(options, records, ledger)
    if ranks is not None:
        ranks.replicate(model)
        ranks.check_same(plan_in_words(plan))
    session = BatchSession(start_run(options, plan, ledger, stream, ranks, whole))
    computed, size = model if whole is None else whole.module, options.max_physical_batch_size
    private = wrap(computed, optimizer, loader, session, size, transform=transform, public=public)
    if options.engine == "eager":
        private.model.stay_eager()
    return private


def _options_of_loop(options: PlanOptions, loader: DataLoader[Any]) -> PlanOptions:
    """`options` with the batch size of the loader where none is given; raises for what a user's loop decides itself."""
    if options.engine not in ("auto", "eager"):
        raise check.fail("engine", "auto or eager for a loop of your own", options.engine, "fit takes the others.")
    if options.precision != "float32":
        hint = "Call the model inside of torch.autocast."
        raise check.fail("precision", "float32 for a loop of your own", options.precision, hint)
    options = with_units(options, loader)
    if isinstance(loader.dataset, StreamedRecords) and options.sample_rate is None and options.public_size is None:
        options = replace(options, public_size=loader.dataset.public_size)
    if options.sample_rate is not None or options.batch_size is not None:
        return options
    if loader.batch_size is None:
        raise check.fail("sample_rate", "given for a loader without batch_size", None, "Use batch_size / n.")
    return replace(options, batch_size=loader.batch_size)


def validate_parts(
    model: nn.Module, optimizer: Optimizer, loader: DataLoader[Any], processes: int = 1, whole: WholeModel | None = None
) -> int:
    """Number of records of `loader`, after a check that the three can be trained privately together.

    Args:
        model: the original model.
        optimizer: of its trainable parameters.
        loader: the original loader.
        processes: how many train together, >= 1.
        whole: what steps compute with, where `model` is sharded.

    Raises:
        TrainingMisuse: one of them is private already, or another number of processes runs.
        InvalidInput: the loader has no length, or a sampler of its own.
    """
    if isinstance(model, PrivateModel) or isinstance(optimizer, PrivateOptimizer):
        raise TrainingMisuse(
            "model and optimizer must be the original ones; got one that is private already. "
            "Pass private.model.module and private.optimizer.original."
        )
    DRAWS.begin(None)  # What a run makes of itself is nothing of a batch that another loop left in hand.
    records = records_of(loader)
    computed = model if whole is None else whole.module
    examine(computed)
    check_processes(computed, processes)
    check_optimizer(model, optimizer)
    return records


def wrap(
    model: nn.Module,
    optimizer: Optimizer,
    loader: DataLoader[Any],
    session: BatchSession,
    max_physical_batch_size: Any = None,
    *,
    strict: bool = True,
    transform: Transform | None = None,
    public: Mapping[str, Tensor] | None = None,
) -> Private:
    """The private counterparts around the run of `session`, whose ledger records what the guarantee assumes.

    Args:
        model: the original model.
        optimizer: the original optimizer.
        loader: the original loader.
        session: shared by the three counterparts.
        max_physical_batch_size: most records that the loader yields at a time, >= 1.
        strict: as in `PrivateLoader`.
        transform: as in `make_private`.
        public: as in `make_private`.

    Raises:
        InvalidInput: `max_physical_batch_size` breaks its rule.
    """
    private = PrivateModel(model, session)
    session.checks = LoopChecks(private.clipped, optimizer, session.run, public, loader.dataset)
    private_loader = PrivateLoader(loader, session, max_physical_batch_size, strict=strict, transform=transform)
    tell_of_other_loaders(loader.dataset, session.run.ledger)
    session.checks.note_repeats(loader.dataset)
    return Private(private, PrivateOptimizer(optimizer, private, session), private_loader, session.run.ledger)
