"""Private holdouts: two branches, the larger of which counts, and nothing of the holdout told without its noise."""

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch import nn

from tacit import Epsilon
from tacit.accounting import Ledger, accountant
from tacit.budget import Registry
from tacit.errors import BudgetExceeded, InvalidInput
from tacit.mechanisms import Gaussian, Parallel
from tacit.noise import SeededStream
from tacit.noise.discrete import Scores, log_probabilities
from tacit.relation import Relation
from tacit.sampling import GroupedPoissonSampling
from tacit.standing import Standing
from tacit.training import BestModel, EarlyStopping, Functions, Plan, PrivateHoldout, fit, holdout
from tacit.training.checkpoint import read_checkpoint
from tacit.training.holdout import DISJOINT, LEVELS, OWN_COIN, epoch_ends
from tacit.training.loop import Loop

DELTA = 1e-5
DRAW = torch.Generator().manual_seed(0)
X = torch.randn(240, 3, generator=DRAW)
Y = (X[:, 0] > 0).long()


def train(held, x=X[:200], y=Y[:200], **given):
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    settings = {"clip_norm": 1.0, "noise_multiplier": 2.0, "batch_size": 40, "epochs": 4} | given
    loss = nn.CrossEntropyLoss(reduction="none")
    callbacks = [each(model) if isinstance(each, type) else each for each in settings.pop("callbacks", ())]
    done = fit(
        model, x, y, loss=loss, optimizer=torch.optim.SGD(model.parameters(), lr=0.5), holdout=held,
        callbacks=callbacks, **settings,
    )  # fmt: skip
    return model, done


def epsilon(mechanism):
    return float(accountant("pld")(mechanism).epsilon(DELTA))


@pytest.mark.parametrize("checkpoint", ["noisy", "exponential", "permute_and_flip"])
def test_the_ledger_holds_two_branches_and_the_larger_counts(checkpoint):
    held = PrivateHoldout(X[200:], Y[200:], epsilon=2.0, delta=DELTA, checkpoint=checkpoint)
    _, done = train(held)
    (entry,) = done.ledger.entries
    training, told = entry.mechanism.branches
    assert training == Gaussian(2.0).poisson(0.2) * 20 == done.plan.mechanism_at(0) * 20
    assert 1.98 < epsilon(told) <= 2.0
    assert epsilon(done.ledger) == pytest.approx(max(epsilon(training), epsilon(told)))
    assert done.ledger.standing is Standing.PROVEN
    assert DISJOINT in done.ledger.assumptions
    assert done.ledger.covered_steps == done.taken == 20
    assert all(("validation_accuracy" in row) == (checkpoint == "noisy") for row in done.history)


def test_a_run_that_the_holdout_stops_states_its_plan():
    stopping = EarlyStopping("validation_accuracy", patience=1, least_gain=2.0)
    _, whole = train(PrivateHoldout(X[200:], Y[200:], epsilon=0.5, delta=DELTA))
    _, stopped = train(PrivateHoldout(X[200:], Y[200:], epsilon=0.5, delta=DELTA), callbacks=[stopping])
    assert stopped.taken == 10
    assert stopped.stopped
    assert stopped.ledger.mechanism == whole.ledger.mechanism
    assert epsilon(stopped.ledger) == epsilon(whole.ledger)


@pytest.mark.slow
def test_noise_is_solved_for_the_target_with_the_holdout_beside_it():
    _, done = train(PrivateHoldout(X[200:], Y[200:], epsilon=1.0, delta=DELTA), noise_multiplier=None,
                    target=Epsilon(1.0, DELTA))  # fmt: skip
    assert done.taken == 20
    assert 0.99 < epsilon(done.ledger) <= 1.0
    with pytest.raises(BudgetExceeded, match="private holdout"):
        train(PrivateHoldout(X[200:], Y[200:], epsilon=1.5, delta=DELTA), noise_multiplier=None,
              target=Epsilon(1.0, DELTA))  # fmt: skip


def test_a_second_holdout_divides_the_records_anew():
    ledger = Ledger()
    for start in (200, 220):
        train(
            PrivateHoldout(X[start:], Y[start:], epsilon=2.0, checkpoint="exponential"),
            ledger=ledger,
            steps=2,
            epochs=None,
        )
    one, other = (entry.mechanism for entry in ledger.entries)
    assert (one.split, other.split) == (0, 1)
    # A record may have been trained on once and held out once.
    mixed = Ledger.of(one.branches[0])
    mixed.add(next(iter(other.branches[1].parts()))[0])
    assert epsilon(ledger) >= epsilon(mixed) - 1e-9


@pytest.mark.slow
def test_counts_have_noise_of_the_planned_law_and_move_by_at_most_one(monkeypatch):
    model = nn.Linear(3, 2)
    plan = Plan(200, 0.2, 1.0, 2.0, steps=20)
    drawn = []
    monkeypatch.setattr(holdout, "discrete_gaussian", lambda stream, variance: drawn.append(variance) or 0)

    def count(rows):
        held = PrivateHoldout(X[rows], Y[rows], epsilon=1.0, delta=DELTA)
        ((counted, looks),) = held.mechanism(plan, Relation.ADD_REMOVE).parts()
        assert looks == 4
        noise = counted.noise_multiplier
        told = held.look(model)["validation_accuracy"] * len(held)
        assert drawn[-1] == pytest.approx(noise**2)
        return round(told)

    everything = count(slice(200, 240))
    assert everything == int((model(X[200:]).argmax(1) == Y[200:]).sum())
    assert all(0 <= everything - count([*range(200, gone), *range(gone + 1, 240)]) <= 1 for gone in range(200, 240))


@pytest.mark.slow
def test_the_chosen_checkpoint_has_the_law_of_the_exponential_mechanism():
    """600 runs of three epochs whose counts are 40, 37 and 34 of 40; chi-square, false alarm 1e-6."""
    plan, chosen = Plan(200, 0.2, 1.0, 2.0, steps=15), np.zeros(3)
    counts = [40, 37, 34]
    x = torch.ones(40, 1)
    for seed in range(600):
        held = PrivateHoldout(
            x, torch.ones(40).long(), epsilon=0.3, checkpoint="exponential", stream=SeededStream(seed)
        )
        held.mechanism(plan, Relation.ADD_REMOVE)
        model = Fixed()
        for epoch, right in enumerate(counts):
            model.right, model.epoch.data = right, torch.tensor(float(epoch))
            held.look(model)
        held.restore_chosen(model)
        chosen[int(model.epoch)] += 1
    law = np.exp(log_probabilities(Scores(np.array(counts, float), 1.0, monotone=True), 0.3, Relation.ADD_REMOVE))
    assert chisquare(chosen, 600 * law).pvalue > 1e-6


class Fixed(nn.Module):
    """Right for as many rows as it is told."""

    right = 0

    def __init__(self):
        super().__init__()
        self.epoch = nn.Parameter(torch.tensor(0.0))

    def forward(self, x):
        answers = torch.zeros(len(x), 2)
        answers[: self.right, 1] = 1.0
        return answers


def test_outputs_that_are_not_finite_are_wrong():
    class Broken(nn.Linear):
        def forward(self, x):
            return super().forward(x) * float("nan")

    held = PrivateHoldout(X[200:], Y[200:], epsilon=1.0, delta=DELTA)
    assert held._total(Broken(3, 2)) == 0


USERS = np.arange(240) % 60


@pytest.mark.slow
def test_users_go_to_one_side_and_each_moves_the_count_by_at_most_its_sensitivity():
    x, y, held = PrivateHoldout.split(X, Y, share=0.3, epsilon=1.0, delta=DELTA, owners=USERS)
    assert not set(USERS[~held.aside]) & set(USERS[held.aside])
    assert held.unit == "user"
    assert held.units == len(set(USERS[held.aside]))
    sampling = GroupedPoissonSampling(USERS[~held.aside])
    _, done = train(held, x, y, sampling=sampling, ledger=Ledger(unit="user"), batch_size=10)
    (entry,) = done.ledger.entries
    ((counted, looks),) = entry.mechanism.branches[1].parts()
    assert (counted.sensitivity, looks) == (LEVELS, len(done.history))
    assert epsilon(entry.mechanism.branches[1]) <= 1.0
    assert done.ledger.standing is Standing.PROVEN
    assert all(abs(row["validation_accuracy"] - 0.5) < 3 for row in done.history)


class Killed(Exception):
    """What a kill looks like to the run."""


@pytest.mark.slow_cases
@pytest.mark.parametrize("checkpoint", ["noisy", "exponential"])
@pytest.mark.parametrize("killed_at", [3, 7, 11, 19])
def test_a_run_that_was_killed_goes_on_and_looks_at_no_epoch_twice(checkpoint, killed_at, tmp_path):
    """Its ledger is that of the whole run: steps and looks that may have been lost are not made again."""

    def held():
        return PrivateHoldout(X[200:], Y[200:], epsilon=2.0, delta=DELTA, checkpoint=checkpoint)

    seen, looks = [], []

    def kill(taken, planned):
        seen.append(taken)
        if taken == killed_at:
            raise Killed

    path = tmp_path / "run.safetensors"
    with pytest.raises(Killed):
        train(
            held(),
            checkpoint=path,
            checkpoint_every=4,
            callbacks=[Functions(on_step=kill, on_epoch=lambda row: looks.append(row["steps"]))],
        )
    watched = Functions(
        on_step=lambda taken, planned: seen.append(taken), on_epoch=lambda row: looks.append(row["steps"])
    )
    _, done = train(held(), checkpoint=path, checkpoint_every=4, resume=True, ledger=Ledger(), callbacks=[watched])
    assert len(seen) == len(set(seen)), seen
    assert len(looks) == len(set(looks)), looks
    assert len(seen) <= 20
    _, whole = train(held())
    assert done.ledger.mechanism == whole.ledger.mechanism
    assert done.ledger.standing is Standing.PROVEN
    assert all(("validation_accuracy" in row) == (checkpoint == "noisy") for row in done.history)


def test_a_resumed_choice_has_the_weights_of_the_epochs_before(tmp_path):
    def held():
        return PrivateHoldout(X[200:], Y[200:], epsilon=1e4, checkpoint="exponential")

    path = tmp_path / "run.safetensors"
    with pytest.raises(Killed):
        train(held(), checkpoint=path, callbacks=[Functions(on_step=kill_after(13))], checkpoint_every=5)
    kept = read_checkpoint(path).state["holdout"]
    assert len(kept) == 2
    model, _ = train(held(), checkpoint=path, checkpoint_every=5, resume=True, ledger=Ledger())
    counts = []
    for each in [*kept, model.state_dict()]:
        other = nn.Linear(3, 2)
        other.load_state_dict(each)
        counts.append(int((other(X[200:]).argmax(1) == Y[200:]).sum()))
    assert counts[-1] >= max(counts[:2])


def kill_after(step):
    def act(taken, planned):
        if taken == step:
            raise Killed

    return act


def test_another_holdout_does_not_go_on_with_a_run(tmp_path):
    path = tmp_path / "run.safetensors"
    with pytest.raises(Killed):
        train(
            PrivateHoldout(X[200:], Y[200:], epsilon=2.0, delta=DELTA),
            checkpoint=path,
            callbacks=[Functions(on_step=kill_after(6))],
        )
    for rows in (slice(201, 240), slice(160, 200)):
        with pytest.raises(InvalidInput, match="holdout must be"):
            train(PrivateHoldout(X[rows], Y[rows], epsilon=2.0, delta=DELTA), checkpoint=path, resume=True)


def test_a_checkpoint_holds_no_count_of_the_holdout(tmp_path):
    path = tmp_path / "run.safetensors"
    held = PrivateHoldout(X[200:], Y[200:], epsilon=2.0, checkpoint="exponential")
    train(held, checkpoint=path)
    state = read_checkpoint(path).state["holdout"]
    assert [set(each) for each in state] == [{"weight", "bias"}] * 4


def test_a_holdout_that_is_trained_on_is_noticed():
    _, done = train(PrivateHoldout(X[150:200], Y[150:200], epsilon=1.0, delta=DELTA))
    assert done.ledger.standing is not Standing.PROVEN


def test_a_split_by_coins_loses_no_record_and_says_so():
    x, y, held = PrivateHoldout.split(X, Y, share=0.2, epsilon=1.0, delta=DELTA)
    assert len(x) + len(held) == len(y) + len(held) == 240
    _, done = train(held, x, y, batch_size=20)
    assert OWN_COIN in done.ledger.assumptions
    assert done.ledger.standing is Standing.PROVEN


def test_the_best_epoch_by_noisy_accuracy_is_post_processing():
    def best(model):
        return BestModel(model, "validation_accuracy")

    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    done = fit(
        model, X[:200], Y[:200], loss=nn.CrossEntropyLoss(reduction="none"), clip_norm=1.0, noise_multiplier=2.0,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.5), batch_size=40, epochs=2, callbacks=[best(model)],
        holdout=PrivateHoldout(X[200:], Y[200:], epsilon=1.0, delta=DELTA),
    )  # fmt: skip
    assert done.ledger.standing is Standing.PROVEN


def test_a_registry_is_charged_once_with_both_branches(tmp_path):
    dataset = Registry.create(tmp_path / "budget.sqlite").declare("patients")
    _, done = train(PrivateHoldout(X[200:], Y[200:], epsilon=2.0, delta=DELTA), ledger=dataset.ledger("run"))
    ((mechanism, steps),) = dataset.total().mechanism.parts()
    assert isinstance(mechanism, Parallel)
    assert steps == 1
    assert float(dataset.spent().epsilon(DELTA)) == pytest.approx(epsilon(done.ledger))


@pytest.mark.parametrize("rate", [0.05, 0.2, 0.3, 0.37, 0.9, 1.0])
def test_every_epoch_that_the_loop_ends_is_paid_for(rate):
    for steps in range(1, 40):
        loop = Loop(nn.Linear(1, 1), None, lambda: None, rate, steps, None, None, "epoch", ())
        ends = 0
        for loop.taken in range(1, steps + 1):
            ends += loop._epoch_ended or loop.taken == steps
        assert len(epoch_ends(rate, steps)) == ends


@pytest.mark.parametrize(
    "act",
    [
        lambda: PrivateHoldout(X, Y, epsilon=1.0),
        lambda: PrivateHoldout(X, Y, epsilon=-1.0, delta=DELTA),
        lambda: PrivateHoldout(X, Y[:5], epsilon=1.0, delta=DELTA),
        lambda: PrivateHoldout(X, Y, epsilon=1.0, delta=DELTA, checkpoint="best"),
        lambda: PrivateHoldout.split(X, Y, share=1.0, epsilon=1.0, delta=DELTA),
        lambda: PrivateHoldout(X, Y, epsilon=1.0, delta=DELTA, owners=[1, 2]),
        lambda: train(PrivateHoldout(X[200:], Y[200:], epsilon=1.0, delta=DELTA, owners=np.arange(40))),
        lambda: train(
            PrivateHoldout(X[200:], Y[200:], epsilon=1.0, delta=DELTA), checkpoint="r.safetensors", sampling="shuffled"
        ),
        lambda: train(
            PrivateHoldout(X[200:], Y[200:], epsilon=1.0, delta=DELTA),
            sampling=GroupedPoissonSampling(np.arange(200) // 2),
            ledger=Ledger(unit="user"),
        ),
    ],
)
def test_what_no_theorem_covers_is_refused(act):
    with pytest.raises(InvalidInput):
        act()


def test_a_holdout_serves_one_run():
    held = PrivateHoldout(X[200:], Y[200:], epsilon=1.0, delta=DELTA)
    held.mechanism(Plan(200, 0.2, 1.0, 2.0, steps=5), Relation.ADD_REMOVE)
    with pytest.raises(InvalidInput, match="a new one for each run"):
        held.mechanism(Plan(200, 0.2, 1.0, 2.0, steps=5), Relation.ADD_REMOVE)
