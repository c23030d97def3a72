"""Storages: identity, sharing with tensors, bounds, growth, the typed classes."""

import copy
import gc
import os
import pickle

import numpy as np
import pytest

import rushlight as torch
from rushlight.core import storage as S

pytestmark = pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")


def f32(*shape):
    return torch.from_numpy(np.arange(np.prod(shape), dtype=np.float32).reshape(shape))


def test_views_of_one_memory_have_one_storage():
    base = f32(3, 4)
    storage = base.untyped_storage()
    for view in (base, base[1:, ::2], base.t(), base.detach(), base[2].expand(5, 4)):
        assert view.untyped_storage() is storage
    assert base.clone().untyped_storage() is not storage
    assert storage.nbytes() == len(storage) == 48 and storage.data_ptr() == base.data_ptr()
    assert base[1:, 1:].storage_offset() == 5 == S.storage_offset_of(base[1:, 1:]._a)
    assert S.storage_offset_of(torch.empty(0)._a) == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda a: a,
        lambda a: a.T,
        lambda a: np.asfortranarray(a),
        lambda a: a.reshape(2, 3, 4).transpose(2, 0, 1).copy(order="K"),
        lambda a: np.zeros((100, 1000, 20), np.float32),
    ],
    ids=["plain", "transposed", "fortran", "permuted", "from the allocator's threshold on"],
)
def test_the_storage_has_exactly_the_arrays_bytes(make):
    array = make(np.arange(24, dtype=np.float32).reshape(4, 6))
    storage = S.storage_of(array)
    assert storage.nbytes() == array.nbytes and storage.data_ptr() == array.__array_interface__["data"][0]
    storage.fill_(1)
    assert (array.view(np.uint32) == 0x01010101).all()


def test_blocks_of_the_allocator_are_larger_than_storages():
    from rushlight.backends.cpu import allocator
    array = allocator.empty((1 << 20, 3), np.dtype(np.float32))
    assert S.storage_of(array).nbytes() == array.nbytes == S.storage_of(array[5:]).nbytes()


def test_memory_with_gaps_and_negative_strides():
    memory = np.arange(10, dtype=np.int16)

    class Foreign:
        def __init__(self, array):
            self.array, self.__array_interface__ = array, array.__array_interface__
    every_other, backwards = np.asarray(Foreign(memory[1:8:2])), np.asarray(Foreign(memory[::-1]))
    assert S.storage_of(every_other).nbytes() == 14
    assert (
        S.storage_of(backwards).nbytes() == 20
        and S.storage_of(backwards).data_ptr() == memory.__array_interface__["data"][0]
    )


def test_from_storage_stays_inside():
    storage = f32(12).untyped_storage()
    dtype = np.dtype(np.float32)
    view = S.from_storage(storage, dtype, 5, (2, 3), (4, 1))
    assert view.tolist() == [[5, 6, 7], [9, 10, 11]] and S.storage_of(view) is storage
    assert S.from_storage(storage, dtype, 0, (2, 2)).tolist() == [[0, 1], [2, 3]]
    assert S.from_storage(storage, dtype, 3, (2, 2), (0, 0)).tolist() == [[3, 3], [3, 3]]
    assert S.from_storage(storage, dtype, 100, (0, 7), (7, 1)).shape == (0, 7)
    for offset, size, stride, text in (
        (0, (13,), (1,), "requiring a storage size of 52 are out of bounds for storage of size 48"),
        (1, (12,), (1,), "out of bounds"),
        (0, (2, 7), (6, 1), "out of bounds"),
        (12, (), (), "out of bounds"),
        (-1, (1,), (1,), "invalid storage offset -1"),
        (0, (-1,), (1,), "negative dimension"),
        (0, (2,), (-1,), "negative"),
        (0, (1, 2**62), (1, 1), "out of bounds"),
        (0, (1,), (2**70,), "overflowed"),
        (0, (2, 2), (1,), "mismatch in length"),
        (0, (1,) * 70, (1,) * 70, "cannot view"),
    ):
        with pytest.raises(RuntimeError, match=text):
            S.from_storage(storage, dtype, offset, size, stride)


def test_growing_moves_every_tensor_on_the_storage():
    base = f32(4).clone()                  # memory of its own: NumPy's, as f32 gives it, cannot be resized
    view, other = base[1:3], f32(4)
    storage = base.untyped_storage()
    assert storage.resize_(8) is storage and storage.nbytes() == 8 and base.tolist() == [0, 1, 2, 3]
    storage.resize_(64)
    assert storage.nbytes() == 64 and base.untyped_storage() is storage and view.untyped_storage() is storage
    base._a[2] = 50
    assert view.tolist() == [1, 50] and S.from_storage(storage, np.dtype(np.float32), 0, (4,)).tolist()[:2] == [0, 1]
    assert other.tolist() == [0, 1, 2, 3]
    for bad, error in ((-1, RuntimeError), (1.5, TypeError), (True, TypeError)):
        with pytest.raises(error):
            storage.resize_(bad)
    with pytest.raises(RuntimeError, match="not resizable"):
        other.untyped_storage().resize_(64)
    assert other.tolist() == [0, 1, 2, 3]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_shared_memory_is_seen_across_fork():
    tensor = f32(4)
    view = tensor[1:]
    assert not tensor.is_shared()
    tensor.share_memory_()
    gc.collect()
    assert tensor.is_shared() and view.is_shared() and tensor.tolist() == [0, 1, 2, 3]
    tensor.untyped_storage().resize_(64)
    assert tensor.is_shared() and view.tolist() == [1, 2, 3]
    child = os.fork()
    if child == 0:
        tensor._a[2] = 70
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert view.tolist() == [1, 70, 3]


def test_untyped_storage_as_a_sequence():
    u = torch.UntypedStorage([1, 2, 300])
    assert list(u) == u.tolist() == [1, 2, 44] and u[-1] == 44 and u[1:].tolist() == [2, 44] and len(u) == 3
    u[0], u[1:] = -1, 7
    assert u.tolist() == [255, 7, 7]
    part = u[1:]
    part.fill_(9)
    assert u.tolist() == [255, 9, 9]
    assert repr(u) == " 255\n 9\n 9\n[torch.storage.UntypedStorage(device=cpu) of size 3]"
    for call, error, text in (
        (lambda: u[3], IndexError, "index 3 out of range for storage of size 3"),
        (lambda: u[::2], RuntimeError, "step of 2"),
        (lambda: u["a"], TypeError, "can't index"),
        (lambda: u.__setitem__("a", 1), RuntimeError, "can't index"),
        (lambda: u.copy_(torch.UntypedStorage(2)), RuntimeError, "self was 3 bytes but src was 2 bytes"),
        (lambda: torch.UntypedStorage("x"), RuntimeError, "of type str instead of int"),
        (lambda: torch.UntypedStorage(-1), RuntimeError, "negative"),
        (lambda: torch.UntypedStorage(1.5), TypeError, "float"),
        (lambda: u.pin_memory(), RuntimeError, "accelerator"),
        (lambda: u.cuda(), RuntimeError, "cuda"),
        (lambda: u.fill_(1.5), TypeError, "float"),
    ):
        with pytest.raises(error, match=text):
            call()
    assert u.copy_(torch.UntypedStorage([4, 5, 6])).tolist() == [4, 5, 6] and u.element_size() == 1
    assert u.float().tolist() == [4.0, 5.0, 6.0] and u.type() == "torch.storage.UntypedStorage" and u.cpu() is u
    assert torch.UntypedStorage().nbytes() == torch.UntypedStorage().data_ptr() == 0


def test_meta_storage_has_a_size_only():
    u = torch.UntypedStorage(5, device="meta")
    assert u.nbytes() == 5 and u.data_ptr() == 0 and u.device.type == "meta" and "..." in repr(u)
    assert u.clone().nbytes() == 5 and u.resize_(7).nbytes() == 7
    with pytest.raises(NotImplementedError, match="meta"):
        u[0]
    assert torch.empty(2, 3, device="meta").untyped_storage().nbytes() == 24


def test_copies():
    u = torch.UntypedStorage([1, 2])
    for other in (u.clone(), copy.copy(u), copy.deepcopy(u), pickle.loads(pickle.dumps(u))):
        other.fill_(9)
        assert u.tolist() == [1, 2]
    a, b = copy.deepcopy([u, u])
    assert a is b
    base = f32(4)
    memo = {}
    x, y = S.copy_with_storage(base._a[1:], memo), S.copy_with_storage(base._a[:2], memo)
    x[0] = 30
    assert y.tolist() == [0, 30] and base.tolist() == [0, 1, 2, 3]


def test_buffers_and_files(tmp_path):
    make = torch.UntypedStorage.from_buffer
    assert make(b"abc").tolist() == [97, 98, 99]
    assert make(b"abcd", "big", dtype=torch.int16).tolist() == [98, 97, 100, 99]
    assert make(b"abcdef", "little", dtype=torch.int16, count=2, offset=2).tolist() == [99, 100, 101, 102]
    for args, error in (
        ((b"abc", "native", -1, 0, torch.int16), ValueError),
        ((b"ab", "odd"), ValueError),
        ((b"ab", None, 3), ValueError),
        ((b"ab", None, -1, 3), ValueError),
        ((b"abcd", None, -1, 0, torch.int16), RuntimeError),
    ):
        with pytest.raises(error):
            make(*args)
    assert torch.FloatStorage.from_buffer(np.float32([1, 2]).tobytes(), "native").tolist() == [1, 2]
    path = tmp_path / "f"
    path.write_bytes(b"12345678")
    private = torch.UntypedStorage.from_file(str(path), False, 4)
    private.fill_(0)
    assert path.read_bytes() == b"12345678"
    shared = torch.ByteStorage.from_file(str(path), True, 10)
    assert shared.is_shared() and not private.is_shared()
    for mapped in (shared, private):
        assert not mapped.resizable()
        with pytest.raises(RuntimeError, match="not resizable"):
            mapped.resize_(100)
    shared[9] = 65
    del shared, private
    gc.collect()
    assert path.read_bytes() == b"12345678\0A"
    with pytest.raises(RuntimeError, match="20 were asked for"):
        torch.UntypedStorage.from_file(str(path), False, 20)


def test_typed_storages():
    s = torch.FloatStorage([1, 2, 3])
    assert s.tolist() == list(s) == [1.0, 2.0, 3.0] and s.dtype is torch.float32 and len(s) == 3 and s.nbytes() == 12
    assert (
        isinstance(s, torch.FloatStorage)
        and isinstance(s, torch.TypedStorage)
        and not isinstance(s, torch.DoubleStorage)
    )
    assert type(s) is torch.TypedStorage and issubclass(torch.FloatStorage, torch.TypedStorage)
    assert s.type() == "torch.FloatStorage" and s.double().dtype is torch.float64 and s.int().tolist() == [1, 2, 3]
    assert s.type("torch.DoubleStorage").tolist() == s.type(torch.DoubleStorage).tolist() == [1.0, 2.0, 3.0]
    s[0], s[1:] = 5, 6
    assert s.tolist() == [5, 6, 6] and s[-1] == 6.0 and s.fill_(2).tolist() == [2, 2, 2]
    assert s.resize_(4) is None and s.size() == 4
    assert (
        repr(torch.BFloat16Storage([1]))
        == " 1.0\n[torch.storage.TypedStorage(dtype=torch.bfloat16, device=cpu) of size 1]"
    )
    assert torch.BoolStorage([True, False]).tolist() == [True, False] and torch.ComplexFloatStorage(
        [1j]
    ).tolist() == [1j]
    assert (
        torch.FloatStorage(3).size() == 3
        and torch.FloatStorage().size() == 0
        and torch.TypedStorage([1], dtype=torch.int16)[0] == 1
    )
    u = torch.UntypedStorage(7)
    assert torch.FloatStorage(wrap_storage=u).size() == 1 and torch.FloatStorage(wrap_storage=u).untyped() is u
    assert copy.deepcopy(s).tolist() == s.tolist() == pickle.loads(pickle.dumps(s)).tolist()
    for call, error in (
        (lambda: torch.FloatStorage(1.5), TypeError),
        (lambda: torch.FloatStorage("ab"), TypeError),
        (lambda: torch.FloatStorage(wrap_storage=s), TypeError),
        (lambda: torch.FloatStorage(2, wrap_storage=u), TypeError),
        (lambda: torch.FloatStorage(2, dtype=torch.int64), TypeError),
        (lambda: s[9], IndexError),
        (lambda: s[1:], RuntimeError),
        (lambda: s.type("torch.Nothing"), ValueError),
    ):
        with pytest.raises(error):
            call()


def test_typed_storage_of_a_tensor_and_its_warning():
    tensor = f32(3)
    with pytest.warns(UserWarning, match="TypedStorage is deprecated"):
        torch.FloatStorage(1)
    storage = tensor.storage()
    storage[1] = 8
    assert tensor.tolist() == [0, 8, 2] and storage == tensor.storage() and isinstance(storage, torch.FloatStorage)
    assert storage.data_ptr() == tensor.data_ptr() and storage.copy_(torch.DoubleStorage([1, 2, 3])).tolist() == [
        1,
        2,
        3,
    ]
