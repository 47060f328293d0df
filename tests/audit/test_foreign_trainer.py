"""Replay of foreign trainers: known violations are found, correct trainers are not accused."""

import json

import numpy as np
import pytest

from tacit.audit import replay_trainer
from tacit.cli import main
from tacit.errors import InvalidInput
from tests.audit.foreign import VIOLATIONS, CentredBatches, Correct, DecayingNoise

CLAIM = {"noise_multiplier": 1.3, "sample_rate": 0.08}


def test_there_are_as_many_violations_as_were_asked_for():
    assert len(VIOLATIONS) >= 20


@pytest.mark.slow_cases
@pytest.mark.parametrize("kind", VIOLATIONS, ids=lambda kind: kind.__name__)
def test_a_known_violation_is_found(kind):
    assert replay_trainer(kind(0), **CLAIM).refuted


def test_line_12_noise_that_decays_by_a_thousandth_a_step_is_noticed():
    said = dict(replay_trainer(DecayingNoise(0), **CLAIM).violations)
    assert list(said) == ["noise"]
    assert "standard deviation is 0.79" in said["noise"]


@pytest.mark.parametrize("rate", [0.02, 0.3, 1.0])
def test_line_12_a_trainer_that_centres_its_batches_is_not_told_that_it_shuffles(rate):
    found = replay_trainer(CentredBatches(0), noise_multiplier=1.3, sample_rate=rate).violations
    assert [says for part, says in found if part == "sampling" and "centred" in says]
    assert not [says for _, says in found if "shuffled" in says or "fixed size" in says]
    assert [part for part, _ in found if part == "sensitivity"]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("relation", ["add_remove", "replace_one", "zero_out"])
def test_a_correct_trainer_is_not_accused(seed, relation):
    """False alarms: 3 monitors at 1e-6 each. benchmarks/foreign_trainers.py repeats this 1,000 times."""
    claim = {"noise_multiplier": 0.6 + seed, "sample_rate": [1.0, 0.02, 0.3][seed], "clip_norm": [0.1, 1.0, 7.0][seed]}
    found = replay_trainer(Correct(seed), relation=relation, **claim)
    assert not found.violations
    assert found.checked > 100


def test_a_trainer_that_raises_or_returns_no_numbers_is_bad_input():
    def raises(records, **_):
        raise RuntimeError(f"secret {records[0, 0]}")

    with pytest.raises(InvalidInput, match="got RuntimeError") as error:
        replay_trainer(raises, **CLAIM)
    assert "secret" not in str(error.value)
    with pytest.raises(InvalidInput, match="trainer must return"):
        replay_trainer(lambda records, **_: "text", **CLAIM)
    with pytest.raises(InvalidInput, match="noise_multiplier must be"):
        replay_trainer(Correct(), noise_multiplier=0.0, sample_rate=0.1)


def test_the_command_replays_what_the_user_names(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "replayed.py").write_text(
        "from tests.audit.foreign import Correct, Shuffle\nright, wrong, number = Correct(0), Shuffle(0), 3\n"
    )
    given = ["--noise-multiplier", "1.3", "--sample-rate", "0.08"]
    assert main(["verify", "--trainer", "replayed:right", *given]) == 0
    assert "no proof" in capsys.readouterr().out
    assert main(["verify", "--trainer", "replayed.py:wrong", *given, "--json"]) == 3
    (row,) = json.loads(capsys.readouterr().out)["violations"]
    assert row["part"] == "sampling"
    assert "shuffled" in row["says"]
    for where, said in [
        ("replayed:number", "callable"),
        ("replayed:rigth", "'right'"),
        ("none:x", "importable"),
        ("replayed", "a module and a function"),
    ]:
        assert main(["verify", "--trainer", where, *given]) == 2
        assert said in capsys.readouterr().err
    assert main(["verify"]) == 2
    assert main(["verify", "spec.json", "--trainer", "replayed:right"]) == 2


@pytest.mark.slow
def test_a_step_of_our_own_optimizer_passes():
    torch, draw = pytest.importorskip("torch"), np.random.default_rng()

    def trainer(records, *, steps, clip_norm, noise_multiplier, sample_rate, expected_batch_size):
        from tacit.gradients import clipped_sum

        model = torch.nn.Linear(records.shape[1], 1, bias=False)
        releases = []
        for _ in range(steps):
            batch = torch.from_numpy(records[draw.random(len(records)) < sample_rate])
            total = torch.zeros(1, records.shape[1])
            if len(batch):
                sums, _ = clipped_sum(
                    model, lambda out, _: out.squeeze(1), batch, torch.zeros(len(batch)), clip_norm=clip_norm
                )
                total = sums["weight"].detach()
            noise = torch.randn_like(total) * noise_multiplier * clip_norm
            releases.append(((total + noise) / expected_batch_size).numpy().ravel())
        return np.array(releases)

    assert not replay_trainer(trainer, **CLAIM).violations
