"""Facts behind a guarantee: how each is known, and that a ledger never forgets a weaker way of knowing."""

import copy
import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tacit.accounting import FACTS, Fact, Facts, How, Ledger, accountant
from tacit.accounting.facts import STANDINGS
from tacit.errors import InvalidInput, NotABound
from tacit.mechanisms import Gaussian, Laplace
from tacit.standing import Standing


def _run(*facts: Fact) -> Ledger:
    ledger = Ledger()
    ledger.begin(*(facts or [Fact(name, How.ENFORCED) for name in FACTS]))
    ledger.add(Gaussian(1.0).poisson(0.01), 100, "training")
    return ledger


class TestStanding:
    def test_conditional_is_directly_below_proven(self):
        assert list(Standing)[:3] == ["proven", "conditional", "asymptotic"]

    def test_an_assumed_fact_makes_every_proven_number_conditional(self):
        ledger = _run()
        assert accountant("pld")(ledger).standing is Standing.PROVEN
        ledger.facts.missing("numbers_read", "train.py:31 reads a number from private values")
        found = accountant("pld")(ledger)
        assert found.standing is ledger.standing is Standing.CONDITIONAL
        assert accountant("clt")(ledger).standing is Standing.ASYMPTOTIC
        answer = found.epsilon(1e-5)
        for read in (lambda: answer.upper, lambda: answer.lower, lambda: found.upper, lambda: found.lower):
            with pytest.raises(NotABound, match="holds only if its assumed facts do"):
                read()
        assert answer.interval == (None, None)

    def test_marks_weigh_more_than_facts(self):
        ledger = _run(Fact("arithmetic", How.ASSUMED))
        ledger.mark_unsafe("unsafe_seeded_stream", Standing.CLAIMED)
        assert ledger.standing is Standing.CLAIMED


class TestRunsOnOneLedger:
    def test_a_later_run_does_not_restore_what_an_earlier_one_lacked(self):
        ledger = _run(Fact("model_rows", How.ASSUMED, says="no batch was probed"))
        ledger.begin(Fact("model_rows", How.ENFORCED))
        ledger.facts.checked("model_rows", step=1)
        ledger.facts.declare("model_rows", "the model is a linear layer")
        assert ledger.facts["model_rows"].how is How.ASSUMED
        assert ledger.standing is Standing.CONDITIONAL

    def test_checks_of_all_runs_are_counted(self):
        ledger = _run()
        for steps in (3, 4):
            ledger.begin()
            for step in range(1, steps + 1):
                ledger.facts.checked("model_state", step=step, says="probe")
        fact = ledger.facts["model_state"]
        assert (fact.how, fact.times, fact.last_step) == (How.CHECKED, 7, 4)

    def test_a_declaration_restores_the_run_at_hand(self):
        ledger = _run()
        ledger.facts.missing("loss_rows", "w is a tensor of unknown origin")
        ledger.facts.declare("loss_rows", "class weights")
        assert ledger.standing is Standing.PROVEN
        assert ledger.facts["loss_rows"].how is How.DECLARED

    def test_copy_advance_and_absorb_carry_facts_marks_and_assumptions(self):
        inner = _run(Fact("arithmetic", How.ASSUMED, says="floating point"))
        inner.mark_unsafe("unsafe_seeded_stream", Standing.CLAIMED)
        inner.assume("the holdout is public")
        advanced, absorbed = Ledger(), _run()
        advanced.advance(inner)
        absorbed.absorb(inner, note="inner run")
        assert inner.copy().hash == advanced.hash == inner.hash
        for ledger in (inner.copy(), advanced, absorbed):
            assert ledger.standing is Standing.CLAIMED
            assert ledger.unsafe == ["unsafe_seeded_stream"]
            assert "the holdout is public" in ledger.assumptions
            # What is absorbed ran after what was there: its settings may have followed that.
            later = ["settings"] if ledger is absorbed else []
            assert [fact.id for fact in ledger.facts.assumed] == [*later, "arithmetic"]
        assert absorbed.steps == 200

    @pytest.mark.parametrize("other", [Ledger(relation="replace_one"), Ledger(unit="user"), None])
    def test_only_another_ledger_of_the_same_kind_is_absorbed(self, other):
        ledger = _run()
        with pytest.raises(InvalidInput, match="other must be another ledger for add_remove"):
            ledger.absorb(other if other is not None else ledger)


class TestJson:
    def test_facts_are_listed_in_the_contract_form(self, tmp_path):
        ledger = _run(Fact("batches", How.ENFORCED, says="fit draws them"), Fact("unit", How.DECLARED, says="record"))
        ledger.facts.checked("model_rows", step=7, says="half replaced")
        ledger.save(tmp_path / "ledger.json")
        rows = json.loads((tmp_path / "ledger.json").read_text())["facts"]
        assert rows[1] == {"id": "model_rows", "how": "checked", "times": 1, "last_step": 7, "says": "half replaced"}
        assert [row["id"] for row in rows] == ["batches", "model_rows", "unit"]
        loaded = Ledger.load(tmp_path / "ledger.json")
        assert (loaded.hash, loaded.standing, loaded.is_run) == (ledger.hash, Standing.PROVEN, True)

    def test_deleting_or_editing_a_fact_is_noticed(self):
        ledger = _run()
        ledger.facts.missing("numbers_read", "loop.py:31 reads a number")
        spec = ledger.spec()
        facts = spec["facts"]
        for changed in (
            [],
            facts[1:],
            facts[:-1],
            [row | {"how": "enforced"} for row in facts],
            [row | {"says": "x"} for row in facts],
        ):
            with pytest.raises(InvalidInput, match="edited"):
                Ledger.from_spec(spec | {"facts": changed})
        with pytest.raises(InvalidInput, match="edited"):
            Ledger.from_spec({key: value for key, value in spec.items() if key != "facts"})

    @pytest.mark.parametrize("kept", ["rows", "end", "first row", "facts", "last row"])
    def test_hashes_that_are_deleted_in_part_are_noticed(self, kept):
        ledger = _run()
        ledger.add(Laplace(2.0))
        spec = ledger.spec()
        rows = [{key: value for key, value in row.items() if key != "hash"} for row in spec["mechanisms"]]
        bare = {key: value for key, value in spec.items() if key not in ("facts", "hash")} | {"mechanisms": rows}
        partly = {
            "rows": spec | {"hash": None},
            "end": spec | {"mechanisms": rows},
            "first row": bare | {"mechanisms": [spec["mechanisms"][0], rows[1]]},
            "last row": spec | {"mechanisms": [rows[0], spec["mechanisms"][1]]},
            "facts": bare | {"facts": spec["facts"]},
        }
        with pytest.raises(InvalidInput, match="edited"):
            Ledger.from_spec(partly[kept])
        stated = Ledger.from_spec(bare)
        assert (stated.standing, stated.is_run) == (Standing.PROVEN, False)

    def test_a_stored_run_without_facts_reads_conditional_and_stays_so(self):
        old = Ledger()
        old.add(Gaussian(1.0), note="training")
        spec = {key: value for key, value in old.spec().items() if key != "facts"}
        loaded = Ledger.from_spec(spec)
        assert loaded.hash == spec["hash"]
        joined = Ledger()
        joined.absorb(loaded)
        for ledger in (loaded, loaded.copy(), Ledger.from_spec(loaded.spec()), joined):
            assert (ledger.standing, ledger.is_run) == (Standing.CONDITIONAL, False)
            ledger.begin(Fact("batches", How.ENFORCED))
            ledger.add(Gaussian(1.0), note="training")
            assert ledger.standing is Ledger.from_spec(ledger.spec()).standing is Standing.CONDITIONAL

    def test_a_statement_about_mechanisms_may_be_proven(self):
        spec = {"mechanisms": [{"type": "gaussian", "noise_multiplier": 1.0}]}
        assert Ledger.from_spec(spec).standing is Standing.PROVEN
        assert Ledger.of(Gaussian(1.0)).standing is Standing.PROVEN

    def test_a_declared_fact_of_a_stored_ledger_is_no_mark(self):
        ledger = _run(Fact("arithmetic", How.ASSUMED))
        again = Ledger.from_spec(ledger.spec())
        assert again.standing is Standing.CONDITIONAL
        again.facts.declare("arithmetic", "checked by hand")
        assert again.standing is Standing.PROVEN

    @pytest.mark.parametrize(
        "rows",
        [
            "batches",
            [1],
            [{"id": "nothing", "how": "checked"}],
            [{"id": "batches", "how": "hoped"}],
            [{"id": "batches", "how": "checked", "times": -1}],
            [{"id": "batches", "how": "checked", "says": 3}],
            [{"id": "batches", "how": "assumed"}, {"id": "batches", "how": "enforced"}],
        ],
    )
    def test_other_lists_are_refused(self, rows):
        with pytest.raises(InvalidInput, match="must be"):
            Facts.from_spec(rows)


class TestOneLedger:
    @pytest.mark.parametrize(
        "detach", [copy.copy, copy.deepcopy, pickle.dumps, lambda ledger: copy.deepcopy({"ledger": ledger})]
    )
    def test_a_copy_that_would_lose_entries_is_refused_with_the_fix(self, detach):
        with pytest.raises(TypeError, match=r"ledger\.copy\(\)"):
            detach(_run())

    def test_no_entry_is_lost_between_threads(self):
        ledger = Ledger()
        mechanisms = [Gaussian(1.0), Gaussian(2.0)]

        def record(index: int) -> None:
            for _ in range(500):
                ledger.add(mechanisms[index % 2])

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(record, range(8)))
        assert ledger.steps == 4000


class TestTable:
    def test_every_fact_has_one_word_for_each_way_of_knowing_it(self):
        assert set(STANDINGS) == set(FACTS)
        assert all(set(words) == set(How) for words in STANDINGS.values())

    @pytest.mark.parametrize("how", How)
    @pytest.mark.parametrize("name", FACTS)
    def test_a_ledger_has_the_word_of_the_table(self, name, how):
        ledger = _run(*(Fact(each, how if each == name else How.ENFORCED) for each in FACTS))
        assert ledger.standing is STANDINGS[name][how]
        assert Ledger.from_spec(ledger.spec()).standing is STANDINGS[name][how]

    def test_no_measurement_of_the_arithmetic_gives_the_word(self):
        ledger = _run(Fact("arithmetic", How.CHECKED, times=1000, says="clipped sums compared with float64"))
        assert ledger.standing is Standing.CONDITIONAL
        assert [fact.id for fact in ledger.facts.assumed] == ["arithmetic"]

    def test_the_pages_show_the_table_and_what_must_hold(self):
        statement, training = (
            (Path(__file__).parents[2] / "docs" / name).read_text() for name in ("statement.md", "train.md")
        )
        for name, words in STANDINGS.items():
            assert f"| `{name}` | " + " | ".join(words[how].value for how in How) + " |" in statement
            assert f"| `{name}` | " in training
