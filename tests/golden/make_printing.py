"""Record how PyTorch 2.13 prints the tensors of printing_cases.py (needs torch): python make_printing.py"""

import json
from pathlib import Path

import torch
from printing_cases import Case, cases


def make(case: Case) -> torch.Tensor:
    dtype = getattr(torch, case.dtype)
    t = torch.from_numpy(case.array.copy()).to(dtype)
    if case.device == "meta":
        t = torch.empty(t.shape, dtype=dtype, device="meta")
    if case.parameter:
        return type(case.subclass, (torch.nn.Parameter,), {})(t)
    if case.subclass:
        t = t.as_subclass(type(case.subclass, (torch.Tensor,), {}))
    if case.grad:
        t.requires_grad_()
    return t + 0 if case.grad == "node" else t


def text(case: Case) -> str:
    torch.set_printoptions(profile="default")
    torch.set_printoptions(**case.options)
    torch.set_default_dtype(getattr(torch, case.default_dtype))
    try:
        return torch.Tensor.__repr__(make(case))
    finally:
        torch.set_default_dtype(torch.float32)


def main() -> None:
    assert torch.__version__.startswith("2.13."), torch.__version__
    texts = {case.name: text(case) for case in cases()}
    assert len(texts) == len(cases()), "two cases have one name"
    target = Path(__file__).with_name("printing.json")
    target.write_text(json.dumps(texts, indent=1, ensure_ascii=False) + "\n")
    print(f"{len(texts)} texts in {target}")


if __name__ == "__main__":
    main()
