"""Results of a sweep as MLflow runs."""

import pytest

from tacit.errors import InvalidInput
from tacit.integrations.mlflow import log_results
from tacit.sweeps import Store, Task, sweep


def test_settings_become_parameters_and_numbers_metrics(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    tracking = pytest.importorskip("mlflow.tracking")
    uri = (tmp_path / "mlruns").as_uri()
    tasks = [Task("tests.sweeps.chores:square", {"x": x, "folder": str(tmp_path)}) for x in (2, 3)]
    unbounded = Task("tests.sweeps.chores:unbounded", {"x": 3})
    log_results(sweep("squares", [*tasks, unbounded], Store(tmp_path / "s.sqlite"), workers=1), uri)
    client = tracking.MlflowClient(uri)
    experiment = client.get_experiment_by_name("squares")
    runs = client.search_runs([experiment.experiment_id])
    finite = [run for run in runs if "square" in run.data.metrics]
    assert sorted((run.data.params["x"], run.data.metrics["square"]) for run in finite) == [("2", 4.0), ("3", 9.0)]
    (other,) = [run for run in runs if run not in finite]
    assert (other.data.tags["square"], other.data.tags["standing.pld"]) == ("inf", "proven")
    assert all(run.info.status == "FINISHED" for run in runs)


def test_a_place_that_mlflow_does_not_know_is_refused(tmp_path):
    pytest.importorskip("mlflow.tracking")
    tasks = [Task("tests.sweeps.chores:square", {"x": 1, "folder": str(tmp_path)})]
    results = sweep("squares", tasks, Store(tmp_path / "s.sqlite"), workers=1)
    with pytest.raises(InvalidInput, match="mlflow must be a tracking URI"):
        log_results(results, "nonsense://x")
