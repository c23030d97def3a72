"""Samples that are not filled element by element from one formula: permutations, categories, and the rejection methods.

The rejection methods follow the papers that PyTorch's kernels follow: gamma by Marsaglia & Tsang (2000), Poisson by
Hoermann's PTRS (1993), binomial by Hoermann's BTRS (1993) or geometric gaps. They are sequential by nature (the number
of words drawn depends on the samples), so they run one element at a time.
"""

from __future__ import annotations

import math

import numpy as np

from rushlight.backends.cpu import random_kernels
from rushlight.backends.cpu.distributions import Distributions, locked, visiting_order
from rushlight.backends.cpu.mt19937 import address

__all__ = ["CPUStream"]

_SMALL_PERMUTATION = 0xFFFFFFFF // 20  # from here PyTorch draws 64-bit words
_MAX_CATEGORIES = 1 << 24
_THIRD = float(np.float32(1) / np.float32(3))  # PyTorch's gamma has these two in single precision whatever the dtype
_SQUEEZE = float(np.float32(0.0331))
_EXACT = {"e": 1 << 11, "E": 1 << 8, "f": 1 << 24, "d": 1 << 53}


class CPUStream(Distributions):
    """The CPU generator's stream with everything that draws from it; each call is atomic among threads."""

    __slots__ = ()

    # ---- permutations -----------------------------------------------------------------------------------------------

    @locked
    def randperm(self, n: int, dtype: np.dtype | type = np.int64) -> np.ndarray:
        """A random permutation of 0 .. n-1."""
        if n < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {n}: [{n}]")
        dtype = np.dtype(dtype)
        exact = _EXACT.get(dtype.char)
        if exact is None and dtype.kind not in "iu":
            raise NotImplementedError(f"\"randperm\" not implemented for '{dtype.name}'")
        if exact is not None and n > exact + 1:
            raise RuntimeError(f"n cannot be greater than {exact + 1} for {dtype.name}, got n={n}")
        if exact is None and n > 127 and n > int(np.iinfo(dtype).max):
            raise RuntimeError(f"value cannot be converted to type {dtype.name} without overflow: n={n}")
        items = np.arange(n, dtype=np.int64)
        if n < 2:
            return items.astype(dtype, copy=False)
        if n < _SMALL_PERMUTATION:
            self._shuffle(items)
            return items.astype(dtype, copy=False)
        order = items.tolist()
        for i, word in enumerate(self.longs(n).tolist()):
            j = word % (i + 1)
            order[i] = order[j]
            order[j] = i
        return np.array(order, np.int64).astype(dtype, copy=False)

    def _shuffle(self, items: np.ndarray) -> None:
        n = items.size
        words = self.words(n - 1)
        if n <= 32:
            order = list(range(n))
            for i, word in enumerate(words.tolist()):
                j = i + word % (n - i)
                order[i], order[j] = order[j], order[i]
            items[...] = order
            return
        native = random_kernels.kernel("shuffle", n)
        if native is not None:
            native(address(items), address(words), n)
            return
        order = items.tolist()
        left = np.arange(n, 1, -1, dtype=np.uint32)
        partners = (words % left).astype(np.int64)
        partners += np.arange(n - 1)
        for i, j in enumerate(partners.tolist()):
            order[i], order[j] = order[j], order[i]
        items[...] = order

    # ---- categories -------------------------------------------------------------------------------------------------

    @locked
    def multinomial(self, p: np.ndarray, num_samples: int, replacement: bool = False) -> np.ndarray:
        """Indices drawn in proportion to each row of `p` (1 or 2 dimensions): int64 of shape (rows, num_samples)."""
        if not 0 < p.ndim <= 2:
            raise RuntimeError(f"prob_dist must be 1 or 2 dim, got {p.ndim}")
        if p.dtype.name not in ("float16", "bfloat16", "float32", "float64"):
            raise RuntimeError(f"multinomial only supports floating-point dtypes for input, got: {p.dtype.name}")
        if num_samples <= 0:
            raise RuntimeError(f"cannot sample n_sample <= 0 samples, got {num_samples}")
        categories = p.shape[-1]
        if not replacement and num_samples > categories:
            raise RuntimeError(
                "cannot sample n_sample > prob_dist.size(-1) samples without replacement: "
                f"n_sample={num_samples}, prob_dist.size(-1)={categories}"
            )
        if categories > _MAX_CATEGORIES:
            raise RuntimeError(f"number of categories cannot exceed 2^24, got {categories}")
        if p.ndim == 2 and len(p) == 0:
            return np.empty((0, num_samples), np.int64)
        wide = p.astype(np.float32) if p.dtype.itemsize == 2 else p
        if not ((wide >= 0) & (wide < np.inf)).all():
            raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
        if not (wide.sum(-1) > 0).all():
            raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
        if replacement:
            return self._with_replacement(wide, num_samples)
        return self._without_replacement(p, wide, num_samples)

    def _with_replacement(self, p: np.ndarray, num_samples: int) -> np.ndarray:
        rows = p.reshape(-1, p.shape[-1])
        out = np.empty((len(rows), num_samples), np.int64)
        for row, picked in zip(rows, out, strict=True):
            cumulative = np.cumsum(row, dtype=row.dtype)
            cumulative /= cumulative[-1]
            cumulative[-1] = 1
            picked[...] = np.searchsorted(cumulative.astype(np.float64), self.doubles(num_samples))
        return out.reshape(p.shape[:-1] + (num_samples,))

    def _without_replacement(self, p: np.ndarray, wide: np.ndarray, num_samples: int) -> np.ndarray:
        # The largest p / q with q exponential is a category drawn in proportion to p; the largest k are k such draws
        # without replacement.
        q = np.empty_like(p, order="K")
        self.exponential_(q)
        ratio = (wide / q.astype(wide.dtype, copy=False)).astype(p.dtype, copy=False)
        if num_samples == 1:
            return np.argmax(ratio, axis=-1, keepdims=True)
        return np.argsort(-ratio.astype(wide.dtype, copy=False), axis=-1, kind="stable")[..., :num_samples]

    # ---- rejection methods ------------------------------------------------------------------------------------------

    def _sequential(self, inputs: tuple[np.ndarray, ...], out: np.ndarray, sample) -> np.ndarray:  # type: ignore[no-untyped-def]
        """out[i] = sample(inputs[0][i], ...) element by element in PyTorch's visiting order."""
        axes = visiting_order(out, *inputs)
        columns = [x.transpose(axes).ravel().tolist() for x in inputs]
        view = out.transpose(axes)
        view[...] = np.array([sample(*row) for row in zip(*columns, strict=True)], np.float64).reshape(view.shape)
        return out

    def _double(self) -> float:
        return self.few_doubles(1)[0]

    @locked
    def standard_gamma(self, alpha: np.ndarray) -> np.ndarray:
        """Gamma samples with shape `alpha` and unit scale, of alpha's dtype and layout."""
        scalar = alpha.dtype.type
        if alpha.dtype.name not in ("float32", "float64"):
            raise NotImplementedError(f"\"gamma_cpu\" not implemented for '{alpha.dtype.name}'")
        tiny = float(np.finfo(scalar).tiny)

        def one(a: float) -> float:
            return max(tiny, float(scalar(self._gamma(a, scalar))))

        return self._sequential((alpha,), np.empty_like(alpha, order="K"), one)

    def _gamma(self, a: float, scalar: type) -> float:
        scale = 1.0
        if a < 1.0:
            if a == 0.0:
                return 0.0
            scale = math.pow(1.0 - self._double(), float(scalar(1.0) / scalar(a)))
            a = float(scalar(a) + scalar(1.0))
        d = float(scalar(a) - scalar(_THIRD))
        c = 1.0 / math.sqrt(9.0 * d)
        while True:
            x = self.one_normal()
            y = 1.0 + c * x
            while y <= 0:
                x = self.one_normal()
                y = 1.0 + c * x
            v = y * y * y
            u = 1.0 - self._double()
            xx = x * x
            if u < 1.0 - _SQUEEZE * xx * xx:
                return scale * d * v
            if math.log(u) < 0.5 * xx + d * (1.0 - v + math.log(v)):
                return scale * d * v

    @locked
    def dirichlet(self, alpha: np.ndarray) -> np.ndarray:
        """Samples of the simplex over the last axis: normalised gammas, drawn in float64."""
        tiny = float(np.finfo(np.float64).tiny)
        gamma = np.empty_like(alpha, dtype=np.float64, order="K")
        self._sequential((alpha,), gamma, lambda a: max(tiny, self._gamma(a, np.float64)))
        x = (gamma / gamma.sum(-1, keepdims=True)).astype(alpha.dtype)
        scalar = alpha.dtype.type
        return np.clip(x, np.finfo(scalar).tiny, np.nextafter(scalar(1), scalar(0)))

    @locked
    def poisson(self, rate: np.ndarray) -> np.ndarray:
        """Poisson samples of the given rates, of their dtype and layout."""
        if rate.dtype.name not in ("float16", "bfloat16", "float32", "float64"):
            raise NotImplementedError(f"\"poisson_cpu\" not implemented for '{rate.dtype.name}'")
        if not (rate >= 0).all():
            raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
        return self._sequential((rate,), np.empty_like(rate, order="K"), self._poisson)

    def _poisson(self, rate: float) -> float:
        if rate == 0:
            return 0.0
        if rate < 10:
            level, product, k = math.exp(-rate), 1.0, 0
            while True:
                product *= self._double()
                if not product > level:
                    return k
                k += 1
        root, log_rate = math.sqrt(rate), math.log(rate)
        b = 0.931 + 2.53 * root
        a = -0.059 + 0.02483 * b
        inverse = 1.1239 + 1.1328 / (b - 3.4)
        edge = 0.9277 - 3.6224 / (b - 2)
        while True:
            u = self._double() - 0.5
            v = self._double()
            us = 0.5 - abs(u)
            k = math.floor((2 * a / us + b) * u + rate + 0.43)
            if us >= 0.07 and v <= edge:
                return k
            if k < 0 or (us < 0.013 and v > us):
                continue
            left = (math.log(v) if v > 0 else -math.inf) + math.log(inverse) - math.log(a / (us * us) + b)
            if left <= -rate + k * log_rate - math.lgamma(k + 1.0):
                return k

    @locked
    def binomial(self, count: np.ndarray, prob: np.ndarray) -> np.ndarray:
        """Successes in `count` trials of probability `prob` (same shape and dtype)."""
        if count.dtype.name not in ("float32", "float64"):
            raise NotImplementedError(f"\"binomial_cpu\" not implemented for '{count.dtype.name}'")
        scalar = count.dtype.type

        def one(n: float, p: float) -> float:
            if n <= 0 or p <= 0:
                return 0.0
            if p >= 1:
                return n
            if math.isnan(p):
                return p
            rare = p if p <= 0.5 else float(scalar(1.0 - p))
            k = (self._btrs if float(scalar(n) * scalar(rare)) >= 10 else self._gaps)(n, rare, scalar)
            return k if p <= 0.5 else n - k

        return self._sequential((count, prob), np.empty_like(count, order="K"), one)

    def _gaps(self, n: float, p: float, scalar: type) -> float:
        """Binomial by inversion: how many geometric gaps fit into n."""
        log_q = float(np.log1p(scalar(-p)))
        total, k = 0.0, 0
        while True:
            u = self._double()
            total += math.ceil(math.log(u) / log_q) if u > 0 else math.inf
            if total > n:
                return k
            k += 1

    def _btrs(self, n: float, p: float, scalar: type) -> float:
        """Binomial by transformed rejection; expressions in count and prob alone are in their own precision."""
        s_n, s_p = scalar(n), scalar(p)
        deviation = float(np.sqrt(s_n * s_p * (scalar(1) - s_p)))
        b = 1.15 + 2.53 * deviation
        a = -0.0873 + 0.0248 * b + 0.01 * p
        c = float(s_n * s_p) + 0.5
        edge = 0.92 - 4.2 / b
        r = float(s_p / (scalar(1) - s_p))
        alpha = (2.83 + 5.1 / b) * deviation
        m = float(np.floor((s_n + scalar(1)) * s_p))
        while True:
            u = self._double() - 0.5
            v = self._double()
            us = 0.5 - abs(u)
            k = math.floor((2 * a / us + b) * u + c)
            if k < 0 or k > n:
                continue
            if us >= 0.07 and v <= edge:
                return k
            scaled = v * alpha / (a / (us * us) + b)
            left = math.log(scaled) if scaled > 0 else -math.inf
            right = (
                (m + 0.5) * math.log((m + 1) / (r * (n - m + 1)))
                + (n + 1) * math.log((n - m + 1) / (n - k + 1))
                + (k + 0.5) * math.log(r * (n - k + 1) / (k + 1))
                + _stirling(m) + _stirling(n - m) - _stirling(k) - _stirling(n - k)
            )
            if left <= right:
                return k


def _stirling(k: float) -> float:
    """log k! minus Stirling's approximation of it: exact for small k, two terms of the series beyond."""
    if k < 10:
        return _TAIL[int(k)]
    square = (k + 1) * (k + 1)
    return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1)


_HALF_LOG_2_PI = 0.5 * math.log(2 * math.pi)
_TAIL = tuple(math.lgamma(k + 1.0) - ((k + 0.5) * math.log(k + 1.0) - (k + 1.0) + _HALF_LOG_2_PI) for k in range(10))
