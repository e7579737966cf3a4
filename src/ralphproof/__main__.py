"""The program `ralph`."""

from __future__ import annotations

import gc
import sys

from ralphproof import __version__


def main() -> int:
    """Run the command line; the result is the process's exit code."""
    if sys.argv[1:] in (["--version"], ["-v"]):  # before any import: scripts ask this often
        print(f"ralph {__version__}")
        return 0
    gc.set_threshold(100_000)  # a start makes no garbage; to look for it takes a tenth of the time
    from ralphproof.cli.dispatch import dispatch

    return dispatch(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
