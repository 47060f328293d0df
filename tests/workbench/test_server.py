"""The workbench over plain HTTP: what it shows, and what it lets nobody do."""

import base64
import hashlib
import html
import json
import os
import re
import signal
import time
from urllib.parse import unquote

import numpy as np
import pytest
from starlette.testclient import TestClient

from tacit.accounting import Ledger, accountant
from tacit.mechanisms import Gaussian
from tacit.reports import card_table
from tacit.workbench import application, jobs, runs
from tacit.workbench.calculator import calculate
from tests.reports.test_card import a_card
from tests.workbench.conftest import AT, PORT, TOKEN


def test_every_page_answers_and_loads_nothing_from_elsewhere(client):
    for path in ("/", "/tables", "/calculator", "/jobs", "/budgets", "/compare", "/runs/first"):
        reply = client.get(path, params={"run": ["first", "second", "third"]})
        assert reply.status_code == 200, path
        assert "<h1>" in reply.text
        assert not re.findall(r"https?://", reply.text)
        links = re.findall(r'(?:href|src|action)="([^"]*)"', reply.text)
        assert all(link.startswith(("/", "#")) for link in links)
        assert "default-src 'none'" in reply.headers["content-security-policy"]
        assert "unsafe" not in reply.headers["content-security-policy"]


def test_runs_are_listed_filtered_and_compared_on_one_picture(client):
    text = client.get("/").text
    assert all(f'value="{name}"' in text for name in ("first", "second", "third"))
    assert "not signed" in text
    found = client.get("/", params={"q": "second digits"}).text
    assert 'value="second"' in found
    assert 'value="first"' not in found
    picture = client.get("/compare", params={"run": ["first", "second", "third"]}).text
    assert picture.count('class="curve curve-') == 6  # three lines and their swatches
    assert len(set(re.findall(r'<polyline[^>]*points="(4[^"]*)"', picture))) == 3


def test_the_list_has_dates_and_notes_and_is_sorted(client, stored):
    for place, name in enumerate(("second", "third", "first")):
        os.utime(stored / name / "card.json", (1_700_000_000 + 86_400 * place,) * 2)
    orders = {
        sort: re.findall(r'name="run" value="(\w+)"', client.get("/", params={"sort": sort}).text)
        for sort in runs.SORTS
    }
    assert orders["date"] == ["first", "third", "second"]
    assert orders["name"] == ["first", "second", "third"]
    assert orders["epsilon"] == ["third", "second", "first"]  # the larger the noise, the smaller epsilon
    assert "2023-11-1" in client.get("/").text
    assert client.get("/", params={"sort": "colour"}).status_code == 400
    posted = {"headers": {"origin": AT}, "follow_redirects": False}
    assert client.post("/runs/second/note", data={"note": "for the board\n<b>"}, **posted).status_code == 303
    text = client.get("/", params={"q": "board"}).text
    assert re.findall(r'name="run" value="(\w+)"', text) == ["second"]
    assert "for the board &lt;b&gt;" in text
    assert client.post("/runs/second/note", data={"note": "x" * 301}, **posted).status_code == 400
    assert client.post("/runs/none/note", data={"note": "x"}, **posted).status_code == 400
    client.post("/runs/second/note", data={"note": ""}, **posted)


def test_a_card_stands_on_a_page_with_a_way_back(client):
    text = client.get("/runs/first").text
    assert re.search(r'<a href="/\?token=[^"]*">All runs</a>', text)
    assert '<iframe class="card" src="/runs/first/card.html?' in text
    assert "statement.json" not in text  # the run has none
    assert "frame-ancestors 'self'" in client.get("/runs/first/card.html").headers["content-security-policy"]
    assert client.get("/runs/first/config.json").status_code == 400


def test_the_calculator_agrees_with_the_accountants():
    form = {"records": "60000", "batch_size": "256", "noise_multiplier": "1.1", "epochs": "10", "delta": "1e-5"}
    found = calculate(form)
    mechanism = Gaussian(1.1).poisson(256 / 60000) * found.steps
    assert found.epsilon == float(accountant("pld")(Ledger.of(mechanism)).epsilon(1e-5))
    target = {"epsilon": str(found.epsilon)}
    noise = calculate(form | target | {"solve": "noise_multiplier"})
    assert noise.epsilon <= found.epsilon
    assert noise.noise_multiplier == pytest.approx(1.1, rel=0.05)
    epochs = calculate(form | target | {"solve": "epochs"})
    assert epochs.epsilon <= found.epsilon
    assert epochs.epochs == pytest.approx(10, rel=0.05)
    assert calculate(form | {"sampler": "shuffled"}).epsilon > 2 * found.epsilon


@pytest.mark.parametrize("solve", ["noise_multiplier", "epochs"])
def test_a_walk_of_moves_is_answered_on_the_safe_side_and_close_to_it(solve):
    form = {"records": "20000", "batch_size": "200", "delta": "1e-6", "noise_multiplier": "1.2", "epochs": "10"}
    for target in (4.0, 0.6, 0.65, 7.0, 3.9):
        found = calculate(form | {"solve": solve, "epsilon": str(target)})
        assert 0.97 * target <= found.epsilon <= target


def test_answers_do_not_ask_the_exact_accountant_twice(monkeypatch):
    from tacit.workbench import calculator

    form = {"records": "20000", "batch_size": "200", "delta": "3e-7", "solve": "noise_multiplier", "epsilon": "3.1"}
    first = calculate(form)
    monkeypatch.setattr(calculator, "accountant", None)
    assert calculate(form) == first
    again = calculate(form | {"solve": "epsilon", "noise_multiplier": str(first.noise_multiplier)})
    assert again.epsilon == first.epsilon


def test_every_number_of_the_calculator_is_the_exact_accountants():
    found = calculate({"records": "60000", "batch_size": "256", "noise_multiplier": "1.1", "epochs": "5"})
    exact = accountant("pld")(Ledger.of(Gaussian(1.1).poisson(256 / 60000) * found.steps))
    detected, beta = found.curve
    np.testing.assert_array_equal(beta, exact.curve.beta(runs.ALPHA))
    assert detected == pytest.approx(float(exact.tpr(0.05)), abs=1e-4)  # between points of one profile
    assert detected >= float(exact.tpr(0.05))


def test_what_is_found_is_read_only_and_what_is_wrong_stands_beside_its_field(client):
    given = {"delta": ".5", "noise_multiplier": "", "epsilon": "nonsense"}
    text = client.get("/calculator", params=given).text
    assert re.search(r'name="epsilon"[^>]* readonly', text)
    assert text.count(" readonly") == 1
    assert "Delta must be below 1 / records = 0.0001; got 0.5." in re.search(r'id="delta-fault">([^<]*)', text)[1]
    assert "must be a number" in re.search(r'id="noise_multiplier-fault">([^<]*)', text)[1]
    assert not re.search(r'id="epsilon-fault">([^<]*)', text)[1]
    found = client.get("/calculator", params={"solve": "noise_multiplier", "epsilon": "2"}).text
    assert re.search(r'name="noise_multiplier" value="[\d.]+"[^>]* readonly', found)


def test_two_settings_of_the_calculator_stand_on_one_plot(client):
    kept = client.get("/calculator", params={"noise_multiplier": "2", "keep": "yes"}).text
    first = html.unescape(re.search(r'name="kept" value="([^"]*)"', kept)[1])
    assert first == "noise_multiplier=2"
    both = client.get("/calculator", params={"noise_multiplier": "3", "kept": first}).text
    assert both.count("<polyline") == 4  # two curves and their swatches
    assert "kept settings" in both
    assert "kept settings" not in client.get("/calculator", params={"kept": first, "forget": "yes"}).text


def test_a_comparison_reads_the_curves_that_were_computed_before(client, stored, monkeypatch):
    with runs._drawing:  # One thread draws at a time; that of another server may still do so.
        pass
    client.get("/")  # what the list shows is computed once its page has left
    monkeypatch.setattr(runs, "accountant", None)
    reply = client.get("/compare", params={"run": ["first", "second", "third"]})
    assert reply.status_code == 200
    assert reply.text.count('class="curve curve-') == 6


@pytest.mark.parametrize("field", ["records", "batch_size", "noise_multiplier", "epochs", "delta"])
@pytest.mark.parametrize("value", ["-1", "nan", "inf", "x", "1e30", "0"])
def test_bad_fields_of_the_calculator_give_a_sentence(client, field, value):
    reply = client.get("/calculator/answer", params={"token": TOKEN, field: value})
    assert reply.status_code == 200
    assert 'role="alert"' in reply.text
    assert "must be" in reply.text


def test_cards_are_shown_where_no_script_of_theirs_runs(client):
    reply = client.get("/runs/first/card.html")
    assert reply.status_code == 200
    assert reply.headers["content-security-policy"].startswith("sandbox;")
    assert client.get("/runs/first/audit.html").status_code == 400


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", f"127.0.0.1:{PORT + 1}", f"evil.example:{PORT}", ""])
def test_a_wrong_host_header_is_refused(client, host):
    assert client.get("/", headers={"host": host}).status_code == 421
    assert client.get("/healthz", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("token", [None, "", "a-token", TOKEN + "x", "é"])
def test_nothing_but_health_answers_without_the_token(stored, token):
    with TestClient(application(stored, token=TOKEN, port=PORT), base_url=AT) as other:
        params = {} if token is None else {"token": token}
        for path in ("/", "/calculator", "/jobs", "/static/workbench.css", "/runs/first/card.html", "/none"):
            reply = other.get(path, params=params)
            assert reply.status_code == 403, path
            assert "first" not in reply.text
        assert other.post("/jobs", params=params).status_code == 403
        assert other.get("/healthz").text == "ok"


def test_an_address_without_the_token_asks_for_it_and_keeps_its_settings(stored):
    with TestClient(application(stored, token=TOKEN, port=PORT), base_url=AT) as other:
        reply = other.get("/calculator", params={"records": '"><b>', "token": "stale"})
        assert reply.status_code == 403
        assert '<input type="hidden" name="records" value="&#34;&gt;&lt;b&gt;">' in reply.text
        assert 'name="token" required' in reply.text
        assert "stale" not in reply.text
        policy = reply.headers["content-security-policy"]
        script = re.search(r"<script>(.*?)</script>", reply.text, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"script-src 'sha256-{digest}'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "<form" not in other.get("/", headers={"host": "evil.example"}).text


@pytest.mark.parametrize(
    "origin", [None, "null", "http://evil.example", f"https://127.0.0.1:{PORT}", "http://127.0.0.1"]
)
def test_forms_of_other_sites_are_refused(client, origin):
    headers = {} if origin is None else {"origin": origin}
    assert client.post("/jobs", headers=headers, data={"kind": "train", "preset": "digits"}).status_code == 403


def test_requests_of_other_sites_are_refused(client):
    assert client.get("/", headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert client.get("/", headers={"sec-fetch-site": "same-site"}).status_code == 403


@pytest.mark.parametrize(
    "name",
    ["..", "../first", "%2e%2e%2fsecret", "..%5csecret", ".hidden", "link", "first%00", "-rf", "a" * 200, "none"],
)
def test_a_path_in_the_name_of_a_run_reaches_nothing(client, stored, name):
    secret = stored.parent / "secret"
    secret.mkdir(exist_ok=True)
    (secret / "card.json").write_text("{}")
    (secret / "card.html").write_text("the secret")
    if not (stored / "link").exists():
        (stored / "link").symlink_to(secret)
    for path, params in ((f"/runs/{name}/card.html", {}), ("/compare", {"run": unquote(name)})):
        reply = client.get(path, params=params)
        assert reply.status_code in (400, 404), path
        assert "the secret" not in reply.text
    assert client.get("/static/..%2fserver.py").status_code in (400, 404)
    assert "secret" not in client.get("/").text.replace(TOKEN, "")


def test_markup_in_names_and_queries_is_escaped(client, stored):
    folder = stored / "hostile"
    folder.mkdir(exist_ok=True)
    (folder / "card.json").write_text(json.dumps(card_table(a_card(dataset="<script>x</script>", model='"><img>'))))
    try:
        text = client.get("/", params={"q": '<script>"'}).text + client.get("/").text
    finally:
        (folder / "card.json").unlink()
        folder.rmdir()
    assert "<script>x" not in text
    assert "<img>" not in text
    assert "&lt;script&gt;" in text


@pytest.mark.parametrize("card", ["", "[]", "{", '{"guarantees": 3}', '{"guarantees": [1], "metrics": 5}', "\x00"])
def test_a_damaged_card_hides_no_other_run(client, stored, card):
    folder = stored / "damaged"
    folder.mkdir(exist_ok=True)
    (folder / "card.json").write_text(card)
    reply = client.get("/")
    (folder / "card.json").unlink()
    folder.rmdir()
    assert reply.status_code == 200
    assert 'value="first"' in reply.text


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"kind": "shell"},
        {"kind": "train", "preset": "../x.toml"},
        {"kind": "train", "preset": "digits", "epsilon": "-1"},
        {"kind": "train", "preset": "digits", "epsilon": "x"},
        {"kind": "train", "preset": "digits", "epochs": "0"},
        {"kind": "audit", "run": "../first"},
        {"kind": "audit", "run": ""},
        {"kind": "train", "preset": "d" * 30_000},
    ],
)
def test_bad_forms_start_nothing(client, stored, form):
    reply = client.post("/jobs", headers={"origin": AT}, data=form)
    assert reply.status_code == 400
    assert not list((stored / runs.FOLDER).glob("*.json"))
    assert client.get("/jobs/..%2f..%2fx").status_code in (400, 404)
    assert client.get("/jobs/0123456789abcdef").status_code == 400


def test_two_servers_on_one_store_see_each_others_jobs(tmp_path, monkeypatch):
    class Child:
        def poll(self):
            return None

    monkeypatch.setattr(jobs.subprocess, "Popen", lambda *_, **__: Child())
    servers = [
        TestClient(application(tmp_path, token=TOKEN, port=port), base_url=f"http://127.0.0.1:{port}")
        for port in (1, 2)
    ]
    for port, one in enumerate(servers, 1):
        headers = {"origin": f"http://127.0.0.1:{port}"}
        given = {"params": {"token": TOKEN}, "headers": headers, "data": {"kind": "train", "preset": "digits"}}
        assert one.post("/jobs", follow_redirects=False, **given).status_code == 303
    for one in servers:
        assert one.get("/jobs", params={"token": TOKEN}).text.count("data-job=") == 2
    assert len({job["run"] for job in jobs.list_jobs(tmp_path)}) == 2


def waited(root, number, until):
    """The state of a job once `until` holds of it."""
    for _ in range(3000):
        found = jobs.state(root, number)
        if until(found):
            return found
        time.sleep(0.05)
    raise AssertionError(found)


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_a_training_is_stopped_resumed_and_listed(tmp_path, killed):
    number = jobs.start(tmp_path, {"kind": "train", "preset": "digits", "epochs": "30"})
    with TestClient(application(tmp_path, token=TOKEN, port=PORT), base_url=AT) as page:
        posted = {"params": {"token": TOKEN}, "headers": {"origin": AT}}
        waited(tmp_path, number, lambda job: job["stage"] == "private training" and job["done"] > 0)
        if killed:
            os.kill(jobs.state(tmp_path, number)["process"], signal.SIGKILL)
        else:
            page.post(f"/jobs/{number}/stop", **posted)
        assert waited(tmp_path, number, lambda job: job["status"] != "running")["status"] == "stopped"
        assert "Resume" in page.get("/jobs", params={"token": TOKEN}).text
        assert page.post(f"/jobs/{number}/resume", **posted).status_code == 200
        found = waited(tmp_path, number, lambda job: job["status"] != "running")
        assert found["status"] == "finished", found
        assert page.post(f"/jobs/{number}/resume", **posted).status_code == 400
    (row,) = runs.list_runs(tmp_path)
    assert row["name"] == found["run"]


@pytest.mark.parametrize(
    ("status", "asked"),
    [
        (400, {"url": "/compare"}),
        (400, {"url": "/runs/none/card.html"}),
        (400, {"url": "/jobs/none"}),
        (403, {"url": "/", "headers": {"sec-fetch-site": "cross-site"}}),
        (404, {"url": "/none"}),
        (405, {"url": "/calculator", "method": "POST", "headers": {"origin": AT}}),
        (421, {"url": "/", "headers": {"host": "evil.example"}}),
    ],
)
def test_every_error_is_a_page_with_a_way_back(client, status, asked):
    reply = client.request(asked.pop("method", "GET"), **asked)
    assert reply.status_code == status
    assert 'role="alert"' in reply.text
    assert 'href="/' in reply.text
    assert "Content-Security-Policy" in reply.headers


def test_a_fault_is_a_page_that_quotes_no_data(stored, monkeypatch):
    def broken(*_, **__):
        raise ValueError("cell 4711")

    monkeypatch.setattr("tacit.workbench.runs.list_runs", broken)
    with TestClient(application(stored, token=TOKEN, port=PORT), base_url=AT, raise_server_exceptions=False) as made:
        reply = made.get("/", params={"token": TOKEN})
    assert reply.status_code == 500
    assert 'role="alert"' in reply.text
    assert "4711" not in reply.text
    assert "Content-Security-Policy" in reply.headers


def test_the_log_of_a_job_holds_no_message_that_may_quote_data(tmp_path, monkeypatch, capfd):
    def broken(*_):
        raise ValueError("cell 4711")

    (tmp_path / runs.FOLDER).mkdir()
    (tmp_path / runs.FOLDER / "job.json").write_text('{"kind": "train"}')
    monkeypatch.setitem(jobs._KINDS, "train", broken)
    assert jobs.main(tmp_path, "job") == 1
    told = "".join(capfd.readouterr())
    assert "ValueError at" in told
    assert "4711" not in told
