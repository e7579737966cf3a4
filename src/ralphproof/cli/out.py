"""How verbs speak: one JSON object for programs, clean lines for people."""

from __future__ import annotations

import sys

from ralphproof.display.clean import clean
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
    """Lines for people, with nothing in them that a terminal would obey."""
    for line in lines:
        print(clean(line))


def must_ask(given: bool, for_programs: bool, why: str) -> None:
    """Refuse at once what needs a yes that nobody can give: without a terminal only `--yes` is one."""
    if not given and (for_programs or sys.stdin is None or not sys.stdin.isatty()):
        raise Refused(f"{why}, and there is no terminal to ask at; say --yes")


def answered_yes(question: str) -> bool:
    """Ask at the terminal; anything but yes is no, and an end of input is an interruption."""
    try:
        return input(f"{question} (y/N): ").strip().lower() in ("y", "yes")
    except EOFError as end:
        raise KeyboardInterrupt from end
