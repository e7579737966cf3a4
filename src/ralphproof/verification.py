"""Whether a proof holds where its checks are asked again: what differs, and what follows."""

from __future__ import annotations

from ralphproof.attested import Attested, field
from ralphproof.check import Finding
from ralphproof.proof_shape import sha256
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from ralphproof.value import Json

HOLDS, DIFFERS, UNCHECKED = "holds", "differs", "unchecked"
EXIT_CODES = {HOLDS: 0, DIFFERS: 1, UNCHECKED: 2}
COMPLETED = "COMPLETED"
NAMED = 10


@value
class AskedAgain:
    """What became of one check. Without a finding it was not asked; `why` then says why, else what differs."""

    check: Attested
    finding: Finding | None = None
    why: str = ""

    @property
    def holds(self) -> bool | None:
        """None where nobody knows."""
        return None if self.finding is None else not self.why


@value
class ProofAnswer:
    """What verifying came to. `reasons` say why it does not hold, or cannot be checked; `told` decides nothing."""

    verdict: str
    reasons: tuple[str, ...] = ()
    again: tuple[AskedAgain, ...] = ()
    told: tuple[str, ...] = ()
    commit: str = ""


def unfit(proof: dict[str, Json], checks: tuple[Attested, ...]) -> str:
    """Why there is nothing that a machine could show again; empty where there is something."""
    outcome = field(proof, "outcome", dict)
    status = outcome.get("status")
    if status != COMPLETED:
        why = f", {outcome['reason']}" if outcome.get("reason") else ""
        return f"the run was not completed: it ended {status}{why}"
    if any(check.required and not check.judged for check in checks):
        return ""
    if any(check.required for check in checks):
        return "only a model judged the work: no command was asked that could be asked again"
    return "the agent's word alone ended the run: nothing verified it, so nothing can be asked again"


def contradictions(proof: dict[str, Json], checks: tuple[Attested, ...]) -> tuple[str, ...]:
    """What cannot be: a completed run whose records have no end, a required check that did not pass, and the like."""
    chain = field(field(proof, "records", dict), "chain", list)
    kinds = [row[3] for row in chain if isinstance(row, list) and len(row) > 3]
    found = [] if kinds and kinds[-1] == "RunEnded" else ["the run is said to be completed, and no record ended it"]
    for check in checks:
        if check.required and not check.judged and not check.passed:
            found.append(f"the run is said to be completed, and its required check {check.name} did not pass")
        if check.command is not None and check.digest and sha256(check.command) != check.digest:
            found.append(f"the command of check {check.name} is not the one that its digest is of")
        if check.withheld and check.command is not None:
            found.append(f"check {check.name} is said to be withheld, and is not")
    return tuple(found)


def remarks(proof: dict[str, Json]) -> tuple[str, ...]:
    """What a reader must know of a proof, whatever its checks say now."""
    subject = field(proof, "subject", dict)
    differs, left = subject.get("differs"), subject.get("leftOut")
    found = []
    if isinstance(differs, list) and differs:
        found.append(f"the run's own checks saw other files than this tree has: {_named(differs)}")
    if isinstance(left, list) and left:
        found.append(f"too large to be saved, and not in this tree: {_named(left)}")
    return tuple(found)


def _named(paths: list[Json]) -> str:
    more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
    return ", ".join(map(str, paths[:NAMED])) + more


def compared(check: Attested, finding: Finding) -> AskedAgain:
    """What it means that the check, asked again, answered so."""
    return AskedAgain(check, finding, _difference(check, finding))


def verdict_of(again: tuple[AskedAgain, ...], besides: str = "") -> ProofAnswer:
    """What follows from all answers: one that differs beats one that nobody could get.

    `besides` says what else nobody can know.
    """
    differ = tuple(f"{one.check.name}: {one.why}" for one in again if one.holds is False)
    if differ:
        return ProofAnswer(DIFFERS, differ, again)
    open_ones = (one for one in again if one.holds is None and one.check.required and not one.check.judged)
    unknown = (*(f"{one.check.name}: {one.why}" for one in open_ones), *((besides,) if besides else ()))
    return ProofAnswer(UNCHECKED if unknown else HOLDS, unknown, again)


def unshown(proof: dict[str, Json]) -> str:
    """What a file keeps back of the records that it rests on: nobody who has the file alone can compare that."""
    withheld = field(proof, "records", dict).get("withheld")
    if not isinstance(withheld, list) or not withheld:
        return ""
    return (
        f"{len(withheld)} of the records that it rests on are withheld: its concerns, and what it says of the "
        "integrity of its checks, cannot be compared with them; ralph proof export, where the run was, may have them"
    )


def _difference(check: Attested, finding: Finding) -> str:
    if not finding.passed and finding.check != check.name:
        return f"what prepares the checkout failed with {_end(finding.code, finding.why)}: {finding.check}"
    if not finding.passed:
        return f"it failed with {_end(finding.code, finding.why)}; on record: {_end(check.code, check.why)}"
    before, now = check.tests_passed, finding.tests.passed if finding.tests else None
    if before and finding.mute:
        return f"it passed, and its output tells of no test; on record: {before} tests passed"
    if before is not None and now is not None and now < before:
        return f"{now} tests passed; on record: {before}"
    if finding.tests and finding.tests.failed > int(str((check.tests or {}).get("failed") or 0)):
        return f"it passed, and its output counts {finding.tests.failed} failing"
    return ""


def _end(code: int | None, why: str) -> str:
    return f"exit code {code}" if why == "exit" else why
