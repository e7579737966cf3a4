"""What single records of a run say for themselves: all of a proof that can be read from its evidence alone."""

from __future__ import annotations

from ralphproof.check import Finding, Report, clip
from ralphproof.errors import LedgerBroken
from ralphproof.fingerprint import plain
from ralphproof.pin import Altered
from ralphproof.proof_shape import sha256
from ralphproof.record import (
    CheckEnded,
    Joined,
    Judged,
    Picked,
    Record,
    Regained,
    Resumed,
    RunBegan,
    RunEnded,
    Saved,
    ScmEnded,
)
from ralphproof.stage import Job
from ralphproof.tampering import tampering
from ralphproof.value import TYPE_CHECKING, unpack
from ralphproof.verdict import Aborted, Completed, Outcome
from ralphproof.weakening import weaker
from ralphproof.workspace import Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ralphproof.value import Json

    Shown = Mapping[int, tuple[float, Record]]  # by their place in the chain: when, and what

LOG_CHARS = 3980  # of a check's output, the mark of what is cut aside
NAMES, NAME_CHARS, SENTENCE_CHARS = 200, 300, 1000
MACHINE = ("python", "git", "system")
WEAKEST = ("none", "partial", "strong")
Looked = Saved | Joined | Regained


def testimony(shown: Shown) -> dict[str, Json]:
    """The fields of a proof that these records decide, in their places. What no record tells of is left out."""
    records = [record for _, record in sorted((place, record) for place, (_, record) in shown.items())]
    began = next((record for record in records if isinstance(record, RunBegan)), None)
    found: dict[str, Json] = {}
    if began is not None:
        found |= _beginning(began, records)
    ends = [(at, record.outcome) for _, (at, record) in sorted(shown.items()) if isinstance(record, RunEnded)]
    if ends:
        found |= {"ended": ends[-1][0], "outcome": outcome_told(ends[-1][1])}
    found |= _work(records, began)
    titles = [record.choice.task.title for record in records if _of_job(record)]  # type: ignore[union-attr]
    return found | ({"task": {"title": sentence(titles[-1])}} if titles and titles[-1] else {})


def _of_job(record: Record) -> bool:
    return isinstance(record, Picked) and isinstance(record.choice, Job)


def _beginning(began: RunBegan, records: list[Record]) -> dict[str, Json]:
    labels, held = began.facts, sandboxes(began, records)
    return {
        "run": began.run,
        "began": began.at,
        "verifyIn": str(labels.get("verifyIn") or "workspace"),
        "setup": texts(labels.get("setup")),
        "settings": {"digest": str(labels.get("settingsDigest", ""))},
        "versions": {
            "ralph": str(labels.get("version", "")), "agent": str(labels.get("agent", "")),
            "agentVersion": word(labels.get("agentVersion")),
            **{name: str(labels[name]) for name in MACHINE if name in labels},
        },
        "sandbox": held[0],
    }  # fmt: skip


def sandboxes(began: RunBegan, records: Iterable[Record]) -> list[Json]:
    """What held the run, each time that a process took it up, the weakest first."""
    told = [began.facts.get("sandbox"), *(record.sandbox for record in records if isinstance(record, Resumed))]
    held = [one for one in told if isinstance(one, dict)] or [{"name": "unknown", "strength": "none"}]
    different = [one for place, one in enumerate(held) if one not in held[:place]]
    return [*sorted(different, key=lambda one: _rank(one.get("strength")))]


def _rank(strength: Json) -> int:
    return WEAKEST.index(strength) if isinstance(strength, str) and strength in WEAKEST else 0


def outcome_told(outcome: Outcome) -> dict[str, Json]:
    """How the run ended, without the agent's words."""
    done = isinstance(outcome, Completed)
    told: dict[str, Json] = {
        "status": outcome.status,
        "proof": outcome.proof if isinstance(outcome, Completed) else None,
        "iterations": outcome.iterations,
        "costUSD": outcome.cost_usd,
        "durationSeconds": round(outcome.seconds, 3),
        "concerns": [sentence(one) for one in outcome.concerns[:NAMES]] if isinstance(outcome, Completed) else [],
    }
    if done:
        return told
    return told | {"reason": outcome.reason if isinstance(outcome, Aborted) else "ERROR"}


def _work(records: list[Record], began: RunBegan | None) -> dict[str, Json]:
    """What was looked at, and what the checks found in it."""
    asked = [record for record in records if isinstance(record, CheckEnded)]
    baseline = Report(tuple(one.finding for one in asked if not one.iteration))
    last = max((record.iteration for record in records if isinstance(record, Judged)), default=0)
    number = max((one.iteration for one in asked), default=0) or last
    report = Report(_findings(asked, number))
    told = [check_told(finding, baseline) for finding in report.findings]
    found: dict[str, Json] = {
        "checks": [*told],
        "logs": {one.check: clip(plain(one.output), LOG_CHARS) for one in report.findings},
    }
    seen, final = looked_at(records, number), looked_at(records, last)
    if began is not None:
        held, protects = sandboxes(began, records), began.facts.get("protectTests") is True
        found["tampering"] = [*tampering(held, told, protects)]
        found["integrity"] = {
            "protectTests": protects,
            "mayChange": texts(began.facts.get("mayChange")),
            "altered": [altered_told(one) for one in _altered(records, last)[:NAMES]],
            "weaker": [sentence(one.told) for one in weaker(report, baseline)[:NAMES]],
        }
    if began is not None and seen is not None and final is not None:
        found["subject"] = _subject(began.snapshot, seen.snapshot, final.snapshot, _commit(records, final))
    return found


def _findings(asked: list[CheckEnded], number: int) -> tuple[Finding, ...]:
    """What the last look at an iteration's work found: those before it saw another tree."""
    of_it = [one for one in asked if one.iteration == number and number]
    last = max(((one.turn, one.round) for one in of_it), default=None)
    return tuple(one.finding for one in of_it if (one.turn, one.round) == last)


def looked_at(records: Iterable[Record], number: int) -> Looked | None:
    """The record of the tree that an iteration was judged by."""
    found: Looked | None = None
    open_one: Looked | None = None
    for record in records:
        match record:
            case Saved(iteration) | Joined(iteration) if iteration == number:
                open_one = record
            case Regained(iteration, paths=paths) if iteration == number and paths and open_one:
                open_one = record
            case Judged(iteration) if iteration == number:
                found = open_one
            case _:
                pass
    return found or open_one


def _altered(records: list[Record], number: int) -> tuple[Altered, ...]:
    saves = [record for record in records if isinstance(record, Saved | Joined) and record.iteration == number]
    return saves[-1].altered if saves else ()


def _commit(records: list[Record], final: Looked) -> str | None:
    """What the SCM made of the work behind this save."""
    after = records[records.index(final) :]
    made = [record.committed.commit for record in after if isinstance(record, ScmEnded)]
    return made[-1] if made else None


def _subject(began: Snapshot, seen: Snapshot, final: Snapshot, commit: str | None) -> dict[str, Json]:
    return {
        "ref": final.ref, "head": commit or final.head, "base": began.head, "checked": seen.tree,
        "leftOut": names(final.left_out),
    }  # fmt: skip


def check_told(finding: Finding, baseline: Report) -> dict[str, Json]:
    """One answer, and what was asked: so that anybody can ask the same again."""
    rule, before = finding.rule, earlier(finding, baseline)
    shell = finding.rule is not None or finding.code is not None  # a function has a name alone
    command = finding.command if finding.command and shell and not finding.judged else None
    failing = set(before.tests.failing) if before and before.tests else set()
    now = finding.tests.failing if finding.tests else ()
    return {
        "name": finding.check,
        "command": command,
        "commandDigest": None if command is None else sha256(command),
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
        "why": sentence(finding.why),
        "seconds": round(finding.seconds, 3),
        "runs": finding.runs,
        "flaky": finding.flaky,
        "output": finding.digest,
        "log": finding.log.rpartition("/")[2],
        "tests": _tests(finding),
        "before": {"passed": before.passed, "failing": names(sorted(failing))} if before else None,
        "oldFailures": names(name for name in now if name in failing),
        "newFailures": names(name for name in now if name not in failing),
    }


def _tests(finding: Finding) -> Json:
    if finding.tests is None:
        return None
    told = finding.tests
    numbers = {"passed": told.passed, "failed": told.failed, "skipped": told.skipped, "xfailed": told.xfailed}
    return {"runner": told.runner, **numbers}


def earlier(finding: Finding, baseline: Report) -> Finding | None:
    """What the same check said before the run; for one in a clean checkout, the same command."""
    clean = finding.rule is not None and finding.rule.clean
    same = (one for one in baseline.findings if clean and finding.command and one.command == finding.command)
    return baseline.of(finding.check) or next(same, None)


def altered_told(one: Altered) -> Json:
    """Something that decides over the checks, and changed."""
    return {"path": sentence(one.path), "what": sentence(one.what), "stops": one.stops, "allowed": one.allowed}


def names(found: Iterable[str]) -> list[Json]:
    """As many names as anybody reads."""
    return [clip(name, NAME_CHARS, "head") for name, _ in zip(found, range(NAMES), strict=False)]


def sentence(text: str) -> str:
    """As much of a sentence as anybody reads."""
    return clip(text, SENTENCE_CHARS, "head")


def texts(data: Json) -> list[Json]:
    """The texts of a list."""
    return [str(one) for one in data] if isinstance(data, list | tuple) else []


def word(data: Json) -> str | None:
    return None if data is None else str(data)


def record_in(data: str, place: str) -> Record:
    """The record behind its JSON; raises LedgerBroken."""
    import json

    try:
        record = unpack(json.loads(data))
    except (ValueError, TypeError, RecursionError) as error:
        raise LedgerBroken(f"{place} cannot be read: {error}") from error
    if not isinstance(record, Record):
        raise LedgerBroken(f"{place} is no record that this version knows")
    return record
