"""The published mask gives a record away; the sound modes are run by the same command."""

import pytest
import torch

from tacit.tickets import Ticket
from tacit_papers.lottery_ticket import mechanism


@pytest.mark.slow
def test_without_the_record_the_order_is_never_violated_and_with_it_nearly_always():
    """soundness.md S3: 192 of 200 against 0 of 200. Fewer than 3 of 4 has probability below 1e-2 at that rate."""
    assert sum(mechanism.violations("paper", False, 3, 0)) == 0
    assert sum(mechanism.violations("paper", True, 4, 1)) >= 3


def test_a_public_mask_does_not_depend_on_the_record():
    lit, dark = (mechanism._released("T1", present, 3) for present in (True, False))
    assert all(torch.equal(lit.masks[name], dark.masks[name]) for name in lit.masks)


def test_rows_say_what_is_refuted_and_what_could_have_been_found():
    values = [[1] * 23 + [0], [0] * 24, [1, 0] * 12, [0, 1] * 12, [1] * 10, [1] * 10]
    rows = {row.quantity: row for row in mechanism.rows("quick", values)}
    assert rows["paper: claim refuted (1 yes, 0 no)"].ours == 1.0
    assert rows["paper: epsilon at least, 95 % (claimed 1, delta 1e-5)"].ours > 1.0
    assert rows["paper: smallest epsilon that the audit would detect"].ours > 1.0
    assert not [name for name in rows if name.startswith("T") and ("detect" in name or "refuted" in name)]
    assert all(row.passed in (True, None) for row in rows.values())


def test_a_violated_order_is_detected():
    mask, start = torch.ones(2, 64), torch.arange(128.0).view(2, 64)
    mask[0, 60] = 0.0
    tidy = Ticket({"0.weight": mask}, {"0.weight": start}, "public")
    assert not mechanism._violated(tidy, 54) or start[0, 60] > start[0, 54:][mask[0, 54:] == 1].min()
    assert mechanism._violated(Ticket({"0.weight": mask.flip(1)}, {"0.weight": start}, "public"), 0)


def test_selectivity_of_the_published_choice():
    value = mechanism.selectivity(1.0, 15, 0.95)
    assert value["ratio"] == pytest.approx(1.034, abs=5e-4)
    assert value["sparse"] == pytest.approx(0.604, abs=5e-4)
    assert value["counts_ratio"] > 100
