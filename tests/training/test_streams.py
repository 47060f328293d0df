"""Streams: every record of a pass is drawn by its own coin, whatever its place, and passes are as few as declared."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from tacit.errors import InvalidInput
from tacit.mechanisms import Gaussian
from tacit.noise import SeededStream
from tacit.training import StreamedRecords, make_private
from tests.training.cases import blobs, cross_entropy, plain_sgd, small_model


class Shards(IterableDataset):
    """Records of four shards, in another order of shards in every pass."""

    def __init__(self, records):
        self.inputs, self.targets = blobs(records)
        self.passes = 0

    def __iter__(self):
        self.passes += 1
        for shard in np.roll(np.arange(4), self.passes):
            yield from zip(self.inputs[shard::4], self.targets[shard::4], strict=True)


def private_of(data, public_size, steps, per_pass, **named):
    model = small_model()
    loader = DataLoader(StreamedRecords(data, public_size, per_pass), batch_size=10)
    named = {"clip_norm": 1.0, "noise_multiplier": 1.0, "steps": steps} | named
    return make_private(model, plain_sgd(model), loader, **named)


def drawn(private, steps):
    """The inputs of every batch, trained on."""
    batches = []
    while len(batches) < steps:
        for x, y in private.loader:
            cross_entropy(private.model(x), y).backward()
            private.optimizer.step()
            batches.append(torch.Tensor(x.detach()).as_subclass(torch.Tensor))
            if len(batches) == steps:
                break
    return batches


def test_a_run_over_a_stream_is_charged_as_poisson_steps_and_reads_as_few_passes_as_declared():
    stream = Shards(80)
    private = private_of(stream, 100, 10, 5)
    drawn(private, 10)
    assert [(each.mechanism, each.steps) for each in private.ledger.entries] == [(Gaussian(1.0).poisson(0.1), 10)]
    assert 2 <= stream.passes <= 4  # and one record for the shapes of an empty batch
    assert not private.ledger.facts.found_missing
    assert private.ledger.standing.value == "proven"


@pytest.mark.slow
def test_every_record_is_drawn_at_the_declared_rate_and_independently_of_its_neighbour():
    """60 records, 400 steps at 1/10: counts are binomial, within 5 standard deviations."""
    stream, steps = Shards(60), 400
    private = private_of(stream, 100, steps, 20, stream=SeededStream(1))
    seen = torch.zeros(steps, 60)
    for step, batch in enumerate(drawn(private, steps)):
        for row in batch:
            seen[step, (stream.inputs == row).all(1).nonzero().item()] += 1
    assert seen.max() == 1
    assert (seen.sum(0) - 40).abs().max() < 5 * (steps * 0.09) ** 0.5
    assert torch.corrcoef(seen.T).fill_diagonal_(0).abs().max() < 5 / steps**0.5


def test_one_record_more_changes_only_whether_it_is_drawn_itself():
    """With the same coins, a record at the end leaves the others of every batch as they are."""
    fewer, more = (StreamedRecords([*range(size)], 50, 1) for size in (30, 31))
    for _ in range(20):
        coins = np.flatnonzero(np.random.default_rng(0).random(50) < 0.3).tolist()
        assert [each for each in more.__getitems__(coins) if each < 30] == fewer.__getitems__(coins)


def test_what_is_not_a_poisson_run_of_a_bounded_stream_is_refused():
    with pytest.raises(InvalidInput, match=r"sampling of a stream must be poisson in one process; got 'shuffled'"):
        private_of(Shards(80), 100, 10, 1, sampling="shuffled")
    with pytest.raises(InvalidInput, match="public_size must be at least the number of records"):
        drawn(private_of(Shards(120), 100, 2, 1), 1)
    model = small_model()
    with pytest.raises(InvalidInput, match=r"StreamedRecords\(stream, public_size=\.\.\.\)"):
        make_private(model, plain_sgd(model), DataLoader(Shards(8), batch_size=2), clip_norm=1.0, noise_multiplier=1.0)
