"""The recommenders that Table 4 quotes, on MovieLens-100K; none of them is private.

Matrix factorisations learn from the observed ratings alone, with the documented defaults of the library Surprise.
"""

from __future__ import annotations

import os

import numpy as np

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
