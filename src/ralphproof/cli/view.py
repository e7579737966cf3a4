"""Who looks on while a run goes: people at a terminal, a log, or a program that reads JSON."""

from __future__ import annotations

import atexit
import os
import sys

from ralphproof.config.settings import Settings
from ralphproof.display.people import People
from ralphproof.display.style import Style
from ralphproof.limit import INTERRUPTED, STEP, WAITING
from ralphproof.value import TYPE_CHECKING
from ralphproof.verdict import Aborted

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable
    from typing import TextIO

    from ralphproof.ledger import Observer
    from ralphproof.ledgers.folder import RunFolder
    from ralphproof.verdict import Outcome


def observers(
    folder: RunFolder, args: Namespace, settings: Settings, mask: Callable[[str], str]
) -> tuple[Observer, ...]:
    """The observers that the flags ask for."""
    people = _people(style(sys.stderr, args, settings), settings, mask)
    atexit.register(people.flush)  # however the program ends, what the agent said last is shown
    chosen: list[Observer] = [people]
    if args.json:
        from ralphproof.display.ndjson import Ndjson

        chosen.append(Ndjson(sys.stdout, folder.run, args.verbose, mask))
    if args.verbose:
        from ralphproof.display.verbose import Conditions, Verbose

        commands = {guardrail.name: guardrail.shown for guardrail in settings.guardrails}
        conditions = Conditions(settings.maximum_iterations, settings.completion_response, commands)
        chosen.append(Verbose(sys.stderr, conditions, lambda *turn: _prompt(folder, *turn), mask))
    return tuple(chosen)


def _people(style: Style, settings: Settings, mask: Callable[[str], str]) -> People:
    """Restarts are told as a log, other loops by their iterations."""
    if settings.preset != "supervise":
        return People(sys.stderr, style, mask)
    from ralphproof.display.attempts import Attempts

    return Attempts(sys.stderr, style, mask, settings.agent.timeout_s)


def _prompt(folder: RunFolder, iteration: int, turn: int) -> str:
    """The beginning of a prompt, from the file that was written for it."""
    from ralphproof.views.printed import whole
    from ralphproof.world import numbered

    path = folder.shown(f"prompt_{numbered(f'{iteration:03d}', turn)}") + ".txt"
    return next(whole(path), b"")[:4096].decode("utf-8", "replace")


def style(out: TextIO, args: Namespace, settings: Settings) -> Style:
    """How lines look on this stream."""
    shown = settings.display
    at_terminal = out.isatty() and os.environ.get("TERM") != "dumb"
    unicode = (out.encoding or "").lower().replace("-", "") == "utf8"
    return Style(
        colour=colour(args.no_color, shown.color, at_terminal),
        emoji=shown.emoji and not args.no_emoji and at_terminal and unicode,
        live=at_terminal,
        stream=settings.stream_agent_output,
        quiet=args.quiet,
        maximum=settings.maximum_iterations,
        timestamps=shown.timestamps,
        output_lines=shown.output_lines,
        output_chars=shown.output_chars,
    )


def colour(forbidden: bool, setting: str, at_terminal: bool) -> bool:
    """The flag beats NO_COLOR, which beats FORCE_COLOR, which beats the setting; else a terminal has colours."""
    if forbidden or os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR") or os.environ.get("CLICOLOR_FORCE"):
        return True
    return setting == "always" or (setting == "auto" and at_terminal)


def _last_word(run: str, outcome: Outcome) -> str:
    """What can be done now."""
    reason = outcome.reason if isinstance(outcome, Aborted) else ""
    if reason == WAITING:
        return f"run {run} waits; answer with ralph say {run} TEXT, and go on: ralph run --resume {run}"
    if reason == STEP:
        from ralphproof.views.onward import next_step

        return f"run {run} has taken its step; ralph status, logs and diff say more; go on: {next_step(run)}"
    onward = f"; go on: ralph run --resume {run}" if reason == INTERRUPTED else ""
    return f"run {run} is over; ralph status, logs and diff say more{onward}"


def say(run: str, outcome: Outcome, args: Namespace, mask: Callable[[str], str]) -> None:
    """The last lines of a run, whose id is empty where it has no record. Nobody may read them: the exit code tells."""
    from ralphproof.display import words
    from ralphproof.display.clean import clean, flat

    try:
        if args.json:
            return
        if run and not args.quiet:
            print(_last_word(run, outcome), file=sys.stderr)
        for line in words.outcome(outcome):
            print(flat(clean(mask(line))), flush=True)
    except OSError:
        pass
