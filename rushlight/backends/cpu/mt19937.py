"""The 32-bit Mersenne Twister (Matsumoto & Nishimura 1998, MT19937) as PyTorch's CPU generator runs it.

NumPy's own MT19937 does the twisting; this class adds what a drop-in stream needs: PyTorch's seeding (the low 32 bits
of a 64-bit seed), an exact position inside the current block of 624 words, PyTorch's 5056-byte state, the spare normals
that a scalar Box-Muller call leaves behind, and cheap small draws. The tempered words of the current block are kept, so
that drawing three numbers is a slice and not a call into a bit generator.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from typing import Any

import numpy as np

from rushlight.backends.cpu import random_kernels as native

N = 624  # words in the state, and in a block
STATE_BYTES = 5056

_TWO_M24 = np.float32(2.0**-24)
_M24 = np.uint32((1 << 24) - 1)
_M53 = np.uint64((1 << 53) - 1)
_U32 = np.uint64(32)
_FEW = 48  # up to here a slice of the buffered block is quicker than a native call
_BULK = N * 64  # words asked of NumPy at a time: its 64-bit answers then stay in the second-level cache


_byte = ctypes.c_char.from_buffer
_addressof = ctypes.addressof


def address(array: np.ndarray) -> int:
    """Where a writable array's first element is: a fifth of the cost of `.ctypes.data`."""
    return _addressof(_byte(array))  # type: ignore[arg-type]


def _record() -> np.dtype[Any]:
    """PyTorch's CPUGeneratorImplState as C lays it out on 64-bit machines."""
    return np.dtype(
        {
            "names": ["seed", "left", "seeded", "next", "state", "normal_y", "normal_valid", "float_y", "float_valid"],
            "formats": ["<u8", "<i4", "<i4", "<u8", ("<u8", (N,)), "<f8", "<i4", "<f4", "u1"],
            "offsets": [0, 8, 12, 16, 24, 24 + 8 * N + 8, 24 + 8 * N + 24, 24 + 8 * N + 32, 24 + 8 * N + 36],
            "itemsize": STATE_BYTES,
        }
    )


def _temper(key: np.ndarray) -> np.ndarray:
    """The output words of a block of state words."""
    y = key.copy()
    y ^= y >> np.uint32(11)
    y ^= (y << np.uint32(7)) & np.uint32(0x9D2C5680)
    y ^= (y << np.uint32(15)) & np.uint32(0xEFC60000)
    y ^= y >> np.uint32(18)
    return y


def _state_words(bits: Any) -> np.ndarray:
    """A view of a NumPy MT19937's own memory: 624 state words and the position.

    The bit generator must outlive the view. Reading and writing the state this way costs nothing; the `state`
    dictionary copies word by word.
    """
    words = np.ctypeslib.as_array((ctypes.c_uint32 * (N + 1)).from_address(bits.ctypes.state_address))
    bits._legacy_seeding(5489)
    known = bits.state["state"]
    if not (np.array_equal(words[:N], known["key"]) and int(words[N]) == known["pos"]):
        raise RuntimeError(f"NumPy {np.__version__} keeps its MT19937 state in a layout that Rushlight does not know")
    return words


_streams: weakref.WeakSet[MT19937] = weakref.WeakSet()


def _unlock_child() -> None:
    """A lock that another thread held at the fork would never be released in the child."""
    for stream in list(_streams):
        stream.lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock_child)


class MT19937:
    """A seeded stream of 32-bit words with exact, exchangeable state.

    These methods are not locked; the fills built on them hold `lock` from first word to last, as PyTorch's do.
    """

    __slots__ = ("_bits", "_words", "_address", "_block", "_uniform", "_pos", "_next", "_seed", "spare", "spare_float",
                 "lock", "__weakref__")  # fmt: skip

    def __init__(self, seed: int = 5489) -> None:
        self._bits: Any = None  # numpy.random is imported by the first draw, not by `import rushlight`
        self._words: np.ndarray | None = None
        self._address = 0
        self.lock = threading.RLock()
        _streams.add(self)
        self.seed(seed)

    # ---- seeding and state ------------------------------------------------------------------------------------------

    def seed(self, seed: int) -> None:
        """Restart from `seed` (0 <= seed < 2**64). Only the low 32 bits choose the stream, as in PyTorch."""
        self._seed = seed
        self.spare: float | None = None  # the second normal of a scalar Box-Muller pair
        self.spare_float: float | None = None  # PyTorch's state has room for one; nothing on the CPU makes it
        self._block: np.ndarray | None = None
        self._uniform: np.ndarray | None = None
        self._pos = N
        self._next = 0  # what PyTorch's state says before the first draw
        if self._bits is not None:
            self._bits._legacy_seeding(seed & 0xFFFFFFFF)

    @property
    def initial_seed(self) -> int:
        return self._seed

    def _start(self) -> np.ndarray:
        """Make the bit generator, at the first draw; returns its memory."""
        from numpy.random import MT19937 as BitGenerator

        bits = BitGenerator(0)
        self._words = _state_words(bits)
        self._address = address(self._words)
        bits._legacy_seeding(self._seed & 0xFFFFFFFF)
        self._bits = bits
        return self._words

    def get_state(self) -> np.ndarray:
        """The state as PyTorch writes it: uint8 of shape (5056,)."""
        words = self._words if self._words is not None else self._start()
        record = np.zeros((), _record())
        record["seed"] = self._seed
        record["left"] = N + 1 - self._pos
        record["seeded"] = 1
        record["next"] = self._next if self._pos == N else self._pos
        record["state"] = words[:N]
        if self.spare is not None:
            record["normal_y"], record["normal_valid"] = self.spare, 1
        if self.spare_float is not None:
            record["float_y"], record["float_valid"] = self.spare_float, 1
        return np.frombuffer(record.tobytes(), np.uint8).copy()

    def set_state(self, state: np.ndarray) -> None:
        """Continue from a state that `get_state` or PyTorch made. Raises RuntimeError where it is not one."""
        if state.size != STATE_BYTES:
            raise RuntimeError(
                f"Expected a CPUGeneratorImplState of size {STATE_BYTES} but found the input RNG state size to be "
                f"{state.size}"
            )
        record = np.frombuffer(np.ascontiguousarray(state).tobytes(), _record())[0]
        left, following = int(record["left"]), int(record["next"])
        if not (record["seeded"] and 0 < left <= N and following <= N and (left == 1 or left + following == N + 1)):
            raise RuntimeError(
                f"Invalid mt19937 state: seeded={int(record['seeded'])}, left={left}, next={following}; expected a "
                f"seeded engine with left in [1, {N}] and next = {N + 1} - left"
            )
        words = self._words if self._words is not None else self._start()
        words[:N] = record["state"]  # PyTorch stores 64-bit words and keeps the low half
        words[N] = N
        self._seed = int(record["seed"])
        self._pos = N + 1 - left
        self._next = following if left == 1 else N  # a block that was begun ends with next at its end
        self._block = self._uniform = None
        self.spare = float(record["normal_y"]) if record["normal_valid"] else None
        self.spare_float = float(record["float_y"]) if record["float_valid"] else None

    def copy_from(self, other: MT19937) -> None:
        """Take over another stream's place."""
        self.set_state(other.get_state())

    # ---- raw words --------------------------------------------------------------------------------------------------

    def words(self, n: int) -> np.ndarray:
        """The next `n` 32-bit words as uint32. The result may be a view of the stream's buffer: do not write to it."""
        pos = self._pos
        end = pos + n
        if end <= N and pos < N:
            block = self._block
            if block is None:
                block = self._load()
            self._pos = end
            return block[pos:end]
        out = np.empty(n, np.uint32)
        self.words_into(out)
        return out

    def words_into(self, out: np.ndarray) -> None:
        """Fill a contiguous uint32 array of one dimension with the next words."""
        n, at = out.size, 0
        if n > _FEW and self.natively("words", out, n):
            return
        if self._pos < N:  # the rest of this block
            at = min(n, N - self._pos)
            out[:at] = self.words(at)
        whole = (n - at) // N * N
        if whole:
            self._whole_blocks(out[at : at + whole])
            at += whole
        if at < n:  # the beginning of the next
            out[at:] = self._advance()[: n - at]
            self._pos = n - at

    def _whole_blocks(self, out: np.ndarray) -> None:
        if self._words is None:
            self._start()
        self._block = self._uniform = None
        self._pos = self._next = N
        raw, n = self._bits.random_raw, out.size
        for at in range(0, n, _BULK):
            part = out[at : at + _BULK]
            np.copyto(part, raw(part.size), casting="unsafe")

    def natively(self, name: str, out: np.ndarray, used: int, *parameters: float) -> bool:
        """Let a native loop write all of `out`, drawing `used` words. False, and nothing drawn, while there is none.

        `out` is contiguous and of the kernel's own element type.
        """
        f = native.kernel(name, out.size)
        if f is None:
            return False
        if self._words is None:
            self._start()
        if used > N - self._pos:  # twisted on the way
            self._block = self._uniform = None
            self._next = N
        self._pos = f(self._address, self._pos, address(out), out.size, *parameters)
        return True

    def doubles(self, n: int) -> np.ndarray:
        """`n` float64 in [0, 1) with 53 random bits: two words each, the high one first."""
        if n <= 8:
            return np.array(self.few_doubles(n))
        out = np.empty(n)
        if self.natively("doubles", out, 2 * n):
            return out
        pairs = self.words(2 * n)
        # The pair (high, low) read as one little-endian word is the wrong way round; turning it by 32 bits is cheaper
        # than gathering the halves.
        if address(pairs) % 8:
            pairs = pairs.copy()
        x = pairs.view("<u8")
        x = (x << _U32) | (x >> _U32)
        x &= _M53
        return np.multiply(x, 2.0**-53, out=out)

    def few_doubles(self, n: int) -> list[float]:
        """`doubles(n)` as a list, for a handful."""
        w = iter(self.words(2 * n).tolist())
        return [((high & 0x1FFFFF) << 32 | low) * 2.0**-53 for high, low in zip(w, w, strict=True)]

    def longs(self, n: int) -> np.ndarray:
        """`n` uint64, two words each, the high one first."""
        pairs = self.words(2 * n)
        if address(pairs) % 8:
            pairs = pairs.copy()
        x = pairs.view("<u8")
        return (x << _U32) | (x >> _U32)

    def floats(self, n: int) -> np.ndarray:
        """`n` float32 in [0, 1) with 24 random bits: one word each. May be a view: do not write to it."""
        pos = self._pos
        end = pos + n
        if end <= N and pos < N and n <= _FEW:
            uniform = self._uniform
            if uniform is None:
                block = self._block if self._block is not None else self._load()
                uniform = self._uniform = (block & _M24).astype(np.float32) * _TWO_M24
            self._pos = end
            return uniform[pos:end]
        if n > _FEW:
            out = np.empty(n, np.float32)
            if self.natively("uniform32", out, n, 1.0, 0.0):
                return out
        out = (self.words(n) & _M24).astype(np.float32)
        out *= _TWO_M24
        return out

    def _load(self) -> np.ndarray:
        """Temper the current block, after a state was set or whole blocks were drawn."""
        assert self._words is not None  # a position inside a block exists only after the first draw
        self._block = _temper(self._words[:N])
        return self._block

    def _advance(self) -> np.ndarray:
        """Twist to the next block, whose words become the buffer."""
        if self._bits is None:
            self._start()
        block: np.ndarray = self._bits.random_raw(N).astype(np.uint32)
        self._block, self._uniform = block, None
        self._next = N
        return block
