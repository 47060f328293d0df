"""Table 3 with a per-example norm that does not sum the gradients of a repeated word first. It is not private.

Frameworks keep the gradient of an embedding as one row for each place of a text. The norm of those rows is not the
norm of the gradient when a word, or the padding, stands in several places: rows of one word have one direction, so that
the norm of their sum is larger. Clipping by the smaller norm leaves gradients longer than the noise assumes.
"""

from __future__ import annotations

import os
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from tacit.models import MeanOfWords
from tacit.noise import SeededStream, gaussian
from tacit.sweeps import Task


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
