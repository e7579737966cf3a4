"""Notifications about runs: their text, and the observer that starts their delivery."""

from __future__ import annotations

import json
import os
import re
import select
import time
from collections.abc import Callable, Iterable, Mapping

from ralphproof.base import interpreter
from ralphproof.base.programs import start_program, unregister_child
from ralphproof.base.value import TYPE_CHECKING, Json, assert_never, replace, value
from ralphproof.display.phrases import format_cost
from ralphproof.engine.agent import Event
from ralphproof.engine.limits import WAITING
from ralphproof.engine.outcome import Aborted, Completed, Failed, Outcome, outcome_fields
from ralphproof.engine.records import Record, RunEnded, TurnBegan, TurnRetried, Warned
from ralphproof.reports.addresses import redact_notify_target
from ralphproof.reports.deliver_notifications import END_OF_REPORT, EXIT_GRACE_S
from ralphproof.views.published_json import time_json

# Which records become notifications, and their text.


PAYLOAD_VERSION = 1
RUN_ENDED, RUN_WAITING, RUN_WARNED = "run.ended", "run.waiting", "run.warned"
MAX_TITLE_CHARS, MAX_BODY_CHARS, MAX_NAME_CHARS = 120, 1000, 60
SHORT_WAIT_S = 60.0  # no notification for a shorter wait
FACT_NAMES = ("iterations", "costUSD", "cost", "durationSeconds", "exitCode", "verificationPassed")
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


@value
class Notification:
    """One notification. `facts` are for programs; title and body are for people: masked, sanitised and short."""

    event: str
    title: str
    body: str
    run: str
    project: str
    status: str
    reason: str = ""
    facts: tuple[tuple[str, Json], ...] = ()
    at_s: float = 0.0

    def published(self) -> dict[str, Json]:
        """The notification as JSON."""
        return {
            "v": PAYLOAD_VERSION,
            "event": self.event,
            "at": time_json(self.at_s),
            "run": self.run,
            "project": self.project,
            "title": self.title,
            "message": self.body,
            "status": self.status,
            "reason": self.reason,
            **dict(self.facts),
        }


def notification_for(
    record: Record, run: str, project: str, mask: Callable[[str], str], now: float
) -> Notification | None:
    """The notification for a record; None for most records. `now` is in epoch seconds."""
    match record:
        case RunEnded(outcome):
            event, (title, body), published = RUN_ENDED, _describe_end(outcome), outcome_fields(outcome)
            status, reason = str(published["status"]), str(published.get("reason", ""))
            facts: dict[str, Json] = {name: published[name] for name in FACT_NAMES if name in published}
        case TurnRetried(iteration, until=until) if until - now > SHORT_WAIT_S:
            event, status, reason = RUN_WAITING, "WAITING", ""
            at = time.strftime("%Y-%m-%d %H:%M %Z", time.localtime(until)).strip()
            title = f"waits until {at}"
            body = f"{record.why.rstrip(' .')}. At {at} iteration {iteration} is taken again."
            facts = {"iteration": iteration, "until": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(until))}
        case Warned(iteration, what, message):
            event, status, reason, facts = RUN_WARNED, "RUNNING", what, {"iteration": iteration}
            title, body = "a limit comes near", message.removeprefix("[Ralph] ")
        case _:
            return None
    name = _shorten(_strip_escapes(mask(project)).replace("\n", " "), MAX_NAME_CHARS)
    title = _shorten(_strip_escapes(mask(f"{name}: {title}")), MAX_TITLE_CHARS)
    body = _shorten(_strip_escapes(mask(body)), MAX_BODY_CHARS)
    return Notification(event, title, body, run, name, status, reason, tuple(facts.items()), now)


def _describe_end(outcome: Outcome) -> tuple[str, str]:
    """Title and body for the end of a run."""
    count, seconds = outcome.iterations, outcome.seconds
    took = f"{seconds:.0f} s" if seconds < 60 else f"{seconds / 60:.0f} min"
    used = f"{count} iteration{'' if count == 1 else 's'}, {took}, {format_cost(outcome.spend)}"
    match outcome:
        case Completed(concerns=concerns):
            title = f"COMPLETED, {outcome.proof}" + ("" if outcome.verification_passed else "; nothing verified it")
            lines = [used, *(f"concern: {item}" for item in concerns)]
        case Aborted(breach):
            title = "waits for somebody" if breach.reason == WAITING else f"ABORTED, {breach.reason}"
            green = ["The checks passed all the same."] if outcome.checks_passed else []
            lines = [breach.message, *green, used]
        case Failed(error):
            title, lines = "ERROR", [error, used]
        case _:
            assert_never(outcome)
    return title, "\n".join(lines)


def _strip_escapes(text: str) -> str:
    return "".join(letter for letter in _ESCAPES.sub("", text) if letter.isprintable() or letter == "\n")


def _shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


# The observer. A child process delivers, so that a receiver that hangs or fails does not affect the loop.


if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal

INFINITE_S = float("inf")
LONG_WAIT_S = 3600.0
ORDER_WAIT_S = 2.0  # at the end, how long a notification waits for earlier ones
MAX_QUEUED = 8  # notifications for one child; all of them fit into a pipe


class NotificationObserver:
    """Starts a child process for each delivery, and never waits for one. `close` must be called.

    One child works at a time, so notifications arrive in order; at the end of the run the last one waits only briefly.

    In targets `notify_target_problem` found no problem. Commands run in `root` with this environment.
    """

    def __init__(
        self, targets: Iterable[str], run: str, project_name: str, mask: Callable[[str], str],
        environ: Mapping[str, str], root: str = ".",
    ) -> None:  # fmt: skip
        self._targets, self._root = tuple(dict.fromkeys(targets)), os.path.abspath(root)
        self._run, self._project, self._mask = run, project_name, mask
        # Without the variable that sets the targets, because it holds their secrets.
        self._environ = {name: text for name, text in environ.items() if not name.upper().startswith("RALPH__NOTIFY")}
        self._queue: list[Notification] = []
        self._children: dict[int, int] = {}  # process ids, and the pipes of their reports
        self._faults: dict[int, str] = {}  # by the index of the target
        self._ended = False
        self._agent_place = 0
        self._refused_until: dict[int, float] = {}  # by the place of the agent
        self._refused: TurnRetried | None = None  # until a tick shows that no other agent continues
        self._notified_wait = 0  # the last iteration with a notification of a wait

    @property
    def failures(self) -> list[str]:
        """Failed deliveries, a line for each target, without its secrets."""
        return [
            f"notify: {redact_notify_target(self._targets[place])}: {why}"
            for place, why in sorted(self._faults.items())
        ]

    def on_record(self, record: Record) -> None:
        if isinstance(record, TurnBegan):
            self._agent_place, self._refused = record.place, None
        elif isinstance(record, TurnRetried):
            self._refused_until[self._agent_place], self._refused = record.until, record
        elif note := notification_for(record, self._run, self._project, self._mask, time.time()):
            self._queue_note(note)

    def on_events(self, events: list[Event]) -> None:
        """Not used."""

    def tick(self) -> None:
        """Detect waits (a refusal that no turn followed), and reap children."""
        refused, self._refused = self._refused, None
        if refused is not None:
            self._wait_began(refused, time.time())
        if self._children:
            self._reap()
        if self._queue and not self._children:
            self._start()

    def close(self, grace_s: float = 10.0, patience_s: Callable[[], float] = lambda: INFINITE_S) -> None:
        """Wait this long for deliveries, then kill them.

        `patience_s` returns how much longer the user is willing to wait.
        """
        deadline = time.monotonic() + grace_s
        waiting, self._queue = self._queue, []
        for notes in filter(
            None, (waiting[:-1], waiting[-1:])
        ):  # the last one is not delayed by earlier ones that hang
            self._wait_for_children(min(grace_s / 4, ORDER_WAIT_S), patience_s)
            self._queue = notes
            self._start()
        self._wait_for_children(deadline - time.monotonic(), patience_s)
        for send, number in ((os.kill, _signal.SIGTERM), (os.killpg, _signal.SIGKILL)):
            for pid in self._children:
                try:
                    send(pid, number)
                except OSError:
                    continue  # it has ended
            self._wait_for_children(EXIT_GRACE_S, lambda: INFINITE_S)

    def _wait_began(self, refused: TurnRetried, now: float) -> None:
        """Notify the first wait of an iteration, and each long one."""
        until = min((until for until in self._refused_until.values() if until > now), default=now)
        if refused.iteration == self._notified_wait and until - now < LONG_WAIT_S:
            return
        if note := notification_for(replace(refused, until=until), self._run, self._project, self._mask, now):
            self._notified_wait = refused.iteration
            self._queue_note(note)

    def _queue_note(self, note: Notification) -> None:
        if self._ended:
            return  # the end of the run is the last notification
        self._ended = note.event == RUN_ENDED
        self._queue.append(note)
        if len(self._queue) > MAX_QUEUED:
            self._queue.pop(0)
            self._fail(range(len(self._targets)), "some were left out: too many at once")
        self._reap()
        if not self._children:
            self._start()

    def _start(self) -> None:
        events = [note.published() for note in self._queue]
        self._queue.clear()
        order = {"targets": self._targets, "events": events, "root": self._root}
        try:
            data = json.dumps(order, ensure_ascii=False).encode("utf-8", "surrogatepass")
            pid, report = _start_delivery(data, self._environ)
            self._children[pid] = report
        except OSError as error:
            self._fail(range(len(self._targets)), f"its delivery could not be started: {error.strerror}")

    def _wait_for_children(self, seconds: float, patience_s: Callable[[], float]) -> None:
        """Wait this long for children to end, or as long as `patience_s` permits."""
        deadline = time.monotonic() + seconds
        self._reap()
        while self._children and (left := deadline - time.monotonic()) > 0:
            deadline = min(deadline, time.monotonic() + patience_s())
            poll = select.poll()
            for report in self._children.values():
                poll.register(report, 0)  # only for hang-up
            poll.poll(min(left, 0.05) * 1000)
            self._reap()

    def _reap(self) -> None:
        for pid, report in [*self._children.items()]:
            if _has_ended(pid):
                unregister_child(pid)
                del self._children[pid]
                self._read_report(os.read(report, 1 << 16))
                os.close(report)

    def _read_report(self, report: bytes) -> None:
        """Take in a delivery's report. A target that answered late may be reported behind the mark of the end."""
        end = END_OF_REPORT.decode()
        lines = report.decode(errors="replace").split("\n")
        for place, _, why in (line.removeprefix(end).partition(" ") for line in lines):
            if place.isdigit():
                self._fail([int(place)], why)
        if not any(line.startswith(end) for line in lines):
            self._fail(range(len(self._targets)), "its delivery was cut off")

    def _fail(self, places: Iterable[int], why: str) -> None:
        for place in places:
            self._faults.setdefault(place, why)


def _start_delivery(order: bytes, environ: Mapping[str, str]) -> tuple[int, int]:
    """Start a child with its order; its process id, and the pipe of its report."""
    argv = interpreter.module_command("ralphproof.reports.deliver_notifications")
    (order_read, order_write), (report_read, report_write) = os.pipe(), os.pipe()
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.set_blocking(order_write, False)
        if os.write(order_write, order) < len(order):
            raise OSError(0, "there is too much to tell")
        pid = start_program(argv, environ, order_read, report_write, null)
    except OSError:
        os.close(report_read)
        raise
    finally:
        for fd in (order_read, order_write, report_write, null):
            os.close(fd)
    return pid, report_read


def _has_ended(pid: int) -> bool:
    """Whether a child and its process group have ended. Processes that outlive the child are killed."""
    try:
        while ended := os.waitpid(-pid, os.WNOHANG)[0]:
            if ended == pid:
                os.killpg(pid, _signal.SIGKILL)
    except OSError:  # no such child, or no such group
        return True
    return False
