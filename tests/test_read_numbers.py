"""Numbers in texts are read alike everywhere: in cells, forms, settings and on the command line."""

import numpy as np
import pytest

from tacit import check
from tacit.cli import main
from tacit.data.labels import numbers
from tacit.errors import InvalidInput
from tacit.workbench import jobs

ODD = ["1_0", "\uff11\uff10", "\u0661\u0660", "1e1_0", "0x10", "1,5", "ten", ""]


@pytest.mark.parametrize("text", ODD)
def test_a_number_for_python_alone_is_none_in_a_cell(text):
    assert not check.is_number(text)
    assert np.isnan(numbers(np.array([text])))


@pytest.mark.parametrize("text", ["10", " 10 ", "-1.5e-3", ".5", "5.", "+1E5"])
def test_plain_numbers_are_read_as_python_reads_them(text):
    assert check.read_real("cell", text) == float(text) == numbers(np.array([text]))


@pytest.mark.parametrize("text", ["1_0", "\uff11", "\u0661"])
@pytest.mark.parametrize("flag", ["--noise-multiplier", "--sample-rate", "--steps", "--delta"])
def test_a_number_for_python_alone_is_refused_on_the_command_line(capsys, flag, text):
    given = {"--noise-multiplier": "1.0", "--sample-rate": "0.1", "--steps": "10", "--delta": "1e-5"} | {flag: text}
    assert main(["account", *(part for pair in given.items() for part in pair)]) == 2
    assert f"{flag[2:].replace('-', '_')} must be a number" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["1_0", "1e300", "inf", "nan", "-1", "0"])
def test_a_job_with_epochs_that_no_run_has_does_not_start(tmp_path, text):
    with pytest.raises(InvalidInput, match="epochs must be"):
        jobs.start(tmp_path, {"kind": "train", "preset": "digits", "epochs": text})
    assert not list(tmp_path.iterdir())
