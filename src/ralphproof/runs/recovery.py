"""Recovery of runs whose harness died: closing them, saving their work, and refusing tampered settings on resume."""

from __future__ import annotations

import os

from ralphproof.base.errors import RalphError, Refused, StaleRead
from ralphproof.base.git_layout import git_folders
from ralphproof.base.value import TYPE_CHECKING, replace, value
from ralphproof.engine.agent import Turn
from ralphproof.engine.budget import format_usd
from ralphproof.engine.claim import ParsedClaim
from ralphproof.engine.events import Spent, Usage
from ralphproof.engine.iteration import turn_file_name
from ralphproof.engine.metrics import outcome_with_metrics
from ralphproof.engine.outcome import Failed, Outcome, outcome_json
from ralphproof.engine.records import (
    CheckStopped,
    Record,
    Resumed,
    RunBegan,
    RunEnded,
    Saved,
    ScmEnded,
    TurnEnded,
    record_key,
)
from ralphproof.engine.run_metrics import compute_run_metrics
from ralphproof.engine.sandbox import Exit
from ralphproof.engine.state import (
    SCM_STEP,
    Checking,
    RunOver,
    State,
    TurnFinished,
    TurnRunning,
    build_state,
    count_begun_iterations,
)
from ralphproof.engine.turn_io import judge_call_id, judging_call_id
from ralphproof.process import cleanup, turn_journal
from ralphproof.proof.publish import publish_metrics
from ralphproof.runs.assembly import PROTECTED_COPIES_FOLDER, build_tripwires
from ralphproof.runs.children import cancel_descendants, is_run_alive
from ralphproof.runs.open_project import open_project
from ralphproof.sandbox.selection import remove_sandbox_leftovers
from ralphproof.store.project import Project
from ralphproof.store.run_folder import RunFolder
from ralphproof.store.run_state import list_command_logs, list_turn_files, turn_file_path
from ralphproof.store.runs import RunRow
from ralphproof.store.signal_files import SignalFiles
from ralphproof.store.spend import SpendStore, last_reported_spend
from ralphproof.store.sqlite_ledger import SqliteLedger
from ralphproof.stories.recovery import refuse_unjudged_stories, restore_stories, watch_stories_file
from ralphproof.stories.workflow import story_reviews, story_workflow_in
from ralphproof.views.interrupted_run import idle_since_ns, turn_end_ns
from ralphproof.views.snapshots import SavedWorkspace

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.engine.workspace import Tripwires, Workspace
    from ralphproof.runs.spec import RunSpec
    from ralphproof.settings.skills import Skill
    from ralphproof.workspace.tripwires import FileTripwires


# What runs left behind that did not end: found by their records and marks, never by a program's name.


# What a run reads before it looks for dead ones.
PATHS_READ_BEFORE_RECOVERY = (".ralph/settings", ".ralph/skills/", ".ralph/templates/", ".claude/skills/")
RECENT_RUNS = 200  # a run that did not end is closed by the next one in its directory, so it is among the last
NEWEST_ENDED_RUNS = 5  # ended runs of a directory of which a turn may still be at work: none begins beside it


def close_dead_runs(ledger: SqliteLedger, project: Project, ours: str, parent: str = "") -> list[str]:
    """Close the runs of this directory whose harness died, and say so. The caller holds the directory's lock.

    A turn that still runs under its keeper is nobody's leftover: then we may not begin, unless we are part of it. Runs
    that share the directory with their parent live.
    """
    told: list[str] = []
    rows = ledger.runs(RECENT_RUNS)
    above = _run_and_ancestors(rows, parent)
    _finish_cleanup(ledger, project, rows, ours)
    _refuse_beside_live_turn(project, [row for row in rows if row.ended and row.directory == project.root], ours)
    if last := next((row for row in rows if row.ended and row.directory == project.root and row.id != ours), None):
        refuse_unjudged_stories(ledger, project, last)
    for row in rows:
        if row.ended or row.directory != project.root or row.id == ours or row.id in above or row.process.alive:
            continue
        if find_live_turn(project, row.id):
            raise Refused(
                f"run {row.id} lost its harness, and its agent is still at work here; "
                f"take it up: ralph run --resume {row.id}; or end it: ralph cancel {row.id}"
            )
        stories = watch_stories_file(ledger, row)
        remarks = close_dead_run(ledger, project, row, _crash_outcome)
        told.append("; ".join([f"run {row.id} crashed and is closed", *remarks]))
        tampered = [path for path in restored_paths(ledger, row.id) if path.startswith(PATHS_READ_BEFORE_RECOVERY)]
        if tampered := tampered + stories.changed():
            raise StaleRead(f"{told[-1]}; {', '.join(tampered)} had been changed by its agent, and was put back")
    return told


def recover_folder(folder: str | None) -> list[str]:
    """Close the dead runs of a directory whose settings or stories cannot be read; what there is to say of it.

    Their agents may have left them so; then they are put back now.
    """
    from ralphproof.store.locks import DirectoryLock

    project = open_project(folder, os.environ)
    ledger, lock = project.ledger(read_only=False), DirectoryLock(project.state_dir, project.root, "")
    try:
        lock.take()
        return close_dead_runs(ledger, project, "")
    except StaleRead as early:
        return [str(early)]
    finally:
        lock.release()
        ledger.close()


def _refuse_beside_live_turn(project: Project, rows: list[RunRow], ours: str) -> None:
    """A harness may have had to give a run up that it could not end."""
    for row in rows[:NEWEST_ENDED_RUNS]:
        if row.id != ours and find_live_turn(project, row.id):
            raise Refused(
                f"run {row.id} is over, and its agent is still at work here; end it: ralph cancel {row.id}; "
                f"where it can be taken up: ralph run --resume {row.id}"
            )


def _finish_cleanup(ledger: SqliteLedger, project: Project, rows: tuple[RunRow, ...], ours: str) -> None:
    """Clear away what the last run here kept for its own time: its harness died when its end was on record."""
    row = next((row for row in rows if row.directory == project.root and row.id != ours), None)
    vault = os.path.join(project.store, "runs", row.id, PROTECTED_COPIES_FOLDER) if row and row.ended else ""
    if row is None or not os.path.isdir(vault) or not os.listdir(vault):
        return
    records = ledger.records(row.id)
    state, began = build_state(records), next((record for record in records if isinstance(record, RunBegan)), None)
    in_turn = isinstance(state.phase_before_end, TurnRunning | TurnFinished)
    if began is None or not isinstance(state.phase, RunOver) or in_turn:
        return  # what was watched is still asked for by whoever takes it up
    if _describe_missing_repository(project, row, began):
        return
    with SavedWorkspace(project, row, str(began.facts.get("workspace")), own_folder=False) as kept:
        _run_tripwires(project, row, began, kept.workspace).discard()


def _describe_missing_repository(project: Project, row: RunRow, began: RunBegan) -> str:
    """What to say where a run's repository is not there any more; its work lies in the files as it was left."""
    if began.facts.get("workspace") != "git" or not os.path.isdir(row.directory) or git_folders(row.directory):
        return ""
    from ralphproof.views.snapshots import list_stored_backups

    kept = any(copy.start.run == row.id for copy in list_stored_backups(project))
    way = f"put it back: ralph restore {row.id}" if kept else "no copy of it was kept; look for it where you pushed to"
    return f"the repository of {row.directory} is gone, so its work could not be saved; {way}"


def _run_and_ancestors(rows: tuple[RunRow, ...], run: str) -> set[str]:
    """A run and all that it is part of."""
    parents, found = {row.id: row.parent for row in rows}, set[str]()
    while run and run not in found:
        found.add(run)
        run = parents.get(run, "")
    return found


def _crash_outcome(state: State) -> Outcome:
    died = "the harness died in mid-run (crashed)"
    return Failed(died, count_begun_iterations(state), spend=state.bill, seconds=state.elapsed_s)


def close_dead_run(
    ledger: SqliteLedger, project: Project, row: RunRow, ending: Callable[[State], Outcome]
) -> list[str]:
    """End what a dead harness left, save its agent's work, and write down how the run ended; what there is to say."""
    remarks = [*end_leftover_processes(row.id), *cancel_descendants(project, ledger, row.id)]
    remove_sandbox_leftovers(project.store, row.directory, row.id)
    records = ledger.records(row.id)
    state = build_state(records)
    began = next((record for record in records if isinstance(record, RunBegan)), None)
    if began and (gone := _describe_missing_repository(project, row, began)):
        remarks += [gone, *restore_stories(project, row, began.facts, state)]
    elif began and os.path.isdir(row.directory):
        with SavedWorkspace(project, row, str(began.facts.get("workspace")), own_folder=False) as kept:
            wires = _run_tripwires(project, row, began, kept.workspace)
            if saved := _save_unsaved_turn(project, row, state, kept.workspace, wires, _read_marker_claim(began)):
                ledger.append(row.id, saved)
                remarks += [f"the work of its iteration {state.iteration} is saved", *_describe_records(saved)]
                state = build_state((*records, *saved))
            remarks += wires.final_warnings()
            wires.discard()
        remarks += restore_stories(project, row, began.facts, state)
    ended_s = ledger.last_written_at(row.id) or row.began_at
    if stopped := _stopped_check_records(project, state, ledger.records(row.id)):
        ledger.append(row.id, stopped)
        remarks.append(_describe_cost("its judge", stopped[0].spent))
        state = build_state(ledger.records(row.id))
    outcome = ending(state)
    _book_missing_spend(project, state, ledger.records(row.id), ended_s)
    reviewed = story_reviews(project, row, began.facts) if began else ()
    ended = RunEnded(outcome, compute_run_metrics(state, outcome, ended_s, reviewed), state.session)
    folder = RunFolder(row.directory, row.id, project.store, project.mask)
    folder.begin_outcome()
    ledger.append(row.id, (ended,))
    if os.path.isdir(row.directory):
        publish_metrics(ledger, project, row, ended)
        _publish_logs(project, row, folder)
        folder.write_outcome(outcome_with_metrics(outcome_json(outcome), ended.metrics))
    return remarks


def _publish_logs(project: Project, row: RunRow, folder: RunFolder) -> None:
    """Copy the logs of the last iteration, of which several commands may have run at once; others have been copied."""
    logs = list_command_logs(project, row.id)
    for log in logs:
        if log.iteration == logs[-1].iteration:
            folder.publish(log.name)


def _stopped_check_records(project: Project, state: State, records: tuple[Record, ...]) -> tuple[CheckStopped, ...]:
    """The records that judges lack who were asked when the harness died: they have cost something.

    What was last told of it is that of all of them, so the first one has it.
    """
    if not isinstance(state.phase, Checking):
        return ()
    place, session = (state.iteration, state.turn), state.session
    asked = (check for check in state.open_steps if check in state.job.stage.judges)
    found = [CheckStopped(*place, check, Spent(None), session) for check in asked]
    lacking = [one for one in found if not any(record_key(one) == record_key(known) for known in records)]
    if lacking:
        lacking[0] = replace(lacking[0], spent=_last_reported_cost(project, state.run, judging_call_id(state.run)))
    return tuple(lacking)


def _book_missing_spend(project: Project, state: State, records: tuple[Record, ...], at: float) -> None:
    """Count what was spent and not booked when the harness died. What is in the book already keeps its day."""
    run, spend = state.run, SpendStore.open(project.state_dir)
    try:
        if SCM_STEP in state.open_steps:
            spend.book(run, f"{run}/scm_{state.iteration:03d}", Spent(None), at)
        for record in records:
            match record:
                case TurnEnded(iteration, turn, reply) if reply.exit.why != "unstartable":
                    spend.book(run, f"{run}/{turn_file_name(f'agent_{iteration:03d}', turn)}", reply.spent, at)
                case CheckStopped(iteration, turn, check, spent, session) if session == state.session:
                    call = judge_call_id(run, iteration, turn, state.round, check, session)
                    spend.book(run, call, spent, at, judging_call_id(run))
                case ScmEnded(iteration, _, Turn() as reply):
                    spend.book(run, f"{run}/scm_{iteration:03d}", reply.spent, at)
                case _:
                    pass
        spend.close_call(run, judging_call_id(run))
    finally:
        spend.close()


def _read_marker_claim(began: RunBegan) -> ParsedClaim:
    """What a marker claims: the next run in the same task folder must know that it is none of its own."""
    folder = began.facts.get("taskFolder")
    try:
        return ParsedClaim(SignalFiles(folder).look()) if isinstance(folder, str) and folder else ParsedClaim()
    except RalphError:
        return ParsedClaim()  # it cannot be read, and that is said when a run needs it


def _interrupted_turn(project: Project, run: str, iteration: int, turn: int) -> Turn:
    """A turn whose end nobody heard, with what was last told of its cost."""
    spent = _last_reported_cost(project, run, f"{run}/{turn_file_name(f'agent_{iteration:03d}', turn)}")
    return Turn(
        Exit(None, why="interrupted"), usage=spent.usage, micro_usd=spent.micro_usd, at_least=spent.at_least,
        notional=spent.notional,
    )  # fmt: skip


def _last_reported_cost(project: Project, run: str, call: str) -> Spent:
    """What was last told of a call that nobody saw end."""
    told = last_reported_spend(project.state_dir, run, call)
    if told is None:
        return Spent(None)
    usage = Usage(told.tokens) if told.tokens else None
    return Spent(told.micro_usd, usage, at_least=True, notional=bool(told.notional))


def _save_unsaved_turn(
    project: Project, row: RunRow, state: State, workspace: Workspace, wires: Tripwires, heard: ParsedClaim
) -> tuple[Record, ...]:
    """The records that a turn lacks whose harness died before its work was saved."""
    if not (state.turn_running or isinstance(state.phase, TurnFinished)):
        return ()
    iteration, turn = state.iteration, state.turn
    ended: tuple[TurnEnded, ...] = ()
    if state.turn_running:
        ended = (TurnEnded(iteration, turn, _interrupted_turn(project, row.id, iteration, turn)),)
    name = turn_file_name(str(iteration), turn, ".")
    snapshot = workspace.save(row.id, name)
    sprung = wires.check_and_restore(turn_file_name(f"agent_{iteration:03d}", turn))
    if sprung.touched:
        snapshot = workspace.save(row.id, f"{name}-put-back")
    change = workspace.change(state.current_tree, snapshot)
    if change.rewritten or snapshot.id is None:
        change = replace(change, kept=wires.history_backup())
    return (*ended, Saved(iteration, turn, snapshot, change, heard, sprung))


def _describe_records(records: tuple[Record, ...]) -> list[str]:
    """What there is to say of these records' turn: its cost, where nobody heard it, and its tripwires."""
    told = [_describe_cost("its last turn", records[0].reply.spent)] if isinstance(records[0], TurnEnded) else []
    for sprung in (record.sprung for record in records if isinstance(record, Saved)):
        if back := [one.path for one in sprung.touched if not one.trouble]:
            told.append(f"put back, because no agent may change it: {', '.join(back)}")
        told += [f"{one.path} could not be put back: {one.trouble}" for one in sprung.touched if one.trouble]
        told += [f"the attempt is kept in {sprung.patch}"] if sprung.patch else []
        told += sprung.remarks
    return told


def _describe_cost(what: str, spent: Spent) -> str:
    if spent.micro_usd is None:
        return f"what {what} cost is not known"
    return f"{what} cost at least {format_usd(spent.micro_usd)}"


def _run_tripwires(project: Project, row: RunRow, began: RunBegan, workspace: Workspace) -> Tripwires:
    """The tripwires that the run had set."""
    listed = began.facts.get("protectedPaths")
    protected = tuple(map(str, listed)) if isinstance(listed, list | tuple) else ()
    folder = RunFolder(row.directory, row.id, project.store, project.mask)
    manner = story_workflow_in(began.facts)
    return build_tripwires(protected, workspace, folder, manner.fixed if manner else {})


def restored_paths(ledger: SqliteLedger, run: str) -> tuple[str, ...]:
    """What the last turn of a run changed, may not change, and was put back."""
    saved = [record for record in ledger.records(run) if isinstance(record, Saved)]
    return tuple(one.path for one in saved[-1].sprung.touched) if saved else ()


def find_live_turn(project: Project, run: str) -> turn_journal.TurnHistory | None:
    """The turn of a run that a keeper still owns."""
    owned = (path for path in list_turn_files(project, run) if turn_journal.is_turn_locked(path))
    return next(map(turn_journal.read_turn_file, owned), None)


def end_leftover_processes(run: str) -> list[str]:
    """End every process that carries the mark of this run; what there is to say of it."""
    ended, still = cleanup.end_turn_processes(f"{run}/")
    told = [f"{len(ended)} processes of it were ended"] if ended else []
    return told + ([f"these could not be ended: {', '.join(map(str, still))}"] if still else [])


# Settings that we read when a run is taken up, and that its agent may have changed: no tripwire was asked yet.


@value
class UnjudgedWork:
    """Work whose tripwires are asked by this `name` later on. `over_ns` is when it ended, 0 where nobody can tell."""

    name: str
    over_ns: int = 0
    at_work: bool = False


def state_when_resumed(state: State) -> State:
    """Where a run stands as soon as it is taken up."""
    return state.after(Resumed(state.session + 1, state.began_s, state.elapsed_s))


def find_unjudged_work(
    project: Project, ledger: SqliteLedger, run: str, state: State, custom: bool
) -> UnjudgedWork | None:
    """What was open of a run that stands there; None where all was judged, or never began.

    An agent that is `brought` along is a function, and leaves no trace of its beginning.
    """
    agent, alive = turn_file_name(f"agent_{state.iteration:03d}", state.turn), find_live_turn(project, run) is not None
    match state.phase:
        case TurnRunning() | TurnFinished():
            name = agent
        case Checking() if state.children_awaited_s is not None:
            below = ledger.descendants(run)
            busy = alive or any(is_run_alive(project, row) for row in below)
            over_ns = 0 if busy else idle_since_ns(project, (run, *(row.id for row in below)))
            return UnjudgedWork(f"{agent}_joined", over_ns, busy)
        case _ if SCM_STEP in state.open_steps:
            name = f"scm_{state.iteration:03d}"
        case _:
            return None
    began = alive or turn_journal.read_turn_file(turn_file_path(project, run, name)).began
    return UnjudgedWork(name, turn_end_ns(project, run, state), alive) if began or custom else None


def refuse_tampered_settings(spec: RunSpec, run: str, work: UnjudgedWork, wires: FileTripwires) -> None:
    """Raise Refused where what this process read of the project is not the user's. What is over is put back then."""
    wires.ignore_changes_after(work.over_ns)
    tampered = wires.changed_files(work.name, PATHS_READ_BEFORE_RECOVERY, _settings_digests(spec)) or _changed_skills(
        spec
    )
    if not tampered:
        return
    named = ", ".join(tampered)
    if work.at_work:
        raise Refused(
            f"{named} had been changed when this was begun, and run {run} still has somebody at work here who may have "
            f"done it; resume it when that is over, or end it: ralph cancel {run}"
        )
    stays = [
        f"{one.path} could not be put back: {one.trouble}"
        for one in wires.check_and_restore(work.name).touched
        if one.trouble
    ]
    raise Refused(
        f"{named} had been changed by the agent of run {run}, and this run had read that already: "
        f"{'; '.join([*stays, 'start it again'])}"
    )


def _settings_digests(spec: RunSpec) -> dict[str, str]:
    """The settings files of the project, with their digests as they were read."""
    named = ((os.path.relpath(path, spec.project.root), digest) for path, digest in spec.loaded.files)
    return {path: digest for path, digest in named if path.startswith(PATHS_READ_BEFORE_RECOVERY)}


def _changed_skills(spec: RunSpec) -> tuple[str, ...]:
    """Skills that are not the ones that were read. The files are as they were when the turn began."""
    known = [skill for skill in (spec.skill, spec.debugging_skill) if skill is not None]
    return tuple(sorted({skill.source for skill in known if _current_skill(spec.project.root, skill.name) != skill}))


def _current_skill(root: str, name: str) -> Skill | None:
    from ralphproof.settings.skills import load_skill

    try:
        return load_skill(root, name)
    except Refused:
        return None
