"""Evidence of a proof: the fields that single records of a run decide, and the ways to tamper that were open."""

from __future__ import annotations

from ralphproof.base.errors import LedgerBroken
from ralphproof.base.text import strip_terminal_codes, truncate
from ralphproof.base.value import TYPE_CHECKING, unpack
from ralphproof.engine.check import AlteredCheckInput, CheckReport, Finding
from ralphproof.engine.outcome import Aborted, Completed, Outcome
from ralphproof.engine.plan import Job
from ralphproof.engine.records import (
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
from ralphproof.engine.weakening import find_weakened_checks
from ralphproof.engine.workspace import Snapshot
from ralphproof.proof.schema import sha256_hex

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ralphproof.base.value import Json

    Shown = Mapping[int, tuple[float, Record]]  # by their place in the chain: when, and what


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


def tampering_risks(sandboxes: Sequence[Json], checks: Sequence[Mapping[str, Json]], protects: bool) -> Iterator[str]:
    """Each open way, in a sentence; and what was closed."""
    for sandbox in sandboxes:
        yield _sandbox_sentence(sandbox) if isinstance(sandbox, dict) else NO_SANDBOX
    commands = [check for check in checks if not check["judged"]]
    again = {check["command"] for check in commands if check["clean"]}
    if any(not check["clean"] and check["command"] not in again for check in commands if check["required"]):
        yield IN_PLACE
    elif again:
        yield CLEAN_CHECKOUT
    judges = [str(check["name"]) for check in checks if check["judged"]]
    if judges:
        yield JUDGED_BY_MODEL.format(", ".join(judges[:MAX_NAMED]))
    if not checks:
        yield NO_CHECKS
    elif not protects:
        yield TESTS_NOT_PROTECTED
    yield LEDGER_NOT_SIGNED


def _sandbox_sentence(sandbox: dict[str, Json]) -> str:
    name, strength = str(sandbox.get("name")), sandbox.get("strength")
    if strength == "strong":
        reach = _join_names(sandbox.get("allowHosts"))
        calls = f" It could call {reach}." if reach else " It could call nobody."
        return (
            f"The agent ran in the sandbox {name} (strong): it could write to the project's files, and not to this "
            f"record, to ralph or to anything else of the user's.{calls}"
        )
    if strength == "partial":
        weak = _join_names(sandbox.get("weak"))
        known = f" Known weak points: {weak}." if weak else ""
        return f"The agent ran in the sandbox {name}, which holds in part: what it leaves open was open.{known}"
    return NO_SANDBOX


def _join_names(data: Json) -> str:
    names = [str(item) for item in data] if isinstance(data, list | tuple) else []
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more


# Fields of a proof that its evidence alone decides.


MAX_LOG_CHARS = 3980  # of a check's output, the mark of what is cut aside
MAX_NAMES, MAX_NAME_CHARS, MAX_SENTENCE_CHARS = 200, 300, 1000
MACHINE_VERSIONS = ("python", "git", "system")
STRENGTHS = ("none", "partial", "strong")
TreeRecord = Saved | ChildWorkJoined | UserChangesSaved


def fields_from_records(shown: Shown) -> dict[str, Json]:
    """The fields of a proof that these records decide. Fields without a record are left out."""
    records = [record for _, record in sorted((place, record) for place, (_, record) in shown.items())]
    began = next((record for record in records if isinstance(record, RunBegan)), None)
    fields: dict[str, Json] = {}
    if began is not None:
        fields |= _fields_of_start(began, records)
    ends = [(at, record.outcome) for _, (at, record) in sorted(shown.items()) if isinstance(record, RunEnded)]
    if ends:
        fields |= {"ended": ends[-1][0], "outcome": outcome_json(ends[-1][1])}
    fields |= _fields_of_work(records, began)
    titles = [record.choice.task.title for record in records if _belongs_to_job(record)]  # type: ignore[union-attr]
    return fields | ({"task": {"title": clip_sentence(titles[-1])}} if titles and titles[-1] else {})


def _belongs_to_job(record: Record) -> bool:
    return isinstance(record, Picked) and isinstance(record.choice, Job)


def _fields_of_start(began: RunBegan, records: list[Record]) -> dict[str, Json]:
    labels, sandboxes = began.facts, list_sandboxes(began, records)
    return {
        "run": began.run,
        "began": began.at,
        "verifyIn": str(labels.get("verifyIn") or "workspace"),
        "setup": get_texts(labels.get("setup")),
        "settings": {"digest": str(labels.get("settingsDigest", ""))},
        "versions": {
            "ralph": str(labels.get("version", "")), "agent": str(labels.get("agent", "")),
            "agentVersion": get_text(labels.get("agentVersion")),
            **{name: str(labels[name]) for name in MACHINE_VERSIONS if name in labels},
        },
        "sandbox": sandboxes[0],
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


def outcome_json(outcome: Outcome) -> dict[str, Json]:
    """The outcome, without the agent's words."""
    done = isinstance(outcome, Completed)
    fields: dict[str, Json] = {
        "status": outcome.status,
        "proof": outcome.proof if isinstance(outcome, Completed) else None,
        "iterations": outcome.iterations,
        "costUSD": outcome.cost_usd,
        "durationSeconds": round(outcome.seconds, 3),
        "concerns": [clip_sentence(concern) for concern in outcome.concerns[:MAX_NAMES]]
        if isinstance(outcome, Completed)
        else [],
    }
    if done:
        return fields
    return fields | {"reason": outcome.reason if isinstance(outcome, Aborted) else "ERROR"}


def _fields_of_work(records: list[Record], began: RunBegan | None) -> dict[str, Json]:
    """The subject, and the results of the checks."""
    ended_checks = [record for record in records if isinstance(record, CheckEnded)]
    baseline = CheckReport(tuple(one.finding for one in ended_checks if not one.iteration))
    last = max((record.iteration for record in records if isinstance(record, Judged)), default=0)
    number = max((one.iteration for one in ended_checks), default=0) or last
    report = CheckReport(_latest_findings(ended_checks, number))
    checks = [check_json(finding, baseline) for finding in report.findings]
    fields: dict[str, Json] = {
        "checks": [*checks],
        "logs": {one.check: truncate(strip_terminal_codes(one.output), MAX_LOG_CHARS) for one in report.findings},
    }
    seen, final = judged_tree_record(records, number), judged_tree_record(records, last)
    if began is not None:
        sandboxes, protects = list_sandboxes(began, records), began.facts.get("protectTests") is True
        fields["tampering"] = [*tampering_risks(sandboxes, checks, protects)]
        fields["integrity"] = {
            "protectTests": protects,
            "mayChange": get_texts(began.facts.get("mayChange")),
            "altered": [altered_json(one) for one in _altered(records, last)[:MAX_NAMES]],
            "weaker": [clip_sentence(one.message) for one in find_weakened_checks(report, baseline)[:MAX_NAMES]],
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


def _subject(began: Snapshot, seen: Snapshot, final: Snapshot, commit: str | None) -> dict[str, Json]:
    return {
        "ref": final.ref, "head": commit or final.head, "base": began.head, "checked": seen.tree,
        "leftOut": clip_names(final.left_out),
    }  # fmt: skip


def check_json(finding: Finding, baseline: CheckReport) -> dict[str, Json]:
    """A check with its result and everything that is needed to run it again."""
    rule, before = finding.rule, baseline_finding(finding, baseline)
    shell = finding.rule is not None or finding.code is not None  # a function has a name alone
    command = finding.command if finding.command and shell and not finding.judged else None
    failing = set(before.tests.failing) if before and before.tests else set()
    now = finding.tests.failing if finding.tests else ()
    return {
        "name": finding.check,
        "command": command,
        "commandDigest": None if command is None else sha256_hex(command),
        "folder": rule.folder if rule else ".",
        "successCode": rule.success_code if rule else 0,
        "contains": rule.contains if rule else "",
        "lacks": rule.lacks if rule else "",
        "timeoutSeconds": rule.timeout_s if rule else 600.0,
        "clean": rule.clean if rule else False,
        "required": finding.required,
        "judged": finding.judged,
        "hidden": finding.hidden,
        "passed": finding.passed,
        "code": finding.code,
        "why": clip_sentence(finding.why),
        "seconds": round(finding.seconds, 3),
        "runs": finding.runs,
        "flaky": finding.flaky,
        "output": finding.digest,
        "log": finding.log.rpartition("/")[2],
        "tests": _tests(finding),
        "before": {"passed": before.passed, "failing": clip_names(sorted(failing))} if before else None,
        "oldFailures": clip_names(name for name in now if name in failing),
        "newFailures": clip_names(name for name in now if name not in failing),
    }


def _tests(finding: Finding) -> Json:
    if finding.tests is None:
        return None
    tests = finding.tests
    numbers = {"passed": tests.passed, "failed": tests.failed, "skipped": tests.skipped, "xfailed": tests.xfailed}
    return {"runner": tests.runner, **numbers}


def baseline_finding(finding: Finding, baseline: CheckReport) -> Finding | None:
    """The baseline result of a check; for one in a clean checkout, of the same command."""
    clean = finding.rule is not None and finding.rule.clean
    same = (one for one in baseline.findings if clean and finding.command and one.command == finding.command)
    return baseline.find(finding.check) or next(same, None)


def altered_json(altered: AlteredCheckInput) -> Json:
    """A changed file that decides over the checks."""
    return {
        "path": clip_sentence(altered.path),
        "what": clip_sentence(altered.what),
        "stops": altered.stops,
        "allowed": altered.allowed,
    }


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
    import json

    try:
        record = unpack(json.loads(data))
    except (ValueError, TypeError, RecursionError) as error:
        raise LedgerBroken(f"{place} cannot be read: {error}") from error
    if not isinstance(record, Record):
        raise LedgerBroken(f"{place} is no record that this version knows")
    return record
