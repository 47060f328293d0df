"""The table of refusals holds a sentence for every wrong case, and no other; the tests of the cases compare them."""

import json

import pytest

from tests.refusals import TABLE, catalogues


@pytest.mark.parametrize("catalogue", catalogues())
def test_every_wrong_case_has_a_sentence(catalogue):
    table = json.loads(TABLE.read_text())
    assert list(table) == list(catalogues())
    assert sorted(table[catalogue]) == sorted(catalogues()[catalogue][0])
    assert "nothing" not in table[catalogue].values()
