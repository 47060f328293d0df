"""The figure of `tacit account --plot`."""

import json

import pytest

from tacit.cli import main

SPEC = {"mechanisms": [{"type": "gaussian", "noise_multiplier": 1.1, "sample_rate": 0.01, "steps": 500}]}


PLAIN = {"mechanisms": [{"type": "gaussian", "noise_multiplier": 8.0}]}


@pytest.mark.parametrize(("spec", "ending"), [(SPEC, "svg"), (PLAIN, "png"), (PLAIN, "pdf")])
def test_it_draws(spec, ending, tmp_path, capsys):
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    path = tmp_path / f"plot.{ending}"
    assert main(["account", str(tmp_path / "spec.json"), "--accountant", "rdp", "--plot", str(path)]) == 0
    assert path.stat().st_size > 5000
    if ending == "svg":
        text = path.read_text()
        assert "<svg" in text


def test_unknown_endings(tmp_path, capsys):
    (tmp_path / "spec.json").write_text(json.dumps(SPEC))
    assert main(["account", str(tmp_path / "spec.json"), "--plot", "plot.gif"]) == 2
    assert ".svg, .png, .pdf" in capsys.readouterr().err
