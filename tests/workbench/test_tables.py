"""A table of one's own over plain HTTP: chosen, asked about, trained on, and removed."""

import os
import re
import stat
import tomllib

import pytest
from starlette.testclient import TestClient

from tacit.serialization import json_table
from tacit.workbench import application, jobs, tables
from tests.data.test_table_questions import FIELDS
from tests.unseen_table import write_unseen
from tests.workbench.conftest import AT, PORT, TOKEN

POST = {"headers": {"origin": AT}, "follow_redirects": False}


@pytest.fixture
def root(tmp_path):
    return tmp_path / "runs"


@pytest.fixture
def own(root):
    with TestClient(application(root, token=TOKEN, port=PORT), base_url=AT) as made:
        made.params = {"token": TOKEN}
        yield made


@pytest.fixture
def started(monkeypatch):
    """The jobs that were started, in place of their processes."""
    found = []

    class Child:
        def __init__(self, *_, **__):
            found.append(self)

        def poll(self):
            return None

    monkeypatch.setattr(jobs.subprocess, "Popen", Child)
    return found


@pytest.fixture(scope="module")
def unseen(tmp_path_factory):
    return write_unseen(tmp_path_factory.mktemp("unseen") / "churn.csv", 300)


def chosen(own, file):
    """The address of the form of an uploaded file."""
    reply = own.post("/tables/upload", files={"file": (file.name, file.read_bytes())}, **POST)
    assert reply.status_code == 303
    return reply.headers["location"].partition("?")[0]


def test_an_upload_is_whole_and_this_user_alone_can_read_it(own, root, unseen):
    number = chosen(own, unseen).rpartition("/")[2]
    table = tables.table_of(root, number)
    assert table.file.read_bytes() == unseen.read_bytes()
    assert stat.S_IMODE(os.stat(table.file).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(table.folder).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(table.folder.parent).st_mode) == 0o700
    assert "churn.csv" in own.get("/tables").text
    own.post(f"/tables/{number}/forget", **POST)
    assert not table.folder.exists()
    assert own.get(f"/tables/{number}").status_code == 400


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 70_001])
def test_an_upload_of_any_size_ends_where_its_form_says(own, root, size):
    content = (b"a;b\r\n--\r\n" * (size // 9 + 1))[:size]
    own.post("/tables/upload", files={"file": ("x.csv", content)}, **POST)
    (found,) = (root / tables.HOME).glob("*/x.csv")
    assert found.read_bytes() == content


@pytest.mark.parametrize(
    ("name", "said"),
    [("x.exe", "whose name ends in"), ("../../x.csv", None), ("..\\x.csv", None), ("/etc/x.csv", None), (".csv", None)],
)
def test_the_name_of_an_upload_reaches_no_other_folder(own, root, name, said):
    reply = own.post("/tables/upload", files={"file": (name, b"a,b\n1,2\n")}, **POST)
    inside = {path.parent for path in root.parent.rglob("*.csv")}
    if said:
        assert said in reply.text
        assert not list((root / tables.HOME).iterdir())
    else:
        assert all(each.parent == root / tables.HOME for each in inside)


def test_an_upload_beyond_the_bound_or_cut_off_leaves_nothing(own, root, monkeypatch):
    monkeypatch.setattr(tables, "LARGEST", 1000)
    assert own.post("/tables/upload", files={"file": ("x.csv", b"1" * 2000)}, **POST).status_code == 400
    head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="x.csv"\r\n\r\n'
    given = {"headers": {"origin": AT, "content-type": "multipart/form-data; boundary=b"}}
    reply = own.post("/tables/upload", content=head + b"a,b\n", **given)
    assert reply.status_code == 400
    assert "must be complete" in reply.text
    assert own.post("/tables/upload", content=b"x" * 9000, **given).status_code == 400
    assert not list((root / tables.HOME).iterdir())


def test_a_file_by_its_path_is_not_copied_and_a_wrong_path_is_told_beside_the_field(own, root, unseen):
    reply = own.post("/tables", data={"path": str(unseen.with_name("none.csv"))}, **POST)
    assert reply.status_code == 400
    assert re.search(r'id="path-fault">path must be an existing', reply.text)
    reply = own.post("/tables", data={"path": str(unseen)}, **POST)
    number = reply.headers["location"].partition("?")[0].rpartition("/")[2]
    assert tables.table_of(root, number).file == unseen
    assert not list(root.rglob("*.csv"))
    own.post(f"/tables/{number}/forget", **POST)
    assert unseen.exists()


def test_the_form_shows_types_and_no_value_and_tells_what_is_missing_beside_each_field(own, unseen):
    at = chosen(own, unseen)
    text = own.get(at).text
    assert "300 records, 10 columns" in text
    assert 'value="%d.%m.%Y"' in text
    assert "T07" not in text
    assert "K000001" not in text
    reply = own.post(at, data=FIELDS | {"action": "start", "low:income": "x", "source:born": ""}, **POST)
    assert reply.status_code == 400
    marked = re.search(
        r'<input id="([^"]+)" name="low:income" aria-invalid="true" aria-describedby="\1-fault"', reply.text
    )
    assert marked
    assert re.search(rf'id="{marked[1]}-fault">a bound of income must be a number', reply.text)
    assert "2 answers are missing or wrong" in reply.text
    assert 'value="200000"' in own.get(at).text  # kept for the next visit


def test_the_cost_is_told_while_answers_are_typed(own, unseen):
    at = chosen(own, unseen)
    told = own.post(f"{at}/cost", data=FIELDS | {"epsilon": "1,5"}, **POST).text
    assert "Epsilon 1.5 at delta 1e-05 for one record of 300; it can be proven" in told
    assert "epsilon must be a number" in own.post(f"{at}/cost", data=FIELDS | {"epsilon": "x"}, **POST).text
    assert own.get(at).text.count('value="census"') == 0  # what was only typed is not kept


def test_what_is_proposed_from_the_file_is_only_claimed(own, unseen):
    at = chosen(own, unseen)
    given = {name: value for name, value in FIELDS.items() if not name.endswith((":channel", ":income"))}
    reply = own.post(at, data=given | {"action": "look"}, **POST)
    assert "online\nphone\nshop" in reply.text
    assert reply.text.count('value="this file"') == 2
    assert "only claimed, because of what was read from the file: bounds of income; categories of channel" in reply.text


def test_answers_start_the_training_of_the_command_line(own, root, unseen, started):
    at = chosen(own, unseen)
    reply = own.post(at, data=FIELDS | {"action": "start", "owner": "the clinic"}, **POST)
    assert reply.headers["location"].startswith("/jobs?")
    assert len(started) == 1
    (job,) = jobs.list_jobs(root)
    assert job["kind"] == "table"
    (path,) = (root / tables.HOME).glob("*/*.toml")
    assert json_table("job", root / ".workbench" / f"{job['job']}.json")["preset"] == str(path)
    stated = tomllib.loads(path.read_text())["statement"]
    assert stated["owner"] == "the clinic"
    assert "known from price list: cancelled, tariff, channel, since" in stated["facts"]
    assert f"Stop {job['run']}" in own.get("/jobs").text


def test_a_job_that_is_told_to_stop_ends_before_its_next_step(own, root, unseen, started):
    own.post(chosen(own, unseen), data=FIELDS | {"action": "start"}, **POST)
    (job,) = jobs.list_jobs(root)
    own.post(f"/jobs/{job['job']}/stop", **POST)
    assert jobs.main(root, job["job"]) == 1
    assert jobs.state(root, job["job"])["status"] == "stopped"
    assert "stopped" in own.get(f"/jobs/{job['job']}").text
    assert not (root / job["run"]).exists()


def test_a_file_without_names_gets_numbered_columns(own, root, tmp_path):
    file = tmp_path / "plain.csv"
    file.write_text("1,2,no\n3,4,yes\n")
    reply = own.post("/tables", data={"path": str(file), "headerless": "yes"}, **POST)
    assert "column_3" in own.get(reply.headers["location"].partition("?")[0]).text


@pytest.mark.parametrize("number", ["..%5c..", "0" * 16, "%2e%2e", "x" * 40])
def test_no_other_folder_is_a_table(own, number):
    assert own.get(f"/tables/{number}").status_code in (400, 404)
    assert own.post(f"/tables/{number}/forget", **POST).status_code in (400, 404)
