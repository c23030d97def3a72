"""Convolution array functions against a direct reading of the definition (einsum over sliding windows)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from rushlight.backends.cpu import conv, native, threads

RNG = np.random.default_rng


def windows(x, kernel, stride, padding, dilation):
    """(N, C, *out, *kernel) view of every window of the zero-padded input."""
    r = len(kernel)
    xp = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)])
    reach = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True))
    v = np.lib.stride_tricks.sliding_window_view(xp, reach, axis=tuple(range(2, 2 + r)))
    at = (slice(None), slice(None), *(slice(None, None, s) for s in stride), *(slice(None, None, d) for d in dilation))
    return v[at]


def forward(x, w, bias, stride, padding, dilation, groups):
    r, n, o = w.ndim - 2, x.shape[0], w.shape[0]
    v = windows(x, w.shape[2:], stride, padding, dilation)
    v = v.reshape(n, groups, x.shape[1] // groups, *v.shape[2:])
    wg = w.reshape(groups, o // groups, *w.shape[1:])
    k, s = "xyz"[:r], "abd"[:r]
    y = np.einsum(f"ngc{s}{k},gqc{k}->ngq{s}", v, wg).reshape(n, o, *v.shape[3:3 + r])
    return y if bias is None else y + bias.reshape(-1, *[1] * r)


def weight_grad(gy, x, w_shape, stride, padding, dilation, groups):
    r, n, o = len(w_shape) - 2, x.shape[0], w_shape[0]
    v = windows(x, w_shape[2:], stride, padding, dilation)
    v = v.reshape(n, groups, x.shape[1] // groups, *v.shape[2:])
    k, s = "xyz"[:r], "abd"[:r]
    g = gy.reshape(n, groups, o // groups, *gy.shape[2:])
    return np.einsum(f"ngc{s}{k},ngq{s}->gqc{k}", v, g).reshape(w_shape)


def input_grad(gy, w, x_shape, stride, padding, dilation, groups):
    """Scatter every product to where its input element is."""
    o = w.shape[0]
    big = np.zeros((*x_shape[:2], *(i + 2 * p + d * k + s for i, p, d, k, s in
                                    zip(x_shape[2:], padding, dilation, w.shape[2:], stride, strict=True))), gy.dtype)
    cg, og = w.shape[1], o // groups
    for k in itertools.product(*map(range, w.shape[2:])):
        at = tuple(slice(t * d, t * d + (q - 1) * s + 1, s)
                   for t, d, q, s in zip(k, dilation, gy.shape[2:], stride, strict=True))
        for g in range(groups):
            tap = w[(slice(g * og, (g + 1) * og), slice(None), *k)]
            part = np.einsum("nq...,qc->nc...", gy[:, g * og:(g + 1) * og], tap)
            big[(slice(None), slice(g * cg, (g + 1) * cg), *at)] += part
    return big[(..., *(slice(p, p + i) for p, i in zip(padding, x_shape[2:], strict=True)))]


def close(a, b, dtype):
    assert a.shape == b.shape
    scale = max(1.0, float(np.abs(b).max(initial=0)))
    np.testing.assert_allclose(a, b, rtol=0, atol=scale * (3e-5 if dtype == np.float32 else 1e-12))


def check(x, w, bias, stride, padding, dilation, groups, gy_seed=1):
    dtype = x.dtype
    x64, w64 = x.astype(np.float64), w.astype(np.float64)
    b64 = None if bias is None else bias.astype(np.float64)
    want = forward(x64, w64, b64, stride, padding, dilation, groups)
    shape = conv.conv_output_shape(x.shape, w.shape, stride, padding, dilation, groups)
    assert shape == want.shape
    y = conv.conv_forward(x, w, bias, stride, padding, dilation, groups)
    assert y.dtype == dtype and y.flags.c_contiguous
    close(y, want, dtype)
    gy = RNG(gy_seed).standard_normal(shape).astype(dtype)
    gx = conv.conv_input_grad(gy, w, x.shape, stride, padding, dilation, groups)
    assert gx.dtype == dtype
    close(gx, input_grad(gy.astype(np.float64), w64, x.shape, stride, padding, dilation, groups), dtype)
    gw = conv.conv_weight_grad(gy, x, w.shape, stride, padding, dilation, groups)
    assert gw.dtype == dtype
    close(gw, weight_grad(gy.astype(np.float64), x64, w.shape, stride, padding, dilation, groups), dtype)


CASES = [  # N, C, spatial, O, kernel, stride, padding, dilation, groups
    (2, 3, (9,), 5, (3,), 1, 1, 1, 1),
    (2, 4, (40,), 6, (5,), 2, 2, 2, 2),
    (1, 1, (1,), 1, (1,), 1, 0, 1, 1),
    (3, 2, (300,), 17, (7,), 3, 0, 1, 1),
    (2, 1, (28, 28), 32, (3, 3), 1, 0, 1, 1),
    (2, 5, (28, 28), 9, (3, 3), 1, 1, 1, 1),
    (2, 16, (8, 8), 32, (3, 3), 1, 1, 1, 1),
    (2, 8, (16, 16), 8, (3, 3), 1, 1, 1, 1),
    (2, 6, (32, 32), 7, (3, 3), 1, 1, 1, 1),
    (2, 3, (29, 31), 10, (7, 7), 2, 3, 1, 1),
    (2, 16, (32, 32), 8, (1, 1), 2, 0, 1, 1),
    (2, 24, (14, 14), 15, (1, 1), 1, 0, 1, 1),
    (2, 12, (15, 17), 12, (3, 3), 1, 1, 1, 12),
    (2, 6, (15, 17), 12, (3, 3), 2, 1, 1, 6),
    (1, 8, (20, 11), 12, (3, 2), (2, 1), (1, 0), (1, 3), 4),
    (2, 2, (6, 7), 3, (2, 3), 3, (1, 2), 1, 1),            # stride beyond the kernel: inputs that nothing reads
    (1, 2, (9, 9), 3, (3, 3), 1, 5, 1, 1),                 # padding beyond the kernel
    (1, 3, (60, 70), 4, (3, 3), 1, 1, 1, 1),               # several slabs of one image
    (1, 70, (40, 40), 3, (3, 3), 1, 1, 1, 1),
    (2, 3, (5, 6, 7), 4, (3, 3, 3), 1, 1, 1, 1),
    (1, 4, (7, 8, 9), 6, (2, 3, 1), (2, 1, 3), (1, 0, 2), (1, 2, 1), 2),
    (2, 3, (4, 8, 16), 5, (3, 3, 3), 1, 1, 1, 1),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward_and_gradients(case, dtype):
    n, c, spatial, o, kernel, s, p, d, g = case
    r, rng = len(spatial), RNG(0)
    s, p, d = (v if isinstance(v, tuple) else (v,) * r for v in (s, p, d))
    x = rng.standard_normal((n, c, *spatial)).astype(dtype)
    w = rng.standard_normal((o, c // g, *kernel)).astype(dtype)
    check(x, w, rng.standard_normal(o).astype(dtype), s, p, d, g)


@pytest.mark.parametrize("seed", range(60))
def test_random_geometry(seed):
    rng = RNG(seed)
    r = int(rng.integers(1, 4))
    g = int(rng.choice([1, 1, 2, 3]))
    c, o, n = g * int(rng.integers(1, 5)), g * int(rng.integers(1, 12)), int(rng.integers(1, 4))
    kernel, stride, dilation = (tuple(int(v) for v in rng.integers(1, hi, r)) for hi in (5, 4, 4))
    padding = tuple(int(v) for v in rng.integers(0, 4, r))
    spatial = tuple(max(int(i), d * (k - 1) + 1 - 2 * p) for i, k, p, d in
                    zip(rng.integers(1, (40, 14, 8)[r - 1], r), kernel, padding, dilation, strict=True))
    dtype = (np.float32, np.float64)[seed % 2]
    x = rng.standard_normal((n, c, *spatial)).astype(dtype)
    w = rng.standard_normal((o, c // g, *kernel)).astype(dtype)
    check(x, w, None, stride, padding, dilation, g, seed)


@pytest.mark.parametrize("case", CASES[::3], ids=str)
def test_numpy_path_agrees(case, monkeypatch):
    monkeypatch.setattr(native, "available", lambda: False)
    conv._forward_setup.cache_clear()
    conv._grad_setup.cache_clear()
    try:
        test_forward_and_gradients(case, np.float64)
    finally:
        conv._forward_setup.cache_clear()
        conv._grad_setup.cache_clear()


@pytest.mark.parametrize("case", [CASES[1], CASES[6], CASES[9], CASES[12], CASES[19]], ids=str)
def test_equal_bits_whatever_the_threads(case):
    n, c, spatial, o, kernel, s, p, d, g = case
    rng = RNG(3)
    x = rng.standard_normal((8 * n, c, *spatial)).astype(np.float32)
    w = rng.standard_normal((o, c // g, *kernel)).astype(np.float32)
    before = threads.num_threads()
    results = []
    try:
        for count in (1, 2, 3):
            threads.set_num_threads(count)
            y = conv.conv_forward(x, w, None, s, p, d, g)
            results.append((y, conv.conv_input_grad(y, w, x.shape, s, p, d, g),
                            conv.conv_weight_grad(y, x, w.shape, s, p, d, g)))
    finally:
        threads.set_num_threads(before)
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert a.tobytes() == b.tobytes()


def test_strided_inputs():
    rng = RNG(4)
    x = np.asfortranarray(rng.standard_normal((2, 3, 9, 8)))[:, :, ::-1, ::2]
    w = rng.standard_normal((3, 3, 3, 4)).transpose(1, 0, 3, 2)[:, :, :2]
    check(x, w, rng.standard_normal(6)[::2], (1, 1), (1, 1), (1, 1), 1)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_types_accumulate_in_float32(dtype):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dt = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    ones = np.ones((1, 4096, 1, 1), dt)
    y = conv.conv_forward(ones, np.ones((2, 4096, 1, 1), dt))
    assert y.dtype == dt and (y.astype(np.float64) == 4096).all()
    gw = conv.conv_weight_grad(np.ones((4096, 2, 1), dt), np.ones((4096, 3, 1), dt), (2, 3, 1))
    assert gw.dtype == dt and (gw.astype(np.float64) == 4096).all()


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.complex64, np.complex128])
def test_other_dtypes(dtype):
    rng = RNG(5)
    def make(*shape):
        a = rng.integers(-5, 6, shape).astype(dtype)
        return a + 1j * rng.integers(-5, 6, shape) if a.dtype.kind == "c" else a
    x, w, b = make(2, 4, 7, 6).astype(dtype), make(6, 2, 3, 2).astype(dtype), make(6).astype(dtype)
    y = conv.conv_forward(x, w, b, (2, 1), (1, 0), 1, 2)
    assert y.dtype == dtype
    np.testing.assert_array_equal(y, forward(x, w, b, (2, 1), (1, 0), (1, 1), 2))
    gx = conv.conv_input_grad(y, w, x.shape, (2, 1), (1, 0), 1, 2)
    np.testing.assert_array_equal(gx, input_grad(y, w, x.shape, (2, 1), (1, 0), (1, 1), 2))
    gw = conv.conv_weight_grad(y, x, w.shape, (2, 1), (1, 0), 1, 2)
    np.testing.assert_array_equal(gw, weight_grad(y, x, w.shape, (2, 1), (1, 0), (1, 1), 2))


def test_zero_sizes():
    w, b = np.ones((4, 3, 3, 3), np.float32), np.arange(4, dtype=np.float32)
    x = np.empty((0, 3, 8, 8), np.float32)
    y = conv.conv_forward(x, w, b, 1, 1)
    assert y.shape == (0, 4, 8, 8)
    assert conv.conv_input_grad(y, w, x.shape, 1, 1).shape == x.shape
    gw = conv.conv_weight_grad(y, x, w.shape, 1, 1)
    assert gw.shape == w.shape and not gw.any()
    assert not conv.conv_bias_grad(y).any()
    no_channels = conv.conv_forward(np.empty((2, 0, 5, 5), np.float32), np.empty((4, 0, 3, 3), np.float32), b)
    assert no_channels.shape == (2, 4, 3, 3) and (no_channels == b.reshape(1, 4, 1, 1)).all()


def test_infinities_stay_where_they_are():
    """An infinite input reaches exactly the taps that meet it with a gradient, also across the raster's gaps."""
    x = np.ones((1, 1, 6, 5), np.float32)
    x[0, 0, 0, 0] = np.inf
    w = np.ones((1, 1, 3, 3), np.float32)
    y = conv.conv_forward(x, w, None, 1, 1)
    np.testing.assert_array_equal(y, forward(x, w, None, (1, 1), (1, 1), (1, 1), 1))
    gw = conv.conv_weight_grad(np.ones_like(y), x, w.shape, 1, 1)
    np.testing.assert_array_equal(gw, weight_grad(np.ones_like(y), x, w.shape, (1, 1), (1, 1), (1, 1), 1))


@pytest.mark.parametrize("stride,padding,output_padding,dilation,groups", [
    (1, 0, 0, 1, 1), (2, 1, 1, 1, 1), (3, 2, 2, 1, 2), (2, 0, 1, 2, 1), ((2, 3), (0, 1), (1, 0), 1, 2)])
def test_transposed_is_the_adjoint(stride, padding, output_padding, dilation, groups):
    """<conv_transpose(x), y> = <x, conv(y)>, with the bias on top."""
    rng = RNG(6)
    x = rng.standard_normal((2, 4, 5, 6))
    w = rng.standard_normal((4, 6 // groups, 3, 2))
    b = rng.standard_normal(6)
    out = conv.conv_transpose(x, w, b, stride, padding, output_padding, groups, dilation)
    assert out.shape == conv.conv_transpose_output_shape(x.shape, w.shape, stride, padding, output_padding, groups,
                                                         dilation)
    plain = out - b.reshape(1, -1, 1, 1)
    y = rng.standard_normal(out.shape)
    s, p, d = (v if isinstance(v, tuple) else (v, v) for v in (stride, padding, dilation))
    np.testing.assert_allclose((plain * y).sum(), (x * forward(y, w, None, s, p, d, groups)).sum(), rtol=1e-10)


def test_bias_gradient():
    gy = RNG(7).standard_normal((3, 5, 9, 7))
    np.testing.assert_allclose(conv.conv_bias_grad(gy), gy.sum((0, 2, 3)), rtol=1e-12)


ERRORS = [   # call, part of the message
    (dict(w=(4, 2, 3, 3)), r"Given groups=1, weight of size \[4, 2, 3, 3\], expected input\[1, 3, 8, 8\] to have 2 "
                           r"channels, but got 3 channels instead"),
    (dict(w=(4, 3, 9, 3)), r"Calculated padded input size per channel: \(8 x 8\). Kernel size: \(9 x 3\). "
                           r"Kernel size can't be greater than actual input size"),
    (dict(bias=(3,)), r"Given weight of size \[4, 3, 3, 3\], expected bias to be 1-dimensional with 4 elements, "
                      r"but got bias of size \[3\] instead"),
    (dict(stride=0), "non-positive stride is not supported"),
    (dict(padding=-1), "negative padding is not supported"),
    (dict(dilation=0), "dilation should be greater than zero"),
    (dict(groups=0), "non-positive groups is not supported"),
    (dict(groups=3, w=(4, 1, 3, 3)), r"expected weight to be divisible by 3 at dimension 0"),
    (dict(groups=5, w=(4, 1, 3, 3)), r"expected weight to be at least 5 at dimension 0"),
    (dict(stride=(1, 2, 3)), r"expected stride to be a single integer value or a list of 2 values"),
]


@pytest.mark.parametrize("change,message", ERRORS, ids=lambda v: str(v)[:40])
def test_errors(change, message):
    args = dict(w=(4, 3, 3, 3), bias=None, stride=1, padding=0, dilation=1, groups=1) | change
    bias = None if args["bias"] is None else np.zeros(args["bias"])
    with pytest.raises(RuntimeError, match=message):
        conv.conv_forward(np.zeros((1, 3, 8, 8)), np.zeros(args["w"]), bias, args["stride"], args["padding"],
                          args["dilation"], args["groups"])


def test_transposed_errors():
    x, w = np.zeros((1, 4, 5, 5)), np.zeros((4, 2, 3, 3))
    with pytest.raises(RuntimeError, match="output padding must be smaller than either stride or dilation"):
        conv.conv_transpose(x, w, stride=2, output_padding=2)
    with pytest.raises(RuntimeError, match=r"Given transposed=1, weight of size \[3, 2, 3, 3\], expected input"):
        conv.conv_transpose(x, np.zeros((3, 2, 3, 3)))
    with pytest.raises(RuntimeError, match="Output size is too small"):
        conv.conv_transpose(x, w, padding=9)
