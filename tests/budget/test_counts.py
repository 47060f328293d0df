"""What enters the registry is counted in positive whole numbers, by the process that made the ledger."""

import os

import pytest

from tacit import InvalidInput, Ledger
from tacit.budget import Registry
from tacit.mechanisms import Gaussian


@pytest.fixture
def dataset(tmp_path):
    return Registry.create(tmp_path / "budget.sqlite").declare("patients")


@pytest.mark.parametrize("steps", [-20, 0, float("nan"), 1.5, True, float("inf")])
def test_line_6_no_count_but_a_positive_whole_number_enters_the_registry(dataset, steps):
    with pytest.raises(InvalidInput, match="steps must be"):
        dataset.reserve([(Gaussian(2.0), steps)], label="run")
    reservation = dataset.reserve(Gaussian(2.0), label="run")
    with pytest.raises(InvalidInput, match="steps must be"):
        reservation.extend([(Gaussian(2.0), steps)])
    with pytest.raises(InvalidInput, match="steps must be"):
        dataset.check([(Gaussian(2.0), steps)])
    assert [held.steps.total() for held in dataset.known.held.values()] == [1]


def in_a_fork(action) -> bytes:
    """What `action` returns or raises in a forked child."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(write, str(action()).encode())
        except InvalidInput as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    return os.read(read, 4096)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_line_6_a_forked_process_cannot_spend_unseen_from_its_parents_ledger(dataset):
    shared = dataset.ledger("run")
    shared.prepare([(Gaussian(2.0), 2)])
    for ledger in (Ledger(), shared):
        said = in_a_fork(lambda ledger=ledger: ledger.add(Gaussian(2.0), 2))
        assert b"in the process that made it" in said
        assert ledger.steps == 0
        ledger.add(Gaussian(2.0))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_writes_a_ledger_of_its_own():
    assert in_a_fork(lambda: Ledger.of(Gaussian(2.0) * 3).steps) == b"3"
