"""compiler/vecmath.py: errors in ulp against the next wider format, special values against C's Annex F through
NumPy."""

import math

import numpy as np
import pytest
import scipy.special as sp

from rushlight.compiler import jit, kernels, vecmath
from rushlight.compiler.llvm import Buffer, Module
from rushlight.ops import expr as E

DTYPES = ["float32", "float64"]
NUMPY = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh",
         "atanh": "arctanh",
         "atan2": "arctan2", "pow": "power"}
WIDE = np.finfo(np.longdouble).eps < 2.0**-60
_functions = {}


def native(op, dtype):
    f = _functions.get(op)
    if f is None:
        names = ["x", "y"][:2 if op in BINARY else 1]
        f = _functions[op] = kernels.pointwise(E.prim(op, *map(E.arg, names)), names, name=op)
    return f


BINARY = {"pow", "hypot", "atan2", "logaddexp", "logaddexp2"}


def reference(op, *args):
    """In the next wider format; for erf and erfc of float64, the C library's (itself within an ulp)."""
    if op in ("erf", "erfc"):
        return np.array([getattr(math, op)(v) for v in args[0].astype(np.float64).tolist()])
    wide = np.float64 if args[0].dtype == np.float32 else np.longdouble
    return getattr(np, NUMPY.get(op, op))(*[a.astype(wide) for a in args])


def worst(y, ref):
    """The largest error in ulp of y's format where the rounded reference is finite; elsewhere y must equal it."""
    r = ref.astype(y.dtype)
    finite = np.isfinite(r)
    np.testing.assert_array_equal(y[~finite], r[~finite])
    gap = np.spacing(np.abs(r[finite])).astype(ref.dtype)
    return float(np.max(np.abs(y[finite].astype(ref.dtype) - ref[finite]) / gap))


def arguments(op, dtype):
    rng = np.random.default_rng(1)
    single = dtype == "float32"
    big = 88.8 if single else 709.9
    spread = np.exp(rng.uniform(-85, 85, 20000) * (1 if single else 8)) * rng.choice([-1, 1], 20000)
    near = rng.uniform(-1, 1, 20000)
    span = {"exp": (-104, big), "exp2": (-150, 128) if single else (-1075, 1024), "expm1": (-40, big),
            "sinh": (-big, big),
            "cosh": (-big, big), "tanh": (-23, 23), "erf": (-6, 6), "erfc": (-6, 10) if single else (-6, 27),
            "sin": (-29000, 29000), "cos": (-29000, 29000), "tan": (-29000, 29000)}.get(op, (-20, 20))
    x = np.concatenate([rng.uniform(*span, 40000), spread, near, near * 1e-3]).astype(dtype)
    if op in ("log", "log2", "log10"):
        x = np.concatenate([np.abs(x), (1 + near * 1e-2).astype(dtype)])
        return x[x > 0]
    if op == "acosh":
        return np.concatenate([1 + np.abs(x), 1 + np.abs(near.astype(dtype)) * np.asarray(1e-3, dtype)])
    if op in ("asin", "acos", "atanh"):
        return x[np.abs(x) < 1]
    if op == "log1p":
        return x[x > -1]
    if op in ("sin", "cos", "tan"):
        return x[np.abs(x) < (30000 if single else 1e9)]
    if op in ("erf", "erfc") and not single:
        return x[np.abs(x) > 1e-300]
    return x


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", sorted(set(vecmath.ULP) - BINARY))
@np.errstate(all="ignore")
def test_error_of_functions_of_one_argument(op, dtype):
    if dtype == "float64" and not WIDE and op not in ("erf", "erfc"):
        pytest.skip("long double is no wider than double here: no reference")
    x = arguments(op, dtype)
    bound = vecmath.ULP[op][dtype == "float64"]
    if op in ("erf", "erfc") and dtype == "float64":
        bound += 1.0                                     # the reference's own error
    assert worst(native(op, dtype)(x), reference(op, x)) <= bound


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", ["pow", "hypot", "atan2"])
@np.errstate(all="ignore")
def test_error_of_functions_of_two_arguments(op, dtype):
    if dtype == "float64" and not WIDE:
        pytest.skip("long double is no wider than double here: no reference")
    rng = np.random.default_rng(2)
    if op == "pow":
        x = np.concatenate([np.exp(rng.uniform(-3, 3, 40000)), np.exp(rng.uniform(-80, 80, 20000)),
                            1 + rng.uniform(-1e-3, 1e-3, 20000)])
        y = np.concatenate([rng.uniform(-200, 200, 40000), rng.uniform(-1.2, 1.2, 20000),
                            rng.uniform(-6e5, 6e5, 20000)])
    else:
        x, y = rng.standard_normal((2, 60000)) * np.exp(rng.uniform(-10, 10, (2, 60000)))
    x, y = x.astype(dtype), y.astype(dtype)
    assert worst(native(op, dtype)(x, y), reference(op, x, y)) <= vecmath.ULP[op][dtype == "float64"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_plus_erf(dtype):
    x = np.concatenate([np.linspace(-7, 7, 100_001), [0.0, -0.0, 1e-40, np.inf, -np.inf, np.nan]]).astype(dtype)
    y = kernels.pointwise(1 + E.erf(E.arg("x")), ["x"])(x)
    ref = sp.erfc(-x.astype(np.float64))
    assert np.max(np.abs(y - ref)[:-1]) <= 2 * np.finfo(dtype).eps
    assert np.isnan(y[-1]) and y[-2] == 0 and y[-3] == 2 and y[-5] == 1 and not y[x < -6.5].any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", ["logaddexp", "logaddexp2"])
def test_logaddexp(op, dtype):
    rng = np.random.default_rng(3)
    x, y = (rng.standard_normal((2, 20000)) * 10).astype(dtype)
    wide = [a.astype(np.longdouble) for a in (x, y)]
    ref = getattr(np, op)(*wide)
    # its result may cancel: the error is measured against the larger operand
    scale = np.maximum(np.abs(ref), np.maximum(*np.abs(wide)))
    assert np.max(np.abs(native(op, dtype)(x, y) - ref) / scale) <= 2 * np.finfo(dtype).eps


SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, -0.5, 2.5, 1e-40, -1e-40, 1e30, -1e30, 1e300, -1e300,
           1e-310,
           5e-324, 1e17, 2.0**53 + 2, math.inf, -math.inf, math.nan, 88.72284, 88.7229, -103.97208, -103.98,
           709.782712893384,
           709.79, 710.4758600739439, -745.13, -745.14, 128.0, -149.0, -150.0, 1024.0, -1074.0, -1076.0]


def assert_same(y, r, ulp=4):
    """Equal with signs of zeros, nan for nan; finite results within `ulp`."""
    with np.errstate(all="ignore"):
        close = np.abs(y - r) <= ulp * np.spacing(np.abs(r))
    same = (np.isnan(y) & np.isnan(r)) | (((y == r) | close) & (np.signbit(y) == np.signbit(r)))
    assert same.all(), (np.flatnonzero(~same)[:5], y[~same][:5], r[~same][:5])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", sorted(set(vecmath.ULP) - BINARY))
@np.errstate(all="ignore")
def test_special_values(op, dtype):
    x = np.array(SPECIAL).astype(dtype)
    if op in ("sin", "cos", "tan"):
        x = x[(np.abs(x) != 1e30) & (np.abs(x) != 1e300)] if dtype == "float32" else x
    assert_same(native(op, dtype)(x), reference(op, x).astype(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", ["pow", "hypot", "atan2", "logaddexp", "logaddexp2", "fmod", "remainder", "floordiv",
                                "copysign", "nextafter", "maximum", "minimum", "fmax", "fmin"])
@np.errstate(all="ignore")
def test_special_values_of_two_arguments(op, dtype):
    x, y = (a.ravel().astype(dtype) for a in np.meshgrid(SPECIAL[:24], SPECIAL[:24]))
    name = {"floordiv": "floor_divide"}.get(op, NUMPY.get(op, op))
    f = kernels.pointwise(E.prim(op, E.arg("x"), E.arg("y")), ["x", "y"])
    y_, r = f(x, y), getattr(np, name)(x, y)
    if op in ("maximum", "minimum", "fmax", "fmin"):     # which zero is larger is left open
        y_, r = y_ + 0.0, r + 0.0
    assert_same(y_, r, ulp={"pow": 4, "hypot": 2, "atan2": 3, "logaddexp": 4, "logaddexp2": 12}.get(op, 0))


@pytest.mark.parametrize("op", ["sin", "cos", "tan"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_huge_arguments_go_to_the_c_library(op, dtype):
    x = np.array([29999.0, 30001.0, 1e6, 1e8, 2.0**30, 2.0**31, 1e15, 1e22, -1e22, 3e37]).astype(dtype)
    ref = np.array([getattr(math, op)(float(v)) for v in x])
    assert_same(native(op, dtype)(x), ref.astype(dtype), ulp=3)


@pytest.mark.parametrize("op,numpy", [("floor", "floor"), ("ceil", "ceil"), ("trunc", "trunc"), ("round", "rint"),
                                      ("sign", "sign"), ("abs", "abs"), ("neg", "negative"), ("sqrt", "sqrt"),
                                      ("isnan", "isnan"), ("isinf", "isinf"), ("isfinite", "isfinite"),
                                      ("signbit", "signbit")])
@pytest.mark.parametrize("dtype", DTYPES)
@np.errstate(all="ignore")
def test_exact_functions(op, numpy, dtype):
    x = np.array([*SPECIAL, 0.49999997, 1.5, 2.5, -1.5, -2.5, 8388607.5, 4503599627370495.5]).astype(dtype)
    result = "bool" if op.startswith(("is", "signbit")) else "same"
    y, r = kernels.pointwise(E.prim(op, E.arg("x")), ["x"], result=result)(x), getattr(np, numpy)(x)
    np.testing.assert_array_equal(y, r)
    if op != "sign" and result == "same":
        np.testing.assert_array_equal(np.signbit(y), np.signbit(r))


def test_lgamma():
    x = np.linspace(-5.3, 30, 999)
    np.testing.assert_allclose(native("lgamma", "float64")(x), sp.gammaln(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("op", sorted(set(vecmath.ULP) - BINARY))
@pytest.mark.parametrize("vector_bytes", [16, 32])
@np.errstate(all="ignore")
def test_narrower_vectors_give_the_same_bits(op, vector_bytes):
    """Other machines' widths: every lane is computed alike."""
    import ctypes
    m = Module(vector_bytes=vector_bytes)
    m.scalef = False
    k = m.pointwise("k", {"y": E.prim(op, E.arg("x"))}, [Buffer("x", "float32"), Buffer("y", "float32")])
    f = jit.compile_ir(m.text()).function("k", None, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64)
    x = np.concatenate([np.random.default_rng(0).standard_normal(101) * 3, SPECIAL]).astype("float32")
    y = np.empty_like(x)
    f(k.pack([a.ctypes.data for a in (x, y)], [x.size], [[1], [1]]), 0, x.size)
    np.testing.assert_array_equal(y.view(np.uint32)[~np.isnan(y)],
                                  native(op, "float32")(x).view(np.uint32)[~np.isnan(y)])
