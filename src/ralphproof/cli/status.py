"""`ralph status`: where a run stands: how it ended or what it is doing, and what each iteration came to."""

from __future__ import annotations

import os
import time

from ralphproof.cli.account import Account, account_of, as_json, doing, table, touches
from ralphproof.cli.out import put, put_json
from ralphproof.cli.parser import Parser
from ralphproof.cli.project import Project
from ralphproof.cli.standing import CRASHED, ENDED, ORPHANED, RUNNING, row_of, standing, when
from ralphproof.display import words
from ralphproof.phase import Over
from ralphproof.record import RunEnded
from ralphproof.value import TYPE_CHECKING
from ralphproof.verdict import result

if TYPE_CHECKING:
    from ralphproof.ledgers.runs import RunRow
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.value import Json

EXAMPLES = ("ralph status", "ralph status --all", "ralph status 20261115-21 --json")


def parser() -> Parser:
    made = Parser("status", __doc__.split(": ", 1)[1], EXAMPLES)
    made.add_argument("run", nargs="?", metavar="RUN", help="an id or its beginning (default: the latest run here)")
    made.add_argument("--all", action="store_true", help="every run of this repository, one line each")
    return made


def main(argv: list[str]) -> int:
    args = parser().parse(argv)
    project = Project.seen(args.project_dir, os.environ)
    ledger = project.ledger()
    try:
        if args.all:
            show_all(ledger, project, args.json)
        elif args.run is None and not ledger.runs(1):
            show_none(args.json)
        else:
            show_one(ledger, row_of(ledger, args.run, project.root), project, args.json)
    finally:
        ledger.close()
    return 0


def show_none(for_programs: bool) -> None:
    """A project in which nothing ever ran."""
    if for_programs:
        put_json("status", {"run": None})
    else:
        put('no run yet; begin one: ralph run -p "make the tests pass" --check auto')


def show_all(ledger: Sqlite, project: Project, for_programs: bool) -> None:
    """One line a run, the newest first."""
    rows = [(row, standing(ledger, row, project), _result(ledger, row.id)) for row in ledger.runs()]
    if for_programs:
        listed: list[Json] = [_facts(row, where) | {"outcome": outcome} for row, where, outcome in rows]
        put_json("runs", {"project": project.root, "runs": listed})
        return
    if not rows:
        put("no run yet")
    for row, where, outcome in rows:
        end = " ".join(str(outcome[name]) for name in ("status", "reason") if name in outcome) if outcome else where
        elsewhere = "" if row.directory in (project.root, "") else f"  in {row.directory}"
        count = f"  {words.count(int(str(outcome['iterations'])), 'iteration')}" if outcome else ""
        put(f"{row.id}  {_date(row.began_at)}  {end}{count}{elsewhere}")


def _result(ledger: Sqlite, run: str) -> dict[str, Json] | None:
    end = ledger.end_of(run)
    return result(end.outcome) if isinstance(end, RunEnded) else None


def show_one(ledger: Sqlite, row: RunRow, project: Project, for_programs: bool) -> None:
    """All about one run."""
    where = standing(ledger, row, project)
    account, since = account_of(ledger.records(row.id)), ledger.written_at(row.id)
    if isinstance(account.state.phase, Over):  # it may have ended while we looked
        where = ENDED
    if for_programs:
        now: Json = {"doing": doing(account), "since": since} if where != ENDED else None
        put_json("status", _facts(row, where) | {"now": now} | as_json(account))
        return
    put(_first_line(row, where, account, since))
    if isinstance(account.state.phase, Over):
        put(*words.outcome(account.state.phase.outcome))
    if account.passes:
        put("", *table(account), *touches(account))
    put("", *_conditions(account, row, where))


def _facts(row: RunRow, where: str) -> dict[str, Json]:
    pid = row.pid if where == RUNNING else None
    return {"run": row.id, "state": where, "pid": pid, "beganAt": row.began_at, "directory": row.directory}


def _first_line(row: RunRow, where: str, account: Account, since: float | None) -> str:
    ago = f", for {words.duration(max(0.0, time.time() - since))}" if since else ""
    if where == RUNNING:
        return f"run {row.id} is running (pid {row.pid}); {doing(account)}{ago}"
    if where == ORPHANED:
        return f"run {row.id} lost its harness, and what it started is still at work; {doing(account)}{ago}"
    if where == CRASHED:
        return f"run {row.id} crashed: its harness is gone, and nothing of it is at work; {doing(account)}"
    return f"run {row.id} has ended"


def _conditions(account: Account, row: RunRow, where: str) -> list[str]:
    facts, spend = account.facts, account.state.bill
    sandbox = facts.get("sandbox")
    checks = facts.get("checks")
    lines = [f"began {_date(row.began_at)} in {row.directory}"]
    if isinstance(sandbox, dict):
        held = f"agent {facts.get('agent')}, sandbox {sandbox.get('name')} (strength: {sandbox.get('strength')})"
        lines.append(f"{held}, at most {words.count(int(str(facts.get('maximumIterations'))), 'iteration')}")
    lines.append("checks: " + (", ".join(map(str, checks)) if isinstance(checks, list | tuple) and checks else "none"))
    if account.state.baseline.findings:
        lines.append(f"{when(0)}: {words.report(account.state.baseline)}")
    if where != ENDED:
        tokens = f", {spend.tokens} tokens" if spend.tokens else ""
        lines.append(f"so far: {words.count(len(account.passes), 'iteration')}, {words.cost(spend)}{tokens}")
    if where in (CRASHED, ORPHANED):
        lines.append(f"close it: ralph cancel {row.id}; or begin anew: ralph run")
    return lines


def _date(epoch_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(epoch_s))
