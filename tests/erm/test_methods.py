"""What holds for every method: it meets its target, writes the ledger first, and tends to the non-private optimum."""

import math

import numpy as np
import pytest

from tacit.accounting import Ledger, accountant
from tacit.erm import GradientDescent
from tacit.erm.losses import HuberHinge, Logistic, Softmax, Squared
from tacit.erm.objective import method_of
from tacit.erm.release import Terms
from tacit.erm.solver import minimise
from tacit.errors import InvalidInput
from tacit.noise import SecureStream, SeededStream
from tacit.relation import Relation
from tacit.standing import Standing
from tacit.tradeoff import Advantage, Epsilon, Mu
from tacit.tradeoff.gaussian import gaussian_epsilon, gaussian_mu
from tacit_papers.input_perturbation.comparison import METHODS
from tacit_papers.input_perturbation.counter_examples import PaperInput, counter_examples, published_std, true_mu
from tacit_papers.input_perturbation.descent_methods import GaussianOutput, NoisySGD, OutputPerturbation, Svrg, constant
from tests.erm.cases import mean_gap, problem, terms

ALL = [kind() for family in METHODS.values() for kind in family.values()]
PROVEN = [method for method in ALL if method.standing is Standing.PROVEN]
CONVEX = [method for method in ALL if method.family in ("objective", "output") and method.name != "zhang"]


def run(method, case, epsilon=1.0, delta=1e-5, relation="add_remove", stream=None):
    chosen = 0.0 if method.pure else delta
    given = Terms(Epsilon(epsilon, chosen), Ledger(relation=relation), stream or SecureStream())
    return method.release(case, given), given, chosen


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("epsilon", [0.1, 2.0])
@pytest.mark.parametrize("method", PROVEN, ids=lambda m: m.name)
def test_the_guarantee_meets_the_target_and_the_ledger_agrees(method, epsilon, relation):
    result, given, delta = run(method, problem(Logistic(), records=60), epsilon, relation=relation)
    assert result.guarantee.standing is Standing.PROVEN
    assert float(result.guarantee.epsilon(delta)) <= epsilon * (1 + 1e-6)
    assert result.guarantee.relation is result.relation
    assert given.ledger.mechanism == Ledger.of(result.mechanism).mechanism
    assert result.theta.shape == (3, 1)
    # Nothing is given away either: but for methods that know one (epsilon, delta) only, the target is met exactly.
    if method.name not in ("amp", "kifer", "fukuchi", "shuffled"):
        assert float(result.guarantee.epsilon(delta)) == pytest.approx(epsilon, rel=1e-3)


@pytest.mark.slow_cases
@pytest.mark.parametrize("method", CONVEX, ids=lambda m: m.name)
@pytest.mark.parametrize("loss", [Logistic(), Logistic(0.5), HuberHinge(0.5)], ids=str)
def test_perturbations_of_convex_problems_tend_to_the_optimum(method, loss):
    case = problem(loss, records=60)
    best = minimise(case)
    gaps = [
        mean_gap(case, run(method, case, epsilon, stream=SeededStream(1))[0].theta, best) for epsilon in (1.0, 1e4, 1e7)
    ]
    assert gaps[2] < 1e-8
    assert gaps[2] <= gaps[1] <= gaps[0]


@pytest.mark.slow_cases
@pytest.mark.parametrize(
    "method",
    [
        GradientDescent(steps=400, clip_norm=None),
        NoisySGD(steps=1500, batch_size=60),
        Svrg(rounds=100),
        METHODS["output"]["zhang"](steps=400),
    ],
    ids=lambda m: m.name,
)
def test_iterations_tend_to_the_optimum(method):
    case = problem(Logistic(), records=60)
    gap = mean_gap(case, run(method, case, 1e6, stream=SeededStream(1))[0].theta, minimise(case))
    assert abs(gap) < 1e-4


@pytest.mark.parametrize("name", ["aggregate", "local"])
def test_statistics_tend_to_least_squares(name):
    case = problem(Squared(), records=60)
    result, _, _ = run(METHODS["input"][name](), case, 1e7, stream=SeededStream(1))
    assert abs(mean_gap(case, result.theta, minimise(case))) < 1e-5


def test_the_papers_method_tends_to_the_optimum():
    case = problem(Logistic(), records=60)
    result, _, _ = run(PaperInput(steps=400), case, 1e7, stream=SeededStream(1))
    assert abs(mean_gap(case, result.theta, minimise(case))) < 1e-5


@pytest.mark.parametrize("name", ["exact", "pure"])
def test_softmax_is_covered(name):
    case = problem(Softmax(4), records=60)
    result, _, delta = run(METHODS["objective"][name](), case, 3.0, relation="replace_one")
    assert result.theta.shape == (3, 4)
    assert float(result.guarantee.epsilon(delta)) <= 3.0


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("epsilon", [0.1, 0.9, 3.0])
@pytest.mark.parametrize(("name", "loss"), [("kifer", Logistic()), ("amp", Logistic()), ("amp", Softmax(5))])
def test_published_calibrations_record_their_exact_cost(name, loss, epsilon, relation):
    """The corners of three or more classes share delta, also where the published ratio sets the noise."""
    result, _, delta = run(METHODS["objective"][name](), problem(loss, records=60), epsilon, relation=relation)
    spent = float(result.guarantee.epsilon(delta))
    assert 0.3 * epsilon < spent < 0.95 * epsilon
    objective = result.mechanism.steps[0][0]
    assert objective.corners == loss.corners
    assert objective.noise_multiplier == pytest.approx(result.facts["noise_std"] / loss.lipschitz)


def test_noise_for_a_replaced_record_is_not_drawn_for_a_removed_one():
    stds = [
        run(METHODS["objective"]["amp"](), problem(Logistic()), relation=relation)[0].facts["noise_std"]
        for relation in ("add_remove", "replace_one")
    ]
    assert stds[1] == pytest.approx(2 * stds[0])


@pytest.mark.parametrize("name", ["chaudhuri", "kifer", "kifer_pure"])
def test_rank_one_methods_refuse_softmax(name):
    with pytest.raises(InvalidInput, match="classes must be two"):
        run(METHODS["objective"][name](), problem(Softmax(3)))


@pytest.mark.parametrize("method", [m for m in PROVEN if m.family in ("objective", "output")], ids=lambda m: m.name)
def test_unbounded_gradients_are_refused(method):
    with pytest.raises(InvalidInput, match="loss must have bounded gradients"):
        run(method, problem(Squared()))


@pytest.mark.parametrize("target", [Advantage(0.05), Mu(0.3)])
@pytest.mark.parametrize(
    "method", [m for m in PROVEN if m.name in ("exact", "gaussian", "descent", "aggregate", "pure")]
)
def test_any_target(method, target):
    given = Terms(target, Ledger(), SecureStream())
    result = method.release(problem(Logistic(), records=60), given)
    assert target.met(result.guarantee)


def test_formulas_of_epsilon_and_delta_refuse_other_targets():
    with pytest.raises(InvalidInput, match="target must be Epsilon"):
        METHODS["objective"]["kifer"]().release(problem(Logistic()), terms(target=Mu(0.3)))


def test_the_papers_method_is_claimed_with_its_floor_beside_it():
    case = problem(Logistic(), records=5000, width=2, strength=5.0)
    result, given, _ = run(PaperInput(), case, 0.1, 1e-6, relation="replace_one")
    assert result.guarantee.standing is Standing.CLAIMED
    assert given.ledger.standing is Standing.CLAIMED
    assert float(result.guarantee.epsilon(1e-6)) == pytest.approx(0.1)
    floor = result.floor
    assert floor.standing is Standing.PROVEN
    assert float(floor.mu()) == pytest.approx(2 / (math.sqrt(5000) * result.facts["noise_std"]))
    assert result.local_guarantee.standing is Standing.CLAIMED
    assert any("labels are not perturbed" in sentence for sentence in given.ledger.assumptions)
    with pytest.raises(InvalidInput, match="strength must be in"):
        run(PaperInput(), case.with_strength(0.0))


def test_fresh_noise_draws_anew_in_every_step():
    case = problem(Logistic(), records=30, strength=3.0)
    once, fresh, again = (
        run(PaperInput(steps=5, fresh_noise=fresh), case, stream=SeededStream(2))[0].theta
        for fresh in (False, True, True)
    )
    np.testing.assert_array_equal(fresh, again)
    assert not np.allclose(once, fresh)


def test_seeded_noise_is_never_proven():
    result, given, _ = run(METHODS["objective"]["exact"](), problem(Logistic()), stream=SeededStream(0))
    assert result.guarantee.standing is Standing.CLAIMED
    assert given.ledger.unsafe == ["unsafe_seeded_stream"]


def test_exact_exchange_between_local_and_central():
    result, _, _ = run(METHODS["input"]["aggregate"](), problem(Logistic(), records=400), relation="replace_one")
    assert result.local_mu / float(result.guarantee.mu()) == pytest.approx(20.0, rel=1e-6)
    local, given, _ = run(METHODS["input"]["local"](), problem(Logistic(), records=400))
    assert local.relation is Relation.REPLACE_ONE
    assert float(local.guarantee.epsilon(1e-5)) == pytest.approx(1.0, rel=1e-4)
    assert float(accountant("pld")(given.ledger).epsilon(1e-5)) < 1.0  # add/remove costs half the mu


def test_the_exact_constant_of_noisy_gradient_descent():
    assert constant(0.5, 1e-6) == pytest.approx(4 * 0.25 / (gaussian_mu(0.5, 1e-6) ** 2 * math.log(1e6)))


def test_names_and_defaults():
    assert method_of("objective", Epsilon(1, 1e-5)).name == "exact"
    assert method_of("objective", Epsilon(1, 0.0)).name == "pure"
    assert method_of(OutputPerturbation(), Epsilon(1, 0.0)).name == "chaudhuri"
    with pytest.raises(InvalidInput, match="Did you mean 'objective'"):
        method_of("objectiv", Epsilon(1, 1e-5))
    with pytest.raises(InvalidInput, match="delta must be > 0 for method 'output'"):
        method_of(GaussianOutput(), Epsilon(1, 0.0))
    with pytest.raises(InvalidInput, match="delta must be > 0 for method 'gradient'"):
        method_of("gradient", Epsilon(1, 0.0))


@pytest.mark.parametrize(
    ("row", "epsilon", "needed"),
    [
        ((150, 0.25), 0.44, 2.9),
        ((984, 0.1), 0.46, 16),
        ((45222, 0.1), 3.81, 759),
        ((70000, 0.1), 4.91, 1220),
        ((70000, 0.25), 14.8, 1400),
    ],
)
def test_the_counter_example_table(row, epsilon, needed):
    (found,) = counter_examples([row])
    assert found.epsilon == pytest.approx(epsilon, rel=0.02)
    assert found.constant == pytest.approx(needed, rel=0.02)
    # Exact: the mean of n perturbed records, and nothing else, is released.
    assert found.epsilon == pytest.approx(gaussian_epsilon(found.delta, 2 / math.sqrt(row[0]) / found.noise_std))


@pytest.mark.parametrize(("steps", "epsilon"), [(50, 3.81), (500, 1.06), (3000, 0.40), (45222, 0.091)])
def test_the_counter_example_hangs_on_the_steps_and_ends_where_they_are_as_many_as_the_records(steps, epsilon):
    (found,) = counter_examples([(45222, 0.1)], steps=steps)
    assert found.epsilon == pytest.approx(epsilon, rel=0.01)
    assert found.constant * steps / 45222 == pytest.approx(0.839, rel=1e-3)  # the c needed grows like n / T


def test_the_constant_that_would_repair_the_claim():
    (row,) = counter_examples([(984, 0.1)])
    (repaired,) = counter_examples([(984, 0.1)], constant=row.constant)
    assert repaired.epsilon == pytest.approx(0.1, rel=1e-6)
    assert repaired.constant == pytest.approx(row.constant)


def test_gradient_descent_on_the_counter_example_releases_the_perturbed_mean():
    """Iterates on ||theta - x||^2 / 2 with one unit column are multiples of the mean, so mu does not depend on T."""
    sigma = published_std(lipschitz=2, steps=50, records=100, convexity=1, epsilon=0.5, delta=1e-5)
    released = []
    for shift in (0.0, 2.0):
        mean, theta = (np.linspace(-0.5, 0.5, 100).sum() + shift) / 100, 0.0
        for _ in range(7):
            theta -= 0.3 * (theta - mean)
        released.append(theta)
    deviation = (1 - 0.7**7) * sigma / 10
    assert (released[1] - released[0]) / deviation == pytest.approx(true_mu(sigma, 100))
