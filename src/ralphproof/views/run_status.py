"""The status of a run at this moment: its iterations, what it does, what is asked of it, and how it can go on."""

from __future__ import annotations

import time

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING, replace, value
from ralphproof.display import phrases
from ralphproof.display.phrases import describe_iteration
from ralphproof.engine.agent import describe_exit
from ralphproof.engine.budget import Spend
from ralphproof.engine.limits import CANCELLED, RESUMABLE_REASONS, STEP, TRIPWIRE_REASONS
from ralphproof.engine.outcome import (
    Aborted,
    Completed,
    Failed,
    Passed,
    Retry,
    SentBack,
    Stopped,
    Verdict,
    Waiting,
    outcome_json,
    verdict_word,
)
from ralphproof.engine.plan import Job
from ralphproof.engine.records import (
    CheckBegan,
    CheckEnded,
    ChildRunsAwaited,
    HookBegan,
    HookEnded,
    Judged,
    RunBegan,
    RunEnded,
    ScmBegan,
    TurnBegan,
    TurnRetried,
)
from ralphproof.engine.retry import AgentRotation
from ralphproof.engine.state import JobPicked, RunOver, State, build_state, count_begun_iterations
from ralphproof.store.ledger import CANCEL, PAUSE
from ralphproof.store.run_folder import RunFolder
from ralphproof.store.run_state import CRASHED, ENDED, ORPHANED, PAUSED, RUNNING, STOPPED, run_state
from ralphproof.views.timeline import RunAge

if TYPE_CHECKING:
    from ralphproof.base.value import Json
    from ralphproof.engine.check import CheckReport
    from ralphproof.engine.iteration import Iteration
    from ralphproof.engine.limits import Breach
    from ralphproof.engine.outcome import Outcome
    from ralphproof.engine.records import Record
    from ralphproof.store.ledger import RunRow, SqliteLedger
    from ralphproof.store.project import Project


# Hints and refusals for runs that cannot be controlled.


FINAL_REASONS = (CANCELLED, *TRIPWIRE_REASONS)


def resume_hint(run: str) -> str:
    """The commands for a run that lost its harness."""
    return f"take it up: ralph run --resume {run}; close it: ralph cancel {run}"


def next_step_hint(run: str) -> str:
    """The commands for a run that was stopped after one iteration."""
    return f"ralph run --resume {run} --step; to the end: ralph run --resume {run}"


def lost_harness_error(project: Project, row: RunRow, state: State, status: str) -> Refused:
    """The error for a run that lost its harness."""
    from ralphproof.views.interrupted_run import describe_interruption

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


# The summary of a run, from its records.


@value
class IterationSummary:
    """One iteration, its verdict, and how long it took."""

    facts: Iteration
    verdict: Verdict
    seconds: float


@value
class RunSummary:
    """The summary of a run. `refused` is why an agent's service last refused."""

    state: State
    facts: dict[str, Json]
    passes: tuple[IterationSummary, ...]
    last: Record | None
    refused: str = ""
    hooks: tuple[HookEnded, ...] = ()


def summarize_records(records: tuple[Record, ...]) -> RunSummary:
    """The summary from all records."""
    state = build_state(records)
    verdicts = {record.iteration: record.verdict for record in records if isinstance(record, Judged)}
    age = RunAge()
    for record in records:
        age.take(0.0, record)
    iterations = state.history.iterations
    passes = tuple(IterationSummary(facts, verdicts[facts.number], age.judged_s(facts.number)) for facts in iterations)
    start_facts = next((record.facts for record in records if isinstance(record, RunBegan)), {})
    relabelled = {
        name: state.run.facts[name] for name in ("sandbox",) if name in state.run.facts
    }  # who took it up may say anew
    refusals = (record.why for record in reversed(records) if isinstance(record, TurnRetried) and not record.empty)
    hooks = tuple(record for record in records if isinstance(record, HookEnded))
    return RunSummary(
        state, {**start_facts, **relabelled}, passes, records[-1] if records else None, next(refusals, ""), hooks
    )


def display_state(status: str, state: State) -> str:
    """The state of a run for display: `status` refined by its records, which know of pauses and stops."""
    match state.phase:
        case RunOver(Aborted(breach)) if breach.reason in RESUMABLE_REASONS:
            return STOPPED
        case RunOver():
            return ENDED
        case _:
            return PAUSED if status == RUNNING and state.user.paused else status


def describe_activity(summary: RunSummary, status: str) -> str:
    """What a run in this state is doing; empty where it has ended or crashed."""
    state = summary.state
    if status in (CRASHED, ENDED, STOPPED):
        return ""
    if state.user.paused:
        return f"iteration {state.iteration}: rests before its turn"
    match summary.last:
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
            return f"iteration {summary.state.iteration}: {_describe_waiting(summary) or 'between two steps'}"


def _describe_waiting(summary: RunSummary) -> str:
    now = time.time()
    until = service_retry_time(summary, now)
    if until is None:
        return ""
    return f"waits for the agent's service until {phrases.format_time(until, now)} ({summary.refused})"


def service_retry_time(summary: RunSummary, now: float) -> float | None:
    """When (epoch seconds) the first service may be asked again; None where the run does not wait for one."""
    match summary.state.phase:
        case JobPicked(Job()):
            services, places = summary.state.agent.services, _agent_order(summary)
            return services.ready_at(places) if services.first_ready(places, now) is None else None
        case _:
            return None


def _agent_order(summary: RunSummary) -> tuple[int, ...]:
    state = summary.state
    return _agent_crew(summary).order(state.iteration, state.escalation.rung, state.job.stage.place)


def _agent_crew(summary: RunSummary) -> AgentRotation:
    listed = (summary.facts.get(name) for name in ("ladder", "rotate", "fallbacks"))
    rungs, rotating, fallbacks = (len(agents) if isinstance(agents, list | tuple) else 0 for agents in listed)
    return AgentRotation(max(1, rungs), rotating, fallbacks)


def describe_verdict(verdict: Verdict) -> str:
    """The same for people."""
    match verdict:
        case Passed():
            return "done"
        case Retry():
            return "not done"
        case SentBack(reopened):
            return f"back to {reopened[0]}"
        case Waiting():
            return "waits"
        case Stopped(breach):
            return f"stopped, {breach.reason}"


def iteration_table(summary: RunSummary) -> list[str]:
    """The iterations as a table."""
    rows = [("#", "agent", "files", "checks", "verdict", "time")]
    rows += [_table_row(item) for item in summary.passes]
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    return ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def violation_lines(summary: RunSummary) -> list[str]:
    """Protected paths that agents changed, hosts that were blocked, and hooks that failed, by iteration."""
    failed = [
        f"{describe_iteration(hook.iteration)}: {phrases.describe_hook(hook)}"
        for hook in summary.hooks
        if not hook.result.passed
    ]
    return failed + [
        f"{describe_iteration(item.facts.number)}: {line}"
        for item in summary.passes
        for line in (
            *phrases.describe_touched_paths(item.facts.tripwires),
            *phrases.describe_altered_checks(item.facts.altered_inputs),
            *phrases.describe_blocked_hosts(item.facts.turn.exit.blocked),
        )
    ]


def _table_row(item: IterationSummary) -> tuple[str, str, str, str, str, str]:
    facts, report = item.facts, item.facts.report
    failed = len(report.findings) - sum(finding.passed for finding in report.findings)
    counted = f"{len(report.findings) - failed} passed" + (f", {failed} failed" if failed else "")
    end = "ended" if not facts.turn.errored else "reported an error" if facts.turn.error else describe_exit(facts.turn)
    end = end if facts.turn.taken else "not asked"
    files = str(len(facts.change.agent_paths)) if facts.change.known else "?"
    checks = counted if report.findings else "none"
    return str(facts.number), end, files, checks, describe_verdict(item.verdict), phrases.format_duration(item.seconds)


def run_summary_json(summary: RunSummary) -> dict[str, Json]:
    """The summary for programs."""
    state = summary.state
    outcome = state.phase.outcome if isinstance(state.phase, RunOver) else None
    return {
        "facts": summary.facts,
        "outcome": outcome_json(outcome) if outcome else None,
        "until": service_retry_time(summary, time.time()),
        "baseline": _checks_json(state.baseline.report),
        "sessions": state.run.session,
        "iterations": [_iteration_json(item) for item in summary.passes],
        "hooks": [_hook_json(record) for record in summary.hooks],
    }


def _hook_json(record: HookEnded) -> Json:
    result = record.result
    return {
        "hook": record.hook, "iteration": record.iteration, "command": result.command, "passed": result.passed,
        "exitCode": result.code, "why": result.why, "seconds": result.seconds, "log": result.log,
        "output": result.output, "files": list(record.paths),
    }  # fmt: skip


def _iteration_json(item: IterationSummary) -> dict[str, Json]:
    from ralphproof.display.ndjson import published_json

    facts, turn = item.facts, item.facts.turn
    agent: dict[str, Json] = {
        "why": turn.exit.why, "exitCode": turn.exit.code, "signal": turn.exit.signal, "error": turn.error,
        "seconds": turn.exit.seconds, "blocked": list(turn.exit.blocked),
    }  # fmt: skip
    return {
        "number": facts.number,
        "agent": agent,
        "filesKnown": facts.change.known,
        "files": list(facts.change.agent_paths),
        "claim": facts.claim.word if facts.claim else None,
        "checks": _checks_json(facts.report),
        "verdict": verdict_word(item.verdict),
        "seconds": round(item.seconds, 3),
        "saved": facts.snapshot.ref,
        "sprung": published_json(facts.tripwires),
        "altered": published_json(facts.altered_inputs),
    }


def _checks_json(report: CheckReport) -> list[Json]:
    return [
        {
            "name": finding.check, "command": finding.command, "passed": finding.passed, "exitCode": finding.code,
            "why": finding.why, "seconds": finding.seconds, "log": finding.log, "hidden": finding.hidden,
            "flaky": finding.flaky,
        }
        for finding in report.findings
    ]  # fmt: skip


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


def spend_json(spend: Spend) -> dict[str, Json]:
    """A spend for programs. Unknown is null, never zero: an agent that reports no tokens may have used any number."""
    return {
        "usd": spend.usd, "atLeastUsd": spend.micro_usd / 1_000_000, "tokens": spend.tokens or None,
        "notional": spend.notional > 0,
    }  # fmt: skip


# Limits in force, which may have changed when the run was resumed.


LIMITS_NOTE = "limits"  # what is noted of a run whenever a process takes it, beside its logs
LIMIT_FACTS = {
    "iterations": ("maximumIterations", 1), "micro_usd": ("maxCostUsd", 1_000_000), "tokens": ("maxTokens", 1),
    "seconds": ("maxSeconds", 1), "daily_micro_usd": ("dailyCostUsd", 1_000_000),
}  # fmt: skip


def limits_in_force(facts: dict[str, Json], project: Project, row: RunRow) -> dict[str, Json]:
    """The facts of a run's beginning, with its current limits."""
    noted = RunFolder(row.directory, row.id, project.store).noted(LIMITS_NOTE)
    budget = noted.get("budget") if isinstance(noted, dict) else None
    if not isinstance(budget, dict):
        return facts
    now: dict[str, Json] = {}
    for name, (fact, unit) in LIMIT_FACTS.items():
        amount = budget.get(name)
        now[fact] = amount / unit if unit > 1 and isinstance(amount, int | float) else amount
    return {**facts, **now}


# The status.


REQUEST_PHRASES = {PAUSE: "it will rest before its next turn", CANCEL: "it is asked to end"}


@value
class RunStatus:
    """The status of a run. `since` is when its last record was written, `unread` how many user messages wait.

    `interruption` describes what a dead harness left. `children` are its child runs, at any depth, with their states;
    `spend` is its own spend so far, `total_spend` includes theirs and is None where they spent nothing. `alive` are
    processes that outlived harness and keeper.
    """

    row: RunRow
    state: str
    summary: RunSummary
    since: float | None
    requested: str
    unread: int
    interruption: str
    children: tuple[tuple[str, str], ...]
    total_spend: Spend | None = None
    alive: tuple[int, ...] = ()
    spend: Spend = Spend()

    @staticmethod
    def read(ledger: SqliteLedger, row: RunRow, project: Project) -> RunStatus:
        """The current status."""
        state = run_state(ledger, row, project)
        return RunStatus.from_summary(summarize_records(ledger.records(row.id)), state, ledger, row, project)

    @staticmethod
    def from_summary(summary: RunSummary, state: str, ledger: SqliteLedger, row: RunRow, project: Project) -> RunStatus:
        """The status from a summary. `state` must have been read before the records: the run may end meanwhile."""
        state = display_state(state, summary.state)
        summary = replace(summary, facts=limits_in_force(summary.facts, project, row))
        interruption, alive = "", tuple[int, ...]()
        if state in (CRASHED, ORPHANED):
            from ralphproof.views.interrupted_run import describe_interruption, find_orphaned_processes

            alive = find_orphaned_processes(row.id) if state == CRASHED else ()
            interruption = describe_interruption(project, row.id, summary.state)
        children = tuple((child.id, run_state(ledger, child, project)) for child in ledger.descendants(row.id))
        unread = len(ledger.user_messages(row.id, summary.state.user.last_message))
        phase, spend = summary.state.phase, run_spend(project, summary.state)
        outcome = phase.outcome if isinstance(phase, RunOver) else None
        total = spend_with_children(ledger, project, row.id, spend, outcome) if children else None
        since, requested = ledger.last_written_at(row.id), ledger.requested_control(row.id)
        return RunStatus(row, state, summary, since, requested, unread, interruption, children, total, alive, spend)

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.state in (ENDED, STOPPED)

    def first_line(self) -> str:
        """The most important facts in one line, with the next command."""
        run, now = self.row.id, time.time()
        ago = f", for {phrases.format_duration(max(0.0, now - self.since))}" if self.since else ""
        match self.state:
            case "running":
                request = f"; {REQUEST_PHRASES[self.requested]}" if self.requested in REQUEST_PHRASES else ""
                return f"run {run} is running (pid {self.row.pid}); {self._doing}{ago}{request}"
            case "paused":
                return f"run {run} rests since {phrases.format_time(self.since or now, now)}; go on: ralph resume {run}"
            case "stopped" if self._breach.reason == STEP:
                return f"run {run} is stopped: {self._breach.message}; go on: {next_step_hint(run)}"
            case "stopped":
                waits = f"it waits for somebody: {self._breach.message}"
                return f"run {run} is stopped: {waits}; go on: ralph run --resume {run}"
            case "orphaned":
                return f"run {run} lost its harness, and what it started is still at work; {self._doing}{ago}"
            case "crashed" if self.alive:
                pids = ", ".join(map(str, self.alive))
                who = "its agent" if self.summary.state.turn_running else "what it started"
                return f"run {run} crashed: harness and keeper are gone, but {who} still lives (pid {pids})"
            case "crashed":
                return f"run {run} crashed: its harness is gone, and nothing of it is at work"
            case _:
                return f"run {run} has ended"

    @property
    def _doing(self) -> str:
        return describe_activity(self.summary, self.state)

    @property
    def _breach(self) -> Breach:
        phase = self.summary.state.phase
        assert isinstance(phase, RunOver)
        assert isinstance(phase.outcome, Aborted)
        return phase.outcome.breach

    def detail_lines(self) -> list[str]:
        """The other lines."""
        state, lines = self.summary.state, []
        if state.run.session > 1:
            lines.append(f"taken up {phrases.format_count(state.run.session - 1, 'time')}")
        if not self.over:
            tokens = f", {self.spend.tokens} tokens" if self.spend.tokens else ""
            count = phrases.format_count(count_begun_iterations(state), "iteration")
            lines.append(f"so far: {count}, {phrases.format_cost(self.spend)}{tokens}")
        if self.total_spend:
            own, total = phrases.format_cost(self.spend), phrases.format_cost(self.total_spend)
            lines.append(f"its own {own}; with runs of its own {total}")
        if self.unread:
            wait = "waits" if self.unread == 1 else "wait"
            lines.append(f"{phrases.format_count(self.unread, 'message')} of yours {wait} for its next prompt")
        if self.children:
            lines.append(
                f"runs of its own: {len(self.children)}, {_format_words_waiting(self._active_children)} at work"
            )
        if self.interruption:
            ends = "; both end what still lives" if self.alive else ""
            lines += [f"found: {self.interruption}", resume_hint(self.row.id) + ends]
        return lines

    @property
    def _active_children(self) -> int:
        return sum(state in (RUNNING, ORPHANED) for _, state in self.children)

    def to_json(self) -> dict[str, Json]:
        """The status for programs."""
        now: Json = None if self.over else {"doing": self._doing, "since": self.since}
        children: list[Json] = [{"run": run, "state": state} for run, state in self.children]
        requested: Json = self.requested if self.requested and not self.over else None
        return run_row_json(self.row, self.state) | {
            "now": now, "asked": requested, "unread": self.unread,
            "found": self.interruption or None, "children": children, "alive": [*self.alive],
            "spend": spend_json(self.spend),
            "spendWithChildren": spend_json(self.total_spend) if self.total_spend else None,
        }  # fmt: skip


def _format_words_waiting(count: int) -> str:
    return {0: "none", 1: "one"}.get(count, str(count))


def run_row_json(row: RunRow, state: str) -> dict[str, Json]:
    """A run in a list, for programs."""
    pid = row.pid if state in (RUNNING, PAUSED) else None
    return {
        "run": row.id, "state": state, "pid": pid, "beganAt": row.began_at, "directory": row.directory,
        "parent": row.parent or None,
    }  # fmt: skip


def format_date(epoch_s: float) -> str:
    """Local date and time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(epoch_s))
