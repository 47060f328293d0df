"""Insertion canaries: blank rows, scores, bounds that a correct run does not exceed, a run without noise found out."""

import pickle

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tacit.accounting import Ledger
from tacit.audit import InsertionCanaries
from tacit.errors import InvalidInput
from tacit.losses import causal_lm
from tacit.mechanisms import Gaussian
from tacit.noise import SeededStream
from tacit.reports import write_audit
from tacit.sampling import GroupedPoissonSampling
from tacit.training import fit, make_private

VOCABULARY, LENGTH, TEXTS, DELTA = 150, 10, 80, 1e-4


class Bigrams(nn.Module):
    """Logits of the next token by the last one: remembers what it saw, in few steps."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, VOCABULARY)
        nn.init.zeros_(self.table.weight)

    def forward(self, tokens):
        return self.table(tokens)


def canaries_of(count=200, seed=0, copies=1):
    return InsertionCanaries(count, length=LENGTH, vocabulary=VOCABULARY, copies=copies, stream=SeededStream(seed))


def trained(canaries, *, noise=1.0, seed=0, steps=30, claimed=None, **settings):
    """A model trained on texts and canaries, and its ledger, or that of a run with noise `claimed`."""
    draw = np.random.default_rng(seed)
    texts = draw.integers(0, VOCABULARY, (TEXTS, LENGTH))
    model = Bigrams()
    result = fit(
        model,
        torch.from_numpy(np.concatenate([texts, canaries.records()])),
        torch.from_numpy(np.concatenate([texts, canaries.labels()])),
        loss=causal_lm,
        optimizer=torch.optim.SGD(model.parameters(), lr=1500.0),
        clip_norm=0.1,
        noise_multiplier=noise,
        unsafe_no_noise=noise == 0,
        sample_rate=0.3,
        public_size=TEXTS + len(canaries),
        steps=steps,
        stream=SeededStream(seed),
        **settings,
    )
    if claimed is None:
        return model, result.ledger
    ledger = Ledger(unit=result.ledger.unit)
    ledger.add(Gaussian(claimed).poisson(0.3), steps)
    return model, ledger


def test_a_run_without_noise_is_found():
    canaries = canaries_of()
    before = canaries.losses(Bigrams())
    model, ledger = trained(canaries, noise=0.0, claimed=4.0)
    found = canaries.audit(canaries.losses(model), ledger=ledger, delta=DELTA, before=before)
    assert found.refuted
    assert found.epsilon.lower > 2.0 > float(found.certified)
    assert found.epsilon <= found.ceiling
    assert "refuted at 99.9 %" in found.statement
    assert found.report().refuted


@pytest.mark.slow
def test_a_correct_run_is_not_above_its_certificate():
    """Three runs, each with a bound at 99.9 % and a verdict at 99.9 %: a false alarm has a probability below 0.6 %."""
    for seed in range(3):
        canaries = canaries_of(seed=seed)
        model, ledger = trained(canaries, noise=1.0, seed=seed)
        found = canaries.audit(canaries.losses(model), ledger=ledger, delta=DELTA, confidence=0.999)
        assert found.epsilon.lower <= float(found.certified)
        assert not found.refuted


def test_bounds_exceed_a_known_truth_as_seldom_as_stated():
    """Randomized response of every coin is exactly 1-DP: at 90 % at most 10 % of bounds exceed 1.

    Of 60 repeats 19 or more would do so with a probability below 1e-5. The claim, infinite at delta 0, is not refuted.
    """
    draw = np.random.default_rng(1)
    exceeded = 0
    for seed in range(60):
        canaries = canaries_of(100, seed=seed)
        told = canaries.included ^ (draw.random(100) < 1 / (1 + np.e))
        found = canaries.audit(
            -told.astype(float), ledger=Ledger.of(Gaussian(1.0)), delta=0.0, confidence=0.9, guesses=[100]
        )
        exceeded += found.epsilon > 1.0
        assert found.finding.refuted is False
    assert 0 < exceeded < 19


def test_a_canary_that_is_out_moves_no_weight_and_changes_no_plan():
    """All coins show "out": the run is that on blank rows, whatever the tokens are."""
    weights = []
    for seed in (0, 1):
        canaries = canaries_of(seed=seed)
        canaries.included = np.zeros(len(canaries), dtype=bool)
        model, ledger = trained(canaries, seed=3)
        weights.append(model.table.weight)
    assert torch.equal(*weights)
    some = canaries_of()
    assert trained(some)[1].mechanism == ledger.mechanism
    assert len(some.records()) == len(canaries.records())


def test_coins_are_fair_and_told_by_neither_tokens_nor_repr():
    canaries = canaries_of(4000)
    assert abs(int(canaries.included.sum()) - 2000) < 6 * 32
    assert canaries.tokens.min() >= 0
    assert canaries.tokens.max() < VOCABULARY
    means = [canaries.tokens[side].mean() for side in (canaries.included, ~canaries.included)]
    assert abs(means[0] - means[1]) < 6 * VOCABULARY / np.sqrt(12 * 1000 * LENGTH)
    assert repr(canaries) == "InsertionCanaries(4000, length=10, copies=1)"
    assert not np.array_equal(canaries.included, InsertionCanaries(4000, length=2, vocabulary=2).included)
    with pytest.raises(ValueError, match="read-only"):
        canaries.tokens[0, 0] = 1


def test_a_pickle_audits_alike():
    canaries, ledger = canaries_of(30), Ledger.of(Gaussian(1.0))
    again, losses = pickle.loads(pickle.dumps(canaries)), np.arange(30.0)
    found = [each.audit(losses, ledger=ledger, delta=DELTA).statement for each in (canaries, again)]
    assert found[0] == found[1]


def test_rows_of_an_alphabet_and_blank_rows():
    canaries = InsertionCanaries(50, length=4, vocabulary=[7, 9, 11], copies=2)
    rows, labels, owners = canaries.records(), canaries.labels(), canaries.owners(10)
    assert set(np.unique(canaries.tokens)) == {7, 9, 11}
    assert owners.tolist() == [number for number in range(10, 60) for _ in range(2)]
    inside = np.repeat(canaries.included, 2)
    assert np.array_equal(rows[inside], labels[inside])
    assert (rows[~inside] == 0).all()
    assert (labels[~inside] == -100).all()


def test_canaries_that_are_users():
    """Ten copies of each canary are one user, clipped as one; without users they would be ten records."""
    canaries = canaries_of(60, copies=10)
    owners = np.concatenate([np.arange(TEXTS) // 4, canaries.owners(TEXTS)])
    model, ledger = trained(canaries, sampling=GroupedPoissonSampling(owners))
    found = canaries.audit(canaries.losses(model), ledger=ledger, delta=DELTA)
    assert "Neighbours differ in one user" in found.statement
    with pytest.raises(InvalidInput, match="copies must be 1 where the unit is a record"):
        canaries.audit(canaries.losses(model), ledger=Ledger.of(Gaussian(1.0)), delta=DELTA)


@pytest.mark.parametrize("relation", ["add_remove", "replace_one", "zero_out"])
def test_the_relation_is_that_of_the_certificate(relation):
    """A blank row is a record that adds nothing: the worlds are neighbours under each of the relations."""
    canaries, ledger = canaries_of(30), Ledger(relation=relation)
    ledger.add(Gaussian(1.0))
    found = canaries.audit(np.arange(30.0), ledger=ledger, delta=DELTA)
    assert f"trained on or blank ({relation})" in found.statement
    assert found.rates.tradeoff.relation == relation
    assert "not refuted" in found.statement


def test_losses_can_be_read_while_a_loop_goes_on():
    """The private model answers in eval mode and trains on; the ledger and its facts are those of the loop alone."""
    canaries, facts = canaries_of(30), []
    for read in (False, True):
        model = Bigrams()
        data = TensorDataset(torch.from_numpy(canaries.records()), torch.from_numpy(canaries.labels()))
        private = make_private(
            model, torch.optim.SGD(model.parameters(), lr=1.0), DataLoader(data, batch_size=6),
            clip_norm=0.1, noise_multiplier=1.0, epochs=1,
        )  # fmt: skip
        for tokens, labels in private.loader:
            causal_lm(private.model(tokens), labels).backward()
            private.optimizer.step()
            if read:
                assert canaries.losses(private.model) == pytest.approx(canaries.losses(model))
                assert private.model.training
        facts.append([(fact.id, fact.how, fact.says) for fact in private.facts])
    assert facts[0] == facts[1]


def test_losses_are_those_of_each_sequence_and_leave_the_model_as_it_was():
    class Output(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.drop = nn.Embedding(VOCABULARY, VOCABULARY), nn.Dropout(0.5)

        def forward(self, tokens):
            return {"logits": self.drop(self.body(tokens))}

    canaries, model = canaries_of(30), Output()
    found = canaries.losses(model, batch_size=7)
    assert model.training
    tokens = torch.from_numpy(canaries.tokens.copy())
    whole = causal_lm(model.body(tokens), tokens, per="token")
    assert found == pytest.approx(whole.detach().numpy(), rel=1e-5)
    assert canaries.losses(lambda rows: model.body(rows).detach()) == pytest.approx(found)
    with pytest.raises(InvalidInput, match="model must be from tokens to logits"):
        canaries.losses(lambda rows: "text")


def test_the_picture_and_the_page_hold_both_numbers(tmp_path):
    canaries = canaries_of()
    found = canaries.audit(np.where(canaries.included, 0.0, 1.0), ledger=Ledger.of(Gaussian(1.0)), delta=DELTA)
    labels = [line.get_label() for line in found.plot().get_lines()]
    assert any("proven" in label for label in labels)
    assert any("measured at 95 %" in label for label in labels)
    page = write_audit(found.report(), tmp_path, title="canaries").read_text(encoding="utf-8")
    assert "insertion_canaries" in page
    assert "one_run" in page


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"count": 3}, "count must be"),
        ({"length": 1}, "length must be"),
        ({"vocabulary": 1}, "vocabulary must be"),
        ({"vocabulary": [4, 4]}, "two different tokens"),
        ({"vocabulary": [-1, 4]}, "two different tokens"),
        ({"vocabulary": [0.5, 4.5]}, "two different tokens"),
        ({"vocabulary": [[1], [2, 3]]}, "vocabulary must be"),
        ({"vocabulary": "ab"}, "vocabulary must be"),
        ({"copies": 0}, "copies must be"),
    ],
)
def test_bad_canaries_are_refused(changes, message):
    arguments = {"count": 30, "length": 5, "vocabulary": 9} | changes
    with pytest.raises(InvalidInput, match=message):
        InsertionCanaries(arguments.pop("count"), **arguments)


def test_bad_losses_are_refused():
    canaries, ledger = canaries_of(30), Ledger.of(Gaussian(1.0))
    with pytest.raises(InvalidInput, match="losses must be one number for each of 30"):
        canaries.audit(np.zeros(29), ledger=ledger, delta=DELTA)
    with pytest.raises(InvalidInput, match="Did the model diverge"):
        canaries.audit(np.full(30, np.nan), ledger=ledger, delta=DELTA)
    with pytest.raises(InvalidInput, match="losses must be"):
        canaries.audit("low", ledger=ledger, delta=DELTA)
    with pytest.raises(InvalidInput, match="ledger must be"):
        canaries.audit(np.zeros(30), ledger=Gaussian(1.0), delta=DELTA)
    with pytest.raises(InvalidInput, match="delta must be"):
        canaries.audit(np.zeros(30), ledger=ledger, delta=2.0)
    with pytest.raises(InvalidInput, match="model must be"):
        canaries.losses(3)
