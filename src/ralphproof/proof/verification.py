"""Verifying a proof: its checks and subject as parsed, and the verdict from re-run checks."""

from __future__ import annotations

import os
import re
import sys

from ralphproof.base.errors import HarnessFailed, Refused
from ralphproof.base.escaping import collapse_lines, sanitize
from ralphproof.base.text import truncate
from ralphproof.base.value import TYPE_CHECKING, replace, value
from ralphproof.display.output import print_json, print_lines
from ralphproof.display.phrases import format_count, format_duration
from ralphproof.engine.check import Finding, PassRule
from ralphproof.proof.schema import sha256_hex
from ralphproof.store.landings import AttestedCheck

if TYPE_CHECKING:
    from argparse import Namespace
    from typing import TypeVar

    from ralphproof.base.value import Json
    from ralphproof.engine.check import SuiteResult
    from ralphproof.proof.source import AllowedCommands, ProofCommit, ProofSource

    T = TypeVar("T")


# What a proof says of its checks and its subject, read from data that anybody may have written.


MAX_CHECKS, MAX_SETUP_COMMANDS = 1000, 1000
MAX_TIMEOUT_S = 7 * 24 * 3600.0
_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REF = re.compile(r"refs/ralph/[A-Za-z0-9][A-Za-z0-9._/-]*")


@value
class ProofSubject:
    """What a proof speaks of: `tree` is the tree of `commit`. `ref` is empty where nothing keeps it but a branch."""

    kind: str
    commit: str
    tree: str
    ref: str = ""
    head: str = ""


def parse_checks(proof: dict[str, Json]) -> tuple[AttestedCheck, ...]:
    """The checks of a proof; raises Refused where it is none."""
    every = get_field(proof, "checks", list)
    if len(every) > MAX_CHECKS:
        raise Refused(f"it names more than {MAX_CHECKS} checks")
    return tuple(map(_parse_check, every))


def parse_setup(proof: dict[str, Json]) -> tuple[str, ...]:
    """The commands that prepare a checkout."""
    every = get_field(proof, "setup", list)
    if len(every) > MAX_SETUP_COMMANDS or not all(isinstance(one, str) and _is_argument(one) for one in every):
        raise Refused("its field setup is not what a proof has there")
    return tuple(map(str, every))


def parse_subject(proof: dict[str, Json]) -> ProofSubject:
    """What the proof speaks of; raises Refused where it names nothing that git could find."""
    data = get_field(proof, "subject", dict)
    kind = get_field(data, "kind", str)
    if kind not in ("commit", "tree"):
        return ProofSubject(kind, "", "")
    ref, head = data.get("ref"), data.get("head")
    found = ProofSubject(
        kind, get_field(data, "commit", str), get_field(data, "tree", str),
        ref if isinstance(ref, str) and _REF.fullmatch(ref) and ".." not in ref else "",
        head if isinstance(head, str) and _ID.fullmatch(head) else "",
    )  # fmt: skip
    if not (_ID.fullmatch(found.commit) and _ID.fullmatch(found.tree)):
        raise Refused("its subject has no commit, or no tree, of git's")
    return found


def _parse_check(data: Json) -> AttestedCheck:
    if not isinstance(data, dict):
        raise Refused("one of its checks is none")
    command, tests, code = data.get("command"), data.get("tests"), data.get("code")
    if not (command is None or (isinstance(command, str) and _is_argument(command))):
        raise Refused("one of its checks has a command that no shell could be given")
    return AttestedCheck(
        get_field(data, "name", str), command, get_field(data, "commandDigest", str, ""), _parse_rule(data),
        get_field(data, "required", bool), get_field(data, "judged", bool), get_field(data, "passed", bool),
        code if isinstance(code, int) else None, get_field(data, "why", str, "exit"),
        tests if isinstance(tests, dict) else None, get_field(data, "output", str, ""),
        get_field(data, "withheld", bool, False), get_field(data, "hidden", bool, False),
    )  # fmt: skip


def _parse_rule(data: dict[str, Json]) -> PassRule:
    timeout = data.get("timeoutSeconds")
    seconds = (
        float(timeout) if isinstance(timeout, int | float) and 0 < timeout <= MAX_TIMEOUT_S else PassRule().timeout_s
    )
    rule = PassRule(
        get_field(data, "folder", str, "."), get_field(data, "successCode", int, 0), get_field(data, "contains", str, ""),
        get_field(data, "lacks", str, ""), seconds, get_field(data, "clean", bool, False),
    )  # fmt: skip
    if not _is_argument(rule.folder + rule.contains + rule.lacks):
        raise Refused("one of its checks has a rule that cannot be kept")
    return rule


def _is_argument(text: str) -> bool:
    """Whether an argument list may hold it."""
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def get_field(data: dict[str, Json], name: str, kind: type[T], missing: T | None = None) -> T:
    """What a field holds; one that is absent or null is `missing`, where that is given."""
    found = data.get(name)
    if found is None and missing is not None:
        return missing
    if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
        raise Refused(f"its field {name} is not what a proof has there")
    return found


# Whether a proof holds where its checks are asked again: what differs, and what follows.


HOLDS, DIFFERS, UNCHECKED = "holds", "differs", "unchecked"
EXIT_CODES = {HOLDS: 0, DIFFERS: 1, UNCHECKED: 2}
COMPLETED = "COMPLETED"
MAX_NAMED = 10


@value
class CheckRerun:
    """What became of one check. Without a finding it was not asked; `why` then says why, else what differs."""

    check: AttestedCheck
    finding: Finding | None = None
    why: str = ""

    @property
    def holds(self) -> bool | None:
        """None where nobody knows."""
        return None if self.finding is None else not self.why


@value
class VerificationResult:
    """What verifying came to. `reasons` say why it does not hold, or cannot be checked; `told` decides nothing."""

    verdict: str
    reasons: tuple[str, ...] = ()
    again: tuple[CheckRerun, ...] = ()
    told: tuple[str, ...] = ()
    commit: str = ""


def why_unverifiable(proof: dict[str, Json], checks: tuple[AttestedCheck, ...]) -> str:
    """Why there is nothing that a machine could show again; empty where there is something."""
    outcome = get_field(proof, "outcome", dict)
    status = outcome.get("status")
    if status != COMPLETED:
        why = f", {outcome['reason']}" if outcome.get("reason") else ""
        return f"the run was not completed: it ended {status}{why}"
    if any(check.required and not check.judged for check in checks):
        return ""
    if any(check.required for check in checks):
        return "only a model judged the work: no command was asked that could be asked again"
    return "the agent's word alone ended the run: nothing verified it, so nothing can be asked again"


def find_contradictions(proof: dict[str, Json], checks: tuple[AttestedCheck, ...]) -> tuple[str, ...]:
    """What cannot be: a completed run whose records have no end, a required check that did not pass, and the like."""
    chain = get_field(get_field(proof, "records", dict), "chain", list)
    kinds = [row[3] for row in chain if isinstance(row, list) and len(row) > 3]
    found = [] if kinds and kinds[-1] == "RunEnded" else ["the run is said to be completed, and no record ended it"]
    for check in checks:
        if check.required and not check.judged and not check.passed:
            found.append(f"the run is said to be completed, and its required check {check.name} did not pass")
        if check.command is not None and check.digest and sha256_hex(check.command) != check.digest:
            found.append(f"the command of check {check.name} is not the one that its digest is of")
        if check.withheld and check.command is not None:
            found.append(f"check {check.name} is said to be withheld, and is not")
    return tuple(found)


def verification_remarks(proof: dict[str, Json]) -> tuple[str, ...]:
    """What a reader must know of a proof, whatever its checks say now."""
    subject = get_field(proof, "subject", dict)
    differs, left = subject.get("differs"), subject.get("leftOut")
    found = []
    if isinstance(differs, list) and differs:
        found.append(f"the run's own checks saw other files than this tree has: {_join_names(differs)}")
    if isinstance(left, list) and left:
        found.append(f"too large to be saved, and not in this tree: {_join_names(left)}")
    return tuple(found)


def _join_names(paths: list[Json]) -> str:
    more = f" and {len(paths) - MAX_NAMED} more" if len(paths) > MAX_NAMED else ""
    return ", ".join(map(str, paths[:MAX_NAMED])) + more


def compare_finding(check: AttestedCheck, finding: Finding) -> CheckRerun:
    """What it means that the check, asked again, answered so."""
    return CheckRerun(check, finding, _difference(check, finding))


def verification_verdict(again: tuple[CheckRerun, ...], besides: str = "") -> VerificationResult:
    """What follows from all answers: one that differs beats one that nobody could get.

    `besides` says what else nobody can know.
    """
    differ = tuple(f"{one.check.name}: {one.why}" for one in again if one.holds is False)
    if differ:
        return VerificationResult(DIFFERS, differ, again)
    open_ones = (one for one in again if one.holds is None and one.check.required and not one.check.judged)
    unknown = (*(f"{one.check.name}: {one.why}" for one in open_ones), *((besides,) if besides else ()))
    return VerificationResult(UNCHECKED if unknown else HOLDS, unknown, again)


def withheld_records_note(proof: dict[str, Json]) -> str:
    """What a file keeps back of the records that it rests on: nobody who has the file alone can compare that."""
    withheld = get_field(proof, "records", dict).get("withheld")
    if not isinstance(withheld, list) or not withheld:
        return ""
    return (
        f"{len(withheld)} of the records that it rests on are withheld: its concerns, and what it says of the "
        "integrity of its checks, cannot be compared with them; ralph proof export, where the run was, may have them"
    )


def _difference(check: AttestedCheck, finding: Finding) -> str:
    if not finding.passed and finding.check != check.name:
        return f"what prepares the checkout failed with {_exit_text(finding.code, finding.why)}: {finding.check}"
    if not finding.passed:
        return f"it failed with {_exit_text(finding.code, finding.why)}; on record: {_exit_text(check.code, check.why)}"
    before, now = check.tests_passed, finding.tests.passed if finding.tests else None
    if before and finding.mute:
        return f"it passed, and its output tells of no test; on record: {before} tests passed"
    if before is not None and now is not None and now < before:
        return f"{now} tests passed; on record: {before}"
    if finding.tests and finding.tests.failed > int(str((check.tests or {}).get("failed") or 0)):
        return f"it passed, and its output counts {finding.tests.failed} failing"
    return ""


def _exit_text(code: int | None, why: str) -> str:
    return f"exit code {code}" if why == "exit" else why


# What verifying a proof came to, for people and for programs.


VERDICT_TEXTS = {HOLDS: "HOLDS", DIFFERS: "DOES NOT HOLD", UNCHECKED: "CANNOT BE CHECKED"}
MAX_OUTPUT_CHARS, MAX_OUTPUT_LINES, MAX_LISTED = 5000, 20, 20


class VerifyProgress:
    """Says on standard error what is being run, and how it went; nothing where somebody wants quiet."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet

    def begins(self, command: str) -> None:
        self._say(f"runs {command}")

    def ended(self, check: AttestedCheck, finding: Finding) -> None:
        how = "passed" if finding.passed else f"failed with {_end_text(finding.code, finding.why)}"
        self._say(f"{check.name} {how} after {format_duration(finding.seconds)}")

    def _say(self, line: str) -> None:
        if not self._quiet:
            print(collapse_lines(sanitize(line)), file=sys.stderr, flush=True)


def print_answer(case: ProofSource, answer: VerificationResult, for_programs: bool) -> None:
    """Say it all, the verdict last."""
    if for_programs:
        print_json("verify", _result_json(case, answer))
        return
    for one in answer.again:
        print_lines(_check_line(one))
        if one.finding is not None and not one.finding.passed:
            print_lines(*(f"    | {line}" for line in one.finding.output.splitlines()[-MAX_OUTPUT_LINES:]))
    print_lines(*(f"note: {line}" for line in answer.told[:MAX_LISTED]))
    if not case.faults:  # what an altered proof says is nobody's word
        print_lines(*(f"concern: {line}" for line in _note_lines(case, "outcome", "concerns")[:MAX_LISTED]))
        print_lines(*(f"tampering: {line}" for line in _note_lines(case, "tampering")[:MAX_LISTED]))
    print_lines(*(f"  {line}" for line in answer.reasons))
    print_lines(_verdict_line(case, answer))


def _verdict_line(case: ProofSource, answer: VerificationResult) -> str:
    run = f" of run {case.proof['run']}" if case.proof.get("run") else ""
    if answer.verdict != HOLDS:
        return f"{VERDICT_TEXTS[answer.verdict]}: the proof{run}" + (
            f", commit {answer.commit}" if answer.commit else ""
        )
    asked = sum(one.finding is not None for one in answer.again)
    passed = f"{format_count(asked, 'check')} passed again on a clean checkout of {answer.commit}"
    return f"{VERDICT_TEXTS[HOLDS]}: the proof{run}; {passed}"


def _check_line(one: CheckRerun) -> str:
    check, finding = one.check, one.finding
    if finding is None:
        return f"not run   {check.name}: {one.why or 'nothing was run'}"
    recorded = f"{_end_text(check.code, check.why)}{_test_count_text(check.tests_passed)}"
    tests = finding.tests.passed if finding.tests else None
    now = f"{_end_text(finding.code, finding.why)}{_test_count_text(tests)}"
    other = "; the output is another one" if finding.passed and finding.digest != check.output else ""
    mark = "holds    " if one.holds else "DIFFERS  "
    return f"{mark} {check.name}: {now} after {format_duration(finding.seconds)}; on record: {recorded}{other}"


def _end_text(code: int | None, why: str) -> str:
    return f"exit code {code}" if why == "exit" else why


def _test_count_text(tests: int | None) -> str:
    return "" if tests is None else f", {format_count(tests, 'test')} passed"


def _note_lines(case: ProofSource, *path: str) -> list[str]:
    found: Json = case.proof
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return [str(one) for one in found] if isinstance(found, list) else []


def _result_json(case: ProofSource, answer: VerificationResult) -> dict[str, Json]:
    subject = case.proof.get("subject")
    asked = [one for one in answer.again if one.finding is not None]
    left = [one for one in answer.again if one.finding is None]
    return {
        "verdict": answer.verdict,
        "run": case.proof.get("run"),
        "commit": answer.commit or (subject.get("commit") if isinstance(subject, dict) else None),
        "tree": subject.get("tree") if isinstance(subject, dict) else None,
        "reasons": list(answer.reasons),
        "checks": [_check_json(one, one.finding) for one in asked if one.finding],
        "notRun": [{"name": one.check.name, "why": one.why or "nothing was run"} for one in left],
        "notes": list(answer.told),
        "concerns": [*_note_lines(case, "outcome", "concerns")],
        "tampering": [*_note_lines(case, "tampering")],
    }


def _check_json(one: CheckRerun, finding: Finding) -> dict[str, Json]:
    check = one.check
    return {
        "name": check.name,
        "command": check.command,
        "recorded": {"code": check.code, "tests": check.tests},
        "now": {
            "code": finding.code, "why": finding.why, "seconds": round(finding.seconds, 3),
            "tests": _tests_json(finding.tests), "sameOutput": finding.digest == check.output,
            "output": "" if finding.passed else truncate(finding.output, MAX_OUTPUT_CHARS),
        },
        "holds": one.holds,
    }  # fmt: skip


def _tests_json(tests: SuiteResult | None) -> Json:
    if tests is None:
        return None
    return {
        "runner": tests.runner, "passed": tests.passed, "failed": tests.failed, "skipped": tests.skipped,
        "xfailed": tests.xfailed,
    }  # fmt: skip


# `ralph verify`: run a finished run's checks again on a clean checkout, and say whether its proof holds.


NOT_RUN_REASONS = {"judge": "a model's word", "warns": "only a warning", "other": "no command that could be run"}
OTHER_SETTINGS = "the settings file of that commit"
UNKNOWN_COMMANDS = "these commands are not in the settings of that commit; look at them, and run them with --yes"


def verify_case(case: ProofSource, args: Namespace) -> VerificationResult:
    """First match wins: no proof, an altered one, nothing to ask, no tree here; else what the checks say."""
    if case.why:
        return VerificationResult(UNCHECKED, (case.why,))
    if case.faults:
        return VerificationResult(DIFFERS, case.faults)
    try:
        checks, setup, subject = parse_checks(case.proof), parse_setup(case.proof), parse_subject(case.proof)
        if why := why_unverifiable(case.proof, checks):
            return VerificationResult(UNCHECKED, (why,))
    except Refused as error:
        return VerificationResult(UNCHECKED, (str(error),))
    if wrong := find_contradictions(case.proof, checks):
        return VerificationResult(DIFFERS, wrong)
    from ralphproof.proof.source import find_proof_commit

    found = find_proof_commit(case.root, subject, str(case.proof.get("run", "")), os.environ)
    if isinstance(found, VerificationResult):
        return found
    try:
        answer = _verify_allowed(case, args, found, checks, setup)
    except HarnessFailed as error:  # a full disk, objects that this clone does not have: nothing is said of the work
        answer = VerificationResult(UNCHECKED, (str(error),))
    return replace(answer, commit=found.commit, told=(*found.told, *verification_remarks(case.proof), *answer.told))


def _verify_allowed(
    case: ProofSource, args: Namespace, place: ProofCommit, checks: tuple[AttestedCheck, ...], setup: tuple[str, ...]
) -> VerificationResult:
    """What the checks say, where all that they run may be run."""
    from ralphproof.proof.source import read_allowed_commands

    sanction = read_allowed_commands(case.root, place.settings, os.environ)
    settings = case.proof.get("settings")
    other = isinstance(settings, dict) and settings.get("file") != sanction.settings
    if other and not place.told:
        return VerificationResult(DIFFERS, (f"{OTHER_SETTINGS}: it is not the one that the proof was made with",))
    checks = tuple(map(sanction.found, checks))
    left = _missing_checks(sanction, checks)
    told = (*left, *([f"{OTHER_SETTINGS} is another one than the run's"] if other else []))
    strange = () if case.ours else _unknown_commands(sanction, checks, setup)
    if strange and not _confirm_commands(strange, args):
        return VerificationResult(UNCHECKED, (UNKNOWN_COMMANDS, *strange), tuple(map(CheckRerun, checks)), told)
    again = _rerun_checks(case, place.commit, checks, setup, args)
    return replace(
        verification_verdict(again, "" if case.ours else withheld_records_note(case.proof) or "; ".join(left)),
        told=told,
    )


def _unknown_commands(
    sanction: AllowedCommands, checks: tuple[AttestedCheck, ...], setup: tuple[str, ...]
) -> tuple[str, ...]:
    """Every command that the settings do not have, each with what is special in its rule."""
    preparing = [f"setup: {command}" for command in setup if command not in sanction.setup]
    asked = [check for check in checks if check.runs_again and not sanction.covers(check)]
    return tuple(dict.fromkeys([*preparing, *map(_check_with_rule, asked)]))


def _check_with_rule(check: AttestedCheck) -> str:
    rule = check.rule
    folder = f" (in {rule.folder})" if rule.folder != "." else ""
    code = f" (passes with exit code {rule.success_code})" if rule.success_code else ""
    return f"{check.command}{folder}{code}"


def _confirm_commands(strange: tuple[str, ...], args: Namespace) -> bool:
    """Whether somebody wants them run all the same."""
    from ralphproof.display.output import confirm, print_lines

    if args.yes or args.json or sys.stdin is None or not sys.stdin.isatty():
        return bool(args.yes)
    print_lines("Not in the settings of that commit:", *(f"  {line}" for line in strange))
    return confirm("Run these commands?")


def _missing_checks(sanction: AllowedCommands, checks: tuple[AttestedCheck, ...]) -> tuple[str, ...]:
    """Checks of the settings that the proof does not have: others may have been asked for by flags."""
    known = {check.command for check in checks if check.required}
    left = dict.fromkeys(command for command in sanction.asked if command not in known)
    return tuple(f"a check of that commit's settings is no part of the proof: {command}" for command in left)


def _rerun_checks(
    case: ProofSource, commit: str, checks: tuple[AttestedCheck, ...], setup: tuple[str, ...], args: Namespace
) -> tuple[CheckRerun, ...]:
    """Every required command once more; one that two checks have in common is run once."""
    from ralphproof.proof.rerun import DisposableCheckout

    if not any(check.runs_again for check in checks):
        return tuple(CheckRerun(check, why=_not_run_reason(check)) for check in checks)
    made: list[CheckRerun] = []
    known: dict[object, Finding] = {}
    progress = VerifyProgress(args.quiet)
    with DisposableCheckout(case.root, commit, os.environ, case.secrets, args.sandbox) as room:
        for check in checks:
            if not check.runs_again:
                made.append(CheckRerun(check, why=_not_run_reason(check)))
                continue
            key = (check.command, replace(check.rule, clean=False))
            if key not in known:
                known[key] = room.ask(check, setup, progress.begins)
                progress.ended(check, known[key])
            made.append(compare_finding(check, known[key]))
    return tuple(made)


def _not_run_reason(check: AttestedCheck) -> str:
    from ralphproof.proof.source import WITHHELD

    if check.judged:
        return NOT_RUN_REASONS["judge"]
    if not check.required:
        return NOT_RUN_REASONS["warns"]
    return WITHHELD if check.command is None else NOT_RUN_REASONS["other"]
