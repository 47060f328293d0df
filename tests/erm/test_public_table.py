"""Frames by one declaration: no cell is read, pipelines stay proven, errors name the column and a remedy."""

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline

from tacit.accounting import Ledger
from tacit.erm import DPBoostedTrees, DPLogisticRegression, DPMLPClassifier, PublicImputer, PublicOneHot, PublicTable
from tacit.errors import InvalidInput
from tacit.mechanisms import Gaussian
from tacit.standing import Standing

DECLARED = {
    "bounds": {"age": (0, 100)},
    "categories": {"ward": ["north", "south", ""]},
    "dates": {"born": ("01.01.1900", "31.12.2000", "%d.%m.%Y")},
    "fill": {"age": 50},
    "indicator": ["age"],
    "drop": ["id"],
}


def people(rows=300):
    ward = np.where(np.arange(rows) % 3, "north", None)
    frame = pd.DataFrame({"id": np.arange(rows), "age": np.arange(rows) % 90.0, "ward": ward, "born": "05.03.1970"})
    frame.loc[::7, "age"] = None
    return frame


def test_a_frame_becomes_features_that_follow_from_each_row():
    table = PublicTable(**DECLARED).fit(people())
    whole = table.transform(people())
    assert whole.shape == (300, len(table.get_feature_names_out()))
    assert whole.min() >= 0
    assert whole.max() <= 1
    np.testing.assert_array_equal(table.transform(people().iloc[5:9]), whole[5:9])


def test_fit_reads_no_cell():
    other = people()
    other["age"], other["ward"] = "a text", "undeclared"
    first, second = (PublicTable(**DECLARED).fit(frame) for frame in (people(), other))
    assert first.schema_ == second.schema_


def test_pipelines_with_missing_cells_stay_proven():
    answers = np.arange(300) % 2
    model = DPLogisticRegression(epsilon=1.0, delta=1e-5, classes=[0, 1], data_bounds=(0, 1))
    whole = make_pipeline(PublicTable(**DECLARED), model).fit(people(), answers)
    assert whole[-1].guarantee_.standing is Standing.PROVEN
    filled = make_pipeline(PublicImputer(fill=50.0), model.set_params(data_bounds=(0, 100)))
    assert filled.fit(people()[["age"]], answers)[-1].guarantee_.standing is Standing.PROVEN


def test_output_can_be_a_frame():
    table = PublicTable(**DECLARED).set_output(transform="pandas").fit_transform(people())
    assert "age" in table.columns
    imputed = PublicImputer(fill=1.0, indicator=True).set_output(transform="pandas").fit_transform(people()[["age"]])
    assert list(imputed.columns) == ["age", "age_missing"]
    assert imputed["age_missing"].sum() == 43


@pytest.mark.parametrize("kind", [DPLogisticRegression, DPBoostedTrees, DPMLPClassifier])
def test_text_columns_are_named_with_a_remedy_in_python(kind):
    with pytest.raises(InvalidInput, match=r"texts in columns ward, born\. Encode them by PublicOneHot"):
        kind(classes=[0, 1], data_bounds=(0, 1)).fit(people(), np.arange(300) % 2)


def test_text_in_an_array_is_named_by_number_and_never_quoted():
    rows = np.array([[1.0, "John Smith"], [2.0, "x"]], dtype=object)
    with pytest.raises(InvalidInput, match="texts in columns 1") as error:
        DPLogisticRegression(classes=[0, 1], data_bounds=(0, 1)).fit(rows, [0, 1])
    assert "John" not in str(error.value)


def test_missing_cells_name_the_imputer():
    with pytest.raises(InvalidInput, match=r"columns age, .* PublicImputer"):
        DPLogisticRegression(classes=[0, 1], data_bounds=(0, 90)).fit(people()[["age"]], np.arange(300) % 2)


def test_truth_values_declared_as_texts_are_told_how_to_be_declared():
    frame = pd.DataFrame({"smokes": [True, False]})
    encoder = ColumnTransformer([("words", PublicOneHot(categories=[["TRUE", "FALSE"]]), ["smokes"])])
    with pytest.raises(InvalidInput, match=r"columns smokes, .* Declare True and False"):
        encoder.fit_transform(frame)
    assert PublicOneHot(categories=[[True, False]]).fit_transform(frame).tolist() == [[1, 0], [0, 1]]


def test_undeclared_columns_are_named():
    with pytest.raises(InvalidInput, match=r"every column must be declared; got no declaration of age"):
        PublicTable(categories={"ward": ["north", "south"]}, drop=["id", "born"]).fit(people())


def test_weights_where_none_are_taken_are_a_sentence():
    with pytest.raises(InvalidInput, match="sample_weight must be left out of the fit of DPMLPClassifier"):
        DPMLPClassifier(classes=[0, 1], data_bounds=(0, 90)).fit([[1.0]] * 4, [0, 1, 0, 1], sample_weight=[1] * 4)


def test_the_repr_of_a_ledger_says_what_ran():
    ledger = Ledger()
    assert repr(ledger) == "Ledger(add_remove, record, proven: nothing in 0 steps)"
    ledger.add(Gaussian(1.0), 3)
    assert repr(ledger) == "Ledger(add_remove, record, proven: Gaussian in 3 steps)"
