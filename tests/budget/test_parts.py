"""Parallel composition: parts are disjoint by a keyed hash of each record alone."""

import numpy as np
import pytest

from tacit import InvalidInput
from tacit.accounting import Ledger, accountant
from tacit.budget import Registry
from tacit.mechanisms import Gaussian

X = np.random.default_rng(0).normal(size=(60, 2))


@pytest.fixture
def registry(tmp_path):
    return Registry.create(tmp_path / "budget.sqlite")


def test_parts_are_disjoint_and_a_record_never_moves_for_another(registry):
    parts = registry.declare("patients").split("folds", 3)
    found = [parts.of(index, X)[0] for index in range(3)]
    assert sum(map(len, found)) == len(X)
    for left_out in range(0, 60, 7):
        fewer = np.delete(X, left_out, axis=0)
        for index in range(3):
            kept = {row.tobytes() for row in parts.of(index, fewer)[0]}
            assert kept <= {row.tobytes() for row in found[index]}


def test_runs_on_parts_cost_the_largest_and_runs_on_all_add_up(registry):
    dataset = registry.declare("patients")
    parts = dataset.split("folds", 3)
    for index, noise in enumerate((4.0, 2.0, 3.0)):
        dataset.reserve(Gaussian(noise), scope="fixed", part=("folds", index), records=parts.of(index, X))
    dataset.reserve(Gaussian(5.0), scope="fixed")
    largest = Ledger.of(Gaussian(2.0))
    largest.add(Gaussian(5.0))
    assert float(dataset.spent().epsilon(1e-5)) == float(accountant("pld")(largest).epsilon(1e-5))


@pytest.mark.parametrize("relation", ["replace_one", "zero_out"])
def test_parts_by_content_are_refused_where_a_changed_record_changes_its_part(registry, relation):
    with pytest.raises(InvalidInput, match="relation must be add_remove"):
        registry.declare("patients", relation=relation).split("folds", 3)


def test_undeclared_parts_are_refused(registry):
    dataset = registry.declare("patients")
    dataset.split("folds", 2)
    for part in (("folds", 2), ("others", 0)):
        with pytest.raises(InvalidInput, match="part must be"):
            dataset.reserve(Gaussian(2.0), part=part, records=(X, None))
    for records in ((X, None), None):
        with pytest.raises(InvalidInput, match="records must be"):
            dataset.reserve(Gaussian(2.0), part=("folds", 0), records=records)
    with pytest.raises(InvalidInput, match="parts must be 2"):
        dataset.split("folds", 3)
