"""Spending after outputs: the published tables of filters and menus, slots, and what is claimed without them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.accounting import Filter, Ledger, Odometer, Slots, accountant
from tacit.accounting.adaptivity import covers
from tacit.errors import BudgetExceeded, InvalidInput, Refused
from tacit.mechanisms import Approximate, Compose, Gaussian, Laplace, Mechanism, Menu
from tacit.standing import Standing
from tacit.tradeoff import Epsilon

DELTA = 1e-5
FIRST = Gaussian(1.0).poisson(0.01) * 1000
# Each completes (3, 1e-5) after FIRST exactly (budgets.md 1.3).
CONTINUATIONS = (Gaussian(1.76123), Gaussian(0.97569).poisson(0.2), Gaussian(0.43410).poisson(0.001) * 20)
# Rate, noise, steps (budgets.md 1.5).
FIVE = [(0.01, 1.0, 1000), (0.02, 1.5, 500), (0.005, 0.8, 2000), (0.1, 4.0, 100), (1.0, 20.0, 50)]


def _run(rate: float, noise: float, steps: int) -> Mechanism:
    return (Gaussian(noise).poisson(rate) if rate < 1 else Gaussian(noise)) * steps


def _plan() -> Mechanism:
    return Compose.of(*((_run(*each), 1) for each in FIVE))


@pytest.mark.parametrize(
    ("options", "epsilon", "delta"),
    [((0,), 3.0, 1.0e-5), ((0, 1), 3.077, 1.43e-5), pytest.param((0, 1, 2), 3.190, 1.83e-5, marks=pytest.mark.slow)],
)
def test_one_choice_after_the_first_run_costs_what_the_page_says(options, epsilon, delta) -> None:
    menu = Menu.of([FIRST], [CONTINUATIONS[each] for each in options])
    curve = accountant("pld")(menu)
    found = curve.epsilon(DELTA)
    assert found == pytest.approx(epsilon, abs=0.002)
    assert found - 1e-3 <= found.lower <= found
    assert curve.delta(3.0) == pytest.approx(delta, rel=0.005)
    ledger = Ledger.of(menu)
    assert ledger.scope == "menu"
    assert Ledger.from_spec(ledger.spec()).mechanism == ledger.mechanism


@pytest.mark.slow
@settings(max_examples=5, deadline=None)
@given(st.lists(st.floats(1.0, 6.0), min_size=2, max_size=3), st.floats(1.0, 6.0))
def test_a_menu_costs_at_least_every_fixed_path_and_as_much_where_there_is_no_choice(noises, last) -> None:
    pld = accountant("pld")
    paths = [pld(Gaussian(noise) + Gaussian(last)).epsilon(DELTA) for noise in noises]
    menu = pld(Menu.of([Gaussian(noise) for noise in noises], [Gaussian(last)])).epsilon(DELTA)
    assert menu >= max(paths) * (1 - 1e-9)
    single = pld(Menu.of([Gaussian(noises[0])], [Gaussian(last)])).epsilon(DELTA)
    assert paths[0] * (1 - 1e-9) <= single <= paths[0] * 1.001 + 1e-6


def test_five_mixed_runs_cost_3_624_fixed_4_009_by_the_renyi_filter_4_588_by_the_odometer() -> None:
    assert accountant("pld")(_plan()).epsilon(DELTA) == pytest.approx(3.6241, abs=1e-4)
    assert accountant("rdp")(_plan()).epsilon(DELTA) == pytest.approx(4.009, abs=1e-3)
    spent = Filter("renyi", Epsilon(4.0095, DELTA), plan=_plan())
    for each in FIVE:
        spent.charge(_run(*each))
    assert not spent.admits(_run(*FIVE[-1]))
    assert accountant("rdp")(spent.mechanism).epsilon(DELTA) <= 4.0095
    odometer = Odometer(5.6)
    for each in FIVE:
        odometer.charge(_run(*each))
    assert odometer.bound(DELTA).bound == pytest.approx(4.588, abs=1e-3)
    assert odometer.bound(DELTA).scope == "odometer"


@pytest.mark.parametrize(
    ("kind", "query", "budget"),
    [
        ("renyi", Gaussian(5000.0), Epsilon(2.0, DELTA)),
        ("gaussian", Gaussian(5000.0), Epsilon(2.0, DELTA)),
        ("zcdp", Gaussian(5000.0), Epsilon(2.0, DELTA)),
        ("pure", Laplace(1e6), Epsilon(2.0, 0.0)),
    ],
)
def test_a_filter_counts_many_queries_exactly(kind: str, query: Mechanism, budget: Epsilon) -> None:
    spent = Filter(kind, budget, plan=query * 200_000 if kind == "renyi" else None)
    once = Filter(kind, budget, plan=query * 200_000 if kind == "renyi" else None)
    once.charge(query, 100_000)
    for _ in range(100_000):
        spent.charge(query)
    assert spent.spent.tolist() == once.spent.tolist()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([3.0, 8.0, 20.0, 60.0]), st.integers(1, 30)), max_size=40))
def test_no_order_of_charges_exceeds_the_budget(charges) -> None:
    budget = Epsilon(1.5, DELTA)
    for kind in ("renyi", "gaussian", "zcdp"):
        spent = Filter(kind, budget, plan=Gaussian(20.0) * 20 if kind == "renyi" else None)
        ran: list[tuple[Mechanism, int]] = []
        for noise, steps in charges:
            if spent.admits(Gaussian(noise), steps):
                spent.charge(Gaussian(noise), steps)
                ran.append((Gaussian(noise), steps))
            else:
                with pytest.raises(BudgetExceeded):
                    spent.charge(Gaussian(noise), steps)
        if ran:
            assert accountant("pld")(Compose.of(*ran)).epsilon(DELTA) <= 1.5


def test_filters_refuse_steps_whose_cost_their_kind_cannot_tell() -> None:
    with pytest.raises(Refused):
        Filter("gaussian", Epsilon(1.0, DELTA)).admits(Gaussian(1.0).poisson(0.1))
    with pytest.raises(Refused):
        Filter("pure", Epsilon(1.0, 0.0)).charge(Gaussian(1.0))
    zcdp = Filter("zcdp", Epsilon(1.0, DELTA))
    zcdp.charge(Approximate(0.1, 1e-6), 3)
    assert zcdp.spent[1] == pytest.approx(3e-6)
    assert not zcdp.admits(Approximate(0.1, 1e-6), 3)
    for wrong in (("renyi", Epsilon(1.0, DELTA)), ("pure", Epsilon(1.0, DELTA)), ("natural", Epsilon(1.0, DELTA))):
        with pytest.raises(InvalidInput):
            Filter(*wrong)
    with pytest.raises(InvalidInput):
        Odometer(1.0)


def test_the_odometer_is_crossed_no_more_often_than_delta() -> None:
    # Gaussian steps of a noise that follows the loss so far; 20,000 paths, delta .05, alarm below 1e-9.
    generator, order, delta = np.random.default_rng(3), 4.0, 0.05
    loss, spent, crossed = np.zeros(20_000), np.zeros(20_000), np.zeros(20_000, bool)
    for _ in range(60):
        mu = np.where(loss > 0, 0.4, 0.1)
        loss += mu**2 / 2 + mu * generator.standard_normal(len(loss))
        spent += order * mu**2 / 2
        crossed |= loss > spent + np.log(1 / delta) / (order - 1)
    assert crossed.mean() <= delta + 6 * np.sqrt(delta / len(loss))


def test_a_ledger_under_a_filter_costs_its_budget_whatever_runs_and_refuses_more() -> None:
    ledger, spent = Ledger(), Filter("renyi", Epsilon(1.0, DELTA), plan=Gaussian(20.0) * 10)
    ledger.reserve(spent)
    before = ledger.hash
    ledger.add(Gaussian(20.0), 5)
    ledger.add(Gaussian(30.0).poisson(0.5), 3)
    assert ledger.hash == before
    assert ledger.scope == "filter(renyi)"
    assert accountant("rdp")(ledger).epsilon(DELTA) <= 1.0
    with pytest.raises(BudgetExceeded):
        ledger.add(Gaussian(1.0))
    assert Ledger.from_spec(ledger.spec()).scope == "filter(renyi)"


def test_slots_cover_what_they_dominate_and_nothing_else() -> None:
    slot = Gaussian(1.0).poisson(0.1)
    assert covers(slot, slot)
    assert covers(slot, Gaussian(1.2).poisson(0.05))
    assert not covers(slot, Gaussian(0.9).poisson(0.05))
    assert not covers(slot, Gaussian(1.2).poisson(0.2))
    assert not covers(Laplace(1.0), Laplace(2.0))
    ledger, slots = Ledger(), Slots(slot * 3)
    ledger.reserve(slots)
    ledger.add(Gaussian(1.5).poisson(0.02), 2)
    assert (ledger.steps, slots.free, ledger.standing) == (3, 1, Standing.PROVEN)
    ledger.add(slot, 2)  # One slot for two steps: both are recorded at their own cost.
    assert ledger.steps == 5


@pytest.mark.parametrize(("scope", "standing"), [(None, Standing.CLAIMED), ("fixed", Standing.PROVEN)])
def test_spending_what_an_earlier_run_left_is_claimed_unless_declared_fixed(scope, standing) -> None:
    from tacit.noise import SecureStream
    from tacit.training import Plan
    from tacit.training.private_run import PrivateRun

    ledger = Ledger(scope=scope)
    plan = Plan(records=100, sample_rate=0.1, clip=1.0, noise_multiplier=2.0, steps=4)
    first = PrivateRun(plan, stream=SecureStream(), ledger=ledger, budget=Epsilon(3.0, 1e-3), accountant="rdp")
    first.charge(first.issue())
    assert Standing.CLAIMED is not ledger.standing
    PrivateRun(plan, ledger=ledger, budget=Epsilon(3.0, 1e-3), accountant="rdp")
    found = ledger.standing
    assert (found is Standing.CLAIMED) == (standing is Standing.CLAIMED)
    if scope is None:
        assert any(each.startswith("adaptive") for each in ledger.unsafe)


def test_a_run_beside_which_another_one_writes_is_claimed() -> None:
    from tacit.training import Plan
    from tacit.training.private_run import PrivateRun

    ledger = Ledger()
    plan = Plan(records=100, sample_rate=0.1, clip=1.0, noise_multiplier=2.0, steps=4)
    run = PrivateRun(plan, ledger=ledger, budget=Epsilon(3.0, 1e-3), accountant="rdp")
    ledger.add(Gaussian(30.0))
    run.issue()
    assert ledger.standing is Standing.CLAIMED


def _later_runs():
    """Name -> a second run on `ledger`, after the first one has released something."""
    from tacit.accounting import one_shot_facts
    from tacit.training import Plan
    from tacit.training.private_run import PrivateRun

    plan = Plan(records=100, sample_rate=0.1, clip=1.0, noise_multiplier=2.0, steps=2)

    def planned_before(ledger: Ledger) -> PrivateRun:
        return PrivateRun(plan, ledger=ledger)

    def again(ledger: Ledger, _: PrivateRun) -> None:
        PrivateRun(plan, ledger=ledger)

    def by_hand(ledger: Ledger, _: PrivateRun) -> None:
        ledger.begin(*one_shot_facts(unit="record", secure=True, exact=True))
        ledger.add(Gaussian(3.0))

    def absorbed(ledger: Ledger, _: PrivateRun) -> None:
        other = Ledger()
        by_hand(other, _)
        ledger.absorb(other)

    def other_noise(ledger: Ledger, waiting: PrivateRun) -> None:
        waiting.change_noise(5.0)

    return planned_before, {"again": again, "by hand": by_hand, "absorbed": absorbed, "other noise": other_noise}


@pytest.mark.parametrize("name", ["again", "by hand", "absorbed", "other noise"])
@pytest.mark.parametrize("cover", [None, "fixed", "slots", "filter", "planned"])
def test_a_run_whose_settings_may_follow_outputs_is_conditional_unless_a_scope_covers_it(name, cover) -> None:
    from contextlib import nullcontext

    planned_before, later = _later_runs()
    ledger = Ledger(scope="fixed" if cover == "fixed" else None)
    step = Gaussian(2.0).poisson(0.1)
    if cover == "slots":
        ledger.reserve(Slots(step * 8 + Gaussian(3.0)))
    if cover == "filter":
        ledger.reserve(Filter("renyi", Epsilon(9.0, DELTA), plan=step * 8 + Gaussian(3.0)))
    with ledger.planned() if cover == "planned" else nullcontext():
        waiting, first = planned_before(ledger), planned_before(ledger)
        first.charge(first.issue())
        held = {fact.id for fact in ledger.facts.assumed}
        later[name](ledger, waiting)
    found = {fact.id for fact in ledger.facts.assumed} - held
    covered = cover in ("fixed", "slots", "filter") or (cover == "planned" and name != "other noise")
    assert found == (set() if covered else {"settings"})
    assert "settings" not in held
    if not covered:
        assert ledger.standing is not Standing.PROVEN
        assert Ledger.from_spec(ledger.spec()).standing is not Standing.PROVEN


def test_steps_outside_of_reserved_slots_are_claimed() -> None:
    ledger = Ledger()
    ledger.reserve(Slots(Gaussian(2.0)))
    ledger.add(Gaussian(2.0))
    assert ledger.standing is Standing.PROVEN
    ledger.add(Gaussian(2.0))
    assert (ledger.steps, ledger.standing) == (2, Standing.CLAIMED)


def test_a_copy_for_planning_uses_up_no_room_of_slots_or_a_filter() -> None:
    for cover in (Slots(Gaussian(3.0) * 3), Filter("gaussian", Epsilon(3.0, DELTA))):
        ledger = Ledger()
        ledger.reserve(cover)
        for _ in range(3):
            ledger.copy().add(Gaussian(3.0), 3)
        ledger.add(Gaussian(3.0), 3)
        assert ledger.steps == ledger.copy().steps


def test_a_filter_of_another_relation_is_refused() -> None:
    with pytest.raises(InvalidInput, match="relation"):
        Ledger(relation="replace_one").reserve(Filter("gaussian", Epsilon(1.0, DELTA)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["renyi", "gaussian", "zcdp", "pure"])
def test_a_stream_of_a_million_queries_is_answered_in_linear_time(kind: str) -> None:
    from benchmarks.filters import charged

    ledger_free = charged(kind, 1_000_000)
    assert ledger_free.spent.max() <= ledger_free.limit[np.isfinite(ledger_free.limit)].max()
