"""Crash recovery: what a run needs whose harness died.

Its processes are ended, the work of its last turn is saved, protected files and stories are put back, its spend is
booked, and its end is recorded and published. A run that is resumed adopts its last turn instead.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable

from ralphproof.base.errors import Busy, RalphError, Refused, StaleRead
from ralphproof.base.files import read_file
from ralphproof.base.git_layout import git_folders
from ralphproof.base.value import replace, value
from ralphproof.engine.agent import Spent, Turn, Usage
from ralphproof.engine.claim import ParsedClaim
from ralphproof.engine.limits import CANCELLED, Breach, format_usd
from ralphproof.engine.loop import judge_call_id, judging_call_id
from ralphproof.engine.metrics import compute_run_metrics
from ralphproof.engine.next_action import RunConditions, aborted_outcome
from ralphproof.engine.outcome import Failed, Outcome, outcome_json
from ralphproof.engine.plan import STORY_MEMORY_NOTE, turn_file_name
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
from ralphproof.engine.sandbox import CONTINUE, KILL, STOP, Exit
from ralphproof.engine.state import (
    SCM_STEP,
    Checking,
    IterationJudged,
    RunOver,
    State,
    TurnFinished,
    TurnRunning,
    build_state,
    count_begun_iterations,
)
from ralphproof.engine.workspace import Tripwires, Workspace
from ralphproof.process.dead_turns import end_turn_processes, signal_keeper
from ralphproof.process.turn_journal import read_turn_file
from ralphproof.proof.page import publish_metrics
from ralphproof.runs.assembly import PROTECTED_COPIES_FOLDER, build_tripwires
from ralphproof.runs.children import cancel_descendants, is_run_alive
from ralphproof.runs.open_project import open_project
from ralphproof.runs.saved_work import list_stored_backups
from ralphproof.runs.spec import RunSpec
from ralphproof.sandbox.runner import remove_sandbox_leftovers
from ralphproof.settings.skills import Skill, load_skill
from ralphproof.store.ledger import RunRow, SqliteLedger
from ralphproof.store.locks import DirectoryLock
from ralphproof.store.project import Project
from ralphproof.store.run_folder import RunFolder, SignalFiles
from ralphproof.store.run_state import find_live_turn, list_command_logs, turn_file_path
from ralphproof.store.spend import SpendStore, last_reported_spend
from ralphproof.stories.files import MarkerFacts, StoryFiles
from ralphproof.stories.plan import StoryPlan
from ralphproof.stories.workflow import story_reviews, story_workflow_in
from ralphproof.views.snapshots import SavedWorkspace
from ralphproof.workspace.tripwires import ProtectedFileTripwires

# Files that a run reads before it closes dead runs.
PATHS_READ_BEFORE_RECOVERY = (".ralph/settings", ".ralph/skills/", ".ralph/templates/", ".claude/skills/")
RECENT_RUNS = 200  # an unfinished run is closed by the next one in its directory, so it is a recent one
NEWEST_ENDED_RUNS = 5  # ended runs of a directory that may still have a live turn; no run begins beside one
END_TIMEOUT_S = 20.0
END_POLL_S = 0.05
KILL_AFTER_S = 10.0  # a turn that was asked to end is killed after this
ACTIVITY_SUFFIXES = (".turn", ".log", ".ndjson")  # what a command leaves while it is at work


def close_dead_runs(ledger: SqliteLedger, project: Project, own_run: str, parent: str = "") -> list[str]:
    """Close the runs of this directory whose harness died; remarks about them. The caller holds the directory's lock.

    Raises Refused where a keeper still runs a turn here, unless this run is a child of that run. Raises StaleRead where
    the caller has read files that a dead run's agent had changed, and that are put back now. Live runs that share the
    directory with their parent are left alone.
    """
    rows = ledger.runs(RECENT_RUNS)
    here = [row for row in rows if row.directory == project.root and row.id != own_run]
    ended = [row for row in here if row.ended]
    for row in ended[:NEWEST_ENDED_RUNS]:  # a harness may have ended a run without being able to end its turn
        if find_live_turn(project, row.id):
            raise Refused(
                f"run {row.id} is over, and its agent is still at work here; end it: ralph cancel {row.id}; "
                f"where it can be taken up: ralph run --resume {row.id}"
            )
    if here and here[0].ended:
        DeadRun(ledger, project, here[0]).discard_protected_copies()
    if ended:
        DeadRun(ledger, project, ended[0]).put_back_unjudged_stories()
    messages: list[str] = []
    ancestors = _run_and_ancestors(rows, parent)
    for row in here:
        if row.ended or row.id in ancestors or row.process.alive:
            continue
        if find_live_turn(project, row.id):
            raise Refused(
                f"run {row.id} lost its harness, and its agent is still at work here; "
                f"take it up: ralph run --resume {row.id}; or end it: ralph cancel {row.id}"
            )
        dead_run = DeadRun(ledger, project, row)
        stories_before = dead_run.read_stories_file()
        messages.append("; ".join([f"run {row.id} crashed and is closed", *dead_run.close(_crash_outcome)]))
        tampered = [path for path in dead_run.restored_paths() if path.startswith(PATHS_READ_BEFORE_RECOVERY)]
        if dead_run.read_stories_file() != stories_before:
            tampered.append(dead_run.stories_file)
        if tampered:
            raise StaleRead(f"{messages[-1]}; {', '.join(tampered)} had been changed by its agent, and was put back")
    return messages


def recover_folder(folder: str | None) -> list[str]:
    """Close the dead runs of a directory whose settings or stories cannot be read; remarks about them.

    Their agents may have damaged these files; closing the runs restores them.
    """
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


def close_cancelled_run(ledger: SqliteLedger, project: Project, row: RunRow) -> list[str]:
    """End what a dead harness left of a run, and record that the run is cancelled; remarks.

    The lock keeps a new run from closing this one at the same time. Whoever holds it closes this run, or resumes it and
    then sees the request to cancel.
    """
    lock = DirectoryLock(project.state_dir, row.directory, row.id, row.parent)
    try:
        lock.take()
    except Busy:
        return []
    try:
        if ledger.run_end(row.id) is not None:
            return []  # a new run has closed it
        end_live_turn(row.id, project)
        run_project = replace(project, root=row.directory) if row.directory else project
        return DeadRun(ledger, run_project, row).close(_cancelled_outcome)
    finally:
        lock.release()


def end_live_turn(run: str, project: Project) -> None:
    """Ask the keeper of a live turn to end it, and wait until it has; raises Refused where it does not end in time."""
    began, requested = time.monotonic(), CONTINUE
    while turn := find_live_turn(project, run):
        waited_s = time.monotonic() - began
        level = KILL if waited_s > KILL_AFTER_S else STOP
        if level > requested:
            signal_keeper(turn, level)
            requested = level
        if waited_s > END_TIMEOUT_S:
            raise Refused(f"what run {run} started does not end; its keeper has pid {turn.keeper[0]}")
        time.sleep(END_POLL_S)


def end_leftover_processes(run: str) -> list[str]:
    """End every process that is marked with this run; remarks about them."""
    ended, survivors = end_turn_processes(f"{run}/")
    remarks = [f"{len(ended)} processes of it were ended"] if ended else []
    return remarks + ([f"these could not be ended: {', '.join(map(str, survivors))}"] if survivors else [])


def _run_and_ancestors(rows: tuple[RunRow, ...], run: str) -> set[str]:
    parents, runs = {row.id: row.parent for row in rows}, set[str]()
    while run and run not in runs:
        runs.add(run)
        run = parents.get(run, "")
    return runs


def _crash_outcome(state: State) -> Outcome:
    died = "the harness died in mid-run (crashed)"
    return Failed(died, count_begun_iterations(state), spend=state.bill, seconds=state.run.elapsed_s)


def _cancelled_outcome(state: State) -> Outcome:
    why = Breach(CANCELLED, "cancelled; its harness had died")
    return aborted_outcome(state, RunConditions(state.run.elapsed_s), why)


class DeadRun:
    """A run without a harness, as its records describe it. The caller holds the lock of its directory."""

    def __init__(self, ledger: SqliteLedger, project: Project, row: RunRow) -> None:
        self._ledger, self._project, self._row = ledger, project, row
        self._folder = RunFolder(row.directory, row.id, project.store, project.mask)
        self._load()
        self._began = next((record for record in self._records if isinstance(record, RunBegan)), None)
        self._workflow = story_workflow_in(self._began.facts) if self._began else None
        self.stories_file = f"{self._workflow.folder}/tasks.json" if self._workflow else ""

    def _load(self) -> None:
        self._records = self._ledger.records(self._row.id)
        self._state = build_state(self._records)

    def _append(self, records: tuple[Record, ...]) -> None:
        self._ledger.append(self._row.id, records)
        self._load()

    def close(self, ending: Callable[[State], Outcome]) -> list[str]:
        """End its processes, save its agent's work, and record and publish how it ended; remarks."""
        project, row, ledger = self._project, self._row, self._ledger
        remarks = [*end_leftover_processes(row.id), *cancel_descendants(project, ledger, row.id)]
        remove_sandbox_leftovers(project.store, row.directory, row.id)
        if self._began and (missing := self._describe_missing_repository()):
            remarks += [missing, *self._restore_stories()]
        elif self._began and os.path.isdir(row.directory):
            remarks += [*self._save_work(self._began), *self._restore_stories()]
        ended_s = ledger.last_written_at(row.id) or row.began_at
        if stopped := self._stopped_judges():
            self._append(stopped)
            remarks.append(_describe_cost("its judge", stopped[0].spent))
        outcome = ending(self._state)
        self._book_spend(ended_s)
        reviewed = story_reviews(project, row, self._began.facts) if self._began else ()
        metrics = compute_run_metrics(self._state, outcome, ended_s, reviewed)
        ended = RunEnded(outcome, metrics, self._state.run.session)
        self._folder.begin_outcome()
        ledger.append(row.id, (ended,))
        if os.path.isdir(row.directory):
            publish_metrics(ledger, project, row, ended)
            self._publish_last_logs()
            self._folder.write_outcome(outcome_json(outcome, row.id, metrics))
        return remarks

    def discard_protected_copies(self) -> None:
        """Finish the clean-up of a run whose harness died after the run's end was recorded."""
        copies = self._folder.log_base(PROTECTED_COPIES_FOLDER)
        if self._began is None or not os.path.isdir(copies) or not os.listdir(copies):
            return
        in_turn = isinstance(self._state.phase_before_end, TurnRunning | TurnFinished)
        if in_turn or not isinstance(self._state.phase, RunOver) or self._describe_missing_repository():
            return  # a resumed run still needs these copies
        with self._open_workspace(self._began) as saved:
            self._tripwires(self._began, saved.workspace).discard()

    def restored_paths(self) -> list[str]:
        """Protected paths that its last turn changed, and that were restored."""
        saved = [record for record in self._records if isinstance(record, Saved)]
        return [change.path for change in saved[-1].sprung.touched] if saved else []

    # Work of the last turn

    def _open_workspace(self, began: RunBegan) -> SavedWorkspace:
        return SavedWorkspace(self._project, self._row, str(began.facts.get("workspace")), own_folder=False)

    def _tripwires(self, began: RunBegan, workspace: Workspace) -> Tripwires:
        listed = began.facts.get("protectedPaths")
        protected = tuple(map(str, listed)) if isinstance(listed, list | tuple) else ()
        return build_tripwires(protected, workspace, self._folder, self._workflow.fixed if self._workflow else {})

    def _describe_missing_repository(self) -> str:
        """The message for a run whose git repository is gone, so that its work cannot be saved; else empty."""
        folder = self._row.directory
        in_git = self._began is not None and self._began.facts.get("workspace") == "git"
        if not in_git or not os.path.isdir(folder) or git_folders(folder):
            return ""
        has_copy = any(copy.start.run == self._row.id for copy in list_stored_backups(self._project))
        advice = (
            f"put it back: ralph restore {self._row.id}"
            if has_copy
            else "no copy of it was kept; look for it where you pushed to"
        )
        return f"the repository of {folder} is gone, so its work could not be saved; {advice}"

    def _save_work(self, began: RunBegan) -> list[str]:
        """Save the work of a turn that was not saved, and put protected files back; remarks."""
        remarks: list[str] = []
        with self._open_workspace(began) as saved:
            tripwires = self._tripwires(began, saved.workspace)
            if self._state.turn_running or isinstance(self._state.phase, TurnFinished):
                iteration, records = self._state.iteration, self._turn_records(began, saved.workspace, tripwires)
                self._append(records)
                remarks += [f"the work of its iteration {iteration} is saved", *_describe_records(records)]
            remarks += tripwires.final_warnings()
            tripwires.discard()
        return remarks

    def _turn_records(self, began: RunBegan, workspace: Workspace, tripwires: Tripwires) -> tuple[Record, ...]:
        """The missing records of a turn whose work was not saved."""
        state, run = self._state, self._row.id
        turn_name = turn_file_name(f"agent_{state.iteration:03d}", state.turn)
        ended: tuple[TurnEnded, ...] = ()
        if state.turn_running:
            ended = (TurnEnded(state.iteration, state.turn, self._interrupted_turn(turn_name)),)
        name = turn_file_name(str(state.iteration), state.turn, ".")
        snapshot = workspace.save(run, name)
        sprung = tripwires.check_and_restore(turn_name)
        if sprung.touched:
            snapshot = workspace.save(run, f"{name}-put-back")
        change = workspace.change(state.trees.current, snapshot)
        if change.rewritten or snapshot.id is None:
            change = replace(change, kept=tripwires.history_backup())
        claim = _read_marker_claim(began.facts.get("taskFolder"))
        return (*ended, Saved(state.iteration, state.turn, snapshot, change, claim, sprung))

    def _interrupted_turn(self, turn_name: str) -> Turn:
        """A turn whose end was not observed, with its last reported cost."""
        spent = self._last_reported_cost(f"{self._row.id}/{turn_name}")
        return Turn(
            Exit(None, why="interrupted"), usage=spent.usage, micro_usd=spent.micro_usd, at_least=spent.at_least,
            notional=spent.notional,
        )  # fmt: skip

    def _publish_last_logs(self) -> None:
        """Publish the logs of the last iteration; those of earlier ones were published."""
        logs = list_command_logs(self._project, self._row.id)
        for log in logs:
            if log.iteration == logs[-1].iteration:
                self._folder.publish(log.name)

    # Spend

    def _last_reported_cost(self, call: str) -> Spent:
        """The last reported cost of a call whose end was not observed."""
        reported = last_reported_spend(self._project.state_dir, self._row.id, call)
        if reported is None:
            return Spent(None)
        usage = Usage(reported.tokens) if reported.tokens else None
        return Spent(reported.micro_usd, usage, at_least=True, notional=bool(reported.notional))

    def _stopped_judges(self) -> tuple[CheckStopped, ...]:
        """Records for the judges that were running when the harness died, because they cost something.

        The last reported cost is the total of all of them, so the first record has it.
        """
        state = self._state
        if not isinstance(state.phase, Checking):
            return ()
        known = {record_key(record) for record in self._records}
        stopped = [
            CheckStopped(state.iteration, state.turn, check, Spent(None), state.run.session)
            for check in state.open_steps
            if check in state.job.stage.judges
        ]
        missing = [record for record in stopped if record_key(record) not in known]
        if missing:
            missing[0] = replace(missing[0], spent=self._last_reported_cost(judging_call_id(state.run.id)))
        return tuple(missing)

    def _book_spend(self, at: float) -> None:
        """Book what was spent and not booked when the harness died. What is booked already keeps its date."""
        state, run, spend = self._state, self._row.id, SpendStore.open(self._project.state_dir)
        try:
            if SCM_STEP in state.open_steps:
                spend.book(run, f"{run}/scm_{state.iteration:03d}", Spent(None), at)
            for record in self._records:
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

    # Stories

    def read_stories_file(self) -> bytes | None:
        """The present content of its stories file; None where it has none."""
        return read_file(os.path.join(self._row.directory, self.stories_file)) if self.stories_file else None

    def put_back_unjudged_stories(self) -> None:
        """Restore the stories file of a run that ended before a turn was judged, unless it was touched since.

        Raises StaleRead where the file changed: whoever read it before must read it again.
        """
        unjudged = isinstance(self._state.phase_before_end, TurnRunning | TurnFinished | Checking)
        if not self._workflow or not unjudged:
            return
        try:
            touched_s = os.lstat(os.path.join(self._row.directory, self.stories_file)).st_ctime
        except OSError:
            touched_s = 0.0
        if touched_s > (self._ledger.last_written_at(self._row.id) or 0.0):
            return  # the user's, who may write what they like
        before = self.read_stories_file()
        self._restore_stories()
        if self.read_stories_file() != before:
            raise StaleRead(f"{self.stories_file} held what run {self._row.id} had not judged, and was put back")

    def _restore_stories(self) -> list[str]:
        """Write the stories that the dead harness knew, without what it had not judged; remarks."""
        workflow = self._workflow
        if workflow is None or not isinstance(self._folder.noted(STORY_MEMORY_NOTE), dict):
            return []
        facts = MarkerFacts(self._row.id, 0, workflow.skip_review, workflow.cap, workflow.folder)
        plan = StoryPlan(self.stories_file, workflow, StoryFiles(self._row.directory, facts, self._folder))
        try:
            return [*_restore_by_phase(plan, self._state)]
        except RalphError as error:
            return [f"the stories could not be put in order: {error}"]
        finally:
            plan.close()


def _restore_by_phase(plan: StoryPlan, state: State) -> tuple[str, ...]:
    match state.phase_before_end if isinstance(state.phase, RunOver) else state.phase:
        case Checking(facts):
            return plan.revert_turn(turn_file_name(str(state.iteration), state.turn, "."), facts)
        case IterationJudged(facts, verdict):
            return plan.apply_verdict(facts, verdict)
        case TurnRunning() | TurnFinished():
            plan.restore()
            return ()
        case _:
            return ()


def _read_marker_claim(task_folder: object) -> ParsedClaim:
    """The claim in a marker file: recorded, so that the next run in this task folder does not take it for its own."""
    try:
        return ParsedClaim(SignalFiles(task_folder).look()) if isinstance(task_folder, str) else ParsedClaim()
    except RalphError:
        return ParsedClaim()  # unreadable, which is reported when a run needs it


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


# Resuming: a resumed run reads its settings before the tripwires of the interrupted turn are checked.


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
    turn_name = turn_file_name(f"agent_{state.iteration:03d}", state.turn)
    alive = find_live_turn(project, run) is not None
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
    began = alive or read_turn_file(turn_file_path(project, run, name)).began
    return UnjudgedWork(name, turn_end_ns(project, run, state), alive) if began or custom else None


def turn_end_ns(project: Project, run: str, state: State) -> int:
    """When the agent's call ended whose work was not saved, by the clock that stamps files.

    0 where there was none, or it still runs, or was cut off: its changes cannot be told from those of others then.
    Where no agent writes the commit message, it is the commit itself, which changes no file once it began.
    """
    if isinstance(state.phase, TurnRunning | TurnFinished):
        name = turn_file_name(f"agent_{state.iteration:03d}", state.turn)
    elif SCM_STEP in state.open_steps and state.job.stage.commit:
        file = turn_file_path(project, run, f"scm_{state.iteration:03d}_commit")
        return os.stat(file).st_mtime_ns if read_turn_file(file).began else 0
    elif SCM_STEP in state.open_steps:
        name = f"scm_{state.iteration:03d}"
    else:
        return 0
    file = turn_file_path(project, run, name)
    result = read_turn_file(file).result
    return os.stat(file).st_mtime_ns if result is not None and result["why"] != "interrupted" else 0


def idle_since_ns(project: Project, runs: Iterable[str]) -> int:
    """When these runs were last active, by the clock that stamps files: the time of their newest file."""
    folders = (os.path.join(project.store, "runs", run) for run in runs)
    files = (os.path.join(folder, name) for folder in folders if os.path.isdir(folder) for name in os.listdir(folder))
    return max((os.lstat(file).st_mtime_ns for file in files if file.endswith(ACTIVITY_SUFFIXES)), default=0)


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
    try:
        return load_skill(root, name)
    except Refused:
        return None
