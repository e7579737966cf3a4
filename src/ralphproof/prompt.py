"""What the agent is told: the task, what failed last time, and how to say that it is done."""

from __future__ import annotations

import re

from ralphproof.check import Finding
from ralphproof.claim import ClaimRule, plain, tagged, without_echo
from ralphproof.context import Context, block
from ralphproof.feedback import Feedback
from ralphproof.stage import PROMPT, Job
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Mapping

USERS_WORDS = "The user says this to you, while the loop runs. It is their own word:"
TESTS_ARE_FIXED = (
    "The tests that are there are fixed: to change, skip or delete one of them ends the loop. "
    "New tests go into new files."
)
COMMIT_MESSAGE = "Provide a short imperative commit message for the changes. Output only the message, no explanation."


@value
class Count:
    """Where in the run an iteration stands, where the prompt is to say so."""

    number: int
    maximum: int | None

    def __str__(self) -> str:
        if self.maximum is None:
            return f"Iteration {self.number}."
        return f"Iteration {self.number} of {self.maximum}, {self.maximum - self.number} remaining."


def compose(
    job: Job, feedback: Feedback, count: Count | None = None, context: Context | None = None, advice: str = "",
    words: tuple[str, ...] = (), tries: Count | None = None, exports: Mapping[str, str] | None = None,
) -> str:  # fmt: skip
    """The prompt of one iteration, its parts two newlines apart.

    PREPEND texts, the task, REPLACE and APPEND texts, notes, advice, the user's words, the context, and how to claim;
    the count stands before everything. A REPLACE drops the task's own text. The context tells of failures that have
    no place or hint of their own. `tries` is where the stage stands, as its template may tell. No NUL is in it.
    """
    base = named(filled(job, tries), exports or {}) if job.stage.fills else filled(job, tries)
    told = feedback.findings if context is None else tuple(filter(_placed, feedback.findings))
    replaced = any(finding.action == "REPLACE" for finding in told)
    parts = [str(count)] if count else []
    parts += [failure(finding) for finding in told if finding.action == "PREPEND"]
    parts += [base] if base and not replaced else []
    parts += [failure(finding) for finding in told if finding.action != "PREPEND"]
    parts += [*feedback.notes, *([advice] if advice else []), *(f"{USERS_WORDS}\n\n{text}" for text in words)]
    if context is not None:
        parts.append(block(context, job.stage.claim, told))
    else:
        parts += how_to_claim(job.stage.claim, "" if replaced else base)
    return "\n\n".join(parts).replace("\0", "")  # a check may print it, and no argument may hold it


def filled(job: Job, tries: Count | None = None) -> str:
    """The stage's template with the task's own text in it; one that is made for tasks has a place for every field.

    Nothing that stands in a field is taken for a place.
    """
    task, stage = job.task, job.stage
    if not task.outcome and not stage.describes:
        return stage.template.replace(PROMPT, task.prompt)
    fields = {
        "id": task.id, "spec": task.spec, "title": task.title, "description": task.prompt,
        "outcome": task.outcome or "Complete the assigned task.",
        "acceptance_criteria": "\n".join(f"- [ ] {criterion}" for criterion in task.acceptance),
        "stage": stage.name, "success_criteria": stage.describes, "verification_method": stage.method,
        "promise": stage.claim.shown, "refusal": stage.claim.refusing,
        "iteration": str(tries.number) if tries else "1",
        "max_iterations": str(tries.maximum) if tries and tries.maximum else "no limit",
    }  # fmt: skip
    return re.sub(r"\{\{ *(\w+) *\}\}", lambda found: fields.get(found[1], found[0]), stage.template)


def named(text: str, exports: Mapping[str, str]) -> str:
    """The text with `$NAME` and `${NAME}` replaced, once and literally; names that are not exported stay."""
    return re.sub(r"\$(?:\{([A-Z_]+)\}|([A-Z_]+))", lambda found: exports.get(found[1] or found[2], found[0]), text)


def _placed(finding: Finding) -> bool:
    """Whether the settings say where or how a failure is told."""
    return finding.action != "APPEND" or bool(finding.hint)


def failure(finding: Finding) -> str:
    """What the agent reads of a failed check."""
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


def how_to_claim(rule: ClaimRule, base: str) -> list[str]:
    """How to say that the work is done, unless the task's own text, as far as it is told, shows it."""
    if rule.word is None or rule.made:
        return []
    if rule.marker is not None:  # a program without a prompt is told nothing
        told = f"When the work is complete, create the file {rule.marker} in the folder that $TASK_FOLDER names."
        return [told] if base.strip() and "$TASK_FOLDER" not in base else []
    known = (f"<{element}>{rule.word}</{element}>".casefold() for element in ("promise", "response"))
    if any(tag in base.casefold() for tag in known):
        return []
    return [f"When the work is complete, end your reply with this line:\n\n{rule.shown}\n"]


def commit_message(reply: str) -> str:
    """The message in an agent's reply: what its first tag holds, else its first line with words; empty for none.

    An echo of the question, and the marks of a code fence, are no message.
    """
    text = without_echo(plain(reply), COMMIT_MESSAGE)
    if tags := tagged(text):
        return tags[0]
    lines = (line.strip() for line in text.split("\n"))
    return next((line for line in lines if line and not line.startswith(("```", "~~~"))), "")
