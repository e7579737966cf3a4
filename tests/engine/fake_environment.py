"""An environment of the loop in memory: agent replies, changes and check results are a list of steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from ralphproof.base.value import replace, value
from ralphproof.engine.agent import Limited, Spent, Turn, TurnInput, TurnWatcher, Usage
from ralphproof.engine.check import AlteredCheckInput, Check, CheckWatcher, Finding, Inspection
from ralphproof.engine.claim import Claim, ClaimRule
from ralphproof.engine.environment import (
    AgentAccess,
    CheckAccess,
    LoopEnvironment,
    PlanAccess,
    SpendAccess,
    WorkAccess,
)
from ralphproof.engine.limits import ChildRunsStatus, Limits
from ralphproof.engine.loop import Loop
from ralphproof.engine.next_action import AgentRules, RunRules
from ralphproof.engine.outcome import Outcome
from ralphproof.engine.plan import Job, Pipeline, Plan, Stage, Task
from ralphproof.engine.records import Noticed, Record, Resumed, TurnBegan, UserChangesSaved, record_key
from ralphproof.engine.sandbox import CONTINUE, Command, CommandWatcher, Exit, HookResult, Sandbox
from ralphproof.engine.state import State, build_state
from ralphproof.engine.workspace import Change, CommitRequest, CommitResult, Snapshot, TouchedPath, TripwireReport
from tests.in_memory_spend import InMemorySpend

RunChecks = Callable[[tuple[Check, ...], Inspection, CheckWatcher], tuple[Finding, ...]]

if TYPE_CHECKING:
    from ralphproof.base.value import Json

T = TypeVar("T")
RULE = ClaimRule("DONE")
STAGE = Stage("work", RULE, ("tests",))
TASK = Task("t1", "Make it so.")
JOB = Job(TASK, STAGE)
PATTERNS = Limits(stall_iterations=5, same_error_iterations=5)
RULES = RunRules(Pipeline((STAGE,)), PATTERNS, agent=AgentRules(pause_s=0.0))

WORKING = Turn(Exit(0), "Working on it.", micro_usd=1_000, usage=Usage(10, 5))
CLAIMING = replace(WORKING, text="All done.\n<response>DONE</response>")
JUDGEMENT = Spent(100, Usage(1, 1))
EMPTY = Turn(Exit(0), "  \n", micro_usd=0)
LIMITED = Turn(Exit(1), "", limited=Limited("usage limit reached"))
UNSTARTABLE = Turn(Exit(None, "unstartable", error="fake: not found"))
CRASHING = Turn(Exit(1), "Traceback", micro_usd=10)
EDITED = Change(("src/a.py",))
NOTHING = Change()


def make_finding(passed: bool, check: str = "tests", fingerprint: str = "boom") -> Finding:
    return Finding(check, passed, "make test", 0 if passed else 2, fingerprint="" if passed else fingerprint)


@value
class Step:
    """One turn: what it says, what differs after it, and which checks then fail."""

    reply: Turn = WORKING
    change: Change = EDITED
    failing: tuple[str, ...] = ()
    touched: tuple[TouchedPath, ...] = ()
    stopped: bool = False  # the checks say that they were stopped
    stop_during: str = ""  # the first of "turn", "save", "check", "scm" during which somebody asks the run to end


class Crash(BaseException):
    """The harness is gone, as by SIGKILL."""


class FakeClock:
    def __init__(self) -> None:
        self.now, self.requested_stop, self.sleeps = 1_000.0, "", list[float]()
        self.paused_polls = 0  # the next so many polls say that the run is paused
        self.set_back_s = 0.0  # how far the wall clock is set back after the first sleep

    def monotonic(self) -> float:
        return self.now

    def epoch(self) -> float:
        return self.now - (self.set_back_s if self.sleeps else 0.0)

    def stop_reason(self) -> str:
        return self.requested_stop

    def paused(self) -> bool:
        self.paused_polls -= self.paused_polls > 0
        return self.paused_polls > 0

    def stop_level(self) -> int:
        return CONTINUE

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds


class FakeLedger:
    """Refuses a second record of one key.

    Crashes once: at the append of this number, before or after writing it, or after writing a record of this kind.
    """

    def __init__(self) -> None:
        self.appended, self.appends, self.crash_at, self.crash_after = list[Record](), 0, -1, False
        self.crash_on: type[Record] | None = None
        self.messages: list[str] = []

    def append(self, run: str, records: tuple[Record, ...]) -> None:
        self.appends += 1
        crash = self.appends - 1 == self.crash_at
        if crash and not self.crash_after:
            raise Crash
        taken = {record_key(record) for record in self.appended}
        for record in records:
            assert record_key(record) not in taken, f"{record_key(record)} was recorded twice"
            taken.add(record_key(record))
        self.appended += records
        if self.crash_on is not None and isinstance(records[-1], self.crash_on):
            self.crash_on, crash = None, True
        if crash:
            raise Crash

    def records(self, run: str) -> tuple[Record, ...]:
        return tuple(self.appended)

    def requested_control(self, run: str) -> str:
        return ""

    def user_messages(self, run: str, after: int) -> tuple[tuple[int, str], ...]:
        return tuple((number, text) for number, text in enumerate(self.messages, 1) if number > after)


class FakeRunFiles:
    run = "r1"

    def __init__(self) -> None:
        self.prompts: dict[str, str] = {}
        self.published: list[str] = []
        self.result: dict[str, Json] = {}

    def write_prompt(self, name: str, text: str) -> str:
        self.prompts[name] = text
        return name

    def read_prompt(self, name: str) -> str | None:
        return self.prompts.get(name)

    def log_base(self, name: str) -> str:
        return name

    def publish(self, name: str) -> None:
        self.published.append(name)

    def published_path(self, name: str) -> str:
        return name

    def write_patch(self, name: str, data: bytes) -> str:
        return f"{name}.patch"

    def turn_file(self, name: str) -> str:
        return name

    def begin_outcome(self) -> None:
        """Do nothing."""

    def write_outcome(self, result: dict[str, Json]) -> None:
        self.result = result


class NoSandbox:
    name, strength = "none", "none"

    def run(self, command: Command, watch: CommandWatcher) -> Exit:
        raise AssertionError("the fake environment runs no command")


def run_checks_in_sequence(
    checks: tuple[Check, ...], inspection: Inspection, watch: CheckWatcher
) -> tuple[Finding, ...]:
    return tuple(check.run(inspection, watch) for check in checks)


class NoHooks:
    def run(
        self, name: str, command: str, exports: Mapping[str, str], watch: CommandWatcher, ending: bool = False
    ) -> HookResult:
        raise AssertionError("the fake environment has no hooks")


class NoTripwires:
    def start_watching(self) -> tuple[str, ...]:
        return ()

    def history_backup(self) -> str:
        return ""

    def repository_damage(self) -> str:
        return ""

    def final_warnings(self) -> tuple[str, ...]:
        return ()

    def check_and_restore(self, name: str) -> TripwireReport:
        return TripwireReport()

    def discard(self) -> None:
        pass


class FakeCheckPins:
    """Reports `altered_check_inputs` of its environment."""

    def __init__(self, env: FakeEnvironment) -> None:
        self._env = env

    def begin(self) -> None:
        """Nothing to remember."""

    def accept_user_changes(self, paths: tuple[str, ...]) -> None:
        """Nothing was remembered."""

    def find_altered(self, began: Snapshot, now: Snapshot, theirs: frozenset[str]) -> tuple[AlteredCheckInput, ...]:
        return tuple(one for one in self._env.altered_check_inputs if one.path not in theirs)


class FakeEnvironment:
    """Plays the steps; the last one repeats. A turn file that is known already is the turn that is taken up."""

    root, kind = "/project", "git"
    name, reports_cost = "fake", True

    def __init__(
        self,
        *steps: Step,
        rules: RunRules = RULES,
        tasks: Callable[[FakeEnvironment], tuple[Task, ...]] = lambda env: (TASK,),
        message: str = "Fix it",
    ) -> None:
        self.steps, self.rules, self.tasks, self.message = steps or (Step(),), rules, tasks, message
        self.clock, self.ledger, self.run_files, self.daily_spend = (
            FakeClock(),
            FakeLedger(),
            FakeRunFiles(),
            InMemorySpend(),
        )
        self.turn_inputs: list[TurnInput] = []
        self.turns: dict[str, Step] = {}
        self.commits: list[str] = []
        self.checks_run: list[tuple[int, str]] = []
        self.saves, self.unsaved = 0, ""
        self.between: list[tuple[Snapshot, Snapshot]] = []
        self.claims: list[Claim | None] = []  # claims in a file, one a look; the last one stays
        self.children: list[ChildRunsStatus] = []  # the same for child runs
        self.stop_all_calls = 0
        self.active = False
        self.tripwire_calls: list[str] = []  # calls of the tripwires
        self.compared: list[Snapshot] = []  # compared with the tree after a resume
        self.never_started = False
        self.heads: dict[str, str] = {}  # HEAD by the name of the save
        self.restored: list[tuple[Snapshot, Snapshot]] = []
        self.altered_check_inputs: tuple[AlteredCheckInput, ...] = ()
        self.user_changes: tuple[str, ...] = ()  # changed while no harness ran

    @property
    def step(self) -> Step:
        return list(self.turns.values())[-1] if self.turns else self.steps[0]

    def loop(self, run_checks: RunChecks = run_checks_in_sequence) -> Loop:
        names = {check for stage in self.rules.pipeline.stages for check in (*stage.checks, *stage.judges)}
        checks: dict[str, Check] = {name: FakeCheck(self, name) for name in names}
        env = LoopEnvironment(
            AgentAccess((self,) * 9, NoSandbox()),
            PlanAccess(self, find_claim=lambda _: _next(self.claims, None)),
            CheckAccess(checks, run_checks, FakeCheckPins(self)),
            WorkAccess(self, self, self),
            SpendAccess(self.daily_spend),
            self.ledger,
            self.run_files,
            self.clock,
            NoHooks(),
            child_runs=self,
            was_started=lambda _: not self.never_started,
        )
        state = self.rebuilt()
        loop = Loop("r1", self.rules, env, state=state)
        if state.run.id:
            loop.resume(state.run.elapsed_s)
        return loop

    def status(self) -> ChildRunsStatus:
        return _next(self.children, ChildRunsStatus())

    def stop_all(self) -> tuple[str, ...]:
        self.stop_all_calls += 1
        return ()

    def run(self) -> Outcome:
        return self.loop().run()

    def rebuilt(self) -> State:
        return build_state(self.ledger.appended)

    def request_stop(self, at: str) -> None:
        if self.turns and self.step.stop_during == at:
            self.clock.requested_stop = "INTERRUPTED"

    def read(self) -> Plan:
        return Plan(self.tasks(self))

    def argv(self, brief: TurnInput) -> tuple[str, ...]:
        return ("fake", brief.prompt_file)

    def take_turn(self, brief: TurnInput, sandbox: Sandbox, watch: TurnWatcher) -> Turn:
        self.turn_inputs.append(brief)
        if not brief.stream:
            self.request_stop("scm")
            return replace(WORKING, text=self.message)
        absent = (Resumed, UserChangesSaved, Noticed)
        last = [record for record in self.ledger.appended if not isinstance(record, absent)][-1]
        assert isinstance(last, TurnBegan), "the turn's beginning is durable before the agent starts"
        if brief.turn_file not in self.turns:
            self.turns[brief.turn_file] = self.steps[min(len(self.turns), len(self.steps) - 1)]
        self.request_stop("turn")
        return self.turns[brief.turn_file].reply

    def begin(self, run: str) -> Snapshot:
        return Snapshot("began", "tree 0")

    def save(self, run: str, name: str) -> Snapshot:
        self.saves += 1
        self.request_stop("save")
        if self.unsaved:
            return Snapshot(None, None, problem=self.unsaved)
        return Snapshot(f"saved {name}", f"tree {len(self.turns)}", head=self.heads.get(f"saved {name}"))

    def mark_iteration_start(self) -> None:
        pass

    def has_activity(self) -> bool:
        return self.active

    def changed_since(self, paths: Iterable[str], instant_ns: int) -> tuple[str, ...]:
        return ()

    def find_snapshot(self, run: str, name: str) -> Snapshot | None:
        return None

    def change(self, before: Snapshot, after: Snapshot) -> Change:
        if "theirs" in str(after.id):
            self.compared.append(before)
            return Change(self.user_changes)
        if "put-back" in str(after.id) or "judged" in str(after.id):
            return Change()
        self.between.append((before, after))
        return self.step.change

    def diff(self, before: Snapshot, after: Snapshot) -> bytes:
        return b""

    def content(self, snapshot: Snapshot, path: str) -> bytes | None:
        return None

    def restore(self, target: Snapshot, now: Snapshot) -> tuple[str, ...]:
        self.restored.append((target, now))
        return self.step.change.paths

    def log(self, lines: int) -> tuple[str, ...]:
        return ("abc1234 Begin",)

    def start_watching(self) -> tuple[str, ...]:
        self.tripwire_calls.append("armed")
        return ()

    def history_backup(self) -> str:
        return "it is kept: git log refs/ralph/run-1/0"

    def repository_damage(self) -> str:
        return ""

    def final_warnings(self) -> tuple[str, ...]:
        return ()

    def check_and_restore(self, name: str) -> TripwireReport:
        self.tripwire_calls.append(name)
        return TripwireReport(self.step.touched)

    def discard(self) -> None:
        self.tripwire_calls.append("discarded")

    def close(self) -> None:
        pass

    def commit(self, work: CommitRequest, watch: CommandWatcher) -> CommitResult:
        self.commits.append(work.message)
        return CommitResult(f"commit {len(self.commits)}")


class FakeCheck:
    def __init__(self, env: FakeEnvironment, name: str) -> None:
        self.env, self.name = env, name

    def run(self, inspection: Inspection, watch: CommandWatcher) -> Finding:
        self.env.checks_run.append((inspection.iteration, self.name))
        self.env.request_stop("check")
        step = self.env.step
        if step.stopped:
            return replace(make_finding(False, self.name), why="stopped")
        answer = make_finding(self.name not in step.failing, self.name, f"{self.name} {inspection.iteration}")
        if not self.name.startswith("judge"):
            return answer
        erred = f"{self.name} errs" in step.failing
        return replace(answer, judged=True, errored=erred, passed=answer.passed and not erred, spent=JUDGEMENT)


def _next(items: list[T], otherwise: T) -> T:
    """The next of these; the last one again and again."""
    if not items:
        return otherwise
    return items.pop(0) if len(items) > 1 else items[0]


def with_limits(limits: Limits, rules: RunRules = RULES) -> RunRules:
    return replace(rules, limits=limits)
