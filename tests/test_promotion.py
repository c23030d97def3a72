"""Which dtype a result has: every rule beside PyTorch's recorded one (golden/make_promotion.py)."""

import json
import pathlib
import sys

import pytest

import rushlight

GOLDEN = pathlib.Path(__file__).with_name("golden")
sys.path.insert(0, str(GOLDEN))
import promotion_cases  # noqa: E402

RECORDED = json.loads((GOLDEN / "promotion.json").read_text())


# bools that PyTorch refuses and Rushlight takes as numbers
BOOLS = {"floordiv": ("bool", "True"), "pow": ("bool", "True"), "abs": ("bool",), "floor": ("bool",), "round": ("bool",), "argmax": ("bool",)}


@pytest.fixture(scope="module")
def found():
    return promotion_cases.table(rushlight)


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_as_pytorch(name, found):  # mission: T-03
    def agree(ours, theirs):
        # PyTorch has few operators on complex32; here all compute in complex64
        return ours == theirs or theirs.endswith("Error") and (ours.endswith("Error") or ours == "complex32")

    wrong = {k: (found[name][k], v) for k, v in RECORDED[name].items() if not agree(found[name][k], v) and k.split(",")[0] not in BOOLS.get(name, ())}
    assert not wrong


def test_nothing_is_left_out(found):
    assert {k: set(v) for k, v in found.items()} == {k: set(v) for k, v in RECORDED.items()}


def test_complex32():
    """Stored as two float16, computed in complex64."""
    x = rushlight.tensor([1 + 2j, 3 - 1j]).chalf()
    assert x.dtype is rushlight.complex32 and x.element_size() == 4 and x.tolist() == [1 + 2j, 3 - 1j] and x[0].item() == 1 + 2j
    assert (x * x).dtype is rushlight.complex32 and (x * x).tolist() == [-3 + 4j, 8 - 6j]
    assert x.real.dtype is rushlight.float16 and x.real.tolist() == [1, 3] and x.imag.tolist() == [2, -1]
    assert x.abs().dtype is rushlight.float16 and x.sum().item() == 4 + 1j and x.to(rushlight.complex64).tolist() == x.tolist()
    assert repr(x) == "tensor([1.+2.j, 3.-1.j], dtype=torch.complex32)"
    assert rushlight.tensor([1, 2]).chalf().tolist() == [1, 2] and x.float().tolist() == [1, 3]
    y = rushlight.tensor([1.0, 3.0], requires_grad=True)
    (y.chalf() * 2).real.sum().backward()
    assert y.grad.tolist() == [2, 2]


def test_float8_e4m3fn_saturates():
    x = rushlight.tensor([1e9, float("inf"), -460.0, 500.0, float("nan"), 3.0])
    got = x.to(rushlight.float8_e4m3fn).float().tolist()
    assert got[:4] == [448, 448, -448, 448] and got[4] != got[4] and got[5] == 3      # as in PyTorch 2.13
    assert x.half().to(rushlight.float8_e4m3fn).float().tolist()[:4] == got[:4]
    assert x.to(rushlight.float8_e5m2).float().tolist()[:2] == [float("inf")] * 2
