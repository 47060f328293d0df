"""Tree aggregation: the sensitivity against all patterns of short runs, its properties in long ones."""

import numpy as np
import pytest

from tacit.mechanisms import TreeStrategy

LONGEST = 2**20


def nodes(steps):
    """C, entry by entry."""
    rows = [
        (np.arange(steps) >= start) & (np.arange(steps) < start + 2**height)
        for height in range(steps.bit_length())
        for start in range(0, steps - 2**height + 1, 2**height)
    ]
    return np.array(rows, dtype=float)


def largest(steps, often, apart):
    """The largest |C p|^2 over all patterns p of at most `often` steps that are at least `apart` apart."""
    columns = nodes(steps).T

    def grown(first, left, so_far):
        found = [so_far @ so_far]
        if left:
            found += [grown(step + apart, left - 1, so_far + columns[step]) for step in range(first, steps)]
        return max(found)

    return grown(0, often, np.zeros(columns.shape[1]))


@pytest.mark.parametrize("steps", range(1, 11))
def test_the_sensitivity_covers_every_pattern_and_is_reached_where_it_is_said_to_be(steps):
    for apart in range(1, steps + 1):
        for often in range(1, -(-steps // apart) + 1):
            bound = TreeStrategy(steps).sensitivity(participations=often, separation=apart) ** 2
            exact = largest(steps, often, apart)
            assert bound >= exact - 1e-9
            if often == 1 or (apart.bit_count() == 1 and often * apart <= steps):
                assert bound == pytest.approx(exact)


def test_the_sensitivity_of_a_long_run_is_that_of_its_levels():
    assert TreeStrategy(LONGEST).sensitivity() ** 2 == pytest.approx(21)
    # Each of 1,024 participations has a node of its own on levels 0 to 10, and 2^j share one on level 10 + j.
    expected = 11 * 1024 + sum(1024 * 2**j for j in range(1, 11))
    found = TreeStrategy(LONGEST).sensitivity(participations=1024, separation=1024) ** 2
    assert found == pytest.approx(expected)


def test_the_sensitivity_grows_with_participations_and_steps_and_falls_with_the_separation():
    draw = np.random.default_rng(0)
    for _ in range(300):
        steps, apart = int(draw.integers(2, LONGEST)), int(draw.integers(1, 5000))
        often = int(draw.integers(1, 500))

        def square(steps, often, apart):
            return TreeStrategy(steps).sensitivity(participations=often, separation=apart) ** 2

        found = square(steps, often, apart)
        assert found <= square(steps, often + 1, apart) * (1 + 1e-12)
        assert found <= square(steps + int(draw.integers(1, 1000)), often, apart) * (1 + 1e-12)
        assert found >= square(steps, often, apart + 1) * (1 - 1e-12)
