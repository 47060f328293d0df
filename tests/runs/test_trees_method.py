"""`tacit train TABLE` takes boosted trees or a linear model by a rule of public numbers, and says which and why."""

from dataclasses import replace

import numpy as np
import pytest

import tacit
from tacit.accounting import Ledger
from tacit.erm import DPBoostedTrees
from tacit.errors import InvalidInput
from tacit.reports.card import summary
from tacit.runs import config_from_table, read_config, train
from tacit.runs.builders import dataset_of
from tacit.runs.methods import Job, choose_method, method_of
from tacit.runs.methods.trees import LEAST_RECORDS

TOML = """dataset = "table"
method = "auto"
epsilon = 4.0
delta = 1e-5
epochs = 1.0
batch_size = 500
attacks = []
test_epsilon = 0.0
[trees]
trees = 60
depth = 3
[table]
path = "people.csv"
target = "ill"
classes = ["no", "yes"]
[table.bounds]
age = [0, 100]
[table.categories]
ward = ["north", "south", "west"]
"""
ROWS = 4000


def rows(count=ROWS):
    """Answers that no linear score tells: whoever is of middle age, and in the west whoever is not."""
    rng = np.random.default_rng(0)
    age, ward = rng.uniform(0, 90, count).round(3), rng.choice(["north", "south", "west"], count)
    ill = np.where((np.abs(age - 45) < 20) ^ (ward == "west"), "yes", "no")
    return {"age": age, "ward": ward, "ill": ill}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place, table = tmp_path_factory.mktemp("people"), rows()
    lines = zip(*table.values(), strict=True)
    (place / "people.csv").write_text("\n".join([",".join(table), *(",".join(map(str, line)) for line in lines)]))
    (place / "people.toml").write_text(TOML)
    return place


@pytest.fixture(scope="module")
def run(folder):
    return train(read_config(str(folder / "people.toml"), {}), out=folder / "run")


@pytest.fixture(scope="module")
def config(folder):
    return read_config(str(folder / "people.toml"), {})


@pytest.fixture(scope="module")
def dataset(config):
    return dataset_of(config, None)


def test_a_large_table_takes_trees_and_says_why(run):
    assert run.card.method.startswith("trees: ")
    (line,) = [line for line in summary(run.card) if line.startswith("Chosen by rule")]
    assert all(part in line for part in ("boosted trees", "3,200 records", "method=gradient"))
    assert run.card.ledger.standing.value == "proven"
    assert float(min(each.epsilon for each in run.account.results if each.tradeoff.source == "pld")) <= 4.0


def test_the_run_is_loaded_with_its_choice_and_answers_what_no_line_tells(run):
    table = rows()
    model = tacit.load(run.folder)
    assert np.mean(model.predict(table) == table["ill"]) > 0.8
    chances = model.predict_proba(table)
    assert chances.sum(axis=1) == pytest.approx(np.ones(ROWS))


def test_answers_are_those_of_the_estimator(tmp_path, config, dataset, monkeypatch):
    fitted = []
    fit = DPBoostedTrees.fit
    monkeypatch.setattr(DPBoostedTrees, "fit", lambda self, *given: fitted.append((fit(self, *given), given[0])))
    job = Job(choose_method(config, dataset), dataset, Ledger(), tmp_path)
    found = method_of(job.config).train(job)
    ((estimator, codes),) = fitted
    # A number stays as it is, three 0/1 features become one code.
    assert codes[:, 0] == pytest.approx(dataset.x_train[:, 0])
    assert (codes[:, 1] == dataset.x_train[:, 1:].argmax(axis=1)).all()
    assert found.predict(dataset.x_train) == pytest.approx(estimator.predict_proba(codes), abs=1e-9)


def test_the_onnx_file_answers_alike(run, dataset):
    onnxruntime = pytest.importorskip("onnxruntime", reason="the extra `onnx` is not installed")
    model, features = tacit.load(run.folder), dataset.x_test[:9]
    wards = np.array(["north", "south", "west"], dtype=object)[features[:, 1:].argmax(axis=1)]
    given = {"age": 100.0 * features[:, :1].astype(float), "ward": wards[:, None]}
    session = onnxruntime.InferenceSession(model.onnx(), providers=["CPUExecutionProvider"])
    assert session.run(["probabilities"], given)[0] == pytest.approx(model.predict_proba(features), abs=1e-6)


def test_three_classes_and_no_category(tmp_path):
    table = {"dataset": "iris", "method": "trees", "epsilon": 100.0, "delta": 1e-3}
    config = config_from_table(table | {"trees": {"trees": 60, "depth": 2}})
    job = Job(config, dataset_of(config, None), Ledger(), tmp_path)
    method = method_of(config)
    found, left = method.train(job), method.untrained(replace(job, folder=tmp_path))
    chances = found.predict(job.dataset.x_train)
    assert np.mean(chances.argmax(axis=1) == job.dataset.y_train) > 0.9
    assert left.predict(job.dataset.x_train) == pytest.approx(np.full(chances.shape, 1 / 3))
    assert method.load(job)(job.dataset.x_train) == pytest.approx(np.full(chances.shape, 1 / 3))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"public_size": 3200}, "the number of records is declared"),
        ({"class_weights": {"no": 2.0}}, "have weights"),
        ({"epsilon": 0.01}, "trees need more"),
        ({"epsilon": None, "noise_multiplier": 1.0}, "the noise multiplier is given"),
    ],
)
def test_where_trees_do_not_fit_it_is_a_linear_model_and_says_why(config, dataset, changes, why):
    found = choose_method(replace(config, **changes), dataset)
    assert found.method == "gradient"
    assert "Chosen by rule: a linear model" in found.chosen
    assert why in found.chosen


def test_the_choice_reads_numbers_of_records_and_no_record(config, dataset):
    few = replace(dataset, x_train=dataset.x_train[: LEAST_RECORDS - 1], y_train=dataset.y_train[: LEAST_RECORDS - 1])
    assert choose_method(config, few).method == "gradient"
    blank = replace(dataset, x_train=np.zeros_like(dataset.x_train), y_train=np.zeros_like(dataset.y_train))
    assert choose_method(config, blank) == choose_method(config, dataset)


@pytest.mark.parametrize(
    ("overrides", "method"),
    [
        ({}, "auto"),
        ({"epsilon": 1.0, "trees": {"trees": 30}}, "auto"),
        ({"epochs": 3.0}, "gradient"),
        ({"model": "mlp"}, "gradient"),
        ({"method": "objective"}, "objective"),
        ({"method": "trees"}, "trees"),
    ],
)
def test_a_setting_of_the_training_is_a_choice(folder, overrides, method):
    assert read_config(str(folder / "people.toml"), overrides).method == method


def test_a_frame_is_judged_by_the_same_rule(monkeypatch):
    class Stopped(Exception):
        pass

    def stopped(method, config, dataset, *, out):
        raise Stopped(config)

    def config_of(count, **settings):
        with pytest.raises(Stopped) as found:
            tacit.train_table(rows(count), target="ill", epsilon=1.0, schema=schema, **settings)
        return found.value.args[0]

    monkeypatch.setattr("tacit.runs.trained_table.train_by", stopped)
    schema = {"classes": ["no", "yes"], "bounds": {"age": (0, 100)}, "categories": {"ward": ["north", "south", "west"]}}
    few, many, asked = config_of(200), config_of(ROWS), config_of(ROWS, epochs=1)
    assert [each.method for each in (few, many, asked)] == ["gradient", "trees", "gradient"]
    assert "trees need more" in few.chosen
    assert asked.chosen == ""


def test_trees_are_refused_where_they_mean_nothing(tmp_path):
    table = {"dataset": "digits", "method": "trees", "epsilon": None, "noise_multiplier": 1.0, "delta": 1e-4}
    with pytest.raises(InvalidInput, match="epsilon must be given for method trees"):
        train(config_from_table(table), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_another_model_file_is_refused(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"half")
    config = config_from_table({"dataset": "iris", "method": "trees", "epsilon": 1.0, "delta": 1e-3})
    with pytest.raises(InvalidInput, match=r"model\.safetensors"):
        method_of(config).load(Job(config, dataset_of(config, None), Ledger(), tmp_path))
