"""Record the first losses of the examples on PyTorch 2.13 (needs torch): python tests/golden/make_examples.py"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent.parent
RUNS = {
    "digits": ["examples/digits.py"],
    "chargpt": ["examples/chargpt.py", "--text", "LICENSE", "--tokens", "0"],
}


def losses(command: list[str], out: str) -> list[float]:
    argv = [sys.executable, *command, "--steps", "20", "--print-losses", "20", "--out", out]
    text = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [float(line.split()[1]) for line in text.splitlines() if line.startswith("loss ")]


def main() -> None:
    assert torch.__version__.startswith("2.13."), torch.__version__
    with tempfile.TemporaryDirectory() as out:
        recorded = {name: losses(command, out) for name, command in RUNS.items()}
    assert all(len(values) == 20 for values in recorded.values())
    Path(__file__).with_name("example_losses.json").write_text(json.dumps(recorded, indent=1) + "\n")


if __name__ == "__main__":
    main()
