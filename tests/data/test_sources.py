"""What is particular to one data set: its encoding, its split, and an accuracy known from elsewhere."""

import hashlib

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from tacit import data
from tacit.data import published
from tacit.errors import MissingData

ADULT = published.facts_of("adult")
pytestmark = [
    pytest.mark.filterwarnings("ignore::tacit.errors.LeakWarning"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


@pytest.mark.slow_cases
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("adult", 0.853),
        ("a9a", 0.8495),
        ("digits", 0.96),
        ("breast_cancer", 0.97),
        ("iris", 0.97),
        ("har", 0.9491),
        ("isolet", 0.9589),
        ("cifar100_pca50", 0.1618),
        ("bank_marketing", 0.9101),
        ("breast_cancer_wisconsin", 0.9634),
        ("creditcard", 0.9411),
        ("kddcup99", 0.9984),
    ],
)
def test_logistic_regression_reaches_the_known_accuracy(name, expected, obtain):
    dataset = obtain(name)
    # Fifty thousand rows of a hundred classes would take a minute.
    rows = slice(20000 if name == "cifar100_pca50" else None)
    x, x_test = (x.reshape(len(x), -1) for x in (dataset.x_train[rows], dataset.x_test))
    mean, scale = x.mean(axis=0), np.where(x.std(axis=0) == 0, 1, x.std(axis=0))
    model = LogisticRegression(max_iter=40, C=0.2).fit((x - mean) / scale, dataset.y_train[rows])
    found = model.score((x_test - mean) / scale, dataset.y_test)
    # Four standard errors of an accuracy on this many test rows; nothing here is random.
    assert found == pytest.approx(expected, abs=4 * np.sqrt(expected * (1 - expected) / len(x_test)))


@pytest.mark.parametrize(("name", "low", "high"), [("mnist", 0.86, 0.92), ("fashion_mnist", 0.78, 0.84)])
def test_pixels_belong_to_their_labels(name, low, high, obtain):
    dataset = obtain(name)
    x, x_test = (x.reshape(len(x), -1) for x in (dataset.x_train[:4000], dataset.x_test))
    model = LogisticRegression(max_iter=60, C=0.02).fit(x, dataset.y_train[:4000])
    assert low < model.score(x_test, dataset.y_test) < high


def test_kmnist_test_images_alone(obtain):
    dataset = obtain("kmnist")
    if dataset.name == "kmnist":
        pytest.skip("all four files of KMNIST are here")
    x, x_test = (x.reshape(len(x), -1) for x in (dataset.x_train, dataset.x_test))
    model = LogisticRegression(max_iter=40, C=0.01).fit(x, dataset.y_train)
    assert model.score(x_test, dataset.y_test) == pytest.approx(0.719, abs=0.04)
    assert "no training images found" in dataset.notes[-1]


def test_kmnist_refuses_one_training_file_without_the_other(original_files, tmp_path):
    folder = tmp_path / "kmnist"
    folder.mkdir()
    for file in (original_files / "kmnist").glob("t10k-*"):
        (folder / file.name).symlink_to(file)
    (folder / "train-labels-idx1-ubyte.gz").write_bytes(b"half")
    with pytest.raises(MissingData, match=r"kmnist/train-(images|labels)-idx"):
        data.load("kmnist", data_dir=tmp_path)


def test_kmnist_rows_follow_the_files(tmp_path):
    assert data.describe("kmnist", data_dir=tmp_path)["rows"] == {"train": 8000, "test": 2000}


def test_binary_files_of_cifar(tmp_path, monkeypatch):
    rows = np.random.default_rng(0).integers(0, 10, (6, 2, 3073), dtype=np.uint8)
    (tmp_path / "cifar-10-batches-bin").mkdir()
    for path, part in zip(published.facts_of("cifar10")["files"], rows, strict=True):
        (tmp_path / path).write_bytes(part.tobytes())
        known = {"sha256": hashlib.sha256(part.tobytes()).hexdigest(), "size": part.size}
        monkeypatch.setitem(published._TABLE["files"], path, known)
    found = published._source("cifar10").read(tmp_path)
    assert (found.x_train.shape, found.x_test.shape) == ((10, 3, 32, 32), (2, 3, 32, 32))
    assert found.y_train.tolist() == rows[:5, :, 0].ravel().tolist()
    np.testing.assert_allclose(found.x_test.reshape(2, -1), rows[5, :, 1:] / 255, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "train", "test"),
    [
        ("adult", (24720, 7841), (12435, 3846)),
        ("adult_complete", (22654, 7508), (11360, 3700)),
        ("a9a", (24720, 7841), (12435, 3846)),
        ("mnist", (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949), None),
        ("fashion_mnist", (6000,) * 10, (1000,) * 10),
        ("har", (1226, 1073, 986, 1286, 1374, 1407), (496, 471, 420, 491, 532, 537)),
        ("cifar100_pca50", (500,) * 100, (100,) * 100),
        pytest.param("imdb_words", (12500, 12500), (12500, 12500), marks=pytest.mark.slow),
    ],
)
def test_published_class_counts(name, train, test, obtain):
    dataset = obtain(name)
    assert tuple(np.bincount(dataset.y_train)) == train
    if test:
        assert tuple(np.bincount(dataset.y_test)) == test


def test_adult_encoding_by_hand(obtain):
    dataset = obtain("adult")
    # The first row of adult.data: 39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, ...
    row = dict(zip(dataset.feature_names, dataset.x_train[0], strict=True))
    low, high = ADULT["bounds"]["age"]
    assert row["age"] == pytest.approx((39 - low) / (high - low))
    assert row["capital-gain"] == pytest.approx(2174 / 99999)
    words = {name for name, value in row.items() if "=" in name and value == 1}
    assert words == {
        "workclass=State-gov",
        "education=Bachelors",
        "marital-status=Never-married",
        "occupation=Adm-clerical",
        "relationship=Not-in-family",
        "race=White",
        "sex=Male",
        "native-country=United-States",
    }


def test_adult_missing_values(obtain):
    unknown = [f"{column}=?" for column in ("workclass", "occupation", "native-country")]
    dataset, complete = obtain("adult"), obtain("adult_complete")
    hot = dataset.x_train[:, [dataset.feature_names.index(name) for name in unknown]]
    assert int(hot.any(axis=1).sum()) == len(dataset.x_train) - len(complete.x_train) == 2399
    assert set(dataset.feature_names) - set(complete.feature_names) == set(unknown)


def test_adult_declarations_are_those_of_the_names_file(original_files):
    names = (original_files / "adult" / "adult.names").read_text(encoding="utf-8", errors="replace")
    published = dict(
        line.rstrip(".").split(": ", 1) for line in names.splitlines() if line.endswith(".") and ": " in line
    )
    declared = {column: [each for each in known if each != "?"] for column, known in ADULT["categories"].items()}
    assert {column: published[column].split(", ") for column in declared} == declared
    assert {column for column, kind in published.items() if kind == "continuous"} == set(ADULT["bounds"])


def test_adult_a9a_is_the_last_of_ten_folds(obtain):
    whole, folds = obtain("a9a"), obtain("adult_a9a")
    assert np.array_equal(np.concatenate([folds.x_train, folds.x_test]), whole.x_train)
    assert np.array_equal(np.concatenate([folds.y_train, folds.y_test]), whole.y_train)
    assert folds.x_test.shape == (3256, 123)
    # The first row of a9a: -1 3:1 11:1 14:1 19:1 39:1 42:1 55:1 64:1 67:1 73:1 75:1 76:1 80:1 83:1
    assert list(np.flatnonzero(folds.x_train[0]) + 1) == [3, 11, 14, 19, 39, 42, 55, 64, 67, 73, 75, 76, 80, 83]
    assert folds.y_train[0] == 0
    assert np.array_equal(np.unique(folds.x_train), [0, 1])


def test_a9a_and_adult_agree_on_the_labels(obtain):
    assert np.array_equal(obtain("a9a").y_train, obtain("adult").y_train)
    assert np.array_equal(obtain("a9a").y_test, obtain("adult").y_test)


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("bank_marketing", (36548, 4640)),
        ("breast_cancer_wisconsin", (458, 241)),
        ("creditcard", (492, 492)),
        ("abalone_over9", (2096, 2081)),
        ("movielens", (6110, 11370, 27145, 34174, 21201)),
    ],
)
def test_published_counts_of_all_rows(name, counts, obtain):
    dataset = obtain(name)
    assert tuple(np.bincount(np.concatenate([dataset.y_train, dataset.y_test]))) == counts


def test_abalone_by_hand(obtain):
    dataset = obtain("abalone")
    x = np.concatenate([dataset.x_train, dataset.x_test])
    # The first line: M,0.455,0.365,0.095,0.514,0.2245,0.101,0.15,15
    first = [1, 0, 0, 0.455, 0.365, 0.095 / 0.5, 0.514 / 3, 0.2245 / 1.5, 0.101, 0.15]
    row = int(np.argmin(np.abs(x - np.array(first, dtype=np.float32)).sum(axis=1)))
    assert x[row] == pytest.approx(first, abs=1e-6)
    assert np.concatenate([dataset.y_train, dataset.y_test])[row] == 15


def test_a_missing_mark_becomes_the_declared_constant(obtain):
    dataset = obtain("breast_cancer_wisconsin")
    assert len(dataset.x_train) + len(dataset.x_test) == 699
    assert '"?"' in "".join(dataset.notes)


def test_connections_of_the_whole_file_and_their_logarithms(obtain):
    dataset = obtain("kddcup99")
    assert dataset.feature_names is not None
    place = dataset.feature_names.index("src_bytes")
    bytes_sent = np.expm1(dataset.x_train[:, place].astype(float) * np.log1p(1e9))
    # smurf sends 1032 bytes a connection and is more than half of the published file.
    assert np.mean(np.abs(bytes_sent - 1032) < 1) > 0.4
    assert 0.18 < np.mean(np.concatenate([dataset.y_train, dataset.y_test]) == 0) < 0.21


@pytest.mark.slow
def test_the_standin_has_unit_rows_and_a_hundred_clusters(obtain):
    dataset = obtain("purchase_standin")
    assert np.linalg.norm(dataset.x_train, axis=1) == pytest.approx(1, abs=1e-5)
    assert len(dataset.classes) == 100
    # Stratified: no class is more than one row apart between the two parts.
    assert np.abs(np.bincount(dataset.y_train) - np.bincount(dataset.y_test)).max() <= 1
