"""compiler/llvm.py and kernels.py: loops over any strides, dtypes, reductions, row programs, against NumPy."""

import ctypes
import math

import ml_dtypes
import numpy as np
import pytest
import scipy.special as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from rushlight.compiler import gather, jit, kernels, row_kernels, scalar
from rushlight.compiler.llvm import Buffer, Compute, Flag, Module, Pass, Put, Reduce, Take, collapse
from rushlight.ops import expr as E

x, y = E.arg("x"), E.arg("y")
rng = np.random.default_rng(0)
INTS = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]


@pytest.fixture(autouse=True)
def same_numbers_in_every_run():
    rng.bit_generator.state = np.random.default_rng(0).bit_generator.state


def dtype_of(name):
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def normal(shape, dtype="float32"):
    return rng.standard_normal(shape).astype(dtype)


def run(kernel, library, arrays, sizes, strides, scalars=(), cuts=None):
    """Call a kernel over its grid, in one piece or in the given slices."""
    f = library.function(kernel.symbol, None, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64)
    words = kernel.pack([a.ctypes.data for a in arrays], sizes, strides, scalars)
    cuts = cuts or [0, kernel.grid(sizes)]
    for begin, end in zip(cuts, cuts[1:], strict=False):
        f(words, begin, end)


# --- pointwise --------------------------------------------------------------------------------------------------------
poly = kernels.pointwise(x * y + x, ["x", "y"])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_shape_and_strides(data):
    shape = tuple(data.draw(st.lists(st.integers(0, 19), max_size=4)))

    def operand():
        dims, index = [], []
        for n in shape:
            kind = data.draw(st.sampled_from(["full", "one", "step", "back"]))
            dims.append({"full": n, "one": 1, "step": 2 * n, "back": n}[kind])
            index.append({"step": slice(0, 2 * n, 2), "back": slice(None, None, -1)}.get(kind, slice(None)))
        a = np.asarray(normal(dims))[(*index, ...)]
        axes = data.draw(st.permutations(range(len(shape))))
        a = a.transpose(axes).copy().transpose(np.argsort(axes)) if data.draw(st.booleans()) else a
        while a.ndim and a.shape[0] == 1 and data.draw(st.booleans()):
            a = a[0]
        return a
    a, b = operand(), operand()
    want = a * b + a
    got = poly(a, b)
    assert got.shape == want.shape and got.dtype == np.float32
    np.testing.assert_array_equal(got, want)


def test_numpy_scalars_are_arrays_too():
    got = poly(np.float32(1.5), np.float32(2.0))
    assert got.shape == () and got == 4.5
    with pytest.raises(TypeError, match="no native form for y of dtype object"):
        poly(np.float32(1.5), None)


def test_out_and_in_place():
    a, b = normal((40, 50)), normal((40, 50))
    want = a * b + a
    out = np.zeros((50, 40), np.float32).T
    assert poly(a, b, out=out) is out
    np.testing.assert_array_equal(out, want)
    a2 = a.copy()
    poly(a2, b, out=a2)
    np.testing.assert_array_equal(a2, want)
    assert poly(a.T, b.T).strides == a.T.strides
    with pytest.raises(ValueError, match="out"):
        kernels.pointwise(x + y, ["x", "y"])(a, b, out=np.zeros((3,), np.float32)[:0])
    with pytest.raises(TypeError, match="no native form for x of dtype complex64"):
        poly(a.astype("complex64"), b)
    with pytest.raises(TypeError, match="takes arrays"):
        poly(a)
    poly(a, b)
    with pytest.raises(TypeError, match="no native form for y of dtype >f4"):
        poly(a, b.astype(">f4"))


def test_several_results_and_scalars():
    f = kernels.pointwise({"s": x + E.arg("k"), "p": x > E.arg("k")}, ["x"], ["k"], result=["same", "bool"])
    for a in (normal(1000), normal((30, 8))[:, ::2]):
        s, p = f(a, 0.5)
        np.testing.assert_array_equal(s, a + np.float32(0.5))
        np.testing.assert_array_equal(p, a > 0.5)
        assert p.dtype == bool
    with pytest.raises(TypeError):
        f(normal(3), "half")


def test_large_arrays_use_the_pool_and_give_equal_bits():
    from rushlight.backends.cpu import threads
    f = kernels.pointwise(E.prim("tanh", x) * y, ["x", "y"])
    a, b = normal(700_001), normal(700_001)
    before = threads.num_threads()
    try:
        results = []
        for n in (1, 2, 3):
            threads.set_num_threads(n)
            results.append(f(a, b))
            results.append(f(a[::-1], b[::-1])[::-1])
    finally:
        threads.set_num_threads(before)
    np.testing.assert_allclose(results[0], np.tanh(a.astype("f8")) * b, rtol=3e-7, atol=1e-12)
    for r in results[1:]:
        np.testing.assert_array_equal(r, results[0])


@pytest.mark.parametrize("source", sorted(scalar.MEMORY))
@pytest.mark.parametrize("target", sorted(scalar.MEMORY))
@np.errstate(all="ignore")
def test_casts(source, target):
    values = np.array([0, 1, 2, 3, 100, 127, 0.5, 1.5, 2.5, 65504, 1e5, 3e9, 1e10, -1, -2, -100, -1.5, -129, -3e9])
    if target.startswith(("u", "i")) and source in ("float16", "bfloat16"):
        values = values[np.abs(values) < 3e4]
    s, t = dtype_of(source), dtype_of(target)
    if target.startswith(("u", "i")) and source.startswith(("float", "bfloat")):
        bits = 8 * t.itemsize                              # what does not fit is undefined in C
        low, high = (0, 2.0**bits) if target[0] == "u" else (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1))
        values = values[(values > low - 1) & (values < high)]
    a = np.tile(values.astype("f8").astype(np.int64).astype(s) if s.kind in "iub" else values.astype(s), 9)
    if target in ("float16", "bfloat16") and source in ("float64", "int64", "uint64"):
        want = a.astype(np.float32).astype(t)              # by way of float32
    else:
        want = a.astype(t)
    got = kernels.cast(a, target)
    assert got.dtype == t
    np.testing.assert_array_equal(got.astype("f8"), want.astype("f8"))


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_16_bit_floats_round_to_nearest_even(name):
    t = dtype_of(name)
    bits = np.arange(1 << 16, dtype=np.uint16).view(t)
    with np.errstate(all="ignore"):
        wide = bits.astype(np.float32)
        np.testing.assert_array_equal(kernels.cast(bits, "float32"), wide)
        near = np.concatenate([np.nextafter(wide, np.float32(k)) for k in (-np.inf, np.inf)])
        next_ = np.concatenate([wide, (wide[:-1] + wide[1:]) / 2, near, [3.4e38, 65519.99, 65520.0]]).astype(np.float32)
        got, want = kernels.cast(next_, name), next_.astype(t)
    nan = np.isnan(next_)
    np.testing.assert_array_equal(got[~nan].view(np.uint16), want[~nan].view(np.uint16))
    assert np.isnan(got[nan].astype(np.float32)).all()


ANY = ["add", "mul", "maximum", "minimum", "bitand", "bitor", "bitxor", "eq", "ne", "lt", "le", "gt", "ge", "and", "or",
       "xor"]
NOT_BOOL = ["sub", "floordiv", "remainder", "fmod", "shl", "shr"]             # NumPy has none of these on bools


@pytest.mark.parametrize("op,dtype", [(o, d) for o in ANY + NOT_BOOL for d in INTS] + [(o, "bool") for o in ANY])
@np.errstate(all="ignore")
def test_integers(op, dtype):
    t = np.dtype(dtype)
    if dtype == "bool":
        a, b = (v.ravel() for v in np.meshgrid([False, True] * 20, [False, True, True]))
    else:
        i = np.iinfo(t)
        some = [0, 1, 2, 3, 7, i.max, i.max - 1, i.min, i.min + 1, i.max // 3, *([-1, -2, -7] if i.min else [])]
        a, b = (v.ravel().astype(t) for v in np.meshgrid(some, some))
    if op in ("shl", "shr"):
        b = (b % t.type(8 * t.itemsize)).astype(t)
    ufunc = getattr(np, E.PRIMITIVES[op].ufunc)
    result = "bool" if E.PRIMITIVES[op].result == "bool" else "same"
    np.testing.assert_array_equal(kernels.pointwise(E.prim(op, x, y), ["x", "y"], result=result)(a, b), ufunc(a, b))


def test_shifts_past_the_width():
    a = np.array([5, -5, 1 << 30], np.int32)
    n = np.array([32, 40, 200], np.int32)
    np.testing.assert_array_equal(kernels.pointwise(E.left_shift(x, y), ["x", "y"])(a, n), [0, 0, 0])
    np.testing.assert_array_equal(kernels.pointwise(E.right_shift(x, y), ["x", "y"])(a, n), [0, -1, 0])


def test_dtypes_meet_as_the_module_says():
    i, f = np.arange(20, dtype=np.int32), normal(20)
    np.testing.assert_array_equal(kernels.pointwise(x * y, ["x", "y"], result="float32")(i, f), i.astype("f4") * f)
    np.testing.assert_array_equal(kernels.pointwise(x / 4, ["x"], result="float32")(i), i.astype("f4") / 4)
    np.testing.assert_array_equal(kernels.pointwise(x + 1, ["x"])(i), i + 1)
    np.testing.assert_array_equal(kernels.pointwise(x + 1.5, ["x"], result="float32")(i), i.astype("f4") + 1.5)
    np.testing.assert_array_equal(kernels.pointwise(E.where(x > 3, y, 0), ["x", "y"], result="float32")(i, f),
                                  np.where(i > 3, f, 0))
    half = normal(50, "float16")
    got = kernels.pointwise(x * x * x, ["x"])(half)                  # one rounding, at the end
    np.testing.assert_array_equal(got, (half.astype("f4") ** 2 * half.astype("f4")).astype("f2"))
    double = kernels.pointwise(E.cast(x, "float64") * E.cast(x, "float64"), ["x"], result="float64")(f)
    np.testing.assert_array_equal(double, f.astype("f8") ** 2)
    rounded = kernels.pointwise(E.cast(x, "bfloat16"), ["x"])(f)
    np.testing.assert_array_equal(rounded, f.astype(ml_dtypes.bfloat16).astype("f4"))


def test_small_powers():
    a = normal(100)
    np.testing.assert_array_equal(kernels.pointwise(x ** 2, ["x"])(a), a * a)
    np.testing.assert_array_equal(kernels.pointwise(x ** -1, ["x"])(a), 1 / a)
    np.testing.assert_array_equal(kernels.pointwise(x ** 3, ["x"])(a), (a.astype("f8") ** 3).astype("f4"))
    i = np.arange(-9, 10, dtype=np.int64)
    np.testing.assert_array_equal(kernels.pointwise(x ** 5, ["x"])(i), i**5)


def test_what_has_no_native_form_is_said():
    assert kernels.has_native([E.erf(x)], "float32") and kernels.has_native([x + 1], "int8")
    assert not kernels.has_native([E.digamma(x)], "float32") and not kernels.has_native([x + 1], "complex64")
    assert not kernels.has_native([E.bitwise_and(x, y)], "float32")
    m = Module()
    with pytest.raises(ValueError, match=r"reads \['z'\]"):
        m.pointwise("k", {"o": E.arg("z")}, [Buffer("x", "float32"), Buffer("o", "float32")])
    with pytest.raises(ValueError, match="no native form"):
        m.pointwise("k", {"o": x}, [Buffer("x", "complex64"), Buffer("o", "float32")])
    m.pointwise("k", {"o": x}, [Buffer("x", "float32"), Buffer("o", "float32")])
    with pytest.raises(ValueError, match="already"):
        m.pointwise("k", {"o": x}, [Buffer("x", "float32"), Buffer("o", "float32")])


def test_collapse():
    assert collapse((2, 3, 4), [(12, 4, 1), (12, 4, 1)]) == ([24], [[1], [1]])
    assert collapse((2, 3, 4), [(12, 4, 1), (0, 4, 1)]) == ([2, 12], [[12, 1], [0, 1]])
    assert collapse((2, 1, 4), [(4, 9, 1)]) == ([8], [[1]])
    assert collapse((1, 1), [(5, 5)]) == ([1], [[1]])


def test_any_cut_of_the_grid_gives_the_same_bits():
    m = Module()
    k = m.pointwise("k", {"o": E.prim("exp", x) * y}, [Buffer("x", "float32"), Buffer("y", "float32", "0"),
                                                       Buffer("o", "float32")], rank=3)
    library = jit.compile_ir(m.text())
    a, b = normal((3, 5, 37)), normal((3, 5))
    whole, cut = np.zeros_like(a), np.zeros_like(a)
    strides = [(185, 37, 1), (5, 1, 0), (185, 37, 1)]
    run(k, library, [a, b, whole], (3, 5, 37), strides)
    run(k, library, [a, b, cut], (3, 5, 37), strides, cuts=[0, 1, 17, 36, 37, 200, 333, 333, 555])
    np.testing.assert_array_equal(whole, cut)
    np.testing.assert_allclose(whole, np.exp(a) * b[..., None], rtol=3e-7)


def test_sizes_and_strides_can_be_built_in():
    m = Module()
    k = m.pointwise("k", {"o": x + y}, [Buffer("x", "float32"), Buffer("y", "float32"), Buffer("o", "float32")], rank=2,
                    sizes=(4, 33), strides={"x": (33, 1), "y": (0, 1), "o": (33, 1)})
    a, b, o = normal((4, 33)), normal(33), np.empty((4, 33), np.float32)
    run(k, jit.compile_ir(m.text()), [a, b, o], (4, 33), [(0, 0)] * 3)           # the words are not read
    np.testing.assert_array_equal(o, a + b)


# --- reductions -------------------------------------------------------------------------------------------------------
def reduction(op, dtype, result=None):
    m = Module()
    out = result or dtype
    k = m.reduce("k", {"o": E.arg("r")}, [Reduce("r", op, x, scalar.register_dtype(dtype), result)],
                 [Buffer("x", dtype), Buffer("o", out, "0")])
    c = m.columns("c", {"o": E.arg("r")}, [Reduce("r", op, x, scalar.register_dtype(dtype), result)],
                  [Buffer("x", dtype), Buffer("o", out)])
    library = jit.compile_ir(m.text())

    def rows(a):
        o = np.empty(a.shape[0], dtype_of(out))
        run(k, library, [a, o], a.shape, [(a.shape[1], 1), (1, 0)])
        return o

    def columns(a):
        o = np.empty(a.shape[1], dtype_of(out))
        run(c, library, [a, o], a.shape, [(a.shape[1], 1), (0, 1)])
        return o
    return rows, columns


UFUNC = {"add": np.add, "mul": np.multiply, "maximum": np.maximum, "minimum": np.minimum, "and": np.logical_and,
         "or": np.logical_or}


@pytest.mark.parametrize("op,dtype", [
    *[(o, d) for o in ("add", "mul", "maximum", "minimum") for d in ("float32", "float64", "int64", "int32", "uint8")],
    ("and", "bool"), ("or", "bool")])
def test_reductions(op, dtype):
    rows, columns = reduction(op, dtype)
    for shape in [(3, 1), (1, 7), (5, 16), (4, 100), (2, 1025), (130, 3), (33, 515), (9, 4096)]:
        if dtype == "bool":
            a = rng.random(shape) < (0.9 if op == "and" else 0.1)
        elif op == "mul":
            a = rng.choice([1, 1, 1, 2], shape).astype(dtype) if "int" in dtype else \
                rng.uniform(0.9, 1.1, shape).astype(dtype)
        else:
            a = (rng.standard_normal(shape) * 50).astype(dtype) if dtype != "uint8" else rng.integers(0, 255, shape,
                                                                                                      dtype)
        for f, axis in ((rows, 1), (columns, 0)):
            wide = a.astype("f8") if dtype.startswith("float") and op in ("add", "mul") else a
            want = UFUNC[op].reduce(wide, axis=axis, **({} if dtype.startswith("float") else {"dtype": a.dtype}))
            eps = np.finfo(dtype).eps if dtype.startswith("float") else 0
            bound = 0 if op not in ("add", "mul") else eps * (16 * np.abs(wide).sum(axis) if op == "add"
                                                              else 2 * a.shape[axis] * np.abs(want.astype("f8")))
            assert (np.abs(f(a).astype("f8") - want.astype("f8")) <= bound).all(), (shape, axis)


def test_long_sums_are_as_accurate_as_numpy_at_least():
    for dtype in ("float32", "float64"):
        rows, columns = reduction("add", dtype)
        a = np.full((1, 1_000_003), 0.1, dtype)
        exact = math.fsum(a[0].tolist())
        assert abs(rows(a)[0] - exact) <= max(abs(float(a.sum()) - exact), np.spacing(dtype_of(dtype).type(exact)))
        assert abs(columns(a.T.copy())[0] - exact) <= np.spacing(dtype_of(dtype).type(exact))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_pass_through(dtype, bad):
    for op in ("add", "maximum", "minimum"):
        rows, columns = reduction(op, dtype)
        for n in (5, 16, 1000, 5000):
            a = normal((2, n), dtype)
            a[1, n // 3] = bad
            want = UFUNC[op].reduce(a, axis=1)
            bound = {"rtol": 0, "atol": 16 * np.finfo(dtype).eps * n} if op == "add" else {"rtol": 0}
            np.testing.assert_allclose(rows(a), want, **bound)
            np.testing.assert_allclose(columns(np.ascontiguousarray(a.T)), want, **bound)
    np.testing.assert_array_equal(reduction("add", dtype)[0](np.array([[np.inf, -np.inf]], dtype)), [np.nan])


def test_empty_rows_give_the_identity():
    assert reduction("add", "float32")[0](np.empty((2, 0), np.float32)).tolist() == [0, 0]
    assert reduction("maximum", "float32")[0](np.empty((1, 0), np.float32)).tolist() == [-np.inf]
    assert reduction("add", "float32")[1](np.empty((0, 3), np.float32)).tolist() == [0, 0, 0]


def test_row_program():
    """Every kind of stage: the position of the row's maximum by comparison, a lookup, a flag."""
    m = Module()
    i = E.arg("$i")
    k = m.row("k", [Buffer("x", "float32"), Buffer("w", "float32", "0"), Buffer("o", "float32"),
                    Buffer("at", "int64", "0"),
                    Buffer("first", "float32", "0"), Buffer("flag", "int64", "0")], [
        Pass({}, [Reduce("max", "maximum", x, "float32")]),
        Pass({"o": x - E.arg("max")}, [Reduce("where", "minimum", E.where(x == E.arg("max"), i, 1 << 40), "int64")]),
        Take("picked", "x", E.arg("where")),
        Compute({"scaled": E.arg("picked") * E.arg("w") * E.arg("k")}),
        Put({"at": E.arg("where"), "first": E.arg("scaled")}),
        Flag("flag", E.arg("max") > 1000)], scalars=[("k", "float32")])
    library = jit.compile_ir(m.text())
    a, w = normal((7, 93)), normal(7)
    o, at, first, flag = np.empty_like(a), np.empty(7, np.int64), np.empty(7, np.float32), np.zeros(1, np.int64)
    strides = [(93, 1), (1, 0), (93, 1), (1, 0), (1, 0), (0, 0)]
    run(k, library, [a, w, o, at, first, flag], a.shape, strides, [2.0], cuts=[0, 2, 5, 7])
    top = a.max(1)
    np.testing.assert_array_equal(o, a - top[:, None])
    np.testing.assert_array_equal(at, a.argmax(1))
    np.testing.assert_array_equal(first, top * w * 2)
    assert flag[0] == 0
    a[4, 50] = 2000
    run(k, library, [a, w, o, at, first, flag], a.shape, strides, [2.0])
    assert flag[0] == 5 and at[4] == 50


# --- lists of tensors -------------------------------------------------------------------------------------------------
def test_multi_tensor():
    p, g, m, lr = (E.arg(n) for n in ("p", "g", "m", "lr"))
    new = 0.9 * m + g
    f = kernels.multi_tensor({"m": new, "p": p - lr * new}, ["p", "g", "m"], ["lr"])
    for dtype in ("float32", "float64"):
        ps, gs, ms = [[normal(n, dtype) for n in (3, (10, 10), 40_000, 1, 300_000, 0, 17)] for _ in range(3)]
        t = np.dtype(dtype).type
        want_m = [t(0.9) * b + c for b, c in zip(ms, gs, strict=True)]
        want_p = [a - t(0.1) * b for a, b in zip(ps, want_m, strict=True)]
        assert f([ps, gs, ms], [0.1])
        for got, want in zip(ps + ms, want_p + want_m, strict=True):
            np.testing.assert_array_equal(got, want)
    assert f([[], [], []], [0.1])


def test_multi_tensor_declines_before_writing():
    f = kernels.multi_tensor({"p": x + E.arg("p")}, ["p", "x"])
    good = [np.zeros(4, np.float32), np.zeros(6, np.float32)]
    read_only = np.zeros(6, np.float32)
    read_only.flags.writeable = False
    for second, other in ((np.zeros(12, np.float32)[::2], good[1]), (good[1].astype("f8"), good[1]), (good[1], good[0]),
                          (read_only, good[1]), ([0.0] * 6, good[1])):
        assert not f([[good[0], second], [np.ones(4, np.float32), other]], [])
        assert not good[0].any()
    with pytest.raises(ValueError, match="q"):
        kernels.multi_tensor({"q": x}, ["x"])


# --- ready-made -------------------------------------------------------------------------------------------------------
SHAPES = [(64, 10), (1, 1), (3, 1), (1, 1000), (7, 4097), (2, 3, 50), (5, 16), (0, 4), (9,)]
EPS = {"float32": 3e-7, "float64": 6e-16, "float16": 6e-4, "bfloat16": 5e-3}


def close(got, want, dtype, scale=None):
    scale = np.abs(want).max(initial=1e-30) if scale is None else scale
    assert np.abs(got.astype("f8") - want).max(initial=0) <= EPS[dtype] * scale


@pytest.mark.parametrize("dtype", list(EPS))
@pytest.mark.parametrize("shape", SHAPES)
def test_softmax(shape, dtype):
    a, g = (3 * normal(shape)).astype(dtype_of(dtype)), normal(shape).astype(dtype_of(dtype))
    wide, gw = a.astype("f8"), g.astype("f8")
    s, ls = row_kernels.softmax(a), row_kernels.log_softmax(a)
    close(s, sp.softmax(wide, -1) if a.size else wide, dtype)
    close(ls, sp.log_softmax(wide, -1) if a.size else wide, dtype)
    sw, lw = s.astype("f8"), ls.astype("f8")
    close(row_kernels.softmax_backward(g, s), sw * (gw - (gw * sw).sum(-1, keepdims=True)), dtype, 4)
    close(row_kernels.log_softmax_backward(g, ls), gw - np.exp(lw) * gw.sum(-1, keepdims=True), dtype, 300)


def test_softmax_of_other_layouts_and_special_rows():
    a = normal((6, 8, 10)).transpose(1, 2, 0)
    close(row_kernels.softmax(a), sp.softmax(a.astype("f8"), -1), "float32")
    out = np.empty((6, 8, 10), np.float32).transpose(1, 2, 0)
    assert row_kernels.softmax(a, out=out) is out
    close(out, sp.softmax(a.astype("f8"), -1), "float32")
    rows = np.array([[-np.inf, 0, 0], [-np.inf] * 3, [np.inf, 0, 0], [np.nan, 0, 1], [1e30, -1e30, 0]], np.float32)
    got = row_kernels.softmax(rows)
    np.testing.assert_array_equal(got, [[0, 0.5, 0.5], [np.nan] * 3, [np.nan] * 3, [np.nan] * 3, [1, 0, 0]])
    with pytest.raises(TypeError, match="int64"):
        row_kernels.softmax(np.arange(3))
    with pytest.raises(ValueError, match="out"):
        row_kernels.softmax(rows, out=np.empty((5, 4), np.float32))


@pytest.mark.parametrize("dtype", list(EPS))
@pytest.mark.parametrize("shape,dims", [(s, 1) for s in SHAPES] + [((4, 3, 5), 2), ((2, 3, 4), 3)])
def test_norms(shape, dims, dtype):
    t = dtype_of(dtype)
    a, g = normal(shape).astype(t), normal(shape).astype(t)
    inner = shape[len(shape) - dims:]
    w, b = normal(inner).astype(t), normal(inner).astype(t)
    axes = tuple(range(len(shape) - dims, len(shape)))
    lead = tuple(range(len(shape) - dims))
    A, G, W, B = (v.astype("f8") for v in (a, g, w, b))
    if not a.size:
        assert row_kernels.layer_norm(a, w, b, dims=dims)[0].shape == shape
        dw = row_kernels.layer_norm_backward(g, a, np.empty((0, 1), "f4"), np.empty((0, 1), "f4"), w)[1]
        assert not dw.any()
        return
    mean, var = A.mean(axes, keepdims=True), A.var(axes, keepdims=True)
    r = 1 / np.sqrt(var + 1e-5)
    h = (A - mean) * r
    y, m, s = row_kernels.layer_norm(a, w, b, 1e-5, dims)
    close(y, h * W + B, dtype, 8)
    close(m, mean, "float64" if dtype == "float64" else "float32", 2)
    close(s, r, "float64" if dtype == "float64" else "float32")
    close(row_kernels.layer_norm(a, eps=1e-5, dims=dims)[0], h, dtype, 8)
    dx, dw, db = row_kernels.layer_norm_backward(g, a, m, s, w, dims)
    gw = G * W
    close(dx, r * (gw - gw.mean(axes, keepdims=True) - h * (gw * h).mean(axes, keepdims=True)), dtype,
          8 * np.abs(r).max() * np.abs(gw).max())
    close(dw, (G * h).sum(lead), dtype, 4 * np.abs(G * h).sum(lead).max())
    close(db, G.sum(lead), dtype, 4 * np.abs(G).sum(lead).max())
    assert row_kernels.layer_norm_backward(g, a, m, s, w, dims, (False, True, False))[::2] == (None, None)
    q = 1 / np.sqrt((A * A).mean(axes, keepdims=True) + 1e-6)
    y, s = row_kernels.rms_norm(a, w, 1e-6, dims)
    close(y, A * q * W, dtype, 8)
    dx, dw = row_kernels.rms_norm_backward(g, a, s, w, dims)
    close(dx, q * (gw - A * q * (gw * A * q).mean(axes, keepdims=True)), dtype, 8 * q.max() * np.abs(gw).max())
    close(dw, (G * A * q).sum(lead), dtype, 4 * np.abs(G * A * q).sum(lead).max())


@pytest.mark.parametrize("dtype", list(EPS))
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("rows,classes", [(64, 10), (1, 1), (5, 1000), (0, 7), (300, 65)])
def test_cross_entropy(rows, classes, smoothing, dtype):
    t = dtype_of(dtype)
    a = (2 * normal((rows, classes))).astype(t)
    target = rng.integers(0, classes, rows)
    target[1::3] = -100
    A = a.astype("f8")
    logs = sp.log_softmax(A, -1) if rows else A
    hit = np.maximum(target, 0)
    want = -(1 - smoothing) * logs[np.arange(rows), hit] - smoothing * logs.mean(-1)
    want[target < 0] = 0
    loss, lse = row_kernels.cross_entropy(a, target, -100, smoothing)
    close(loss, want, dtype, 20)
    g = normal(rows).astype(t)
    one = np.zeros((rows, classes))
    one[np.arange(rows), hit] = 1
    grad = (np.exp(logs) - (1 - smoothing) * one - smoothing / classes) * g.astype("f8")[:, None]
    grad[target < 0] = 0
    close(row_kernels.cross_entropy_backward(g, a, target, lse, -100, smoothing), grad, dtype, 8)


def test_cross_entropy_refuses_targets_outside():
    a = normal((4, 5))
    for bad in (5, -1, 1 << 40):
        with pytest.raises(IndexError, match=f"Target {bad} is out of bounds"):
            row_kernels.cross_entropy(a, np.array([0, bad, 1, 2]))


def test_cross_entropy_far_out():
    a = np.array([[1e4, 0.0, -1e4], [np.inf, 0, 0], [-np.inf, 0, 0]], np.float32)
    loss, _ = row_kernels.cross_entropy(a, np.array([2, 0, 0]))
    np.testing.assert_array_equal(loss, [2e4, np.nan, np.inf])


@pytest.mark.parametrize("approximate", ["none", "tanh"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_gelu(approximate, dtype):
    a = (2 * normal(1001)).astype(dtype_of(dtype))
    g = normal(1001).astype(a.dtype)
    A = a.astype("f8")
    if approximate == "none":
        phi = 0.5 * (1 + sp.erf(A / math.sqrt(2)))
        slope = phi + A * np.exp(-A * A / 2) / math.sqrt(2 * math.pi)
        value = A * phi
    else:
        c = math.sqrt(2 / math.pi)
        th = np.tanh(c * (A + 0.044715 * A**3))
        value = 0.5 * A * (1 + th)
        slope = 0.5 * (1 + th) + 0.5 * A * (1 - th * th) * c * (1 + 3 * 0.044715 * A * A)
    close(kernels.gelu(a, approximate), value, dtype)
    steep = np.abs(g.astype("f8")) * (1 + np.abs(A) * (1 + 0.14 * A * A))      # how errors of erf and tanh count
    close(kernels.gelu_backward(g, a, approximate), slope * g.astype("f8"), dtype, steep.max())


def test_where_and_masked_fill():
    a, mask = normal((6, 7)), rng.random((6, 7)) < 0.5
    np.testing.assert_array_equal(kernels.where(a, mask, np.array(2.0, np.float32)), np.where(mask, a, 2))
    np.testing.assert_array_equal(kernels.masked_fill(a, mask[:1], -np.inf), np.where(mask[:1], -np.inf, a))


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int64"])
def test_rows_by_index(dtype):
    t = dtype_of(dtype)
    table, index = np.zeros((50, 37), t), rng.integers(0, 50, (6, 40))
    source = (4 * normal((6, 40, 37))).astype(t)
    want = np.zeros_like(table)
    for k, r in enumerate(index.ravel()):
        want[r] += source.reshape(-1, 37)[k]
    assert gather.scatter_add_rows(table, index, source) is table
    np.testing.assert_array_equal(table, want)
    np.testing.assert_array_equal(gather.take_rows(table, index), table[index])
    for bad in (50, -1):
        with pytest.raises(IndexError, match=f"index {bad} with 50 rows"):
            gather.scatter_add_rows(table, np.array([bad]), source[0, :1])
    np.testing.assert_array_equal(table, want)


def test_the_general_path_alone(monkeypatch):
    """On interpreters whose objects the entries cannot read."""
    from rushlight.compiler import entry
    monkeypatch.setattr(entry, "_usable", False)
    f = kernels.pointwise(x * y - 1, ["x", "y"])
    a, b = normal((30, 40)), normal((30, 40))
    np.testing.assert_array_equal(f(a, b), a * b - 1)
    k = row_kernels.RowKernel("softmax", row_kernels._make_softmax, ["full"] * 2, ["y"])
    out = np.empty_like(a)
    k("float32", a, out)
    close(out, sp.softmax(a.astype("f8"), -1), "float32")
    with pytest.raises(TypeError, match="contiguous"):
        k("float32", a, np.empty((40, 30), np.float32).T)
    assert not kernels.multi_tensor({"x": x + 1}, ["x"])([[a]], [])


def test_row_and_column_kernels_give_equal_bits_on_any_number_of_threads():
    from rushlight.backends.cpu import threads
    a, g, w = normal((1500, 700)), normal((1500, 700)), normal(700)
    target = rng.integers(0, 700, 1500)
    before = threads.num_threads()

    def everything():
        y, mean, rstd = row_kernels.layer_norm(a, w, w)
        loss, lse = row_kernels.cross_entropy(a, target)
        return [y, mean, rstd, *row_kernels.layer_norm_backward(g, a, mean, rstd, w), loss, lse, row_kernels.softmax(a),
                gather.scatter_add_rows(np.zeros((700, 700), np.float32), target, g)]
    try:
        threads.set_num_threads(1)
        one = everything()
        threads.set_num_threads(2)
        two = everything()
    finally:
        threads.set_num_threads(before)
    for p, q in zip(one, two, strict=True):
        np.testing.assert_array_equal(p, q)


def test_deep_expressions():
    e = x
    for _ in range(3000):
        e = e + 1
    np.testing.assert_array_equal(kernels.pointwise(e, ["x"])(np.zeros(5, np.float32)), np.full(5, 3000, np.float32))
