"""How verbs speak: one JSON object for programs, clean lines for people."""

from __future__ import annotations

import os
import sys

from ralphproof.cli.interrupts import Raising
from ralphproof.display.clean import clean, flat
from ralphproof.errors import Refused
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ralphproof.value import Json


def put_json(kind: str, data: Mapping[str, Json]) -> None:
    """The result as one object in one line."""
    import json

    print(json.dumps({"v": 1, "type": kind, **data}))


def put(*lines: str) -> None:
    """Lines for people, each on its own, with nothing in them that a terminal would obey."""
    for line in lines:
        print(flat(clean(line)))


def must_ask(given: bool, for_programs: bool, why: str) -> None:
    """Refuse at once what needs a yes that nobody can give: without a terminal only `--yes` is one."""
    if not given and (for_programs or sys.stdin is None or not sys.stdin.isatty()):
        raise Refused(f"{why}, and there is no terminal to ask at; say --yes")
    if not given:
        sys.stdin.reconfigure(errors="surrogateescape")  # type: ignore[union-attr]  # any key may be pressed


def ask(question: str) -> str:
    """The answer that somebody types at the terminal. Ctrl-C and an end of input raise KeyboardInterrupt."""
    import select
    import signal

    print(f"{question}: ", end="", flush=True)
    # `input` loses a Ctrl-C that comes between its prompt and its read. A wake-up pipe does not.
    woken, ring = os.pipe()
    os.set_blocking(ring, False)
    before = signal.set_wakeup_fd(ring)
    try:
        with Raising():
            select.select([sys.stdin, woken], [], [])
            answer = sys.stdin.readline()
    finally:
        signal.set_wakeup_fd(before)
        os.close(woken)
        os.close(ring)
    if not answer:
        raise KeyboardInterrupt
    return answer.strip()


def answered_yes(question: str) -> bool:
    """Ask at the terminal; anything but yes is no."""
    return ask(f"{question} (y/N)").lower() in ("y", "yes")


def let_go() -> None:
    """Write what both streams still hold. Where nobody reads it, nothing is said any more, not even at exit."""
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), number)
