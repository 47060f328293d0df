"""The baselines that Tables 2 to 4 quote, by scikit-learn and torch; none of them is private."""

from __future__ import annotations

import os
from typing import Any, cast

import numpy as np

from tacit.sweeps import Task

Folder = str | os.PathLike[str] | None


def table_2_task() -> Task:
    """The task whose value is `adult`."""
    return Task(f"{__name__}:adult", {"dataset": "adult_a9a"}, 20.0, reads_data=True)


def table_3_task() -> Task:
    """The task whose value is `imdb_lstm`."""
    return Task(f"{__name__}:imdb_lstm", {"epochs": 10, "seed": 0}, 600.0, reads_data=True)


def table_4_task() -> Task:
    """The task whose value is `movielens`."""
    return Task(f"{__name__}:movielens", {}, 20.0, reads_data=True)


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


def movielens(*, data_dir: Folder = None) -> dict[str, float]:
    """Test RMSE of classical recommenders on MovieLens-100K, ratings clipped to 1..5.

    SVD and NMF factorise (20 factors) the ratings, the gaps filled by baseline ratings (mean + user + item offsets);
    user CF averages the 40 most similar users' deviations from their own means.
    """
    from sklearn.decomposition import NMF, TruncatedSVD

    from tacit.data import load

    data = load("movielens", data_dir=data_dir)
    ratings, known = _matrix(data.x_train, data.y_train)
    offset = _offsets(ratings, known)
    filled = np.where(known, ratings, np.clip(offset, 1, 5))
    svd = TruncatedSVD(20, random_state=0)
    residual = np.where(known, ratings - offset, 0.0)
    nmf: Any = cast(Any, NMF)(20, init="nndsvda", max_iter=200, random_state=0, tol=1e-3)
    guesses = {
        "global mean": np.full_like(ratings, ratings[known].mean()),
        "user CF": _neighbours(ratings, known),
        "NMF": nmf.fit_transform(filled) @ nmf.components_,
        "SVD": offset + svd.inverse_transform(svd.fit_transform(residual)),
    }
    user, item = np.asarray(data.x_test).astype(int).T[:2]
    truth = np.asarray(data.y_test, dtype=float)
    return {
        name: float(np.sqrt(np.mean((np.clip(guess[user, item], 1, 5) - truth) ** 2)))
        for name, guess in guesses.items()
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


def _matrix(pairs: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    user, item = np.asarray(pairs).astype(int).T[:2]
    ratings = np.zeros((943, 1682))
    ratings[user, item] = values
    return ratings, ratings > 0


def _offsets(ratings: np.ndarray, known: np.ndarray, shrink: float = 10.0) -> np.ndarray:
    """Mean + item offset + user offset, shrunk towards 0 where there are few ratings (Koren 2008, section 2.1)."""
    mean = ratings[known].mean()
    item = np.where(known, ratings - mean, 0.0).sum(0) / (shrink + known.sum(0))
    user = np.where(known, ratings - mean - item, 0.0).sum(1) / (shrink + known.sum(1))
    return mean + item[None, :] + user[:, None]


def _neighbours(ratings: np.ndarray, known: np.ndarray, count: int = 40) -> np.ndarray:
    means = np.where(known.any(1), ratings.sum(1) / np.maximum(known.sum(1), 1), ratings[known].mean())
    deviations = np.where(known, ratings - means[:, None], 0.0)
    lengths = np.linalg.norm(deviations, axis=1, keepdims=True)
    unit = deviations / np.maximum(lengths, 1e-12)
    similar = unit @ unit.T
    np.fill_diagonal(similar, 0.0)
    floor = np.sort(similar, axis=1)[:, -count][:, None]
    weights = np.where(similar >= np.maximum(floor, 0.0), similar, 0.0)
    return means[:, None] + weights @ deviations / np.maximum(weights @ known, 1e-12)
