"""A run in one line of a list, for programs: how it stands, what it came to, and what it cost."""

from __future__ import annotations

from ralphproof.ending import begun_iterations
from ralphproof.phase import Over
from ralphproof.record import CheckEnded, Picked, RunBegan, RunEnded
from ralphproof.stage import Job
from ralphproof.state import State, state_of
from ralphproof.value import TYPE_CHECKING, value
from ralphproof.verdict import Aborted, Completed
from ralphproof.views.account import doing, shown_state
from ralphproof.views.bills import bill_of, spend_json, with_children
from ralphproof.views.budgets import in_force
from ralphproof.views.standing import ENDED

if TYPE_CHECKING:
    from ralphproof.budget import Spend
    from ralphproof.check import Finding
    from ralphproof.ledgers.runs import RunRow
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.value import Json
    from ralphproof.verdict import Outcome
    from ralphproof.views.followed import Followed
    from ralphproof.views.project import Project

FACTS = ("agent", "model", "preset")


@value
class Stood:
    """What a line tells beside the facts of a run's beginning. What it spent is its own."""

    state: str
    title: str
    updated_s: float
    iterations: int
    spend: Spend
    outcome: Outcome | None = None
    checks: tuple[int, int] | None = None
    doing: str = ""


def ended_line(ledger: Sqlite, row: RunRow, project: Project) -> dict[str, Json]:
    """That of a run whose last record is its end: a few records tell it, however many there are."""
    end, began = ledger.end_of(row.id), ledger.look.first(row.id, "RunBegan")
    assert isinstance(end, RunEnded), "it has ended"
    facts = began.facts if isinstance(began, RunBegan) else {}
    state = shown_state(ENDED, _after(end))
    title = str(facts.get("title") or "") or _titled(ledger, row.id)
    updated = ledger.written_at(row.id) or row.began_at
    stood = Stood(
        state, title, updated, end.outcome.iterations, _own(ledger, row.id, end.outcome), end.outcome,
        _answered(ledger, row.id),
    )  # fmt: skip
    return _line(ledger, row, _held(ledger, row.id, facts), stood, project)


def open_line(ledger: Sqlite, row: RunRow, where: str, followed: Followed, project: Project) -> dict[str, Json]:
    """That of a run that goes on, or lost its harness. `where` was seen before its records were read."""
    account = followed.account
    where, phase, bill = shown_state(where, account.state), account.state.phase, bill_of(project, account.state)
    over = phase.outcome if isinstance(phase, Over) else None
    stood = Stood(
        where, followed.title, followed.at_s or row.began_at,
        over.iterations if over else begun_iterations(account.state), bill, over, _checks(followed),
        doing(account, where),
    )  # fmt: skip
    return _line(ledger, row, account.facts, stood, project)


def _line(
    ledger: Sqlite, row: RunRow, facts: dict[str, Json], stood: Stood, project: Project
) -> dict[str, Json]:  # fmt: skip
    end, mask, facts = stood.outcome, project.mask, in_force(facts, project, row)
    asked = ledger.wish(row.id) if end is None else ""
    told: dict[str, Json] = {name: str(facts.get(name) or "") for name in FACTS}
    together = with_children(ledger, project, row.id, stood.spend, end)
    checks: Json = {"passed": stood.checks[0], "failed": stood.checks[1]} if stood.checks else None
    return told | {
        "run": row.id, "state": stood.state, "status": end.status if end else None,
        "reason": end.reason if isinstance(end, Aborted) else "",
        "proof": end.proof if isinstance(end, Completed) else "",
        "concerns": len(end.concerns) if isinstance(end, Completed) else 0,
        "title": mask(stood.title or _named(facts)), "directory": row.directory, "parent": row.parent or None,
        "task": str(facts.get("work") or "") or None, "beganAt": row.began_at, "updatedAt": stood.updated_s,
        "iterations": stood.iterations, "iterationCount": stood.iterations,
        "maximumIterations": facts.get("maximumIterations"), "checks": checks,
        "spend": spend_json(stood.spend), "spendWithChildren": spend_json(together) if together else None,
        "maxCostUsd": facts.get("maxCostUsd"),
        "sandbox": _box(facts.get("sandbox")), "doing": mask(stood.doing), "asked": asked or None,
        "children": len(ledger.children(row.id)),
    }  # fmt: skip


def _own(ledger: Sqlite, run: str, outcome: Outcome) -> Spend:
    """What a run that has ended spent itself. Its outcome counts its children too: then all its records tell it."""
    return state_of(ledger.records(run)).bill if ledger.children(run) else outcome.spend


def _after(end: RunEnded) -> State:
    return State().after(end)


def _named(facts: dict[str, Json]) -> str:
    """What a run without a prompt of its own may be called: its task, or the file that holds its prompt."""
    return str(facts.get("work") or "") or str(facts.get("promptFile") or "").rpartition("/")[2]


def _titled(ledger: Sqlite, run: str) -> str:
    """What it worked on last. The last choice of a plan that is done is nothing."""
    last = ledger.look.final(run, "Picked")
    every = (last,) if isinstance(last, Picked) and isinstance(last.choice, Job) else ledger.of_kind(run, "Picked")
    jobs = [one.choice for one in every if isinstance(one, Picked) and isinstance(one.choice, Job)]
    return jobs[-1].task.title if jobs else ""


def _held(ledger: Sqlite, run: str, facts: dict[str, Json]) -> dict[str, Json]:
    """The facts of a run with the sandbox that it had at last."""
    again = getattr(ledger.look.final(run, "Resumed"), "sandbox", None)
    return facts | {"sandbox": again} if again else facts


def _box(sandbox: Json) -> Json:
    if not isinstance(sandbox, dict):
        return None
    return {name: sandbox.get(name) for name in ("name", "strength")}


def _checks(followed: Followed) -> tuple[int, int] | None:
    """How many checks of the last iteration that asked any passed, and how many did not."""
    for number in sorted(followed.timeline.spans, reverse=True):
        found = [one.finding for one in followed.timeline.spans[number].checks if one.finding]
        if found:
            return _counted(found)
    return None


def _answered(ledger: Sqlite, run: str) -> tuple[int, int] | None:
    """The same without all its records. What was said of an earlier tree counts no more."""
    asked = [record for record in ledger.look.answers(run) if isinstance(record, CheckEnded)]
    last = [one.finding for one in asked if (one.turn, one.round) == (asked[-1].turn, asked[-1].round)]
    return _counted(last) if last else None


def _counted(found: list[Finding]) -> tuple[int, int]:
    passed = sum(finding.passed for finding in found)
    return passed, len(found) - passed
