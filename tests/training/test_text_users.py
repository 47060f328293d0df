"""User-level training of a small decoder: a user owns many texts, and all of them are clipped as one."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from tacit.losses import IGNORED, causal_lm
from tacit.noise import SeededStream
from tacit.sampling import GroupedPoissonSampling
from tacit.training import fit, make_private
from tests.training.cases import flat, plain_sgd

VOCABULARY, LENGTH, CLIP = 12, 7, 0.3
OWNERS = np.array(["ann", "bob", "ann", "cy", "dee", "ann", "cy", "eve", "ann", "ann"])
USERS = sorted(set(OWNERS.tolist()))


class Decoder(nn.Module):
    """One causal attention layer between an embedding and the same matrix as head."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.embed, self.position = nn.Embedding(VOCABULARY, 8), nn.Parameter(0.1 * torch.randn(LENGTH, 8))
        self.attend, self.norm = nn.Linear(8, 24), nn.LayerNorm(8)

    def forward(self, tokens):
        x = self.embed(tokens) + self.position
        attended = nn.functional.scaled_dot_product_attention(*self.attend(x).chunk(3, -1), is_causal=True)
        return nn.functional.linear(self.norm(x + attended), self.embed.weight)


def texts(seed=0):
    """Tokens and labels of ten texts, some of them padded."""
    tokens = torch.randint(0, VOCABULARY, (len(OWNERS), LENGTH), generator=torch.Generator().manual_seed(seed))
    labels = tokens.clone()
    labels[1::3, 4:] = IGNORED
    return tokens, labels


def clipped_by_user(tokens, labels, *, average, users=USERS):
    """Sum over users of their clipped gradient, by one backward pass for each text in double precision."""
    total = torch.zeros(sum(parameter.numel() for parameter in Decoder().parameters()), dtype=torch.float64)
    for user in users:
        texts_of_user = np.flatnonzero(user == OWNERS)
        gradient = torch.zeros_like(total)
        for row in texts_of_user:
            model = Decoder().double()
            causal_lm(model(tokens[row : row + 1]), labels[row : row + 1]).sum().backward()
            gradient += torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
        if average:
            gradient /= len(texts_of_user)
        total += gradient * min(1.0, CLIP / float(gradient.norm()))
    return total


def plain(sampling, **changes):
    """Settings of one step on all users without noise, so that the step is the mean of clipped gradients."""
    settings = {"clip_norm": CLIP, "noise_multiplier": 0.0, "unsafe_no_noise": True, "steps": 1, "sampling": sampling}
    return settings | changes


def step_of_loop(tokens, labels, sampling, **changes):
    """What one step of a loop of `make_private` takes from the weights, at learning rate 1."""
    model = Decoder()
    rows = [{"input_ids": x, "labels": y} for x, y in zip(tokens, labels, strict=True)]
    loader = DataLoader(rows, batch_size=len(USERS))
    private = make_private(model, plain_sgd(model, 1.0), loader, **plain(sampling, **changes))
    for batch in private.loader:
        causal_lm(private.model(batch["input_ids"]), batch["labels"]).backward()
        private.optimizer.step()
    assert private.ledger.unit == "user"
    return (flat(Decoder()) - flat(model)).double()


def step_of_fit(tokens, labels, sampling, **changes):
    """The same by `fit`."""
    model = Decoder()
    settings = plain(sampling, **changes)
    result = fit(
        model, tokens, labels, loss=causal_lm, optimizer=plain_sgd(model, 1.0), batch_size=len(USERS), **settings
    )
    assert result.ledger.unit == "user"
    return (flat(Decoder()) - flat(model)).double()


@pytest.mark.parametrize(
    ("step", "pieces", "average"),
    [(step_of_loop, None, False), (step_of_loop, 3, True), (step_of_fit, None, True), (step_of_fit, 3, False)],
)
def test_the_texts_of_a_user_are_clipped_as_one(step, pieces, average):
    tokens, labels = texts()
    found = step(tokens, labels, GroupedPoissonSampling(OWNERS, average=average), max_physical_batch_size=pieces)
    expected = clipped_by_user(tokens, labels, average=average) / len(USERS)
    assert float((found - expected).norm()) <= 1e-5 * CLIP
    # The clip acts, and clipping texts one by one would have given another sum.
    assert float((expected * len(USERS)).norm()) > CLIP


def test_other_users_change_nothing_of_what_a_user_adds():
    """All texts but Ann's are replaced: what remains after the others' clipped gradients are taken away is Ann's."""
    tokens, labels = texts()
    others = texts(seed=5)
    mine = torch.from_numpy(OWNERS == "ann")[:, None]
    mixed = torch.where(mine, tokens, others[0]), torch.where(mine, labels, others[1])
    sampling = GroupedPoissonSampling(OWNERS)
    rest = [user for user in USERS if user != "ann"]
    shares = [
        step_of_loop(*given, sampling) * len(USERS) - clipped_by_user(*given, average=False, users=rest)
        for given in ((tokens, labels), mixed)
    ]
    assert float((shares[0] - shares[1]).norm()) <= 1e-4 * CLIP
    assert float(shares[0].norm()) == pytest.approx(CLIP, rel=1e-3)


def test_all_texts_of_one_user_move_a_noisy_run_by_no_more_than_the_bound():
    """The same noise and users: the first step differs by two clipping norms at most, however many texts changed."""
    tokens, labels = texts()
    others = texts(seed=5)
    mine = torch.from_numpy(OWNERS == "ann")[:, None]
    changed = torch.where(mine, others[0], tokens), torch.where(mine, others[1], labels)
    noisy = {"noise_multiplier": 1.0, "unsafe_no_noise": False}
    steps = [
        step_of_fit(*given, GroupedPoissonSampling(OWNERS), stream=SeededStream(3), **noisy)
        for given in ((tokens, labels), changed)
    ]
    moved = float((steps[0] - steps[1]).norm()) * len(USERS)
    assert 0.1 * CLIP < moved <= 2 * CLIP * (1 + 1e-3)


def test_a_user_enters_a_batch_with_all_texts_or_with_none():
    tokens, labels = texts()
    model = Decoder()
    numbers = np.unique(OWNERS, return_inverse=True)[1]
    loader = DataLoader(list(zip(tokens, labels, numbers, strict=True)), batch_size=2)
    private = make_private(
        model, plain_sgd(model), loader, clip_norm=CLIP, noise_multiplier=1.0, steps=30,
        sampling=GroupedPoissonSampling(OWNERS), stream=SeededStream(0),
    )  # fmt: skip
    seen = set()
    while private.ledger.steps < 30:
        for inputs, targets, owners in private.loader:
            users, counts = np.unique(owners.numpy(), return_counts=True)
            assert counts.tolist() == np.bincount(numbers)[users].tolist()
            seen.add(tuple(users.tolist()))
            causal_lm(private.model(inputs), targets).backward()
            private.optimizer.step()
    assert len(seen) > 10
