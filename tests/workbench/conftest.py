"""A folder of three runs with cards and ledgers, and a client with the token."""

from hashlib import sha256

import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")

from starlette.testclient import TestClient

from tacit.accounting import Ledger, account
from tacit.mechanisms import Gaussian
from tacit.reports import write_card
from tacit.workbench import application
from tests.reports.test_card import a_card

TOKEN, PORT = "a-token-of-the-test", 8765
AT = f"http://127.0.0.1:{PORT}"


@pytest.fixture(scope="session")
def stored(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    for name, noise in (("first", 4.0), ("second", 6.0), ("third", 9.0)):
        ledger = Ledger.of(Gaussian(noise) * 4)
        folder = root / name
        folder.mkdir()
        ledger.save(folder / "ledger.json")
        card = a_card(ledger=ledger, account=account(ledger, delta=1e-5, accountants=["pld", "rdp"]))
        write_card(card, folder, digests={"ledger.json": sha256((folder / "ledger.json").read_bytes()).hexdigest()})
    return root


@pytest.fixture
def client(stored):
    with TestClient(application(stored, token=TOKEN, port=PORT), base_url=AT) as made:
        made.params = {"token": TOKEN}
        yield made
