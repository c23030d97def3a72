"""backends/cpu/copies.py: copies between orders of elements equal NumPy's, for any strides and dtypes."""

import numpy as np
import pytest

import rushlight as torch
from rushlight.backends.cpu import copies, threads

CASES = [((300, 200), (1, 0)), ((301, 203), (1, 0)), ((12, 64, 4, 32), (0, 2, 1, 3)), ((12, 64, 4, 33), (0, 2, 3, 1)), ((5, 7, 33, 65), (3, 2, 1, 0)),
         ((4, 3, 50, 51), (0, 2, 3, 1)), ((2, 3, 4, 5, 6, 70), (5, 0, 1, 2, 3, 4)), ((2, 3, 4, 5, 6, 70), (0, 2, 4, 1, 3, 5)), ((70000,), (0,)),
         ((9, 40000), (0, 1)), ((9, 40000), (1, 0)), ((64, 1, 900, 5), (3, 1, 0, 2)), ((40, 20, 10, 40), (2, 0, 1, 3))]


def values(shape, dtype):
    rng = np.random.default_rng(0)
    if np.dtype(dtype).kind in "biu":
        return rng.integers(0, 100, shape).astype(dtype)
    x = rng.standard_normal(shape)
    return (x + 1j * x[::-1]).astype(dtype) if np.dtype(dtype).kind == "c" else x.astype(dtype)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "c8", "u1", "i2", "c16", "?"])
@pytest.mark.parametrize("shape,order", CASES)
def test_every_order(shape, order, dtype):
    src = values(shape, dtype).transpose(order)
    for into in "CF":
        whole = np.zeros((*src.shape[:-1], src.shape[-1] + 3), dtype, order=into)
        for dst in (np.zeros(src.shape, dtype, order=into), whole[..., 1:-2]):
            copies.assign(dst, src)
            np.testing.assert_array_equal(dst, src)
        assert not whole[..., :1].any() and not whole[..., -2:].any()            # nothing beside it was written


def test_slices_and_broadcasts():
    src = values((300, 400), "f4")
    for view in (src.T[::2], src.T[1:-1, 3:250], src.T[::-1], src[:, ::-1].T):
        dst = np.zeros(view.shape, "f4")
        copies.assign(dst, view)
        np.testing.assert_array_equal(dst, view)
    row = np.arange(400, dtype="f4")
    for part in (row, row[:300, None], np.float32(3)):
        dst = np.zeros((300, 400), "f4")
        copies.assign(dst, np.asarray(part))
        np.testing.assert_array_equal(dst, np.broadcast_to(part, (300, 400)))
    dst = np.zeros((300, 400), "f8")
    copies.assign(dst, src)                                                       # a cast
    np.testing.assert_array_equal(dst, src)


def test_overlapping_memory_is_read_first():
    x = values((400, 400), "f4")
    want = x.T.copy()
    copies.assign(x, x.T)
    np.testing.assert_array_equal(x, want)


def test_read_only_destinations_are_refused():
    dst = np.zeros((300, 300), "f4")
    dst.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        copies.assign(dst, np.ones((300, 300), "f4").T)


def test_tensors_and_threads():
    x = torch.tensor(values((12, 64, 4, 32), "f4"))
    want = np.ascontiguousarray(x.numpy().transpose(0, 2, 3, 1))
    before = threads.num_threads()
    try:
        for n in (1, 2):
            threads.set_num_threads(n)
            assert x.permute(0, 2, 3, 1).contiguous().is_contiguous()
            np.testing.assert_array_equal(x.permute(0, 2, 3, 1).contiguous().numpy(), want)
            np.testing.assert_array_equal(torch.zeros(12, 4, 32, 64).copy_(x.permute(0, 2, 3, 1)).numpy(), want)
    finally:
        threads.set_num_threads(before)
    last = x.contiguous(memory_format=torch.channels_last)
    assert last.stride() == (64 * 4 * 32, 1, 32 * 64, 64)
    np.testing.assert_array_equal(last.numpy(), x.numpy())
