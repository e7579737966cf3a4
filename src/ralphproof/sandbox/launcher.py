"""Program that enters the sandbox and serves its egress: `python -I -S launcher.py SPEC PROGRAM [ARGUMENT ...]`.

It runs in the turn's tree, enters the box, serves the way out of it for as long as the program inside lives, and ends
as that ended. So the allow-list holds for a turn whose harness died, and dies with the turn.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal

if TYPE_CHECKING:
    from typing import NoReturn

    from ralphproof.sandbox.egress_gateway import EgressGateway
    from ralphproof.sandbox.plan import LaunchSpec

IGNORED_SIGNALS = ("SIGHUP", "SIGINT", "SIGTERM")  # the whole tree gets them: the program inside is to decide
ENTRYPOINT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "entrypoint.py")


def main() -> NoReturn:
    """Enter, serve, and end as the program inside did."""
    from ralphproof.sandbox.egress_gateway import EgressGateway
    from ralphproof.sandbox.plan import read_launch_spec, remove_temp_folder, write_launch_report

    os.closerange(3, 1 + max(map(int, os.listdir("/dev/fd"))))  # what others left open is not for those inside
    load = read_launch_spec(sys.argv[1])
    for name in IGNORED_SIGNALS:
        _signal.signal(getattr(_signal, name), _signal.SIG_IGN)
    lock = _lock_placeholders(load.lock)
    os.makedirs(load.box.temp, mode=0o700, exist_ok=True)
    gate = EgressGateway(load)
    code, full = _run_to_end(load, gate)
    for remark in (*gate.remarks(), *([f"it reached its limit of {full}"] if full else [])):
        os.write(2, f"ralph sandbox: {remark}\n".encode(errors="replace"))
    gate.close()
    remove_temp_folder(load.box.temp)
    write_launch_report(load.report, gate.entered, full)
    if lock is not None:
        from ralphproof.sandbox.read_only_paths import Placeholders

        os.close(lock)
        Placeholders(os.path.dirname(load.lock)).lift()  # the harness may be dead; while it lives, nothing is lifted
    os._exit(code)  # connections may still be served, and nobody is left to be served


def _lock_placeholders(path: str) -> int | None:
    """Say for as long as we live that what lies over absent files is needed."""
    if not path:
        return None
    import fcntl

    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(file, fcntl.LOCK_SH)
    return file


def _run_to_end(load: LaunchSpec, gate: EgressGateway) -> tuple[int, str]:
    """Start the program inside and see it to its end: its exit code, and the limit that it reached."""
    from ralphproof.sandbox.resource_limits import LimitedCommand, find_limit_mechanism

    found = find_limit_mechanism(load.box.ration)
    enclosure = LimitedCommand(found, load.box.ration, os.path.basename(load.report))
    try:
        argv = (*found.prefix, *gate.argv(ENTRYPOINT, tuple(sys.argv[2:])))
        child = _start(argv, load, gate, enclosure)
        gate.opened()
        status = gate.serve(child)
        return (status if status >= 0 else 128 - status), enclosure.full()
    finally:
        enclosure.close()


def _start(argv: tuple[str, ...], load: LaunchSpec, gate: EgressGateway, enclosure: object) -> int:
    env = gate.environment(dict(os.environ))
    child = os.fork()
    if child:
        return child
    try:
        enclosure.enter()  # type: ignore[attr-defined]
        gate.pass_down()
        if load.way.bare:  # nobody inside would make them count again
            for name in IGNORED_SIGNALS:
                _signal.signal(getattr(_signal, name), _signal.SIG_DFL)
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        os.write(2, f"ralph sandbox: cannot start {argv[0]!a}: {error.strerror}\n".encode())
    finally:
        os._exit(126)


if __name__ == "__main__":
    # At the end of the path: nothing that lies beside the package may stand in for a standard module.
    sys.path.append(__file__.rsplit("/", 3)[0])
    main()
