import itertools

import numpy as np
import pytest
from scipy.optimize import linprog

from tacit.erm.losses import HuberHinge, Logistic, Softmax, Squared
from tacit.errors import InvalidInput
from tests.erm.cases import LOSSES, targets_of

RNG = np.random.default_rng(0)


def _scores(loss, records=400):
    return RNG.normal(size=(records, loss.outputs)) * RNG.choice([0.1, 1.0, 10.0], size=(records, 1))


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_slopes_and_curvatures_are_derivatives(loss):
    scores = _scores(loss)
    targets = targets_of(loss, RNG, len(scores))
    for axis in range(loss.outputs):
        shift = np.zeros_like(scores)
        shift[:, axis] = 1e-5
        rise = (loss.values(scores + shift, targets) - loss.values(scores - shift, targets)) / 2e-5
        np.testing.assert_allclose(rise, loss.slopes(scores, targets)[:, axis], atol=1e-5)
        bend = (loss.slopes(scores + shift, targets) - loss.slopes(scores - shift, targets)) / 2e-5
        wrong = np.abs(bend - loss.curvatures(scores, targets)[:, :, axis]).max(axis=1) > 1e-4
        assert wrong.mean() < 0.01  # a kink of the slope falls inside the difference of a few records


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_no_record_exceeds_the_constants(loss):
    scores = _scores(loss, 5000)
    targets = targets_of(loss, RNG, len(scores))
    assert np.linalg.norm(loss.slopes(scores, targets), axis=1).max() <= loss.lipschitz + 1e-12
    eigenvalues = np.linalg.eigvalsh(loss.curvatures(scores, targets))
    assert eigenvalues.min() >= -1e-12
    assert eigenvalues.max() <= loss.smoothness + 1e-12


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_the_constants_are_reached(loss):
    ends = np.array(list(itertools.product([-60.0, 0.0, 60.0], repeat=loss.outputs)))
    targets = targets_of(loss, RNG, len(ends))
    assert np.linalg.norm(loss.slopes(ends, targets), axis=1).max() == pytest.approx(loss.lipschitz)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_slopes_lie_in_the_hull_of_the_corners(loss):
    """Corners of a record: the slopes at the far ends of score space; their number is `corners`."""
    ends = np.array(list(itertools.product([-300.0, 0.0, 300.0], repeat=loss.outputs)))
    for target in {float(value) for value in targets_of(loss, RNG, 20)}:
        label = int(target) if isinstance(loss, Softmax) else target
        far = loss.slopes(ends, np.full(len(ends), label))
        corners = np.unique(np.round(far[np.linalg.norm(far, axis=1) > loss.lipschitz - 1e-9], 9), axis=0)
        assert 1 <= len(corners) <= loss.corners
        hull = np.vstack([np.zeros(loss.outputs), corners])
        for slope in loss.slopes(_scores(loss, 30), np.full(30, label)):
            constraints = np.vstack([hull.T, np.ones(len(hull))])
            inside = linprog(np.zeros(len(hull)), A_eq=constraints, b_eq=np.append(slope, 1.0), bounds=(0, 1))
            assert inside.success


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("strength", [0.05, 1.0, 30.0])
def test_no_record_adds_more_volume_than_stated(loss, strength):
    """log det(H + h + s I) - log det(H + s I) over random H >= 0, the empty one among them, and unit rows."""
    width, k, worst = 3, loss.outputs, 0.0
    for trial in range(200):
        root = RNG.normal(size=(width * k, width * k)) * (trial % 4)
        base = root @ root.T + strength * np.eye(width * k)
        row = RNG.normal(size=width)
        row /= np.linalg.norm(row)
        scores = np.zeros((1, k)) if trial < 8 else RNG.normal(size=(1, k))
        target = targets_of(loss, RNG, 1)
        added = np.kron(np.outer(row, row), loss.curvatures(scores, target)[0])
        grown = np.linalg.slogdet(base + added)[1] - np.linalg.slogdet(base)[1]
        worst = max(worst, grown)
        assert grown <= loss.log_volume(strength) + 1e-9
    if isinstance(loss, Softmax) or loss == Logistic():
        assert worst == pytest.approx(loss.log_volume(strength))


def test_huber_and_clipped_losses_are_their_plain_forms_inside():
    scores, ones = np.linspace(-0.5, 4, 30)[:, None], np.ones(30)
    np.testing.assert_allclose(Squared(10.0).values(scores, ones), (scores[:, 0] - 1) ** 2 / 2)
    np.testing.assert_allclose(Logistic(0.7).values(scores, ones), np.log1p(np.exp(-scores[:, 0])))
    outside = np.array([[0.2], [2.0]])
    np.testing.assert_allclose(HuberHinge(0.5).values(outside, np.ones(2)), [0.8, 0.0])
    two = Softmax(2)
    np.testing.assert_allclose(
        two.values(np.hstack([np.zeros((30, 1)), scores]), np.ones(30, int)), Logistic().values(scores, ones)
    )


@pytest.mark.parametrize(
    "build", [lambda: Logistic(0.0), lambda: Logistic(1.5), lambda: HuberHinge(0.0), lambda: HuberHinge(float("nan"))]
)
def test_bad_settings(build):
    with pytest.raises(InvalidInput, match="must be in"):
        build()
