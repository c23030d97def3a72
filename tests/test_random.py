"""The CPU random stream: PyTorch's bits, its state, its errors; and the laws themselves."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
import pathlib
import pickle
import subprocess
import sys
import threading
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rushlight.backends.cpu import boxmuller, random_kernels
from rushlight.backends.cpu.distributions import visiting_order
from rushlight.backends.cpu.mt19937 import MT19937, STATE_BYTES
from rushlight.backends.cpu.sampling import CPUStream
from rushlight.core import random as rr

GOLDEN = np.load(pathlib.Path(__file__).with_name("golden") / "random.npz")
CASES = json.loads(str(GOLDEN["cases"]))
TRANSCENDENTAL = ("normal_", "exponential_", "cauchy_", "log_normal_")


@pytest.fixture(params=["numpy", "native"])
def path(request, monkeypatch):
    """Both ways of doing the work: NumPy alone, and native loops from the first call on."""
    if request.param == "native":
        pytest.importorskip("llvmlite")
        monkeypatch.setattr(random_kernels, "_PATIENCE_WARM", 0.0)
        monkeypatch.setattr(random_kernels, "_PATIENCE_COLD", 0.0)
        assert random_kernels.kernel("words", 1) is not None, random_kernels.unavailable
    else:
        monkeypatch.setattr(random_kernels, "enabled", False)
    return request.param


def np_dtype(name: str) -> np.dtype:
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def bits(a: np.ndarray) -> np.ndarray:
    a = np.ascontiguousarray(a).reshape(-1)
    return a.view(np.int16) if a.dtype.char in "eE" else a


def same(got: np.ndarray, expected: np.ndarray) -> None:
    """Equal bits (nan and the sign of zero included)."""
    assert got.dtype == expected.dtype and got.shape == expected.shape
    unsigned = f"u{got.dtype.itemsize}"
    np.testing.assert_array_equal(
        np.ascontiguousarray(got).view(unsigned), np.ascontiguousarray(expected).view(unsigned)
    )


def stream(seed: int) -> CPUStream:
    return CPUStream(seed)


# ---- recorded PyTorch ------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*is out of bounds:UserWarning")
@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda i: f"{CASES[i]['dtype']}-{CASES[i]['method']}-{i}")
def test_fills_have_pytorchs_bits(number, path):
    case = CASES[number]
    s = stream(1000 + number)
    drawn = []
    for shape, axes, step in case["layouts"]:
        out = np.zeros(shape, np_dtype(case["dtype"])).transpose(axes)[::step]
        getattr(s, case["method"])(out, *case["args"])
        drawn.append(bits(out))
    values = np.concatenate(drawn)
    if f"case{number}" not in GOLDEN:
        assert hashlib.sha256(values.tobytes()).hexdigest()[:16] == case["digest"]
    elif case["dtype"] == "float64" and case["method"] in TRANSCENDENTAL:
        np.testing.assert_array_max_ulp(values, GOLDEN[f"case{number}"], 1)  # C libraries differ in the last place
    else:
        same(values, GOLDEN[f"case{number}"])
    state = s.get_state()
    if s.spare is None:
        assert hashlib.sha256(state.tobytes()).hexdigest()[:16] == case["state"]


def test_samplers_have_pytorchs_values(path):
    s = stream(77)
    for n in (0, 1, 2, 10, 33, 200):
        same(s.randperm(n), GOLDEN[f"randperm{n}"])
    p = np.empty((6, 9), np.float32)
    s.uniform_(p)
    same(p, GOLDEN["p"])
    same(s.multinomial(p, 20, True), GOLDEN["with"])
    same(s.multinomial(p, 4), GOLDEN["without"])
    same(s.multinomial(p.astype(np.float64), 1), GOLDEN["without1"])
    out = np.empty_like(p)
    s.bernoulli_(out, p)
    same(out, GOLDEN["bernoulli_p"])
    out = np.empty(p.shape)
    s.bernoulli_(out, p.astype(np.float64))
    same(out, GOLDEN["bernoulli_p64"])
    rates = GOLDEN["rates"]
    shape = rates + np.float32(0.1)
    for k in range(4):
        np.testing.assert_array_max_ulp(s.standard_gamma(shape), GOLDEN[f"gamma{k}"], 1)
        same(s.poisson(rates), GOLDEN[f"poisson{k}"])
        same(s.binomial(np.floor(rates), p.reshape(-1)[: len(rates)]), GOLDEN[f"binomial{k}"])
        np.testing.assert_array_max_ulp(s.dirichlet(shape.reshape(2, 4)), GOLDEN[f"dirichlet{k}"], 1)
    x = np.empty((5, 7), np.float32).T  # dropout draws in the memory order of its input
    s.uniform_(x)
    same(x, GOLDEN["dropout_in"])
    mask = np.empty_like(x, order="K")
    s.dropout_mask_(mask, 0.3)
    same(x * mask, GOLDEN["dropout_out"])


def test_state_is_pytorchs_byte_for_byte(path):
    s = stream((1 << 64) - 3)  # what PyTorch makes of -3
    s.normal_(np.empty(3, np.float32))
    s.uniform_(np.empty(1, np.float32))
    state = GOLDEN["state"]
    same(s.get_state()[: STATE_BYTES - 40], state[: STATE_BYTES - 40])  # up to the spare normal
    other = stream(0)
    other.set_state(state)
    assert other.initial_seed == (1 << 64) - 3
    same(other.get_state(), state)
    out = np.empty(5)
    other.normal_(out)
    np.testing.assert_array_max_ulp(out, GOLDEN["after_state"], 1)
    same(stream(9).get_state(), GOLDEN["state_fresh"])


# ---- the engine ------------------------------------------------------------------------------------------------------


def test_ten_thousandth_word_of_the_reference_seed():
    # the value that the C++ standard gives for std::mt19937 ([rand.predef])
    assert int(MT19937(5489).words(10000)[-1]) == 4123659995


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**32 - 1])
def test_words_are_numpys(seed, path):
    expected = np.random.RandomState(seed).randint(0, 2**32, 5000, dtype=np.uint32)
    s = stream(seed)
    got = np.concatenate([s.words(n).copy() for n in (1, 2, 600, 21, 1, 623, 1, 624, 0, 3, 1300, 1824)])
    same(got, expected)
    same(stream(seed + (5 << 32)).words(50).copy(), expected[:50])  # the high half of a seed does not matter


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 1500), min_size=1, max_size=6), st.booleans())
def test_draws_do_not_depend_on_how_they_are_cut(cuts, native):
    before, random_kernels.enabled = random_kernels.enabled, native
    try:
        whole = stream(11).words(sum(cuts)).copy()
        s = stream(11)
        parts = [s.words(n).copy() for n in cuts]
    finally:
        random_kernels.enabled = before
    same(np.concatenate(parts), whole)


@pytest.mark.parametrize("position", [0, 1, 2, 623, 624, 625, 1247, 1248, 5000])
def test_state_round_trip_at_every_kind_of_position(position, path):
    s = stream(4)
    s.words(position)
    state = s.get_state()
    expected = s.words(2000).copy()
    for _ in range(2):
        s.set_state(state)
        same(s.get_state(), state)
        same(s.words(2000).copy(), expected)


@pytest.mark.parametrize("begun", [0, 1, 300, 623])
def test_a_restored_stream_reports_the_state_of_an_uninterrupted_one(begun, path):
    whole, restored = stream(4), stream(0)
    whole.words(624 + begun)
    restored.set_state(whole.get_state())
    for n in (0, 624 - begun, 1, 623, 0, 2000):
        same(restored.words(n).copy(), whole.words(n).copy())
        same(restored.get_state(), whole.get_state())


def test_words_handed_out_are_not_overwritten_by_later_draws():
    s = stream(5)
    first = s.words(10)
    kept = first.copy()
    s.words(5000)
    s.seed(6)
    s.words(700)
    same(first, kept)


def test_mixed_calls_are_equal_natively_and_in_numpy(monkeypatch):
    pytest.importorskip("llvmlite")
    results = []
    for enabled in (False, True):
        monkeypatch.setattr(random_kernels, "enabled", enabled)
        monkeypatch.setattr(random_kernels, "_PATIENCE_WARM", 0.0)
        monkeypatch.setattr(random_kernels, "_PATIENCE_COLD", 0.0)
        s = stream(21)
        parts = []
        for n in (17, 5, 1000, 4097, 40000, 16, 33):
            for dtype in (np.float32, np.float64, np.float16):
                for method, args in (
                    ("normal_", ()), ("normal_", (0.5, 2.3)), ("uniform_", (-1, 1.7)), ("bernoulli_", (0.13,)),
                    ("exponential_", (2.0,)), ("cauchy_", ()), ("log_normal_", ()), ("random_", (0, 1000)),
                ):  # fmt: skip
                    out = np.empty(n, dtype)
                    getattr(s, method)(out, *args)
                    parts.append(bits(out).view(np.uint8))
            parts.append(s.randperm(n).view(np.uint8))
        results.append(np.concatenate([*parts, s.get_state()]))
    same(results[1], results[0])


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_dropout_mask_is_scaled_bernoulli(dtype, path):
    for n, p in ((5, 0.5), (1000, 0.1), (50000, 0.37)):
        mask, trials = np.empty(n, np_dtype(dtype)), np.empty(n, np_dtype(dtype))
        stream(n).dropout_mask_(mask, p)
        stream(n).bernoulli_(trials, 1 - p)
        kept = 1 / (1 - p) if dtype == "float64" else np.float32(1) / np.float32(1 - p)
        same(mask, np.where(trials != 0, np_dtype(dtype).type(kept), np_dtype(dtype).type(0)))


def test_without_llvmlite_numpy_does_the_work(monkeypatch):
    from rushlight.compiler import jit

    def missing(*args, **kwargs):
        raise ImportError("no llvmlite here")

    expected = np.empty(1000, np.float32)
    stream(4).normal_(expected)
    monkeypatch.setattr(jit, "compile_ir", missing)
    monkeypatch.setattr(random_kernels, "_functions", {})
    monkeypatch.setattr(random_kernels, "_PATIENCE_WARM", 0.0)
    monkeypatch.setattr(random_kernels, "_PATIENCE_COLD", 0.0)
    monkeypatch.setattr(random_kernels, "unavailable", None)
    out = np.empty(1000, np.float32)
    stream(4).normal_(out)
    same(out, expected)
    assert random_kernels.unavailable == "no llvmlite here"


@pytest.mark.parametrize("modulus", [1, 2, 3, 7, 65, 1000, 65537, (1 << 28) - 1])
def test_integers_are_remainders_of_words(modulus, path):
    out = np.empty(5003, np.int64)
    stream(modulus).random_(out, -5, modulus - 5)
    same(out, (stream(modulus).words(5003) % np.uint32(modulus)).astype(np.int64) - 5)


def test_normals_at_the_ends_of_the_uniform_range(path):
    # u1 = 0 gives the radius 0 (and no negative zero after the mean is added), u1 = 1 - 2**-24 the largest one
    u = np.zeros(16, np.float32)
    u[:8] = [0, 0, 0.5, 0.5, 1 - 2**-24, 1 - 2**-24, 2**-24, 0.25]
    u[8:] = [0, 0.5, 0, 0.25, 0, 1 - 2**-24, 0.125, 0.75]
    x = u.copy()
    boxmuller.float32_(x, 0.0, 1.0)
    assert not np.signbit(x[:2]).any() and (x[:2] == 0).all()
    r, theta = np.sqrt(-2 * np.log(1 - u[:8].astype(np.float64))), 2 * np.pi * u[8:].astype(np.float64)
    np.testing.assert_allclose(x, np.concatenate([r * np.cos(theta), r * np.sin(theta)]), rtol=2e-6, atol=2e-6)


@settings(max_examples=200, deadline=None)
@given(*(st.floats(-1e6, 1e6).filter(lambda v: v == 0 or abs(v) > 1e-6) for _ in range(3)))
def test_fma_rounds_once(a, b, c):
    assert boxmuller.fma(np.array([a]), b, c)[0] == float(Fraction(a) * Fraction(b) + Fraction(c))


# ---- the order in which memory is filled -----------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_a_permuted_array_is_filled_in_memory_order(shape, random):
    axes = list(range(len(shape)))
    random.shuffle(axes)
    flat, permuted = np.empty(math.prod(shape), np.float32), np.empty(shape, np.float32)
    stream(3).uniform_(flat)
    stream(3).uniform_(permuted.transpose(axes))
    same(permuted.reshape(-1), flat)


def test_visiting_order_lets_the_output_decide_and_breaks_ties_by_size():
    assert visiting_order(np.empty((2, 3, 4)).transpose(2, 0, 1)) == [1, 2, 0]
    out, p = np.empty((3, 4)), np.empty((4, 3)).T
    assert visiting_order(out, p) == [0, 1]
    assert visiting_order(np.broadcast_to(np.empty(1), (3, 4)), p) == [1, 0]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("n", [5, 200])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_overflow_is_silent_and_infinite(dtype, n, path):
    s, out = stream(3), np.empty(n, np_dtype(dtype))
    big = {"float16": 6e4, "float64": 1.7e308}.get(dtype, 3.3e38)
    for method, args in (
        ("normal_", (0.0, big)), ("normal_", (big, big)), ("log_normal_", (0.0, 1e3)), ("cauchy_", (0.0, big)),
        ("exponential_", (1 / big,)), ("normal_", (math.nan, 1.0)),
    ):  # fmt: skip
        getattr(s, method)(out, *args)
        overflowed = ~np.isfinite(out.astype(np.float64))
        assert overflowed.any() or n == 5, method  # five samples may all fit
    s.uniform_(out, -big / 2, big / 2)
    assert np.isfinite(out.astype(np.float64)).all() and (np.abs(out.astype(np.float64)) <= big / 2 * 1.01).all()


@pytest.mark.filterwarnings("error")
def test_geometric_beyond_the_integers_is_silent():
    for dtype in (np.int8, np.int32, np.int64, np.float16):
        for n in (5, 200):
            stream(3).geometric_(np.empty(n, dtype), 1e-300)


def test_expanded_outputs_are_refused():
    s = stream(1)
    out = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (3, 2), (0, 4))
    before = s.get_state()
    fills = [s.uniform_, s.normal_, s.bernoulli_, s.random_, s.exponential_, lambda a: s.bernoulli_(a, np.ones(2))]
    for fill in fills:
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            fill(out)
    same(s.get_state(), before)


# ---- the laws --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "args", "law"),
    [
        ("uniform_", (-2.0, 3.0), ("uniform", (-2, 5))),
        ("normal_", (1.0, 2.0), ("norm", (1, 2))),
        ("exponential_", (0.5,), ("expon", (0, 2))),
        ("cauchy_", (1.0, 0.5), ("cauchy", (1, 0.5))),
        ("log_normal_", (0.2, 0.7), ("lognorm", (0.7, 0, math.exp(0.2)))),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_continuous_laws(method, args, law, dtype):
    from scipy import stats

    out = np.empty(20000, dtype)
    getattr(stream(8), method)(out, *args)
    assert stats.kstest(out.astype(np.float64), *law).pvalue > 1e-3


def test_discrete_laws():
    from scipy import stats

    n, s = 20000, stream(12)
    out = np.empty(n, np.int64)
    s.geometric_(out, 0.3)
    counts = np.bincount(np.minimum(out, 12), minlength=13)[1:]
    expected = stats.geom.pmf(np.arange(1, 13), 0.3)
    expected[-1] = stats.geom.sf(11, 0.3)
    assert stats.chisquare(counts, n * expected).pvalue > 1e-3
    s.random_(out, -3, 4)
    assert stats.chisquare(np.bincount(out + 3, minlength=7)).pvalue > 1e-3
    s.bernoulli_(out, 0.2)
    assert abs(out.mean() - 0.2) < 5 * math.sqrt(0.16 / n)
    picked = s.multinomial(np.array([1.0, 0.0, 2.0, 5.0]), n, True)
    assert stats.chisquare(np.bincount(picked, minlength=4)[[0, 2, 3]], n * np.array([1, 2, 5]) / 8).pvalue > 1e-3
    assert not (picked == 1).any()


def test_rejection_samplers_have_the_right_moments():
    n, s = 4000, stream(13)
    for rate in (0.7, 4.0, 60.0):
        x = s.poisson(np.full(n, rate))
        assert abs(x.mean() - rate) < 5 * math.sqrt(rate / n)
        x = s.standard_gamma(np.full(n, rate))
        assert abs(x.mean() - rate) < 5 * math.sqrt(rate / n)
    for count, p in ((5.0, 0.3), (100.0, 0.4), (300.0, 0.9)):
        x = s.binomial(np.full(n, count), np.full(n, p))
        assert abs(x.mean() - count * p) < 5 * math.sqrt(count * p * (1 - p) / n)
        assert x.min() >= 0 and x.max() <= count
    x = s.dirichlet(np.tile([1.0, 2.0, 5.0], (n, 1)))
    np.testing.assert_allclose(x.sum(-1), 1, rtol=1e-12)
    np.testing.assert_allclose(x.mean(0), np.array([1, 2, 5]) / 8, atol=0.02)


@pytest.mark.parametrize("n", [0, 1, 2, 31, 32, 33, 1000])
def test_randperm_is_a_permutation(n, path):
    np.testing.assert_array_equal(np.sort(stream(n).randperm(n)), np.arange(n))


def test_sampling_without_replacement_takes_each_category_once():
    picked = stream(2).multinomial(np.array([[0.1, 5, 0, 2], [1, 1, 1, 1]]), 3)
    assert sorted(picked[0]) == [0, 1, 3] and len(set(picked[1])) == 3


def test_half_precision_uniforms_never_reach_the_upper_bound():
    for dtype in (np.dtype(np.float16), np_dtype("bfloat16")):
        out = np.empty(20000, dtype)
        stream(6).uniform_(out)
        assert float(out.astype(np.float32).max()) < 1.0


# ---- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "method", "args", "error", "message"),
    [
        ("float32", "uniform_", (2.0, 1.0), RuntimeError, "from=2.0 > to=1.0"),
        ("float32", "uniform_", (-1e39, 1.0), RuntimeError, "from is out of bounds"),
        ("float32", "uniform_", (-3e38, 3e38), RuntimeError, "to-from to exceed"),
        ("float16", "uniform_", (0.0, 1e5), RuntimeError, "to is out of bounds"),
        ("int32", "uniform_", (0.0, 1.0), NotImplementedError, "'Int'"),
        ("float32", "normal_", (0.0, -1.0), RuntimeError, "std >= 0.0, but found std -1.0"),
        ("float32", "normal_", (0.0, math.nan), RuntimeError, "std >= 0.0"),
        ("int64", "normal_", (), NotImplementedError, "'Long'"),
        ("float32", "bernoulli_", (2.0,), RuntimeError, r"p to be in \[0, 1\], but got p=2.0"),
        ("complex64", "bernoulli_", (0.5,), NotImplementedError, "ComplexFloat"),
        ("uint16", "bernoulli_", (0.5,), NotImplementedError, "UInt16"),
        ("float32", "bernoulli_", (np.array([0.5, 2.0, 0.1]),), RuntimeError, "p_in"),
        ("float32", "bernoulli_", (np.array([0.5, math.nan, 0.1]),), RuntimeError, "p_in"),
        ("float32", "bernoulli_", (np.array([1, 1, 1]),), NotImplementedError, "'Long'"),
        ("float32", "random_", (5, 5), RuntimeError, "from=5 >= to=5"),
        ("uint8", "random_", (0, 257), RuntimeError, "to - 1 is out of bounds"),
        ("int8", "random_", (-129, 5), RuntimeError, "from is out of bounds"),
        ("uint16", "random_", (), NotImplementedError, "UInt16"),
        ("int32", "random_", (-(1 << 63), None), RuntimeError, "handles only int64"),
        ("complex64", "random_", (), NotImplementedError, "ComplexFloat"),
        ("int64", "exponential_", (), RuntimeError, "dtype must be a floating point"),
        ("float32", "exponential_", (-1.0,), RuntimeError, "lambda > 0.0"),
        ("float32", "geometric_", (0.0,), RuntimeError, r"in \(0, 1\), but got p=0.0"),
        ("bool", "geometric_", (0.5,), NotImplementedError, "Bool"),
        ("float32", "cauchy_", (0.0, 0.0), RuntimeError, "sigma > 0.0"),
        ("int64", "cauchy_", (), RuntimeError, "dtype must be a floating point"),
        ("float32", "log_normal_", (0.0, 0.0), RuntimeError, "std > 0.0"),
        ("int64", "log_normal_", (), NotImplementedError, "'Long'"),
    ],
)
def test_errors_of_fills(dtype, method, args, error, message):
    s, out = stream(1), np.zeros(3, dtype)
    before = s.get_state()
    with pytest.raises(error, match=message):
        getattr(s, method)(out, *args)
    assert not out.any()
    same(s.get_state(), before)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda s: s.randperm(-1), RuntimeError, "negative dimension -1"),
        (lambda s: s.randperm(300, np.uint8), RuntimeError, "without overflow"),
        (lambda s: s.randperm(3000, np.float16), RuntimeError, "greater than 2049"),
        (lambda s: s.randperm(3, np.bool_), NotImplementedError, "randperm"),
        (lambda s: s.multinomial(np.ones((2, 2, 2)), 1), RuntimeError, "1 or 2 dim"),
        (lambda s: s.multinomial(np.ones(3, np.int64), 1), RuntimeError, "floating-point"),
        (lambda s: s.multinomial(np.ones(3), 0), RuntimeError, "n_sample <= 0"),
        (lambda s: s.multinomial(np.ones(3), 4), RuntimeError, "without replacement"),
        (lambda s: s.multinomial(np.zeros(3), 1), RuntimeError, "sum of probabilities"),
        (lambda s: s.multinomial(np.zeros(3), 1, True), RuntimeError, "sum of probabilities"),
        (lambda s: s.multinomial(-np.ones(3), 1), RuntimeError, "element < 0"),
        (lambda s: s.multinomial(np.array([1, math.inf]), 1, True), RuntimeError, "inf"),
        (lambda s: s.multinomial(np.array([1, math.nan]), 1), RuntimeError, "nan"),
        (lambda s: s.poisson(-np.ones(3)), RuntimeError, "non-negative"),
        (lambda s: s.poisson(np.ones(3, np.int64)), NotImplementedError, "poisson"),
        (lambda s: s.set_state(np.zeros(10, np.uint8)), RuntimeError, "size 5056 but found.*10"),
        (lambda s: s.set_state(np.zeros(STATE_BYTES, np.uint8)), RuntimeError, "Invalid mt19937 state"),
    ],
)
def test_errors_of_samplers(call, error, message):
    s = stream(1)
    before = s.get_state()
    with pytest.raises(error, match=message):
        call(s)
    same(s.get_state(), before)


def test_empty_fills_draw_nothing():
    s = stream(1)
    before = s.get_state()
    for method in ("uniform_", "normal_", "bernoulli_", "random_", "exponential_", "cauchy_", "log_normal_"):
        getattr(s, method)(np.empty((0, 3), np.float32))
        getattr(s, method)(np.empty((3, 0), np.float64).T)
    assert s.multinomial(np.empty((0, 3)), 2).shape == (0, 2)
    same(s.get_state(), before)


def test_half_precision_integers_beyond_the_exact_range_warn():
    with pytest.warns(UserWarning, match=r"\[-\(2\^11\), 2\^11\]"):
        stream(1).random_(np.empty(3, np.float16), 0, 5000)


# ---- the public side -------------------------------------------------------------------------------------------------


def draw(generator: rr.Generator | None = None, n: int = 5) -> np.ndarray:
    out = np.empty(n, np.float32)
    rr.stream(generator).uniform_(out)
    return out


@pytest.fixture
def default():
    """Leave the default generator as it was."""
    state = rr.default_generator._stream.get_state()
    yield rr.default_generator
    rr.default_generator._stream.set_state(state)


def test_generator_seeds():
    g = rr.Generator()
    assert g.initial_seed() == 67280421310721 and g.device.type == "cpu"
    assert g.manual_seed(7) is g and g.initial_seed() == 7
    first = draw(g)
    same(draw(g.manual_seed(7)), first)
    assert g.manual_seed(-1).initial_seed() == 2**64 - 1
    assert g.manual_seed(-(2**63)).initial_seed() == 2**63
    assert g.manual_seed(2**64 - 1).initial_seed() == 2**64 - 1
    fresh = g.seed()
    assert g.initial_seed() == fresh and g.seed() != fresh


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1])
def test_seeds_out_of_range(seed):
    g = rr.Generator()
    for set_seed in (g.manual_seed, rr.manual_seed):
        with pytest.raises(ValueError, match="Overflow when unpacking long long"):
            set_seed(seed)


@pytest.mark.parametrize("seed", [1.5, "a", None, True])
def test_generator_wants_an_int(seed):
    with pytest.raises(RuntimeError, match="manual_seed expected a long, but got"):
        rr.Generator().manual_seed(seed)


@pytest.mark.parametrize("device", ["cuda", "meta", "foo"])
def test_generator_of_other_devices(device):
    with pytest.raises(RuntimeError):
        rr.Generator(device)


def test_module_functions(default):
    assert rr.manual_seed(3.7) is default and rr.initial_seed() == 3  # PyTorch takes int(seed)
    first = draw()
    same(draw(rr.Generator().manual_seed(3)), first)
    assert rr.seed() == rr.initial_seed()
    with pytest.raises(TypeError, match="generator"):
        rr.stream(5)


def test_states_travel_between_generators(default):
    g = rr.Generator().manual_seed(5)
    g._stream.normal_(np.empty(3))  # leaves a spare
    state = g.get_state()
    assert tuple(state.shape) == (STATE_BYTES,) and state._a.dtype == np.uint8
    expected = np.empty(3)
    g._stream.normal_(expected)
    for given_state in (state, state._a):
        out = np.empty(3)
        rr.set_rng_state(given_state)
        default._stream.normal_(out)
        same(out, expected)
    same(rr.get_rng_state()._a, g.get_state()._a)
    for other in (g.clone_state(), pickle.loads(pickle.dumps(g)), copy.deepcopy(g)):
        assert other is not g and other.initial_seed() == 5
        same(draw(other), draw(g.clone_state()))


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (None, TypeError),
        ([1], TypeError),
        (np.zeros(3), TypeError),
        (np.zeros(STATE_BYTES, np.int32), TypeError),
        (np.zeros(2 * STATE_BYTES, np.uint8)[::2], RuntimeError),
        (np.zeros(10, np.uint8), RuntimeError),
        (np.zeros(STATE_BYTES, np.uint8), RuntimeError),
    ],
)
def test_bad_states(state, error):
    g = rr.Generator().manual_seed(1)
    expected = draw(g)
    g.manual_seed(1)
    with pytest.raises(error):
        g.set_state(state)
    same(draw(g), expected)


def test_states_with_a_position_outside_the_block_are_refused():
    s = stream(1)
    s.words(3)
    state = s.get_state()
    for offset, value in ((8, 0), (8, 625), (16, 700), (12, 0), (16, 4)):
        bad = state.copy()
        bad[offset : offset + 4] = np.array([value], "<i4").view(np.uint8)
        with pytest.raises(RuntimeError, match="Invalid mt19937 state"):
            s.set_state(bad)


def test_offsets_are_for_accelerators():
    for call in (lambda g: g.get_offset(), lambda g: g.set_offset(3)):
        with pytest.raises(RuntimeError, match="does not use offset"):
            call(rr.Generator())


def test_fork_rng(default):
    rr.manual_seed(1)
    expected = draw()
    rr.manual_seed(1)
    with pytest.raises(KeyError), rr.fork_rng():
        draw(n=1000)
        raise KeyError
    same(draw(), expected)
    rr.manual_seed(1)
    with rr.fork_rng(enabled=False):
        draw(n=3)
    assert not np.array_equal(draw(), expected)
    with pytest.raises(RuntimeError, match="devices"), rr.fork_rng(devices=[0]):
        pass


def test_threads_share_a_stream_without_losing_or_repeating_words():
    s, parts = stream(17), []

    def work():
        for _ in range(50):
            out = np.empty(37, np.float32)
            s.uniform_(out)
            parts.append(out)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    expected = np.empty(4 * 50 * 37, np.float32)
    stream(17).uniform_(expected)
    # every fill is whole: a stretch of the one stream
    starts = {row[0]: row for row in expected.reshape(-1, 37)}
    assert len(parts) == 200
    for part in parts:
        same(part, starts.pop(part[0]))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_forked_child_continues_from_the_parents_state(default):
    code = (
        "import os, numpy as np\n"
        "from rushlight.core import random as rr\n"
        "rr.manual_seed(3)\n"
        "a = np.empty(4, np.float32); rr.stream().uniform_(a)\n"
        "rr.stream().lock.acquire()  # as if another thread were drawing\n"
        "r, w = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    rr.stream().uniform_(a); os.write(w, a.tobytes()); os._exit(0)\n"
        "os.wait(); rr.stream().uniform_(a)\n"
        "assert os.read(r, 16) == a.tobytes()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_numpy_random_is_imported_by_the_first_draw_only():
    code = (
        "import sys; from rushlight.core import random as rr\n"
        "rr.manual_seed(1); rr.initial_seed()\n"
        "late = {'numpy.random', 'llvmlite', 'scipy', 'ml_dtypes', 'rushlight.backends.cpu.sampling'}\n"
        "assert not late & set(sys.modules)\n"
        "import numpy as np; rr.stream().uniform_(np.empty(3, np.float32))\n"
        "assert 'llvmlite' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# ---- real PyTorch, where it is installed -----------------------------------------------------------------------------


def test_against_an_installed_pytorch(path):
    torch = pytest.importorskip("torch")
    s = stream(99)
    torch.manual_seed(99)
    rng = np.random.default_rng(0)
    methods = [
        ("uniform_", (-0.3, 0.8)), ("normal_", (0.1, 1.3)), ("bernoulli_", (0.37,)), ("exponential_", (1.7,)),
        ("random_", (0, 1000)), ("random_", ()), ("geometric_", (0.2,)), ("cauchy_", (0.5, 2.0)), ("uniform_", ()),
    ]  # fmt: skip
    for _ in range(150):
        method, args = methods[rng.integers(len(methods))]
        dtype = ["float32", "float64", "float16"][rng.integers(3)]
        shape = tuple(int(v) for v in rng.integers(0, 40, rng.integers(1, 4)))
        axes = [int(v) for v in rng.permutation(len(shape))]
        t = torch.zeros(shape, dtype=getattr(torch, dtype)).permute(axes)
        a = np.zeros(shape, dtype).transpose(axes)
        getattr(t, method)(*args)
        getattr(s, method)(a, *args)
        same(np.ascontiguousarray(a), t.contiguous().numpy())
    same(s.get_state(), torch.get_rng_state().numpy())
    same(s.randperm(5000), torch.randperm(5000).numpy())
