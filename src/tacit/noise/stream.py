"""Streams of random bits, and the uniform and normal values drawn from them."""

from __future__ import annotations

import hashlib
import math
import os
import threading
import weakref
from abc import ABC, abstractmethod
from typing import NoReturn

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from tacit import check
from tacit.errors import Refused

_PAIRS = 16384  # pairs of normals drawn at a time: every buffer stays in the second-level cache
_ZEROS = bytes(8 * _PAIRS)
_WORDS_PER_BLOCK = 2  # an AES block has 128 bits

_SET = "secure must be left to tacit, which knows it of a SecureStream itself; {} sets it. Use SecureStream()."
Size = int | tuple[int, ...]


class Stream(ABC):
    """A source of independent random bits."""

    def __init_subclass__(cls, **keywords: object) -> None:
        super().__init_subclass__(**keywords)
        if vars(cls).get("secure", False) is not False:
            raise Refused(_SET.format(cls.__name__))

    @property
    def secure(self) -> bool:
        """Whether the bits are secret and unrepeatable: those of a `SecureStream` itself, its methods untouched."""
        return type(self) is SecureStream and not any(hasattr(SecureStream, name) for name in vars(self))

    @secure.setter
    def secure(self, value: bool) -> None:
        if value:
            raise Refused(_SET.format(type(self).__name__))

    @abstractmethod
    def bits(self, count: int) -> NDArray[np.uint64]:
        """`count` words of 64 independent fair bits each, never issued before."""

    def refinement(self) -> Refinement:
        """Further bits of values that were drawn before, found by the number of the value."""
        return Refinement(self.bits(4).tobytes())

    def uniform(self, size: Size) -> NDArray[np.float64]:
        """Uniform values in the open interval (0, 1) with 53 random bits each."""
        words = self.bits(math.prod(_shape(size))) >> np.uint64(11)
        return (np.maximum(words.astype(np.float64), 0.5) * 2.0**-53).reshape(_shape(size))

    def normal(self, size: Size, dtype: type[np.floating] = np.float64) -> NDArray[np.floating]:
        """Independent N(0, 1) values, float64 or float32, by the Box-Muller transform.

        The radius takes 64 random bits, so the tail reaches 9.4 standard deviations; the angle takes 32 bits for
        float32 and 64 for float64.
        """
        out = np.empty(math.prod(_shape(size)), dtype)
        self.fill_normal(out)
        return out.reshape(_shape(size))

    def fill_normal(self, out: NDArray[np.floating]) -> None:
        """Overwrite the one-dimensional contiguous `out` (float32 or float64) with independent N(0, 1) values."""
        if out.dtype not in (np.float32, np.float64):
            raise check.fail("dtype", "float32 or float64", str(out.dtype))
        for start in range(0, out.size, 2 * _PAIRS):
            _box_muller(self, out[start : start + 2 * _PAIRS])


class _KeyStream(Stream):
    """AES-256 in counter mode (NIST SP 800-38A): the encryption of zeros under a secret key."""

    def __init__(self, key: bytes, block: int = 0):
        self._lock = threading.RLock()  # threads may share a stream: each gets bits of its own
        self._rekey(key, block)

    def _rekey(self, key: bytes, block: int = 0) -> None:
        self._encryptor = Cipher(algorithms.AES(key), modes.CTR(block.to_bytes(16, "big"))).encryptor()

    def bits(self, count: int) -> NDArray[np.uint64]:
        words = np.empty(count, np.uint64)
        target = words.view(np.uint8).data
        with self._lock:
            for start in range(0, len(target), len(_ZEROS)):
                part = target[start : start + len(_ZEROS)]
                self._encryptor.update_into(_ZEROS[: len(part)] if len(part) < len(_ZEROS) else _ZEROS, part)
        return words

    def __reduce__(self) -> NoReturn:
        raise TypeError("a stream cannot be copied or saved: two copies would draw the same noise.")


class Refinement:
    """Further bits of values: those of one value depend on the key and its number alone, not on what else is refined.

    Args:
        key: 32 secret bytes that nothing else uses.
    """

    def __init__(self, key: bytes):
        self._key = key

    def of_values(self, numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
        """The first 64 further bits of each of the values `numbers` >= 0: AES of their numbers."""
        counters = np.zeros((len(numbers), _WORDS_PER_BLOCK), ">u8")
        counters[:, 0] = numbers
        encryptor = Cipher(algorithms.AES(self._key), modes.ECB()).encryptor()
        return np.frombuffer(encryptor.update(counters.tobytes()), np.uint64)[::_WORDS_PER_BLOCK]

    def of_value(self, number: int) -> Stream:
        """All bits of the value `number` >= 0 after those of `of_values`."""
        return _KeyStream(self._key, (number << 64) + 1)


class SecureStream(_KeyStream):
    """The default source: its key comes from the operating system and is stored nowhere else.

    No seed exists, so a resumed run draws from a new key and never repeats noise; a forked process gets its own key
    before it can draw.
    """

    def __init__(self) -> None:
        super().__init__(os.urandom(32))
        _LIVE.add(self)

    def bits(self, count: int) -> NDArray[np.uint64]:
        """`count` words of the key stream; raises `Refused` in a process other than that which drew the key."""
        if self._process != os.getpid():
            raise Refused(
                "a secure stream must draw in the process that made its key, or two draw the same noise; this one was "
                "forked from it without Python's knowledge. Make a SecureStream in each process."
            )
        return super().bits(count)

    def _rekey(self, key: bytes, block: int = 0) -> None:
        self._process = os.getpid()
        super()._rekey(key, block)


class SeededStream(_KeyStream):
    """A repeatable source for tests and reproductions; the seed reveals the noise.

    Args:
        seed: >= 0; equal seeds give equal streams.
    """

    def __init__(self, seed: int):
        self.seed = check.count("seed", seed, minimum=0, maximum=math.inf)
        self._key = hashlib.sha256(f"tacit seeded stream {self.seed}".encode()).digest()
        self._drawn = 0
        super().__init__(self._key)

    def bits(self, count: int) -> NDArray[np.uint64]:
        """`count` words of the key stream, counted for `state`."""
        with self._lock:
            self._drawn += count
            return super().bits(count)

    def refinement(self) -> Refinement:
        """Bits of their own for each position, so that refining a value shifts nothing that is drawn later."""
        return Refinement(hashlib.sha256(b"refinement" + self._key + self._drawn.to_bytes(16, "big")).digest())

    def state(self) -> dict[str, int | str]:
        """Number of words drawn and a fingerprint of the seed, not the seed itself."""
        fingerprint = hashlib.sha256(b"fingerprint of " + self._key).hexdigest()[:16]
        return {"drawn": self._drawn, "fingerprint": fingerprint}

    def restore(self, state: dict[str, int | str]) -> None:
        """Continue from `state`; raises `InvalidInput` for the state of another seed."""
        if state["fingerprint"] != self.state()["fingerprint"]:
            raise check.fail("stream", "the seeded stream that the run began with", "another seed")
        self._drawn = check.count("drawn", state["drawn"], minimum=0, maximum=math.inf)
        self._rekey(self._key, self._drawn // _WORDS_PER_BLOCK)
        super().bits(self._drawn % _WORDS_PER_BLOCK)


_LIVE: weakref.WeakSet[SecureStream] = weakref.WeakSet()


def _rekey_after_fork() -> None:
    for stream in _LIVE:
        stream._lock = threading.RLock()  # another thread may have held it when the process forked
        stream._rekey(os.urandom(32))


os.register_at_fork(after_in_child=_rekey_after_fork)


def _shape(size: Size) -> tuple[int, ...]:
    return (size,) if isinstance(size, int) else tuple(size)


def _box_muller(stream: Stream, out: NDArray[np.floating]) -> None:
    pairs = (out.size + 1) // 2
    real = out.dtype.type
    squared = stream.bits(pairs).astype(np.float64)
    squared *= 2.0**-64
    squared += 2.0**-65
    np.log(squared, out=squared)
    squared *= -2.0
    radius = squared.astype(real, copy=False)
    np.sqrt(np.abs(radius, out=radius), out=radius)
    if out.dtype == np.float32:
        turns = stream.bits((pairs + 1) // 2).view(np.int32)[:pairs].astype(np.float32)
        turns *= np.float32(math.pi * 2.0**-31)
    else:
        turns = stream.bits(pairs).view(np.int64).astype(np.float64)
        turns *= math.pi * 2.0**-63
    np.cos(turns, out=out[:pairs])
    out[:pairs] *= radius
    rest = out.size - pairs
    np.sin(turns[:rest], out=out[pairs:])
    out[pairs:] *= radius[:rest]
