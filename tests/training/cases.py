"""Small models and data that the training tests share."""

import torch
from torch import nn
from torch.nn import functional as F
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
