"""Old keyword names keep working for one version."""

import pytest

from tacit import check
from tacit.errors import InvalidInput


@check.renamed(using="accountant")
def cost(*, accountant="pld"):
    return accountant


def test_an_old_name_is_taken_with_a_warning_at_the_callers_line():
    with pytest.warns(DeprecationWarning, match="using is now called accountant") as caught:
        assert cost(using="rdp") == "rdp"
    assert caught[0].filename == __file__


def test_the_new_name_is_taken_in_silence(recwarn):
    assert cost(accountant="rdp") == "rdp"
    assert not recwarn


def test_both_names_at_once_are_refused():
    with pytest.raises(InvalidInput, match="accountant must be given once"):
        cost(using="rdp", accountant="pld")
