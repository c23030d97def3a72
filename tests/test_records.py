"""What docs/operators.md promises of a record that somebody adds. The records here are not public: they leave nothing behind."""

import __future__

import ast
import pathlib
import re

import numpy as np
import pytest

import rushlight as torch
from rushlight import ops
from rushlight.autograd import gradcheck, gradgradcheck
from rushlight.compiler.compiled import compile_function
from rushlight.ops import declare, generate, load
from rushlight.ops import expr as E
from rushlight.ops.declare import fold, pointwise, reduction, structural, writes
from rushlight.ops.paths import has_gradient
from rushlight.ops.samples import build, samples_of

load()


# --- folds that add -------------------------------------------------------------------------------------------------
def folding(body, **numbers):
    """A reduction record whose body is `body(input)`, and of numbers that have names."""
    notes = {"input": "Tensor", "dim": "Dims", "keepdim": "bool", **dict.fromkeys(numbers, "Number")}
    source = f"def f(input, dim=None, keepdim=False{''.join(f', {k}={v}' for k, v in numbers.items())}): return BODY(input{''.join(f', {k}' for k in numbers)})"
    env = {"BODY": body}
    exec(source, env)
    env["f"].__annotations__ = notes
    return reduction(public=False, result="floating", name="folded")(env["f"])


# name: (record, the same in NumPy, its gradient over all elements)
FOLDS = {
    "twice": (folding(lambda x: fold("add", 2 * x)), lambda a: (2 * a).sum(), lambda a: np.full_like(a, 2)),
    "rms": (folding(lambda x: fold("add", x * x, finish=lambda s, n: E.sqrt(s / n))), lambda a: np.sqrt((a * a).mean()),
            lambda a: a / a.size / np.sqrt((a * a).mean())),
    "root": (folding(lambda x: fold("add", x, finish=lambda s, n: E.sqrt(s))), lambda a: np.sqrt(a.sum()),
             lambda a: np.full_like(a, 0.5 / np.sqrt(a.sum()))),
    "logsumexp": (folding(lambda x: fold("add", E.exp(x), finish=lambda s, n: E.log(s))), lambda a: np.log(np.exp(a).sum()),
                  lambda a: np.exp(a) / np.exp(a).sum()),
    "sines": (folding(lambda x: fold("add", E.sin(x))), lambda a: np.sin(a).sum(), np.cos),
    "scaled mean": (folding(lambda x: fold("add", 3 * x, finish=lambda s, n: 2 * s / n)), lambda a: 6 * a.mean(),
                    lambda a: np.full_like(a, 6 / a.size)),
    "cube": (folding(lambda x: fold("add", x, finish=lambda s, n: s * s * s / n)), lambda a: a.sum() ** 3 / a.size,
             lambda a: np.full_like(a, 3 * a.sum() ** 2 / a.size)),
    "steps": (folding(lambda x: fold("add", E.floor(x))), lambda a: np.floor(a).sum(), np.zeros_like),
    "count only": (folding(lambda x: fold("add", x, finish=lambda s, n: n * 2.0 + 0 * s)), lambda a: 2.0 * a.size, np.zeros_like),
    "norm of p": (folding(lambda x, p: fold("add", E.pow(x, p), finish=lambda s, n: E.pow(s, 1 / p)), p=3.0), lambda a: (a**3).sum() ** (1 / 3),
                  lambda a: a**2 * (a**3).sum() ** (-2 / 3)),
    "a branch on a number": (folding(lambda x, p: fold("add", x if p == 2 else x * x * p), p=3.0), lambda a: (3 * a * a).sum(), lambda a: 6 * a),
}


@pytest.mark.parametrize("name", FOLDS)
def test_a_fold_that_adds_has_derivatives(name):
    op, value, gradient = FOLDS[name]
    data = np.random.RandomState(0).uniform(0.55, 0.95, (2, 3))
    for args in ((), (1,), (0, True), ((0, 1), True)):
        x = torch.tensor(data, requires_grad=True)
        assert gradcheck(lambda x, args=args: op.function(x, *args), (x,))
        assert gradgradcheck(lambda x, args=args: op.function(x, *args), (x,))
    for dtype, rtol in (("float64", 1e-12), ("float32", 1e-5), ("float16", 4e-3)):
        for shape in ((2, 3), (6,), ()):
            a = data.ravel()[: int(np.prod(shape))].reshape(shape).astype(dtype)
            x = torch.tensor(a, requires_grad=True)
            y = op.function(x)
            y.backward()
            np.testing.assert_allclose(y.item(), value(a.astype("float64")), rtol=rtol)
            np.testing.assert_allclose(x.grad.numpy(), gradient(a.astype("float64")), rtol=rtol, atol=1e-12)


def test_the_gradient_of_a_fold_of_complex_numbers_is_the_conjugates():
    op, _, gradient = FOLDS["logsumexp"]
    z = np.array([1 + 1j, 2 - 1j])
    x = torch.tensor(z, requires_grad=True)
    op.function(x).backward(torch.tensor(1 + 0j, dtype=torch.complex128))
    np.testing.assert_allclose(x.grad.numpy(), np.conj(gradient(z)), rtol=1e-12)


def test_a_fold_that_does_not_add_must_give_its_gradient():
    op = folding(lambda x: fold("mul", 2 * x))
    assert op.function(torch.tensor([1.0, 3.0])).item() == 12
    with pytest.raises(TypeError, match="folded does not add"):
        op.function(torch.tensor([1.0, 3.0], requires_grad=True))


# --- names of parameters --------------------------------------------------------------------------------------------
# what generated code, kernels and expressions call their own things, or did, and what parameters of other records are called
TROUBLESOME = """a b c d e f g h i j k l m n o p q r s t u v w x y z ok rg oc dt k_ t_ n_ a0 a1 b0 b1 c0 c1 e0 ok0 rg0 t0 i0 ct np kw old arrays
    new_array inplace dim keepdim dtype size self other G M N D_b sum mean exp sqrt where index input_meta values indices result1 grad1 row width
    stride step count ptr acc start stop rows kernel thread math __a A_ lambda_""".split()
REFUSED = ["out", "grad", "grads", "result", "results", "needs", "_a", "_rg", "_t0", "_ct", "_D_x", "ND", "RUN", "UF", "F32", "Tensor", "new", "modes",
           "quiet", "float", "len", "save", "locals"]


def squareplus(name, note, first=False):
    """0.5 * (x + sqrt(x**2 + b)); the parameter of that name is the first or the second."""
    x, b = (name, "b" if name != "b" else "b2") if first else ("input" if name != "input" else "x", name)
    env = {"EXPR": E}
    default = "=4.0" if "Number" in note else ""
    exec(f"def squareplus({x}, {b}{default}): return 0.5 * ({x} + EXPR.sqrt({x} * {x} + {b}))", env)
    env["squareplus"].__annotations__ = {x: "Tensor", b: note}
    return pointwise(public=False)(env["squareplus"])


@pytest.mark.parametrize("first", [False, True], ids=["second", "first"])
@pytest.mark.parametrize("name", TROUBLESOME)
def test_a_parameter_may_have_any_name(name, first):
    """Through the fast path, the loops of big arrays and a compiled call; the expression and its derivatives."""
    h = np.sqrt(1.5**2 + 9)
    for note in ("Number", "Tensor | Number", "Tensor"):
        op = squareplus(name, note, first)
        for shape in ((), (3,), (1500,), (70000,)):
            x = torch.tensor(np.full(shape, 1.5), requires_grad=True)
            b = torch.tensor(np.full(shape, 9.0), requires_grad=True) if note == "Tensor" else 9.0
            call = {p.name: v for p, v in zip(op.params, (x, b), strict=True)}
            y = op.function(**call)
            y.sum().backward()
            np.testing.assert_allclose(y.detach().numpy(), np.full(shape, 0.5 * (1.5 + h)), rtol=1e-12)
            np.testing.assert_allclose(x.grad.numpy(), np.full(shape, 0.5 * (1 + 1.5 / h)), rtol=1e-12)
            if note == "Tensor":
                np.testing.assert_allclose(b.grad.numpy(), np.full(shape, 0.25 / h), rtol=1e-12)
    assert gradgradcheck(op.function, (torch.tensor(1.5, dtype=torch.float64, requires_grad=True), torch.tensor(9.0, dtype=torch.float64, requires_grad=True)))
    compiled = compile_function(lambda x, op=op: op.function(x, x * 6))
    for _ in range(3):
        assert compiled(torch.tensor(1.5)).item() == pytest.approx(0.5 * (1.5 + h), rel=1e-6)


@pytest.mark.parametrize("name", ["a0", "a", "d", "ok", "q", "r", "t", "rg", "c", "k", "grad_output", "new_array", "x", "s"])
def test_records_of_arrays_may_have_any_names_too(name):
    notes = {name: "Tensor", "other": "Tensor", "b": "Number"}
    env = {"np": np}
    exec(f"def scaled({name}, other, b=2.0): return {name} * other * b\n"
         f"def put({name}, other, b=2.0): np.multiply(other, b, out={name})\n"
         f"def by_first(grad, other, b): return grad * other * b\n"
         f"def by_other(grad, {name}, b): return grad * {name} * b", env)
    for f in ("scaled", "put"):
        env[f].__annotations__ = notes
    op = structural(public=False)(env["scaled"])
    op.gradient(**{name: env["by_first"], "other": env["by_other"]})
    x, y = (torch.tensor(v, requires_grad=True) for v in (3.0, 5.0))
    z = op.function(x, y, b=7)
    z.backward()
    assert (z.item(), x.grad.item(), y.grad.item()) == (105, 35, 21)
    op = writes(public=False, exact=True)(env["put"])
    assert op.function(x.detach(), y.detach()).item() == 10 and x.item() == 3
    w = torch.zeros(2)
    assert op.inplace_function(w, torch.ones(2), 4.0) is w and w.tolist() == [4, 4]


@pytest.mark.parametrize("name", REFUSED)
def test_reserved_names_are_refused_where_they_are_declared(name):
    with pytest.raises(TypeError, match=rf"squareplus\(\) cannot have a parameter named '{name}'"):
        squareplus(name, "Number")
    with pytest.raises(TypeError, match="cannot have a parameter named"):
        squareplus(name, "Number", first=True)


def test_names_that_depend_on_the_record_are_refused():
    with pytest.raises(TypeError, match="'inplace'"):
        pointwise(public=False, inplace="argument")(lambda input, inplace: input)
    with pytest.raises(TypeError, match="the first parameter of a reduction"):
        reduction(public=False)(lambda values: fold("add", values))

    op = structural(public=False)(lambda input, result: input * result)
    with pytest.raises(TypeError, match="reads 'result', which is a parameter and a result"):
        op.gradient(input=lambda grad, result: grad * result)


def test_generated_code_uses_no_names_but_parameters_and_reserved_ones(monkeypatch):
    """For every operator: so a name that somebody gives a parameter cannot meet one that the code has for itself."""
    sources = []
    make = generate.make
    monkeypatch.setattr(generate, "make", lambda source, name, **extra: (sources.append(source), make(source, name, **extra))[1])
    seen = 0
    for op in declare.OPERATORS.values():
        keys = ["function"] + ["inplace"] * op.inplace + ["record"] * has_gradient(op)
        if any(o in declare.DUNDERS for o in (op.operator or "").split()):
            keys += ["dunder"] + ["idunder"] * op.inplace
        for key in keys:
            if key == "record":
                op.derived("node")      # its locals meet no parameters
            sources.clear()
            generate.derive(op, key)
            allowed = {p.name for p in op.params} | set(op.keeps)
            for source in sources:
                used = {n.id for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Name)}
                own = {n for n in used - allowed if not declare.reserved(op, n)}
                assert not own, (op, key, own)
                seen += 1
    assert seen > 1000


# --- the page itself ------------------------------------------------------------------------------------------------
@pytest.fixture
def page(monkeypatch):
    """The names that docs/operators.md's Python blocks define, run in order as one file; its operators are forgotten afterwards."""
    for table in ("OPERATORS", "RESULTS"):
        monkeypatch.setattr(declare, table, dict(getattr(declare, table)))
    monkeypatch.setattr(declare, "NAMESPACES", {k: dict(v) for k, v in declare.NAMESPACES.items()})
    monkeypatch.setattr(ops, "_found", {})
    text = (pathlib.Path(__file__).parent.parent / "docs" / "operators.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) > 7
    names = {}
    for block in blocks:
        exec(compile(block, "docs/operators.md", "exec", flags=__future__.annotations.compiler_flag), names)
    return names


def test_the_page_defines_operators_that_work(page):
    a = np.random.RandomState(0).uniform(0.5, 2, (3, 4))
    x = torch.tensor(a)
    index = np.array([[0, 2, 1, 0]])
    for name, args, want in [
        ("squareplus", (), 0.5 * (a + np.sqrt(a * a + 4))),
        ("squareplus", (9.0,), 0.5 * (a + np.sqrt(a * a + 9))),
        ("logistic", (), 1 / (1 + np.exp(-a))),
        ("rms", (1,), np.sqrt((a * a).mean(1))),
        ("exchanged", (0, 1), a.T),
        ("picked", (0, torch.tensor(index)), np.take_along_axis(a, index, 0)),
        ("row_put", (1, torch.zeros(4, dtype=torch.float64)), a * [[1], [0], [1]]),
        ("standardized", (), (a - a.mean(1, keepdims=True)) / np.sqrt(a.var(1, keepdims=True) + 1e-5)),
    ]:
        np.testing.assert_allclose(page[name].function(x, *args).numpy(), want, rtol=1e-12)
        # formulas call operators by their names at the time
        assert gradcheck(lambda x, name=name, args=args: page[name].function(x, *args), (x.clone().requires_grad_(),))
        assert gradgradcheck(lambda x, name=name, args=args: page[name].function(x, *args), (x.clone().requires_grad_(),))
    assert page["squares"].function((2, 2), 0.5, requires_grad=True).tolist() == [[0, 0.5], [2, 4.5]]
    assert page["squares"].function((2,), device="meta").shape == (2,)
    sparse = torch.tensor([0.0, np.e - 1, 1 - np.e]).to_sparse()
    got = page["signed_log"].function(sparse).coalesce()
    assert got.indices().tolist() == [[1, 2]]
    np.testing.assert_allclose(got.values().numpy(), [1, -1], rtol=1e-6)


def test_the_pages_operators_have_samples_that_run(page):
    mine = [v for v in page.values() if isinstance(v, declare.Operator)]
    assert len(mine) == 9
    for op in mine:
        calls = samples_of(op)
        assert calls, op
        for call in calls:
            args, kw = build(call, lambda spec: torch.tensor(spec.array))
            op.function(*args, **kw)


def test_annotations_must_be_text():
    def shifted(input: torch.Tensor):
        return input + 1

    with pytest.raises(TypeError, match=r"shifted\(\): .*from __future__ import annotations"):
        pointwise(public=False)(shifted)
