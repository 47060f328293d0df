"""Small models and data that the training tests share."""

import random

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.optim import SGD


def cross_entropy(outputs, targets):
    return F.cross_entropy(outputs, targets, reduction="none")


def squared_error(outputs, targets):
    return (outputs - targets).square().flatten(1).sum(1)


def blobs(records=200, seed=0):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(records, 4, generator=generator)
    return inputs, (inputs[:, 0] + inputs[:, 1] > 0).long()


def small_model(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))


def plain_sgd(model, learning_rate=0.5):
    return SGD(model.parameters(), lr=learning_rate)


def flat(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def differ(one, other):
    """Whether weights are others: noise on a grid leaves a single weight where it is now and then."""
    return bool((one != other).double().mean() > 0.8)


def stack(rows):
    """PerExample (x, y) as a batch."""
    return torch.stack([x for x, _ in rows]), torch.tensor([y for _, y in rows])


def _padded(rows):
    return pad_sequence([x[: 1 + int(y)] for x, y in rows], batch_first=True), torch.tensor([y for _, y in rows])


def _standardised(rows):
    x, y = stack(rows)
    return (x - x.mean(0)) / x.std(0, correction=0), y


def _mixed_up(rows):
    x, y = stack(rows)
    share = random.random()
    return share * x + (1 - share) * x.roll(1, 0), y


MIXING_COLLATIONS = {"padding": _padded, "standardising": _standardised, "mixup": _mixed_up}

_OWN = np.random.default_rng(0)


def _padded_to_a_public_length(rows):
    return torch.stack([F.pad(x[: 1 + int(y)], (0, 3 - int(y))) for x, y in rows]), torch.tensor([y for _, y in rows])


def _augmented(rows):
    return torch.stack([x + 0.1 * torch.randn(4) + np.random.rand() for x, _ in rows]), stack(rows)[1]  # noqa: NPY002


def _augmented_together(rows):
    x, y = stack(rows)
    return x + 0.1 * torch.randn_like(x), y


def _augmented_by_a_generator_of_its_own(rows):
    return torch.stack([x.flip(0) if _OWN.random() < 0.3 else x for x, _ in rows]), stack(rows)[1]


def _squeezed(rows):
    x, y = stack(rows)
    return x, y.unsqueeze(1).squeeze()


HONEST_COLLATIONS = {
    "padding to a public length": _padded_to_a_public_length,
    "augmentation": _augmented,
    "augmentation of the batch": _augmented_together,
    "a generator of its own": _augmented_by_a_generator_of_its_own,
    "squeezing": _squeezed,
}
