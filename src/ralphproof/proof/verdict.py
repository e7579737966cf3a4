"""The verdict on a proof: what re-run checks show, what differs, and what cannot be checked."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.proof.schema import get_field, sha256_hex

if TYPE_CHECKING:
    from ralphproof.base.value import Json
    from ralphproof.engine.check import Finding
    from ralphproof.store.landings import AttestedCheck

HOLDS, DIFFERS, UNCHECKED = "holds", "differs", "unchecked"
EXIT_CODES = {HOLDS: 0, DIFFERS: 1, UNCHECKED: 2}
COMPLETED = "COMPLETED"
MAX_NAMED = 10


@value
class CheckRerun:
    """One check run again. Without a finding it was not run: `why` says why; with one it says what differs."""

    check: AttestedCheck
    finding: Finding | None = None
    why: str = ""

    @property
    def holds(self) -> bool | None:
        """None where it was not run."""
        return None if self.finding is None else not self.why


@value
class VerificationResult:
    """The result of a verification. `reasons` say why it does not hold or cannot be checked; `notes` decide nothing."""

    verdict: str
    reasons: tuple[str, ...] = ()
    reruns: tuple[CheckRerun, ...] = ()
    notes: tuple[str, ...] = ()
    commit: str = ""


def why_unverifiable(proof: dict[str, Json], checks: tuple[AttestedCheck, ...]) -> str:
    """Why no command could be run again; empty where one can."""
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
    """Contradictions in a proof: a completed run whose records have no end, a required check that failed, and so on."""
    chain = get_field(get_field(proof, "records", dict), "chain", list)
    kinds = [row[3] for row in chain if isinstance(row, list) and len(row) > 3]
    wrong = [] if kinds and kinds[-1] == "RunEnded" else ["the run is said to be completed, and no record ended it"]
    for check in checks:
        if check.required and not check.judged and not check.passed:
            wrong.append(f"the run is said to be completed, and its required check {check.name} did not pass")
        if check.command is not None and check.digest and sha256_hex(check.command) != check.digest:
            wrong.append(f"the command of check {check.name} is not the one that its digest is of")
        if check.withheld and check.command is not None:
            wrong.append(f"check {check.name} is said to be withheld, and is not")
    return tuple(wrong)


def verification_remarks(proof: dict[str, Json]) -> tuple[str, ...]:
    """What a reader must know about a proof, whatever its checks say now."""
    subject = get_field(proof, "subject", dict)
    differs, left = subject.get("differs"), subject.get("leftOut")
    remarks = []
    if isinstance(differs, list) and differs:
        remarks.append(f"the run's own checks saw other files than this tree has: {_join_names(differs)}")
    if isinstance(left, list) and left:
        remarks.append(f"too large to be saved, and not in this tree: {_join_names(left)}")
    return tuple(remarks)


def _join_names(paths: list[Json]) -> str:
    more = f" and {len(paths) - MAX_NAMED} more" if len(paths) > MAX_NAMED else ""
    return ", ".join(map(str, paths[:MAX_NAMED])) + more


def compare_finding(check: AttestedCheck, finding: Finding) -> CheckRerun:
    """A check with its new finding, and what differs from the recorded one."""
    return CheckRerun(check, finding, _difference(check, finding))


def verification_verdict(reruns: tuple[CheckRerun, ...], unknowable: str = "") -> VerificationResult:
    """The verdict from all checks: one that differs weighs more than one that was not run.

    `unknowable` says what else could not be compared.
    """
    differ = tuple(f"{one.check.name}: {one.why}" for one in reruns if one.holds is False)
    if differ:
        return VerificationResult(DIFFERS, differ, reruns)
    not_run = (one for one in reruns if one.holds is None and one.check.required and not one.check.judged)
    unknown = (*(f"{one.check.name}: {one.why}" for one in not_run), *((unknowable,) if unknowable else ()))
    return VerificationResult(UNCHECKED if unknown else HOLDS, unknown, reruns)


def withheld_records_note(proof: dict[str, Json]) -> str:
    """That a file withholds records that it rests on: with the file alone they cannot be compared; else empty."""
    withheld = get_field(proof, "records", dict).get("withheld")
    if not isinstance(withheld, list) or not withheld:
        return ""
    return (
        f"{len(withheld)} of the records that it rests on are withheld: its concerns, and what it says of the "
        "integrity of its checks, cannot be compared with them; ralph proof export, where the run was, may have them"
    )


def _difference(check: AttestedCheck, finding: Finding) -> str:
    if not finding.passed and finding.check != check.name:
        return f"what prepares the checkout failed with {describe_exit(finding.code, finding.why)}: {finding.check}"
    if not finding.passed:
        recorded = describe_exit(check.code, check.why)
        return f"it failed with {describe_exit(finding.code, finding.why)}; on record: {recorded}"
    before, now = check.tests_passed, finding.tests.passed if finding.tests else None
    if before and finding.mute:
        return f"it passed, and its output tells of no test; on record: {before} tests passed"
    if before is not None and now is not None and now < before:
        return f"{now} tests passed; on record: {before}"
    if finding.tests and finding.tests.failed > int(str((check.tests or {}).get("failed") or 0)):
        return f"it passed, and its output counts {finding.tests.failed} failing"
    return ""


def describe_exit(code: int | None, why: str) -> str:
    """The exit code of a command, or why it has none."""
    return f"exit code {code}" if why == "exit" else why
