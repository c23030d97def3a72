"""Record what PyTorch 2.13 makes of the cases in optim_cases.py (needs torch): python make_optim.py"""

from __future__ import annotations

import json
from pathlib import Path

import optim_cases as cases
import torch


def number(x: float, dtype: str) -> float:
    return float(f"{x:.9g}" if dtype == "float32" else f"{x:.17g}")


def main() -> None:
    assert torch.__version__.startswith("2.13."), torch.__version__
    found: dict[str, dict] = {"optimizers": {}, "schedules": {}, "orders": {}, "repr": {}}
    for name, options in cases.OPTIMIZERS:
        for dtype in ("float32", "float64"):
            optimizer, params = cases.optimize(torch, name, options, dtype)
            state = optimizer.state_dict()
            found["optimizers"][cases.key(name, options, dtype)] = {
                "params": [[number(v, dtype) for v in p.detach().reshape(-1).tolist()] for p in params],
                "state": {str(i): {k: [number(x, dtype) for x in v.reshape(-1).tolist()] if isinstance(v, torch.Tensor)
                                   else type(v).__name__ for k, v in s.items()} for i, s in state["state"].items()},
                "group": {k: v for k, v in state["param_groups"][0].items()},
            }
        found["repr"][cases.key(name, options)] = repr(optimizer)
    for name, options in cases.SCHEDULES:
        found["schedules"][cases.key(name, options)] = cases.track(torch, name, options)
    for name, fn in cases.orders().items():
        found["orders"][name] = cases.order(torch, fn)
    target = Path(__file__).with_name("optim.json")
    target.write_text(json.dumps(found, separators=(",", ":")) + "\n")
    print(f"{sum(map(len, found.values()))} records in {target}")


if __name__ == "__main__":
    main()
