"""A run as people watch it: lines on standard error, and a live line on a terminal."""

from __future__ import annotations

import time

from ralphproof.base.escaping import collapse_lines, sanitize
from ralphproof.base.value import TYPE_CHECKING, Protocol
from ralphproof.display import phrases
from ralphproof.display.agent_output import AgentOutput, hindrance_lines, one_line, turn_line
from ralphproof.display.phrases import format_duration, format_time
from ralphproof.display.style import GREEN, RED, YELLOW, Line, Style
from ralphproof.display.terminal import Screen
from ralphproof.engine import records
from ralphproof.engine.events import Event
from ralphproof.engine.metrics import Metrics
from ralphproof.engine.outcome import Passed, Retry, SentBack
from ralphproof.engine.plan import Job
from ralphproof.engine.records import Record, TurnBegan, TurnRetried

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TextIO

    from ralphproof.base.value import Json
    from ralphproof.engine.agent import Turn
    from ralphproof.engine.metrics import StoryReview


# Waiting for the service of an agent.


class ServiceWaits:
    """Which agent is asked, until when the services of the others refuse, and the lines about it.

    What a refusal means is known by what follows it: time passes, or a turn of another agent begins.
    """

    def __init__(self) -> None:
        self._agent, self._place = "", 0
        self._run_places = 99  # places of the run's agents; those of stages that have their own come after them
        self._regular_places = 1  # places of the ladder or rotation; fallbacks come after them
        self._retry_times: dict[int, float] = {}  # by the place of the agent
        self._refusal = ""  # the last one, until it is known what follows
        self.until = 0.0  # the run waits until then

    def configure(self, facts: dict[str, Json]) -> None:
        """The agents that the facts of a run's beginning name."""
        ladder, rotate = facts.get("ladder"), facts.get("rotate")
        lists = [places for places in (ladder, rotate) if isinstance(places, list | tuple)]
        self._regular_places = max([1, *map(len, lists)])
        fallbacks = facts.get("fallbacks")
        self._run_places = self._regular_places + (len(fallbacks) if isinstance(fallbacks, list | tuple) else 0)

    def turn_retried(self, record: TurnRetried, now: float) -> str:
        """The line for an iteration that is taken again at once; empty where that depends on what follows."""
        if record.until <= now:
            return f"{record.why}; taken again"
        self._retry_times[self._place] = record.until
        self._refusal = record.why
        return ""

    def turn_began(self, record: TurnBegan, now: float) -> str:
        """The line for a turn of another agent than the one before, or that needed no wait after all."""
        why, before, place = self._refusal, self._agent, self._place
        until = self._retry_times.get(place, 0.0)
        self._refusal, self.until = "", 0.0
        self._agent, self._place = record.agent or before, record.place
        if not before or record.place == place:
            return f"{why}; taken again" if why else ""
        same_name = self._agent == before
        if not why and max(place, record.place) >= self._run_places:
            return ""  # the line about the stage names its agent
        if same_name and not why and max(place, record.place) < self._regular_places:
            return ""  # the escalation was reported; a rotation is no news
        notes = [name] if same_name and (name := self._place_name(record.place)) else []
        if why and until > now:
            other = self._place_name(place) or "the last one"
            notes.append(f"{other if same_name else before} not before {format_time(until, now)}")
        onward = f"goes on with {self._agent}" + (f" ({', '.join(notes)})" if notes else "")
        return f"{why}; {onward}" if why else onward

    def tick(self, now: float) -> str:
        """The line for a wait, once, where time passes after a refusal and no turn begins."""
        if not self._refusal:
            return ""
        why, self._refusal = self._refusal, ""
        self.until = min((until for until in self._retry_times.values() if until > now), default=now)
        left = f" ({format_duration(self.until - now)})" if self.until > now else ""
        return f"{why}; waits until {format_time(self.until, now)}{left}, then takes the iteration again"

    def remaining(self, now: float) -> str:
        """How long the wait still takes."""
        if self.until <= now:
            return "the wait is over"
        return f"waits until {format_time(self.until, now)}, {format_duration(self.until - now)} left"

    def _place_name(self, place: int) -> str:
        """Which of several agents of one name is meant; empty where no word says it."""
        if place >= self._regular_places:
            return f"fallback {place - self._regular_places + 1}"
        return "the usual one" if self._regular_places == 1 else ""


# Lines about a run, and the live line below them.


LIVE_LINE_AFTER_S = 2.0  # of silence, before the live line is shown
LINE_BREAK_AFTER_S = 10.0  # of silence in the middle of a line, before that line is broken for the live line
PAUSED_ACTIVITY = "rests"
NOTICE_PREFIX = "[Ralph] "  # a notice that begins so was printed on standard error before the display started


class Console:
    """Masked and sanitized lines, the agent's output between them, and a live line while nothing is printed.

    With `dated` every line begins with date and time instead of its indentation, as in a log.
    """

    def __init__(
        self, out: TextIO, style: Style, mask: Callable[[str], str],
        epoch: Callable[[], float], monotonic: Callable[[], float], dated: bool = False,
    ) -> None:  # fmt: skip
        self.style, self.marks, self.epoch = style, style.marks, epoch
        self.waits = ServiceWaits()
        self.activity = ""
        self.muted = False  # the agent answers a question of the harness: a record reports the answer
        self._mask, self._monotonic, self._dated = mask, monotonic, dated
        self._screen = Screen(out, style.colour, epoch if style.timestamps else None)
        self._agent_output = AgentOutput(self._screen, style, mask, epoch)
        self._began_s = self._heard_s = monotonic()

    def begin(self, activity: str) -> None:
        """What the live line says from now on, with the time since now."""
        self.activity = activity
        self._began_s = self._heard_s = self._monotonic()

    def begin_turn(self, record: TurnBegan) -> None:
        """An agent starts."""
        self.remark(self.waits.turn_began(record, self.epoch()))
        self._agent_output.begin()
        self.begin("the agent works")

    def end_turn(self) -> None:
        """The agent has ended: nothing more comes of its text."""
        self._agent_output.end()

    def heard(self, events: list[Event]) -> None:
        """Show what the agent said and did."""
        self._heard_s = now_s = self._monotonic()
        if not self.style.quiet and not self.muted:
            self._agent_output.heard(events, now_s)

    def line(self, text: str, colour: str = "") -> None:
        text = text.strip() if self._dated else text
        self._put((collapse_lines(sanitize(self._mask(text))), colour))

    def lines(self, lines: Iterable[str], colour: str = "") -> None:
        for line in lines:
            self.line(line, colour)

    def remark(self, text: str) -> None:
        """An indented yellow line; none where the text is empty."""
        if text:
            self.line(f"  {text}", YELLOW)

    def turn_line(self, line: Line) -> None:
        """A line about a turn, which holds text of the agent's: its length is limited."""
        text, colour = line
        self._put((self.one_line(text), colour))

    def one_line(self, text: str) -> str:
        """Text of any origin, masked, in one line of limited length."""
        return one_line(text, self.style.width, self.marks.cut, self._mask)

    def story_table(self, stories: tuple[StoryReview, ...]) -> None:
        from ralphproof.display.story_table import story_table

        for text, colour in story_table(stories, self._mask):
            self.line(text, colour)

    def tick(self) -> None:
        """Show what is held back, that a service is waited for, and the live line."""
        self.flush()
        if remark := self.waits.tick(self.epoch()):
            self.remark(remark)
            self.settle()
        now_s = self._monotonic()
        silent_s = now_s - self._heard_s
        if self.style.live and silent_s >= (LINE_BREAK_AFTER_S if self._screen.mid_line else LIVE_LINE_AFTER_S):
            self._screen.live(f"  {self.one_line(self._live_text(now_s))} …")

    def flush(self) -> None:
        """Show what is held back of the agent's output."""
        self._agent_output.show(self._monotonic())

    def settle(self) -> None:
        """Write all lines, and take the live line away."""
        self._screen.settle()

    def discard(self, silent_s: float) -> None:
        """Write nothing of what came so far; nothing was heard for so many seconds."""
        self._screen.forget()
        self._began_s = self._heard_s = self._monotonic() - silent_s

    def _live_text(self, now_s: float) -> str:
        if self.waits.until:
            return self.waits.remaining(self.epoch())
        activity = f"{self.activity}, {format_duration(now_s - self._began_s)}"
        running = self._agent_output.running
        if call := running.longest():
            _, label, since_s = call
            others = f" and {len(running) - 1} more" if len(running) > 1 else ""
            return f"{activity}, for {format_duration(now_s - since_s)} at {label}{others}"
        if self._heard_s > self._began_s:
            return f"{activity}, silent for {format_duration(now_s - self._heard_s)}"
        return activity

    def _put(self, line: Line) -> None:
        stamp = time.strftime("[%Y-%m-%d %H:%M:%S] ", time.localtime(self.epoch())) if self._dated else ""
        self._screen.line(line, stamp)


class RecordReport(Protocol):
    """Which lines the records of a run become."""

    def show(self, record: Record) -> None:
        """Print what there is to say of a record."""


class IterationReport:
    """A run told by its iterations."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._job = ""
        self._user_messages: list[str] = []  # for the turn that begins next
        self._unstarted = 0  # iterations in which no agent was started

    def show(self, record: Record) -> None:
        console, marks = self._console, self._console.marks
        match record:
            case records.RunBegan(run, _, facts):
                console.waits.configure(facts)
                console.line(phrases.describe_start(run, facts))
                console.lines((f"  {line}" for line in phrases.sandbox_weaknesses(facts.get("sandbox"))), YELLOW)
            case records.Picked(_, Job() as job, tries):
                self._job = phrases.describe_job(job, tries)
            case records.TurnBegan():
                self._show_turn_start(record)
            case records.TurnEnded(_, _, reply):
                self._show_turn_end(reply)
            case records.Saved():
                self._show_work(record)
            case records.TurnRetried():
                console.begin("the iteration is taken again")
                console.remark(console.waits.turn_retried(record, console.epoch()))
            case records.CheckBegan(_, _, check):
                console.begin(f"guardrail {check}")
                console.muted = True  # only a judge says anything
            case records.CheckEnded(iteration, _, finding):
                console.muted = False
                if not iteration:
                    console.line(f"  {phrases.describe_baseline_finding(finding)}")
                    return
                mark, colour = (marks.ok, GREEN) if finding.passed else (marks.error, RED)
                console.line(f"  {mark}{phrases.describe_finding(finding)}", colour)
            case records.Judged():
                self._show_verdict(record)
            case records.ScmBegan():
                console.begin("the work is being committed")
                console.muted = True
            case records.ScmEnded(_, committed, _, message):
                console.muted = False
                console.line(f"  scm: {phrases.describe_commit(committed, message)}", RED if committed.error else "")
            case records.HookBegan(hook=hook, command=command):
                console.begin(f"{hook} {command}")
            case records.HookEnded(result=result):
                mark, colour = (marks.ok, "") if result.passed else (marks.error, RED)
                console.line(f"  {mark}{phrases.describe_hook(record)}", colour)
            case records.Warned(_, _, message):
                console.line(message, YELLOW)
            case records.Escalated():
                console.line(f"  {phrases.describe_escalation(record)}", YELLOW)
            case records.Noticed(_, _, message) if not message.startswith(NOTICE_PREFIX):
                console.line(f"  note: {message}")
            case records.RunEnded(_, Metrics(reviewed=stories)) if stories:
                console.story_table(stories)
            case _:
                self._show_control(record)

    def _show_control(self, record: Record) -> None:
        """What the user asked for, and what the run waits for."""
        console = self._console
        match record:
            case records.Resumed():
                console.line(phrases.describe_resume(record))
            case records.Paused():
                console.begin(PAUSED_ACTIVITY)
                console.line("  rests, as it was asked to; ralph resume goes on", YELLOW)
            case records.UserChangesSaved() if console.activity == PAUSED_ACTIVITY:
                console.begin("goes on")  # without a pause it was recorded by a process that took the run up
                console.line("  goes on")
            case records.UserMessageAdded(_, _, text):
                self._user_messages.append(console.one_line(text))
            case records.ClaimFound():
                self._unstarted += 1
                console.line("A file claims that the work is done; no agent is asked")
            case records.ChildRunsAwaited(children=children):
                console.begin(phrases.describe_awaited_children(children))
                console.line(f"  {console.activity}")
            case records.ChildWorkJoined(change=change):
                console.line(f"  they are over; with their work: {phrases.describe_change(change)}")
            case _:
                pass

    def _show_turn_start(self, record: TurnBegan) -> None:
        console = self._console
        if record.turn == 1:
            of = f" of {console.style.maximum}" if console.style.maximum else ""
            console.line(f"Iteration {record.iteration - self._unstarted}{of}{self._job}")
        console.lines(f"  you say to the agent: {message}" for message in self._user_messages)
        self._user_messages.clear()
        console.begin_turn(record)

    def _show_turn_end(self, reply: Turn) -> None:
        console = self._console
        console.end_turn()
        console.turn_line(turn_line(reply, console.marks))
        if reply.asked and not console.style.stream:
            console.line(f"  the agent asked, and nobody is there to answer: {reply.asked}", YELLOW)
        for line in hindrance_lines(reply, console.marks):
            console.turn_line(line)

    def _show_work(self, record: records.Saved) -> None:
        console, claim = self._console, record.heard.claim
        says = f"; it says {claim.word}" if claim else ""
        console.line(f"  {phrases.describe_change(record.change)}{says}")
        console.lines(f"  not saved (over 50 MiB): {path}" for path in record.snapshot.left_out)
        console.lines((f"  {line}" for line in phrases.describe_touched_paths(record.sprung)), YELLOW)
        console.lines((f"  {line}" for line in phrases.describe_altered_checks(record.altered)), YELLOW)

    def _show_verdict(self, record: records.Judged) -> None:
        console = self._console
        match record.verdict:
            case Passed(report):
                console.line(f"  done: {phrases.describe_report(report)}", GREEN)
            case Retry(feedback):
                console.line(f"  not done: {phrases.describe_feedback(feedback)}")
            case SentBack(reopened, feedback):
                console.line(f"  sent back to {reopened[0]}: {phrases.describe_feedback(feedback)}", YELLOW)
            case _:
                pass


class ConsoleObserver:
    """Shows a run on a stream: its records by a report, and what its agent says and does meanwhile."""

    def __init__(
        self, out: TextIO, style: Style, mask: Callable[[str], str] = str, *,
        report: Callable[[Console], RecordReport] = IterationReport, dated: bool = False,
        epoch: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._console = Console(out, style, mask, epoch, monotonic, dated)
        self._report = report(self._console)

    def on_record(self, record: Record) -> None:
        if self._console.style.quiet and not isinstance(record, records.Warned):  # a limit is near
            return
        self._console.flush()
        self._report.show(record)
        self._console.settle()

    def catch_up(self, earlier: Iterable[Record], at: float) -> None:
        """Take in records from before the display started, and show nothing. `at` is when the last was written."""
        for record in earlier:
            self._report.show(record)
        self._console.discard(max(0.0, self._console.epoch() - at))

    def on_events(self, events: list[Event]) -> None:
        self._console.heard(events)

    def tick(self) -> None:
        if not self._console.style.quiet:
            self._console.tick()

    def flush(self) -> None:
        """Show what is still held back, at the latest when the program ends."""
        self._console.flush()

    def close(self) -> None:
        """Show what is held back, and leave the terminal to others."""
        self._console.flush()
        self._console.settle()
