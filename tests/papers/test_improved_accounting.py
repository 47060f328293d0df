"""The counter-examples of the soundness review, S4, and the published row."""

import pytest

from tacit.papers.improved_accounting import counterexamples, table_1
from tacit.standing import Standing


@pytest.mark.parametrize(
    ("rate", "sigma", "steps", "claimed", "exact"),
    [
        (0.01, 0.3, 1, 0.160, 10.5),
        (0.01, 0.5, 1, 0.096, 3.03),
        (0.01, 0.5, 100, 0.980, 6.47),
        (0.001, 0.5, 1000, 0.306, 3.23),
    ],
)
def test_the_generic_accountant_is_below_the_truth(rate, sigma, steps, claimed, exact):
    value = counterexamples.generic(rate, sigma, steps, 1e-5)
    assert value["claimed"] == pytest.approx(claimed, rel=5e-3)
    assert value["exact"] == pytest.approx(exact, rel=5e-3)
    assert value["delta"] > 1e-3
    assert value["proven"] > value["exact"]


def test_the_published_row_agrees_to_the_printed_digits():
    rows = table_1._rows("quick", [task.call() for task in table_1._tasks("quick")])
    assert [row.passed for row in rows] == [True, True, None, None]
    assert rows[1].standing is Standing.CLAIMED
    assert rows[1].ours < rows[2].ours


def test_unlike_records_have_far_more_than_the_stated_delta():
    """A tenth of the steps of the review, the same draw: fewer steps make the estimate smaller too."""
    value = counterexamples.outliers(0.001, 0.01, 937, 64, 0)
    assert value["claimed"] < value["exact"]
    assert value["delta"] > 1e-3


def test_concealed_parameters_do_not_make_samples_free():
    value = counterexamples.concealed(0.01, 1000, 1e-5)
    assert value["claimed_mu"] == pytest.approx(0.316, abs=1e-3)
    assert value["true_mu"] == pytest.approx(182.7, abs=0.1)
    assert value["last_mu"] == pytest.approx(10.0)
    assert value["claimed"] == pytest.approx(1.20, abs=0.01)
