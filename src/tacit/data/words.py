"""Codes of the words of a text by public hashes; no vocabulary and no frequency is read from anybody.

Film reviews of IMDb as numbers of words, as Keras prepares them.
"""

import io
import re
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any
from zlib import crc32

import numpy as np

from tacit import check

MOST_WORDS = 1024
"""Most different words of a text that count, the first ones."""
COLUMNS = 2**14
"""Number of columns by default."""
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")


def word_codes(texts: Iterable[str], columns: int = COLUMNS, *, stop_words: bool = True) -> np.ndarray:
    """Codes of the different words of each text, int64 (n, `MOST_WORDS`): 1 + 2 column + sign bit, 0 at the end.

    Words are runs of letters and digits in lower case.

    Args:
        texts: strings.
        columns: number of columns.
        stop_words: leave out scikit-learn's public list of English ones.

    Raises:
        InvalidInput: a text is no string; its row is named, not its value.

    Example:
        >>> word_codes(["The film", "film"])[:, 0].tolist() == [code_of("film", COLUMNS)] * 2
        True
    """
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    left_out = ENGLISH_STOP_WORDS if stop_words else frozenset()
    rows = []
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            hint = "Fill missing texts with ''."
            raise check.fail(f"text {place}", "a string", f"a value of type {type(text).__name__}", hint)
        words = dict.fromkeys(word for word in _WORD.findall(text.lower()) if word not in left_out)
        known = dict.fromkeys(code_of(word, columns) for word in words)
        rows.append(np.fromiter(known, np.int64, len(known))[:MOST_WORDS])
    found = np.zeros((len(rows), MOST_WORDS), np.int64)
    for row, known in zip(found, rows, strict=True):
        row[: len(known)] = known
    return found


@cache
def code_of(word: str, columns: int) -> int:
    """1 + 2 column + sign bit of a word, by CRC-32.

    Example:
        >>> code_of("film", 16) == code_of("film", 16)
        True
    """
    number = crc32(word.encode("utf-8", "surrogatepass"))
    return 1 + 2 * (number // 2 % columns) + number % 2


WORDS = 10_000
PLACES = 256
# The first numbers are no words.
PADDING, START, UNKNOWN, FIRST = 0, 1, 2, 4
_SEPARATORS = str.maketrans(dict.fromkeys('!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~\t\n', " "))


def words(text: str) -> list[str]:
    """The words of a review: lower case, parted at white space and punctuation; an apostrophe is part of a word."""
    return text.lower().translate(_SEPARATORS).split()


def vocabulary(reviews: list[list[str]]) -> dict[str, int]:
    """Map from word to number below `WORDS`: the commonest word is `FIRST`, ties in alphabetical order."""
    counts = Counter(word for review in reviews for word in review)
    common = sorted(counts, key=lambda word: (-counts[word], word))[: WORDS - FIRST]
    return {word: number for number, word in enumerate(common, start=FIRST)}


def coded(reviews: list[list[str]], known: dict[str, int]) -> np.ndarray:
    """int64 (reviews, `PLACES`): `START`, then the words; the end of long reviews, short ones padded before."""
    codes = np.full((len(reviews), PLACES), PADDING, dtype=np.int64)
    for row, review in zip(codes, reviews, strict=True):
        kept = [known.get(word, UNKNOWN) for word in review[-PLACES:]]
        kept = [START, *kept] if len(review) < PLACES else kept
        row[PLACES - len(kept) :] = kept
    return codes


def reviews(content: bytes) -> Iterator[tuple[str, int, str]]:
    """("train" or "test", 1 for a positive review, text) for each file aclImdb/PART/pos|neg/ID_RATING.txt."""
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:*") as archive:
        for member in archive:
            parts = member.name.split("/")
            file = archive.extractfile(member) if len(parts) == 4 and parts[2] in ("pos", "neg") else None
            if file is not None:
                yield parts[1], int(parts[2] == "pos"), file.read().decode("utf-8")


def read_reviews(name: str, content: bytes) -> dict[str, Any]:
    """Arguments of `from_arrays` for the data set `name` of the reviews in `content`.

    `imdb` has the commonest words of the training reviews, a vocabulary that is read from them without a privacy cost;
    `imdb_words` has the codes of all words of a whole review.

    Args:
        name: of the data set.
        content: the archive.
    """
    found = list(reviews(content))
    texts = {part: [text for each, _, text in found if each == part] for part in ("train", "test")}
    if name == "imdb_words":
        codes = {f"x_{part}": word_codes(each) for part, each in texts.items()}
    else:
        parted = {part: [words(text) for text in each] for part, each in texts.items()}
        known = vocabulary(parted["train"])
        codes = {f"x_{part}": coded(each, known) for part, each in parted.items()}
    return codes | {f"y_{part}": [answer for each, answer, _ in found if each == part] for part in texts}
