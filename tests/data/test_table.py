"""`table`: a person's own CSV or Parquet file, encoded by declarations alone."""

import gzip
import sys
import warnings

import numpy as np
import pandas
import pytest

from tacit.data import table
from tacit.errors import InvalidInput, LeakWarning, MissingData, TacitError

ROWS = [
    ("age", "job", "id", "income"),
    ("20", "nurse", "a1", "low"),
    ("45", "smith", "a2", "high"),
    ("70", "nurse", "a3", "low"),
    ("120", "judge", "a4", "high"),
    ("-5", "smith", "a5", "high"),
]
DECLARED = {
    "target": "income",
    "classes": ["low", "high"],
    "bounds": {"age": (20, 70)},
    "categories": {"job": ["judge", "nurse", "smith"]},
    "drop": ["id"],
}


@pytest.fixture
def write(tmp_path):
    def csv(rows=ROWS, name="people.csv", **settings):
        path = tmp_path / name
        path.write_text("".join(",".join(row) + "\n" for row in rows), **{"encoding": "utf-8", **settings})
        return path

    return csv


def changed(row: int, column: int, value: str) -> list[tuple[str, ...]]:
    rows = [list(line) for line in ROWS]
    rows[row][column] = value
    return [tuple(line) for line in rows]


def pooled(dataset):
    """Features and labels of all rows, ordered by features: the split is random."""
    x, y = (np.concatenate(parts) for parts in ((dataset.x_train, dataset.x_test), (dataset.y_train, dataset.y_test)))
    order = np.lexsort(x.T)
    return x[order], y[order]


def test_encoding_by_hand(write):
    dataset = table(write(), **DECLARED)
    assert dataset.feature_names == ("age", "job=judge", "job=nurse", "job=smith")
    x, y = pooled(dataset)
    expected = np.array([[0, 0, 1, 0], [1, 0, 1, 0], [0, 0, 0, 1], [0.5, 0, 0, 1], [1, 1, 0, 0]], dtype=np.float32)
    assert np.array_equal(x, expected[np.lexsort(expected.T)])
    assert dict(zip(map(tuple, x), y, strict=True)) == dict(zip(map(tuple, expected), [0, 0, 1, 1, 1], strict=True))
    assert dataset.bounds == (0.0, 1.0)
    assert dataset.classes == ("low", "high")
    assert dataset.name == "people"
    assert dataset.leaks == ()
    assert dataset.public_facts[1:] == ("classes", "bounds of age", "categories of job")


def test_declared_tables_do_not_warn(write):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table(write(), **DECLARED, strict=True)


def test_parquet_gives_what_csv_gives(write, tmp_path):
    path = tmp_path / "people.parquet"
    frame = pandas.DataFrame(ROWS[1:], columns=list(ROWS[0]))
    frame["age"] = frame["age"].astype("int32")
    frame["job"] = frame["job"].astype("category")
    frame.to_parquet(path)
    a, b = table(path, **DECLARED), table(write(), **DECLARED)
    assert np.array_equal(a.x_train, b.x_train)
    assert np.array_equal(a.y_test, b.y_test)
    assert a.feature_names == b.feature_names


def test_a_dropped_or_target_column_may_hold_anything(write):
    dataset = table(write(changed(2, 2, "")), **DECLARED)
    assert "id" not in dataset.feature_names
    assert "income" not in dataset.feature_names


def test_numbers_may_be_classes_and_categories(write):
    rows = [("grade", "pass"), ("1", "0"), ("2", "1"), ("1", "1"), ("2", "0")]
    dataset = table(write(rows), target="pass", classes=[0, 1], categories={"grade": [1, 2]}, test_fraction=0.25)
    assert np.array_equal(pooled(dataset)[0].sum(axis=1), [1, 1, 1, 1])


def test_spaces_quotes_and_marks_are_understood(write):
    rows = [(" age", '"job"', "id ", "income"), *[(f" {a} ", f'"{b}"', c, f"{d} ") for a, b, c, d in ROWS[1:]]]
    dataset = table(write(rows, encoding="utf-8-sig"), **DECLARED)
    assert np.array_equal(dataset.x_train, table(write(), **DECLARED).x_train)


@pytest.mark.parametrize(
    ("undeclared", "leak", "how"),
    [
        ("bounds", "bounds of age", r"bounds=\{'age': \(low, high\), ...\}"),
        ("categories", "categories of job", r"categories=\{'job': \[...\], ...\}"),
        ("classes", "classes", r"classes=\[...\]"),
    ],
)
def test_undeclared_facts_leak(undeclared, leak, how, write):
    settings = {**DECLARED, undeclared: None}
    with pytest.warns(LeakWarning, match=f"{leak} came from private data.* Pass {how}"):
        dataset = table(write(), **settings)
    assert dataset.leaks == (leak,)
    assert not any(fact.startswith(undeclared) for fact in dataset.public_facts)
    with pytest.raises(InvalidInput, match=f"{leak} must be declared as public in strict mode"):
        table(write(), **settings, strict=True)


def test_a_leak_is_reported_where_table_was_called(write):
    with pytest.warns(LeakWarning) as caught:
        table(write(), **{**DECLARED, "bounds": None})
    assert caught[0].filename == __file__


@pytest.mark.filterwarnings("ignore::tacit.errors.LeakWarning")
def test_what_undeclared_columns_give(write):
    dataset = table(write(), **{**DECLARED, "bounds": None, "categories": None, "drop": []})
    assert dataset.feature_names[0] == "age"
    assert dataset.feature_names[1:4] == ("job=judge", "job=nurse", "job=smith")
    x, _ = pooled(dataset)
    assert np.allclose(sorted(x[:, 0]), (np.array([-5, 20, 45, 70, 120]) + 5) / 125)
    assert dataset.leaks == ("bounds of age", "categories of id, job")


@pytest.mark.filterwarnings("ignore::tacit.errors.LeakWarning")
def test_a_constant_undeclared_column_is_zero(write):
    rows = [("c", "y"), *[("7", str(place % 2)) for place in range(8)]]
    assert not table(write(rows), target="y", classes=[0, 1]).x_train.any()


@pytest.mark.filterwarnings("ignore::tacit.errors.LeakWarning")
def test_free_text_is_not_turned_into_a_feature_for_each_record(write):
    rows = [("note", "y"), *[(f"text {place}", str(place % 2)) for place in range(300)]]
    with pytest.raises(InvalidInput, match=r"note must be declared.*300 different texts.*drop="):
        table(write(rows), target="y", classes=[0, 1])


@pytest.mark.parametrize("cell", ["", "nan", "inf", "-inf", "unknown", "1e999"])
def test_cells_that_are_no_finite_number_are_named(cell, write):
    sentence = r"table must be finite numbers .* rows 2, columns age.* rows count from 0"
    with pytest.raises(InvalidInput, match=sentence):
        table(write(changed(3, 0, cell)), **DECLARED)


@pytest.mark.parametrize("value", [None, np.nan, np.inf])
def test_missing_numbers_of_a_parquet_file_are_named(value, tmp_path):
    frame = pandas.DataFrame({"a": [0.5, value, 1.0, 0.0], "y": ["p", "q", "p", "q"]})
    frame.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(InvalidInput, match="rows 1, columns a"):
        table(tmp_path / "t.parquet", target="y", classes=["p", "q"], bounds={"a": (0, 1)})


@pytest.mark.parametrize("cell", ["", "baker", "Nurse"])
def test_cells_outside_the_declared_categories_are_named(cell, write):
    with pytest.raises(InvalidInput, match=r"one of the declared categories .* rows 4, columns job"):
        table(write(changed(5, 1, cell)), **DECLARED)


def test_missing_may_be_a_category(write):
    kinds = {"job": ["judge", "nurse", "smith", ""]}
    dataset = table(write(changed(5, 1, "")), **{**DECLARED, "categories": kinds})
    assert pooled(dataset)[0][:, dataset.feature_names.index("job=")].sum() == 1


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([], "at least one row and one column"),
        (ROWS[:1], "at least one row and one column"),
        (ROWS[:2], "rows must be an integer >= 2; got 1"),
        ([*ROWS, ("1", "nurse", "a6")], "as many fields in every row as the header's 4; got '3 in rows 5'"),
        ([*ROWS, ("1", "nurse", "a6", "low", "x")], "as many fields in every row as the header's 4; got '5 in rows 5'"),
        ([("age", "age", "id", "income"), *ROWS[1:]], r"columns have different names; got 'one name for columns 1, 2'"),
        (changed(2, 1, '"smith'), "table must be well-formed CSV; got 'unexpected end of data'"),
        (changed(1, 3, "middle"), r"labels of the declared classes low, high; got values of the data"),
        (changed(1, 3, ""), r"labels of the declared classes low, high; got values of the data"),
        ([ROWS[0], ROWS[1], ROWS[3], ROWS[1], ROWS[3]], "labels of at least two classes"),
    ],
)
def test_bad_tables(rows, sentence, write):
    with pytest.raises(InvalidInput, match=sentence):
        table(write(rows), **DECLARED)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"target": "incme"}, r"one of the 4 columns; got 'incme'\. The nearest are 'income'"),
        ({"bounds": {"agee": (0, 1)}}, r"key of bounds must be one of .*Did you mean 'age'\?"),
        ({"categories": {"jobs": ["a", "b"]}}, r"key of categories must be one of .*Did you mean 'job'\?"),
        ({"drop": ["ids"]}, r"drop must be one of .*Did you mean 'id'\?"),
        ({"bounds": {"income": (0, 1)}}, "key of bounds must be one of age, job; got 'income'"),
        ({"bounds": {"age": (70, 20)}}, r"high of bounds of age must be in \(70, inf\)"),
        ({"bounds": {"age": (20, 20)}}, r"high of bounds of age must be in \(20, inf\)"),
        ({"bounds": {"age": (0, float("nan"))}}, "high of bounds of age must be"),
        ({"bounds": {"age": 3}}, r"bounds of age must be a pair \(low, high\); got 3"),
        ({"bounds": {"age": (20, 70), "job": (0, 1)}}, r"declared either by bounds or by categories; got \['job'\]"),
        ({"categories": {"job": ["nurse"]}}, "categories of job must be at least two different names"),
        ({"classes": ["low"]}, "classes must be at least two different names"),
        ({"test_fraction": 1.5}, "test_fraction must be in"),
        ({"drop": ["id", "age", "job"], "bounds": {}, "categories": {}}, "at least one column besides the target"),
    ],
)
def test_bad_declarations(changes, sentence, write):
    with pytest.raises(InvalidInput, match=sentence):
        table(write(), **{**DECLARED, **changes})


def test_files_that_are_no_table(write, tmp_path):
    with pytest.raises(MissingData, match=r"path must be an existing CSV or Parquet file; got .*absent\.csv"):
        table(tmp_path / "absent.csv", **DECLARED)
    with pytest.raises(InvalidInput, match=r"whose name ends in \.csv.*\.parquet.*people\.xlsx"):
        table(write(name="people.xlsx"), **DECLARED)
    with pytest.raises(InvalidInput, match="table must be a Parquet file"):
        table(write(name="people.parquet"), **DECLARED)
    with pytest.raises(InvalidInput, match="table must be UTF-8 text"):
        table(write(changed(1, 1, "pâtissier"), encoding="latin-1"), **DECLARED)


@pytest.mark.parametrize("module", ["pandas", "pyarrow.parquet"])
def test_missing_modules_are_asked_for_by_name(module, write, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    sentence = rf"{module} must be installed to read a Parquet file.*pip install 'tacit\[train\]'"
    with pytest.raises(TacitError, match=sentence):
        table(write(name="people.parquet"), **DECLARED)


def test_csv_needs_no_extra(write, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert table(write(), **DECLARED).name == "people"


@pytest.mark.parametrize("ending", ["gz", "xz", "bz2"])
def test_compressed_csv(ending, write, tmp_path):
    path = tmp_path / f"people.csv.{ending}"
    pandas.DataFrame(ROWS[1:], columns=list(ROWS[0])).to_csv(path, index=False)
    assert np.array_equal(table(path, **DECLARED).x_train, table(write(), **DECLARED).x_train)


def test_blank_lines_are_no_rows(write):
    assert np.array_equal(table(write([*ROWS, (), ()]), **DECLARED).x_train, table(write(), **DECLARED).x_train)


def test_a_compressed_file_with_a_wrong_byte_is_refused(write):
    content = bytearray(gzip.compress(write().read_bytes()))
    content[10] = 0xFF  # the kind of the first block
    path = write().with_name("people.csv.gz")
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match="table must be well-formed CSV"):
        table(path, **DECLARED)


def test_only_python_reads_an_underscore_in_a_number(write):
    with pytest.raises(InvalidInput, match=r"rows 2, columns age"):
        table(write(changed(3, 0, "0_1")), **DECLARED)


def test_a_file_with_semicolons_gets_a_hint(tmp_path):
    (tmp_path / "t.csv").write_text("age;job;y\n1;nurse;0\n2;smith;1\n")
    with pytest.raises(InvalidInput, match="another separator"):
        table(tmp_path / "t.csv", target="y", classes=[0, 1])
