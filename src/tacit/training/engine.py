"""`make_private`: an existing PyTorch loop made private by one call."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any, NamedTuple

from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, IterableDataset

from tacit import check
from tacit.accounting import Accountant, Ledger
from tacit.clipping import Clip
from tacit.gradients import examine
from tacit.noise import Stream
from tacit.sampling import Sampling
from tacit.tradeoff import Target
from tacit.training.plan import PrivateRun
from tacit.training.schedules import Noise
from tacit.training.settle import settle
from tacit.training.step import check_optimizer
from tacit.training.wrapped import Exchange, PrivateLoader, PrivateModel, PrivateOptimizer


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
    stream: Stream | None = None,
    unsafe_no_noise: bool = False,
) -> Private:
    """The private model, optimizer, loader and ledger for a loop such as

        for inputs, targets in private.loader:
            losses = cross_entropy(private.model(inputs), targets, reduction="none")
            losses.backward()
            private.optimizer.step()

    One pass over the loader yields about 1 / sample_rate Poisson batches, some of which may be empty. Each step clips,
    adds noise, divides by the expected batch size and writes the ledger; arguments as in `fit`.

    Args:
        model: in train mode whenever a step is taken; returns one tensor.
        optimizer: holds exactly the model's trainable parameters.
        loader: only its data set, `batch_size` and `collate_fn` are used.
        sample_rate: batch_size / number of records by default.
        steps, epochs: how long the run is planned to be; with `target` no step goes past it.

    Raises:
        TrainingMisuse: the original loader is iterated, backward is called twice on a batch or never, the model is in
            eval mode, or the optimizer belongs to another model.
        InvalidInput: a loss that is one number, or that mixes examples.
        BudgetExceeded: before the step that would cross `target`.
    """
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        raise check.fail("loader", "a DataLoader of a data set with a length", type(loader).__name__)
    examine(model)
    check_optimizer(model, optimizer)
    assert isinstance(loader.dataset, Sized)
    records = check.count("number of records of loader", len(loader.dataset))
    if sample_rate is None and loader.batch_size is None:
        raise check.fail("sample_rate", "given for a loader without batch_size", None, "Use batch_size / n.")
    book = ledger if ledger is not None else Ledger()
    plan = settle(
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
    exchange = Exchange(PrivateRun(plan, stream=stream, ledger=book, budget=target, using=accountant))
    private = PrivateModel(model, exchange)
    return Private(private, PrivateOptimizer(optimizer, private, exchange), PrivateLoader(loader, exchange), book)
