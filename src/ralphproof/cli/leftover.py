"""What runs left behind that did not end: found by their records and marks, never by a program's name."""

from __future__ import annotations

import os

from ralphproof.agent import Turn
from ralphproof.asking import booked_as, judging_as
from ralphproof.budget import dollars
from ralphproof.claim import Heard
from ralphproof.cli.boxing import clear_away
from ralphproof.cli.family import ask_to_end
from ralphproof.cli.story_leftover import put_in_order, refuse_forged, stories_of
from ralphproof.config.build import VAULT, tripwires_of
from ralphproof.ending import begun_iterations
from ralphproof.errors import RalphError, ReadTooEarly, Refused
from ralphproof.event import Spent, Usage
from ralphproof.keeper import aftermath, journal
from ralphproof.ledger import key_of
from ralphproof.ledgers.folder import RunFolder
from ralphproof.ledgers.markers import Markers
from ralphproof.ledgers.runs import RunRow
from ralphproof.ledgers.spend import SpendBook, told_of
from ralphproof.ledgers.sqlite import Sqlite
from ralphproof.metric import in_full
from ralphproof.phase import Checking, Over, Turned, Turning
from ralphproof.reckoning import metrics_of
from ralphproof.record import CheckStopped, Record, RunBegan, RunEnded, Saved, ScmEnded, TurnEnded
from ralphproof.sandbox import Exit
from ralphproof.state import SCM, State, state_of
from ralphproof.value import TYPE_CHECKING, replace
from ralphproof.verdict import Failed, Outcome, result
from ralphproof.views.kept import Kept
from ralphproof.views.project import Project
from ralphproof.views.publishing import publish_figures
from ralphproof.views.standing import logs_of, turn_files
from ralphproof.views.stories import manner_in, reviewed_in
from ralphproof.workspaces.layout import git_folders
from ralphproof.world import numbered

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.workspace import Tripwires, Workspace

# What a run reads before it looks for dead ones.
READ = (".ralph/settings", ".ralph/skills/", ".ralph/templates/", ".claude/skills/")
RECENT = 200  # a run that did not end is closed by the next one in its directory, so it is among the last
NEWEST = 5  # ended runs of a directory of which a turn may still be at work: none begins beside it


def close_dead_runs(ledger: Sqlite, project: Project, ours: str, parent: str = "") -> list[str]:
    """Close the runs of this directory whose harness died, and say so. The caller holds the directory's lock.

    A turn that still runs under its keeper is nobody's leftover: then we may not begin, unless we are part of it. Runs
    that share the directory with their parent live.
    """
    told: list[str] = []
    rows = ledger.runs(RECENT)
    above = _above(rows, parent)
    _finish_end(ledger, project, rows, ours)
    _refuse_beside_ended(project, [row for row in rows if row.ended and row.directory == project.root], ours)
    if last := next((row for row in rows if row.ended and row.directory == project.root and row.id != ours), None):
        refuse_forged(ledger, project, last)
    for row in rows:
        if row.ended or row.directory != project.root or row.id == ours or row.id in above or row.process.alive:
            continue
        if live_turn(project, row.id):
            raise Refused(
                f"run {row.id} lost its harness, and its agent is still at work here; "
                f"take it up: ralph run --resume {row.id}; or end it: ralph cancel {row.id}"
            )
        stories = stories_of(ledger, row)
        remarks = close(ledger, project, row, _crashed)
        told.append("; ".join([f"run {row.id} crashed and is closed", *remarks]))
        tampered = [path for path in put_back(ledger, row.id) if path.startswith(READ)]
        if tampered := tampered + stories.changed():
            raise ReadTooEarly(f"{told[-1]}; {', '.join(tampered)} had been changed by its agent, and was put back")
    return told


def closed_before(folder: str | None) -> list[str]:
    """Close the dead runs of a directory whose settings or stories cannot be read; what there is to say of it.

    Their agents may have left them so; then they are put back now.
    """
    from ralphproof.ledgers.lock import DirectoryLock

    project = Project.at(folder, os.environ)
    ledger, lock = project.ledger(read_only=False), DirectoryLock(project.state_dir, project.root, "")
    try:
        lock.take()
        return close_dead_runs(ledger, project, "")
    except ReadTooEarly as early:
        return [str(early)]
    finally:
        lock.release()
        ledger.close()


def _refuse_beside_ended(project: Project, rows: list[RunRow], ours: str) -> None:
    """A harness may have had to give a run up that it could not end."""
    for row in rows[:NEWEST]:
        if row.id != ours and live_turn(project, row.id):
            raise Refused(
                f"run {row.id} is over, and its agent is still at work here; end it: ralph cancel {row.id}; "
                f"where it can be taken up: ralph run --resume {row.id}"
            )


def _finish_end(ledger: Sqlite, project: Project, rows: tuple[RunRow, ...], ours: str) -> None:
    """Clear away what the last run here kept for its own time: its harness died when its end was on record."""
    row = next((row for row in rows if row.directory == project.root and row.id != ours), None)
    vault = os.path.join(project.store, "runs", row.id, VAULT) if row and row.ended else ""
    if row is None or not os.path.isdir(vault) or not os.listdir(vault):
        return
    records = ledger.records(row.id)
    state, began = state_of(records), next((record for record in records if isinstance(record, RunBegan)), None)
    if began is None or not isinstance(state.phase, Over) or isinstance(state.before, Turning | Turned):
        return  # what was watched is still asked for by whoever takes it up
    if _repository_gone(project, row, began):
        return
    with Kept(project, row, str(began.facts.get("workspace")), own_folder=False) as kept:
        _wires(project, row, began, kept.workspace).discard()


def _repository_gone(project: Project, row: RunRow, began: RunBegan) -> str:
    """What to say where a run's repository is not there any more; its work lies in the files as it was left."""
    if began.facts.get("workspace") != "git" or not os.path.isdir(row.directory) or git_folders(row.directory):
        return ""
    from ralphproof.views.copies import copies_of

    kept = any(copy.start.run == row.id for copy in copies_of(project))
    way = f"put it back: ralph restore {row.id}" if kept else "no copy of it was kept; look for it where you pushed to"
    return f"the repository of {row.directory} is gone, so its work could not be saved; {way}"


def _above(rows: tuple[RunRow, ...], run: str) -> set[str]:
    """A run and all that it is part of."""
    parents, found = {row.id: row.parent for row in rows}, set[str]()
    while run and run not in found:
        found.add(run)
        run = parents.get(run, "")
    return found


def _crashed(state: State) -> Outcome:
    died = "the harness died in mid-run (crashed)"
    return Failed(died, begun_iterations(state), spend=state.bill, seconds=state.elapsed_s)


def close(ledger: Sqlite, project: Project, row: RunRow, ending: Callable[[State], Outcome]) -> list[str]:
    """End what a dead harness left, save its agent's work, and write down how the run ended; what there is to say."""
    remarks = [*end_leftovers(row.id), *ask_to_end(project, ledger, row.id)]
    clear_away(project.store, row.directory, row.id)
    records = ledger.records(row.id)
    state = state_of(records)
    began = next((record for record in records if isinstance(record, RunBegan)), None)
    if began and (gone := _repository_gone(project, row, began)):
        remarks += [gone, *put_in_order(project, row, began.facts, state)]
    elif began and os.path.isdir(row.directory):
        with Kept(project, row, str(began.facts.get("workspace")), own_folder=False) as kept:
            wires = _wires(project, row, began, kept.workspace)
            if saved := _saved(project, row, state, kept.workspace, wires, _heard(began)):
                ledger.append(row.id, saved)
                remarks += [f"the work of its iteration {state.iteration} is saved", *_told(saved)]
                state = state_of((*records, *saved))
            remarks += wires.parting()
            wires.discard()
        remarks += put_in_order(project, row, began.facts, state)
    ended_s = ledger.written_at(row.id) or row.began_at
    if stopped := _stopped(project, state, ledger.records(row.id)):
        ledger.append(row.id, stopped)
        remarks.append(_cost("its judge", stopped[0].spent))
        state = state_of(ledger.records(row.id))
    outcome = ending(state)
    _book(project, state, ledger.records(row.id), ended_s)
    reviewed = reviewed_in(project, row, began.facts) if began else ()
    ended = RunEnded(outcome, metrics_of(state, outcome, ended_s, reviewed), state.session)
    folder = RunFolder(row.directory, row.id, project.store, project.mask)
    folder.ending()
    ledger.append(row.id, (ended,))
    if os.path.isdir(row.directory):
        publish_figures(ledger, project, row, ended)
        _publish_logs(project, row, folder)
        folder.outcome(in_full(result(outcome), ended.metrics))
    return remarks


def _publish_logs(project: Project, row: RunRow, folder: RunFolder) -> None:
    """Copy the logs of the last iteration, of which several commands may have run at once; others have been copied."""
    logs = logs_of(project, row.id)
    for log in logs:
        if log.iteration == logs[-1].iteration:
            folder.publish(log.name)


def _stopped(project: Project, state: State, records: tuple[Record, ...]) -> tuple[CheckStopped, ...]:
    """The records that judges lack who were asked when the harness died: they have cost something.

    What was last told of it is that of all of them, so the first one has it.
    """
    if not isinstance(state.phase, Checking):
        return ()
    place, session = (state.iteration, state.turn), state.session
    asked = (check for check in state.begun if check in state.job.stage.judges)
    found = [CheckStopped(*place, check, Spent(None), session) for check in asked]
    lacking = [one for one in found if not any(key_of(one) == key_of(known) for known in records)]
    if lacking:
        lacking[0] = replace(lacking[0], spent=_told_cost(project, state.run, judging_as(state.run)))
    return tuple(lacking)


def _book(project: Project, state: State, records: tuple[Record, ...], at: float) -> None:
    """Count what was spent and not booked when the harness died. What is in the book already keeps its day."""
    run, purse = state.run, SpendBook.open(project.state_dir)
    try:
        if SCM in state.begun:
            purse.book(run, f"{run}/scm_{state.iteration:03d}", Spent(None), at)
        for record in records:
            match record:
                case TurnEnded(iteration, turn, reply) if reply.exit.why != "unstartable":
                    purse.book(run, f"{run}/{numbered(f'agent_{iteration:03d}', turn)}", reply.spent, at)
                case CheckStopped(iteration, turn, check, spent, session) if session == state.session:
                    call = booked_as(run, iteration, turn, state.round, check, session)
                    purse.book(run, call, spent, at, judging_as(run))
                case ScmEnded(iteration, _, Turn() as reply):
                    purse.book(run, f"{run}/scm_{iteration:03d}", reply.spent, at)
                case _:
                    pass
        purse.settle(run, judging_as(run))
    finally:
        purse.close()


def _heard(began: RunBegan) -> Heard:
    """What a marker claims: the next run in the same task folder must know that it is none of its own."""
    folder = began.facts.get("taskFolder")
    try:
        return Heard(Markers(folder).look()) if isinstance(folder, str) and folder else Heard()
    except RalphError:
        return Heard()  # it cannot be read, and that is said when a run needs it


def _cut_off(project: Project, run: str, iteration: int, turn: int) -> Turn:
    """A turn whose end nobody heard, with what was last told of its cost."""
    spent = _told_cost(project, run, f"{run}/{numbered(f'agent_{iteration:03d}', turn)}")
    return Turn(
        Exit(None, why="interrupted"), usage=spent.usage, micro_usd=spent.micro_usd, at_least=spent.at_least,
        notional=spent.notional,
    )  # fmt: skip


def _told_cost(project: Project, run: str, call: str) -> Spent:
    """What was last told of a call that nobody saw end."""
    told = told_of(project.state_dir, run, call)
    if told is None:
        return Spent(None)
    usage = Usage(told.tokens) if told.tokens else None
    return Spent(told.micro_usd, usage, at_least=True, notional=bool(told.notional))


def _saved(
    project: Project, row: RunRow, state: State, workspace: Workspace, wires: Tripwires, heard: Heard
) -> tuple[Record, ...]:
    """The records that a turn lacks whose harness died before its work was saved."""
    if not (state.turning or isinstance(state.phase, Turned)):
        return ()
    iteration, turn = state.iteration, state.turn
    ended = (TurnEnded(iteration, turn, _cut_off(project, row.id, iteration, turn)),) if state.turning else ()
    name = numbered(str(iteration), turn, ".")
    snapshot = workspace.save(row.id, name)
    sprung = wires.sprung(numbered(f"agent_{iteration:03d}", turn))
    if sprung.touched:
        snapshot = workspace.save(row.id, f"{name}-put-back")
    change = workspace.change(state.last, snapshot)
    if change.rewritten or snapshot.id is None:
        change = replace(change, kept=wires.kept())
    return (*ended, Saved(iteration, turn, snapshot, change, heard, sprung))


def _told(records: tuple[Record, ...]) -> list[str]:
    """What there is to say of these records' turn: its cost, where nobody heard it, and its tripwires."""
    told = [_cost("its last turn", records[0].reply.spent)] if isinstance(records[0], TurnEnded) else []
    for sprung in (record.sprung for record in records if isinstance(record, Saved)):
        if back := [one.path for one in sprung.touched if not one.trouble]:
            told.append(f"put back, because no agent may change it: {', '.join(back)}")
        told += [f"{one.path} could not be put back: {one.trouble}" for one in sprung.touched if one.trouble]
        told += [f"the attempt is kept in {sprung.patch}"] if sprung.patch else []
        told += sprung.remarks
    return told


def _cost(what: str, spent: Spent) -> str:
    if spent.micro_usd is None:
        return f"what {what} cost is not known"
    return f"{what} cost at least {dollars(spent.micro_usd)}"


def _wires(project: Project, row: RunRow, began: RunBegan, workspace: Workspace) -> Tripwires:
    """The tripwires that the run had set."""
    listed = began.facts.get("protectedPaths")
    protected = tuple(map(str, listed)) if isinstance(listed, list | tuple) else ()
    folder = RunFolder(row.directory, row.id, project.store, project.mask)
    manner = manner_in(began.facts)
    return tripwires_of(protected, workspace, folder, manner.fixed if manner else {})


def put_back(ledger: Sqlite, run: str) -> tuple[str, ...]:
    """What the last turn of a run changed, may not change, and was put back."""
    saved = [record for record in ledger.records(run) if isinstance(record, Saved)]
    return tuple(one.path for one in saved[-1].sprung.touched) if saved else ()


def live_turn(project: Project, run: str) -> journal.Past | None:
    """The turn of a run that a keeper still owns."""
    owned = (path for path in turn_files(project, run) if journal.held(path))
    return next(map(journal.read, owned), None)


def end_leftovers(run: str) -> list[str]:
    """End every process that carries the mark of this run; what there is to say of it."""
    ended, still = aftermath.end(f"{run}/")
    told = [f"{len(ended)} processes of it were ended"] if ended else []
    return told + ([f"these could not be ended: {', '.join(map(str, still))}"] if still else [])
