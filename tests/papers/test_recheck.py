"""`tacit reproduce --check`: what a changed number is, of computed values and of trainings."""

import pytest

from tacit.sweeps import Task
from tacit_papers.reproduce import _checked


def checked(before, now, function="cost"):
    return _checked("paper/item", Task(f"tests.sweeps.chores:{function}", {"x": 1}), before, now)


@pytest.mark.parametrize(
    ("before", "now", "passed"),
    [
        (1e-5, 9e-5, False),  # a delta nine times too large
        (1e-5, 1.00001e-5, False),
        (1e-5, 1e-5 * (1 + 1e-8), True),
        (0.0, 1e-17, True),
        (0.0, 1e-5, False),
        ([1.0, 2.0, 3.0], [3.0, 2.0, 1.0], False),  # the same mean
        ([1.0, 2.0], [1.0, 2.0, 1.5], False),
        ("inf", "inf", True),
        ("nan", "nan", True),
        ("inf", 7.0, False),
        (7.0, "inf", False),
        (-1.0, 1.0, False),
    ],
)
def test_a_computed_number_is_compared_by_itself_and_relative_to_itself(before, now, passed):
    assert checked({"a": before}, {"a": now}).passed is passed
    assert checked({"b": [{"a": before}]}, {"b": [{"a": now}]}).passed is passed


@pytest.mark.parametrize(
    ("now", "passed"),
    [
        ([0.5, 0.61, 0.7, 0.81, 0.9, 0.9, 0.91, 0.92], True),
        ([0.92, 0.91, 0.9, 0.9, 0.8, 0.7, 0.6, 0.5], False),  # the course reversed
        ([0.5, 0.6, 0.7, 0.8, 0.9, 0.9, 0.5, 0.5], False),
        ([0.5, 0.6, 0.7, 0.8, 0.9, 0.9, 0.91], False),  # an epoch less
    ],
)
def test_a_training_is_compared_along_its_course(now, passed):
    before = {"test": [0.5, 0.6, 0.7, 0.8, 0.9, 0.9, 0.91, 0.92]}
    assert checked(before, {"test": now}, "history").passed is passed


def test_a_number_that_is_gone_or_new_is_a_change():
    assert not checked({"a": 1.0}, {}).passed
    assert not checked({}, {"a": 1.0}).passed
    assert checked({"a": 1.0}, {"a": 1.0}).value == ""
