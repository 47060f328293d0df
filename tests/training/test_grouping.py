"""The grouping of records into users belongs to the identity of a run."""

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from tacit.accounting import Ledger
from tacit.errors import InvalidInput
from tacit.sampling import GroupedPoissonSampling
from tacit.training import fit, read_checkpoint

X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()
USERS = np.arange(40) // 4
OTHERS = np.roll(USERS, 1)


def run(users, *, ledger=None, steps=4, **settings):
    model = torch.nn.Linear(3, 2)
    return fit(
        model,
        X[: len(users)],
        Y[: len(users)],
        loss=lambda out, y: cross_entropy(out, y, reduction="none"),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.5),
        clip_norm=1.0,
        noise_multiplier=2.0,
        sampling=GroupedPoissonSampling(users),
        sample_rate=0.5,
        steps=steps,
        ledger=ledger,
        **settings,
    )


def test_a_run_does_not_go_on_with_other_users(tmp_path):
    path = tmp_path / "run.safetensors"
    run(USERS, checkpoint=path)
    with pytest.raises(InvalidInput, match="groups must be those with which the run"):
        run(OTHERS, checkpoint=path, resume=True)


def test_it_goes_on_with_the_same_users_by_other_names(tmp_path):
    path = tmp_path / "run.safetensors"
    run(USERS, checkpoint=path)
    for names in (USERS, [f"user {99 - user}" for user in USERS]):
        assert run(names, checkpoint=path, resume=True).ledger.steps == 4


def test_a_ledger_refuses_another_grouping_of_as_many_records():
    ledger = Ledger(unit="user")
    run(USERS, ledger=ledger)
    run(USERS[::-1].max() - USERS, ledger=ledger)
    with pytest.raises(InvalidInput, match="groups must be those of the earlier runs"):
        run(OTHERS, ledger=ledger)
    assert run(USERS[:20], ledger=ledger).ledger.steps == 12


def test_no_plain_hash_of_the_grouping_is_written(tmp_path):
    """Two checkpoints of one grouping differ in their hash, and a ledger has none."""
    paths = [tmp_path / name for name in ("a.safetensors", "b.safetensors")]
    ledgers = [run(USERS, checkpoint=path).ledger for path in paths]
    first, second = (read_checkpoint(path).fingerprint["groups"] for path in paths)
    assert first != second
    assert first.split(":")[2] not in str(ledgers[0].spec())
