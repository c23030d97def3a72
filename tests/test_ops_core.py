"""The core operators where the generated tests do not reach: errors, `out=`, assignment, views in place, short ways.

Expected values are mathematics, or NumPy's and SciPy's.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

import rushlight as torch

RNG = np.random.default_rng(0)


def ramp(*shape: int, dtype: str = "float32"):
    return torch.from_numpy(np.arange(int(np.prod(shape)), dtype=dtype).reshape(shape).copy())


# --- which arguments are taken ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["eq", "lt", "rsub", "atan2", "maximum"])
def test_a_number_is_no_first_operand(name):
    with pytest.raises(TypeError):
        getattr(torch, name)(1, ramp(3))


@pytest.mark.parametrize("name", ["pow", "remainder", "bitwise_and"])
def test_one_operand_must_be_a_tensor(name):
    with pytest.raises(TypeError, match="Tensor"):
        getattr(torch, name)(2, 3)
    assert getattr(torch, name)(2, torch.tensor([3, 1])).shape == (2,)


def test_reflected_operators():
    x = torch.tensor([1.0, 2.0])
    assert (3 - x).tolist() == [2.0, 1.0]
    assert (6 / x).tolist() == [6.0, 3.0]
    assert (2**x).tolist() == [2.0, 4.0]
    assert (7 % torch.tensor([4, 5])).tolist() == [3, 2]
    assert (3 > x).tolist() == [True, True]
    with pytest.raises(TypeError):
        torch.Tensor.__radd__(1, x)


def test_sizes_and_steps_are_ints():
    with pytest.raises(TypeError, match="steps"):
        torch.linspace(0, 1, 5.0)
    with pytest.raises(TypeError):
        torch.zeros(2.0)
    with pytest.raises(RuntimeError, match="negative"):
        torch.zeros(2, -1)


# --- out= ------------------------------------------------------------------------------------------------------------
def test_out_of_moved_elements_has_their_dtype():
    x, i = ramp(2, 2), torch.tensor([[0, 1], [1, 0]])
    with pytest.raises(RuntimeError, match="Expected out tensor to have dtype float, but got double instead"):
        torch.gather(x, 1, i, out=torch.empty(2, 2, dtype=torch.float64))
    out = torch.empty(2, 2, dtype=torch.float64)
    assert torch.add(x, 1, out=out) is out and out.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.add(x, 1, out=torch.empty(2, 2, dtype=torch.int64))


def test_out_must_not_overlap():
    x = ramp(6)
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.masked_select(x, x > 2, out=x)
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.add(x[:3], 1, out=x[1:4])
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.add(x, 1, out=torch.empty(1).expand(6))
    assert torch.add(x, 1, out=x) is x and x.tolist() == [1, 2, 3, 4, 5, 6]


def _divide_by_the_last(x):
    x /= x[:, -1:]


def _move_left(x):
    x[:, :-1] = x[:, 1:]


def _move_right(x):
    x[:, 1:] = x[:, :-1]


@pytest.mark.parametrize("shape", [(3, 4), (300, 400)])
@pytest.mark.parametrize("how", [torch.compile, lambda f: f], ids=["compiled", "eager"])
@pytest.mark.parametrize("write, want", [
    (_divide_by_the_last, lambda a: a / a[:, -1:]),
    (_move_left, lambda a: np.concatenate([a[:, 1:], a[:, -1:]], 1)),
    (_move_right, lambda a: np.concatenate([a[:, :1], a[:, :-1]], 1)),
    (lambda x: x.addcmul_(x[:, :1], x[:, -1:]), lambda a: a + a[:, :1] * a[:, -1:]),
    (lambda x: torch.sub(x, x[:, :1], out=x), lambda a: a - a[:, :1]),
    (lambda x: x.scatter_(1, torch.zeros(x.shape[0], 1, dtype=torch.int64), x[:, 2:]), lambda a: np.concatenate([a[:, 2:3], a[:, 1:]], 1)),
    (lambda x: x[:, ::2].mul_(x[0, 1]), lambda a: np.where(np.arange(a.shape[1]) % 2, a, a * a[0, 1])),
])
def test_an_operand_with_gaps_may_lie_in_what_is_written(shape, how, write, want):
    # PyTorch refuses where both fill their memory; where one has gaps it goes on. The operand is read before the first write here
    f = how(write)
    for k in range(4):
        a = np.random.default_rng(k).integers(1, 9, shape).astype(np.float32)
        x = torch.tensor(a)
        f(x)
        np.testing.assert_array_equal(x.numpy(), want(a))


def test_gradient_of_a_division_by_a_part_of_itself():
    x = torch.arange(1.0, 7).reshape(2, 3).requires_grad_()
    y = x * 1
    y /= y[:, -1:]
    y.sum().backward()
    # d/dx_j sum_i x_i / x_2 = 1 / x_2, and 1 / x_2 - sum_i x_i / x_2^2 for the last
    np.testing.assert_allclose(x.grad.numpy(), [[1 / 3, 1 / 3, 1 / 3 - 6 / 9], [1 / 6, 1 / 6, 1 / 6 - 15 / 36]], rtol=1e-6)


# --- assignment ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("index", [0, -1, slice(1, 3), (slice(None), 1), (1, 2), (Ellipsis, 0), (None, 2)])
@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8", "float64"])
def test_assignment_of_numbers(index, dtype):
    x, a = ramp(4, 3, dtype=dtype), np.arange(12, dtype=dtype).reshape(4, 3)
    before = x._version
    x[index] = 7
    a[index] = 7
    assert x.numpy().tobytes() == a.tobytes() and x._version == before + 1


def test_assignment_by_tensors():
    x, a = ramp(4, 3), np.arange(12, dtype="f").reshape(4, 3)
    i = torch.tensor([2, 0, -1])
    x[i] = torch.tensor([[1.0, 2.0, 3.0]] * 3)
    a[[2, 0, -1]] = [1, 2, 3]
    np.testing.assert_array_equal(x.numpy(), a)
    x[x > 2] = -1.0
    a[a > 2] = -1
    np.testing.assert_array_equal(x.numpy(), a)
    with pytest.raises(IndexError):
        x[torch.tensor([4])] = 0.0
    np.testing.assert_array_equal(x.numpy(), a)


def test_assignment_is_differentiated():
    x = ramp(4, dtype="float64").requires_grad_()
    y = x * 2
    y[1] = 5.0
    y[torch.tensor([3])] = 1.0
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 0.0, 2.0, 0.0]
    with pytest.raises(RuntimeError, match="leaf"):
        x[0] = 1.0


def test_an_expanded_tensor_is_not_written_to():
    x = torch.zeros(1).expand(3)
    with pytest.raises(RuntimeError, match="single memory location"):
        x.add_(1)


def test_indexing_by_tensor_copies_and_has_a_gradient():
    x = ramp(3, 2, dtype="float64").requires_grad_()
    y = x[torch.tensor([0, 0, -1])]
    y.sum().backward()
    assert x.grad.tolist() == [[2.0, 2.0], [0.0, 0.0], [1.0, 1.0]]
    for bad in (torch.tensor([3]), torch.tensor([-4]), torch.tensor([1.0])):
        with pytest.raises(IndexError):
            x[bad]
    assert x[x > 2].tolist() == [3.0, 4.0, 5.0]


# --- views in place --------------------------------------------------------------------------------------------------
def test_views_in_place():
    x = ramp(2, 1, 3)
    assert x.squeeze_(1) is x and x.shape == (2, 3)
    assert x.t_().shape == (3, 2) and x.unsqueeze_(0).shape == (1, 3, 2)
    assert x.as_strided_((2,), (3,)).tolist() == [0.0, 3.0]


# --- short ways give what the long ones give -------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["sum", "mean", "amax", "amin", "nansum"])
@pytest.mark.parametrize("dim", [None, 0, -1, (0, 1)])
@pytest.mark.parametrize("keepdim", [False, True])
def test_reductions_agree_with_numpy(name, dim, keepdim):
    a = RNG.standard_normal((5, 7)).astype("f")
    want = getattr(np, name)(a, axis=dim, keepdims=keepdim)
    x = torch.from_numpy(a)
    got = getattr(torch, name)(x, dim, keepdim) if dim is not None else getattr(torch, name)(x, (0, 1), keepdim)
    assert got.dtype is torch.float32 and got.shape == np.shape(want)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)
    np.testing.assert_allclose(
        getattr(torch, name)(x.t(), dim, keepdim).numpy(), getattr(np, name)(a.T, axis=dim, keepdims=keepdim), rtol=1e-6
    )


def test_reduction_dtypes():
    assert (
        torch.ones(3, dtype=torch.bool).sum().item() == 3 and torch.ones(3, dtype=torch.bool).sum().dtype is torch.int64
    )
    assert ramp(3, dtype="int64").sum().dtype is torch.int64
    assert ramp(3, dtype="int64").amax().item() == 2
    with pytest.raises(RuntimeError, match="mean"):
        ramp(3, dtype="int64").mean()
    with pytest.raises(IndexError, match="Dimension out of range"):
        ramp(3).sum(1)
    assert torch.zeros(0).sum().item() == 0 and np.isnan(torch.zeros(0).mean().item())
    with pytest.raises((IndexError, RuntimeError)):
        torch.zeros(0).amax()


@pytest.mark.parametrize("low,high", [(None, 0.5), (-0.5, None), (-0.5, 0.5), (0.5, -0.5)])
def test_clamp_by_numbers_and_tensors(low, high):
    x = torch.linspace(-1, 1, 9)
    bounds = [None if b is None else torch.tensor(b) for b in (low, high)]
    want = np.minimum(np.maximum(x.numpy(), -9 if low is None else low), 9 if high is None else high)
    np.testing.assert_array_equal(x.clamp(low, high).numpy(), want.astype("f"))
    np.testing.assert_array_equal(x.clamp(*bounds).numpy(), want.astype("f"))
    np.testing.assert_array_equal(x.clone().clamp_(low, high).numpy(), want.astype("f"))


def test_integers_keep_their_dtype():
    x = ramp(4, dtype="int64")
    assert (x + 1).dtype is torch.int64 and (x * 2).tolist() == [0, 2, 4, 6]
    assert (x + 1.5).dtype is torch.float32 and (x == 2).dtype is torch.bool
    assert torch.add(x, x, alpha=3).tolist() == [0, 4, 8, 12]
    assert torch.where(x < 2, x + 5, x).tolist() == [5, 6, 2, 3]
    with pytest.raises(RuntimeError, match="alpha"):
        torch.add(x, x, alpha=1.5)


def test_constructors_know_the_default_device_and_dtype():
    with torch.device("meta"):
        assert torch.zeros(2).is_meta and torch.arange(3).is_meta
    assert not torch.zeros(2).is_meta
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.ones(1).dtype is torch.float64 and torch.full((1,), 2.0).dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.arange(3).dtype is torch.int64 and torch.arange(3.0).dtype is torch.float32
    assert torch.zeros_like(torch.empty(2, dtype=torch.float64, device="meta"), device="cpu").tolist() == [0.0, 0.0]


def test_joins_of_several_dtypes():
    a, b = ramp(2, 2), ramp(2, 2, dtype="int64")
    assert torch.cat([a, b]).dtype is torch.float32 and torch.stack([b, b], -1).shape == (2, 2, 2)
    assert torch.cat([torch.zeros(0), a]).shape == (2, 2)
    with pytest.raises(RuntimeError, match="Sizes of tensors must match except in dimension 0"):
        torch.cat([a, ramp(2, 3)])
    with pytest.raises(IndexError):
        torch.stack([a, a], 4)


# --- order -----------------------------------------------------------------------------------------------------------
def test_sorting_is_stable_and_nan_is_last():
    x = torch.tensor([1.0, float("nan"), 0.0, 1.0, -2.0])
    v, i = x.sort()
    assert i.tolist() == [4, 2, 0, 3, 1] and np.isnan(v[-1].item())
    assert x.sort(descending=True).indices.tolist() == [1, 0, 3, 2, 4]
    assert x.topk(2).indices.tolist() == [1, 0] and x.median().isnan() and x.nanmedian().item() == 0.0


@pytest.mark.parametrize("n,k", [(300, 5), (1000, 100), (20, 20), (5, 0)])
@pytest.mark.parametrize("largest", [True, False])
def test_topk_of_short_and_long_rows(n, k, largest):
    a = RNG.standard_normal((3, n))
    v, i = torch.from_numpy(a).topk(k, largest=largest)
    want = np.sort(a, 1)[:, ::-1][:, :k] if largest else np.sort(a, 1)[:, :k]
    np.testing.assert_array_equal(v.numpy(), want)
    np.testing.assert_array_equal(np.take_along_axis(a, i.numpy(), 1), want)


# --- linear algebra --------------------------------------------------------------------------------------------------
def test_singular_matrices_say_so():
    singular = torch.tensor([[1.0, 2.0], [2.0, 4.0]])
    for call in (
        torch.linalg.inv,
        torch.inverse,
        lambda a: torch.linalg.solve(a, torch.ones(2)),
        torch.linalg.cholesky,
    ):
        with pytest.raises(torch.linalg.LinAlgError):
            call(singular)
    assert issubclass(torch.linalg.LinAlgError, RuntimeError)
    assert torch.linalg.inv_ex(singular).info.item() == 2 and torch.linalg.det(singular).item() == 0
    with pytest.raises(RuntimeError, match="square"):
        torch.linalg.inv(torch.ones(2, 3))
    with pytest.raises(RuntimeError, match="floating point"):
        torch.linalg.inv(torch.ones(2, 2, dtype=torch.int64))


def test_factorizations_multiply_back():
    a = RNG.standard_normal((2, 5, 3))
    x = torch.from_numpy(a)
    u, s, vh = torch.linalg.svd(x, full_matrices=False)
    q, r = torch.linalg.qr(x)
    p, low, up = torch.linalg.lu(x)
    for product in ((u * s.unsqueeze(-2)) @ vh, q @ r, p @ low @ up):
        np.testing.assert_allclose(product.numpy(), a, atol=1e-12)
    m = a[0].T @ a[0] + np.eye(3)
    np.testing.assert_allclose(torch.linalg.cholesky(torch.from_numpy(m)).numpy(), np.linalg.cholesky(m), atol=1e-12)
    np.testing.assert_allclose(torch.linalg.matrix_exp(torch.from_numpy(m)).numpy(), scipy.linalg.expm(m), rtol=1e-12)
    np.testing.assert_allclose(torch.linalg.pinv(x).numpy(), np.linalg.pinv(a), atol=1e-12)
    np.testing.assert_allclose(
        torch.linalg.lstsq(x[0], x[1]).solution.numpy(), np.linalg.lstsq(a[0], a[1], None)[0], atol=1e-12
    )


@pytest.mark.parametrize(
    "function",
    [
        torch.linalg.inv,
        torch.linalg.det,
        lambda a: torch.linalg.slogdet(a)[1],
        torch.linalg.matrix_exp,
        torch.linalg.pinv,
        torch.linalg.svdvals,
        lambda a: torch.linalg.eigh(a + a.mT)[0],
        lambda a: torch.linalg.cholesky(a @ a.mT + 3 * torch.eye(3, dtype=a.dtype)),
        lambda a: torch.linalg.qr(a)[1],
        lambda a: torch.linalg.lu_factor(a)[0],
        lambda a: torch.linalg.solve(a, a + 1),
        lambda a: torch.linalg.solve_triangular(a, a + 1, upper=True),
        lambda a: torch.linalg.matrix_norm(a, "nuc"),
        lambda a: torch.fft.rfft(a).abs(),
        lambda a: torch.fft.irfft(a * (1 + 2j), 5),
    ],
)
def test_gradients_of_linear_algebra(function):
    a = torch.from_numpy(RNG.standard_normal((3, 3)) + 2 * np.eye(3)).requires_grad_()
    assert torch.autograd.gradcheck(function, (a,))
    assert torch.autograd.gradgradcheck(function, (a,))


def test_the_gradient_of_a_singular_determinant_is_the_adjugate():
    a = torch.tensor([[1.0, 2.0], [2.0, 4.0]], dtype=torch.float64, requires_grad=True)
    torch.linalg.det(a).backward()
    np.testing.assert_allclose(a.grad.numpy(), [[4, -2], [-2, 1]], atol=1e-12)


# --- transforms and the rest -----------------------------------------------------------------------------------------
def test_short_time_transforms_come_back():
    x = torch.from_numpy(RNG.standard_normal(400))
    w = torch.hann_window(64, dtype=torch.float64)
    s = torch.stft(x, 64, 16, window=w, return_complex=True)
    assert s.shape == (33, 26)
    np.testing.assert_allclose(torch.istft(s, 64, 16, window=w, length=400).numpy(), x.numpy(), atol=1e-12)


def test_quantiles_agree_with_numpy():
    a = RNG.standard_normal((4, 9))
    q = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    np.testing.assert_allclose(
        torch.quantile(torch.from_numpy(a), q, 1).numpy(), np.quantile(a, q.numpy(), axis=1), rtol=1e-12
    )
    a[0, 3] = np.nan
    np.testing.assert_allclose(
        torch.nanquantile(torch.from_numpy(a), q, 1).numpy(), np.nanquantile(a, q.numpy(), axis=1), rtol=1e-12
    )
    assert torch.quantile(torch.from_numpy(a), 0.5, 1)[0].isnan()


def test_half_precision_sorts_and_finds():
    x = torch.tensor([3.0, 1.0, 2.0], dtype=torch.bfloat16)
    assert x.sort().values.tolist() == [1.0, 2.0, 3.0] and x.topk(1).values.dtype is torch.bfloat16
    assert torch.unique(torch.cat([x, x])).tolist() == [1.0, 2.0, 3.0]
    assert torch.searchsorted(torch.tensor([1.0, 2.0], dtype=torch.bfloat16), x).tolist() == [2, 0, 1]


def test_samplers_have_zero_gradients():
    p = torch.full((3,), 0.5, requires_grad=True)
    torch.bernoulli(p).sum().backward()
    assert p.grad.tolist() == [0.0, 0.0, 0.0]
    mean, std = torch.zeros(3, requires_grad=True), torch.ones(3, requires_grad=True)
    torch.normal(mean, std).sum().backward()
    assert mean.grad.tolist() == [0.0] * 3 and std.grad.tolist() == [0.0] * 3


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_nan_is_the_greatest_in_every_float(dtype):
    """ml_dtypes' own comparison leaves nan where it is."""
    x = torch.tensor([1.0, float("nan"), 3.0, 2.0]).to(getattr(torch, dtype))
    assert torch.sort(x).indices.tolist() == [0, 3, 2, 1] and torch.sort(x, descending=True).indices.tolist() == [1, 2, 3, 0]
    assert torch.topk(x, 2).indices.tolist() == [1, 2] and torch.topk(x, 2, largest=False).indices.tolist() == [0, 3]
    assert torch.kthvalue(x, 3).indices.item() == 2 and torch.nanmedian(x, 0).indices.item() == 3
    assert torch.median(x, 0).indices.item() == 1 and torch.nanmedian(x).item() == 2.0


def test_nextafter_has_the_gradient_of_its_first_operand():
    a, b = torch.tensor([1.0, 2.0, 2.0], requires_grad=True), torch.tensor([2.0, 2.0, 1.0])
    torch.nextafter(a, b).backward(torch.tensor([3.0, 4.0, 5.0]))
    assert a.grad.tolist() == [3.0, 0.0, 5.0]      # PyTorch 2.13's


def test_histograms_bisect_edges_in_any_order():
    x = torch.tensor([0.5, 1.5, 2.5, 0.1, 3.0])
    # recorded from PyTorch 2.13
    for edges, want in (([0.0, 2.0, 1.0, 3.0], [2, 0, 3]), ([3.0, 2.0, 1.0], [0, 0]), ([0.0, 1.0, 1.0, 3.0], [2, 0, 3]), ([0.0, float("nan"), 3.0], [0, 5])):
        edges = torch.tensor(edges)
        assert torch.histogram(x, edges).hist.tolist() == want
        assert torch.histogramdd(x[:, None], (edges,)).hist.tolist() == want


def test_histogramdd_against_numpy():
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(50, 2)), rng.random(50)
    edges = [np.array([-1.0, 0.0, 0.5, 2.0]), np.array([-2.0, 0.0, 3.0])]
    for kw in ({}, {"density": True}, {"weights": w}, {"weights": w, "density": True}):
        want, _ = np.histogramdd(x, edges, **kw)
        if "weights" in kw:
            kw["weight"] = torch.tensor(kw.pop("weights"))
        got = torch.histogramdd(torch.tensor(x), [torch.tensor(e) for e in edges], **kw).hist
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-12)


@pytest.mark.parametrize("n", [None, 0, 1, 3, 6])
def test_vander_is_numpys(n):
    for dtype in (np.int64, np.int8, np.float32):
        x = np.array([1, 2, 3, 5], dtype)
        for increasing in (False, True):
            got = torch.vander(torch.tensor(x), N=n, increasing=increasing).numpy()
            np.testing.assert_array_equal(got, np.vander(x, n, increasing))
    with pytest.raises(RuntimeError, match="one-dimensional"):
        torch.vander(torch.ones(2, 2))


def test_a_mean_of_another_size_needs_no_new_code():
    from rushlight.backends.cpu.evaluate import _compiled
    from rushlight.ops.folds import _made

    def kept():
        return len(_made), _compiled.cache_info().currsize

    x = torch.ones(2, 90, requires_grad=True)
    before = None
    for n in range(1, 90):
        x.grad = None
        x[:, :n].mean(1).sum().backward()
        x[:, :n].half().mean(1)
        np.testing.assert_allclose(x.grad.numpy(), np.pad(np.full((2, n), 1 / n), ((0, 0), (0, 90 - n))), rtol=1e-6)
        before = before or kept()
    assert kept() == before
    assert torch.ones(0, 2).mean(0).isnan().all() and torch.ones(0).mean().isnan()


def test_nothing_to_compare_says_so_as_pytorch_does():
    for name in ("amax", "amin"):
        with pytest.raises(RuntimeError, match="Specify the reduction dim"):
            getattr(torch.ones(0, 2), name)()
        with pytest.raises(IndexError, match="dim 1"):
            getattr(torch.ones(2, 0), name)(1)
    with pytest.raises(RuntimeError, match="no identity"):
        torch.ones(0).aminmax()
    with pytest.raises(TypeError, match="must be int"):
        torch.ones(2, 2).aminmax(dim=(0, 1))
    with pytest.raises(IndexError, match="no dimensions"):
        torch.fft.fft(torch.ones(()))
    with pytest.raises(RuntimeError, match="overflow"):
        torch.arange(0, 2**63 - 1)
    with pytest.raises(RuntimeError):
        torch.complex(torch.ones(2), torch.ones(2), out=torch.ones(2))
    out = torch.empty(0, dtype=torch.complex64)
    assert torch.complex(torch.ones(2), torch.ones(2) * 2, out=out) is out and out.tolist() == [1 + 2j, 1 + 2j]


def test_hypot_is_for_floats():
    i = torch.tensor([3, 2**31 - 1], dtype=torch.int32)
    with pytest.raises(NotImplementedError, match="hypot.*int32"):        # PyTorch's type, too
        torch.hypot(i, i)
    assert torch.hypot(i[:1], torch.tensor([4.0])).tolist() == [5.0] and torch.hypot(torch.tensor([4.0]), i[:1]).item() == 5
