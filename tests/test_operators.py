"""Tests derived from the operators' records: every pointwise and reduction record is held to its promises here.

Values: NumPy's (or SciPy's) function of the same meaning, which shares nothing with the record's expression but the mathematics.
Derivatives: finite differences, first and second order. The rest are identities: fast path = general path, in place =
functional, out=, method = function, meta = real, compiled = eager.
"""

import warnings

import numpy as np
import pytest
import scipy.special as sp

import rushlight as torch
from rushlight.autograd import gradcheck, gradgradcheck
from rushlight.compiler.compiled import compile_function
from rushlight.ops import declare, execute, load
from rushlight.ops.paths import has_gradient

load()
POINTWISE = sorted((q for q, op in declare.OPERATORS.items() if op.kind == "pointwise"))
REDUCTIONS = sorted((q for q, op in declare.OPERATORS.items() if op.kind == "reduction"))
# pointwise records that take nothing but tensors, or whose other arguments have defaults
TENSOR_KINDS = ("tensor", "operand", "optional", "mask")


def operands(op):
    return [p for p in op.params if p.kind in TENSOR_KINDS and (p.default is not None or p.kind == "operand")]


def simple(op):
    return all(p.kind in TENSOR_KINDS or p.default is not declare.REQUIRED for p in op.params) and operands(op)


INTEGER = {q for q in POINTWISE if "bitwise" in q or declare.OPERATORS[q].name in ("gcd", "lcm")}
SIMPLE = [q for q in POINTWISE if simple(declare.OPERATORS[q])]
FLOATING = [q for q in SIMPLE if q not in INTEGER]
# what NumPy and SciPy call it, where the name is another
NUMPY = {
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "atan2": np.arctan2, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "neg": np.negative, "pow": np.power,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "round": np.rint, "erf": sp.erf, "erfc": sp.erfc, "erfinv": sp.erfinv, "lgamma": sp.gammaln, "digamma": sp.digamma,
    "sigmoid": sp.expit, "logit": sp.logit, "rsqrt": lambda x: 1 / np.sqrt(x), "frac": lambda x: x - np.trunc(x),
    "addcmul": lambda a, b, c: a + b * c, "addcdiv": lambda a, b, c: a + b / c, "rsub": lambda a, b: b - a, "abs": np.abs,
    "bitwise_left_shift": np.left_shift, "bitwise_right_shift": np.right_shift, "bitwise_not": np.invert,
    "sgn": np.sign, "positive": lambda x: x, "isposinf": np.isposinf, "isneginf": np.isneginf,
    "nn.functional.relu": lambda x: np.maximum(x, 0), "nn.functional.softplus": lambda x: np.logaddexp(x, 0),
    "nn.functional.silu": lambda x: x * sp.expit(x), "nn.functional.logsigmoid": lambda x: -np.logaddexp(-x, 0),
    "nn.functional.softsign": lambda x: x / (1 + np.abs(x)), "nn.functional.tanhshrink": lambda x: x - np.tanh(x),
    "nn.functional.relu6": lambda x: np.clip(x, 0, 6), "nn.functional.hardsigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
    "nn.functional.hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6, "relu": lambda x: np.maximum(x, 0),
    "nn.functional.gelu": lambda x: x * sp.ndtr(x), "nn.functional.mish": lambda x: x * np.tanh(np.logaddexp(x, 0)),
    "nn.functional.elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "special.ndtr": sp.ndtr, "special.i0e": sp.i0e, "special.i1": sp.i1, "special.i1e": sp.i1e, "special.entr": sp.entr,
    "special.erfcx": sp.erfcx, "special.log_ndtr": sp.log_ndtr, "special.ndtri": sp.ndtri, "i0": sp.i0, "xlogy": sp.xlogy,
    "special.xlog1py": sp.xlog1py, "remainder": np.remainder, "fmod": np.fmod, "floor_divide": np.floor_divide,
}


def reference(q):
    op = declare.OPERATORS[q]
    return NUMPY.get(q) or (getattr(np, op.name, None) if op.ns[0] in ("torch", "special") else None)


def arrays(op, shapes, dtype="float64", seed=0):
    lo, hi = op.domain
    rng = np.random.default_rng(seed)
    if dtype.startswith("int"):
        return [rng.integers(max(int(lo), 0), int(hi) + 1, s).astype(dtype) for s in shapes]
    # away from whole numbers, where many functions have kinks
    xs = [rng.uniform(lo, hi, s) for s in shapes]
    return [np.asarray(np.where(np.abs(x - np.rint(x)) < 0.02, x + 0.05 * (hi - lo) / 6, x).clip(lo, hi), dtype) for x in xs]


def tensors(op, shapes, dtype="float64", seed=0, requires_grad=False):
    ts = [torch.tensor(a) for a in arrays(op, shapes, dtype, seed)]
    for p, k in zip(operands(op), range(len(ts)), strict=True):
        if p.kind == "mask":
            ts[k] = ts[k] > 0
        elif requires_grad and p.name in op.derived("formulas"):
            ts[k].requires_grad_()
    return ts


def shapes_of(op, kind):
    n = len(operands(op))
    return {"same": [(3, 4)] * n, "broadcast": [(3, 4), (4,), (3, 1), (4,)][:n], "scalar": [()] * n, "empty": [(0, 3)] * n}[kind]


def numpy(t):
    return t.detach().numpy()


@pytest.mark.parametrize("kind", ["same", "broadcast", "scalar", "empty"])
@pytest.mark.parametrize("q", [q for q in FLOATING if reference(q) is not None])
def test_value(q, kind):
    op = declare.OPERATORS[q]
    ts = tensors(op, shapes_of(op, kind))
    with np.errstate(all="ignore"):
        want = reference(q)(*[numpy(t) for t in ts])
    got = op.function(*ts)
    assert tuple(got.shape) == np.shape(want)
    np.testing.assert_allclose(numpy(got), want, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("q", sorted(q for q in INTEGER if reference(q) is not None and q in SIMPLE))
def test_value_of_integers(q):
    op = declare.OPERATORS[q]
    ts = tensors(op, shapes_of(op, "same"), "int64")
    np.testing.assert_array_equal(numpy(op.function(*ts)), reference(q)(*[numpy(t) for t in ts]))


@pytest.mark.parametrize("q", FLOATING)
def test_fast_path_is_the_general_path(q):
    op = declare.OPERATORS[q]
    for dtype in ("float32", "float64"):
        ts = tensors(op, shapes_of(op, "same"), dtype)
        it = iter(ts)
        values = tuple(next(it) if p in operands(op) else p.default for p in op.params)
        a, b = op.function(*ts), execute.run(op, values)
        assert a.dtype is b.dtype
        np.testing.assert_array_equal(numpy(a), numpy(b))


@pytest.mark.parametrize("q", FLOATING)
def test_strides_do_not_matter(q):
    op = declare.OPERATORS[q]
    ts = tensors(op, [(4, 3)] * len(operands(op)))
    a = op.function(*[t.t() for t in ts])
    b = op.function(*[t.t().contiguous() for t in ts])
    np.testing.assert_allclose(numpy(a), numpy(b), rtol=1e-15)


DIFFERENTIABLE = [q for q in FLOATING if has_gradient(declare.OPERATORS[q]) and declare.OPERATORS[q].result != "bool"
                  and declare.OPERATORS[q].derived("formulas")]


@pytest.mark.parametrize("q", DIFFERENTIABLE)
def test_gradients(q):
    op = declare.OPERATORS[q]
    ts = tensors(op, [(3,), (2, 1), (3,), (3,)][:len(operands(op))], requires_grad=True)
    assert gradcheck(op.function, ts)
    assert gradgradcheck(op.function, ts)


@pytest.mark.parametrize("q", [q for q in FLOATING if declare.OPERATORS[q].inplace is True and declare.OPERATORS[q].result != "bool"])
def test_in_place_is_functional(q):
    op = declare.OPERATORS[q]
    ts = tensors(op, shapes_of(op, "same"))
    want = op.function(*ts)
    x = ts[0].clone()
    before = x._version
    y = op.inplace_function(x, *ts[1:])
    assert y is x and x._version > before
    np.testing.assert_array_equal(numpy(x), numpy(want))


@pytest.mark.parametrize("q", [q for q in SIMPLE if declare.OPERATORS[q].has_out])
def test_out(q):
    op = declare.OPERATORS[q]
    ts = tensors(op, shapes_of(op, "same"), "int64" if q in INTEGER else "float64")
    want = op.function(*ts)
    out = torch.empty_like(want)
    assert op.function(*ts, out=out) is out
    np.testing.assert_array_equal(numpy(out), numpy(want))


@pytest.mark.parametrize("q", SIMPLE)
def test_meta_is_real(q):
    op = declare.OPERATORS[q]
    ts = tensors(op, shapes_of(op, "broadcast"), "int64" if q in INTEGER else "float32")
    real, meta = op.function(*ts), op.function(*[t.to("meta") for t in ts])
    assert meta.device.type == "meta" and meta.shape == real.shape and meta.dtype is real.dtype


@pytest.mark.parametrize("action", ["error", "always"])
@pytest.mark.parametrize("q", FLOATING)
def test_no_warning_leaks(q, action):
    """nan, infinities and zeros: NumPy would warn."""
    op = declare.OPERATORS[q]
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -1.0, 3e38], dtype=torch.float32)
    ts = [x > 0 if p.kind == "mask" else x for p in operands(op)]
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter(action)
        op.function(*ts)
    assert not seen


@pytest.mark.parametrize("q", [q for q in FLOATING if declare.OPERATORS[q].result != "bool"])
def test_compiled_is_eager(q):
    op = declare.OPERATORS[q]
    ts = tensors(op, shapes_of(op, "same"), "float32")
    f = compile_function(lambda *xs: op.function(*xs) * 1.0)
    with torch.no_grad():
        want = f(*ts)
        for _ in range(2):
            got = f(*ts)
    assert got.dtype is want.dtype
    np.testing.assert_allclose(numpy(got), numpy(want), rtol=4e-6, atol=1e-6)


REDUCE = {"sum": np.sum, "mean": np.mean, "amax": np.amax, "amin": np.amin, "all": np.all, "any": np.any, "nansum": np.nansum,
          "count_nonzero": np.count_nonzero}


@pytest.mark.parametrize("dim", [None, 0, -1, (0, 2)])
@pytest.mark.parametrize("q", [q for q in REDUCTIONS if q in REDUCE])
def test_reductions(q, dim):
    op = declare.OPERATORS[q]
    a = np.random.default_rng(0).standard_normal((3, 4, 2))
    t = torch.tensor(a)
    args = () if dim is None else (dim,)
    want = REDUCE[q](a, axis=dim)
    got = op.function(t, *args)
    np.testing.assert_allclose(numpy(got), want, rtol=1e-12)
    assert op.function(t.to("meta"), *args).shape == got.shape
    np.testing.assert_allclose(numpy(op.function(t.transpose(0, 2), *args)), REDUCE[q](a.transpose(2, 1, 0), axis=dim), rtol=1e-12)
    if any(p.name == "keepdim" for p in op.params):
        assert numpy(op.function(t, *args or (None,), keepdim=True)).shape == np.shape(np.sum(a, axis=dim, keepdims=True))
    if has_gradient(op):
        x = torch.tensor(a[:2, :2]).requires_grad_()
        assert gradcheck(lambda x: op.function(x, *args), (x,)) and gradgradcheck(lambda x: op.function(x, *args), (x,))


def test_every_record_is_documented():
    missing = [q for q, op in declare.OPERATORS.items() if not (op.__doc__ or "").strip()]
    assert not missing


def test_lists():
    import subprocess
    import sys
    out = subprocess.run([sys.executable, "-m", "rushlight.ops", "--names"], capture_output=True, text=True, check=True).stdout.split()
    assert {"add", "nn.functional.conv2d", "linalg.inv", "view"} <= set(out)
