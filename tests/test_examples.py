"""The examples, run as users run them: accuracy, files, and the first losses that PyTorch prints for the same seed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
RECORDED = json.loads((ROOT / "tests" / "golden" / "example_losses.json").read_text(encoding="utf-8"))


def run(*args: object) -> str:
    command = [sys.executable, "-m", "rushlight", "run", *map(str, args)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def losses(text: str) -> list[float]:
    return [float(line.split()[1]) for line in text.splitlines() if line.startswith("loss ")]


def test_digits_reaches_98_percent_and_is_saved_and_drawn(tmp_path):
    text = run("examples/digits.py", "--out", tmp_path, "--seed", 1)
    accuracy = float(text.split("test accuracy ")[1].split("%")[0])
    assert accuracy >= 98
    assert "reloaded with the same accuracy" in text
    assert (tmp_path / "digits.pt").read_bytes()[:2] == b"PK"
    assert (tmp_path / "digits.png").read_bytes().startswith(b"\x89PNG")


# Here the very runs that were recorded: the schedule of chargpt.py depends on the number of steps.
@pytest.mark.parametrize(
    ("name", "args"),
    [("digits", ["examples/digits.py"]), ("chargpt", ["examples/chargpt.py", "--text", "LICENSE", "--tokens", 0])],
)
@pytest.mark.parametrize("compiled", [[], ["--compile"]], ids=["eager", "compiled"])
def test_first_losses_are_those_of_pytorch(tmp_path, name, args, compiled):
    text = run(*args, "--steps", 20, "--print-losses", 20, "--out", tmp_path, *compiled)
    assert losses(text) == pytest.approx(RECORDED[name], rel=2e-4)


def test_chargpt_writes_text_from_its_prompt(tmp_path):
    text = run("examples/chargpt.py", "--steps", 3, "--tokens", 50, "--prompt", "def ", "--out", tmp_path)
    written = text.split("-" * 40 + "\n")[1]
    assert written.startswith("def ")
    assert len(written.rstrip("\n")) > 40


def test_chargpt_names_a_prompt_that_it_cannot_read():
    command = [sys.executable, "-m", "rushlight", "run", "examples/chargpt.py", "--steps", "0", "--prompt", "\u2603"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "\u2603" in done.stderr or "\\u2603" in done.stderr
