"""`python -m rushlight.ops`: the registered operators, one a line."""

from __future__ import annotations

import re
import sys

from rushlight import _pipe

from . import load
from .declare import NAMESPACES

_USAGE = """\
usage: python -m rushlight.ops [--names | --regex | --help]

The registered operators, one a line, with their kinds.
  --names   the names only
  --regex   one regular expression that matches `name|variant` for each of them
"""


def main(argv: list[str]) -> int:
    """Print what `argv` asks for; the exit status, 2 for a wrong command line."""
    if "-h" in argv or "--help" in argv:
        print(_USAGE, end="")
        return 0
    if len(argv) > 1 or argv and argv[0] not in ("--names", "--regex"):
        print(f"rushlight.ops: got {' '.join(argv)!r}, expected --names, --regex, --help or nothing", file=sys.stderr)
        return 2
    load()
    rows: dict[str, str] = {}
    for space, table in NAMESPACES.items():
        for name, op in table.items():
            rows[name if space in ("torch", "Tensor") else f"{space}.{name}"] = op.kind
    if "--regex" in argv:
        print("^(" + "|".join(map(re.escape, sorted(rows))) + r")\|")
    elif "--names" in argv:
        print("\n".join(sorted(rows)))
    else:
        width = max(map(len, rows))
        for name in sorted(rows):
            print(f"{name:{width}s}  {rows[name]}")
        print(f"{len(rows)} names")
    return 0


if __name__ == "__main__":
    raise SystemExit(_pipe.quiet(lambda: main(sys.argv[1:])))
