"""What verifying a proof came to, for people and for programs."""

from __future__ import annotations

import sys

from ralphproof.check import clip
from ralphproof.cli.out import put, put_json
from ralphproof.display.clean import clean, flat
from ralphproof.display.words import count, duration
from ralphproof.value import TYPE_CHECKING
from ralphproof.verification import DIFFERS, HOLDS, UNCHECKED

if TYPE_CHECKING:
    from ralphproof.attested import Attested
    from ralphproof.check import Finding, Tests
    from ralphproof.cli.verify_source import ProofCase
    from ralphproof.value import Json
    from ralphproof.verification import AskedAgain, ProofAnswer

WORDS = {HOLDS: "HOLDS", DIFFERS: "DOES NOT HOLD", UNCHECKED: "CANNOT BE CHECKED"}
OUTPUT_CHARS, OUTPUT_LINES, MOST_TOLD = 5000, 20, 20


class Progress:
    """Says on standard error what is being run, and how it went; nothing where somebody wants quiet."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet

    def begins(self, command: str) -> None:
        self._say(f"runs {command}")

    def ended(self, check: Attested, finding: Finding) -> None:
        how = "passed" if finding.passed else f"failed with {_end(finding.code, finding.why)}"
        self._say(f"{check.name} {how} after {duration(finding.seconds)}")

    def _say(self, line: str) -> None:
        if not self._quiet:
            print(flat(clean(line)), file=sys.stderr, flush=True)


def tell(case: ProofCase, answer: ProofAnswer, for_programs: bool) -> None:
    """Say it all, the verdict last."""
    if for_programs:
        put_json("verify", _json(case, answer))
        return
    for one in answer.again:
        put(_line(one))
        if one.finding is not None and not one.finding.passed:
            put(*(f"    | {line}" for line in one.finding.output.splitlines()[-OUTPUT_LINES:]))
    put(*(f"note: {line}" for line in answer.told[:MOST_TOLD]))
    if not case.faults:  # what an altered proof says is nobody's word
        put(*(f"concern: {line}" for line in _texts(case, "outcome", "concerns")[:MOST_TOLD]))
        put(*(f"tampering: {line}" for line in _texts(case, "tampering")[:MOST_TOLD]))
    put(*(f"  {line}" for line in answer.reasons))
    put(_verdict(case, answer))


def _verdict(case: ProofCase, answer: ProofAnswer) -> str:
    run = f" of run {case.proof['run']}" if case.proof.get("run") else ""
    if answer.verdict != HOLDS:
        return f"{WORDS[answer.verdict]}: the proof{run}" + (f", commit {answer.commit}" if answer.commit else "")
    asked = sum(one.finding is not None for one in answer.again)
    passed = f"{count(asked, 'check')} passed again on a clean checkout of {answer.commit}"
    return f"{WORDS[HOLDS]}: the proof{run}; {passed}"


def _line(one: AskedAgain) -> str:
    check, finding = one.check, one.finding
    if finding is None:
        return f"not run   {check.name}: {one.why or 'nothing was run'}"
    recorded = f"{_end(check.code, check.why)}{_counted(check.tests_passed)}"
    tests = finding.tests.passed if finding.tests else None
    now = f"{_end(finding.code, finding.why)}{_counted(tests)}"
    other = "; the output is another one" if finding.passed and finding.digest != check.output else ""
    mark = "holds    " if one.holds else "DIFFERS  "
    return f"{mark} {check.name}: {now} after {duration(finding.seconds)}; on record: {recorded}{other}"


def _end(code: int | None, why: str) -> str:
    return f"exit code {code}" if why == "exit" else why


def _counted(tests: int | None) -> str:
    return "" if tests is None else f", {count(tests, 'test')} passed"


def _texts(case: ProofCase, *path: str) -> list[str]:
    found: Json = case.proof
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return [str(one) for one in found] if isinstance(found, list) else []


def _json(case: ProofCase, answer: ProofAnswer) -> dict[str, Json]:
    subject = case.proof.get("subject")
    asked = [one for one in answer.again if one.finding is not None]
    left = [one for one in answer.again if one.finding is None]
    return {
        "verdict": answer.verdict,
        "run": case.proof.get("run"),
        "commit": answer.commit or (subject.get("commit") if isinstance(subject, dict) else None),
        "tree": subject.get("tree") if isinstance(subject, dict) else None,
        "reasons": list(answer.reasons),
        "checks": [_asked(one, one.finding) for one in asked if one.finding],
        "notRun": [{"name": one.check.name, "why": one.why or "nothing was run"} for one in left],
        "notes": list(answer.told),
        "concerns": [*_texts(case, "outcome", "concerns")],
        "tampering": [*_texts(case, "tampering")],
    }


def _asked(one: AskedAgain, finding: Finding) -> dict[str, Json]:
    check = one.check
    return {
        "name": check.name,
        "command": check.command,
        "recorded": {"code": check.code, "tests": check.tests},
        "now": {
            "code": finding.code, "why": finding.why, "seconds": round(finding.seconds, 3),
            "tests": _tests(finding.tests), "sameOutput": finding.digest == check.output,
            "output": "" if finding.passed else clip(finding.output, OUTPUT_CHARS),
        },
        "holds": one.holds,
    }  # fmt: skip


def _tests(tests: Tests | None) -> Json:
    if tests is None:
        return None
    return {
        "runner": tests.runner, "passed": tests.passed, "failed": tests.failed, "skipped": tests.skipped,
        "xfailed": tests.xfailed,
    }  # fmt: skip
