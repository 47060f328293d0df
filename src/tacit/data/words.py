"""Codes of the words of a text by public hashes; no vocabulary and no frequency is read from anybody."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from zlib import crc32

import numpy as np

from tacit import check

PLACES = 1024
"""Most different words of a text that count, the first ones."""
COLUMNS = 2**14
"""Number of columns by default."""
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")


def word_codes(texts: Iterable[str], columns: int = COLUMNS, *, stop_words: bool = True) -> np.ndarray:
    """Codes of the different words of each text, int64 (n, `PLACES`): 1 + 2 column + sign bit, 0 at the end.

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
        rows.append(np.fromiter(known, np.int64, len(known))[:PLACES])
    found = np.zeros((len(rows), PLACES), np.int64)
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
