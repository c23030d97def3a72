"""Tensors, storages, constructors, joining and indexing, sampling: what the oldest programs use. Each test names its mission rows."""

import ctypes

import numpy as np
import pytest

import rushlight as torch


def arange(*shape):
    return torch.arange(float(np.prod(shape))).view(*shape)


# --- autograd's flags -----------------------------------------------------------------------------------------------
def test_frozen_parameters():  # mission
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
    net[0].weight.requires_grad = False
    before = net[0].weight.clone()
    opt = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.1)
    net(torch.ones(4, 2)).sum().backward()
    opt.step()
    assert net[0].weight.grad is None and torch.equal(net[0].weight, before) and net[1].weight.grad is not None
    with torch.no_grad():
        assert net(torch.ones(1, 2)).grad_fn is None
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    for _ in range(3):
        x = x * 2 if x.sum() < 10 else x - 1       # values steer the flow
    assert x.tolist() == [3.0, 7.0]
    with pytest.raises(TypeError, match="require_grad"):
        torch.tensor([1.0], require_grad=True)


def test_modules_and_functions_agree():  # mission: E-10, E-13
    x = torch.randn(3, 4)
    assert torch.equal(torch.nn.ReLU()(x), torch.nn.functional.relu(x))
    bn = torch.nn.BatchNorm1d(4)
    assert {n for n, _ in bn.named_parameters()} == {"weight", "bias"} and "running_mean" in dict(bn.named_buffers())
    assert set(bn.double().state_dict()) == {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"}
    assert bn.running_mean.dtype is torch.float64


def test_memory_for_c_code():  # mission: E-14
    x = arange(2, 3)
    values = (ctypes.c_float * x.numel()).from_address(x.data_ptr())
    values[4] = 40.0
    assert x[1, 1] == 40 and list(values)[:3] == [0, 1, 2]


# --- tensors and storages -------------------------------------------------------------------------------------------
def test_tensors():  # mission: H-01, H-02, H-03, H-06
    x = torch.zeros(2, 3, 4)
    assert x.dim() == 3 and x.size() == (2, 3, 4) and x.size(-1) == 4 and x.shape == torch.Size([2, 3, 4])
    assert torch.is_tensor(x) and torch.is_tensor(torch.nn.Parameter(x)) and not torch.is_tensor([1])
    assert torch.is_storage(x.untyped_storage()) and not torch.is_storage(x)
    assert torch.numel(x) == 24
    with pytest.raises(TypeError):
        torch.numel([1, 2])


@pytest.mark.filterwarnings("ignore")
def test_default_tensor_type():  # mission: H-04, H-05
    try:
        torch.set_default_tensor_type(torch.DoubleTensor)
        assert torch.zeros(1).dtype is torch.float64 and torch.tensor(1.5).dtype is torch.float64
        torch._set_default_tensor_type_("torch.FloatTensor")
        assert torch.zeros(1).dtype is torch.float32
        with pytest.raises(TypeError):
            torch.set_default_tensor_type(torch.LongTensor)
        with pytest.raises((TypeError, ValueError, AttributeError)):
            torch.set_default_tensor_type("torch.NoTensor")
    finally:
        torch.set_default_dtype(torch.float32)


def test_print_options():  # mission: H-07, H-08, H-09, H-10
    x = torch.tensor([1.23456789])
    try:
        assert repr(x) == "tensor([1.2346])"
        torch.set_printoptions(precision=2)
        assert repr(x) == "tensor([1.23])"
        torch.set_printoptions(profile="default")
        assert "..." in repr(torch.zeros(1001)) and "..." not in repr(torch.zeros(1000))
        torch.set_printoptions(threshold=10)
        assert "..." in repr(torch.zeros(11))
        torch.set_printoptions(profile="full", linewidth=40)
        assert repr(torch.zeros(50)).startswith("tensor([" + ", ".join(["0."] * 11) + ",\n")      # as PyTorch breaks it
        torch.set_printoptions(profile="short")
        assert repr(x) == "tensor([1.23])"
    finally:
        torch.set_printoptions(profile="default")


def test_storages():  # mission: H-11, H-12, H-13
    x = arange(3, 2)
    assert len(x.untyped_storage()) == 24 and x.element_size() == 4 and list(x.storage()) == [0, 1, 2, 3, 4, 5]
    row, column = x[1], x[:, 1]
    assert (row.storage_offset(), row.stride(), row.size()) == (2, (1,), (2,))
    assert (column.storage_offset(), column.stride()) == (1, (2,)) and x.t().stride() == (1, 2)
    column[0] = 10
    assert x[0, 1] == 10 and x.t()[1, 0] == 10 and row.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


def test_numpy_bridge():  # mission: H-14, H-16, I-03, I-04, I-05, I-06
    x = arange(2, 3)
    a = x.t().numpy()
    a[0, 1] = 30
    assert x[1, 0] == 30 and a.strides == (4, 12) and np.sum(x) == x.sum().item()
    for dtype in ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64", "complex128"):
        b = np.ones(2, dtype)
        t = torch.from_numpy(b)
        assert str(t.dtype) == f"torch.{dtype}" and t.numpy().dtype == b.dtype
    b = np.arange(6.0)[::2]
    t = torch.from_numpy(b)
    t[1] = -1
    b[2] = 7
    assert b[1] == -1 and t[2] == 7 and t.stride() == (2,)
    with pytest.raises(RuntimeError):
        t.resize_(100)
    assert t.shape == (3,) and t.tolist() == [0, -1, 7]
    for bad in ([1, 2], np.array(["a"]), np.array([object()])):
        with pytest.raises(TypeError):
            torch.from_numpy(bad)


def test_types():  # mission: H-17, H-18, H-19
    assert torch.FloatTensor([1, 2]).type() == "torch.FloatTensor" and torch.LongTensor(2, 3).shape == (2, 3)
    for name, dtype in (("Double", "float64"), ("Int", "int32"), ("Short", "int16"), ("Byte", "uint8"), ("Char", "int8")):
        t = getattr(torch, name + "Tensor")([1, 2])
        assert t.dtype is getattr(torch, dtype) and isinstance(t, getattr(torch, name + "Tensor"))
    x = torch.ones(2)
    assert x.long().dtype is torch.int64 and x.double().dtype is torch.float64 and not isinstance(x, torch.LongTensor)
    assert x.to("cpu") is x and x.device == torch.device("cpu")
    assert x[0].dim() == 0 and float(x.sum()) == 2.0 and int(torch.tensor(3)) == 3
    with pytest.raises(IndexError):
        x.sum()[0]


# --- constructors ---------------------------------------------------------------------------------------------------
def test_constructors():  # mission: I-01, I-02, I-07, I-08, I-09, I-10, I-11, I-12, I-13
    assert torch.eye(2).tolist() == [[1, 0], [0, 1]] and torch.eye(2, 3).shape == (2, 3)
    with pytest.raises(RuntimeError):
        torch.eye(-1)
    assert torch.linspace(0, 1, 5).tolist() == [0, 0.25, 0.5, 0.75, 1] and torch.linspace(0, 1).shape == (100,)
    np.testing.assert_allclose(torch.logspace(0, 2, steps=3).numpy(), [1, 10, 100], rtol=1e-6)
    assert torch.logspace(0, 1).shape == (100,)
    np.testing.assert_allclose(torch.logspace(0, 3, 4, base=2).numpy(), [1, 2, 4, 8], rtol=1e-6)
    for size in ((2, 3), [2, 3], torch.Size([2, 3])):
        assert torch.ones(size).shape == (2, 3)
    assert torch.ones(2, 3).sum() == 6
    out = torch.empty(0)
    assert torch.zeros(2, 2, out=out) is out and out.shape == (2, 2)
    z = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    assert z.requires_grad and z.dtype is torch.float64
    with pytest.raises(RuntimeError, match="negative"):
        torch.zeros(2, -1)


def test_likes_full_and_ranges():  # mission: I-15, I-16, I-17, I-18, I-20
    x = torch.ones(2, 3, dtype=torch.int32)
    z = torch.zeros_like(x)
    assert z.dtype is torch.int32 and z.shape == x.shape and z.data_ptr() != x.data_ptr()
    assert torch.ones_like(x, dtype=torch.float64).dtype is torch.float64
    assert torch.full((2,), 3).dtype is torch.int64 and torch.full((2,), 1.5).dtype is torch.float32 and torch.full((1,), True).dtype is torch.bool
    assert torch.full_like(x, 7).dtype is torch.int32
    assert torch.arange(5).tolist() == [0, 1, 2, 3, 4] and torch.arange(5).dtype is torch.int64
    assert torch.arange(1, 2.5, 0.5).tolist() == [1, 1.5, 2] and len(torch.arange(0, 1, 0.3)) == 4 and torch.arange(5, 0, -2).tolist() == [5, 3, 1]
    for args in ((0, 5, 0), (0, 5, -1)):
        with pytest.raises(RuntimeError):
            torch.arange(*args)
    with pytest.warns(UserWarning, match="arange"):
        r = torch.range(1, 4)
    assert r.tolist() == [1, 2, 3, 4] and r.dtype is torch.float32


def test_tensor():  # mission: I-21, I-22, I-23
    a = np.arange(3.0)
    t = torch.tensor(a)
    a[0] = 9
    assert t.tolist() == [0, 1, 2] and t.dtype is torch.float64
    assert [torch.tensor(v).dtype for v in (1, 1.0, True, 1j)] == [torch.int64, torch.float32, torch.bool, torch.complex64]
    assert torch.tensor([1, 2], dtype=torch.float16).dtype is torch.float16
    with pytest.raises(ValueError, match="length"):
        torch.tensor([[1, 2], [3]])
    with pytest.raises(TypeError):
        torch.tensor("a")
    with pytest.raises(RuntimeError):
        torch.tensor([1.0], pin_memory=True)


# --- joining, cutting, indexing -------------------------------------------------------------------------------------
def test_cat_and_its_inverses():  # mission: J-01, J-02, J-03, J-04
    a, b = arange(2, 2), arange(2, 3) + 10
    c = torch.cat([a, b], 1)
    assert c.shape == (2, 5) and torch.equal(c, torch.cat(inputs=[a, b], dimension=1))
    assert all(torch.equal(x, y) for x, y in zip(c.split([2, 3], 1), (a, b), strict=True))
    assert torch.equal(torch.cat(c.chunk(3, 1), 1), c) and torch.cat([torch.ones(1), torch.ones(1, dtype=torch.int64)]).dtype is torch.float32
    p, q = a.clone().requires_grad_(), b.clone().requires_grad_()
    (torch.cat([p, q], 1) * c).sum().backward()
    assert torch.equal(p.grad, a) and torch.equal(q.grad, b)
    with pytest.raises(RuntimeError, match="[Ss]izes"):
        torch.cat([a, b], 0)
    with pytest.raises(IndexError):
        torch.cat([a], 2)
    with pytest.raises((RuntimeError, ValueError)):
        torch.cat([])


def test_chunk_split_stack_unbind():  # mission: J-05, J-06, J-07, J-08, J-20, J-24
    x = arange(5, 2)
    assert [c.shape[0] for c in x.chunk(3)] == [2, 2, 1] and len(x.chunk(4)) == 3 and isinstance(x.chunk(2), tuple)
    x.chunk(2)[1][0, 0] = 60
    assert x[3, 0] == 60
    with pytest.raises(RuntimeError):
        x.chunk(0)
    assert [s.shape[0] for s in x.split(2)] == [2, 2, 1]
    with pytest.raises(RuntimeError):
        x.split([2, 2])
    assert len(torch.chunk(tensor=x, chunks=2)) == 2 and len(torch.split(tensor=x, split_size=2)) == 3
    rows = torch.unbind(tensor=x)
    assert len(rows) == 5 and rows[0].shape == (2,) and rows[0]._is_view()
    assert torch.equal(torch.stack(sequence=rows), x) and torch.stack(list(rows), 1).shape == (2, 5)
    with pytest.raises(RuntimeError):
        torch.stack([torch.ones(1), torch.ones(2)])
    with pytest.raises((RuntimeError, ValueError)):
        torch.stack([])


def test_gather_and_select():  # mission: J-09, J-10, J-11, J-12
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    index = torch.tensor([[0, 0], [1, 0]])
    g = torch.gather(x, 1, index)
    assert g.tolist() == [[1, 1], [4, 3]]
    g.sum().backward()
    assert x.grad.tolist() == [[2, 0], [1, 1]]
    for bad in (torch.tensor([[5, 0], [0, 0]]), torch.tensor([[0.0, 0.0], [0.0, 0.0]]), torch.tensor([0])):
        with pytest.raises((RuntimeError, IndexError)):
            torch.gather(x, 1, bad)
    s = torch.index_select(x, 0, torch.tensor([1, 1]))
    assert s.tolist() == [[3, 4], [3, 4]] and not s._is_view()
    with pytest.raises(IndexError):
        torch.index_select(x, 0, torch.tensor([[0]]))
    with pytest.raises((RuntimeError, IndexError)):
        torch.index_select(x, 0, torch.tensor([2]))


def test_masks():  # mission: J-13, J-14, J-16
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert torch.masked_select(x, x > 1.5).tolist() == [2, 3, 4] and torch.masked_select(x, torch.tensor([True, False])).tolist() == [1, 3]
    assert torch.masked_select(x, torch.tensor([1, 0], dtype=torch.uint8)).tolist() == [1, 3]
    n = torch.nonzero(torch.tensor([[0, 1], [2, 0]]))
    assert n.tolist() == [[0, 1], [1, 0]] and n.dtype is torch.int64


def test_shapes():  # mission: J-17, J-18, J-21, J-23, J-25, J-26, J-28
    x = torch.zeros(1, 3, 1)
    assert x.squeeze().shape == (3,) and x.squeeze(0).shape == (3, 1) and x.squeeze(1).shape == (1, 3, 1) and x.squeeze((0, 2)).shape == (3,)
    assert torch.zeros(1).squeeze().dim() == 0
    x.squeeze()[1] = 5
    assert x[0, 1, 0] == 5
    m = arange(2, 3)
    assert torch.equal(torch.t(m), m.transpose(0, 1)) and m.transpose(-1, -2).shape == (3, 2) and torch.t(torch.ones(2)).shape == (2,)
    with pytest.raises(RuntimeError):
        torch.t(torch.zeros(1, 2, 3))
    assert m.unsqueeze(-1).shape == (2, 3, 1) and m.unsqueeze(-3).shape == (1, 2, 3)
    with pytest.raises(IndexError):
        m.unsqueeze(4)
    assert m.reshape(3, -1).data_ptr() == m.data_ptr() and m.t().reshape(6).data_ptr() != m.data_ptr()
    with pytest.raises(RuntimeError, match="invalid for input of size"):
        m.reshape(4, 2)


def test_scatter_and_shuffle():  # mission: J-29, J-30, J-31, J-32
    x = torch.zeros(3, 4)
    assert x.scatter_(1, torch.tensor([[1], [0], [3]]), 1.0) is x
    assert x.argmax(1).tolist() == [1, 0, 3] and x.sum() == 3
    y = x.scatter(1, torch.tensor([[2], [2], [2]]), torch.tensor([[7.0], [8.0], [9.0]]))
    assert y[:, 2].tolist() == [7, 8, 9] and x[:, 2].sum() == 0
    with pytest.raises((RuntimeError, IndexError)):
        x.scatter_(1, torch.tensor([[4]]), 1.0)
    with pytest.raises(RuntimeError):
        x.scatter_(1, torch.tensor([[0]]), torch.ones(1, 1, dtype=torch.float64))
    a = torch.arange(10)
    assert sorted(a[torch.randperm(10)].tolist()) == list(range(10))


# --- sampling -------------------------------------------------------------------------------------------------------
def test_generator():  # mission: K-01, K-02, K-03, K-04, K-05
    g = torch.manual_seed(7)
    assert isinstance(g, torch.Generator) and torch.initial_seed() == 7 and g is torch.default_generator
    state = torch.get_rng_state()
    torch.randn(3)      # leaves the second half of a pair behind
    assert state.dtype is torch.uint8
    half = torch.get_rng_state()
    a, b = torch.randn(5), torch.rand(3)
    torch.set_rng_state(half)
    assert torch.equal(torch.randn(5), a) and torch.equal(torch.rand(3), b)
    for bad in (torch.zeros(3), torch.zeros(3, dtype=torch.uint8)):
        with pytest.raises((TypeError, RuntimeError)):
            torch.set_rng_state(bad)


def test_samplers():  # mission: K-06, K-07, K-08, K-09, K-10
    torch.manual_seed(0)
    p = torch.full((1000,), 0.3)
    b = torch.bernoulli(p)
    assert set(b.tolist()) == {0.0, 1.0} and 240 < b.sum() < 360 and b.dtype is p.dtype
    with pytest.raises(RuntimeError):
        torch.bernoulli(torch.tensor([1.5]))
    m = torch.multinomial(torch.tensor([[0.0, 1.0, 2.0], [1.0, 1.0, 0.0]]), 2)
    assert m.dtype is torch.int64 and m.shape == (2, 2) and set(m[0].tolist()) == {1, 2} and set(m[1].tolist()) == {0, 1}
    assert torch.multinomial(torch.tensor([0.0, 3.0]), 5, replacement=True).tolist() == [1] * 5
    for bad, n in ((torch.tensor([-1.0, 2.0]), 1), (torch.zeros(2), 1), (torch.ones(2), 3), (torch.ones(1, 1, 1), 1)):
        with pytest.raises(RuntimeError):
            torch.multinomial(bad, n)


def test_normal():  # mission: K-11, K-12, K-13, K-14
    torch.manual_seed(0)
    mean, std = torch.arange(1000.0), torch.full((1000,), 0.1)
    x = torch.normal(mean, std)
    assert abs((x - mean).mean()) < 0.02 and 0.09 < (x - mean).std() < 0.11
    assert torch.normal(mean).shape == (1000,) and torch.normal(0.0, std).shape == (1000,) and torch.normal(means=mean, std=std).shape == (1000,)
    assert torch.normal(1.0, 2.0, (2, 3)).shape == (2, 3)
    with pytest.raises(TypeError):
        torch.normal(1.0, 2.0)
    with pytest.raises(RuntimeError):
        torch.normal(0.0, -1.0, (2,))


def test_uniform_and_whole_numbers():  # mission: K-16, K-17, K-18, K-19, K-20
    torch.manual_seed(0)
    x = torch.rand(1000)
    assert 0 <= x.min() and x.max() < 1 and 0.45 < x.mean() < 0.55
    n = torch.randn(2, 500)
    assert abs(n.mean()) < 0.1 and 0.9 < n.std() < 1.1
    like = torch.zeros(2, 3, dtype=torch.float64)
    assert torch.rand_like(like).dtype is torch.float64 and torch.randn_like(like, dtype=torch.float32).dtype is torch.float32
    i = torch.randint(3, 7, (100,))
    assert i.dtype is torch.int64 and set(i.tolist()) == {3, 4, 5, 6} and torch.randint(5, (2,)).max() < 5
    assert torch.randint_like(like, 0, 2).dtype is torch.float64
    with pytest.raises(RuntimeError):
        torch.randint(3, 3, (1,))
    p = torch.randperm(20)
    assert p.dtype is torch.int64 and sorted(p.tolist()) == list(range(20))


# --- conventions ----------------------------------------------------------------------------------------------------
def test_conventions():  # mission: T-01, T-04, T-05, T-06
    x = arange(2, 3)
    p = x.data_ptr()
    assert x.mul_(2) is x and x.data_ptr() == p and torch.equal(torch.add(x, 1), x.add(1))
    assert torch.tensor([[3.5]]).item() == 3.5
    with pytest.raises(RuntimeError):
        x.item()
    assert x.contiguous() is x and x.t().contiguous().is_contiguous() and x.t().contiguous().data_ptr() != p


@pytest.mark.parametrize("call", [lambda x: x.flip(dims=(0, 1)), lambda x: x.permute(dims=(1, 0)), lambda x: x.expand(size=(2, 3)), lambda x: x.reshape(shape=(3, 2)),
                                  lambda x: x.repeat(repeats=(1, 2)), lambda x: x.tile(dims=(2,)), lambda x: torch.zeros(size=(2, 3)), lambda x: x.view(size=(6,)),
                                  lambda x: x.sum(axis=0), lambda x: torch.flip(x, dims=[0])])
def test_sizes_by_keyword(call):
    assert call(arange(2, 3)).numel() >= 3
