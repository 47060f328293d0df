"""Records as CSV text come back exactly: every type, every digit, every absent key."""

import csv
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tacit_papers.stored import common, from_csv, joined, to_csv, without

# The first draw of a text builds a table of Unicode, which takes seconds on a busy machine.
patient = settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(max_codepoint=0x17F), max_size=8)
)
numbers = st.text("01.-einfaNl \"'", max_size=6)  # text that looks like JSON
keys = st.text(st.characters(max_codepoint=0x17F), max_size=4).filter(str.isprintable) | st.text(".[]\\", max_size=4)
values = st.recursive(
    scalars | numbers,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)
sections = st.dictionaries(keys, values, max_size=4)
records = st.fixed_dictionaries({"seconds": st.floats(), "settings": sections, "value": values})


def exact(value):
    """A text that differs wherever a type, a digit or a key does; NaN equals itself in it."""
    return json.dumps(value, sort_keys=True)


@patient
@given(st.lists(records, max_size=4))
def test_records_come_back_exactly(given_records):
    assert exact(from_csv(to_csv(given_records, lines_of="value"))) == exact(given_records)


@patient
@given(st.lists(records, min_size=1, max_size=4))
def test_settings_common_to_all_records_are_taken_out_and_put_back(given_records):
    given_records = [*given_records, given_records[0]]
    shared = common([record["settings"] for record in given_records])
    rest = [record | {"settings": without(record["settings"], shared)} for record in given_records]
    read = from_csv(to_csv(rest, lines_of="value"))
    again = [record | {"settings": joined(record.get("settings", {}), shared)} for record in read]
    assert exact(again) == exact(given_records)


def test_a_list_of_dictionaries_takes_a_line_for_each_of_them():
    text = to_csv(
        [{"seed": 0, "value": [{"a": 1.5, "b": None}, {"a": -0.0}]}, {"seed": 1, "value": []}], lines_of="value"
    )
    assert text == "seed,value[].a,value[].b,value\n0,1.5,null,\n,-0.0,,\n1,,,[]\n"


def test_columns_asked_for_are_written_first_and_even_where_they_are_empty():
    assert to_csv([{"a": "x", "b": "1"}], columns=["c", "b"]) == 'c,b,a\n,"""1""",x\n'


def test_a_key_that_no_header_can_hold_is_refused():
    with pytest.raises(ValueError, match="printable"):
        to_csv([{"a\r": 1}])


def test_a_line_cut_short_is_refused():
    with pytest.raises(ValueError, match="as many cells as the header"):
        from_csv("a,b\n1\n")


def test_records_that_were_read_leave_the_limit_of_cells_as_it_was():
    limit = csv.field_size_limit()
    assert from_csv(to_csv([{"values": "1" * (limit + 1)}])) == [{"values": "1" * (limit + 1)}]
    assert csv.field_size_limit() == limit
