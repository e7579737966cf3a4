"""The proof format: fields and types, the digests that bind them, and typed access to checks and subject."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from typing import TypeVar

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING, Json, value
from ralphproof.engine.check import Finding, PassRule
from ralphproof.store.landings import AttestedCheck
from ralphproof.views.published_json import find_faults, ref

if TYPE_CHECKING:
    T = TypeVar("T")


VERSION, TYPE = 1, "proof"
SUBJECT_KINDS = ("commit", "tree", "files")
HEX = frozenset("0123456789abcdef")
MAX_CHECKS, MAX_SETUP_COMMANDS = 1000, 1000
MAX_TIMEOUT_S = 7 * 24 * 3600.0
_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REF = re.compile(r"refs/ralph/[A-Za-z0-9][A-Za-z0-9._/-]*")


def validate_shape(proof: Json) -> tuple[str, ...]:
    """What is wrong with the form, in sentences; whoever reads on may rely on every field then."""
    if isinstance(proof, dict) and proof.get("type") == TYPE and proof.get("v") != VERSION:
        return (f"it is of version {str(proof.get('v'))[:20]}, and this ralph knows version {VERSION}",)
    if not isinstance(proof, dict) or proof.get("type") != TYPE:
        return ("it is of another type than a proof",)
    wrong = [*find_faults(proof, ref("proof"), "the proof")]
    if wrong:
        return tuple(fault.removeprefix("the proof.") for fault in wrong)
    return tuple(_id_faults(proof))


def _id_faults(proof: dict[str, Json]) -> Iterator[str]:
    """What a form of types alone does not tell: ids that git would take for something else, rows of the chain."""
    subject, records = get_object(proof, "subject"), get_object(proof, "records")
    if subject["kind"] not in SUBJECT_KINDS:
        yield f"the subject is of an unknown kind: {str(subject['kind'])[:40]!r}"
    for name in ("commit", "tree", "head", "base", "checked"):
        if subject[name] is not None and not is_digest(subject[name]):
            yield f"subject.{name} is no id"
    chain = records["chain"]
    kinds = (int, int, str, str, float, str)
    if not isinstance(chain, list) or any(
        not isinstance(row, list) or tuple(map(type, row)) not in (kinds, (*kinds[:4], int, str)) for row in chain
    ):
        yield "records.chain has a row of another form"
        return
    if any(not 0 <= place < len(chain) for place in get_integers(records["withheldRecords"])):
        yield "records.withheldRecords has an index that the chain does not have"
    for name in get_object(records, "evidence"):
        if not (name.isascii() and name.isdigit() and len(name) < 10 and int(name) < len(chain)):
            yield f"records.evidence has an index that the chain does not have: {name[:40]!r}"


def is_digest(text: Json) -> bool:
    """Whether this is the id of an object of git's, or a SHA-256, in hexadecimal."""
    return isinstance(text, str) and len(text) in (40, 64) and set(text) <= HEX


def canonical_json(proof: dict[str, Json]) -> str:
    """The text that the digest is of."""
    bare = {name: item for name, item in proof.items() if name != "digest"}
    return json.dumps(bare, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def proof_digest(proof: dict[str, Json]) -> str:
    """The digest that binds a proof's fields together."""
    return sha256_hex(canonical_json(proof))


def sha256_hex(text: str) -> str:
    """The SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def chain_digest(previous: str, row: tuple[object, ...]) -> str:
    """The digest of a ledger's row that follows the row with digest `previous`, as ledgers reckon it."""
    return sha256_hex(json.dumps([previous, *row], default=repr))


def to_json_types(data: Json) -> Json:
    """The same as it is read from a file: tuples are lists there."""
    found: Json = json.loads(json.dumps(data))
    return found


def get_object(data: dict[str, Json], name: str) -> dict[str, Json]:
    """A field that is an object; an empty one where it is none."""
    item = data.get(name)
    return item if isinstance(item, dict) else {}


def get_objects(data: Json) -> list[dict[str, Json]]:
    """Those items of a list that are objects."""
    return [item for item in data if isinstance(item, dict)] if isinstance(data, list) else []


def get_integers(data: Json) -> list[int]:
    """Those items of a list that are whole numbers."""
    return [item for item in data if isinstance(item, int)] if isinstance(data, list) else []


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
    command, tests, code = data.get("command"), data.get("tests"), data.get("exitCode")
    if not (command is None or (isinstance(command, str) and _is_argument(command))):
        raise Refused("one of its checks has a command that no shell could be given")
    return AttestedCheck(
        get_field(data, "name", str), command, get_field(data, "commandDigest", str, ""),
        _parse_rule(get_object(data, "rule")),
        get_field(data, "required", bool), get_field(data, "judged", bool), get_field(data, "passed", bool),
        code if isinstance(code, int) else None, get_field(data, "exitReason", str, "exit"),
        tests if isinstance(tests, dict) else None, get_field(data, "outputDigest", str, ""),
        get_field(data, "withheld", bool, False), get_field(data, "hidden", bool, False),
    )  # fmt: skip


def _parse_rule(data: dict[str, Json]) -> PassRule:
    timeout = data.get("timeoutSeconds")
    seconds = (
        float(timeout) if isinstance(timeout, int | float) and 0 < timeout <= MAX_TIMEOUT_S else PassRule().timeout_s
    )
    rule = PassRule(
        get_field(data, "folder", str, "."), get_field(data, "successCode", int, 0),
        get_field(data, "contains", str, ""), get_field(data, "lacks", str, ""), seconds,
        get_field(data, "clean", bool, False),
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


# The verdict on a proof: what re-run checks show, what differs, and what cannot be checked.


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
    withheld = get_field(proof, "records", dict).get("withheldRecords")
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
    if finding.tests and finding.tests.failed > int(str((check.tests or {}).get("failedCount") or 0)):
        return f"it passed, and its output counts {finding.tests.failed} failing"
    return ""


def describe_exit(code: int | None, why: str) -> str:
    """The exit code of a command, or why it has none."""
    return f"exit code {code}" if why == "exit" else why
