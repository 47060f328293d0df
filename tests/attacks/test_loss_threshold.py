import numpy as np
import pytest

from tacit.attacks import ATTACKS, LossThreshold, Scores, advantage, attack_named, error_rates, record_losses
from tacit.errors import InvalidInput


def memoriser(known):
    """A model of two classes that is sure of class 1 on inputs it knows, and undecided elsewhere."""
    known = set(known)

    def model(inputs):
        sure = np.array([float(x[0]) in known for x in inputs])
        return np.stack([np.where(sure, 0.0, 0.5), np.where(sure, 1.0, 0.5)], axis=1)

    return model


def examples(values):
    return np.array(values, dtype=float)[:, None], np.ones(len(values), dtype=int)


def test_losses_are_clipped_logarithms_of_the_label_probability():
    losses = record_losses(lambda x: np.array([[0.25, 0.75], [1.0, 0.0]]), (np.zeros((2, 1)), np.array([0, 1])))
    assert losses == pytest.approx([-np.log(0.25), -np.log(1e-6)])


def test_every_member_of_a_memorising_model_is_found():
    model = memoriser([1, 2, 3])
    scores = attack_named("loss_threshold")(model, members=examples([1, 2, 3]), non_members=examples([4, 5]))
    assert error_rates(scores) == (0.0, 1.0)


def test_a_model_that_ignores_its_input_leaks_nothing():
    scores = LossThreshold()(
        lambda x: np.full((len(x), 4), 0.25), members=examples([1, 2]), non_members=examples([4, 5])
    )
    assert advantage(scores) == 0.0


def test_a_loss_equal_to_the_training_loss_is_flagged():
    scores = LossThreshold().from_losses(np.array([1.0, 3.0]), np.array([2.0, 2.5]))
    assert error_rates(scores) == (0.5, 0.5)


def test_a_reported_training_loss_sets_the_threshold():
    scores = LossThreshold(training_loss=2.6).from_losses(np.array([1.0, 3.0]), np.array([2.0, 2.5]))
    assert error_rates(scores) == (1.0, 0.5)


def test_scores_never_print_their_values():
    scores = LossThreshold().from_losses(np.array([0.123456789, 1.0]), np.array([2.0]))
    assert "0.123456" not in repr(scores)
    assert "0.5617" not in repr(scores)


@pytest.mark.parametrize("name", ["loss_treshold", "", None, 3])
def test_unknown_attacks_get_the_list(name):
    with pytest.raises(InvalidInput, match=r"attack must be one of .*loss_threshold") as caught:
        attack_named(name)
    assert ("Did you mean" in str(caught.value)) == (name == "loss_treshold")
    assert list(ATTACKS) == [attack_named(known).name for known in ATTACKS]


@pytest.mark.parametrize(
    ("members", "non_members", "said"),
    [
        ([], [1.0], "members must be a non-empty vector"),
        ([1.0], [], "non-member losses must be a non-empty vector"),
        ([1.0, np.nan], [1.0], "1 NaN of 2"),
        ([[1.0]], [1.0], r"shape \(1, 1\)"),
        (["a"], [1.0], "got 'list'"),
    ],
)
def test_bad_losses_are_refused(members, non_members, said):
    with pytest.raises(InvalidInput, match=said.replace("members must", "member losses must")):
        LossThreshold().from_losses(members, non_members)


@pytest.mark.parametrize(("members", "non_members"), [([], [1.0]), ([1.0], []), ([np.nan], [1.0]), ([1.0], [np.nan])])
def test_bad_scores_are_refused(members, non_members):
    with pytest.raises(InvalidInput, match="scores of"):
        Scores("any", np.array(members), np.array(non_members), 0.0)
    with pytest.raises(InvalidInput, match="threshold"):
        Scores("any", np.array([1.0]), np.array([1.0]), np.nan)


@pytest.mark.parametrize("loss", [-1.0, np.nan, np.inf, "1"])
def test_bad_training_losses_are_refused(loss):
    with pytest.raises(InvalidInput, match="training_loss"):
        LossThreshold(training_loss=loss)


@pytest.mark.parametrize(
    ("output", "labels", "said"),
    [
        ([[2.0, -1.0]], [0], "class probabilities"),
        ([[0.2, 0.2]], [0], "softmax"),
        ([[np.nan, 1.0]], [0], "class probabilities"),
        ([0.5, 0.5], [0, 1], r"shape \(n, classes\)"),
        ([[0.5, 0.5]], [0, 1], "one row for each label"),
        ([[0.5, 0.5]], [2], r"integers in \[0, 2\)"),
        ([[0.5, 0.5]], [-1], r"integers in \[0, 2\)"),
        ([[0.5, 0.5]], [0.0], r"integers in \[0, 2\)"),
    ],
)
def test_bad_model_outputs_and_labels_are_refused(output, labels, said):
    with pytest.raises(InvalidInput, match=said):
        record_losses(lambda x: np.array(output), (np.zeros((len(labels), 1)), np.array(labels)))
