"""Reading a proof: from a run or an exported file, and its integrity."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ralphproof.base.errors import HarnessFailed, LedgerBroken, Refused
from ralphproof.base.git_layout import git_folders, resolve_project_root
from ralphproof.base.json_text import MAX_JSON_BYTES, UnusableFile, decode_utf8, parse_json, read_bounded_file
from ralphproof.base.redaction import find_environment_secrets
from ralphproof.base.value import Json, replace, value
from ralphproof.checks.check_plan import plan_checks
from ralphproof.checks.methods import guardrail_verification
from ralphproof.engine.plan import ExternalVerification
from ralphproof.engine.records import (
    BaselineSaved,
    ChildWorkJoined,
    Record,
    RunBegan,
    Saved,
    ScmEnded,
    UserChangesSaved,
)
from ralphproof.proof.builder import build_run_proof, fields_from_records, parse_record
from ralphproof.proof.page import parse_proof, render_page
from ralphproof.proof.schema import (
    DIFFERS,
    UNCHECKED,
    Proof,
    ProofSubject,
    VerificationResult,
    chain_digest,
    proof_digest,
    sha256_hex,
    to_json_types,
    validate_shape,
)
from ralphproof.settings.declarations import GUARDRAIL_SCHEMA, parse_guardrails
from ralphproof.settings.schema import default_values
from ralphproof.store.landings import AttestedCheck
from ralphproof.store.ledger import RunRow
from ralphproof.store.project import Project
from ralphproof.store.run_state import find_run, public_run_folder
from ralphproof.workspace.checkouts import SourceRepository, resolve_tree
from ralphproof.workspace.files import OWN_NAMES

Exhibits = dict[int, tuple[float, Record]]


PARTLY_RECORDED_FIELDS = ("subject", "versions", "outcome")  # the repository and the machine tell the rest
SNAPSHOT_RECORDS = ("Saved", "ChildWorkJoined", "UserChangesSaved", "ScmEnded")
FIELDS_OF_ALL_RECORDS = ("caveats", "findings")  # are read from all records of the evidence together


def find_proof_faults(proof: Proof) -> tuple[str, ...]:
    """Why this is no intact proof, in sentences: its form, its digests, or fields that its evidence contradicts.

    An intact proof does not say that the work is good: only that no part of it was changed alone.
    """
    wrong = validate_shape(proof)
    if wrong:
        return wrong
    if proof["digest"] != proof_digest(proof):
        return ("it was changed: its digest is not that of its content",)
    return tuple(_chain_faults(proof)) or tuple(_denied_fields(proof))


def _chain_faults(proof: Proof) -> Iterator[str]:
    """Evidence that does not match the chain of digests."""
    records = proof["records"]
    chain = records["chain"]
    if records["count"] != len(chain) or records["lastDigest"] != (chain[-1][5] if chain else ""):
        yield "the chain of records has lost its end"
    if proof["outcome"]["status"] == "COMPLETED" and (not chain or chain[-1][3] != "RunEnded"):
        yield "the run is said to be completed, and the chain of its records does not end with its end"
    for place, data in sorted(records["evidence"].items(), key=lambda item: int(item[0])):
        at = int(place)
        *row, digest = chain[at]
        if chain_digest(chain[at - 1][5] if at else "", (proof["run"], *row, data)) != digest:
            yield f"record {at + 1} of the chain ({row[2][:60]}) is not the one that its digest is of"


def _denied_fields(proof: Proof) -> Iterator[str]:
    """Fields that contradict the evidence."""
    records = proof["records"]
    chain = records["chain"]
    try:
        exhibits = {
            int(place): (float(chain[int(place)][4]), parse_record(str(data), f"record {place}"))
            for place, data in records["evidence"].items()
        }
        lacking = (*_missing_records(proof, exhibits), *_subject_faults(proof, exhibits))
        found = to_json_types(fields_from_records(exhibits))
    except (LedgerBroken, TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RecursionError):
        yield "a record of its evidence cannot be read"
        return
    yield from lacking
    if proof["outcome"].get("run", proof["run"]) != proof["run"]:
        yield "outcome is that of another run"
    yield from _contradicted_fields(proof, found, bool(records["withheldRecords"]))


def _missing_records(proof: Proof, exhibits: Exhibits) -> list[str]:
    """Required records that are not shown: start and end of the run, and all checks of the last round."""
    records = proof["records"]
    chain = records["chain"]
    kinds = {row[3]: place for place, row in enumerate(chain)}  # of each the last one
    judged = {row[0] for row in chain if row[3] == "Judged"}
    asked = {place: row[0] for place, row in enumerate(chain) if row[3] == "CheckEnded"}
    last = max((number for number in asked.values() if number in judged), default=0)
    wanted = {kinds.get(kind, 0) for kind in ("RunBegan", "RunEnded", "Judged")}
    wanted |= {place for place, number in asked.items() if number in (0, last)}
    there = {*exhibits, *records["withheldRecords"]}
    return [f"record {place + 1} of the chain is not shown" for place in sorted(wanted - there)]


def _contradicted_fields(proof: Proof, expected: Proof, partly: bool) -> Iterator[str]:
    """Contradicted fields. With withheld evidence, fields that need all of it cannot be compared."""
    for name, expected_value in expected.items():
        actual = proof[name]
        if partly and name in FIELDS_OF_ALL_RECORDS:
            continue
        if partly and name == "checks":
            yield from _check_faults(actual, expected_value)
        elif not (
            _includes(actual, expected_value)
            if name in PARTLY_RECORDED_FIELDS or partly
            else _equal_json(actual, expected_value)
        ):
            yield f"{name} is not what the records say"


def _equal_json(actual: Json, expected: Json) -> bool:
    """Whether both have the same JSON text: true is not 1."""
    return json.dumps(actual, sort_keys=True) == json.dumps(expected, sort_keys=True)


def _includes(actual: Json, expected: Json) -> bool:
    """Whether an object has all fields of the evidence, which need not have all of its."""
    if isinstance(actual, dict) and isinstance(expected, dict):
        return all(name in actual and _equal_json(actual[name], item) for name, item in expected.items())
    return _equal_json(actual, expected)


def _check_faults(actual: list[Proof], expected: list[Proof]) -> Iterator[str]:
    """A check without a shown record must be a withheld one."""
    known = {str(check["name"]): check for check in expected}
    for check in actual:
        name = str(check["name"])
        told_of_it = known.pop(name, None)
        if told_of_it is None and not check.get("withheld"):
            yield f"no record tells of the check {name[:100]!r}"
        elif told_of_it is not None and not _equal_json(_without_baseline(check), _without_baseline(told_of_it)):
            yield f"check {name[:100]!r} is not what the records say"
    yield from (f"the check {name[:100]!r} is missing, of which the records tell" for name in known)


def _without_baseline(check: Proof) -> Json:
    """A check without its baseline, whose record may be withheld."""
    return {name: item for name, item in check.items() if name not in ("before", "oldFailures", "newFailures")}


def _subject_faults(proof: Proof, exhibits: Exhibits) -> Iterator[str]:
    """The subject's commit must be named by a record."""
    subject, known, first = proof["subject"], set[str | None](), set[str | None]()
    for _, record in exhibits.values():
        match record:
            case ScmEnded(committed=committed):
                known.add(committed.commit)
            case Saved(snapshot=tree) | ChildWorkJoined(snapshot=tree) | UserChangesSaved(snapshot=tree):
                known |= {tree.id, tree.head}
            case RunBegan(snapshot=tree) | BaselineSaved(snapshot=tree):
                first |= {tree.id, tree.head}
            case _:
                pass
    records = proof["records"]
    chain = records["chain"]
    untold = any(chain[place][3] in SNAPSHOT_RECORDS for place in records["withheldRecords"])
    if subject["kind"] != "files" and not untold and subject["commit"] not in (known or first):
        yield "subject.commit is not what the records say"


# Where a proof to be verified comes from: a file or a run of this repository, and the commit that it speaks of.


# Commands that a proof from a file may run: those of its commit's settings. Others need consent.


SETTINGS, STORIES = ".ralph/settings.json", "ralph/tasks.json"
WITHHELD = "its command is withheld, and not in that commit's settings; ralph proof export has it, where the run was"
# Default settings of a guardrail.
GUARDRAIL_DEFAULTS: Any = default_values(GUARDRAIL_SCHEMA)


@value
class AllowedCommands:
    """Commands that the settings of a commit name. `settings` is the digest of its settings file, None where it has
    none.

    A rule is a command, the folder that it runs in, the exit code with which it passes, and what its output must
    contain and lack. `required` are the commands of its checks, `setup` those that prepare a checkout.
    """

    settings: str | None
    rules: tuple[tuple[str, str, int, str, str], ...] = ()
    required: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()

    def covers(self, check: AttestedCheck) -> bool:
        """Whether the settings name this command, in this folder, by this rule."""
        rule = check.rule
        key = (os.path.normpath(rule.folder), rule.success_code, rule.contains, rule.lacks)
        return check.command is not None and (check.command, *key) in self.rules

    def with_command(self, check: AttestedCheck) -> AttestedCheck:
        """The check with its command, where that is withheld and the settings have it."""
        if check.command is not None:
            return check
        command = next((one for one, *_ in self.rules if sha256_hex(one) == check.digest), None)
        return replace(check, command=command)


def read_allowed_commands(root: str, commit: str, environ: Mapping[str, str]) -> AllowedCommands:
    """The commands that this commit's settings name. They are not trusted: what cannot be read names nothing."""
    source = SourceRepository(root, environ)
    data = _read_committed_file(source, commit, SETTINGS)
    settings, stories = _parse_object(data), _parse_object(_read_committed_file(source, commit, STORIES))
    guardrails = tuple(_guardrails(settings.get("guardrails")))
    final = tuple(_texts(settings.get("finalChecks")))
    plain = (*final, *_texts(stories.get("verifyCommands")))
    rules = (*map(_command_key, guardrails), *((command, ".", 0, "", "") for command in plain))
    required = (*(how.command for how in guardrails), *final)
    return AllowedCommands(_digest(data), tuple(dict.fromkeys(rules)), required, tuple(_texts(settings.get("setup"))))


def _command_key(how: ExternalVerification) -> tuple[str, str, int, str, str]:
    return (
        how.command, os.path.normpath(how.folder), how.success_exit_code, how.output_contains, how.output_not_contains,
    )  # fmt: skip


def _read_committed_file(source: SourceRepository, commit: str, path: str) -> bytes | None:
    """A file of the commit; None where there is none. A link counts as none: it could lead out of the commit."""
    row = source.run("ls-tree", "-z", commit, "--", path).out
    if not row.startswith((b"100644 ", b"100755 ")):
        return None
    reply = source.run("cat-file", "blob", f"{commit}:{path}")
    if reply.code != 0:
        raise HarnessFailed(f"{path} of commit {commit} is not in this clone: {reply.said}")
    return reply.out


def _digest(data: bytes | None) -> str | None:
    return None if data is None else hashlib.sha256(data).hexdigest()


def _parse_object(data: bytes | None) -> dict[str, object]:
    text = decode_utf8(data) if data is not None and len(data) <= MAX_JSON_BYTES else UnusableFile("")
    found = parse_json(text).data if isinstance(text, str) else None
    return found if isinstance(found, dict) else {}


def _texts(data: object) -> Iterator[str]:
    yield from (one for one in data if isinstance(one, str)) if isinstance(data, list) else ()


def _guardrails(data: object) -> Iterator[ExternalVerification]:
    """Every command of the guardrails, also of multi-stage ones."""
    for item in data if isinstance(data, list) else ():
        if isinstance(item, dict):
            yield from _commands(item)


def _commands(item: dict[str, object]) -> Iterable[ExternalVerification]:
    try:
        (guardrail,) = parse_guardrails([{**GUARDRAIL_DEFAULTS, **item}])
        leaves = plan_checks(guardrail.name, guardrail_verification(guardrail)).specs
    except (TypeError, ValueError, KeyError, AttributeError):
        return ()  # no run could have begun with such settings
    return tuple(
        leaf.verification
        for leaf in leaves
        if isinstance(leaf.verification, ExternalVerification) and isinstance(leaf.verification.command, str)
    )


# Loading a proof: from a file that anybody may have written, or from a run of this repository.


MAX_MIB = 16
RUN_NOT_ENDED = "the run has not ended, so it has proved nothing yet"
PAGE_EDITED = "the page is not the one that its data make: somebody edited what people read, or the data"


@value
class ProofSource:
    """A proof, the project in which it is verified, and what is wrong with it already.

    One that is `ours` comes from this repository's own record: to verify it is consent to its commands. `why` says
    what it is instead of a proof. `notes` decide nothing.
    """

    root: str
    secrets: tuple[str, ...]
    proof: Proof
    ours: bool = False
    why: str = ""
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def concerns(self) -> list[str]:
        return [*(self.proof.get("outcome") or {}).get("concerns", ())]

    @property
    def caveats(self) -> list[str]:
        return [*self.proof.get("caveats", ())]


def is_proof_file(name: str) -> bool:
    """Whether an argument names a file, existing or not."""
    return "/" in name or name.endswith((".md", ".json")) or os.path.isfile(name)


def load_proof_file(path: str, folder: str | None, environ: Mapping[str, str]) -> ProofSource:
    """The proof in a file, which is not trusted."""
    found = read_bounded_file(path, MAX_MIB << 20)
    if not isinstance(found, bytes):
        raise Refused(
            f"{path} {found.why if isinstance(found, UnusableFile) else 'is not there; name an exported proof'}"
        )
    root, secrets = resolve_project_root(folder), find_environment_secrets(environ)
    try:
        text = found.decode("utf-8")
        proof = parse_proof(text)
    except (Refused, ValueError) as error:
        return ProofSource(root, secrets, {}, why=f"{path} is no proof: {_why_no_proof(error)}")
    faults = find_proof_faults(proof)
    alone = text.lstrip().startswith("{")
    if not faults and not alone and render_page(proof) != text:
        faults = (PAGE_EDITED,)
    return ProofSource(root, secrets, proof, faults=faults)


def load_proof_of_run(project: Project, name: str) -> ProofSource:
    """The proof of a run of this repository, and whether ledger and logs are intact."""
    ledger = project.ledger()
    try:
        row = find_run(ledger, name)
        broken = ledger.verify_chain(row.id)
        if broken:
            return ProofSource(project.root, project.secrets, {"run": row.id}, ours=True, faults=(broken,))
        if not ledger.run_end(row.id):
            return ProofSource(project.root, project.secrets, {"run": row.id}, True, RUN_NOT_ENDED)
        proof = build_run_proof(project, row, ledger)
    finally:
        ledger.close()
    altered, missing = _log_faults(project, row, proof)
    return ProofSource(project.root, project.secrets, proof, True, "", (*find_proof_faults(proof), *altered), missing)


def _why_no_proof(error: Exception) -> str:
    return "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error).removeprefix("it is no proof: ")


def _log_faults(project: Project, row: RunRow, proof: Proof) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Altered and missing logs of the checks."""
    kept, shown = os.path.join(project.store, "runs", row.id), public_run_folder(project, row)
    altered: list[str] = []
    missing: list[str] = []
    for name, digest, hidden in _recorded_logs(proof):
        for folder in (kept,) if hidden else (kept, shown):
            path = os.path.join(folder, name)
            now = _file_digest(path)
            if now is None:
                missing.append(f"the log {path} is gone")
            elif now != digest:
                altered.append(f"the log {path} is not as the check wrote it")
    return tuple(altered), tuple(missing)


def _recorded_logs(proof: Proof) -> Iterator[tuple[str, str, bool]]:
    """Name and digest of every command's log, and whether it was not copied. A judge has none."""
    for check in proof["checks"]:
        name, digest = str(check["log"]), str(check["outputDigest"])
        if name and digest and not check["judged"]:
            yield f"{os.path.basename(name)}.log", digest, check["hidden"] is True


def _file_digest(path: str) -> str | None:
    """The digest of a file; None where there is none. A link, a pipe or a device counts as none."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(file, "rb") as log:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None
        return hashlib.file_digest(log, "sha256").hexdigest()


# The commit with the tree of a proof.


HEAD = "HEAD"
MAX_ANCESTORS = 2000  # commits that are looked at by their trees
MAX_TREES_COMPARED = 100  # and by those without what is ours
NO_REPOSITORY = "there is no git repository here; go to a clone of the project, or name one with --project-dir"


@value
class ProofCommit:
    """The commit to check out, and the one whose settings apply."""

    commit: str
    settings: str
    notes: tuple[str, ...] = ()


def find_proof_commit(
    root: str, subject: ProofSubject, run: str, environ: Mapping[str, str]
) -> ProofCommit | VerificationResult:
    """A commit of this repository with the tree of the proof; else why there is none.

    A commit that only saves a tree has no `.ralph`: the settings are those of the commit below it. Whoever commits such
    a tree has them beside it.
    """
    if git_folders(root) is None:
        return VerificationResult(UNCHECKED, (NO_REPOSITORY,))
    source = SourceRepository(root, environ)
    tree = resolve_tree(root, subject.commit, environ)
    if tree == subject.tree:
        own = source.resolve(f"{subject.commit}:.ralph/settings.json")
        below = source.resolve(f"{subject.commit}^") if subject.kind == "tree" and own is None else None
        return ProofCommit(subject.commit, below or subject.commit)
    if tree is not None:
        what = f"commit {subject.commit} has the tree {tree}, not {subject.tree}, which the proof speaks of"
        return VerificationResult(DIFFERS, (what,))
    if other := _commit_with_tree(source, subject):
        return ProofCommit(other, other, (f"commit {subject.commit} is not here; {other} has the very same tree",))
    return VerificationResult(UNCHECKED, (_missing_commit_remedy(subject, run),))


def _commit_with_tree(source: SourceRepository, subject: ProofSubject) -> str:
    """A commit with that tree: HEAD of that time, or an ancestor of HEAD. Our own folder is ignored."""
    then = [subject.head] if subject.head and source.resolve(f"{subject.head}^{{commit}}") else []
    log = source.run("log", f"--max-count={MAX_ANCESTORS}", "--format=%H %T", *then, HEAD, "--").out.decode(
        "ascii", "replace"
    )
    rows = [row.split(" ") for row in log.split("\n") if row]
    found = (commit for commit, tree in rows if tree == subject.tree)
    near = (
        commit for commit, _ in rows[:MAX_TREES_COMPARED] if _tree_without_harness_files(source, commit) == subject.tree
    )
    return next(found, "") or next(near, "")


def _tree_without_harness_files(source: SourceRepository, revision: str) -> str:
    """The id of a commit's tree without our own files; nothing is written."""
    data, kept = source.run("cat-file", "tree", f"{revision}^{{tree}}").out, b""
    width = 32 if source.folders.algorithm == "sha256" else 20
    while data:
        end = data.find(b"\0") + 1 + width
        if data[:end].partition(b"\0")[0].partition(b" ")[2] not in OWN_NAMES:
            kept += data[:end]
        data = data[end:]
    return hashlib.new(source.folders.algorithm, b"tree %d\0%s" % (len(kept), kept)).hexdigest()


def _missing_commit_remedy(subject: ProofSubject, run: str) -> str:
    """The hint for a missing commit."""
    if subject.kind == "commit":
        fetch = f"git fetch REMOTE {subject.commit}, or git fetch --unshallow where the clone is shallow"
        return f"commit {subject.commit} is not in this repository; fetch it: {fetch}"
    number = subject.ref.rpartition("/")[2]
    branch = f"ralph branch {run} {number}" if number.isdigit() and run else "ralph branch"
    fetch = f"fetch it: git fetch REMOTE {subject.ref}:{subject.ref}; or " if subject.ref else ""
    return (
        f"the saved tree {subject.tree} (commit {subject.commit}) is not in this repository; {fetch}on the machine "
        f"where the run was make a branch of it, {branch}, and push that"
    )
