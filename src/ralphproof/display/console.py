"""A run as people watch it: lines on standard error, and a live line on a terminal."""

from __future__ import annotations

import time

from ralphproof.base.escaping import collapse_lines, sanitize
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.display import phrases
from ralphproof.display.agent_output import one_line
from ralphproof.display.phrases import format_duration, format_time
from ralphproof.display.style import GREEN, RED, YELLOW, Line, Style
from ralphproof.display.terminal import Screen
from ralphproof.engine import records as told
from ralphproof.engine.events import Event
from ralphproof.engine.metrics import Metrics
from ralphproof.engine.outcome import Passed, Retry, SentBack
from ralphproof.engine.plan import Job
from ralphproof.engine.records import TurnBegan, TurnRetried

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TextIO

    from ralphproof.base.value import Json
    from ralphproof.display.agent_output import AgentOutput
    from ralphproof.engine.agent import Turn
    from ralphproof.engine.metrics import StoryReview


# Services that may not be asked yet, and what is said of it: that somebody waits, or that another agent goes on.


class ServiceWaits:
    """Follows which agent is asked, and until when the others may not be. What follows a refusal shows what it means:

    time that passes, or another turn.
    """

    def __init__(self) -> None:
        self._agent, self._place = "", 0
        self._shared = 99  # so many places are those of the run; stages that have an agent of their own come after them
        self._usual = 1  # so many places are those of a ladder or rotation; fallbacks come after them
        self._untils: dict[int, float] = {}  # by the place of the agent
        self._why = ""  # of a refusal, while it is open what follows
        self.until = 0.0  # somebody waits

    def told(self, facts: dict[str, Json]) -> None:
        """What the beginning of a run says of its agents."""
        ladder, rotate = facts.get("ladder"), facts.get("rotate")
        self._usual = max([1, *(len(places) for places in (ladder, rotate) if isinstance(places, list | tuple))])
        fallbacks = facts.get("fallbacks")
        self._shared = self._usual + (len(fallbacks) if isinstance(fallbacks, list | tuple) else 0)

    def again(self, record: TurnRetried, now: float) -> str:
        """The line for an iteration that is taken again at once; nothing where that depends on what follows."""
        if record.until <= now:
            return f"{record.why}; taken again"
        self._untils[self._place] = record.until
        self._why = record.why
        return ""

    def began(self, record: TurnBegan, now: float) -> str:
        """The line for a turn that is another agent's than the one before, or that needed no wait after all."""
        why, before, place, until = self._why, self._agent, self._place, self._untils.get(self._place, 0.0)
        self._why, self.until = "", 0.0
        self._agent, self._place = record.agent or before, record.place
        if not before or record.place == place:
            return f"{why}; taken again" if why else ""
        alike = self._agent == before
        if not why and max(place, record.place) >= self._shared:
            return ""  # which agent a stage has is told with the stage
        if alike and not why and max(place, record.place) < self._usual:
            return ""  # a ladder is told where it is climbed, and taking turns is no news
        notes = [rank] if alike and (rank := self._rank(record.place)) else []
        if why and until > now:
            other = self._rank(place) or "the last one"
            notes.append(f"{other if alike else before} not before {format_time(until, now)}")
        onward = f"goes on with {self._agent}" + (f" ({', '.join(notes)})" if notes else "")
        return f"{why}; {onward}" if why else onward

    def passes(self, now: float) -> str:
        """Time passes and no turn begins: the line for a wait, once."""
        if not self._why:
            return ""
        why, self._why = self._why, ""
        self.until = min((until for until in self._untils.values() if until > now), default=now)
        left = f" ({format_duration(self.until - now)})" if self.until > now else ""
        return f"{why}; waits until {format_time(self.until, now)}{left}, then takes the iteration again"

    def left(self, now: float) -> str:
        """How long somebody still waits."""
        if self.until <= now:
            return "the wait is over"
        return f"waits until {format_time(self.until, now)}, {format_duration(self.until - now)} left"

    def _rank(self, place: int) -> str:
        """Which of several agents of one name is meant, where a word can say it."""
        if place >= self._usual:
            return f"fallback {place - self._usual + 1}"
        return "the usual one" if self._usual == 1 else ""


# A run as people watch it: calm lines on standard error, and on a terminal one line that shows that it lives.


LIVE_LINE_AFTER_S = 2.0  # something quieter than this gets a line that shows that it lives
NOTICE_PREFIX = "[Ralph] "  # a notice that begins so was said on standard error before anybody watched
LINE_BREAK_AFTER_S = 10.0  # so quiet in the middle of a line, and the line is broken for it


class ConsoleObserver:
    """Tells a run as it goes. What comes from elsewhere is masked, and holds nothing that a terminal would obey."""

    def __init__(
        self, out: TextIO, style: Style, mask: Callable[[str], str] = str, *,
        epoch: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._style, self._mask, self._epoch, self._monotonic = style, mask, epoch, monotonic
        self._marks = style.marks
        self._screen = Screen(out, style.colour, epoch if style.timestamps else None)
        self._stream: AgentOutput | None = (
            None  # from the first event on: until then it would only delay the agent's start
        )
        self._doing, self._job = "", ""
        self._words: list[str] = []  # of the user's, for the turn that begins next
        self._waits = ServiceWaits()
        self._began_s = self._heard_s = monotonic()
        self._unstarted = 0  # iterations in which no agent was started
        self._asides = False  # what the agent says now is an answer to us, no work: the line about it tells it

    def saw(self, record: told.Record) -> None:
        if self._style.quiet and not isinstance(record, told.Warned):  # a limit that comes near is no chatter
            return
        self.flush()
        self._tell(record)
        self._screen.settle()

    def catch_up(self, records: Iterable[told.Record], at: float) -> None:
        """Know what was before anybody looked on, and show nothing of it. `at` is when the last of it was told."""
        for record in records:
            self._tell(record)
        self._screen.forget()
        self._began_s = self._heard_s = self._monotonic() - max(0.0, self._epoch() - at)

    def heard(self, events: list[Event]) -> None:
        self._heard_s = now_s = self._monotonic()
        if self._style.quiet or self._asides:
            return
        if self._stream is None:
            from ralphproof.display.agent_output import AgentOutput

            self._stream = AgentOutput(self._screen, self._style, self._mask, self._epoch)
        self._stream.heard(events, now_s)

    def tick(self) -> None:
        if self._style.quiet:
            return
        self.flush()
        if remark := self._waits.passes(self._epoch()):
            self._remark(remark)
            self._screen.settle()
        now_s = self._monotonic()
        silent_s = now_s - self._heard_s
        if self._style.live and silent_s >= (LINE_BREAK_AFTER_S if self._screen.mid_line else LIVE_LINE_AFTER_S):
            self._screen.live(f"  {one_line(self._lively(now_s), self._style.width, self._marks.cut, self._mask)} …")

    def flush(self) -> None:
        """Show what is still held back, at the latest when the program ends."""
        if self._stream is not None:
            self._stream.show(self._monotonic())

    def close(self) -> None:
        """Show what is held back, and leave the terminal to others."""
        self.flush()
        self._screen.settle()

    def _lively(self, now_s: float) -> str:
        """What goes on, and for how long."""
        if self._waits.until:
            return self._waits.left(self._epoch())
        doing = f"{self._doing}, {phrases.format_duration(now_s - self._began_s)}"
        if self._stream is not None and (call := self._stream.running.longest()):
            _, label, since_s = call
            others = len(self._stream.running) - 1
            return f"{doing}, for {phrases.format_duration(now_s - since_s)} at {label}{f' and {others} more' if others else ''}"
        silent = (
            f", silent for {phrases.format_duration(now_s - self._heard_s)}" if self._heard_s > self._began_s else ""
        )
        return doing + silent

    def _tell(self, record: told.Record) -> None:
        match record:
            case told.RunBegan(run, _, facts):
                self._waits.told(facts)
                self._line(phrases.describe_start(run, facts))
                self._lines((f"  {line}" for line in phrases.sandbox_weaknesses(facts.get("sandbox"))), YELLOW)
            case told.Picked(_, Job() as job, tries):
                self._job = phrases.describe_job(job, tries)
            case told.TurnBegan():
                self._turn_began(record)
            case told.TurnEnded(_, _, reply):
                self._turn_ended(reply)
            case told.Saved(_, _, snapshot, change, heard, sprung, altered=altered):
                claim = f"; it says {heard.claim.word}" if heard.claim else ""
                self._line(f"  {phrases.describe_change(change)}{claim}")
                self._lines(f"  not saved (over 50 MiB): {path}" for path in snapshot.left_out)
                self._lines(
                    (
                        f"  {line}"
                        for line in (*phrases.describe_touched_paths(sprung), *phrases.describe_altered_checks(altered))
                    ),
                    YELLOW,
                )
            case told.TurnRetried():
                self._begin("the iteration is taken again")
                self._remark(self._waits.again(record, self._epoch()))
            case told.CheckBegan(_, _, check):
                self._begin(f"guardrail {check}")
                self._asides = True  # only a judge says anything, and what it comes to is told then
            case told.CheckEnded() if self._asides:
                self._asides = False
                self._tell(record)
            case told.CheckEnded(0, _, finding):
                self._line(f"  {phrases.describe_baseline_finding(finding)}")
            case told.CheckEnded(_, _, finding):
                sign = self._marks.ok if finding.passed else self._marks.error
                self._line(f"  {sign}{phrases.describe_finding(finding)}", GREEN if finding.passed else RED)
            case told.Judged():
                self._judged(record)
            case told.ScmBegan():
                self._begin("the work is being committed")
                self._asides = True
            case told.ScmEnded(_, committed, _, message):
                self._asides = False
                self._line(f"  scm: {phrases.describe_commit(committed, message)}", RED if committed.error else "")
            case told.HookBegan(hook=hook, command=command):
                self._begin(f"{hook} {command}")
            case told.HookEnded(result=result):
                sign, colour = (self._marks.ok, "") if result.passed else (self._marks.error, RED)
                self._line(f"  {sign}{phrases.describe_hook(record)}", colour)
            case told.Warned(_, _, message):
                self._line(message, YELLOW)
            case told.Escalated():
                self._line(f"  {phrases.describe_escalation(record)}", YELLOW)
            case told.Noticed(_, _, message) if not message.startswith(NOTICE_PREFIX):
                self._line(f"  note: {message}")
            case told.RunEnded(_, Metrics(reviewed=stories)) if stories:
                self._stories(stories)
            case _:
                self._steered(record)

    def _steered(self, record: told.Record) -> None:
        """What somebody else wants, or waits for."""
        match record:
            case told.Resumed():
                self._line(phrases.describe_resume(record))
            case told.Paused():
                self._rests()
            case told.UserChangesSaved():
                self._goes_on()
            case told.UserMessageAdded(_, _, text):
                self._words.append(one_line(text, self._style.width, self._marks.cut, self._mask))
            case told.ClaimFound():
                self._unstarted += 1
                self._line("A file claims that the work is done; no agent is asked")
            case told.ChildRunsAwaited(children=children):
                self._begin(phrases.describe_awaited_children(children))
                self._line(f"  {self._doing}")
            case told.ChildWorkJoined(change=change):
                self._line(f"  they are over; with their work: {phrases.describe_change(change)}")
            case _:
                pass

    def _turn_began(self, record: told.TurnBegan) -> None:
        if record.turn == 1:
            self._line(self._iteration(record.iteration))
        self._lines(f"  you say to the agent: {said}" for said in self._words)
        self._words.clear()
        self._remark(self._waits.began(record, self._epoch()))
        if self._stream is not None:
            self._stream.begin()
        self._begin("the agent works")

    def _iteration(self, number: int) -> str:
        of = f" of {self._style.maximum}" if self._style.maximum else ""
        return f"Iteration {number - self._unstarted}{of}{self._job}"

    def _rests(self) -> None:
        self._begin("rests")
        self._line("  rests, as it was asked to; ralph resume goes on", YELLOW)

    def _goes_on(self) -> None:
        """A run that is taken up regains its tree too, and nobody saw it rest."""
        if self._doing == "rests":
            self._begin("goes on")
            self._line("  goes on")

    def _turn_ended(self, reply: Turn) -> None:
        from ralphproof.display.agent_output import hindrance_lines, turn_line

        if self._stream is not None:
            self._stream.end()
        self._own(turn_line(reply, self._marks))
        if reply.asked and not self._style.stream:
            self._line(f"  the agent asked, and nobody is there to answer: {reply.asked}", YELLOW)
        for line in hindrance_lines(reply, self._marks):
            self._own(line)

    def _judged(self, record: told.Judged) -> None:
        match record.verdict:
            case Passed(report):
                self._line(f"  done: {phrases.describe_report(report)}", GREEN)
            case Retry(feedback):
                self._line(f"  not done: {phrases.describe_feedback(feedback)}")
            case SentBack(reopened, feedback):
                self._line(f"  sent back to {reopened[0]}: {phrases.describe_feedback(feedback)}", YELLOW)
            case _:
                pass

    def _stories(self, stories: tuple[StoryReview, ...]) -> None:
        from ralphproof.display.story_table import story_table

        for text, colour in story_table(stories, self._mask):
            self._line(text, colour)

    def _begin(self, doing: str) -> None:
        self._doing = doing
        self._began_s = self._heard_s = self._monotonic()

    def _remark(self, text: str) -> None:
        if text:
            self._line(f"  {text}", YELLOW)

    def _lines(self, lines: Iterable[str], colour: str = "") -> None:
        for line in lines:
            self._line(line, colour)

    def _line(self, text: str, colour: str = "") -> None:
        self._put((collapse_lines(sanitize(self._mask(text))), colour))

    def _own(self, line: Line) -> None:
        """A line about the turn, as long as an agent's words made it, up to a point."""
        text, colour = line
        self._put((one_line(text, self._style.width, self._marks.cut, self._mask), colour))

    def _put(self, line: Line) -> None:
        self._screen.line(line)
