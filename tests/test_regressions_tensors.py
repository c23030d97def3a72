"""Faults of tensors, operators and the tape that programs run against PyTorch 2.13 brought to light; expected values are PyTorch's."""

from __future__ import annotations

import math
import sys
import threading

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import rushlight as torch

# --- numbers into dtypes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [[2**63, 1], [2**63], [2**63, -1], [2**64], [-(2**63) - 1], 2**63])
def test_integers_beyond_64_bits_are_refused(values):
    with pytest.raises(ValueError, match="Overflow when unpacking long long"):
        torch.tensor(values)


def test_uint64_holds_all_its_values():
    assert torch.tensor([2**64 - 1, 0, 2**63 + 1], dtype=torch.uint64).tolist() == [2**64 - 1, 0, 2**63 + 1]
    with pytest.raises(OverflowError):
        torch.tensor([-1], dtype=torch.uint64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.int64, torch.float8_e5m2])
def test_none_in_a_list_is_no_number(dtype):
    with pytest.raises(TypeError):
        torch.tensor([None, 1], dtype=dtype)


def test_negative_numbers_in_unsigned_lists_wrap():
    assert torch.tensor([-1, 255, -255], dtype=torch.uint8).tolist() == [255, 255, 1]
    for bad in ([256, 1], [-256]):
        with pytest.raises(RuntimeError, match="without overflow"):
            torch.tensor(bad, dtype=torch.uint8)


def _fill(x, v):
    return x.fill_(v)


def _setitem(x, v):
    x[1] = v
    return x


def _setitem_by_tensor(x, v):
    x[torch.tensor([1])] = v
    return x


def _setitem_by_mask(x, v):
    x[torch.tensor([False, True])] = v
    return x


FILLS = [
    _fill, _setitem, _setitem_by_tensor, _setitem_by_mask,
    lambda x, v: torch.full((2,), v, dtype=x.dtype),
    lambda x, v: torch.full_like(x, v),
    lambda x, v: x.new_full((2,), v),
    lambda x, v: x.masked_fill(torch.tensor([False, True]), v),
    lambda x, v: x.masked_fill_(torch.tensor([False, True]), v),
    lambda x, v: x.index_fill(0, torch.tensor([1]), v),
    lambda x, v: x.scatter(0, torch.tensor([1]), v),
    lambda x, v: torch.nn.functional.pad(x[:1], (0, 1), value=v),
]


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("value, dtype", [(300, torch.int8), (256, torch.uint8), (-129, torch.int8), (2**63, torch.int64), (math.nan, torch.int32),
                                          (math.inf, torch.int64), (70000.0, torch.float16), (1e39, torch.float32), (1e10, torch.int32)])
def test_a_number_that_the_dtype_cannot_hold_is_refused(fill, value, dtype):
    x = torch.zeros(2, dtype=dtype)
    with pytest.raises(RuntimeError, match="without overflow"):
        fill(x, value)
    assert not x.any()


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("value, dtype, stored", [(-1, torch.uint8, 255), (1.75, torch.int16, 1), (math.inf, torch.float16, math.inf),
                                                  (2**63 - 1, torch.int64, 2**63 - 1), (2, torch.bool, True), (1, torch.float8_e4m3fn, 1.0),
                                                  (True, torch.float8_e4m3fn, 1.0), (2**64 - 1, torch.uint64, 2**64 - 1)])
def test_a_number_is_cast_to_the_dtype(fill, value, dtype, stored):
    assert fill(torch.zeros(2, dtype=dtype), value)[1].item() == stored


def test_where_refuses_an_int_that_does_not_fit():
    with pytest.raises(RuntimeError, match="without overflow"):
        torch.where(torch.tensor([True, False]), torch.zeros(2, dtype=torch.int8), 255)


def test_float8_without_inf_saturates_in_every_cast():
    x = torch.tensor([1e9, -math.inf, 464.0, 465.0, math.nan])
    want = [448.0, -448.0, 448.0, 448.0]
    made = [x.to(torch.float8_e4m3fn), x.double().to(torch.float8_e4m3fn), torch.zeros(5, dtype=torch.float8_e4m3fn).copy_(x),
            torch.tensor(x.tolist(), dtype=torch.float8_e4m3fn)]
    for y in made:
        assert y.float().tolist()[:4] == want and math.isnan(y.float()[4].item())


def test_operands_are_rounded_to_half_before_the_operation():
    n = torch.tensor([2049, 2**31 - 1], dtype=torch.int32)
    h = torch.tensor([0.5, -math.inf], dtype=torch.float16)
    assert (n + h).tolist()[0] == 2048.0        # 2049 is 2048 in float16
    assert math.isnan((n + h)[1].item())        # inf - inf
    assert (n.to(torch.float16) + h)[0] == (n + h)[0]


def test_integer_powers_keep_their_dtype():
    e = torch.tensor([1, -2, 3], dtype=torch.int8)
    assert (2**e).dtype is torch.int8 and (2**e).tolist() == [2, 0, 8]
    x = torch.tensor([1, 2], dtype=torch.uint8).pow(torch.tensor(-1, dtype=torch.int8))
    assert x.dtype is torch.uint8 and x.tolist() == [1, 0]


def test_adding_a_complex_number_to_inf():
    assert ((1 + 2j) + torch.tensor([math.inf, 1.0])).tolist() == [complex(math.inf, 2), 2 + 2j]
    assert (torch.tensor([math.inf]) - (1 + 2j)).tolist() == [complex(math.inf, -2)]


@pytest.mark.parametrize("dtype, step", [(torch.float16, 2.0**-11), (torch.bfloat16, 2.0**-8), (torch.float32, 2.0**-24)])
@pytest.mark.parametrize("n", [1, 100_000])
def test_nextafter_is_of_the_operands_dtype(dtype, step, n):
    x = torch.ones(n, dtype=dtype).nextafter(torch.zeros(n, dtype=dtype))
    assert x.dtype is dtype and set(x.double().tolist()) == {1 - step}


def test_ldexp_by_integers():
    x = torch.ldexp(torch.tensor([1.0, 2.0**-120, 1.5]), torch.tensor([-149, 130, 3]))      # 2**130 is no float32
    assert x.tolist() == [2.0**-149, 2.0**10, 12.0]
    assert torch.ldexp(torch.tensor([1.0], dtype=torch.float64), torch.tensor([1023])).item() == 2.0**1023
    assert torch.ldexp(torch.ones(2, dtype=torch.bfloat16), torch.tensor([2, 1])).dtype is torch.bfloat16
    leaf = torch.ones(2, requires_grad=True)
    torch.ldexp(leaf, torch.tensor([3, -2])).sum().backward()
    assert leaf.grad.tolist() == [8, 0.25]


def test_gcd_of_bools_and_integers():
    assert torch.gcd(torch.tensor([True, False]), torch.tensor([4, 6])).tolist() == [1, 6]
    assert torch.lcm(torch.tensor([True, False]), torch.tensor([4, 6])).tolist() == [4, 0]
    with pytest.raises(RuntimeError, match="not implemented for 'Bool'"):
        torch.gcd(torch.tensor([True]), torch.tensor([True]))


def test_resolutions_are_powers_of_ten():
    want = {torch.float16: 1e-3, torch.bfloat16: 1e-2, torch.float32: 1e-6, torch.float64: 1e-15}
    assert {d: torch.finfo(d).resolution for d in want} == want


def test_isreal():
    assert torch.isreal(torch.tensor([1.0, math.nan, math.inf])).all()
    x = torch.tensor([1 + 0j, 1 + 1j, complex(math.nan, 0), complex(0, math.nan)])
    assert torch.isreal(x).tolist() == [True, False, True, False]


@pytest.mark.parametrize("eps, want", [(None, [math.inf, math.inf, math.nan, 4, math.nan]), (0.25, [0, 0, 0, 4, 0])])
def test_gradient_of_logit_at_and_beyond_the_ends(eps, want):
    x = torch.tensor([0.0, 1.0, -0.5, 0.5, 2.0], dtype=torch.float64, requires_grad=True)
    x.logit(eps).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), want)


@pytest.mark.parametrize("name", ["elu", "selu", "celu", "hardswish", "gelu", "silu", "mish", "softplus"])
def test_gradients_of_activations_do_not_hide_nan(name):
    x = torch.tensor([math.nan, 1.0], requires_grad=True)
    getattr(torch.nn.functional, name)(x).sum().backward()
    assert math.isnan(x.grad[0].item()) and not math.isnan(x.grad[1].item())


# --- memory -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [lambda x: x.flip(0), lambda x: x.flip((0, 1)), lambda x: x.flipud(), lambda x: x.fliplr(), lambda x: x.flip(())])
def test_flipping_a_dimension_of_one_element_copies(call):
    x = torch.ones(1, 1)
    y = call(x)
    y.add_(1)
    assert x.item() == 1 and y.item() == 2
    x = torch.arange(3.0).reshape(1, 3)
    assert x.copy_(x.flip(0)).tolist() == [[0, 1, 2]]


def test_one_value_may_be_written_to_an_expanded_tensor():
    x = torch.ones(3)
    v = x.expand(2, 3)
    assert v.fill_(2.0) is v and x.tolist() == [2, 2, 2]
    v.zero_()
    v.masked_fill_(torch.tensor([True, False, True]), 5.0)
    assert x.tolist() == [5, 0, 5]
    v[0] = 7.0
    assert v.tolist() == [[7, 7, 7]] * 2
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        v.add_(1)


def test_an_operation_in_place_that_cannot_fit_is_refused_before_it_is_computed():
    x = torch.zeros(200_000, 1)
    with pytest.raises(RuntimeError, match="output with shape .* doesn't match the broadcast shape"):
        x.add_(torch.zeros(200_000))        # 160 GB
    assert not x.any()


def test_long_running_sums_are_exact_enough():
    x = torch.full((200_000,), 0.1)
    want = np.cumsum(x.numpy().astype(np.float64))
    np.testing.assert_allclose(x.cumsum(0).numpy(), want, rtol=1e-7)


# --- the tape -----------------------------------------------------------------------------------------------------------


def test_views_hang_on_the_new_node_after_an_inplace_view():
    leaf = torch.ones(2, 3, requires_grad=True)
    x = leaf * 1
    v = x.view(-1)
    x.t_()
    x.retain_grad()
    ((x * 2).sum() + v.sum()).backward()
    assert x.grad.tolist() == [[3.0, 3.0]] * 3 and leaf.grad.tolist() == [[3.0] * 3] * 2


def test_inplace_form_of_an_operator_that_another_one_computes():
    leaf = torch.tensor([1 + 1j, 2 - 1j], dtype=torch.complex128, requires_grad=True)
    end = torch.tensor([1j, 2.0], dtype=torch.complex128, requires_grad=True)
    x = leaf * 1
    assert x.lerp_(end, 0.25) is x
    torch.view_as_real(x).sum().backward()
    np.testing.assert_allclose(leaf.grad.numpy(), [0.75 + 0.75j] * 2)
    np.testing.assert_allclose(end.grad.numpy(), [0.25 + 0.25j] * 2)
    np.testing.assert_allclose(x.detach().numpy(), [0.75 + 1j, 2 - 0.75j])


def test_gradients_of_several_threads_add_up():
    """The first gradients of a leaf that arrive at once from several threads: none is lost."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(40):
            x = torch.ones(4, requires_grad=True)
            gate = threading.Barrier(4)

            def work(x=x, gate=gate):
                y = (x * 2).sum()
                gate.wait()
                y.backward()

            threads = [threading.Thread(target=work) for _ in range(4)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            assert x.grad.tolist() == [8.0] * 4
    finally:
        sys.setswitchinterval(before)


def test_a_hook_may_not_change_the_dtype():
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: g.double())
    with pytest.raises(RuntimeError, match="has changed the type of value"):
        y.sum().backward()
    assert x.grad is None


def test_grad_wants_inputs():
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="non-empty"):
        torch.autograd.grad((x * 2).sum(), [])


def test_a_grad_that_requires_grad_is_added_to_in_place():
    x = torch.ones(2, requires_grad=True)
    g = torch.ones(2, requires_grad=True)
    x.grad = g
    (x * 2).sum().backward()
    assert x.grad is g and g.requires_grad and g.tolist() == [3, 3]


def test_gradient_of_logsumexp_at_infinities():
    x = torch.tensor([[math.inf, -math.inf, 1.0], [-math.inf, -math.inf, -math.inf]], requires_grad=True)
    x.logsumexp(1).sum().backward()
    assert math.isnan(x.grad[0, 0].item()) and x.grad[0, 1:].tolist() == [0, 0] and x.grad[1].tolist() == [0, 0, 0]


def test_tensors_without_dimensions_or_elements():
    assert torch.tensor(2.5).flip(0).item() == 2.5
    assert torch.searchsorted(torch.zeros(3, 0), torch.zeros(3, 0)).shape == (3, 0)
    assert torch.searchsorted(torch.zeros(0, 2), torch.zeros(0, 4)).shape == (0, 4)


def test_gradients_of_layers_without_rows_or_columns():
    x, w = torch.ones(2, 3, requires_grad=True), torch.ones(0, 3, requires_grad=True)
    torch.nn.functional.linear(x, w, torch.ones(0)).sum().backward()
    assert x.grad.tolist() == [[0.0] * 3] * 2 and w.grad.shape == (0, 3)
    x, w = torch.ones(2, 5, 0, requires_grad=True), torch.ones(4, 0, requires_grad=True)
    y = torch.nn.functional.linear(x, w)
    assert y.shape == (2, 5, 4) and not y.any()
    y.sum().backward()
    assert x.grad.shape == (2, 5, 0) and w.grad.shape == (4, 0)
    table = torch.ones(3, 2, requires_grad=True)
    torch.nn.functional.embedding(torch.zeros(0, dtype=torch.int64), table).sum().backward()
    assert table.grad.tolist() == [[0.0, 0.0]] * 3


def test_dlpack_shares_memory_both_ways():
    a = np.arange(4.0)
    x = torch.from_dlpack(a)
    x[0] = 5
    assert a[0] == 5
    y = torch.arange(3.0)
    assert np.from_dlpack(y).tolist() == [0, 1, 2]
    torch.from_dlpack(y)[1] = 7
    assert y.tolist() == [0, 7, 2]
    with pytest.raises(BufferError):
        np.from_dlpack(torch.ones(2, requires_grad=True))


def test_a_list_of_tensors_and_numbers_is_of_the_common_dtype():
    x = torch.tensor([torch.tensor(1), torch.tensor(2.5)])
    assert x.dtype is torch.float32 and x.tolist() == [1, 2.5]
    assert torch.tensor([1.5, torch.tensor(2)]).dtype is torch.float32


def test_real_views_of_complex_tensors_and_writes_to_either():
    weights = torch.arange(4.0, dtype=torch.float64).view(2, 2)
    leaf = torch.tensor([1 + 1j, 2 - 1j], dtype=torch.complex128, requires_grad=True)
    x = leaf * 1
    v = torch.view_as_real(x)
    v.mul_(torch.tensor([2.0, 3.0], dtype=torch.float64))
    (torch.view_as_real(x) * weights).sum().backward()      # 0*2a + 1*3b + 2*2c + 3*3d
    assert leaf.grad.tolist() == [3j, 4 + 9j]
    leaf.grad = None
    x = leaf * 1
    v = torch.view_as_real(x)
    x.mul_(1j)                                              # a+bi -> -b+ai
    (v * weights).sum().backward()                          # 0*-b + 1*a + 2*-d + 3*c
    assert leaf.grad.tolist() == [1 + 0j, 3 - 2j]


def test_complex_views_of_real_tensors_and_writes_to_either():
    leaf = torch.arange(7.0, dtype=torch.float64).requires_grad_()
    x = leaf * 1
    v = torch.view_as_complex(x[:6].view(3, 2))
    v.mul_(1j)
    x.mul_(2)
    (torch.view_as_real(v) * torch.arange(6.0, dtype=torch.float64).view(3, 2)).sum().backward()
    assert leaf.grad.tolist() == [2, 0, 6, -4, 10, -8, 0]


# --- indexing -----------------------------------------------------------------------------------------------------------


def test_a_list_of_indices_is_a_tuple_of_indices():
    x = torch.arange(12).reshape(3, 4)
    assert x[[[0, 1], [1, 0]]].tolist() == [1, 4]
    assert x[[[0, 1]]].tolist() == x[[0, 1]].tolist()
    assert x[[slice(0, 2), 0]].tolist() == [0, 4]
    assert x[[None, 0]].shape == (1, 4) and x[[..., 0]].tolist() == [0, 4, 8]
    assert x[[torch.tensor([0, 2]), torch.tensor([3, 1])]].tolist() == [3, 9]
    assert x[[0, 2]].tolist() == [[0, 1, 2, 3], [8, 9, 10, 11]]
    x[[[0, 1], [1, 0]]] = -1
    assert x[0, 1] == -1 and x[1, 0] == -1 and (x == -1).sum() == 2
    with pytest.raises(IndexError, match="too many indices"):
        x[[[0], [1], [0]]]


def test_index_put_by_a_mask_without_dimensions():
    x = torch.zeros(3)
    assert x.index_put((torch.tensor(False),), torch.tensor(1.0)).tolist() == [0, 0, 0]
    assert x.index_put((torch.tensor(True),), torch.tensor(1.0)).tolist() == [1, 1, 1]


@pytest.mark.parametrize("dtype", [torch.float16, torch.complex64, torch.int64])
def test_assignment_by_index_tensors_wants_the_same_dtype(dtype):
    x = torch.zeros(3)
    with pytest.raises(RuntimeError, match="source and destination dtypes match"):
        x[torch.tensor([0, 1])] = torch.ones(2).to(dtype)
    assert x.tolist() == [0, 0, 0]
    x[0:2] = torch.ones(2).to(dtype)        # a plain index casts
    assert x.tolist() == [1, 1, 0]


@pytest.mark.parametrize("write", [lambda x: x.fill_(x[3]), lambda x: x.masked_fill_(x > 1, x[3]), lambda x: x.__setitem__(x > 1, x[3]),
                                   lambda x: x.__setitem__(slice(2, None), x[3])])
def test_an_element_may_be_written_over_its_own_tensor(write):
    leaf = torch.arange(5.0, requires_grad=True)
    x = leaf * 1
    write(x)
    x.sum().backward()
    assert x[2:].tolist() == [3, 3, 3]
    assert leaf.grad[3] == 5 - (x[:2] != 3).sum() and leaf.grad[[2, 4]].tolist() == [0, 0]


# --- memory formats -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layer", [
    lambda x: torch.nn.functional.conv2d(x, torch.ones(3, 4, 3, 3)),
    lambda x: torch.nn.functional.conv_transpose2d(x, torch.ones(4, 2, 3, 3)),
    lambda x: torch.nn.functional.max_pool2d(x, 2),
    lambda x: torch.nn.functional.max_pool2d(x, 2, return_indices=True)[1],
    lambda x: torch.nn.functional.avg_pool2d(x, 2),
    lambda x: torch.nn.functional.adaptive_avg_pool2d(x, 2),
    lambda x: torch.nn.functional.adaptive_max_pool2d(x, 2),
    lambda x: torch.nn.functional.batch_norm(x, None, None, training=True),
    lambda x: torch.nn.functional.batch_norm(x, torch.zeros(4), torch.ones(4)),
    lambda x: torch.nn.functional.interpolate(x, scale_factor=2),
    lambda x: torch.nn.functional.interpolate(x, scale_factor=2, mode="bilinear"),
    lambda x: x.relu() + 1, lambda x: x.clone(), lambda x: x.double(), lambda x: torch.zeros_like(x),
])
def test_channels_last_goes_through(layer):
    x = torch.linspace(-1, 1, 2 * 4 * 6 * 6).reshape(2, 4, 6, 6)
    want = layer(x)
    assert want.is_contiguous() and not want.is_contiguous(memory_format=torch.channels_last)
    y = layer(x.contiguous(memory_format=torch.channels_last))
    assert y.is_contiguous(memory_format=torch.channels_last) and not y.is_contiguous()
    np.testing.assert_allclose(y.numpy(), want.numpy(), rtol=1e-5, atol=1e-6)


def test_channels_last_weights_make_channels_last_results():
    x, w = torch.ones(2, 4, 5, 5), torch.ones(3, 4, 3, 3).contiguous(memory_format=torch.channels_last)
    assert torch.nn.functional.conv2d(x, w).stride() == (27, 1, 9, 3)


# --- beside NumPy -------------------------------------------------------------------------------------------------------


@st.composite
def _indexed(draw):
    """A shape and an index into it: ints, slices, None, at most one Ellipsis and one list of positions or mask."""
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    items, used, special = [], 0, draw(st.sampled_from(["", "list", "mask"]))
    while used < len(shape) and draw(st.booleans()):
        n = shape[used]
        kind = draw(st.sampled_from(["int", "slice", "none", "special"]))
        if kind == "none":
            items.append(None)
            continue
        if kind == "int":
            items.append(draw(st.integers(-n, n - 1)))
        elif kind == "slice" or not special:
            bounds = st.none() | st.integers(-n - 1, n + 1)
            items.append(slice(draw(bounds), draw(bounds), draw(st.sampled_from([None, 1, 2]))))
        elif special == "list":
            items.append(np.array(draw(st.lists(st.integers(-n, n - 1), min_size=1, max_size=3))))
            special = ""
        else:
            items.append(np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n))))
            special = ""
        used += 1
    if draw(st.booleans()):
        items.append(Ellipsis)
    # NumPy moves the dimension of an array that an int is apart from to the front; so does PyTorch only for tensors, not ints
    assume(not (any(isinstance(i, np.ndarray) for i in items) and any(isinstance(i, int) for i in items)))
    return tuple(shape), tuple(items)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(_indexed(), st.booleans())
def test_indexing_beside_numpy(case, transposed):
    shape, index = case
    a = np.arange(math.prod(shape), dtype=np.float64).reshape(shape)
    a = np.asfortranarray(a) if transposed else a
    leaf = torch.from_numpy(a.copy(order="K")).requires_grad_()
    at = tuple(torch.from_numpy(i) if isinstance(i, np.ndarray) else i for i in index)
    want = a[index]
    got = leaf[at]
    assert got.shape == want.shape
    np.testing.assert_array_equal(got.detach().numpy(), want)
    got.sum().backward()
    hits = np.zeros(shape)
    np.add.at(hits, index, 1)
    np.testing.assert_array_equal(leaf.grad.numpy(), hits)
    x = leaf * 1
    x[at] = -1.0
    a[index] = -1
    np.testing.assert_array_equal(x.detach().numpy(), a)
    leaf.grad = None
    x.sum().backward()
    np.testing.assert_array_equal(leaf.grad.numpy(), hits == 0)


_VIEWS = [lambda x: x[1:] if x.shape[0] > 1 else x, lambda x: x[..., ::2], lambda x: x.swapaxes(0, -1), lambda x: x[None], lambda x: x[0] if x.ndim > 1 else x,
          lambda x: x.reshape(-1, x.shape[-1]) if _contiguous(x) else x]


def _contiguous(x):
    return x.flags.c_contiguous if isinstance(x, np.ndarray) else x.is_contiguous()


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=6))
def test_writes_through_chains_of_views_beside_numpy(steps):
    """Values and gradients: each element of the result is its origin times what it was multiplied with."""
    a = np.arange(24, dtype=np.float64).reshape(2, 3, 4) + 1
    factor = np.ones_like(a)
    leaf = torch.from_numpy(a.copy()).requires_grad_()
    x = leaf * 1
    v, f = x, factor
    for which, write in steps:
        v, f = _VIEWS[which](v), _VIEWS[which](f)
        assert v.shape == f.shape
        if write:
            v.mul_(2)
            f *= 2
    np.testing.assert_array_equal(x.detach().numpy(), a * factor)
    np.testing.assert_array_equal(v.detach().numpy().shape, f.shape)
    (x * x).sum().backward()
    np.testing.assert_array_equal(leaf.grad.numpy(), 2 * a * factor**2)


@pytest.mark.parametrize("include_self", [True, False])
def test_second_derivatives_of_products_with_zeros(include_self):
    # against the same products written out
    rng = np.random.default_rng(0)
    for _ in range(60):
        n, m = rng.integers(1, 4), rng.integers(1, 7)
        a, b, at = rng.integers(-2, 3, n).astype(float), rng.integers(-2, 3, m).astype(float), rng.integers(0, n, m)
        weights = [torch.tensor(rng.standard_normal(k)) for k in (n, n, m)]
        found = []
        for written_out in (False, True):
            x, s = torch.tensor(a, requires_grad=True), torch.tensor(b, requires_grad=True)
            if written_out:
                parts = [[s[k] for k in range(m) if at[k] == j] for j in range(n)]
                y = torch.stack([torch.stack(([x[j]] if include_self or not p else []) + p).prod() for j, p in enumerate(parts)])
            else:
                y = x.scatter_reduce(0, torch.tensor(at), s, "prod", include_self=include_self)
            first = torch.autograd.grad(y, [x, s], weights[0], create_graph=True, allow_unused=True, materialize_grads=True)
            total = (first[0] * weights[1]).sum() + (first[1] * weights[2]).sum()
            second = torch.autograd.grad(total, [x, s], allow_unused=True, materialize_grads=True) if total.requires_grad else [x * 0, s * 0]
            found.append([*first, *second])
        if max(np.bincount(at, b == 0, n) + (a == 0)) <= 2:
            for got, want in zip(*found, strict=True):
                np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), atol=1e-12)
