"""Windows for spectral analysis: `torch.hann_window(n)` and `torch.signal.windows.hann(n)`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..core import dtype as D
from .declare import creation

NS = "signal.windows"


def _check(name: str, n: int, dtype: D.dtype) -> None:
    if n < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={n}")
    if dtype.name not in ("float32", "float64"):
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {dtype!r}")


def _points(n: int, sym: bool, start: float, end: float) -> np.ndarray:
    """`n` points from start to end; where not symmetric, of the n + 1 that are, all but the last."""
    return np.linspace(start, end, n if sym else n + 1)[:n]


def cosines(n: int, sym: bool, a: Any) -> np.ndarray:
    """The alternating sum of a[k] cos(k x) over one period."""
    if n == 1:
        return np.ones(1)
    x = _points(n, sym, 0.0, 2 * math.pi)
    out = np.zeros(n)
    for k, c in enumerate(a):
        out += (-c if k % 2 else c) * np.cos(k * x)
    return out


def _bartlett(n: int, sym: bool) -> np.ndarray:
    return 1 - np.abs(_points(n, sym, -1.0, 1.0)) if n != 1 else np.ones(1)


def _kaiser(n: int, sym: bool, beta: float) -> np.ndarray:
    return (
        np.i0(beta * np.sqrt(np.maximum(1 - _points(n, sym, -1.0, 1.0) ** 2, 0))) / np.i0(beta)
        if n != 1
        else np.ones(1)
    )


@creation(ns=NS)
def general_cosine(M: int, *, a: Any, sym: bool = True, dtype=None, layout=None, device=None, requires_grad=False):
    """A sum of cosines with the weights `a`."""
    _check("general_cosine", M, dtype)
    if not len(tuple(a)):
        raise ValueError("Coefficients cannot be empty")
    return cosines(M, sym, tuple(a)).astype(dtype.np)


@creation(ns=NS)
def general_hamming(
    M: int, *, alpha: float = 0.54, sym: bool = True, dtype=None, layout=None, device=None, requires_grad=False
):
    """alpha - (1 - alpha) cos x."""
    _check("general_hamming", M, dtype)
    return cosines(M, sym, (alpha, 1 - alpha)).astype(dtype.np)


@creation(ns=NS)
def hamming(M: int, *, sym: bool = True, dtype=None, layout=None, device=None, requires_grad=False):
    """0.54 - 0.46 cos x."""
    _check("hamming", M, dtype)
    return cosines(M, sym, (0.54, 0.46)).astype(dtype.np)


@creation(ns=NS)
def hann(M: int, *, sym: bool = True, dtype=None, layout=None, device=None, requires_grad=False):
    """0.5 - 0.5 cos x."""
    _check("hann", M, dtype)
    return cosines(M, sym, (0.5, 0.5)).astype(dtype.np)


@creation(ns=NS)
def blackman(M: int, *, sym: bool = True, dtype=None, layout=None, device=None, requires_grad=False):
    """0.42 - 0.5 cos x + 0.08 cos 2x."""
    _check("blackman", M, dtype)
    return cosines(M, sym, (0.42, 0.5, 0.08)).astype(dtype.np)


@creation(ns=NS)
def nuttall(M: int, *, sym: bool = True, dtype=None, layout=None, device=None, requires_grad=False):
    """Nuttall's window of four cosines."""
    _check("nuttall", M, dtype)
    return cosines(M, sym, (0.3635819, 0.4891775, 0.1365995, 0.0106411)).astype(dtype.np)


@creation(ns=NS)
def bartlett(M: int, *, sym: bool = True, dtype=None, layout=None, device=None, requires_grad=False):
    """A triangle."""
    _check("bartlett", M, dtype)
    return _bartlett(M, sym).astype(dtype.np)


@creation(ns=NS)
def cosine(M: int, *, sym: bool = True, dtype=None, layout=None, device=None, requires_grad=False):
    """Half a period of the sine."""
    _check("cosine", M, dtype)
    n = M if sym else M + 1
    return np.sin(math.pi / max(n, 1) * (np.arange(M) + 0.5)).astype(dtype.np) if M != 1 else np.ones(1, dtype.np)


@creation(ns=NS)
def exponential(
    M: int,
    *,
    center: float | None = None,
    tau: float = 1.0,
    sym: bool = True,
    dtype=None,
    layout=None,
    device=None,
    requires_grad=False,
):
    """exp(-|x - center| / tau)."""
    _check("exponential", M, dtype)
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")
    if center is None:
        center = (M if not sym and M > 1 else M - 1) / 2.0
    return np.exp(-np.abs(np.arange(M) - center) / tau).astype(dtype.np) if M != 1 else np.ones(1, dtype.np)


@creation(ns=NS)
def gaussian(M: int, *, std: float = 1.0, sym: bool = True, dtype=None, layout=None, device=None, requires_grad=False):
    """exp(-(x / std)**2 / 2)."""
    _check("gaussian", M, dtype)
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    x = (np.arange(M) - (M if not sym and M > 1 else M - 1) / 2.0) / (std * math.sqrt(2))
    return np.exp(-x * x).astype(dtype.np)


@creation(ns=NS)
def kaiser(M: int, *, beta: float = 12.0, sym: bool = True, dtype=None, layout=None, device=None, requires_grad=False):
    """Kaiser's window of shape `beta`."""
    _check("kaiser", M, dtype)
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    return _kaiser(M, sym, beta).astype(dtype.np)


for _op in (
    general_cosine,
    general_hamming,
    hamming,
    hann,
    blackman,
    nuttall,
    bartlett,
    cosine,
    exponential,
    gaussian,
    kaiser,
):
    _op.shape(lambda M, **kw: (M,))


# --- the older functions: periodic by default -------------------------------------------------------------------------
@creation()
def hann_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype=None,
    layout=None,
    device=None,
    pin_memory=False,
    requires_grad=False,
):
    """Hann's window."""
    return cosines(window_length, not periodic, (0.5, 0.5)).astype(dtype.np)


@creation()
def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype=None,
    layout=None,
    device=None,
    pin_memory=False,
    requires_grad=False,
):
    """alpha - beta cos x."""
    return cosines(window_length, not periodic, (alpha, beta)).astype(dtype.np)


@creation()
def blackman_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype=None,
    layout=None,
    device=None,
    pin_memory=False,
    requires_grad=False,
):
    """Blackman's window."""
    return cosines(window_length, not periodic, (0.42, 0.5, 0.08)).astype(dtype.np)


@creation()
def bartlett_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype=None,
    layout=None,
    device=None,
    pin_memory=False,
    requires_grad=False,
):
    """Bartlett's window, a triangle."""
    return _bartlett(window_length, not periodic).astype(dtype.np)


@creation()
def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype=None,
    layout=None,
    device=None,
    pin_memory=False,
    requires_grad=False,
):
    """Kaiser's window."""
    return _kaiser(window_length, not periodic, beta).astype(dtype.np)


for _op in (hann_window, hamming_window, blackman_window, bartlett_window, kaiser_window):
    _op.shape(lambda window_length, **kw: (window_length,))


# --- Inputs for the generated tests (ops.samples) ---
hamming.samples(lambda s: [s.call(5), s.call(6, sym=False)])
hann.samples(lambda s: [s.call(5), s.call(6, sym=False)])
blackman.samples(lambda s: [s.call(5), s.call(6, sym=False)])
nuttall.samples(lambda s: [s.call(5), s.call(6, sym=False)])
bartlett.samples(lambda s: [s.call(5), s.call(6, sym=False)])
cosine.samples(lambda s: [s.call(5), s.call(6, sym=False)])
exponential.samples(lambda s: [s.call(5), s.call(6, sym=False)])
gaussian.samples(lambda s: [s.call(5), s.call(6, sym=False)])
kaiser.samples(lambda s: [s.call(5), s.call(6, sym=False)])
hann_window.samples(lambda s: [s.call(6), s.call(5, False)])
hamming_window.samples(lambda s: [s.call(6), s.call(5, False)])
blackman_window.samples(lambda s: [s.call(6), s.call(5, False)])
bartlett_window.samples(lambda s: [s.call(6), s.call(5, False)])
kaiser_window.samples(lambda s: [s.call(6), s.call(5, False)])
