"""Runs in processes of their own: detached runs, and child runs that the agent of a run asks for."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ralphproof.agents.command import split_command
from ralphproof.base import interpreter
from ralphproof.base.errors import RalphError, Refused
from ralphproof.base.files import replace_file
from ralphproof.base.git_layout import resolve_project_root
from ralphproof.base.programs import spawn
from ralphproof.base.value import pack, replace, unpack, value
from ralphproof.engine.limits import Budget, ChildRunsStatus, Spend
from ralphproof.engine.next_action import RunRules
from ralphproof.engine.records import Saved, TurnBegan
from ralphproof.process.dead_turns import KEEPER_PIDS
from ralphproof.runs.preflight import refuse_unknown_cost
from ralphproof.runs.request import CONSTRAINTS_NOTE, RunRequest, parse_request, save_request, serialize_request
from ralphproof.runs.spec import RunSpec, prepare_spec
from ralphproof.sandbox.project_mounts import RALPH_FOLDER
from ralphproof.settings.declarations import SandboxSettings
from ralphproof.store.ledger import RunRow, SqliteLedger
from ralphproof.store.project import Project
from ralphproof.store.run_folder import RunFolder, is_run_id
from ralphproof.store.run_state import find_live_turn
from ralphproof.store.spend import SpendStore
from ralphproof.views.run_status import active_seconds
from ralphproof.workspace.repository_id import lookup_repository_id

HARNESS_LOG = "harness.log"
START_TIMEOUT_S = 30.0  # a machine under load needs its time to start a program
START_POLL_S = 0.02
LOG_TAIL_BYTES = 8192
BEGIN_FLAG, RESUME_FLAG = "--begin", "--resume"

_started_pids: list[int] = []  # and not yet waited for


def spawn_run(run: str, root: str, store: str, environ: Mapping[str, str], flag: str = BEGIN_FLAG) -> int:
    """Start the process that begins or resumes a run with a saved request; its pid. Its log is in the run's folder."""
    log = os.path.join(store, "runs", run, HARNESS_LOG)
    argv = interpreter.ralph_command("run", flag, run, "--project-dir", root)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        pid = spawn(argv, environ, (nowhere, output, output))
    finally:
        os.close(nowhere)
        os.close(output)
    KEEPER_PIDS.add(pid)  # so that cleanup does not end it
    _started_pids.append(pid)
    return pid


def reap_spawned_runs() -> None:
    """Forget the processes that were started here and have ended."""
    for pid in list(_started_pids):
        if _exit_code(pid) is not None:
            _started_pids.remove(pid)
            KEEPER_PIDS.discard(pid)


def is_unreaped(pid: int) -> bool:
    """Whether a process that was started here has not been reaped yet."""
    return pid in _started_pids


def wait_until_begun(project: Project, run: str, pid: int = 0) -> int | None:
    """Wait until a run has begun: None once it has, or the exit code of its process where that ended first.

    Without a `pid` another process begins it; 1 where it has not begun in time.
    """
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if _is_recorded(project, run, pid):
            return None
        if pid and (code := _exit_code(pid)) is not None:
            return None if _is_recorded(project, run, pid) else code
        time.sleep(START_POLL_S)
    return 1


def _is_recorded(project: Project, run: str, pid: int) -> bool:
    """Whether this process has recorded the run. Opens the ledger each time: a repository's first run creates it."""
    ledger = project.ledger()
    try:
        row = ledger.row(run)
        return row is not None and row.pid == (pid or row.pid) and ledger.queries.last_seq_of(run) > 0
    finally:
        ledger.close()


def _exit_code(pid: int) -> int | None:
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return 1  # it was reaped elsewhere
    return os.waitstatus_to_exitcode(status) if ended else None


def read_harness_log_tail(store: str, run: str) -> str:
    """The end of the log of a run's process."""
    try:
        with open(os.path.join(store, "runs", run, HARNESS_LOG), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_TAIL_BYTES))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


# Child runs, which the agent of a run started: their requests, status, cost and cancellation.


@value
class RunConstraints:
    """The constraints of a run since it was last begun or resumed. They hold for its child runs too."""

    budget: Budget
    protected: tuple[str, ...] = ()
    guarded: bool = True
    allow_unknown_cost: bool = False
    force: bool = False
    cost_limited: bool = False  # the user set a cost limit that must be enforced
    sandbox: SandboxSettings | None = None  # with the kind that was chosen for `auto`


def save_constraints(folder: RunFolder, rules: RunRules, spec: RunSpec, sandbox_name: str) -> None:
    """Save the constraints of a run durably; `sandbox_name` is the kind of sandbox that it got."""
    request, settings, allow_unknown_cost = spec.request, spec.loaded.settings, spec.request.allow_unknown_cost
    kind = request.sandbox_kind(settings)
    sandbox = replace(settings.sandbox, backend=sandbox_name if kind == "auto" else kind) if kind else None
    constraints = RunConstraints(
        rules.limits.budget,
        settings.protected_paths,
        request.guarded,
        allow_unknown_cost,
        request.fitness.force,
        rules.warn_unknown_cost,
        sandbox,
    )
    folder.note(CONSTRAINTS_NOTE, pack(constraints))


def sandbox_as_settings(sandbox: SandboxSettings | None) -> dict[str, Any]:
    """The sandbox of a run as settings for a child run, or for resuming it."""
    if sandbox is None:
        return {"backend": None}
    return {
        "backend": sandbox.backend,
        "allowHosts": list(sandbox.allow_hosts),
        "allowLocalPorts": list(sandbox.allow_local_ports),
        "readPaths": list(sandbox.read_paths),
    }


def load_constraints(folder: RunFolder) -> RunConstraints | None:
    """The saved constraints of a run; None where there are none."""
    saved = folder.noted(CONSTRAINTS_NOTE)
    try:
        constraints = unpack(saved)
    except TypeError:
        return None
    return constraints if isinstance(constraints, RunConstraints) and isinstance(constraints.budget, Budget) else None


# Child runs: never less constrained than their ancestors, and with no more than these have left.


UNKNOWN_CONSTRAINTS = RunConstraints(Budget())
MIN_TIME_LEFT_S = 0.1  # 0 would mean no limit


def apply_parent_constraints(spec: RunSpec, parent: str) -> RunSpec:
    """The spec as a child of this run: with its sandbox and protected paths, and without permissions that it lacks.

    Raises Refused where such a run may not begin.
    """
    ledger = spec.project.ledger()
    try:
        constraints = [one for _, one in _ancestor_constraints(parent, spec.project, ledger)]
    finally:
        ledger.close()
    tightened = _tighten_request(spec.request, constraints)
    if tightened != spec.request:
        denied = _describe_denied_flags(spec.request, tightened, parent)
        spec = prepare_spec(tightened)
        spec = replace(spec, remarks=(*denied, *spec.remarks))
    _refuse_unknown_cost_under_limit(spec, constraints)
    return spec


def _tighten_request(request: RunRequest, constraints: list[RunConstraints]) -> RunRequest:
    sandbox = next((one.sandbox for one in constraints if one.sandbox), None)
    return replace(
        request
        if sandbox is None
        else replace(request, allow_hosts=(), flags={**request.flags, "sandbox": sandbox_as_settings(sandbox)}),
        protect=tuple(dict.fromkeys((*request.protect, *(path for one in constraints for path in one.protected)))),
        guarded=request.guarded or any(one.guarded for one in constraints),
        allow_unknown_cost=request.allow_unknown_cost and all(one.allow_unknown_cost for one in constraints),
        fitness=replace(request.fitness, force=request.fitness.force and all(one.force for one in constraints)),
        checks=replace(request.checks, may_change=()),
    )


def _describe_denied_flags(request: RunRequest, tightened: RunRequest, parent: str) -> list[str]:
    """A sentence for each flag that the parent does not permit."""
    flags = {
        "--no-sandbox": tightened.guarded != request.guarded,
        "--allow-unknown-cost": tightened.allow_unknown_cost != request.allow_unknown_cost,
        "--force": tightened.fitness.force != request.fitness.force,
        "--may-change": tightened.checks.may_change != request.checks.may_change,
        "--allow-host of its own": tightened.allow_hosts != request.allow_hosts,
    }
    parent_phrase = f"run {parent}, which this one is part of"
    return [f"{parent_phrase}, has no {flag}, so this one has none" for flag, denied in flags.items() if denied]


def _refuse_unknown_cost_under_limit(spec: RunSpec, constraints: list[RunConstraints]) -> None:
    """A cost limit of the user holds for child runs too: raise Refused where a child cannot report its cost."""
    cost_limit = next((one.budget.micro_usd for one in constraints if one.cost_limited), None)
    settings = spec.loaded.settings
    if cost_limit is not None and settings.limits.max_cost_usd is None:
        settings = replace(settings, limits=replace(settings.limits, max_cost_usd=cost_limit / 1_000_000))
        refuse_unknown_cost(settings, spec.selected_agents, spec.request.allow_unknown_cost)


def cap_budget_by_ancestors(
    budget: Budget, run: str, project: Project, ledger: SqliteLedger, spend_store: SpendStore, parent: str
) -> Budget:
    """The budget of a run, capped by what each ancestor has left. What the run itself spent is not counted twice."""
    own = _total_spend(run, ledger, spend_store)
    for ancestor, constraints in _ancestor_constraints(parent, project, ledger):
        limits, spend = constraints.budget, _total_spend(ancestor, ledger, spend_store)
        seconds_left = None if limits.seconds is None else limits.seconds - _run_age_s(ancestor, project, ledger)
        budget = budget.capped_by(limits.less(spend.less(own)))
        if seconds_left is not None:
            left_s = _run_age_s(run, project, ledger) + max(MIN_TIME_LEFT_S, seconds_left)
            budget = replace(budget, seconds=left_s if budget.seconds is None else min(budget.seconds, left_s))
    return budget


def _total_spend(run: str, ledger: SqliteLedger, spend_store: SpendStore) -> Spend:
    return spend_store.spend_of((run, *(row.id for row in ledger.descendants(run))))


def _run_age_s(run: str, project: Project, ledger: SqliteLedger) -> float:
    return active_seconds(project, run, ledger.timed_records(run), time.time())


def _ancestor_constraints(run: str, project: Project, ledger: SqliteLedger) -> Iterator[tuple[str, RunConstraints]]:
    """A run and its ancestors, each with its constraints; the strictest ones where they are lost."""
    seen = {""}
    while run not in seen:
        seen.add(run)
        yield run, load_constraints(RunFolder(project.root, run, project.store)) or UNKNOWN_CONSTRAINTS
        row = ledger.row(run)
        run = row.parent if row else ""


# Child runs, which the agent of a run started: their requests, status, cost and cancellation.


CHILD_GRACE_S = 20.0  # for cancelled children; longer than an agent's grace
END_POLL_S = 0.1
REQUESTS_FOLDER = "children"  # in the task folder; also the name of the note with starting runs


def is_run_alive(project: Project, row: RunRow) -> bool:
    """Whether a run has not ended, and its harness or a turn of it is alive."""
    return not row.ended and (row.process.alive or find_live_turn(project, row.id) is not None)


def cancel_descendants(project: Project, ledger: SqliteLedger, run: str) -> list[str]:
    """Cancel the live descendants of a run whose harness died; remarks about them."""
    active = [row.id for row in ledger.descendants(run) if is_run_alive(project, row)]
    for descendant in active:
        ledger.request_control(descendant, "cancel")
    return [f"run {descendant} of it goes on, and is asked to end" for descendant in active]


class LedgerChildRuns:
    """The descendants of one run, as recorded in its repository's ledger.

    A run that was spawned for the agent and is not recorded yet counts too, also when an earlier process of this run
    spawned it.
    """

    def __init__(
        self, folder: RunFolder, project: Project, ledger: SqliteLedger, spend_store: SpendStore, env: Mapping[str, str]
    ) -> None:
        """`env` is the environment of the run's agent."""
        self._folder, self._project, self._ledger, self._spend = folder, project, ledger, spend_store
        self._run, self._env = folder.run, env
        self._requests_folder = os.path.join(folder.task_folder, REQUESTS_FOLDER)
        self._child_requests: ChildRequests | None = None
        self._first_look = True
        self._last_writes: dict[str, float | None] | None = None
        self._was_active = False

    def status(self) -> ChildRunsStatus:
        """Spawn the requested runs; then the runs that have not ended, and the cost of all."""
        if requests := self._requests():
            requests.begin()
        active, rows = self._active()
        return ChildRunsStatus(active, self._spend.spend_of(tuple(row.id for row in rows)) if rows else Spend())

    def remarks(self) -> tuple[str, ...]:
        """Remarks about requests since the last call."""
        self.status()
        return self._child_requests.remarks() if self._child_requests else ()

    def stop_all(self) -> tuple[str, ...]:
        """Spawn nothing more, cancel the active runs, and wait until they end; remarks."""
        requests = self._requests()
        if requests:
            requests.drop()
        deadline, cancelled = time.monotonic() + CHILD_GRACE_S, dict[str, None]()
        while True:
            active, rows = self._active()
            for run in [row.id for row in rows if row.id in active and row.id not in cancelled]:
                self._ledger.request_control(run, "cancel")
                cancelled[run] = None
            if not active or time.monotonic() >= deadline:
                break
            time.sleep(END_POLL_S)
        remarks = [*(requests.remarks() if requests else ())]
        remarks += [f"runs of its own were asked to end: {', '.join(cancelled)}"] if cancelled else []
        return (*remarks, *([f"not over yet: {', '.join(active)}"] if active else []))

    def has_activity(self) -> bool:
        """Whether one of them was active since the last call; at the first call: since the last turn was handled."""
        rows = self._ledger.descendants(self._run)
        if not rows:
            return False
        before, self._last_writes = self._last_writes, {row.id: self._ledger.last_written_at(row.id) for row in rows}
        was_active, self._was_active = self._was_active, any(is_run_alive(self._project, row) for row in rows)
        if before is not None:
            return was_active or self._was_active or before != self._last_writes
        since = self._last_turn_handled_at()
        return self._was_active or any(at is not None and at > since for at in self._last_writes.values())

    def _last_turn_handled_at(self) -> float:
        times = (at for at, record in self._ledger.timed_records(self._run) if isinstance(record, TurnBegan | Saved))
        return max(times, default=0.0)

    def _active(self) -> tuple[tuple[str, ...], tuple[RunRow, ...]]:
        """The ids of runs that have not ended, and the rows of all runs. A run that is just starting is in one of the
        two.
        """
        starting = self._child_requests.starting() if self._child_requests else ()
        rows = self._ledger.descendants(self._run)
        recorded = {row.id for row in rows}
        working = (row.id for row in rows if is_run_alive(self._project, row))
        return (*working, *(run for run in starting if run not in recorded)), rows

    def _requests(self) -> ChildRequests | None:
        """None until something was requested, which is the usual case."""
        first_look, self._first_look = self._first_look, False
        if self._child_requests is None and (
            os.path.isdir(self._requests_folder) or (first_look and self._folder.noted(REQUESTS_FOLDER))
        ):
            self._child_requests = ChildRequests(self._folder, self._project, self._ledger, self._env)
        return self._child_requests


# Validation of requests from a sandboxed agent: the harness must not read, load or start anything for them that is
# outside of the sandbox.


MAX_PROMPT_BYTES = 16 << 20
_OPEN_NO_FOLLOW = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# Settings that only affect what runs inside the sandbox.
REQUESTABLE_SETTINGS = frozenset((
    "preset", "maximumIterations", "completionResponse", "outputTruncateChars", "outputTruncateMode",
    "streamAgentOutput", "includeIterationCountInPrompt", "contextInjection", "checksWhen", "requireProof", "limits",
    "protectedPaths", "review", "supervise", "guardrails", "agent", "sandbox",
))  # fmt: skip
REQUESTABLE_AGENT_SETTINGS = frozenset(("command", "flags", "model", "timeoutSeconds", "idleTimeoutSeconds", "retries"))
REQUESTABLE_CHECK_SETTINGS = frozenset(("command", "failAction", "hint", "name", "timeoutSeconds", "retries"))


def find_request_problem(request: RunRequest, root: str, task_folder: str) -> str:
    """Why a request would let the agent out of its sandbox, in one clause; empty where it would not.

    `sandbox` settings of a request are not checked: the parent's replace them.
    """
    for name, path in (("its prompt", request.prompt[1]), ("its task folder", request.task.folder)):
        if path and not _is_within(os.path.join(root, path), (root, task_folder)):
            return f"{name} lies outside of the sandbox"
    task = os.path.join(root, request.task.folder)
    if _is_within(task, (os.path.join(root, RALPH_FOLDER),)) and not _is_within(task, (task_folder,)):
        return f"its task folder lies in {RALPH_FOLDER}, which is held"
    if not _is_within(os.path.join(root, request.project_dir or ""), (root,)):
        return "its project lies outside of the sandbox"
    forbidden = sorted(set(request.flags) - REQUESTABLE_SETTINGS)
    forbidden += [
        f"agent.{name}" for name in sorted(set(_as_dict(request.flags.get("agent"))) - REQUESTABLE_AGENT_SETTINGS)
    ]
    checks = request.flags.get("guardrails")
    for check in checks if isinstance(checks, list) else ():
        forbidden += [f"guardrails.{name}" for name in sorted(set(_as_dict(check)) - REQUESTABLE_CHECK_SETTINGS)]
    if forbidden:
        return f"{forbidden[0]} is for the user to set"
    return _find_agent_problem(_as_dict(request.flags.get("agent")).get("command"))


def embed_prompt_file(request: RunRequest, root: str, task_folder: str) -> RunRequest:
    """The request with the present text of its prompt file: the agent is still running, and could replace the file by a
    link.
    """
    if not request.prompt[1]:
        return request
    real = os.path.realpath(os.path.join(root, request.prompt[1]))
    allowed = [folder for folder in map(os.path.realpath, (root, task_folder)) if real.startswith(folder + "/")]
    try:
        text = _read_prompt_file(allowed[0], os.path.relpath(real, allowed[0]).split("/")) if allowed else None
    except OSError:
        text = None
    if text is None:
        raise Refused("its prompt cannot be read")
    return replace(request, prompt=(text.decode("utf-8", "replace"), None))


def _read_prompt_file(folder: str, names: list[str]) -> bytes | None:
    """The content of a regular file, opened without following links; None where it is not one."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for name in names[:-1]:
        parent = descriptor
        try:
            descriptor = os.open(name, _OPEN_NO_FOLLOW, dir_fd=parent)
        finally:
            os.close(parent)
    try:
        return _read_regular_file(descriptor, names[-1], MAX_PROMPT_BYTES)
    finally:
        os.close(descriptor)


def _read_regular_file(folder: int, name: str, limit: int) -> bytes | None:
    """The content of a file in an open folder; None where it is not a regular file, and no link."""
    with open(os.open(name, _OPEN_NO_FOLLOW, dir_fd=folder), "rb") as file:
        return file.read(limit) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None


def _find_agent_problem(command: object) -> str:
    """Refuses an agent that is a Python function: it would be imported into the harness."""
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


# Requests for child runs.
#
# Every process that an agent starts ends with its turn. So `ralph run --detach` inside a turn writes a request into the
# task folder, and the harness spawns the run. The agent can write anything into that file: it says what to run, and
# never how the run is constrained.


MAX_REQUESTS = 20  # handled at a time
MAX_REQUEST_BYTES = 16 << 20
REQUEST_SUFFIX = ".json"


def submit_child_request(task_folder: str, run: str, request: RunRequest, mask: Callable[[str], str]) -> None:
    """Ask the harness of the enclosing turn to start a run with this id."""
    folder = os.path.join(task_folder, REQUESTS_FOLDER)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    replace_file(os.path.join(folder, run + REQUEST_SUFFIX), serialize_request(request, mask))


class ChildRequests:
    """The requests that one run's agent left, and the requested runs that are starting.

    A bad request never fails the run: it becomes a remark.
    """

    def __init__(self, folder: RunFolder, project: Project, ledger: SqliteLedger, env: Mapping[str, str]) -> None:
        """`env` is the environment of the agent: references to other variables are not resolved in its requests."""
        self._folder, self._project, self._ledger = folder, project, ledger
        self._requests_folder = os.path.join(folder.task_folder, REQUESTS_FOLDER)
        self._env = {name: text for name, text in env.items() if os.environ.get(name) == text}
        noted = folder.noted(REQUESTS_FOLDER)
        saved = noted.items() if isinstance(noted, dict) else ()
        self._starting = {run: float(at) for run, at in saved if isinstance(at, int | float)}
        self._pids: dict[str, int] = {}
        self._reported: set[str] = set()
        self._pending_remarks: list[str] = []

    def remarks(self) -> tuple[str, ...]:
        """Remarks since the last call."""
        pending, self._pending_remarks = self._pending_remarks, []
        return tuple(pending)

    def begin(self) -> None:
        """Spawn the requested runs. A request is removed before its run is spawned, so that it is spawned only once."""
        for folder, name in self._list_requests(MAX_REQUESTS):
            run = name.removesuffix(REQUEST_SUFFIX)
            request = self._accept(folder, name)
            if self._remove(folder, name) and request is not None:
                self._spawn(run, request.project_dir or self._project.root)
            elif request is not None:
                del self._starting[run]

    def drop(self) -> None:
        """Remove the requests whose runs were not spawned."""
        for folder, name in self._list_requests(None):
            if self._remove(folder, name):
                self._add_remark(
                    f"this run ends, so one that it asked for is not begun: {name.removesuffix(REQUEST_SUFFIX)}"
                )

    def starting(self) -> tuple[str, ...]:
        """Runs that were spawned, are not recorded yet, and still may be."""
        reap_spawned_runs()
        return tuple([run for run in list(self._starting) if self._is_starting(run)])

    def _list_requests(self, limit: int | None) -> Iterator[tuple[int, str]]:
        """Each request as the descriptor of its folder and its file name."""
        try:
            opened = os.open(self._requests_folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return
        try:
            for name in sorted(name for name in os.listdir(opened) if name.endswith(REQUEST_SUFFIX))[:limit]:
                yield opened, name
        finally:
            os.close(opened)

    def _accept(self, folder: int, name: str) -> RunRequest | None:
        """The request in a file, once it is saved durably and its run is noted as starting; None, and a remark, for a
        bad one.
        """
        run = name.removesuffix(REQUEST_SUFFIX)
        try:
            request = self._validate(run, _read_regular_file(folder, name, MAX_REQUEST_BYTES) or b"")
            files = RunFolder(request.project_dir or "", run, self._project.store)
            save_request(files, request, self._project.mask, self._folder.run)
            self._record_start(run)
        except (OSError, ValueError, RecursionError, RalphError) as error:
            self._add_remark(f"a run that the agent asked for is not begun: {name!r}: {error}")
            return None
        return request

    def _validate(self, run: str, text: bytes) -> RunRequest:
        """The parsed request; raises Refused where it cannot or may not be run."""
        request = parse_request(text, self._env) if is_run_id(run) else None
        if request is None:
            raise Refused("the request cannot be understood")
        if request.task.id:
            raise Refused("a task is taken up by ralph work alone")
        if self._is_sandboxed():
            if why := find_request_problem(request, self._project.root, self._folder.task_folder):
                raise Refused(why)
            request = embed_prompt_file(request, self._project.root, self._folder.task_folder)
        if run in self._pids or self._ledger.row(run) is not None:
            raise Refused("there is such a run already")
        root = resolve_project_root(os.path.join(self._project.root, request.project_dir or ""))
        if lookup_repository_id(root, self._project.state_dir) != os.path.basename(self._project.store):
            raise Refused(f"{root} is no folder of this repository")
        return replace(request, project_dir=root)

    def _is_sandboxed(self) -> bool:
        """Whether the agent is in a sandbox, which its requests must not lead out of."""
        constraints = load_constraints(self._folder)
        return constraints is None or constraints.sandbox is not None

    def _record_start(self, run: str) -> None:
        """Record durably, before the process is spawned, that a run is starting: a harness that resumes ours waits for
        it too.
        """
        now_s = time.time()
        self._starting[run] = now_s
        self._folder.note(
            REQUESTS_FOLDER, {child: at for child, at in self._starting.items() if now_s - at < START_TIMEOUT_S}
        )

    def _remove(self, folder: int, name: str) -> bool:
        try:
            os.unlink(name, dir_fd=folder)
        except OSError as error:
            self._add_remark(
                f"a request of the agent's could not be removed, so it counts for nothing: {name!r}: {error}"
            )
            return False
        return True

    def _spawn(self, run: str, root: str) -> None:
        try:
            environ = {**os.environ, "RALPH_RUN_ID": self._folder.run}
            self._pids[run] = spawn_run(run, root, self._project.store, environ)
        except OSError as error:
            del self._starting[run]
            self._add_remark(f"a run that the agent asked for could not be begun: {run}: {error}")

    def _is_starting(self, run: str) -> bool:
        pid = self._pids.get(run)  # unknown if an earlier harness spawned it: then by time
        waiting = is_unreaped(pid) if pid is not None else 0 <= time.time() - self._starting[run] < START_TIMEOUT_S
        if self._ledger.row(run) is None:  # read after `waiting`: it may have begun and ended since
            if waiting:
                return True
            last = read_harness_log_tail(self._project.store, run).strip().rpartition("\n")[2]
            self._add_remark(f"run {run} was asked for, and has not begun" + (f": {last}" if last else ""))
        del self._starting[run]
        return False

    def _add_remark(self, remark: str) -> None:
        """Add a remark once: a request that cannot be removed is read again and again."""
        if remark not in self._reported:
            self._reported.add(remark)
            self._pending_remarks.append(remark)
