"""The prompt of an iteration: the task, what failed last time, how to claim completion."""

from __future__ import annotations

import re

from ralphproof.base.text import (
    MAX_QUOTE_CHARS,
    fence_code,
    quote_excerpt,
    strip_control_characters,
    strip_escapes,
    truncate,
)
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.engine.agent import classify_fault
from ralphproof.engine.check import CheckReport, Finding
from ralphproof.engine.claim import ClaimRule, find_claim_tags, remove_prompt_echo
from ralphproof.engine.plan import PROMPT_PLACEHOLDER, Iteration, Job

if TYPE_CHECKING:
    from collections.abc import Mapping


MAX_TOUCHED_SHOWN = 20
MAX_DENIALS_SHOWN = 5  # in the next prompt
MAX_FAULT_CHARS = 500
MAX_TESTS_SHOWN = 20
HELD_OUT_NOTE = (
    "Checks that you are not shown were run as well, and not all of them passed. What the task says is what is wanted: "
    "read it again, and look for cases that you have not thought of."
)
MAX_FINDINGS_CHARS = 10_000  # of the message of a stage that found faults


@value
class Feedback:
    """What the next prompt states about the last iteration."""

    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    refused: bool = False  # completion was claimed, and the checks failed


def changed_read_only_tree(now: Iteration) -> bool:
    """Whether a read-only stage left another tree or history than it started with."""
    return now.job.stage.looks and (now.change.committed or bool(now.change.paths))


def send_back_notes(now: Iteration) -> tuple[str, ...]:
    """Notes for the stage that fixes a fault, from the stage that found it. The agent's message is quoted."""
    stage, held_out = now.job.stage, _held_out_notes(now.report)
    if not stage.claim.refuses(now.claim):  # its agent found no fault, so its message would mislead
        return (
            f"Stage {stage.name} sent the task back: {_failed_check_names(now.report) or 'its checks'} refused it.",
            *held_out,
        )
    found = f"Stage {stage.name} found faults, and sent the task back."
    if stage.claim.marker is not None:
        return f"{found} What must be fixed stands in the plan.", *held_out
    message = fence_code(truncate(strip_control_characters(now.turn.text).strip(), MAX_FINDINGS_CHARS))
    return f"{found} This is what its agent said:\n\n{message}", *held_out


def _failed_check_names(report: CheckReport) -> str:
    """The names of the failed checks, without held-out ones."""
    return ", ".join(f'"{_quote_name(finding.check)}"' for finding in report.visible.faults)


def _held_out_notes(report: CheckReport) -> tuple[str, ...]:
    return (HELD_OUT_NOTE,) if any(finding.hidden for finding in report.failed) else ()


def compare_with_baseline(report: CheckReport, baseline: CheckReport) -> tuple[str, ...]:
    """Which failures were there before the run began, and which are new."""
    return tuple(
        note
        for finding in report.failed
        if (earlier := baseline.find(finding.check)) and (note := _compare_finding(finding, earlier))
    )


def _compare_finding(finding: Finding, earlier: Finding) -> str:
    name = f'Guardrail "{finding.command or finding.check}"'
    if earlier.passed:
        return f"{name} passed before the run began: what fails in it is new."
    if finding.tests is None or earlier.tests is None or finding.tests.runner != earlier.tests.runner:
        return f"{name} failed in the same way before the run began." if finding.same_as(earlier) else ""
    known = set(earlier.tests.failing)
    new = [test for test in finding.tests.failing if test not in known]
    old = len(finding.tests.failing) - len(new)
    if not new:
        tests = "its one failing test" if old == 1 else f"all {old} failing tests"
        return f"{name}: {tests} failed before the run began as well." if old else ""
    named = "\n".join(f"- {_quote_name(test)}" for test in new[:MAX_TESTS_SHOWN])
    more = f"\n- and {len(new) - MAX_TESTS_SHOWN} more" if len(new) > MAX_TESTS_SHOWN else ""
    return f"{name}: {old} of its failing tests failed before the run began as well; these are new:\n{named}{more}"


def _quote_name(name: str) -> str:
    """An untrusted name: quoted where it is long or would not stay in its line."""
    return name if name.isprintable() and len(name) <= MAX_QUOTE_CHARS else quote_excerpt(name)


def iteration_notes(now: Iteration) -> tuple[str, ...]:
    """Notes for the agent on its claim, and on what it could not do."""
    notes = [f"A completion tag in your last reply was not counted: {why}." for why in now.rejected_tags]
    rule = now.job.stage.claim
    if now.plan_violations:
        broken = "\n".join(f"- {rule}" for rule in now.plan_violations)
        note = f"The rules of the plan were not kept; what you wrote in it was put back. Do it as they allow:\n{broken}"
        return (note, *notes, *_hindrance_notes(now))
    if rule.refuses(now.claim):
        return tuple(notes)
    if now.claim is not None and not rule.accepts(now.claim):
        notes.append(
            f"Your last reply said {quote_excerpt(now.claim.word)}; completion is claimed with {rule.description}."
        )
    elif now.claim is not None and now.report.faults:
        by = _failed_check_names(now.report)
        notes.append(f"Your last reply said that the work is done. The checks say that it is not{by and f': {by}'}.")
    if now.claim is not None and now.claim.source == "marker" and now.claim.word == rule.marker:
        notes.append(f"The file {rule.marker} was taken away; create it again when the work is done.")
    return (*notes, *_held_out_notes(now.report), *_hindrance_notes(now))


def _hindrance_notes(now: Iteration) -> tuple[str, ...]:
    """Obstacles that the agent can work around."""
    notes = []
    if changed_read_only_tree(now):
        files = "".join(f"\n- {_quote_name(path)}" for path in now.change.paths[:MAX_TOUCHED_SHOWN])
        what = f"these files changed. Look at all of it again:{files}" if files else "you committed. Look at it again."
        notes.append(f"You only look in this stage, and yet {what}")
    if now.tripwires.touched:
        touched = now.tripwires.touched[:MAX_TOUCHED_SHOWN]
        rules = "\n".join(dict.fromkeys(f"- {_quote_name(touch.path)} ({touch.rule})" for touch in touched))
        notes.append(f"You changed files that you may not change. They were put back; leave them alone:\n{rules}")
    if now.tripwires.switched:
        before, after = (f"branch {_quote_name(name)}" if name else "no branch" for name in now.tripwires.switched)
        notes.append(
            f"You switched from {before} to {after}. Stay there only if the task wants that; else switch back."
        )
    if fault := classify_fault(now.turn):
        why = truncate(fault.message, MAX_FAULT_CHARS).rstrip(" .")
        notes.append(f"Your last turn failed: {why}. What it did until then is there.")
    if now.turn.denied:
        denied = "\n".join(f"- {call}" for call in now.turn.denied[:MAX_DENIALS_SHOWN])
        notes.append(f"These tool calls of yours were not permitted; do the work without them:\n{denied}")
    if blocked := now.turn.exit.blocked:
        hosts = "\n".join(f"- {_quote_name(host)}" for host in blocked[:MAX_DENIALS_SHOWN])
        notes.append(f"You are in a sandbox that cannot reach these hosts; do the work without them:\n{hosts}")
    if now.turn.asked or (now.change.is_empty and now.turn.text.rstrip().endswith("?")):
        notes.append("You asked a question. Nobody is there to answer: decide yourself, and say what you decided.")
    return tuple(notes)


# The context block about the previous iteration is bounded, and all foreign text in it is fenced.


MAX_CONTEXT_FILES = 50
MAX_CONTEXT_OUTPUTS = 3  # failing checks whose output is shown; the others are named
MAX_CONTEXT_LINE_CHARS = 200
MAX_CONTEXT_ERROR_CHARS = 300


@value
class PreviousIteration:
    """The previous iteration as the prompt describes it. `files` is None where the change is unknown."""

    iteration: int
    files: tuple[str, ...] | None
    commits: tuple[str, ...]
    report: CheckReport
    error: str = ""


def context_block(context: PreviousIteration, rule: ClaimRule, elsewhere: tuple[Finding, ...] = ()) -> str:
    """The block for the prompt. Findings described `elsewhere` in it are only named here."""
    number = context.iteration
    changed = "unknown" if context.files is None else str(len(context.files))
    return "\n".join(
        [
            "---",
            f"[Ralph Loop Context - Iteration {number}]",
            "",
            f"You are in a Ralph loop. This is attempt #{number}.",
            "",
            "Review your previous work:",
            "- Modified files: `git diff HEAD~1 --name-only`",
            *_fence_lines(_file_lines(context.files)),
            "- Test output:",
            *_output_lines(context.report, elsewhere),
            "- Git history: `git log --oneline -5`",
            *_fence_lines([_single_line(commit) for commit in context.commits] or ["no commits"]),
            "",
            "Analysis:",
            f"- Files changed in iteration {number - 1}: {changed}",
            f"- Tests status: {_suite_status(context.report)}",
            f"- Last error: {_quote_error(context.error)}",
            "",
            "If tests are failing, read the error messages carefully and fix the root cause.",
            "If you're stuck on the same error, try a different approach.",
            *_claim_lines(rule),
        ]
    )


def _claim_lines(rule: ClaimRule) -> list[str]:
    if rule.word is None or rule.marker is not None:
        return []
    return ["", "When ALL requirements are met, output", "", f"{rule.tag}\n"]


def _file_lines(files: tuple[str, ...] | None) -> list[str]:
    if files is None:
        return ["what changed is not known"]
    more = [f"and {len(files) - MAX_CONTEXT_FILES} more"] if len(files) > MAX_CONTEXT_FILES else []
    return [_single_line(path) for path in files[:MAX_CONTEXT_FILES]] + more or ["none"]


def _output_lines(report: CheckReport, elsewhere: tuple[Finding, ...]) -> list[str]:
    """Output of the failing checks, else of the last one that passed."""
    failed = report.failed
    shown = (
        [finding for finding in failed if finding not in elsewhere][:MAX_CONTEXT_OUTPUTS]
        if failed
        else report.findings[-1:]
    )
    lines = [
        line
        for finding in shown
        for line in _fence_lines([_finding_heading(finding), *strip_control_characters(finding.output).split("\n")])
    ]
    named = [finding for finding in failed if finding not in shown]
    lines += _fence_lines([f"{_finding_heading(finding)}; see above" for finding in named]) if named else []
    return lines or _fence_lines(["no check ran"])


def _finding_heading(finding: Finding) -> str:
    result = "passed" if finding.passed else f"failed with {finding.why}"
    if finding.why == "exit" and finding.code is not None:
        result = f"exit code {finding.code}"
    return _single_line(f"$ {finding.command or finding.check} ({result}; all of its output: {finding.log})")


def _suite_status(report: CheckReport) -> str:
    """Counts over all checks with results of single tests."""
    suites = [finding.tests for finding in report.findings if finding.tests is not None]
    if not suites:
        return "unknown, single tests cannot be read from the output" if report.findings else "no check ran"
    passing = [tests.passed for tests in suites]
    known = sum(count for count in passing if count is not None)
    return f"{'?' if None in passing else known} passing, {sum(tests.failed for tests in suites)} failing"


def _quote_error(error: str) -> str:
    """One line that cannot be mistaken for the end of a quotation or for a tag."""
    words = _single_line(truncate(error, MAX_CONTEXT_ERROR_CHARS, "head")).replace("`", "'")
    return f"`{words}`" if words else "none"


def _single_line(text: str) -> str:
    return truncate(re.sub(r"\s+", " ", strip_control_characters(text)).strip(), MAX_CONTEXT_LINE_CHARS, "head")


def _fence_lines(lines: list[str]) -> list[str]:
    """The lines in a code fence that none of them can close."""
    return [f"  {line}".rstrip() for line in fence_code("\n".join(lines)).split("\n")]


USER_MESSAGE_INTRO = "The user says this to you, while the loop runs. It is their own word:"
FIXED_TESTS_NOTE = (
    "The tests that are there are fixed: to change, skip or delete one of them ends the loop. "
    "New tests go into new files."
)
COMMIT_MESSAGE_PROMPT = (
    "Provide a short imperative commit message for the changes. Output only the message, no explanation."
)


@value
class IterationCount:
    """The number of an iteration in the run, where the prompt states it."""

    number: int
    maximum: int | None

    def __str__(self) -> str:
        if self.maximum is None:
            return f"Iteration {self.number}."
        return f"Iteration {self.number} of {self.maximum}, {self.maximum - self.number} remaining."


def compose_prompt(
    job: Job, feedback: Feedback, count: IterationCount | None = None, context: PreviousIteration | None = None,
    advice: str = "",
    messages: tuple[str, ...] = (), tries: IterationCount | None = None, exports: Mapping[str, str] | None = None,
) -> str:  # fmt: skip
    """The prompt of one iteration, its parts separated by two newlines.

    The order: the count, PREPEND texts, the task, REPLACE and APPEND texts, notes, advice, the user's messages, the
    context, and how to claim. A REPLACE drops the task's own text. The context describes failures that have no
    placement or hint of their own. `tries` is the stage's attempt, for its template. The prompt contains no NUL.
    """
    base = fill_template(job, tries)
    if job.stage.fills:
        base = substitute_variables(base, exports or {})
    findings = feedback.findings if context is None else tuple(filter(_has_placement, feedback.findings))
    replaced = any(finding.action == "REPLACE" for finding in findings)
    parts = [str(count)] if count else []
    parts += [format_failure(finding) for finding in findings if finding.action == "PREPEND"]
    parts += [base] if base and not replaced else []
    parts += [format_failure(finding) for finding in findings if finding.action != "PREPEND"]
    parts += [*feedback.notes, *([advice] if advice else []), *(f"{USER_MESSAGE_INTRO}\n\n{text}" for text in messages)]
    if context is not None:
        parts.append(context_block(context, job.stage.claim, findings))
    else:
        parts += claim_instructions(job.stage.claim, "" if replaced else base)
    return "\n\n".join(parts).replace("\0", "")  # a check may print NUL, and no argument may contain it


def fill_template(job: Job, tries: IterationCount | None = None) -> str:
    """The stage's template with the task's text in it; a template for tasks has a placeholder for every field. Field
    contents are never taken for placeholders.
    """
    task, stage = job.task, job.stage
    if not task.outcome and not stage.describes:
        return stage.template.replace(PROMPT_PLACEHOLDER, task.prompt)
    fields = {
        "id": task.id, "spec": task.spec, "title": task.title, "description": task.prompt,
        "outcome": task.outcome or "Complete the assigned task.",
        "acceptance_criteria": "\n".join(f"- [ ] {criterion}" for criterion in task.acceptance),
        "stage": stage.name, "success_criteria": stage.describes, "verification_method": stage.method,
        "promise": stage.claim.tag, "refusal": stage.claim.refusal_tag,
        "iteration": str(tries.number) if tries else "1",
        "max_iterations": str(tries.maximum) if tries and tries.maximum else "no limit",
    }  # fmt: skip
    return re.sub(r"\{\{ *(\w+) *\}\}", lambda found: fields.get(found[1], found[0]), stage.template)


def substitute_variables(text: str, exports: Mapping[str, str]) -> str:
    """The text with `$NAME` and `${NAME}` replaced, once and literally; names that are not exported stay."""
    return re.sub(r"\$(?:\{([A-Z_]+)\}|([A-Z_]+))", lambda found: exports.get(found[1] or found[2], found[0]), text)


def _has_placement(finding: Finding) -> bool:
    """Whether the settings say where or how a failure is described."""
    return finding.action != "APPEND" or bool(finding.hint)


def format_failure(finding: Finding) -> str:
    """The text about a failed check for the agent."""
    end = f"exit code {finding.code}" if finding.why == "exit" and finding.code is not None else finding.why
    return "\n".join(
        [
            f'Guardrail "{finding.command or finding.check}" failed with {end}.',
            *([f"Hint: {finding.hint}"] if finding.hint else []),
            f"Output file: {finding.log}",
            "Output (truncated):",
            finding.output,
        ]
    )


def claim_instructions(rule: ClaimRule, base: str) -> list[str]:
    """How to claim completion, unless the task's own text in the prompt already shows it."""
    if rule.word is None or rule.made:
        return []
    if rule.marker is not None:  # an agent program without a prompt gets no instructions
        instruction = f"When the work is complete, create the file {rule.marker} in the folder that $TASK_FOLDER names."
        return [instruction] if base.strip() and "$TASK_FOLDER" not in base else []
    known = (f"<{element}>{rule.word}</{element}>".casefold() for element in ("promise", "response"))
    if any(tag in base.casefold() for tag in known):
        return []
    return [f"When the work is complete, end your reply with this line:\n\n{rule.tag}\n"]


def parse_commit_message(reply: str) -> str:
    """The message in an agent's reply: the content of its first tag, else its first line with words; empty for none. An
    echo of the question and code-fence marks are skipped.
    """
    text = remove_prompt_echo(strip_escapes(reply), COMMIT_MESSAGE_PROMPT)
    if tags := find_claim_tags(text):
        return tags[0]
    lines = (line.strip() for line in text.split("\n"))
    return next((line for line in lines if line and not line.startswith(("```", "~~~"))), "")
