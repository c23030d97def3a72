"""Rushlight's speed against PyTorch's: both in turn, in fresh processes, as ratios.

    python bench/run.py [--peer PYTHON] [--only REGEX] [--mode eager,compiled,import] [--rounds 5] [--json FILE]

One round of a workload runs it once under each library, in alternating order; its figure is the ratio of the lower
quartiles of the time per call, peer / ours, so above 1 Rushlight is faster. The table shows the median over the rounds
and their range: bare times of one machine mean little, and of a busy one nothing. `--help` lists the options.

Children run without OPENBLAS_CORETYPE, OPENBLAS_L2_SIZE and OMP_NUM_THREADS, which would bind one of the two libraries.
"""
from __future__ import annotations

import argparse
import json
import math
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WORKLOADS = Path(__file__).resolve().with_name("workloads.py")
BINDING = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"  # would have every child compile our source anew, as no installed package is
IMPORT_TIMER = "import time; t = time.perf_counter(); import {0}; print(time.perf_counter() - t)"


class Failed(Exception):
    """A child ended without a result; the message is its last line of stderr."""


@dataclass
class Row:
    """One line of the table. Times in seconds; `ratios` has one peer / ours per round."""

    name: str
    mode: str
    ratios: list[float] = field(default_factory=list)
    ours: list[dict[str, Any]] = field(default_factory=list)
    peer: list[dict[str, Any]] = field(default_factory=list)
    error: str = ""

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios) if self.ratios else math.nan

    def values_agree(self) -> bool:
        pairs = zip(self.ours, self.peer)
        return all(o.get("value") is None or math.isclose(o["value"], p["value"], rel_tol=1e-3) for o, p in pairs)


def environment(cache: str | None = None) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if k not in (*BINDING, NO_BYTECODE)}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [env.get("PYTHONPATH")])])
    if cache is not None:
        env["RUSHLIGHT_CACHE"] = cache
    return env


def child(command: list[str], timeout: float, cache: str | None = None) -> Any:
    """The JSON on the last line that `command` prints."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment(cache), timeout=timeout)
    except subprocess.TimeoutExpired:
        raise Failed(f"no result within {timeout:g} s") from None
    if done.returncode or not done.stdout.strip():
        raise Failed((done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1][:200])
    return json.loads(done.stdout.strip().splitlines()[-1])


def compare(name: str, mode: str, args: argparse.Namespace, cache: str) -> Row:
    """Run the rounds of one workload. In compiled mode the first round of ours starts from an empty code cache."""
    row = Row(name, mode)
    base = [str(WORKLOADS), name, "--threads", str(args.threads), "--seconds", str(args.seconds)]
    ours = [*args.ours, *base, *(["--compile"] if mode == "compiled" else [])]
    peers = [[*args.peer, *base]]
    if mode == "compiled" and args.peer_compile:
        peers.append([*peers[0], "--compile"])
    for turn in range(args.rounds):
        try:
            own = child(ours, args.timeout, cache) if turn % 2 == 0 else None
            peer = min((child(p, args.timeout) for p in peers), key=lambda r: r["us"])
            own = own or child(ours, args.timeout, cache)
        except Failed as failure:
            row.error = str(failure)
            break
        row.ours.append(own)
        row.peer.append(peer)
        row.ratios.append(peer["us"] / own["us"])
    return row


def compare_imports(args: argparse.Namespace) -> list[Row]:
    """Seconds of `import numpy` and `import torch` over those of `import rushlight`, each in fresh processes."""
    python = [args.ours[0]]
    kinds = [("import numpy", [*python, "-c", IMPORT_TIMER.format("numpy")])]
    kinds.append(("import torch", [*args.peer, "-c", IMPORT_TIMER.format("torch")]))
    own = [*python, "-c", IMPORT_TIMER.format("rushlight")]
    rows = []
    for name, command in kinds:
        row = Row(name, "import")
        try:
            child(own, args.timeout), child(command, args.timeout)  # byte code and disk caches
            for _ in range(args.rounds):
                times = [(child(own, args.timeout), child(command, args.timeout)) for _ in range(3)]
                a, b = (min(t) for t in zip(*times))
                row.ours.append({"us": a * 1e6})
                row.peer.append({"us": b * 1e6})
                row.ratios.append(b / a)
        except Failed as failure:
            row.error = str(failure)
        rows.append(row)
    return rows


def time_text(us: float) -> str:
    for unit, scale in (("us", 1.0), ("ms", 1e3), ("s ", 1e6)):
        if us < 1000 * scale or unit == "s ":
            return f"{us / scale:.3g} {unit}"
    raise AssertionError


HEADER = (f"{'workload':<18}{'mode':<10}{'peer/ours':>10}{'range':>14}{'ours':>10}{'peer':>10}"
          f"{'first ours':>18}{'peer':>8}{'peak MB':>12}")


def line(row: Row) -> str:
    start = f"{row.name:<18}{row.mode:<10}"
    if not row.ratios:
        return f"{start}  failed: {row.error}"
    us = [statistics.median(r["us"] for r in side) for side in (row.ours, row.peer)]
    text = f"{start}{row.ratio:>9.2f}x{f'{min(row.ratios):.2f}-{max(row.ratios):.2f}':>14}"
    text += "".join(f"{time_text(t):>10}" for t in us)
    if row.mode != "import":
        first = f"{row.ours[0]['first_s']:.2f} s"
        if row.mode == "compiled" and len(row.ours) > 1:
            first += f", then {min(r['first_s'] for r in row.ours[1:]):.2f}"
        text += f"{first:>18}{row.peer[0]['first_s']:>7.2f}s"
        text += f"{row.ours[-1]['peak_mb']:>6.0f}/{row.peer[-1]['peak_mb']:<5.0f}"
    if not row.values_agree():
        text += f"  VALUES DIFFER: {row.ours[0]['value']:.6g}, peer {row.peer[0]['value']:.6g}"
    if row.error:
        text += f"  stopped: {row.error}"
    return text


def summary(rows: list[Row]) -> list[str]:
    lines = []
    for mode in dict.fromkeys(r.mode for r in rows if r.mode != "import"):
        done = [r.ratio for r in rows if r.mode == mode and r.ratios]
        failed = sum(1 for r in rows if r.mode == mode and not r.ratios)
        if done:
            mean = math.exp(statistics.fmean(map(math.log, done)))
            lines.append(f"{mode}: geometric mean {mean:.2f}x over {len(done)} workloads, "
                         f"{sum(r >= 1 for r in done)} at least as fast as the peer, {failed} failed")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", default=f"{shlex.quote(sys.executable)} -m rushlight run", type=shlex.split,
                        help="command that runs a script under Rushlight")
    parser.add_argument("--peer", default=shlex.quote(sys.executable), type=shlex.split,
                        help="command that runs a script under PyTorch (default: this interpreter)")
    parser.add_argument("--only", default=".", help="regular expression on the workloads' names")
    parser.add_argument("--mode", default="eager,compiled,import", help="which of eager, compiled, import")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.5, help="time to measure in each process")
    parser.add_argument("--timeout", type=float, default=180, help="seconds until a child counts as failed")
    parser.add_argument("--peer-compile", action="store_true",
                        help="in compiled mode take the better of the peer's eager and compiled (needs a C++ compiler)")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    args = parser.parse_args()

    modes = args.mode.split(",")
    if wrong := set(modes) - {"eager", "compiled", "import"}:
        parser.error(f"--mode: expected eager, compiled or import, got {', '.join(sorted(wrong))}")
    if cleared := [v for v in BINDING if v in os.environ]:
        print(f"not passed on to the children: {', '.join(cleared)}")
    try:
        kinds = child([*args.peer, str(WORKLOADS), "--list"], args.timeout)
    except Failed as failure:
        parser.error(f"the peer does not run ({failure}): --peer must be a Python with torch (make bench installs it)")
    if args.threads > (os.cpu_count() or 1):
        print(f"{args.threads} threads on {os.cpu_count()} cores: expect noise")
    print(HEADER, flush=True)
    rows = []
    for name, kind in kinds.items():
        if not re.search(args.only, name):
            continue
        for mode in modes:
            if mode == "eager" or (mode == "compiled" and kind != "op"):
                with tempfile.TemporaryDirectory() as cache:
                    rows.append(compare(name, mode, args, cache))
                print(line(rows[-1]), flush=True)
    if "import" in modes and re.search(args.only, "import"):
        for row in compare_imports(args):
            rows.append(row)
            print(line(row), flush=True)
    print(*summary(rows), sep="\n")
    if args.json is not None:
        args.json.write_text(json.dumps([asdict(r) | {"ratio": r.ratio} for r in rows], indent=1) + "\n")
    return 1 if any(r.error or not r.values_agree() for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
