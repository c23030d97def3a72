"""nn.Module: attributes, members, hooks, state, copies, and what a failing forward says."""

from __future__ import annotations

import copy
import gc
import pickle
import warnings
import weakref
from collections import OrderedDict

import pytest

import rushlight
from rushlight import nn
from rushlight.nn.modules import module as module_file
from rushlight.nn.modules.module import mutation_epoch


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 4)
        self.body = nn.Sequential(nn.ReLU(), nn.Linear(4, 2))
        self.register_buffer("scale", rushlight.ones(1))
        self.register_buffer("scratch", rushlight.zeros(2), persistent=False)
        self.bias = nn.Parameter(rushlight.zeros(2))

    def forward(self, x, shift=0.0):
        return self.body(self.fc(x)) * self.scale + self.bias + shift


class Extra(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.value = value

    def get_extra_state(self):
        return {"value": self.value}

    def set_extra_state(self, state):
        self.value = state["value"]


class Twice(nn.Module):
    def forward(self, x):
        return x * 2


def x_of(rows=2):
    return rushlight.arange(3.0 * rows).reshape(rows, 3)


# -- attributes ------------------------------------------------------------------------------------------------------


def test_members_are_found_in_order_of_registration():
    net = Net()
    assert [n for n, _ in net.named_parameters()] == ["bias", "fc.weight", "fc.bias", "body.1.weight", "body.1.bias"]
    assert [n for n, _ in net.named_parameters(prefix="m", recurse=False)] == ["m.bias"]
    assert [n for n, _ in net.named_buffers()] == ["scale", "scratch"]
    assert [n for n, _ in net.named_modules()] == ["", "fc", "body", "body.0", "body.1"]
    assert [n for n, _ in net.named_children()] == ["fc", "body"]
    assert len(list(net.modules())) == 5 and len(list(net.children())) == 2
    assert len(list(net.parameters())) == 5 and len(list(net.buffers())) == 2


def test_shared_members_count_once_unless_asked():
    shared = nn.Linear(2, 2)
    both = nn.Sequential(shared, shared)
    assert len(list(both.parameters())) == 2 and len(list(both.modules())) == 2 and len(list(both.children())) == 1
    assert [n for n, _ in both.named_parameters(remove_duplicate=False)] == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert [n for n, _ in both.named_modules(remove_duplicate=False)] == ["", "0", "1"]


def test_reads_follow_the_dictionaries():
    """`_parameters`, `_buffers`, `_modules` are the truth: changing them directly shows in attribute reads."""
    layer = nn.Linear(2, 3)
    new = nn.Parameter(rushlight.zeros(3, 2))
    layer._parameters["weight"] = new
    assert layer.weight is new
    del layer._parameters["weight"]
    assert not hasattr(layer, "weight")
    layer._parameters["weight"] = new
    layer.weight = None
    assert layer.weight is None and layer._parameters["weight"] is None
    layer._parameters.update(weight=new, other=new)
    assert layer.other is new and layer._parameters.pop("other") is new and not hasattr(layer, "other")
    layer._parameters.clear()
    assert not hasattr(layer, "bias") and not list(layer.parameters())
    layer._parameters = OrderedDict(weight=new)
    assert layer.weight is new and list(layer._parameters) == ["weight"]
    layer._parameters.setdefault("bias", new)
    layer._parameters |= {"third": new}
    assert layer.bias is new and layer.third is new
    assert layer._parameters.popitem() == ("third", new) and not hasattr(layer, "third")
    net = Net()
    net._modules["fc"] = replaced = nn.Identity()
    net._buffers["scale"] = buffer = rushlight.zeros(1)
    assert net.fc is replaced and net.scale is buffer


def test_class_and_instance_attributes_keep_their_precedence():
    class Named(nn.Module):
        inner = None

        def __init__(self):
            super().__init__()
            self.inner = nn.ReLU()

    named = Named()
    assert named.inner is None and isinstance(named._modules["inner"], nn.ReLU)
    layer = nn.Linear(1, 1)
    weight = layer.weight
    layer.__dict__["weight"] = shadow = rushlight.zeros(1)
    layer._parameters["weight"] = nn.Parameter(rushlight.ones(1, 1))
    assert layer.weight is shadow
    del layer.__dict__["weight"]
    assert layer.weight is layer._parameters["weight"] is not weight


def test_assignment_moves_a_name_between_the_tables():
    m = nn.Module()
    m.a = 3
    m.a = nn.Parameter(rushlight.zeros(1))
    assert list(m._parameters) == ["a"] and isinstance(m.a, nn.Parameter)
    m.a = nn.ReLU() if m.__delattr__("a") is None else None
    assert not m._parameters and list(m._modules) == ["a"]
    m.b = nn.Buffer(rushlight.zeros(1), persistent=False)
    assert list(m._buffers) == ["b"] and not m.state_dict()
    m.b = rushlight.ones(1)
    assert m.b.item() == 1 and m._non_persistent_buffers_set == {"b"}
    m.b = nn.Parameter(rushlight.zeros(2))
    assert not m._buffers and not m._non_persistent_buffers_set and m.b.shape == (2,)
    plain = rushlight.zeros(1)
    m.c = plain
    assert "c" not in m._buffers and m.c is plain


@pytest.mark.parametrize("make,error,message", [
    (lambda m: setattr(m, "weight", rushlight.zeros(1)), TypeError,
     r"cannot assign 'torch.FloatTensor' as parameter 'weight' \(torch.nn.Parameter or None expected\)"),
    (lambda m: setattr(m, "weight", 3), TypeError, "cannot assign 'int' as parameter 'weight'"),
    (lambda m: setattr(m, "child", 3), TypeError,
     r"cannot assign 'int' as child module 'child' \(torch.nn.Module or None expected\)"),
    (lambda m: setattr(m, "buf", 3), TypeError,
     r"cannot assign 'int' as buffer 'buf' \(torch.nn.Buffer, torch.Tensor or None expected\)"),
    (lambda m: m.register_parameter("p", rushlight.zeros(1)), TypeError,
     r"object to parameter 'p' \(torch.nn.Parameter or None required\)"),
    (lambda m: m.register_parameter("a.b", None), KeyError, "t contain"),
    (lambda m: m.register_parameter("", None), KeyError, "empty string"),
    (lambda m: m.register_parameter(3, None), TypeError, "parameter name should be a string. Got int"),
    (lambda m: m.register_parameter("forward", None), KeyError, "attribute 'forward' already exists"),
    (lambda m: m.register_buffer("b", 3), TypeError, r"object to buffer 'b' \(torch Tensor or None required\)"),
    (lambda m: m.register_buffer("b.c", None), KeyError, "t contain"),
    (lambda m: m.register_buffer("weight", None), KeyError, "attribute 'weight' already exists"),
    (lambda m: m.add_module("x", 3), TypeError, "int is not a Module subclass"),
    (lambda m: m.add_module("a.b", None), KeyError, "got: a.b"),
    (lambda m: m.add_module("", None), KeyError, "empty string"),
    (lambda m: m.add_module(None, nn.ReLU()), TypeError, "module name should be a string. Got NoneType"),
    (lambda m: m.add_module("weight", nn.ReLU()), KeyError, "attribute 'weight' already exists"),
    (lambda m: m.nothing, AttributeError, "'Linear' object has no attribute 'nothing'"),
    (lambda m: delattr(m, "nothing"), AttributeError, "nothing"),
    (lambda m: m.train(1), ValueError, "training mode is expected to be boolean"),
    (lambda m: m.to(rushlight.int64), TypeError, "only accepts floating point or complex dtypes"),
    (lambda m: m.load_state_dict([1]), TypeError, "Expected state_dict to be dict-like, got <class 'list'>"),
    (lambda m: nn.Module(1), TypeError, r"takes 1 positional argument but 2 were given"),
    (lambda m: nn.Module(size=1), TypeError, "got an unexpected keyword argument 'size'"),
    (lambda m: nn.Module()(1), NotImplementedError, r'Module \[Module\] is missing the required "forward" function'),
])
def test_errors(make, error, message):
    module = nn.Linear(2, 2)
    module.child = nn.ReLU()
    module.register_buffer("buf", rushlight.zeros(1))
    with pytest.raises(error, match=message):
        make(module)


def test_assignment_before_init():
    class Early(nn.Module):
        def __init__(self, value):
            self.value = value
            super().__init__()

    for value, what in ((nn.Parameter(rushlight.zeros(1)), "parameters"), (nn.ReLU(), "module"),
                        (nn.Buffer(rushlight.zeros(1)), "buffer")):
        with pytest.raises(AttributeError, match=f"cannot assign {what} before Module.__init__"):
            Early(value)
    assert Early(3).value == 3


def test_non_leaf_parameter_is_refused():
    m, p = nn.Module(), nn.Parameter(rushlight.ones(1))
    derived = p * 2
    derived._is_param = True
    with pytest.raises(ValueError, match="Cannot assign non-leaf Tensor to parameter 'w'"):
        m.register_parameter("w", derived)


def test_get_and_set_by_path():
    net = Net()
    assert net.get_submodule("") is net and net.get_submodule("body.1") is net.body[1]
    assert net.get_parameter("body.1.weight") is net.body[1].weight and net.get_buffer("scale") is net.scale
    for wrong, message in ((lambda: net.get_submodule("body.7"), "Sequential has no attribute `7`"),
                           (lambda: net.get_submodule("scale"), "`scale` is not an nn.Module"),
                           (lambda: net.get_parameter("scale"), "`scale` is not an nn.Parameter"),
                           (lambda: net.get_buffer("bias"), "`bias` is not a buffer"),
                           (lambda: net.set_submodule("body.9", nn.ReLU(), strict=True), "no attribute `9`")):
        with pytest.raises(AttributeError, match=message):
            wrong()
    net.set_submodule("body.0", tanh := nn.Tanh())
    assert net.body[0] is tanh
    with pytest.raises(ValueError, match="without a target name"):
        net.set_submodule("", tanh)


def test_dir_lists_members():
    names = dir(Net())
    assert {"fc", "scale", "bias", "forward"} <= set(names) and names == sorted(names)
    assert "0" not in dir(nn.Sequential(nn.ReLU()))


def test_init_again_starts_afresh():
    net = Net()
    net.register_forward_hook(lambda *a: None)
    nn.Module.__init__(net)
    assert not list(net.parameters()) and not hasattr(net, "fc") and not net._forward_hooks


def test_modules_die_without_the_collector():
    gc.disable()
    try:
        net = Net()
        ref, weight = weakref.ref(net), weakref.ref(net.fc.weight)
        del net
        assert ref() is None and weight() is None
    finally:
        gc.enable()


def test_call_super_init():
    class Mixin:
        def __init__(self, tag="none"):
            self.tag = tag

    class Both(nn.Module, Mixin):
        call_super_init = True

        def __init__(self):
            super().__init__(tag="set")

    assert Both().tag == "set"


# -- modes and conversions -------------------------------------------------------------------------------------------


def test_train_eval_apply_requires_grad():
    net = Net()
    assert net.eval() is net and not any(m.training for m in net.modules())
    assert all(m.training for m in net.train().modules())
    seen = []
    net.apply(lambda m: seen.append(type(m).__name__))
    assert seen == ["Linear", "ReLU", "Linear", "Sequential", "Net"]
    assert not any(p.requires_grad for p in net.requires_grad_(False).parameters())


def test_zero_grad():
    net = Net()
    net(x_of()).sum().backward()
    grads = [p.grad for p in net.parameters()]
    net.zero_grad(set_to_none=False)
    assert all(p.grad is g and not g.any() for p, g in zip(net.parameters(), grads, strict=True))
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())


def test_conversion_keeps_parameter_objects():
    net = Net()
    net.register_buffer("count", rushlight.tensor(3))
    before = list(net.parameters())
    net(x_of()).sum().backward()
    assert net.double() is net
    assert all(a is b for a, b in zip(before, net.parameters(), strict=True))
    assert {p.dtype for p in before} == {p.grad.dtype for p in before} == {rushlight.float64}
    assert net.scale.dtype == rushlight.float64 and net.count.dtype == rushlight.int64
    for convert, dtype in ((net.half, rushlight.float16), (net.bfloat16, rushlight.bfloat16),
                           (net.float, rushlight.float32),
                           (lambda: net.to(rushlight.float64), rushlight.float64),
                           (lambda: net.to("cpu", rushlight.float32), rushlight.float32),
                           (lambda: net.to(rushlight.zeros(1, dtype=rushlight.float64)), rushlight.float64),
                           (lambda: net.type(rushlight.float32), rushlight.float32)):
        convert()
        assert net.fc.weight.dtype == net.scale.dtype == dtype
    with pytest.raises(TypeError, match="invalid combination of arguments"):
        net.to("cpu", "cpu")


def test_to_meta_and_back_to_empty():
    net = nn.Linear(2, 3).to("meta")
    assert net.weight.is_meta and isinstance(net.weight, nn.Parameter)
    with pytest.raises(NotImplementedError, match="Module.to_empty"):
        net.to("cpu")
    net.to_empty(device="cpu")
    assert not net.weight.is_meta and net.weight.shape == (3, 2) and net.weight.requires_grad


# -- hooks -----------------------------------------------------------------------------------------------------------


def test_forward_hooks():
    m, seen = Twice(), []
    pre = m.register_forward_pre_hook(lambda mod, args: (args[0] + 1,))
    post = m.register_forward_hook(lambda mod, args, out: seen.append((args[0].item(), out.item())))
    assert m(rushlight.tensor(1.0)).item() == 4 and seen == [(2.0, 4.0)]
    post.remove()
    last = m.register_forward_hook(lambda mod, args, out: out + 100)
    first = m.register_forward_hook(lambda mod, args, out: out * 10, prepend=True)
    assert m(rushlight.tensor(1.0)).item() == 140
    single = m.register_forward_pre_hook(lambda mod, args: args[0] + 1)
    assert m(rushlight.tensor(1.0)).item() == 160
    for handle in (pre, last, first, single):
        handle.remove()
    assert m(rushlight.tensor(1.0)).item() == 2


def test_hooks_with_kwargs():
    net, seen = Net(), []

    def pre(mod, args, kwargs):
        return args, {"shift": kwargs["shift"] + 1}

    def post(mod, args, kwargs, out):
        seen.append(kwargs)

    plain = net(x_of())
    net.register_forward_pre_hook(pre, with_kwargs=True)
    net.register_forward_hook(post, with_kwargs=True)
    out = net(x_of(), shift=1.0)
    assert seen == [{"shift": 2.0}] and rushlight.allclose(out, plain + 2)
    net.register_forward_pre_hook(lambda mod, args, kwargs: args, with_kwargs=True)
    with pytest.raises(RuntimeError, match=r"must return None or a tuple of \(new_args, new_kwargs\)"):
        net(x_of(), shift=1.0)


def test_always_called_hooks_run_after_an_exception():
    class Fails(nn.Module):
        def forward(self, x):
            raise KeyError("inside")

    m, seen = Fails(), []
    m.register_forward_hook(lambda *a: seen.append("plain"))
    m.register_forward_hook(lambda *a: seen.append("always"), always_call=True)
    with pytest.raises(KeyError):
        m(1)
    assert seen == ["always"]

    def raises(*a):
        raise ValueError("hook")

    m.register_forward_hook(raises, always_call=True)
    with pytest.warns(UserWarning, match="always_call=True"), pytest.raises(KeyError):
        m(1)


def test_full_backward_hooks():
    m, seen = nn.Linear(3, 2), []
    m.register_full_backward_pre_hook(lambda mod, grad: seen.append(("pre", [tuple(g.shape) for g in grad])))
    m.register_full_backward_hook(lambda mod, gi, go: seen.append(("post", tuple(gi[0].shape), tuple(go[0].shape))))
    x = x_of().requires_grad_()
    m(x).sum().backward()
    assert seen == [("pre", [(2, 2)]), ("post", (2, 3), (2, 2))]
    plain = x.grad.clone()
    x.grad = None
    m.register_full_backward_hook(lambda mod, gi, go: (gi[0] * 3,))
    m(x).sum().backward()
    assert rushlight.allclose(x.grad, plain * 3)
    x.grad = None
    m.register_full_backward_pre_hook(lambda mod, go: (go[0] * 2,))
    m(x).sum().backward()
    assert rushlight.allclose(x.grad, plain * 6)


def test_backward_hook_errors():
    m = nn.Linear(3, 2)
    m.register_full_backward_hook(lambda mod, gi, go: gi + gi)
    with pytest.raises(RuntimeError, match="one of them"):
        m.register_backward_hook(lambda *a: None)
    with pytest.raises(RuntimeError, match="invalid number of grad_input, got 2, but expected 1"):
        m(x_of().requires_grad_()).sum().backward()
    other = nn.Linear(3, 2)
    other.register_full_backward_hook(lambda mod, gi, go: None)
    with pytest.warns(UserWarning, match="no inputs require gradients"):
        other(x_of()).sum().backward()


def test_plain_backward_hook_sees_the_last_node():
    m, seen = Twice(), []
    m.register_backward_hook(lambda mod, gi, go: seen.append((mod, go[0].tolist())))
    with pytest.warns(FutureWarning, match="missing some grad_input"):
        out = m(rushlight.ones(2, requires_grad=True))
    out.sum().backward()
    assert seen == [(m, [1.0, 1.0])]


def test_global_hooks():
    seen = []
    handles = [module_file.register_module_forward_pre_hook(lambda m, args: seen.append(("pre", type(m).__name__))),
               module_file.register_module_forward_hook(lambda m, args, out: seen.append(("post", type(m).__name__))),
               module_file.register_module_parameter_registration_hook(lambda m, n, p: seen.append(("param", n))),
               module_file.register_module_buffer_registration_hook(lambda m, n, b: seen.append(("buffer", n))),
               module_file.register_module_module_registration_hook(lambda m, n, c: seen.append(("module", n)))]
    try:
        nn.Sequential(nn.Linear(3, 1))(x_of())
        nn.BatchNorm1d(2, affine=False)
    finally:
        for handle in handles:
            handle.remove()
    assert seen == [("param", "weight"), ("param", "bias"), ("module", "0"), ("pre", "Sequential"), ("pre", "Linear"),
                    ("post", "Linear"), ("post", "Sequential"), ("buffer", "running_mean"), ("buffer", "running_var"),
                    ("buffer", "num_batches_tracked")]
    seen.clear()
    nn.Linear(3, 1)(x_of())
    assert not seen


def test_registration_hook_may_replace():
    replacement = nn.Tanh()
    handle = module_file.register_module_module_registration_hook(
        lambda m, n, c: replacement if isinstance(c, nn.ReLU) else None)
    try:
        m = nn.Module()
        m.act = nn.ReLU()
    finally:
        handle.remove()
    assert m.act is replacement


def test_assigned_hook_table_is_honoured():
    m = Twice()
    m._forward_hooks = OrderedDict({0: lambda mod, args, out: out + 1})
    assert m(rushlight.tensor(1.0)).item() == 3
    m._forward_hooks = OrderedDict()
    assert m(rushlight.tensor(1.0)).item() == 2
    m._forward_pre_hooks[5] = lambda mod, args: (args[0] * 2,)
    assert m(rushlight.tensor(1.0)).item() == 4
    m._forward_pre_hooks.clear()
    assert m(rushlight.tensor(1.0)).item() == 2


# -- calls -----------------------------------------------------------------------------------------------------------


def test_call_passes_every_kind_of_argument():
    class Echo(nn.Module):
        def forward(self, *args, **kwargs):
            return args, kwargs

    m = Echo()
    expected = [((), {}), ((1,), {}), ((1, 2), {}), ((), {"input": 3}), ((1,), {"self_": 4}), ((None,), {"args": 1})]
    for hooked in (False, True):
        assert [m(*a, **k) for a, k in expected] == expected
        if not hooked:
            m.register_forward_hook(lambda *a: None)


def test_instance_forward_is_used():
    m = Twice()
    m.forward = lambda x: x * 5
    assert m(rushlight.tensor(1.0)).item() == 5


def test_failing_layer_is_named_by_its_path():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def forward(self, x):
            return self.net(x)

    outer = Outer()
    outer.net.body[1] = nn.Linear(7, 2)
    with pytest.raises(RuntimeError) as caught:
        outer(x_of())
    assert caught.value.__notes__ == ["In module net.body.1 (Linear(in_features=7, out_features=2, bias=True)) of "
                                      "Outer, given (2, 4) torch.float32"]
    with pytest.raises(RuntimeError) as caught:
        nn.Linear(7, 2)(x_of())
    assert caught.value.__notes__ == ["In module Linear(in_features=7, out_features=2, bias=True), "
                                      "given (2, 3) torch.float32"]


def test_other_exceptions_carry_no_note():
    class Stops(nn.Module):
        def forward(self, x):
            raise StopIteration

    with pytest.raises(StopIteration) as caught:
        Stops()(1)
    assert not hasattr(caught.value, "__notes__")


# -- state -----------------------------------------------------------------------------------------------------------


def test_state_dict():
    net = Net()
    state = net.state_dict()
    assert type(state) is OrderedDict
    assert list(state) == ["bias", "scale", "fc.weight", "fc.bias", "body.1.weight", "body.1.bias"]
    assert dict(state._metadata) == {k: {"version": 1} for k in ("", "fc", "body", "body.0", "body.1")}
    assert not state["bias"].requires_grad and state["bias"].data_ptr() == net.bias.data_ptr()
    assert net.state_dict(keep_vars=True)["bias"] is net.bias
    assert list(net.state_dict(prefix="m."))[0] == "m.bias"
    target = OrderedDict()
    with pytest.warns(FutureWarning, match="Positional args"):
        assert net.state_dict(target, "p.") is target
    assert "p.bias" in target
    assert nn.BatchNorm1d(2).state_dict()._metadata[""] == {"version": 2}


def test_load_state_dict_copies_into_the_same_parameters():
    a, b = Net(), Net()
    before = list(b.parameters())
    result = b.load_state_dict(a.state_dict())
    assert repr(result) == "<All keys matched successfully>" and not result.missing_keys
    assert all(p is q for p, q in zip(before, b.parameters(), strict=True))
    assert rushlight.equal(a(x_of()), b(x_of()))
    with rushlight.no_grad():
        a.bias.add_(1)
    assert not rushlight.equal(a.bias, b.bias)


def test_load_state_dict_errors_are_pytorchs():
    net = Net()
    state = net.state_dict()
    state["fc.weight"] = rushlight.zeros(4, 5)
    state["extra.x"] = state.pop("fc.bias")
    state["scale"] = 3
    with pytest.raises(RuntimeError) as caught:
        net.load_state_dict(state)
    assert str(caught.value) == (
        'Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "fc.bias". \n\t'
        'Unexpected key(s) in state_dict: "extra.x". \n\t'
        'While copying the parameter named "scale", expected torch.Tensor or Tensor-like object from checkpoint but '
        "received <class 'int'>\n\t"
        "size mismatch for fc.weight: copying a param with shape torch.Size([4, 5]) from checkpoint, the shape in "
        "current model is torch.Size([4, 3]).")
    ok = Net().state_dict()
    ok["other"] = ok.pop("bias")
    result = net.load_state_dict(ok, strict=False)
    assert result.missing_keys == ["bias"] and result.unexpected_keys == ["other"]
    assert repr(result) == "_IncompatibleKeys(missing_keys=['bias'], unexpected_keys=['other'])"


def test_load_state_dict_assign():
    net = Net()
    given = {k: v.double() for k, v in Net().state_dict().items()}
    net.requires_grad_(False)
    net.load_state_dict(given, assign=True)
    assert net.fc.weight.dtype == rushlight.float64 and isinstance(net.fc.weight, nn.Parameter)
    assert not net.fc.weight.requires_grad and net.scale is given["scale"]
    meta = nn.Linear(2, 2, device="meta")
    source = nn.Linear(2, 2)
    with pytest.warns(UserWarning, match="no-op"):
        meta.load_state_dict(source.state_dict())
    meta.load_state_dict(source.state_dict(), assign=True)
    assert meta.weight.tolist() == source.weight.tolist()


def test_scalars_of_old_checkpoints():
    m = nn.Module()
    m.s = nn.Parameter(rushlight.tensor(0.0))
    m.load_state_dict({"s": rushlight.tensor([5.0])})
    assert m.s.item() == 5


def test_extra_state():
    m = nn.Sequential(Extra(1), nn.ReLU())
    state = m.state_dict()
    assert state["0._extra_state"] == {"value": 1}
    other = nn.Sequential(Extra(2), nn.ReLU())
    other.load_state_dict(state)
    assert other[0].value == 1
    with pytest.raises(RuntimeError, match='Missing key.*"0._extra_state"'):
        other.load_state_dict({})
    with pytest.raises(RuntimeError, match='Unexpected key.*"1._extra_state"'):
        other.load_state_dict({**state, "1._extra_state": 1})
    with pytest.raises(RuntimeError, match="get_extra_state"):
        nn.ReLU().get_extra_state()


def test_state_dict_hooks():
    net, order = Net(), []
    net.register_state_dict_pre_hook(lambda mod, prefix, keep: order.append(("pre", prefix)))
    net.register_state_dict_post_hook(lambda mod, state, prefix, meta: state.update(added=1))
    net.register_load_state_dict_pre_hook(lambda mod, state, *rest: state.pop("added"))
    net.register_load_state_dict_post_hook(lambda mod, keys: keys.missing_keys.clear())
    state = net.state_dict()
    assert state["added"] == 1 and order == [("pre", "")]
    del state["bias"]
    assert not net.load_state_dict(state).missing_keys
    net._register_state_dict_hook(lambda mod, state, prefix, meta: OrderedDict(only=2))
    assert net.state_dict() == {"only": 2}
    bad = nn.ReLU()
    bad.register_state_dict_post_hook(lambda *a: {})
    with pytest.raises(RuntimeError, match="must return None"):
        bad.state_dict()
    bad.register_load_state_dict_post_hook(lambda *a: 1)
    with pytest.raises(AssertionError, match="not expected to return new values"):
        bad.load_state_dict({})


def test_consume_prefix():
    from rushlight.nn.modules.utils import consume_prefix_in_state_dict_if_present

    net = Net()
    state = net.state_dict(prefix="module.")
    consume_prefix_in_state_dict_if_present(state, "module.")
    assert sorted(state) == sorted(net.state_dict()) and "" in state._metadata
    net.load_state_dict(state)


# -- copies ----------------------------------------------------------------------------------------------------------


def test_deepcopy_is_independent():
    net = Net()
    net.register_forward_hook(lambda mod, args, out: out + 1)
    other = copy.deepcopy(net)
    assert rushlight.equal(net(x_of()), other(x_of()))
    other.fc.weight = nn.Parameter(rushlight.zeros(4, 3))
    other._forward_hooks.clear()
    assert net.fc.weight.any() and net._forward_hooks
    assert other.fc is other._modules["fc"] and other.fc is not net.fc
    shared = nn.Linear(2, 2)
    tied = copy.deepcopy(nn.Sequential(shared, shared))
    assert tied[0] is tied[1]


def test_shallow_copy_shares_its_tables():
    net = nn.Linear(2, 3)
    other = copy.copy(net)
    assert other.weight is net.weight
    net.weight = new = nn.Parameter(rushlight.zeros(3, 2))
    assert other.weight is new
    other.tag = 1
    assert not hasattr(net, "tag")


def test_pickle_has_pytorchs_layout():
    net = nn.Linear(2, 3)
    restored = pickle.loads(pickle.dumps(net))
    assert restored.weight.tolist() == net.weight.tolist() and restored.training
    state = net.__reduce_ex__(2)[2]
    assert list(state) == [
        "training", "_parameters", "_buffers", "_non_persistent_buffers_set", "_backward_pre_hooks", "_backward_hooks",
        "_is_full_backward_hook", "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called",
        "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_state_dict_hooks", "_state_dict_pre_hooks",
        "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks", "_modules", "in_features", "out_features"]
    assert type(state["_parameters"]) is dict
    old = nn.Conv2d(1, 1, 1)
    kept = {k: v for k, v in old.__reduce_ex__(2)[2].items() if k not in ("padding_mode", "_state_dict_hooks")}
    bare = nn.Conv2d.__new__(nn.Conv2d)
    bare.__setstate__(kept)
    assert bare.padding_mode == "zeros" and bare.weight is old.weight and not bare._state_dict_hooks


class CustomState(nn.Linear):
    def __getstate__(self):
        state = self.__dict__.copy()
        state["note"] = "kept"
        return state

    def __setstate__(self, state):
        self.__dict__.update(state)


def test_custom_state_methods():
    m = CustomState(2, 3)
    for other in (copy.deepcopy(m), pickle.loads(pickle.dumps(m))):
        assert other.note == "kept" and other.weight.tolist() == m.weight.tolist()
        other._parameters["weight"] = new = nn.Parameter(rushlight.zeros(3, 2))
        assert other.weight is new
        other.weight = again = nn.Parameter(rushlight.ones(3, 2))
        assert other.weight is again is other._parameters["weight"]
        other.register_forward_hook(lambda mod, args, out: out * 0 + 7)
        assert other(rushlight.ones(1, 2)).tolist() == [[7, 7, 7]]


def test_replicas_are_separate():
    net = nn.Linear(2, 3)
    replica = net._replicate_for_data_parallel()
    assert not replica._parameters and not hasattr(replica, "weight") and net.weight is not None
    replica.weight = rushlight.ones(3, 2)
    assert net.weight is net._parameters["weight"]
    with pytest.warns(UserWarning, match="DataParallel"):
        replica.zero_grad()


def test_wrapper_getattr_idiom():
    class Wrapper(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(super().__getattr__("inner"), name)

    wrapper = Wrapper(nn.Linear(2, 3))
    assert wrapper.in_features == 2 and wrapper.weight is wrapper.inner.weight
    with pytest.raises(AttributeError, match="'Linear' object has no attribute 'nope'"):
        wrapper.nope  # noqa: B018


# -- text and the epoch ----------------------------------------------------------------------------------------------


def test_repr():
    assert repr(Net()) == (
        "Net(\n  (fc): Linear(in_features=3, out_features=4, bias=True)\n  (body): Sequential(\n    (0): ReLU()\n"
        "    (1): Linear(in_features=4, out_features=2, bias=True)\n  )\n)")

    class Two(nn.Module):
        def extra_repr(self):
            return "a\nb"

    assert repr(Two()) == "Two(\n  a\n  b\n)" and repr(nn.Module()) == "Module()"
    m = nn.Module()
    m.none = nn.ReLU()
    m.none = None
    assert repr(m) == "Module(\n  (none): None\n)"


@pytest.mark.parametrize("change", [
    lambda m: setattr(m, "size", 5), lambda m: setattr(m, "weight", nn.Parameter(rushlight.zeros(1))),
    lambda m: m.eval(), lambda m: m.register_buffer("b", None), lambda m: m.add_module("c", nn.ReLU()),
    lambda m: m._parameters.pop("bias"), lambda m: m._buffers.update(q=None), lambda m: delattr(m, "weight"),
    lambda m: m.register_forward_hook(print), lambda m: m.register_full_backward_hook(print),
    lambda m: m._forward_pre_hooks.update({1: print}), lambda m: m.__delattr__("in_features"),
])
def test_every_change_moves_the_epoch(change):
    m = nn.Linear(2, 2)
    before = mutation_epoch[0]
    change(m)
    assert mutation_epoch[0] > before


def test_removing_a_hook_moves_the_epoch_and_a_call_does_not():
    m = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    handle = m.register_forward_hook(lambda *a: None)
    before = mutation_epoch[0]
    m(x_of())
    m.train()
    assert mutation_epoch[0] == before
    handle.remove()
    assert mutation_epoch[0] > before


def test_share_memory_and_compile_exist():
    net = nn.Linear(3, 2)
    calls = []

    def compiled(*args, **kwargs):
        calls.append(args)
        return net._call_impl(*args, **kwargs)

    net._compiled_call_impl = compiled
    assert net(x_of()).shape == (2, 2) and len(calls) == 1
    assert "_compiled_call_impl" not in net.__getstate__()


def test_no_warning_for_plain_use():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net = Net()
        copy.deepcopy(net)
        net(x_of()).sum().backward()
        net.load_state_dict(net.state_dict())
