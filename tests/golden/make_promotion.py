"""Record PyTorch 2.13's rules for dtypes (needs torch): python make_promotion.py"""

from __future__ import annotations

import json
from pathlib import Path

import promotion_cases as cases
import torch


def main() -> None:
    assert torch.__version__.startswith("2.13."), torch.__version__
    found = cases.table(torch)
    target = Path(__file__).with_name("promotion.json")
    target.write_text(json.dumps(found, separators=(",", ":")) + "\n")
    print(f"{sum(map(len, found.values()))} rules in {target}")


if __name__ == "__main__":
    main()
