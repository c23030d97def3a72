"""Every layer against what real PyTorch 2.13 was recorded to be (tests/golden/make_nn.py): text, state, forward."""

from __future__ import annotations

import copy
import json
import pathlib
import pickle
import sys
import warnings

import numpy as np
import pytest

import rushlight
from rushlight import nn

GOLDEN_DIR = pathlib.Path(__file__).parent / "golden"
sys.path.insert(0, str(GOLDEN_DIR))
from nn_cases import LAYERS, make_input, parameters_of  # noqa: E402

GOLDEN = json.loads((GOLDEN_DIR / "nn.json").read_text())["layers"]
NAMES = {name: getattr(nn, name) for name in nn.modules.__all__}
FORWARD = [(e, i) for e, i in LAYERS if i]


def build(expression: str):
    rushlight.manual_seed(0)
    return eval(expression, dict(NAMES))


def with_fixed_parameters(expression: str):
    module = build(expression)
    with rushlight.no_grad():
        for parameter, values in parameters_of(module):
            parameter.copy_(rushlight.from_numpy(values))
    return module


@pytest.mark.parametrize("expression", [e for e, _ in LAYERS])
def test_text_and_initial_state(expression):
    module, golden = build(expression), GOLDEN[expression]
    assert repr(module) == golden["repr"]
    state = module.state_dict()
    assert list(state) == list(golden["state"])
    for key, (shape, dtype, values) in golden["state"].items():
        assert list(state[key].shape) == shape and str(state[key].dtype) == dtype, key
        # uniform values have PyTorch's bits; normal ones may differ in the last place
        np.testing.assert_allclose(state[key].flatten().tolist()[:12], values, rtol=3e-7, atol=0, err_msg=key)


@pytest.mark.parametrize("expression,inputs", FORWARD, ids=[e for e, _ in FORWARD])
def test_forward(expression, inputs):
    module, golden = with_fixed_parameters(expression), GOLDEN[expression]
    for mode in ("train", "eval"):
        getattr(module, mode)()
        rushlight.manual_seed(1)
        out = module(*[rushlight.from_numpy(make_input(s)) for s in inputs])
        shape, dtype, values = golden[mode]
        assert list(out.shape) == shape and str(out.dtype) == dtype
        np.testing.assert_allclose(out.flatten().tolist(), values, rtol=2e-5, atol=2e-6, err_msg=mode)
    for name, values in golden["buffers"].items():
        buffer = module.get_buffer(name).flatten().tolist()
        np.testing.assert_allclose(buffer, values, rtol=2e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("expression,inputs", FORWARD, ids=[e for e, _ in FORWARD])
def test_copies_compute_the_same(expression, inputs):
    module = with_fixed_parameters(expression).eval()
    given = [rushlight.from_numpy(make_input(s)) for s in inputs]
    expected = module(*[g.clone() for g in given]).flatten().tolist()
    for copied in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert repr(copied) == repr(module)
        assert copied(*[g.clone() for g in given]).flatten().tolist() == expected
        assert not {id(p) for p in copied.parameters()} & {id(p) for p in module.parameters()}


def test_gradients_reach_every_parameter():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))
    out = model(rushlight.from_numpy(make_input((2, 1, 4, 4))))
    nn.CrossEntropyLoss()(out, rushlight.tensor([0, 2])).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.shape == parameter.shape, name


@pytest.mark.parametrize("make,error,message", [
    (lambda: nn.Conv2d(3, 4, 3, groups=2), ValueError, "in_channels must be divisible by groups"),
    (lambda: nn.Conv2d(4, 3, 3, groups=2), ValueError, "out_channels must be divisible by groups"),
    (lambda: nn.Conv2d(4, 4, 3, groups=0), ValueError, "groups must be a positive integer"),
    (lambda: nn.Conv2d(1, 1, 3, padding="full"), ValueError, "Invalid padding string 'full'"),
    (lambda: nn.Conv2d(1, 1, 3, padding="same", stride=2), ValueError, "not supported for strided"),
    (lambda: nn.Conv2d(1, 1, 3, padding_mode="mirror"), ValueError, "padding_mode must be one of"),
    (lambda: nn.ConvTranspose2d(1, 1, 3, padding_mode="reflect"), ValueError, 'Only "zeros" padding mode'),
    (lambda: nn.Dropout(1.5), ValueError, "between 0 and 1, but got 1.5"),
    (lambda: nn.GroupNorm(3, 4), ValueError, r"num_channels \(4\) must be divisible by num_groups \(3\)"),
    (lambda: nn.Embedding(5, 2, padding_idx=5), AssertionError, "within num_embeddings"),
    (lambda: nn.Embedding(5, 2, _weight=rushlight.zeros(4, 2)), AssertionError, "does not match"),
    (lambda: nn.Embedding.from_pretrained(rushlight.zeros(4)), AssertionError, "2-dimensional"),
    (lambda: nn.Unflatten(1, 6), TypeError, "tuple of ints"),
    (lambda: nn.Unflatten(1, (2, 2.5)), TypeError, "type float at pos 1"),
    (lambda: nn.Bilinear(0, 1, 1), ValueError, "in1_features must be > 0"),
    (lambda: nn.Hardtanh(1.0, -1.0), AssertionError, "must be greater than min_val"),
    (lambda: nn.HuberLoss(delta="1"), TypeError, "delta must be a float or int"),
    (lambda: nn.MultiMarginLoss(p=3), ValueError, "only p == 1 and p == 2"),
    (lambda: nn.TripletMarginLoss(margin=0), ValueError, "margin to be greater than 0"),
    (lambda: nn.FractionalMaxPool2d(2), ValueError, "requires specifying either"),
    (lambda: nn.FractionalMaxPool2d(2, output_size=3, output_ratio=0.5), ValueError, "only one of"),
    (lambda: nn.BatchNorm1d(3)(rushlight.zeros(2, 3, 4, 5)), ValueError, r"expected 2D or 3D input \(got 4D input\)"),
    (lambda: nn.BatchNorm2d(3)(rushlight.zeros(2, 3)), ValueError, r"expected 4D input \(got 2D input\)"),
    (lambda: nn.InstanceNorm2d(3, affine=True)(rushlight.zeros(2, 4, 3, 3)), ValueError, "to match num_features"),
    (lambda: nn.Softmax2d()(rushlight.zeros(2, 3)), ValueError, "expected input to be 3D or 4D, got 2D"),
])
def test_wrong_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_legacy_reduction_flags():
    for (size_average, reduce), expected in {(False, None): "sum", (True, False): "none", (None, True): "mean"}.items():
        with pytest.warns(UserWarning, match=f"reduction='{expected}'"):
            assert nn.MSELoss(size_average, reduce).reduction == expected


def test_deprecated_arguments_and_classes():
    with pytest.warns(FutureWarning, match="min_val"):
        assert nn.Hardtanh(min_value=-2.0).min_val == -2.0
    with pytest.warns(FutureWarning, match="NLLLoss2d"):
        nn.NLLLoss2d()
    with pytest.warns(FutureWarning, match="nn.Container"):
        assert list(nn.Container(a=nn.ReLU())._modules) == ["a"]


def test_batchnorm_statistics():
    """Running statistics by definition: exponential average, unbiased variance; momentum None: plain average."""
    x1, x2 = make_input((6, 3)), make_input((4, 3)) + 1
    average, cumulative = nn.BatchNorm1d(3), nn.BatchNorm1d(3, momentum=None)
    for layer in (average, cumulative):
        layer(rushlight.from_numpy(x1))
        layer(rushlight.from_numpy(x2))
        assert layer.num_batches_tracked.item() == 2
    np.testing.assert_allclose(average.running_mean.tolist(), 0.09 * x1.mean(0) + 0.1 * x2.mean(0), rtol=1e-5,
                               atol=1e-6)
    np.testing.assert_allclose(average.running_var.tolist(),
                               0.81 + 0.09 * x1.var(0, ddof=1) + 0.1 * x2.var(0, ddof=1), rtol=1e-5)
    np.testing.assert_allclose(cumulative.running_mean.tolist(), (x1.mean(0) + x2.mean(0)) / 2, rtol=1e-5,
                               atol=1e-6)
    average.reset_running_stats()
    assert average.running_mean.tolist() == [0, 0, 0] and average.running_var.tolist() == [1, 1, 1]
    old = average.state_dict()
    del old["num_batches_tracked"]
    old._metadata[""]["version"] = 1
    assert not any(nn.BatchNorm1d(3).load_state_dict(old))


def test_embedding_padding_and_pretrained():
    table = nn.Embedding(5, 3, padding_idx=1)
    assert table.weight[1].tolist() == [0, 0, 0]
    table(rushlight.tensor([1, 2, 1])).sum().backward()
    assert table.weight.grad.tolist() == [[0, 0, 0], [0, 0, 0], [1, 1, 1], [0, 0, 0], [0, 0, 0]]
    given = rushlight.from_numpy(make_input((4, 2)))
    frozen = nn.Embedding.from_pretrained(given)
    assert not frozen.weight.requires_grad and frozen(rushlight.tensor([3])).tolist() == given[3:4].tolist()
    assert nn.Embedding.from_pretrained(given, freeze=False).weight.requires_grad


def test_lazy_modules_become_ordinary():
    x = rushlight.from_numpy(make_input((2, 3, 5, 5)))
    model = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2))
    assert "in_features=0" in repr(model) and type(model[3].weight).__name__ == "UninitializedParameter"
    with pytest.raises(RuntimeError, match="uninitialized"):
        model[3].weight.shape  # noqa: B018
    copied = copy.deepcopy(model)
    for m in (model, copied):
        assert m(x).shape == (2, 2)
        assert [type(c) for c in m] == [nn.Conv2d, nn.BatchNorm2d, nn.Flatten, nn.Linear]
        assert not m[3]._forward_pre_hooks and isinstance(m[3].weight, nn.Parameter)
        assert m(x).shape == (2, 2)
    fresh = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2))
    fresh.load_state_dict(model.state_dict())
    model.eval()
    assert fresh.eval()(x).tolist() == model(x).tolist()


def test_sequential_editing():
    s = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    first, relu, last = s
    assert s[-1] is last and type(s[:2]) is nn.Sequential and len(s[:2]) == 2
    s[1] = tanh = nn.Tanh()
    assert s[1] is tanh
    del s[1]
    assert list(s._modules) == ["0", "1"] and s[1] is last
    s.insert(1, relu).append(nn.Identity()).extend([nn.Tanh()])
    assert [type(m).__name__ for m in s] == ["Linear", "ReLU", "Linear", "Identity", "Tanh"]
    assert s.pop(-1).__class__ is nn.Tanh and len(s) == 4
    assert len(s + s) == 8 and len(s * 2) == 8 and len(2 * s) == 8
    s += nn.Sequential(nn.ReLU())
    s *= 2
    assert len(s) == 10 and s[9] is s[4]
    for wrong, error in ((lambda: s[10], IndexError), (lambda: s + [1], ValueError), (lambda: s * 1.5, TypeError),
                         (lambda: s * 0, ValueError), (lambda: s.insert(99, relu), IndexError),
                         (lambda: s.append(3), TypeError)):
        with pytest.raises(error):
            wrong()


def test_module_list_and_dict():
    layers = nn.ModuleList([nn.Linear(1, 1), nn.ReLU()])
    layers.insert(1, nn.Tanh())
    layers += [nn.Identity()]
    assert [type(m).__name__ for m in layers] == ["Linear", "Tanh", "ReLU", "Identity"]
    del layers[1:3]
    assert list(layers._modules) == ["0", "1"] and len(layers + [nn.ReLU()]) == 3
    assert layers.pop(0).__class__ is nn.Linear
    with pytest.raises(TypeError, match="should be called with an iterable, but got int"):
        layers.extend(3)
    with pytest.raises(NotImplementedError, match=r'Module \[ModuleList\] is missing the required "forward" function'):
        layers(1)
    table = nn.ModuleDict([["a", nn.ReLU()], ("b", nn.Tanh())])
    table["c"] = nn.Identity()
    table.update({"a": nn.Tanh()})
    assert list(table) == ["a", "b", "c"] and "b" in table and type(table["a"]) is nn.Tanh
    assert table.pop("b").__class__ is nn.Tanh and list(table.keys()) == ["a", "c"] and len(table.values()) == 2
    with pytest.raises(KeyError, match="attribute 'keys' already exists"):
        table["keys"] = nn.ReLU()
    with pytest.raises(ValueError, match="has length 1; 2 is required"):
        table.update([["a"]])
    table.clear()
    assert len(table) == 0


def test_parameter_containers():
    params = nn.ParameterList([rushlight.ones(2), nn.Parameter(rushlight.zeros(3)), "text"])
    assert [k for k, _ in params.named_parameters()] == ["0", "1"] and params[-1] == "text" and len(params) == 3
    assert repr(params).splitlines()[1:] == [
        "    (0): Parameter containing: [torch.float32 of size 2]",
        "    (1): Parameter containing: [torch.float32 of size 3]", "    (2): Object of type: str", ")"]
    params[0] = rushlight.zeros(4)
    assert params[0].shape == (4,) and len(params[:2]) == 2 and isinstance(params[0], nn.Parameter)
    with pytest.raises(RuntimeError, match="ParameterList should not be called"):
        params(1)
    table = nn.ParameterDict({"b": rushlight.ones(2), "a": rushlight.zeros(1)})
    assert list(table) == ["a", "b"] and list(reversed(table)) == ["b", "a"]
    table["c"] = rushlight.ones(3)
    assert table.get("x") is None and table.setdefault("d", rushlight.ones(1)).shape == (1,)
    assert table.popitem()[0] == "d" and table.pop("c").shape == (3,) and "c" not in table
    assert repr(table).splitlines()[1] == "    (a): Parameter containing: [torch.FloatTensor of size 1]"
    merged = table | nn.ParameterDict({"z": rushlight.ones(1)})
    assert list(merged) == ["a", "b", "z"] and list(table.copy()) == ["a", "b"]
    assert [k for k, _ in merged.named_parameters()] == ["a", "b", "z"]
    table.clear()
    assert len(table) == 0 and not list(table.parameters())
    with pytest.raises(TypeError, match="not a string"):
        table[1] = rushlight.ones(1)


def test_factory_arguments():
    for layer in (nn.Linear(2, 3, device="meta", dtype=rushlight.float64), nn.Conv2d(1, 1, 1, device="meta"),
                  nn.BatchNorm1d(2, device="meta"), nn.LayerNorm(3, device="meta"), nn.Embedding(2, 2, device="meta")):
        assert all(p.device.type == "meta" for p in layer.parameters())
    assert nn.Linear(2, 3, dtype=rushlight.float64).weight.dtype == rushlight.float64
    assert nn.factory_kwargs({"device": "cpu", "factory_kwargs": {"dtype": 1}}) == {"device": "cpu", "dtype": 1}
    with pytest.raises(TypeError, match="unexpected kwargs"):
        nn.factory_kwargs({"size": 3})


def test_no_warnings_on_import_of_everything():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all(isinstance(cls, type) for cls in NAMES.values())
