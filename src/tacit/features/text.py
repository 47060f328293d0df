"""`HashedText`: which words a text has, by public hashes; no vocabulary and no frequency is read from anybody."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tacit import check
from tacit.data.words import COLUMNS, word_codes
from tacit.features.base import PublicFeatures


class HashedText(PublicFeatures):
    """Words of a text, each a sign in the column that its CRC-32 gives, scaled to norm 1 for every text by itself.

    Words are runs of letters and digits in lower case, without the stop words of scikit-learn's public list; a word
    counts once. Texts go in as strings, or as the codes that `codes` makes of them.

    Args:
        columns: number of columns, at least 2.
        stop_words: leave out "english" ones, or None.

    Raises:
        InvalidInput: an argument breaks its rule, or a text is no string.

    Example:
        >>> HashedText(16).of(["A wonderful film", ""]).round(2)[0].tolist().count(0.0)
        14
    """

    def __init__(self, columns: int = COLUMNS, stop_words: str | None = "english"):
        nn.Module.__init__(self)
        self.columns, self.stop_words = columns, stop_words
        self.width = check.count("columns", columns, minimum=2, maximum=2**22)
        check.choice("stop_words", stop_words or "none", ("english", "none"))

    def _told(self) -> str:
        return f"a hash of words to {self.columns} columns, and a list of stop words"

    def codes(self, texts: Iterable[str]) -> np.ndarray:
        """Codes of the different words of each text, int64 (n, 1024): 1 + 2 column + sign bit, 0 at the end.

        Args:
            texts: strings.

        Raises:
            InvalidInput: one is none; its row is named, not its value.
        """
        return word_codes(texts, self.columns, stop_words=bool(self.stop_words))

    def of(self, X: Any) -> np.ndarray:
        """Features of texts or codes, float32 (n, columns)."""
        if isinstance(X, str) or not hasattr(X, "__iter__"):
            raise check.fail("X", "a list of texts", type(X).__name__, "Put a single text into a list.")
        rows = X
        if not (isinstance(X, np.ndarray | Tensor) and X.ndim == 2 and np.asarray(X[:1]).dtype.kind == "i"):
            table = np.asarray(list(X) if isinstance(X, list | tuple) else X, dtype=object)
            if table.ndim > 1 and table.shape[1] != 1:
                raise check.fail("X", "one column of texts", f"{table.shape[1]} columns", "Join them row by row.")
            rows = self.codes(table.ravel())
        return super().of(rows)

    def _tensor(self, rows: Any) -> Tensor:
        return torch.from_numpy(np.asarray(rows))

    def forward(self, rows: Tensor) -> Tensor:
        """Features (n, columns) of codes (n, places)."""
        present = (rows > 0).float()
        places = (rows - 1).clamp(min=0)
        signs = (1 - 2 * (places % 2).float()) * present
        found = torch.zeros(len(rows), self.columns).scatter_add_(1, places // 2, signs)
        return nn.functional.normalize(found, dim=1)
