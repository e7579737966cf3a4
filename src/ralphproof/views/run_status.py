"""A run at this moment: what it does or how it ended, what it cost, what a dead harness left, and how it can go on."""

from __future__ import annotations

import os
import time

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING, replace, value
from ralphproof.display import phrases
from ralphproof.display.phrases import describe_iteration
from ralphproof.engine.agent import AgentRotation, describe_exit
from ralphproof.engine.limits import CONTINUED_REASONS, FINAL_REASONS, STEP, Spend, budget_facts, utc_day
from ralphproof.engine.outcome import Aborted, Completed, Failed, sandbox_json
from ralphproof.engine.plan import Job, turn_file_name
from ralphproof.engine.records import (
    CheckBegan,
    CheckEnded,
    ChildRunsAwaited,
    HookBegan,
    Picked,
    Record,
    RunBegan,
    RunEnded,
    ScmBegan,
    TurnBegan,
)
from ralphproof.engine.state import (
    SCM_STEP,
    Checking,
    IterationJudged,
    JobPicked,
    RunOver,
    State,
    TurnFinished,
    TurnRunning,
    build_state,
    count_begun_iterations,
)
from ralphproof.process import turn_journal
from ralphproof.process.tree import find_marked_processes, is_alive
from ralphproof.store.ledger import CANCEL, PAUSE
from ralphproof.store.run_folder import RunFolder
from ralphproof.store.run_state import (
    CRASHED,
    ENDED,
    ORPHANED,
    PAUSED,
    RUNNING,
    STOPPED,
    find_live_turn,
    list_turn_files,
    run_state,
    turn_file_path,
)
from ralphproof.views.timeline import BASELINE_NUMBER, RunAge, RunHistory, close_iteration, describe_verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.base.value import Json
    from ralphproof.engine.check import Finding
    from ralphproof.engine.limits import Breach
    from ralphproof.engine.outcome import Metrics, Outcome, StoryReview
    from ralphproof.store.ledger import RunRow, SqliteLedger
    from ralphproof.store.project import Project
    from ralphproof.views.timeline import CheckView, IterationView


# Hints and refusals for runs that cannot be controlled.


def resume_hint(run: str) -> str:
    """The commands for a run that lost its harness."""
    return f"take it up: ralph run --resume {run}; close it: ralph cancel {run}"


def next_step_hint(run: str) -> str:
    """The commands for a run that was stopped after one iteration."""
    return f"ralph run --resume {run} --step; to the end: ralph run --resume {run}"


def lost_harness_error(project: Project, row: RunRow, state: State, status: str) -> Refused:
    """The error for a run that lost its harness."""
    still = ", and what it started is still at work" if status == ORPHANED else ""
    return Refused(
        f"run {row.id} lost its harness{still}: {describe_interruption(project, row.id, state)}; {resume_hint(row.id)}"
    )


def refuse_without_harness(project: Project, row: RunRow, state: State, status: str) -> None:
    """Raise Refused where a run has no harness, with the next command."""
    if status == RUNNING:
        return
    if status != ENDED:
        raise lost_harness_error(project, row, state, status)
    refuse_finished_run(state, row.id, "there is nothing to pause")
    raise Refused(f"run {row.id} has ended; go on: ralph run --resume {row.id}")


def refuse_finished_run(state: State, run: str, so: str = "there is nothing to resume") -> None:
    """Raise Refused for a run that cannot be resumed. `so` is the consequence for a completed one."""
    if not isinstance(state.phase, RunOver):
        return
    outcome = state.phase.outcome
    if isinstance(outcome, Completed):
        raise Refused(f"run {run} is completed; {so}")
    if isinstance(outcome, Failed) and outcome.check:
        raise Refused(f"run {run} was refused before its first turn: {outcome.error}; begin a new run")
    if isinstance(outcome, Aborted) and outcome.reason in FINAL_REASONS:
        raise Refused(f"run {run} ended for good ({outcome.reason}); begin a new run")


# What a run is doing.


def display_state(status: str, state: State) -> str:
    """The state of a run for display: `status` refined by its records, which know of pauses and stops."""
    match state.phase:
        case RunOver(Aborted(breach)) if breach.reason in CONTINUED_REASONS:
            return STOPPED
        case RunOver():
            return ENDED
        case _:
            return PAUSED if status == RUNNING and state.user.paused else status


def describe_activity(history: RunHistory, status: str) -> str:
    """What a run in this state is doing; empty where it has ended or crashed."""
    state = history.state
    if status in (CRASHED, ENDED, STOPPED):
        return ""
    if state.user.paused:
        return f"iteration {state.iteration}: rests before its turn"
    match history.last:
        case TurnBegan(iteration):
            return f"iteration {iteration}: the agent works"
        case CheckBegan(iteration, _, check):
            return f"{describe_iteration(iteration)}: guardrail {check} runs"
        case CheckEnded(0):
            return f"{describe_iteration(0)}: between two steps"
        case ScmBegan(iteration):
            return f"iteration {iteration}: the work is being committed"
        case HookBegan(iteration, hook, command=command):
            return f"{describe_iteration(iteration)}: {hook} runs: {command}"
        case ChildRunsAwaited(iteration, children=children):
            return f"iteration {iteration}: {phrases.describe_awaited_children(children)}"
        case None | RunBegan():
            return "about to begin"
        case _:
            return f"iteration {history.state.iteration}: {_describe_waiting(history) or 'between two steps'}"


def _describe_waiting(history: RunHistory) -> str:
    now = time.time()
    until = service_retry_time(history, now)
    if until is None:
        return ""
    return f"waits for the agent's service until {phrases.format_time(until, now)} ({history.refused})"


def service_retry_time(history: RunHistory, now: float) -> float | None:
    """When (epoch seconds) the first service may be asked again; None where the run does not wait for one."""
    match history.state.phase:
        case JobPicked(Job()):
            services, places = history.state.agent.services, _agent_order(history)
            return services.ready_at(places) if services.first_ready(places, now) is None else None
        case _:
            return None


def _agent_order(history: RunHistory) -> tuple[int, ...]:
    state = history.state
    return _agent_crew(history).order(state.iteration, state.escalation.rung, state.job.stage.place)


def _agent_crew(history: RunHistory) -> AgentRotation:
    listed = (history.facts.get(name) for name in ("ladder", "rotate", "fallbacks"))
    rungs, rotating, fallbacks = (len(agents) if isinstance(agents, list | tuple) else 0 for agents in listed)
    return AgentRotation(max(1, rungs), rotating, fallbacks)


# The cost of runs.


def run_spend(project: Project, state: State) -> Spend:
    """The cost of a run so far, including running calls: a lower bound then."""
    if isinstance(state.phase, RunOver) or not state.run.id:
        return state.bill
    from ralphproof.store.spend import spend_of_runs

    bill, spent = state.bill, spend_of_runs(project.state_dir, (state.run.id,))
    if spent is None or spent.micro_usd <= bill.micro_usd:
        return bill
    return Spend(
        spent.micro_usd, max(bill.tokens, spent.tokens), max(bill.unpriced, spent.unpriced),
        max(bill.notional, spent.notional),
    )  # fmt: skip


def spend_with_children(
    ledger: SqliteLedger, project: Project, run: str, own: Spend, outcome: Outcome | None
) -> Spend | None:
    """The spend of a run with its child runs; None where those spent nothing."""
    children = tuple(row.id for row in ledger.descendants(run))
    if not children:
        return None
    if outcome is not None and outcome.spend != own:
        return outcome.spend  # the record outlives the book of what was spent
    from ralphproof.store.spend import spend_of_runs

    spent = spend_of_runs(project.state_dir, children)
    total = own.plus(Spend(unpriced=1) if spent is None else spent)
    return total if total != own else None


def total_effort(ledger: SqliteLedger, project: Project, runs: tuple[str, ...]) -> tuple[int, Spend | None]:
    """The iterations and the cost of these runs, with child runs; no cost where there are no runs."""
    each = [_run_effort(ledger, project, run) for run in runs]
    spend = Spend()
    for _, cost in each:
        spend = spend.plus(cost)
    return sum(count for count, _ in each), spend if each else None


def _run_effort(ledger: SqliteLedger, project: Project, run: str) -> tuple[int, Spend]:
    end = ledger.run_end(run)
    if isinstance(end, RunEnded):
        return end.outcome.iterations, end.outcome.spend
    state = build_state(ledger.records(run))
    bill = run_spend(project, state)
    return count_begun_iterations(state), spend_with_children(ledger, project, run, bill, None) or bill


# Limits in force, which may have changed when the run was resumed.


LIMITS_NOTE = "limits"  # what is noted of a run whenever a process takes it, beside its logs


def limits_in_force(facts: dict[str, Json], project: Project, row: RunRow) -> dict[str, Json]:
    """The facts of a run's beginning, with its current limits."""
    noted = RunFolder(row.directory, row.id, project.store).noted(LIMITS_NOTE)
    budget = noted.get("budget") if isinstance(noted, dict) else None
    if not isinstance(budget, dict):
        return facts
    return {**facts, **budget_facts(budget)}


# What a dead harness left behind.


ACTIVITY_SUFFIXES = (".turn", ".log", ".ndjson")  # what a command leaves while it is at work


def describe_takeover(project: Project, run: str, state: State) -> str:
    """The phase in which a dead harness left a run, and what resuming does about it: one sentence."""
    what, now, _ = _describe_phase(project, run, state)
    return f"{what}; {now}" if now else what


def describe_interruption(project: Project, run: str, state: State) -> str:
    """The phase in which a dead harness left a run, and what is there until it is resumed."""
    what, _, still = _describe_phase(project, run, state)
    return f"{what}; {still}" if still else what


def find_orphaned_processes(run: str) -> tuple[int, ...]:
    """Live processes of a run whose harness and keeper are dead, found by the mark in their environment."""
    return tuple(sorted(find_marked_processes(f"{run}/")))


def _describe_phase(project: Project, run: str, state: State) -> tuple[str, str, str]:
    """The phase, what resuming does now, and the state until then."""
    died, number, later = "its harness died", state.iteration, "that is finished when it is taken up"
    match state.phase:
        case RunOver(Aborted() as outcome):
            return f"it had ended with {outcome.reason}: {outcome.breach.message}", "", ""
        case RunOver(Failed(error)):
            return f"it had ended with an error: {error}", "", ""
        case RunOver():
            return "it had ended", "", ""
        case TurnRunning():
            name = turn_file_name(f"agent_{number:03d}", state.turn)
            return f"{died} while the agent was at iteration {number}", *_describe_turn(project, run, name)
        case TurnFinished():
            return f"{died} before the work of iteration {number} was saved", "it is saved now", "it lies in the tree"
        case Checking() | IterationJudged() if SCM_STEP in state.open_steps:
            return f"{died} while the work of iteration {number} was committed", "that is finished", later
        case _ if state.hooks.open:
            return f"{died} while {state.hooks.open[0]} ran", "that is finished", later
        case Checking() if state.open_steps:
            return f"{died} while {state.open_steps[0]} looked at iteration {number}", "that is finished", later
        case _ if state.user.paused:
            return f"{died} while it rested before iteration {number}", "", ""
        case _:
            return f"{died} in iteration {number}" if number else f"{died} at its start", "", ""


def _describe_turn(project: Project, run: str, name: str) -> tuple[str, str]:
    past = turn_journal.read_turn_file(turn_file_path(project, run, name))
    if past.result is not None:
        return "the turn ended while nobody looked, and its result is used", "the turn has ended since"
    if past.began and is_alive(*past.keeper):
        return "the turn is still at work, and is followed to its end", "the turn is still at work"
    if past.began:
        return "the turn was cut off, and what it left is judged", "the turn was cut off"
    return "the turn had not been started, and is started now", "the turn had not been started"


def active_seconds(project: Project, run: str, stamped: tuple[tuple[float, Record], ...], now_s: float) -> float:
    """How long a run has been active; without a harness, only while something of it ran."""
    age, at_s, last = RunAge(), 0.0, None
    for at_s, last in stamped:
        age.take(at_s, last)
    if isinstance(last, RunEnded):
        return max(age.age_s(0.0), last.outcome.seconds)
    return age.age_s(max(at_s, _ran_until(project, run, now_s)))


def last_active_s(project: Project, run: str, told_s: float) -> float:
    """When a run without a harness was last active: a command may outlive its harness and the last record."""
    return max(told_s, _ran_until(project, run, told_s))


def _ran_until(project: Project, run: str, now_s: float) -> float:
    """When the last command of a run ended or last wrote something; now, where it runs; 0 where there was none."""
    if find_live_turn(project, run):
        return now_s
    bases = [path.removesuffix(".turn") for path in list_turn_files(project, run)]
    files = [base + ending for base in bases for ending in ACTIVITY_SUFFIXES]
    return max((os.stat(file).st_mtime for file in files if os.path.exists(file)), default=0.0)


# A run.


REQUEST_PHRASES = {PAUSE: "it will rest before its next turn", CANCEL: "it is asked to end"}
LIMIT_UNITS = {
    "iterations": "iterations", "cost": "usd", "dailyCost": "usd", "tokens": "tokens", "time": "seconds",
}  # fmt: skip


@value
class RunView:
    """A run as a line of a list. `spend` is its own, `total_spend` includes runs that its agents started and is None
    where these spent nothing. `runs` are those runs, in a tree; `detail` is all else about it.
    """

    row: RunRow
    state: str
    facts: dict[str, Json]
    title: str
    updated_s: float
    iterations: int
    spend: Spend
    total_spend: Spend | None
    outcome: Outcome | None = None
    check_counts: tuple[int, int] | None = None
    activity: str = ""
    requested: str = ""
    child_count: int = 0
    detail: RunDetail | None = None
    runs: tuple[RunView, ...] | None = None

    def fact(self, name: str) -> str:
        return str(self.facts.get(name) or "")

    @property
    def proof(self) -> str | None:
        """How much was shown, where it is completed."""
        return self.outcome.proof if isinstance(self.outcome, Completed) else None

    @property
    def pid(self) -> int | None:
        return self.row.pid if self.state in (RUNNING, PAUSED) else None

    @property
    def sandbox(self) -> Json:
        sandbox = self.facts.get("sandbox")
        return sandbox_json(sandbox) if isinstance(sandbox, dict) else None

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.state in (ENDED, STOPPED)


@value
class RunDetail:
    """What lists leave out. `after`: only iterations that changed after the record of this number are wanted.

    `since` is when its last record was written, `unread` how many user messages wait, `interruption` what a dead
    harness left, `alive` processes that outlived harness and keeper. `children` are runs below it, at any depth, with
    their states.
    """

    project: Project
    row: RunRow
    history: RunHistory
    facts: dict[str, Json]
    state: str
    spend: Spend
    since: float | None
    requested: str
    unread: int
    interruption: str
    children: tuple[tuple[str, str], ...]
    alive: tuple[int, ...] = ()
    after: int = 0

    @property
    def run(self) -> str:
        return self.row.id

    @property
    def complete(self) -> bool:
        return self.after == 0

    @property
    def outcome(self) -> Outcome | None:
        phase = self.history.state.phase
        return phase.outcome if isinstance(phase, RunOver) else None

    @property
    def metrics(self) -> Metrics | None:
        last = self.history.last
        return last.metrics if isinstance(last, RunEnded) else None

    @property
    def headline(self) -> str:
        """The most important facts in one line, with the next command."""
        run, now = self.row.id, time.time()
        ago = f", for {phrases.format_duration(max(0.0, now - self.since))}" if self.since else ""
        match self.state:
            case "running":
                request = f"; {REQUEST_PHRASES[self.requested]}" if self.requested in REQUEST_PHRASES else ""
                return f"run {run} is running (pid {self.row.pid}); {self._activity}{ago}{request}"
            case "paused":
                return f"run {run} rests since {phrases.format_time(self.since or now, now)}; go on: ralph resume {run}"
            case "stopped" if self._breach.reason == STEP:
                return f"run {run} is stopped: {self._breach.message}; go on: {next_step_hint(run)}"
            case "stopped":
                waits = f"it waits for somebody: {self._breach.message}"
                return f"run {run} is stopped: {waits}; go on: ralph run --resume {run}"
            case "orphaned":
                return f"run {run} lost its harness, and what it started is still at work; {self._activity}{ago}"
            case "crashed" if self.alive:
                pids = ", ".join(map(str, self.alive))
                who = "its agent" if self.history.state.turn_running else "what it started"
                return f"run {run} crashed: harness and keeper are gone, but {who} still lives (pid {pids})"
            case "crashed":
                return f"run {run} crashed: its harness is gone, and nothing of it is at work"
            case _:
                return f"run {run} has ended"

    @property
    def _activity(self) -> str:
        return describe_activity(self.history, self.state)

    @property
    def _breach(self) -> Breach:
        assert isinstance(self.outcome, Aborted)
        return self.outcome.breach

    @property
    def stories(self) -> tuple[StoryReview, ...]:
        """The reviews of its stories: final if it ended, else so far."""
        if isinstance(self.history.last, RunEnded):
            return self.metrics.reviewed if self.metrics else ()
        if "stories" not in self.history.facts:
            return ()
        from ralphproof.stories.workflow import story_reviews

        return story_reviews(self.project, self.row, self.history.facts)

    @property
    def stages(self) -> list[Json]:
        stages = self.facts.get("stages")
        return [one.get("name") for one in stages if isinstance(one, dict)] if isinstance(stages, list | tuple) else []

    @property
    def wait(self) -> tuple[float, str] | None:
        """Until when it waits for a service, and why."""
        until = None if self.state == CRASHED else service_retry_time(self.history, time.time())
        return None if until is None else (until, self.history.refused)

    @property
    def baseline(self) -> tuple[CheckView, ...]:
        """Its checks before the first iteration."""
        before = self.history.timeline.iterations.get(BASELINE_NUMBER)
        return before.checks if before else ()

    @property
    def failing_counts(self) -> list[Json]:
        known = self.history.timeline.iterations
        return [
            known[number].failing_count if number in known else None for number in range(max(known, default=-1) + 1)
        ]

    @property
    def _last_active_s(self) -> float | None:
        """When a crashed run was last active."""
        if self.state != CRASHED:
            return None
        return last_active_s(self.project, self.row.id, self.history.at_s)

    @property
    def timeline(self) -> list[IterationView]:
        """The iterations that changed. The last one of a crashed run ended when the run was last active."""
        timeline, until_s = self.history.timeline, self._last_active_s
        known, last = timeline.iterations, max(timeline.iterations, default=BASELINE_NUMBER)
        numbers = {number for number, seq in timeline.touched.items() if number and seq > self.after}
        if until_s is None or not last or known[last].ended_s is not None:
            return [known[number] for number in sorted(numbers)]
        seconds = timeline.pace.seconds(last, timeline.pace.age_s(until_s))
        left = close_iteration(known[last], until_s, seconds)  # no record says so
        return [*(known[number] for number in sorted(numbers - {last})), left]

    @property
    def limits(self) -> list[dict[str, Json]]:
        """How much of each limit is used. Unknown amounts are null; what has no limit is listed too."""
        from ralphproof.store.spend import spend_on_day

        today = spend_on_day(self.project.state_dir, utc_day(time.time()))
        state, outcome, until_s = self.history.state, self.outcome, self._last_active_s or time.time()
        used: dict[str, tuple[Json, str]] = {
            "iterations": (outcome.iterations if outcome else count_begun_iterations(state), "maximumIterations"),
            "cost": (self.spend.known_usd, "maxCostUsd"),
            "dailyCost": (today.known_usd if today else None, "dailyCostUsd"),
            "tokens": (self.spend.tokens or None, "maxTokens"),  # who tells none may have used any number
            "time": (outcome.seconds if outcome else self.history.timeline.pace.age_s(until_s), "maxSeconds"),
        }  # fmt: skip
        rough = {"cost": self.spend.unpriced, "dailyCost": today.unpriced if today else 0}
        return [
            {
                "name": name, "used": amount, "max": self.facts.get(fact), "unit": LIMIT_UNITS[name],
                "atLeast": bool(rough.get(name)),
            }
            for name, (amount, fact) in used.items()
        ]  # fmt: skip


def load_run(ledger: SqliteLedger, row: RunRow, project: Project) -> RunView:
    """A run with all details."""
    state, history = run_state(ledger, row, project), RunHistory(row.id)
    history.catch_up(ledger)
    return with_detail(open_run_view(ledger, row, state, history, project), ledger, history, project)


def with_detail(
    view: RunView, ledger: SqliteLedger, history: RunHistory, project: Project, after: int = 0
) -> RunView:  # fmt: skip
    """A run with its details."""
    run, state, interruption, alive = view.row.id, view.state, "", tuple[int, ...]()
    if state in (CRASHED, ORPHANED):
        alive = find_orphaned_processes(run) if state == CRASHED else ()
        interruption = describe_interruption(project, run, history.state)
    children = tuple((child.id, run_state(ledger, child, project)) for child in ledger.descendants(run))
    unread = len(ledger.user_messages(run, history.state.user.last_message))
    detail = RunDetail(
        project, view.row, history, view.facts, state, view.total_spend or view.spend, ledger.last_written_at(run),
        view.requested, unread, interruption, children, alive, after,
    )  # fmt: skip
    return replace(view, detail=detail)


def open_run_view(
    ledger: SqliteLedger, row: RunRow, state: str, history: RunHistory, project: Project
) -> RunView:  # fmt: skip
    """A run from its whole history. `state` must have been read before the records: it may end meanwhile."""
    state, phase = display_state(state, history.state), history.state.phase
    outcome, spend = phase.outcome if isinstance(phase, RunOver) else None, run_spend(project, history.state)
    return _run_view(
        ledger, row, project, state, history.facts, history.title, history.at_s or row.began_at,
        outcome.iterations if outcome else count_begun_iterations(history.state), spend, outcome,
        _last_check_counts(history), describe_activity(history, state),
    )  # fmt: skip


def ended_run_view(ledger: SqliteLedger, row: RunRow, project: Project) -> RunView:
    """An ended run, from a few records."""
    end, began = ledger.run_end(row.id), ledger.queries.first_record(row.id, "RunBegan")
    assert isinstance(end, RunEnded), "it has ended"
    facts = began.facts if isinstance(began, RunBegan) else {}
    sandbox = getattr(ledger.queries.last_record(row.id, "Resumed"), "sandbox", None)
    facts = facts | ({"sandbox": sandbox} if sandbox else {})
    outcome = end.outcome
    # The outcome includes what child runs spent.
    spend = build_state(ledger.records(row.id)).bill if ledger.children(row.id) else outcome.spend
    title = str(facts.get("title") or "") or _last_title(ledger, row.id)
    return _run_view(
        ledger, row, project, display_state(ENDED, State().after(end)), facts, title,
        ledger.last_written_at(row.id) or row.began_at, outcome.iterations, spend, outcome,
        _recorded_check_counts(ledger, row.id), "",
    )  # fmt: skip


def _run_view(
    ledger: SqliteLedger, row: RunRow, project: Project, state: str, facts: dict[str, Json], title: str,
    updated_s: float, iterations: int, spend: Spend, outcome: Outcome | None, checks: tuple[int, int] | None,
    activity: str,
) -> RunView:  # fmt: skip
    facts = limits_in_force(facts, project, row)
    task = ledger.tasks.task_of_run(row.id) if ledger.has_tasks() else None
    facts = facts | ({"work": task} if task else {})
    name = str(facts.get("work") or "") or str(facts.get("promptFile") or "").rpartition("/")[2]
    return RunView(
        row, state, facts, project.mask(title or name), updated_s, iterations, spend,
        spend_with_children(ledger, project, row.id, spend, outcome), outcome, checks, project.mask(activity),
        ledger.requested_control(row.id) if outcome is None else "", len(ledger.children(row.id)),
    )  # fmt: skip


def _last_title(ledger: SqliteLedger, run: str) -> str:
    """The title of its last job."""
    last = ledger.queries.last_record(run, "Picked")
    every = (
        (last,) if isinstance(last, Picked) and isinstance(last.choice, Job) else ledger.records_of_kind(run, "Picked")
    )
    jobs = [record.choice for record in every if isinstance(record, Picked) and isinstance(record.choice, Job)]
    return jobs[-1].task.title if jobs else ""


def _last_check_counts(history: RunHistory) -> tuple[int, int] | None:
    """How many checks passed and failed in the last iteration that ran any."""
    for _, iteration in sorted(history.timeline.iterations.items(), reverse=True):
        findings = [check.finding for check in iteration.checks if check.finding]
        if findings:
            return _count_findings(findings)
    return None


def _recorded_check_counts(ledger: SqliteLedger, run: str) -> tuple[int, int] | None:
    """The same from the checks' records alone. Results for an earlier tree do not count."""
    results = [record for record in ledger.queries.last_check_results(run) if isinstance(record, CheckEnded)]
    last = [
        result.finding for result in results if (result.turn, result.round) == (results[-1].turn, results[-1].round)
    ]
    return _count_findings(last) if last else None


def _count_findings(findings: list[Finding]) -> tuple[int, int]:
    passed = sum(finding.passed for finding in findings)
    return passed, len(findings) - passed


def load_run_line(ledger: SqliteLedger, row: RunRow, project: Project) -> RunView:
    """A run as a line of a list."""
    state = run_state(ledger, row, project)
    if state == ENDED and ledger.run_end(row.id) is not None:
        return ended_run_view(ledger, row, project)
    history = RunHistory(row.id)
    history.catch_up(ledger)
    return open_run_view(ledger, row, state, history, project)


def load_run_tree(ledger: SqliteLedger, row: RunRow, project: Project) -> RunView:
    """A run with all runs below it, the oldest first."""
    children = tuple(load_run_tree(ledger, child, project) for child in ledger.children(row.id))
    return replace(load_run_line(ledger, row, project), runs=children)


def load_run_trees(ledger: SqliteLedger, project: Project) -> tuple[RunView, ...]:
    """All runs of a repository as trees, the newest first."""
    rows = ledger.runs()
    known = {row.id for row in rows}
    return tuple(load_run_tree(ledger, row, project) for row in rows if row.parent not in known)


# Lines for people.


def detail_lines(view: RunView) -> list[str]:
    """What `ralph status` says at the end."""
    detail, lines = view.detail, list[str]()
    assert detail is not None
    sessions = detail.history.state.run.session
    if sessions > 1:
        lines.append(f"taken up {phrases.format_count(sessions - 1, 'time')}")
    if not view.over:
        tokens = f", {view.spend.tokens} tokens" if view.spend.tokens else ""
        count = phrases.format_count(view.iterations, "iteration")
        lines.append(f"so far: {count}, {phrases.format_cost(view.spend)}{tokens}")
    if view.total_spend:
        own, total = phrases.format_cost(view.spend), phrases.format_cost(view.total_spend)
        lines.append(f"its own {own}; with runs of its own {total}")
    if detail.unread:
        wait = "waits" if detail.unread == 1 else "wait"
        lines.append(f"{phrases.format_count(detail.unread, 'message')} of yours {wait} for its next prompt")
    if detail.children:
        active = sum(state in (RUNNING, ORPHANED) for _, state in detail.children)
        at_work = {0: "none", 1: "one"}.get(active, str(active))
        lines.append(f"runs of its own: {len(detail.children)}, {at_work} at work")
    if detail.interruption:
        ends = "; both end what still lives" if detail.alive else ""
        lines += [f"found: {detail.interruption}", resume_hint(view.row.id) + ends]
    return lines


def iteration_table(iterations: list[IterationView]) -> list[str]:
    """The iterations as a table."""
    rows = [("#", "agent", "files", "checks", "verdict", "time")]
    rows += [_table_row(item) for item in iterations]
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    return ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _table_row(item: IterationView) -> tuple[str, str, str, str, str, str]:
    findings = [check.finding for check in item.checks if check.finding]
    passed, failed = _count_findings(findings)
    checks = f"{passed} passed" + (f", {failed} failed" if failed else "") if findings else "none"
    files = str(len(item.paths)) if item.saved and item.saved.change.known else "?"
    verdict = describe_verdict(item.verdict) if item.verdict else ""
    return str(item.number), _describe_agent(item), files, checks, verdict, phrases.format_duration(item.seconds or 0.0)


def _describe_agent(item: IterationView) -> str:
    """How the agent of an iteration ended."""
    reply = item.turns[-1].reply if item.turns else None
    if reply is None:
        return "not asked"
    return "ended" if not reply.errored else "reported an error" if reply.error else describe_exit(reply)


def violation_lines(detail: RunDetail, iterations: list[IterationView]) -> Iterator[str]:
    """Protected paths that agents changed, hosts that were blocked, and hooks that failed, by iteration."""
    for hook in detail.history.hooks:
        if not hook.result.passed:
            yield f"{describe_iteration(hook.iteration)}: {phrases.describe_hook(hook)}"
    for item in iterations:
        blocked = item.turns[-1].reply.exit.blocked if item.turns and item.turns[-1].reply else ()
        lines = [
            *(phrases.describe_touched_paths(item.saved.sprung) if item.saved else ()),
            *(phrases.describe_altered_checks(item.saved.altered) if item.saved else ()),
            *phrases.describe_blocked_hosts(blocked),
        ]
        yield from (f"{describe_iteration(item.number)}: {line}" for line in lines)


def run_tree_lines(run: RunView, root: str, depth: int = 0) -> Iterator[str]:
    """A tree for people. `root` is the folder of the project: runs elsewhere name theirs."""
    elsewhere = "" if run.row.directory in (root, "") else f"  in {run.row.directory}"
    status = phrases.summarize_outcome(run.outcome) if run.outcome else run.state
    count, cost = phrases.format_count(run.iterations, "iteration"), phrases.format_cost(run.spend)
    below = f", with those below it {phrases.format_cost(run.total_spend)}" if run.total_spend else ""
    yield f"{'  ' * depth}{run.row.id}  {status}  {count}  {cost}{below}{elsewhere}"
    for child in run.runs or ():
        yield from run_tree_lines(child, root, depth + 1)


def format_date(epoch_s: float) -> str:
    """Local date and time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(epoch_s))
