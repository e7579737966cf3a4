"""Runs whose harness died: closing them, saving their work, and refusing tampered settings."""

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
from ralphproof.engine.loop import judge_call_id, judging_call_id
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
from ralphproof.process import cleanup, turn_journal
from ralphproof.proof.page import publish_metrics
from ralphproof.runs.assembly import PROTECTED_COPIES_FOLDER, build_tripwires
from ralphproof.runs.children import cancel_descendants, is_run_alive
from ralphproof.runs.open_project import open_project
from ralphproof.sandbox.selection import remove_sandbox_leftovers
from ralphproof.store.ledger import RunRow, SqliteLedger
from ralphproof.store.project import Project
from ralphproof.store.run_folder import RunFolder
from ralphproof.store.run_state import list_command_logs, list_turn_files, turn_file_path
from ralphproof.store.signal_files import SignalFiles
from ralphproof.store.spend import SpendStore, last_reported_spend
from ralphproof.stories.recovery import refuse_unjudged_stories, restore_stories, watch_stories_file
from ralphproof.stories.workflow import story_reviews, story_workflow_in
from ralphproof.views.interrupted_run import idle_since_ns, turn_end_ns
from ralphproof.views.snapshots import SavedWorkspace

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.engine.workspace import Tripwires, Workspace
    from ralphproof.runs.spec import RunSpec
    from ralphproof.settings.skills import Skill
    from ralphproof.workspace.protected_files import ProtectedFileTripwires


# Files that a run reads before it closes dead runs.
PATHS_READ_BEFORE_RECOVERY = (".ralph/settings", ".ralph/skills/", ".ralph/templates/", ".claude/skills/")
RECENT_RUNS = 200  # an unfinished run is closed by the next one in its directory, so it is a recent one
NEWEST_ENDED_RUNS = 5  # ended runs of a directory that may still have a live turn; no run begins beside one


def close_dead_runs(ledger: SqliteLedger, project: Project, own_run: str, parent: str = "") -> list[str]:
    """Close the runs of this directory whose harness died; remarks about them. The caller holds the directory's lock.

    Raises Refused where a keeper still runs a turn here, unless this run is a child of that run. Live runs that share
    the directory with their parent are left alone.
    """
    messages: list[str] = []
    rows = ledger.runs(RECENT_RUNS)
    ancestors = _run_and_ancestors(rows, parent)
    _finish_cleanup(ledger, project, rows, own_run)
    _refuse_beside_live_turn(project, [row for row in rows if row.ended and row.directory == project.root], own_run)
    if last := next((row for row in rows if row.ended and row.directory == project.root and row.id != own_run), None):
        refuse_unjudged_stories(ledger, project, last)
    for row in rows:
        if row.ended or row.directory != project.root or row.id == own_run or row.id in ancestors or row.process.alive:
            continue
        if find_live_turn(project, row.id):
            raise Refused(
                f"run {row.id} lost its harness, and its agent is still at work here; "
                f"take it up: ralph run --resume {row.id}; or end it: ralph cancel {row.id}"
            )
        stories = watch_stories_file(ledger, row)
        remarks = close_dead_run(ledger, project, row, _crash_outcome)
        messages.append("; ".join([f"run {row.id} crashed and is closed", *remarks]))
        tampered = [path for path in restored_paths(ledger, row.id) if path.startswith(PATHS_READ_BEFORE_RECOVERY)]
        if tampered := tampered + stories.changed():
            raise StaleRead(f"{messages[-1]}; {', '.join(tampered)} had been changed by its agent, and was put back")
    return messages


def recover_folder(folder: str | None) -> list[str]:
    """Close the dead runs of a directory whose settings or stories cannot be read; remarks about them.

    Their agents may have damaged these files; closing the runs restores them.
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


def _refuse_beside_live_turn(project: Project, rows: list[RunRow], own_run: str) -> None:
    """Raise Refused where a turn of an ended run is alive: a harness may have ended a run without being able to end its
    turn.
    """
    for row in rows[:NEWEST_ENDED_RUNS]:
        if row.id != own_run and find_live_turn(project, row.id):
            raise Refused(
                f"run {row.id} is over, and its agent is still at work here; end it: ralph cancel {row.id}; "
                f"where it can be taken up: ralph run --resume {row.id}"
            )


def _finish_cleanup(ledger: SqliteLedger, project: Project, rows: tuple[RunRow, ...], own_run: str) -> None:
    """Discard the protected copies of the last run here, where its harness died after the run's end was recorded."""
    row = next((row for row in rows if row.directory == project.root and row.id != own_run), None)
    copies = os.path.join(project.store, "runs", row.id, PROTECTED_COPIES_FOLDER) if row and row.ended else ""
    if row is None or not os.path.isdir(copies) or not os.listdir(copies):
        return
    records = ledger.records(row.id)
    state, began = build_state(records), next((record for record in records if isinstance(record, RunBegan)), None)
    in_turn = isinstance(state.phase_before_end, TurnRunning | TurnFinished)
    if began is None or not isinstance(state.phase, RunOver) or in_turn:
        return  # a resumed run still needs these copies
    if _describe_missing_repository(project, row, began):
        return
    with SavedWorkspace(project, row, str(began.facts.get("workspace")), own_folder=False) as stored:
        _run_tripwires(project, row, began, stored.workspace).discard()


def _describe_missing_repository(project: Project, row: RunRow, began: RunBegan) -> str:
    """The message for a run whose git repository is gone, so that its work cannot be saved; empty where it is there."""
    if began.facts.get("workspace") != "git" or not os.path.isdir(row.directory) or git_folders(row.directory):
        return ""
    from ralphproof.views.snapshots import list_stored_backups

    has_copy = any(copy.start.run == row.id for copy in list_stored_backups(project))
    advice = (
        f"put it back: ralph restore {row.id}"
        if has_copy
        else "no copy of it was kept; look for it where you pushed to"
    )
    return f"the repository of {row.directory} is gone, so its work could not be saved; {advice}"


def _run_and_ancestors(rows: tuple[RunRow, ...], run: str) -> set[str]:
    """A run and all of its ancestors."""
    parents, runs = {row.id: row.parent for row in rows}, set[str]()
    while run and run not in runs:
        runs.add(run)
        run = parents.get(run, "")
    return runs


def _crash_outcome(state: State) -> Outcome:
    died = "the harness died in mid-run (crashed)"
    return Failed(died, count_begun_iterations(state), spend=state.bill, seconds=state.run.elapsed_s)


def close_dead_run(
    ledger: SqliteLedger, project: Project, row: RunRow, ending: Callable[[State], Outcome]
) -> list[str]:
    """End the processes of a run whose harness died, save its agent's work, and record how the run ended; remarks."""
    remarks = [*end_leftover_processes(row.id), *cancel_descendants(project, ledger, row.id)]
    remove_sandbox_leftovers(project.store, row.directory, row.id)
    records = ledger.records(row.id)
    state = build_state(records)
    began = next((record for record in records if isinstance(record, RunBegan)), None)
    if began and (missing := _describe_missing_repository(project, row, began)):
        remarks += [missing, *restore_stories(project, row, began.facts, state)]
    elif began and os.path.isdir(row.directory):
        with SavedWorkspace(project, row, str(began.facts.get("workspace")), own_folder=False) as stored:
            tripwires = _run_tripwires(project, row, began, stored.workspace)
            if saved := _save_unsaved_turn(project, row, state, stored.workspace, tripwires, _read_marker_claim(began)):
                ledger.append(row.id, saved)
                remarks += [f"the work of its iteration {state.iteration} is saved", *_describe_records(saved)]
                state = build_state((*records, *saved))
            remarks += tripwires.final_warnings()
            tripwires.discard()
        remarks += restore_stories(project, row, began.facts, state)
    ended_s = ledger.last_written_at(row.id) or row.began_at
    if stopped := _stopped_check_records(project, state, ledger.records(row.id)):
        ledger.append(row.id, stopped)
        remarks.append(_describe_cost("its judge", stopped[0].spent))
        state = build_state(ledger.records(row.id))
    outcome = ending(state)
    _book_missing_spend(project, state, ledger.records(row.id), ended_s)
    reviewed = story_reviews(project, row, began.facts) if began else ()
    ended = RunEnded(outcome, compute_run_metrics(state, outcome, ended_s, reviewed), state.run.session)
    folder = RunFolder(row.directory, row.id, project.store, project.mask)
    folder.begin_outcome()
    ledger.append(row.id, (ended,))
    if os.path.isdir(row.directory):
        publish_metrics(ledger, project, row, ended)
        _publish_logs(project, row, folder)
        folder.write_outcome(outcome_with_metrics(outcome_json(outcome), ended.metrics))
    return remarks


def _publish_logs(project: Project, row: RunRow, folder: RunFolder) -> None:
    """Publish the logs of the last iteration; those of earlier ones were published. Several commands may have run at
    once.
    """
    logs = list_command_logs(project, row.id)
    for log in logs:
        if log.iteration == logs[-1].iteration:
            folder.publish(log.name)


def _stopped_check_records(project: Project, state: State, records: tuple[Record, ...]) -> tuple[CheckStopped, ...]:
    """Records for the judges that were running when the harness died, because they cost something.

    The last reported cost is the total of all of them, so the first record has it.
    """
    if not isinstance(state.phase, Checking):
        return ()
    position, session = (state.iteration, state.turn), state.run.session
    judges = (check for check in state.open_steps if check in state.job.stage.judges)
    stopped = [CheckStopped(*position, check, Spent(None), session) for check in judges]
    missing = [
        record for record in stopped if not any(record_key(record) == record_key(existing) for existing in records)
    ]
    if missing:
        missing[0] = replace(
            missing[0], spent=_last_reported_cost(project, state.run.id, judging_call_id(state.run.id))
        )
    return tuple(missing)


def _book_missing_spend(project: Project, state: State, records: tuple[Record, ...], at: float) -> None:
    """Book what was spent and not booked when the harness died. What is booked already keeps its date."""
    run, spend = state.run.id, SpendStore.open(project.state_dir)
    try:
        if SCM_STEP in state.open_steps:
            spend.book(run, f"{run}/scm_{state.iteration:03d}", Spent(None), at)
        for record in records:
            match record:
                case TurnEnded(iteration, turn, reply) if reply.exit.why != "unstartable":
                    spend.book(run, f"{run}/{turn_file_name(f'agent_{iteration:03d}', turn)}", reply.spent, at)
                case CheckStopped(iteration, turn, check, spent, session) if session == state.run.session:
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
    """The claim in a marker file: recorded, so that the next run in this task folder does not take it for its own."""
    folder = began.facts.get("taskFolder")
    try:
        return ParsedClaim(SignalFiles(folder).look()) if isinstance(folder, str) and folder else ParsedClaim()
    except RalphError:
        return ParsedClaim()  # unreadable, which is reported when a run needs it


def _interrupted_turn(project: Project, run: str, iteration: int, turn: int) -> Turn:
    """A turn whose end was not observed, with its last reported cost."""
    spent = _last_reported_cost(project, run, f"{run}/{turn_file_name(f'agent_{iteration:03d}', turn)}")
    return Turn(
        Exit(None, why="interrupted"), usage=spent.usage, micro_usd=spent.micro_usd, at_least=spent.at_least,
        notional=spent.notional,
    )  # fmt: skip


def _last_reported_cost(project: Project, run: str, call: str) -> Spent:
    """The last reported cost of a call whose end was not observed."""
    reported = last_reported_spend(project.state_dir, run, call)
    if reported is None:
        return Spent(None)
    usage = Usage(reported.tokens) if reported.tokens else None
    return Spent(reported.micro_usd, usage, at_least=True, notional=bool(reported.notional))


def _save_unsaved_turn(
    project: Project, row: RunRow, state: State, workspace: Workspace, tripwires: Tripwires, claim: ParsedClaim
) -> tuple[Record, ...]:
    """The missing records of a turn whose harness died before its work was saved."""
    if not (state.turn_running or isinstance(state.phase, TurnFinished)):
        return ()
    iteration, turn = state.iteration, state.turn
    ended: tuple[TurnEnded, ...] = ()
    if state.turn_running:
        ended = (TurnEnded(iteration, turn, _interrupted_turn(project, row.id, iteration, turn)),)
    name = turn_file_name(str(iteration), turn, ".")
    snapshot = workspace.save(row.id, name)
    sprung = tripwires.check_and_restore(turn_file_name(f"agent_{iteration:03d}", turn))
    if sprung.touched:
        snapshot = workspace.save(row.id, f"{name}-put-back")
    change = workspace.change(state.trees.current, snapshot)
    if change.rewritten or snapshot.id is None:
        change = replace(change, kept=tripwires.history_backup())
    return (*ended, Saved(iteration, turn, snapshot, change, claim, sprung))


def _describe_records(records: tuple[Record, ...]) -> list[str]:
    """Remarks about the turn of these records: its cost, if it was interrupted, and what its tripwires restored."""
    remarks = [_describe_cost("its last turn", records[0].reply.spent)] if isinstance(records[0], TurnEnded) else []
    for sprung in (record.sprung for record in records if isinstance(record, Saved)):
        if restored := [path_change.path for path_change in sprung.touched if not path_change.trouble]:
            remarks.append(f"put back, because no agent may change it: {', '.join(restored)}")
        remarks += [
            f"{path_change.path} could not be put back: {path_change.trouble}"
            for path_change in sprung.touched
            if path_change.trouble
        ]
        remarks += [f"the attempt is kept in {sprung.patch}"] if sprung.patch else []
        remarks += sprung.remarks
    return remarks


def _describe_cost(subject: str, spent: Spent) -> str:
    if spent.micro_usd is None:
        return f"what {subject} cost is not known"
    return f"{subject} cost at least {format_usd(spent.micro_usd)}"


def _run_tripwires(project: Project, row: RunRow, began: RunBegan, workspace: Workspace) -> Tripwires:
    """The tripwires of the run."""
    listed = began.facts.get("protectedPaths")
    protected = tuple(map(str, listed)) if isinstance(listed, list | tuple) else ()
    folder = RunFolder(row.directory, row.id, project.store, project.mask)
    workflow = story_workflow_in(began.facts)
    return build_tripwires(protected, workspace, folder, workflow.fixed if workflow else {})


def restored_paths(ledger: SqliteLedger, run: str) -> tuple[str, ...]:
    """Protected paths that the last turn of a run changed, and that were restored."""
    saved = [record for record in ledger.records(run) if isinstance(record, Saved)]
    return tuple(one.path for one in saved[-1].sprung.touched) if saved else ()


def find_live_turn(project: Project, run: str) -> turn_journal.TurnHistory | None:
    """The turn of a run that a keeper still runs."""
    owned = (path for path in list_turn_files(project, run) if turn_journal.is_turn_locked(path))
    return next(map(turn_journal.read_turn_file, owned), None)


def end_leftover_processes(run: str) -> list[str]:
    """End every process that is marked with this run; remarks about them."""
    ended, survivors = cleanup.end_turn_processes(f"{run}/")
    remarks = [f"{len(ended)} processes of it were ended"] if ended else []
    return remarks + ([f"these could not be ended: {', '.join(map(str, survivors))}"] if survivors else [])


# Tampered settings: a resumed run reads its settings before the tripwires of the interrupted turn are checked.


@value
class UnjudgedWork:
    """Work of an agent whose tripwires have not been checked yet; they are checked under `name`.

    `ended_ns` is when it ended, 0 where that is unknown.
    """

    name: str
    ended_ns: int = 0
    at_work: bool = False


def state_when_resumed(state: State) -> State:
    """The state of a run right after it is resumed."""
    return state.after(Resumed(state.run.session + 1, state.run.began_s, state.run.elapsed_s))


def find_unjudged_work(
    project: Project, ledger: SqliteLedger, run: str, state: State, custom: bool
) -> UnjudgedWork | None:
    """The unchecked work of a run in this state; None where all was checked, or none began.

    With a `custom` agent, which is a function and leaves no trace of its start, a turn counts as begun.
    """
    turn_name, alive = (
        turn_file_name(f"agent_{state.iteration:03d}", state.turn),
        find_live_turn(project, run) is not None,
    )
    match state.phase:
        case TurnRunning() | TurnFinished():
            name = turn_name
        case Checking() if state.children_awaited_s is not None:
            descendants = ledger.descendants(run)
            busy = alive or any(is_run_alive(project, row) for row in descendants)
            over_ns = 0 if busy else idle_since_ns(project, (run, *(row.id for row in descendants)))
            return UnjudgedWork(f"{turn_name}_joined", over_ns, busy)
        case _ if SCM_STEP in state.open_steps:
            name = f"scm_{state.iteration:03d}"
        case _:
            return None
    began = alive or turn_journal.read_turn_file(turn_file_path(project, run, name)).began
    return UnjudgedWork(name, turn_end_ns(project, run, state), alive) if began or custom else None


def refuse_tampered_settings(spec: RunSpec, run: str, work: UnjudgedWork, tripwires: ProtectedFileTripwires) -> None:
    """Raise Refused where this process has read settings or skills that an agent changed. If the work has ended, they
    are restored first.
    """
    tripwires.ignore_changes_after(work.ended_ns)
    tampered = tripwires.changed_files(
        work.name, PATHS_READ_BEFORE_RECOVERY, _settings_digests(spec)
    ) or _changed_skills(spec)
    if not tampered:
        return
    listed = ", ".join(tampered)
    if work.at_work:
        raise Refused(
            f"{listed} had been changed when this was begun, and run {run} still has somebody at work here who may "
            f"have done it; resume it when that is over, or end it: ralph cancel {run}"
        )
    failures = [
        f"{path_change.path} could not be put back: {path_change.trouble}"
        for path_change in tripwires.check_and_restore(work.name).touched
        if path_change.trouble
    ]
    raise Refused(
        f"{listed} had been changed by the agent of run {run}, and this run had read that already: "
        f"{'; '.join([*failures, 'start it again'])}"
    )


def _settings_digests(spec: RunSpec) -> dict[str, str]:
    """The settings files of the project, with the digests of what was read."""
    relative = ((os.path.relpath(path, spec.project.root), digest) for path, digest in spec.loaded.files)
    return {path: digest for path, digest in relative if path.startswith(PATHS_READ_BEFORE_RECOVERY)}


def _changed_skills(spec: RunSpec) -> tuple[str, ...]:
    """Skills whose files differ from what was read."""
    skills = [skill for skill in (spec.skill, spec.debugging_skill) if skill is not None]
    return tuple(sorted({skill.source for skill in skills if _current_skill(spec.project.root, skill.name) != skill}))


def _current_skill(root: str, name: str) -> Skill | None:
    from ralphproof.settings.skills import load_skill

    try:
        return load_skill(root, name)
    except Refused:
        return None
