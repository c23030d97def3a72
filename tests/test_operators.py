"""Tests derived from the operators' records: every pointwise and reduction record is held to its promises here.

Values: NumPy's (or SciPy's) function of the same meaning, which shares nothing with the record's expression but the mathematics.
Derivatives: finite differences, first and second order. The rest are identities: fast path = general path, in place =
functional, out=, method = function, meta = real, compiled = eager.
"""

import inspect
import json
import pathlib
import pickle
import re
import subprocess
import sys
import warnings
from unittest import mock

import numpy as np
import pytest
import scipy.special as sp

import rushlight as torch
from rushlight.autograd import gradcheck, gradgradcheck
from rushlight.compiler.compiled import compile_function
from rushlight.ops import declare, execute, load
from rushlight.ops.declare import Late
from rushlight.ops.paths import has_gradient
from rushlight.ops.samples import build, samples_of, specs

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
    "special.xlog1py": sp.xlog1py, "special.bessel_j0": sp.j0,
    "special.bessel_j1": sp.j1, "special.bessel_y0": sp.y0, "special.bessel_y1": sp.y1, "special.zeta": sp.zeta, "igamma": sp.gammainc,
    "igammac": sp.gammaincc, "remainder": np.remainder, "fmod": np.fmod, "floor_divide": np.floor_divide,
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
    out = subprocess.run([sys.executable, "-m", "rushlight.ops", "--names"], capture_output=True, text=True, check=True).stdout.split()
    assert {"add", "nn.functional.conv2d", "linalg.inv", "view"} <= set(out)


# --- every record that has samples: the default ones of its kind, or its own -------------------------------------------------
SAMPLED = {q: calls for q, op in sorted(declare.OPERATORS.items()) if (calls := samples_of(op))}
NAMES = list(SAMPLED)
# PyTorch's own approximations are off by this much; test_value holds these to SciPy's
COARSE = dict.fromkeys(["special.bessel_j0", "special.bessel_j1", "special.bessel_y0", "special.bessel_y1", "polygamma"], 1e-8)


def materialise(spec, device=None):
    a = spec.array
    t = torch.tensor(np.ascontiguousarray(a.T)).permute(*reversed(range(a.ndim))) if spec.transposed else torch.tensor(a)
    return t if device is None else t.to(device)


def tensors_of(call, device=None):
    """(args, kwargs) of a call, with tensors that do not require grad."""
    return build(call, lambda spec: materialise(spec, device))


def values_of(op, args, kw):
    """The values of all parameters, as execute.run takes them."""
    args, values = list(args), []
    for p in op.params:
        if p.name in kw:
            values.append(kw[p.name])
        elif p.kind == "sizes":
            values.append(tuple(args[0]) if args and isinstance(args[0], (tuple, list)) else tuple(args))
            args = []
        elif p.kind == "list" and args and isinstance(args[0], torch.Tensor):     # separate arguments
            values.append(tuple(args))
            args = []
        elif args and not p.keyword:
            values.append(args.pop(0))
        else:
            values.append(p.default)
    return tuple(values)


def flat(x):
    return list(x) if isinstance(x, (tuple, list)) else [x]


def assert_equal(got, want, **tolerance):
    got, want = flat(got), flat(want)
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert a.dtype is b.dtype and a.shape == b.shape
        if tolerance:
            np.testing.assert_allclose(numpy(a), numpy(b), **tolerance)
        else:
            np.testing.assert_array_equal(numpy(a), numpy(b))


def recorded():
    """PyTorch's results by operator and sample: {q: {i: [array, ...]}}, and the names of all that it has (made by tests/golden/make_operators.py)."""
    with np.load(pathlib.Path(__file__).parent / "golden" / "operators.npz") as file:
        index, data, names = json.loads(file["index"].tobytes()), file["data"].tobytes(), set(json.loads(file["names"].tobytes()))
    found, at = {}, 0
    for q, i, j, dtype, shape in index:
        n = np.dtype(dtype).itemsize * int(np.prod(shape, dtype=np.int64))
        assert len(found.setdefault(q, {}).setdefault(i, [])) == j
        found[q][i].append(np.frombuffer(data[at:at + n], dtype).reshape(shape))
        at += n
    assert at == len(data)
    return found, names


RECORDED, PYTORCH = recorded()


def test_what_is_known_of_pytorch():
    assert set(RECORDED) <= PYTORCH and len(RECORDED) > 400
    assert {"add", "relu", "copysign", "Tensor.fill", "nn.functional.relu", "linalg.inv", "special.i0e", "ops.aten.native_layer_norm"} <= PYTORCH
    assert not {"squareplus", "nn.functional.squareplus", "no_such_operator"} & PYTORCH


@pytest.mark.parametrize("q", [q for q in NAMES if q in PYTORCH])       # an operator of our own has nothing to be compared with
def test_samples_give_what_pytorch_gives(q):
    op = declare.OPERATORS[q]
    assert q in RECORDED, f"PyTorch has {q} too: record what it gives with tests/golden/make_operators.py"
    for i, call in enumerate(SAMPLED[q]):
        args, kw = tensors_of(call)
        got = flat(op.function(*args, **kw))
        want = RECORDED[q][i]
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            assert tuple(a.shape) == b.shape and numpy(a).dtype == b.dtype
            small = b.dtype.itemsize <= 4 and b.dtype.kind == "f"
            np.testing.assert_allclose(numpy(a), b, rtol=2e-6 if small else COARSE.get(q, 1e-11), atol=2e-7 if small else COARSE.get(q, 1e-13))


@pytest.mark.parametrize("q", NAMES)
def test_samples_fast_path_is_the_general_path(q):
    op = declare.OPERATORS[q]
    for call in SAMPLED[q]:
        args, kw = tensors_of(call)
        assert_equal(op.function(*args, **kw), execute.run(op, values_of(op, args, kw)))


@pytest.mark.parametrize("q", [q for q in NAMES if declare.OPERATORS[q].can_differentiate
                               and any(s.requires_grad for s in specs(SAMPLED[q]))])
def test_samples_gradients(q):
    op = declare.OPERATORS[q]
    for call in SAMPLED[q]:
        leaves = [materialise(s).requires_grad_(s.requires_grad) for s in specs(call)]

        def fn(*xs, call=call):
            it = iter(xs)
            args, kw = build(call, lambda _: next(it))
            return op.function(*args, **kw)
        out = flat(fn(*leaves))
        floats = [o for o in out if o.dtype.is_floating_point or o.dtype.is_complex]
        if not floats or not leaves:       # argmax, comparisons: no derivative, and none is claimed
            assert not any(o.requires_grad for o in out)
            continue
        if not any(x.requires_grad for x in leaves):
            continue
        assert all(o.requires_grad for o in floats)
        assert gradcheck(fn, leaves)
        assert gradgradcheck(fn, leaves)


@pytest.mark.parametrize("q", [q for q in NAMES if not declare.OPERATORS[q].can_differentiate])
def test_samples_of_what_is_not_differentiable(q):
    op = declare.OPERATORS[q]
    for call in SAMPLED[q]:
        args, kw = build(call, lambda s: materialise(s).requires_grad_(s.array.dtype.kind == "f"))
        assert not any(o.requires_grad for o in flat(op.function(*args, **kw)))


@pytest.mark.parametrize("q", [q for q in NAMES if declare.OPERATORS[q].inplace and not declare.OPERATORS[q].inplace_argument])
def test_samples_in_place(q):
    op = declare.OPERATORS[q]
    checked = 0
    for call in SAMPLED[q]:
        args, kw = tensors_of(call)
        want = op.function(*args, **kw)
        x = args[0].clone()
        if op.kind not in ("view",) and not op.inplace_view and op.name != "squeeze" and (want.shape != x.shape or not torch.can_cast(want.dtype, x.dtype)):
            with pytest.raises(RuntimeError):
                op.inplace_function(x, *args[1:], **kw)
            continue
        version = x._version
        assert op.inplace_function(x, *args[1:], **kw) is x
        assert x._version > version or op.kind == "view" or op.name == "squeeze"
        assert_equal(x, want.to(x.dtype))
        checked += 1
    assert checked


@pytest.mark.parametrize("q", [q for q in NAMES if declare.OPERATORS[q].has_out])
def test_samples_out(q):
    op = declare.OPERATORS[q]
    for call in SAMPLED[q]:
        args, kw = tensors_of(call)
        want = op.function(*args, **kw)
        outs = tuple(torch.empty_like(w) for w in flat(want))
        out = outs if isinstance(want, tuple) else outs[0]
        got = op.function(*args, **kw, out=out)
        assert all(a is b for a, b in zip(flat(got), outs, strict=True))
        assert_equal(out, want)


# the size of the result is known from the values only (PyTorch refuses meta tensors as well)
OF_VALUES = {"masked_select", "nonzero", "argwhere", "unique", "unique_consecutive", "bincount", "nn.functional.one_hot"}


@pytest.mark.parametrize("q", NAMES)
def test_samples_meta(q):
    op = declare.OPERATORS[q]
    for call in SAMPLED[q]:
        args, kw = tensors_of(call)
        real = op.function(*args, **kw)
        args, kw = tensors_of(call, "meta")
        if not specs(call):
            kw["device"] = "meta"
        if q in OF_VALUES and not (q == "nn.functional.one_hot" and len(args) > 1):
            with pytest.raises((NotImplementedError, RuntimeError)):
                op.function(*args, **kw)
            continue
        meta = op.function(*args, **kw)
        for a, b in zip(flat(meta), flat(real), strict=True):
            assert a.device.type == "meta" and a.shape == b.shape and a.dtype is b.dtype
            assert not a.numel() or a.stride() == b.stride()


@pytest.mark.parametrize("q", [q for q in NAMES if declare.OPERATORS[q].method])
def test_samples_method_is_function(q):
    op = declare.OPERATORS[q]
    name = op.name if op.method is True else op.method
    for call in SAMPLED[q]:
        args, kw = tensors_of(call)
        assert_equal(getattr(args[0], name)(*args[1:], **kw), op.function(*args, **kw))


@pytest.mark.parametrize("q", NAMES)
def test_samples_do_not_warn(q):
    op = declare.OPERATORS[q]
    for call in SAMPLED[q]:
        args, kw = tensors_of(call)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            op.function(*args, **kw)


@pytest.mark.parametrize("q", NAMES)
def test_samples_compiled(q):
    """Captured and replayed: the first call runs eagerly, the others replay."""
    op = declare.OPERATORS[q]
    for call in SAMPLED[q]:
        leaves = [materialise(s) for s in specs(call)]

        def fn(*xs, call=call):
            it = iter(xs)
            args, kw = build(call, lambda _: next(it))
            return op.function(*args, **kw)
        compiled = compile_function(fn)
        want = fn(*leaves)
        for _ in range(3):
            assert_equal(compiled(*leaves), want, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("q", ["igamma", "igammac", "special.zeta"])
def test_a_gradient_that_nobody_has_is_an_error(q):
    """It is not silently nothing: asking for it raises, as in PyTorch."""
    x = torch.tensor([1.5, 2.0], requires_grad=True)
    y = declare.OPERATORS[q].function(x, torch.tensor([1.5, 2.5]))
    assert y.requires_grad
    with pytest.raises(NotImplementedError, match=f"derivative for '{q.rpartition('.')[2]}"):
        y.sum().backward()


def test_ctc_loss_has_one_derivative():
    """By logits (by log_probs alone it takes for granted, as PyTorch does, that they are normalized); the second is an error."""
    x = torch.tensor(np.random.RandomState(0).standard_normal((5, 2, 3)), requires_grad=True)

    def fn(x):
        return torch.nn.functional.ctc_loss(torch.log_softmax(x, -1), torch.tensor([[1, 2], [2, 1]]), (5, 4), (2, 1))
    assert gradcheck(fn, (x,))
    with pytest.raises(NotImplementedError, match="the derivative for '_ctc_loss_backward'"):
        gradgradcheck(fn, (x,))


def test_shapes_that_depend_on_values_need_telling_on_meta():
    x, repeats = torch.ones(2, 3, device="meta"), torch.tensor([0, 2]).to("meta")
    with pytest.raises(RuntimeError, match="without output_size"):
        torch.repeat_interleave(x, repeats, 0)


def test_regex_matches_the_names():
    out = subprocess.run([sys.executable, "-m", "rushlight.ops", "--regex"], capture_output=True, text=True, check=True).stdout.strip()
    pattern = re.compile(out)
    assert all(pattern.match(n + "|") for n in ("add", "nn.functional.conv2d", "linalg.inv"))
    assert not any(pattern.match(n) for n in ("no_such_operator|", "ad|", "addition|", "add"))


METHODS = sorted(n for n, v in vars(torch.Tensor).items() if isinstance(v, Late))


@pytest.mark.parametrize("name", [n for n in METHODS if n != "alias"])       # torch.alias is Rushlight's module
def test_a_method_is_found_again_by_its_name(name):
    method = getattr(torch.Tensor, name)
    assert getattr(torch.Tensor, name) is method is inspect.getattr_static(torch.Tensor, name)
    assert pickle.loads(pickle.dumps(method)) is method
    bound = pickle.loads(pickle.dumps(getattr(torch.ones(2), name)))
    assert bound.__func__ is method and bound.__self__.tolist() == [1, 1]


def test_methods_can_be_replaced_before_and_after_they_recorded():
    x = torch.ones(2, requires_grad=True)
    for _ in range(2):
        before = torch.Tensor.__sub__
        with mock.patch.object(torch.Tensor, "__sub__", lambda a, b: "patched"):
            assert x - x == "patched"
        assert torch.Tensor.__sub__ is before and before.__name__ == "__sub__"
        (x - 3).sum().backward()
    assert x.grad.tolist() == [2, 2] and torch.Tensor.sub(x, 1).tolist() == [0, 0]
    with mock.patch.object(torch.Tensor, "lgamma", autospec=True) as m:
        x.lgamma()
    assert m.call_count == 1 and x.lgamma().tolist() == [0, 0]


def test_a_subclass_reaches_the_methods_that_it_overrides():
    class Shifted(torch.Tensor):
        def erf(self):
            return super().erf() + 1

        def __truediv__(self, other):
            return super().__truediv__(other) * 2

    x = torch.zeros(2).as_subclass(Shifted)
    assert x.erf().tolist() == [1, 1] and (torch.ones(2).as_subclass(Shifted) / 2).tolist() == [1, 1]
