"""`Records`: columns of which tacit reads row i for record i."""

import datasets
import numpy as np
import pandas as pd
import polars
import pyarrow
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset

import tacit
from tacit.errors import InvalidInput
from tacit.opacus import PrivacyEngine
from tacit.standing import Standing
from tacit.training import fit, make_private
from tacit.verification.records import repeated_records

N = 40
X = torch.randn(N, 3, generator=torch.Generator().manual_seed(1))
Y = (X[:, 0] > 0).long()
TABLE = {"a": X[:, 0].tolist(), "b": X[:, 1].tolist(), "label": Y.tolist()}


def of_table(row):
    return torch.tensor([row["a"], row["b"]], dtype=torch.float32), int(row["label"])


def halves(row):
    return row[0] / 2, row[1]


def mapped(tmp):
    np.save(tmp / "x.npy", X.numpy())
    return np.load(tmp / "x.npy", mmap_mode="r")


KINDS = {
    "tuple of tensors": lambda tmp: tacit.Records((X, Y)),
    "dict of tensors": lambda tmp: tacit.Records({"x": X, "y": Y}, per_record=lambda row: (row["x"], row["y"])),
    "arrays": lambda tmp: tacit.Records((X.numpy(), Y.numpy()), per_record=halves),
    "lists": lambda tmp: tacit.Records((X.tolist(), Y.tolist()), per_record=lambda row: (torch.tensor(row[0]), row[1])),
    "memory map": lambda tmp: tacit.Records((mapped(tmp), Y), per_record=lambda row: (torch.tensor(row[0]), row[1])),
    "pandas": lambda tmp: tacit.Records(pd.DataFrame(TABLE), per_record=of_table),
    "shuffled pandas": lambda tmp: tacit.Records(pd.DataFrame(TABLE).sample(frac=1), per_record=of_table),
    "polars": lambda tmp: tacit.Records(polars.DataFrame(TABLE), per_record=of_table),
    "arrow": lambda tmp: tacit.Records(pyarrow.table(TABLE), per_record=of_table),
    "hugging face": lambda tmp: tacit.Records(datasets.Dataset.from_dict(TABLE), per_record=of_table),
    "a frame and a tensor": lambda tmp: tacit.Records(
        {"frame": pd.DataFrame(TABLE), "y": Y}, per_record=lambda row: (of_table(row["frame"])[0], row["y"])
    ),
    "random augmentation": lambda tmp: tacit.Records((X, Y), per_record=lambda row: (row[0] + torch.randn(3), row[1])),
    "part": lambda tmp: Subset(tacit.Records((X, Y), per_record=halves), range(10, 30)),
}


def private(data, **options):
    width = data[0][0].shape[-1]
    model = nn.Linear(width, 2)
    return make_private(
        model, torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(data, batch_size=8),
        clip_norm=1.0, noise_multiplier=1.0, steps=3, **options,
    )  # fmt: skip


def trained(data, **options):
    parts = private(data, **options)
    while parts.ledger.steps < 3:
        for x, y in parts.loader:
            cross_entropy(parts.model(x), y, reduction="none").backward()
            parts.optimizer.step()
            if parts.ledger.steps == 3:
                break
    return parts.ledger


@pytest.mark.filterwarnings("ignore:Other runs of this process")
@pytest.mark.parametrize("kind", KINDS)
def test_records_of_every_kind_of_column_are_proven(kind, tmp_path):
    data = KINDS[kind](tmp_path)
    assert len(data) == (20 if kind == "part" else N)
    ledger = trained(data)
    assert ledger.standing is Standing.PROVEN
    assert ledger.unit == "record"


@pytest.mark.filterwarnings("ignore:Other runs of this process")
def test_rows_are_those_of_the_columns(tmp_path):
    frame = pd.DataFrame(TABLE).iloc[::-1]
    assert [tacit.Records(frame)[i]["label"] for i in range(N)] == Y.tolist()[::-1]
    assert torch.equal(tacit.Records((X, Y))[7][0], X[7])
    assert tacit.Records(pyarrow.table(TABLE))[5] == {name: column[5] for name, column in TABLE.items()}


@pytest.mark.filterwarnings("ignore:Other runs of this process")
def test_what_per_record_reads_or_keeps_besides_its_row_is_found():
    seen = []
    bank = X.clone()

    def remembering(row):
        seen.append(row[0])
        return row[0] - sum(seen) / len(seen), row[1]

    for per_record in (remembering, lambda row: (row[0] - bank.mean(0), row[1])):
        for data in (
            tacit.Records((X, Y), per_record=per_record),
            Subset(tacit.Records((X, Y), per_record=per_record), range(N)),
        ):
            assert trained(data).standing is Standing.CONDITIONAL


@pytest.mark.filterwarnings("ignore:Other runs of this process")
def test_rows_that_share_memory_are_told():
    windows = torch.randn(N + 2).unfold(0, 3, 1)
    assert trained(tacit.Records((windows, Y))).standing is not Standing.PROVEN
    for whole in (TensorDataset(windows, Y), tacit.Records((windows, Y))):
        assert repeated_records(Subset(whole, range(N)))
        assert repeated_records(ConcatDataset([whole]))


@pytest.mark.filterwarnings("ignore:Other runs of this process")
def test_units_are_drawn_and_clipped_as_a_whole():
    people = np.arange(N) // 4
    data = tacit.Records((X, Y), units=people)
    parts = private(data)
    assert parts.ledger.unit == "user"
    for x, _ in parts.loader:
        rows = [int((row == X).all(1).nonzero()) for row in x.as_subclass(torch.Tensor)]
        assert all(len([each for each in rows if each // 4 == row // 4]) == 4 for row in rows)
        break
    model = nn.Linear(3, 2)
    result = fit(
        model,
        Subset(data, range(20)),
        loss=lambda out, y: cross_entropy(out, y, reduction="none"),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        clip_norm=1.0,
        noise_multiplier=1.0,
        sample_rate=0.4,
        steps=2,
    )
    assert result.ledger.unit == "user"
    with pytest.raises(InvalidInput, match="sampling must be left out with Records"):
        private(data, sampling="fixed_size")


@pytest.mark.filterwarnings("ignore:Other runs of this process")
def test_an_engine_of_opacus_draws_units_as_a_whole():
    people, model, engine = np.arange(N) // 4, nn.Linear(3, 2), PrivacyEngine()
    named = {"noise_multiplier": 1.0, "max_grad_norm": 1.0}
    loader = DataLoader(tacit.Records((X, Y), units=people), batch_size=12)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    _, _, drawn = engine.make_private(module=model, optimizer=optimizer, data_loader=loader, **named)
    assert engine.ledger.unit == "user"
    for x, _ in drawn:
        owners = [int((row == X).all(1).nonzero()) // 4 for row in x.as_subclass(torch.Tensor)]
        assert all(owners.count(owner) == 4 for owner in owners)
    other = nn.Linear(3, 2)
    parts = {"module": other, "optimizer": torch.optim.SGD(other.parameters(), lr=0.1), "data_loader": loader}
    with pytest.raises(InvalidInput, match="poisson_sampling must be True"):
        PrivacyEngine().make_private(**parts, poisson_sampling=False, **named)


class Own(list):
    def __getitem__(self, index):
        return sum(self)


WRONG = {
    "lengths": ((X, Y[:-1]), "of one length"),
    "no rows": ((X[:0], Y[:0]), "of one length of at least 1"),
    "no column": ((), "at least one column"),
    "rows in a list": (list(X), "got a list of tensors"),
    "code of its own": ((X, Own(Y.tolist())), "made of tensors, arrays, lists, frames or tables"),
    "number": (3, "made of tensors, arrays, lists, frames or tables"),
    "text": ("abc", "made of tensors, arrays, lists, frames or tables"),
    "transform of a table": (
        datasets.Dataset.from_dict(TABLE).with_transform(lambda batch: batch), "made of tensors, arrays, lists"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_column_is_refused(name):
    columns, says = WRONG[name]
    with pytest.raises(InvalidInput, match=says):
        tacit.Records(columns)


SERIES = torch.randn(200, generator=torch.Generator().manual_seed(2))
OF_LISTS = {
    "pairs": ([(x, int(y)) for x, y in zip(X, Y, strict=True)], Standing.PROVEN),
    "arrays": ([(x.numpy().copy(), int(y)) for x, y in zip(X, Y, strict=True)], Standing.PROVEN),
    "windows": ([(SERIES[i : i + 3], int(Y[i])) for i in range(N)], Standing.CONDITIONAL),
    "one record many times": ([(X[i % 4], int(Y[i])) for i in range(N)], Standing.CONDITIONAL),
}


class Kept(torch.utils.data.Dataset):
    """A list behind a data set."""

    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


@pytest.mark.parametrize("behind", [list, Kept])
@pytest.mark.parametrize("name", OF_LISTS)
def test_a_list_of_records_is_a_data_set(name, behind):
    items, standing = OF_LISTS[name]
    assert trained_on(behind(items)) is standing


def test_a_transform_of_hugging_face_runs_record_by_record():
    table, bank = datasets.Dataset.from_dict({"x": X.tolist(), "y": Y.tolist()}), []

    def noisy(rows):
        return {"x": [torch.tensor(each) + torch.randn(3) for each in rows["x"]], "y": rows["y"]}

    def banked(rows):
        bank.append(rows["x"][0])
        return {"x": [torch.tensor(bank[0]) for _ in rows["x"]], "y": rows["y"]}

    table.set_transform(noisy)
    assert trained_on(table) is Standing.PROVEN
    table.set_transform(banked)
    assert trained_on(table) is Standing.CONDITIONAL


def trained_on(data):
    """Standing of a loop over pairs, or a table of x and y."""
    model = nn.Linear(3, 2)
    settings = {"clip_norm": 1.0, "noise_multiplier": 1.0, "steps": 6}
    private = make_private(
        model, torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(data, batch_size=8), **settings
    )
    for batch in private.loader:
        rows, labels = batch.values() if isinstance(batch, dict) else batch
        cross_entropy(private.model(rows), labels, reduction="none").backward()
        private.optimizer.step()
    return private.ledger.standing


def test_units_of_another_number_are_refused():
    with pytest.raises(InvalidInput, match="one key for each of the 40 records"):
        tacit.Records((X, Y), units=[1, 2])
