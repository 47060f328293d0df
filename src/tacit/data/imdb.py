"""IMDb: 50000 film reviews, positive or negative (Maas et al. 2011), as numbers of words.

`imdb` is prepared as Keras does it and Bu, Dong, Long, Su, "Deep Learning with Gaussian Differential Privacy" (arXiv
1911.11607) use it: the 10000 commonest words of the training reviews, 256 places. That vocabulary is read from the
training data without a privacy cost. `imdb_hashed` hashes each word to its number instead and reads nothing;
`imdb_words` has the different words of a whole review as `tacit.data.words` codes them.
"""

import io
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from zlib import crc32

import numpy as np

from tacit.data.arrays import from_arrays
from tacit.data.dataset import Dataset
from tacit.data.files import File
from tacit.data.source import Source
from tacit.data.words import COLUMNS, word_codes
from tacit.data.words import PLACES as WORD_PLACES

WORDS = 10_000
PLACES = 256
# The first numbers are no words.
PADDING, START, UNKNOWN, FIRST = 0, 1, 2, 4
_CLASSES = ("negative", "positive")
_LICENCE = "none stated (cite Maas et al., ACL 2011); the text of a review belongs to its writer"
_FILE = File(
    "imdb/aclImdb_labelled.tar.xz",
    "cead055669de9cbcc4dfdf8ce29485c30b36c5789f7700cc1098ce1466777426",
    18276260,
)
_SEPARATORS = str.maketrans(dict.fromkeys('!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~\t\n', " "))

Review = tuple[list[str], int]


def words(text: str) -> list[str]:
    """The words of a review: lower case, parted at white space and punctuation; an apostrophe is part of a word."""
    return text.lower().translate(_SEPARATORS).split()


def vocabulary(reviews: list[list[str]]) -> dict[str, int]:
    """Map from word to number below `WORDS`: the commonest word is `FIRST`, ties in alphabetical order."""
    counts = Counter(word for review in reviews for word in review)
    common = sorted(counts, key=lambda word: (-counts[word], word))[: WORDS - FIRST]
    return {word: number for number, word in enumerate(common, start=FIRST)}


def coded(reviews: list[list[str]], number: Callable[[str], int]) -> np.ndarray:
    """int64 (reviews, `PLACES`): `START`, then the words; the end of long reviews, short ones padded before."""
    codes = np.full((len(reviews), PLACES), PADDING, dtype=np.int64)
    for row, review in zip(codes, reviews, strict=True):
        kept = [number(word) for word in review[-PLACES:]]
        kept = [START, *kept] if len(review) < PLACES else kept
        row[PLACES - len(kept) :] = kept
    return codes


@cache
def hashed(word: str) -> int:
    """A number in [FIRST, WORDS) from the word alone (CRC-32), so that nothing is read from the reviews."""
    return FIRST + crc32(word.encode()) % (WORDS - FIRST)


def reviews(content: bytes) -> Iterator[tuple[str, int, str]]:
    """("train" or "test", 1 for a positive review, text) for each file aclImdb/PART/pos|neg/ID_RATING.txt."""
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:xz") as archive:
        for member in archive:
            parts = member.name.split("/")
            file = archive.extractfile(member) if len(parts) == 4 and parts[2] in ("pos", "neg") else None
            if file is not None:
                yield parts[1], int(parts[2] == "pos"), file.read().decode("utf-8")


def _read(folder: Path, *, name: str) -> Dataset:
    if name == "imdb_words":
        return _read_words(folder)
    texts: dict[str, list[list[str]]] = {"train": [], "test": []}
    answers: dict[str, list[int]] = {"train": [], "test": []}
    for part, answer, text in reviews(_FILE.content(folder, dataset=name)):
        texts[part].append(words(text))
        answers[part].append(answer)
    number, how = hashed, "hashed to"
    if name == "imdb":
        known = vocabulary(texts["train"])
        number, how = lambda word: known.get(word, UNKNOWN), "the commonest words of the training reviews as"
    return from_arrays(
        coded(texts["train"], number),
        y_train=answers["train"],
        x_test=coded(texts["test"], number),
        y_test=answers["test"],
        classes=_CLASSES,
        bounds=(0, WORDS - 1),
        codes=True,
        name=name,
        notes=(
            "source: the labelled reviews of aclImdb",
            f"licence: {_LICENCE}",
            f"preprocessing: {how} numbers below {WORDS}, the last {PLACES} words, padded before",
            "split: official",
        ),
    )


def _read_words(folder: Path) -> Dataset:
    found = list(reviews(_FILE.content(folder, dataset="imdb_words")))
    codes = {part: word_codes(text for each, _, text in found if each == part) for part in ("train", "test")}
    answers = {part: [answer for each, answer, _ in found if each == part] for part in ("train", "test")}
    return from_arrays(
        codes["train"],
        y_train=answers["train"],
        x_test=codes["test"],
        y_test=answers["test"],
        classes=_CLASSES,
        bounds=(0, 2 * COLUMNS),
        codes=True,
        name="imdb_words",
        notes=(
            "source: the labelled reviews of aclImdb",
            f"licence: {_LICENCE}",
            f"preprocessing: different words hashed to {COLUMNS} columns and a sign, without stop words",
            "split: official",
        ),
    )


def _source(name: str, summary: str, leaks: tuple[str, ...]) -> Source:
    return Source(
        name=name,
        summary=summary,
        rows=(25000, 25000),
        features=(WORD_PLACES if name == "imdb_words" else PLACES,),
        classes=_CLASSES,
        licence=_LICENCE,
        read=partial(_read, name=name),
        files=(_FILE,),
        leaks=leaks,
        leak_remedy="The paper does so; imdb_hashed reads nothing from the reviews.",
    )


SOURCE = _source(
    "imdb", "film reviews, 10000 words", ("the vocabulary, the 9996 commonest words of the training reviews",)
)
WORDS_ALONE = _source("imdb_words", "film reviews, the words of each hashed to 16384 columns", ())
HASHED = _source("imdb_hashed", "film reviews, words hashed to 10000 numbers", ())
