"""`make_private`: an existing PyTorch loop made private by one call."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from tacit import check
from tacit.accounting import Accountant, Ledger
from tacit.clipping import Clip
from tacit.errors import TrainingMisuse
from tacit.gradients import examine
from tacit.noise import Stream
from tacit.sampling import Sampling
from tacit.tradeoff import Target
from tacit.training.batch_session import BatchSession
from tacit.training.collation import assumptions_of
from tacit.training.loader import PrivateLoader, records_of
from tacit.training.plan import PrivateRun
from tacit.training.private_step import check_optimizer
from tacit.training.resolve_plan import resolve_plan
from tacit.training.schedules import Noise
from tacit.training.wrappers import PrivateModel, PrivateOptimizer

LOOP = (
    "The training loop computes each record's inputs, targets and loss from that record and public values alone: "
    "nothing is standardised or weighted by a batch, no records are mixed (mixup), and no second forward pass of the "
    "model brings other records into a loss."
)


class Private(NamedTuple):
    """The private counterparts of a model, its optimizer and its loader, and the ledger that they write."""

    model: PrivateModel
    optimizer: PrivateOptimizer
    loader: PrivateLoader
    ledger: Ledger


def make_private(
    model: nn.Module,
    optimizer: Optimizer,
    loader: DataLoader[Any],
    *,
    clip_norm: float | None = None,
    clipping: Clip | None = None,
    sampling: str | Sampling = "poisson",
    noise_multiplier: Noise | None = None,
    target: Target | None = None,
    accountant: Accountant | str = "pld",
    sample_rate: float | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    delta: float | None = None,
    ledger: Ledger | None = None,
    max_physical_batch_size: int | None = None,
    stream: Stream | None = None,
    unsafe_no_noise: bool = False,
) -> Private:
    """The private model, optimizer, loader and ledger for a loop such as

        for inputs, targets in private.loader:
            losses = cross_entropy(private.model(inputs), targets, reduction="none")
            losses.backward()
            private.optimizer.step()

    One pass over the loader yields about 1 / sample_rate Poisson batches, some of which may be empty. Each step clips,
    adds noise, divides by the expected batch size and writes the ledger; arguments as in `fit`. What the loop itself
    makes of a batch cannot all be seen: the ledger holds the assumption `LOOP`.

    Args:
        model: in train mode whenever a step is taken; returns one tensor.
        optimizer: holds exactly the model's trainable parameters.
        loader: only its data set, `batch_size` and `collate_fn` are used.
        sample_rate: batch_size / number of records by default.
        steps, epochs: how long the run is planned to be; with `target` no step goes past it.
        max_physical_batch_size: the loader yields each batch in pieces of at most so many records. The loop stays:
            backward on every piece; `step` waits for the last, adds noise once and divides by the expected size of
            the whole batch.

    Raises:
        TrainingMisuse: the original loader is iterated, backward is called twice on a batch or never, the model is in
            eval mode, or the optimizer belongs to another model.
        InvalidInput: a loss that is one number, or that mixes examples; a `collate_fn` that pads to the longest record.
        BudgetExceeded: before the step that would cross `target`.
    """
    records = prepared(model, optimizer, loader)
    if sample_rate is None and loader.batch_size is None:
        raise check.fail("sample_rate", "given for a loader without batch_size", None, "Use batch_size / n.")
    book = ledger if ledger is not None else Ledger()
    plan = resolve_plan(
        records,
        clip_norm=clip_norm,
        clipping=clipping,
        sampling=sampling,
        noise_multiplier=noise_multiplier,
        target=target,
        accountant=accountant,
        sample_rate=sample_rate,
        batch_size=loader.batch_size if sample_rate is None else None,
        steps=steps,
        epochs=epochs,
        delta=delta,
        ledger=book,
        unsafe_no_noise=unsafe_no_noise,
    )
    run = PrivateRun(plan, stream=stream, ledger=book, budget=target, accountant=accountant)
    return wrapped(model, optimizer, loader, BatchSession(run), max_physical_batch_size)


def prepared(model: nn.Module, optimizer: Optimizer, loader: DataLoader[Any]) -> int:
    """Number of records of `loader`, after a check that the three can be trained privately together."""
    if isinstance(model, PrivateModel) or isinstance(optimizer, PrivateOptimizer):
        raise TrainingMisuse(
            "model and optimizer must be the original ones; got one that is private already. "
            "Pass private.model.module and private.optimizer.original."
        )
    records = records_of(loader)
    examine(model)
    check_optimizer(model, optimizer)
    return records


def wrapped(
    model: nn.Module,
    optimizer: Optimizer,
    loader: DataLoader[Any],
    exchange: BatchSession,
    max_physical_batch_size: int | None = None,
    *,
    strict: bool = True,
) -> Private:
    """The private counterparts around the run in `exchange`, whose ledger is told what rests on the loop.

    `strict` as in `PrivateLoader`.
    """
    private = PrivateModel(model, exchange)
    private_loader = PrivateLoader(loader, exchange, max_physical_batch_size, strict=strict)
    ledger = exchange.run.ledger
    for sentence in (LOOP, *assumptions_of(private_loader.collate_fn)):
        ledger.assume(sentence)
    return Private(private, PrivateOptimizer(optimizer, private, exchange), private_loader, ledger)
