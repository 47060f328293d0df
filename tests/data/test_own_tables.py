"""Own tables: formats, missing cells, dates, patterns, regression, ratings, users and weights, and the drafted TOML."""

import tomllib
import warnings
from datetime import date

import numpy as np
import pytest

from tacit.cli import main
from tacit.data import table
from tacit.data.delimited import TableFormat, read_columns
from tacit.data.draft import draft
from tacit.data.schema import Column, Schema
from tacit.errors import InvalidInput, LeakWarning, MissingData

ISO = """age;seen;lab_1;lab_2;ward;who;weight;sick
50;2020-01-01;1,5;NA;a;p1;1;no
100;2020-12-31;;-9;b;p1;8;yes
0;2020-07-01;0;10;;p2;2;no
25;2021-05-05;10;5;a;p3;0;yes
"""
FORM = TableFormat(separator=";", decimal=",")
DECLARED = {
    "target": "sick",
    "classes": ["no", "yes"],
    "bounds": {"age": (0, 100), "lab_*": (0, 10)},
    "dates": {"seen": (date(2020, 1, 1), "2020-12-31")},
    "categories": {"ward": ["a", "b", ""]},
    "missing": ["NA", -9],
    "fill": {"lab_*": 5},
    "indicator": ["lab_2"],
    "drop": ["who", "weight"],
    "form": FORM,
    "strict": True,
    "test_fraction": 0.25,
}


def write(folder, text, name="t.csv", encoding="utf-8"):
    (folder / name).write_bytes(text.encode(encoding))
    return folder / name


def pooled(dataset):
    x = np.concatenate([dataset.x_train, dataset.x_test])
    return x[np.lexsort(x.T[::-1])]


def test_missing_cells_dates_and_patterns_are_encoded_by_hand(tmp_path):
    dataset = table(write(tmp_path, ISO), **DECLARED)
    assert dataset.feature_names == (
        *("age", "seen", "lab_1", "lab_2", "lab_2 is missing", "ward=a", "ward=b", "ward="),
    )
    expected = [
        [0, 182 / 365, 0, 1, 0, 0, 0, 1],
        [0.25, 1, 1, 0.5, 0, 1, 0, 0],
        [0.5, 0, 0.15, 0.5, 1, 1, 0, 0],
        [1, 1, 0.5, 0.5, 1, 0, 1, 0],
    ]
    assert np.allclose(pooled(dataset), expected, atol=1e-6)
    assert dataset.leaks == ()


def test_the_schema_encodes_later_rows_alike_and_survives_json(tmp_path):
    path = write(tmp_path, ISO)
    dataset = table(path, **DECLARED)
    again = Schema.from_spec(dataset.schema.spec()).encode(read_columns(path, FORM))
    assert np.array_equal(again[np.lexsort(again.T[::-1])], pooled(dataset))


def test_a_name_counts_before_a_pattern_and_a_longer_pattern_before_a_shorter(tmp_path):
    bounds = {"*": (0, 1), "lab_*": (0, 5), "lab_2": (0, 10), "age": (0, 100)}
    schema = table(write(tmp_path, ISO), **{**DECLARED, "bounds": bounds, "indicator": []}).schema
    assert [column.high for column in schema.columns[2:4]] == [5, 10]
    assert [column.kind for column in schema.columns] == ["number", "date", "number", "number", "category"]


def test_one_pattern_declares_446_columns(tmp_path):
    names = [f"sensor{place}" for place in range(446)]
    text = "\n".join([",".join([*names, "y"]), *[",".join(["0.5"] * 446 + [str(row % 2)]) for row in range(10)]])
    dataset = table(write(tmp_path, text), target="y", classes=[0, 1], bounds={"sensor*": (0, 1)}, strict=True)
    assert dataset.x_train.shape[1] == 446


def test_a_regression_has_values_in_a_declared_range(tmp_path):
    text = "a,y\n" + "".join(f"{row / 10},{row}\n" for row in range(10))
    declared = {"target": "y", "task": "regression", "bounds": {"a": (0, 1)}}
    dataset = table(write(tmp_path, text), **declared, target_range=[0, 20], strict=True)
    assert dataset.task == "regression"
    assert dataset.target_range == (0.0, 20.0)
    with pytest.warns(LeakWarning, match="target_range"):
        assert table(tmp_path / "t.csv", **declared).leaks == ("target_range",)


def test_ratings_without_a_header_are_pairs_of_positions(tmp_path):
    rows = [(user, item, 1 + user, 99) for user in range(1, 5) for item in "ab"]
    path = write(tmp_path, "".join("\t".join(map(str, row)) + "\n" for row in rows), name="u.data")
    form = TableFormat(separator="\t", header=False, names=("user", "item", "stars", "time"))
    dataset = table(
        path,
        target="stars",
        task="ratings",
        classes=[1, 2, 3, 4, 5],
        bounds={"user": (1, 9)},
        categories={"item": ["a", "b", "c"]},
        drop=["time"],
        form=form,
        strict=True,
    )
    assert dataset.x_train.dtype == np.int64
    assert dataset.bounds[1].tolist() == [8, 2]
    assert sorted(map(tuple, np.concatenate([dataset.x_train, dataset.x_test]))) == [
        (user, item) for user in range(4) for item in range(2)
    ]


def test_users_are_held_out_as_a_whole_and_one_by_one(tmp_path):
    rows = [f"{row % 40},{row % 2},u{row // 5}" for row in range(200)]
    declared = {"target": "y", "classes": [0, 1], "bounds": {"a": (0, 40)}, "user": "u", "strict": True}
    path = write(tmp_path, "a,y,u\n" + "\n".join(rows))
    dataset = table(path, **declared)
    assert dataset.feature_names == ("a",)
    assert len(dataset.units) == len(dataset.y_train)
    assert (np.bincount(dataset.units)[np.unique(dataset.units)] == 5).all()
    # Another user's absence moves nobody from one side to the other.
    fewer = table(write(tmp_path, "a,y,u\n" + "\n".join(rows[:-5]), name="fewer.csv"), **declared)
    assert len(dataset.y_train) - len(fewer.y_train) in (0, 5)
    assert len(dataset.y_train) + len(dataset.y_test) == len(fewer.y_train) + len(fewer.y_test) + 5


def test_no_weight_counts_more_than_the_declared_bound(tmp_path):
    settings = {**DECLARED, "drop": ["who"], "weights": "weight", "weight_bound": 4}
    dataset = table(write(tmp_path, ISO), **settings)
    assert set(dataset.weights.tolist()) <= {0.0, 0.25, 0.5, 1.0}


def test_what_was_read_off_the_data_is_a_leak(tmp_path):
    settings = {**DECLARED, "strict": False, "read_from_data": ["bounds"]}
    with pytest.warns(LeakWarning, match="bounds came from private data"):
        assert table(write(tmp_path, ISO), **settings).leaks == ("bounds",)
    with pytest.raises(InvalidInput, match="bounds must be declared as public in strict mode"):
        table(tmp_path / "t.csv", **{**settings, "strict": True})


SECRET = "Szymborska"
BAD = [
    ({"separator": ";;"}, "separator must be one character"),
    ({"decimal": ";"}, "decimal must be one of"),
    ({"decimal": "."}, "finite numbers in every column with bounds"),
    ({"encoding": "utf-99"}, "encoding must be one that Python knows"),
    ({"header": False}, "names must be given where header = false"),
    ({"names": ["a", "a"], "header": False}, "columns have different names"),
    ({"names": ["a", "b"], "header": False}, "as many fields in every row as the names' 2"),
    ({"target": "sik"}, "nearest are 'sick'"),
    ({"task": "regresion"}, "Did you mean 'regression'"),
    ({"task": "regression"}, "classes must be left out for a regression"),
    ({"target_range": [0, 1]}, "target_range must be left out"),
    ({"bounds": {"age": [0, 100], "lab*x": [0, 1]}}, "pattern of bounds must be one that some column matches"),
    ({"bounds": {"*_1": [0, 1], "lab*": [0, 2], "l*_1": [0, 1]}}, "two patterns of one length match it"),
    ({"bounds": {"lab_*": [0, 10]}}, r"Under \[table.bounds\] declare age = \[low, high\]"),
    ({"bounds": {"age": [100, 0], "lab_*": [0, 10]}}, "high of bounds of age must be in"),
    ({"dates": {"seen": ["2020-01-01"]}}, r"dates of seen must be a list \[first, last\]"),
    ({"dates": {"seen": ["2020-12-31", "2020-01-01"]}}, "first before last"),
    ({"dates": {"seen": ["01.01.2020", "31.12.2020"]}}, "dates of seen must be"),
    ({"dates": {"seen": ["01.01.2020", "31.12.2020", "%d.%m.%Y"]}}, "dates in every column with a range of dates"),
    ({"fill": {}}, "fill of lab_2 must be given for every column with an indicator"),
    ({"fill": {}, "indicator": []}, r"rows 0, 1, columns lab_1, lab_2.*declare a constant under \[table.fill\]"),
    ({"fill": {"lab_*": 11}}, r"fill of lab_1 must be in \[0, 10\]"),
    ({"fill": {"lab_*": 5, "ward": 1}}, 'Declare "" as one of its categories'),
    ({"fill": {"lab_*": 5, "seen": "1999-01-01"}}, "fill of seen must be a date in the declared range"),
    ({"missing": []}, "list their codes, such as .NA., in missing"),
    ({"missing": "NA"}, "missing must be a list"),
    ({"categories": {"ward": ["a", "b"]}}, 'declare every value under .*"" for a missing cell'),
    ({"drop": ["weight"], "categories": {"ward": ["a", "b", ""]}}, r"Under \[table.categories\] declare who"),
    ({"drop": ["wight"]}, "Did you mean 'weight'"),
    ({"weights": "weight"}, "weights must be given together with weight_bound"),
    ({"weights": "weight", "weight_bound": 0}, "weight_bound must be in"),
    (
        {"weights": "age", "weight_bound": 1, "bounds": {"lab_*": [0, 10], "age": [0, 1]}},
        "key of bounds must be one of",
    ),
    ({"user": "whom"}, "nearest are 'who'"),
    ({"path": "absent.csv"}, "looked for at '.*absent.csv'. A relative path is one from the TOML file on"),
    ({"path": "t.xlsx"}, "must be an existing CSV or Parquet file"),
    ({"classes": ["no", "maybe"]}, "labels of the declared classes"),
    ({"targt": "x"}, r"key of \[table\] must be one of"),
    ({"test_fraction": 2}, "test_fraction must be in"),
    ({"read_from_data": ["bounds"]}, "bounds must be declared as public in strict mode"),
    ({"task": "ratings", "classes": ["no", "yes"]}, "must be"),
]


def toml(changes):
    section = {
        "path": "t.csv",
        "separator": ";",
        "decimal": ",",
        "target": "sick",
        "classes": ["no", "yes"],
        "missing": ["NA", "-9"],
        "indicator": ["lab_2"],
        "drop": ["who", "weight"],
        "bounds": {"age": [0, 100], "lab_*": [0, 10]},
        "dates": {"seen": ["2020-01-01", "2020-12-31"]},
        "categories": {"ward": ["a", "b", ""]},
        "fill": {"lab_*": 5},
        "test_fraction": 0.25,
    } | changes
    return {"dataset": "table", "epsilon": 1.0, "delta": 1e-3, "strict": True, "table": section}


@pytest.mark.parametrize(("changes", "sentence"), BAD)
def test_bad_tables_get_a_sentence_without_a_cell(changes, sentence, tmp_path):
    from tacit.runs import config_from_table
    from tacit.runs.builders import dataset_of

    text = ISO.replace("p1", SECRET).replace("100;", "77777;")
    write(tmp_path, text)
    settings = toml(changes)
    settings["table"]["folder"] = str(tmp_path)
    with pytest.raises((InvalidInput, MissingData), match=sentence) as caught:
        dataset_of(config_from_table(settings), None)
    assert SECRET not in str(caught.value)
    assert "77777" not in str(caught.value)
    assert "bounds=" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("0,0,1\n1,1,0\n", "one name for columns 1, 2'. If no line of the file names the columns"),
        (f"{SECRET},{SECRET},no\nx,y,yes\n", "one name for columns 1, 2"),
        (f"{SECRET},3,no\nx,4,yes\n", "it holds numbers. If no line"),
        (f"{SECRET},x,no\ny,z,yes\n", "no declared name is in it. If no line"),
        ("a,sick\n3,5,no\n1,5,yes\n", "Numbers such as 3,5 need another separator"),
    ],
)
def test_a_file_without_names_is_explained_and_not_quoted(text, sentence, tmp_path):
    with pytest.raises(InvalidInput, match=sentence) as caught:
        table(write(tmp_path, text), target="sick", classes=["no", "yes"])
    assert SECRET not in str(caught.value)


def test_a_path_is_one_from_the_toml_file_on(tmp_path, monkeypatch):
    from tacit.runs import read_config
    from tacit.runs.builders import dataset_of

    (tmp_path / "inner").mkdir()
    write(tmp_path / "inner", "a,y\n" + "0.5,0\n0.1,1\n" * 4)
    home = tmp_path / "inner" / "mine.toml"
    home.write_text(
        'dataset = "table"\nepsilon = 1.0\n[table]\npath = "t.csv"\ntarget = "y"\nclasses = [0, 1]\nbounds.a = [0, 1]\n'
    )
    monkeypatch.chdir(tmp_path)
    assert len(dataset_of(read_config("inner/mine.toml", {}), None).y_train) == 6


def test_a_user_column_makes_the_user_the_unit():
    from tacit.runs import config_from_table

    config = config_from_table(toml({"user": "who", "drop": ["weight"]}))
    assert config.section("sampling").type == "grouped_poisson"
    with pytest.raises(InvalidInput, match="method must be gradient"):
        config_from_table(toml({"user": "who"}) | {"method": "objective"})
    with pytest.raises(InvalidInput, match=r"type of \[sampling\] must be grouped_poisson with users = 'who'"):
        config_from_table(toml({"user": "who"}) | {"sampling": {"type": "poisson"}})


def test_a_draft_shows_no_value_unless_it_looks(tmp_path):
    path = write(tmp_path, ISO.replace("p1", SECRET))
    blind = draft(path).text
    assert SECRET not in blind
    assert "2020-12-31" not in blind
    assert "read_from_data" not in blind
    parsed = tomllib.loads(blind)["table"]
    assert parsed["separator"] == ";"
    assert parsed["decimal"] == ","
    assert '# "lab_*"' not in blind  # two columns need no pattern
    assert "# age = [?, ?]" in blind


def test_a_draft_that_looked_says_so_and_can_be_trained(tmp_path):
    path = write(tmp_path, ISO, encoding="cp1252")
    found = draft(path, look=True)
    settings = tomllib.loads(found.text)
    section = settings["table"]
    assert section["read_from_data"]
    assert settings["strict"] is False
    assert section["bounds"]["age"] == [0.0, 100.0]
    assert section["missing"] == ["NA"]
    del section["path"], section["separator"], section["decimal"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert len(table(path, **section, form=FORM).leaks) == 5


def test_the_command_writes_a_draft_once(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, ISO, encoding="utf-8")
    assert main(["table", "init", "t.csv"]) == 0
    assert tomllib.loads((tmp_path / "t.toml").read_text())["table"]["target"] == "sick"
    assert main(["table", "init", "t.csv"]) == 2
    assert "out must be a file that is not there yet" in capsys.readouterr().err
    write(tmp_path, "1\t2\t5\n2\t1\t4\n", name="u.data")
    assert main(["table", "init", "u.data", "--out", "-"]) == 2
    assert "declare header = false" in capsys.readouterr().err
    assert main(["table", "init", "u.data", "--names", "user,item,stars", "--task", "ratings", "--out", "-"]) == 0
    assert 'names = ["user", "item", "stars"]' in capsys.readouterr().out


def test_a_code_is_the_position_of_a_declared_user():
    column = Column("user", "code", 1, 3)
    values, bad = column.encode(np.array(["1", "3", "4", "x", "1.5", ""], dtype=object))
    assert values[:2, 0].tolist() == [0, 2]
    assert bad.tolist() == [False, False, True, True, True, True]


EUROPEAN = """customer_id;born;seen;plz;height;sick
1;03.12.1970;2020-01-01;89073;1,75;no
2;24.01.1981;2020-12-31;53111;1,80;yes
3;;2020-07-01;89073;1,62;no
"""


@pytest.mark.parametrize("look", [False, True])
def test_a_draft_knows_dates_of_other_forms_and_asks_about_identifiers(tmp_path, look):
    drafted = draft(write(tmp_path, EUROPEAN), look=look).text
    ends = '"03.12.1970", "24.01.1981"' if look else "?, ?"
    assert f'born = [{ends}, "%d.%m.%Y"]' in drafted
    assert tomllib.loads(drafted)["table"]["drop"] == ["customer_id", "plz"]
    assert "do these name people or places" in drafted


def test_dates_of_a_drafted_form_are_read(tmp_path):
    given = {"target": "sick", "classes": ["no", "yes"], "drop": ["customer_id", "plz", "seen"], "strict": True}
    form = TableFormat(separator=";", decimal=",")
    dates = {"born": ("01.01.1970", "31.12.1989", "%d.%m.%Y")}
    given |= {"bounds": {"height": (0, 2)}, "fill": {"born": "01.01.1980"}, "form": form}
    path = write(tmp_path, EUROPEAN)
    data = table(path, dates=dates, **given)
    assert np.isfinite(data.x_train).all()
    with pytest.raises(InvalidInput, match=r"columns born.*Write them as ISO 8601.*'%d.%m.%Y'"):
        table(path, dates={"born": ("1970-01-01", "1989-12-31")}, **given | {"fill": {}, "missing": [""]})


def test_a_wrong_target_does_not_list_hundreds_of_columns(tmp_path):
    names = [f"column{each}" for each in range(447)]
    with pytest.raises(InvalidInput, match=r"one of the 447 columns.*nearest are 'column41'") as error:
        draft(write(tmp_path, ",".join(names) + "\n" + ",".join("1" * 447) + "\n"), target="colum41")
    assert len(str(error.value)) < 200
