"""How a command is told to the keeper, and recognised when it is asked for again."""

from __future__ import annotations

import os

from ralphproof.errors import HarnessFailed
from ralphproof.keeper import journal
from ralphproof.keeper.start import Start
from ralphproof.keeper.tree import MARK
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ralphproof.sandbox import Command

    # The program that looks on if the harness dies, and its whole environment; None for none.
    StandIn = Callable[[Command], tuple[tuple[str, ...], Mapping[str, str]] | None]


def start_of(
    command: Command, secrets: tuple[bytes, ...], sizes: tuple[int, int, int], stand_in: StandIn | None
) -> Start:
    """What the keeper is told. Every process of the turn, the stand-in too, carries the turn's mark."""
    mark = {MARK.encode(): as_bytes(command.mark)}
    argv, env = (stand_in(command) if stand_in else None) or ((), None)
    return Start(
        argv=_words(command.argv),
        env=_variables(command.env) | mark,
        cwd=_absolute(command.cwd),
        stdin=_absolute(command.stdin or os.devnull),
        out=_absolute(command.out),
        err=None if command.err is None else _absolute(command.err),
        timeout_s=command.timeout_s,
        idle_s=command.idle_s,
        linger_s=command.linger_s,
        grace_s=command.grace_s,
        secrets=secrets,
        sizes=sizes,
        stand_in=_words(argv),
        stand_in_env={} if env is None else _variables(env.items()) | mark,
    )


def past_of(command: Command) -> journal.Past:
    """What happened of this command. A file that tells of another one is a fault of ours: nothing may build on it.

    One that is taken up may have been begun with other arguments: then its file tells of it all the same.
    """
    past = journal.read(command.turn_file)
    if not command.taken_up and past.what not in (None, journal.what(_words(command.argv))):
        raise HarnessFailed(f"{command.turn_file} tells of another command than {command.argv[0]}")
    return past


def as_bytes(text: str) -> bytes:
    """As they were where they came from the system, UTF-8 where they came from a file, whatever the locale."""
    return text.encode("utf-8", "surrogateescape")


def _words(argv: Iterable[str]) -> tuple[bytes, ...]:
    return tuple(map(as_bytes, argv))


def _variables(env: Iterable[tuple[str, str]]) -> dict[bytes, bytes]:
    return {as_bytes(name): as_bytes(text) for name, text in env}


def _absolute(path: str) -> bytes:
    return as_bytes(os.path.abspath(path))
