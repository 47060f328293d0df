"""Old keywords of the physical batch size still work for one version, with a warning, and change nothing."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from tacit.errors import InvalidInput
from tacit.noise import SeededStream
from tacit.training import fit, make_private, private_step
from tests.training.cases import blobs, cross_entropy, flat, plain_sgd, small_model

X, Y = blobs(40)
COMMON = {"clip_norm": 0.5, "noise_multiplier": 1.0}


def by_fit(model, **size):
    stream = SeededStream(0)
    fit(
        model,
        X,
        Y,
        loss=cross_entropy,
        optimizer=plain_sgd(model),
        batch_size=10,
        steps=2,
        stream=stream,
        **COMMON,
        **size,
    )


def by_step(model, **size):
    stream = SeededStream(0)
    step = private_step(model, plain_sgd(model), cross_entropy, expected_batch_size=10, stream=stream, **COMMON, **size)
    step(X[:10], Y[:10])


def by_loop(model, **size):
    loader = DataLoader(TensorDataset(X, Y), batch_size=10)
    private = make_private(model, plain_sgd(model), loader, epochs=1, stream=SeededStream(0), **COMMON, **size)
    for inputs, targets in private.loader:
        cross_entropy(private.model(inputs), targets).backward()
        private.optimizer.step()


CALLS = [(by_fit, "max_physical_batch"), (by_step, "max_physical_batch"), (by_loop, "physical_batch_size")]


@pytest.mark.parametrize(("train", "old"), CALLS)
def test_the_old_keyword_warns_and_gives_the_same_weights(train, old):
    expected, model = small_model(), small_model()
    train(expected, max_physical_batch_size=4)
    with pytest.warns(DeprecationWarning, match=f"{old} is now called max_physical_batch_size"):
        train(model, **{old: 4})
    assert torch.equal(flat(model), flat(expected))


@pytest.mark.parametrize(("train", "old"), CALLS)
def test_both_keywords_at_once_are_refused(train, old):
    with pytest.raises(InvalidInput, match="max_physical_batch_size must be given once"):
        train(small_model(), max_physical_batch_size=4, **{old: 4})
