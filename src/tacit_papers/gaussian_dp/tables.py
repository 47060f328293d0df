"""Tables 1 to 4: privacy columns and test results.

The baselines that Tables 2 and 3 quote, by scikit-learn and torch; none of them is private.
"""

import os
from collections.abc import Sequence
from functools import partial
from statistics import mean
from typing import Any

import numpy as np

from tacit.sweeps import Task
from tacit_papers.base import Item, Row, history_task, published
from tacit_papers.gaussian_dp.nonprivate import table_3_repeated_task, table_4_task
from tacit_papers.gaussian_dp.privacy import cost_rows, cost_task

KEY = "gaussian-dp"
NUMBERS = published("tacit_papers.gaussian_dp")
_SEEDS = (0, 1, 2)
_MNIST_EPOCH, _NONPRIVATE_EPOCH, _ADULT_EPOCH, _IMDB_EPOCH, _MOVIELENS_EPOCH = 4.0, 2.6, 0.6, 8.0, 1.0


def _table_1_tasks(size: str) -> list[Task]:
    table = NUMBERS["table_1"]
    rate, n = table["batch_size"] / table["records"], table["records"]
    tasks = [
        cost_task(row["sigma"], rate, round(row["epochs"] * n / table["batch_size"]), table["delta"])
        for row in table["rows"]
    ]
    if size == "full":
        tasks += [_mnist(row, seed) for row in table["rows"] for seed in _SEEDS]
        tasks.append(_mnist_nonprivate(max(row["epochs"] for row in table["rows"])))
    return tasks


def _mnist(row: dict[str, Any], seed: int) -> Task:
    return history_task(
        "mnist",
        seed,
        seconds=_MNIST_EPOCH * row["epochs"],
        noise_multiplier=row["sigma"],
        learning_rate=row["learning_rate"],
        clip_norm=row["clip_norm"],
        epochs=row["epochs"],
        engine="compiled",
    )


def _mnist_nonprivate(epochs: int) -> Task:
    """One run for all rows: without clipping and noise a shorter run is the beginning of a longer one."""
    return history_task("mnist", 0, seconds=_NONPRIVATE_EPOCH * epochs, private=False, epochs=epochs)


def _table_1_rows(size: str, values: Sequence[Any]) -> list[Row]:
    table, make = NUMBERS["table_1"], partial(Row, KEY, "table-1")
    count = len(table["rows"])
    private, nonprivate = values[count : count + count * len(_SEEDS)], values[-1]
    rows: list[Row] = []
    for index, row in enumerate(table["rows"]):
        prefix = f"sigma {row['sigma']}, {row['epochs']} epochs: "
        if values[index] is not None:
            rows += cost_rows(make, prefix, values[index], row, table["tolerance"])
        if size == "full":
            own = private[index * len(_SEEDS) : (index + 1) * len(_SEEDS)]
            tolerance = table["tolerance"]["accuracy"]
            rows.append(_mean(make, f"{prefix}test accuracy %", own, row["accuracy"], tolerance))
            same = [nonprivate and {"test": nonprivate["test"][: row["epochs"]]}]
            rows.append(_mean(make, f"{prefix}the same training without privacy, test accuracy %", same))
    return rows


def _mean(
    make: Any, words: str, runs: Sequence[Any], stated: float | None = None, tolerance: float | None = None
) -> Row:
    """The mean final test accuracy in percent of the runs that are done."""
    done = [run for run in runs if run is not None]
    ours = round(100 * mean(run["test"][-1] for run in done), 3) if done else None
    return make(words, stated, ours, tolerance, repeats=len(done))


def _table_2_tasks(size: str) -> list[Task]:
    table = NUMBERS["table_2"]
    seeds = _SEEDS if size == "full" else _SEEDS[:1]
    return [
        _cost_of(table, table["batch_size"] / table["records"]),
        table_2_task(),
        *(history_task("adult", seed, seconds=18 * _ADULT_EPOCH) for seed in seeds),
        *(history_task("adult", seed, seconds=20 * _ADULT_EPOCH, private=False, epochs=20) for seed in seeds),
    ]


def _table_2_rows(size: str, values: Sequence[Any]) -> list[Row]:
    """Nothing of the table's body was recovered: what is recalled of it is named, not compared."""
    make, (cost, baselines, *runs) = partial(Row, KEY, "table-2"), values
    private, plain = _halves(runs)
    table = NUMBERS["table_2"]
    recalled = {name: f"(recalled, not confirmed: {value})" for name, value in table["recalled"].items()}
    return [
        *cost_rows(make, "sigma 0.55, 18 epochs: ", cost, {}, {}),
        make(f"NoisySGD test accuracy % {recalled['private']}", None, private),
        make(f"non-private test accuracy % {recalled['nonprivate']}", None, plain),
        *(
            make(f"{name} test accuracy % (UCI states {table['uci'][name]} on its split)", None, round(value, 3))
            for name, value in baselines.items()
        ),
    ]


def _table_3_tasks(size: str) -> list[Task]:
    table = NUMBERS["table_3"]
    tasks = [_cost_of(table, table["batch_size"] / table["records"])]
    if size == "full":
        names = ("imdb_literal", "imdb")
        tasks += [history_task(name, seed, seconds=9 * _IMDB_EPOCH) for name in names for seed in _SEEDS]
        tasks += [history_task(names[0], s, seconds=20 * _IMDB_EPOCH, private=False, epochs=20) for s in _SEEDS]
        tasks += [table_3_repeated_task(seed, table) for seed in _SEEDS]
        tasks.append(table_3_task())
    return tasks


def _table_3_rows(size: str, values: Sequence[Any]) -> list[Row]:
    table, make = NUMBERS["table_3"], partial(Row, KEY, "table-3")
    cost, *runs = values
    rows = cost_rows(make, "sigma 0.56, 9 epochs: ", cost, table, table["tolerance"]) if cost is not None else []
    if size == "full":
        count, tolerance = len(_SEEDS), table["tolerance"]["accuracy"]
        literal, masked, plain, repeated = (runs[k * count : (k + 1) * count] for k in range(4))
        rows += [
            _mean(
                make, "NoisyAdam, padding counted in the mean, test accuracy %", literal, table["private"], tolerance
            ),
            _mean(make, "NoisyAdam, padding left out of the mean, test accuracy %", masked),
            _mean(
                make,
                "padding counted, norm by place (not private), test accuracy %",
                repeated,
                table["private"],
                tolerance,
            ),
            _mean(make, "non-private, padding counted, test accuracy %", plain, table["nonprivate"], tolerance),
            _mean(make, "two-layer LSTM, not private, test accuracy %", runs[4 * count :], table["lstm"]),
        ]
    return rows


def _table_4_tasks(size: str) -> list[Task]:
    table = NUMBERS["table_4"]
    seeds = _SEEDS if size == "full" else _SEEDS[:1]
    return [
        _cost_of(table, table["sample_rate"]),
        table_4_task(),
        *(history_task("movielens", seed, seconds=20 * _MOVIELENS_EPOCH) for seed in seeds),
        *(history_task("movielens", seed, seconds=20 * _MOVIELENS_EPOCH, private=False) for seed in seeds),
    ]


def _table_4_rows(size: str, values: Sequence[Any]) -> list[Row]:
    """MovieLens-100K stands in for 1M: errors are shown, not compared."""
    table, make, (cost, baselines, *runs) = NUMBERS["table_4"], partial(Row, KEY, "table-4"), values
    private, plain = _halves(runs, scale=1.0)
    return [
        *cost_rows(make, "sigma 0.6, 20 epochs: ", cost, table, table["tolerance"]),
        make("NoisyAdam RMSE on 100K (published on 1M)", table["private_1m"], private),
        make("non-private RMSE on 100K (published on 1M)", table["nonprivate_1m"], plain),
        *(
            make(f"{name} RMSE on 100K (published on 1M)", table["baselines_1m"].get(name), round(value, 4))
            for name, value in baselines.items()
        ),
    ]


def _cost_of(table: dict[str, Any], rate: float) -> Task:
    return cost_task(table["sigma"], rate, round(table["epochs"] / rate), table["delta"])


def _halves(runs: Sequence[Any], scale: float = 100.0) -> tuple[float, float]:
    """Mean final result of the private runs, which come first, and of as many non-private ones."""
    half = len(runs) // 2
    first, second = (round(scale * mean(run["test"][-1] for run in part), 4) for part in (runs[:half], runs[half:]))
    return first, second


ITEMS = (
    Item("table-1", "MNIST, NoisySGD: six settings", _table_1_tasks, _table_1_rows, partial=True),
    Item("table-2", "Adult, NoisySGD, with classical baselines", _table_2_tasks, _table_2_rows, version=2),
    Item("table-3", "IMDb, NoisyAdam", _table_3_tasks, _table_3_rows, partial=True),
    Item("table-4", "MovieLens, NoisyAdam, with recommender baselines", _table_4_tasks, _table_4_rows),
)


Folder = str | os.PathLike[str] | None


def table_2_task() -> Task:
    """The task whose value is `adult`."""
    return Task(f"{__name__}:adult", {"dataset": "adult_a9a"}, 20.0, reads_data=True)


def table_3_task() -> Task:
    """The task whose value is `imdb_lstm`."""
    return Task(f"{__name__}:imdb_lstm", {"epochs": 10, "seed": 0}, 600.0, reads_data=True)


def adult(dataset: str, *, data_dir: Folder = None) -> dict[str, float]:
    """Test accuracy in percent of classical learners on the records that the private run has.

    Trees split by entropy, as ID3 and C4.5 do; the pruned one stops at leaves of 50.
    """
    from sklearn.naive_bayes import BernoulliNB
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.tree import DecisionTreeClassifier

    from tacit.data import load

    data = load(dataset, data_dir=data_dir)
    learners = {
        "1-NN": KNeighborsClassifier(1),
        "3-NN": KNeighborsClassifier(3),
        "naive Bayes": BernoulliNB(),
        "ID3-style tree": DecisionTreeClassifier(criterion="entropy", random_state=0),
        "C4.5-style tree": DecisionTreeClassifier(criterion="entropy", min_samples_leaf=50, random_state=0),
    }
    return {
        name: 100 * float(learner.fit(data.x_train, data.y_train).score(data.x_test, data.y_test))
        for name, learner in learners.items()
    }


def imdb_lstm(*, epochs: int, seed: int, data_dir: Folder = None) -> dict[str, list[float]]:
    """Test accuracy ("test") after each epoch of a two-layer LSTM on IMDb's reviews of 256 words.

    The paper states two layers and 10 epochs; embeddings and layers of 32, Adam at .002 and batches of 128 are ours.
    """
    import torch
    from torch import nn

    from tacit.data import load

    data = load("imdb", data_dir=data_dir)
    x, x_test = (torch.as_tensor(np.asarray(rows)).long() for rows in (data.x_train, data.x_test))
    y, y_test = (torch.as_tensor(np.asarray(rows)).long() for rows in (data.y_train, data.y_test))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        words, layers, answer = (
            nn.Embedding(int(x.max()) + 1, 32),
            nn.LSTM(32, 32, 2, batch_first=True),
            nn.Linear(32, 2),
        )
        parts = (words, layers, answer)
        optimizer = torch.optim.Adam([value for part in parts for value in part.parameters()], lr=0.002)
        test = []
        for _ in range(epochs):
            for batch in torch.randperm(len(y)).split(128):
                optimizer.zero_grad()
                nn.functional.cross_entropy(answer(layers(words(x[batch]))[0][:, -1]), y[batch]).backward()
                optimizer.step()
            with torch.no_grad():
                right = [
                    answer(layers(words(rows))[0][:, -1]).argmax(1)
                    for rows in x_test.clamp(max=int(x.max())).split(1000)
                ]
            test.append(float((torch.cat(right) == y_test).float().mean()))
    return {"test": test}
