"""Results of sweeps as MLflow runs (extra `mlflow`)."""

import math
from collections.abc import Sequence
from typing import Any

from tacit import check
from tacit.errors import told
from tacit.sweeps import Result
from tacit.sweeps.store import settings_row, value_row


def log_results(results: Sequence[Result], tracking_uri: str) -> None:
    """One MLflow run for each result: settings as parameters, numbers of its value as metrics, the rest as tags.

    The tags are texts such as the standing of every epsilon, an infinite epsilon, and the versions that ran. The
    sweep's name is the experiment's. `tracking_uri` is as in `mlflow.set_tracking_uri`, e.g. "sqlite:///runs.db".
    """
    try:
        from mlflow.exceptions import MlflowException  # type: ignore[import-not-found]
        from mlflow.tracking import MlflowClient  # type: ignore[import-not-found]
    except ImportError:
        raise check.fail("mlflow", "installed", None, "pip install 'tacit[mlflow]'.") from None

    try:
        client = MlflowClient(tracking_uri)
        for result in results:
            _log(client, result)
    except MlflowException as error:
        raise check.fail("mlflow", "a tracking URI that can be written to", tracking_uri, told(error)) from error


def _log(client: Any, result: Result) -> None:
    found = client.get_experiment_by_name(result.sweep)
    experiment = found.experiment_id if found else client.create_experiment(result.sweep)
    tags = {"function": result.function} | {f"version.{name}": text for name, text in result.versions.items()}
    tags |= {"of": result.of, "ran": str(result.ran)}
    run = client.create_run(experiment, start_time=round((result.finished - result.seconds) * 1000), tags=tags)
    for key, value in settings_row(result).items():
        client.log_param(run.info.run_id, key, value)
    for key, value in ({"seconds": result.seconds} | value_row(result)).items():
        if isinstance(value, int | float) and math.isfinite(value):
            client.log_metric(run.info.run_id, key, value)
        else:
            client.set_tag(run.info.run_id, key, value)
    client.set_terminated(run.info.run_id, "FINISHED", round(result.finished * 1000))
