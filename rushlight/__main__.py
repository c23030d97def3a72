"""``python -m rushlight``: the command line of :mod:`rushlight.cli`."""
import sys

from rushlight.cli import main

if __name__ == "__main__":
    sys.exit(main())
