"""Faults found by running programs on both libraries: the right value of each, as PyTorch 2.13 gives it or as mathematics says."""

from __future__ import annotations

import copy
import io
import pickle

import pytest

import rushlight as torch
import rushlight.nn.functional as F
from rushlight import nn

# --- Module -------------------------------------------------------------------------------------------------------------


class NoInit(nn.Module):
    """Forgets super().__init__()."""

    def __init__(self):
        pass


@pytest.mark.parametrize("use", [
    lambda m: m.state_dict(), lambda m: m.load_state_dict({}), lambda m: list(m.parameters()), lambda m: m.train(), lambda m: m.to("cpu"),
    lambda m: delattr(m, "x")])
def test_without_super_init_is_an_attribute_error(use):  # mission: S-17
    with pytest.raises(AttributeError):
        use(NoInit())


def test_without_super_init_says_so():  # mission: S-17
    with pytest.raises(AttributeError, match=r"super\(\).__init__\(\)"):
        list(NoInit().parameters())


def test_to_refuses_a_dtype_that_is_none():
    with pytest.raises(TypeError, match="invalid combination"):
        nn.Linear(1, 1).to(dtype="float")


# --- lazy modules -------------------------------------------------------------------------------------------------------

LAZY = [
    (lambda: nn.LazyLinear(4), (2, 3)), (lambda: nn.LazyConv2d(4, 3), (1, 2, 5, 5)), (lambda: nn.LazyBatchNorm1d(), (2, 3)),
    (lambda: nn.LazyInstanceNorm2d(affine=True, track_running_stats=True), (1, 2, 4, 4))]


@pytest.mark.parametrize(("make", "shape"), LAZY)
def test_lazy_modules_keep_their_members_lazy_when_converted(make, shape):
    m = make().double()
    assert m.has_uninitialized_params()
    assert m(torch.ones(shape, dtype=torch.float64)).dtype is torch.float64
    assert {t.dtype for t in m.state_dict().values()} - {torch.int64} == {torch.float64}
    on_meta = make().to("meta")
    assert on_meta.has_uninitialized_params() and {p.device.type for p in on_meta.parameters()} == {"meta"}


@pytest.mark.parametrize(("make", "shape"), LAZY)
def test_lazy_modules_are_copied_and_saved(make, shape):
    for m in (copy.deepcopy(make()), pickle.loads(pickle.dumps(make()))):
        assert m.has_uninitialized_params()
        m(torch.ones(shape))
        assert "Lazy" not in type(m).__name__
    file = io.BytesIO()
    torch.save(make().state_dict(), file)
    file.seek(0)
    m = make()
    m.load_state_dict(torch.load(file, weights_only=False))
    assert m.has_uninitialized_params()


@pytest.mark.parametrize("use", [
    lambda p: p + 1, lambda p: 1 - p, lambda p: p.sum(), lambda p: p.numel(), lambda p: len(p), lambda p: p[0], lambda p: p.detach(),
    lambda p: nn.init.ones_(p)])
def test_an_uninitialized_parameter_takes_no_part_in_operations(use):
    with pytest.raises(ValueError, match="uninitialized parameter"):
        use(nn.UninitializedParameter())


# --- shapes that do not fit ---------------------------------------------------------------------------------------------

A, B, V2, V3 = torch.ones(2, 2), torch.ones(3, 3), torch.ones(2), torch.ones(3)


@pytest.mark.parametrize("call", [
    lambda: F.mse_loss(V2, V3), lambda: F.l1_loss(V2, V3), lambda: F.smooth_l1_loss(V2, V3), lambda: F.huber_loss(V2, V3),
    lambda: torch.broadcast_tensors(V2, V3), lambda: A.masked_fill(B > 0, 1.0), lambda: A.clone().masked_fill_(B > 0, 1.0),
    lambda: A.masked_select(B > 0), lambda: A.masked_scatter(B > 0, V3), lambda: A.clone().masked_scatter_(B > 0, V3),
    lambda: torch.normal(V2, V3), lambda: torch.complex(V2, V3), lambda: torch.take_along_dim(A, torch.zeros(3, 3, dtype=torch.int64), 0),
    lambda: torch.linalg.cross(torch.ones(2, 3), torch.ones(4, 3)), lambda: torch.special.hermite_polynomial_h(V2, V3),
    lambda: F.linear(A, A, V3), lambda: A.clone().bernoulli_(B / 3), lambda: A.index_add(0, torch.tensor([0]), B),
    lambda: A.clone().masked_fill_(torch.ones(3, 2, 2) > 0, 1.0)])
def test_shapes_that_do_not_broadcast_are_a_runtime_error(call):
    with pytest.raises(RuntimeError, match="size|shape"), pytest.warns():
        import warnings

        warnings.warn("the losses warn of different sizes first", stacklevel=1)
        call()


def test_block_diag_and_ldl_solve_check_their_shapes():
    with pytest.raises(RuntimeError, match="2 or fewer dimensions"):
        torch.block_diag(A, torch.ones(1, 1, 1))
    with pytest.raises(RuntimeError, match="Incompatible matrix sizes"):
        torch.linalg.ldl_solve(A, torch.ones(2, dtype=torch.int32), B)


@pytest.mark.parametrize("shape", [(2, 4), (2, 1), (1, 4), (1,), (), (4,)])
def test_linear_gives_a_bias_of_any_shape_its_gradient(shape):
    x, w = (torch.randn(s, dtype=torch.float64, requires_grad=True) for s in ((2, 3), (4, 3)))
    bias = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(F.linear, (x, w, bias)) and torch.autograd.gradgradcheck(F.linear, (x, w, bias))


# --- optimizers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("saved", "own"), [((2, 3), (3, 2)), ((200, 3), (3, 200)), ((4,), (2,)), ((2,), (4,)), ((1,), (3,))])
@pytest.mark.parametrize("name", ["Adam", "Adagrad", "RMSprop"])
def test_loaded_state_of_another_shape_is_an_error_at_the_step(name, saved, own):
    def optimizer(shape):
        p = nn.Parameter(torch.ones(shape))
        p.grad = torch.ones(shape)
        return getattr(torch.optim, name)([p])

    first, second = optimizer(saved), optimizer(own)
    first.step()
    second.load_state_dict(first.state_dict())
    with pytest.raises(RuntimeError, match="size of tensor a"):
        second.step()


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (0, 3), (2, 3)])
def test_loaded_state_that_fits_goes_on(shape):
    results = []
    for reload in (False, True):
        p = nn.Parameter(torch.full(shape, 2.0))
        optimizer = torch.optim.Adam([p], lr=0.1)
        for _ in range(4):
            p.grad = torch.ones(shape)
            optimizer.step()
            if reload:
                state, optimizer = optimizer.state_dict(), torch.optim.Adam([p], lr=5.0)
                optimizer.load_state_dict(state)
        results.append(p.detach())
    assert torch.equal(*results)


def test_optimizer_repr_separates_groups():
    o = torch.optim.SGD([{"params": [nn.Parameter(torch.ones(1))]}, {"params": [nn.Parameter(torch.ones(1))], "lr": 0.5}], lr=0.1)
    options = "    dampening: 0\n    differentiable: False\n    foreach: None\n    fused: None\n    lr: {}\n    maximize: False\n" \
              "    momentum: 0\n    nesterov: False\n    weight_decay: 0\n"
    assert repr(o) == f"SGD (\nParameter Group 0\n{options.format(0.1)}\nParameter Group 1\n{options.format(0.5)})"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_added_products_of_narrow_floats_are_rounded_once(dtype):  # what Muon's orthogonalization is made of
    x, g = torch.randn(3, 5).to(dtype), torch.randn(3, 3).to(dtype)
    assert torch.equal(torch.addmm(x, g, x, beta=3.4445, alpha=0.3), (3.4445 * x.float() + 0.3 * (g.float() @ x.float())).to(dtype))
    assert torch.equal(torch.addmv(g[0], g, g[1], beta=-4.775), (-4.775 * g[0].float() + g.float() @ g[1].float()).to(dtype))
    assert torch.equal(torch.baddbmm(x[None], g[None], x[None], beta=0.7), (0.7 * x.float() + g.float() @ x.float()).to(dtype)[None])


# --- what programs ask about the library, and what they pickle ------------------------------------------------------------


def test_version_compares_as_versions_do():
    v = torch.__version__
    assert isinstance(v, str) and v.startswith("2.13.0+")
    assert v >= "2.4" and v > "2.13.0" and v >= (1, 10) and v < (3,) and not v < "1.9.1" and v <= "2.14" and "2.4" < v
    assert v == str(v) and v != "2.13.0" and not v == "2.13.0" and hash(v) == hash(str(v))
    assert torch.torch_version.TorchVersion("1.2") < "1.10"


@pytest.mark.parametrize(("smaller", "larger"), [  # PEP 440's order
    ("2.0.dev3", "2.0a1"), ("2.0a1", "2.0b1"), ("2.0b2", "2.0rc1"), ("2.0rc1", "2.0"), ("2.0", "2.0+cpu"), ("2.0+cpu", "2.0+1"),
    ("2.0", "2.0.post1"), ("2.0.post1.dev1", "2.0.post1"), ("9.0", "1!1.0"), ("2.9", "2.10"), ("2.0.0", "2.0.1")])
def test_versions_are_ordered_by_their_parts(smaller, larger):
    version = torch.torch_version.TorchVersion
    assert version(smaller) < larger and version(larger) > smaller and not version(smaller) >= larger
    assert version("2.0") == "2.0.0" and version("2.0") == "v2.0" and version("parrot") == "parrot" and version("b") > "a"
    with pytest.raises(TypeError):
        assert version("2.0") > 2.0


FUNCTIONS = [F.relu, torch.relu, torch.cat, torch.tensor, F.max_pool2d, F.cross_entropy, torch.linalg.norm, torch.fft.fft, torch.special.erf,
             torch.Tensor.relu, torch.nn.init.ones_, torch.Tensor.bernoulli_]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f"{f.__module__}.{f.__qualname__}")
def test_functions_are_pickled_by_name(function):
    assert pickle.loads(pickle.dumps(function)) is function
    file = io.BytesIO()
    torch.save(function, file)
    file.seek(0)
    assert torch.load(file, weights_only=False) is function


def test_functions_are_saved_under_pytorch_names():
    file = io.BytesIO()
    torch.save([torch.cat, F.gelu, torch.linalg.norm, torch.max(torch.ones(2, 2), 0)], file, _use_new_zipfile_serialization=False)
    assert all(name in file.getvalue() for name in (b"ctorch\ncat\n", b"ctorch.nn.functional\ngelu\n", b"ctorch.linalg\nnorm\n",
                                                    b"ctorch.return_types\nmax\n"))
    assert b"rushlight" not in file.getvalue()


def test_pytorchs_builtin_functions_are_found():
    # how PyTorch pickles torch.relu: getattr(torch._C._VariableFunctionsClass, "relu")
    from rushlight.serialization._names import of_file

    assert of_file("torch._C", "_VariableFunctionsClass").relu is torch.relu


def test_several_results_are_of_pytorchs_classes():
    r = torch.max(torch.tensor([[1.0, 3.0], [2.0, 0.0]]), 0)
    assert type(r) is torch.return_types.max and r.values is r[0] and r.indices is r[1] and not hasattr(r, "_fields")
    again = type(r)([r.values + 1, r.indices])  # made of one sequence, as programs that map over tuples do
    assert again.values.tolist() == [3.0, 4.0]
    for copied in (pickle.loads(pickle.dumps(r)), copy.deepcopy(r), copy.copy(r)):
        assert type(copied) is type(r) and torch.equal(copied.values, r.values)
    assert repr(r) == "torch.return_types.max(\nvalues=tensor([2., 3.]),\nindices=tensor([1, 0]))"
    with pytest.raises(TypeError, match="takes a 2-sequence"):
        type(r)([1])
    assert type(torch.linalg.svd(torch.eye(2))).__name__ == "linalg_svd" and torch.return_types.sort.__match_args__ == ("values", "indices")
    match torch.sort(torch.tensor([2.0, 1.0])):
        case torch.return_types.sort(values, _):
            assert values.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(("module", "names"), [
    ("rushlight", "tensor Tensor relu cat randn float32 no_grad save load manual_seed Size device inf sum"),
    ("rushlight.nn.functional", "relu conv2d cross_entropy relu_ sigmoid scaled_dot_product_attention"),
    ("rushlight.linalg", "norm svd LinAlgError"), ("rushlight.fft", "fft irfftn"), ("rushlight.special", "erf expit"),
    ("rushlight.signal.windows", "hann kaiser"), ("rushlight.nn", "Linear Module Parameter"), ("rushlight.optim", "SGD Adam"),
    ("rushlight.utils.data", "DataLoader Dataset")])
def test_star_imports_bring_the_public_names(module, names):
    space: dict = {}
    exec(f"from {module} import *", space)
    assert [n for n in names.split() if n not in space] == []
    assert not {"Any", "annotations", "import_module"} & set(space)


@pytest.mark.parametrize("module", [torch, nn, F, torch.optim, torch.utils.data, torch.linalg, torch.autograd, torch.nn.utils, torch.backends])
def test_dir_lists_what_there_is(module):
    assert [n for n in dir(module) if not hasattr(module, n)] == []


# --- modules that were missing ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [False, True])
def test_adaptive_softmax_is_a_distribution(bias):  # mission: S-09
    torch.manual_seed(1)
    m = nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 10], div_value=2.0, head_bias=bias).double()
    x, target = torch.randn(6, 8, dtype=torch.float64, requires_grad=True), torch.tensor([0, 6, 12, 19, 3, 9])
    every = m.log_prob(x)
    assert every.shape == (6, 20) and torch.allclose(every.exp().sum(1), torch.ones(6, dtype=torch.float64))
    output, loss = m(x, target)
    assert torch.allclose(output, every.gather(1, target[:, None])[:, 0]) and torch.allclose(loss, -output.mean())
    assert torch.equal(m.predict(x), every.argmax(1))
    assert torch.autograd.gradcheck(lambda x: m(x, target).output, (x,))
    single = m(x[1], target[1])
    assert single.output.shape == () and torch.allclose(single.output, output[1])
    with pytest.raises(RuntimeError, match=r"Target values should be in \[0, 19\], but values in range \[1, 20\]"):
        m(x, target + 1)
    with pytest.raises(RuntimeError, match="1D target tensor expects 2D input"):
        m(x[None][:, :6], torch.tensor([3]))


@pytest.mark.parametrize("cutoffs", [[], [5, 25], [5, 5], [10, 5], [0, 5], [5, 20]])
def test_adaptive_softmax_refuses_cutoffs_that_do_not_increase(cutoffs):
    with pytest.raises(ValueError, match="cutoffs should be"):
        nn.AdaptiveLogSoftmaxWithLoss(8, 20, cutoffs)


def test_linear_cross_entropy_options():
    options = nn.LinearCrossEntropyOptions(chunking_method="aspect_ratio:2", batch_chunk_size=3, acc_dtype=torch.float32)
    plain, chunked = (nn.LinearCrossEntropyLoss(4, 3, options=o) for o in (None, options))
    chunked.load_state_dict(plain.state_dict())
    x, target = torch.randn(5, 4), torch.tensor([0, 2, 1, 1, 0])
    assert torch.equal(plain(x, target), chunked(x, target)) and torch.allclose(plain(x, target), F.cross_entropy(plain.linear(x), target))
    for wrong in ({"chunking_method": "aspect_ratio:0"}, {"batch_chunk_size": 0}, {"acc_policy": "x"}, {"acc_dtype": torch.int32}):
        with pytest.raises(ValueError, match="invalid|must be"):
            nn.LinearCrossEntropyOptions(**wrong)


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).T


class Doubled(nn.Module):
    def forward(self, x):
        return 2 * x

    def right_inverse(self, x):
        return x / 2


class Product(nn.Module):
    def forward(self, a, b):
        return a @ b

    def right_inverse(self, x):
        return x / 2, 2 * torch.eye(x.shape[1])


def test_parametrizations_compute_at_every_read():
    p = nn.utils.parametrize
    layer = nn.Linear(3, 3)
    start = layer.weight.detach().clone()
    assert p.register_parametrization(layer, "weight", Symmetric()) is layer
    assert torch.equal(layer.weight, layer.weight.T) and torch.equal(layer.weight.triu(), start.triu())
    assert type(layer).__name__ == "ParametrizedLinear" and isinstance(layer, nn.Linear)
    assert p.type_before_parametrizations(layer) is nn.Linear
    assert list(layer.state_dict()) == ["bias", "parametrizations.weight.original"]
    layer(torch.ones(1, 3)).sum().backward()
    assert torch.equal(layer.parametrizations.weight.original.grad, torch.tensor([[1.0, 2.0, 2.0], [0.0, 1.0, 2.0], [0.0, 0.0, 1.0]]))
    with pytest.raises(RuntimeError, match="Symmetric does not implement right_inverse"):
        layer.weight = torch.eye(3)
    assert layer.weight is not layer.weight
    with p.cached():
        assert layer.weight is layer.weight
    copied = copy.deepcopy(layer)
    p.remove_parametrizations(copied, "weight")
    assert type(copied) is nn.Linear and torch.equal(copied.weight, layer.weight) and p.is_parametrized(layer, "weight")
    with pytest.raises(RuntimeError, match=r"only supported through state_dict\(\)"):
        pickle.dumps(layer)


def test_parametrizations_with_an_inverse_can_be_assigned_to():
    p = nn.utils.parametrize
    layer = nn.Linear(2, 2)
    p.register_parametrization(layer, "weight", Doubled())
    layer.weight = torch.full((2, 2), 6.0)
    assert layer.parametrizations.weight.original.tolist() == [[3.0, 3.0], [3.0, 3.0]]
    p.register_parametrization(layer, "weight", Doubled())
    assert layer.weight.tolist() == [[12.0, 12.0], [12.0, 12.0]]
    original = layer.parametrizations.weight.original
    p.remove_parametrizations(layer, "weight", leave_parametrized=False)
    assert layer.weight is original and layer.weight.tolist() == [[3.0, 3.0], [3.0, 3.0]] and not p.is_parametrized(layer)
    p.register_parametrization(layer, "weight", Product())
    layer.weight = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert layer.weight.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert [n for n, _ in layer.named_parameters()] == ["bias", "parametrizations.weight.original0", "parametrizations.weight.original1"]
    with pytest.raises(ValueError, match="Cannot leave unparametrized"):
        p.remove_parametrizations(layer, "weight", leave_parametrized=False)
    other = nn.Linear(2, 2)
    p.transfer_parametrizations_and_params(layer, other)
    assert torch.equal(other.weight, layer.weight)


class Half(nn.Module):
    def forward(self, x):
        return x.half()


class Five(nn.Module):
    def forward(self, x):
        return 5


@pytest.mark.parametrize(("made", "message"), [(Half, "may not change the dtype"), (Five, "must return a tensor. Got int")])
def test_parametrizations_are_checked(made, message):
    p = nn.utils.parametrize
    with pytest.raises(ValueError, match=message):
        p.register_parametrization(nn.Linear(2, 2), "weight", made())
    with pytest.raises(ValueError, match=message):
        p.register_parametrization(p.register_parametrization(nn.Linear(2, 2), "weight", Doubled()), "weight", made())
    with pytest.raises(ValueError, match="does not have a parameter, a buffer"):
        p.register_parametrization(nn.Linear(2, 2), "foo", Doubled())
    with pytest.raises(ValueError, match="does not have a parametrization on weight"):
        p.remove_parametrizations(nn.Linear(2, 2), "weight")


@pytest.mark.parametrize("shape", [(3, 3), (3, 4), (4, 3)])
@pytest.mark.parametrize("how", ["matrix_exp", "cayley", "householder"])
def test_orthogonal_stays_orthogonal(shape, how):
    layer = nn.utils.parametrizations.orthogonal(nn.Linear(*shape, dtype=torch.float64), orthogonal_map=how)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        layer(torch.randn(5, shape[0], dtype=torch.float64)).square().mean().backward()
        optimizer.step()
        w = layer.weight if shape[1] <= shape[0] else layer.weight.T
        assert torch.allclose(w @ w.T, torch.eye(len(w), dtype=torch.float64))
    new = nn.init.orthogonal_(torch.empty(shape[1], shape[0], dtype=torch.float64))
    layer.weight = new
    assert torch.allclose(layer.weight, new)


def test_weight_norm_and_spectral_norm_as_parametrizations():
    layer = nn.Linear(3, 4, dtype=torch.float64)
    start = layer.weight.detach().clone()
    nn.utils.parametrizations.weight_norm(layer)
    assert torch.allclose(layer.weight, start)
    assert torch.allclose(layer.parametrizations.weight.original0[:, 0], torch.linalg.vector_norm(start, dim=1))
    with pytest.warns(FutureWarning, match="deprecated in favor of"):
        old = nn.utils.weight_norm(nn.Linear(3, 4, dtype=torch.float64))
    layer.load_state_dict(old.state_dict())  # names of the old form
    assert torch.allclose(layer.weight, old.weight)
    layer = nn.utils.parametrizations.spectral_norm(nn.Conv2d(2, 3, 3, dtype=torch.float64), n_power_iterations=200)
    assert torch.allclose(torch.linalg.matrix_norm(layer.weight.flatten(1), 2), torch.tensor(1.0, dtype=torch.float64))
    assert list(layer.state_dict()) == ["bias", "parametrizations.weight.original", "parametrizations.weight.0._u", "parametrizations.weight.0._v"]


# --- random streams -----------------------------------------------------------------------------------------------------


def drawn(function, *shape):
    torch.manual_seed(3)
    return function(torch.ones(24) if not shape else torch.ones(shape).permute(2, 1, 0))


@pytest.mark.parametrize("function", [
    lambda x: F.dropout(x, 0.3), lambda x: F.alpha_dropout(x, 0.3, True), lambda x: torch.native_dropout(x, 0.3, True)[0]])
def test_dropout_draws_in_memory_order_and_keeps_the_layout(function):  # PyTorch 2.13 draws a mask of the input's strides
    turned = drawn(function, 2, 3, 4)
    assert turned.stride() == (1, 4, 12) and torch.equal(turned.permute(2, 1, 0).reshape(-1), drawn(function))


@pytest.mark.parametrize("function", [lambda x: torch.bernoulli(x * 0.4), lambda x: torch.bernoulli(x, p=0.4), lambda x: torch.poisson(5 * x)])
def test_samples_are_drawn_in_order_into_contiguous_tensors(function):
    turned = drawn(function, 2, 3, 4)
    assert turned.is_contiguous() and torch.equal(turned.reshape(-1), drawn(function))


def test_streams_are_pytorchs():  # the values of PyTorch 2.13 after torch.manual_seed(3)
    x = torch.arange(-12.0, 12.0)
    torch.manual_seed(3)
    got = F.rrelu(x, training=True)[:6].tolist()
    assert got == pytest.approx([-1.58527, -2.03211, -2.86024, -1.45299, -2.25895, -1.76203], abs=1e-5)
    assert torch.rand(1).item() == pytest.approx(0.292745, abs=1e-6)
    torch.manual_seed(3)
    torch.svd_lowrank(torch.arange(1.0, 13.0).reshape(3, 4), 2)
    assert torch.rand(1).item() == pytest.approx(0.149841, abs=1e-6)


# --- exchanging contents ------------------------------------------------------------------------------------------------


def test_swap_tensors_exchanges_everything():
    a, b = nn.Parameter(torch.ones(2)), torch.zeros(3)
    a.grad, b.note = torch.full((2,), 5.0), "b"
    same = a
    torch.utils.swap_tensors(a, b)
    assert type(a) is torch.Tensor and type(b) is nn.Parameter and a.tolist() == [0, 0, 0] and b.tolist() == [1, 1]
    assert same is a and a.note == "b" and b.requires_grad and b.grad.tolist() == [5, 5] and not a.requires_grad
    (b * 2).sum().backward()
    assert b.grad.tolist() == [7, 7]
    with pytest.raises(RuntimeError, match="view of another tensor"):
        torch.utils.swap_tensors(a[:2], torch.ones(2))


def test_modules_can_exchange_contents_on_conversion():
    future = torch.__future__
    assert not future.get_swap_module_params_on_conversion() and not future.get_overwrite_module_params_on_conversion()
    layer, other = nn.Linear(2, 2), nn.Linear(2, 2)
    weight = layer.weight
    future.set_swap_module_params_on_conversion(True)
    try:
        layer.double()
        assert layer.weight is weight and weight.dtype is torch.float64 and isinstance(weight, nn.Parameter)
        layer.load_state_dict(other.state_dict())
        assert layer.weight is weight and torch.equal(weight, other.weight.double())
    finally:
        future.set_swap_module_params_on_conversion(False)
    future.set_overwrite_module_params_on_conversion(True)
    try:
        layer.float()
        assert layer.weight is not weight and isinstance(layer.weight, nn.Parameter)
    finally:
        future.set_overwrite_module_params_on_conversion(False)


# --- checkpointing, DataParallel ----------------------------------------------------------------------------------------


def gradients_of(call):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Tanh(), nn.Linear(8, 2), nn.Sigmoid())
    x = torch.randn(5, 3, requires_grad=True)
    y = call(model, x)
    y.square().sum().backward()
    return [y.detach(), x.grad, *[p.grad for p in model.parameters()], torch.rand(3)]


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("call", [
    lambda m, x, r: torch.utils.checkpoint.checkpoint(m, x, use_reentrant=r),
    lambda m, x, r: torch.utils.checkpoint.checkpoint_sequential(m, 2, x, use_reentrant=r),
    lambda m, x, r: torch.utils.checkpoint.checkpoint(lambda x: torch.utils.checkpoint.checkpoint(m, x, use_reentrant=r), x, use_reentrant=r)])
def test_checkpoints_give_the_same_gradients_and_random_numbers(call, reentrant):
    plain, kept = gradients_of(lambda m, x: m(x)), gradients_of(lambda m, x: call(m, x, reentrant))
    assert all(torch.equal(a, b) for a, b in zip(plain, kept, strict=True))


def test_checkpoints_keep_nothing_and_run_again():
    checkpoint = torch.utils.checkpoint
    runs = []

    def part(x):
        runs.append(len(runs))
        return (2 * x).sin().cos()

    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    y = checkpoint.checkpoint(part, x, use_reentrant=False)
    assert runs == [0]
    y.sum().backward(retain_graph=True)
    assert runs == [0, 1]
    y.sum().backward()
    assert runs == [0, 1, 2] and torch.allclose(x.grad, -4 * torch.sin(torch.sin(2 * x)) * torch.cos(2 * x))
    assert torch.autograd.gradgradcheck(lambda x: checkpoint.checkpoint(part, x, use_reentrant=False), (x,))


def test_checkpoints_notice_another_computation():
    checkpoint = torch.utils.checkpoint
    x = torch.ones(2, 3, requires_grad=True)

    def check(first, second, message, **options):
        forms = iter((first, second))
        y = checkpoint.checkpoint(lambda x: next(forms)(x), x, use_reentrant=False, **options)
        with pytest.raises(checkpoint.CheckpointError, match=message):
            y.sum().backward()

    check(lambda x: x.sin() * x.cos(), lambda x: x.sin(), "A different number of tensors was saved")
    check(lambda x: x.sin(), lambda x: x[:1].sin(), "different metadata")
    check(lambda x: x.sin(), lambda x: x.sin() * x.cos(), "save more tensors during recomputation", early_stop=False)
    with pytest.raises(ValueError, match="Unexpected keyword arguments: bogus"):
        checkpoint.checkpoint(torch.sin, x, use_reentrant=True, bogus=1)
    y = checkpoint.checkpoint(torch.sin, x, use_reentrant=True)
    with pytest.raises(RuntimeError, match="incompatible with .grad"):
        torch.autograd.grad(y.sum(), x)
    with pytest.warns(UserWarning, match="use_reentrant parameter should be passed explicitly"):
        checkpoint.checkpoint(torch.sin, x)


def test_data_parallel_calls_its_module():
    layer = nn.Linear(2, 3)
    model = nn.DataParallel(layer, device_ids=[0])
    x = torch.randn(4, 2)
    assert torch.equal(model(x), layer(x)) and list(model.state_dict()) == ["module.weight", "module.bias"]
    assert torch.equal(nn.parallel.data_parallel(layer, x), layer(x))


# --- serialization ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights_only", [True, False])
def test_load_refuses_unknown_arguments(weights_only):  # mission: G-05
    file = io.BytesIO()
    torch.save([1], file)
    file.seek(0)
    with pytest.raises(TypeError, match="bogus"):
        torch.load(file, weights_only=weights_only, bogus=1)
    file.seek(0)
    assert torch.load(file, weights_only=weights_only, encoding="utf-8") == [1]


# --- names that are not there -------------------------------------------------------------------------------------------

LATER = "Rushlight does not have it yet"
WITHOUT = ["nn", "nn.functional", "nn.init", "nn.parallel", "nn.utils", "nn.utils.rnn", "optim", "optim.lr_scheduler", "autograd", "utils", "utils.data", "cuda",
           "backends", "backends.cuda", "compiler", "serialization", "fft", "linalg", "special", "masked", "sparse", "signal.windows", "ops"]


@pytest.mark.parametrize("module", ["", *WITHOUT])
def test_missing_names_have_a_hint_however_they_are_asked_for(module):
    ours, theirs = (f"{root}.{module}".rstrip(".") for root in ("rushlight", "torch"))
    exec(f"import {ours}")
    with pytest.raises(AttributeError, match=f"module '{theirs}' has no attribute 'Nothing'.*{LATER}"):
        exec(f"{ours}.Nothing", {"rushlight": torch})
    with pytest.raises(ImportError, match=f"cannot import name 'Nothing' from '{theirs}'.*{LATER}") as error:
        exec(f"from {ours} import Nothing")
    assert type(error.value) is ImportError and error.value.name == ours
    with pytest.raises(ModuleNotFoundError, match=f"No module named '{ours}.nothing'") as error:
        exec(f"import {ours}.nothing")
    assert error.value.name == f"{ours}.nothing"
    assert not hasattr(eval(ours, {"rushlight": torch}), "Nothing") and getattr(eval(ours, {"rushlight": torch}), "Nothing", 3) == 3


def test_missing_modules_have_the_hint_and_find_spec_says_none():
    import importlib.util
    with pytest.raises(ModuleNotFoundError, match=LATER):
        import rushlight.distributions  # noqa: F401
    assert importlib.util.find_spec("rushlight.distributions") is None


# --- questions that programs ask before they choose a device ------------------------------------------------------------

@pytest.mark.parametrize(("question", "answer"), [
    ("torch.distributed.is_available()", False), ("torch.distributed.is_initialized()", False), ("torch.distributed.is_nccl_available()", False),
    ("torch.xpu.is_available()", False), ("torch.mtia.is_available()", False), ("torch.hpu.is_available()", False), ("torch.mps.is_available()", False),
    ("torch.xpu.device_count()", 0), ("torch.accelerator.is_available()", False), ("torch.accelerator.device_count()", 0),
    ("torch.accelerator.current_accelerator()", None), ("torch.accelerator.current_accelerator(check_available=True)", None),
    ("torch.cpu.is_available()", True), ("torch.cpu.device_count()", 1), ("torch.cpu.current_device()", "cpu"), ("torch.version.xpu", None),
    ("torch.backends.openmp.is_available()", False), ("torch.backends.mkl.is_available()", False), ("torch.backends.mkldnn.is_available()", False),
    ("torch.backends.nnpack.is_available()", False), ("torch.backends.opt_einsum.is_available()", False), ("torch.backends.mkldnn.enabled", True),
    ("torch.backends.mha.get_fastpath_enabled()", True), ("torch.backends.cuda.flash_sdp_enabled()", True), ("torch.backends.cuda.is_built()", False),
    ("torch.backends.cudnn.is_available()", False), ("torch.backends.cudnn.benchmark_limit", None), ("torch.backends.cudnn.is_acceptable(torch.ones(1))", False),
    ("torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction", True), ("torch.cuda.get_arch_list()", []), ("torch.cuda.get_rng_state_all()", []),
    ("torch.get_autocast_dtype('cpu')", torch.bfloat16), ("torch.get_autocast_dtype('cuda')", torch.float16), ("torch.is_autocast_enabled('cuda')", False),
    ("torch.is_autocast_cache_enabled()", True), ("torch.cuda.set_rng_state_all([])", None)])
def test_questions_about_what_is_not_here_have_answers(question, answer):
    """Where the answer does not depend on what is built in, it is that of PyTorch 2.13 for CPUs."""
    given = eval(question, {"torch": torch})
    assert given == answer and type(given) is type(answer)


@pytest.mark.parametrize("module", ["distributed", "xpu", "mtia", "mps", "accelerator", "cuda.amp", "amp", "backends.mkldnn", "backends.openmp", "backends.cudnn"])
def test_their_modules_can_be_imported_and_have_the_hint(module):
    import importlib
    m = importlib.import_module(f"rushlight.{module}")
    with pytest.raises(AttributeError, match=f"module 'torch.{module}' has no attribute 'nothing'.*{LATER}"):
        m.nothing  # noqa: B018
    assert all(hasattr(m, n) for n in m.__all__)


def test_what_needs_an_accelerator_is_a_runtime_error():
    with pytest.raises(RuntimeError, match="Cannot access accelerator device when none is available"):
        torch.accelerator.synchronize()
    with pytest.raises(RuntimeError, match="CUDA"):
        torch.cuda.set_rng_state_all([torch.get_rng_state()])


@pytest.mark.parametrize("name", ["cudnn", "mkldnn"])
def test_flags_of_backends_last_as_long_as_their_block(name):
    settings = getattr(torch.backends, name)
    with settings.flags(enabled=False, deterministic=True):
        assert not settings.enabled and settings.deterministic
    assert settings.enabled and not settings.deterministic
    assert torch.backends.mkldnn.set_flags(False)[0] is True and torch.backends.mkldnn.set_flags(True)[0] is False


def test_switched_off_mixed_precision_changes_nothing():
    x = torch.ones(2, 2)
    with torch.autocast("cpu", enabled=False):
        assert (x @ x).dtype is torch.float32
    assert torch.autocast("cpu", dtype=torch.bfloat16, enabled=False)(lambda v: v + 1)(1) == 2
    with pytest.warns(UserWarning, match="CUDA is not available. Disabling autocast"), torch.amp.autocast("cuda", torch.float16):
        assert (x @ x).dtype is torch.float32
    with pytest.warns(UserWarning, match="target dtype is not supported. Disabling"):
        torch.autocast("cpu", dtype=torch.float64)
    with pytest.warns(FutureWarning, match=r"torch.amp.autocast\('cuda', args...\)"):
        torch.cuda.amp.autocast(enabled=False)
    p = nn.Parameter(torch.ones(1))
    optimizer, scaler = torch.optim.SGD([p], lr=0.5), torch.amp.GradScaler("cuda", enabled=False)
    scaler.scale((p * 3).sum()).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert p.item() == -0.5 and scaler.get_scale() == 1.0 and scaler.state_dict() == {} and not scaler.is_enabled()
    with pytest.warns(UserWarning, match="GradScaler is enabled, but CUDA is not available"):
        assert not torch.amp.GradScaler().is_enabled()
    f = lambda ctx, v: v
    assert torch.amp.custom_fwd(f, device_type="cuda") is f and torch.cuda.amp.custom_bwd(f) is f and torch.cuda.amp.custom_fwd(cast_inputs=torch.float32)(f) is f


@pytest.mark.parametrize(("make", "error", "message"), [
    (lambda: torch.autocast("cpu"), NotImplementedError, "does not have yet: pass enabled=False"),
    (lambda: torch.autocast("cpu", dtype=torch.float16), NotImplementedError, "does not have yet"),
    (lambda: torch.amp.GradScaler("cpu"), NotImplementedError, "does not have yet: pass enabled=False"),
    (lambda: torch.autocast("nothing", enabled=False), RuntimeError, "Expected one of cpu, cuda"),
    (lambda: torch.autocast("meta", enabled=False), RuntimeError, "unsupported autocast device_type 'meta'"),
    (lambda: torch.autocast(torch.device("cpu")), ValueError, "Expected `device_type` of type `str`")])
def test_mixed_precision_that_would_have_an_effect_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


# --- checkpoints --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("location", ["meta", torch.device("meta"), {"cpu": "meta"}, lambda s, name: torch.UntypedStorage(s.nbytes(), device="meta")])
@pytest.mark.parametrize("new", [True, False])
def test_checkpoints_with_sparse_tensors_load_on_meta(location, new):
    x = torch.eye(4, 6, dtype=torch.bfloat16)
    saved = {"coo": x.to_sparse(), "csr": x.to_sparse_csr(), "csc": x.to_sparse_csc(), "bsr": x.to_sparse_bsr((2, 2)), "bsc": x.to_sparse_bsc((2, 3)), "dense": x}
    file = io.BytesIO()
    torch.save(saved, file, _use_new_zipfile_serialization=new)
    file.seek(0)
    for t in torch.load(file, map_location=location).values():
        assert (t.device.type, t.shape, t.dtype, t.stride()) == ("meta", (4, 6), torch.bfloat16, (6, 1))
    file.seek(0)
    for t in torch.load(file).values():
        assert t.device.type == "cpu" and t.to_dense().equal(x)


# --- errors and commands ------------------------------------------------------------------------------------------------

def test_exceptions_print_pytorchs_names_and_can_be_pickled():
    with pytest.raises(torch.linalg.LinAlgError) as error:
        torch.linalg.inv(torch.zeros(2, 2))
    c = type(error.value)
    assert f"{c.__module__}.{c.__qualname__}" == "torch._C._LinAlgError" and torch._C._LinAlgError is c and c.__mro__[1] is RuntimeError
    again = pickle.loads(pickle.dumps(error.value))
    assert type(again) is c and again.args == error.value.args
    with pytest.raises(torch.cuda.OutOfMemoryError) as error:
        torch.empty(2**60, dtype=torch.uint8)
    c = type(error.value)
    assert torch.OutOfMemoryError is c and f"{c.__module__}.{c.__qualname__}" == "torch.OutOfMemoryError"
    assert type(pickle.loads(pickle.dumps(error.value))) is c
    assert issubclass(torch.AcceleratorError, RuntimeError)


@pytest.mark.parametrize(("command", "read"), [("rushlight.ops", 1), ("rushlight.ops --names", 0), ("rushlight doctor --json", 1), ("rushlight doctor", 0)])
def test_output_that_nobody_reads_is_no_error(command, read):
    import subprocess
    import sys
    with subprocess.Popen([sys.executable, "-m", *command.split()], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        for _ in range(read):
            process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
    if not read:
        assert process.returncode == 141        # 128 + SIGPIPE, as of other programs in a shell


def test_the_list_of_operators_has_help_and_refuses_what_it_does_not_know(capsys):
    from rushlight.ops.__main__ import main
    assert main(["--help"]) == 0 and capsys.readouterr().out.startswith("usage: python -m rushlight.ops")
    assert main(["--nothing"]) == 2 and "'--nothing', expected --names" in capsys.readouterr().err


# --- samples of distributions -------------------------------------------------------------------------------------------

GAMMA = [[.5, 1, 2, 10.], [3, 3, 3, 3]]


@pytest.mark.parametrize(("make", "expected"), [
    (lambda: torch.binomial(torch.tensor([10., 20, 100, 5]), torch.tensor([.3, .5, .9, .1])), [6, 9, 92, 0]),
    (lambda: torch.binomial(torch.tensor([[10.], [100]]), torch.tensor([[.3, .2]])), [[6, 2], [29, 18]]),
    (lambda: torch.binomial(torch.tensor([-1.0, 10]), torch.tensor([.3, 1.3])), [0, 10]),
    (lambda: torch._standard_gamma(torch.tensor([.5, 1, 2, 10.])), [7.8936e-04, 1.1898e-01, 1.8824, 7.9011]),
    (lambda: torch._standard_gamma(torch.tensor(GAMMA, dtype=torch.float64).t()),
     [[7.8936e-04, 1.2728], [8.0638e-01, 1.7939], [1.3516, 4.8154], [7.3180, 1.5678]]),
    (lambda: torch._sample_dirichlet(torch.tensor([[1., 2, 3], [.1, .1, .1]])), [[0.5282, 0.2411, 0.2307], [0.0804, 0.9153, 0.0043]])])
def test_samples_are_pytorchs(make, expected):
    """Printed by PyTorch 2.13 after the same seed."""
    torch.manual_seed(0)
    assert torch.allclose(make().double(), torch.tensor(expected, dtype=torch.float64), rtol=1e-4, atol=5e-5)


@pytest.mark.parametrize(("make", "error", "message"), [
    (lambda: torch.binomial(torch.tensor([10]), torch.tensor([.3])), ValueError, "only supports floating-point dtypes for count"),
    (lambda: torch.binomial(torch.ones(1), torch.ones(1, dtype=torch.float64)), RuntimeError, "dtype, torch.float32, got torch.float64"),
    (lambda: torch._standard_gamma(torch.tensor([1])), NotImplementedError, "gamma_cpu"),
    (lambda: torch._standard_gamma(torch.ones(1, requires_grad=True)), NotImplementedError, "gradients of samples"),
    (lambda: torch.binomial(torch.ones(2, device="meta"), torch.ones(2, device="meta")), NotImplementedError, "dense CPU")])
def test_samples_that_cannot_be_had(make, error, message):
    with pytest.raises(error, match=message):
        make()


# --- names of nodes -----------------------------------------------------------------------------------------------------

X = torch.rand(4, 4, requires_grad=True)
Y = X + 0
NAMED = {
    "x[0]": "Select", "x[0, 1]": "Select", "x[..., 0]": "Select", "x[1:]": "Slice", "x[:, 1:2]": "Slice", "x[0, 1:]": "Slice", "x[None]": "Unsqueeze",
    "x[:]": "Slice", "x[0, :]": "Select", "x[[0, 1]]": "Index", "x[x > 0.5]": "Index", "x.narrow(0, 0, 1)": "Slice", "x.select(0, 0)": "Select",
    "x.sum()": "Sum", "x.sum(0)": "Sum1", "x.sum((0, 1))": "Sum1", "x.mean()": "Mean", "x.mean(1)": "Mean1", "x.mean(dim=-1, keepdim=True)": "Mean1",
    "x.max()": "Max1", "x.max(0)[0]": "Max0", "x.min()": "Min1", "x.min(1)[0]": "Min0", "torch.max(x, x)": "Maximum", "x.prod()": "Prod", "x.norm()": "LinalgVectorNorm",
    "x.norm(3)": "LinalgVectorNorm", "torch.linalg.norm(x, dim=0)": "LinalgVectorNorm", "F.linear(x, x, x[0])": "Addmm", "x @ x": "Mm", "x @ x[0]": "Mv",
    "F.cross_entropy(x, torch.tensor([0, 1, 2, 3]))": "NllLoss", "F.nll_loss(x, torch.tensor([0, 1, 2, 3]))": "NllLoss", "F.l1_loss(x, x + 1)": "Mean",
    "F.mse_loss(x, x)": "MseLoss", "x.square()": "Pow", "x ** 2": "Pow", "x.clamp(0, 1)": "Clamp1", "F.softsign(x)": "Div", "F.tanhshrink(x)": "Sub",
    "F.relu6(x)": "Hardtanh", "F.avg_pool2d(x[None], 2)": "AvgPool2D", "F.adaptive_max_pool2d(x[None], 2)": "AdaptiveMaxPool2D", "torch.linalg.det(x)": "LinalgDet",
    "torch.linalg.inv(x)": "LinalgInvEx", "torch.linalg.svd(x)[1]": "LinalgSvd", "torch.linalg.qr(x)[0]": "LinalgQr", "torch.linalg.eigh(x)[0]": "LinalgEigh",
    "torch.linalg.slogdet(x)[1]": "LinalgSlogdet", "torch.linalg.solve(x, x)": "LinalgSolveEx", "x.double()": "ToCopy", "x.T": "Permute", "x.view(16)": "View"}


@pytest.mark.parametrize("code", NAMED)
def test_nodes_print_pytorchs_names(code):
    """As PyTorch 2.13 prints them."""
    name = NAMED[code]
    name = f"{name}Backward0" if not name[-1].isdigit() else f"{name[:-1]}Backward{name[-1]}"
    y = eval(code, {"torch": torch, "F": F, "x": Y})
    assert y.grad_fn.name() == name and f"grad_fn=<{name}>" in repr(y) and repr(y.grad_fn).startswith(f"<{name} object at ")


def test_names_of_nodes_stay_when_their_graph_is_freed():
    y = X[1:].sum(0).mean(0)
    nodes = [y.grad_fn, y.grad_fn.next_functions[0][0], y.grad_fn.next_functions[0][0].next_functions[0][0]]
    y.backward()
    assert [n.name() for n in nodes] == ["MeanBackward1", "SumBackward1", "SliceBackward0"]
