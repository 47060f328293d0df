"""The baselines that Tables 2 and 3 quote, by scikit-learn and torch; none of them is private."""

from __future__ import annotations

import os

import numpy as np

from tacit.sweeps import Task

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
