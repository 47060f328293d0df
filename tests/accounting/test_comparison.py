"""The comparison of samplers and noises holds the numbers of the methods page, and refuses half of its arguments."""

import json

import pytest

from tacit.accounting.comparison import compare
from tacit.cli import main


def test_rows_hold_the_published_costs_and_errors():
    rows = {
        (row.sampling, row.noise): row
        for row in compare(1.0, records=60_000, batch_size=600, epochs=1, delta=1e-5, bands=8)
    }
    # 100 steps: one epoch of random allocation, correlated-noise.md 3.4.
    allocated = rows["random_allocation", "independent"]
    assert allocated.epsilon[0] <= 0.620987
    assert 0.620917 <= allocated.epsilon[1] <= 0.6211
    assert rows["balls_and_bins", "independent"].epsilon == allocated.epsilon
    independent = rows["poisson", "independent"]
    assert independent.error == pytest.approx((101 / 2) ** 0.5)
    for (sampling, noise), row in rows.items():
        if (sampling, noise) == ("balanced_iteration", "independent"):
            assert row.epsilon == allocated.epsilon
        if noise != "independent":
            assert row.error < independent.error
            assert row.epsilon[1] > independent.epsilon[1]
        assert row.epsilon[0] <= row.epsilon[1], sampling


def test_the_command_prints_rows_and_names_what_is_missing(capsys):
    arguments = ["account", "--noise-multiplier", "2", "--records", "100", "--batch-size", "25", "--epochs", "1"]
    assert main([*arguments, "--bands", "2", "--json"]) == 0
    assert {row["sampling"] for row in json.loads(capsys.readouterr().out)["compared"]} == {
        *("poisson", "random_allocation", "balls_and_bins", "balanced_iteration"),
        *("cyclic_poisson", "cyclic_allocation"),
    }
    assert main(arguments[:-2]) == 2
    assert "epochs must be given with the others" in capsys.readouterr().err
