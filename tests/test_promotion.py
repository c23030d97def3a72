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
        # there is no complex32 here: it is an error
        return ours == theirs or ours.endswith("Error") and (theirs.endswith("Error") or theirs == "complex32")

    wrong = {k: (found[name][k], v) for k, v in RECORDED[name].items() if not agree(found[name][k], v) and k.split(",")[0] not in BOOLS.get(name, ())}
    assert not wrong


def test_nothing_is_left_out(found):
    assert {k: set(v) for k, v in found.items()} == {k: set(v) for k, v in RECORDED.items()}
