import hashlib
import json
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file

from tacit.accounting import Ledger
from tacit.errors import InvalidInput
from tacit.mechanisms import Gaussian, Laplace
from tacit.standing import Standing
from tacit.tradeoff import Answer
from tacit.training import Checkpoint, read_checkpoint, save_model
from tacit.training.checkpoint import packed, unpacked
from tests.training.cases import small_model


def checkpoint(**changes):
    ledger = Ledger.of(Laplace(2.0))
    before = ledger.copy()
    ledger.add(Gaussian(1.3).poisson(0.1), 10, "training")
    ledger.mark_unsafe("unsafe_seeded_stream", Standing.CLAIMED)
    spent = ledger.copy()
    spent.add(Gaussian(1.3).poisson(0.1), 5, "lost in an interruption")
    state = {"model": small_model().state_dict(), "history": [{"epoch": 1.0}], "random": {"cpu": torch.get_rng_state()}}
    given = {"step": 10, "steps": 20, "fingerprint": {"optimizer": "SGD"}, "stopped": "", "state": state}
    return Checkpoint(**(given | {"before": before, "ledger": ledger, "spent": spent} | changes))


def test_a_checkpoint_round_trips(tmp_path):
    written = checkpoint()
    written.write(tmp_path / "runs" / "run.safetensors")
    read = read_checkpoint(tmp_path / "runs" / "run.safetensors")
    assert (read.step, read.steps, read.fingerprint, read.stopped) == (10, 20, {"optimizer": "SGD"}, "")
    for name in ("before", "ledger", "spent"):
        assert getattr(read, name).hash == getattr(written, name).hash
        assert getattr(read, name).entries == getattr(written, name).entries
    assert read.state["history"] == [{"epoch": 1.0}]
    assert torch.equal(read.state["random"]["cpu"], written.state["random"]["cpu"])
    assert list(read.state["model"]) == list(written.state["model"])
    assert all(torch.equal(read.state["model"][name], value) for name, value in written.state["model"].items())


@pytest.mark.parametrize(
    ("changes", "finished"), [({}, False), ({"stopped": "enough"}, True), ({"step": 20}, True), ({"step": 19}, False)]
)
def test_whether_a_run_is_finished(changes, finished):
    assert checkpoint(**changes).finished is finished


def test_a_file_cut_short_anywhere_is_refused(tmp_path):
    path = tmp_path / "run.safetensors"
    checkpoint().write(path)
    content = path.read_bytes()
    for length in (0, 4, 8, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(InvalidInput, match="checkpoint must be a complete safetensors file; got "):
            read_checkpoint(path)


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "run.safetensors"
    with pytest.raises(InvalidInput, match="checkpoint must be a file that exists"):
        read_checkpoint(path)
    with pytest.raises(InvalidInput, match="checkpoint must be a file that exists"):
        read_checkpoint(tmp_path)
    save_model(small_model(), path)
    with pytest.raises(InvalidInput, match=r"one that fit\(..., checkpoint=...\) wrote; got .* It may be a model file"):
        read_checkpoint(path)
    path.write_bytes(b"\x80\x04K\x01.")
    with pytest.raises(InvalidInput, match="complete safetensors file"):
        read_checkpoint(path)


def edited(path, edit, keep_digest):
    with safe_open(path, framework="pt") as file:
        header = file.metadata()
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (not a dict)
    form = json.loads(header["tacit"])
    edit(form)
    text = json.dumps(form)
    if not keep_digest:
        header["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    save_file(tensors, path, header | {"tacit": text})


@pytest.mark.parametrize("name", ["ledger", "spent", "before"])
def test_an_edited_ledger_is_refused(tmp_path, name):
    def edit(form):
        form[name]["mechanisms"][0]["scale"] = 9.0

    for keep_digest, sentence in ((True, "whose header was edited"), (False, "The ledger was edited")):
        path = tmp_path / "run.safetensors"
        checkpoint().write(path)
        edited(path, edit, keep_digest)
        with pytest.raises(InvalidInput, match=sentence):
            read_checkpoint(path)


def test_another_format_is_refused(tmp_path):
    path = tmp_path / "run.safetensors"
    checkpoint().write(path)
    edited(path, lambda form: form.update(format=2), keep_digest=False)
    with pytest.raises(InvalidInput, match="checkpoint must be of format 1; got 2"):
        read_checkpoint(path)


def test_an_interrupted_write_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "run.safetensors"
    checkpoint().write(path)
    before = path.read_bytes()
    monkeypatch.setattr("os.fsync", lambda *_: (_ for _ in ()).throw(OSError("No space left on device")))
    with pytest.raises(OSError, match="No space"):
        checkpoint(step=11).write(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
NESTED = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.integers() | st.text(max_size=3) | st.tuples(st.integers()), inner, max_size=3)
    ),
    max_leaves=8,
)


def through_json(value):
    tensors = {}
    return unpacked(json.loads(json.dumps(packed(value, tensors, "state"))), tensors)


class TestPacking:
    @pytest.mark.slow
    @given(NESTED)
    def test_plain_values_come_back_with_their_types(self, value):
        assert repr(through_json(value)) == repr(value)

    @pytest.mark.parametrize(
        "tensor",
        [
            torch.tensor(3.5, dtype=torch.float64),
            torch.zeros(0, 3),
            torch.arange(6).view(2, 3).T,
            torch.tensor([True, False]),
            torch.randn(4).bfloat16(),
            torch.randn(4, 4)[::2, 1:],
        ],
    )
    def test_tensors_come_back_bit_by_bit(self, tensor):
        found = through_json({"a": [tensor], "b": tensor})
        for value in (found["a"][0], found["b"]):
            assert value.dtype == tensor.dtype
            assert torch.equal(value, tensor)

    def test_arrays_numbers_and_counters_come_back(self):
        order = np.random.default_rng(0).permutation(50)
        found = through_json({"order": order, "at": np.int64(7), "milestones": Counter([3, 3, 9])})
        assert np.array_equal(found["order"], order)
        assert found["order"].dtype == order.dtype
        assert (found["at"], found["milestones"]) == (7, Counter([3, 3, 9]))
        assert isinstance(found["milestones"], Counter)

    def test_names_that_collide_stay_apart(self):
        value = {"a/b": torch.zeros(1), "a": {"b": torch.ones(1)}, 1: torch.full((1,), 2.0), "1": torch.full((1,), 3.0)}
        found = through_json(value)
        assert [found["a/b"].item(), found["a"]["b"].item(), found[1].item(), found["1"].item()] == [0, 1, 2, 3]

    def test_a_privacy_number_keeps_its_standing(self):
        for given_answer in (
            Answer(2.5, Standing.PROVEN, 2.4, 2.5),
            Answer(float("inf"), Standing.CLAIMED, None, None),
        ):
            found = through_json([given_answer])[0]
            assert (found, found.standing, found.interval) == (
                given_answer,
                given_answer.standing,
                given_answer.interval,
            )

    @pytest.mark.parametrize("value", [print, object(), {1, 2}, 1j, Gaussian(1.0)])
    def test_everything_else_is_refused_by_its_place(self, value):
        with pytest.raises(InvalidInput, match="state at state/x/0 must be made of plain values and tensors; got"):
            through_json({"x": [value]})
