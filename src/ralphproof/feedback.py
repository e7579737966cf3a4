"""What the next prompt must say of an iteration that did not pass."""

from __future__ import annotations

from ralphproof.agent import bounded
from ralphproof.check import Finding, Report, clip, fenced
from ralphproof.claim import QUOTED_CHARS, harmless, quoted
from ralphproof.fault import fault_of
from ralphproof.iteration import Iteration
from ralphproof.value import value

TOUCHED_TOLD = 20
DENIALS_TOLD = 5  # of those in a turn, in the next prompt
FAULT_CHARS = 500  # of why a turn failed
TESTS_TOLD = 20
HELD_OUT = (
    "Checks that you are not shown were run as well, and not all of them passed. What the task says is what is wanted: "
    "read it again, and look for cases that you have not thought of."
)
FINDINGS_CHARS = 10_000  # of what a stage says that found faults


@value
class Feedback:
    """What the next prompt must say of the last iteration."""

    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    refused: bool = False  # it claimed to be done, and its checks say otherwise


def meddled(now: Iteration) -> bool:
    """A stage that only looks left another tree or history behind than the one that it looked at."""
    return now.job.stage.looks and (now.change.committed or bool(now.change.paths))


def sent_back(now: Iteration) -> tuple[str, ...]:
    """What the stage that mends a fault is told by the one that found it. What an agent said is kept apart as such."""
    stage, held_out = now.job.stage, _held_out(now.report)
    if not stage.claim.refuses(now.claim):  # its agent found none, so its words would mislead
        return f"Stage {stage.name} sent the task back: {_refusing(now.report) or 'its checks'} refused it.", *held_out
    found = f"Stage {stage.name} found faults, and sent the task back."
    if stage.claim.marker is not None:
        return f"{found} What must be fixed stands in the plan.", *held_out
    said = fenced(clip(harmless(now.turn.text).strip(), FINDINGS_CHARS))
    return f"{found} This is what its agent said:\n\n{said}", *held_out


def _refusing(report: Report) -> str:
    """The checks that found the work at fault, by their names; those that are held out are none of an agent's."""
    return ", ".join(f'"{_named(finding.check)}"' for finding in report.shown.faults)


def _held_out(report: Report) -> tuple[str, ...]:
    return (HELD_OUT,) if any(finding.hidden for finding in report.failed) else ()


def before_the_run(report: Report, baseline: Report) -> tuple[str, ...]:
    """Which failures were there before the run began, and which are new."""
    return tuple(
        note
        for finding in report.failed
        if (earlier := baseline.of(finding.check)) and (note := _compared(finding, earlier))
    )


def _compared(finding: Finding, earlier: Finding) -> str:
    name = f'Guardrail "{finding.command or finding.check}"'
    if earlier.passed:
        return f"{name} passed before the run began: what fails in it is new."
    if finding.tests is None or earlier.tests is None or finding.tests.runner != earlier.tests.runner:
        return f"{name} failed in the same way before the run began." if finding.same_as(earlier) else ""
    known = set(earlier.tests.failing)
    new = [test for test in finding.tests.failing if test not in known]
    old = len(finding.tests.failing) - len(new)
    if not new:
        all_of = "its one failing test" if old == 1 else f"all {old} failing tests"
        return f"{name}: {all_of} failed before the run began as well." if old else ""
    named = "\n".join(f"- {_named(test)}" for test in new[:TESTS_TOLD])
    more = f"\n- and {len(new) - TESTS_TOLD} more" if len(new) > TESTS_TOLD else ""
    return f"{name}: {old} of its failing tests failed before the run began as well; these are new:\n{named}{more}"


def _named(name: str) -> str:
    """A name that anybody may have chosen: quoted where it would not stay in its line, or is long."""
    return name if name.isprintable() and len(name) <= QUOTED_CHARS else quoted(name)


def notes_on(now: Iteration) -> tuple[str, ...]:
    """What the agent should know of its own claim, and of what it could not do or get to know."""
    notes = [f"A completion tag in your last reply was not counted: {why}." for why in now.uncounted]
    rule = now.job.stage.claim
    if now.illegal:
        broken = "\n".join(f"- {fault}" for fault in now.illegal)
        said = f"The rules of the plan were not kept; what you wrote in it was put back. Do it as they allow:\n{broken}"
        return (said, *notes, *_hindrances(now))
    if rule.refuses(now.claim):
        return tuple(notes)
    if now.claim is not None and not rule.accepts(now.claim):
        notes.append(f"Your last reply said {quoted(now.claim.word)}; completion is claimed with {rule.how}.")
    elif now.claim is not None and now.report.faults:
        by = _refusing(now.report)
        notes.append(f"Your last reply said that the work is done. The checks say that it is not{by and f': {by}'}.")
    if now.claim is not None and now.claim.source == "marker" and now.claim.word == rule.marker:
        notes.append(f"The file {rule.marker} was taken away; create it again when the work is done.")
    return (*notes, *_held_out(now.report), *_hindrances(now))


def _hindrances(now: Iteration) -> tuple[str, ...]:
    """What stood in its way, as far as another way can be taken."""
    notes = []
    if meddled(now):
        files = "".join(f"\n- {_named(path)}" for path in now.change.paths[:TOUCHED_TOLD])
        what = f"these files changed. Look at all of it again:{files}" if files else "you committed. Look at it again."
        notes.append(f"You only look in this stage, and yet {what}")
    if now.sprung.touched:
        touched = now.sprung.touched[:TOUCHED_TOLD]
        rules = "\n".join(dict.fromkeys(f"- {_named(one.path)} ({one.rule})" for one in touched))
        notes.append(f"You changed files that you may not change. They were put back; leave them alone:\n{rules}")
    if now.sprung.switched:
        before, after = (f"branch {_named(name)}" if name else "no branch" for name in now.sprung.switched)
        notes.append(
            f"You switched from {before} to {after}. Stay there only if the task wants that; else switch back."
        )
    if fault := fault_of(now.turn):
        why = bounded(fault.message, FAULT_CHARS).rstrip(" .")
        notes.append(f"Your last turn failed: {why}. What it did until then is there.")
    if now.turn.denied:
        denied = "\n".join(f"- {call}" for call in now.turn.denied[:DENIALS_TOLD])
        notes.append(f"These tool calls of yours were not permitted; do the work without them:\n{denied}")
    if blocked := now.turn.exit.blocked:
        hosts = "\n".join(f"- {_named(host)}" for host in blocked[:DENIALS_TOLD])
        notes.append(f"You are in a sandbox that cannot reach these hosts; do the work without them:\n{hosts}")
    if now.turn.asked or (now.change.nothing and now.turn.text.rstrip().endswith("?")):
        notes.append("You asked a question. Nobody is there to answer: decide yourself, and say what you decided.")
    return tuple(notes)
