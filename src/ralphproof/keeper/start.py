"""What the harness tells the keeper to run. Texts are bytes: the two may not agree on an encoding."""

from __future__ import annotations

from ralphproof.value import value


@value
class Start:
    """One turn. All paths are absolute; `err` None joins stderr to stdout.

    `stand_in` is started once if the harness dies before the program: it may look on in its place.
    """

    argv: tuple[bytes, ...]
    env: dict[bytes, bytes]
    cwd: bytes
    stdin: bytes
    out: bytes
    err: bytes | None
    timeout_s: float
    idle_s: float | None
    linger_s: float
    grace_s: float
    secrets: tuple[bytes, ...]
    sizes: tuple[int, int, int]
    stand_in: tuple[bytes, ...]
    stand_in_env: dict[bytes, bytes]
