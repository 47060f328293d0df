"""Reviews as numbers of words, and ratings in both published formats."""

import io
import lzma
import tarfile
import zipfile

import numpy as np
import pytest

from tacit import data
from tacit.data import words as imdb
from tacit.data.files import File
from tacit.data.published import ratings
from tacit.errors import InvalidInput


def archive(texts: dict[str, str]) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:xz") as packed:
        for name, text in texts.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            packed.addfile(member, io.BytesIO(text.encode()))
    return raw.getvalue()


def test_words_as_keras_parts_them():
    assert imdb.words("It's GREAT!<br />so-so... é") == ["it's", "great", "br", "so", "so", "é"]


def test_the_commonest_words_get_the_lowest_numbers():
    known = imdb.vocabulary([["b", "a", "b"], ["c", "a", "d"]])
    assert known == {"a": 4, "b": 5, "c": 6, "d": 7}
    many = imdb.vocabulary([[f"w{i}" for i in range(20_000)]])
    assert len(many) == imdb.WORDS - imdb.FIRST
    assert max(many.values()) == imdb.WORDS - 1


def test_reviews_are_padded_before_and_cut_before():
    short, long, exact = imdb.coded([["a", "x"], ["b"] + ["a"] * 300, ["b"] * 255], {"a": 4, "b": 5})
    assert list(short[-4:]) == [imdb.PADDING, imdb.START, 4, 2]
    assert not short[:-3].any()
    assert list(long) == [4] * 256
    assert list(exact) == [imdb.START] + [5] * 255


def test_parts_and_labels_come_from_the_folders():
    content = archive(
        {
            "aclImdb/train/pos/3_9.txt": "good",
            "aclImdb/test/neg/0_1.txt": "bad",
            "aclImdb/train/unsup/1_0.txt": "left out",
            "aclImdb/README": "no review",
        }
    )
    assert list(imdb.reviews(content)) == [("train", 1, "good"), ("test", 0, "bad")]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::tacit.errors.LeakWarning")
def test_the_vocabulary_of_the_training_reviews(obtain):
    dataset = obtain("imdb")
    assert dataset.leaks == ("the vocabulary, the 9996 commonest words of the training reviews",)
    # "the" is the commonest word; every review that fills its places starts without the mark.
    assert (dataset.x_train == imdb.FIRST).any(axis=1).mean() > 0.95
    assert ((dataset.x_train[:, 0] == imdb.PADDING) | (dataset.x_train[:, 0] >= imdb.START)).all()
    assert tuple(np.bincount(dataset.y_test)) == (12500, 12500)


LINES = {"\t": b"1\t2\t5\t88\n943\t1682\t1\t99\n", "::": b"1::2::5::88\n6040::3952::1::99\n"}


@pytest.mark.parametrize(("separator", "users", "items"), [("\t", 943, 1682), ("::", 6040, 3952)])
def test_ratings_of_both_formats(separator, users, items):
    pairs, stars = ratings(LINES[separator], separator=separator, users=users, items=items)
    assert pairs.tolist() == [[0, 1], [users - 1, items - 1]]
    assert stars.tolist() == [5, 1]


@pytest.mark.parametrize("bad", [b"", b"1\t2\t5\n", b"0\t2\t5\t1\n", b"944\t2\t5\t1\n", b"1\t2\t6\t1\n"])
def test_other_ratings_are_refused(bad):
    with pytest.raises(InvalidInput, match="ratings must be"):
        ratings(bad, separator="\t", users=943, items=1682)


def test_the_million_in_a_small_file_of_its_format(tmp_path, monkeypatch):
    monkeypatch.setattr(File, "fault", lambda self, content: None)
    (tmp_path / "movielens_1m").mkdir()
    lines = "\n".join(f"{user}::{1 + user % 7}::{1 + user % 5}::978300760" for user in range(1, 51))
    with zipfile.ZipFile(tmp_path / "movielens_1m" / "ml-1m.zip", "w") as packed:
        packed.writestr("ml-1m/ratings.dat", lines + "\n")
    dataset = data.load("movielens_1m", data_dir=tmp_path)
    assert dataset.task == "ratings"
    assert dataset.classes == ("1", "2", "3", "4", "5")
    assert (len(dataset.x_train), len(dataset.x_test)) == (40, 10)
    assert (dataset.y_train == dataset.x_train[:, 0].astype(int).__add__(1) % 5).all()
    assert [int(high) for high in dataset.bounds[1]] == [6039, 3951]


def test_the_split_of_the_paper(original_files, obtain):
    from sklearn.model_selection import train_test_split

    raw = lzma.decompress((original_files / "movielens_100k" / "u.data.xz").read_bytes())
    pairs, _ = ratings(raw, separator="\t", users=943, items=1682)
    train, test = train_test_split(np.arange(100_000), test_size=0.2, random_state=100)
    assert np.array_equal(obtain("movielens").x_test, pairs[np.sort(test)])
    assert np.array_equal(obtain("movielens").x_train, pairs[np.sort(train)])
    rows = data.describe("movielens_1m")["rows"]
    assert rows == {"train": 800167, "test": 200042}
