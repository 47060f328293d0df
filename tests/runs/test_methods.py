"""The dispatcher: a method is one file and a dataclass of settings, whose fields are TOML keys and flags."""

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest

from tacit.cli.train import with_flags, with_set
from tacit.errors import InvalidInput
from tacit.mechanisms import Gaussian
from tacit.runs import audit_run, read_config, train
from tacit.runs.config import SECTIONS
from tacit.runs.methods import METHODS, Job, Method, Trained
from tacit.runs.settings import METHOD_SETTINGS, setting


@dataclass(frozen=True)
class GuessSettings:
    """The [guess] section."""

    bias: float = setting(0.0, "How much the first class is favoured.")
    rounds: int = setting(1, "Releases.")


class Guess(Method[GuessSettings]):
    """Guesses a class that a noisy count would have chosen."""

    def check(self, job: Job) -> None:
        if self.settings.rounds > 100:
            raise InvalidInput("rounds must be at most 100.")

    def train(self, job: Job) -> Trained:
        job.write_ahead((Gaussian(2.0), self.settings.rounds))
        job.ledger.add(Gaussian(2.0), self.settings.rounds, "guessing")
        (job.folder / "guess.json").write_text("{}")
        return Trained(self.load(job), "a guess", "guessing", {"bias": self.settings.bias}, metrics={"kept": 3.0})

    def nonprivate_baseline(self, job: Job):
        return [{"test": 0.25}], None

    def load(self, job: Job):
        classes = len(job.dataset.classes)
        chances = np.full(classes, (1 - self.settings.bias) / classes) + np.eye(classes)[0] * self.settings.bias
        return lambda inputs: np.tile(chances, (len(inputs), 1))


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    monkeypatch.setitem(METHODS, "guess", f"{__name__}:Guess")
    for sections in (METHOD_SETTINGS, SECTIONS):
        monkeypatch.setitem(sections, "guess", GuessSettings)


def test_a_method_gets_its_section_and_gives_the_card_what_it_needs(tmp_path):
    (tmp_path / "mine.toml").write_text(
        'dataset = "iris"\nmethod = "guess"\nepsilon = 1.0\ndelta = 1e-3\nbatch_size = 8\n'
        "[guess]\nbias = 0.5\nrounds = 3\n"
    )
    config = read_config(str(tmp_path / "mine.toml"), {})
    assert config.method_settings == GuessSettings(0.5, 3)
    run = train(config, out=tmp_path / "run")
    card = json.loads((tmp_path / "run" / "card.json").read_text())
    assert card["method"] == "guess: guessing"
    assert card["settings"] == {"bias": 0.5}
    assert card["metrics"]["kept"] == 3.0
    assert card["metrics"]["nonprivate_test"] == 0.25
    assert card["measure"] == "accuracy"
    assert run.card.ledger.steps == 3
    assert json.loads((tmp_path / "run" / "config.json").read_text())["guess"] == {"bias": 0.5, "rounds": 3}
    assert audit_run(tmp_path / "run", attacks=["loss_threshold"]).results[0].row() == run.audits[0].row()


def test_nothing_is_written_before_the_check(tmp_path):
    settings = {"dataset": "iris", "method": "guess", "guess": {"rounds": 101}}
    with pytest.raises(InvalidInput, match="rounds must be at most 100"):
        train(read_config("digits", settings), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_sections_are_overridden_and_checked(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('dataset = "iris"\nmethod = "guess"\nepsilon = 1.0\n[guess]\nrounds = 3\n')
    assert read_config(str(path), {"guess": {"bias": 0.25, "rounds": None}}).method_settings == GuessSettings(0.25, 3)
    path.write_text('dataset = "iris"\nmethod = "guess"\nepsilon = 1.0\n[guess]\nround = 3\n')
    with pytest.raises(InvalidInput, match=r"key of \[guess\] must be one of bias, rounds; got 'round'. Did you mean"):
        read_config(str(path), {})
    path.write_text('dataset = "iris"\nguess = 3\nepsilon = 1.0\n')
    with pytest.raises(InvalidInput, match=r"guess must be a \[guess\] section"):
        read_config(str(path), {})
    path.write_text("epsilon = 1.0\n[gues]\nrounds = 3\n")
    with pytest.raises(InvalidInput, match="Did you mean 'guess'"):
        read_config(str(path), {})


def test_settings_of_a_method_are_set_by_their_section():
    seen = {}

    @with_flags
    def command(*, preset: str, overrides: Mapping[str, object]) -> None:
        seen.update(preset=preset, overrides=overrides)

    parameters = inspect.signature(command).parameters
    assert {"preset", "learning_rate", "attack"} <= set(parameters)
    assert "overrides" not in parameters
    nothing = dict.fromkeys(set(parameters) - {"preset"})
    command(**nothing | {"preset": "digits", "hidden": [3, 4], "attack": []})
    assert with_set(seen["overrides"], ["guess.bias=0.5"]) == {"guess": {"bias": 0.5}, "hidden": (3, 4)}


def test_overrides_complete_a_file_and_replace_what_is_wrong_in_it(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('dataset = "digits"\n')
    assert read_config(str(path), {"epsilon": 2.0}).epsilon == 2.0
    path.write_text('dataset = "digits"\nepochs = -1\nnoise_multiplier = 1.0\n[clip]\ntype = "round"\nquantile = 0.4\n')
    config = read_config(str(path), {"epochs": 3.0, "epsilon": 1.0, "clip": {"type": "adaptive", "quantile": None}})
    assert (config.epochs, config.epsilon, config.noise_multiplier) == (3.0, 1.0, None)
    assert config.section("clip").quantile == 0.4
