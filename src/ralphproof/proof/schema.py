"""The proof format: validation by the table of nouns, the digests that bind its fields, its checks and its subject."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any

from ralphproof.base.errors import Refused
from ralphproof.base.value import Json, value
from ralphproof.engine.check import Finding, PassRule
from ralphproof.store.landings import AttestedCheck
from ralphproof.views.published_json import find_faults, ref

Proof = dict[str, Any]  # of a shape in which `validate_shape` finds no fault


VERSION, TYPE = 1, "proof"
MAX_CHECKS, MAX_SETUP_COMMANDS = 1000, 1000
MAX_TIMEOUT_S = 7 * 24 * 3600.0
_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REF = re.compile(r"refs/ralph/[A-Za-z0-9][A-Za-z0-9._/-]*")
# What the nouns leave open and a proof always has.
CHECK_FIELDS = ("commandDigest", "rule", "before", "oldFailures", "newFailures")
OUTCOME_FIELDS = ("proof", "concerns")


def validate_shape(proof: Json) -> tuple[str, ...]:
    """What is wrong with the form, in sentences; whoever reads on may rely on every field then."""
    if isinstance(proof, dict) and proof.get("type") == TYPE and proof.get("v") != VERSION:
        return (f"it is of version {str(proof.get('v'))[:20]}, and this ralph knows version {VERSION}",)
    if not isinstance(proof, dict) or proof.get("type") != TYPE:
        return ("it is of another type than a proof",)
    wrong = [*find_faults(proof, ref("proof"), "the proof")]
    if wrong:
        return tuple(fault.removeprefix("the proof.") for fault in wrong)
    return tuple(_missing_fields(proof)) or tuple(_id_faults(proof))


def _missing_fields(proof: Proof) -> Iterator[str]:
    required = [("outcome", proof["outcome"] or {}, OUTCOME_FIELDS), ("sandbox", proof["sandbox"] or {}, ("name",))]
    required += [(f"checks[{number}]", check, CHECK_FIELDS) for number, check in enumerate(proof["checks"])]
    for place, item, names in required:
        yield from (f"{place} has no {name}" for name in names if name not in item)


def _id_faults(proof: Proof) -> Iterator[str]:
    """What a form of types alone does not tell: ids that git would take for something else, rows of the chain."""
    subject, records = proof["subject"], proof["records"]
    for name in ("commit", "tree", "head", "base", "checked"):
        if subject[name] is not None and not _ID.fullmatch(subject[name]):
            yield f"subject.{name} is no id"
    chain = records["chain"]
    kinds = (int, int, str, str, float, str)
    if any(tuple(map(type, row)) not in (kinds, (*kinds[:4], int, str)) for row in chain):
        yield "records.chain has a row of another form"
        return
    if any(not 0 <= place < len(chain) for place in records["withheldRecords"]):
        yield "records.withheldRecords has an index that the chain does not have"
    for name in records["evidence"]:
        if not (name.isascii() and name.isdigit() and len(name) < 10 and int(name) < len(chain)):
            yield f"records.evidence has an index that the chain does not have: {name[:40]!r}"


def canonical_json(proof: Proof) -> str:
    """The text that the digest is of."""
    bare = {name: item for name, item in proof.items() if name != "digest"}
    return json.dumps(bare, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def proof_digest(proof: Proof) -> str:
    """The digest that binds a proof's fields together."""
    return sha256_hex(canonical_json(proof))


def sha256_hex(text: str) -> str:
    """The SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def chain_digest(previous: str, row: tuple[object, ...]) -> str:
    """The digest of a ledger's row that follows the row with digest `previous`, as ledgers reckon it."""
    return sha256_hex(json.dumps([previous, *row], default=repr))


def to_json_types(data: Json) -> Any:
    """The same as it is read from a file: tuples are lists there."""
    return json.loads(json.dumps(data))


@value
class ProofSubject:
    """What a proof speaks of: `tree` is the tree of `commit`. `ref` is empty where nothing keeps it but a branch."""

    kind: str
    commit: str
    tree: str
    ref: str = ""
    head: str = ""


def parse_checks(proof: Proof) -> tuple[AttestedCheck, ...]:
    """The checks of a proof; raises Refused for what no shell could be given."""
    if len(proof["checks"]) > MAX_CHECKS:
        raise Refused(f"it names more than {MAX_CHECKS} checks")
    return tuple(map(_parse_check, proof["checks"]))


def parse_setup(proof: Proof) -> tuple[str, ...]:
    """The commands that prepare a checkout."""
    setup: list[str] = proof["setup"]
    if len(setup) > MAX_SETUP_COMMANDS or not all(map(_is_argument, setup)):
        raise Refused("its field setup is not what a proof has there")
    return tuple(setup)


def parse_subject(proof: Proof) -> ProofSubject:
    """What the proof speaks of; raises Refused where it names nothing that git could find."""
    data = proof["subject"]
    if not (data["commit"] and data["tree"]):
        raise Refused("its subject has no commit, or no tree, of git's")
    ref = data["ref"] or ""
    safe_ref = ref if _REF.fullmatch(ref) and ".." not in ref else ""
    return ProofSubject(data["kind"], data["commit"], data["tree"], safe_ref, data["head"] or "")


def _parse_check(check: Proof) -> AttestedCheck:
    command, rule = check["command"], check["rule"]
    if not _is_argument(command or ""):
        raise Refused("one of its checks has a command that no shell could be given")
    if not _is_argument(rule["folder"] + rule["contains"] + rule["lacks"]):
        raise Refused("one of its checks has a rule that cannot be kept")
    timeout_s = rule["timeoutSeconds"] if 0 < rule["timeoutSeconds"] <= MAX_TIMEOUT_S else PassRule().timeout_s
    return AttestedCheck(
        check["name"], command, check["commandDigest"] or "",
        PassRule(rule["folder"], rule["successCode"], rule["contains"], rule["lacks"], timeout_s, rule["clean"]),
        check["required"], check["judged"], bool(check["passed"]), check["exitCode"], check["exitReason"] or "exit",
        check["tests"], check["outputDigest"], check.get("withheld", False), check["hidden"],
    )  # fmt: skip


def _is_argument(text: str) -> bool:
    """Whether an argument list may hold it."""
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return "\0" not in text


# The verdict on a proof: what re-run checks show, what differs, and what cannot be checked.


HOLDS, DIFFERS, UNCHECKED = "holds", "differs", "unchecked"
EXIT_CODES = {HOLDS: 0, DIFFERS: 1, UNCHECKED: 2}
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


def why_uncheckable(proof: Proof) -> str:
    """Why the checks cannot be run again in any clone; empty where they can."""
    outcome = proof["outcome"]
    if outcome["status"] != "COMPLETED":
        return f"the run was not completed: it ended {outcome['status']} {outcome.get('reason', '')}".rstrip()
    required = [check for check in proof["checks"] if check["required"]]
    if not required:
        return "the agent's word alone ended the run: there is nothing to ask again"
    if all(check["judged"] for check in required):
        return "only a model judged the work: there is no command to run again"
    if proof["subject"]["kind"] == "files":
        return "the run had no git repository: no commit holds its files"
    return ""


def find_contradictions(proof: Proof, checks: tuple[AttestedCheck, ...]) -> tuple[str, ...]:
    """Contradictions in a proof: a completed run whose records have no end, a required check that failed, and so on."""
    chain = proof["records"]["chain"]
    ended = chain and chain[-1][3] == "RunEnded"
    wrong = [] if ended else ["the run is said to be completed, and no record ended it"]
    for check in checks:
        if check.required and not check.judged and not check.passed:
            wrong.append(f"the run is said to be completed, and its required check {check.name} did not pass")
        if check.command is not None and check.digest and sha256_hex(check.command) != check.digest:
            wrong.append(f"the command of check {check.name} is not the one that its digest is of")
        if check.withheld and check.command is not None:
            wrong.append(f"check {check.name} is said to be withheld, and is not")
    return tuple(wrong)


def verification_remarks(proof: Proof) -> tuple[str, ...]:
    """What a reader must know about a proof, whatever its checks say now."""
    remarks = {
        "differs": "the run's own checks saw other files than this tree has",
        "leftOut": "too large to be saved, and not in this tree",
    }
    subject = proof["subject"]
    return tuple(f"{remark}: {join_names(subject[name])}" for name, remark in remarks.items() if subject[name])


def join_names(names: list[str], most: int = MAX_NAMED) -> str:
    """Names in a sentence, the first ones."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


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


def withheld_records_note(proof: Proof) -> str:
    """That a file withholds records that it rests on: with the file alone they cannot be compared; else empty."""
    withheld = proof["records"]["withheldRecords"]
    if not withheld:
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
    failed_before = int(str((check.tests or {}).get("failedCount") or 0))
    before, now = check.tests_passed, finding.tests.passed if finding.tests else None
    if before and finding.mute:
        return f"it passed, and its output tells of no test; on record: {before} tests passed"
    if before is not None and now is not None and now < before:
        return f"{now} tests passed; on record: {before}"
    if finding.tests and finding.tests.failed > failed_before:
        return f"it passed, and its output counts {finding.tests.failed} failing"
    return ""


def describe_exit(code: int | None, why: str) -> str:
    """The exit code of a command, or why it has none."""
    return f"exit code {code}" if why == "exit" else why
