"""`torch.ops.aten`, the operators that have no public name, and segment_reduce: against their definitions in NumPy."""

import math

import numpy as np
import pytest
import scipy.special as sp

import rushlight as torch
from rushlight.autograd import gradcheck, gradgradcheck

aten = torch.ops.aten
RNG = np.random.default_rng(5)


def test_names_and_overloads():
    x = torch.tensor([-1.0, 2.0])
    assert aten.add.Tensor(x, x).tolist() == [-2.0, 4.0] and aten.add.Scalar(x, 1, alpha=2).tolist() == [1.0, 4.0]
    assert aten.relu(x).tolist() == [0.0, 2.0] and aten.sum.dim_IntList(x[None], [1], True).tolist() == [[1.0]]
    assert aten.relu_.default(x) is x and x.tolist() == [0.0, 2.0]
    assert aten.linalg_norm(x).item() == 2.0 and aten.special_expit.default(x).tolist() == torch.sigmoid(x).tolist()
    assert str(aten.add.Tensor) == "aten.add.Tensor" and repr(aten.add) == "<OpOverloadPacket(op='aten.add')>" and aten.add is torch.ops.aten.add
    with pytest.raises(AttributeError, match="no_such_thing"):
        aten.no_such_thing  # noqa: B018
    with pytest.raises(AttributeError, match="has no overload name 'nonsense'"):
        aten.add.nonsense  # noqa: B018
    with pytest.raises(AttributeError):
        torch.ops.no_such_namespace  # noqa: B018


def test_slice_is_a_view():
    x = torch.arange(10.0).requires_grad_()
    y = aten.slice.Tensor(x, 0, 1, -1, 3)
    assert y.tolist() == [1.0, 4.0, 7.0] and y._is_view()
    y.sum().backward()
    assert x.grad.tolist() == [0, 1, 0, 0, 1, 0, 0, 1, 0, 0]


def test_softmax_backward_data_is_the_gradient():
    x, g = (torch.tensor(RNG.normal(size=(3, 4))) for _ in range(2))
    for name, back in (("softmax", torch._softmax_backward_data), ("log_softmax", torch._log_softmax_backward_data)):
        leaf = x.clone().requires_grad_()
        y = getattr(torch, name)(leaf, 1)
        (want,) = torch.autograd.grad(y, leaf, g)
        np.testing.assert_allclose(back(g, y.detach(), 1, torch.float64).numpy(), want.numpy(), rtol=1e-12)


def test_safe_softmax_of_nothing_is_zero():
    x = torch.tensor([[0.0, 1.0], [-math.inf, -math.inf], [2.0, -math.inf]], dtype=torch.float64, requires_grad=True)
    y = torch._safe_softmax(x, 1)
    np.testing.assert_allclose(y.detach().numpy(), [sp.softmax([0.0, 1.0]), [0, 0], [1, 0]])
    y[:, 0].sum().backward()
    assert torch.isfinite(x.grad).all()


def test_batch_norm_under_its_other_names():
    x, w, b = torch.tensor(RNG.normal(size=(4, 3, 2))), torch.ones(3).double(), torch.zeros(3).double()
    mean, var = torch.zeros(3).double(), torch.ones(3).double()
    out, m, r, reserve = aten._batch_norm_with_update(x, w, b, mean, var, 0.1, 1e-5)
    want = x.numpy().mean((0, 2))
    np.testing.assert_allclose(m.numpy(), want)
    np.testing.assert_allclose(mean.numpy(), 0.1 * want)
    assert reserve.shape == (0,) and reserve.dtype is torch.uint8
    np.testing.assert_allclose(out.numpy(), (x.numpy() - want[:, None]) * r.numpy()[:, None])
    plain = torch._native_batch_norm_legit(x, w, b, True, 0.1, 1e-5)
    np.testing.assert_allclose(plain[0].numpy(), out.numpy())


def test_max_pool_backward_puts_gradients_where_the_maxima_were():
    x = torch.tensor(RNG.normal(size=(1, 2, 4, 4)), requires_grad=True)
    y, i = torch.nn.functional.max_pool2d_with_indices(x, 2)
    (want,) = torch.autograd.grad(y.sum(), x)
    got = aten.max_pool2d_with_indices_backward.default(torch.ones_like(y), x.detach(), [2, 2], [2, 2], [0, 0], [1, 1], False, i)
    np.testing.assert_array_equal(got.numpy(), want.numpy())


def test_antialiased_resize():
    x = torch.tensor(RNG.normal(size=(1, 1, 8, 9)))
    for mode in ("bilinear", "bicubic"):
        want = torch.nn.functional.interpolate(x, (3, 4), mode=mode, antialias=True)
        got = getattr(aten, f"_upsample_{mode}2d_aa")
        np.testing.assert_array_equal(got(x, (3, 4), False).numpy(), want.numpy())
        np.testing.assert_array_equal(got(x, (3, 4), False, None, None).numpy(), want.numpy())
        np.testing.assert_array_equal(got(x, (4, 3), False, 0.5, 3 / 9).numpy(), got(x, (4, 3), False).numpy())
        np.testing.assert_array_equal(got.vec(x, None, False, [0.5, 0.5]).numpy(),
                                      torch.nn.functional.interpolate(x, scale_factor=(0.5, 0.5), mode=mode, antialias=True).numpy())


def test_grid_sampler_by_numbers():
    x, grid = torch.tensor(RNG.normal(size=(1, 1, 4, 5))), torch.tensor(RNG.uniform(-1, 1, (1, 2, 3, 2)))
    want = torch.nn.functional.grid_sample(x, grid, "nearest", "reflection", align_corners=True)
    assert torch.equal(torch.grid_sampler_2d(x, grid, 1, 2, True), want) and torch.equal(torch.grid_sampler(x, grid, 1, 2, True), want)
    with pytest.raises(RuntimeError, match="5 dimensions"):
        torch.grid_sampler_3d(x, grid, 0, 0, True)


def test_scaled_mm():
    a, b = torch.tensor(RNG.normal(size=(4, 16))).to(torch.float8_e4m3fn), torch.tensor(RNG.normal(size=(16, 8))).to(torch.float8_e4m3fn)
    exact = a.float().numpy() @ b.float().numpy()
    got = torch._scaled_mm(a, b, torch.tensor(2.0), torch.tensor(0.25), out_dtype=torch.float32, bias=torch.ones(8))
    np.testing.assert_allclose(got.numpy(), exact * 0.5 + 1, rtol=1e-5, atol=1e-5)
    rows, columns = torch.rand(4, 1), torch.rand(1, 8)
    got = torch._scaled_mm_v2(a, b, [rows], [1], [0], [columns], [1], [0], None, torch.float32)
    np.testing.assert_allclose(got.numpy(), exact * rows.numpy() * columns.numpy(), rtol=1e-5, atol=1e-6)
    # PyTorch 2.13: the 8-bit type without inf saturates
    assert torch._scaled_mm(a, b, torch.tensor(1e6), torch.tensor(1e6)).float().abs().max().item() == 448
    with pytest.raises(ValueError, match="must be float8"):
        torch._scaled_mm(a.float(), b, torch.tensor(1.0), torch.tensor(1.0))
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        torch._scaled_mm(a, b[:8], torch.tensor(1.0), torch.tensor(1.0))


def test_chunk_cat():
    a, b = torch.arange(10.0).reshape(5, 2), torch.arange(3.0)
    got = torch._chunk_cat([a, b], 0, 2)
    want = [[0, 1, 2, 3, 4, 5, 0, 1], [6, 7, 8, 9, 0, 0, 2, 0]]
    assert got.tolist() == want


def test_native_dropout_backward():
    g, mask = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([True, False, True])
    assert aten.native_dropout_backward(g, mask, 2.0).tolist() == [2.0, 0.0, 6.0]


def test_hash_is_the_exclusive_or_of_bits():
    x = RNG.normal(size=(3, 4)).astype(np.float32)
    bits = x.astype(np.float64).view(np.uint64)
    assert torch.hash_tensor(torch.tensor(x)).item() == int(np.bitwise_xor.reduce(bits.reshape(-1)))
    np.testing.assert_array_equal(torch.hash_tensor(torch.tensor(x), 1).numpy(), np.bitwise_xor.reduce(bits, 1))
    assert torch.tensor([1, 3, -5], dtype=torch.int8).hash_tensor().item() == (1 ^ 3 ^ (2**64 - 5))
    with pytest.raises(RuntimeError, match="reduction dim"):
        torch.hash_tensor(torch.zeros(0))


def test_masked_index_beyond_the_end():
    x = torch.arange(6.0).reshape(2, 3).requires_grad_()
    i, j, mask = torch.tensor([0, 9, 1]), torch.tensor([2, 0, -7]), torch.tensor([True, False, False])
    y = torch._unsafe_masked_index(x, mask, [i, j], -1.0)
    assert y.tolist() == [2.0, -1.0, -1.0]
    y.sum().backward()
    assert x.grad.tolist() == [[0, 0, 1], [0, 0, 0]]
    z = torch._unsafe_masked_index_put_accumulate(x.detach(), mask, [i, j], torch.tensor([10.0, 20.0, 30.0]))
    assert z.tolist() == [[0, 1, 12], [3, 4, 5]]


def test_old_division():
    x = torch.tensor([2.0, 4.0])
    assert x.__rdiv__(8).tolist() == [4.0, 2.0] and x.__div__(2).tolist() == [1.0, 2.0]


# --- segments ---------------------------------------------------------------------------------------------------------
FOLDS = {"sum": np.sum, "mean": np.mean, "prod": np.prod, "max": np.max, "min": np.min}


@pytest.mark.parametrize("reduce", sorted(FOLDS))
def test_segments(reduce):
    x = RNG.normal(size=(7, 2))
    want = [FOLDS[reduce](x[a:b], 0) for a, b in ((0, 2), (2, 3), (3, 7))]
    np.testing.assert_allclose(torch.segment_reduce(torch.tensor(x), reduce, lengths=torch.tensor([2, 1, 4])).numpy(), want)
    np.testing.assert_allclose(torch.segment_reduce(torch.tensor(x), reduce, offsets=torch.tensor([0, 2, 3, 7])).numpy(), want)


# recorded from PyTorch 2.13: segments of 2, 0 and 3 elements of 1 to 5
EMPTY = {("sum", None): [3, 0, 12], ("sum", 2.0): [5, 2, 14], ("mean", None): [1.5, math.nan, 4], ("mean", 1.0): [2, 1, 13 / 3],
         ("max", None): [2, -math.inf, 5], ("max", 2.0): [2, 2, 5], ("min", None): [1, math.inf, 3], ("min", 1.0): [1, 1, 1],
         ("prod", None): [2, 1, 60], ("prod", 2.0): [4, 2, 120]}


@pytest.mark.parametrize("reduce,initial", sorted(EMPTY, key=str))
def test_segments_without_elements_and_first_values(reduce, initial):
    got = torch.segment_reduce(torch.arange(1.0, 6.0), reduce, lengths=torch.tensor([2, 0, 3]), initial=initial)
    np.testing.assert_allclose(got.numpy(), EMPTY[reduce, initial], rtol=1e-6)


def test_segments_of_rows():
    x = np.arange(20.0).reshape(2, 5, 2)
    got = torch.segment_reduce(torch.tensor(x), "max", lengths=torch.tensor([[2, 3, 0], [1, 1, 3]]), axis=1)
    inf = [-math.inf, -math.inf]
    assert got.tolist() == [[[2.0, 3.0], [8.0, 9.0], inf], [[10.0, 11.0], [12.0, 13.0], [18.0, 19.0]]]
    assert torch.segment_reduce(torch.empty(2, 5, 2, device="meta"), "max", lengths=torch.empty(2, 3, dtype=torch.int64, device="meta"), axis=1).shape == (2, 3, 2)


@pytest.mark.parametrize("reduce", sorted(FOLDS))
def test_segment_gradients(reduce):
    x = torch.tensor(RNG.normal(size=(5, 2)), requires_grad=True)

    def fn(x):
        return torch.segment_reduce(x, reduce, lengths=torch.tensor([2, 3]))
    assert gradcheck(fn, (x,)) and gradgradcheck(fn, (x,))


def test_gradient_of_a_segments_product_with_zeros():
    x = torch.tensor([0.0, 2.0, 0.0, 0.0, 3.0, 5.0], dtype=torch.float64, requires_grad=True)
    torch.segment_reduce(x, "prod", lengths=torch.tensor([2, 2, 2])).sum().backward()
    assert x.grad.tolist() == [2.0, 0.0, 0.0, 0.0, 5.0, 3.0]


def test_segment_errors():
    x, n = torch.ones(5), torch.tensor([2, 3])
    for kw, match in (({}, "Either lengths or offsets"), ({"lengths": torch.tensor([2, 2])}, "sum to"), ({"lengths": torch.tensor([-1, 6])}, "negative"),
                      ({"offsets": torch.tensor([0, 9])}, "offsets"), ({"lengths": n, "indices": n}, "not supported")):
        with pytest.raises(RuntimeError, match=match):
            torch.segment_reduce(x, "sum", **kw)
    with pytest.raises(RuntimeError, match="got foo"):
        torch.segment_reduce(x, "foo", lengths=n)
    with pytest.raises(IndexError):
        torch.segment_reduce(x, "sum", lengths=n, axis=1)


def test_all_names_of_overloads():
    x = torch.tensor([3.0, 1.0, 2.0])
    assert aten.sort.stable(x, stable=True)[0].tolist() == [1, 2, 3] and aten.empty.memory_format([2]).shape == (2,)
    assert aten.squeeze.dims(x[None, :, None], [0, 2]).shape == (3,) and aten.round.decimals(x / 3, decimals=1).shape == (3,)
