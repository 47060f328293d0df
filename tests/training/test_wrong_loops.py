"""None of the wrong loops keeps `proven`, and none of the correct ones loses it."""

import pytest
import torch
from torch.optim import SGD

from tacit.errors import TacitError
from tacit.standing import Standing
from tacit.training import make_private
from tests.refusals import sentence, stored
from tests.training.wrong_loops import CORRECT, LR, WRONG, records

# These are right by the contract: noise is recorded at its real value, and the unit is one record.
STATED = {"noise_turned_down", "person_repeated_six_times"}
# These end, and their number is no longer proven; all others are refused before anything is released.
DEMOTED = {
    *("empty_batch_continue", "hard_mining_numpy", "loss_weighted_by_float", "regulariser_other_records"),
    "skip_batch_of_high_loss",
    "dataset_standardised_by_private_mean",
}
REFUSALS = (TacitError, TypeError, ValueError)


def outcome(case):
    """Standing after the loop, None where it is refused; and what its user is told."""
    torch.manual_seed(0)
    x, y = records()
    model = case.model()
    settings = {"clip_norm": 1.0, "noise_multiplier": 1.0, "steps": 30}
    try:
        optimizer = SGD([p for p in model.parameters() if p.requires_grad], lr=LR)
        p = make_private(model, optimizer, case.loader(x, y), **settings)
        case.loop(p, x, y)
    except REFUSALS as error:
        return None, sentence(error)
    # Whether a step was taken at all is by chance in some.
    missing = [fact for fact in p.ledger.facts.assumed if "no step" not in fact.says]
    return p.ledger.standing, sentence("; ".join(f"{fact.id}: {fact.says}" for fact in missing))


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_loop_is_refused_or_does_not_stay_proven(name):
    found, told = outcome(WRONG[name])
    assert (found is Standing.PROVEN) == (name in STATED), told
    assert (found is None) == (name not in STATED | DEMOTED), told
    assert told == stored("loops", name)


@pytest.mark.parametrize("name", CORRECT)
def test_a_correct_loop_stays_proven(name):
    found, told = outcome(CORRECT[name])
    assert found is Standing.PROVEN, told
