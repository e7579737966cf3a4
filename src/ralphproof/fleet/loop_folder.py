"""A loop's folder on a worker: continued from local state, new, or rebuilt from the remote."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager

from ralphproof.base.errors import Busy, HarnessFailed, Refused
from ralphproof.base.files import explain_os_error, make_private_folder, replace_file
from ralphproof.base.git_layout import is_object_id
from ralphproof.base.processes import ProcessIdentity
from ralphproof.base.programs import run_program
from ralphproof.base.value import TYPE_CHECKING, replace, unpack
from ralphproof.engine.agent import Turn
from ralphproof.engine.plan import STORY_MEMORY_NOTE, turn_file_name
from ralphproof.engine.records import (
    BaselineSaved,
    ChildWorkJoined,
    Record,
    RunBegan,
    Saved,
    ScmEnded,
    TurnEnded,
    UserChangesSaved,
)
from ralphproof.engine.sandbox import Exit
from ralphproof.engine.state import build_state
from ralphproof.fleet.messages import LoopSpec, result_branch, without_password
from ralphproof.fleet.remote import LoopLease
from ralphproof.process.tree import find_marked_processes, kill_until_gone
from ralphproof.runs.open_project import open_project
from ralphproof.store.ledger import SqliteLedger, extend_chain
from ralphproof.store.project import Project
from ralphproof.store.run_folder import RunFolder
from ralphproof.store.serialization import dump_masked_json, parse_record
from ralphproof.store.spend import SpendStore
from ralphproof.tasks.draft import TaskDraft
from ralphproof.tasks.store import row_from_draft
from ralphproof.workspace.git_command import NO_HOOKS_OPTIONS
from ralphproof.workspace.git_workspace import GitWorkspace

if TYPE_CHECKING:
    from ralphproof.fleet.remote import ChainRow


# Layout below the worker's folder


LOCK_TIMEOUT_S, LOCK_POLL_S = 20.0, 0.05  # wait for a step of the same loop that is about to end
# Prefixes of variables that configure ralph or identify the current run, and of those with the worker's credentials for
# the server, which give access to all workers.
OWN_VARIABLES = ("RALPH_", "TASK_FOLDER", "TEMPORAL_")


class LoopFolder:
    """The folder of one loop: clone, state and the submitter's settings; the repository's mirror is beside it."""

    def __init__(self, work: str, spec: LoopSpec) -> None:
        self._work, self.loop = os.path.abspath(work), spec.loop
        name = hashlib.sha256(spec.repo.encode("utf-8", "surrogateescape")).hexdigest()[:20]
        self.mirror = os.path.join(self._work, "mirrors", f"{name}.git")
        self.path = os.path.join(self._work, "loops", spec.loop)
        self.tree, self.state = os.path.join(self.path, "tree"), os.path.join(self.path, "state")
        self._config = os.path.join(self.path, "config")
        self._spec = spec
        try:
            make_private_folder(os.path.dirname(self.path))
        except OSError as error:
            raise explain_os_error(error, self._work, "give the worker a folder of its own") from error

    def lock(self) -> None:
        """Lock the loop on this machine until this process ends. Raises Busy if another process keeps the lock."""
        descriptor = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + LOCK_TIMEOUT_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    os.close(descriptor)
                    raise Busy(f"another step of loop {self.loop} is at work in {self._work}; end it first") from None
                time.sleep(LOCK_POLL_S)
            else:
                return

    @property
    def work_folder_id(self) -> str:
        """Unique id of the work folder; created with its first step."""
        path = os.path.join(self._work, "place")
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            pass
        else:
            os.write(descriptor, os.urandom(16).hex().encode())
            os.fsync(descriptor)
            os.close(descriptor)
        with open(path, encoding="ascii") as file:
            folder_id = file.read()
        if len(folder_id) != 32:
            raise Refused(f"{path} does not hold the worker's name; remove it where no step is at work")
        return folder_id

    @property
    def exists(self) -> bool:
        """Whether this machine has a clone for the loop."""
        return os.path.isdir(self.tree)

    def owns_process(self, pid: int) -> bool:
        """Whether a process works in this folder, judged by its environment and current directory."""
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                text = file.read()
            text += b"\0" + os.fsencode(os.readlink(f"/proc/{pid}/cwd")) + b"/"
        except OSError:
            return False
        return os.fsencode(f"{self.path}/") in text

    def step_environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Environment of a step, without the ralph settings of the worker's own user."""
        inherited = {name: text for name, text in environ.items() if not name.upper().startswith(OWN_VARIABLES)}
        return inherited | {"RALPH_STATE_DIR": self.state, "RALPH_CONFIG_DIR": self._config}

    def prepare(self) -> str:
        """Create an empty staging folder in which the loop's folder is built; returns the path for the clone."""
        shutil.rmtree(self._next, ignore_errors=True)
        make_private_folder(self._next)
        return os.path.join(self._next, "tree")

    def activate(self) -> None:
        """Make the staging folder the loop's folder."""
        self.remove()
        os.rename(self._next, self.path)

    @property
    def _next(self) -> str:
        return f"{self.path}.next"

    def write_settings(self) -> None:
        """Write the submitter's settings to where steps of this loop read user settings."""
        make_private_folder(self._config)
        path = os.path.join(self._config, "settings.json")
        replace_file(path, json.dumps(self._spec.user).encode(), durable=False)

    def remove(self) -> None:
        """Delete everything of the loop on this machine."""
        gone = f"{self.path}.gone"
        shutil.rmtree(gone, ignore_errors=True)
        if os.path.isdir(self.path):
            os.rename(self.path, gone)
        shutil.rmtree(gone, ignore_errors=True)


# Taking a loop over, and giving it up


NO_PROCESS = ProcessIdentity(0)
SNAPSHOT_RECORDS = (RunBegan, BaselineSaved, Saved, UserChangesSaved, ChildWorkJoined)
TAKEN, LEFT_FOR_OTHERS = "taken", "left"  # snapshots of our own: before a restore, and when the loop is given up
LOCAL_REF_ROOT = "refs/ralph/local/"
GIT_TIMEOUT_S = 600.0
NOTE_NAMES = ("request", "limits", "pins", STORY_MEMORY_NOTE)  # notes of the run that the next worker needs


class LoopTakeover:
    """The local state of one loop, continued, new, or rebuilt from the remote."""

    def __init__(self, spec: LoopSpec, folder: LoopFolder, lease: LoopLease, environ: Mapping[str, str]) -> None:
        self._spec, self._folder, self._lease = spec, folder, lease
        self._mirror, self._environ, self._loop = lease.mirror, environ, spec.loop
        if folder.exists:
            self._mirror.add_objects_of(folder.tree)

    def take(self) -> None:
        """Make the loop ready here, and claim it on the remote. Raises LeaseLost if another worker has it."""
        record = self._lease.read()
        remote = record.rows if record else ()
        if self._folder.exists:
            local = self.rows()
            if local and _is_prefix(local, remote):
                self._lease.claim(record.meta.base if record else self._base())
                self._folder.write_settings()
                return
            self.put_aside()
        base = record.meta.base if record else self._base()
        self._lease.claim(base)
        self._build(remote, base)

    # Local state

    def project(self) -> Project:
        """The clone as a project."""
        return open_project(self._folder.tree, self._environ)

    def rows(self) -> tuple[ChainRow, ...]:
        """The loop's local records."""
        with closing(self.project().ledger()) as ledger:
            return ledger.chain(self._loop)

    def trees(self, rows: Iterable[ChainRow]) -> dict[str, str]:
        """The saved trees by name: those of the records, and others saved besides."""
        git = self._git("for-each-ref", "--format=%(refname) %(objectname)", f"refs/ralph/{self._loop}/")
        words = (line.split() for line in git.decode("utf-8", "replace").splitlines())
        named = ((ref.rpartition("/")[2], commit) for ref, commit in words if is_object_id(commit))
        trees = {name: commit for name, commit in named if name not in (TAKEN, LEFT_FOR_OTHERS)}
        for record in _parse_records(rows):
            if isinstance(record, SNAPSHOT_RECORDS) and record.snapshot.id and record.snapshot.ref:
                trees[record.snapshot.ref.rpartition("/")[2]] = record.snapshot.id
            elif isinstance(record, ScmEnded) and record.committed.commit:
                trees[f"{record.iteration}-kept"] = record.committed.commit
        return trees

    def notes(self) -> dict[str, bytes]:
        """Further state that the next worker needs, each note as JSON."""
        folder, mask = self._run_folder(), self.project().mask
        notes = {name: folder.noted(name) for name in NOTE_NAMES}
        return {name: dump_masked_json(data, mask).encode() for name, data in notes.items() if data is not None}

    def put_aside(self) -> tuple[str, ...]:
        """Give up the local state: end its processes, push what the remote lacks to lost/ refs, and delete it.

        Returns these refs. If the remote is unreachable, everything stays here for the next attempt.
        """
        kill_until_gone(self._at_work)
        if not self._folder.exists:
            return ()
        rows, unpublished = self.rows(), dict[str, str]()
        if rows:
            unpublished = {
                name: tree for name, tree in self.trees(rows).items() if not self._lease.has_tree(name, tree)
            }
            unpublished |= self._unsaved(rows)
        record = self._lease.record
        known = record.rows if record else ()
        lost: tuple[str, ...] = ()
        if rows and (unpublished or not _is_prefix(known, rows)):
            lost = self._lease.save_lost(rows, unpublished)
        self._folder.remove()
        return lost

    def _at_work(self) -> list[int]:
        """The loop's processes in this folder. Another worker on this machine may run the loop in its own folder."""
        return [pid for pid in find_marked_processes(f"{self._loop}/") if self._folder.owns_process(pid)]

    def _unsaved(self, rows: tuple[ChainRow, ...]) -> dict[str, str]:
        """A snapshot of the current tree, if no record has it."""
        seen = build_state(_parse_records(rows)).trees.last_saved
        with self._workspace() as git:
            now = git.save(self._loop, LEFT_FOR_OTHERS)
        return {LEFT_FOR_OTHERS: now.id} if now.id and now.tree != seen.tree else {}

    @contextmanager
    def _workspace(self) -> Iterator[GitWorkspace]:
        with (
            tempfile.TemporaryDirectory(prefix="ralph-fleet-") as private,
            closing(GitWorkspace(self._folder.tree, private, self._environ)) as git,
        ):
            yield git

    # Building the folder

    def _base(self) -> str:
        """The commit that the work starts from."""
        name, keep = self._spec.base, f"{LOCAL_REF_ROOT}{self._loop}/base"
        named = (f"refs/heads/{name}", f"refs/tags/{name}")
        found = self._mirror.refs(*named)
        for ref in named:
            if ref in found:
                self._mirror.fetch([f"+{ref}:{keep}"])
                return self._mirror.resolve_commit(keep)
        if is_object_id(name):
            self._mirror.fetch(["+refs/heads/*:refs/heads/*"])
            if not self._mirror.resolve_commit(name):
                self._mirror.fetch([f"+{name}:{keep}"])
            if commit := self._mirror.resolve_commit(name):
                return commit
        raise Refused(f"{without_password(self._spec.repo)} has no branch, tag or commit {name}")

    def _build(self, rows: tuple[ChainRow, ...], base: str) -> None:
        """Build the loop's folder. The records come last: a folder without them is built again."""
        records = tuple(_parse_records(rows))
        self._lease.fetch_trees()
        self._clone(_last_head(records) or base)
        self._mirror.add_objects_of(self._folder.tree)
        self._folder.write_settings()
        if rows:
            self._restore(records)
            self._import_records(rows, records)

    def _clone(self, head: str) -> None:
        tree, branch = self._folder.prepare(), f"refs/heads/{result_branch(self._loop)}"
        self._call("clone", "-q", "--local", "--no-checkout", "--no-tags", self._mirror.path, tree)
        self._call("-C", tree, "remote", "set-url", "origin", without_password(self._spec.repo))
        self._call("-C", tree, "update-ref", branch, head)
        self._call("-C", tree, "symbolic-ref", "HEAD", branch)
        self._call("-C", tree, "reset", "-q", "--hard", head)
        self._folder.activate()

    def _restore(self, records: tuple[Record, ...]) -> None:
        """Restore the saved trees under their names, and the files of the last one."""
        work, seen = self._lease.tree_ref("*"), build_state(records).trees.last_saved
        words = ("fetch", "-q", "--no-tags", "--no-write-fetch-head", self._mirror.path)
        self._git(*words, f"+{work}:refs/ralph/{self._loop}/*")
        with self._workspace() as git:
            git.restore(replace(seen, left_out=()), git.save(self._loop, TAKEN))

    def _import_records(self, rows: tuple[ChainRow, ...], records: tuple[Record, ...]) -> None:
        """Write the records. A turn without an end was cut off: its cost is unknown, and it counts."""
        project, state, remote = self.project(), build_state(records), self._lease.record
        folder = self._run_folder()
        for name, data in (remote.notes if remote else {}).items():
            folder.note(name, json.loads(data))
        _book_spend(project.state_dir, self._loop, rows)
        if state.turn_running:
            ended = TurnEnded(state.iteration, state.turn, Turn(Exit(None, why="interrupted")))
            rows = extend_chain(rows, self._loop, ended, time.time(), project.mask)
        with closing(project.ledger(read_only=False)) as ledger:
            task = ensure_task(ledger, self._spec)
            if ledger.row(self._loop) is None:
                ledger.begin_run(self._loop, project.root, time.time(), NO_PROCESS, "", task)
            ledger.import_chain(self._loop, rows)

    def _run_folder(self) -> RunFolder:
        project = self.project()
        return RunFolder(project.root, self._loop, project.store, project.mask)

    def _git(self, *args: str) -> bytes:
        return self._call("-C", self._folder.tree, *args)

    def _call(self, *args: str) -> bytes:
        reply = run_program([self._mirror.git, *NO_HOOKS_OPTIONS, *args], self._mirror.env, timeout_s=GIT_TIMEOUT_S)
        if reply.code:
            raise HarnessFailed(f"git {' '.join(args)[:200]}: {reply.said or reply.code}")
        return reply.out


def _is_prefix(longer_one: tuple[ChainRow, ...], start: tuple[ChainRow, ...]) -> bool:
    """Whether a chain starts with another one: the last digest covers all rows before it."""
    size = len(start)
    return size == 0 or (len(longer_one) >= size and longer_one[size - 1][-1] == start[-1][-1])


def _parse_records(rows: Iterable[ChainRow]) -> Iterable[Record]:
    return (parse_record(row[6], f"record {number} of run {row[0]}") for number, row in enumerate(rows, 1))


def _last_head(records: Iterable[Record]) -> str:
    """The last known HEAD of the loop: that of the last save, or of a later commit."""
    head = ""
    for record in records:
        if isinstance(record, SNAPSHOT_RECORDS):
            head = record.snapshot.head or head
        elif isinstance(record, ScmEnded):
            head = record.committed.commit or head
    return head


def _book_spend(state_dir: str, loop: str, rows: tuple[ChainRow, ...]) -> None:
    """Add what the loop has spent elsewhere to the daily spend here, on the days when it was spent."""
    with closing(SpendStore.open(state_dir)) as spend:
        for row, record in zip(rows, _parse_records(rows), strict=True):
            if isinstance(record, TurnEnded) and record.reply.exit.why != "unstartable":
                name = turn_file_name(f"agent_{record.iteration:03d}", record.turn)
                spend.book(loop, f"{loop}/{name}", record.reply.spent, row[5])


def ensure_task(ledger: SqliteLedger, spec: LoopSpec) -> str:
    """Add the loop spec's task to a ledger that lacks it; returns the task's id, empty if the spec has none."""
    if spec.task is None:
        return ""
    draft = unpack({**spec.task, "is": TaskDraft.__name__})
    if not isinstance(draft, TaskDraft) or not isinstance(draft.id, str):
        raise Refused("task of the loop spec cannot be read; was it written by another version of ralph?")
    if ledger.tasks.row(draft.id) is None:
        ledger.tasks.add((row_from_draft(draft),))
    return draft.id
