"""Budgets, spend and limits of a run; abort reasons; tripwire breaches."""

from __future__ import annotations

import re
import time

from ralphproof.base.text import strip_escapes
from ralphproof.base.value import TYPE_CHECKING, Json, Protocol, replace, value
from ralphproof.engine.agent import Spent, Turn, classify_fault
from ralphproof.engine.check import Finding
from ralphproof.engine.plan import History, Iteration, Job, count_alternating

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Money is whole micro-dollars, so sums are exact.


@value
class Budget:
    """Upper bounds of a run or stage, or what is left of them. None is no limit."""

    iterations: int | None = None
    micro_usd: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    daily_micro_usd: int | None = None  # of all runs of the user together

    def less(self, spend: Spend) -> Budget:
        """What is left after this spend."""
        limits = {name: getattr(self, name) for name in SPENT_AMOUNTS}
        return replace(
            self, **{name: limit - getattr(spend, name) for name, limit in limits.items() if limit is not None}
        )

    def left(self, spend: Spend, day: DaySpend) -> Budget:
        """What is left for a run's next turn. Its money is the least that run, day and shared budget leave."""
        left, money = self.less(spend), [self.less(spend).micro_usd]
        money += [] if self.daily_micro_usd is None else [self.daily_micro_usd - day.micro_usd]
        money += [] if day.shared is None else [day.shared.limit - day.shared.micro_usd]
        return replace(left, micro_usd=min((one for one in money if one is not None), default=None))

    def capped_by(self, other: Budget) -> Budget:
        """The lower of both limits for each amount that is spent, and of the day; each at least 1."""
        names = (*SPENT_AMOUNTS, "daily_micro_usd")
        inherited = {name: max(1, limit) for name in names if (limit := getattr(other, name)) is not None}
        own = {name: limit for name in inherited if (limit := getattr(self, name)) is not None}
        return replace(self, **{name: min(own.get(name, limit), limit) for name, limit in inherited.items()})

    def exceeded_by(self, spent: Spent) -> bool:
        """Whether what is known of this spend exceeds it."""
        pairs = ((used, getattr(self, name)) for name, used in _known_amounts(spent).items())
        return any(used is not None and limit is not None and used > limit for used, limit in pairs)

    def day_exceeded_by(self, others_micro_usd: int | None, spent: Spent) -> bool:
        """Whether this spend, with that of others in the day, exceeds the daily limit."""
        if self.daily_micro_usd is None or others_micro_usd is None:
            return False
        return others_micro_usd + (spent.micro_usd or 0) > self.daily_micro_usd

    @property
    def facts(self) -> dict[str, Json]:
        """The limits by the names that the facts of a run have for them."""
        return budget_facts({name: getattr(self, name) for name in BUDGET_FACTS})


# For each amount of a budget: its name in the facts of a run, and how many are one unit there.
BUDGET_FACTS = {
    "iterations": ("maximumIterations", 1), "micro_usd": ("maxCostUsd", 1_000_000), "tokens": ("maxTokens", 1),
    "seconds": ("maxSeconds", 1), "daily_micro_usd": ("dailyCostUsd", 1_000_000),
}  # fmt: skip


def budget_facts(budget: Mapping[str, object]) -> dict[str, Json]:
    """The facts of a budget that may have been read from a file."""
    amounts = {name: amount for name in BUDGET_FACTS if isinstance(amount := budget.get(name), int | float)}
    return {
        fact: amounts[name] / unit if unit > 1 and name in amounts else amounts.get(name)
        for name, (fact, unit) in BUDGET_FACTS.items()
    }


@value
class Spend:
    """Resources used. `unpriced` counts turns whose cost is not fully known: the sum is then a lower bound. `notional`
    is the part that a subscription covers.
    """

    micro_usd: int = 0
    tokens: int = 0
    unpriced: int = 0
    notional: int = 0

    def plus_turn(self, turn: Turn) -> Spend:
        """This spend plus one more turn of any kind. A turn that never started cost nothing."""
        if turn.exit.why == "unstartable" or not turn.taken:
            return self
        return self.plus(Spend.of(turn.spent))

    @staticmethod
    def of(spent: Spent) -> Spend:
        """The spend of one agent call."""
        amounts = {name: used or 0 for name, used in _known_amounts(spent).items()}
        unpriced = spent.micro_usd is None or spent.at_least
        return Spend(unpriced=int(unpriced), notional=spent.micro_usd or 0 if spent.notional else 0, **amounts)

    def plus(self, other: Spend) -> Spend:
        """This spend plus that of others on the same account."""
        return Spend(*(getattr(self, name) + getattr(other, name) for name in Spend.__match_args__))

    def less(self, other: Spend) -> Spend:
        """The part of this spend that is not in `other`."""
        return Spend(*(getattr(self, name) - getattr(other, name) for name in Spend.__match_args__))

    @property
    def known_usd(self) -> float | None:
        """Dollars as far as known; None where something was spent and no cost is known."""
        return None if self.unpriced and not self.micro_usd else self.micro_usd / 1_000_000

    @property
    def usd(self) -> float | None:
        """Dollars, where every turn's cost is known."""
        return None if self.unpriced else self.micro_usd / 1_000_000


def _known_amounts(spent: Spent) -> dict[str, int | None]:
    """What a call has used of each of `SPENT_AMOUNTS`; None is unknown."""
    return {"micro_usd": spent.micro_usd, "tokens": spent.usage.total if spent.usage else None}


@value
class ChildRunsStatus:
    """Runs started by a run's agent, and by their agents: the unfinished ones, and the cost of all."""

    active: tuple[str, ...] = ()
    spend: Spend = Spend()


def format_usd(micro_usd: int) -> str:
    """Money for display: cents, and more digits only below one cent."""
    return f"${micro_usd / 1_000_000:.2f}" if micro_usd >= 10_000 or not micro_usd else f"${micro_usd / 1_000_000:.4f}"


# The daily spend covers all runs of a user in all projects. A call counts in the UTC day in which it ended.


SECONDS_PER_DAY = 86400


@value
class SharedSpend:
    """What the runs sharing a budget have spent so far, running ones included, and their limit."""

    micro_usd: int
    limit: int


@value
class DaySpend:
    """The spend of one day. A non-empty `unknown_reason` says why the sum is unreliable: then nothing more may be
    spent. `shared` is the spend of the runs that share a budget with this one, on any day; None where none is shared.
    """

    micro_usd: int = 0
    unknown_reason: str = ""
    shared: SharedSpend | None = None


NOTHING_SPENT = DaySpend()


class DailySpend(Protocol):
    """Stores the spend of a user's runs, including calls still running."""

    def book(self, run: str, call: str, spent: Spent, epoch_s: float, live: str = "") -> None:
        """Record the cost of a call of a run; durable on return. The same call is never counted twice. Where the cost
        is unknown, the last live figure counts. `live` is the live call under which its cost was published so far.
        """

    def day_spend(self, epoch_s: float, without_call: str = "") -> DaySpend:
        """The spend in the UTC day of this moment, including running calls except `without_call`."""

    def update_live(self, run: str, call: str, spent: Spent, epoch_s: float) -> int | None:
        """Publish what a running call has cost so far to all runs of the user. Returns what all others have spent in
        this day; None where it cannot be determined right now. Never waits.
        """

    def close_call(self, run: str, call: str) -> None:
        """Remove the live entry of a call: nothing more will be recorded for it."""


class SharedBudget(Protocol):
    """A budget shared by several runs. Thread-safe."""

    def update_live(self, run: str, spent: Spent) -> None:
        """Publish what a running call of this run has cost so far."""

    def record_call(self, run: str, spent: Spent) -> None:
        """Record the final cost of a call."""

    def total(self) -> SharedSpend | None:
        """What all of the runs have spent so far; None where there is no limit."""


class NoSharedBudget:
    """The run shares no budget."""

    def update_live(self, run: str, spent: Spent) -> None:
        """Do nothing."""

    def record_call(self, run: str, spent: Spent) -> None:
        """Do nothing."""

    def total(self) -> SharedSpend | None:
        return None


def utc_day(epoch_s: float) -> int:
    """The number of the UTC day since 1970, independent of time zones and daylight saving."""
    return int(epoch_s // SECONDS_PER_DAY)


def format_utc_day(day: int) -> str:
    """A day number since 1970 as `2026-02-20`."""
    return "{:04}-{:02}-{:02}".format(*time.gmtime(day * SECONDS_PER_DAY)[:3])


# Abort reasons: these words are in the last line of output, in the record and in --json.
MAX_ITERATIONS = "MAX_ITERATIONS"
COST_LIMIT = "COST_LIMIT"
DAILY_COST_LIMIT = "DAILY_COST_LIMIT"
TOKEN_LIMIT = "TOKEN_LIMIT"  # noqa: S105
TIME_LIMIT = "TIME_LIMIT"
STALL = "STALL"
SAME_ERROR = "SAME_ERROR_5X"
OSCILLATION = "OSCILLATION"
PROHIBITED_PATH = "PROHIBITED_PATH"
HISTORY_REWRITTEN = "HISTORY_REWRITTEN"
CHECKS_WEAKENED = "CHECKS_WEAKENED"
BLOCKED = "BLOCKED"
SERVICE_UNAVAILABLE = "SERVICE_UNAVAILABLE"
EMPTY_REPLIES = "EMPTY_REPLIES"
DISK_FULL = "DISK_FULL"
WORKSPACE_GONE = "WORKSPACE_GONE"
CHILDREN_TIMEOUT = "CHILDREN_TIMEOUT"
WAITING = "WAITING"
INTERRUPTED = "INTERRUPTED"
CANCELLED = "CANCELLED"
STEP = "STEP"
CUSTOM_LIMIT = "LIMIT"  # one that a caller brought
NOT_FAILED, BY_SIGNAL = 4, 130  # exit codes


@value
class AbortReason:
    """Why a run ended without completing, and the exit code. With `NOT_FAILED` somebody goes on with the run.

    A run that ended for a reason that is not `resumable` cannot be taken up again. `way_on` says how a limit is raised.
    """

    sentence: str
    exit_code: int = 1
    resumable: bool = True
    tripwire: bool = False
    way_on: str = "raise that limit in the settings"


ABORT_REASONS = {
    MAX_ITERATIONS: AbortReason("All iterations are used.", way_on="--max-iterations N is the new total"),
    COST_LIMIT: AbortReason("The run spent its money.", way_on="--max-cost-usd is the new total"),
    DAILY_COST_LIMIT: AbortReason(
        "All runs of the UTC day spent its money.", way_on="raise limits.dailyCostUsd, or wait for the next UTC day"
    ),
    TOKEN_LIMIT: AbortReason("The run used its tokens.", way_on="--max-tokens is the new total"),
    TIME_LIMIT: AbortReason("The time is up.", way_on="--max-minutes is the new total"),
    STALL: AbortReason("Iterations in a row changed no file."),
    SAME_ERROR: AbortReason("Iterations in a row failed in the same way."),
    OSCILLATION: AbortReason("The tree or the failure went back and forth between two states."),
    PROHIBITED_PATH: AbortReason("A protected path was changed.", resumable=False, tripwire=True),
    HISTORY_REWRITTEN: AbortReason("The history that the run began on is gone.", resumable=False, tripwire=True),
    CHECKS_WEAKENED: AbortReason("What decides over the checks was changed.", resumable=False, tripwire=True),
    BLOCKED: AbortReason("Nothing is left that can be worked on, or a hook refused."),
    SERVICE_UNAVAILABLE: AbortReason("The agent's service did not come back."),
    EMPTY_REPLIES: AbortReason("The agent said nothing, several times in a row."),
    DISK_FULL: AbortReason("The disk is full."),
    WORKSPACE_GONE: AbortReason("The project's folder is gone."),
    CHILDREN_TIMEOUT: AbortReason("Runs that the agent began did not end in time."),
    WAITING: AbortReason("The agent waits for a person.", NOT_FAILED),
    INTERRUPTED: AbortReason("A signal ended the run.", BY_SIGNAL),
    CANCELLED: AbortReason("`ralph cancel` ended the run.", BY_SIGNAL, resumable=False),
    STEP: AbortReason("`--step` ends a run after one iteration.", NOT_FAILED),
    CUSTOM_LIMIT: AbortReason("A limit that a caller of the Python API brought was reached."),
}


def abort_reason(name: str) -> AbortReason:
    """What is known of a reason; the limit of a caller may have a name of its own."""
    return ABORT_REASONS.get(name, ABORT_REASONS[CUSTOM_LIMIT])


CONTINUED_REASONS = tuple(name for name, one in ABORT_REASONS.items() if one.exit_code == NOT_FAILED)
TRIPWIRE_REASONS = tuple(name for name, one in ABORT_REASONS.items() if one.tripwire)
FINAL_REASONS = tuple(name for name, one in ABORT_REASONS.items() if not one.resumable)


# What turns use up, by its field in `Budget` and `Spend`: the abort reason, and the facts in one sentence.
SPENT_AMOUNTS: dict[str, tuple[str, Callable[[int, int], str]]] = {
    "micro_usd": (COST_LIMIT, lambda used, limit: f"spent {format_usd(used)} of {format_usd(limit)}"),
    "tokens": (TOKEN_LIMIT, lambda used, limit: f"used {used} of {limit} tokens"),
}


# Kinds of warnings, and the percentage of a limit at which they are given.
COST, DAILY, ITERATIONS, UNKNOWN = "cost", "daily", "iterations", "unknown"
COST_WARNING_PERCENT, ITERATIONS_WARNING_PERCENT = 80, 90

# A line that is an error message, in the forms of Python, JavaScript and Java; pytest; Go; Rust; Jest; node's TAP.
_ERROR_PATTERNS = (
    r"(?:E +)?((?:[\w$]+\.)*[A-Z]\w*(?:Error|Exception|Failure)(?: \[\w+\])?: .+)",
    r"E {2,}((?!\+|-|\?|at index|where |use -v|[\[\](){}])\S.*)",
    r"\S+_test\.go:\d+: (.+)",
    r"(panic: .+)",
    r"(assertion [`'(]?\w.+|called `\w+::\w+\(\)` on .+)",
    r"(expect\(.+)",
    r"error: (\|-)$",
    r"error: '((?!\d+ subtests? failed).+)'",
)
MAX_MESSAGE_CHARS = 1000

MIN_OSCILLATIONS = 2  # a single one may be a failed attempt that was reverted
MAX_SHOWN_PATHS = 10  # in a message
MAX_ERROR_CHARS = 500


@value
class Breach:
    """A limit that was reached, and the facts in one sentence. `error` is the repeated failure."""

    reason: str
    message: str
    paths: tuple[str, ...] = ()
    error: str = ""


@value
class Warn:
    """Report that a limit is near."""

    what: str
    message: str


@value
class Limits:
    """All limits of a run; None is off. A field that has the name of a setting in `limits` holds its value.

    `restarts`: iterations are called restarts in messages. Where tests are protected, a pass with fewer tests than
    before the run does not count.
    """

    budget: Budget = Budget()
    stall_iterations: int | None = None
    same_error_iterations: int | None = None
    restarts: bool = False
    protect_tests: bool = False

    def find_exhausted(self, history: History, spend: Spend, day: DaySpend, elapsed_s: float) -> Breach | None:
        """The exhausted budget that forbids another iteration."""
        budget, count = self.budget, history.turn_count
        if budget.iterations is not None and count >= budget.iterations:
            used = f"{count} of {budget.iterations} iterations are used"
            return Breach(MAX_ITERATIONS, f"max restarts exceeded: {used}" if self.restarts else used)
        return self.find_time_exhausted(elapsed_s) or self.find_spend_exhausted(spend, day)

    def find_time_exhausted(self, elapsed_s: float) -> Breach | None:
        """The time limit, if reached."""
        limit_s = self.budget.seconds
        if limit_s is None or elapsed_s < limit_s:
            return None
        return Breach(TIME_LIMIT, _time_used(elapsed_s, limit_s))

    def find_spend_exhausted(self, spend: Spend, day: DaySpend) -> Breach | None:
        """The money or token limit, if nothing is left."""
        return self._find_spent(spend, day, margin=0)

    def find_overspent(self, spend: Spend, day: DaySpend = NOTHING_SPENT) -> Breach | None:
        """The money or token limit, if exceeded; spending exactly the limit is allowed."""
        return self._find_spent(spend, day, margin=1)

    def _find_spent(self, spend: Spend, day: DaySpend, margin: int) -> Breach | None:
        """The money or token limit that is reached or exceeded by at least `margin`."""
        budget = self.budget
        for name, (reason, describe) in SPENT_AMOUNTS.items():
            used, limit = getattr(spend, name), getattr(budget, name)
            if limit is not None and used >= limit + margin:
                return Breach(reason, describe(used, limit))
        if (shared := day.shared) is not None and shared.micro_usd >= shared.limit + margin:
            used = f"{format_usd(shared.micro_usd)} of {format_usd(shared.limit)}"
            return Breach(COST_LIMIT, f"the runs that share a budget have spent {used} together")
        daily = budget.daily_micro_usd
        if daily is not None and day.unknown_reason:
            return Breach(
                DAILY_COST_LIMIT, f"what was spent today is not known, so it counts as all: {day.unknown_reason}"
            )
        if daily is not None and day.micro_usd >= daily + margin:
            today = f"{format_usd(day.micro_usd)} of {format_usd(daily)}"
            return Breach(DAILY_COST_LIMIT, f"all runs of this UTC day together spent {today}")
        return None

    def warnings(self, iteration: int, spend: Spend, day: DaySpend) -> tuple[Warn, ...]:
        """All limits that are nearly reached."""
        budget = self.budget
        found = [
            Warn(what, f"[Ralph] {label} at {COST_WARNING_PERCENT}% of limit: ${used / 1e6:.2f} / ${limit / 1e6:.12g}")
            for what, label, used, limit in (
                (COST, "Cost", spend.micro_usd, budget.micro_usd),
                (DAILY, "Daily cost", day.micro_usd, budget.daily_micro_usd),
            )
            if limit is not None and 100 * used >= COST_WARNING_PERCENT * limit
        ]
        limit = budget.iterations
        if limit is not None and limit > 1 and 100 * iteration >= ITERATIONS_WARNING_PERCENT * limit:
            message = f"[Ralph] Iteration at {ITERATIONS_WARNING_PERCENT}% of limit: {iteration} / {limit}"
            found.append(Warn(ITERATIONS, message))
        return tuple(found)

    def unknown_cost_warning(self, iteration: int) -> Warn:
        """A warning that a cost limit cannot be enforced exactly, because a cost is unknown."""
        message = f"[Ralph] What iteration {iteration} cost is not known: the limit on cost can no longer be held"
        return Warn(UNKNOWN, message)

    def find_stage_exhausted(self, history: History, job: Job) -> Breach | None:
        """The stage's limit on attempts, if reached."""
        limit = job.stage.max_iterations
        if limit is None or history.attempts(job) < limit:
            return None
        times = "once, and may be tried no more" if limit == 1 else f"{limit} times"
        return Breach(MAX_ITERATIONS, f"stage {job.stage.name} of {job.task.id} was tried {times}")

    def find_lack_of_progress(self, history: History) -> Breach | None:
        """A repetition in these iterations that makes further ones pointless."""
        if self.stall_iterations is not None and history.unchanged_turns() >= self.stall_iterations:
            return Breach(STALL, f"{_in_a_row(self.stall_iterations)} changed no file")
        if self.same_error_iterations is not None and history.same_error_count() >= self.same_error_iterations:
            return _same_error(history.latest, self.same_error_iterations)
        for what, fingerprints, limit in (
            ("the tree", history.trees, self.stall_iterations),
            ("the failure", history.failure_fingerprints, self.same_error_iterations),
        ):
            times = 2 * max(limit or 0, MIN_OSCILLATIONS)
            if limit is not None and count_alternating(fingerprints()) >= times:
                return Breach(OSCILLATION, f"{what} went back and forth between two states {times} times")
        return None


def find_tripwire_breach(latest: Iteration) -> Breach | None:
    """A forbidden change by the latest iteration; takes precedence over success."""
    touched = [touch for touch in latest.tripwires.touched if touch.stops]
    paths = tuple(dict.fromkeys(touch.path for touch in touched))
    if latest.change.rewritten:
        backup = latest.change.kept or "no copy of it was kept; look for it where you pushed to"
        what = "the commit that the run began on is not in the history of HEAD"
        return Breach(HISTORY_REWRITTEN, f"{what}; {backup}", paths)
    if not touched:
        return _weakened_breach(latest)
    names = [touch.path + (f" ({touch.held_by})" if touch.held_by else "") for touch in touched]
    more = f" and {len(names) - MAX_SHOWN_PATHS} more" if len(names) > MAX_SHOWN_PATHS else ""
    failures = [f"{touch.path} could not be put back: {touch.trouble}" for touch in touched if touch.trouble]
    patch = f"; the attempt is kept in {latest.tripwires.patch}" if latest.tripwires.patch else ""
    what = f"protected paths were changed: {', '.join(names[:MAX_SHOWN_PATHS])}{more}"
    restored = "; ".join(failures) or "their files were put back"
    commands = dict.fromkeys(touch.way_out for touch in touched if touch.way_out)
    remedy = f"; still in your repository, take it out: {'; '.join(commands)}" if commands else ""
    return Breach(PROHIBITED_PATH, f"{what}; {restored}{remedy}{patch}", paths)


def _weakened_breach(latest: Iteration) -> Breach | None:
    """Files that determine check results were changed, so that the checks' findings no longer count."""
    altered = [file for file in latest.altered_inputs if file.stops and not file.allowed]
    if not altered:
        return None
    more = f" and {len(altered) - MAX_SHOWN_PATHS} more" if len(altered) > MAX_SHOWN_PATHS else ""
    shown = "; ".join(file.message for file in altered[:MAX_SHOWN_PATHS])
    what = f"what decides over the checks was changed: {shown}{more}"
    paths = tuple(dict.fromkeys(file.path for file in altered))
    run = latest.snapshot.ref.split("/")[2] if latest.snapshot.ref else ""
    rewind = f"It is still in your files; ralph rewind {run} 0 takes the run back. " if run else ""
    return Breach(CHECKS_WEAKENED, f"{what}. {rewind}If the task wants that: --may-change PATH", paths)


def _time_used(elapsed_s: float, limit_s: float) -> str:
    if limit_s < 60:
        return f"{elapsed_s:.1f} of {limit_s:g} seconds are used"
    return f"{elapsed_s / 60:.1f} of {limit_s / 60:g} minutes are used"


def _in_a_row(times: int) -> str:
    return "1 iteration" if times == 1 else f"{times} iterations in a row"


def _same_error(latest: Iteration, times: int) -> Breach:
    """The repeated failure, by the names of the failing tests where they are known."""
    failed = latest.report.failed
    if failed and all(finding.tests and finding.tests.failing for finding in failed):
        how = "the same tests failed"
    elif failed:
        how = "by the text of the output"
    elif latest.plan_violations and not latest.turn.errored:
        how = "the same rules were broken"
    else:
        how = "the agent itself failed"
    return Breach(SAME_ERROR, f"{_in_a_row(times)} failed in the same way ({how})", error=describe_last_error(latest))


def describe_last_error(latest: Iteration) -> str:
    """The failure of an iteration in a few words: the last error message of a check, and the failing tests. Without a
    message it is the last line of the check's output; without a failed check, how the agent ended.
    """
    failed = latest.report.failed
    if failed and failed[0].hidden:
        return "a held-out check failed"  # prompts show this too
    if failed:
        return _describe_failure(failed[0])[:MAX_ERROR_CHARS]
    fault = classify_fault(latest.turn)
    violation = latest.plan_violations[0] if latest.plan_violations else ""
    return (fault.message if fault else violation)[:MAX_ERROR_CHARS]


def _describe_failure(finding: Finding) -> str:
    lines = [line.strip() for line in strip_escapes(finding.output).splitlines() if line.strip()]
    messages = (_error_message(lines[at], lines[at + 1 : at + 3]) for at in reversed(range(len(lines))))
    message = next(filter(None, messages), "")
    if finding.tests is not None and finding.tests.failing:
        tests = ", ".join(finding.tests.failing)
        return f"{message} ({tests})" if message else tests
    last_line = lines[-1] if lines and (finding.why == "exit" or finding.judged) else ""
    return message or last_line or f"{finding.command or finding.check} failed with {finding.why}"


def _error_message(line: str, after: list[str]) -> str:
    """The error message in a line as test runners and languages write it, with the values that some put below."""
    found = next((match for pattern in _ERROR_PATTERNS if (match := re.match(pattern, line[:MAX_MESSAGE_CHARS]))), None)
    if found is None or not (found[1].endswith(":") or found[1].startswith(("assertion ", "expect(", "|-"))):
        return found[1] if found else ""
    below = (value for value in after if not value.startswith(("at ", "note:")))
    return " ".join((found[1], *below)).removeprefix("|- ")
