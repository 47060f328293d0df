"""Keyed hashes of records, by which the same records are recognised under another name, in a subset or in a fold."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from tacit import check
from tacit.signing import SigningKey

_BYTES = 8
"""Bytes of a hash: two of 10^6 others collide with probability 5e-8 (n m / 2^64)."""
NOTICED = 0.05
"""Share of common records from which two tables are the same people; less may be coincidence of coarse rows."""


def record_hashes(key: SigningKey, x: Any, y: Any = None) -> np.ndarray:
    """Sorted distinct keyed hashes of the records (x_i, y_i); without the key they tell nothing about a record.

    A record is the bytes of its values as float64, or of its integers as int64; NaN and -0 have one form each. So the
    same values as float32 and as float64 are one record. Keyed BLAKE2b (RFC 7693) of those bytes, 64 bits.

    Args:
        key: the signing key of this user or team.
        x: (n, ...) numbers.
        y: (n, ...) numbers or texts, or None.

    Returns:
        uint64, ascending.

    Raises:
        InvalidInput: x and y differ in length.

    Example:
        >>> key, x = SigningKey(bytes(32)), np.arange(6.0).reshape(3, 2)
        >>> whole, fold = record_hashes(key, x), record_hashes(key, x[1:].astype("float32"))
        >>> len(np.intersect1d(whole, fold))
        2
    """
    return np.unique(_hashes(bytes.fromhex(key.mac("record fingerprint", b"")), x, y))


class Parts:
    """Disjoint parts of records: the part of a record is a keyed hash of that record alone.

    Args:
        key: the signing key of this user or team.
        name: of the division; another name divides otherwise.
        parts: how many, >= 2.

    Example:
        >>> x = np.arange(20.0).reshape(10, 2)
        >>> parts = Parts(SigningKey(bytes(32)), "folds", 2)
        >>> (first, _), (second, _) = parts.of(0, x), parts.of(1, x)
        >>> len(first) + len(second), parts.of(0, x[:5])[0].tolist() == first[first[:, 0] < 10].tolist()
        (10, True)
    """

    def __init__(self, key: SigningKey, name: str, parts: int):
        self._secret = bytes.fromhex(key.mac("record part", name.encode()))
        self.parts = parts

    def of(self, index: int, x: Any, y: Any = None) -> tuple[Any, Any]:
        """The records of part `index` among (x, y); their number is private."""
        check.count("index", index, minimum=0, maximum=self.parts - 1)
        kept = _hashes(self._secret, x, y) % self.parts == index
        return np.asarray(x)[kept], None if y is None else np.asarray(y)[kept]


def _hashes(secret: bytes, x: Any, y: Any) -> np.ndarray:
    """The keyed hash of every record, in their order."""
    columns = [_canonical(part) for part in (x, y) if part is not None]
    lengths = {len(column) for column in columns}
    if len(lengths) != 1:
        raise check.fail("y", "as long as x", "another length")
    found = [
        hashlib.blake2b(b"\0".join(column[i].tobytes() for column in columns), key=secret, digest_size=_BYTES).digest()
        for i in range(lengths.pop())
    ]
    return np.frombuffer(b"".join(found), dtype="<u8")


def shared(first: np.ndarray, second: np.ndarray) -> float:
    """The share of the smaller table's distinct records that the other one holds too."""
    smaller = min(len(first), len(second))
    return len(np.intersect1d(first, second, assume_unique=True)) / smaller if smaller else 0.0


def _canonical(values: Any) -> np.ndarray:
    """(n, k), rows contiguous: float64 without -0 and with one NaN; of texts a hash of the row."""
    array = np.asarray(values)
    if array.dtype.kind in "biuf":
        numbers = array.astype("<f8").reshape(len(array), int(np.prod(array.shape[1:]))) + 0.0  # -0.0 + 0.0 is 0.0
        numbers[np.isnan(numbers)] = np.nan
        return np.ascontiguousarray(numbers)
    rows = array.reshape(len(array), int(np.prod(array.shape[1:])))
    told = [hashlib.blake2b("\0".join(map(str, row)).encode(), digest_size=16).digest() for row in rows]
    return np.asarray(told, dtype="V16").reshape(-1, 1)
