"""Shadow models (Shokri, Stronati, Song & Shmatikov 2017): membership learned from the attacker's own models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from tacit import check
from tacit.attacks.base import Attack, Examples, Model, class_probabilities
from tacit.attacks.reference_models import Recipe
from tacit.attacks.stacked_training import Stack, train_stacked

HIDDEN = (64, 64)
_CLASSES_TOGETHER = 10  # attack networks trained as one stack
Progress = Callable[[int, int], None]


class ShadowModels(Attack):
    """Score the probability of "member" that the attack network of the record's class gives to the model's output.

    Every shadow model k was trained on A_k and not on B_k. Its probabilities on both, labelled in and out, train one
    network for each class: classes-64-64-2 with ReLU, Adam at .01, batches of 100, 100 epochs, L2 penalty 1e-6, as in
    the evaluation of Jayaraman & Evans 2019. A record is flagged iff the probability is above 1/2; it is 1/2 in a
    class without members or without non-members among the shadow models' records.

    Args:
        shadows: (model, its training examples A_k, other examples B_k), five in the source.
        epochs: of the attack networks.
        seed: of their first weights and batches.
        on_progress: called with (classes done, classes).

    Raises:
        InvalidInput: there is no shadow model, or an argument breaks its rule.

    Example:
        >>> draw = np.random.default_rng(0)
        >>> inside, outside = [(draw.uniform(size=20), np.zeros(20, int)) for _ in range(2)]
        >>> model = lambda inputs: np.column_stack([inputs, 1 - inputs])
        >>> attack = ShadowModels([(model, inside, outside)], epochs=1)
        >>> attack.score(model, inside).shape
        (20,)
    """

    name: ClassVar[str] = "shadow_models"

    def __init__(
        self,
        shadows: Sequence[tuple[Model, Examples, Examples]],
        *,
        epochs: int = 100,
        seed: int = 0,
        on_progress: Progress = lambda done, total: None,
    ):
        if not shadows:
            raise check.fail("shadows", "one shadow model at least", 0)
        parts = [_training_rows(*shadow) for shadow in shadows]
        outputs, labels, inside = (np.concatenate(column) for column in zip(*parts, strict=True))
        self._stacks: dict[int, tuple[Stack, int]] = {}
        known = [c for c in range(outputs.shape[1]) if {True, False} <= set(np.unique(inside[labels == c]).tolist())]
        recipe = Recipe(
            hidden=HIDDEN, batch_size=100, epochs=check.count("epochs", epochs), learning_rate=0.01, l2_penalty=1e-6
        )
        for start in range(0, len(known), _CLASSES_TOGETHER):
            together = known[start : start + _CLASSES_TOGETHER]
            of_class = np.stack([labels == c for c in together])
            stack = train_stacked(
                (outputs, inside.astype(np.int64)), of_class, recipe=recipe, classes=2, seed=seed + start
            )
            self._stacks |= {c: (stack, place) for place, c in enumerate(together)}
            on_progress(start + len(together), len(known))

    def score(self, model: Model, examples: Examples) -> np.ndarray:
        """The attack networks' probability of membership."""
        probabilities, labels = class_probabilities(model, examples)
        scores = np.full(len(labels), 0.5)
        for c, (stack, place) in self._stacks.items():
            rows = np.flatnonzero(labels == c)
            if len(rows):
                scores[rows] = stack.model(place)(probabilities[rows].astype(np.float32))[:, 1]
        return scores

    def threshold(self, member_scores: np.ndarray) -> float:
        """The next number above 1/2."""
        return float(np.nextafter(0.5, 1.0))


def shadow_splits(
    pool: np.ndarray, *, models: int = 5, records: int, seed: int = 0
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows (A_k, B_k) for each shadow: two disjoint samples of `records` each, stratified by the pool's labels.

    Samples of different shadows overlap.

    Args:
        pool: labels of the records to sample from, shape (n,).
        models: number of shadow models, >= 1.
        records: size of each sample.
        seed: of the samples.

    Raises:
        InvalidInput: the pool holds fewer than 2 `records`, or a number breaks its rule.

    Example:
        >>> [(len(inside), len(outside)) for inside, outside in shadow_splits(np.tile([0, 1], 10), models=2, records=6)]
        [(6, 6), (6, 6)]
    """
    from sklearn.model_selection import train_test_split

    labels = np.asarray(pool)
    records = check.count("records", records)
    if len(labels) < 2 * records:
        raise check.fail("records", f"at most half of the pool of {len(labels)}", records)
    splits = []
    for k in range(check.count("models", models)):
        inside, outside = train_test_split(
            np.arange(len(labels)), train_size=records, test_size=records, stratify=labels, random_state=seed + k
        )
        splits.append((inside, outside))
    return splits


def _training_rows(model: Model, inside: Examples, outside: Examples) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    outputs, labels = zip(class_probabilities(model, inside), class_probabilities(model, outside), strict=True)
    membership = np.repeat([True, False], [len(inside[1]), len(outside[1])])
    return np.concatenate(outputs).astype(np.float32), np.concatenate(labels), membership
