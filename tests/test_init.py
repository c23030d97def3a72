"""nn.init and nn.utils: recorded PyTorch values (tests/golden/make_nn.py), and what mathematics says."""

from __future__ import annotations

import json
import math
import pathlib

import numpy as np
import pytest

import rushlight
from rushlight import nn
from rushlight.nn import init
from rushlight.nn.utils import rnn

GOLDEN = json.loads((pathlib.Path(__file__).parent / "golden" / "nn.json").read_text())["init"]


@pytest.mark.parametrize("expression,shape,values", GOLDEN, ids=[f"{e} {s}" for e, s, _ in GOLDEN])
def test_draws_are_pytorchs(expression, shape, values):
    rushlight.manual_seed(0)
    tensor = rushlight.empty(shape)
    assert eval(expression, vars(init), {"t": tensor}) is tensor
    # The factorisation of orthogonal_ is LAPACK's in both: equal to rounding. Normals agree to the last place.
    tolerance = 1e-5 if expression.startswith("orthogonal_") else 5e-7
    np.testing.assert_allclose(tensor.flatten().tolist(), values, rtol=tolerance, atol=tolerance / 10)


@pytest.mark.parametrize("shape", [(3, 7), (7, 3), (4, 2, 3)])
def test_orthogonal(shape):
    q = init.orthogonal_(rushlight.empty(shape), gain=2.0).reshape(shape[0], -1).numpy().astype(np.float64)
    gram = q @ q.T if q.shape[0] <= q.shape[1] else q.T @ q
    np.testing.assert_allclose(gram, 4 * np.eye(len(gram)), atol=1e-5)


def test_fan_and_gain():
    assert init._calculate_fan_in_and_fan_out(rushlight.empty(4, 3, 5, 5)) == (75, 100)
    assert init.calculate_gain("relu") == math.sqrt(2) and init.calculate_gain("tanh") == 5 / 3
    assert init.calculate_gain("leaky_relu", 2) == math.sqrt(2 / 5)
    assert init.calculate_gain("selu") == 0.75 and init.calculate_gain("conv2d") == init.calculate_gain("sigmoid") == 1


def test_trunc_normal_stays_inside():
    for bounds in ((-2.0, 2.0), (0.1, 0.2), (1.5, 9.0)):
        t = init.trunc_normal_(rushlight.empty(500), 0.0, 1.0, *bounds)
        assert bounds[0] <= t.min().item() and t.max().item() <= bounds[1]
    with pytest.warns(UserWarning, match="more than 2 std"):
        init.trunc_normal_(rushlight.empty(5), -4.5, 1.0)


def test_sparse_counts_zeros():
    t = init.sparse_(rushlight.empty(10, 4), 0.25)
    assert [(t[:, j] == 0).sum().item() for j in range(4)] == [3] * 4


@pytest.mark.parametrize("make,error,message", [
    (lambda: init.xavier_uniform_(rushlight.empty(3)), ValueError, "fewer than 2 dimensions"),
    (lambda: init.kaiming_uniform_(rushlight.empty(3, 3), mode="fan"), ValueError, "Mode fan not supported"),
    (lambda: init.kaiming_normal_(rushlight.empty(3, 3), nonlinearity="no"), ValueError, "Unsupported nonlinearity no"),
    (lambda: init.calculate_gain("leaky_relu", True), ValueError, "negative_slope True not a valid number"),
    (lambda: init.eye_(rushlight.empty(3)), ValueError, "2 dimensions"),
    (lambda: init.dirac_(rushlight.empty(3, 3)), ValueError, "3, 4, or 5"),
    (lambda: init.dirac_(rushlight.empty(3, 3, 3), 2), ValueError, "divisible by groups"),
    (lambda: init.orthogonal_(rushlight.empty(3)), ValueError, "2 or more"),
    (lambda: init.sparse_(rushlight.empty(3), 0.1), ValueError, "2 dimensions"),
])
def test_errors(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_no_history_and_old_names():
    weight = nn.Parameter(rushlight.empty(3, 2))
    assert init.uniform_(weight) is weight and weight.is_leaf and weight.requires_grad
    with pytest.warns(FutureWarning, match="`nn.init.xavier_normal` is now deprecated in favor"):
        init.xavier_normal(weight)
    with pytest.warns(UserWarning, match="zero-element"):
        init.kaiming_uniform_(rushlight.empty(0, 3))
    generator = rushlight.Generator().manual_seed(3)
    first = init.normal_(rushlight.empty(4), generator=generator).tolist()
    assert first == init.normal_(rushlight.empty(4), generator=rushlight.Generator().manual_seed(3)).tolist()


# -- nn.utils --------------------------------------------------------------------------------------------------------


def with_grads(*values):
    params = [nn.Parameter(rushlight.zeros(len(v))) for v in values]
    for p, v in zip(params, values, strict=True):
        p.grad = rushlight.tensor(v)
    return [*params, nn.Parameter(rushlight.zeros(1))]


def test_clip_grad_norm():
    params = with_grads([3.0, 0.0], [0.0, 4.0, 12.0])
    assert nn.utils.get_total_norm([p.grad for p in params[:2]]).item() == 13
    assert nn.utils.clip_grad_norm_(params, 6.5).item() == 13
    np.testing.assert_allclose(params[1].grad.tolist(), [0, 2, 6], rtol=1e-6)
    assert nn.utils.clip_grad_norm_(iter(params), 100.0, norm_type=float("inf")).item() == pytest.approx(6)
    np.testing.assert_allclose(params[1].grad.tolist(), [0, 2, 6], rtol=1e-6)
    assert nn.utils.clip_grad_norm_(params[0], 1.0, norm_type=1).item() == pytest.approx(1.5)
    assert nn.utils.clip_grad_norm_([], 1.0).item() == 0
    bad = with_grads([float("inf")])
    with pytest.raises(RuntimeError, match="non-finite"):
        nn.utils.clip_grad_norm_(bad, 1.0, error_if_nonfinite=True)
    assert bad[0].grad.tolist() == [float("inf")]
    with pytest.warns(UserWarning, match="empty generator"):
        nn.utils.clip_grad_norm_((p for p in []), 1.0)
    with pytest.warns(FutureWarning, match="clip_grad_norm_"):
        nn.utils.clip_grad_norm(params, 1.0)


def test_clip_grad_value():
    params = with_grads([3.0, -0.5, -7.0])
    nn.utils.clip_grad_value_(params, 1.0)
    assert params[0].grad.tolist() == [1, -0.5, -1]


def test_parameters_as_a_vector():
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    vector = nn.utils.parameters_to_vector(model.parameters())
    assert vector.shape == (13,) and vector[:6].tolist() == model[0].weight.flatten().tolist()
    nn.utils.vector_to_parameters(rushlight.arange(13.0), model.parameters())
    assert model[0].weight.tolist() == [[0, 1], [2, 3], [4, 5]] and model[1].bias.tolist() == [12]
    with pytest.raises(TypeError, match="expected torch.Tensor, but got: list"):
        nn.utils.vector_to_parameters([1], model.parameters())


def test_fusion_with_batch_norm():
    rushlight.manual_seed(0)
    conv, bn = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3)
    x = rushlight.randn(4, 2, 5, 5)
    for _ in range(3):
        bn(conv(x))
    init.uniform_(bn.weight)
    init.uniform_(bn.bias)
    conv.eval()
    bn.eval()
    fused = nn.utils.fuse_conv_bn_eval(conv, bn)
    np.testing.assert_allclose(fused(x).flatten().tolist(), bn(conv(x)).flatten().tolist(), rtol=1e-4, atol=1e-5)
    with pytest.raises(AssertionError, match="only for eval"):
        nn.utils.fuse_conv_bn_eval(conv.train(), bn)


def test_weight_norm():
    x = rushlight.ones(2, 3)
    for dim, shape in ((0, (4, 1)), (1, (1, 3)), (None, ())):
        layer = nn.Linear(3, 4)
        weight, before = layer.weight.tolist(), layer(x).tolist()
        with pytest.warns(FutureWarning, match="parametrizations.weight_norm"):
            nn.utils.weight_norm(layer, dim=dim)
        assert [n for n, _ in layer.named_parameters()] == ["bias", "weight_g", "weight_v"]
        assert layer.weight_g.shape == shape and not isinstance(layer.weight, nn.Parameter)
        np.testing.assert_allclose(layer(x).tolist(), before, rtol=1e-5, atol=1e-6)
        with rushlight.no_grad():
            layer.weight_g.mul_(2)
            layer.bias.zero_()
        layer(x).sum().backward()
        assert layer.weight_v.grad is not None and layer.weight_g.grad is not None
        nn.utils.remove_weight_norm(layer)
        assert [n for n, _ in layer.named_parameters()] == ["bias", "weight"] and not layer._forward_pre_hooks
        np.testing.assert_allclose(layer.weight.tolist(), 2 * np.array(weight), rtol=1e-5, atol=1e-6)
        with pytest.raises(ValueError, match="not found in Linear"):
            nn.utils.remove_weight_norm(layer)


def test_spectral_norm():
    rushlight.manual_seed(0)
    layer = nn.utils.spectral_norm(nn.Linear(5, 4))
    original = np.array(layer.weight_orig.tolist())
    assert list(layer.state_dict()) == ["bias", "weight_orig", "weight_u", "weight_v"]
    assert layer.state_dict()._metadata[""]["spectral_norm"] == {"weight.version": 1}
    for _ in range(60):
        layer(rushlight.ones(1, 5))
    sigma = np.linalg.svd(original, compute_uv=False)[0]
    np.testing.assert_allclose(layer.weight.tolist(), original / sigma, rtol=1e-3, atol=1e-5)
    layer(rushlight.ones(1, 5)).sum().backward()
    assert layer.weight_orig.grad is not None
    u = layer.eval().weight_u.tolist()
    layer(rushlight.ones(1, 5))
    assert layer.weight_u.tolist() == u
    other = nn.utils.spectral_norm(nn.Linear(5, 4))
    other.load_state_dict(layer.state_dict())
    old = layer.state_dict()
    old["weight"] = layer.weight.detach()
    del old["weight_v"], old._metadata[""]["spectral_norm"]
    other.load_state_dict(old)
    np.testing.assert_allclose(other.weight_v.tolist(), layer.weight_v.tolist(), rtol=1e-2, atol=1e-3)
    with pytest.raises(RuntimeError, match="two spectral_norm hooks"):
        nn.utils.spectral_norm(layer)
    nn.utils.remove_spectral_norm(layer)
    assert list(layer.state_dict()) == ["bias", "weight"] and not layer._state_dict_hooks


def test_functional_call():
    from rushlight.nn.utils.stateless import functional_call

    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    model[1].weight = model[0].weight
    before, x = model[0].weight, rushlight.ones(1, 2)
    double = rushlight.eye(2) * 2
    assert functional_call(model, {"0.weight": double}, x).tolist() == [[4, 4]]
    assert functional_call(model, {"0.weight": double, "1.weight": rushlight.eye(2)}, (x,),
                           tie_weights=False).tolist() == [[2, 2]]
    given = double.clone().requires_grad_()
    functional_call(model, {"0.weight": given}, x).sum().backward()
    assert given.grad is not None and before.grad is None
    assert model[0].weight is before and model[1].weight is before is model._modules["1"]._parameters["weight"]
    for wrong, error, message in (({"0.weight": double, "1.weight": x}, ValueError, "which are tied"),
                                  ({"0.weight": 3}, TypeError, "3 is not an instance of torch.Tensor"),
                                  ({"0.nothing": x}, AttributeError, "Linear has no attribute `nothing`")):
        with pytest.raises(error, match=message):
            functional_call(model, wrong, x)
    with pytest.raises(RuntimeError, match="Missing key"):
        functional_call(model, {}, x, strict=True)
    assert model[0].weight is before


def test_convolution_weight_memory_format():
    model = nn.Sequential(nn.Conv2d(2, 3, 2), nn.Linear(2, 2))
    values = model[0].weight.tolist()
    assert nn.utils.convert_conv2d_weight_memory_format(model, rushlight.channels_last) is model
    assert model[0].weight.is_contiguous(memory_format=rushlight.channels_last) and model[0].weight.tolist() == values


def test_skip_init():
    layer = nn.utils.skip_init(nn.Linear, 3, 4)
    assert layer.weight.shape == (4, 3) and layer.weight.device.type == "cpu"
    with pytest.raises(RuntimeError, match="'device' arg"):
        nn.utils.skip_init(nn.ReLU)


def test_pad_and_pack_sequences():
    parts = [rushlight.arange(float(2 * n)).reshape(n, 2) + 10 * n for n in (2, 4, 1)]
    padded = rnn.pad_sequence(parts, batch_first=True, padding_value=-1.0)
    assert padded.shape == (3, 4, 2) and padded[0, 2:].tolist() == [[-1, -1], [-1, -1]]
    assert rnn.pad_sequence(parts).shape == (4, 3, 2)
    left = rnn.pad_sequence(parts, batch_first=True, padding_side="left")
    assert left[0, :2].tolist() == [[0, 0], [0, 0]] and left[0, 2:].tolist() == parts[0].tolist()
    packed = rnn.pack_sequence(parts, enforce_sorted=False)
    assert packed.batch_sizes.tolist() == [3, 2, 1, 1] and packed.sorted_indices.tolist() == [1, 0, 2]
    assert packed.data[:3].tolist() == [parts[1][0].tolist(), parts[0][0].tolist(), parts[2][0].tolist()]
    assert [s.tolist() for s in rnn.unpack_sequence(packed)] == [s.tolist() for s in parts]
    again, lengths = rnn.pad_packed_sequence(packed, padding_value=-1.0, total_length=5)
    assert again.shape == (5, 3, 2) and lengths.tolist() == [2, 4, 1]
    assert again[:4].tolist() == padded.transpose(0, 1).tolist() and (again[4] == -1).all()
    assert packed.double().data.dtype == rushlight.float64 and packed.to(rushlight.float32) is packed


def test_packing_is_differentiable():
    x = rushlight.ones(3, 2, 1, requires_grad=True)
    packed = rnn.pack_padded_sequence(x, [3, 1])
    padded, _ = rnn.pad_packed_sequence(packed)
    (padded * 2).sum().backward()
    assert x.grad.flatten().tolist() == [2, 2, 2, 0, 2, 0]


@pytest.mark.parametrize("make,error,message", [
    (lambda: rnn.pack_padded_sequence(rushlight.zeros(3, 2, 1), [1, 3]), RuntimeError, "sorted in decreasing order"),
    (lambda: rnn.pack_padded_sequence(rushlight.zeros(3, 2, 1), [3, 0]), RuntimeError, "greater than 0"),
    (lambda: rnn.pack_padded_sequence(rushlight.zeros(3, 2, 1), [3]), RuntimeError, "batch_size=2"),
    (lambda: rnn.pack_padded_sequence(rushlight.zeros(3, 2, 1), [4, 3]), RuntimeError, "at most the padded length 3"),
    (lambda: rnn.pad_sequence(3), RuntimeError, "Expected iterable"),
    (lambda: rnn.pad_sequence([rushlight.zeros(1)], padding_side="up"), RuntimeError, "left or right"),
    (lambda: rnn.pad_sequence([rushlight.zeros(1, 2), rushlight.zeros(1, 3)]), RuntimeError, "equal sizes"),
    (lambda: rnn.pad_packed_sequence(rnn.pack_sequence([rushlight.zeros(3)]), total_length=2), ValueError,
     "total_length=2"),
])
def test_sequence_errors(make, error, message):
    with pytest.raises(error, match=message):
        make()
