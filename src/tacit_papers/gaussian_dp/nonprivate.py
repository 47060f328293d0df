"""Trainings that protect nothing: the recommenders that Table 4 quotes, and Table 3 with the norm of frameworks.

Matrix factorisations learn from the observed ratings of MovieLens-100K alone, with the documented defaults of the
library Surprise.

Frameworks keep the gradient of an embedding as one row for each place of a text. The norm of those rows is not the
norm of the gradient when a word, or the padding, stands in several places: rows of one word have one direction, so that
the norm of their sum is larger. Clipping by the smaller norm leaves gradients longer than the noise assumes.
"""

import os
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from tacit.models import MeanOfWords
from tacit.noise import SeededStream, gaussian
from tacit.sweeps import Task

Folder = str | os.PathLike[str] | None
_USERS, _ITEMS = 943, 1682


def table_4_task() -> Task:
    """The task whose value is `movielens`."""
    return Task(f"{__name__}:movielens", {"seed": 0}, 30.0, reads_data=True)


def movielens(*, seed: int, data_dir: Folder = None) -> dict[str, float]:
    """Test RMSE of classical recommenders on MovieLens-100K, ratings clipped to 1..5.

    "SVD" is the biased factorisation, "NMF" the non-negative one; user CF averages the 40 most similar users'
    deviations from their own means.

    Args:
        seed: of the first factors and the order of the ratings.
        data_dir: folder of the data files.
    """
    from tacit.data import load

    data = load("movielens", data_dir=data_dir)
    pairs, values = np.asarray(data.x_train).astype(int)[:, :2], _stars(data.y_train)
    ratings = np.zeros((_USERS, _ITEMS))
    ratings[tuple(pairs.T)] = values
    known = ratings > 0
    guesses = {
        "global mean": np.full_like(ratings, values.mean()),
        "user CF": _neighbours(ratings, known),
        "NMF": nonnegative_factorisation(ratings, known, seed=seed),
        "SVD": biased_factorisation(pairs, values, seed=seed),
    }
    user, item = np.asarray(data.x_test).astype(int).T[:2]
    truth = _stars(data.y_test)
    return {
        name: float(np.sqrt(np.mean((np.clip(guess[user, item], 1, 5) - truth) ** 2)))
        for name, guess in guesses.items()
    }


def _stars(labels: np.ndarray) -> np.ndarray:
    """Ratings 1 to 5 of the classes 0 to 4."""
    return np.asarray(labels, dtype=float) + 1


def biased_factorisation(
    pairs: np.ndarray,
    values: np.ndarray,
    *,
    seed: int,
    shape: tuple[int, int] = (_USERS, _ITEMS),
    factors: int = 100,
    epochs: int = 20,
    rate: float = 0.005,
    penalty: float = 0.02,
) -> np.ndarray:
    """Predictions mean + b_u + b_i + p_u . q_i, fitted by stochastic gradient descent (Koren et al. 2009).

    Args:
        pairs: user and item of every rating, integers (n, 2).
        values: the ratings (n,).
        seed: of the first factors and of the order in every epoch.
        shape: numbers of users and items.
        factors: length of p_u and q_i.
        epochs: passes over the ratings.
        rate: learning rate.
        penalty: weight of the squares of all parameters.

    Returns:
        Predicted ratings (users, items).
    """
    draw = np.random.default_rng(seed)
    users, items = shape
    p, q = draw.normal(0, 0.1, (users, factors)), draw.normal(0, 0.1, (items, factors))
    of_user, of_item, mean = np.zeros(users), np.zeros(items), float(values.mean())
    for _ in range(epochs):
        for place in draw.permutation(len(values)):
            u, i = pairs[place]
            error = values[place] - (mean + of_user[u] + of_item[i] + p[u] @ q[i])
            of_user[u] += rate * (error - penalty * of_user[u])
            of_item[i] += rate * (error - penalty * of_item[i])
            old = p[u].copy()
            p[u] += rate * (error * q[i] - penalty * p[u])
            q[i] += rate * (error * old - penalty * q[i])
    return mean + of_user[:, None] + of_item[None, :] + p @ q.T


def nonnegative_factorisation(
    ratings: np.ndarray,
    known: np.ndarray,
    *,
    seed: int,
    factors: int = 15,
    epochs: int = 50,
    penalty: float = 0.06,
) -> np.ndarray:
    """Predictions p_u . q_i with non-negative factors, by multiplicative updates on observed ratings (Luo et al. 2014).

    Args:
        ratings: (users, items), 0 where unknown.
        known: which ratings are observed, (users, items).
        seed: of the first factors.
        factors: length of p_u and q_i.
        epochs: updates of all factors.
        penalty: weight of the squares, once for every rating of the user or item.

    Returns:
        Predicted ratings (users, items).
    """
    draw = np.random.default_rng(seed)
    p, q = draw.uniform(0, 1, (ratings.shape[0], factors)), draw.uniform(0, 1, (ratings.shape[1], factors))
    of_user, of_item = known.sum(1)[:, None], known.sum(0)[:, None]
    for _ in range(epochs):
        guess = np.where(known, p @ q.T, 0.0)
        up, down = ratings @ q, guess @ q + of_user * penalty * p
        other_up, other_down = ratings.T @ p, guess.T @ p + of_item * penalty * q
        # A user or an item without ratings keeps its first factors.
        p = np.where(of_user > 0, p * up / np.maximum(down, 1e-12), p)
        q = np.where(of_item > 0, q * other_up / np.maximum(other_down, 1e-12), q)
    return p @ q.T


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


def table_3_repeated_task(seed: int, table: dict[str, Any]) -> Task:
    """The task whose value is `repeated_words` at the settings of Table 3."""
    settings = {
        "seed": seed,
        "epochs": table["epochs"],
        "batch_size": table["batch_size"],
        "noise_multiplier": table["sigma"],
        "clip_norm": 1.0,
        "learning_rate": 0.02,
    }
    return Task(f"{__name__}:repeated_words", settings, 60.0, reads_data=True)


def repeated_words(
    seed: int,
    epochs: int,
    batch_size: int,
    noise_multiplier: float,
    clip_norm: float,
    learning_rate: float,
    *,
    data_dir: str | os.PathLike[str] | None = None,
) -> dict[str, list[float]]:
    """Test accuracy ("test") after each epoch of NoisyAdam with that norm, padding counted in the mean of the words.

    Args:
        seed: of the weights, the batches and the noise.
        epochs: passes over the records.
        batch_size: records in a batch.
        noise_multiplier: > 0.
        clip_norm: clipping norm, > 0.
        learning_rate: of Adam, > 0.
        data_dir: folder of the data files.
    """
    from tacit.data import load

    data = load("imdb", data_dir=data_dir)
    x, x_test = (torch.as_tensor(np.asarray(rows)).long() for rows in (data.x_train, data.x_test))
    y, y_test = (torch.as_tensor(np.asarray(rows)).long() for rows in (data.y_train, data.y_test))
    words = int(np.max(data.bounds[1])) + 1
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = MeanOfWords(words, 2, count_padding=True)
        optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
        stream, rate, test = SeededStream(seed), batch_size / len(y), []
        ends = {round(epoch / rate) for epoch in range(1, epochs + 1)}
        for step in range(1, max(ends) + 1):
            batch = torch.rand(len(y)) < rate
            _set_noisy_gradient(model, x[batch], y[batch], clip_norm, noise_multiplier, batch_size, stream)
            optimizer.step()
            if step in ends:
                with torch.no_grad():
                    right = torch.cat([model(rows).argmax(1) for rows in x_test.split(1000)]) == y_test
                test.append(float(right.float().mean()))
    return {"test": test}


def _set_noisy_gradient(
    model: MeanOfWords, x: Tensor, y: Tensor, clip_norm: float, noise_multiplier: float, expected: int, stream: Any
) -> None:
    norms = example_norms(model, x, y, summed=False)
    factors = (clip_norm / norms).clamp(max=1.0)
    losses = nn.functional.cross_entropy(model(x), y, reduction="none")
    model.zero_grad()
    (factors * losses).sum().backward()
    for parameter in model.parameters():
        gradient = cast(Tensor, parameter.grad)
        noise = gaussian(stream, tuple(gradient.shape), std=noise_multiplier * clip_norm)
        gradient.add_(torch.as_tensor(noise, dtype=gradient.dtype)).div_(expected)


@torch.no_grad()
def example_norms(model: MeanOfWords, x: Tensor, y: Tensor, *, summed: bool) -> Tensor:
    """Norm of every record's gradient, (batch,); where not `summed`, of its rows by place instead of by word.

    Args:
        model: at its present parameters.
        x: word numbers, shape (batch, length).
        y: labels, shape (batch,).
        summed: whether the rows of a word that repeats are added up.
    """
    first, _, second = cast(tuple[nn.Linear, nn.ReLU, nn.Linear], tuple(cast(nn.Sequential, model.body)))
    mean = model.words(x).mean(1)
    before = first(mean)
    hidden = before.relu()
    out = second(hidden).softmax(1) - nn.functional.one_hot(y, second.out_features)
    inner = (out @ second.weight) * (before > 0)
    dense = _square(out) * (1 + _square(hidden)) + _square(inner) * (1 + _square(mean))
    counts = _square_counts(x) if summed else torch.full((len(x),), float(x.shape[1]))
    return (dense + _square(inner @ first.weight) * counts / x.shape[1] ** 2).sqrt()


def _square(rows: Tensor) -> Tensor:
    return rows.square().sum(1)


def _square_counts(x: Tensor) -> Tensor:
    """Sum over the words of a record of the square of how often it has the word."""
    return torch.tensor([float(row.unique(return_counts=True)[1].square().sum()) for row in x])
