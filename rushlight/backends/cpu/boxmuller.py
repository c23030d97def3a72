"""The Box-Muller transform in the two forms PyTorch has, with its bits.

float32 fills of 16 and more use Cephes' polynomials with fused multiply-adds, eight radii and eight angles to a block.
NumPy has no fused multiply-add, but float64 holds the product of two float32 numbers exactly, so computing each step in
float64 and rounding once gives the same bits (up to double rounding, about once in 2**29 steps).
float64 results use the C library's log, log1p, sin and cos, natively or through Python's math, never NumPy's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from rushlight.backends.cpu import cephes, random_kernels
from rushlight.backends.cpu.mt19937 import address

__all__ = ["fma", "float32_", "float64_", "pair", "pairs", "libm"]

_F = np.float32
_FEW = 64  # below this Python's own calls into the C library are quicker than loading anything
_ROWS = 512


def float32_(data: np.ndarray, mean: float, std: float) -> None:
    """Turn float32 uniforms into normals in place; `data` is contiguous, its size a multiple of 16."""
    n = data.size
    native = random_kernels.kernel("transform32", n)
    if native is not None:
        native(address(data), n // 16, mean, std)
        return
    blocks = data.reshape(-1, 2, 8)
    for at in range(0, len(blocks), _ROWS):
        part = blocks[at : at + _ROWS]
        radius = np.sqrt(_F(-2) * _log(_F(1) - part[:, 0]))
        sine, cosine = _sincos(_F(2 * math.pi) * part[:, 1])
        part[:, 0] = _fma(radius * cosine, _F(std), _F(mean))
        part[:, 1] = _fma(radius * sine, _F(std), _F(mean))


def fma(a: np.ndarray, b: float, c: float) -> np.ndarray:
    """a * b + c in float64 with one rounding: Dekker's product and Knuth's sum; exact but for ties of the last step."""
    if c == 0.0 or math.frexp(b)[0] in (0.5, -0.5, 0.0):
        return a * b + c  # the product is exact, or nothing is added
    if abs(b) > 2.0**900 or abs(c) > 2.0**900:  # splitting would overflow
        return fma(a, b * 2.0**-100, c * 2.0**-100) * 2.0**100
    p = a * b
    t = a * 134217729.0
    ah = t - (t - a)
    al = a - ah
    t = b * 134217729.0
    bh = t - (t - b)
    bl = b - bh
    e = ((ah * bh - p) + ah * bl + al * bh) + al * bl
    s = p + c
    v = s - p
    e += (p - (s - v)) + (c - v)
    s += e
    return s


def _fma(a: np.ndarray, b: np.ndarray | np.float32 | float, c: np.ndarray | np.float32 | float) -> np.ndarray:
    x = np.multiply(a, b, dtype=np.float64)
    x += c
    return x.astype(_F)


def _log(u: np.ndarray) -> np.ndarray:
    """log of float32 in (0, 1]."""
    bits = u.view(np.int32)
    e = (bits >> 23) - 126
    m = ((bits & 0x7FFFFF) | 0x3F000000).view(_F)
    small = m < _F(cephes.SQRTHF)
    e = e.astype(_F) - small
    x = (m - _F(1)) + np.where(small, m, _F(0))
    z = x * x
    x64 = x.astype(np.float64)
    y = np.multiply(x64, _F(cephes.LOG_P[0]))
    y += _F(cephes.LOG_P[1])
    for p in cephes.LOG_P[2:]:
        y = y.astype(_F) * x64
        y += _F(p)
    y = _fma(y.astype(_F) * x, z, e * _F(cephes.LOG_Q1))
    y -= z * _F(0.5)
    x += y
    x += e * _F(cephes.LOG_Q2)
    return x


def _sincos(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """sin and cos of float32 in [0, 2 pi]."""
    j = ((x * _F(cephes.FOPI)).astype(np.int32) + 1) & ~1
    q = j.astype(np.float64)
    for p in cephes.DP:
        x = _fma(q, _F(p), x)
    z = x * x
    c = _fma(z, _F(cephes.COS_P[0]), _F(cephes.COS_P[1]))
    c = _fma(c, z, _F(cephes.COS_P[2])) * z
    c = _fma(c, z, z * _F(-0.5)) + _F(1)
    s = _fma(z, _F(cephes.SIN_P[0]), _F(cephes.SIN_P[1]))
    s = _fma(s, z, _F(cephes.SIN_P[2])) * z
    s = _fma(s, x, x)
    even = (j & 2) == 0
    sine, cosine = np.where(even, s, c), np.where(even, c, s)
    np.negative(sine, out=sine, where=(j & 4) != 0)
    np.negative(cosine, out=cosine, where=((j - 2) & 4) == 0)
    return sine, cosine


def float64_(data: np.ndarray, mean: float, std: float) -> None:
    """Turn float64 uniforms into normals in place; `data` is contiguous, its size a multiple of 16."""
    n = data.size
    native = random_kernels.kernel("normal64", n)
    if native is not None:
        native(address(data), n // 16, mean, std)
        return
    blocks = data.reshape(-1, 2, 8)
    radius = np.sqrt(-2.0 * _one_by_one("log", 1.0 - blocks[:, 0]))
    theta = (2.0 * math.pi) * blocks[:, 1]
    blocks[:, 0] = fma(radius * _one_by_one("cos", theta), std, mean)
    blocks[:, 1] = fma(radius * _one_by_one("sin", theta), std, mean)


def pair(angle: float, level: float) -> tuple[float, float]:
    """One pair of normals from two uniforms in [0, 1)."""
    r = math.sqrt(-2.0 * math.log1p(-level))
    theta = 2.0 * math.pi * angle
    return r * math.cos(theta), r * math.sin(theta)


def pairs(u: np.ndarray, exact: bool) -> tuple[np.ndarray, np.ndarray]:
    """Normals from float64 uniforms u[0], u[1], ...: (radius cos, radius sin) of each pair, angle first."""
    n = u.size // 2
    if n <= _FEW:
        turns = iter(u.tolist())
        both = [pair(angle, level) for angle, level in zip(turns, turns, strict=True)]
        return np.array([c for c, _ in both]), np.array([s for _, s in both])
    if exact:
        native = random_kernels.kernel("pairs", n)
        if native is not None:
            c, s = np.empty(n), np.empty(n)
            u = np.ascontiguousarray(u)
            native(address(u), address(c), address(s), n)
            return c, s
    log1p, cos, sin = (_exactly if exact else _vectorised)("log1p", "cos", "sin")
    radius = np.sqrt(-2.0 * log1p(-u[1::2]))
    theta = (2.0 * math.pi) * u[0::2]
    return radius * cos(theta), radius * sin(theta)


def libm(name: str, x: np.ndarray, exact: bool) -> np.ndarray:
    """log, log1p, exp or tan of a float64 array of one dimension; with the C library's bits where `exact`."""
    if not exact and x.size > _FEW:
        return getattr(np, name)(x)  # type: ignore[no-any-return]
    native = random_kernels.kernel(name, x.size) if x.size > _FEW else None
    if native is None:
        return _one_by_one(name, x)
    y = np.array(x, order="C")
    native(address(y), y.size)
    return y


def _one_by_one(name: str, x: np.ndarray) -> np.ndarray:
    """Python's mathematics is the C library's: its bits without llvmlite, at 60 ns an element."""
    f = _exp if name == "exp" else getattr(math, name)
    return np.array(list(map(f, x.ravel().tolist())), np.float64).reshape(x.shape)


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def _exactly(*names: str) -> list[Callable[[np.ndarray], np.ndarray]]:
    return [partial(_one_by_one, name) for name in names]


def _vectorised(*names: str) -> list[Callable[[np.ndarray], np.ndarray]]:
    return [getattr(np, name) for name in names]
