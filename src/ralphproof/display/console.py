"""The console display of a run: lines on standard error, and a live line on a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TextIO

from ralphproof.base.escaping import collapse_lines, sanitize
from ralphproof.base.value import Json, Protocol, value
from ralphproof.display import phrases
from ralphproof.display.agent_output import AgentOutput, one_line, turn_line, warning_lines
from ralphproof.display.phrases import format_count, format_duration, format_time
from ralphproof.display.terminal import GREEN, RED, YELLOW, Line, Screen, Style
from ralphproof.engine import records
from ralphproof.engine.agent import Event, Turn
from ralphproof.engine.outcome import Metrics, Passed, Retry, SentBack, StoryReview, total_reviews
from ralphproof.engine.plan import Job
from ralphproof.engine.records import Record, TurnBegan, TurnRetried

MAX_STORIES = 50  # of a table; there may be thousands
NAME_CHARS, TITLE_CHARS, FOUND_CHARS = 30, 80, 160
ELLIPSIS = "..."
STATUS_PHRASES = {
    "passes": "done, not reviewed",
    "needs_review": "needs review",
    "changes_requested": "changes requested",
}
DONE_STATES = ("approved", "passes")
CAPPED_PHRASE = "APPROVED AT THE CAP"


def story_table(stories: tuple[StoryReview, ...], mask: Callable[[str], str] = str, found: bool = False) -> list[Line]:
    """A summary line, then a line for each story; with `found` also the changes requested of it in this run.

    Stories that were approved only at the review cap are marked, because they may need attention.
    """
    if not stories:
        return []
    shown = stories[:MAX_STORIES]
    rows = [
        (_one_line(story.story, NAME_CHARS, mask), _status_phrase(story), format_count(story.reviews, "review"))
        for story in shown
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [_summary_line(stories)]
    for story, row in zip(shown, rows, strict=True):
        line = f"  {'  '.join(map(str.ljust, row, widths))}  {_one_line(story.title, TITLE_CHARS, mask)}"
        lines.append((line.rstrip(), YELLOW if story.capped else ""))
        if found:
            lines += ((f"      asked for: {_one_line(change, FOUND_CHARS, mask)}", "") for change in story.found)
    return [*lines, *([(f"  and {len(stories) - MAX_STORIES} more", "")] if len(stories) > MAX_STORIES else [])]


def _summary_line(stories: tuple[StoryReview, ...]) -> Line:
    done, reviews = sum(story.status in DONE_STATES for story in stories), total_reviews(stories)
    parts = [f"Stories: {done} of {len(stories)} done"]
    if reviews and reviews.reviews:
        parts.append(f"{format_count(reviews.reviews, 'review')} in this run")
    if reviews and reviews.changes_requested:
        parts.append(f"changes requested {format_count(reviews.changes_requested, 'time')}")
    capped = sum(story.capped for story in stories)
    if capped:
        parts.append(f"{capped} approved at the review cap and may need manual attention")
    return "; ".join(parts), YELLOW if capped else ""


def _status_phrase(story: StoryReview) -> str:
    return CAPPED_PHRASE if story.capped else STATUS_PHRASES.get(story.status, story.status)


def _one_line(text: str, chars: int, mask: Callable[[str], str]) -> str:
    return one_line(text, chars, ELLIPSIS, mask)


# Waits for the service of an agent.


class ServiceWaits:
    """The current agent, the times until which services refuse, and the lines about them.

    A refusal leads to a wait or to a turn of another agent, so its line is written when one of these begins.
    """

    def __init__(self) -> None:
        self._agent, self._place = "", 0
        self._run_places = 99  # number of the run's agents; agents of stages come after them
        self._regular_places = 1  # number of agents in the ladder or rotation; fallbacks come after them
        self._retry_times: dict[int, float] = {}  # by the place of the agent
        self._refusal = ""  # the last one, until its line is written
        self.until = 0.0  # the run waits until then

    def configure(self, facts: dict[str, Json]) -> None:
        """Take the numbers of agents from the facts of a run's beginning."""
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
            return ""  # an escalation has a line of its own, and a rotation needs none
        notes = [name] if same_name and (name := self._place_name(record.place)) else []
        if why and until > now:
            other = self._place_name(place) or "the last one"
            notes.append(f"{other if same_name else before} not before {format_time(until, now)}")
        next_step = f"goes on with {self._agent}" + (f" ({', '.join(notes)})" if notes else "")
        return f"{why}; {next_step}" if why else next_step

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
        """A description that tells agents of one name apart; empty where there is none."""
        if place >= self._regular_places:
            return f"fallback {place - self._regular_places + 1}"
        return "the usual one" if self._regular_places == 1 else ""


# Lines about a run, and the live line below them.


LIVE_LINE_AFTER_S = 2.0  # without output, before the live line is shown
LINE_BREAK_AFTER_S = 10.0  # without output in the middle of a line, before that line is broken for the live line
PAUSED_ACTIVITY = "rests"
NOTICE_PREFIX = "[Ralph] "  # of notices that were printed on standard error before the display started


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
        self.muted = False  # while an agent answers a question of the harness; a record has the answer
        self._mask, self._monotonic, self._dated = mask, monotonic, dated
        self._screen = Screen(out, style.colour, epoch if style.timestamps else None)
        self._agent_output = AgentOutput(self._screen, style, mask, epoch)
        self._activity_began_s = self._last_event_s = monotonic()

    def begin(self, activity: str) -> None:
        """Set the activity that the live line shows, with the time since now."""
        self.activity = activity
        self._activity_began_s = self._last_event_s = self._monotonic()

    def begin_turn(self, record: TurnBegan) -> None:
        """Show the start of a turn."""
        self.remark(self.waits.turn_began(record, self.epoch()))
        self._agent_output.begin()
        self.begin("the agent works")

    def end_turn(self) -> None:
        """Show the rest of the agent's output at the end of a turn."""
        self._agent_output.end()

    def show_events(self, events: list[Event]) -> None:
        """Show events of the agent."""
        self._last_event_s = now_s = self._monotonic()
        if not self.style.quiet and not self.muted:
            self._agent_output.add(events, now_s)

    def line(self, text: str, colour: str = "") -> None:
        text = text.strip() if self._dated else text
        self._put((collapse_lines(sanitize(self._mask(text))), colour))

    def lines(self, lines: Iterable[str], colour: str = "") -> None:
        for line in lines:
            self.line(line, colour)

    def remark(self, text: str) -> None:
        """Show an indented yellow line; none where the text is empty."""
        if text:
            self.line(f"  {text}", YELLOW)

    def turn_line(self, line: Line) -> None:
        """Show a line about a turn. Its length is limited, because it holds text of the agent."""
        text, colour = line
        self._put((self.one_line(text), colour))

    def one_line(self, text: str) -> str:
        """Text of any origin, masked, in one line of limited length."""
        return one_line(text, self.style.width, self.marks.cut, self._mask)

    def story_table(self, stories: tuple[StoryReview, ...]) -> None:
        for text, colour in story_table(stories, self._mask):
            self.line(text, colour)

    def tick(self) -> None:
        """Show pending output, the line about a wait, and the live line."""
        self.flush()
        if remark := self.waits.tick(self.epoch()):
            self.remark(remark)
            self.settle()
        now_s = self._monotonic()
        silent_s = now_s - self._last_event_s
        if self.style.live and silent_s >= (LINE_BREAK_AFTER_S if self._screen.mid_line else LIVE_LINE_AFTER_S):
            self._screen.live(f"  {self.one_line(self._live_text(now_s))} …")

    def flush(self) -> None:
        """Show pending output of the agent."""
        self._agent_output.show(self._monotonic())

    def settle(self) -> None:
        """Write all lines, and remove the live line."""
        self._screen.settle()

    def discard(self, silent_s: float) -> None:
        """Drop all pending lines; the last event was so many seconds ago."""
        self._screen.discard()
        self._activity_began_s = self._last_event_s = self._monotonic() - silent_s

    def _live_text(self, now_s: float) -> str:
        if self.waits.until:
            return self.waits.remaining(self.epoch())
        activity = f"{self.activity}, {format_duration(now_s - self._activity_began_s)}"
        running = self._agent_output.running
        if call := running.longest():
            _, label, since_s = call
            others = f" and {len(running) - 1} more" if len(running) > 1 else ""
            return f"{activity}, for {format_duration(now_s - since_s)} at {label}{others}"
        if self._last_event_s > self._activity_began_s:
            return f"{activity}, silent for {format_duration(now_s - self._last_event_s)}"
        return activity

    def _put(self, line: Line) -> None:
        stamp = time.strftime("[%Y-%m-%d %H:%M:%S] ", time.localtime(self.epoch())) if self._dated else ""
        self._screen.line(line, stamp)


class RecordReport(Protocol):
    """Formatter of a run's records as lines on a console."""

    def show(self, record: Record) -> None:
        """Print the lines about a record, if any."""


class IterationReport:
    """Report of a run by iterations."""

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
                console.muted = True  # events during a check are those of a judge
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
        """Show requests of the user, and waits of the run."""
        console = self._console
        match record:
            case records.Resumed():
                console.line(phrases.describe_resume(record))
            case records.Paused():
                console.begin(PAUSED_ACTIVITY)
                console.line("  rests, as it was asked to; ralph resume goes on", YELLOW)
            case records.UserChangesSaved() if console.activity == PAUSED_ACTIVITY:
                console.begin("goes on")  # without a pause, a process that resumed the run recorded it
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
        for line in warning_lines(reply, console.marks):
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
    """Shows a run on a stream: its records by a report, and the events of its agent."""

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
        """Process records from before the display started without showing them. `at` is the time of the last one."""
        for record in earlier:
            self._report.show(record)
        self._console.discard(max(0.0, self._console.epoch() - at))

    def on_events(self, events: list[Event]) -> None:
        self._console.show_events(events)

    def tick(self) -> None:
        if not self._console.style.quiet:
            self._console.tick()

    def flush(self) -> None:
        """Show pending output, at the latest when the program ends."""
        self._console.flush()

    def close(self) -> None:
        """Show pending output, and remove the live line."""
        self._console.flush()
        self._console.settle()


# Debug lines of `--verbose`.


PROMPT_CHARS = 200


@value
class VerboseContext:
    """Facts that records do not have: the iteration limit, the completion word, the command of each check."""

    max_iterations: int | None
    completion_word: str
    commands: dict[str, str]


class VerboseObserver:
    """Shows every record in a line or two. `prompt` returns the prompt of an iteration and turn."""

    def __init__(
        self,
        out: TextIO,
        context: VerboseContext,
        prompt: Callable[[int, int], str],
        mask: Callable[[str], str] = str,
    ) -> None:
        self._out, self._context, self._prompt, self._mask = out, context, prompt, mask

    def on_record(self, record: records.Record) -> None:
        match record:
            case records.RunBegan(run, snapshot, facts):
                self._write(f"Run {run}: {', '.join(f'{name} {fact}' for name, fact in facts.items())}")
                self._write(f"Tree at the start: {snapshot.tree} ({snapshot.ref or 'no ref'})")
            case records.TurnBegan():
                self._turn_began(record)
            case records.TurnEnded(_, _, reply):
                end = reply.exit
                self._write(f"Agent ended ({end.why}, code {end.code}, {end.seconds:.1f}s, {end.out_bytes} bytes)")
            case records.Saved(_, _, snapshot, change, heard):
                self._write(f"Saved as {snapshot.ref}; changed: {', '.join(change.paths[:20]) or 'nothing'}")
                found = heard.claim.word if heard.claim else "no tag"
                uncounted = f" (not counted: {'; '.join(heard.uncounted)})" if heard.uncounted else ""
                self._write(
                    f"Completion detection: looked for {self._context.completion_word}, found {found}{uncounted}"
                )
            case records.CheckBegan(_, _, check):
                self._write(f"Running guardrail: {self._context.commands.get(check, check)}")
            case records.CheckEnded(_, _, finding):
                end_word = f"exited with code {finding.code}" if finding.why == "exit" else f"ended: {finding.why}"
                self._write(f"Guardrail {end_word} ({finding.seconds:.1f}s)")
            case records.Judged(_, _, verdict, elapsed_s):
                self._write(f"Verdict: {type(verdict).__name__} ({elapsed_s:.1f}s since the start)")
            case records.ScmEnded(_, committed, reply, message):
                took = f" (message: {reply.exit.seconds:.1f}s)" if reply else ""
                self._write(f"SCM: {phrases.describe_commit(committed, message)}{took}")
            case records.HookBegan(hook=hook, command=command):
                self._write(f"Running {hook}: {command}")
            case records.HookEnded():
                self._write(f"Hook: {phrases.describe_hook(record)}")
            case records.RunEnded(outcome):
                self._write(f"Run ended: {phrases.describe_outcome(outcome)[-1]}")
            case _:
                pass  # the console shows the same

    def _turn_began(self, record: records.TurnBegan) -> None:
        self._write(f"Iteration {record.iteration}/{self._context.max_iterations or '∞'} starting")
        self._write(f"Agent command: {' '.join(record.argv)}")
        prompt = collapse_lines(self._prompt(record.iteration, record.turn))[:PROMPT_CHARS]
        self._write(f"Prompt (first {PROMPT_CHARS} characters): {prompt}")
        self._write(f"Prompt digest: {record.prompt_digest[:16]}")

    def on_events(self, events: list[Event]) -> None:
        """Not used: the console shows them."""

    def tick(self) -> None:
        """Not used."""

    def _write(self, line: str) -> None:
        write_debug_line(self._out, self._mask(line))


def write_debug_line(out: TextIO, line: str) -> None:
    """Write a debug line."""
    out.write(f"[ralph] {collapse_lines(sanitize(line))}\n")
    out.flush()
