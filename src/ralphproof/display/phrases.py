"""Phrases about runs for people: durations, costs, findings, outcomes, diffstats."""

from __future__ import annotations

import os

from ralphproof.base.value import TYPE_CHECKING, assert_never, value
from ralphproof.engine.check import UNREADABLE_ANSWER, CheckReport, Finding
from ralphproof.engine.limits import Spend, format_usd
from ralphproof.engine.outcome import Aborted, Completed, Failed, Outcome
from ralphproof.engine.plan import Job
from ralphproof.engine.prompt import Feedback
from ralphproof.engine.workspace import Change, CommitResult, TripwireReport

if TYPE_CHECKING:
    from ralphproof.base.value import Json
    from ralphproof.engine.check import AlteredCheckInput
    from ralphproof.engine.records import Escalated, HookEnded, Resumed


def describe_iteration(iteration: int) -> str:
    """The name of an iteration; 0 stands for the checks before the first."""
    return f"iteration {iteration}" if iteration else "before the first iteration"


PROOF_PHRASES = {
    "verified": "verified by its checks",
    "judged": "JUDGED by a model; no check of a machine verified it",
    "claimed": "CLAIMED by the agent; nothing verified it",
}
SHORT_PROOF_PHRASES = {"verified": "verified", "judged": "judged by a model", "claimed": "claimed: nothing verified it"}
NO_CHECKS = "no checks: the agent's word alone will end it"
HALF_A_DAY_S = 43200
PROTECTED_PHRASE, RESERVED_PHRASE = "protected", "not the agent's to change"
STOPPED = "stopped"  # the end of a check that was stopped by request
MAX_PATHS = 10  # paths or hosts that are named


def format_duration(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3 m 05 s`, `2 h 10 m`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} m {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} m"


def format_count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def format_cost(spend: Spend) -> str:
    """The cost of a run. Unknown is not zero, and a cost that a subscription covers is called notional."""
    if spend.unpriced and not spend.micro_usd:
        return "cost unknown"
    part = "" if spend.notional >= spend.micro_usd else f"{format_usd(spend.notional)} of it "
    notional = f" ({part}notional)" if spend.notional else ""
    return f"cost {'at least ' if spend.unpriced else ''}{format_usd(spend.micro_usd)}{notional}"


def describe_start(run: str, facts: dict[str, Json]) -> str:
    """The line at the start of a run: agent, sandbox and checks."""
    checks, sandbox = facts.get("checks"), facts.get("sandbox")
    checked = f"checks: {'; '.join(map(str, checks))}" if isinstance(checks, list | tuple) and checks else NO_CHECKS
    return f"Run {run}: agent {facts.get('agent')}, sandbox {describe_sandbox(sandbox)}, {checked}"


def describe_sandbox(sandbox: Json) -> str:
    """The name and the strength of a sandbox; `none` where there is none."""
    if not isinstance(sandbox, dict):
        return "unknown"
    name, strength = sandbox.get("name"), sandbox.get("strength")
    return f"{strength}" if strength == "none" else f"{name} ({strength})"


def sandbox_weaknesses(sandbox: Json) -> list[str]:
    """The weak points of a sandbox, each in one clause."""
    weak = sandbox.get("weak") if isinstance(sandbox, dict) else None
    return [f"weak point of the sandbox: {clause}" for clause in weak] if isinstance(weak, list | tuple) else []


def describe_blocked_hosts(hosts: tuple[str, ...]) -> list[str]:
    """A line about hosts that a sandbox blocked; none where there are none."""
    more = f" and {len(hosts) - MAX_PATHS} more" if len(hosts) > MAX_PATHS else ""
    return [f"blocked by the sandbox: {', '.join(hosts[:MAX_PATHS])}{more}"] if hosts else []


def describe_resource_limits(sandbox: Json) -> str:
    """The resource limits of a sandbox; empty where there are none, or they were not recorded."""
    limits = sandbox.get("limits") if isinstance(sandbox, dict) else None
    return f"limited in the sandbox: {limits}" if isinstance(limits, str) and limits else ""


def format_time(at: float, now: float) -> str:
    """A local time with its zone; with its date where it is on another day and half a day or more away."""
    import time

    try:
        local, today = time.localtime(at), time.localtime(now)
    except (OverflowError, ValueError, OSError):  # an agent may report any number
        return "a time that there is not"
    date = "%Y-%m-%d " if local[:3] != today[:3] and abs(at - now) >= HALF_A_DAY_S else ""
    return time.strftime(f"{date}{'%H:%M' if abs(at - now) >= 60 else '%H:%M:%S'} %Z", local).strip()


def describe_change(changed: Change) -> str:
    if not changed.known:
        return "what changed is unknown"
    if not changed.paths:
        return "commits only" if changed.committed else "no file changed"
    own = len(changed.paths) - len(changed.older)
    others = f" ({len(changed.older)} more by checks before it)" if changed.older else ""
    return (f"{format_count(own, 'file')} changed" if own else "no file changed") + others


def describe_finding(found: Finding) -> str:
    """The result of a check."""
    after = f"after {format_duration(found.seconds)}" + (f", {found.runs} runs" if found.runs > 1 else "")
    name = found.check if found.hidden or (found.rule and found.rule.clean) else found.command or found.check
    log = f"; log: {found.log}" if found.log else ""  # a function has none
    if found.why == STOPPED:
        return f"guardrail {name} was stopped {after}{log}"
    if found.judged:
        return f"judge {found.check} {_describe_judgement(found)} {after}"
    if found.passed:
        code = "" if found.code is None else f" (exit code {found.code})"
        return f"guardrail {name} passed{code} {after}"
    consequence = found.action if found.required else "only a warning"
    return f"guardrail {name} failed with {_describe_exit(found)} {after}; {consequence}{log}"


def _describe_judgement(found: Finding) -> str:
    if found.passed:
        return "finds every criterion met"
    if found.errored:
        return f"could not answer: {found.why}"
    if found.why == UNREADABLE_ANSWER:
        return f"could not be read: it gave {UNREADABLE_ANSWER}"
    return "finds criteria that are not met"


def describe_baseline_finding(found: Finding) -> str:
    """The result of a check before any agent was started."""
    failed = "was stopped" if found.why == STOPPED else f"fails with {_describe_exit(found)}"
    how = "passes" if found.passed else failed
    tests = f", {format_count(found.tests.failed, 'test')} failing" if found.tests and found.tests.failed else ""
    return f"before the first iteration guardrail {found.command or found.check} {how}{tests}"


def _describe_exit(found: Finding) -> str:
    return f"exit code {found.code}" if found.why == "exit" else found.why


def describe_altered_checks(found: tuple[AlteredCheckInput, ...]) -> list[str]:
    """Lines about inputs of the checks that changed during the run."""
    more = [f"and {len(found) - MAX_PATHS} more"] if len(found) > MAX_PATHS else []
    return [*(f"the checks go by it: {altered.message}" for altered in found[:MAX_PATHS]), *more]


def describe_hook(record: HookEnded) -> str:
    """The result of a hook, which is a command of the user."""
    result, named = record.result, ", ".join(record.paths[:MAX_PATHS])
    more = f" and {len(record.paths) - MAX_PATHS} more" if len(record.paths) > MAX_PATHS else ""
    changed = f"; it changed, which is not the agent's work: {named}{more}" if named else ""
    if result.passed:
        return f"{record.hook} {result.command} ended after {format_duration(result.seconds)}{changed}"
    return f"{result.failure_message(record.hook)}{changed}"


def describe_touched_paths(sprung: TripwireReport) -> list[str]:
    """Lines about protected paths that an agent changed."""
    lines = []
    for path in sprung.touched[:MAX_PATHS]:
        held = f", in {path.held_by}" if path.held_by else ""
        end = f"could not be put back: {path.trouble}" if path.trouble else "put back"
        lines.append(f"{PROTECTED_PHRASE if path.stops else RESERVED_PHRASE}: {path.path} ({path.rule}){held}; {end}")
    if len(sprung.touched) > MAX_PATHS:
        lines.append(f"and {len(sprung.touched) - MAX_PATHS} more")
    return [*lines, *([f"the attempt is kept in {sprung.patch}"] if sprung.patch else [])]


def describe_escalation(record: Escalated) -> str:
    """How a run continues after an escalation."""
    how = "the next prompt tells how to debug" if record.deep else f"on with model {record.rung + 1} of the ladder"
    return f"{record.why}: {how}"


def describe_resume(record: Resumed) -> str:
    """The line of a run that another process resumed."""
    sandbox = "" if record.sandbox is None else f", sandbox {describe_sandbox(record.sandbox)}"
    times = format_ordinal(record.session - 1)
    return f"Taken up again, for the {times} time; {format_duration(record.elapsed_s)} old{sandbox}"


def format_ordinal(number: int) -> str:
    """`1st`, `2nd`, `3rd`, `4th`, `11th`."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number % 100 not in (11, 12, 13) else 0, "th")
    return f"{number}{ending}"


def describe_awaited_children(children: tuple[str, ...]) -> str:
    """The child runs that a run waits for before its claim is judged."""
    return f"waits for {'a run' if len(children) == 1 else 'runs'} of its own: {', '.join(children)}"


def describe_report(found: CheckReport) -> str:
    if not found.findings:
        return "no check is configured"
    passed = sum(item.passed for item in found.findings)
    if found.failed and not found.faults:
        return "its judge could not answer, so its word counts"
    return f"{passed} of {format_count(len(found.findings), 'check')} passed"


def describe_feedback(feedback: Feedback) -> str:
    """Why an iteration was not the last."""
    if feedback.findings:
        return f"{len(feedback.findings)} failed" + ("; its claim is refused" if feedback.refused else "")
    return f"the agent is told: {feedback.notes[0]}" if feedback.notes else "it has not said that it is done"


def describe_commit(committed: CommitResult, message: str) -> str:
    """The result of a commit in the user's SCM."""
    result = "" if committed.error else "nothing to commit"
    if committed.commit:
        result = f"kept in commit {committed.commit[:12]}: {message.partition(chr(10))[0]}"
    elif committed.done:
        result = f"{', '.join(committed.done)} done"
    return "; ".join(filter(None, (result, *committed.concerns)))


def describe_job(job: Job, tries: int) -> str:
    """The task and the stage of an iteration; empty where the task has no title."""
    if not job.task.title:
        return ""
    of = f"/{job.stage.max_iterations}" if job.stage.max_iterations else ""
    return f" ({job.task.id}, {job.stage.name} {tries}{of})"


def describe_outcome(end: Outcome) -> list[str]:
    """The last lines of a run; the reason is in the very last."""
    iterations, cost = format_count(end.iterations, "iteration"), format_cost(end.spend)
    facts = f"{iterations}, {format_duration(end.seconds)}, {cost}"
    match end:
        case Completed():
            proof = PROOF_PHRASES[end.proof]
            concerns = [f"concern: {item}" for item in end.concerns]
            return [*concerns, f"COMPLETED{_concern_count(end)}, {proof}: {facts}"]
        case Aborted():
            green = ["The checks passed all the same: the work is green."] if end.checks_passed else []
            return [*green, f"ABORTED, {end.breach.reason}: {end.breach.message} ({facts})"]
        case Failed():
            return [f"ERROR: {end.error}" + (f" ({iterations}, {cost})" if end.spend.micro_usd else "")]
        case _:
            assert_never(end)


def summarize_outcome(end: Outcome) -> str:
    """The outcome of a run in a phrase for lists; a completed run is never shown without its proof."""
    match end:
        case Completed():
            return f"{end.status}{_concern_count(end)}, {SHORT_PROOF_PHRASES[end.proof]}"
        case Aborted():
            return f"{end.status} {end.reason}"
        case Failed():
            return end.status
        case _:
            assert_never(end)


def _concern_count(end: Completed) -> str:
    return f" with {format_count(len(end.concerns), 'concern')}" if end.concerns else ""


# Diffstat of a patch: files, lines added and removed.


FILE_HEADER = b"diff --git "
BINARY_MARKERS = (b"GIT binary patch", b"Binary files")


@value
class FileStat:
    """The number of changed lines of one file."""

    path: str
    added: int
    removed: int
    binary: bool


def parse_diffstat(patch: bytes) -> list[FileStat]:
    """The files of a patch. A line inside a hunk begins with a sign, so it is never mistaken for a header.

    A patch may be very large, so it is searched in place and no part of it is copied.
    """
    files: list[FileStat] = []
    start = 0 if patch.startswith(FILE_HEADER) else patch.find(b"\n" + FILE_HEADER) + 1
    while patch.startswith(FILE_HEADER, start):
        end = _find_or_end(patch, b"\n" + FILE_HEADER, start, len(patch))
        files.append(_file_stat(patch, start + len(FILE_HEADER), end))
        start = end + 1
    return files


def _file_stat(patch: bytes, start: int, end: int) -> FileStat:
    """The statistics of one file, from its part of the patch."""
    path = _header_path(patch[start : _find_or_end(patch, b"\n", start, end)])
    hunk = patch.find(b"\n@@ ", start, end)
    if hunk < 0:
        return FileStat(path, 0, 0, any(patch.find(b"\n" + mark, start, end) >= 0 for mark in BINARY_MARKERS))
    return FileStat(path, patch.count(b"\n+", hunk, end), patch.count(b"\n-", hunk, end), False)


def _find_or_end(patch: bytes, wanted: bytes, start: int, end: int) -> int:
    """The position of `wanted`; `end` where it is not found."""
    found = patch.find(wanted, start, end)
    return found if found >= 0 else end


def _header_path(head: bytes) -> str:
    """The path in `a/PATH b/PATH`; git quotes a path with special characters."""
    import re

    name = head[(len(head) + 1) // 2 :]
    if name.startswith(b'"'):
        escapes = {b"n": b"\n", b"t": b"\t", b"a": b"\a", b"b": b"\b", b"v": b"\v", b"f": b"\f", b"r": b"\r"}
        name = re.sub(
            rb"\\([0-7]{3}|.)",
            lambda match: bytes([int(match[1], 8)]) if len(match[1]) == 3 else escapes.get(match[1], match[1]),
            name.strip(b'"'),
        )
    return os.fsdecode(name[2:])


def format_diffstat(files: list[FileStat]) -> list[str]:
    """A line for each file, and the totals."""
    width = max((len(file.path) for file in files), default=0)
    lines = [
        f" {file.path.ljust(width)} | " + ("binary" if file.binary else f"+{file.added} -{file.removed}")
        for file in files
    ]
    added, removed = sum(file.added for file in files), sum(file.removed for file in files)
    return [*lines, f" {format_count(len(files), 'file')} changed, +{added} -{removed}"]
