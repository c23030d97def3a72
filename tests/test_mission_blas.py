"""Threads, matrices, BLAS and LAPACK: products, factorizations and solvers, with today's names and with those of the oldest programs. Each
test names its mission rows; expected values come from NumPy, SciPy and from mathematics."""

import math
import warnings

import numpy as np
import pytest
import scipy.linalg

import rushlight as torch

INF, NAN = math.inf, math.nan
FLOATS = (torch.float32, torch.float64)
floats = pytest.mark.parametrize("dtype", FLOATS, ids=["float32", "float64"])


def tensor(values, dtype=torch.float64, **kw):
    return torch.tensor(values, dtype=dtype, **kw)


def numbers(*shape, dtype=torch.float64, seed=0):
    return torch.from_numpy(np.asarray(np.random.RandomState(seed).uniform(-2, 2, shape))).to(dtype)


def positive(n=4, dtype=torch.float64):
    """A positive definite matrix."""
    a = numbers(n, n, dtype=dtype, seed=5)
    return a @ a.t() + torch.eye(n, dtype=dtype)


def near(actual, expected, ulps=64):
    """Equal up to rounding, nan where nan is expected."""
    a, e = actual.detach().numpy(), np.asarray(expected)
    assert a.shape == e.shape, (a.shape, e.shape)
    if a.dtype.kind == "f":
        tolerance = ulps * np.finfo(a.dtype).eps
        np.testing.assert_allclose(a, e.astype(a.dtype), rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(a, e)


def check_out(f, expected, dtype, refuse=torch.int64, grad=True, warns=True):
    """`out=`: filled where it fits, resized with a warning where not, without one if it was empty; returned itself."""
    out = torch.full(np.shape(expected), 9, dtype=dtype)
    where = out.data_ptr()
    assert f(out=out) is out and out.data_ptr() == where
    near(out, expected)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*resized.*")
        out = torch.empty(0, dtype=dtype)
        assert f(out=out) is out
        near(out, expected)
    out = torch.empty(11, dtype=dtype)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert f(out=out) is out
    assert not warns or any("resized" in str(w.message) for w in seen)
    near(out, expected)
    with pytest.raises(RuntimeError):
        f(out=torch.empty(np.shape(expected), dtype=refuse))
    if grad:
        with pytest.raises(RuntimeError):
            f(out=torch.empty(np.shape(expected), dtype=dtype, requires_grad=True))


def check_outs(f, *expected, dtypes):
    """`out=` of several results: a tuple, whose tensors come back."""
    outs = tuple(torch.empty(0, dtype=d) for d in dtypes)
    r = f(out=outs)
    assert all(x is o for x, o in zip(r, outs, strict=True))
    for o, e in zip(outs, expected, strict=True):
        if e is not None:
            near(o, e)
    with pytest.warns(UserWarning, match="resized"):
        f(out=(torch.empty(11, dtype=dtypes[0]), *[torch.empty(0, dtype=d) for d in dtypes[1:]]))


# --- threads ----------------------------------------------------------------------------------------------------------
def test_threads():  # mission: L-01, L-02
    before = torch.get_num_threads()
    assert isinstance(before, int) and before >= 1
    x, y = numbers(300, 700), numbers(700, 200, seed=1)
    try:
        results = []
        for n in (1, 2, 3):
            torch.set_num_threads(n)
            assert torch.get_num_threads() == n
            results.append((x @ y, torch.exp(x), x.sum(), x.softmax(1)))
        for r in results[1:]:
            for a, b in zip(results[0], r, strict=True):
                near(a, b.numpy())
    finally:
        torch.set_num_threads(before)
    assert torch.get_num_threads() == before


def test_threads_refused():  # mission: L-03
    before = torch.get_num_threads()
    for bad, error in ((0, RuntimeError), (-1, RuntimeError), (1.5, (TypeError, RuntimeError)), ("2", (TypeError, RuntimeError)), (None, (TypeError, RuntimeError))):
        with pytest.raises(error, match="set_num_threads|positive"):
            torch.set_num_threads(bad)
    with pytest.raises(TypeError):
        torch.set_num_threads()
    assert torch.get_num_threads() == before


# --- matrices ---------------------------------------------------------------------------------------------------------
@floats
def test_cross(dtype):  # mission: P-01
    a, b = numbers(2, 3, dtype=dtype), numbers(2, 3, dtype=dtype, seed=1)
    expected = np.cross(a.numpy(), b.numpy())
    for r in (torch.cross(a, b, 1), torch.cross(a, b, dim=-1), a.cross(b, dim=1), torch.cross(a.t(), b.t(), dim=0).t(), torch.cross(input=a, other=b, dim=1)):
        near(r, expected)
    near(torch.cross(a, b[:1], dim=1), np.cross(a.numpy(), b.numpy()[:1]))
    assert torch.cross(torch.empty(0, 3), torch.empty(0, 3), dim=1).shape == (0, 3)
    assert torch.cross(torch.tensor([1, 2, 3]), torch.tensor([3, 2, 1]), dim=0).tolist() == [-4, 8, -4]
    check_out(lambda out: torch.cross(a, b, dim=1, out=out), expected, dtype)
    for call in (lambda: torch.cross(a, b, dim=0), lambda: torch.cross(torch.ones(2, 4), torch.ones(2, 4), dim=1), lambda: torch.cross(a, torch.ones(3, dtype=dtype), dim=1),
                 lambda: torch.cross(a, b.int(), dim=1)):
        with pytest.raises(RuntimeError):
            call()
    with pytest.raises(IndexError, match="out of range"):
        torch.cross(a, b, dim=2)
    u, v = (tensor(x.tolist(), requires_grad=True) for x in (a[0], b[0]))
    assert torch.autograd.gradcheck(lambda u, v: torch.cross(u, v, dim=0), (u, v))


def test_cross_without_dim():  # mission: P-02
    a, b = numbers(3, 4), numbers(3, 4, seed=1)
    always = torch.is_warn_always_enabled()
    try:
        torch.set_warn_always(True)
        with pytest.warns(UserWarning, match="dim"):
            r = torch.cross(a, b)
    finally:
        torch.set_warn_always(always)
    near(r, np.cross(a.numpy(), b.numpy(), axis=0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.cross(a, b)
        warnings.simplefilter("error")          # once is enough
        square = numbers(3, 3)
        near(torch.cross(square, square.flip(0)), np.cross(square.numpy(), square.flip(0).numpy(), axis=0))
        near(torch.cross(a.t(), b.t()), np.cross(a.numpy().T, b.numpy().T))
        with pytest.raises(RuntimeError):
            torch.cross(torch.ones(2, 2), torch.ones(2, 2))
    near(torch.cross(square, square.flip(1), dim=-1), np.cross(square.numpy(), square.flip(1).numpy()))


@floats
def test_diag(dtype):  # mission: P-03
    v, m = tensor([1, 2, 3], dtype), numbers(2, 4, dtype=dtype)
    for k in (0, 1, -1, 3, -3):
        for r in (torch.diag(v, k), v.diag(k), torch.diag(v, diagonal=k), torch.diag(tensor([1, 9, 2, 9, 3], dtype)[::2], k)):
            near(r, np.diag(v.numpy(), k))
        check_out(lambda out, k=k: torch.diag(v, k, out=out), np.diag(v.numpy(), k), dtype)
    for k in (0, 1, -1, 3):
        for r in (torch.diag(m, k), m.diag(k), torch.diag(m.t(), -k)):
            near(r, np.diag(m.numpy(), k))
        check_out(lambda out, k=k: torch.diag(m, k, out=out), np.diag(m.numpy(), k), dtype)
    assert torch.diag(torch.empty(0)).shape == (0, 0) and torch.diag(torch.tensor([1, 2])).tolist() == [[1, 0], [0, 2]]
    c = m.clone()
    torch.diag(c).fill_(7)
    assert torch.equal(c, m)                    # a copy
    for bad in (torch.ones(2, 2, 2), torch.tensor(1.0)):
        with pytest.raises(RuntimeError):
            torch.diag(bad)
    x = v.clone().requires_grad_()
    (torch.diag(x, 1) * torch.arange(16, dtype=dtype).view(4, 4)).sum().backward()
    assert x.grad.tolist() == [1, 6, 11]
    x = m.clone().requires_grad_()
    torch.diag(x, 1).sum().backward()
    near(x.grad, np.eye(2, 4, 1))


@floats
def test_histc(dtype):  # mission: P-04
    x = tensor([[1, 2, 1], [5, 4, -1]], dtype)
    near(torch.histc(x, 4, 0, 4), [0, 2, 1, 1])                 # max is in the last bin, what lies outside is left out
    near(x.histc(bins=4, min=0, max=4), [0, 2, 1, 1])
    near(torch.histc(x.t(), 4, 0, 4), [0, 2, 1, 1])
    near(torch.histc(x, 3), np.histogram(x.numpy(), 3)[0])      # the range of the data
    assert torch.histc(x).shape == (100,) and torch.histc(x).sum() == 6 and torch.histc(x)[0] == 1 and torch.histc(x)[-1] == 1
    near(torch.histc(x, 5, -10, 10), np.histogram(x.numpy(), 5, (-10, 10))[0])
    near(torch.histc(tensor([2, 2], dtype), 4), [0, 0, 2, 0])   # one value: a range of one around it
    near(torch.histc(torch.empty(0, dtype=dtype), 3), [0, 0, 0])
    check_out(lambda out: torch.histc(x, 4, 0, 4, out=out), [0, 2, 1, 1], dtype, grad=False)
    for call in (lambda: torch.histc(x, 3, 2, 1), lambda: torch.histc(x, 0), lambda: torch.histc(x, -1), lambda: torch.histc(torch.tensor([1, 2]), 3)):
        with pytest.raises(RuntimeError):
            call()


@floats
def test_renorm(dtype):  # mission: P-05
    x = tensor([[3, 4], [0.3, 0.4], [6, 8]], dtype)
    expected = [[0.6, 0.8], [0.3, 0.4], [0.6, 0.8]]
    for r in (torch.renorm(x, 2, 0, 1), x.renorm(p=2, dim=0, maxnorm=1), torch.renorm(x.t(), 2, 1, 1).t(), torch.renorm(x, 2, -2, 1)):
        np.testing.assert_allclose(r.numpy(), expected, rtol=1e-6)      # PyTorch divides by norm + 1e-7
        assert torch.equal(r[1], x[1])          # left as it is
    np.testing.assert_allclose(torch.renorm(x, 1, 1, 4.65).numpy(), x.numpy() * [0.5, 0.375], rtol=1e-6)
    np.testing.assert_allclose(torch.renorm(x, INF, 0, 4).numpy(), [[3, 4], [0.3, 0.4], [3, 4]], rtol=1e-6)
    assert torch.equal(torch.renorm(x, 2, 0, 5), torch.renorm(x, 2, 0, 5).where(tensor([[False], [False], [True]], torch.bool), x))      # at most maxnorm
    assert torch.renorm(x, 2, 0, 0).abs().max() == 0
    check_out(lambda out: torch.renorm(x, 2, 0, 1, out=out), torch.renorm(x, 2, 0, 1).numpy(), dtype)
    c = x.clone()
    assert c.renorm_(2, 0, 1) is c and torch.equal(c, torch.renorm(x, 2, 0, 1))
    assert torch.renorm(torch.empty(0, 2, dtype=dtype), 2, 0, 1).shape == (0, 2)
    for call in (lambda: torch.renorm(x, 2, 0, -1), lambda: torch.renorm(x, 0, 0, 1), lambda: torch.renorm(x[0], 2, 0, 1)):
        with pytest.raises(RuntimeError):
            call()
    with pytest.raises(IndexError, match="out of range"):
        torch.renorm(x, 2, 2, 1)
    assert torch.autograd.gradcheck(lambda x: torch.renorm(x, 2, 0, 1.3), (numbers(3, 4).requires_grad_(),))


@floats
def test_trace(dtype):  # mission: P-06
    m = numbers(3, 4, dtype=dtype)
    for r in (torch.trace(m), m.trace(), torch.trace(m.t()), torch.trace(input=m)):
        near(r, np.trace(m.numpy()))
    near(torch.trace(torch.empty(0, 0, dtype=dtype)), 0)
    assert torch.trace(torch.tensor([[1, 2], [3, 4]])).item() == 5 and torch.trace(torch.tensor([[1, 2], [3, 4]])).dtype is torch.int64
    for bad in (torch.ones(3), torch.ones(2, 2, 2), torch.tensor(1.0), torch.ones(2, 2, dtype=torch.bool)):
        with pytest.raises(RuntimeError):
            torch.trace(bad)
    x = m.clone().requires_grad_()
    torch.trace(x).backward()
    near(x.grad, np.eye(3, 4))


@floats
@pytest.mark.parametrize("name, exact", [
    ("tril", np.tril),  # mission: P-07
    ("triu", np.triu),  # mission: P-08
])
def test_triangles(name, exact, dtype):  # mission: P-07, P-08
    f = getattr(torch, name)
    for shape in ((3, 3), (2, 4), (4, 2), (2, 3, 3), (2, 0), (0, 3)):
        x = numbers(*shape, dtype=dtype)
        for k in (0, 1, -1, 5, -5):
            near(f(x, k), exact(x.numpy(), k))
            near(f(x, diagonal=k), exact(x.numpy(), k))
            near(getattr(x, name)(k), exact(x.numpy(), k))
    x = numbers(3, 4, dtype=dtype)
    near(f(x.t()), exact(x.numpy().T))
    near(f(tensor([[NAN, NAN], [NAN, NAN]], dtype), -3 if name == "tril" else 3), np.zeros((2, 2)))      # left out, not multiplied by 0
    check_out(lambda out: f(x, 1, out=out), exact(x.numpy(), 1), dtype)
    c = x.clone()
    assert getattr(c, name + "_")(1) is c
    near(c, exact(x.numpy(), 1))
    assert f(torch.tensor([[1, 2], [3, 4]])).dtype is torch.int64 and f(torch.tensor([[True, True], [True, True]])).dtype is torch.bool
    g = x.clone().requires_grad_()
    f(g, 1).sum().backward()
    near(g.grad, exact(np.ones((3, 4)), 1))
    with pytest.raises(RuntimeError):
        f(torch.ones(3))
    with pytest.raises(TypeError):
        f(x, 1.0)


def test_triangles_old_keyword():  # mission: P-09
    x = numbers(3, 4)
    for k in (0, 1, -1):
        near(torch.tril(x, k=k), np.tril(x.numpy(), k))
        near(torch.triu(x, k=k), np.triu(x.numpy(), k))
        near(x.triu(k=k), np.triu(x.numpy(), k))
        near(x.clone().tril_(k=k), np.tril(x.numpy(), k))
    out = torch.empty(0, dtype=torch.float64)
    assert torch.tril(input=x, k=1, out=out) is out
    with pytest.raises(TypeError):
        torch.tril(x, 1, k=1)


# --- products added to something --------------------------------------------------------------------------------------
# name, shapes of the three operands, NumPy's product of the last two, the operands' names today and in the seed
ADDED = [
    ("addbmm", ((2, 4), (5, 2, 3), (5, 3, 4)), lambda a, b: (a @ b).sum(0), ("input", "batch1", "batch2"), ("mat", "batch1", "batch2")),  # mission: Q-01
    ("addmm", ((2, 4), (2, 3), (3, 4)), lambda a, b: a @ b, ("input", "mat1", "mat2"), ("mat", "mat1", "mat2")),  # mission: Q-02
    ("baddbmm", ((5, 2, 4), (5, 2, 3), (5, 3, 4)), lambda a, b: a @ b, ("input", "batch1", "batch2"), ("mat", "batch1", "batch2")),  # mission: Q-03
    ("addmv", ((2,), (2, 3), (3,)), lambda a, b: a @ b, ("input", "mat", "vec"), ("tensor", "mat", "vector")),  # mission: Q-04
    ("addr", ((2, 4), (2,), (4,)), np.multiply.outer, ("input", "vec1", "vec2"), ("mat", "vec1", "vec2")),  # mission: Q-05
]
added = pytest.mark.parametrize("name, shapes, product, today, seed", ADDED, ids=[r[0] for r in ADDED])


@pytest.mark.filterwarnings("ignore:this overload", "ignore:This overload")
@floats
@added
def test_added_products(name, shapes, product, today, seed, dtype):  # mission
    f = getattr(torch, name)
    m, a, b = (numbers(*s, dtype=dtype, seed=i) for i, s in enumerate(shapes))
    M, P = m.numpy().astype(np.float64), product(*(x.numpy().astype(np.float64) for x in (a, b)))
    near(f(m, a, b), M + P)
    for beta, alpha in ((2, 3), (0.5, -1.5), (1, 0), (0, 2), (0, 1)):
        expected = beta * M + alpha * P
        near(f(m, a, b, beta=beta, alpha=alpha), expected)
        near(f(**dict(zip(today, (m, a, b), strict=True)), beta=beta, alpha=alpha), expected)
        near(f(beta, m, alpha, a, b), expected)                 # the seed's order
        near(getattr(m, name)(beta, alpha, a, b), expected)
        near(getattr(m, name)(a, b, beta=beta, alpha=alpha), expected)
        for arguments, keywords in (((a, b), {"beta": beta, "alpha": alpha}), ((beta, alpha, a, b), {})):
            c = m.clone()
            assert getattr(c, name + "_")(*arguments, **keywords) is c
            near(c, expected)
        near(f(beta, m, a, b), beta * M + P)
        near(getattr(m, name)(beta, a, b), beta * M + P)
        near(getattr(m.clone(), name + "_")(beta, a, b), beta * M + P)
    near(f(torch.full_like(m, NAN), a, b, beta=0), P)           # not read at all
    near(f(0, torch.full_like(m, INF), 2, a, b), 2 * P)
    near(getattr(torch.full_like(m, NAN), name + "_")(a, b, beta=0), P)
    warns = name != "addbmm"            # which PyTorch resizes without a word
    check_out(lambda out: f(m, a, b, beta=2, alpha=3, out=out), 2 * M + 3 * P, dtype, warns=warns)
    check_out(lambda out: f(2, m, 3, a, b, out=out), 2 * M + 3 * P, dtype, warns=warns)
    same = m.clone()
    assert f(same, a, b, out=same) is same
    near(same, M + P)
    near(f(torch.ones(1, dtype=dtype), a, b), 1 + P)            # broadcast
    near(f(*(torch.stack([x, x], -1)[..., 0] for x in (m, a, b))), M + P)      # of strided operands


@pytest.mark.filterwarnings("ignore:this overload", "ignore:This overload")
@added
def test_added_products_gradients_and_errors(name, shapes, product, today, seed):  # mission
    f = getattr(torch, name)
    operands = [numbers(*s, seed=i) for i, s in enumerate(shapes)]
    m, a, b = (x.clone().requires_grad_() for x in operands)
    assert torch.autograd.gradcheck(lambda m, a, b: f(2.0, m, 3.0, a, b), (m, a, b))
    f(m, a, b, beta=0.0).sum().backward()
    assert m.grad is None or not m.grad.any()
    with pytest.raises(RuntimeError, match="automatic differentiation"):
        f(m, a, b, out=torch.empty(0, dtype=torch.float64))
    m, a, b = operands
    i = [x.round().long() for x in operands]
    expected = 2 * i[0].numpy() + 3 * product(i[1].numpy(), i[2].numpy())
    assert f(2, i[0], 3, i[1], i[2]).dtype is torch.int64
    near(f(2, i[0], 3, i[1], i[2]), expected)
    for call in (lambda: f(m, a[:, :1] if a.dim() > 1 else a[:, None], b), lambda: f(torch.ones(7, dtype=m.dtype), a, b), lambda: f(m, a.unsqueeze(0), b)):
        with pytest.raises(RuntimeError):
            call()
    if name == "addr":          # vectors of several dtypes are promoted, matrices are not
        near(f(m.float(), a, b.float()), f(m.float().double(), a, b.float().double()).numpy())
    else:
        with pytest.raises(RuntimeError, match="dtype"):
            f(m, a.float(), b)
    for call in (lambda: f(m, a), lambda: f(m, a, 2.0), lambda: f(2, 3, m, a, b), lambda: f(m, a, b, 2, 3), lambda: f(m, a, b, gamma=1)):
        with pytest.raises(TypeError):
            call()


@pytest.mark.filterwarnings("ignore:this overload")
@added
def test_added_products_old_keywords(name, shapes, product, today, seed):  # mission: Q-31
    f = getattr(torch, name)
    m, a, b = (numbers(*s, seed=i) for i, s in enumerate(shapes))
    expected = 2 * m.numpy() + 3 * product(a.numpy(), b.numpy())
    near(f(**dict(zip(seed, (m, a, b), strict=True)), beta=2, alpha=3), expected)
    near(f(**dict(zip(seed, (m, a, b), strict=True))), m.numpy() + product(a.numpy(), b.numpy()))
    out = torch.empty(0, dtype=torch.float64)
    assert f(beta=2, alpha=3, out=out, **dict(zip(seed, (m, a, b), strict=True))) is out
    near(out, expected)
    near(getattr(m, name)(beta=2, alpha=3, **dict(zip(seed[1:], (a, b), strict=True))), expected)
    near(f(m, 3, a, b), m.numpy() + 3 * product(a.numpy(), b.numpy()))      # alpha alone, before its matrices


def test_products_old_keywords():  # mission: Q-31
    a, b, c, v, w = numbers(2, 3), numbers(3, 4), numbers(5, 2, 3), numbers(3), numbers(3, seed=1)
    near(torch.mm(mat1=a, mat2=b), a.numpy() @ b.numpy())
    near(a.mm(mat2=b), a.numpy() @ b.numpy())
    near(torch.mv(mat=a, vec=v), a.numpy() @ v.numpy())
    near(torch.bmm(batch1=c, batch2=c.transpose(1, 2)), c.numpy() @ c.numpy().transpose(0, 2, 1))
    near(torch.dot(tensor1=v, tensor2=w), v.numpy() @ w.numpy())
    near(torch.ger(vec1=v, vec2=w), np.outer(v.numpy(), w.numpy()))
    near(torch.outer(vec1=v, vec2=w), np.outer(v.numpy(), w.numpy()))
    h, tau = torch.geqrf(input=numbers(4, 3))
    q = torch.orgqr(h, tau)
    near(torch.orgqr(a=h, tau=tau), q.numpy())
    near(torch.ormqr(a=h, tau=tau, mat=numbers(4, 2)), torch.ormqr(h, tau, numbers(4, 2)).numpy())
    out = torch.empty(0, dtype=torch.float64)
    assert torch.mm(mat1=a, mat2=b, out=out) is out
    for call in (lambda: torch.mm(mat1=a), lambda: torch.mm(mat1=a, mat3=b), lambda: torch.mm(a, mat1=b), lambda: torch.dot(tensor1=v, tensor2=2)):
        with pytest.raises(TypeError):
            call()


# --- products ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64, torch.int32], ids=str)
def test_mm(dtype):  # mission: Q-19
    a, b = (numbers(3, 4) * 3).to(dtype), (numbers(4, 5, seed=1) * 3).to(dtype)
    A, B = a.numpy(), b.numpy()
    for r in (torch.mm(a, b), a.mm(b), torch.mm(input=a, mat2=b), torch.mm(a.t().contiguous().t(), b.t().contiguous().t())):
        assert r.dtype is dtype
        near(r, A @ B)
    near(torch.mm(b.t(), a.t()), B.T @ A.T)
    near(torch.mm(a[:, ::2], b[::2]), A[:, ::2] @ B[::2])
    near(torch.mm(a[:, :0], b[:0]), np.zeros((3, 5)))
    assert torch.mm(a[:0], b).shape == (0, 5)
    check_out(lambda out: torch.mm(a, b, out=out), A @ B, dtype, torch.int16)
    out = torch.zeros(5, 3, dtype=dtype)
    torch.mm(a, b, out=out.t())
    near(out, (A @ B).T)
    for bad in (a, b[0], torch.ones(4, 5, dtype=torch.float64 if dtype is not torch.float64 else torch.float32), b[None]):
        with pytest.raises(RuntimeError):
            torch.mm(a, bad)
    with pytest.raises(TypeError):
        torch.mm(a, 2)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64], ids=str)
def test_bmm(dtype):  # mission: Q-06
    a, b = (numbers(5, 3, 4) * 3).to(dtype), (numbers(5, 4, 2, seed=1) * 3).to(dtype)
    A, B = a.numpy(), b.numpy()
    for r in (torch.bmm(a, b), a.bmm(b), torch.bmm(input=a, mat2=b), torch.bmm(a.transpose(1, 2).contiguous().transpose(1, 2), b)):
        near(r, A @ B)
    near(torch.bmm(a[::2, :, ::2], b[::2, ::2]), A[::2, :, ::2] @ B[::2, ::2])
    assert torch.bmm(a[:0], b[:0]).shape == (0, 3, 2) and not torch.bmm(a[:, :, :0], b[:, :0]).any()
    check_out(lambda out: torch.bmm(a, b, out=out), A @ B, dtype, torch.int16)
    for x, y in ((a[:1], b), (a, b[:4]), (a, a), (a[0], b[0]), (a, b[0]), (a, b.to(torch.int32))):
        with pytest.raises(RuntimeError):
            torch.bmm(x, y)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.int64], ids=str)
def test_mv_dot_ger(dtype):  # mission
    m, v, w = ((numbers(*s, seed=i) * 3).to(dtype) for i, s in enumerate(((3, 4), (4,), (4,))))
    M, V, W = m.numpy(), v.numpy(), w.numpy()
    for r in (torch.mv(m, v), m.mv(v), torch.mv(input=m, vec=v), torch.mv(m.t().contiguous().t(), v)):
        near(r, M @ V)
    near(torch.mv(m[:, ::2], v[::2]), M[:, ::2] @ V[::2])
    near(torch.mv(m[:, :0], v[:0]), [0, 0, 0])
    check_out(lambda out: torch.mv(m, v, out=out), M @ V, dtype, torch.int16)
    for r in (torch.dot(v, w), v.dot(w), torch.dot(input=v, tensor=w)):
        assert r.shape == () and r.dtype is dtype
        near(r, V @ W)
    near(torch.dot(v[::2], w[1::2]), V[::2] @ W[1::2])
    near(torch.dot(v[:0], w[:0]), 0)
    check_out(lambda out: torch.dot(v, w, out=out), V @ W, dtype, torch.int16)
    for r in (torch.ger(v, w[:3]), v.ger(w[:3]), torch.outer(v, w[:3]), torch.ger(input=v, vec2=w[:3])):
        near(r, np.outer(V, W[:3]))
    assert torch.ger(v[:0], w).shape == (0, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_out(lambda out: torch.outer(v, w, out=out), np.outer(V, W), dtype, torch.bool)
        assert torch.ger(v, w, out=torch.empty(4, 4, dtype=dtype)).tolist() == np.outer(V, W).tolist()
    for call in (lambda: torch.mv(m, v[:3]), lambda: torch.mv(v, m), lambda: torch.mv(m, m.t()), lambda: torch.dot(v, w[:3]), lambda: torch.dot(m, m),
                 lambda: torch.dot(v, v.to(torch.int32)), lambda: torch.ger(m, v)):
        with pytest.raises(RuntimeError):
            call()
    for call in (lambda: torch.dot(v, 2), lambda: torch.mv(m, 2), lambda: torch.ger(v, [1, 2])):
        with pytest.raises(TypeError):
            call()


def test_products_gradients():  # mission
    a, b, c, v, w = (numbers(*s, seed=i).requires_grad_() for i, s in enumerate(((2, 3), (3, 2), (4, 2, 3), (3,), (3,))))
    assert torch.autograd.gradcheck(torch.mm, (a, b)) and torch.autograd.gradcheck(torch.mv, (a, v)) and torch.autograd.gradcheck(torch.dot, (v, w))
    assert torch.autograd.gradcheck(torch.ger, (v, w)) and torch.autograd.gradcheck(lambda c: torch.bmm(c, c.transpose(1, 2)), (c,))


# --- LU ---------------------------------------------------------------------------------------------------------------
def packed(lu, pivots):
    """P L U of packed factors and the row exchanges, counted from 1."""
    lu = np.asarray(lu, np.float64)
    n = lu.shape[0]
    a = (np.tril(lu, -1) + np.eye(n)) @ np.triu(lu)
    for k in reversed(range(n)):
        j = int(pivots[k]) - 1
        a[[k, j]] = a[[j, k]]
    return a


@floats
def test_btrifact(dtype):  # mission: Q-07
    a = numbers(5, 3, 3, dtype=dtype)
    for r in (torch.btrifact(a), a.btrifact(), torch.btrifact(A=a), torch.btrifact(a.transpose(1, 2).contiguous().transpose(1, 2))):
        lu, pivots = r
        assert lu.dtype is dtype and lu.shape == a.shape and pivots.dtype is torch.int32 and pivots.shape == (5, 3) and pivots.min() >= 1
        for k in range(5):
            near(torch.tensor(packed(lu[k].numpy(), pivots[k].numpy())).to(dtype), a[k].numpy(), 256)
    expected = scipy.linalg.lu_factor(a[0].numpy())
    near(lu[0], expected[0])
    near(pivots[0], expected[1] + 1)
    assert [t.shape for t in torch.btrifact(torch.empty(0, 3, 3))] == [(0, 3, 3), (0, 3)]
    check_outs(lambda out: torch.btrifact(a, out=out), lu.numpy(), pivots.numpy(), dtypes=(dtype, torch.int32))
    for bad in (a[0], torch.ones(2, 3, 4), torch.ones(2, 3, 3, dtype=torch.int64)):
        with pytest.raises(RuntimeError):
            torch.btrifact(bad)


@floats
def test_btrifact_info(dtype):  # mission: Q-08
    a = numbers(4, 3, 3, dtype=dtype)
    a[1] = 1            # its second pivot is zero
    a[2] = 0            # its first is
    for call in (lambda: torch.btrifact(a), lambda: a.btrifact()):
        with pytest.raises(RuntimeError, match="Batch element 1"):
            call()
    info = torch.IntTensor()
    lu, pivots = torch.btrifact(a, info)
    assert info.dtype is torch.int32 and info.tolist() == [0, 2, 1, 0] and pivots.shape == (4, 3)
    near(lu[0], scipy.linalg.lu_factor(a[0].numpy())[0])
    info = torch.IntTensor(7).fill_(9)
    a.btrifact(info=info)
    assert info.tolist() == [0, 2, 1, 0]
    torch.btrifact(A=numbers(2, 3, 3, dtype=dtype), info=info)
    assert info.tolist() == [0, 0]
    with pytest.raises(RuntimeError, match="int32"):
        torch.btrifact(a, info=torch.empty(4))


@floats
def test_btrisolve(dtype):  # mission: Q-09
    a, b = numbers(5, 3, 3, dtype=dtype), numbers(5, 3, dtype=dtype, seed=1)
    lu, pivots = torch.btrifact(a)
    expected = np.linalg.solve(a.numpy().astype(np.float64), b.numpy().astype(np.float64)[..., None])[..., 0]
    for r in (torch.btrisolve(b, lu, pivots), b.btrisolve(lu, pivots), torch.btrisolve(b=b, LU_data=lu, LU_pivots=pivots)):
        assert r.shape == (5, 3)
        near(r, expected, 1024)
    check_out(lambda out: torch.btrisolve(b, lu, pivots, out=out), r.numpy(), dtype)
    for bad in (b[:, :2], b[:4], b[0]):
        with pytest.raises(RuntimeError):
            torch.btrisolve(bad, lu, pivots)
    x, y = numbers(2, 3, 3).requires_grad_(), numbers(2, 3, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, y: torch.btrisolve(y, *torch.btrifact(x)), (x, y))


@floats
def test_gesv(dtype):  # mission: Q-17
    a, b = numbers(4, 4, dtype=dtype), numbers(4, 2, dtype=dtype, seed=1)
    expected = np.linalg.solve(a.numpy().astype(np.float64), b.numpy().astype(np.float64))
    for x, lu in (torch.gesv(b, a), b.gesv(a), torch.gesv(B=b, A=a), torch.gesv(b.t().contiguous().t(), a.t().contiguous().t())):
        near(x, expected, 1024)
        near(lu, scipy.linalg.lu_factor(a.numpy())[0])
    check_outs(lambda out: torch.gesv(b, a, out=out), x.numpy(), lu.numpy(), dtypes=(dtype, dtype))
    for bad in (torch.ones(4, 4, dtype=dtype), torch.ones(4, 3, dtype=dtype), torch.ones(3, 3, dtype=dtype), a[0], a.long()):
        with pytest.raises(RuntimeError):
            torch.gesv(b, bad)
    x, y = numbers(3, 3).requires_grad_(), numbers(3, 2, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, y: torch.gesv(y, x)[0], (x, y))


@floats
def test_inverse(dtype):  # mission: Q-18
    a = numbers(4, 4, dtype=dtype)
    expected = np.linalg.inv(a.numpy().astype(np.float64))
    for r in (torch.inverse(a), a.inverse(), torch.inverse(input=a), torch.inverse(a.t()).t()):
        near(r, expected, 1024)
    near(a @ torch.inverse(a), np.eye(4), 1024)
    check_out(lambda out: torch.inverse(a, out=out), torch.inverse(a).numpy(), dtype)
    assert torch.inverse(torch.empty(0, 0)).shape == (0, 0)
    for bad in (tensor([[1, 2], [2, 4]], dtype), torch.zeros(2, 2, dtype=dtype), torch.ones(2, 3, dtype=dtype), torch.ones(3, dtype=dtype), torch.eye(2).long()):
        with pytest.raises(RuntimeError):
            torch.inverse(bad)
    assert torch.autograd.gradcheck(torch.inverse, (numbers(3, 3).requires_grad_(),))


# --- QR, least squares ------------------------------------------------------------------------------------------------
@floats
def test_geqrf_orgqr(dtype):  # mission: Q-15
    for m, n in ((4, 3), (3, 3), (3, 5)):
        a = numbers(m, n, dtype=dtype)
        h, tau = torch.geqrf(a)
        k = min(m, n)
        assert h.shape == (m, n) and tau.shape == (k,)
        (H, T), R = scipy.linalg.qr(a.numpy(), mode="raw")
        near(h, H, 256)
        near(tau, T, 256)
        near(a.geqrf()[0], h.numpy())
        near(torch.geqrf(a.t().contiguous().t())[0], h.numpy())
        q = torch.orgqr(h[:, :k], tau)
        near(q @ h.triu()[:k], a.numpy(), 256)
        near(q.t() @ q, np.eye(k), 256)
        near(h[:, :k].orgqr(tau), q.numpy())
        near(torch.linalg.householder_product(h[:, :k], tau), q.numpy())
        check_outs(lambda out, a=a: torch.geqrf(a, out=out), h.numpy(), tau.numpy(), dtypes=(dtype, dtype))
        check_out(lambda out, h=h, tau=tau, k=k: torch.orgqr(h[:, :k], tau, out=out), q.numpy(), dtype)
    for call in (lambda: torch.geqrf(torch.ones(3, dtype=dtype)), lambda: torch.geqrf(torch.ones(3, 3).long()), lambda: torch.orgqr(torch.ones(2, 3, dtype=dtype), tau)):
        with pytest.raises(RuntimeError):
            call()


@floats
def test_ormqr(dtype):  # mission: Q-21
    a = numbers(4, 3, dtype=dtype)
    h, tau = torch.geqrf(a)
    full = scipy.linalg.qr(a.numpy().astype(np.float64))[0]
    mat, other = numbers(4, 2, dtype=dtype), numbers(2, 4, dtype=dtype)
    near(torch.ormqr(h, tau, mat), full @ mat.numpy(), 256)
    near(torch.ormqr(h, tau, mat, True, True), full.T @ mat.numpy(), 256)
    near(torch.ormqr(h, tau, other, False), other.numpy() @ full, 256)
    near(torch.ormqr(h, tau, other, left=False, transpose=True), other.numpy() @ full.T, 256)
    near(h.ormqr(tau, mat, transpose=True), full.T @ mat.numpy(), 256)
    check_out(lambda out: torch.ormqr(h, tau, mat, out=out), torch.ormqr(h, tau, mat).numpy(), dtype)
    for call in (lambda: torch.ormqr(h, tau, other), lambda: torch.ormqr(h, tau, mat, False), lambda: torch.ormqr(h, torch.ones(5, dtype=dtype), mat)):
        with pytest.raises(RuntimeError):
            call()


@pytest.mark.filterwarnings("ignore:torch.qr is deprecated")
@floats
def test_qr(dtype):  # mission: Q-26
    for m, n in ((4, 3), (3, 3), (3, 5)):
        a = numbers(m, n, dtype=dtype)
        k = min(m, n)
        for q, r in (torch.qr(a), a.qr(), torch.qr(input=a), torch.qr(a.t().contiguous().t())):
            assert q.shape == (m, k) and r.shape == (k, n)
            near(q @ r, a.numpy(), 256)
            near(q.t() @ q, np.eye(k), 256)
            assert torch.equal(r, r.triu())
        named = torch.qr(a, some=False)
        assert named.Q.shape == (m, m) and named.R.shape == (m, n)
        near(named.Q @ named.R, a.numpy(), 256)
        near(named.Q.t() @ named.Q, np.eye(m), 256)
        check_outs(lambda out, a=a: torch.qr(a, out=out), q.numpy(), r.numpy(), dtypes=(dtype, dtype))
    for bad in (torch.ones(3, dtype=dtype), torch.ones(3, 3).long()):
        with pytest.raises(RuntimeError):
            torch.qr(bad)
    assert torch.autograd.gradcheck(torch.qr, (numbers(4, 3).requires_grad_(),))


@floats
def test_gels(dtype):  # mission: Q-13
    for m, n in ((5, 3), (3, 3)):
        a, b = numbers(m, n, dtype=dtype), numbers(m, 2, dtype=dtype, seed=1)
        solution, residuals = np.linalg.lstsq(a.numpy().astype(np.float64), b.numpy().astype(np.float64), rcond=None)[:2]
        for x, qr in (torch.gels(b, a), b.gels(a), torch.gels(B=b, A=a), torch.gels(b.t().contiguous().t(), a.t().contiguous().t())):
            assert x.shape == (m, 2) and qr.shape == (m, n)
            near(x[:n], solution, 1024)
            near(qr, torch.geqrf(a)[0].numpy(), 256)
        if m > n:
            near((x[n:] ** 2).sum(0), residuals, 1024)
        check_outs(lambda out, a=a, b=b: torch.gels(b, a, out=out), x.numpy(), qr.numpy(), dtypes=(dtype, dtype))
    for bad in (torch.ones(4, 3, dtype=dtype), torch.diag(tensor([1, 1, 0], dtype)), torch.ones(3, dtype=dtype), torch.eye(3).long()):
        with pytest.raises(RuntimeError):
            torch.gels(b, bad)          # sizes that do not fit, no full rank, no matrix, integers
    assert torch.autograd.gradcheck(lambda b, a: torch.gels(b, a)[0][:3], (numbers(5, 2).requires_grad_(), numbers(5, 3, seed=1).requires_grad_()))


@floats
def test_gels_wide(dtype):  # mission: Q-14
    a, b = numbers(3, 5, dtype=dtype), numbers(3, 2, dtype=dtype, seed=1)
    for x, _ in (torch.gels(b, a), b.gels(a)):
        assert x.shape == (5, 2)
        near(x, np.linalg.pinv(a.numpy().astype(np.float64)) @ b.numpy(), 1024)         # the least norm
        near(a @ x, b.numpy(), 256)
    assert torch.autograd.gradcheck(lambda b, a: torch.gels(b, a)[0], (numbers(3, 2).requires_grad_(), numbers(3, 5, seed=1).requires_grad_()))


# --- eigenvalues, singular values -------------------------------------------------------------------------------------
@floats
def test_eig(dtype):  # mission: Q-11
    rotation = tensor([[0, -2, 0], [2, 0, 0], [0, 0, 3]], dtype)
    for e, v in (torch.eig(rotation), rotation.eig(), torch.eig(a=rotation), torch.eig(rotation, False), torch.eig(rotation.t())):
        assert e.shape == (3, 2) and e.dtype is dtype and v.numel() == 0
        near(e, [[0, 2], [0, -2], [3, 0]])
    a = numbers(6, 6, dtype=dtype)
    e = torch.eig(a)[0]
    expected = np.linalg.eigvals(a.numpy())
    near(e, np.stack([expected.real, expected.imag], 1), 1024)
    first = [k for k in range(6) if e[k, 1] > 0]
    assert first and all(e[k + 1].tolist() == [e[k, 0].item(), -e[k, 1].item()] for k in first)
    check_outs(lambda out: torch.eig(rotation, out=out), [[0, 2], [0, -2], [3, 0]], None, dtypes=(dtype, dtype))
    for bad in (torch.ones(2, 3, dtype=dtype), torch.ones(3, dtype=dtype), torch.eye(2).long(), torch.full((2, 2), NAN, dtype=dtype), torch.ones(2, 2, dtype=torch.complex64)):
        with pytest.raises(RuntimeError):
            torch.eig(bad)
    assert torch.autograd.gradcheck(lambda a: torch.eig(a)[0], (tensor([[1, 2], [0.5, 3]], requires_grad=True),))


@floats
def test_eigenvectors(dtype):  # mission: Q-12
    a = numbers(6, 6, dtype=dtype)
    for e, v in (torch.eig(a, True), a.eig(eigenvectors=True), torch.eig(a=a, eigenvectors=True)):
        assert e.shape == (6, 2) and v.shape == (6, 6) and v.dtype is dtype
        k = 0
        while k < 6:
            value = complex(*e[k].tolist())
            vector = v[:, k].numpy() + (1j * v[:, k + 1].numpy() if value.imag else 0)
            np.testing.assert_allclose(a.numpy() @ vector, value * vector, atol=1e-5 if dtype is torch.float32 else 1e-13)
            np.testing.assert_allclose(np.linalg.norm(vector), 1, rtol=1e-5)
            k += 2 if value.imag else 1
        assert (e[:, 1] != 0).any() and (e[:, 1] == 0).any()        # pairs and single ones
    assert torch.autograd.gradcheck(lambda a: torch.eig(a, True)[1].abs(), (tensor([[1, 2], [-0.5, 1]], requires_grad=True),))


@floats
def test_symeig(dtype):  # mission: Q-28
    a = numbers(4, 4, dtype=dtype)
    s = a + a.t()
    expected = np.linalg.eigvalsh(s.numpy().astype(np.float64))
    for e, v in (torch.symeig(s), s.symeig(), torch.symeig(input=s), torch.symeig(s, False), torch.symeig(s, False, False)):
        near(e, expected, 256)
        assert v.numel() == 0 and e.dtype is dtype
    for e, v in (torch.symeig(s, True), s.symeig(eigenvectors=True), torch.symeig(s, True, False)):
        near(e, expected, 256)
        near(v @ torch.diag(e) @ v.t(), s.numpy(), 256)
        near(v.t() @ v, np.eye(4), 256)
    check_outs(lambda out: torch.symeig(s, True, out=out), e.numpy(), None, dtypes=(dtype, dtype))
    for bad in (torch.ones(2, 3, dtype=dtype), torch.ones(3, dtype=dtype), torch.eye(2).long()):
        with pytest.raises(RuntimeError):
            torch.symeig(bad)
    x = numbers(3, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: torch.symeig(x + x.t(), True)[0], (x,))


@floats
def test_symeig_triangle(dtype):  # mission: Q-29
    a = numbers(4, 4, dtype=dtype)
    upper, lower = a.triu() + a.triu(1).t(), a.tril() + a.tril(-1).t()
    for r, s in ((torch.symeig(a, True), upper), (torch.symeig(a, True, upper=True), upper), (torch.symeig(a, True, upper=False), lower), (a.symeig(True, False), lower)):
        near(r[0], np.linalg.eigvalsh(s.numpy()), 256)
        near(r[1] @ torch.diag(r[0]) @ r[1].t(), s.numpy(), 256)
    spoilt = torch.where(torch.ones(4, 4).tril(-1) > 0, torch.full_like(a, NAN), a)
    near(torch.symeig(spoilt)[0], np.linalg.eigvalsh(upper.numpy()), 256)           # the rest is not read


@floats
def test_svd(dtype):  # mission: Q-27
    for m, n in ((4, 3), (3, 3), (3, 5)):
        a = numbers(m, n, dtype=dtype)
        k = min(m, n)
        for u, s, v in (torch.svd(a), a.svd(), torch.svd(input=a, some=True), torch.svd(a.t().contiguous().t())):
            assert u.shape == (m, k) and s.shape == (k,) and v.shape == (n, k)
            near(s, np.linalg.svd(a.numpy().astype(np.float64))[1], 256)
            near(u @ torch.diag(s) @ v.t(), a.numpy(), 256)
        r = torch.svd(a, some=False)
        assert r.U.shape == (m, m) and r.S.shape == (k,) and r.V.shape == (n, n)
        near(r.U[:, :k] @ torch.diag(r.S) @ r.V[:, :k].t(), a.numpy(), 256)
        near(r.U.t() @ r.U, np.eye(m), 256)
        near(r.V.t() @ r.V, np.eye(n), 256)
        check_outs(lambda out, a=a: torch.svd(a, out=out), None, s.numpy(), None, dtypes=(dtype,) * 3)
    for bad in (torch.ones(3, dtype=dtype), torch.ones(3, 3).long()):
        with pytest.raises(RuntimeError):
            torch.svd(bad)
    assert torch.autograd.gradcheck(lambda a: torch.svd(a)[1], (numbers(4, 3).requires_grad_(),))


# --- Cholesky, triangles ----------------------------------------------------------------------------------------------
@floats
def test_potrf(dtype):  # mission: Q-22
    a = positive(dtype=dtype)
    expected = np.linalg.cholesky(a.numpy().astype(np.float64))
    for u in (torch.potrf(a), a.potrf(), torch.potrf(a=a), torch.potrf(a, True), torch.potrf(a.t())):
        near(u, expected.T, 256)
        near(u.t() @ u, a.numpy(), 256)
    for low in (torch.potrf(a, False), a.potrf(upper=False)):
        near(low, expected, 256)
    check_out(lambda out: torch.potrf(a, out=out), torch.potrf(a).numpy(), dtype)
    for bad in (-a, tensor([[1, 2], [2, 1]], dtype), torch.ones(2, 3, dtype=dtype), torch.eye(2).long()):
        with pytest.raises(RuntimeError):
            torch.potrf(bad)
    x = positive().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: torch.potrf(x + x.t()), (x,))


@floats
def test_potri_potrs(dtype):  # mission
    a, b = positive(dtype=dtype), numbers(4, 2, dtype=dtype)
    u, low = torch.potrf(a), torch.potrf(a, False)
    inverse = np.linalg.inv(a.numpy().astype(np.float64))
    for r in (torch.potri(u), u.potri(), torch.potri(u=u), torch.potri(u, True), torch.potri(low, False), low.potri(upper=False)):
        near(r, inverse, 1024)
    for r in (torch.potrs(b, u), b.potrs(u), torch.potrs(b=b, u=u), torch.potrs(b, low, False), b.potrs(low, upper=False)):
        near(r, inverse @ b.numpy(), 1024)
    check_out(lambda out: torch.potri(u, out=out), torch.potri(u).numpy(), dtype)
    check_out(lambda out: torch.potrs(b, u, out=out), torch.potrs(b, u).numpy(), dtype)
    for call in (lambda: torch.potri(b), lambda: torch.potrs(b[:3], u), lambda: torch.potri(u.long())):
        with pytest.raises(RuntimeError):
            call()
    x, y = positive().requires_grad_(), numbers(4, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, y: torch.potrs(y, torch.potrf(x + x.t())), (x, y))
    assert torch.autograd.gradcheck(lambda x: torch.potri(torch.potrf(x + x.t())), (x,))


@floats
def test_pstrf(dtype):  # mission: Q-25
    a = positive(5, dtype)
    for u, piv in (torch.pstrf(a), a.pstrf(), torch.pstrf(a=a), torch.pstrf(a, True)):
        assert piv.dtype is torch.int32 and sorted(piv.tolist()) == [0, 1, 2, 3, 4] and torch.equal(u, u.triu())
        p = piv.long()
        near(u.t() @ u, a[p][:, p].numpy(), 256)
    low, piv = torch.pstrf(a, upper=False)
    p = piv.long()
    assert torch.equal(low, low.tril())
    near(low @ low.t(), a[p][:, p].numpy(), 256)
    assert p[0] == torch.diag(a).argmax()       # the largest first
    half = numbers(5, 2, dtype=dtype)
    for upper in (True, False):                 # semidefinite: as many rows as the rank
        u, piv = torch.pstrf(half @ half.t(), upper)
        p = piv.long()
        near(u.t() @ u if upper else u @ u.t(), (half @ half.t())[p][:, p].numpy(), 1024)
        assert not (u[2:] if upper else u[:, 2:]).any()
    check_outs(lambda out: torch.pstrf(a, out=out), torch.pstrf(a)[0].numpy(), torch.pstrf(a)[1].numpy(), dtypes=(dtype, torch.int32))
    for bad in (-a, tensor([[1, 2], [2, 1]], dtype), torch.ones(2, 3, dtype=dtype), torch.eye(2).long()):
        with pytest.raises(RuntimeError):
            torch.pstrf(bad)
    x = positive().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: torch.pstrf(x + x.t())[0], (x,))


@floats
def test_trtrs(dtype):  # mission: Q-30
    a, b = numbers(4, 4, dtype=dtype), numbers(4, 2, dtype=dtype, seed=1)
    a += torch.diag(torch.sign(torch.diag(a)) * 3)
    for upper in (True, False):
        for transpose in (False, True):
            for unit in (False, True):
                expected = scipy.linalg.solve_triangular(a.numpy().astype(np.float64), b.numpy().astype(np.float64), lower=not upper, trans=int(transpose), unit_diagonal=unit)
                for x, copy in (torch.trtrs(b, a, upper, transpose, unit), b.trtrs(a, upper, transpose, unit),
                                torch.trtrs(b=b, A=a, upper=upper, transpose=transpose, unitriangular=unit)):
                    near(x, expected, 1024)
                    assert torch.equal(copy, a) and copy.data_ptr() != a.data_ptr()
    x = torch.trtrs(b, a)[0]
    near(a.triu() @ x, b.numpy(), 256)
    check_outs(lambda out: torch.trtrs(b, a, out=out), x.numpy(), a.numpy(), dtypes=(dtype, dtype))
    for call in (lambda: torch.trtrs(b[:3], a), lambda: torch.trtrs(b, a[:, :3]), lambda: torch.trtrs(b, a.long())):
        with pytest.raises(RuntimeError):
            call()
    assert torch.autograd.gradcheck(lambda b, a: torch.trtrs(b, a.triu() + 3 * torch.eye(3))[0], (numbers(3, 2).requires_grad_(), numbers(3, 3).requires_grad_()))


def test_old_names_on_meta():  # mission
    def meta(*shape):
        return torch.empty(shape, device="meta")

    a, b, batch = meta(3, 3), meta(3, 2), meta(4, 3, 3)
    lu, pivots = torch.btrifact(batch)
    for result, shapes in (((lu, pivots), [(4, 3, 3), (4, 3)]), ((torch.btrisolve(meta(4, 3), lu, pivots),), [(4, 3)]), (torch.gesv(b, a), [(3, 2), (3, 3)]),
                           (torch.eig(a), [(3, 2), (0,)]), (torch.eig(a, True), [(3, 2), (3, 3)]), (torch.gels(meta(5, 2), meta(5, 3)), [(5, 2), (5, 3)]),
                           (torch.gels(b, meta(3, 5)), [(5, 2), (3, 5)]), ((torch.potrf(a), torch.potri(a), torch.potrs(b, a)), [(3, 3), (3, 3), (3, 2)]),
                           (torch.pstrf(a), [(3, 3), (3,)]), (torch.symeig(a), [(3,), (0,)]), (torch.trtrs(b, a), [(3, 2), (3, 3)])):
        assert [tuple(t.shape) for t in result] == shapes and all(t.is_meta for t in result)


@pytest.mark.filterwarnings("ignore:this overload", "ignore:This overload")
def test_factors_without_dimensions():  # mission: Q-02
    m, two = numbers(2, 2), tensor(2)
    near(torch.addmm(two, m, tensor(3), m, m), 2 * m.numpy() + 3 * m.numpy() @ m.numpy())
    near(m.addmm(two, m, m), 2 * m.numpy() + m.numpy() @ m.numpy())


def test_products_of_bools():  # mission
    m = torch.ones(2, 2, dtype=torch.bool)
    for call in (lambda: torch.mm(m, m), lambda: torch.bmm(m[None], m[None]), lambda: torch.mv(m, m[0]), lambda: torch.dot(m[0], m[0]), lambda: m @ m):
        with pytest.raises(RuntimeError, match="Bool"):
            call()


def test_nan_in_factorizations():  # mission
    a, b = tensor([[NAN, 1], [1, 1]]), torch.ones(2, 1, dtype=torch.float64)
    near(torch.inverse(a), np.full((2, 2), NAN))             # nan, not singular
    near(torch.linalg.solve(a, b), np.full((2, 1), NAN))
    near(torch.linalg.inv(torch.stack([a, torch.eye(2, dtype=torch.float64)]))[1], np.eye(2))
    assert torch.linalg.lu_factor(a)[1].tolist()[1] == 2
    for bad in (a, tensor([[1, NAN], [NAN, 1]])):
        with pytest.raises(RuntimeError, match="positive-definite"):
            torch.linalg.cholesky(bad)


@pytest.mark.filterwarnings("ignore:this overload")
def test_old_names_compiled():  # mission, N-17, O-10
    m, a, b = positive(3), numbers(3, 3), numbers(3, 3, seed=1)
    for f in (lambda: torch.addmm(2, m, 3, a, b), lambda: m.addmm(2, 3, a, b), lambda: m.clone().addmm_(2, a, b), lambda: torch.addmm(beta=2, mat=m, mat1=a, mat2=b),
              lambda: torch.addr(2, m, 3, a[0], b[0]), lambda: torch.gesv(b, m)[0], lambda: torch.potrf(m), lambda: torch.trtrs(b, m)[0], lambda: torch.std(a, 1),
              lambda: torch.sort(a, None)[0], lambda: torch.add(a, value=2, other=b)):
        expected, compiled = f(), torch.compile(f)
        for _ in range(4):
            near(compiled(), expected.numpy())


def test_old_orders_warn_once():  # mission: Q-02, M-27
    m = numbers(2, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.addmm(2, m, 3, m, m)
        torch.add(m, 2, m)
    with pytest.raises(RuntimeError, match="bool"):
        torch.set_warn_always(1)
    try:
        for always, expected in ((True, 2), (False, 0)):
            torch.set_warn_always(always)
            assert torch.is_warn_always_enabled() is always
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                torch.addmm(2, m, 3, m, m)
                torch.add(m, 2, m)
            assert len(seen) == expected and all(w.category is UserWarning and w.filename == __file__ for w in seen)
    finally:
        torch.set_warn_always(False)
