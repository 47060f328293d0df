"""The ledger: what ran, kept honestly."""

import json

import pytest

from tacit.accounting import Ledger, accountant
from tacit.errors import InvalidInput
from tacit.mechanisms import Exponential, Gaussian, Laplace, Parallel, Shuffled
from tacit.standing import Standing


def _ledger():
    ledger = Ledger(relation="replace_one", unit="user")
    ledger.add(Gaussian(1.1).poisson(0.01), 100, "train")
    ledger.add(Gaussian(1.1).poisson(0.01), 50, "train")
    ledger.add(Laplace(2.0))
    ledger.add(Exponential(0.1), note="select")
    ledger.assume("the validation set is public")
    return ledger


def test_round_trip_keeps_everything(tmp_path):
    ledger = _ledger()
    ledger.save(tmp_path / "ledger.json")
    loaded = Ledger.load(tmp_path / "ledger.json")
    assert loaded.hash == ledger.hash
    assert loaded.entries == ledger.entries
    assert (loaded.relation, loaded.unit, loaded.assumptions) == ("replace_one", "user", ledger.assumptions)


def test_equal_consecutive_steps_grow_one_entry():
    assert [entry.steps for entry in _ledger().entries] == [150, 1, 1]
    assert _ledger().steps == 152


def test_an_edited_ledger_does_not_load(tmp_path):
    _ledger().save(tmp_path / "ledger.json")
    spec = json.loads((tmp_path / "ledger.json").read_text())
    for edit in ({"steps": 1}, {"noise_multiplier": 9.0}, {"note": "x"}, {"hash": None}):
        edited = spec | {"mechanisms": [spec["mechanisms"][0] | edit, *spec["mechanisms"][1:]]}
        with pytest.raises(InvalidInput, match="edited"):
            Ledger.from_spec(edited)
    with pytest.raises(InvalidInput, match="edited"):
        Ledger.from_spec(spec | {"relation": "add_remove"})


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_a_ledger_that_was_cut_short_does_not_load(kept):
    spec = _ledger().spec()
    with pytest.raises(InvalidInput, match="edited"):
        Ledger.from_spec(spec | {"mechanisms": spec["mechanisms"][:kept]})


def test_a_lower_bound_is_no_standing_of_what_ran():
    with pytest.raises(InvalidInput, match="standing must be one of"):
        Ledger.from_spec({"standing": "measured", "mechanisms": []})


def test_an_empty_ledger_keeps_its_standing():
    ledger = Ledger.from_spec({"standing": "claimed", "mechanisms": []})
    assert accountant("pld")(ledger).standing is Standing.CLAIMED


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"mechanisms": [{"type": "gaussian", "noise_multiplier": 1, "noise_multiplier": 100}]}', "must stand once"),
        ("[" * 100_000, "must be a JSON file"),
        ('{"mechanisms": [{"type": "gaussian", "noise_multiplier": 1' + "0" * 5000 + "}]}", "must be a JSON file"),
        ('{"mechanisms": [{"type": "gaussian", "noise_multiplier": 1' + "0" * 400 + "}]}", "must be a JSON file"),
        ('{"mechanisms": [{"type": "gaussian", "noise_multiplier": 1, "steps": 1e30}]}', "steps must be an integer in"),
        ('{"mechanisms": [{"type": "gaussian", "noise_multiplier": 1e-300}]}', "noise_multiplier must be in"),
    ],
)
def test_an_invalid_spec_is_refused_with_its_rule(text, sentence, tmp_path):
    (tmp_path / "spec.json").write_text(text)
    with pytest.raises(InvalidInput, match=sentence):
        Ledger.load(tmp_path / "spec.json")


def test_training_without_noise_is_written_down_and_costs_everything():
    noiseless = Gaussian(0.0, unsafe_no_noise=True)
    for mechanism in (noiseless, noiseless.poisson(0.1) * 5):
        ledger = Ledger.of(mechanism)
        assert ledger.unsafe == ["unsafe_no_noise"]
        rows = [part.spec() | {"steps": steps} for part, steps in mechanism.parts()]
        assert Ledger.from_spec({"mechanisms": rows}).unsafe == ["unsafe_no_noise"]
    assert accountant("pld")(Ledger.of(noiseless)).epsilon(1e-5) == float("inf")


def test_a_failed_write_leaves_the_last_state(tmp_path, monkeypatch):
    _ledger().save(tmp_path / "ledger.json")

    def full_disk(*_, **__):
        raise OSError("No space left on device")

    monkeypatch.setattr("os.replace", full_disk)
    with pytest.raises(OSError, match="No space"):
        Ledger().save(tmp_path / "ledger.json")
    assert Ledger.load(tmp_path / "ledger.json").hash == _ledger().hash


def test_schedules_expand_and_merge():
    spec = {"mechanisms": [{"type": "gaussian", "noise_multiplier": [1.0, 2.0, 1.0], "sample_rate": 0.1, "steps": 3}]}
    assert dict(Ledger.from_spec(spec).mechanism.steps) == {
        Gaussian(1.0).poisson(0.1): 2,
        Gaussian(2.0).poisson(0.1): 1,
    }


class TestSeries:
    """Numbers of series of disjoint batches."""

    def test_the_hash_of_a_series_does_not_depend_on_its_number_being_written(self):
        ledger = Ledger.of(Shuffled(Gaussian(2.0), 100, 10) * 10)
        assert ledger.hash == "5709c21a7487e9a2e6096eb7cbb46e9a0e039ae2660d1535eaf825bab7118ff5"

    def test_the_first_is_written_as_before_and_the_others_by_number(self):
        ledger = Ledger()
        for number in (0, 0, 3):
            ledger.add(Shuffled(Gaussian(2.0), 100, 10, number), 5)
        rows = ledger.spec()["mechanisms"]
        assert [(row.get("series"), row["steps"]) for row in rows] == [(None, 10), (3, 5)]
        assert Ledger.from_spec(ledger.spec()).entries == ledger.entries

    def test_a_new_one_is_above_all_that_are_recorded(self):
        ledger = _ledger()
        assert ledger.free_series == 0
        for number in (0, 4, 2):
            ledger.add(Shuffled(Gaussian(2.0), 100, 10, number))
        assert ledger.free_series == ledger.copy().free_series == 5
        ledger.add(Parallel.of(Laplace(2.0), Shuffled(Gaussian(2.0), 100, 10, 7) * 5 + Laplace(1.0)))
        assert ledger.free_series == 8

    @pytest.mark.parametrize("row", [
        {"sampling": "shuffled", "records": 100, "batch_size": 10, "series": -1},
        {"sampling": "fixed_size", "records": 100, "batch_size": 10, "series": 1},
        {"sample_rate": 0.1, "series": 1},
    ])  # fmt: skip
    def test_an_invalid_series_is_refused(self, row):
        with pytest.raises(InvalidInput, match="series must be"):
            Ledger.from_spec({"mechanisms": [{"type": "gaussian", "noise_multiplier": 2.0} | row]})


class TestAdvance:
    def grown(self, *, steps=50, **last):
        later = _ledger()
        later.add(Gaussian(1.1).poisson(0.01), steps, **last)
        return later

    def test_it_becomes_the_later_ledger(self):
        later = self.grown(note="train")
        later.mark_unsafe("unsafe_seeded_stream", Standing.CLAIMED)
        for earlier in (_ledger(), self.grown(note="train", steps=20), later.copy()):
            earlier.advance(later)
            assert earlier.hash == later.hash
            assert earlier.standing is Standing.CLAIMED
        new = Ledger(relation="replace_one", unit="user")
        new.advance(later)
        assert new.hash == later.hash

    def test_its_own_assumptions_are_kept(self):
        earlier = _ledger()
        earlier.mark_unsafe("unsafe_no_noise", Standing.CLAIMED)
        earlier.assume("records are distinct")
        earlier.advance(self.grown())
        assert earlier.unsafe == ["unsafe_no_noise"]
        assert earlier.standing is Standing.CLAIMED
        assert earlier.assumptions == ["the validation set is public", "records are distinct"]

    def test_a_later_ledger_without_its_entries_is_refused(self):
        for earlier, later in (
            (self.grown(steps=51), self.grown(steps=50)),
            (self.grown(note="train"), self.grown(note="other")),
            (self.grown(), _ledger()),
            (_ledger(), Ledger(relation="replace_one", unit="user")),
            (Ledger(), _ledger()),
            (Ledger(relation="replace_one"), _ledger()),
        ):
            before = earlier.hash
            with pytest.raises(InvalidInput, match="ledger must be one that the later ledger"):
                earlier.advance(later)
            assert earlier.hash == before
