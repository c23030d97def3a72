"""Random fills of ndarrays, in PyTorch 2.x's bits.

Every fill writes its samples into `out` in place, in the order in which PyTorch visits a tensor (memory order, not
index order), and draws from the stream exactly what PyTorch's generic CPU kernels draw: 24 bits of one word for a
float32 uniform, 53 bits of two words for a float64 one, two words per scalar Bernoulli trial, blocks of 16 uniforms for
normals of 16 or more contiguous elements, and double-precision Box-Muller pairs with a spare for all other normals.
PyTorch's kernels are compiled with fused multiply-add; where that shows in a result it is done here too.

Results have PyTorch's bits on x86-64 with FMA, whether or not llvmlite is there to make them quickly. (The exceptions
that mathematics leaves: double roundings about once in 2**29 steps, and float32 results of NumPy's own log1p, exp and
tan, which round differently from the C library's as rarely.)
"""

from __future__ import annotations

import contextlib
import functools
import math
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from rushlight.backends.cpu import boxmuller
from rushlight.backends.cpu.boxmuller import fma
from rushlight.backends.cpu.mt19937 import MT19937, address

__all__ = ["Distributions", "locked", "visiting_order"]

_M = TypeVar("_M", bound=Callable[..., Any])

_CHUNK = 1 << 15
_M24 = np.uint32((1 << 24) - 1)
# By dtype.char, which costs a tenth of dtype.name; "E" is ml_dtypes' bfloat16.
_DIGITS = {"e": 11, "E": 8, "f": 24, "d": 53}
_PLAIN = frozenset("?Bbhilq")
_NAMES = {
    "bool": "Bool", "uint8": "Byte", "int8": "Char", "int16": "Short", "int32": "Int", "int64": "Long",
    "uint16": "UInt16", "uint32": "UInt32", "uint64": "UInt64", "float16": "Half", "bfloat16": "BFloat16",
    "float32": "Float", "float64": "Double", "complex64": "ComplexFloat", "complex128": "ComplexDouble",
}  # fmt: skip
_LARGEST = {"e": 65504.0, "E": 255 * 2.0**120, "f": (2**24 - 1) * 2.0**104, "d": (2**53 - 1) * 2.0**971}
_RANGES = {c: (int(np.iinfo(c).min), int(np.iinfo(c).max)) for c in "bBhHiIlLqQ"} | {"?": (0, 1)}
_TRIALS = {"f": "trials32", "?": "trials", "B": "trials", "b": "trials"}
_NATIVE = 16  # beyond, one native call is quicker than several of NumPy's
_NOTHING = contextlib.nullcontext()
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


def visiting_order(*arrays: np.ndarray) -> list[int]:
    """Axes, slowest first, as PyTorch's TensorIterator walks arrays of one shape: by stride, the outputs' first."""
    shape = arrays[0].shape
    nd = len(shape)
    perm = list(range(nd - 1, -1, -1))

    def after(a: int, b: int) -> int:
        for x in arrays:
            s, t = x.strides[a], x.strides[b]
            if s == 0 or t == 0:
                continue
            if s != t:
                return 1 if s > t else -1
            if shape[a] > shape[b]:
                return 1
        return 0

    for i in range(1, nd):
        moved = i
        for j in range(i - 1, -1, -1):
            order = after(perm[j], perm[moved])
            if order > 0:
                perm[j], perm[moved] = perm[moved], perm[j]
                moved = j
            elif order < 0:
                break
    return perm[::-1]


def _not_implemented(kernel: str, out: np.ndarray) -> NotImplementedError:
    return NotImplementedError(f"\"{kernel}\" not implemented for '{_NAMES.get(out.dtype.name, out.dtype.name)}'")


def _as_real(out: np.ndarray) -> np.ndarray:
    """A complex array as reals with a last axis of 2."""
    return out[..., None].view(out.real.dtype)


def locked(method: _M) -> _M:
    """Hold the stream's lock over a whole fill."""

    @functools.wraps(method)
    def whole(self: MT19937, *args: Any, **kwargs: Any) -> Any:
        with self.lock:
            return method(self, *args, **kwargs)

    return whole  # type: ignore[return-value]


class Distributions(MT19937):
    """A stream that fills arrays in place; each fill is atomic among threads."""

    __slots__ = ()

    # ---- writing ----------------------------------------------------------------------------------------------------

    def _fill(self, out: np.ndarray, produce: Callable[[int], np.ndarray]) -> None:
        """Write `produce(n)`, samples in order, into `out` in PyTorch's visiting order."""
        n = out.size
        view = out if out.flags.c_contiguous else _visit(out)
        narrow = out.dtype.char in "eE"  # PyTorch's double goes to half precision by way of float: two roundings
        if n <= _CHUNK:
            x = produce(n)
            if narrow and x.dtype.char == "d":
                x = x.astype(np.float32)
            np.copyto(view, x if view.ndim == 1 else x.reshape(view.shape), casting="unsafe")
            return
        dense = view.flags.c_contiguous
        flat = view.reshape(-1) if dense else np.empty(n, out.dtype)
        for at in range(0, n, _CHUNK):
            x = produce(min(_CHUNK, n - at))
            if narrow and x.dtype.char == "d":
                x = x.astype(np.float32)
            np.copyto(flat[at : at + _CHUNK], x, casting="unsafe")
        if not dense:
            view[...] = flat.reshape(view.shape)

    # ---- uniform ----------------------------------------------------------------------------------------------------

    @locked
    def uniform_(self, out: np.ndarray, low: float = 0.0, high: float = 1.0) -> None:
        """Uniform on [low, high)."""
        kind, n = out.dtype.char, out.size
        if kind == "f" and low == 0.0 and high == 1.0:  # rand
            if n > _NATIVE and out.flags.c_contiguous and self.natively("uniform32", out, n, 1.0, 0.0):
                return
            self._fill(out, self.floats)
            return
        if out.dtype.kind == "c":
            if out.size:
                self.uniform_(_as_real(out), low, high)
            return
        if kind not in _DIGITS:
            raise _not_implemented("check_uniform_bounds", out)
        self._check_bounds(out, low, high)
        if n == 0:
            return
        if kind == "d":
            r = high - low

            def produce(n: int) -> np.ndarray:
                x = self.doubles(n)
                if r == 1.0 and low == 0.0:
                    return x
                x = fma(x, r, low)
                x[x == high] = low
                return x

            self._fill(out, produce)
            return
        lo, hi = np.float32(low), np.float32(high)
        width = np.float32(hi - lo)
        scale, shift = float(width) * 2.0**-24, float(lo)

        def narrow(n: int) -> np.ndarray:
            if shift == 0.0 and scale == 2.0**-24:
                return self.floats(n)
            # 24 bits times 24 bits is exact in float64, so this rounds once, as a fused multiply-add does
            x = np.multiply(self.words(n) & _M24, scale, dtype=np.float64)
            x += shift
            return x.astype(np.float32)

        if kind == "f":
            # rounding may reach `high`, which PyTorch turns into `low`; the largest sample tells whether it can
            if np.float32((2.0**24 - 1) * scale + shift) != hi:
                if n > _NATIVE and out.flags.c_contiguous and self.natively("uniform32", out, n, float(width), shift):
                    return
                self._fill(out, narrow)
                return
            top, bottom, dtype = hi, lo, out.dtype
        else:
            dtype = out.dtype
            top, bottom = hi.astype(dtype), lo.astype(dtype)

        def clamped(n: int) -> np.ndarray:
            x = narrow(n).astype(dtype)
            x[x == top] = bottom
            return x

        self._fill(out, clamped)

    def _check_bounds(self, out: np.ndarray, low: float, high: float) -> None:
        largest = _LARGEST[out.dtype.char]
        if not -largest <= low <= largest:
            raise RuntimeError(f"from is out of bounds for {out.dtype.name}: got {low}")
        if not -largest <= high <= largest:
            raise RuntimeError(f"to is out of bounds for {out.dtype.name}: got {high}")
        if not low <= high:
            raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={low} > to={high}")
        if high - low > largest:
            raise RuntimeError(
                f"uniform_ expects to-from <= std::numeric_limits<{_NAMES[out.dtype.name]}>::max(), but found "
                f"to={high} and from={low} which result in to-from to exceed the limit"
            )

    # ---- normal -----------------------------------------------------------------------------------------------------

    @locked
    def normal_(self, out: np.ndarray, mean: float = 0.0, std: float = 1.0) -> None:
        """Normal with the given mean and standard deviation."""
        if not std >= 0.0:
            raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
        if out.size == 0:
            return
        if out.dtype.kind == "c":
            self.normal_(_as_real(out), mean, std / math.sqrt(2))
        elif out.dtype.char not in _DIGITS:
            raise _not_implemented("normal_kernel_cpu", out)
        else:
            with _guard(abs(mean) + 40 * std, out):  # no sample is 40 deviations away
                self._normal(out, mean, std)

    def _normal(self, out: np.ndarray, mean: float, std: float) -> None:
        kind, n = out.dtype.char, out.size
        if n < 16 or not out.flags.c_contiguous:
            exact = kind == "d"
            self._fill(out, lambda k: self.normals(k, mean, std, exact))
        elif kind == "f":
            if not self.natively("normal32", out, n + 16 if n & 15 else n, mean, std):
                self._normal_blocks(out.reshape(-1), mean, std, np.float32)
        elif kind == "d":
            self._normal_blocks(out.reshape(-1), mean, std, np.float64)
        else:  # half precision: computed in float32; the tail's uniforms follow the whole blocks at once
            flat, whole = out.reshape(-1), n & ~15
            for at in range(0, whole, _CHUNK):
                part = flat[at : min(at + _CHUNK, whole)]
                block = np.empty(part.size, np.float32)
                self._normal_blocks(block, mean, std, np.float32)
                part[...] = block
            if n & 15:
                block = np.empty(16, np.float32)
                self._normal_blocks(block, mean, std, np.float32)
                flat[n - 16 :] = block

    def _normal_blocks(self, flat: np.ndarray, mean: float, std: float, scalar: type) -> None:
        draw = self.floats if scalar is np.float32 else self.doubles
        transform = boxmuller.float32_ if scalar is np.float32 else boxmuller.float64_
        n = flat.size
        for at in range(0, n, _CHUNK):
            part = flat[at : at + _CHUNK]
            part[...] = draw(part.size)
            transform(part[: part.size & ~15], mean, std)
        if n & 15:  # the last 16 are drawn again
            tail = flat[n - 16 :]
            tail[...] = draw(16)
            transform(tail, mean, std)

    @locked
    def normals(self, n: int, mean: float = 0.0, std: float = 1.0, exact: bool = True) -> np.ndarray:
        """`n` float64 normals by PyTorch's scalar algorithm: Box-Muller pairs, the second kept for the next call.

        `exact` asks for the C library's bits; a result that will be rounded to float32 does not need them.
        """
        if n <= 16:
            few = np.array([self.one_normal() for _ in range(n)])
            return few if std == 1.0 and mean == 0.0 else fma(few, std, mean)
        out = np.empty(n)
        at = 0
        if self.spare is not None and n:
            out[0] = self.spare
            self.spare = None
            at = 1
        pairs = (n - at + 1) // 2
        if pairs:
            u = self.doubles(2 * pairs)
            cosines, sines = boxmuller.pairs(u, exact)
            out[at::2] = cosines
            odd = (n - at) & 1
            out[at + 1 :: 2] = sines[: pairs - odd]
            if odd:
                # a later float64 fill may take it: always in the C library's bits
                self.spare = boxmuller.pair(float(u[-2]), float(u[-1]))[1]
        if std == 1.0 and mean == 0.0:
            return out
        return fma(out, std, mean)

    def one_normal(self) -> float:
        """The next standard normal of the scalar algorithm."""
        x = self.spare
        if x is None:
            x, self.spare = boxmuller.pair(*self.few_doubles(2))
        else:
            self.spare = None
        return x

    # ---- Bernoulli --------------------------------------------------------------------------------------------------

    @locked
    def bernoulli_(self, out: np.ndarray, p: float | np.ndarray = 0.5) -> None:
        """Ones with probability `p`, a number or an array that broadcasts to `out`."""
        kind, n = out.dtype.char, out.size
        if kind not in _DIGITS and kind not in _PLAIN:
            raise _not_implemented("bernoulli_scalar_cpu_", out)
        if isinstance(p, np.ndarray):
            self._bernoulli_array(out, p)
            return
        if not 0 <= p <= 1:
            raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p}")
        if n:
            high, low = _edge(p)
            if kind in _TRIALS and n > _NATIVE and out.flags.c_contiguous:
                if self.natively(_TRIALS[kind], out, 2 * n, high, low, *((1.0,) if kind == "f" else ())):
                    return
            self._fill(out, self._trials(high, low))

    @locked
    def dropout_mask_(self, out: np.ndarray, p: float) -> None:
        """What dropout multiplies by: 0 with probability `p`, else 1 / (1 - p) in out's dtype. For 0 < p < 1."""
        n, kept = out.size, np.float32(1) / np.float32(1 - p)
        if out.dtype.char == "f" and n > _NATIVE and out.flags.c_contiguous:
            if self.natively("trials32", out, 2 * n, *_edge(1 - p), float(kept)):
                return
        self.bernoulli_(out, 1 - p)
        out *= out.dtype.type(1.0 / (1 - p) if out.dtype.char == "d" else kept)

    def _trials(self, high: int, low: int) -> Callable[[int], np.ndarray]:
        """A maker of booleans: whether an element's two words, 21 and 32 bits, are below (high, low)."""
        mask, top = np.uint64((1 << 21) - 1), np.uint64(high)

        def produce(n: int) -> np.ndarray:
            if n <= _NATIVE:
                w, edge = iter(self.words(2 * n).tolist()), high << 32 | low
                return np.array([(h & 0x1FFFFF) << 32 | k < edge for h, k in zip(w, w, strict=True)])
            done = np.empty(n, np.bool_)
            if self.natively("trials", done, 2 * n, high, low):
                return done
            pairs = self.words(2 * n)
            if address(pairs) % 8:
                pairs = pairs.copy()
            x = pairs.view("<u8") & mask  # the first word of a pair is the high one
            yes: np.ndarray = x < top
            if low:
                ties = np.flatnonzero(x == top)
                if ties.size:
                    yes[ties] = pairs[2 * ties + 1] < low
            return yes

        return produce

    def _bernoulli_array(self, out: np.ndarray, p: np.ndarray) -> None:
        if p.dtype.char not in _DIGITS:
            raise _not_implemented("bernoulli_tensor_cpu_p_", p)
        if out.size == 0:
            return
        if not np.logical_and(p >= 0, p <= 1).all():
            raise RuntimeError(
                "Expected p_in >= 0 && p_in <= 1 to be true, but got false: bernoulli expects probabilities in [0, 1]"
            )
        _visit(out)
        p = np.broadcast_to(p, out.shape)
        axes = visiting_order(out, p)
        view, p = out.transpose(axes), p.transpose(axes)
        u = self.doubles(out.size) if p.dtype.char == "d" else self.floats(out.size)
        view[...] = u.reshape(view.shape) < (p if p.dtype == u.dtype else p.astype(np.float32))

    # ---- integers ---------------------------------------------------------------------------------------------------

    @locked
    def random_(self, out: np.ndarray, low: int | None = None, high: int | None = None) -> None:
        """Integers of [low, high); without `high` to the dtype's maximum (2**digits if floating); `low` is 0."""
        kind = out.dtype.char
        if low is None and high is None:
            if kind not in _DIGITS and kind not in _PLAIN:
                raise _not_implemented("random_kernel_cpu", out)
            if out.size == 0:
                return
            modulus = ((1 << _DIGITS[kind]) if kind in _DIGITS else _RANGES[kind][1]) + 1
            wide = kind == "d" or out.dtype == np.int64
            self._fill(out, lambda n: self._residues(n, modulus, 0, wide))
            return
        low = 0 if low is None else low
        if kind not in _DIGITS and out.dtype.kind not in "biu":
            raise _not_implemented("random_from_to_kernel_cpu", out)
        floating = kind in _DIGITS
        if high is not None:
            if not low < high:
                raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
            if floating:
                low, high = _inward_from(low, out.dtype), _inward_to(high, out.dtype)
                if not low < high:
                    raise RuntimeError(
                        "random_ expects 'from' casted to dtype to be less than 'to' casted to dtype, but got "
                        f"from={low} >= to={high}"
                    )
            last = high - 1
        elif low == _INT64_MIN:
            if kind not in "dfE" and out.dtype != np.int64:
                raise RuntimeError(
                    "random_full_64_bits_range_kernel_cpu handles only int64, double, float and bfloat16, got "
                    + out.dtype.name
                )
            if out.size:
                self._fill(out, lambda n: self.longs(n).view(np.int64))
            return
        else:
            if floating:
                last = 1 << _DIGITS[kind]
                low = _inward_from(low, out.dtype)
            else:
                last = min(_RANGES[kind][1], _INT64_MAX)
            if floating and not low < last:
                raise RuntimeError(
                    "random_ expects 'from' casted to dtype to be less than or equal to 'to_inc' casted to dtype, "
                    f"but got from={low} > to_inc={last}"
                )
        self._check_integers(out, low, last)
        if out.size == 0:
            return
        span = last - low + 1
        # PyTorch takes two words from 2**28 on, to keep the skew of the remainder small
        wide = span >= 1 << 28
        if not wide and kind in "lq" and out.itemsize == 8 and out.size > _NATIVE and out.flags.c_contiguous:
            if self.natively("residues", out, out.size, span, low):
                return
        self._fill(out, lambda n: self._residues(n, span, low, wide))

    def _residues(self, n: int, modulus: int, base: int, wide: bool) -> np.ndarray:
        if not wide:
            x = self.words(n)
            if modulus & (modulus - 1) == 0:
                x = x & np.uint32(min(modulus - 1, 0xFFFFFFFF))
            else:
                # NumPy divides by a scalar with vector multiplications; its remainder is six times slower
                q = x // np.uint32(modulus)
                q *= np.uint32(modulus)
                x = np.subtract(x, q, out=q)
            if base == 0:
                return x
            return x.astype(np.int64) + base
        y = self.longs(n)
        if modulus < 1 << 64:
            y %= np.uint64(modulus)
        y += np.uint64(base & 0xFFFFFFFFFFFFFFFF)
        return y.view(np.int64)

    def _check_integers(self, out: np.ndarray, low: int, last: int) -> None:
        kind = out.dtype.char
        least, most = (-_LARGEST[kind], _LARGEST[kind]) if kind in _DIGITS else _RANGES[kind]
        most = min(most, _INT64_MAX) if kind not in _DIGITS else most
        for name, value in (("from", low), ("to - 1", last)):
            if not least <= value <= most:
                raise RuntimeError(
                    f"{name} is out of bounds for {out.dtype.name}: got {value}, expected [{least}, {most}]"
                )
            if kind in _DIGITS and abs(value) > 1 << _DIGITS[kind]:
                warnings.warn(
                    f"{name} is out of bounds [-(2^{_DIGITS[kind]}), 2^{_DIGITS[kind]}]. Due to precision limitations "
                    f"{out.dtype.name} can support discrete uniform distribution only within this range.",
                    UserWarning,
                    stacklevel=4,
                )

    # ---- other continuous and discrete laws -------------------------------------------------------------------------

    @locked
    def exponential_(self, out: np.ndarray, lambd: float = 1.0) -> None:
        """Exponential with rate `lambd`."""
        if out.dtype.char not in _DIGITS:
            raise RuntimeError(
                "Exponential distribution is a continuous probability distribution. dtype must be a floating point but "
                f"you specified {out.dtype.name}"
            )
        if not lambd > 0.0:
            raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd}")
        if out.size:
            exact = out.dtype.itemsize == 8
            scale = -1.0 / lambd
            with _guard(-40 * scale, out):
                self._fill(out, lambda n: scale * boxmuller.libm("log1p", -self.doubles(n), exact))

    @locked
    def geometric_(self, out: np.ndarray, p: float) -> None:
        """The number of trials up to the first success."""
        if not 0 < p < 1:
            raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p}")
        if out.dtype.char not in _DIGITS and out.dtype.char not in _PLAIN or out.dtype.kind == "b":
            raise _not_implemented("geometric_cpu", out)
        if out.size:
            rate = math.log1p(-p)

            def produce(n: int) -> np.ndarray:
                u = self.doubles(n)
                np.maximum(u, 2.0**-1074, out=u)  # log(0) would warn; the ceiling is beyond every dtype but float64
                return np.ceil(boxmuller.libm("log", u, True) / rate)

            with np.errstate(all="ignore"):  # a tiny p exceeds every integer
                self._fill(out, produce)

    @locked
    def log_normal_(self, out: np.ndarray, mean: float = 1.0, std: float = 2.0) -> None:
        """The exponential of a normal sample, always by the scalar algorithm."""
        if not std > 0.0:
            raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std}")
        if out.dtype.char not in _DIGITS:
            raise _not_implemented("log_normal_cpu", out)
        if out.size:
            exact = out.dtype.itemsize == 8
            with _guard(math.exp(min(mean + 40 * std, 709.7)) * 1.01, out):
                self._fill(out, lambda n: boxmuller.libm("exp", self.normals(n, mean, std, exact), exact))

    @locked
    def cauchy_(self, out: np.ndarray, median: float = 0.0, sigma: float = 1.0) -> None:
        """Cauchy with the given location and scale."""
        if not sigma > 0.0:
            raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma}")
        if out.dtype.char not in _DIGITS:
            raise RuntimeError(
                "Cauchy distribution is a continuous probability distribution. dtype must be a floating point but you "
                f"specified {out.dtype.name}"
            )
        if out.size:
            exact = out.dtype.itemsize == 8

            def produce(n: int) -> np.ndarray:
                return fma(boxmuller.libm("tan", math.pi * (self.doubles(n) - 0.5), exact), sigma, median)

            with _guard(abs(median) + 1e17 * sigma, out):
                self._fill(out, produce)


def _guard(bound: float, out: np.ndarray) -> Any:
    """Silence overflow where samples as large as `bound` exceed out's dtype; setting NumPy's error state costs 1 us."""
    return _NOTHING if bound < _LARGEST[out.dtype.char] else np.errstate(all="ignore")


def _edge(p: float) -> tuple[int, int]:
    """The threshold of u < p on the 53 random bits behind u: its 21 high bits and its 32 low ones."""
    return divmod(math.ceil(p * 2.0**53), 1 << 32)


def _visit(out: np.ndarray) -> np.ndarray:
    """`out` with its axes in visiting order. RuntimeError where several elements share a place in memory."""
    for size, stride in zip(out.shape, out.strides, strict=True):
        if stride == 0 and size > 1:
            raise RuntimeError(
                "unsupported operation: more than one element of the written-to tensor refers to a single memory "
                f"location (shape {tuple(out.shape)}, an expanded axis). Please clone() the tensor before performing "
                "the operation."
            )
    return out.transpose(visiting_order(out))


def _rounded(value: int, dtype: np.dtype) -> int:
    x = float(np.float32(value)) if dtype.itemsize < 8 else float(value)
    if dtype.itemsize == 2:
        x = float(np.float32(x).astype(dtype))
    return int(x) if abs(x) < 2.0**63 else _INT64_MIN  # what the x86 conversion gives outside the range


def _inward_from(low: int, dtype: np.dtype) -> int:
    """The smallest bound at or above `low` whose samples do not fall below it when cast to `dtype`."""
    up = _rounded(low + 1, dtype)
    return up + (1 << abs(low + 1).bit_length() - _DIGITS[dtype.char]) if up < low else low


def _inward_to(high: int, dtype: np.dtype) -> int:
    """The largest bound at or below `high` whose samples stay under it when cast to `dtype`."""
    down = _rounded(high - 1, dtype)
    return down - (1 << abs(high - 1).bit_length() - _DIGITS[dtype.char]) if down >= high else high
