"""Indexing, broadcasting and view algebra against NumPy, on drawn cases."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import rushlight as torch

COMMON = settings(max_examples=150, deadline=None, derandomize=True)
SHAPES = hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=5)


def array(shape):
    return np.arange(int(np.prod(shape)), dtype=np.float64).reshape(shape)


@st.composite
def basic(draw):
    """A shape and a basic index with positive steps."""
    shape = draw(SHAPES)
    items = []
    for n in shape[:draw(st.integers(0, len(shape)))]:
        kind = draw(st.sampled_from(["int", "slice", "none"]))
        if kind == "none":
            items.append(None)
        if kind == "int":
            items.append(draw(st.integers(-n, n - 1)))
        else:
            a, b = draw(st.none() | st.integers(-6, 6)), draw(st.none() | st.integers(-6, 6))
            items.append(slice(a, b, draw(st.none() | st.integers(1, 3))))
    if draw(st.booleans()):
        items.insert(draw(st.integers(0, len(items))), Ellipsis)
        if items.index(Ellipsis) < len(items) - 1:
            used = sum(1 for i in items[items.index(Ellipsis):] if i is not None and i is not Ellipsis)
            items = items[:items.index(Ellipsis) + 1]
            del used
    return shape, tuple(items)


@COMMON
@given(basic())
def test_basic_reads_are_views(case):
    shape, index = case
    a = array(shape)
    t = torch.tensor(a)
    np.testing.assert_array_equal(t[index].numpy(), a[index])
    t[index] = -1
    a[index] = -1
    np.testing.assert_array_equal(t.numpy(), a)


@st.composite
def advanced(draw):
    """A shape and an index of integer arrays, masks, slices and ints."""
    shape = draw(SHAPES)
    n = draw(st.integers(1, 4))
    items = []
    for size in shape[:draw(st.integers(1, len(shape)))]:
        kind = draw(st.sampled_from(["array", "array", "slice", "int"]))
        if kind == "array":
            items.append(np.array(draw(st.lists(st.integers(-size, size - 1), min_size=n, max_size=n))))
        elif kind == "slice":
            items.append(slice(None, None, draw(st.integers(1, 2))))
        else:
            items.append(draw(st.integers(-size, size - 1)))
    return shape, tuple(items)


@COMMON
@given(advanced())
def test_advanced_reads(case):
    shape, index = case
    arrays = [i for i in index if isinstance(i, np.ndarray)]
    a = array(shape)
    t = torch.tensor(a)
    # NumPy counts an int among the arrays when it finds their place; PyTorch takes the ints first
    first = tuple(i if isinstance(i, int) else slice(None) for i in index)
    rest = tuple(i for i in index if not isinstance(i, int))
    want = a[first][rest]
    got = t[tuple(torch.tensor(i) if isinstance(i, np.ndarray) else i for i in index)]
    np.testing.assert_array_equal(got.numpy(), want)
    if arrays and all(isinstance(i, np.ndarray) for i in index):
        t[tuple(torch.tensor(i) for i in index)] = 7
        a[index] = 7
        np.testing.assert_array_equal(t.numpy(), a)


@COMMON
@given(hnp.arrays(np.bool_, SHAPES))
def test_masks(mask):
    a = array(mask.shape)
    t = torch.tensor(a)
    np.testing.assert_array_equal(t[torch.tensor(mask)].numpy(), a[mask])
    t[torch.tensor(mask)] = 0
    a[mask] = 0
    np.testing.assert_array_equal(t.numpy(), a)


@COMMON
@given(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=4, max_side=4))
def test_broadcasting(case):
    (s1, s2), shape = case.input_shapes, case.result_shape
    a, b = array(s1), array(s2) + 1
    r = torch.tensor(a) - torch.tensor(b)
    assert tuple(r.shape) == shape and torch.broadcast_shapes(s1, s2) == shape
    np.testing.assert_array_equal(r.numpy(), a - b)
    x, y = torch.tensor(a, requires_grad=True), torch.tensor(b, requires_grad=True)
    (x - y).sum().backward()
    n = int(np.prod(shape))
    assert x.grad.sum().item() == n and y.grad.sum().item() == -n and x.grad.shape == x.shape


@st.composite
def chains(draw):
    shape = draw(SHAPES)
    a = array(shape)
    steps = []
    for _ in range(draw(st.integers(1, 5))):
        n = a.ndim
        kind = draw(st.sampled_from(["transpose", "permute", "unsqueeze", "squeeze", "narrow", "select", "reshape", "expand", "flatten"]))
        if kind == "transpose" and n:
            i, j = draw(st.integers(-n, n - 1)), draw(st.integers(-n, n - 1))
            a, step = a.swapaxes(i, j), ("transpose", i, j)
        elif kind == "permute" and n:
            p = draw(st.permutations(range(n)))
            a, step = a.transpose(p), ("permute", *p)
        elif kind == "unsqueeze" and n < 5:
            i = draw(st.integers(-n - 1, n))
            a, step = np.expand_dims(a, i), ("unsqueeze", i)
        elif kind == "squeeze":
            a, step = a.squeeze(), ("squeeze",)
        elif kind == "narrow" and n and a.size:
            i = draw(st.integers(0, n - 1))
            s = draw(st.integers(0, a.shape[i] - 1))
            k = draw(st.integers(1, a.shape[i] - s))
            a, step = a[(slice(None),) * i + (slice(s, s + k),)], ("narrow", i, s, k)
        elif kind == "select" and n:
            i = draw(st.integers(0, n - 1))
            k = draw(st.integers(-a.shape[i], a.shape[i] - 1))
            a, step = a.take(k, i), ("select", i, k)
        elif kind == "reshape":
            a, step = a.reshape(-1, 1), ("reshape", -1, 1)
        elif kind == "expand" and n and a.shape[0] == 1:
            a, step = np.broadcast_to(a, (3, *a.shape[1:])), ("expand", 3, *a.shape[1:])
        elif kind == "flatten" and n:
            a, step = a.reshape(-1), ("flatten",)
        else:
            continue
        steps.append(step)
    return shape, steps, a


@COMMON
@given(chains())
def test_view_algebra(case):
    shape, steps, want = case
    x = torch.tensor(array(shape), requires_grad=True)
    t = x
    for name, *args in steps:
        t = getattr(t, name)(*args)
    np.testing.assert_array_equal(t.detach().numpy(), want)
    counts = np.bincount(want.reshape(-1).astype(int), minlength=int(np.prod(shape))).reshape(shape)
    if t.requires_grad:
        t.sum().backward()
        np.testing.assert_array_equal(x.grad.numpy(), counts)
