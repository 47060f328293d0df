"""`check_attack`: the suite of every membership attack, whatever signal it uses."""

from collections.abc import Callable

import numpy as np

from tacit.attacks import Attack, Examples, Model, Scores, roc
from tacit.errors import InvalidInput
from tacit.testing.draws import require, require_raises

RECORDS, CLASSES = 240, 3
Build = Callable[[Examples, np.ndarray], Attack]
"""Examples and a mask (n,) of those that the model was trained on, to the attack; its shadow models are its own."""


def check_attack(build: Build) -> None:
    """Check a membership attack on a model that leaks, on one that does not, and on bad input.

    - On a model that is sure of the label of its training records, the area under the ROC curve exceeds 0.6, which is
      2.7 standard deviations above chance for 120 members and 120 non-members; the same attack twice gives the same
      scores.
    - On a model that ignores its input, the area stays within 4.2 standard deviations of 1/2: an attack that
      reads membership from anything but the model fails here. False-alarm rate of this part: 3e-5.
    - No members, no non-members, answers that are NaN or no table of probabilities raise `InvalidInput`.

    Args:
        build: (examples, member mask of shape (n,)) -> attack. An attack with shadow or reference models trains them
            here, on examples of its own (`examples_of(seed)`); any other attack ignores both arguments.

    Raises:
        AssertionError: a property does not hold; the sentence names it.

    Example:
        >>> from tacit.attacks import LossThreshold
        >>> check_attack(lambda examples, member: LossThreshold())
    """
    examples, member = examples_of(1), np.arange(RECORDS) < RECORDS // 2
    members, others = ((examples[0][part], examples[1][part]) for part in (member, ~member))
    _check_leaky_model(build(examples, member), leaky(members), members, others)
    area = _area(build(examples, member)(constant, members=members, non_members=others))
    # Without signal the area of 120 against 120 records has the deviation sqrt(241 / (12 * 120^2)) = 0.0373.
    allowed = 6 * np.sqrt(1 / 6 / RECORDS)  # 0.158, 4.2 deviations
    close = abs(area - 0.5) < allowed
    require(close, f"the area on a model that ignores its input must be 0.5 within {allowed:.3f}; got {area:.3f}.")
    _check_bad_input(build(examples, member), leaky(members), members)


def examples_of(seed: int, records: int = RECORDS) -> Examples:
    """Return inputs (records, 4) whose first column numbers the records, and random labels (records,)."""
    draw = np.random.default_rng(seed)
    numbers = np.arange(records, dtype=float) + 10_000 * seed
    return np.column_stack([numbers, draw.normal(size=(records, 3))]), draw.integers(0, CLASSES, records)


def leaky(known: Examples, seed: int = 0) -> Model:
    """Return a model that favours the right label of the examples in `known` and a random label of all others."""
    labels = dict(zip(np.asarray(known[0])[:, 0].tolist(), np.asarray(known[1]).tolist(), strict=True))

    def model(inputs: np.ndarray) -> np.ndarray:
        logits = np.random.default_rng(seed).normal(size=(len(inputs), CLASSES))
        for row, number in enumerate(inputs[:, 0].tolist()):
            if number in labels:
                logits[row, labels[number]] += 4.0
        weights = np.exp(logits)
        return weights / weights.sum(axis=1, keepdims=True)

    return model


def constant(inputs: np.ndarray) -> np.ndarray:
    """Return the same probabilities for every input: a model that leaks nothing."""
    return np.tile([0.5, 0.3, 0.2], (len(inputs), 1))


def _check_leaky_model(attack: Attack, model: Model, members: Examples, others: Examples) -> None:
    scores = attack(model, members=members, non_members=others)
    require(scores.attack == attack.name, f"scores must carry the name {attack.name!r}; got {scores.attack!r}.")
    expected = (len(members[1]), len(others[1]))
    require(scores.count == expected, f"an attack must score every record once, {expected}; got {scores.count}.")
    require(np.isfinite([*scores.members, *scores.non_members]).all(), f"scores of {attack.name} must be finite.")
    area = _area(scores)
    require(area > 0.6, f"the area under the ROC curve on a leaky model must exceed 0.6; got {area:.3f}.")
    again = attack(model, members=members, non_members=others)
    require(np.array_equal(scores.members, again.members), "the same attack twice must give the same scores.")


def _check_bad_input(attack: Attack, model: Model, members: Examples) -> None:
    empty = (members[0][:0], members[1][:0])
    attempt = lambda: attack(model, members=members, non_members=empty)  # noqa: E731
    require_raises(InvalidInput, attempt, "an empty set of non-members", message="at least one record")
    for what, broken in (
        ("a model that answers NaN", lambda inputs: np.full((len(inputs), CLASSES), np.nan)),
        ("a model that answers one number a record", lambda inputs: np.zeros(len(inputs))),
    ):
        attempt = lambda model=broken: attack(model, members=members, non_members=members)  # noqa: E731
        require_raises(InvalidInput, attempt, what)


def _area(scores: Scores) -> float:
    fpr, tpr, _ = roc(scores)
    return float(np.trapezoid(tpr, fpr))
