"""Printing against texts recorded from PyTorch 2.13 (tests/golden/make_printing.py)."""

import json
from pathlib import Path

import numpy as np
import pytest
from golden.printing_cases import cases

import rushlight
from rushlight.backends.meta import MetaArray
from rushlight.core import dtype as dtypes
from rushlight.core import printing

TEXTS = json.loads((Path(__file__).parent / "golden" / "printing.json").read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def restore():
    options, default = printing.get_printoptions(), dtypes.get_default_dtype()
    yield
    printing.set_printoptions(**options)
    dtypes.set_default_dtype(default)


def test_every_recorded_text_has_a_case():
    assert sorted(TEXTS) == sorted(c.name for c in cases())


@pytest.mark.parametrize("case", cases(), ids=lambda c: c.name)
def test_as_pytorch_prints(case):
    with np.errstate(all="ignore"):
        array = case.array.astype(dtypes.by_name(case.dtype).np)
    if case.device == "meta":
        array = MetaArray(array.shape, array.dtype)
    printing.set_printoptions(**case.options)
    dtypes.set_default_dtype(dtypes.by_name(case.default_dtype))
    text = printing.tensor_str(
        array,
        requires_grad=bool(case.grad),
        grad_fn_name="AddBackward0" if case.grad == "node" else None,
        device=case.device,
        class_name=case.subclass or "tensor",
        parameter=case.parameter,
    )
    assert text == TEXTS[case.name]


@pytest.mark.parametrize("case", cases(), ids=lambda c: c.name)
def test_tensors_print_as_pytorch_prints(case):
    dtype = getattr(rushlight, case.dtype)
    t = rushlight.from_numpy(case.array.copy()).to(dtype)
    printing.set_printoptions(**case.options)
    dtypes.set_default_dtype(dtypes.by_name(case.default_dtype))
    if case.device == "meta":
        t = rushlight.empty(t.shape, dtype=dtype, device="meta")
    if case.parameter:
        t = type(case.subclass, (rushlight.nn.Parameter,), {})(t)
    elif case.subclass:
        t = t.as_subclass(type(case.subclass, (rushlight.Tensor,), {}))
    elif case.grad:
        t.requires_grad_()
    if case.grad == "node":
        t = t + 0
    assert rushlight.Tensor.__repr__(t) == TEXTS[case.name]


def test_strides_do_not_matter():
    a = np.arange(24.0, dtype=np.float32).reshape(4, 6)
    assert printing.format_array(a.T[::2, 1:]) == printing.format_array(np.ascontiguousarray(a.T[::2, 1:]))


def test_options_round_trip_and_profiles():
    assert printing.get_printoptions() == dict(precision=4, threshold=1000, edgeitems=3, linewidth=80, sci_mode=None)
    printing.set_printoptions(profile="full", sci_mode=False)
    assert printing.get_printoptions() == dict(
        precision=4, threshold=float("inf"), edgeitems=3, linewidth=80, sci_mode=False
    )
    printing.set_printoptions(profile="short", linewidth=100)
    assert printing.get_printoptions() == dict(precision=2, threshold=1000, edgeitems=2, linewidth=100, sci_mode=None)


def test_context_manager_restores_after_an_exception():
    before = printing.get_printoptions()
    with pytest.raises(KeyError), printing.printoptions(precision=1, sci_mode=True):
        assert printing.format_array(np.array([1.25, 2.0])) == "[1.2e+00, 2.0e+00]"
        raise KeyError
    assert printing.get_printoptions() == before


def test_contents_and_tangent():
    a = np.array([1.0, 2.0], dtype=np.float32)
    assert printing.tensor_str(a, contents="<data>", requires_grad=True) == "tensor(<data>, requires_grad=True)"
    assert printing.tensor_str(a, tangent="tensor([0., 1.])") == "tensor([1., 2.], tangent=tensor([0., 1.]))"


def test_forced_new_line_before_suffixes():
    assert printing.with_suffixes("tensor([1]", ["size=(1,)", "nnz=1"], 7, force_newline=True) == (
        "tensor([1],\n       size=(1,), nnz=1)"
    )


@pytest.mark.parity
@pytest.mark.parametrize("seed", range(20))
def test_random_arrays_and_options_against_pytorch(torch_oracle, seed):
    rng = np.random.default_rng(seed)
    names = ["float32", "float64", "float16", "int64", "uint8", "bool", "complex64", "complex128", "int16"]
    try:
        for _ in range(100):
            shape = tuple(rng.integers(0, 9, rng.integers(0, 5)))
            a = rng.standard_normal(shape) * 10.0 ** rng.integers(-6, 10)
            if rng.random() < 0.3:
                a = np.round(a)
            if rng.random() < 0.2:
                a = np.where(rng.random(shape) < 0.3, rng.choice([np.nan, np.inf, -np.inf, -0.0, 0.0]), a)
            name = str(rng.choice(names))
            if name.startswith("complex"):
                a = a + 1j * rng.standard_normal(shape)
            with np.errstate(all="ignore"):
                a = np.asarray(a).astype(name)
            options = dict(
                precision=int(rng.integers(0, 9)),
                threshold=int(rng.integers(0, 50)),
                edgeitems=int(rng.integers(1, 5)),
                linewidth=int(rng.integers(3, 120)),
                sci_mode=[None, None, True, False][rng.integers(4)],
            )
            printing.set_printoptions(**options)
            torch_oracle.set_printoptions(**options)
            t = torch_oracle.from_numpy(a.copy()).requires_grad_(name[0] in "fc")
            assert printing.tensor_str(a, requires_grad=t.requires_grad) == repr(t), (options, a)
    finally:
        torch_oracle.set_printoptions(profile="default")
