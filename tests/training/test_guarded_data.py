"""Items of a data set are made of entries of their own, or that is found at the item."""

import collections
import contextlib
import logging
import os
import random
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

from tacit.errors import InvalidInput
from tacit.training.guarded_data import GuardedData
from tests.refusals import sentence, stored

N = 12
X = torch.arange(N * 3.0).reshape(N, 3)
BANK = torch.randn(N, 3, generator=torch.Generator().manual_seed(0))
CLASSES = ("cat", "dog", "bird")


class Items(Dataset):
    """A data set that keeps its arguments as attributes; subclasses say what an item is."""

    def __init__(self, **columns):
        vars(self).update(columns)

    def __len__(self):
        return N


Pair = collections.namedtuple("Pair", "x y")


def items(function, **columns):
    """A data set whose items are `function(self, i)`."""
    kind = type("Own", (Items,), {"__getitem__": function})
    return kind(**columns)


def frame():
    return pd.DataFrame({"text": [f"text {i}" for i in range(N)], "label": range(N)})


def counted(self, i):
    self.calls = getattr(self, "calls", 0) + 1
    return self.x[i]


def cached(self, i):
    if i not in self.cache:
        self.cache[i] = self.x[i] * 2
    return self.x[i] * 2


def from_file(self, i):
    return np.load(self.paths[i])


RIGHT = {
    "tensor": lambda tmp: items(lambda self, i: self.x[i], x=X),
    "named tuples": lambda tmp: items(lambda self, i: Pair(self.x[i], i), x=X),
    "two columns": lambda tmp: items(lambda self, i: (self.x[i], self.y[i]), x=X, y=list(range(N))),
    "dict of columns": lambda tmp: items(lambda self, i: self.data["x"][i], data={"x": X, "y": X[:, 0]}),
    "list of records": lambda tmp: items(lambda self, i: self.rows[i]["x"], rows=[{"x": row} for row in X]),
    "frame by iloc": lambda tmp: items(lambda self, i: self.frame.iloc[i]["label"], frame=frame()),
    "column of a frame": lambda tmp: items(lambda self, i: self.frame["text"][i], frame=frame()),
    "attribute of a frame": lambda tmp: items(lambda self, i: self.frame.text.iloc[i], frame=frame()),
    "values of a frame": lambda tmp: items(lambda self, i: self.frame.values[i][1], frame=frame()),
    "shuffled numbers": lambda tmp: items(lambda self, i: self.x[self.order[i]], x=X, order=torch.randperm(N).tolist()),
    "names of classes": lambda tmp: items(
        lambda self, i: (self.x[i], CLASSES[i % 3], self.names[i % 3]), x=X, names=["a", "b", "c"]
    ),
    "constants": lambda tmp: items(lambda self, i: (self.x[i] - self.mean) / self.std[0], x=X, mean=0.5, std=(2.0,)),
    "windows side by side": lambda tmp: items(
        lambda self, i: self.series[2 * i : 2 * i + 2], series=torch.zeros(2 * N)
    ),
    "time first": lambda tmp: items(lambda self, i: self.x[:, i], x=X.T.contiguous()),
    "memory map": lambda tmp: items(lambda self, i: torch.tensor(self.x[i]), x=saved(tmp)),
    "a file for each": lambda tmp: items(from_file, paths=[one(tmp, i) for i in range(N)]),
    "inner data set": lambda tmp: items(lambda self, i: self.base[i][0], base=TensorDataset(X)),
    "inner data set of one's own": lambda tmp: items(lambda self, i: self.base[i], base=items(counted, x=X)),
    "targets of an inner one": lambda tmp: items(lambda self, i: self.base.x[i], base=items(counted, x=X)),
    "subset": lambda tmp: Subset(items(counted, x=X), list(range(N))[::-1]),
    "two sets": lambda tmp: ConcatDataset([Subset(items(counted, x=X), range(6)), Subset(TensorDataset(X), range(6))]),
    "draws": lambda tmp: items(lambda self, i: self.x[i] + torch.randn(3), x=X),
    "augmentation": lambda tmp: items(
        lambda self, i: self.transform(self.x[i]), x=X, transform=Augmentation(torch.abs, Augmentation(torch.sqrt))
    ),
    "generator": lambda tmp: items(lambda self, i: (self.x[i], self.draw.normal()), x=X, draw=np.random.default_rng(0)),
    "counter": lambda tmp: items(counted, x=X),
    "cache": lambda tmp: items(cached, x=X, cache={}),
    "pairs in a list": lambda tmp: items(lambda self, i: self.rows[i], rows=[(X[0, : i % 3 + 1], i) for i in range(N)]),
    "tuple of columns": lambda tmp: items(lambda self, i: (self.data[0][i], self.data[1][i]), data=(X, X[:, 0])),
    "every column of a tuple": lambda tmp: items(lambda self, i: tuple(each[i] for each in self.data), data=(X, X + 1)),
    "encodings of a tokenizer": lambda tmp: items(
        lambda self, i: {name: torch.tensor(column[i]) for name, column in self.encodings.items()},
        encodings={"ids": X.tolist(), "mask": X.tolist()},
    ),
    "column of a dict by get": lambda tmp: items(lambda self, i: self.d.get("a")[i], d={"a": X, "b": X}),
    "values of a dict": lambda tmp: items(lambda self, i: [each[i] for each in self.d.values()], d={"a": X, "b": X}),
    "frame by loc": lambda tmp: items(
        lambda self, i: (self.frame.loc[i, "label"], self.frame.at[i, "label"]), frame=frame()
    ),
    "sparse rows": lambda tmp: items(lambda self, i: self.x[i].toarray(), x=scipy.sparse.csr_matrix(X.numpy())),
    "object of columns": lambda tmp: items(lambda self, i: self.table.x[i], table=Table(X)),
    "container of one's own": lambda tmp: items(lambda self, i: self.table[i], table=Table(X)),
    "vocabulary of one's own": lambda tmp: items(
        lambda self, i: [self.vocab[word] for word in self.texts[i]], texts=["ab", "ba"] * (N // 2), vocab=Vocabulary()
    ),
    "named columns": lambda tmp: items(lambda self, i: self.data[0][i], data=Pair(X, X)),
    "rows by name": lambda tmp: items(
        lambda self, i: self.rows[f"r{i}"], rows={f"r{i}": row for i, row in enumerate(X)}
    ),
}


class Table:
    """A container of the user's, whose entries its own code gives."""

    def __init__(self, x):
        self.x = x

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i]


class Vocabulary:
    def __init__(self):
        self.words = {"a": 0, "b": 1}

    def __len__(self):
        return len(self.words)

    def __getitem__(self, word):
        return self.words[word]


Pair = collections.namedtuple("Pair", "first second")


def saved(tmp):
    np.save(tmp / "x.npy", X.numpy())
    return np.load(tmp / "x.npy", mmap_mode="r")


def one(tmp, i):
    np.save(tmp / f"{i}.npy", X[i].numpy())
    return str(tmp / f"{i}.npy")


@pytest.mark.parametrize("name", RIGHT)
def test_items_of_entries_of_their_own_are_known_to_be(name, tmp_path):
    data = RIGHT[name](tmp_path)
    torch.manual_seed(0)
    guarded = GuardedData(data)
    found = [guarded[i] for i in [*range(N), 3, 0]]
    assert not guarded.doubt
    torch.manual_seed(0)
    expected = [data[i] for i in [*range(N), 3, 0]]
    assert all(
        torch.equal(torch.as_tensor(one), torch.as_tensor(other))
        for one, other in zip(found, expected, strict=True)
        if isinstance(one, torch.Tensor | np.ndarray)
    )


def flagged(self, i):
    self.epoch = getattr(self, "epoch", 0) + (i == 0)
    return self.x[i] + self.x[0]


MIXED = {
    "first record": lambda self, i: self.x[i] + self.x[0],
    "neighbour": lambda self, i: self.x[i] + self.x[i - 1],
    "a random other": lambda self, i: self.x[i] + self.x[int(torch.randint(N, ()))],
    "windows that overlap": lambda self, i: self.x[i : i + 2],
    "after a flag": flagged,
    "through a list of numbers": lambda self, i: self.x[[i, (i + 1) % N]],
    "of a frame": lambda self, i: self.frame.iloc[i]["label"] + self.frame["label"][(i + 1) % N],
    "of an inner data set": lambda self, i: self.base[i][0] + self.base[(i + 5) % N][0],
    "of a memory map": lambda self, i: self.map[i] - self.map[0],
}


@pytest.mark.parametrize("name", MIXED)
def test_an_item_that_reads_an_entry_of_another_is_refused(name, tmp_path):
    guarded = guarded_case(name, tmp_path)
    with pytest.raises(InvalidInput, match="got one that reads an entry of another") as caught:
        list(map(guarded.__getitem__, range(N)))
    assert sentence(caught.value) == stored("data sets", name)


def opened(self, i):
    with open(self.path, "rb") as file:
        return np.frombuffer(file.read(), np.float32, 3, 128 + 12 * i)


class Helper:
    """Keeps what it saw last, and takes it in."""

    def __init__(self):
        self.last = None

    def __call__(self, row):
        taken = row if self.last is None else row + self.last
        self.last = row
        return taken


class Bank:
    """Reads a table by another method than its call."""

    def of(self, row):
        return row + BANK[0]


class Augmentation:
    """A transform with constants of its own and a list of parts, as libraries have them."""

    def __init__(self, *parts):
        self.mean, self.scale, self.parts = (0.5, 0.5, 0.5), 2.0, list(parts)

    def __call__(self, row):
        for part in self.parts:
            row = part(row)
        return (row - torch.tensor(self.mean)) / self.scale + 0.1 * torch.randn(3)


LAST = None
HELPER = Helper()


def by_global(self, i):
    global LAST
    taken = self.x[i] if LAST is None else self.x[i] + LAST
    LAST = self.x[i]
    return taken


def by_class(self, i):
    taken = self.x[i] + getattr(type(self), "last", 0)
    type(self).last = self.x[i]
    return taken


def by_closure():
    last = None

    def item(self, i):
        nonlocal last
        taken = self.x[i] if last is None else self.x[i] + last
        last = self.x[i]
        return taken

    return item


def by_iterator(self, i):
    return next(self.rows_in_order) + 0 * self.x[i]


def whole_by_none(self, i):
    return self.x[i] - self.x[None].mean(1)[0]


class Shared:
    rows: ClassVar = {}


class Centre:
    of = X.mean(0)


def kept_by_a_class(self, i):
    Shared.rows[i] = self.x[i]
    return sum(Shared.rows.values())


UNDECIDED = {
    "a dict of a class": (kept_by_a_class, "Own"),
    "a tensor of a class": (lambda self, i: self.x[i] - Centre.of, "reads Centre.of"),
    "a helper's memory": (lambda self, i: self.helper(self.x[i]), "keeps state from record to record"),
    "a global helper's memory": (lambda self, i: HELPER(self.x[i]), "keeps state from record to record"),
    "a global": (by_global, "keeps state from record to record"),
    "an attribute of the class": (by_class, "keeps state from record to record"),
    "a closure": (by_closure(), "keeps state from record to record"),
    "a helper's method with a bank": (lambda self, i: self.bank.of(self.x[i]), "reads BANK"),
    "an iterator": (by_iterator, "reads rows_in_order"),
    "a new axis": (whole_by_none, "used as a whole"),
    "all of it": (lambda self, i: self.x[i] - self.x[...].mean(0), "used as a whole"),
    "by a truth value": (lambda self, i: self.x[i] - self.x[True].mean(1)[0], "used as a whole"),
    "a copy of the column": (lambda self, i: self.x[i] + self.twin[(i + 1) % N], "entries of several numbers"),
    "doubts of an inner data set": (lambda self, i: self.inner[i], "used as a whole (mean)"),
    "a column of an inner data set": (lambda self, i: self.base[i] + self.base.x[(i + 1) % N], "several numbers"),
    "mean of the column": (lambda self, i: self.x[i] - self.x.mean(0), "self.x is used as a whole (mean)"),
    "mean that was kept": (lambda self, i: self.x[i] - self.centre, "self.centre is used as a whole"),
    "columns of a dict": (lambda self, i: self.data["x"][i] - self.data["x"].sum(), "is used as a whole (sum)"),
    "a bank elsewhere": (lambda self, i: self.x[i] + BANK[i], "reads BANK"),
    "a mask": (lambda self, i: self.x[self.y == 0], "used as a whole"),
    "all rows": (lambda self, i: torch.stack(list(self.x))[i], "used as a whole (iter)"),
    "as an array": (lambda self, i: np.asarray(self.x)[i], "used as a whole"),
    "as a tensor": (lambda self, i: torch.as_tensor(self.array)[i], ""),
    "the column itself": (lambda self, i: {"all": self.x, "own": i}, "a whole column is part of a record"),
    "notes what it hands out": (lambda self, i: (self.seen.append(i), self.x[i])[1], "self.seen is used as a whole"),
    "one file for all": (opened, "opens one file for several records"),
    "a transform with a bank": (lambda self, i: self.transform(self.x[i]), "reads "),
    "another name of the rows": (lambda self, i: self.x[i] + self.x.T[0, 0], "used as a whole (T)"),
}


def guarded_case(name, folder):
    """The watched data set of a case of `MIXED` or `UNDECIDED`."""
    if name in MIXED:
        return GuardedData(items(MIXED[name], x=X, frame=frame(), base=TensorDataset(X), map=saved(folder)))
    function, _ = UNDECIDED[name]
    saved(folder)
    bank = BANK.clone()
    columns = {"x": X, "y": X[:, 0], "centre": X.mean(0), "data": {"x": X}, "array": X.numpy(), "seen": []}
    columns |= {
        "helper": Helper(),
        "bank": Bank(),
        "twin": X.clone(),
        "rows_in_order": iter(X),
        "base": items(counted, x=X),
    }
    columns["inner"] = items(lambda self, i: self.x[i] - self.x.mean(0), x=X)
    columns = {key: value for key, value in columns.items() if key in function.__code__.co_names}
    if "transform" in name:
        columns["transform"] = lambda row: row + bank[0]
    return GuardedData(items(function, **columns, path=str(folder / "x.npy")))


@pytest.mark.parametrize("name", UNDECIDED)
def test_what_is_made_of_more_is_doubted_by_name(name, tmp_path):
    guarded, says = guarded_case(name, tmp_path), UNDECIDED[name][1]
    assert len([guarded[i] for i in range(N)]) == N
    assert says in guarded.doubt
    assert sentence(guarded.doubt) == stored("data sets", name)


class Centred(Table):
    def __getitem__(self, i):
        return self.x[i] - self.x.mean(0)


class Slotted:
    __slots__ = ("x",)
    __len__, __getitem__ = Table.__len__, Centred.__getitem__

    def __init__(self, x):
        self.x = x


class OfClass(Centred):
    x = X

    def __init__(self):
        self.calls = 0


class Noting(Table):
    seen: ClassVar = {}

    def __getitem__(self, i):
        Noting.seen[i] = self.x[i]
        return self.x[i] - sum(Noting.seen.values()) / len(Noting.seen)


class Remembering(Table):
    last = 0.0

    def __getitem__(self, i):
        taken, self.last = self.x[i] + self.last, self.x[i]
        return taken


def centred(kind, base):
    """A subclass of a library's container whose entries follow all of them."""
    rows = torch.Tensor.unbind

    def entry(self, i):
        stacked = torch.stack([torch.as_tensor(row) for row in (base.values(self) if base is dict else rows(X))])
        return stacked[i] - stacked.mean(0)

    return type(kind, (base,), {"__getitem__": entry})


CONTAINERS = {
    "own": lambda: Centred(X),
    "with slots": lambda: Slotted(X),
    "column of its class": OfClass,
    "list": lambda: centred("Rows", list)(X),
    "dict": lambda: centred("Rows", dict)(enumerate(X)),
    "array": lambda: X.numpy().view(centred("Rows", np.ndarray)),
    "tensor": lambda: X.as_subclass(centred("Rows", torch.Tensor)),
    "default made when read": lambda: collections.defaultdict(lambda: X.mean(0)),
    "in a dict": lambda: {"a": Centred(X), "b": Centred(X)},
    "in a tuple": lambda: (Centred(X), X),
    "in an object": lambda: Table(Centred(X)),
    "memory": lambda: Remembering(X),
    "memory of its class": lambda: Noting(X),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_code_that_gives_the_entries_of_a_container_is_watched_too(name):
    part = {"in a dict": "a", "in a tuple": 0}.get(name)
    item = (lambda self, i: self.rows[i]) if part is None else (lambda self, i: self.rows[part][i])
    guarded = GuardedData(items(lambda self, i: self.x[i] + item(self, i), rows=CONTAINERS[name](), x=X.clone()))
    for i in range(N):
        guarded[i]
    assert guarded.doubt


def square():
    """As many columns as records."""
    return tuple(torch.arange(float(N)) + N * j for j in range(N))


@pytest.mark.parametrize(
    "function",
    [
        lambda self, i: torch.stack([column[i] for column in self.columns]),
        lambda self, i: self.columns[0][i] - self.columns[5][i],
        lambda self, i: self.columns[i],
    ],
)
def test_as_many_columns_as_records_are_read_as_columns_or_as_rows(function):
    guarded = GuardedData(items(function, columns=square()))
    expected = items(function, columns=square())
    assert all(torch.equal(guarded[i], expected[i]) for i in range(N))
    assert not guarded.doubt


@pytest.mark.parametrize(
    "function",
    [
        lambda self, i: self.columns[0][i] - self.columns[5][(i + 1) % N],
        lambda self, i: self.columns[i] - self.columns[(i + 1) % N],
        lambda self, i: self.columns[i] if i < 3 else self.columns[0][i] - self.columns[1][i],
    ],
)
def test_a_square_hides_no_other_record(function):
    guarded = GuardedData(items(function, columns=square()))
    try:
        found = [guarded[i] for i in range(N)]
    except InvalidInput:
        found = []
    assert not found or guarded.doubt


def test_what_an_object_in_a_dict_keeps_is_dropped_after_the_item():
    guarded = GuardedData(items(lambda self, i: self.rows["a"][i], rows={"a": Remembering(X), "b": Remembering(X)}))
    assert all(torch.equal(guarded[i], X[i]) for i in range(N)) or guarded.doubt


def test_an_object_that_holds_itself_is_read():
    table = Table(X)
    table.twin = table
    guarded = GuardedData(items(lambda self, i: self.table.twin.x[i], table=table))
    assert torch.equal(guarded[2], X[2])
    assert not guarded.doubt


KEPT, MEAN, DRAWS = [0.0], torch.zeros(3), random.Random(0)
LOGGER, TOLD = logging.getLogger(__name__), logging.getLogger(f"{__name__}.told")


def kept_in_a_list(row):
    taken, KEPT[0] = row - KEPT[0], float(row.sum())
    return taken


def kept_in_a_tensor(row):
    return row - MEAN.mul_(0.9).add_(0.1 * row)


def logged(row):
    LOGGER.debug("a row")
    logging.getLogger(os.urandom(4).hex())  # as an import does that comes late
    return row


def kept_on_a_logger(row):
    TOLD.row = row
    return row


def noted(seen):
    return lambda row: (seen.append(row), row - sum(seen) / len(seen))[1]


WRONG_TRANSFORMS = {
    "object": lambda: Helper(),
    "list of one's own": lambda: noted([]),
    "entry of a list": lambda: kept_in_a_list,
    "tensor": lambda: kept_in_a_tensor,
    "bank": lambda: lambda row: row - BANK[0],
    "attribute of a logger": lambda: kept_on_a_logger,
}
RIGHT_TRANSFORMS = {
    "constants": lambda: Augmentation(torch.abs),
    "draws of Python's": lambda: lambda row: row + DRAWS.gauss(0, 1),
    "draws of torch's": lambda: lambda row: row + torch.randn(3),
    "a logger": lambda: logged,
}


@pytest.mark.parametrize("data", [TensorDataset(X), Subset(TensorDataset(X), range(N)), items(counted, x=X)])
@pytest.mark.parametrize("name", [*WRONG_TRANSFORMS, *RIGHT_TRANSFORMS])
def test_what_a_transform_keeps_is_seen_over_every_kind_of_data_set(name, data):
    transform = (WRONG_TRANSFORMS | RIGHT_TRANSFORMS)[name]()
    guarded = GuardedData(data, (), transform)
    for i in range(N):
        row = guarded[i]
        transform(row[0] if isinstance(row, tuple) else row)
    assert bool(guarded.doubt) == (name in WRONG_TRANSFORMS)


def test_a_tensor_that_was_declared_public_is_doubted_where_it_follows_records():
    guarded = GuardedData(TensorDataset(X), [id(MEAN)], kept_in_a_tensor)
    for i in range(3):
        kept_in_a_tensor(guarded[i][0])
    assert "keeps state" in guarded.doubt


def test_a_doubt_quotes_no_key_and_no_message():
    def refused(self, i):
        raise KeyError("John Smith") if not torch.is_tensor(self.x) else ValueError

    def keyed(self, i):
        return self.rows["John Smith"].mean() + self.x[i]

    for data in (items(refused, x=X), items(keyed, x=X, rows={"John Smith": X[0]})):
        guarded = GuardedData(data)
        with contextlib.suppress(ValueError):
            guarded[0]
        assert guarded.doubt
        assert "Smith" not in guarded.doubt


def test_a_data_set_that_closes_its_file_in_the_end_keeps_it_open():
    closed = []

    class Closing(Items):
        def __getitem__(self, i):
            return self.x[i]

        def __del__(self):
            closed.append(1)

    data = Closing(x=X)
    guarded = GuardedData(data)
    assert torch.equal(guarded[3], X[3])
    assert not closed


def test_what_was_declared_public_is_not_doubted():
    guarded = GuardedData(items(lambda self, i: self.x[i] + BANK[0], x=X), [id(BANK)])
    assert torch.equal(guarded[1], X[1] + BANK[0])
    assert not guarded.doubt
