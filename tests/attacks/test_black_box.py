"""Entropy, label-only and gradient-norm attacks, attribute inference, shadow models, several runs."""

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from tacit.attacks import (
    Entropy,
    GradientNorm,
    LabelOnly,
    LossThreshold,
    ModifiedEntropy,
    Scores,
    advantage,
    overlaps,
)
from tacit.errors import InvalidInput
from tacit_papers.evaluating_dp.attributes import (
    Attribute,
    attributes,
    confusion_posterior,
    loss_posterior,
    mean_advantage,
)
from tacit_papers.evaluating_dp.leakage import ShadowModels, shadow_splits


def noise_data(records, seed, width=4):
    draw = np.random.default_rng(seed)
    return draw.normal(size=(records, width)), draw.integers(0, 2, records)


@pytest.fixture(scope="module")
def overfitted():
    """A scikit-learn tree that knows its training records by heart: labels are coin flips."""
    members, others = noise_data(300, 1), noise_data(300, 2)
    tree = DecisionTreeClassifier(random_state=0).fit(*members)
    return tree.predict_proba, members, others


def test_entropy_by_hand():
    rows = np.array([[0.5, 0.5], [1.0, 0.0], [0.2, 0.8]])
    labels = np.array([0, 0, 0])
    model = lambda x: rows  # noqa: E731
    plain = Entropy().score(model, (np.zeros((3, 1)), labels))
    assert plain == pytest.approx([np.log(0.5), 0.0, 0.2 * np.log(0.2) + 0.8 * np.log(0.8)])
    modified = ModifiedEntropy().score(model, (np.zeros((3, 1)), labels))
    assert modified[0] == pytest.approx(np.log(0.5))
    assert modified[1] == 0.0
    assert modified[2] == pytest.approx(0.8 * np.log(0.2) + 0.8 * np.log(0.2))


def test_a_sure_wrong_answer_is_no_member_for_the_modified_entropy_only():
    rows = np.array([[0.01, 0.99], [0.4, 0.6]])
    examples = (np.zeros((2, 1)), np.array([0, 0]))
    assert Entropy().score(lambda x: rows, examples)[0] > Entropy().score(lambda x: rows, examples)[1]
    modified = ModifiedEntropy().score(lambda x: rows, examples)
    assert modified[0] < modified[1]


@pytest.mark.parametrize("attack", [LossThreshold(), ModifiedEntropy(), LabelOnly(copies=0), LabelOnly(noise=0.1)])
def test_attacks_beat_chance_on_a_model_of_another_library(attack, overfitted):
    predict, members, others = overfitted
    assert advantage(attack(predict, members=members, non_members=others)) > 0.15


def test_the_gap_attack_uses_labels_only(overfitted):
    predict, members, others = overfitted
    hard = lambda x: np.eye(2)[predict(x).argmax(axis=1)]  # noqa: E731
    for attack in (LabelOnly(copies=0), LabelOnly(noise=0.3, copies=3)):
        soft = attack(predict, members=members, non_members=others)
        told = attack(hard, members=members, non_members=others)
        assert np.array_equal(soft.members, told.members)


def test_gradient_norms_come_from_the_caller():
    attack = GradientNorm(lambda examples: np.abs(examples[0][:, 0]))
    scores = attack(lambda x: x, members=(np.array([[0.1, 0, 0, 0]]), np.array([0])), non_members=noise_data(5, 0))
    assert scores.members.tolist() == [-0.1]
    with pytest.raises(InvalidInput, match="records of one shape"):
        attack(lambda x: x, members=noise_data(5, 0), non_members=noise_data(5, 0, width=3))
    with pytest.raises(InvalidInput, match="norms must be"):
        GradientNorm("norms")
    with pytest.raises(InvalidInput, match=">= 0"):
        GradientNorm(lambda examples: -np.ones(len(examples[1]))).score(lambda x: x, noise_data(5, 0))


def by_attribute(members):
    """A model that gives the label of a member it recognises by its first attribute a high probability."""
    known = {row.tobytes() for row in members[0]}

    def model(inputs):
        sure = np.array([0.99 if row.tobytes() in known else 0.4 for row in inputs])
        return np.stack([1 - sure, sure], axis=1)

    return model


def test_attribute_inference_finds_what_the_model_remembers():
    draw = np.random.default_rng(0)
    inputs = np.column_stack([draw.integers(0, 2, 200).astype(float), draw.normal(size=200)])
    labels = np.ones(200, int)
    members, others = (inputs[:100], labels[:100]), (inputs[100:], labels[100:])
    attribute = Attribute.of(inputs, 0)
    assert (attribute.low, attribute.high, attribute.pivot) == (0.0, 1.0, 0.5)
    scores = loss_posterior(by_attribute(members), members=members, non_members=others, attribute=attribute)
    assert scores.members.mean() == 1.0
    assert 0.2 < scores.non_members.mean() < 0.8
    assert advantage(scores) == pytest.approx(mean_advantage([scores]))


def test_attributes_of_many_values_are_cut_at_quantiles_of_the_unique_ones():
    values = np.repeat(np.arange(5.0), [96, 1, 1, 1, 1])[:, None]
    attribute = Attribute.of(values, 0)
    assert (attribute.low, attribute.pivot, attribute.high) == (1.0, 2.0, 3.0)
    assert attribute.truth(values).sum() == 2
    assert set(attribute.guessed(values, 7.0).ravel().tolist()) == {7.0}


def test_eligible_attributes():
    draw = np.random.default_rng(0)
    rare, even = (draw.random(500) < 0.02).astype(float), (draw.random(500) < 0.3).astype(float)
    inputs = np.column_stack([np.ones(500), rare, even, draw.normal(size=500)])
    assert {attribute.column for attribute in attributes(inputs, count=2)} == {2, 3}
    with pytest.raises(InvalidInput, match="at most 2"):
        attributes(inputs, count=3)
    with pytest.raises(InvalidInput, match="feature that varies"):
        Attribute.of(inputs, 0)


def test_the_confusion_posterior_uses_the_prediction():
    """The label is the attribute, the model predicts it: everybody's attribute is known, hence no advantage."""
    draw = np.random.default_rng(0)
    inputs = np.column_stack([draw.integers(0, 2, 200).astype(float), draw.normal(size=200)])
    labels = inputs[:, 0].astype(int)
    model = lambda x: np.stack([1 - x[:, 0], x[:, 0]], axis=1)  # noqa: E731
    scores = confusion_posterior(
        model,
        members=(inputs[:100], labels[:100]),
        non_members=(inputs[100:], labels[100:]),
        attribute=Attribute.of(inputs, 0),
    )
    assert (scores.members.mean(), scores.non_members.mean()) == (1.0, 1.0)


def test_shadow_models_beat_chance_on_an_overfitted_model(overfitted):
    predict, members, others = overfitted
    pool = noise_data(800, 5)
    shadows = []
    for inside, outside in shadow_splits(pool[1], models=2, records=400):
        tree = DecisionTreeClassifier(random_state=0).fit(pool[0][inside], pool[1][inside])
        shadows.append((tree.predict_proba, (pool[0][inside], pool[1][inside]), (pool[0][outside], pool[1][outside])))
    attack = ShadowModels(shadows, epochs=5)
    scores = attack(predict, members=members, non_members=others)
    assert advantage(scores) > 0.3
    assert 0 <= scores.members.min() <= scores.members.max() <= 1


def test_shadow_splits_are_stratified_and_disjoint():
    labels = np.repeat([0, 1], [300, 100])
    for inside, outside in shadow_splits(labels, models=3, records=200):
        assert not set(inside.tolist()) & set(outside.tolist())
        assert labels[inside].mean() == pytest.approx(0.25)
    with pytest.raises(InvalidInput, match="at most half"):
        shadow_splits(labels, records=201)
    with pytest.raises(InvalidInput, match="shadows must be"):
        ShadowModels([])


def test_overlaps_by_hand():
    runs = [
        Scores("run", np.array([1.0, 1.0, 0.0]), np.array([1.0, 0.0]), 0.5),
        Scores("run", np.array([1.0, 0.0, 0.0]), np.array([1.0, 0.0]), 0.5),
    ]
    rows = overlaps(runs)
    assert [(row.runs, row.members, row.non_members) for row in rows] == [(0, 3, 2), (1, 2, 1), (2, 1, 1)]
    assert [row.chance for row in rows] == pytest.approx([1.0, 0.75, 0.25])
    assert rows[1].ppv == pytest.approx((2 / 3) / (2 / 3 + 1 / 2))
    with pytest.raises(InvalidInput, match="same records"):
        overlaps([runs[0], Scores("run", np.ones(2), np.ones(2), 0.5)])


@pytest.mark.parametrize("bad", [{"noise": -1.0}, {"copies": -1}, {"seed": 0.5}])
def test_bad_settings_are_refused(bad):
    with pytest.raises(InvalidInput):
        LabelOnly(**bad)
