"""Memory shared with other libraries by DLPack: objects and capsules, dtypes that NumPy lacks, lifetimes, refusals."""

import gc

import numpy as np
import pytest

import rushlight as torch
from rushlight.utils import dlpack

NAMES = ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int64", "uint16", "bool", "complex64", "float8_e4m3fn", "float8_e5m2"]


class Foreign:
    """Another library's array: it only hands out capsules."""

    def __init__(self, t, versions=True):
        self.t, self.versions = t, versions

    def __dlpack__(self, **kw):
        if kw and not self.versions:
            raise TypeError("__dlpack__() takes no keywords")
        return self.t.__dlpack__(**kw)

    def __dlpack_device__(self):
        return (1, 0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("versions", [True, False])
def test_memory_is_shared(name, versions):
    x = torch.arange(6).view(2, 3).to(getattr(torch, name)).t()
    for y in (torch.from_dlpack(Foreign(x, versions)), torch.from_dlpack(torch.to_dlpack(x)), dlpack.from_dlpack(dlpack.to_dlpack(x)),
              torch.from_dlpack(x)):
        assert y.dtype is x.dtype and y.shape == x.shape and y.stride() == x.stride() and y.data_ptr() == x.data_ptr()
        y[0, 0] = 1
        assert x[0, 0] == 1


def test_numpy_both_ways():
    x = torch.zeros(2, 3)
    a = np.from_dlpack(x)
    a[0, 0] = 5
    assert x[0, 0] == 5
    b = np.ones(3)
    torch.from_dlpack(b).add_(1)
    assert (b == 2).all()


def test_memory_outlives_its_owner():
    x = torch.arange(1000.0)
    y = torch.from_dlpack(Foreign(x))
    del x
    gc.collect()
    assert y.sum() == 499500
    capsule = torch.to_dlpack(torch.ones(3).bfloat16())     # never taken
    del capsule
    gc.collect()


def test_refusals():
    with pytest.raises(BufferError, match="require gradient"):
        torch.to_dlpack(torch.ones(2, requires_grad=True))
    with pytest.raises(BufferError, match="meta"):
        torch.ones(2, device="meta").__dlpack__()
    capsule = torch.to_dlpack(torch.ones(3))
    torch.from_dlpack(capsule)
    with pytest.raises(RuntimeError, match="not consumed yet"):
        torch.from_dlpack(capsule)
    with pytest.raises(TypeError, match="list"):
        torch.from_dlpack([1.0])

    class Elsewhere(Foreign):
        def __dlpack_device__(self):
            return (2, 0)
    with pytest.raises(BufferError, match="device"):
        torch.from_dlpack(Elsewhere(torch.ones(1)))


def test_parity():
    real = pytest.importorskip("torch")
    import torch.utils.dlpack as theirs
    for name in NAMES:
        t = real.arange(6).view(2, 3).to(getattr(real, name))
        x = torch.from_dlpack(t)
        assert x.dtype is getattr(torch, name) and x.data_ptr() == t.data_ptr() and x.stride() == t.stride()
        back = real.from_dlpack(x.t())
        assert back.dtype is t.dtype and back.data_ptr() == t.data_ptr() and back.stride() == (1, 3)
        assert torch.from_dlpack(theirs.to_dlpack(t)).data_ptr() == theirs.from_dlpack(torch.to_dlpack(x)).data_ptr() == t.data_ptr()
