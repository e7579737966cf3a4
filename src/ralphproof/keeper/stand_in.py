"""The program that looks on at a turn in place of its dead harness."""

from __future__ import annotations

import os

from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    import signal as _signal

    from ralphproof.keeper.start import Start
else:
    import _signal

_DEFAULTS = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGPIPE", "SIGCHLD", "SIGXFSZ", "SIGUSR1", "SIGUSR2")


def start_stand_in(start: Start) -> int:
    """Its process id, a child of ours in a session of its own; 0 if there is none: nothing depends on it.

    It gets our working folder, our stderr, and no other descriptor of ours.
    """
    if not start.stand_in:
        return 0
    try:
        return os.posix_spawn(
            start.stand_in[0],
            start.stand_in,
            start.stand_in_env,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=[getattr(_signal, name) for name in _DEFAULTS],
        )
    except (OSError, ValueError):
        return 0
