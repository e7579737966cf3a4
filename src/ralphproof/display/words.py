"""The sentences that people read about a run."""

from __future__ import annotations

from ralphproof.budget import Spend, dollars
from ralphproof.check import UNREADABLE, Finding, Report
from ralphproof.feedback import Feedback
from ralphproof.stage import Job
from ralphproof.value import TYPE_CHECKING, assert_never
from ralphproof.verdict import Aborted, Completed, Failed, Outcome
from ralphproof.workspace import Change, Committed, Sprung

if TYPE_CHECKING:
    from ralphproof.pin import Altered
    from ralphproof.record import Escalated, HookEnded, Resumed
    from ralphproof.value import Json

PROOFS = {
    "verified": "verified by its checks",
    "judged": "JUDGED by a model; no check of a machine verified it",
    "claimed": "CLAIMED by the agent; nothing verified it",
}
SHORT_PROOFS = {"verified": "verified", "judged": "judged by a model", "claimed": "claimed: nothing verified it"}
NO_CHECKS = "no checks: the agent's word alone will end it"
HALF_A_DAY_S = 43200
PROTECTED, OURS = "protected", "not the agent's to change"
STOPPED = "stopped"  # how a check ends that somebody ended
TOUCHED = 10  # paths that are named


def duration(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3 m 05 s`, `2 h 10 m`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} m {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} m"


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def cost(spend: Spend) -> str:
    """Unknown is not zero, and what a subscription pays for is no money spent."""
    if spend.unpriced and not spend.micro_usd:
        return "cost unknown"
    part = "" if spend.notional >= spend.micro_usd else f"{dollars(spend.notional)} of it "
    notional = f" ({part}notional)" if spend.notional else ""
    return f"cost {'at least ' if spend.unpriced else ''}{dollars(spend.micro_usd)}{notional}"


def beginning(run: str, facts: dict[str, Json]) -> str:
    """What begins, and under what conditions."""
    checks, sandbox = facts.get("checks"), facts.get("sandbox")
    asked = f"checks: {'; '.join(map(str, checks))}" if isinstance(checks, list | tuple) and checks else NO_CHECKS
    return f"Run {run}: agent {facts.get('agent')}, sandbox {held_by(sandbox)}, {asked}"


def held_by(sandbox: Json) -> str:
    """Which kind of sandbox it is, and how strong; `none` where there is none."""
    if not isinstance(sandbox, dict):
        return "unknown"
    name, strength = sandbox.get("name"), sandbox.get("strength")
    return f"{strength}" if strength == "none" else f"{name} ({strength})"


def weak_points(sandbox: Json) -> list[str]:
    """What a sandbox does not hold, each in one clause."""
    weak = sandbox.get("weak") if isinstance(sandbox, dict) else None
    return [f"weak point of the sandbox: {clause}" for clause in weak] if isinstance(weak, list | tuple) else []


def blocked(hosts: tuple[str, ...]) -> list[str]:
    """What could not be reached from a sandbox, in one line; none where nothing was tried."""
    more = f" and {len(hosts) - TOUCHED} more" if len(hosts) > TOUCHED else ""
    return [f"blocked by the sandbox: {', '.join(hosts[:TOUCHED])}{more}"] if hosts else []


def limited_by(sandbox: Json) -> str:
    """What of the machine a sandbox limits, and by what; empty where there is none, or it is not on record."""
    limits = sandbox.get("limits") if isinstance(sandbox, dict) else None
    return f"limited in the sandbox: {limits}" if isinstance(limits, str) and limits else ""


def moment(at: float, now: float) -> str:
    """A time of day where we are, with its zone, and the date where it is far off on another day."""
    import time

    try:
        there, here = time.localtime(at), time.localtime(now)
    except (OverflowError, ValueError, OSError):  # an agent may name any number
        return "a time that there is not"
    date = "%Y-%m-%d " if there[:3] != here[:3] and abs(at - now) >= HALF_A_DAY_S else ""
    return time.strftime(f"{date}{'%H:%M' if abs(at - now) >= 60 else '%H:%M:%S'} %Z", there).strip()


def change(changed: Change) -> str:
    if not changed.known:
        return "what changed is unknown"
    if not changed.paths:
        return "commits only" if changed.committed else "no file changed"
    own = len(changed.paths) - len(changed.older)
    others = f" ({len(changed.older)} more by checks before it)" if changed.older else ""
    return (f"{count(own, 'file')} changed" if own else "no file changed") + others


def finding(found: Finding) -> str:
    """One check's answer."""
    after = f"after {duration(found.seconds)}" + (f", {found.runs} runs" if found.runs > 1 else "")
    what = found.check if found.hidden or (found.rule and found.rule.clean) else found.command or found.check
    log = f"; log: {found.log}" if found.log else ""  # a function has none
    if found.why == STOPPED:
        return f"guardrail {what} was stopped {after}{log}"
    if found.judged:
        return f"judge {found.check} {_judged(found)} {after}"
    if found.passed:
        code = "" if found.code is None else f" (exit code {found.code})"
        return f"guardrail {what} passed{code} {after}"
    then = found.action if found.required else "only a warning"
    return f"guardrail {what} failed with {_end(found)} {after}; {then}{log}"


def _judged(found: Finding) -> str:
    if found.passed:
        return "finds every criterion met"
    if found.errored:
        return f"could not answer: {found.why}"
    return f"could not be read: it gave {UNREADABLE}" if found.why == UNREADABLE else "finds criteria that are not met"


def before(found: Finding) -> str:
    """One check's answer before any agent was started: there is nothing yet to be glad or sorry about."""
    failed = "was stopped" if found.why == STOPPED else f"fails with {_end(found)}"
    how = "passes" if found.passed else failed
    tests = f", {count(found.tests.failed, 'test')} failing" if found.tests and found.tests.failed else ""
    return f"before the first iteration guardrail {found.command or found.check} {how}{tests}"


def _end(found: Finding) -> str:
    return f"exit code {found.code}" if found.why == "exit" else found.why


def altered(found: tuple[Altered, ...]) -> list[str]:
    """What decides over the checks, and is not as the run found it."""
    more = [f"and {len(found) - TOUCHED} more"] if len(found) > TOUCHED else []
    return [*(f"the checks go by it: {one.told}" for one in found[:TOUCHED]), *more]


def hooked(record: HookEnded) -> str:
    """What came of a command of the user's own."""
    result, named = record.result, ", ".join(record.paths[:TOUCHED])
    more = f" and {len(record.paths) - TOUCHED} more" if len(record.paths) > TOUCHED else ""
    changed = f"; it changed, which is not the agent's work: {named}{more}" if named else ""
    if result.passed:
        return f"{record.hook} {result.command} ended after {duration(result.seconds)}{changed}"
    return f"{result.told(record.hook)}{changed}"


def touched(sprung: Sprung) -> list[str]:
    """What an agent may not change, and did."""
    lines = []
    for one in sprung.touched[:TOUCHED]:
        held = f", in {one.held_by}" if one.held_by else ""
        end = f"could not be put back: {one.trouble}" if one.trouble else "put back"
        lines.append(f"{PROTECTED if one.stops else OURS}: {one.path} ({one.rule}){held}; {end}")
    if len(sprung.touched) > TOUCHED:
        lines.append(f"and {len(sprung.touched) - TOUCHED} more")
    return [*lines, *([f"the attempt is kept in {sprung.patch}"] if sprung.patch else [])]


def escalated(record: Escalated) -> str:
    """How a run goes on that a pattern would have ended."""
    how = "the next prompt tells how to debug" if record.deep else f"on with model {record.rung + 1} of the ladder"
    return f"{record.why}: {how}"


def resumed(record: Resumed) -> str:
    """That a run is taken up by another process than the one before."""
    held = "" if record.sandbox is None else f", sandbox {held_by(record.sandbox)}"
    return f"Taken up again, for the {ordinal(record.session - 1)} time; {duration(record.elapsed_s)} old{held}"


def ordinal(number: int) -> str:
    """`1st`, `2nd`, `3rd`, `4th`, `11th`."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number % 100 not in (11, 12, 13) else 0, "th")
    return f"{number}{ending}"


def awaited(children: tuple[str, ...]) -> str:
    """For whom a run waits that claims to be done."""
    return f"waits for {'a run' if len(children) == 1 else 'runs'} of its own: {', '.join(children)}"


def report(found: Report) -> str:
    if not found.findings:
        return "no check is configured"
    passed = sum(item.passed for item in found.findings)
    if found.failed and not found.faults:
        return "its judge could not answer, so its word counts"
    return f"{passed} of {count(len(found.findings), 'check')} passed"


def lacking(feedback: Feedback) -> str:
    """Why an iteration was not the last."""
    if feedback.findings:
        return f"{len(feedback.findings)} failed" + ("; its claim is refused" if feedback.refused else "")
    return f"the agent is told: {feedback.notes[0]}" if feedback.notes else "it has not said that it is done"


def kept(committed: Committed, message: str) -> str:
    """What came of keeping work in the user's SCM."""
    what = "" if committed.error else "nothing to commit"
    if committed.commit:
        what = f"kept in commit {committed.commit[:12]}: {message.partition(chr(10))[0]}"
    elif committed.done:
        what = f"{', '.join(committed.done)} done"
    return "; ".join(filter(None, (what, *committed.concerns)))


def job(job: Job, tries: int) -> str:
    """Which task and which hat an iteration has, where there is more than one."""
    if not job.task.title:
        return ""
    of = f"/{job.stage.max_iterations}" if job.stage.max_iterations else ""
    return f" ({job.task.id}, {job.stage.name} {tries}{of})"


def outcome(end: Outcome) -> list[str]:
    """The last lines of a run; the reason is in the very last."""
    match end:
        case Completed():
            how = PROOFS[end.proof]
            facts = f"{count(end.iterations, 'iteration')}, {duration(end.seconds)}, {cost(end.spend)}"
            return [*(f"concern: {item}" for item in end.concerns), f"COMPLETED{_with(end)}, {how}: {facts}"]
        case Aborted():
            green = ["The checks passed all the same: the work is green."] if end.checks_passed else []
            facts = f"{count(end.iterations, 'iteration')}, {duration(end.seconds)}, {cost(end.spend)}"
            return [*green, f"ABORTED, {end.breach.reason}: {end.breach.message} ({facts})"]
        case Failed():
            facts = f" ({count(end.iterations, 'iteration')}, {cost(end.spend)})" if end.spend.micro_usd else ""
            return [f"ERROR: {end.error}{facts}"]
        case _:
            assert_never(end)


def in_short(end: Outcome) -> str:
    """How a run ended, for a line of a list: what is done, and what shows it, are never told apart."""
    match end:
        case Completed():
            return f"{end.status}{_with(end)}, {SHORT_PROOFS[end.proof]}"
        case Aborted():
            return f"{end.status} {end.reason}"
        case Failed():
            return end.status
        case _:
            assert_never(end)


def _with(end: Completed) -> str:
    return f" with {count(len(end.concerns), 'concern')}" if end.concerns else ""
