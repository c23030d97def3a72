"""Record what PyTorch 2.13 makes of the cases in tape_*.py (needs torch): python make_tape.py"""

from __future__ import annotations

import json
from pathlib import Path

import tape
import tape_engine  # noqa: F401
import tape_function  # noqa: F401
import tape_graph  # noqa: F401
import tape_inplace  # noqa: F401
import torch


def main() -> None:
    assert torch.__version__.startswith("2.13."), torch.__version__
    found = {name: tape.run(name, torch) for name in tape.CASES}
    lines = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in found.items())
    target = Path(__file__).with_name("tape.json")
    target.write_text("{\n" + lines + "\n}\n")
    print(f"{len(found)} cases in {target}")


if __name__ == "__main__":
    main()
