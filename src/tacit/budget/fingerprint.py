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
    columns = [_canonical(part) for part in (x, y) if part is not None]
    lengths = {len(column) for column in columns}
    if len(lengths) != 1:
        raise check.fail("y", "as long as x", "another length")
    secret = bytes.fromhex(key.mac("record fingerprint", b""))
    found = [
        hashlib.blake2b(b"\0".join(column[i].tobytes() for column in columns), key=secret, digest_size=_BYTES).digest()
        for i in range(lengths.pop())
    ]
    return np.unique(np.frombuffer(b"".join(found), dtype="<u8"))


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
