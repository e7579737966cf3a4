"""Child runs that the agent of a run began: which are at work, what they cost, and how they are ended."""

from __future__ import annotations

import os
import stat
import time

from ralphproof.agents.command import split_command
from ralphproof.base.errors import RalphError, Refused
from ralphproof.base.git_layout import resolve_project_root
from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.engine.budget import Budget, ChildRunsStatus, RemainingBudget, Spend
from ralphproof.engine.records import Saved, TurnBegan
from ralphproof.runs.constraints import load_constraints
from ralphproof.runs.detach import START_TIMEOUT_S, is_unreaped, read_harness_log_tail, reap_spawned_runs, spawn_run
from ralphproof.runs.request import parse_request, save_request
from ralphproof.sandbox.planner import RALPH_FOLDER
from ralphproof.store.run_folder import RunFolder, is_run_id
from ralphproof.store.run_state import find_live_turn
from ralphproof.workspace.repository_id import lookup_repository_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from ralphproof.runs.request import RunRequest
    from ralphproof.store.project import Project
    from ralphproof.store.runs import RunRow
    from ralphproof.store.spend import SpendStore
    from ralphproof.store.sqlite_ledger import SqliteLedger


# Runs that the agent of a run began: those that it asked for, those that are at work, and what they cost.


CHILD_GRACE_S = 20.0  # for children that are asked to end: longer than an agent's grace
POLL_S = 0.1
REQUESTS_FOLDER = "children"  # in the task folder; the note of what is about to begin has the same name


def is_run_alive(project: Project, row: RunRow) -> bool:
    """Whether anything of a run still lives."""
    return not row.ended and (row.process.alive or find_live_turn(project, row.id) is not None)


def remaining_budget(
    budget: Budget, spend: Spend, run: str, ledger: SqliteLedger, spend_store: SpendStore, call: str
) -> RemainingBudget:
    """What a call of a run may spend that has spent this, beside what its children have, and all of today's runs."""
    spend = spend.plus(spend_store.spend_of(tuple(row.id for row in ledger.descendants(run))))
    return RemainingBudget.of(budget, spend, spend_store.day_spend(time.time(), call))


def cancel_descendants(project: Project, ledger: SqliteLedger, run: str) -> list[str]:
    """Ask the runs below one that was lost to end, as far as they are at work; what there is to say of it."""
    left = [row.id for row in ledger.descendants(run) if is_run_alive(project, row)]
    for one in left:
        ledger.request_control(one, "cancel")
    return [f"run {one} of it goes on, and is asked to end" for one in left]


class LedgerChildRuns:
    """The children of one run, theirs too, as the ledger of its repository knows them.

    One that was begun for the agent and is not on record yet is among them, also where it was begun before this
    process took the run up.
    """

    def __init__(
        self, folder: RunFolder, project: Project, ledger: SqliteLedger, spend_store: SpendStore, env: Mapping[str, str]
    ) -> None:
        """`env` is what the agent of the run is started with."""
        self._folder, self._project, self._ledger, self._spend = folder, project, ledger, spend_store
        self._run, self._env = folder.run, env
        self._place = os.path.join(folder.task_folder, REQUESTS_FOLDER)
        self._asked: ChildRequests | None = None
        self._fresh = True
        self._seen: dict[str, float | None] | None = None
        self._worked = False

    def status(self) -> ChildRunsStatus:
        """Those that are not over, and what all of them have cost. Those that were asked for are begun first."""
        if requests := self._requests():
            requests.begin()
        active, rows = self._active()
        return ChildRunsStatus(active, self._spend.spend_of(tuple(row.id for row in rows)) if rows else Spend())

    def remarks(self) -> tuple[str, ...]:
        """What there is to say of requests since this was last asked."""
        self.status()
        return self._asked.remarks() if self._asked else ()

    def stop_all(self) -> tuple[str, ...]:
        """Begin nothing more, ask those that are at work to end, and wait until they have."""
        requests = self._requests()
        if requests:
            requests.drop()
        deadline, asked = time.monotonic() + CHILD_GRACE_S, dict[str, None]()
        while True:
            left, rows = self._active()
            for run in [row.id for row in rows if row.id in left and row.id not in asked]:
                self._ledger.request_control(run, "cancel")
                asked[run] = None
            if not left or time.monotonic() >= deadline:
                break
            time.sleep(POLL_S)
        told = [*(requests.remarks() if requests else ())]
        told += [f"runs of its own were asked to end: {', '.join(asked)}"] if asked else []
        return (*told, *([f"not over yet: {', '.join(left)}"] if left else []))

    def has_activity(self) -> bool:
        """Whether one of them was at work since this was last asked; at first, since the last turn was seen to."""
        rows = self._ledger.descendants(self._run)
        if not rows:
            return False
        before, self._seen = self._seen, {row.id: self._ledger.last_written_at(row.id) for row in rows}
        worked, self._worked = self._worked, any(is_run_alive(self._project, row) for row in rows)
        if before is not None:
            return worked or self._worked or before != self._seen
        since = self._turn_seen_to()
        return self._worked or any(at is not None and at > since for at in self._seen.values())

    def _turn_seen_to(self) -> float:
        marks = (at for at, record in self._ledger.timed_records(self._run) if isinstance(record, TurnBegan | Saved))
        return max(marks, default=0.0)

    def _active(self) -> tuple[tuple[str, ...], tuple[RunRow, ...]]:
        """Those that are not over, and the rows of all. One that begins at this moment is in the one or the other."""
        coming = self._asked.coming() if self._asked else ()
        rows = self._ledger.descendants(self._run)
        known = {row.id for row in rows}
        working = (row.id for row in rows if is_run_alive(self._project, row))
        return (*working, *(run for run in coming if run not in known)), rows

    def _requests(self) -> ChildRequests | None:
        """None as long as nothing was ever asked for, which is most often."""
        fresh, self._fresh = self._fresh, False
        if self._asked is None and (os.path.isdir(self._place) or (fresh and self._folder.noted(REQUESTS_FOLDER))):
            self._asked = ChildRequests(self._folder, self._project, self._ledger, self._env)
        return self._asked


# What an agent in a sandbox may ask for: nothing that the harness would read, load or start outside of it.


MAX_PROMPT_BYTES = 16 << 20
_OPEN_NO_FOLLOW = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# Settings that say what is asked and how often, and start nothing but what runs inside.
REQUESTABLE_SETTINGS = frozenset((
    "preset", "maximumIterations", "completionResponse", "outputTruncateChars", "outputTruncateMode",
    "streamAgentOutput", "includeIterationCountInPrompt", "contextInjection", "checksWhen", "requireProof", "limits",
    "protectedPaths", "review", "supervise", "guardrails", "agent", "sandbox",
))  # fmt: skip
REQUESTABLE_AGENT_SETTINGS = frozenset(("command", "flags", "model", "timeoutSeconds", "idleTimeoutSeconds", "retries"))
REQUESTABLE_CHECK_SETTINGS = frozenset(("command", "failAction", "hint", "name", "timeoutSeconds", "retries"))


def find_request_problem(request: RunRequest, root: str, task_folder: str) -> str:
    """Why a wish may not leave the sandbox, in one clause; empty where it may. `sandbox` settings are ours anyway."""
    for name, path in (("its prompt", request.prompt[1]), ("its task folder", request.task_folder)):
        if path and not _is_within(os.path.join(root, path), (root, task_folder)):
            return f"{name} lies outside of the sandbox"
    task = os.path.join(root, request.task_folder)
    if _is_within(task, (os.path.join(root, RALPH_FOLDER),)) and not _is_within(task, (task_folder,)):
        return f"its task folder lies in {RALPH_FOLDER}, which is held"
    if not _is_within(os.path.join(root, request.project_dir or ""), (root,)):
        return "its project lies outside of the sandbox"
    closed = sorted(set(request.flags) - REQUESTABLE_SETTINGS)
    closed += [
        f"agent.{name}" for name in sorted(set(_as_dict(request.flags.get("agent"))) - REQUESTABLE_AGENT_SETTINGS)
    ]
    checks = request.flags.get("guardrails")
    for check in checks if isinstance(checks, list) else ():
        closed += [f"guardrails.{name}" for name in sorted(set(_as_dict(check)) - REQUESTABLE_CHECK_SETTINGS)]
    if closed:
        return f"{closed[0]} is for the user to set"
    return _find_agent_problem(_as_dict(request.flags.get("agent")).get("command"))


def embed_prompt_file(request: RunRequest, root: str, task_folder: str) -> RunRequest:
    """The same with what its prompt's file says now: whoever asks is still at work, and may put a link there later."""
    if not request.prompt[1]:
        return request
    real = os.path.realpath(os.path.join(root, request.prompt[1]))
    tops = [top for top in map(os.path.realpath, (root, task_folder)) if real.startswith(top + "/")]
    try:
        text = _read_prompt_file(tops[0], os.path.relpath(real, tops[0]).split("/")) if tops else None
    except OSError:
        text = None
    if text is None:
        raise Refused("its prompt cannot be read")
    return replace(request, prompt=(text.decode("utf-8", "replace"), None))


def _read_prompt_file(top: str, names: list[str]) -> bytes | None:
    """What a plain file says that no link leads to; None where it is none."""
    place = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for name in names:
        above = place
        try:
            place = os.open(name, _OPEN_NO_FOLLOW, dir_fd=above)
        finally:
            os.close(above)
    with open(place, "rb") as file:
        return file.read(MAX_PROMPT_BYTES) if stat.S_ISREG(os.fstat(place).st_mode) else None


def _find_agent_problem(command: object) -> str:
    """An agent that is a function would be loaded into the harness."""
    try:
        program = split_command(command, ())[0] if isinstance(command, str) and command.strip() else ""
    except RalphError:
        return "its agent cannot be understood"
    return "its agent would be loaded outside of the sandbox" if ":" in program and "/" not in program else ""


def _as_dict(item: object) -> dict[str, Any]:
    return item if isinstance(item, dict) else {}


def _is_within(path: str, folders: tuple[str, ...]) -> bool:
    real = os.path.realpath(path)
    return any((real + "/").startswith(os.path.realpath(folder) + "/") for folder in folders)


# Runs that an agent asks for from inside its turn: begun by the harness, so that they outlive the turn.
#
# Whatever an agent starts itself ends with its turn. `ralph run --detach` inside one leaves its wish in the task folder
# instead. That is the agent's own file: it says what should be run, and nothing of how it is held.


MAX_REQUESTS = 20  # that are looked at at a time
MAX_REQUEST_BYTES = 16 << 20
REQUEST_SUFFIX = ".json"


def submit_child_request(task_folder: str, run: str, request: RunRequest, mask: Callable[[str], str]) -> None:
    """Ask the harness of the turn that we are in to begin a run of this id."""
    from ralphproof.base.files import write_atomically
    from ralphproof.runs.request import serialize_request

    folder = os.path.join(task_folder, REQUESTS_FOLDER)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        write_atomically(opened, run + REQUEST_SUFFIX, serialize_request(request, mask))
    finally:
        os.close(opened)


class ChildRequests:
    """The requests of one run's agent, and those of them that are about to be runs.

    No request can hurt the run: what is wrong with one is said in `remarks`.
    """

    def __init__(self, folder: RunFolder, project: Project, ledger: SqliteLedger, env: Mapping[str, str]) -> None:
        """`env` is what the agent was started with: what it could not know, its request cannot hold."""
        self._files, self._project, self._ledger = folder, project, ledger
        self._place = os.path.join(folder.task_folder, REQUESTS_FOLDER)
        self._env = {name: text for name, text in env.items() if os.environ.get(name) == text}
        noted = folder.noted(REQUESTS_FOLDER)
        known = noted.items() if isinstance(noted, dict) else ()
        self._coming = {run: float(at) for run, at in known if isinstance(at, int | float)}
        self._pids: dict[str, int] = {}
        self._told: set[str] = set()
        self._untold: list[str] = []

    def remarks(self) -> tuple[str, ...]:
        """What there is to say since this was last asked."""
        untold, self._untold = self._untold, []
        return tuple(untold)

    def begin(self) -> None:
        """Begin what was asked for. Each request is removed before its run is begun: it is begun once."""
        for folder, name in self._all(MAX_REQUESTS):
            run = name.removesuffix(REQUEST_SUFFIX)
            request = self._understood(folder, name)
            if self._removed(folder, name) and request is not None:
                self._spawn(run, request.project_dir or self._project.root)
            elif request is not None:
                del self._coming[run]

    def drop(self) -> None:
        """Remove what was asked for and is not begun."""
        for folder, name in self._all(None):
            if self._removed(folder, name):
                self._say(f"this run ends, so one that it asked for is not begun: {name.removesuffix(REQUEST_SUFFIX)}")

    def coming(self) -> tuple[str, ...]:
        """Those that were begun, have not said so yet, and still may."""
        reap_spawned_runs()
        return tuple([run for run in list(self._coming) if self._may_come(run)])

    def _all(self, most: int | None) -> Iterator[tuple[int, str]]:
        """The folder and the name of each request."""
        try:
            opened = os.open(self._place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return
        try:
            for name in sorted(name for name in os.listdir(opened) if name.endswith(REQUEST_SUFFIX))[:most]:
                yield opened, name
        finally:
            os.close(opened)

    def _understood(self, folder: int, name: str) -> RunRequest | None:
        """What a request asks for, when that is durable and the run is noted; None, and a remark, where it is none."""
        run = name.removesuffix(REQUEST_SUFFIX)
        try:
            request = self._sensible(run, _read_request(folder, name))
            files = RunFolder(request.project_dir or "", run, self._project.store)
            save_request(files, request, self._project.mask, self._files.run)
            self._note(run)
        except (OSError, ValueError, RecursionError, RalphError) as error:
            self._say(f"a run that the agent asked for is not begun: {name!r}: {error}")
            return None
        return request

    def _sensible(self, run: str, text: bytes) -> RunRequest:
        """The wish of a request; raises Refused where nothing can come of it."""
        request = parse_request(text, self._env) if is_run_id(run) else None
        if request is None:
            raise Refused("the request cannot be understood")
        if request.task_id:
            raise Refused("a task is taken up by ralph work alone")
        if self._boxed():
            if why := find_request_problem(request, self._project.root, self._files.task_folder):
                raise Refused(why)
            request = embed_prompt_file(request, self._project.root, self._files.task_folder)
        if run in self._pids or self._ledger.row(run) is not None:
            raise Refused("there is such a run already")
        root = resolve_project_root(os.path.join(self._project.root, request.project_dir or ""))
        if lookup_repository_id(root, self._project.state_dir) != os.path.basename(self._project.store):
            raise Refused(f"{root} is no folder of this repository")
        return replace(request, project_dir=root)

    def _boxed(self) -> bool:
        """Whether our agent is in a sandbox: then what it asks for must not lead out of it."""
        bounds = load_constraints(self._files)
        return bounds is None or bounds.sandbox is not None

    def _note(self, run: str) -> None:
        """Say durably, before its process is started, that a run may come: who takes ours up waits for it too."""
        now_s = time.time()
        self._coming[run] = now_s
        self._files.note(REQUESTS_FOLDER, {one: at for one, at in self._coming.items() if now_s - at < START_TIMEOUT_S})

    def _removed(self, folder: int, name: str) -> bool:
        try:
            os.unlink(name, dir_fd=folder)
        except OSError as error:
            self._say(f"a request of the agent's could not be removed, so it counts for nothing: {name!r}: {error}")
            return False
        return True

    def _spawn(self, run: str, root: str) -> None:
        try:
            environ = {**os.environ, "RALPH_RUN_ID": self._files.run}
            self._pids[run] = spawn_run(run, root, self._project.store, environ)
        except OSError as error:
            del self._coming[run]
            self._say(f"a run that the agent asked for could not be begun: {run}: {error}")

    def _may_come(self, run: str) -> bool:
        pid = self._pids.get(run)  # an earlier harness of this run left none: then time must tell
        waiting = is_unreaped(pid) if pid is not None else 0 <= time.time() - self._coming[run] < START_TIMEOUT_S
        if self._ledger.row(run) is None:  # looked up after that: it may have begun and ended since
            if waiting:
                return True
            last = read_harness_log_tail(self._project.store, run).strip().rpartition("\n")[2]
            self._say(f"run {run} was asked for, and has not begun" + (f": {last}" if last else ""))
        del self._coming[run]
        return False

    def _say(self, remark: str) -> None:
        """Say it once: a request that cannot be removed is seen again and again."""
        if remark not in self._told:
            self._told.add(remark)
            self._untold.append(remark)


def _read_request(folder: int, name: str) -> bytes:
    """What a request says; nothing where it is no plain file."""
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return b""
    try:
        return os.read(file, MAX_REQUEST_BYTES) if stat.S_ISREG(os.fstat(file).st_mode) else b""
    finally:
        os.close(file)
