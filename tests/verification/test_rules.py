"""Every rule says what its operation does: exhaustively over the types of small arguments."""

import pytest

from tests.verification.meaning import TAKEN, taken
from tests.verification.rule_cases import CASES


@pytest.mark.parametrize("name", sorted({case.name for case in CASES}))
def test_the_type_of_a_result_is_what_the_operation_does(name):
    assert taken(name) == TAKEN[name]
