"""A run as people watch it: calm lines on standard error, and on a terminal one line that shows that it lives."""

from __future__ import annotations

import os
import time

from ralphproof import record as told
from ralphproof.display import words
from ralphproof.display.clean import Cleaner, clean, fitted, flat
from ralphproof.display.colours import DIM, GREEN, PLAIN, RED
from ralphproof.event import Event, Said, ToolStarted
from ralphproof.stage import Job
from ralphproof.value import TYPE_CHECKING, value
from ralphproof.verdict import Passed, Retry

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

SLOW_S = 2.0  # something quieter than this gets a line that shows that it lives


@value
class Style:
    """How lines look. `live` allows a line that is rewritten in place; `stream` shows what the agent says."""

    colour: bool = False
    emoji: bool = False
    live: bool = False
    stream: bool = True
    quiet: bool = False
    maximum: int | None = None


class People:
    """Tells a run as it goes. What an agent says comes masked already; all other lines are masked here."""

    def __init__(self, out: TextIO, style: Style, mask: Callable[[str], str] = str) -> None:
        self._out, self._style, self._mask = out, style, mask
        self._doing, self._job = "", ""
        self._began_s = self._heard_s = time.monotonic()
        self._cleaner = Cleaner(style.colour)
        self._live_shown = self._mid_line = False
        self._asides = False  # what the agent says now is an answer to us, no work: the line about it tells it

    def saw(self, record: told.Record) -> None:
        match record:
            case told.RunBegan(run, _, facts):
                self._line(words.beginning(run, facts))
            case told.Picked(_, Job(task, stage)):
                self._job = f" ({task.title}, {stage.name})" if task.title else ""
            case told.TurnBegan(iteration, turn):
                of = f" of {self._style.maximum}" if self._style.maximum else ""
                if turn == 1:
                    self._line(f"Iteration {iteration}{of}{self._job}")
                self._begin("the agent works")
            case told.TurnEnded(_, _, reply):
                self._raw(self._cleaner.end())
                self._line("  " + words.turn(reply), RED if reply.errored else "")
            case told.Saved(_, _, snapshot, change, heard):
                claim = f"; it says {heard.claim.word}" if heard.claim else ""
                self._line(f"  {words.change(change)}{claim}")
                self._lines(f"  not saved (over 50 MiB): {path}" for path in snapshot.left_out)
            case told.TurnAgain(_, _, _, why, waited_s):
                self._line(f"  {why}; taken again" + (f" after {words.duration(waited_s)}" if waited_s else ""))
            case told.CheckBegan(_, _, check):
                self._begin(f"guardrail {check}")
            case told.CheckEnded(_, _, finding):
                self._line(f"  {self._sign(finding.passed)}{words.finding(finding)}", GREEN if finding.passed else RED)
            case told.Judged():
                self._judged(record)
            case told.ScmBegan():
                self._begin("the work is being committed")
                self._asides = True
            case told.ScmEnded(_, committed, _, message):
                self._asides = False
                self._line(f"  scm: {words.kept(committed, message)}", RED if committed.error else "")
            case told.Noticed(_, _, message):
                self._line(f"  note: {message}")
            case _:
                pass

    def heard(self, event: Event) -> None:
        self._heard_s = time.monotonic()
        if not self._style.stream or self._asides:
            return
        match event:
            case Said(text) if text:
                self._raw(self._cleaner.feed(text))
            case ToolStarted(_, name, summary):
                self._line(f"  > {name} {summary}".rstrip(), DIM)
            case _:
                pass

    def tick(self) -> None:
        now_s = time.monotonic()
        if now_s - self._heard_s < SLOW_S or not self._style.live or self._mid_line or self._style.quiet:
            return
        silent = f", silent for {words.duration(now_s - self._heard_s)}" if self._heard_s > self._began_s else ""
        line = f"  {self._doing}, {words.duration(now_s - self._began_s)}{silent} …"
        self._out.write(f"\r\x1b[K{fitted(line, self._columns() - 1)}")
        self._out.flush()
        self._live_shown = True

    def _columns(self) -> int:
        """How wide the terminal is now: a line that wraps cannot be rewritten."""
        try:
            return os.get_terminal_size(self._out.fileno()).columns or 80
        except (OSError, ValueError):
            return 80

    def _judged(self, record: told.Judged) -> None:
        match record.verdict:
            case Passed(report):
                self._line(f"  done: {words.report(report)}", GREEN)
            case Retry(feedback):
                self._line(f"  not done: {words.lacking(feedback)}")
            case _:
                pass

    def _sign(self, passed: bool) -> str:
        if self._style.emoji:
            return "✅ " if passed else "❌ "
        return "[OK] " if passed else "[ERR] "

    def _begin(self, doing: str) -> None:
        self._doing = flat(clean(self._mask(doing)))
        self._began_s = self._heard_s = time.monotonic()

    def _lines(self, lines: object) -> None:
        for line in lines:  # type: ignore[attr-defined]
            self._line(line)

    def _line(self, text: str, colour: str = "") -> None:
        text = flat(clean(self._mask(text)))
        self._raw((f"{colour}{text}{PLAIN}" if colour and self._style.colour else text) + "\n", own_line=True)

    def _raw(self, text: str, own_line: bool = False) -> None:
        if self._style.quiet or not text:
            return
        if self._live_shown:
            self._out.write("\r\x1b[K")
            self._live_shown = False
        if own_line and self._mid_line:
            self._out.write("\n")
        self._out.write(text)
        self._out.flush()
        self._mid_line = not text.endswith("\n")
