"""`check_attack`: what every membership attack must satisfy, whatever it looks at."""

from collections.abc import Callable

import numpy as np
import pytest

from tacit.attacks import Attack, Examples, Model, Scores, roc
from tacit.errors import InvalidInput

RECORDS, CLASSES = 240, 3
Build = Callable[[Examples, np.ndarray], Attack]
"""The attack on examples of which `member` (n,) were trained on, by an attacker who has models of the same kind."""


def examples_of(seed: int, records: int = RECORDS) -> Examples:
    """Inputs whose first value numbers them and whose others are noise, and labels that are noise too."""
    draw = np.random.default_rng(seed)
    numbers = np.arange(records, dtype=float) + 10_000 * seed
    return np.column_stack([numbers, draw.normal(size=(records, 3))]), draw.integers(0, CLASSES, records)


def leaky(known: Examples, seed: int = 0) -> Model:
    """Sure of the right label on what it was trained on, unsure of some label elsewhere."""
    labels = dict(zip(np.asarray(known[0])[:, 0].tolist(), np.asarray(known[1]).tolist(), strict=True))

    def model(inputs: np.ndarray) -> np.ndarray:
        draw = np.random.default_rng(seed)
        logits = draw.normal(size=(len(inputs), CLASSES))
        for row, number in enumerate(inputs[:, 0].tolist()):
            if number in labels:
                logits[row, labels[number]] += 4.0
        weights = np.exp(logits)
        return weights / weights.sum(axis=1, keepdims=True)

    return model


def blind(inputs: np.ndarray) -> np.ndarray:
    """Says the same of everything."""
    return np.tile([0.5, 0.3, 0.2], (len(inputs), 1))


def check_attack(build: Build) -> None:
    """Run the whole suite on one attack."""
    examples, member = examples_of(1), np.arange(RECORDS) < RECORDS // 2
    members, others = ((examples[0][part], examples[1][part]) for part in (member, ~member))
    _beats_chance(build(examples, member), leaky(members), members, others)
    _finds_nothing_where_nothing_leaks(build(examples, member), members, others)
    _refuses_bad_input(build(examples, member), leaky(members), members)


def _beats_chance(attack: Attack, model: Model, members: Examples, others: Examples) -> None:
    """The area under the ROC is above .6: 3.5 standard deviations of chance for 120 records a side."""
    scores = attack(model, members=members, non_members=others)
    assert scores.attack == attack.name
    assert scores.count == (len(members[1]), len(others[1]))
    assert np.isfinite(scores.members).all()
    assert np.isfinite(scores.non_members).all()
    assert _area(scores) > 0.6
    again = attack(model, members=members, non_members=others)
    assert np.array_equal(scores.members, again.members)


def _finds_nothing_where_nothing_leaks(attack: Attack, members: Examples, others: Examples) -> None:
    """Area within 6 standard deviations of 1/2 on a model that ignores its input."""
    assert abs(_area(attack(blind, members=members, non_members=others)) - 0.5) < 6 * np.sqrt(1 / 6 / RECORDS)


def _refuses_bad_input(attack: Attack, model: Model, members: Examples) -> None:
    empty = (members[0][:0], members[1][:0])
    with pytest.raises(InvalidInput, match="at least one record"):
        attack(model, members=members, non_members=empty)
    with pytest.raises(InvalidInput):
        attack(lambda x: np.full((len(x), CLASSES), np.nan), members=members, non_members=members)
    with pytest.raises(InvalidInput):
        attack(lambda x: np.zeros(len(x)), members=members, non_members=members)


def _area(scores: Scores) -> float:
    fpr, tpr, _ = roc(scores)
    return float(np.trapezoid(tpr, fpr))
