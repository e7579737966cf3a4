"""The program `ralph`. Every Python can read this file, so that one that is too old can say so."""

import sys

OLDEST = (3, 11)


def main() -> int:
    """Run the command line; the result is the process's exit code."""
    if sys.version_info[:2] < OLDEST:
        here = ".".join(str(part) for part in sys.version_info[:3]) + " (" + sys.executable + ")"  # noqa: TID251
        sys.stderr.write("ralph: needs Python 3.11 or newer, and this is Python " + here + "\n")
        return 2
    from ralphproof import __version__

    if sys.argv[1:] in (["--version"], ["-v"]):  # before any import: scripts ask this often
        return told("ralph " + __version__)
    import _signal  # type: ignore[import-not-found]
    import gc

    from ralphproof.interpreter import isolate

    isolate()
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)  # where a parent had it ignored, no child would tell how it ended
    gc.set_threshold(100000)  # a start makes no garbage; to look for it takes a tenth of the time
    from ralphproof.cli.interrupts import ignore, install

    try:
        install()
        from ralphproof.cli.dispatch import dispatch

        code = dispatch(sys.argv[1:])
        ignore()  # before anything else may raise
    except KeyboardInterrupt:  # between two of these lines; the next one does not raise
        sys.stderr.write("ralph: interrupted\n")
        code = 130
    ignore()
    return code


def told(line: str) -> int:
    """Say a line; where that cannot be, say why."""
    try:
        print(line, flush=True)
    except OSError as error:
        from ralphproof.cli.dispatch import fail
        from ralphproof.errors import from_system

        return fail(from_system(error), as_json=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
