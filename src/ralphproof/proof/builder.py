"""Building a proof from a run's records."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ralphproof.base.errors import HarnessFailed, LedgerBroken
from ralphproof.base.text import strip_escapes, truncate
from ralphproof.base.value import Json, replace, unpack, value
from ralphproof.engine.check import AlteredCheckInput, CheckReport, Finding, PassRule
from ralphproof.engine.outcome import (
    Completed,
    Failed,
    Outcome,
    Passed,
    Retry,
    SentBack,
    Verdict,
    finding_json,
    outcome_fields,
    published,
    sandbox_json,
)
from ralphproof.engine.plan import History, Iteration, Job
from ralphproof.engine.records import (
    BaselineSaved,
    CheckEnded,
    ChildWorkJoined,
    Judged,
    Picked,
    Record,
    Resumed,
    RunBegan,
    RunEnded,
    Saved,
    ScmEnded,
    UserChangesSaved,
)
from ralphproof.engine.state import State, build_state
from ralphproof.engine.weakening import find_weakened_checks
from ralphproof.engine.workspace import Snapshot, Workspace
from ralphproof.proof.schema import (
    TYPE,
    VERSION,
    Proof,
    join_names,
    proof_digest,
    sha256_hex,
    to_json_types,
)
from ralphproof.store.ledger import RunRow, SqliteLedger
from ralphproof.store.project import Project
from ralphproof.store.run_folder import RunFolder
from ralphproof.stories import schema
from ralphproof.views.published_json import log_name, tests_json, time_json
from ralphproof.views.snapshots import SavedWorkspace
from ralphproof.views.timeline import finding_state
from ralphproof.workspace.git_objects import ObjectMissing
from ralphproof.workspace.git_workspace import GitWorkspace

Shown = Mapping[int, tuple[float, Record]]  # by their place in the chain: when, and what
Row = tuple[str, int, int, str, str, float, str, str]  # run, iteration, turn, step, kind, at, data, digest


# Ways to tamper with a proof, from the sandbox and how checks were run.


MAX_NAMED = 10
NO_SANDBOX = (
    "The agent ran without a sandbox as the same user: it could have changed anything of that user's, this record too."
)
IN_PLACE = "Checks ran in the project's folder: ignored files and what the agent left there could have influenced them."
CLEAN_CHECKOUT = (
    "The last checks ran in a clean checkout of what would be committed: ignored and left-over files had no part in it."
)
TESTS_NOT_PROTECTED = (
    "Tests were not protected: the agent could change them. What changed of that which decides over the checks is part "
    "of the proof."
)
LEDGER_NOT_SIGNED = (
    "The record lies outside the repository. Each entry is bound to the one before it by a digest, and nothing is "
    "signed: whoever could write as that user could have written all of it anew."
)
JUDGED_BY_MODEL = "A model's judgement can be swayed by the work that it reads: {}."
NO_CHECKS = "No check looked at the work: nothing but the agent's own word could say that it is done."


def tampering_risks(sandboxes: Sequence[Json], checks: Sequence[Proof], protects: bool) -> Iterator[str]:
    """Each open way, in a sentence; and what was closed."""
    for sandbox in sandboxes:
        yield _sandbox_sentence(sandbox) if isinstance(sandbox, dict) else NO_SANDBOX
    commands = [check for check in checks if not check["judged"]]
    again = {check["command"] for check in commands if check["rule"]["clean"]}
    if any(not check["rule"]["clean"] and check["command"] not in again for check in commands if check["required"]):
        yield IN_PLACE
    elif again:
        yield CLEAN_CHECKOUT
    judges = [check["name"] for check in checks if check["judged"]]
    if judges:
        yield JUDGED_BY_MODEL.format(join_names(judges))
    if not checks:
        yield NO_CHECKS
    elif not protects:
        yield TESTS_NOT_PROTECTED
    yield LEDGER_NOT_SIGNED


def _sandbox_sentence(sandbox: Proof) -> str:
    name, strength = str(sandbox.get("name")), sandbox.get("strength")
    if strength == "strong":
        reach = join_names([*map(str, sandbox.get("allowHosts") or ())])
        calls = f" It could call {reach}." if reach else " It could call nobody."
        return (
            f"The agent ran in the sandbox {name} (strong): it could write to the project's files, and not to this "
            f"record, to ralph or to anything else of the user's.{calls}"
        )
    if strength == "partial":
        weak = join_names([*map(str, sandbox.get("weak") or ())])
        known = f" Known weak points: {weak}." if weak else ""
        return f"The agent ran in the sandbox {name}, which holds in part: what it leaves open was open.{known}"
    return NO_SANDBOX


# Fields of a proof that its evidence alone decides.


MAX_LOG_CHARS = 3980  # of a check's output, the mark of what is cut aside
MAX_NAMES, MAX_NAME_CHARS, MAX_SENTENCE_CHARS = 200, 300, 1000
MACHINE_VERSIONS = ("python", "git", "system")
STRENGTHS = ("none", "partial", "strong")
TreeRecord = Saved | ChildWorkJoined | UserChangesSaved


def fields_from_records(shown: Shown) -> Proof:
    """The fields of a proof that these records decide. Fields without a record are left out."""
    records = [record for _, record in sorted((place, record) for place, (_, record) in shown.items())]
    began = next((record for record in records if isinstance(record, RunBegan)), None)
    fields: Proof = {}
    if began is not None:
        fields |= _fields_of_start(began, records)
    ends = [(at, record.outcome) for _, (at, record) in sorted(shown.items()) if isinstance(record, RunEnded)]
    if ends:
        fields |= {"endedAt": time_json(ends[-1][0]), "outcome": outcome_json(ends[-1][1])}
    fields |= _fields_of_work(records, began)
    picks = [record.choice for record in records if isinstance(record, Picked)]
    titles = [job.task.title for job in picks if isinstance(job, Job)]
    return fields | ({"title": clip_sentence(titles[-1])} if titles and titles[-1] else {})


def _fields_of_start(began: RunBegan, records: list[Record]) -> Proof:
    labels, sandboxes = began.facts, list_sandboxes(began, records)
    return {
        "run": began.run,
        "startedAt": time_json(began.at),
        "verifyIn": str(labels.get("verifyIn") or "workspace"),
        "setup": get_texts(labels.get("setup")),
        "settingsDigest": str(labels.get("settingsDigest", "")),
        "versions": {
            "ralph": str(labels.get("version", "")), "agent": str(labels.get("agent", "")),
            "agentVersion": get_text(labels.get("agentVersion")),
            **{name: str(labels[name]) for name in MACHINE_VERSIONS if name in labels},
        },
        "sandbox": _sandbox_json(sandboxes[0]),
    }  # fmt: skip


def list_sandboxes(began: RunBegan, records: Iterable[Record]) -> list[Json]:
    """The sandboxes of a run, one for each process that ran it, the weakest first."""
    values = [began.facts.get("sandbox"), *(record.sandbox for record in records if isinstance(record, Resumed))]
    sandboxes = [sandbox for sandbox in values if isinstance(sandbox, dict)] or [
        {"name": "unknown", "strength": "none"}
    ]
    different = [sandbox for place, sandbox in enumerate(sandboxes) if sandbox not in sandboxes[:place]]
    return [*sorted(different, key=lambda sandbox: _rank(sandbox.get("strength")))]


def _rank(strength: Json) -> int:
    return STRENGTHS.index(strength) if isinstance(strength, str) and strength in STRENGTHS else 0


SANDBOX_FIELDS = {
    "weaknesses": "weak", "resourceLimits": "limits", "allowHosts": "allowHosts",
    "allowLocalPorts": "allowLocalPorts", "readPaths": "readPaths",
}  # fmt: skip


def _sandbox_json(sandbox: Json) -> Json:
    known: Proof = sandbox if isinstance(sandbox, dict) else {}
    more = {name: known[fact] for name, fact in SANDBOX_FIELDS.items() if fact in known}
    return {**sandbox_json({"strength": "none", **known}), **more}


def outcome_json(outcome: Outcome) -> Proof:
    """The outcome, without the run's id and the agent's words."""
    concerns = outcome.concerns if isinstance(outcome, Completed) else ()
    words = ("output", "lastOutput", "details", "error")
    told = {name: item for name, item in outcome_fields(outcome).items() if name not in words}
    told |= {"reason": "ERROR"} if isinstance(outcome, Failed) else {}
    return published("outcome", {
        "proof": None, **told, "concerns": [clip_sentence(concern) for concern in concerns[:MAX_NAMES]],
    })  # fmt: skip


def _fields_of_work(records: list[Record], began: RunBegan | None) -> Proof:
    """The subject, and the results of the checks."""
    ended_checks = [record for record in records if isinstance(record, CheckEnded)]
    baseline = CheckReport(tuple(one.finding for one in ended_checks if not one.iteration))
    last = max((record.iteration for record in records if isinstance(record, Judged)), default=0)
    number = max((one.iteration for one in ended_checks), default=0) or last
    report = CheckReport(_latest_findings(ended_checks, number))
    checks = [check_json(finding, baseline) for finding in report.findings]
    fields: Proof = {"checks": [*checks]}
    seen, final = judged_tree_record(records, number), judged_tree_record(records, last)
    if began is not None:
        sandboxes, protects = list_sandboxes(began, records), began.facts.get("protectTests") is True
        fields["caveats"] = [*tampering_risks(sandboxes, checks, protects)]
        altered, weaker = _altered(records, last), find_weakened_checks(report, baseline)
        fields |= {
            "protectTests": protects,
            "mayChange": get_texts(began.facts.get("mayChange")),
            "findings": [
                *(altered_json(one) for one in altered[:MAX_NAMES]),
                *(finding_json("weakerCheck", clip_sentence(one.message)) for one in weaker[:MAX_NAMES]),
            ],
        }
    if began is not None and seen is not None and final is not None:
        fields["subject"] = _subject(began.snapshot, seen.snapshot, final.snapshot, _commit(records, final))
    return fields


def _latest_findings(ended_checks: list[CheckEnded], number: int) -> tuple[Finding, ...]:
    """The findings of the last round of checks: earlier rounds saw another tree."""
    current = [record for record in ended_checks if record.iteration == number and number]
    last = max(((record.turn, record.round) for record in current), default=None)
    return tuple(record.finding for record in current if (record.turn, record.round) == last)


def judged_tree_record(records: Iterable[Record], number: int) -> TreeRecord | None:
    """The record of the tree that an iteration was judged by."""
    tree_record: TreeRecord | None = None
    latest: TreeRecord | None = None
    for record in records:
        match record:
            case Saved(iteration) | ChildWorkJoined(iteration) if iteration == number:
                latest = record
            case UserChangesSaved(iteration, paths=paths) if iteration == number and paths and latest:
                latest = record
            case Judged(iteration) if iteration == number:
                tree_record = latest
            case _:
                pass
    return tree_record or latest


def _altered(records: list[Record], number: int) -> tuple[AlteredCheckInput, ...]:
    saves = [record for record in records if isinstance(record, Saved | ChildWorkJoined) and record.iteration == number]
    return saves[-1].altered if saves else ()


def _commit(records: list[Record], final: TreeRecord) -> str | None:
    """The SCM's commit after this save."""
    after = records[records.index(final) :]
    commits = [record.committed.commit for record in after if isinstance(record, ScmEnded)]
    return commits[-1] if commits else None


def _subject(began: Snapshot, seen: Snapshot, final: Snapshot, commit: str | None) -> Proof:
    return {
        "ref": final.ref, "head": commit or final.head, "base": began.head, "checked": seen.tree,
        "leftOut": clip_names(final.left_out),
    }  # fmt: skip


def check_json(finding: Finding, baseline: CheckReport) -> Proof:
    """A check with its result and everything that is needed to run it again."""
    before = baseline_finding(finding, baseline)
    shell = finding.rule is not None or finding.code is not None  # a function has a name alone
    command = finding.command if finding.command and shell and not finding.judged else None
    failing = set(before.tests.failing) if before and before.tests else set()
    now = finding.tests.failing if finding.tests else ()
    return published("check", {
        "name": finding.check, "command": command, "state": finding_state(finding), "passed": finding.passed,
        "required": finding.required, "judged": finding.judged, "hidden": finding.hidden, "exitCode": finding.code,
        "exitReason": clip_sentence(finding.why), "durationSeconds": round(finding.seconds, 3),
        "attempts": finding.runs, "failedAttempts": finding.flaky, "log": log_name(finding.log),
        "output": truncate(strip_escapes(finding.output), MAX_LOG_CHARS), "outputDigest": finding.digest,
        "tests": tests_json(finding.tests), "commandDigest": None if command is None else sha256_hex(command),
        "rule": _rule_json(finding.rule or PassRule()),
        "before": published("baselineResult", {
            "passed": before.passed, "failing": clip_names(sorted(failing)),
        }) if before else None,
        "oldFailures": clip_names(name for name in now if name in failing),
        "newFailures": clip_names(name for name in now if name not in failing),
    })  # fmt: skip


def _rule_json(rule: PassRule) -> Proof:
    return published("passRule", {
        "folder": rule.folder, "successCode": rule.success_code, "contains": rule.contains, "lacks": rule.lacks,
        "timeoutSeconds": rule.timeout_s, "clean": rule.clean,
    })  # fmt: skip


def baseline_finding(finding: Finding, baseline: CheckReport) -> Finding | None:
    """The baseline result of a check; for one in a clean checkout, of the same command."""
    clean = finding.rule is not None and finding.rule.clean
    same = (one for one in baseline.findings if clean and finding.command and one.command == finding.command)
    return baseline.find(finding.check) or next(same, None)


def altered_json(altered: AlteredCheckInput) -> Json:
    """A changed file that decides over the checks."""
    message, path = clip_sentence(altered.message), clip_sentence(altered.path)
    return finding_json("checkInput", message, path, altered.stops, altered.allowed)


def clip_names(names: Iterable[str]) -> list[Json]:
    """Names, limited in number and length."""
    return [truncate(name, MAX_NAME_CHARS, "head") for name, _ in zip(names, range(MAX_NAMES), strict=False)]


def clip_sentence(text: str) -> str:
    """A sentence, limited in length."""
    return truncate(text, MAX_SENTENCE_CHARS, "head")


def get_texts(data: Json) -> list[Json]:
    """The texts of a list."""
    return [str(item) for item in data] if isinstance(data, list | tuple) else []


def get_text(data: Json) -> str | None:
    return None if data is None else str(data)


def parse_record(data: str, place: str) -> Record:
    """The record behind its JSON; raises LedgerBroken."""
    try:
        record = unpack(json.loads(data))
    except (ValueError, TypeError, RecursionError) as error:
        raise LedgerBroken(f"{place} cannot be read: {error}") from error
    if not isinstance(record, Record):
        raise LedgerBroken(f"{place} is no record that this version knows")
    return record


# Building a proof from the records of a run, with the reviews of its work.


# Reviews: judges, stages that only look, and the reviews of stories.


MAX_REVIEWS = 100  # the last ones
MAX_REVIEW_CHARS = 1000


def collect_reviews(records: Iterable[Record], history: History) -> list[Proof]:
    """The reviews of a run, oldest first."""
    known = {facts.number: facts for facts in history.iterations}
    reviews: list[Proof] = []
    for record in records:
        if isinstance(record, Judged) and (facts := known.get(record.iteration)):
            reviews += [_judge_review(facts.number, finding) for finding in facts.report.findings if finding.judged]
            reviews += _stage_review(facts.number, facts.job, record.verdict)
        elif isinstance(record, RunEnded):
            reviews += _story_reviews(record)
    return reviews[-MAX_REVIEWS:]


def _judge_review(number: int, finding: Finding) -> Proof:
    answered = "no answer" if finding.errored else "passed" if finding.passed else "failed"
    why = finding.output or ("" if finding.why == "exit" else finding.why)
    return _review_json(f"judge {finding.check}, iteration {number}", answered, why)


def _stage_review(number: int, job: Job, verdict: Verdict) -> Iterator[Proof]:
    """The verdict of a stage that changes nothing; its findings are in the feedback that it sent back."""
    if job.stage.edits and not job.stage.looks and job.stage.name != schema.REVIEW:
        return
    of = f" of {job.task.title or job.task.id}" if job.task.title or job.task.id else ""
    who = f"stage {job.stage.name}{of}, iteration {number}"
    match verdict:
        case Passed():
            yield _review_json(who, "passed", "")
        case SentBack(reopened, feedback):
            yield _review_json(who, "sent back", "\n".join((f"to {', '.join(reopened)}", *feedback.notes)))
        case Retry(feedback):
            yield _review_json(who, "undecided", "\n".join(feedback.notes))
        case _:
            yield _review_json(who, type(verdict).__name__.lower(), "")


def _story_reviews(record: RunEnded) -> Iterator[Proof]:
    for story in record.metrics.reviewed if record.metrics else ():
        capped = "approved only because it had been reviewed so often; " if story.capped else ""
        requests = "".join(f"\n{what}" for what in story.found)
        yield _review_json(
            f"story {story.story} {story.title}".strip(), story.status, f"{capped}reviews: {story.reviews}{requests}"
        )


def _review_json(who: str, verdict: str, what: str) -> Proof:
    return published("review", {
        "reviewer": truncate(who, MAX_REVIEW_CHARS, "head"), "result": verdict,
        "text": truncate(what, MAX_REVIEW_CHARS, "head"),
    })  # fmt: skip


# The proof as one JSON object, from the records.


HELD_OUT_NAME = "held-out check {}"
MAX_RECORD_CHARS = 1 << 20  # of a record: one that names every file of a large tree is not shown


@value
class WorkspaceSubject:
    """The subject of a proof: a commit, its tree, and the paths that differ from what was checked.

    `kind` is commit, for one in the user's history, tree, for one that only saves, or files.
    """

    kind: str
    commit: str | None = None
    tree: str | None = None
    differs: tuple[str, ...] = ()


@value
class RecordedRun:
    """The rows of a run in the ledger, their records, and the state after them."""

    rows: tuple[Row, ...]
    records: tuple[Record, ...]
    state: State

    @staticmethod
    def of(rows: tuple[Row, ...]) -> RecordedRun:
        """Parse these rows; raises LedgerBroken."""
        records = tuple(parse_record(row[6], f"{row[3]} of run {row[0]}") for row in rows)
        return RecordedRun(rows, records, build_state(records))


@value
class ProofInputs:
    """The inputs of a proof: the recorded run, and facts from repository and machine."""

    past: RecordedRun
    project: str
    subject: WorkspaceSubject
    settings_file: str | None = None
    versions: dict[str, str] = {}  # noqa: RUF012 (never changed)
    title: str = ""  # for a task that has none of its own


def shown_iteration(state: State) -> Iteration | None:
    """The iteration whose checks are shown: the last judged one with findings, else the last judged one."""
    past = state.history.iterations
    return next((iteration for iteration in reversed(past) if iteration.report.findings), past[-1] if past else None)


def final_snapshot(state: State) -> Snapshot:
    """The snapshot that was last saved and judged."""
    return state.history.latest.snapshot if state.history.iterations else state.trees.run_start


def build_proof(facts: ProofInputs, mask: Callable[[str], str] = str) -> Proof:
    """The proof of a run; of one that was not completed, what is known."""
    rows, records, state = facts.past.rows, facts.past.records, facts.past.state
    exhibits = {place: (rows[place][5], records[place]) for place in _evidence_places(records, state)}
    fields, subject = fields_from_records(exhibits), facts.subject
    place: Proof = {
        "kind": subject.kind, "commit": subject.commit, "tree": subject.tree, "differs": clip_names(subject.differs),
        "ref": None, "head": None, "base": None, "checked": None, "leftOut": [],
    }  # fmt: skip
    proof: Proof = {
        **_EMPTY_FIELDS, **fields,
        "v": VERSION, "type": TYPE, "run": state.run.id, "project": facts.project,
        "title": fields.get("title", facts.title), "promptDigest": state.agent.prompt_digest,
        "outcome": {**fields["outcome"], "run": state.run.id} if "outcome" in fields else None,
        "subject": published("subject", place | fields.get("subject", {})),
        "settingsFileDigest": facts.settings_file,
        "versions": {**facts.versions, **fields.get("versions", {})},
        "reviews": [*collect_reviews(records, state.history)],
    }  # fmt: skip
    unshown = _withheld_places(rows, exhibits, mask)
    closed = {record.finding.check for place in unshown if isinstance(record := records[place], CheckEnded)}
    proof["checks"] = [{**check, "withheld": True} if check["name"] in closed else check for check in proof["checks"]]
    masked = _mask_json(to_json_types(proof), mask)
    sealed = {**masked, "records": _chain_json(rows, exhibits, unshown, mask)}
    return sealed | {"digest": proof_digest(sealed)}


_EMPTY_FIELDS: Proof = {
    "startedAt": time_json(0.0), "endedAt": None, "outcome": None, "checks": [], "verifyIn": "workspace", "setup": [],
    "caveats": [], "protectTests": False, "mayChange": [], "findings": [], "settingsDigest": "", "sandbox": None,
}  # fmt: skip


def _evidence_places(records: tuple[Record, ...], state: State) -> list[int]:
    """The positions of the records that the proof is read from."""
    shown, past = shown_iteration(state), state.history.iterations
    numbers = {shown.number, past[-1].number} if shown else set()
    last: dict[type, int] = {type(record): place for place, record in enumerate(records)}
    chosen = {last[kind] for kind in (Judged, ScmEnded, RunEnded) if kind in last}
    for place, record in enumerate(records):
        match record:
            case RunBegan() | BaselineSaved() | Resumed() | CheckEnded(iteration=0):
                chosen.add(place)
            case CheckEnded(number) if shown and number == shown.number:
                chosen.add(place)
            case Saved(number) | ChildWorkJoined(number) | UserChangesSaved(number) if number in numbers:
                chosen.add(place)
            case Judged(number) if number in numbers:
                chosen.add(place)
            case Picked(number) if number == max(numbers, default=0):
                chosen.add(place)
            case _:
                pass
    return sorted(chosen)


def _withheld_places(rows: tuple[Row, ...], exhibits: Iterable[int], mask: Callable[[str], str]) -> list[int]:
    """Records that cannot be shown: they hold a secret that was not known then, or are too large."""

    def shown(data: str, kind: str) -> bool:
        record = json.loads(data)
        return (len(data) <= MAX_RECORD_CHARS or kind == "CheckEnded") and _mask_json(record, mask) == record

    return [place for place in exhibits if not shown(rows[place][6], rows[place][4])]


def _chain_json(
    rows: tuple[Row, ...], exhibits: Iterable[int], unshown: list[int], mask: Callable[[str], str]
) -> Proof:
    """The chain of digests, and the text of the shown records."""
    chain: list[Json] = [[row[1], row[2], mask(row[3]), row[4], row[5], row[7]] for row in rows]
    return published("records", {
        "chain": chain, "evidence": {str(place): rows[place][6] for place in exhibits if place not in unshown},
        "withheldRecords": [*unshown], "count": len(rows), "lastDigest": rows[-1][7] if rows else "",
    })  # fmt: skip


def redact_held_out(proof: Proof) -> Proof:
    """The proof without the content of held-out checks, for places that agents can read."""
    known = proof["checks"]
    hidden = [check["name"] for check in known if check["hidden"]]
    new_names = {name: HELD_OUT_NAME.format(number) for number, name in enumerate(hidden, 1)}
    records, evidence = proof["records"], proof["records"]["evidence"]
    revealing = {int(place) for place, data in evidence.items() if _reveals_held_out(json.loads(data), hidden)}
    open_evidence: Proof = {place: data for place, data in evidence.items() if int(place) not in revealing}
    open_part: Proof = {
        **proof,
        "checks": [_redact_check(check) if check["hidden"] else check for check in known],
        "records": {**records, "evidence": {}, "chain": _without_check_names(records["chain"], set(open_evidence))},
    }
    redacted: Proof = _mask_json(open_part, lambda text: _rename_checks(text, new_names))
    withheld = sorted({*revealing, *records["withheldRecords"]})
    redacted["records"] |= {"evidence": open_evidence, "withheldRecords": withheld}
    return redacted | {"digest": proof_digest(redacted)}


def _without_check_names(chain: list[list[Any]], shown: set[str]) -> list[list[Any]]:
    """The chain without the names of checks, but for those whose record is shown."""
    return [
        [*row[:2], row[3], *row[3:]] if row[3].startswith("Check") and str(place) not in shown else row
        for place, row in enumerate(chain)
    ]


def _redact_check(check: Proof) -> Proof:
    rule, tests = check["rule"], check["tests"]
    return {
        **check, "command": None, "commandDigest": None, "output": "", "outputDigest": "", "log": "",
        "exitReason": "", "before": None, "oldFailures": [], "newFailures": [], "withheld": True,
        "rule": {**rule, "contains": "", "lacks": ""}, "tests": {**tests, "failing": []} if tests else None,
    }  # fmt: skip


def _reveals_held_out(data: Json, hidden: list[str]) -> bool:
    """Whether a record reveals a held-out check."""
    if isinstance(data, str):
        return any(name in data for name in hidden)
    if isinstance(data, dict):
        return data.get("hidden") is True or any(_reveals_held_out(item, hidden) for item in data.values())
    return isinstance(data, list) and any(_reveals_held_out(item, hidden) for item in data)


def _rename_checks(text: str, called: dict[str, str]) -> str:
    for name, other in called.items():
        text = text.replace(name, other)
    return text


def _mask_json(data: Any, mask: Callable[[str], str]) -> Any:
    if isinstance(data, str):
        return mask(data)
    if isinstance(data, list):
        return [_mask_json(item, mask) for item in data]
    return {mask(name): _mask_json(item, mask) for name, item in data.items()} if isinstance(data, dict) else data


# The proof of a run in this repository.


SETTINGS_FILE = ".ralph/settings.json"
ITERATION_LINE = re.compile(r"Iteration \d+.*")
TITLE_CHARS = 80
OWN_PREFIXES = (".ralph/", ".ralph-active")  # no save holds them, and no check's work is in them


def build_run_proof(project: Project, row: RunRow, ledger: SqliteLedger) -> Proof:
    """The proof of a run of this repository, which is only read; raises where the ledger is damaged.

    Of a run that was not completed, what is known.
    """
    began = ledger.records_of_kind(row.id, "RunBegan")
    kind = str(began[0].facts.get("workspace", "")) if began and isinstance(began[0], RunBegan) else ""
    with SavedWorkspace(project, row, kind, own_folder=True) as saved:
        return build_proof_in_workspace(project, row.id, ledger, saved.workspace)


def build_proof_in_workspace(project: Project, run: str, ledger: SqliteLedger, workspace: Workspace) -> Proof:
    """The proof of a run with an open workspace."""
    broken = ledger.verify_chain(run)
    if broken:
        raise LedgerBroken(f"{broken}: nothing is proved by it")
    past = RecordedRun.of(ledger.chain(run))
    state = past.state
    place = str(state.run.facts.get("directory") or project.root)
    subject = (
        _git_subject(workspace, state) if isinstance(workspace, GitWorkspace) else _plain_subject(final_snapshot(state))
    )
    facts = ProofInputs(
        past, os.path.basename(place), subject, _settings_digest(workspace, subject, final_snapshot(state)),
        _machine_versions(workspace),
        _first_line(RunFolder(project.root, run, project.store).read_prompt("prompt_001") or ""),
    )  # fmt: skip
    return build_proof(facts, project.mask)


def _first_line(prompt: str) -> str:
    """A title for a task without one: the beginning of its first prompt, without the iteration line."""
    lines = (line.strip().lstrip("#").strip() for line in prompt.split("\n"))
    return next((line for line in lines if line and not ITERATION_LINE.fullmatch(line)), "")[:TITLE_CHARS]


def _plain_subject(saved: Snapshot) -> WorkspaceSubject:
    """Without git the tree has a digest only."""
    return WorkspaceSubject("files", None, saved.tree)


def _git_subject(git: GitWorkspace, state: State) -> WorkspaceSubject:
    """The SCM's commit, or HEAD where it has the checked tree, or else the commit that saves the tree."""
    saved, commit = final_snapshot(state), state.scm.committed.commit
    if commit and not state.scm.uncommitted and (differs := differing_paths(git, commit, saved)) is not None:
        return WorkspaceSubject("commit", commit, _tree_of_commit(git, commit), differs)
    if saved.head and differing_paths(git, saved.head, saved) == ():
        return WorkspaceSubject("commit", saved.head, _tree_of_commit(git, saved.head))
    return WorkspaceSubject("tree", saved.id, saved.tree)


def _tree_of_commit(git: GitWorkspace, commit: str) -> str | None:
    try:
        return git.commits.header(commit, b"tree ")[0]
    except (ObjectMissing, IndexError):
        return None


def differing_paths(git: GitWorkspace, commit: str, saved: Snapshot) -> tuple[str, ...] | None:
    """The paths in which a commit differs from a snapshot; files that were too large to be saved are unknown.

    None where one of them is missing or cannot be read.
    """
    try:
        paths = git.uncommitted_paths(replace(saved, head=commit))
    except HarnessFailed:
        return None
    return tuple(path for path in paths if not path.startswith(OWN_PREFIXES) and path not in saved.left_out)


def _settings_digest(workspace: Workspace, subject: WorkspaceSubject, saved: Snapshot) -> str | None:
    """The digest of the settings file of the commit; for a saved tree, which has none, of the commit below it."""
    commit = saved.head if subject.kind == "tree" else subject.commit
    content = workspace.content(Snapshot(commit, subject.tree), SETTINGS_FILE) if commit else None
    return None if content is None else hashlib.sha256(content).hexdigest()


def _machine_versions(workspace: Workspace) -> dict[str, str]:
    """Versions on this machine, for what the records do not tell."""
    system = os.uname()
    versions = {
        "python": ".".join(map(str, sys.version_info[:3])),
        "system": f"{system.sysname} {system.release} {system.machine}",
        "git": "",
    }
    if isinstance(workspace, GitWorkspace):
        output = workspace.commits.run("version").out.decode("utf-8", "replace")
        versions["git"] = output.removeprefix("git version ").strip()[:100]
    return versions
