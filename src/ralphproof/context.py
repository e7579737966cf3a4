"""What an iteration is told of the one before it: a block behind the task, bounded, with all foreign text in fences."""

from __future__ import annotations

import re

from ralphproof.check import Finding, Report, clip, fenced
from ralphproof.claim import ClaimRule, harmless
from ralphproof.value import value

FILES = 50
OUTPUTS = 3  # failing checks whose output is shown; the others are named
LINE_CHARS = 200
ERROR_CHARS = 300


@value
class Context:
    """The iteration before this one, as far as it is told. `files` is None where nobody knows what changed."""

    iteration: int
    files: tuple[str, ...] | None
    commits: tuple[str, ...]
    report: Report
    error: str = ""


def block(context: Context, rule: ClaimRule, elsewhere: tuple[Finding, ...] = ()) -> str:
    """The block for the prompt. Findings that are told `elsewhere` in it are only named here."""
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
            *_fenced(_files(context.files)),
            "- Test output:",
            *_outputs(context.report, elsewhere),
            "- Git history: `git log --oneline -5`",
            *_fenced([_line(commit) for commit in context.commits] or ["no commits"]),
            "",
            "Analysis:",
            f"- Files changed in iteration {number - 1}: {changed}",
            f"- Tests status: {_status(context.report)}",
            f"- Last error: {_quoted(context.error)}",
            "",
            "If tests are failing, read the error messages carefully and fix the root cause.",
            "If you're stuck on the same error, try a different approach.",
            *_claiming(rule),
        ]
    )


def _claiming(rule: ClaimRule) -> list[str]:
    if rule.word is None or rule.marker is not None:
        return []
    return ["", "When ALL requirements are met, output", "", f"{rule.shown}\n"]


def _files(files: tuple[str, ...] | None) -> list[str]:
    if files is None:
        return ["what changed is not known"]
    more = [f"and {len(files) - FILES} more"] if len(files) > FILES else []
    return [_line(path) for path in files[:FILES]] + more or ["none"]


def _outputs(report: Report, elsewhere: tuple[Finding, ...]) -> list[str]:
    """The failing checks, else the last one that passed."""
    failed = report.failed
    shown = [finding for finding in failed if finding not in elsewhere][:OUTPUTS] if failed else report.findings[-1:]
    lines = [line for finding in shown for line in _fenced([_head(finding), *harmless(finding.output).split("\n")])]
    named = [finding for finding in failed if finding not in shown]
    lines += _fenced([f"{_head(finding)}; see above" for finding in named]) if named else []
    return lines or _fenced(["no check ran"])


def _head(finding: Finding) -> str:
    end = "passed" if finding.passed else f"failed with {finding.why}"
    if finding.why == "exit" and finding.code is not None:
        end = f"exit code {finding.code}"
    return _line(f"$ {finding.command or finding.check} ({end}; all of its output: {finding.log})")


def _status(report: Report) -> str:
    """Counts over all checks whose output tells of single tests."""
    read = [finding.tests for finding in report.findings if finding.tests is not None]
    if not read:
        return "unknown, single tests cannot be read from the output" if report.findings else "no check ran"
    passing = [tests.passed for tests in read]
    known = sum(count for count in passing if count is not None)
    return f"{'?' if None in passing else known} passing, {sum(tests.failed for tests in read)} failing"


def _quoted(error: str) -> str:
    """One line in which nothing can be taken for the end of a quotation, or for a tag."""
    words = _line(clip(error, ERROR_CHARS, "head")).replace("`", "'")
    return f"`{words}`" if words else "none"


def _line(text: str) -> str:
    return clip(re.sub(r"\s+", " ", harmless(text)).strip(), LINE_CHARS, "head")


def _fenced(lines: list[str]) -> list[str]:
    """The lines in a fence that none of them can close."""
    return [f"  {line}".rstrip() for line in fenced("\n".join(lines)).split("\n")]
