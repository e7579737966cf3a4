"""The program `ralph`. Every Python can read this file, so that one that is too old can say so."""

import sys

MIN_PYTHON = (3, 11)


def main() -> int:
    """Run the command line; the result is the process's exit code."""
    if sys.version_info[:2] < MIN_PYTHON:
        here = ".".join(str(part) for part in sys.version_info[:3]) + " (" + sys.executable + ")"  # noqa: TID251
        sys.stderr.write("ralph: needs Python 3.11 or newer, and this is Python " + here + "\n")
        return 2
    from ralphproof import __version__

    if sys.argv[1:] in (["--version"], ["-v"]):  # before any import: scripts ask this often
        return print_error("ralph " + __version__)
    import _signal  # type: ignore[import-not-found]
    import gc

    from ralphproof.base.interpreter import isolate_search_path

    isolate_search_path()
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)  # where a parent had it ignored, no child would tell how it ended
    gc.set_threshold(100000)  # a start makes no garbage; to look for it takes a tenth of the time
    from ralphproof.process.interrupts import ignore_end_signals, install_signal_handlers

    try:
        install_signal_handlers()
        from ralphproof.cli.dispatch import dispatch

        code = dispatch(sys.argv[1:])
        ignore_end_signals()  # before anything else may raise
    except KeyboardInterrupt:  # between two of these lines; the next one does not raise
        sys.stderr.write("ralph: interrupted\n")
        code = 130
    ignore_end_signals()
    return code


def print_error(line: str) -> int:
    """Say a line; where that cannot be, say why."""
    try:
        print(line, flush=True)
    except OSError as error:
        from ralphproof.base.errors import wrap_os_error
        from ralphproof.cli.dispatch import report_error

        return report_error(wrap_os_error(error), as_json=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
