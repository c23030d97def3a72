"""Sparse tensors: COO, CSR, CSC, BSR and BSC. What they are is what the dense arrays of NumPy are; gradients against differences."""

import copy
import io
import pickle

import numpy as np
import pytest
import scipy.special as sp

import rushlight as torch
from rushlight.autograd import gradcheck, gradgradcheck

RNG = np.random.default_rng(7)
INDICES = torch.tensor([[0, 1, 1, 0], [2, 0, 2, 2]])      # (0, 2) comes twice
VALUES = [3.0, 4.0, 5.0, 1.0]
DENSE = np.array([[0.0, 0, 4, 0], [4, 0, 5, 0]])
LAYOUTS = ["sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc"]


def coo(requires_grad=False, dtype=torch.float64):
    return torch.sparse_coo_tensor(INDICES, torch.tensor(VALUES, dtype=dtype), (2, 4), requires_grad=requires_grad)


def in_layout(x, layout):
    t = torch.tensor(x)
    return t.to_sparse(layout=getattr(torch, layout), **({"blocksize": (1, 2)} if "bs" in layout else {}))


def holes(shape, seed=0):
    """Random numbers, half of them zero."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=shape) * (rng.random(shape) < 0.5)


def same(t, x):
    np.testing.assert_allclose(t.to_dense().numpy(), x, rtol=1e-12, atol=1e-12)


# --- what they are ----------------------------------------------------------------------------------------------------
def test_coo():  # mission: I-14
    t = coo()
    assert t.layout is torch.sparse_coo and t.is_sparse and not t.is_sparse_csr and t.shape == (2, 4) and t.dtype is torch.float64
    assert t.sparse_dim() == 2 and t.dense_dim() == 0 and t._nnz() == 4 and t.numel() == 8 and t.dim() == 2 and t.device.type == "cpu"
    assert not t.is_coalesced() and t._indices().tolist() == INDICES.tolist() and t._values().tolist() == VALUES
    same(t, DENSE)
    with pytest.raises(RuntimeError, match="uncoalesced"):
        t.values()
    with pytest.raises(RuntimeError, match="uncoalesced"):
        t.indices()
    c = t.coalesce()
    assert c.is_coalesced() and c.indices().tolist() == [[0, 1, 1], [2, 0, 2]] and c.values().tolist() == [4.0, 4.0, 5.0] and c.coalesce() is c
    assert torch.tensor(1.0).layout is torch.strided and not torch.tensor(1.0).is_sparse


def test_coo_from_data_and_sizes():
    assert torch.sparse_coo_tensor([[0, 2]], [1, 2]).shape == (3,)
    assert torch.sparse_coo_tensor([[0, 2]], [1, 2], dtype=torch.float16).dtype is torch.float16
    hybrid = torch.sparse_coo_tensor([[0, 2]], torch.ones(2, 3))
    assert hybrid.shape == (3, 3) and hybrid.sparse_dim() == 1 and hybrid.dense_dim() == 1
    same(hybrid, [[1, 1, 1], [0, 0, 0], [1, 1, 1]])
    for empty in (torch.sparse_coo_tensor((2, 3)), torch.sparse_coo_tensor(size=(2, 3)), torch.zeros(2, 3, layout=torch.sparse_coo),
                  torch.sparse_coo_tensor(torch.empty(2, 0), torch.empty(0), (2, 3))):
        assert empty._nnz() == 0 and empty.is_coalesced() and empty._indices().shape == (2, 0)
        same(empty, np.zeros((2, 3)))
    assert torch.zeros(2, 3, layout=torch.sparse_csr).crow_indices().tolist() == [0, 0, 0]
    same(torch.sparse_coo_tensor(torch.zeros(0, 2, dtype=torch.int64), [1.0, 2.0], ()), 3.0)
    same(torch.sparse_coo_tensor([[0, 0]], [True, True], (2,)), [True, False])


def test_values_share_memory():
    v = torch.tensor(VALUES)
    t = torch.sparse_coo_tensor(INDICES, v, (2, 4))
    t._values().mul_(2)
    assert v.tolist() == [6.0, 8.0, 10.0, 2.0]


@pytest.mark.parametrize("args,kw,match", [
    (([[0, 5]], [1.0, 2.0], (3,)), {}, "for dim 0, size is 3 but found index 5"),
    (([[0, -1]], [1.0, 2.0], (3,)), {}, "found negative index -1 for dim 0"),
    (([[0, -1]], [1.0, 2.0]), {}, "found negative index"),
    (([[0, 1]], [1.0, 2.0, 3.0], (3,)), {}, "must have same nnz"),
    (([[0, 1], [0, 1]], [1.0, 2.0], (3,)), {}, "sparse_dim = 2, dense_dim = 0"),
    (([0, 1], [1.0, 2.0], (3,)), {}, "sparse_dim x nnz"),
    (([[0, 1]], torch.ones(2, 2), (3, 3)), {}, r"expected \[2, 3\], got \[2, 2\]"),
    (([[1, 0]], [1.0, 2.0], (3,)), {"is_coalesced": True}, "uncoalesced"),
])
def test_wrong_coo(args, kw, match):
    with pytest.raises(RuntimeError, match=match):
        torch.sparse_coo_tensor(*args, **kw)


def test_unchecked_on_demand():
    assert torch.sparse_coo_tensor([[0, 5]], [1.0, 2.0], (3,), check_invariants=False)._nnz() == 2
    assert torch.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (3,), is_coalesced=True).is_coalesced()
    with torch.sparse.check_sparse_tensor_invariants():
        assert torch.sparse.check_sparse_tensor_invariants.is_enabled()
    assert not torch.sparse.check_sparse_tensor_invariants.is_enabled()


def test_compressed():
    t = torch.sparse_csr_tensor([0, 1, 3], [2, 0, 2], [4.0, 4.0, 5.0], (2, 4))
    assert t.layout is torch.sparse_csr and t.is_sparse_csr and not t.is_sparse and t._nnz() == 3
    assert t.crow_indices().tolist() == [0, 1, 3] and t.col_indices().tolist() == [2, 0, 2] and t.values().tolist() == [4.0, 4.0, 5.0]
    same(t, DENSE)
    same(torch.sparse_csc_tensor([0, 1, 1, 3], [1, 0, 1], [4.0, 4.0, 5.0]), DENSE[:, :3])
    same(torch.sparse_bsr_tensor([0, 1], [1], [[[1.0, 2.0], [3.0, 4.0]]]), [[0, 0, 1, 2], [0, 0, 3, 4]])
    same(torch.sparse_bsc_tensor([0, 0, 1], [0], [[[1.0, 2.0]]]), [[0, 0, 1, 2]])
    same(torch.sparse_compressed_tensor([0, 1, 3], [2, 0, 2], [4.0, 4.0, 5.0], (2, 4), layout=torch.sparse_csr), DENSE)
    batch = torch.sparse_csr_tensor([[0, 1], [0, 1]], [[0], [2]], [[1.0], [2.0]], (2, 1, 3))
    same(batch, [[[1, 0, 0]], [[0, 0, 2]]])
    with pytest.raises(RuntimeError, match="expected sparse column compressed tensor layout but got CSR"):
        t.ccol_indices()
    with pytest.raises(RuntimeError, match="expected sparse coordinate tensor layout but got Strided"):
        torch.ones(2).indices()


@pytest.mark.parametrize("args,match", [
    (([0, 1, 3], [2, 0], [1.0, 2.0, 3.0], (2, 4)), "number of col_indices"),
    (([1, 1, 3], [2, 0, 1], [1.0, 2.0, 3.0], (2, 4)), r"crow_indices\[..., 0\] == 0"),
    (([0, 1, 2], [2, 0, 1], [1.0, 2.0, 3.0], (2, 4)), "== nnz"),
    (([0, 1, 3], [2, 0, 5], [1.0, 2.0, 3.0], (2, 4)), "0 <= col_indices < 4"),
    (([0, 1, 3], [2, 1, 0], [1.0, 2.0, 3.0], (2, 4)), "sorted and distinct"),
    (([0, 3], [2, 0, 1], [1.0, 2.0, 3.0], (2, 4)), "number of rows plus one"),
])
def test_wrong_csr(args, match):
    with pytest.raises(RuntimeError, match=match):
        torch.sparse_csr_tensor(*args)


@pytest.mark.parametrize("to", LAYOUTS)
@pytest.mark.parametrize("of", LAYOUTS)
def test_conversions(of, to):
    x = holes((4, 6))
    t = in_layout(x, of)
    same(t, x)
    other = t.to_sparse(layout=getattr(torch, to), **({"blocksize": (2, 3)} if "bs" in to else {}))
    assert other.layout is getattr(torch, to)
    same(other, x)


def test_to_sparse_dims():
    x = holes((3, 4, 2))
    for n in (1, 2, 3):
        t = torch.tensor(x).to_sparse(n)
        assert t.sparse_dim() == n and t.is_coalesced()
        same(t, x)
    same(torch.tensor(3.0).to_sparse(), 3.0)
    assert torch.tensor(0.0).to_sparse()._nnz() == 0
    with pytest.raises(RuntimeError, match="range"):
        torch.ones(2).to_sparse(2)
    with pytest.raises(RuntimeError, match="divisible"):
        torch.ones(3, 3).to_sparse_bsr((2, 2))
    dense = torch.ones(2)
    assert dense.to_dense() is dense


def test_printing():
    """As PyTorch 2.13 prints."""
    assert repr(coo(dtype=torch.float32)) == ("tensor(indices=tensor([[0, 1, 1, 0],\n                       [2, 0, 2, 2]]),\n"
                                              "       values=tensor([3., 4., 5., 1.]),\n       size=(2, 4), nnz=4, layout=torch.sparse_coo)")
    assert repr(coo(True)) == ("tensor(indices=tensor([[0, 1, 1, 0],\n                       [2, 0, 2, 2]]),\n       values=tensor([3., 4., 5., 1.]),\n"
                               "       size=(2, 4), nnz=4, dtype=torch.float64, layout=torch.sparse_coo,\n       requires_grad=True)")
    assert repr(torch.sparse_coo_tensor(size=(2, 3))) == ("tensor(indices=tensor([], size=(2, 0)),\n       values=tensor([], size=(0,)),\n"
                                                          "       size=(2, 3), nnz=0, layout=torch.sparse_coo)")
    assert repr(torch.sparse_csr_tensor([0, 1, 3], [2, 0, 2], [3.0, 4.0, 5.0], (2, 4))) == (
        "tensor(crow_indices=tensor([0, 1, 3]),\n       col_indices=tensor([2, 0, 2]),\n       values=tensor([3., 4., 5.]), size=(2, 4), nnz=3,\n"
        "       layout=torch.sparse_csr)")


def test_what_has_no_meaning_says_so():
    t = coo()
    with pytest.raises(TypeError, match="to_dense"):
        t.numpy()
    with pytest.raises(NotImplementedError, match="storage"):
        t.storage()
    with pytest.raises(RuntimeError, match="storage"):
        t.data_ptr()
    for fn in (lambda: t.exp(), lambda: t.view(8), lambda: t > 0, lambda: t.max(), lambda: t.cos(), lambda: t.clone().fill_(1.0)):
        with pytest.raises(NotImplementedError, match="SparseCPU.*torch.sparse_coo"):
            fn()
    with pytest.raises(NotImplementedError, match="SparseCPU"):
        t.clone().resize_(3, 4)
    for fn in (lambda: t + 1, lambda: t + torch.ones(2, 4)):
        with pytest.raises(RuntimeError, match="add.sparse, dense. is not supported"):
            fn()
    with pytest.raises(RuntimeError, match="divisor"):
        t / t
    with pytest.raises(RuntimeError, match="zeroth power"):
        t ** 0
    with pytest.raises(RuntimeError, match="not implemented for sparse layout"):
        torch.ones(2, layout=torch.sparse_coo)


def test_old_constructors():
    t = torch.sparse.FloatTensor(torch.tensor([[0, 1]]), torch.tensor([1.0, 2.0]), torch.Size([3]))
    same(t, [1, 2, 0])
    assert torch.sparse.FloatTensor(2, 3).shape == (2, 3) and torch.sparse.DoubleTensor().dtype is torch.float64
    assert torch.sparse.LongTensor(torch.tensor([[0, 2]]), torch.tensor([1, 2])).shape == (3,)
    with pytest.raises(TypeError):
        torch.sparse.LongTensor(torch.tensor([[0, 2]]), torch.tensor([1.0, 2.0]))


# --- operators --------------------------------------------------------------------------------------------------------
UNARY = ["neg", "abs", "sqrt", "square", "sin", "tan", "asinh", "atan", "sinh", "tanh", "expm1", "log1p", "sign", "ceil", "floor", "trunc", "round", "erf", "relu",
         "deg2rad", "isnan", "isinf", "nan_to_num"]


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr"])
@pytest.mark.parametrize("name", UNARY)
def test_unary(name, layout):
    x = np.abs(holes((3, 4)))
    got = getattr(in_layout(x, layout), name)()
    assert got.layout is getattr(torch, layout)
    same(got, getattr(torch.tensor(x), name)().numpy())


def test_unary_adds_up_first():
    same(coo().abs(), np.abs(DENSE))
    same(coo() ** 2, DENSE**2)
    assert (coo() ** 2).is_coalesced()
    same(-coo(), -DENSE)


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr"])
def test_arithmetic(layout):
    a, b, d = holes((3, 4), 1), holes((3, 4), 2), RNG.normal(size=(3, 4))
    s, t, x = in_layout(a, layout), in_layout(b, layout), torch.tensor(d)
    same(s + t, a + b)
    same(torch.sub(s, t, alpha=3), a - 3 * b)
    same(x + s, d + a)
    same(x - s, d - a)
    same(s * t, a * b)
    same(s * x, a * d)
    same(x * s, a * d)
    same(s * 2, a * 2)
    same(3 * s, a * 3)
    same(s * torch.tensor(2.0), a * 2)
    same(s / 4, a / 4)
    assert (s + t).layout is getattr(torch, layout) and (s * x).layout is getattr(torch, layout) and (x + s).layout is torch.strided
    same(coo() + coo(), 2 * DENSE)
    same(coo() * coo(), DENSE**2)
    with pytest.raises(RuntimeError, match="sizes"):
        s + in_layout(holes((4, 3)), layout)


def test_promotion():
    s = coo(dtype=torch.float32)
    assert (s + s.double()).dtype is torch.float64 and (torch.ones(2, 4) + s.double()).dtype is torch.float64
    assert (s.int() * 2.5).dtype is torch.float32 and (s.int() / 2).dtype is torch.float32 and s.half().dtype is torch.float16
    assert s.int().sum().dtype is torch.int64
    same(s.to(torch.int32), DENSE)


def test_in_place():
    s, d = coo(), torch.ones(2, 4, dtype=torch.float64)
    assert d.add_(s, alpha=2) is d
    same(d, 1 + 2 * DENSE)
    d.sub_(s)
    same(d, 1 + DENSE)
    t = s.clone()
    version = t._version
    assert t.mul_(3) is t and t._version > version
    same(t, 3 * DENSE)
    t.add_(s)
    same(t, 4 * DENSE)
    t.copy_(s)
    same(t, DENSE)
    same(s, DENSE)
    assert t.zero_()._nnz() == 0
    with pytest.raises(RuntimeError, match="between dense and sparse"):
        d.copy_(s)
    t.sparse_resize_((3, 5), 2, 0)
    assert t.shape == (3, 5)
    s.clone().sparse_resize_((2, 5), 2, 0)
    with pytest.raises(RuntimeError, match="only grow"):
        s.clone().sparse_resize_((1, 4), 2, 0)
    assert s.clone().sparse_resize_and_clear_((1, 4), 2, 0)._nnz() == 0
    assert torch.zeros_like(s)._nnz() == 0 and torch.zeros_like(s).layout is torch.sparse_coo
    assert torch.zeros_like(s, layout=torch.strided).tolist() == np.zeros((2, 4)).tolist()


def test_an_in_place_leaf_is_refused():
    with pytest.raises(RuntimeError, match="leaf Variable"):
        coo(True).mul_(2)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_products(layout):
    a, b = holes((4, 6), 3), RNG.normal(size=(6, 3))
    s, x = in_layout(a, layout), torch.tensor(b)
    same(s @ x, a @ b)
    same(torch.mm(s, x), a @ b)
    same(torch.sparse.mm(s, x), a @ b)
    same(x.t() @ s.t() if layout in ("sparse_coo", "sparse_csr") else x.t() @ in_layout(a.T.copy(), layout), b.T @ a.T)
    same(s @ x[:, 0], a @ b[:, 0])
    same(s.mv(x[:, 0]), a @ b[:, 0])
    m = torch.tensor(RNG.normal(size=(4, 3)))
    same(torch.addmm(m, s, x, beta=2, alpha=3), 2 * m.numpy() + 3 * a @ b)
    same(torch.sparse.addmm(m, s, x, beta=2, alpha=3), 2 * m.numpy() + 3 * a @ b)
    with pytest.raises(RuntimeError):
        s @ torch.ones(5, 2, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="same dtype"):
        s @ x.float()


def test_sparse_times_sparse():
    a, b = holes((4, 5), 4), holes((5, 3), 5)
    for layout in ("sparse_coo", "sparse_csr"):
        r = in_layout(a, layout) @ in_layout(b, layout)
        assert r.layout is getattr(torch, layout)
        same(r, a @ b)
    same(torch.sparse.mm(coo(), coo().t()), DENSE @ DENSE.T)
    same(torch.smm(coo(), torch.ones(4, 2).double()), DENSE @ np.ones((4, 2)))
    h = torch.hspmm(coo(), torch.ones(4, 2).double())
    assert h.sparse_dim() == 1
    same(h, DENSE @ np.ones((4, 2)))
    same(torch.sspaddmm(coo(), coo(), torch.eye(4).double(), beta=2, alpha=3), 5 * DENSE)


def test_batched_product():
    a, b = holes((3, 2, 4), 6), RNG.normal(size=(3, 4, 5))
    same(torch.bmm(torch.tensor(a).to_sparse(), torch.tensor(b)), a @ b)


def test_products_with_reduction():
    a, b = holes((4, 6), 7), RNG.normal(size=(6, 3))
    a[2] = 0                                                        # a row without elements gives 0
    s, x = in_layout(a, "sparse_csr"), torch.tensor(b)
    for name, fold in (("sum", np.sum), ("mean", np.mean), ("amax", np.max), ("amin", np.min)):
        want = [fold(r[r != 0][:, None] * b[r != 0], 0) if r.any() else np.zeros(3) for r in a]
        same(torch.sparse.mm(s, x, name), want)
    with pytest.raises(RuntimeError, match="sparse_csr"):
        torch.sparse.mm(s.to_sparse(), x, "sum")


def test_sampled_addmm():
    a, m, n = holes((3, 4), 8), RNG.normal(size=(3, 2)), RNG.normal(size=(2, 4))
    got = torch.sparse.sampled_addmm(in_layout(a, "sparse_csr"), torch.tensor(m), torch.tensor(n), beta=2.0, alpha=3.0)
    assert got.layout is torch.sparse_csr
    same(got, (a != 0) * (3 * m @ n) + 2 * a)


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr"])
def test_sums(layout):
    a = holes((3, 4), 9)
    s = in_layout(a, layout)
    np.testing.assert_allclose(s.sum().item(), a.sum())
    for dim in (0, 1, -1):
        same(torch.sparse.sum(s, dim), a.sum(dim))
    same(torch.sparse.sum(s, (0, 1)), a.sum())
    same(torch.sum(s, 1, keepdim=True), a.sum(1, keepdims=True))
    np.testing.assert_allclose(coo().norm().item(), np.linalg.norm(DENSE))
    assert torch.sparse.sum(s, dtype=torch.float32).dtype is torch.float32


def test_sums_of_hybrids():
    a = holes((3, 4, 2), 10)
    t = torch.tensor(a).to_sparse(2)
    for dim in (0, 2, (0, 2), (0, 1), (1, 2)):
        same(torch.sparse.sum(t, dim), a.sum(dim))
    assert torch.sparse.sum(t, (0, 1)).layout is torch.strided and torch.sparse.sum(t, 2).is_sparse


@pytest.mark.parametrize("dim", [0, 1])
def test_softmax_over_what_is_there(dim):
    a = holes((4, 5), 11)
    there = np.where(a != 0, a, -np.inf)
    with np.errstate(all="ignore"):
        soft = np.nan_to_num(sp.softmax(there, dim))
        log = np.where(a != 0, sp.log_softmax(there, dim), 0)
    same(torch.sparse.softmax(torch.tensor(a).to_sparse(), dim), soft)
    same(torch.sparse.log_softmax(torch.tensor(a).to_sparse(), dim), log)
    hybrid = torch.tensor(np.array([[1.0, 2], [0, 0], [3, 5]])).to_sparse(1)
    want = np.zeros((3, 2))
    want[[0, 2]] = sp.softmax(np.array([[1.0, 2], [3, 5]]), dim)
    same(torch.sparse.softmax(hybrid, dim), want)


def test_shapes():
    a = holes((3, 4, 2), 12)
    t = torch.tensor(a).to_sparse()
    same(t.transpose(0, 2), a.transpose(2, 1, 0))
    same(t.permute(1, 2, 0), a.transpose(1, 2, 0))
    same(coo().t(), DENSE.T)
    same(t.unsqueeze(1), a[:, None])
    same(torch.tensor(a).to_sparse(2).unsqueeze(-1), a[..., None])
    same(torch.cat([t, t], 1), np.concatenate([a, a], 1))
    same(torch.cat([torch.tensor(a).to_sparse(1)] * 2, 2), np.concatenate([a, a], 2))
    same(torch.stack([t, t]), np.stack([a, a]))
    csr = in_layout(DENSE, "sparse_csr")
    assert csr.t().layout is torch.sparse_csc
    same(csr.transpose(0, 1), DENSE.T)
    same(in_layout(holes((4, 6)), "sparse_bsr").t(), holes((4, 6)).T)
    with pytest.raises(RuntimeError, match="sparse and dense dimensions"):
        torch.tensor(a).to_sparse(1).transpose(0, 1)


def test_choosing():
    a = holes((4, 5), 13)
    t = torch.tensor(a).to_sparse()
    same(t[1], a[1])
    same(t[:, 2], a[:, 2])
    same(t[-1, ...], a[-1])
    same(t[None, 0], a[None, 0])
    same(t[1:3], a[1:3])
    np.testing.assert_allclose(t[0, 0].item(), a[0, 0])
    same(t.select(1, 3), a[:, 3])
    same(t.narrow_copy(0, 1, 2), a[1:3])
    for dim, index in ((0, [3, 0, 0]), (1, [2, 2])):
        same(t.index_select(dim, torch.tensor(index)), a.take(index, dim))
    same(t[torch.tensor([2, 1])], a[[2, 1]])
    hybrid = torch.tensor(a).to_sparse(1)
    same(hybrid.select(1, 2), a[:, 2])
    same(hybrid.index_select(1, torch.tensor([4, 0])), a[:, [4, 0]])
    same(hybrid[2], a[2])
    with pytest.raises(IndexError):
        t[7]
    with pytest.raises(NotImplementedError, match="step"):
        t[::2]


def test_mask():
    d = torch.tensor(RNG.normal(size=(2, 4)))
    got = d.sparse_mask(coo())
    assert got.is_coalesced()
    same(got, d.numpy() * (DENSE != 0))
    same(coo().sparse_mask(torch.eye(2, 4).double().to_sparse()), DENSE * np.eye(2, 4))
    same(d.sparse_mask(in_layout(DENSE, "sparse_csc")), d.numpy() * (DENSE != 0))
    with pytest.raises(RuntimeError, match="incompatible sizes"):
        torch.ones(3).sparse_mask(coo())


def test_diagonals():
    x = np.arange(9.0).reshape(3, 3)
    want = np.diag(x[0]) + np.diag(x[1][:2], -1) + np.diag(x[2][2:], 2)
    for layout in (None, torch.sparse_coo, torch.sparse_csr, torch.sparse_csc):
        t = torch.sparse.spdiags(torch.tensor(x), torch.tensor([0, -1, 2]), (3, 3), layout)
        assert t.layout is (layout or torch.sparse_coo)
        same(t, want)
    with pytest.raises(RuntimeError, match="duplicate"):
        torch.sparse.spdiags(torch.tensor(x), torch.tensor([0, 0, 2]), (3, 3))


# --- keeping them -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("layout", LAYOUTS)
def test_pickle_copy_and_save(layout):
    t = in_layout(holes((4, 6)), layout).requires_grad_()
    file = io.BytesIO()
    torch.save({"t": t.detach()}, file)
    file.seek(0)
    for other in (pickle.loads(pickle.dumps(t)), copy.deepcopy(t)):
        assert other.requires_grad and other.layout is t.layout
        same(other.detach(), holes((4, 6)))
    loaded = torch.load(file)["t"]
    assert repr(loaded) == repr(t.detach())
    old = io.BytesIO()
    torch.save(t.detach(), old, _use_new_zipfile_serialization=False)
    old.seek(0)
    assert repr(torch.load(old)) == repr(t.detach())


def test_saved_indices_are_checked():
    for new in (True, False):
        file = io.BytesIO()
        torch.save(torch.sparse_coo_tensor([[0, 5]], [1.0, 2.0], (3,), check_invariants=False), file, _use_new_zipfile_serialization=new)
        file.seek(0)
        with pytest.raises(RuntimeError, match="found index 5"):
            torch.load(file)
        file = io.BytesIO()      # what failed leaves nothing behind
        torch.save(coo(), file)
        file.seek(0)
        same(torch.load(file), DENSE)


# --- gradients --------------------------------------------------------------------------------------------------------
FUNCTIONS = {
    "to_dense": lambda s, x: s.to_dense() * x,
    "coalesce": lambda s, x: s.coalesce().to_dense(),
    "values": lambda s, x: s.coalesce().values() ** 2,
    "times number": lambda s, x: (s * 3).to_dense() ** 2,
    "times dense": lambda s, x: (s * x).to_dense() ** 2,
    "times sparse": lambda s, x: (s * (s + s)).to_dense(),
    "plus": lambda s, x: (s + s * 2).to_dense() ** 2,
    "dense plus": lambda s, x: (x + s) ** 2,
    "dense minus": lambda s, x: (x - s) ** 2,
    "mm": lambda s, x: (s @ x.t()) ** 2,
    "mm from the right": lambda s, x: (x.t() @ s) ** 2,
    "mv": lambda s, x: s.mv(x[0]) ** 2,
    "sparse mm": lambda s, x: torch.sparse.mm(s, s.t()).to_dense(),
    "addmm": lambda s, x: torch.sparse.addmm(torch.ones(2, 2).double(), s, x.t()) ** 2,
    "sum": lambda s, x: (s * s).sum(),
    "sum over rows": lambda s, x: torch.sparse.sum(s, 0).to_dense() ** 2,
    "softmax": lambda s, x: torch.sparse.softmax(s, 1).to_dense() * x,
    "log_softmax": lambda s, x: torch.sparse.log_softmax(s, 0).to_dense() * x,
    "sin": lambda s, x: s.sin().to_dense() * x,
    "t": lambda s, x: s.t().to_dense() ** 2,
    "select": lambda s, x: s.select(0, 1).to_dense() ** 2,
    "index_select": lambda s, x: s.index_select(1, torch.tensor([2, 2, 0])).to_dense() ** 2,
    "cat": lambda s, x: torch.cat([s, s]).to_dense() ** 2,
    "csr": lambda s, x: (s.to_sparse_csr() @ x.t()) ** 2,
    "csc": lambda s, x: s.to_sparse_csc().to_dense() ** 2,
    "bsr": lambda s, x: s.to_sparse_bsr((1, 2)).to_dense() ** 2,
    "reduced": lambda s, x: torch.sparse.mm(s.to_sparse_csr(), x.t(), "mean") ** 2,
    "sampled": lambda s, x: torch.sparse.sampled_addmm(s.to_sparse_csr(), x, x.t() @ x).to_dense(),
    "norm": lambda s, x: s.norm() * x,
}


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_gradients(name):
    """By the values and by the dense operand, first and second order."""
    v = torch.tensor(VALUES, dtype=torch.float64, requires_grad=True)
    x = torch.tensor(RNG.uniform(0.5, 1.5, (2, 4)), requires_grad=True)

    def fn(v, x):
        return FUNCTIONS[name](torch.sparse_coo_tensor(INDICES, v, (2, 4)), x)
    assert gradcheck(fn, (v, x))
    assert gradgradcheck(fn, (v, x))


@pytest.mark.parametrize("convert", [lambda x: x.to_sparse(), lambda x: x.to_sparse(1), lambda x: x.to_sparse_csr(), lambda x: x.to_sparse_csc(), lambda x: x.to_sparse_bsr((1, 2)),
                                     lambda x: x.sparse_mask(coo())])
def test_gradient_of_making_sparse(convert):
    x = torch.tensor(RNG.normal(size=(2, 4)), requires_grad=True)
    assert gradcheck(lambda x: convert(x).to_dense() ** 2, (x,))


def test_the_gradient_of_a_sparse_leaf_has_its_pattern():
    s, x = coo().coalesce().requires_grad_(), torch.tensor(RNG.normal(size=(4, 3)))
    (s @ x).sum().backward()
    assert s.grad.is_sparse and s.grad._indices().tolist() == s._indices().tolist()
    same(s.grad, (DENSE != 0) * x.numpy().sum(1))
    s.to_dense().sum().backward()                                   # and they add up
    same(s.grad, (DENSE != 0) * (x.numpy().sum(1) + 1))
    csr = in_layout(DENSE, "sparse_csr").requires_grad_()
    (csr @ x).sum().backward()
    assert csr.grad.layout is torch.sparse_csr
    same(csr.grad, (DENSE != 0) * x.numpy().sum(1))
    c = coo(True)
    c.to_dense().sum().backward()
    assert c.grad._nnz() == 4


# --- sparse gradients of tables -----------------------------------------------------------------------------------------
def table(sparse, bag=None):
    torch.manual_seed(0)
    return torch.nn.EmbeddingBag(6, 2, mode=bag, sparse=sparse) if bag else torch.nn.Embedding(6, 2, sparse=sparse)


def test_embedding():
    e = table(True)
    e(torch.tensor([[1, 3], [3, 0]])).pow(2).sum().backward()
    g = e.weight.grad
    assert g.is_sparse and not g.is_coalesced() and g._indices().tolist() == [[1, 3, 3, 0]] and g._values().shape == (4, 2)
    d = table(False)
    d(torch.tensor([[1, 3], [3, 0]])).pow(2).sum().backward()
    same(g, d.weight.grad.numpy())
    e(torch.tensor([5])).sum().backward()                           # sparse + sparse
    assert e.weight.grad.is_sparse and e.weight.grad.to_dense()[5].tolist() == [1.0, 1.0]
    e.weight.sum().backward()                                       # sparse + dense
    assert not e.weight.grad.is_sparse and e.weight.grad[5].tolist() == [2.0, 2.0]
    e(torch.tensor([5])).sum().backward()                           # dense + sparse
    assert e.weight.grad[5].tolist() == [3.0, 3.0] and not e.weight.grad.is_sparse


def test_both_at_once_is_dense():
    e = table(True)
    (e(torch.tensor([1, 3])).sum() + e.weight.sum() + e(torch.tensor([1])).sum()).backward()
    assert e.weight.grad.tolist() == [[1, 1], [3, 3], [1, 1], [2, 2], [1, 1], [1, 1]]


def test_padding_gets_no_gradient():
    e = torch.nn.Embedding(6, 2, sparse=True, padding_idx=3)
    e(torch.tensor([1, 3, 3, 0])).sum().backward()
    assert e.weight.grad._indices().tolist() == [[1, 0]]
    with pytest.raises(RuntimeError, match="scale_grad_by_freq"):
        torch.nn.functional.embedding(torch.tensor([1]), e.weight, scale_grad_by_freq=True, sparse=True).sum().backward()


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bags(mode):
    grads = []
    for sparse in (True, False):
        e = table(sparse, mode)
        e(torch.tensor([1, 3, 3, 0]), torch.tensor([0, 3])).pow(2).sum().backward()
        grads.append(e.weight.grad)
    assert grads[0].is_sparse
    np.testing.assert_allclose(grads[0].to_dense().numpy(), grads[1].numpy(), rtol=1e-6)
    with pytest.raises(ValueError, match="max mode"):
        table(True, "max")(torch.tensor([1]), torch.tensor([0]))


def test_gather():
    x = torch.arange(6.0).reshape(2, 3).requires_grad_()
    torch.gather(x, 1, torch.tensor([[0, 0], [1, 2]]), sparse_grad=True).sum().backward()
    assert x.grad.is_sparse
    same(x.grad, [[2, 0, 0], [0, 1, 1]])


def steps(make, sparse, n=4):
    e = table(sparse)
    o = make(e.parameters())
    for k in range(n):
        o.zero_grad()
        e(torch.tensor([1, 3, 3, k])).pow(2).sum().backward()
        assert e.weight.grad.is_sparse is sparse
        o.step()
    return e.weight.detach().numpy()


@pytest.mark.parametrize("make", [lambda p: torch.optim.SGD(p, 0.1), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), lambda p: torch.optim.SGD(p, 0.1, maximize=True),
                                  lambda p: torch.optim.Adagrad(p, 0.1)])
def test_optimizers_do_what_they_do_with_dense_gradients(make):
    np.testing.assert_allclose(steps(make, True), steps(make, False), rtol=1e-5, atol=1e-6)


def test_sparse_adam():
    """Adam (Kingma and Ba, 2015) on the rows that a step looked up; the others and their moments stay."""
    w = table(True).weight.detach().numpy().astype(np.float64)
    m, v = np.zeros((6, 2)), np.zeros((6, 2))
    for k in range(4):
        g = np.zeros((6, 2))
        np.add.at(g, [1, 3, 3, k], 2 * w[[1, 3, 3, k]])
        rows = sorted({1, 3, k})
        m[rows] = 0.9 * m[rows] + 0.1 * g[rows]
        v[rows] = 0.999 * v[rows] + 0.001 * g[rows] ** 2
        size = 0.1 * np.sqrt(1 - 0.999 ** (k + 1)) / (1 - 0.9 ** (k + 1))
        w[rows] -= size * m[rows] / (np.sqrt(v[rows]) + 1e-8)
    np.testing.assert_allclose(steps(lambda p: torch.optim.SparseAdam(list(p), 0.1), True), w, rtol=1e-5, atol=1e-6)


def test_optimizers_that_want_dense_gradients_say_so():
    with pytest.raises(RuntimeError, match="SparseAdam"):
        steps(lambda p: torch.optim.Adam(p, 0.1), True)
    with pytest.raises(RuntimeError, match="does not support dense gradients"):
        steps(lambda p: torch.optim.SparseAdam(list(p), 0.1), False)
    e = table(True)
    e(torch.tensor([1])).sum().backward()
    torch.optim.SGD(e.parameters(), 0.1).zero_grad(set_to_none=False)
    assert e.weight.grad.is_sparse and e.weight.grad._nnz() == 0


def test_a_compiled_function_runs_eagerly():
    s, x = coo().coalesce(), torch.ones(4, 2).double()
    fn = torch.compile(lambda x: (s @ x).sum() + torch.sparse_coo_tensor(INDICES, x.reshape(-1)[:4], (2, 4)).sum())
    for _ in range(3):
        assert fn(x).item() == 2 * DENSE.sum() + 4
        x = x + 0


def test_scipy_is_not_loaded_before_it_is_needed():
    import subprocess
    import sys
    code = "import rushlight as t, sys; t.sparse_coo_tensor([[0]], [1.0]).to_dense(); assert 'scipy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_old_names():
    s, x = coo(dtype=torch.float32), torch.ones(4, 2)
    for fn in (torch.spmm, torch.dsmm):                             # pygcn's graph convolution
        same(fn(s, x), DENSE @ np.ones((4, 2)))
    same(torch.hsmm(s, x), DENSE @ np.ones((4, 2)))
    same(torch.saddmm(s, s, torch.eye(4)), 2 * DENSE)
    assert isinstance(s, torch.sparse.FloatTensor) and not isinstance(s, torch.sparse.DoubleTensor) and not isinstance(s, torch.FloatTensor)
    assert not isinstance(x, torch.sparse.FloatTensor) and isinstance(x, torch.FloatTensor)
    assert s.type() == "torch.sparse.FloatTensor" and torch.sparse_coo_tensor(size=(1, 1)).resize_as_sparse_(s).shape == (2, 4)


def test_gradcheck_of_sparse_operands():
    s, x = coo().coalesce().requires_grad_(), torch.tensor(RNG.normal(size=(4, 2)), requires_grad=True)
    check = torch.sparse.as_sparse_gradcheck(gradcheck)
    assert check(lambda s, x: (torch.sparse.mm(s, x), s * s), (s, x), masked=True)

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return 2 * g
    with pytest.raises(RuntimeError):
        check(lambda s: Wrong.apply(s.to_dense()), (s,))


def test_compressed_plus_dense():
    x = torch.tensor(RNG.normal(size=(2, 4)))
    for layout in ("sparse_csr", "sparse_csc"):
        same(in_layout(DENSE, layout) + x, DENSE + x.numpy())
        same(torch.sub(in_layout(DENSE, layout), x, alpha=2), DENSE - 2 * x.numpy())
    with pytest.raises(NotImplementedError, match="floating"):
        torch.sparse.softmax(coo().int(), 0)
    same(torch.sparse.softmax(coo().int(), 1, dtype=torch.float64), torch.sparse.softmax(coo(), 1).to_dense().numpy())


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_compiled_step_with_a_sparse_gradient_is_the_eager_one(momentum):
    def losses(compiled):
        torch.manual_seed(0)
        e, w = torch.nn.Embedding(6, 2, sparse=True), torch.nn.Linear(2, 1)
        o = torch.optim.SGD([*e.parameters(), *w.parameters()], 0.1, momentum=momentum)

        def step(i):
            o.zero_grad()
            loss = w(e(i)).pow(2).sum()
            loss.backward()
            o.step()
            return loss
        fn = torch.compile(step) if compiled else step
        return [fn(torch.tensor([k % 6, 1])).item() for k in range(6)]
    assert losses(True) == losses(False)


def test_sparse_operands_of_layers():
    x = torch.tensor(holes((5, 4), 20)).float()
    layer = torch.nn.Linear(4, 3)
    np.testing.assert_allclose(layer(x.to_sparse()).detach().numpy(), layer(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    net = torch.nn.Module()
    net.register_buffer("adjacency", coo().coalesce())
    other = torch.nn.Module()
    other.register_buffer("adjacency", torch.sparse_coo_tensor(size=(2, 4), dtype=torch.float64))
    other.load_state_dict(net.state_dict())
    same(other.adjacency, DENSE)
    assert other.float().adjacency.dtype is torch.float32 and other.adjacency.is_sparse
    with pytest.raises(NotImplementedError, match="meta"):
        torch.zeros(2, layout=torch.sparse_coo, device="meta")


def test_a_custom_function_saves_a_sparse_tensor():
    """The product of sparse graph attention: gradients for the values and for the dense operand, written by hand."""
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, indices, values, shape, b):
            a = torch.sparse_coo_tensor(indices, values, shape)
            ctx.save_for_backward(a, b)
            return torch.matmul(a, b)

        @staticmethod
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            at = a._indices()
            return None, grad.matmul(b.t())[at[0], at[1]], None, a.t().matmul(grad)
    v = torch.tensor(VALUES, dtype=torch.float64, requires_grad=True)
    b = torch.tensor(RNG.normal(size=(4, 3)), requires_grad=True)
    assert gradcheck(lambda v, b: Product.apply(INDICES, v, (2, 4), b), (v, b))


@pytest.mark.parametrize("layout", ["sparse_csr", "sparse_csc"])
def test_batches_of_compressed_matrices(layout):
    x = np.zeros((2, 3, 4))
    for k, at in enumerate((([0, 1, 2], [1, 0, 3]), ([0, 0, 2], [0, 2, 2]))):
        x[k][at] = RNG.normal(size=3)
    t = in_layout(x, layout)
    assert t.sparse_dim() == 3 and t.values().shape == (2, 3)
    same(t, x)
    same(t.to_sparse(), x)
    c = torch.tensor(x).to_sparse()
    assert gradcheck(lambda v: torch.sparse_coo_tensor(c.indices(), v, c.shape).to_sparse(layout=getattr(torch, layout)).to_dense() ** 2,
                     (c.values().clone().requires_grad_(),))
    with pytest.raises(RuntimeError, match="same number of specified elements"):
        in_layout(np.stack([np.eye(2), np.ones((2, 2))]), layout)


def test_iteration_and_in_place_operators():
    a = holes((3, 4), 21)
    t = torch.tensor(a).to_sparse()
    for row, want in zip(t, a, strict=True):
        same(row, want)
    same(t.unbind(1)[2], a[:, 2])
    s, d = t.clone(), torch.ones(3, 4, dtype=torch.float64)
    s += t
    s *= 3
    s /= 2
    same(s, 3 * a)
    d += t
    d -= 2 * t
    same(d, 1 - a)


def test_complex_products():
    v = torch.tensor([1 + 2j, 3 - 1j, 2j, 1.0], requires_grad=True)
    x = torch.tensor(RNG.normal(size=(4, 2)) + 1j * RNG.normal(size=(4, 2)), requires_grad=True)
    v = v.detach().to(torch.complex128).requires_grad_()
    assert gradcheck(lambda v, x: torch.sparse_coo_tensor(INDICES, v, (2, 4)) @ x, (v, x))
    assert gradcheck(lambda v: (torch.sparse_coo_tensor(INDICES, v, (2, 4)) * 2).to_dense(), (v,))
