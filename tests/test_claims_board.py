"""The claims board: every row is computed from its file, and none is contradicted by one computation alone."""

import json

import pytest
from benchmarks import claims_board

pytest.importorskip("flint")
FEED = json.loads((claims_board.HOME / "feed.json").read_text())["claims"]


@pytest.fixture(scope="module")
def computed():
    return claims_board.rows(known={row["name"]: row["second"] for row in FEED})


def test_the_feed_and_the_page_are_what_the_files_give(computed):
    assert computed == FEED
    assert (claims_board.HOME / "index.md").read_text() == claims_board.page(computed)


def test_a_contradiction_is_confirmed_by_a_second_computation_and_says_what_makes_the_claim_true(computed):
    contradicted = [row for row in computed if row["verdict"] == claims_board.CONTRADICTED]
    assert contradicted
    for row in contradicted:
        assert row["second"] == "confirmed"
        assert float(row["proven_lower"]) > row["epsilon"]
        assert len(row["source"]["assumes"]) > 50


def test_every_row_names_its_source_and_a_second_computation_agreed(computed):
    assert len(computed) >= 10
    for row in computed:
        assert row["second"] in (
            "confirmed",
            "signed",
            *([] if row["verdict"] == "contradicted" else ["same bound, summed anew"]),
        ), row["name"]
        assert {"work", "place", "url", "says", "assumes"} == set(row["source"]), row["name"]


def test_a_signed_statement_is_a_row_too(tmp_path):
    from tacit.accounting import Ledger
    from tacit.mechanisms import Gaussian
    from tacit.statement import AuthorKey, Subject, sealed, statement

    content = sealed(statement(Subject("people", owner="Ada"), Ledger.of(Gaussian(4.0))), AuthorKey.new())
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "ada.json").write_bytes(content)
    (row,) = claims_board.rows(tmp_path)
    assert (row["name"], row["verdict"], row["second"]) == ("ada", "valid", "signed")
    assert "ada" in claims_board.page([row])
