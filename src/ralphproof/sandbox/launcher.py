"""Program that enters the sandbox and serves its egress: `python -I -S launcher.py SPEC PROGRAM [ARGUMENT ...]`.

It runs in the turn's process tree, enters the sandbox, serves its outgoing connections while the program inside lives,
and exits with its code. So the allow-list is enforced for a turn whose harness died, and ends with the turn.
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

IGNORED_SIGNALS = ("SIGHUP", "SIGINT", "SIGTERM")  # sent to the whole tree: the program inside decides
ENTRYPOINT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "entrypoint.py")


def main() -> NoReturn:
    """Enter, serve, and exit with the code of the program inside."""
    from ralphproof.sandbox.egress_gateway import EgressGateway
    from ralphproof.sandbox.plan import read_launch_spec, remove_temp_folder, write_launch_report

    os.closerange(3, 1 + max(map(int, os.listdir("/dev/fd"))))  # inherited descriptors must not reach the sandbox
    spec = read_launch_spec(sys.argv[1])
    for name in IGNORED_SIGNALS:
        _signal.signal(getattr(_signal, name), _signal.SIG_IGN)
    lock = _lock_placeholders(spec.lock_file)
    os.makedirs(spec.plan.temp, mode=0o700, exist_ok=True)
    gateway = EgressGateway(spec)
    code, limit_reached = _run_to_end(spec, gateway)
    for remark in (*gateway.refusal_notes(), *([f"it reached its limit of {limit_reached}"] if limit_reached else [])):
        os.write(2, f"ralph sandbox: {remark}\n".encode(errors="replace"))
    gateway.close()
    remove_temp_folder(spec.plan.temp)
    write_launch_report(spec.report_file, gateway.entered, limit_reached)
    if lock is not None:
        from ralphproof.sandbox.read_only_paths import Placeholders

        os.close(lock)
        Placeholders(
            os.path.dirname(spec.lock_file)
        ).release()  # the harness may be dead; while it lives, its lock prevents removal
    os._exit(code)  # serving threads may still run


def _lock_placeholders(path: str) -> int | None:
    """Hold the shared lock on placeholders for as long as this process lives."""
    if not path:
        return None
    import fcntl

    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(file, fcntl.LOCK_SH)
    return file


def _run_to_end(spec: LaunchSpec, gateway: EgressGateway) -> tuple[int, str]:
    """Run the program inside to its end: its exit code, and the limit that it reached."""
    from ralphproof.sandbox.resource_limits import LimitedCommand, find_limit_mechanism

    found = find_limit_mechanism(spec.plan.limits)
    limited = LimitedCommand(found, spec.plan.limits, os.path.basename(spec.report_file))
    try:
        argv = (*found.prefix, *gateway.argv(ENTRYPOINT, tuple(sys.argv[2:])))
        child = _start(argv, spec, gateway, limited)
        gateway.close_remote_end()
        status = gateway.serve(child)
        return (status if status >= 0 else 128 - status), limited.limit_reached()
    finally:
        limited.close()


def _start(argv: tuple[str, ...], spec: LaunchSpec, gateway: EgressGateway, limited: object) -> int:
    env = gateway.environment(dict(os.environ))
    child = os.fork()
    if child:
        return child
    try:
        limited.enter()  # type: ignore[attr-defined]
        gateway.keep_channel_in_child()
        if spec.entry.no_entrypoint:  # no entrypoint would reset them
            for name in IGNORED_SIGNALS:
                _signal.signal(getattr(_signal, name), _signal.SIG_DFL)
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        os.write(2, f"ralph sandbox: cannot start {argv[0]!a}: {error.strerror}\n".encode())
    finally:
        os._exit(126)


if __name__ == "__main__":
    # At the end of the path, so that no file beside the package replaces a standard module.
    sys.path.append(__file__.rsplit("/", 3)[0])
    main()
