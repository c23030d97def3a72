"""The mission's rows on tensors, storages and the NumPy bridge (H), creation (I), indexing and joining (J), sampling (K) and
conventions (T), a test a row and all that the row says. Values are worked out by hand, or are those of PyTorch 2.13."""

import copy
import warnings

import numpy as np
import pytest

import rushlight as torch
from rushlight import nn
from rushlight.autograd import gradcheck

INT = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
FLOAT = (torch.float16, torch.float32, torch.float64)


def numbers(*shape, dtype=torch.float32):
    """0, 1, 2, ... in a shape."""
    return torch.arange(int(np.prod(shape)), dtype=dtype).view(*shape)


@pytest.fixture
def printing():
    yield
    torch.set_printoptions(profile="default")


@pytest.fixture
def default_dtype():
    yield
    torch.set_default_dtype(torch.float32)


# --- H: tensors, storages, strides, NumPy ---------------------------------------------------------------------------
def test_a_tensor_is_an_array():  # mission: H-01
    for data, dim in ((3.5, 0), ([1.0, 2.0], 1), ([[1, 2], [3, 4], [5, 6]], 2), (np.zeros((2, 3, 4, 5)), 4)):
        t = torch.tensor(data)
        shape = np.shape(data)
        assert t.dim() == t.ndim == t.ndimension() == dim and t.size() == t.shape == torch.Size(shape)
        assert len(t.shape) == dim
        assert [t.size(i) for i in range(dim)] == list(shape) and isinstance(t.size(), torch.Size)
        assert isinstance(t.shape, tuple)
        if dim:
            assert t.size(-1) == shape[-1] and t.size(dim=0) == shape[0]
    with pytest.raises(IndexError, match="out of range"):
        torch.zeros(2, 3).size(2)


def test_is_tensor():  # mission: H-02
    for x in (torch.zeros(1), nn.Parameter(torch.zeros(1)), torch.autograd.Variable(torch.zeros(1)), torch.tensor(1)):
        assert torch.is_tensor(x) is True
    for x in ([1.0], 1.0, np.zeros(1), None, torch.zeros(1).untyped_storage(), torch.Tensor, torch.Size([1])):
        assert torch.is_tensor(x) is False


@pytest.mark.filterwarnings("ignore:TypedStorage")
def test_is_storage():  # mission: H-03
    x = torch.zeros(2)
    for s in (x.storage(), x.untyped_storage(), torch.UntypedStorage(4), torch.FloatStorage(2)):
        assert torch.is_storage(s) is True
    for s in (x, [1], b"x", None, np.zeros(1), torch.UntypedStorage):
        assert torch.is_storage(s) is False


@pytest.mark.filterwarnings("ignore")
def test_set_default_tensor_type(default_dtype):  # mission: H-04
    for t, d in ((torch.DoubleTensor, torch.float64), ("torch.FloatTensor", torch.float32),
                 ("torch.DoubleTensor", torch.float64),
                 (torch.HalfTensor, torch.float16), (torch.FloatTensor, torch.float32)):
        torch.set_default_tensor_type(t)
        assert torch.get_default_dtype() is d
        for make in (lambda: torch.zeros(1), lambda: torch.tensor(1.5), lambda: torch.empty(1), lambda: torch.ones(1),
                     lambda: torch.eye(1), lambda: torch.Tensor([1, 2]),
                     lambda: torch.full((1,), 1.5), lambda: torch.linspace(0, 1, 2), lambda: torch.arange(0.0, 2.0),
                     lambda: torch.rand(1)):
            assert make().dtype is d
        assert torch.zeros(1, dtype=torch.int32).dtype is torch.int32 and torch.arange(2).dtype is torch.int64
        assert torch.tensor(1).dtype is torch.int64
    for bad in (torch.LongTensor, "torch.IntTensor", torch.ByteTensor):
        with pytest.raises(TypeError, match="only floating"):
            torch.set_default_tensor_type(bad)
    for bad in ("torch.NoTensor", "Nothing.Tensor", 5, None):
        with pytest.raises((TypeError, ValueError, AttributeError, ImportError)):
            torch.set_default_tensor_type(bad)
    assert torch.get_default_dtype() is torch.float32
    torch.set_default_dtype(torch.float64)
    assert torch.ones(1).dtype is torch.float64


@pytest.mark.filterwarnings("ignore")
def test_the_seeds_name_of_it(default_dtype):  # mission: H-05
    torch._set_default_tensor_type_(torch.DoubleTensor)
    assert torch.zeros(1).dtype is torch.float64
    with pytest.raises(TypeError):
        torch._set_default_tensor_type_(torch.LongTensor)


def test_numel():  # mission: H-06
    assert torch.numel(torch.zeros(2, 3, 4)) == torch.zeros(2, 3, 4).numel() == 24 and torch.numel(torch.tensor(1)) == 1
    assert torch.numel(input=torch.zeros(0, 3)) == 0
    for bad in ([1, 2], 5, np.zeros(2), "x", None):
        with pytest.raises(TypeError, match="must be Tensor"):
            torch.numel(bad)


def test_precision(printing):  # mission: H-07
    x = torch.tensor([1.23456789, 2.0])
    assert repr(x) == str(x) == "tensor([1.2346, 2.0000])"
    torch.set_printoptions(precision=2)
    assert repr(x) == "tensor([1.23, 2.00])"
    torch.set_printoptions(precision=6)
    assert repr(x) == "tensor([1.234568, 2.000000])"
    torch.set_printoptions()
    assert repr(x) == "tensor([1.234568, 2.000000])"


def test_threshold(printing):  # mission: H-08
    assert "..." not in repr(torch.zeros(1000)) and repr(torch.zeros(1001)) == "tensor([0., 0., 0.,  ..., 0., 0., 0.])"
    torch.set_printoptions(threshold=5)
    assert "..." not in repr(torch.zeros(5)) and "..." in repr(torch.zeros(7)) and "..." in repr(torch.zeros(10, 2))
    torch.set_printoptions(threshold=5, edgeitems=1)
    assert repr(torch.zeros(10)) == "tensor([0.,  ..., 0.])"


def test_linewidth(printing):  # mission: H-09
    assert 70 < max(map(len, repr(torch.rand(100)).split("\n"))) <= 80
    torch.set_printoptions(linewidth=40)
    assert max(map(len, repr(torch.rand(100)).split("\n"))) <= 40
    torch.set_printoptions(linewidth=200)
    assert "\n" not in repr(torch.zeros(30))


def test_profiles(printing):  # mission: H-10
    x = torch.tensor([1.23456789])
    torch.set_printoptions(profile="short")
    assert repr(x) == "tensor([1.23])" and "..." in repr(torch.zeros(1001))
    torch.set_printoptions(profile="full")
    assert repr(x) == "tensor([1.2346])" and "..." not in repr(torch.zeros(1100))
    torch.set_printoptions(profile="default")
    assert repr(x) == "tensor([1.2346])" and "..." in repr(torch.zeros(1001))
    torch.set_printoptions(profile="short", precision=3)      # what is given beside it counts
    assert repr(x) == "tensor([1.235])"


@pytest.mark.filterwarnings("ignore:TypedStorage")
def test_storage():  # mission: H-11
    x = numbers(3, 2)
    s, u = x.storage(), x.untyped_storage()
    assert len(s) == 6 and list(s) == s.tolist() == [0, 1, 2, 3, 4, 5] and s[4] == 4 and s.dtype is torch.float32
    assert s.element_size() == 4
    assert len(u) == u.nbytes() == 24 and x.element_size() == 4 and u.element_size() == 1
    s[1] = 9
    assert x[0, 1] == 9
    u[0] = 0
    x[2, 1] = 7
    assert s[5] == 7 and s.data_ptr() == u.data_ptr() == x.data_ptr()
    for dtype in (*INT, *FLOAT):
        assert numbers(4, dtype=dtype).storage().tolist() == [0, 1, 2, 3]
    row = x[1]
    assert row.storage().tolist() == [0, 9, 2, 3, 4, 7]


def test_offsets_and_strides():  # mission: H-12
    x = numbers(3, 4)
    cases = ((x, (3, 4), 0, (4, 1)), (x[1], (4,), 4, (1,)), (x[:, 2], (3,), 2, (4,)), (x.t(), (4, 3), 0, (1, 4)),
             (x[1:, ::2], (2, 2), 4, (4, 2)),
             (x.transpose(0, 1)[1], (3,), 1, (4,)), (x.view(2, 6), (2, 6), 0, (6, 1)),
             (x.unsqueeze(1), (3, 1, 4), 0, (4, 4, 1)), (x[2, 3], (), 11, ()),
             (x.expand(2, 3, 4), (2, 3, 4), 0, (0, 4, 1)), (x.diagonal(), (3,), 0, (5,)),
             (x.view(3, 2, 2).permute(2, 0, 1), (2, 3, 2), 0, (1, 4, 2)),
             (x[1:][1:], (1, 4), 8, (4, 1)))
    for view, size, offset, stride in cases:
        assert view.size() == size and view.storage_offset() == offset and view.stride() == stride
        assert view.data_ptr() == x.data_ptr() + 4 * offset and view.untyped_storage().data_ptr() == x.data_ptr()
    for view, stride in ((x[None], (12, 4, 1)), (x[..., None], (4, 1, 1)), (x[:, None], (4, 4, 1)),
                         (x.t()[None], (4, 1, 4)), (x[0, 0][None], (1,)),
                         (x.expand(1, 3, 4), (12, 4, 1)), (x[:1].expand(2, 4), (0, 1))):
        assert view.stride() == stride
    assert x.stride(0) == 4 and x.stride(-1) == 1 and x.stride(dim=1) == 1
    with pytest.raises(IndexError):
        x.stride(2)


def test_views_share_memory():  # mission: H-13
    x = numbers(2, 3)
    t, column, flat, again = x.t(), x[:, 1], x.view(6), x.unsqueeze(0)[0, 1:]
    column[1] = 40
    t[0, 0] = -1
    flat[5] = 50
    again[0, 0] = 30
    assert x.tolist() == [[-1, 1, 2], [30, 40, 50]] and t.tolist() == [[-1, 30], [1, 40], [2, 50]]
    assert flat.tolist() == [-1, 1, 2, 30, 40, 50]
    x.zero_()
    assert not t.any() and not flat.any() and not column.any()
    y = x.clone()
    y[0] = 1
    assert not x.any()


def test_numpy_shares_memory():  # mission: H-14
    x = numbers(2, 3)
    for view in (x, x.t(), x[:, 1], x[1, 2], x[1:, ::2]):
        a = view.numpy()
        assert isinstance(a, np.ndarray) and a.shape == tuple(view.shape)
        assert a.strides == tuple(4 * s for s in view.stride()) and a.tolist() == view.tolist()
    x.t().numpy()[2, 1] = 50
    assert x[1, 2] == 50
    x[0, 0] = -3
    assert x.numpy()[0, 0] == -3
    assert np.add.reduce(np.asarray(x).ravel()) == x.sum() and np.asarray(x).tolist() == x.tolist()
    assert np.array(x, dtype=np.float64).dtype == np.float64
    np.testing.assert_allclose(np.exp(x / 10), (x / 10).exp(), rtol=1e-6)
    assert np.concatenate([x, x]).shape == (4, 3) and np.dot(x[0], x[1]) == (x[0] * x[1]).sum().item()
    for f in (np.sin, np.exp, np.sqrt, lambda v: np.add(v, 1), lambda v: np.maximum(v, v),
              np.cumsum):     # a tensor for a tensor
        y = f(x.abs())
        assert type(y) is torch.Tensor and y.tolist() == f(x.abs().numpy()).tolist()
    assert type(np.sin(x[0, 0])) is torch.Tensor and np.isnan(x).dtype is torch.bool
    with pytest.raises(RuntimeError, match="detach"):
        np.exp(torch.ones(2, requires_grad=True))
    a = np.array(x)
    a[0, 0] = 99
    assert x[0, 0] == -3


def test_numpy_refuses():  # mission: H-15
    x = torch.ones(2, requires_grad=True)
    for t in (x, x * 2):
        with pytest.raises(RuntimeError, match="requires grad.*detach"):
            t.numpy()
        with pytest.raises(RuntimeError, match="requires grad.*detach"):
            np.asarray(t)
        assert t.detach().numpy().shape == (2,) and t.numpy(force=True).shape == (2,)
    with pytest.raises(TypeError, match="meta"):
        torch.ones(2, device="meta").numpy()


def test_dtypes_there_and_back():  # mission: H-16
    for name in ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64",
                 "complex128", "uint16", "uint32", "uint64"):
        a = np.array([0, 1, 3]).astype(name)
        t = torch.from_numpy(a)
        assert t.dtype is getattr(torch, name) and t.tolist() == a.tolist() and t.numpy().dtype == a.dtype
        assert torch.tensor(a).dtype is t.dtype
        assert torch.ones(2, dtype=getattr(torch, name)).numpy().dtype == np.dtype(name)
    with pytest.raises(TypeError):
        torch.ones(1, dtype=torch.bfloat16).numpy()


TYPES = {"Float": "float32", "Double": "float64", "Half": "float16", "Long": "int64", "Int": "int32", "Short": "int16",
         "Byte": "uint8", "Char": "int8", "Bool": "bool"}


@pytest.mark.parametrize("name", TYPES)
def test_types(name):  # mission: H-17
    cls, dtype = getattr(torch, name + "Tensor"), getattr(torch, TYPES[name])
    t = cls([[1, 0], [1, 1]])
    assert t.dtype is dtype and t.tolist() == [[1, 0], [1, 1]] and t.type() == f"torch.{name}Tensor"
    assert isinstance(t, cls) and isinstance(t, torch.Tensor)
    assert cls(2, 3).shape == (2, 3) and cls(2, 3).dtype is dtype and cls().shape == (0,)
    assert cls(torch.Size([4])).shape == (4,) and cls((1, 0)).tolist() == [1, 0]
    assert cls(np.array([1, 0, 1]).astype(TYPES[name])).tolist() == [1, 0, 1]
    for bad, error in ((2.5, TypeError), ("text", TypeError), ([[1, 2], [3]], ValueError), (-1, RuntimeError)):
        with pytest.raises(error):
            cls(bad)
    other = torch.zeros(2, dtype=torch.int32 if name != "Int" else torch.int64)
    with pytest.raises(TypeError, match="expected"):
        cls(other)
    assert cls(t).data_ptr() == t.data_ptr()
    convert = {"Char": "char", "Bool": "bool"}.get(name, name.lower())
    x = torch.tensor([0.0, 1.0])
    for y in (getattr(x, convert)(), x.type(cls), x.type(f"torch.{name}Tensor"), x.type(dtype), x.to(dtype),
              x.to(torch.zeros(1, dtype=dtype))):
        assert y.dtype is dtype and y.tolist() == [0, 1]
    assert all(isinstance(t, getattr(torch, other + "Tensor")) == (other == name) for other in TYPES)
    assert torch.zeros(1, dtype=dtype).type() == f"torch.{name}Tensor"


def test_devices():  # mission: H-18
    x = torch.ones(2)
    assert x.device == torch.device("cpu") and x.device.type == "cpu" and x.to("cpu") is x
    assert x.to(torch.device("cpu")) is x and x.cpu() is x and x.to(torch.float32) is x
    assert x.to(x) is x and x.to("cpu", torch.float64).dtype is torch.float64 and x.to("cpu", copy=True) is not x
    assert x.to("meta").device == torch.device("meta") and x.to("meta").to("meta").device.type == "meta"
    assert torch.zeros(1, device="cpu").device.type == "cpu"


def test_scalars():  # mission: H-19
    x = torch.tensor([[1.5, 2.0], [3.0, 4.0]])
    for s in (x[0, 0], x[0][0], x.sum(), x.max(), x.mean(), x.norm(), x.prod(), x.std(), x.min(), x.argmax(), x.any()):
        assert s.dim() == 0 and s.shape == () and isinstance(s, torch.Tensor)
        with pytest.raises(IndexError, match="0-dim"):
            s[0]
    assert float(x[0, 0]) == 1.5 and int(x[1, 0]) == 3 and bool(x[0, 0]) is True and complex(x[0, 0]) == 1.5
    assert x[0, 0].item() == 1.5 and type(x[0, 0].item()) is float
    assert type(torch.tensor(3).item()) is int and type(torch.tensor(True).item()) is bool
    assert [10, 20, 30][torch.tensor(1)] == 20 and f"{x[0, 0]:.2f}" == "1.50"
    with pytest.raises(TypeError):
        len(x[0, 0])


# --- I: creation ----------------------------------------------------------------------------------------------------
def test_eye():  # mission: I-01
    for n in (0, 1, 3):
        assert torch.eye(n).tolist() == np.eye(n).tolist() and torch.eye(n).dtype is torch.float32
        assert torch.eye(n=n).shape == (n, n)
    with pytest.raises(RuntimeError, match="-1"):
        torch.eye(-1)


def test_eye_with_columns():  # mission: I-02
    assert torch.eye(2, 3).tolist() == np.eye(2, 3).tolist() and torch.eye(3, m=2).tolist() == np.eye(3, 2).tolist()
    out = torch.zeros(0)
    assert torch.eye(2, 3, out=out) is out and out.tolist() == np.eye(2, 3).tolist()
    out = torch.full((2, 2), 7, dtype=torch.int64)
    torch.eye(2, out=out)
    assert out.tolist() == [[1, 0], [0, 1]] and out.dtype is torch.int64
    with pytest.raises(RuntimeError):
        torch.eye(2, -1)


def test_from_numpy():  # mission: I-03
    for a in (np.arange(6.0).reshape(2, 3), np.arange(6.0).reshape(2, 3).T,
              np.arange(12, dtype=np.int32).reshape(3, 4)[1:, ::2], np.array(2.5), np.zeros((0, 2))):
        t = torch.from_numpy(a)
        assert t.shape == a.shape and t.tolist() == a.tolist() and t.numpy().dtype == a.dtype
        if a.size:
            assert t.stride() == tuple(s // a.itemsize for s in a.strides)
            assert t.data_ptr() == a.__array_interface__["data"][0]
    a = np.arange(4.0)
    t = torch.from_numpy(a)
    t[0] = 5
    a[1] = 6
    assert a.tolist() == t.tolist() == [5, 6, 2, 3]
    t.mul_(2)
    assert a.tolist() == [10, 12, 4, 6]
    with pytest.raises(ValueError, match="negative"):
        torch.from_numpy(a[::-1])


def test_from_numpy_is_not_resized():  # mission: I-04, I-05
    a = np.arange(3.0)
    t = torch.from_numpy(a)
    with pytest.raises(RuntimeError, match="not resizable"):
        t.resize_(100)
    with pytest.raises(RuntimeError):
        t.untyped_storage().resize_(800)
    with pytest.raises(RuntimeError):
        torch.ones(5, dtype=torch.float64, out=t[:0])
    assert t.shape == (3,) and t.tolist() == [0, 1, 2] and t.stride() == (1,)
    assert t.data_ptr() == a.__array_interface__["data"][0] and t._version == 0
    t[0] = 9
    assert a[0] == 9
    assert t.resize_(1).tolist() == [9]         # what fits is no resize of the memory


def test_from_numpy_takes_arrays_of_numbers():  # mission: I-06
    for bad in ([1, 2], (1.0,), 5, 1.5, "x", None, torch.ones(1), memoryview(b"ab")):
        with pytest.raises(TypeError, match=r"expected np.ndarray \(got"):
            torch.from_numpy(bad)
    for bad in (np.array(["a"]), np.array([object()]), np.zeros(1, "datetime64[s]"), np.zeros(1, [("a", "f4")]),
                np.array([b"x"])):
        with pytest.raises(TypeError, match="can't convert np.ndarray of type"):
            torch.from_numpy(bad)


def test_linspace():  # mission: I-07
    for start, end, steps in ((0, 1, 5), (-2.5, 4, 7), (3, -3, 4), (1, 1, 3), (0, 1, 1), (0, 1, 0)):
        t = torch.linspace(start, end, steps)
        np.testing.assert_allclose(t.numpy(), np.linspace(start, end, steps), rtol=1e-6)
        assert t.shape == (steps,) and t.dtype is torch.float32
        if steps > 1:
            assert t[0] == start and t[-1] == end
    assert torch.linspace(start=0, end=2, steps=3, dtype=torch.float64).tolist() == [0, 1, 2]
    out = torch.empty(0)
    assert torch.linspace(0, 1, 3, out=out) is out and out.tolist() == [0, 0.5, 1]
    with pytest.raises(RuntimeError, match="non-negative"):
        torch.linspace(0, 1, -1)


def test_linspace_without_steps():  # mission: I-08
    np.testing.assert_allclose(torch.linspace(0, 99).numpy(), np.arange(100.0))
    out = torch.empty(0)
    assert torch.linspace(0, 1, out=out) is out and out.shape == (100,)


def test_logspace():  # mission: I-09
    for start, end, steps in ((0, 3, 4), (-1.5, 2, 6), (2, 0, 3), (1, 2, 1), (0, 1, 0)):
        np.testing.assert_allclose(torch.logspace(start, end, steps).numpy(), np.logspace(start, end, steps), rtol=2e-6)
    out = torch.empty(0, dtype=torch.float64)
    assert torch.logspace(start=0, end=2, steps=3, out=out) is out
    np.testing.assert_allclose(out.numpy(), [1, 10, 100])
    with pytest.raises(RuntimeError, match="non-negative"):
        torch.logspace(0, 1, -1)


def test_logspace_without_steps():  # mission: I-10
    np.testing.assert_allclose(torch.logspace(0, 1).numpy(), np.logspace(0, 1, 100), rtol=2e-6)


def test_logspace_base():  # mission: I-11
    np.testing.assert_allclose(torch.logspace(0, 4, 5, base=2).numpy(), [1, 2, 4, 8, 16], rtol=1e-6)
    np.testing.assert_allclose(torch.logspace(0, 4, 5, 3).numpy(), [1, 3, 9, 27, 81], rtol=1e-6)
    np.testing.assert_allclose(torch.logspace(1, 2, steps=2, base=0.5).numpy(), [0.5, 0.25], rtol=1e-6)


def test_layouts():  # mission: I-14
    x = numbers(2, 3)
    for t in (torch.zeros(2, 3), torch.zeros(2, 3, layout=torch.strided), torch.zeros_like(x, layout=torch.strided)):
        assert t.layout is torch.strided and not t.is_sparse
    for t in (torch.zeros(2, 3, layout=torch.sparse_coo), torch.zeros((2, 3), layout=torch.sparse_coo),
              torch.zeros_like(x, layout=torch.sparse_coo), torch.empty(2, 3, layout=torch.sparse_coo)):
        assert t.layout is torch.sparse_coo and t.is_sparse and t.shape == (2, 3) and t.dtype is torch.float32
        dense = t.to_dense()
        assert dense.layout is torch.strided and not dense.is_sparse and dense.tolist() == [[0] * 3] * 2
    s = x.to_sparse()
    assert s.is_sparse and s.to_dense().tolist() == x.tolist() and s._nnz() == 5
    assert s.indices().tolist() == [[0, 0, 1, 1, 1], [1, 2, 0, 1, 2]] and s.values().tolist() == [1, 2, 3, 4, 5]
    assert torch.zeros(2, layout=torch.sparse_coo, dtype=torch.int64).dtype is torch.int64
    assert torch.zeros(2, layout=torch.sparse_coo, requires_grad=True).requires_grad
    assert str(torch.sparse_coo) == "torch.sparse_coo" and str(torch.strided) == "torch.strided"
    assert isinstance(torch.strided, torch.layout)
    with pytest.raises(RuntimeError, match="negative"):
        torch.zeros(2, -1, layout=torch.sparse_coo)
    with pytest.raises(RuntimeError):
        torch.ones(2, 3, layout=torch.sparse_coo)       # not zeros: nothing to leave out
    with pytest.raises(TypeError, match="layout"):
        torch.zeros(2, layout="sparse_coo")


@pytest.mark.parametrize("make, value", [(torch.ones, 1), (torch.zeros, 0)])
def test_ones_and_zeros(make, value):  # mission: I-12, I-13
    for args in ((2, 3), ((2, 3),), ([2, 3],), (torch.Size([2, 3]),)):
        t = make(*args)
        assert t.shape == (2, 3) and t.dtype is torch.float32 and (t == value).all()
    assert make(()).shape == () and make(0).shape == (0,) and make(size=(2,)).shape == (2,)
    assert make(torch.tensor(2), 3).shape == (2, 3)
    out = torch.empty(0, dtype=torch.int32)
    assert make(2, 2, out=out) is out and out.shape == (2,
                                                        2) and (out == value).all() and out.dtype is torch.int32     # made in the dtype of out
    with pytest.raises(RuntimeError, match="does not match dtype of out"):
        make(2, dtype=torch.float64, out=torch.empty(2))
    t = make(2, dtype=torch.float64, device="cpu", requires_grad=True, layout=torch.strided)
    assert t.dtype is torch.float64 and t.requires_grad and t.is_leaf and t.layout is torch.strided
    for bad in ((-1,), (2, -3), ([2, -3],)):
        with pytest.raises(RuntimeError, match="(?i)negative"):
            make(*bad)
    for bad in (("a",), (1.5,), ([1.0, 2],), (None,), ([None],), ((2, None),), (True,), ([True],), (2, "a"), ([[2]],),
                (torch.tensor(2.0),), ({},)):
        with pytest.raises(TypeError):
            make(*bad)


def test_likes():  # mission: I-15
    for x in (numbers(2, 3), numbers(2, 3, dtype=torch.int16), numbers(2, 3).t(), torch.ones(2, 3, dtype=torch.bool)):
        for like, value in ((torch.zeros_like, 0), (torch.ones_like, 1)):
            t = like(x)
            assert t.shape == x.shape and t.dtype is x.dtype and t.stride() == x.stride() and (t == value).all()
            assert t.data_ptr() != x.data_ptr()
            assert like(x, dtype=torch.float64).dtype is torch.float64
            assert like(input=x, layout=torch.strided, requires_grad=x.is_floating_point()).shape == x.shape
    x = torch.ones(2, requires_grad=True)
    assert not torch.zeros_like(x).requires_grad and torch.zeros_like(x, device="meta").is_meta


def test_full():  # mission: I-16
    for value, dtype in ((3, torch.int64), (1.5, torch.float32), (True, torch.bool), (1 + 2j, torch.complex64)):
        t = torch.full((2, 3), value)
        assert t.dtype is dtype and t.shape == (2, 3) and (t == value).all()
    assert torch.full((2,), 3, dtype=torch.float64).tolist() == [3, 3]
    assert torch.full(size=[2], fill_value=1.0).shape == (2,) and torch.full((), 2).item() == 2
    out = torch.empty(0)
    assert torch.full((2,), 5, out=out) is out and out.tolist() == [5, 5]
    x = numbers(2, 2, dtype=torch.int32)
    assert torch.full_like(x, 7).tolist() == [[7, 7], [7, 7]] and torch.full_like(x, 7.9).tolist() == [[7, 7], [7, 7]]
    assert torch.full_like(x, 7).dtype is torch.int32
    assert torch.full_like(x, 1.5, dtype=torch.float64).tolist() == [[1.5, 1.5], [1.5, 1.5]]


def test_arange():  # mission: I-17
    assert torch.arange(4).tolist() == [0, 1, 2, 3] and torch.arange(1, 4).tolist() == [1, 2, 3]
    assert torch.arange(1, 8, 3).tolist() == [1, 4, 7]
    assert torch.arange(start=1, end=3, step=1).tolist() == [1, 2] and torch.arange(end=2).tolist() == [0, 1]
    assert torch.arange(5, 0, -2).tolist() == [5, 3, 1]
    for args, dtype in (((3,), torch.int64), ((0, 3), torch.int64), ((0, 4, 2), torch.int64), ((3.0,), torch.float32),
                        ((0, 3.0), torch.float32), ((0, 3, 1.5), torch.float32)):
        assert torch.arange(*args).dtype is dtype
    assert torch.arange(3, dtype=torch.float64).tolist() == [0, 1, 2]
    assert torch.arange(0, 1, 0.25).tolist() == [0, 0.25, 0.5, 0.75]
    out = torch.empty(0, dtype=torch.int64)
    assert torch.arange(3, out=out) is out and out.tolist() == [0, 1, 2]
    assert torch.arange(0).shape == (0,) and torch.arange(2, 2).shape == (0,)
    assert torch.arange(2.0, requires_grad=True).requires_grad


def test_the_length_of_arange():  # mission: I-18
    for start, end, step in ((0, 10, 3), (0, 9, 3), (1, 2.5, 0.5), (0, 1, 0.3), (5, -5, -3), (0.5, 5, 1), (-3, 4, 2),
                             (0, 1, 5)):
        assert len(torch.arange(start, end, step)) == -(-(end - start) // step) == len(np.arange(start, end, step))
    for bad in ((0, 5, 0), (0, 5, -1), (5, 0, 1), (0, float("inf")), (0, float("nan"))):
        with pytest.raises(RuntimeError):
            torch.arange(*bad)


def test_range():  # mission: I-20
    for start, end, step in ((1, 4, 1), (0, 1, 0.25), (1, 2.4, 0.5), (5, 1, -2), (3, 3, 1)):
        with pytest.warns(UserWarning, match="arange"):
            t = torch.range(start, end, step)
        assert t.dtype is torch.float32 and len(t) == int((end - start) / step) + 1
        assert t.tolist() == [start + i * step for i in range(len(t))]
    out = torch.empty(0)
    with pytest.warns(UserWarning, match="arange"):
        assert torch.range(1, 3, out=out) is out
    assert out.tolist() == [1, 2, 3]
    with pytest.raises(TypeError):
        torch.range(3)
    for bad in ((0, 5, 0), (0, 5, -1), (5, 0, 1)):
        with pytest.raises(RuntimeError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.range(*bad)


def test_tensor_copies():  # mission: I-21
    for data in ([1, 2], (1.5, 2.5), [[1, 2], [3, 4]], 3, 2.5, True, [], [[]], [np.float32(1), 2],
                 [torch.tensor(1), torch.tensor(2)], range(3), [np.arange(2), np.arange(2)]):
        plain = [d.item() if isinstance(d, torch.Tensor) else d for d in data] if isinstance(data, list) else data
        assert torch.tensor(data).tolist() == np.array(plain).tolist()
    a = np.arange(3.0)
    t = torch.tensor(a)
    a[0] = 9
    assert t.tolist() == [0, 1, 2]
    x = torch.ones(2)
    with pytest.warns(UserWarning, match="clone"):
        y = torch.tensor(x)
    y[0] = 5
    assert x.tolist() == [1, 1]
    for bad in ([[1, 2], [3]], [[1], [2, 3]], [[[1], [2, 3]]]):
        with pytest.raises(ValueError, match="expected sequence of length"):
            torch.tensor(bad)
    with pytest.raises(ValueError, match="expected sequence of length 2 at dim 1"):
        torch.tensor([[1, 2], [3]])
    for bad, error in (("text", TypeError), (b"text", TypeError), (np.array(["a"]), TypeError), (["a"], ValueError),
                       ([["a"]], ValueError), (None, RuntimeError), ([None], RuntimeError), (object(), RuntimeError),
                       ({1: 2}, RuntimeError), ({1, 2}, RuntimeError), ([{}], RuntimeError), ([1, [2]], TypeError),
                       ([[1], 2], TypeError)):      # as PyTorch 2.13
        with pytest.raises(error):
            torch.tensor(bad)
    with pytest.raises(TypeError):
        torch.tensor()
    with pytest.raises(TypeError):
        torch.tensor(1, 2)


def test_the_dtype_of_data(default_dtype):  # mission: I-22
    for data, dtype in ((1, "int64"), ([1, 2], "int64"), (1.0, "float32"), ([1, 2.5], "float32"), (True, "bool"),
                        ([True, 2], "int64"), ([True, 2.0], "float32"), (1j, "complex64"), ([1, 1j], "complex64"),
                        ([], "float32"), (np.int32(3), "int32"), (np.zeros(2, "int16"), "int16"),
                        (np.zeros(2, "float64"), "float64"), (np.zeros(2, bool), "bool"), (np.float64(1), "float64"),
                        (np.zeros(1, "complex128"), "complex128")):
        assert torch.tensor(data).dtype is getattr(torch, dtype), data
    torch.set_default_dtype(torch.float64)
    assert torch.tensor(1.0).dtype is torch.float64 and torch.tensor(1j).dtype is torch.complex128
    assert torch.tensor(1).dtype is torch.int64
    for dtype in (*INT, *FLOAT, torch.bool, torch.complex64, torch.bfloat16):
        assert torch.tensor([0, 1], dtype=dtype).dtype is dtype
    assert torch.tensor([1.9, -1.9], dtype=torch.int32).tolist() == [1, -1]
    assert torch.tensor([0, 2], dtype=torch.bool).tolist() == [False, True]
    with pytest.raises(RuntimeError, match="overflow"):
        torch.tensor([300], dtype=torch.uint8)
    with pytest.raises(TypeError):
        torch.tensor([1], dtype="float32")


def test_flags_of_tensor():  # mission: I-23
    t = torch.tensor([1.0], device="cpu", requires_grad=True)
    assert t.device.type == "cpu" and t.requires_grad and t.is_leaf and not torch.tensor([1.0]).requires_grad
    assert not torch.tensor([1.0], pin_memory=False).is_pinned()
    assert torch.tensor([1.0], device="meta").is_meta
    assert torch.tensor([1.0], device=torch.device("cpu", 0)).device.type == "cpu"
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError, match="accelerator"):
            torch.tensor([1.0], pin_memory=True)
        with pytest.raises((RuntimeError, AssertionError), match="(?i)cuda"):
            torch.tensor([1.0], device="cuda")


A, B = torch.tensor([[4.0, 1.0], [2.0, 3.0]]), torch.tensor([[1.0, 2.0], [3.0, 5.0]])
I2 = torch.tensor([[1, 0], [0, 1]])
OUT = {     # one result each
    "add": lambda **k: torch.add(A, B, **k), "sub": lambda **k: torch.sub(A, B, **k),
       "exp": lambda **k: torch.exp(A, **k), "pow": lambda **k: torch.pow(A, 2, **k),
       "clamp": lambda **k: torch.clamp(A, 2, 3, **k),
    "sum": lambda **k: torch.sum(A, 0, **k), "mean": lambda **k: torch.mean(A, 1, **k),
       "prod": lambda **k: torch.prod(A, 1, **k), "cumsum": lambda **k: torch.cumsum(A, 0, **k),
       "std": lambda **k: torch.std(A, 0, **k),
    "norm": lambda **k: torch.norm(A, 2, 1, **k), "mm": lambda **k: torch.mm(A, B, **k),
       "mv": lambda **k: torch.mv(A, B[0], **k), "matmul": lambda **k: torch.matmul(A, B, **k),
       "addmm": lambda **k: torch.addmm(A, A, B, **k),
    "bmm": lambda **k: torch.bmm(A[None], B[None], **k), "dot": lambda **k: torch.dot(A[0], B[0], **k),
       "cat": lambda **k: torch.cat([A, B], **k), "stack": lambda **k: torch.stack([A, B], **k),
    "gather": lambda **k: torch.gather(A, 1, I2, **k), "index_select": lambda **k: torch.index_select(A, 0, I2[0], **k),
       "masked_select": lambda **k: torch.masked_select(A, A > 1, **k),
    "tril": lambda **k: torch.tril(A, **k), "diag": lambda **k: torch.diag(A, **k),
       "cross": lambda **k: torch.cross(torch.ones(2, 3), torch.eye(2, 3), 1, **k),
       "inverse": lambda **k: torch.inverse(A, **k),
    "zeros": lambda **k: torch.zeros(2, 2, **k), "arange": lambda **k: torch.arange(4.0, **k),
       "linspace": lambda **k: torch.linspace(0, 1, 4, **k), "eye": lambda **k: torch.eye(2, **k),
       "full": lambda **k: torch.full((2, 2), 1.5, **k),
    "addcmul": lambda **k: torch.addcmul(A, A, B, **k), "lerp": lambda **k: torch.lerp(A, B, 0.5, **k),
       "atan2": lambda **k: torch.atan2(A, B, **k), "ger": lambda **k: torch.ger(A[0], B[0], **k),
       "renorm": lambda **k: torch.renorm(A, 2, 0, 1, **k),
    "cumprod": lambda **k: torch.cumprod(A, 0, **k), "take": lambda **k: torch.take(A, I2, **k),
       "polar": lambda **k: torch.polar(A, B, **k), "var": lambda **k: torch.var(A, 0, **k),
       "logsumexp": lambda **k: torch.logsumexp(A, 0, **k),
}
RANDOM = {
    "rand": lambda **k: torch.rand(2, 2, **k), "randn": lambda **k: torch.randn(2, 2, **k),
    "randint": lambda **k: torch.randint(3, (4,), **k), "randperm": lambda **k: torch.randperm(4, **k),
    "bernoulli": lambda **k: torch.bernoulli(A / 4, **k), "multinomial": lambda **k: torch.multinomial(A, 2, **k),
    "normal": lambda **k: torch.normal(A, B, **k), "normal1": lambda **k: torch.normal(0.0, B, **k),
    "normal2": lambda **k: torch.normal(A, 1.0, **k), "normal3": lambda **k: torch.normal(0.0, 1.0, (2, 2), **k),
}
SEVERAL = {
    "max": lambda **k: torch.max(A, 0, **k), "min": lambda **k: torch.min(A, 1, **k),
    "sort": lambda **k: torch.sort(A, 1, **k), "topk": lambda **k: torch.topk(A, 1, **k),
    "kthvalue": lambda **k: torch.kthvalue(A, 1, **k),
    "median": lambda **k: torch.median(A, 1, **k), "mode": lambda **k: torch.mode(A, 1, **k),
    "qr": lambda **k: torch.linalg.qr(A, **k), "svd": lambda **k: torch.linalg.svd(A, **k),
    "eigh": lambda **k: torch.linalg.eigh(A, **k),
}


def same(call):
    """The call with the same random numbers each time."""
    torch.manual_seed(0)
    return call()


@pytest.mark.parametrize("name", [*OUT, *RANDOM])
def test_out(name):  # mission: I-24
    call = {**OUT, **RANDOM}[name]
    want = same(call)
    outs = [torch.empty(0, dtype=want.dtype), torch.full_like(want, 1)]
    if name in OUT:     # into a transposed tensor PyTorch 2.13 draws in the order of memory
        outs.append(torch.full(want.shape[::-1], 1, dtype=want.dtype).permute([*range(want.dim())][::-1]))
    for out in outs:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert same(lambda o=out: call(out=o)) is out
        assert out.dtype is want.dtype and out.shape == want.shape and out.tolist() == want.tolist()
    out = torch.ones(3, 1, 2, dtype=want.dtype)
    with pytest.warns(UserWarning,
                      match="resized"):        # PyTorch 2.13 says nothing where a constructor or a sampler resizes
        assert same(lambda: call(out=out)) is out
    assert out.tolist() == want.tolist()
    made_in_its_dtype = ("sum", "prod", "cumsum", "cumprod", "zeros", "arange", "linspace", "eye", "full")
    if (want.is_floating_point() or want.is_complex()) and name not in made_in_its_dtype:
        with pytest.raises((RuntimeError, TypeError)):       # a result that the dtype cannot hold (cat: TypeError)
            call(out=torch.empty(want.shape, dtype=torch.int64))
    with pytest.raises(TypeError):
        call(out=[1.0])


@pytest.mark.parametrize("call", SEVERAL.values(), ids=SEVERAL)
def test_several_results(call):  # mission: I-24
    want = call()
    outs = tuple(torch.empty(0, dtype=w.dtype) for w in want)
    got = call(out=outs)
    assert isinstance(got, tuple) and all(g is o for g, o in zip(got, outs, strict=True))
    assert [o.tolist() for o in outs] == [w.tolist() for w in want]
    assert [tuple(w.shape) for w in want] == [tuple(o.shape) for o in outs]
    with pytest.raises((TypeError, RuntimeError)):
        call(out=torch.empty(0))
    with pytest.raises(RuntimeError):
        call(out=tuple(torch.empty(0, dtype=torch.int64 if w.is_floating_point() else torch.float32) for w in want))


# --- J: indexing, slicing, joining, mutating ------------------------------------------------------------------------
def test_cat():  # mission: J-01
    a, b = numbers(2, 2), numbers(2, 3) + 10
    assert torch.cat([a, b], 1).tolist() == [[0, 1, 10, 11, 12], [2, 3, 13, 14, 15]] == torch.cat((a, b),
                                                                                                  -1).tolist() == torch.cat(tensors=[a, b], dim=1).tolist()
    assert torch.cat([a, a]).shape == (4, 2) and torch.cat([a]).tolist() == a.tolist()
    assert torch.concat([a, a]).shape == torch.concatenate([a, a]).shape == (4, 2)
    out = torch.empty(0)
    assert torch.cat([a, b], 1, out=out) is out and out.shape == (2, 5)
    for others, dtype in (((torch.int64, torch.float32), torch.float32), ((torch.int32, torch.int64), torch.int64),
                          ((torch.uint8, torch.int8), torch.int16), ((torch.float16, torch.float64), torch.float64),
                          ((torch.bool, torch.int32), torch.int32)):
        assert torch.cat([torch.ones(1, dtype=d) for d in others]).dtype is dtype
    assert torch.cat([torch.empty(0), a]).tolist() == a.tolist()        # the old empty tensor fits everywhere


@pytest.mark.parametrize("f", [
    lambda x: torch.cat([x, x]), lambda x: torch.cat([x, x], -1), lambda x: torch.cat([x, x.int()]),
    lambda x: torch.cat([x]),
    lambda x: torch.stack([x, x]), lambda x: torch.stack([x, x], -1), lambda x: x.roll(1, 0), lambda x: x.sum(0),
    lambda x: x.sum(-1),
    lambda x: x.mean(1), lambda x: (x + 1).sum(-1), lambda x: (x * x).mean(0, True), lambda x: x.cumsum(0),
    lambda x: x.cumprod(-1),
    lambda x: x.softmax(0), lambda x: x.log_softmax(-1), lambda x: x.double().softmax(1), lambda x: x.max(0)[0],
    lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]), lambda x: torch.hstack([x, x])])
def test_results_are_contiguous(f):  # mission: J-01, T-05
    """Of transposed operands too, as PyTorch's: programs call view() on them."""
    for x in (numbers(2, 3).t(), numbers(2, 3, 4).permute(2, 0, 1), numbers(2, 3, 4).transpose(0, 2)):
        y = f(x)
        assert y.is_contiguous() and y.view(-1).tolist() == f(x.contiguous()).view(-1).tolist()


def test_cat_keeps_channels_last():  # mission: J-01
    x = numbers(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    for y in (torch.cat([x, x]), torch.cat([x, x], 1), torch.cat([x, x], 3)):
        assert y.is_contiguous(memory_format=torch.channels_last)
    y = torch.cat([x, x.contiguous()])
    assert y.tolist() == torch.cat([x.contiguous()] * 2).tolist()


def test_cat_is_the_inverse_of_split_and_chunk():  # mission: J-02
    x = torch.tensor(np.random.default_rng(0).standard_normal((5, 4)), requires_grad=True)
    for dim in (0, 1, -1):
        for parts in (x.chunk(2, dim), x.split(2, dim), x.split([1, x.shape[dim] - 1], dim), x.chunk(9, dim)):
            assert torch.equal(torch.cat(parts, dim), x)
    a, b = torch.ones(2, 1, requires_grad=True), torch.ones(2, 2, requires_grad=True)
    (torch.cat([a, b, a], 1) * numbers(2, 4)).sum().backward()
    assert a.grad.tolist() == [[0 + 3], [4 + 7]] and b.grad.tolist() == [[1, 2], [5, 6]]


def test_cat_refuses():  # mission: J-03
    a = torch.ones(2, 2)
    with pytest.raises(RuntimeError, match="(?i)sizes of tensors must match except in dimension 0"):
        torch.cat([a, torch.ones(2, 3)], 0)
    with pytest.raises(RuntimeError):
        torch.cat([a, torch.ones(2)])
    for dim in (2, -3):
        with pytest.raises(IndexError, match="out of range"):
            torch.cat([a, a], dim)
    with pytest.raises((RuntimeError, ValueError), match="non-empty"):
        torch.cat([])
    for bad in (a, [a, 1], 5, None, [[1.0]]):
        with pytest.raises(TypeError):
            torch.cat(bad)
    with pytest.raises(RuntimeError):
        torch.cat([torch.tensor(1.0)])


def test_old_keywords_of_cat():  # mission: J-04
    a = numbers(2, 2)
    assert torch.cat(inputs=[a, a], dimension=1).tolist() == torch.cat([a, a],
                                                                       dimension=1).tolist() == torch.cat([a, a],
                                                                                                          1).tolist()
    assert torch.cat(inputs=(a, a)).shape == (4, 2)
    out = torch.empty(0)
    assert torch.cat(inputs=[a, a], dimension=0, out=out) is out


def test_chunk():  # mission: J-05
    for n, chunks, sizes in ((6, 3, [2, 2, 2]), (5, 3, [2, 2, 1]), (5, 4, [2, 2, 1]), (3, 9, [1, 1, 1]), (4, 1, [4]),
                             (7, 3, [3, 3, 1])):
        parts = torch.chunk(numbers(n, 2), chunks)
        assert isinstance(parts, tuple) and [p.shape[0] for p in parts] == sizes
        assert [p.shape[1] for p in numbers(2, n).chunk(chunks,
                                                        1)] == sizes == [p.shape[1] for p in torch.chunk(input=numbers(2, n), chunks=chunks, dim=-1)]
    x = numbers(4)
    parts = x.chunk(2)
    parts[1][0] = 20
    assert x[2] == 20 and parts[0].data_ptr() == x.data_ptr() and parts[1]._is_view()
    for bad in (0, -1):
        with pytest.raises(RuntimeError, match="chunks"):
            x.chunk(bad)
    with pytest.raises(IndexError):
        x.chunk(2, 1)
    with pytest.raises(RuntimeError):
        torch.tensor(1.0).chunk(1)


def test_split():  # mission: J-06
    for n, size, sizes in ((6, 2, [2, 2, 2]), (5, 2, [2, 2, 1]), (3, 5, [3]), (4, 4, [4])):
        parts = torch.split(numbers(n, 2), size)
        assert isinstance(parts, tuple)
        assert [p.shape[0] for p in parts] == sizes == [p.shape[1] for p in numbers(2, n).split(size, dim=1)]
    x = numbers(4)
    x.split(2)[1][0] = 20
    assert x[2] == 20
    with pytest.raises(RuntimeError):
        x.split(-1)
    with pytest.raises(IndexError):
        x.split(2, 1)
    with pytest.raises(RuntimeError):
        x.split(0)


def test_split_by_sizes():  # mission: J-07
    x = numbers(6, 2)
    assert [p.tolist() for p in x.split([1, 0, 5])] == [x[:1].tolist(), [], x[1:].tolist()]
    assert [p.shape[1] for p in torch.split(x, (1, 1), 1)] == [1, 1]
    for bad in ([1, 2], [3, 4], [], [7, -1]):
        with pytest.raises(RuntimeError):
            x.split(bad)
    with pytest.raises(RuntimeError, match="6"):
        x.split([1, 2])


def test_old_keywords():  # mission: J-08
    x = numbers(4, 2)
    assert [p.tolist() for p in torch.chunk(tensor=x, chunks=2)] == [p.tolist() for p in x.chunk(2)]
    assert len(torch.chunk(tensor=x, chunks=2, dim=1)) == 2
    assert [p.tolist() for p in torch.split(tensor=x, split_size=3)] == [p.tolist() for p in x.split(3)]
    assert len(torch.split(x, split_size=2)) == 2 == len(x.split(split_size=2))
    assert torch.stack(sequence=[x, x]).shape == (2, 4, 2) == torch.stack(sequence=[x, x], dim=0).shape
    assert [p.tolist() for p in torch.unbind(tensor=x, dim=1)] == [p.tolist() for p in x.unbind(1)]


def test_gather():  # mission: J-09
    x = torch.tensor(np.arange(6.0).reshape(2, 3), requires_grad=True)
    for dim, index in ((1, [[0, 0], [2, 1]]), (0, [[1, 0, 1]]), (-1, [[2], [0]]), (0, [[0, 0]]), (1, [[1]])):
        index = np.array(index)
        got = torch.gather(x, dim, torch.tensor(index))
        d = dim % 2
        want = [[x.detach().numpy()[(index[i, j], j) if d == 0 else (i,
                                                                     index[i,
                                                                           j])] for j in range(index.shape[1])] for i in range(index.shape[0])]
        assert got.tolist() == want == x.gather(dim=dim, index=torch.tensor(index)).tolist()
    torch.gather(x, 1, torch.tensor([[0, 0, 0], [2, 1, 2]])).sum().backward()
    assert x.grad.tolist() == [[3, 0, 0], [0, 1, 2]]
    out = torch.empty(0, dtype=torch.float64)
    assert torch.gather(x.detach(), 0, torch.tensor([[1]]), out=out) is out and out.tolist() == [[3]]
    assert torch.gather(input=x, dim=0, index=torch.zeros(0, 3, dtype=torch.int64)).shape == (0, 3)


def test_gather_refuses():  # mission: J-10
    x = numbers(2, 3)
    for bad in ([[5]], [[-1]], [[3]]):
        with pytest.raises((RuntimeError, IndexError), match="out of bounds"):
            torch.gather(x, 1, torch.tensor(bad))
    for dtype in (torch.float32, torch.int16, torch.uint8, torch.bool):
        with pytest.raises(RuntimeError, match="(?i)int64"):
            torch.gather(x, 1, torch.zeros(1, 1, dtype=dtype))
    for shape in ((1,), (1, 1, 1)):
        with pytest.raises(RuntimeError, match="dimensions"):
            torch.gather(x, 1, torch.zeros(shape, dtype=torch.int64))
    assert torch.gather(x, 1, torch.zeros(1, 1, dtype=torch.int32)).tolist() == [[0]]
    with pytest.raises(IndexError):
        torch.gather(x, 2, torch.tensor([[0]]))
    with pytest.raises(RuntimeError):
        torch.gather(x, 1, torch.zeros(3, 1, dtype=torch.int64))        # more rows than there are


def test_index_select():  # mission: J-11
    x = numbers(3, 4)
    index = torch.tensor([2, 0, 2])
    for dim in (0, 1, -1):
        got = torch.index_select(x, dim, index)
        assert got.tolist() == np.take(x.numpy(), index.numpy(), dim).tolist() == x.index_select(dim=dim,
                                                                                                 index=index).tolist()
        assert got.dim() == 2 and not got._is_view()
    got = torch.index_select(x, 0, torch.tensor([1]))
    got[0, 0] = 90
    assert x[1, 0] == 4
    out = torch.empty(0)
    assert torch.index_select(x, 0, index, out=out) is out and out.shape == (3, 4)
    assert torch.index_select(x, 0, torch.tensor(1)).shape == (1, 4)
    assert torch.index_select(x, 1, torch.tensor([], dtype=torch.int64)).shape == (3, 0)
    assert torch.index_select(x, 0, index.int()).tolist() == torch.index_select(input=x, dim=0, index=index).tolist()
    y = torch.ones(3, 2, requires_grad=True)
    y.index_select(0, index).sum().backward()
    assert y.grad.tolist() == [[1, 1], [0, 0], [2, 2]]


def test_index_select_refuses():  # mission: J-12
    x = numbers(3, 4)
    for bad in ([3], [-1], [0, 9]):
        with pytest.raises((RuntimeError, IndexError), match="out of (range|bounds)"):
            torch.index_select(x, 0, torch.tensor(bad))
    for dtype in (torch.float32, torch.int16, torch.bool):
        with pytest.raises(RuntimeError, match="(?i)int"):
            torch.index_select(x, 0, torch.zeros(1, dtype=dtype))
    with pytest.raises(IndexError, match="vector"):
        torch.index_select(x, 0, torch.tensor([[0]]))
    with pytest.raises(IndexError, match="out of range"):
        torch.index_select(x, 2, torch.tensor([0]))
    with pytest.raises(TypeError):
        torch.index_select(x, 0, [0])


def test_masked_select():  # mission: J-13
    x = numbers(2, 3)
    got = torch.masked_select(x, x > 1.5)
    assert got.tolist() == [2, 3, 4, 5] and got.dim() == 1 and not got._is_view()
    assert x.masked_select(x > 9).shape == (0,)
    got[0] = 50
    assert x[0, 2] == 2
    assert torch.masked_select(x, torch.tensor([True, False, True])).tolist() == [0, 2, 3, 5]
    assert torch.masked_select(x, torch.tensor([[False], [True]])).tolist() == [3, 4, 5]
    assert torch.masked_select(torch.tensor([1.0, 2.0]), torch.tensor([[True, False], [True, True]])).tolist() == [1, 1,
                                                                                                                   2]
    assert x.masked_select(torch.tensor(True)).shape == (6,)
    out = torch.empty(0)
    assert torch.masked_select(input=x, mask=x > 4, out=out) is out and out.tolist() == [5]
    with pytest.raises(RuntimeError):
        torch.masked_select(x, torch.tensor([True, False]))
    with pytest.raises(RuntimeError, match="(?i)bool"):
        torch.masked_select(x, torch.ones(2, 3))
    y = torch.ones(3, requires_grad=True)
    (y.masked_select(torch.tensor([True, False, True])) * torch.tensor([2.0, 3.0])).sum().backward()
    assert y.grad.tolist() == [2, 0, 3]


def test_masked_select_with_bytes():  # mission: J-14
    x = numbers(2, 3)
    assert torch.masked_select(x, torch.ByteTensor([[1, 0, 1], [0, 0, 1]])).tolist() == [0, 2,
                                                                                         5] == x.masked_select(torch.ByteTensor([[1, 0, 1], [0, 0, 1]])).tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert x[torch.ByteTensor([[1, 0, 1], [0, 0, 1]])].tolist() == [0, 2, 5]


def test_nonzero():  # mission: J-16
    for data in ([0, 2, 0, 3], [[0.5, 0], [0, -1]], [[[1, 0], [0, 1]], [[0, 0], [1, 0]]], [[False, True]], [0, 0], 3,
                 0):
        t = torch.tensor(data)
        got = torch.nonzero(t)
        want = np.stack(np.nonzero(np.atleast_1d(t.numpy())), 1)[:, :t.dim()] if t.dim() else np.zeros((int(t != 0), 0))
        assert got.tolist() == want.tolist() and got.shape == (int((t != 0).sum()), t.dim())
        assert got.dtype is torch.int64 and t.nonzero().tolist() == got.tolist()
    out = torch.empty(0, dtype=torch.int64)
    assert torch.nonzero(torch.tensor([1, 0, 1]), out=out) is out and out.tolist() == [[0], [2]]
    rows, columns = torch.nonzero(torch.eye(2), as_tuple=True)
    assert rows.tolist() == columns.tolist() == [0, 1]


def test_squeeze():  # mission: J-17
    x = torch.zeros(1, 2, 1, 3, 1)
    y = torch.squeeze(x)
    assert y.shape == (2, 3) and x.squeeze().shape == (2, 3) and torch.zeros(1, 1).squeeze().shape == ()
    assert torch.zeros(1).squeeze().dim() == 0 and torch.zeros(2, 3).squeeze().shape == (2, 3)
    y[1, 2] = 5
    assert x[0, 1, 0, 2, 0] == 5 and y.data_ptr() == x.data_ptr() and torch.squeeze(input=x).shape == (2, 3)
    z = torch.zeros(1, 2)
    assert z.squeeze_() is z and z.shape == (2,)


def test_squeeze_one_dimension():  # mission: J-18
    x = torch.zeros(1, 2, 1)
    for dim, shape in ((0, (2, 1)), (1, (1, 2, 1)), (2, (1, 2)), (-1, (1, 2)), (-3, (2, 1)), ((0, 2), (2,)),
                       ((0, 1), (2, 1)), ((), (1, 2, 1))):
        assert torch.squeeze(x, dim).shape == x.squeeze(dim=dim).shape == shape
    for bad in (3, -4):
        with pytest.raises(IndexError, match="out of range"):
            x.squeeze(bad)
    with pytest.raises(RuntimeError, match="multiple times"):
        x.squeeze((0, 0))


def test_stack():  # mission: J-20
    a, b = numbers(2, 3), numbers(2, 3) + 10
    for dim in (0, 1, 2, -1, -3):
        assert torch.stack([a, b], dim).tolist() == np.stack([a.numpy(), b.numpy()],
                                                             dim).tolist() == torch.stack(tensors=(a, b),
                                                                                          dim=dim).tolist()
    out = torch.empty(0)
    assert torch.stack([a, b], out=out) is out and out.shape == (2, 2, 3)
    with pytest.raises(RuntimeError, match="equal size"):
        torch.stack([a, torch.ones(3)])
    with pytest.raises((RuntimeError, ValueError), match="non-empty"):
        torch.stack([])
    with pytest.raises(IndexError):
        torch.stack([a, b], 3)
    x = torch.ones(2, requires_grad=True)
    (torch.stack([x, x], 1) * numbers(2, 2)).sum().backward()
    assert x.grad.tolist() == [1, 5]


def test_t():  # mission: J-21
    m = numbers(2, 3)
    assert torch.t(m).tolist() == m.t().tolist() == torch.transpose(m, 0, 1).tolist() == m.numpy().T.tolist()
    assert torch.t(input=m).data_ptr() == m.data_ptr()
    assert torch.t(torch.ones(2)).shape == (2,) and torch.t(torch.tensor(1.0)).shape == ()
    with pytest.raises(RuntimeError, match="<= 2 dimensions"):
        torch.t(torch.zeros(1, 2, 3))
    m.t()[0, 1] = 30
    assert m[1, 0] == 30
    assert m.t_() is m and m.shape == (3, 2)


def test_transpose():  # mission: J-23
    x = numbers(2, 3, 4)
    for a, b in ((0, 1), (0, 2), (1, 2), (-1, 0), (-2, -1), (1, 1)):
        assert torch.transpose(x, a, b).tolist() == np.swapaxes(x.numpy(), a, b).tolist() == x.transpose(dim0=a,
                                                                                                         dim1=b).tolist()
    y = torch.transpose(input=x, dim0=0, dim1=2)
    y[3, 2, 1] = -1
    assert x[1, 2, 3] == -1 and y.data_ptr() == x.data_ptr()
    for bad in ((0, 3), (-4, 0)):
        with pytest.raises(IndexError, match="out of range"):
            x.transpose(*bad)
    assert x.transpose_(0, 1) is x and x.shape == (3, 2, 4)


def test_unbind():  # mission: J-24
    x = numbers(2, 3)
    for dim in (0, 1, -1):
        parts = torch.unbind(x, dim)
        assert isinstance(parts, tuple)
        assert [p.tolist() for p in parts] == [x.select(dim, i).tolist() for i in range(x.shape[dim])]
        assert all(p.dim() == 1 and p._is_view() for p in parts)
    x.unbind(dim=1)[2][0] = 20
    assert x[0, 2] == 20 and len(torch.unbind(input=x)) == 2
    with pytest.raises(IndexError):
        x.unbind(2)
    with pytest.raises((RuntimeError, IndexError)):
        torch.tensor(1.0).unbind()


def test_unsqueeze():  # mission: J-25
    x = numbers(2, 3)
    for dim, shape in ((0, (1, 2, 3)), (1, (2, 1, 3)), (2, (2, 3, 1))):
        y = torch.unsqueeze(x, dim)
        assert y.shape == shape == x.unsqueeze(dim=dim).shape and y.data_ptr() == x.data_ptr() and y._is_view()
    torch.unsqueeze(input=x, dim=0)[0, 1, 1] = 40
    assert x[1, 1] == 40 and torch.tensor(5.0).unsqueeze(0).tolist() == [5] and x.unsqueeze_(0) is x
    assert x.shape == (1, 2, 3)


def test_unsqueeze_from_the_end():  # mission: J-26
    x = numbers(2, 3)
    for dim in (-1, -2, -3):
        assert x.unsqueeze(dim).shape == x.unsqueeze(dim + x.dim() + 1).shape
    for bad in (3, -4):
        with pytest.raises(IndexError, match=r"out of range \(expected to be in range of \[-3, 2\]"):
            x.unsqueeze(bad)


@pytest.mark.parametrize("call",
                         [lambda x, **k: torch.squeeze(x, **k), lambda x, **k: torch.squeeze(x, 0, **k), lambda x,
                          **k: torch.squeeze(x, dim=1, **k), lambda x, **k: torch.t(x[0], **k),
                                  lambda x, **k: torch.transpose(x, 0, 2, **k), lambda x,
                          **k: torch.unsqueeze(x, 1, **k), lambda x, **k: torch.unsqueeze(input=x, dim=-1, **k)])
def test_out_becomes_the_view(call):  # mission: J-27
    x = numbers(1, 3, 2)
    want = call(x)
    for out in (torch.empty(0), torch.full((7,), 5.0), torch.zeros(2, 2)[0]):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert call(x, out=out) is out
        assert out.shape == want.shape and out.stride() == want.stride() and out.tolist() == want.tolist()
        assert out.data_ptr() == want.data_ptr()
        out.view(-1) if out.is_contiguous() else out
        out[(0,) * out.dim()] = 70.0
        assert x[0, 0, 0] == 70 and out.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        before = x._version
        out.add_(1)
        assert x[0, 0, 0] == 71 and x._version == before + 1 == out._version      # one counter, as of any view
        x[0, 0, 0] = 0
    with pytest.raises(RuntimeError, match="automatic differentiation"):
        call(torch.ones(1, 3, 2, requires_grad=True), out=torch.empty(0))
    with pytest.raises(RuntimeError, match="automatic differentiation"):
        call(x, out=torch.empty(2, requires_grad=True))
    with pytest.raises(RuntimeError, match="dtype"):
        call(x, out=torch.empty(0, dtype=torch.int64))
    with pytest.raises(TypeError, match="out"):
        call(x, out=5)
    assert call(x, out=None).shape == want.shape


def test_reshape():  # mission: J-28
    x = numbers(2, 6)
    for shape in ((3, 4), (12,), (2, -1), (-1,), (1, 12, 1), (2, 2, 3)):
        y = torch.reshape(x, shape)
        assert y.tolist() == x.numpy().reshape(shape).tolist() == x.reshape(*shape).tolist()
        assert y.data_ptr() == x.data_ptr()
    y = x.t().reshape(12)
    assert y.data_ptr() != x.data_ptr() and y.tolist() == x.numpy().T.reshape(12).tolist()
    assert torch.reshape(input=x, shape=[4, 3]).shape == (4, 3)
    x.reshape(12)[0] = 50
    assert x[0, 0] == 50
    assert torch.tensor(3.0).reshape(1).shape == (1,) and torch.zeros(1).reshape(()).shape == ()
    assert torch.zeros(0, 3).reshape(3, 0).shape == (3, 0)
    for bad in ((5, 2), (-1, 5), (7,), (-1, -1), (-2, 6)):
        with pytest.raises(RuntimeError):
            x.reshape(bad)
    with pytest.raises(RuntimeError, match=r"shape '\[5, 2\]' is invalid for input of size 12"):
        x.reshape(5, 2)


def test_one_hot_by_scatter():  # mission: J-29
    x = torch.zeros(4, 5)
    index = torch.tensor([[1], [0], [4], [1]])
    assert x.scatter_(1, index, 1.0) is x and x.tolist() == np.eye(5)[[1, 0, 4, 1]].tolist() and x._version == 1
    assert torch.zeros(4, 5).scatter_(dim=1, index=index, value=1).tolist() == x.tolist()
    assert torch.zeros(4, 5).scatter_(-1, index, 1).tolist() == x.tolist()
    assert torch.zeros(2, 3).scatter_(1, torch.tensor([1, 2]).unsqueeze(1), 1.0).tolist() == [[0, 1, 0], [0, 0, 1]]
    assert torch.zeros(2, 3, dtype=torch.int64).scatter_(1, torch.tensor([[0], [2]]), 7).tolist() == [[7, 0, 0],
                                                                                                      [0, 0, 7]]


def test_scatter_from_a_tensor():  # mission: J-30
    x = torch.zeros(3, 3)
    source = numbers(2, 3) + 1
    index = torch.tensor([[0, 1, 2], [2, 0, 0]])
    y = x.scatter(0, index, source)
    assert y.tolist() == [[1, 5, 6], [0, 2, 0], [4, 0, 3]] and not x.any()
    assert torch.scatter(x, 0, index, source).tolist() == y.tolist()
    assert x.scatter_(0, index, source) is x and x.tolist() == y.tolist()
    assert torch.zeros(3).scatter_(0, torch.tensor([2, 0]), torch.tensor([5.0, 6.0, 7.0])).tolist() == [6, 0,
                                                                                                        5]       # of a larger source only what the index covers
    a, b = torch.ones(3, requires_grad=True), torch.ones(2, requires_grad=True)
    (a.scatter(0, torch.tensor([2, 0]), b) * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert a.grad.tolist() == [0, 2, 0] and b.grad.tolist() == [3, 1]


def test_scatter_refuses():  # mission: J-31
    x = torch.zeros(2, 3)
    for bad in ([[3]], [[-1]]):
        with pytest.raises((RuntimeError, IndexError), match="out of bounds"):
            x.scatter_(1, torch.tensor(bad), 1.0)
    for dtype in (torch.float32, torch.int16, torch.bool):
        with pytest.raises(RuntimeError, match="(?i)int64"):
            x.scatter_(1, torch.zeros(1, 1, dtype=dtype), 1.0)
    with pytest.raises(RuntimeError, match="dimensions"):
        x.scatter_(1, torch.tensor([0]), 1.0)
    with pytest.raises(RuntimeError, match="dtype"):
        x.scatter_(1, torch.tensor([[0]]), torch.ones(1, 1, dtype=torch.float64))
    with pytest.raises(RuntimeError):
        x.scatter_(1, torch.tensor([[0, 1]]), torch.ones(1, 1))     # the source has too few
    with pytest.raises(IndexError):
        x.scatter_(2, torch.tensor([[0]]), 1.0)
    assert not x.any() and x._version == 0
    x.scatter_(1, torch.zeros(1, 1, dtype=torch.int32), 1.0)
    assert x[0, 0] == 1


def test_shuffling():  # mission: J-32
    torch.manual_seed(1)
    x = numbers(20, 2)
    p = torch.randperm(20)
    y = x[p]
    assert y.tolist() == [x[i].tolist() for i in p.tolist()] and sorted(y.tolist()) == x.tolist()
    assert y.tolist() != x.tolist() and not y._is_view()
    assert y[torch.argsort(p)].tolist() == x.tolist()


# --- K: random sampling ---------------------------------------------------------------------------------------------
def test_manual_seed():  # mission: K-01
    g = torch.manual_seed(7)
    assert isinstance(g, torch._C.Generator) and isinstance(g, torch.Generator)
    assert torch._C.Generator is torch.Generator
    first = [torch.rand(3).tolist(), torch.randn(2).tolist(), torch.randperm(5).tolist(),
             torch.randint(9, (2,)).tolist()]
    torch.manual_seed(7)
    assert first == [torch.rand(3).tolist(), torch.randn(2).tolist(), torch.randperm(5).tolist(),
                     torch.randint(9, (2,)).tolist()]
    torch.manual_seed(8)
    assert torch.rand(3).tolist() != first[0]
    torch.manual_seed(-1)
    assert torch.initial_seed() == 2**64 - 1
    own = torch.Generator().manual_seed(7)
    assert torch.rand(3, generator=own).tolist() == first[0]
    with pytest.raises((ValueError, RuntimeError, OverflowError)):
        torch.manual_seed(2**64)
    with pytest.raises((TypeError, ValueError)):
        torch.manual_seed("x")


def test_the_stream_is_pytorchs():  # mission: K-01
    torch.manual_seed(0)    # recorded with PyTorch 2.13
    np.testing.assert_allclose(torch.rand(3).numpy(), [0.49625659, 0.76822180, 0.08847743], rtol=1e-6)
    torch.manual_seed(0)
    np.testing.assert_allclose(torch.randn(3).numpy(), [1.54099607, -0.29342890, -2.17878938], rtol=1e-6)
    torch.manual_seed(0)
    assert torch.randperm(5).tolist() == [4, 0, 1, 3, 2] and torch.randint(100, (4,)).tolist() == [63, 79, 27, 3]


def test_initial_seed():  # mission: K-02
    torch.manual_seed(123)
    torch.rand(3)
    assert torch.initial_seed() == 123 and type(torch.initial_seed()) is int
    assert torch.default_generator.initial_seed() == 123
    s = torch.seed()
    assert type(s) is int and torch.initial_seed() == s


def test_rng_state():  # mission: K-03
    torch.manual_seed(0)
    s = torch.get_rng_state()
    assert isinstance(s, torch.ByteTensor) and s.dim() == 1
    kept = s.clone()
    torch.rand(5)
    assert torch.equal(s, kept) and not torch.equal(torch.get_rng_state(), kept)       # a snapshot
    assert torch.equal(torch.random.get_rng_state(), torch.get_rng_state())


def test_set_rng_state():  # mission: K-04
    torch.manual_seed(0)
    torch.randn(3)          # one of a pair is left over
    s = torch.get_rng_state()
    draws = lambda: [torch.randn(1).item(), torch.rand(2).tolist(), torch.randn(17).tolist(),
                     torch.randint(5, (3,)).tolist(), torch.bernoulli(torch.full((4,), 0.5)).tolist()]  # noqa: E731
    first = draws()
    torch.set_rng_state(s)
    assert draws() == first
    torch.set_rng_state(new_state=s)
    assert draws() == first
    for bad in (torch.zeros(5), torch.zeros(3, dtype=torch.uint8), torch.zeros(5056, dtype=torch.int32), [1, 2], None):
        with pytest.raises((TypeError, RuntimeError, AttributeError)):
            torch.set_rng_state(bad)
    assert torch.rand(1).shape == (1,)
    with torch.random.fork_rng():
        torch.rand(100)
    torch.set_rng_state(s)
    with torch.random.fork_rng():
        torch.rand(100)
    assert draws() == first


def test_default_generator():  # mission: K-05
    g = torch.default_generator
    assert torch.manual_seed(3) is g and torch.random.default_generator is g and g.initial_seed() == 3
    a = torch.rand(2)
    g.manual_seed(3)
    assert torch.rand(2).tolist() == a.tolist() == torch.rand(2, generator=torch.Generator().manual_seed(3)).tolist()
    assert torch.equal(g.get_state(), torch.get_rng_state())


def test_bernoulli():  # mission: K-06
    torch.manual_seed(0)
    for dtype in (torch.float32, torch.float64):
        p = torch.tensor([0.0, 0.2, 0.5, 1.0], dtype=dtype).expand(5000, 4)
        b = torch.bernoulli(p)
        assert b.shape == p.shape and b.dtype is dtype and ((b == 0) | (b == 1)).all()
        np.testing.assert_allclose(b.mean(0).numpy(), [0, 0.2, 0.5, 1], atol=0.03)
        assert b[:, 0].sum() == 0 and b[:, 3].sum() == 5000
    out = torch.empty(0)
    assert torch.bernoulli(input=torch.ones(2), out=out) is out and out.tolist() == [1, 1]
    x = torch.zeros(4)
    assert x.bernoulli_(1.0) is x and x.tolist() == [1] * 4 and torch.ones(3).bernoulli().tolist() == [1, 1, 1]
    assert torch.zeros(3).bernoulli(p=1.0).tolist() == [1, 1, 1]


def test_bernoulli_refuses():  # mission: K-07
    for bad in ([1.5], [-0.1], [0.5, 2.0]):
        with pytest.raises(RuntimeError, match=r"p_in >= 0|\[0, 1\]"):
            torch.bernoulli(torch.tensor(bad))
    for p in (1.5, -0.5):
        with pytest.raises(RuntimeError):
            torch.zeros(2).bernoulli_(p)


def test_multinomial():  # mission: K-08
    torch.manual_seed(0)
    w = torch.tensor([[0.0, 3.0, 1.0, 4.0], [5.0, 0.0, 0.0, 1.0]])
    for _ in range(20):
        m = torch.multinomial(w, 2)
        assert m.dtype is torch.int64 and m.shape == (2, 2) and 0 not in m[0].tolist() and len(set(m[0].tolist())) == 2
        assert set(m[1].tolist()) == {0, 3}
    v = torch.multinomial(w[0], 3)
    assert v.shape == (3,) and set(v.tolist()) == {1, 2, 3}
    out = torch.empty(0, dtype=torch.int64)
    assert torch.multinomial(input=w, num_samples=1, replacement=False, out=out) is out and out.shape == (2, 1)
    first = torch.stack([torch.multinomial(w[0], 1) for _ in range(4000)])
    np.testing.assert_allclose([(first == k).float().mean().item() for k in range(4)], [0, 3 / 8, 1 / 8, 1 / 2],
                               atol=0.04)
    assert w.multinomial(1).shape == (2, 1)


def test_multinomial_with_replacement():  # mission: K-09
    torch.manual_seed(0)
    w = torch.tensor([0.0, 1.0, 3.0])
    m = torch.multinomial(w, 8000, True)
    np.testing.assert_allclose([(m == k).float().mean().item() for k in range(3)], [0, 0.25, 0.75], atol=0.03)
    assert torch.multinomial(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), 4, replacement=True).tolist() == [[1] * 4, [0] * 4]


def test_multinomial_refuses():  # mission: K-10
    for bad, n, replacement in (([-1.0, 2.0], 1, False), ([-1.0, 2.0], 1, True), ([0.0, 0.0], 1, False),
                                ([0.0, 0.0], 1, True), ([1.0, 1.0], 3, False), ([[[1.0]]], 1, True), ([1.0], 0, False),
                                ([1.0, float("nan")], 1, True),
                                ([1.0, float("inf")], 1, True), ([1, 2], 1, True)):
        with pytest.raises(RuntimeError):
            torch.multinomial(torch.tensor(bad), n, replacement)
    with pytest.raises(RuntimeError, match="without replacement"):
        torch.multinomial(torch.ones(2), 3)


def test_normal_of_tensors():  # mission: K-11
    torch.manual_seed(0)
    mean, std = torch.tensor([0.0, 5.0, -3.0]).expand(4000, 3), torch.tensor([1.0, 0.1, 2.0]).expand(4000, 3)
    x = torch.normal(mean, std)
    assert x.shape == (4000, 3)
    np.testing.assert_allclose(x.mean(0).numpy(), [0, 5, -3], atol=0.12)
    np.testing.assert_allclose(x.std(0).numpy(), [1, 0.1, 2], rtol=0.06)
    out = torch.empty(0)
    assert torch.normal(mean, std, out=out) is out and torch.normal(mean=mean, std=std).shape == (4000, 3)
    assert torch.normal(torch.zeros(3), torch.zeros(3)).tolist() == [0, 0, 0]
    assert torch.normal(torch.zeros(2, 1), torch.ones(3)).shape == (2, 3)
    with pytest.raises(RuntimeError):
        torch.normal(torch.zeros(3), torch.tensor([1.0, -1.0, 1.0]))


def test_normal_of_a_tensor_and_a_number():  # mission: K-12
    torch.manual_seed(0)
    x = torch.normal(torch.tensor([1.0, 100.0]).expand(4000, 2), 2.0)
    np.testing.assert_allclose(x.mean(0).numpy(), [1, 100], atol=0.15)
    np.testing.assert_allclose(x.std(0).numpy(), [2, 2], rtol=0.06)
    x = torch.normal(3.0, torch.tensor([1.0, 0.01]).expand(4000, 2))
    np.testing.assert_allclose(x.mean(0).numpy(), [3, 3], atol=0.1)
    np.testing.assert_allclose(x.std(0).numpy(), [1, 0.01], rtol=0.06)
    x = torch.normal(torch.full((4000,), 5.0))
    np.testing.assert_allclose([x.mean(), x.std()], [5, 1], atol=0.1)
    assert torch.normal(mean=2.0, std=torch.zeros(2)).tolist() == [2, 2]
    assert torch.normal(torch.ones(2), std=0.0).tolist() == [1, 1]
    for bad in (lambda: torch.normal(torch.zeros(2), -1.0), lambda: torch.normal(0.0, torch.tensor([-1.0]))):
        with pytest.raises(RuntimeError, match="std"):
            bad()


def test_normal_of_numbers():  # mission: K-13
    torch.manual_seed(0)
    x = torch.normal(2.0, 3.0, (2, 4000))
    assert x.shape == (2, 4000) and x.dtype is torch.float32
    np.testing.assert_allclose([x.mean(), x.std()], [2, 3], atol=0.15)
    assert torch.normal(mean=0.0, std=1.0, size=(2, 2)).shape == (2, 2) and torch.normal(0, 1, [3]).shape == (3,)
    assert torch.normal(0.0, 1.0, (2,), dtype=torch.float64).dtype is torch.float64
    with pytest.raises(TypeError):
        torch.normal(1.0, 2.0)
    with pytest.raises(RuntimeError, match="std"):
        torch.normal(0.0, -1.0, (2,))


def test_old_keyword_of_normal():  # mission: K-14
    m = torch.tensor([1.0, 2.0])
    assert torch.normal(means=m, std=torch.zeros(2)).tolist() == [1, 2]
    assert torch.normal(means=m, std=0.0).tolist() == [1, 2] and torch.normal(means=m).shape == (2,)
    assert torch.normal(means=3.0, std=torch.zeros(2)).tolist() == [3, 3]


def test_rand():  # mission: K-16
    torch.manual_seed(0)
    x = torch.rand(100, 100)
    assert x.dtype is torch.float32 and x.min() >= 0 and x.max() < 1
    assert np.histogram(x.numpy().ravel(), 10, (0, 1))[0].min() > 850
    for args in ((2, 3), ((2, 3),), ([2, 3],), (torch.Size([2, 3]),)):
        assert torch.rand(*args).shape == (2, 3)
    assert torch.rand(2, dtype=torch.float64, requires_grad=True).requires_grad and torch.rand(()).shape == ()
    assert torch.rand(2, generator=torch.Generator()).shape == (2,)
    assert torch.rand(3, dtype=torch.float16).max() < 1
    with pytest.raises(RuntimeError):
        torch.rand(-1)
    with pytest.raises(RuntimeError):
        torch.rand(2, dtype=torch.int64)


def test_randn():  # mission: K-17
    torch.manual_seed(0)
    x = torch.randn(100, 100, dtype=torch.float64)
    np.testing.assert_allclose([x.mean(), x.var(), (x**3).mean(), (x**4).mean()], [0, 1, 0, 3], atol=0.15)
    for args in ((2, 3), ((2, 3),), ([2, 3],)):
        assert torch.randn(*args).shape == (2, 3)
    assert torch.randn(2, requires_grad=True).requires_grad
    with pytest.raises(RuntimeError):
        torch.randn(2, dtype=torch.int64)


def test_random_likes():  # mission: K-18
    for like in (torch.rand_like, torch.randn_like):
        for x in (torch.zeros(2, 3, dtype=torch.float64), torch.zeros(2, 3).t()):
            y = like(x)
            assert y.shape == x.shape and y.dtype is x.dtype and not torch.equal(y, x)
            assert like(input=x, dtype=torch.float32).dtype is torch.float32
        with pytest.raises(RuntimeError):
            like(torch.zeros(2, dtype=torch.int64))
        assert like(torch.zeros(2, dtype=torch.int64), dtype=torch.float32).dtype is torch.float32
        assert like(torch.zeros(2), requires_grad=True).requires_grad
    assert torch.rand_like(torch.zeros(1000)).max() < 1 and torch.rand_like(torch.zeros(1000)).min() >= 0


def test_randint():  # mission: K-19
    torch.manual_seed(0)
    x = torch.randint(-2, 3, (5000,))
    assert x.dtype is torch.int64 and sorted(set(x.tolist())) == [-2, -1, 0, 1, 2]
    assert np.bincount(x.numpy() + 2).min() > 850
    assert set(torch.randint(2, (100,)).tolist()) == {0, 1}
    assert torch.randint(low=0, high=2, size=(2, 3)).shape == (2, 3) and torch.randint(high=5, size=(2,)).shape == (2,)
    assert torch.randint(0, 5, (2,), dtype=torch.float32).dtype is torch.float32
    assert torch.randint(0, 5, (2,), dtype=torch.int8).dtype is torch.int8
    for base in (torch.zeros(50, dtype=torch.float64), torch.zeros(50, dtype=torch.int32)):
        y = torch.randint_like(base, 3, 5)
        assert y.dtype is base.dtype and set(y.tolist()) == {3, 4}
        assert set(torch.randint_like(base, 2).tolist()) == {0, 1}
        assert torch.randint_like(input=base, low=0, high=2).shape == (50,)
        assert torch.randint_like(base, 3, 5, dtype=torch.int64).dtype is torch.int64
    for bad in (lambda: torch.randint(3, 3, (1,)), lambda: torch.randint(0, (1,)), lambda: torch.randint(5, 2, (1,)),
                lambda: torch.randint_like(torch.zeros(1), 4, 4)):
        with pytest.raises(RuntimeError, match="from.*to"):
            bad()


def test_randperm():  # mission: K-20
    torch.manual_seed(0)
    for n in (0, 1, 2, 10, 1000):
        p = torch.randperm(n)
        assert p.dtype is torch.int64 and sorted(p.tolist()) == list(range(n))
    firsts = torch.stack([torch.randperm(4) for _ in range(2000)])
    assert all(abs((firsts[:, i] == j).float().mean().item() - 0.25) < 0.05 for i in range(4) for j in range(4))
    out = torch.empty(0, dtype=torch.int64)
    assert torch.randperm(5, out=out) is out and sorted(out.tolist()) == [0, 1, 2, 3, 4]
    assert torch.randperm(n=3, dtype=torch.int32).dtype is torch.int32
    with pytest.raises(RuntimeError, match="negative"):
        torch.randperm(-1)


# --- what is refused --------------------------------------------------------------------------------------------------
REFUSED = {     # what PyTorch 2.13 raises, by type
    # `A` is [[0, 1, 2], [3, 4, 5]] and `I` is [[0, 1], [1, 2]]
    IndexError: [
        'torch.cat([A, A], dim=2)', 'A.chunk(2, 2)', 'A.split(2, 5)', 'torch.stack([A, A], 5)', 'torch.gather(A, 3, I)',
        'torch.index_select(A, 0, torch.tensor([0, 2]))', 'torch.index_select(A, 2, torch.tensor([0]))',
        'torch.index_select(A, 0, I)', 'torch.index_select(A, 0, torch.tensor([-1]))', 'torch.squeeze(A, 5)',
        'torch.unsqueeze(A, 4)', 'torch.transpose(A, 0, 2)', 'torch.unbind(A, 2)', 'torch.unbind(torch.tensor(2.))',
        'A[torch.tensor([0, 5])]', 'A[5]', 'A[0, 0, 0]', 'A[0.5]', 'A[:, -4]', 'A[torch.tensor([True, False, True])]',
        'A.size(5)', 'A.stride(5)', 'A.squeeze_(5)', 'torch.ones(2).index_fill_(0, torch.tensor([5]), 1)',
    ],
    TypeError: [
        'torch.cat([A], "x")', 'torch.cat([A, A], 1.5)', 'A.chunk(2.5)', 'A.split("a")', 'A.split(1.0)',
        'torch.stack(A)', 'torch.stack([A, 1])', 'torch.index_select(A, 0, [0])', 'torch.masked_select(A, [True])',
        'torch.nonzero(5)', 'torch.squeeze(A, "x")', 'torch.squeeze([1])', 'torch.unsqueeze(A)', 'torch.t(5)',
        'torch.transpose(A, 0)', 'A.reshape("a")', 'A.reshape(2, "a")', 'A.reshape(2., 3)', 'A.view(2, "a")',
        'A.view(2., 3)', 'A.scatter(1, I, "x")', 'A["x"]', 'torch.eye(2.5)', 'torch.eye("a")', 'torch.eye(2, 2, 2)',
        'torch.eye()', 'torch.linspace(0, 1, 2.5)', 'torch.linspace("a", 1, 3)', 'torch.full((2, ), "a")',
        'torch.full(2, 1.)', 'torch.full((2, ), None)', 'torch.full_like(A, "a")', 'torch.zeros_like(5)',
        'torch.zeros_like(A, dtype="float32")', 'torch.zeros(2, dtype=5)', 'torch.zeros(2, layout=5)',
        'torch.zeros(2, 3, out=5)', 'torch.tensor(1., requires_grad=1).requires_grad',
        'torch.tensor([1j], dtype=torch.float32)', 'torch.bernoulli(5)', 'torch.multinomial(A, 1.5)',
        'torch.normal("a", 1.)', 'torch.normal(1., 1., 5)', 'torch.normal(1., 1.)', 'torch.rand("a")',
        'torch.randint(5)', 'torch.randint(5, 2)', 'torch.randint(0.5, 3, (2, ))', 'torch.randint_like(5, 5)',
        'torch.randperm(2.5)', 'torch.randperm("a")', 'torch.rand_like(5)', 'torch.set_rng_state(5)',
        'torch.set_rng_state(torch.ones(3))', 'torch.numel(5)', 'torch.is_tensor()', 'torch.from_numpy(5)', 'A.type(5)',
        'A.add_("a")', 'A.add("a")', 'torch.add(A, A, alpha="a")', 'torch.add(A, A, nope=1)', 'torch.add(A)',
        'len(torch.tensor(1))', 'iter(torch.tensor(1))', '[1, 2, 3][torch.tensor(1.)]',
        'torch.set_default_dtype(torch.int32)', 'torch.set_default_dtype(5)', 'torch.autograd.backward(5)',
        'A.requires_grad_("x")', 'torch.autograd.Variable(5)',
    ],
    RuntimeError: [
        'A.chunk(-3)', 'A.split([1, 1, 1])', 'A.split(-2)', 'A.split([2, -1, 1], 1)', 'torch.gather(A, 0, I)',
        'torch.gather(A, 0, I.float())', 'torch.gather(A, 0, I[0])',
        'torch.gather(A, 1, torch.tensor([[0], [0], [0]]))', 'torch.gather(A, 0, -I)',
        'torch.index_select(A, 0, torch.tensor([0.]))', 'torch.masked_select(A, A)', 'A.reshape(4, 2)',
        'A.reshape(-1, -1)', 'A.reshape(2, 0)', 'A.view(7)', 'A.view(())', 'A.scatter(1, I, A.double())',
        'A.scatter(1, I+5, 1.)', 'A.scatter(0, I.float(), 1.)', 'A.scatter(1, I[0], 1.)',
        'A.scatter(1, I, torch.ones(1, 1))', 'A.scatter(1, torch.zeros(3, 1, dtype=torch.int64), 1.)',
        'A.scatter(1, I, 1j)', 'torch.linspace(0, 1, steps=-1)', 'torch.full((-1, ), 1)', 'torch.zeros(2, device=5)',
        'torch.zeros(2, device="nope")', 'torch.arange(0, 1, 1e-20)', 'torch.arange(0, -1)', 'torch.arange(1, 2, 0)',
        "torch.arange(1, float('nan'))", 'torch.arange(-2, dtype=torch.int32)', 'torch.range(5, 1)',
        'torch.tensor([1, None])', 'torch.tensor([300], dtype=torch.int8)', 'torch.tensor(1, device="nope")',
        'torch.tensor(1, requires_grad=True)', 'torch.tensor(iter([1]))', 'torch.tensor((x for x in [1]))',
        'torch.bernoulli(A)', 'torch.multinomial(A, 0)', 'torch.multinomial(A, -1)', 'torch.multinomial(A, 4)',
        'torch.multinomial(torch.ones(2, 2, 2), 1)', 'torch.multinomial(torch.tensor(1.), 1)',
        'torch.multinomial(A.int(), 1)', 'torch.multinomial(torch.ones(0), 1)', 'torch.normal(A, -A)',
        'torch.normal(A, torch.ones(4))', 'torch.normal(A, -1.)', 'torch.normal(0., -1., (2, ))', 'torch.rand(-2)',
        'torch.randint(0, 0, (2, ))', 'torch.randint(3, 1, (2, ))', 'torch.randint(0, 3, (-2, ))',
        'torch.randint(0, 300, (2, ), dtype=torch.uint8)', 'torch.randint_like(A, 5, 5)', 'torch.randperm(-1)',
        'torch.set_rng_state(torch.ones(3, dtype=torch.uint8))', 'A.item()', 'torch.ones(0).item()', 'A.to("nope")',
        'A.to(5)', 'A.add_(torch.ones(3, 3))', 'A.int().add_(1.5)', 'A.int().div_(2)', 'A.bool().add_(1)',
        'torch.add(A.int(), A.int(), alpha=1.5)', 'torch.add(A, A, out=A.int())', 'A.expand(3, 3)',
        'torch.ones(2, device="meta").item()', 'bool(torch.ones(0))',
        'torch.zeros(2, requires_grad=True, dtype=torch.int64)', 'torch.autograd.backward([A])',
        'torch.autograd.grad(A, A)',
    ],
    ValueError: [
        'A[::-1]', 'torch.tensor(2**63)', 'torch.tensor([2**63])', 'torch.tensor([torch.ones(2), torch.ones(2)])',
        'torch.manual_seed(2**64)', 'torch.manual_seed("a")', 'A.type("nope")', 'float(A)',
    ],
    NotImplementedError: [
        'torch.arange(3, dtype=torch.bool)', 'torch.bernoulli(torch.tensor([1, 0]))', 'torch.normal(A.int(), 1.)',
        'torch.rand(2, dtype=torch.int32)', 'torch.rand_like(A.int())', 'torch.ones(2, device="meta").tolist()',
    ],
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("error, call", [(e, c) for e, calls in REFUSED.items() for c in calls])
def test_refused(error,
                 call):  # mission: H-04, I-13, I-17, I-21, J-03, J-07, J-10, J-12, J-28, J-31, K-10, K-13, K-19, T-03, T-04
    a, i = numbers(2, 3), torch.tensor([[0, 1], [1, 2]])
    before, dtype = torch.get_rng_state(), torch.get_default_dtype()
    with pytest.raises(error) as e:
        eval(call, {"torch": torch, "A": a, "I": i})
    assert e.type is error and str(e.value)
    assert a.tolist() == [[0, 1, 2], [3, 4, 5]] and a.shape == (2, 3) and torch.get_default_dtype() is dtype
    torch.set_rng_state(before)


# --- T: conventions -------------------------------------------------------------------------------------------------
PAIRS = ["abs", "acos", "add", "addcdiv", "addcmul", "asin", "atan", "atan2", "ceil", "clamp", "cos", "cosh", "div",
         "erf", "erfinv", "exp", "expm1", "floor", "fmod", "frac", "lerp", "log", "log1p", "log2", "log10", "mul",
         "neg",
         "pow", "reciprocal", "remainder", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "sub", "tan",
         "tanh", "trunc", "eq", "ne", "lt", "le", "gt", "ge", "tril", "triu", "cumsum", "cumprod", "renorm", "addmm",
         "baddbmm", "addbmm", "addmv", "addr", "masked_fill", "index_fill", "index_add", "index_copy", "scatter",
         "scatter_add", "clamp_min", "clamp_max", "logical_not", "square", "digamma", "lgamma", "hypot", "copysign",
         "nan_to_num",
         "squeeze", "unsqueeze", "transpose", "t"]
X = torch.tensor([[0.5, 0.25], [0.75, 0.125]])
Y = torch.tensor([[0.25, 0.5], [0.75, 0.5]])
IX, ROWS = torch.tensor([1, 0]), torch.tensor([[1, 0], [0, 1]])
ARGUMENTS = {"add": (Y,), "addcdiv": (Y, Y), "addcmul": (Y, Y), "atan2": (Y,), "clamp": (0.2, 0.6), "div": (Y,),
             "fmod": (0.3,), "lerp": (Y, 0.5), "mul": (Y,), "pow": (2,), "remainder": (0.3,), "sub": (Y,), "eq": (Y,),
             "ne": (Y,), "lt": (Y,),
             "le": (Y,), "gt": (Y,), "ge": (Y,), "cumsum": (0,), "cumprod": (1,), "renorm": (2, 0, 0.5),
             "addmm": (Y, Y), "baddbmm": (Y[None], Y[None]), "addbmm": (Y[None], Y[None]), "addmv": (Y, Y[0]),
             "addr": (Y[0], Y[1]),
             "masked_fill": (Y > 0.3, 9.0), "index_fill": (0, IX[:1], 5.0), "index_add": (0, IX, Y),
             "index_copy": (0, IX, Y), "scatter": (1, ROWS, 3.0), "scatter_add": (1, ROWS, Y), "clamp_min": (0.3,),
             "clamp_max": (0.3,), "hypot": (Y,),
             "copysign": (Y,), "unsqueeze": (0,), "transpose": (0, 1), "masked_scatter": (Y > 0.3, Y)}


def operand(name):
    return (X[None] if name == "baddbmm" else X[0] if name == "addmv" else X).clone()


@pytest.mark.parametrize("name", PAIRS)
def test_underscore(name):  # mission: T-01, T-02, T-06
    args = ARGUMENTS.get(name, ())
    x = operand(name)
    keep, given = x.clone(), copy.deepcopy(args)
    want = getattr(torch, name)(x, *args)
    assert torch.equal(x,
                       keep) and x._version == 0 and want is not x                     # T-02: the source is not written to
    method = getattr(x, name)(*args)
    assert torch.equal(method,
                       want) and method.dtype is want.dtype                       # T-06: function and method agree
    assert torch.equal(x, keep)
    if name not in ("squeeze", "unsqueeze", "transpose", "t"):
        assert want.data_ptr() != x.data_ptr()
    pointer = x.data_ptr()
    r = getattr(x, name + "_")(*args)
    assert r is x and x.data_ptr() == pointer and x._version == 1 and x.dtype is keep.dtype
    assert x.tolist() == want.to(x.dtype).tolist()      # T-01
    for a, b in zip(args, given, strict=True):
        assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def test_other_in_place_operations():  # mission: T-01
    for write in (lambda x: x.zero_(), lambda x: x.fill_(2), lambda x: x.copy_(Y), lambda x: x.uniform_(),
                  lambda x: x.normal_(), lambda x: x.random_(), lambda x: x.exponential_(), lambda x: x.geometric_(0.5),
                  lambda x: x.cauchy_(), lambda x: x.log_normal_(), lambda x: x.bernoulli_(0.5),
                  lambda x: x.masked_scatter_(Y > 0.3, Y), lambda x: x.put_(IX, Y[0]),
                  lambda x: x.index_put_((IX,), Y)):
        x = X.clone()
        p = x.data_ptr()
        assert write(x) is x and x.data_ptr() == p and x._version == 1 and x.shape == (2, 2)


@pytest.mark.parametrize("rows, columns", [(3, 3), (2, 4), (4, 2), (7, 3), (8, 2), (1, 3), (0, 3)])
@pytest.mark.parametrize("wrap", [False, True])
def test_fill_diagonal(rows, columns, wrap):  # mission: T-01
    want = np.zeros((rows, columns))
    if rows:
        np.fill_diagonal(want, 5, wrap=wrap)
    x = torch.zeros(rows, columns)
    assert x.fill_diagonal_(5, wrap=wrap) is x and x.tolist() == want.tolist()
    t = torch.zeros(columns, rows).t()
    assert t.fill_diagonal_(5, wrap).tolist() == want.tolist()


def test_fill_diagonal_of_others():  # mission: T-01
    assert torch.zeros(2, 2, 2).fill_diagonal_(1).nonzero().tolist() == [[0, 0, 0], [1, 1, 1]]
    x = torch.ones(2, 2, requires_grad=True)
    y = (x * 3).fill_diagonal_(7)
    y.sum().backward()
    assert y.tolist() == [[7, 3], [3, 7]] and x.grad.tolist() == [[0, 3], [3, 0]]
    for bad in (torch.zeros(3), torch.zeros(2, 3, 3)):
        with pytest.raises(RuntimeError, match="dimensions"):
            bad.fill_diagonal_(1)


def test_pythons_functions_of_elements():  # mission: T-01
    x = numbers(2, 2)
    assert x.apply_(lambda v: v * v) is x and x.tolist() == [[0, 1], [4, 9]]
    assert x.t().map_(torch.tensor([1.0, 10.0]), lambda a, b: a * b).tolist() == [[0, 40], [1, 90]] == x.t().tolist()
    assert torch.ones(2).map2_(torch.ones(2), numbers(2), lambda a, b, c: a + b * c).tolist() == [1, 2]
    assert numbers(3, dtype=torch.int64).apply_(lambda v: v / 2).tolist() == [0, 0,
                                                                              1] and torch.zeros(0).apply_(abs).shape == (0,)
    for bad, error in ((lambda: x.apply_(5), TypeError), (lambda: x.apply_(str), TypeError),
                       (lambda: x.apply_(lambda v: v / 0), ZeroDivisionError),
                       (lambda: x.map_(5, max), TypeError), (lambda: x.map_(x.double(), max), TypeError),
                       (lambda: x.map_(torch.ones(3), max), RuntimeError),
                       (lambda: torch.ones(2, requires_grad=True).apply_(abs), RuntimeError)):
        with pytest.raises(error):
            bad()
    assert x.tolist() == [[0, 1], [40, 90]]


def test_in_place_results_must_fit():  # mission: T-03
    for call in (lambda: torch.ones(2).add_(torch.ones(3, 2)), lambda: torch.ones(1).mul_(torch.ones(2)),
                 lambda: torch.ones(2, 2).addmm_(torch.ones(2, 3), torch.ones(3, 3))):
        with pytest.raises(RuntimeError, match="(?i)shape|size|expand"):
            call()
    for call in (lambda: torch.ones(2, dtype=torch.int64).add_(1.5), lambda: torch.ones(2, dtype=torch.int64).div_(2),
                 lambda: torch.ones(2, dtype=torch.int32).exp_(),
                 lambda: torch.ones(2, dtype=torch.int64).mul_(torch.ones(2)),
                 lambda: torch.ones(2, dtype=torch.bool).add_(1), lambda: torch.ones(2).mul_(1j),
                 lambda: torch.ones(2, dtype=torch.int64).sqrt_()):
        with pytest.raises(RuntimeError, match="can't be cast to the desired output type"):
            call()
    x = torch.ones(2)
    with pytest.raises(RuntimeError):
        x.add_(torch.ones(3))
    assert x.tolist() == [1, 1] and x._version == 0
    assert torch.ones(2, dtype=torch.float32).add_(torch.ones(2, dtype=torch.float64)).dtype is torch.float32
    assert torch.ones(3, 2).add_(torch.ones(2)).shape == (3, 2)
    i = torch.ones(2, dtype=torch.int64)
    with pytest.raises(RuntimeError):
        i += 0.5


def test_item():  # mission: T-04
    for data, kind in ((3.5, float), (3, int), (True, bool), ([[2.0]], float), (1j, complex)):
        t = torch.tensor(data)
        assert type(t.item()) is kind and t.item() == np.array(data).item()
    for dtype in (*INT, *FLOAT, torch.bfloat16):
        assert torch.ones(1, dtype=dtype).item() == 1
    for bad in (torch.ones(2), torch.ones(0), torch.ones(1, 2)):
        with pytest.raises(RuntimeError, match="elements"):
            bad.item()
    assert torch.ones(1, requires_grad=True).item() == 1.0


def test_contiguous():  # mission: T-05
    x = numbers(2, 3)
    assert x.contiguous() is x and x[1].contiguous().data_ptr() == x[1].data_ptr()
    for view in (x.t(), x[:, 1], x.expand(2, 2, 3), x[:, ::2], x.unsqueeze(0).transpose(0, 2)):
        y = view.contiguous()
        assert not view.is_contiguous() and y.is_contiguous() and y.tolist() == view.tolist()
        assert y.data_ptr() != x.data_ptr() and y.untyped_storage().nbytes() == 4 * y.numel()
    assert x.t().contiguous().stride() == (2, 1) and x.t().t().is_contiguous()
    z = torch.ones(2, 3, requires_grad=True)
    assert gradcheck(lambda t: t.t().contiguous(), (z.detach().double().requires_grad_(),))


def test_every_function_of_a_tensor_is_a_method():  # mission: T-06
    x = torch.tensor(np.random.default_rng(0).random((3, 3)) + 0.5)
    i = torch.tensor([0, 2])
    for name, args in (("sum", (0,)), ("mean", (1,)), ("prod", ()), ("std", (0,)), ("var", ()), ("norm", (2,)),
                       ("dist", (x * 2,)), ("max", ()), ("min", (1,)), ("median", (0,)), ("mode", (1,)),
                       ("sort", (1, True)), ("topk", (2,)),
                       ("kthvalue", (2,)), ("mm", (x,)), ("mv", (x[0],)), ("matmul", (x,)), ("ger", None),
                       ("inverse", ()), ("trace", ()), ("diag", ()), ("tril", ()), ("cross", (x, 1)),
                       ("gather", (0, torch.tensor([[0, 1, 2]]))),
                       ("index_select", (1, i)), ("masked_select", (x > 1,)), ("nonzero", ()), ("squeeze", ()),
                       ("split", (2,)), ("chunk", (2,)), ("unbind", ()), ("reshape", ((9,),)), ("take", (i,)),
                       ("equal", (x,)), ("argmax", (1,)),
                       ("argsort", (0,)), ("cumsum", (0,)), ("histc", (4, 0, 2)), ("renorm", (2, 0, 1)),
                       ("flip", ((0,),)), ("roll", (1, 0)), ("allclose", (x,)), ("isnan", ()), ("logsumexp", (1,)),
                       ("softmax", (1,)), ("numel", ()),
                       ("bincount", None), ("det", ()), ("slogdet", ()), ("cholesky", None), ("movedim", (0, 1)),
                       ("repeat_interleave", (2, 0)), ("unique", ()), ("where", None), ("permute", ((1, 0),))):
        if args is None:
            continue
        f, m = getattr(torch, name)(x, *args), getattr(x, name)(*args)
        flat = lambda r: [v.tolist() if isinstance(v,
                                                   torch.Tensor) else v for v in (r if isinstance(r, tuple) else (r,
                                                                                                                  ))]  # noqa: E731
        assert flat(f) == flat(m) and type(f) is type(m), name
