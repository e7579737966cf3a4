"""The published JSON: one table of nouns and their fields, from which objects, schemas and documentation are made.

Each field is declared once: its name, its JSON type, a sentence, and how it is read from the model. A name has one type
wherever it occurs. An object has its own key under `id`, `number` or `name`; others refer to it by its noun.
"""

from __future__ import annotations

import time

from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.display import phrases
from ralphproof.engine import agent as events
from ralphproof.engine.limits import Spend
from ralphproof.engine.outcome import (
    JSON_VERSION,
    finding_json,
    money_json,
    outcome_json,
    published,
    story_json,
    verdict_word,
)
from ralphproof.engine.plan import turn_file_name
from ralphproof.engine.workspace import TripwireReport
from ralphproof.views.timeline import check_state, describe_note, describe_verdict, verdict_reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from ralphproof.base.value import Json
    from ralphproof.engine.check import SuiteResult
    from ralphproof.views.run_status import RunDetail
    from ralphproof.views.timeline import CheckView, IterationView, TurnView

    Schema = dict[str, Any]


MAX_FILES, MAX_TESTS, MAX_LINES, MAX_CHARS = 200, 50, 50, 1000  # that are told of one iteration
MAX_EXCERPT_CHARS = 4000  # of what an agent said last, or a check printed; the logs have all of it


# JSON types.


def nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def array(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def choice(*words: str) -> Schema:
    return {"type": "string", "enum": [*words]}


def ref(noun: str) -> Schema:
    return {"$ref": f"#/$defs/{noun}"}


def mapping(schema: Schema) -> Schema:
    return {"type": "object", "additionalProperties": schema}


TEXT, FLAG, WHOLE, NUMBER = ({"type": name} for name in ("string", "boolean", "integer", "number"))
TIME: Schema = {"type": "string", "format": "date-time"}
ANY_OBJECT: Schema = {"type": "object"}
TEXTS = array(TEXT)
STRENGTHS = choice("strong", "partial", "none")


def time_json(epoch_s: float) -> str:
    """A time: ISO 8601 in UTC, with milliseconds."""
    whole, milliseconds = divmod(round(epoch_s * 1000), 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{milliseconds:03d}Z"


def optional_time(epoch_s: float | None) -> str | None:
    return None if epoch_s is None else time_json(epoch_s)


def epoch_seconds(published_time: str) -> float:
    """The time behind its published form; raises ValueError where it is none."""
    from datetime import datetime

    return datetime.fromisoformat(published_time).timestamp()


# Fields and nouns.


class Absent:
    """What a field that this output leaves out is read as."""


ABSENT: Any = Absent()


@value
class Field:
    """A field of a noun. An optional one is in some outputs only: its sentence says in which."""

    name: str
    schema: Schema
    about: str
    read: Callable[[Any], Json]
    optional: bool = False


@value
class Noun:
    """A published object. `types` are the values of its `type`, where these are not its name."""

    name: str
    about: str
    fields: tuple[Field, ...]
    types: tuple[str, ...] = ()


def _field(name: str, schema: Schema, about: str, read: Callable[[Any], Json] | str = "") -> Field:
    """`read` is a function, or an attribute; by default a key of an object that is already JSON."""
    if callable(read):
        return Field(name, schema, about, read)
    if read:
        return Field(name, schema, about, lambda thing: getattr(thing, read))
    return Field(name, schema, about, lambda thing: thing.get(name, ABSENT))


def _optional(name: str, schema: Schema, about: str, read: Callable[[Any], Json] | str = "") -> Field:
    plain = _field(name, schema, about, read)
    return Field(name, schema, about, plain.read, optional=True)


def _proof_only(name: str, schema: Schema, about: str) -> Field:
    """A field that only a proof has, whose builder writes it."""
    return Field(name, schema, about, lambda _: ABSENT, optional=True)


def _detail(name: str, schema: Schema, about: str, read: Callable[[RunDetail], Json]) -> Field:
    """A field of a run that lists leave out."""
    return Field(
        name, schema, about, lambda run: ABSENT if run.detail is None else read(run.detail), optional=True
    )  # fmt: skip


def to_json(noun: str, thing: Any) -> dict[str, Json]:
    """A model as its published object."""
    fields = ((field.name, field.read(thing)) for field in NOUNS[noun].fields)
    return published(noun, {name: item for name, item in fields if item is not ABSENT})


def list_json(noun: str, things: Any) -> list[Json]:
    """Several of them."""
    return [to_json(noun, thing) for thing in things]


# How parts of the models are read.


def _optional_money(spend: Spend | None) -> Json:
    return None if spend is None else money_json(spend)


def _turn_cost(turn: TurnView) -> Json:
    return None if turn.reply is None else money_json(Spend.of(turn.reply.spent))


def _turn_seconds(turn: TurnView) -> float | None:
    return None if turn.ended_s is None else round(max(0.0, turn.ended_s - turn.began_s), 3)


def _exit(turn: TurnView, name: str) -> Json:
    return getattr(turn.reply.exit, name) if turn.reply else None


def _tokens(turn: TurnView) -> int | None:
    usage = turn.reply.spent.usage if turn.reply else None
    return usage.total if usage else None


def _finding(check: CheckView, name: str, missing: Json) -> Json:
    return getattr(check.finding, name) if check.finding else missing


def log_name(path: str) -> str:
    """The name of a command's log; empty where it has none."""
    return path.rpartition("/")[2].removesuffix(".log").removesuffix(".ndjson")


def tests_json(tests: SuiteResult | None) -> Json:
    """The single tests of a check."""
    return None if tests is None else to_json("tests", tests)


def _findings(iteration: IterationView) -> list[Json]:
    """What was found wrong with the work of an iteration, checks aside."""
    saved = iteration.saved
    found: list[Json] = []
    if saved is None:
        return found
    for touched in saved.sprung.touched:
        message = phrases.describe_touched_paths(TripwireReport((touched,)))[0][:MAX_CHARS]
        found.append(finding_json("protectedPath", message, touched.path, touched.stops))
    found += [
        finding_json("checkInput", one.message[:MAX_CHARS], one.path, one.stops, one.allowed) for one in saved.altered
    ]
    found += [finding_json("planRule", rule[:MAX_CHARS]) for rule in saved.illegal]
    return found[:MAX_LINES]


def _notices(iteration: IterationView) -> Json:
    sprung = iteration.saved.sprung if iteration.saved else TripwireReport()
    told = dict.fromkeys((*sprung.remarks, *map(describe_note, iteration.notes)))  # a remark may be a notice too
    lines: list[Json] = [line[:MAX_CHARS] for line in told]
    return lines[:MAX_LINES]


def _agent_event(kind: Any, name: str, read: Callable[[Any], Json] | None = None) -> Callable[[Any], Json]:
    """A field of one kind of agent event."""
    get: Callable[[Any], Json] = read or (lambda event: getattr(event, name))
    return lambda numbered: get(numbered[1]) if isinstance(numbered[1], kind) else ABSENT


def _event_kind(event: events.Event) -> str:
    name = type(event).__name__
    return name[:1].lower() + name[1:]


_EVENT_KINDS = tuple(name[:1].lower() + name[1:] for name in (kind.__name__ for kind in events.Event.__args__))
_SAYS_TEXT = events.Said | events.Progress | events.Ended


# The table.


_MONEY = Noun("money", "An amount of money.", (
    _field("usd", nullable(NUMBER), "US dollars as far as known; null: unknown, which is never zero"),
    _field("atLeast", FLAG, "a part is unknown, so the true amount is this or more"),
    _field("notional", FLAG, "a subscription covers it or a part of it"),
))  # fmt: skip
_SANDBOX = Noun("sandbox", "The sandbox that agents ran in.", (
    _field("name", TEXT, "its kind"),
    _field("strength", STRENGTHS, "how much it holds"),
    _optional("weaknesses", TEXTS, "known weak points (proof)"),
    _optional("resourceLimits", TEXT, "limits on processes and memory (proof)"),
    _optional("allowHosts", TEXTS, "hosts that could be called (proof)"),
    _optional("allowLocalPorts", array(WHOLE), "ports of this machine that could be called (proof)"),
    _optional("readPaths", TEXTS, "paths outside the project that could be read (proof)"),
))  # fmt: skip
_LIMIT = Noun("limit", "How much of a limit is used.", (
    _field("name", choice("iterations", "cost", "dailyCost", "tokens", "time"), "what is limited"),
    _field("used", nullable(NUMBER), "what is used of it; null: unknown"),
    _field("max", nullable(NUMBER), "the limit; null: none"),
    _field("unit", choice("iterations", "usd", "tokens", "seconds"), "the unit of both"),
    _field("atLeast", FLAG, "a part is unknown, so the true amount is this or more"),
))  # fmt: skip
_FINDING = Noun("finding", "Something wrong with the work that no check reports.", (
    _field("kind", choice("protectedPath", "checkInput", "weakerCheck", "planRule", "review"), "what was found"),
    _field("message", TEXT, "the finding in a sentence"),
    _field("path", nullable(TEXT), "the file that it is about"),
    _field("stops", FLAG, "it ends the run"),
    _field("allowed", FLAG, "the user allowed it, so it is only reported"),
))  # fmt: skip
_TESTS = Noun("tests", "The single tests that a check ran, where its output tells.", (
    _field("runner", TEXT, "the test runner", "runner"),
    _field("passedCount", nullable(WHOLE), "tests that passed; null: unknown", "passed"),
    _field("failedCount", WHOLE, "tests that failed", "failed"),
    _field("skippedCount", nullable(WHOLE), "tests that were skipped; null: unknown", "skipped"),
    _field("expectedFailureCount", nullable(WHOLE), "tests that failed as expected; null: unknown", "xfailed"),
    _field("failing", TEXTS, "names of failed tests", lambda tests: list(tests.failing[:MAX_TESTS])),
))  # fmt: skip
_PASS_RULE = Noun("passRule", "When a command passes.", (
    _field("folder", TEXT, "where it runs, relative to the project"),
    _field("successCode", WHOLE, "the exit code with which it passes"),
    _field("contains", TEXT, "what its output must contain"),
    _field("lacks", TEXT, "what its output must not contain"),
    _field("timeoutSeconds", NUMBER, "when it is ended"),
    _field("clean", FLAG, "it runs in a fresh checkout of what would be committed"),
))  # fmt: skip
_BASELINE_RESULT = Noun("baselineResult", "What a check said before the first iteration.", (
    _field("passed", FLAG, "whether it passed"),
    _field("failing", TEXTS, "names of failed tests"),
))  # fmt: skip
_CHECK = Noun("check", "A check and its result.", (
    _field("name", TEXT, "its name", "name"),
    _field("command", nullable(TEXT), "its command; null or empty: none", lambda it: _finding(it, "command", "")),
    _field(
        "state", choice("running", "passed", "failed", "errored", "advisory", "stopped"),
        "its result; advisory: it failed, and only warns; errored: it could not be run", check_state,
    ),
    _field(
        "passed", nullable(FLAG), "whether it passed; null: it has no result",
        lambda it: _finding(it, "passed", None),
    ),
    _field("required", FLAG, "a failure keeps the work from being done", lambda it: _finding(it, "required", True)),
    _field("judged", FLAG, "a model gave the result", lambda it: _finding(it, "judged", False)),
    _field("hidden", FLAG, "agents are not told of it", lambda it: _finding(it, "hidden", False)),
    _field("exitCode", nullable(WHOLE), "exit code of its command", lambda it: _finding(it, "code", None)),
    _field("exitReason", nullable(TEXT), "how it ended: exit, timeout, …", lambda it: _finding(it, "why", None)),
    _optional("startedAt", TIME, "when it began (not in a proof)", lambda it: time_json(it.began_s)),
    _field(
        "durationSeconds", nullable(NUMBER), "how long it took",
        lambda it: round(it.finding.seconds, 3) if it.finding else None,
    ),
    _field("attempts", WHOLE, "how often it was run", lambda it: _finding(it, "runs", 1)),
    _field("failedAttempts", WHOLE, "failures before it passed: it is flaky", lambda it: _finding(it, "flaky", 0)),
    _field("log", TEXT, "the name of its log", lambda it: log_name(it.finding.log) if it.finding else ""),
    _field("output", TEXT, "the beginning and the end of its output", lambda it: it.excerpt),
    _field("outputDigest", TEXT, "SHA-256 of its output", lambda it: _finding(it, "digest", "")),
    _field("tests", nullable(ref("tests")), "its single tests", lambda it: tests_json(it.finding and it.finding.tests)),
    _proof_only("commandDigest", nullable(TEXT), "SHA-256 of its command (proof)"),
    _proof_only("rule", ref("passRule"), "when it passes (proof)"),
    _proof_only("before", nullable(ref("baselineResult")), "its result before the first iteration (proof)"),
    _proof_only("oldFailures", TEXTS, "tests that fail now and failed before (proof)"),
    _proof_only("newFailures", TEXTS, "tests that fail now and did not before (proof)"),
    _proof_only("withheld", FLAG, "parts of it are left out here (proof)"),
))  # fmt: skip
_TURN = Noun("turn", "One call of an agent.", (
    _field("number", WHOLE, "its number within the iteration", "turn"),
    _field("agent", TEXT, "the agent", "agent"),
    _field("model", TEXT, "the model, where the agent told", lambda it: (it.reply.model or "") if it.reply else ""),
    _field("startedAt", TIME, "when it began", lambda it: time_json(it.began_s)),
    _field("endedAt", nullable(TIME), "when it ended; null: it goes on", lambda it: optional_time(it.ended_s)),
    _field("durationSeconds", nullable(NUMBER), "how long it took", _turn_seconds),
    _field("exitReason", nullable(TEXT), "how it ended: exit, timeout, …", lambda it: _exit(it, "why")),
    _field("exitCode", nullable(WHOLE), "exit code of the agent", lambda it: _exit(it, "code")),
    _field("signal", nullable(WHOLE), "the signal that ended it", lambda it: _exit(it, "signal")),
    _field(
        "error", nullable(TEXT), "the error that the agent reported",
        lambda it: it.reply.error if it.reply else None,
    ),
    _field("toolCalls", WHOLE, "how many tools it called", lambda it: it.reply.tools if it.reply else 0),
    _field("tokens", nullable(WHOLE), "tokens that it used; null: unknown", _tokens),
    _field("cost", nullable(ref("money")), "its cost; null: it goes on", _turn_cost),
    _field("text", TEXT, "its final message, shortened", lambda it: it.reply.text if it.reply else ""),
    _field("denied", TEXTS, "tools that it was not permitted", lambda it: [*it.reply.denied] if it.reply else []),
    _field(
        "blockedHosts", TEXTS, "hosts that the sandbox kept it from",
        lambda it: [*it.reply.exit.blocked[:MAX_LINES]] if it.reply else [],
    ),
    _field("retryReason", nullable(TEXT), "why it was repeated", lambda it: it.again or None),
    _field("log", TEXT, "the name of its log", lambda it: turn_file_name(f"agent_{it.iteration:03d}", it.turn)),
))  # fmt: skip
_VERDICT = Noun("verdict", "The verdict on an iteration.", (
    _field("result", choice("passed", "retry", "sentBack", "waiting", "stopped"), "the verdict", verdict_word),
    _field("label", TEXT, "the same for people", describe_verdict),
    _field("reason", TEXT, "why", lambda verdict: verdict_reason(verdict)[:MAX_CHARS]),
))  # fmt: skip
_SCM = Noun("scm", "The commit of passed work to the user's branch.", (
    _field("commit", nullable(TEXT), "the commit; null: none was made", lambda it: it.committed.commit),
    _field("message", TEXT, "its message", lambda it: it.message[:MAX_CHARS]),
    _field("error", nullable(TEXT), "why there is none", lambda it: it.committed.error or None),
))  # fmt: skip
_ITERATION = Noun("iteration", "One iteration of a run, finished or not.", (
    _field("run", TEXT, "its run", "run"),
    _field("number", WHOLE, "its number, from 1; 0: what was checked before the first", "number"),
    _field("stage", TEXT, "its stage", lambda it: it.job.stage.name if it.job else ""),
    _field(
        "task", nullable(TEXT), "the task or story that it worked on",
        lambda it: it.job.task.id if it.job else None,
    ),
    _field("title", TEXT, "the title of that", lambda it: it.job.task.title if it.job else ""),
    _field("startedAt", TIME, "when it began", lambda it: time_json(it.began_s)),
    _field("endedAt", nullable(TIME), "when it was judged; null: it goes on", lambda it: optional_time(it.ended_s)),
    _field(
        "durationSeconds", nullable(NUMBER), "how long it took, pauses aside; null: it goes on, or unknown",
        lambda it: None if it.seconds is None else round(it.seconds, 3),
    ),
    _field("timedFrom", TIME, "while it goes on, it has lasted since then", lambda it: time_json(it.counts_s)),
    _field("turns", array(ref("turn")), "its turns", lambda it: list_json("turn", it.turns)),
    _field("cost", ref("money"), "the cost of its turns, judges and commit message", lambda it: money_json(it.spend)),
    _field("files", TEXTS, "files that the agent changed, the first ones", lambda it: [*it.paths[:MAX_FILES]]),
    _field("fileCount", WHOLE, "how many they are", lambda it: len(it.paths)),
    _field(
        "filesKnown", FLAG, "whether it is known what changed",
        lambda it: it.saved.change.known if it.saved else False,
    ),
    _field("claim", nullable(TEXT), "the agent's claim", lambda it: it.claim),
    _field(
        "ignoredClaims", TEXTS, "claims in its message that do not count, and why",
        lambda it: [*it.saved.heard.uncounted[:MAX_LINES]] if it.saved else [],
    ),
    _field(
        "snapshot", nullable(TEXT), "the ref with its saved work",
        lambda it: it.saved.snapshot.ref if it.saved else None,
    ),
    _field("checks", array(ref("check")), "its checks, of the last round", lambda it: list_json("check", it.checks)),
    _field("failingCount", nullable(WHOLE), "failing tests, else checks; null: nothing was checked", "failing_count"),
    _field("findings", array(ref("finding")), "what else was wrong with the work", _findings),
    _field(
        "verdict", nullable(ref("verdict")), "the verdict; null: not judged",
        lambda it: to_json("verdict", it.verdict) if it.verdict else None,
    ),
    _field("notices", TEXTS, "other things to know", _notices),
    _field(
        "revertedPatch", nullable(TEXT), "the patch with what the harness reverted",
        lambda it: (it.saved.sprung.patch or None) if it.saved else None,
    ),
    _field(
        "scm", nullable(ref("scm")), "the commit of its work",
        lambda it: to_json("scm", it.scm) if it.scm else None,
    ),
))  # fmt: skip
_HOOK = Noun("hook", "A command of the user's around a run (setting `on`).", (
    _field("name", TEXT, "beforeRun, beforeIteration, afterIteration or afterRun", "hook"),
    _field("iteration", WHOLE, "the iteration", "iteration"),
    _field("command", TEXT, "the command", lambda it: it.result.command if it.result else it.command),
    _field(
        "passed", nullable(FLAG), "whether it succeeded; null: it goes on",
        lambda it: it.result and it.result.passed,
    ),
    _field("exitCode", nullable(WHOLE), "its exit code", lambda it: it.result and it.result.code),
    _field("exitReason", nullable(TEXT), "how it ended", lambda it: it.result and it.result.why),
    _field(
        "durationSeconds", nullable(NUMBER), "how long it took",
        lambda it: it.result and round(it.result.seconds, 3),
    ),
    _field("log", TEXT, "its log", lambda it: it.result.log if it.result else ""),
    _field("output", TEXT, "the end of its output, where it failed", lambda it: it.result.output if it.result else ""),
    _field("files", TEXTS, "files that it changed", lambda it: [*it.paths]),
))  # fmt: skip
_CHILD = Noun("child", "A run that an agent of another run started, directly or not.", (
    _field("run", TEXT, "its id", lambda it: it[0]),
    _field("state", TEXT, "its state", lambda it: it[1]),
))  # fmt: skip
_WAIT = Noun("wait", "A wait for an agent's service.", (
    _field("until", TIME, "when the service is asked again", lambda it: time_json(it[0])),
    _field("reason", TEXT, "what the service said", lambda it: it[1]),
))  # fmt: skip
_CHECK_COUNTS = Noun("checkCounts", "Checks of the last iteration that ran any.", (
    _field("passedCount", WHOLE, "checks that passed", lambda it: it[0]),
    _field("failedCount", WHOLE, "checks that failed", lambda it: it[1]),
))  # fmt: skip
_RUN = Noun("run", "A run. Lists leave out the details.", (
    _field("id", TEXT, "its id", lambda run: run.row.id),
    _field(
        "state", choice("running", "paused", "stopped", "orphaned", "crashed", "ended"),
        "what it is doing; orphaned: its harness died, and what it started goes on", "state",
    ),
    _field(
        "status", nullable(choice("COMPLETED", "ABORTED", "ERROR")), "how it ended",
        lambda run: run.outcome.status if run.outcome else None,
    ),
    _field(
        "reason", TEXT, "why it was aborted: MAX_ITERATIONS, …",
        lambda run: run.outcome.reason if run.outcome else "",
    ),
    _field("proof", nullable(TEXT), "how much was shown, where it is completed: verified, …", "proof"),
    _field(
        "concernCount", WHOLE, "concerns about a completed run",
        lambda run: len(getattr(run.outcome, "concerns", ())),
    ),
    _field("title", TEXT, "what it works on", "title"),
    _field("directory", TEXT, "the folder that it works in", lambda run: run.row.directory),
    _field("parent", nullable(TEXT), "the run whose agent started it", lambda run: run.row.parent or None),
    _field("task", nullable(TEXT), "the task that it works on", lambda run: str(run.facts.get("work") or "") or None),
    _field("agent", TEXT, "the agent", lambda run: run.fact("agent")),
    _field("model", TEXT, "the model, where one was asked for", lambda run: run.fact("model")),
    _field("preset", TEXT, "the preset", lambda run: run.fact("preset")),
    _field("sandbox", nullable(ref("sandbox")), "its sandbox; null: unknown", lambda run: run.sandbox),
    _field("startedAt", TIME, "when it began", lambda run: time_json(run.row.began_at)),
    _field("updatedAt", TIME, "when its last record was written", lambda run: time_json(run.updated_s)),
    _field("pid", nullable(WHOLE), "its process, while it is running", "pid"),
    _field("iterations", WHOLE, "iterations that were begun", "iterations"),
    _field("maximumIterations", nullable(WHOLE), "its limit of them", lambda run: run.facts.get("maximumIterations")),
    _field(
        "cost", ref("money"), "its cost so far, without runs that its agents started",
        lambda run: money_json(run.spend),
    ),
    _field(
        "costWithChildren", nullable(ref("money")), "its cost with those; null: they spent nothing",
        lambda run: _optional_money(run.total_spend),
    ),
    _field("maxCostUsd", nullable(NUMBER), "its limit of both", lambda run: run.facts.get("maxCostUsd")),
    _field("tokens", nullable(WHOLE), "tokens that it used; null: unknown", lambda run: run.spend.tokens or None),
    _field(
        "checkCounts", nullable(ref("checkCounts")), "its last checks; null: none ran",
        lambda run: to_json("checkCounts", run.check_counts) if run.check_counts else None,
    ),
    _field("activity", TEXT, "what it is doing in a few words; empty: nothing", "activity"),
    _field(
        "requested", nullable(TEXT), "what it was asked to do: pause, resume or cancel",
        lambda run: run.requested or None,
    ),
    _field("childCount", WHOLE, "runs that its agents started themselves", "child_count"),
    _optional(
        "runs", array(ref("run")), "the runs that its agents started themselves (--tree)",
        lambda run: ABSENT if run.runs is None else list_json("run", run.runs),
    ),
    _detail("headline", TEXT, "its state in a sentence, with the next command", lambda of: of.headline),
    _detail(
        "outcome", nullable(ref("outcome")), "how it ended",
        lambda of: outcome_json(of.outcome, of.run, of.metrics) if of.outcome else None,
    ),
    _detail(
        "outcomeLines", TEXTS, "the same for people",
        lambda of: [*phrases.describe_outcome(of.outcome)] if of.outcome else [],
    ),
    _detail("limits", array(ref("limit")), "how much of each limit is used", lambda of: list_json("limit", of.limits)),
    _detail(
        "wait", nullable(ref("wait")), "the service that it waits for",
        lambda of: to_json("wait", of.wait) if of.wait else None,
    ),
    _detail("unreadMessages", WHOLE, "messages of yours that no prompt had yet", lambda of: of.unread),
    _detail("interruption", nullable(TEXT), "where a dead harness left it", lambda of: of.interruption or None),
    _detail("orphanedProcesses", array(WHOLE), "live processes without a harness and a keeper", lambda of: [*of.alive]),
    _detail(
        "children", array(ref("child")), "runs that its agents started, at any depth",
        lambda of: list_json("child", of.children),
    ),
    _detail("sessions", WHOLE, "processes that drove it, one after the other", lambda of: of.history.state.run.session),
    _detail("stages", TEXTS, "its stages, where there are several", lambda of: of.stages),
    _detail(
        "stories", array(ref("story")), "its stories with their reviews",
        lambda of: list(map(story_json, of.stories)),
    ),
    _detail("hasStories", FLAG, "it works on stories", lambda of: "stories" in of.history.facts),
    _detail(
        "hooks", array(ref("hook")), "the user's own commands around it",
        lambda of: list_json("hook", of.history.hooks),
    ),
    _detail(
        "baseline", array(ref("check")), "its checks before the first iteration",
        lambda of: list_json("check", of.baseline),
    ),
    _detail(
        "timeline", array(ref("iteration")), "its iterations; in a stream, those that changed",
        lambda of: list_json("iteration", of.timeline),
    ),
    _detail(
        "failingCounts", array(nullable(WHOLE)), "`failingCount` of each iteration, the baseline first",
        lambda of: of.failing_counts,
    ),
    _detail("facts", ANY_OBJECT, "what was recorded when it began; these names may change", lambda of: of.facts),
    _detail("seq", WHOLE, "the number of its last record", lambda of: of.history.seq),
    _detail("complete", FLAG, "the timeline has every iteration", lambda of: of.complete),
))  # fmt: skip
_RUNS = Noun("runs", "Runs of a project, the newest first.", (
    _field("project", TEXT, "the folder of the project"),
    _field("total", WHOLE, "how many runs it has"),
    _field("runs", array(ref("run")), "the runs"),
    _optional("seq", WHOLE, "the number of the newest record (API, watch)"),
    _optional("control", FLAG, "runs may be controlled (API)"),
    _optional("complete", FLAG, "it has every run (stream)"),
))  # fmt: skip
_CRITERION = Noun("criterion", "An acceptance criterion.", (
    _field("text", TEXT, "the criterion"),
    _field("met", nullable(FLAG), "the last judge's ruling; null: nobody judged it"),
    _field("run", nullable(TEXT), "the run of that"),
    _field("iteration", nullable(WHOLE), "the iteration of that"),
    _field("reason", nullable(TEXT), "the judge's reason"),
))  # fmt: skip
_STORY = Noun("story", "A story of a run.", (
    _field("id", TEXT, "its id"),
    _field("title", TEXT, "its title"),
    _field("status", TEXT, "open, needs_review, changes_requested, approved, or passes: done without a review"),
    _field("reviewCount", WHOLE, "all its reviews"),
    _field("cappedApproval", FLAG, "it was approved only because the review cap was reached"),
    _field("reviewsInRun", WHOLE, "reviews in this run"),
    _field("changesRequested", WHOLE, "how often this run requested changes"),
    _field("doneInRun", FLAG, "it was completed in this run"),
    _field("findings", array(ref("finding")), "what reviews found, the oldest first"),
    _optional("lane", TEXT, "the column of the board (API)"),
    _optional("criteria", array(ref("criterion")), "its acceptance criteria (API)"),
    _optional("iterations", WHOLE, "iterations that worked on it (API)"),
    _optional("cost", nullable(ref("money")), "their cost; null: none worked on it (API)"),
    _optional("timeline", array(ref("iteration")), "those iterations (API)"),
))  # fmt: skip
_DEPENDENCY = Noun("dependency", "A task that another one depends on.", (
    _field("task", TEXT, "its id", lambda it: it[0]),
    _field("status", nullable(TEXT), "its status; null: there is none", lambda it: it[1]),
))  # fmt: skip
_TASK = Noun("task", "A task. Lists leave out the details.", (
    _field("id", TEXT, "its id"),
    _field("specId", TEXT, "the spec that it belongs to"),
    _field("title", TEXT, "its title"),
    _field("status", TEXT, "todo, working, waiting, done, failed or cancelled"),
    _field("reason", TEXT, "why"),
    _field("stage", nullable(TEXT), "the stage that it is in"),
    _field("stageIterations", WHOLE, "iterations in that stage"),
    _field("stageMaximumIterations", nullable(WHOLE), "its limit of them"),
    _field("iterations", WHOLE, "iterations of all its runs"),
    _field("priority", WHOLE, "the lowest number comes first"),
    _field("dependencies", TEXTS, "tasks that must be done before"),
    _field("assignee", TEXT, "the agent or person"),
    _field("run", nullable(TEXT), "its last run"),
    _field("proof", nullable(TEXT), "how much was shown, where it is done: verified, …"),
    _field("cost", nullable(ref("money")), "the cost of all its runs; null: it had none"),
    _optional("lane", TEXT, "the column of the board (API)"),
    _optional("description", TEXT, "its description (detail)"),
    _optional("storedStatus", TEXT, "the status that the user set (detail)"),
    _optional("createdAt", TIME, "when it was created (detail)"),
    _optional("updatedAt", TIME, "when it was last edited (detail)"),
    _optional("metadata", nullable(ANY_OBJECT), "what the user attached to it (detail)"),
    _optional("completion", nullable(ANY_OBJECT), "its completion spec (detail)"),
    _optional("completionProblem", nullable(TEXT), "why that cannot be read (detail)"),
    _optional("completionText", nullable(TEXT), "its text, where it cannot be read (detail)"),
    _optional("dependsOn", array(ref("dependency")), "dependencies with their status (detail)"),
    _optional("criteria", array(ref("criterion")), "its acceptance criteria (detail)"),
    _optional("runs", array(ref("run")), "its runs, the oldest first (detail)"),
    _optional("timeline", array(ref("iteration")), "the iterations of these runs (detail)"),
    _optional("changed", TEXTS, "fields that were changed (task edit)"),
    _optional("warnings", TEXTS, "what is doubtful about it (task create, edit)"),
))  # fmt: skip
_TASKS = Noun("tasks", "Tasks of a project.", (_field("tasks", array(ref("task")), "the tasks"),))
_LANE = Noun("lane", "A column of a board.", (
    _field("name", TEXT, "its name"),
    _optional("tasks", array(ref("task")), "its tasks"),
    _optional("stories", array(ref("story")), "its stories"),
))  # fmt: skip
_BOARD = Noun("board", "Tasks of a project, or stories of a run, in columns.", (
    _field("run", nullable(TEXT), "the run with the stories; null: tasks"),
    _field("lanes", array(ref("lane")), "the columns"),
))  # fmt: skip
_OUTCOME = Noun("outcome", "How a run ended: what outcome.json holds.", (
    _field("run", TEXT, "the run"),
    _field("status", choice("COMPLETED", "ABORTED", "ERROR"), "how it ended"),
    _field("iterations", WHOLE, "iterations that were begun"),
    _field("costUSD", nullable(NUMBER), "its cost as far as known; null: unknown"),
    _field("cost", ref("money"), "the same, and whether a part is unknown"),
    _field("durationSeconds", NUMBER, "how long it took"),
    _field("exitCode", WHOLE, "the exit code of `ralph run`"),
    _optional("output", TEXT, "COMPLETED: the agent's last message (not in a proof)"),
    _optional("verificationPassed", FLAG, "COMPLETED: the checks passed"),
    _optional("proof", nullable(TEXT), "COMPLETED: how much was shown"),
    _optional("concerns", TEXTS, "COMPLETED: what to look at all the same"),
    _optional("reason", TEXT, "ABORTED: why"),
    _optional("details", ANY_OBJECT, "ABORTED: message, checksPassed, files and error (not in a proof)"),
    _optional("lastOutput", TEXT, "ABORTED: the agent's last message (not in a proof)"),
    _optional("error", nullable(TEXT), "ERROR: what went wrong"),
    _optional("sandbox", nullable(ref("sandbox")), "the sandbox at its end"),
    _optional("stories", array(ref("story")), "its stories, where it had any"),
))  # fmt: skip
_TODO = Noun("todo", "An entry of an agent's to-do list.", (
    _field("text", TEXT, "the entry", "text"),
    _field("state", TEXT, "pending, active or done", "state"),
))  # fmt: skip
_USAGE = Noun("usage", "Tokens of a turn.", (
    _field("inputTokens", WHOLE, "read, the cache aside", "input"),
    _field("outputTokens", WHOLE, "written", "output"),
    _field("cacheReadTokens", WHOLE, "read from the cache", "cache_read"),
    _field("cacheWriteTokens", WHOLE, "written to the cache", "cache_write"),
))  # fmt: skip
_AGENT_EVENT = Noun("agentEvent", "Something that an agent said or did.", (
    _field("number", WHOLE, "its number within the turn", lambda it: it[0]),
    _field("kind", choice(*_EVENT_KINDS), "what it is", lambda it: _event_kind(it[1])),
    _optional("text", nullable(TEXT), "said, progress, ended: the text", _agent_event(_SAYS_TEXT, "text")),
    _optional("session", nullable(TEXT), "started: the agent's session", _agent_event(events.Started, "session")),
    _optional("model", nullable(TEXT), "started: the model", _agent_event(events.Started, "model")),
    _optional("version", nullable(TEXT), "started: the agent's version", _agent_event(events.Started, "version")),
    _optional(
        "toolCall", TEXT, "toolStarted, toolEnded: which call",
        _agent_event(events.ToolStarted | events.ToolEnded, "id"),
    ),
    _optional(
        "tool", TEXT, "toolStarted, denied: the tool",
        _agent_event(events.ToolStarted | events.Denied, "", lambda event: getattr(event, "name", None) or event.tool),
    ),
    _optional("summary", TEXT, "toolStarted: its main argument", _agent_event(events.ToolStarted, "summary")),
    _optional("ok", FLAG, "toolEnded, ended: without an error", _agent_event(events.ToolEnded | events.Ended, "ok")),
    _optional("output", TEXT, "toolEnded: its output, shortened", _agent_event(events.ToolEnded, "output")),
    _optional("lineCount", WHOLE, "toolEnded: lines of it", _agent_event(events.ToolEnded, "lines")),
    _optional("charCount", WHOLE, "toolEnded: characters of it", _agent_event(events.ToolEnded, "chars")),
    _optional("reason", TEXT, "denied: why", _agent_event(events.Denied, "why")),
    _optional("question", TEXT, "asked: the question", _agent_event(events.Asked, "question")),
    _optional(
        "todos", array(ref("todo")), "todosChanged: the list",
        _agent_event(events.TodosChanged, "", lambda event: list_json("todo", event.items)),
    ),
    _optional(
        "cost", nullable(ref("money")), "spent: the cost of the turn so far",
        _agent_event(events.Spent, "", lambda event: money_json(Spend.of(event))),
    ),
    _optional(
        "usage", nullable(ref("usage")), "spent: its tokens; null: unknown",
        _agent_event(events.Spent, "", lambda event: to_json("usage", event.usage) if event.usage else None),
    ),
    _optional("message", TEXT, "limited: what the service said", _agent_event(events.Limited, "message")),
    _optional(
        "resetsAt", nullable(TIME), "limited: when it may be asked again",
        _agent_event(events.Limited, "", lambda event: optional_time(event.resets_at)),
    ),
    _optional("error", nullable(TEXT), "ended: the error", _agent_event(events.Ended, "error")),
    _optional("fault", TEXT, "ended: service, config, or empty: its own", _agent_event(events.Ended, "blame")),
    _optional(
        "contextWindow", nullable(WHOLE), "ended: the size of its context in tokens",
        _agent_event(events.Ended, "window"),
    ),
    _optional("raw", TEXT, "unparsed: what could not be read, shortened", _agent_event(events.Unparsed, "raw")),
    _optional("bytes", WHOLE, "unparsed: the size of it", _agent_event(events.Unparsed, "size")),
))  # fmt: skip
_AGENT_EVENTS = Noun("agentEvents", "The last events of a turn.", (
    _optional("run", TEXT, "the run (not in a stream)"),
    _field("log", TEXT, "the log of the turn"),
    _field("first", WHOLE, "the number of the first event"),
    _field("dropped", WHOLE, "events before that are left out"),
    _field("events", array(ref("agentEvent")), "the events"),
))  # fmt: skip
_LOG = Noun("log", "A log of a command, or a part of its text.", (
    _field("name", TEXT, "its name"),
    _field("kind", TEXT, "agent, guardrail, judge, setup, hook, scm or task"),
    _field("iteration", WHOLE, "the iteration"),
    _field("bytes", WHOLE, "the size of this part of the log"),
    _field("live", FLAG, "it still grows"),
    _optional("stderrBytes", nullable(WHOLE), "the size of standard error; null: none (list)"),
    _optional("promptBytes", nullable(WHOLE), "the size of the prompt; null: none (list)"),
    _optional("run", TEXT, "the run (API)"),
    _optional("part", choice("out", "stderr", "prompt"), "which part the text is of"),
    _optional("path", TEXT, "its file (ralph logs)"),
    _optional("offset", WHOLE, "where the text begins"),
    _optional("nextOffset", WHOLE, "where the text ends"),
    _optional("text", TEXT, "the text"),
    _optional("more", FLAG, "there is more behind it"),
    _optional("truncated", FLAG, "there is more before it (ralph logs)"),
))  # fmt: skip
_LOGS = Noun("logs", "The logs of a run, in the order in which their commands began.", (
    _field("run", TEXT, "the run"),
    _field("logs", array(ref("log")), "the logs"),
))  # fmt: skip
_FILE_CHANGE = Noun("fileChange", "A changed file.", (
    _field("path", TEXT, "its path", "path"),
    _field("addedLines", nullable(WHOLE), "lines that were added", "added"),
    _field("removedLines", nullable(WHOLE), "lines that were removed", "removed"),
    _field("binary", FLAG, "it has no lines", "binary"),
))  # fmt: skip
_DIFF = Noun("diff", "What a run or an iteration changed.", (
    _field("run", TEXT, "the run"),
    _field("iteration", nullable(WHOLE), "the iteration; null: all of the run"),
    _field("changes", array(ref("fileChange")), "the changed files"),
    _optional("patch", TEXT, "the patch (not with --stat)"),
    _optional("truncated", FLAG, "the patch is cut (API)"),
))  # fmt: skip
_NOTICE = Noun("notice", "Something to know about a run.", (
    _field("message", TEXT, "the notice"),
    _field("files", TEXTS, "the files that it is about"),
))  # fmt: skip
_ERROR = Noun("error", "Why a command or a request was refused.", (
    _field("error", nullable(TEXT), "the reason in a sentence"),
    _optional("exitCode", WHOLE, "the exit code of the command"),
))  # fmt: skip
_HEALTH = Noun("health", "That the server is there.", (_field("ok", FLAG, "always true"),))
_ANSWER = Noun(
    "answer", "The answer to a control request.", (_field("message", TEXT, "what came of it, in a sentence"),)
)

_SUBJECT = Noun("subject", "What a proof speaks of.", (
    _field("kind", choice("commit", "tree", "files"), "commit: in the user's history; tree: only saved; files: no git"),
    _field("commit", nullable(TEXT), "the commit"),
    _field("tree", nullable(TEXT), "its tree"),
    _field("ref", nullable(TEXT), "the ref that keeps it"),
    _field("head", nullable(TEXT), "HEAD when it was saved"),
    _field("base", nullable(TEXT), "HEAD when the run began"),
    _field("checked", nullable(TEXT), "the tree that the checks saw"),
    _field("differs", TEXTS, "paths in which the commit differs from that"),
    _field("leftOut", TEXTS, "files that were too large to be saved"),
))  # fmt: skip
_REVIEW = Noun("review", "A review of the work: by a judge, a stage, or of a story.", (
    _field("reviewer", TEXT, "who reviewed"),
    _field("result", TEXT, "passed, failed, sent back, approved, …"),
    _field("text", TEXT, "what was found"),
))  # fmt: skip
_RECORDS = Noun("records", "The records that a proof is read from, bound to each other by digests.", (
    _field("chain", array({"type": "array"}), "iteration, turn, step, kind, time and digest of each record"),
    _field("evidence", mapping(TEXT), "the text of those that are shown, by their index"),
    _field("withheldRecords", array(WHOLE), "indexes of those that may not be shown"),
    _field("count", WHOLE, "how many there are"),
    _field("lastDigest", TEXT, "the digest of the last"),
))  # fmt: skip
_PROOF = Noun("proof", "The evidence that the work of a run is done.", (
    _field("run", TEXT, "the run"),
    _field("project", TEXT, "the name of the project's folder"),
    _field("title", TEXT, "what was asked for"),
    _field("promptDigest", TEXT, "SHA-256 of the last prompt"),
    _field("startedAt", TIME, "when the run began"),
    _field("endedAt", nullable(TIME), "when it ended"),
    _field("outcome", nullable(ref("outcome")), "how it ended"),
    _field("subject", ref("subject"), "what it speaks of"),
    _field("checks", array(ref("check")), "the last checks, with all that is needed to run them again"),
    _field("verifyIn", TEXT, "where the final checks ran: workspace or clean"),
    _field("setup", TEXTS, "commands that prepare a clean checkout"),
    _field("protectTests", FLAG, "whether tests were protected"),
    _field("mayChange", TEXTS, "what the user let the task change"),
    _field("findings", array(ref("finding")), "what changed of that which decides over the checks"),
    _field("caveats", TEXTS, "who could have tampered, and what was closed to them"),
    _field("reviews", array(ref("review")), "reviews of the work"),
    _field("settingsDigest", TEXT, "SHA-256 of the settings in force"),
    _field("settingsFileDigest", nullable(TEXT), "SHA-256 of the settings file in that tree"),
    _field("versions", mapping(nullable(TEXT)), "of ralph, the agent and the machine"),
    _field("sandbox", nullable(ref("sandbox")), "the weakest sandbox of the run"),
    _field("records", ref("records"), "the records"),
    _field("digest", TEXT, "SHA-256 of all else"),
))  # fmt: skip
_RERUN = Noun("rerun", "A check of a proof that was run again.", (
    _field("name", TEXT, "the check"),
    _field("command", nullable(TEXT), "its command"),
    _field("holds", FLAG, "it says the same as on record"),
    _field("recordedExitCode", nullable(WHOLE), "the exit code on record"),
    _field("recordedTests", nullable(ref("tests")), "the tests on record"),
    _field("exitCode", nullable(WHOLE), "the exit code now"),
    _field("exitReason", nullable(TEXT), "how it ended now"),
    _field("durationSeconds", nullable(NUMBER), "how long it took now"),
    _field("tests", nullable(ref("tests")), "the tests now"),
    _field("sameOutput", FLAG, "the output is the same, byte for byte"),
    _field("output", TEXT, "its output, where it failed"),
))  # fmt: skip
_SKIPPED_CHECK = Noun("skippedCheck", "A check of a proof that was not run again.", (
    _field("name", TEXT, "the check"),
    _field("reason", TEXT, "why not"),
))  # fmt: skip
_VERIFICATION = Noun("verification", "The result of `ralph verify`.", (
    _field("result", TEXT, "holds, differs or unchecked"),
    _field("run", nullable(TEXT), "the run of the proof"),
    _field("commit", nullable(TEXT), "the commit that was checked out"),
    _field("tree", nullable(TEXT), "the tree that the proof speaks of"),
    _field("reasons", TEXTS, "why it does not hold, or cannot be checked"),
    _field("reruns", array(ref("rerun")), "checks that were run again"),
    _field("notRun", array(ref("skippedCheck")), "checks that were not"),
    _field("notes", TEXTS, "what decides nothing"),
    _field("concerns", TEXTS, "concerns of the proof"),
    _field("caveats", TEXTS, "caveats of the proof"),
))  # fmt: skip
_REPORT = Noun("report", "How the runs went that ended in some days (UTC).", (
    _field("from", TEXT, "the first day"),
    _field("to", TEXT, "the last day"),
    _field("overall", ANY_OBJECT, "counts, rates, averages and costs of all runs"),
    _field("bySkill", mapping(ANY_OBJECT), "the same by skill"),
    _field("byAgent", mapping(ANY_OBJECT), "the same by agent"),
    _field("abortReasons", mapping(WHOLE), "runs that were aborted, by reason"),
    _field("reviewTotals", nullable(ANY_OBJECT), "reviews of stories; null: there were none"),
    _field("alerts", TEXTS, "what to look at"),
    _optional("slots", array(ANY_OBJECT), "the same by day, or by hour of one day (API)"),
    _optional("charts", TEXTS, "charts that were written (ralph report)"),
))  # fmt: skip
_MESSAGE = Noun("message", "A message of the bus.", (
    _field("id", TEXT, "its id, which sorts by time"),
    _field("kind", TEXT, "its type, such as PROGRESS or ERROR"),
    _field("at", TIME, "when it was posted"),
    _field("run", nullable(TEXT), "the run of its sender"),
    _field("iteration", nullable(WHOLE), "the iteration of that"),
    _field("project", nullable(TEXT), "the project that it is about"),
    _field("task", nullable(TEXT), "the task that it is about"),
    _field("parents", TEXTS, "ids of messages that it answers"),
    _field("body", TEXT, "its text"),
    _optional("path", TEXT, "the file that it was written to (ralph bus post)"),
    _optional("spooled", FLAG, "the harness moves it to the bus later (ralph bus post)"),
))  # fmt: skip
_BUS = Noun("bus", "Messages of a bus.", (
    _field("path", TEXT, "its file"),
    _field("messages", array(ref("message")), "the messages, the oldest first"),
    _field("skipped", WHOLE, "lines of the file that belong to no message"),
))  # fmt: skip
_ARCHIVE = Noun("archive", "The result of `ralph archive`.", (
    _field("action", TEXT, "what was done"),
    _field("archive", TEXT, "the folder of the archive"),
    _field("folder", TEXT, "the folder of the stories"),
    _field("commit", nullable(TEXT), "the commit; null: none was made"),
    _field("completed", WHOLE, "stories that are done"),
    _field("total", WHOLE, "all stories"),
    _field("concerns", TEXTS, "what to look at all the same"),
    _field("remarks", TEXTS, "other things to know"),
))  # fmt: skip
EVENT_TYPES = {
    "run.started": "run", "run.resumed": "run", "run.attached": "run", "run.paused": "notice",
    "run.escalated": "notice", "changes.saved": "notice", "message.added": "notice", "claim.found": "notice",
    "children.awaited": "notice", "children.joined": "iteration", "baseline.saved": "notice", "warning": "notice",
    "notice": "notice", "iteration.picked": "iteration", "plan.finished": "notice", "turn.started": "turn",
    "turn.ended": "turn", "turn.retried": "turn", "work.saved": "iteration", "check.started": "check",
    "check.ended": "check", "check.stopped": "check", "iteration.ended": "iteration", "commit.started": "notice",
    "commit.ended": "scm", "hook.started": "hook", "hook.ended": "hook", "run.ended": "outcome",
    **{f"agent.{kind}": "agentEvent" for kind in _EVENT_KINDS},
}  # fmt: skip
_EVENT = Noun("event", "A line of `ralph run --json`: something happened, and is recorded.", (
    _field("run", TEXT, "the run"),
    _field("time", TIME, "when the line was written"),
    _field("iteration", nullable(WHOLE), "the iteration; null: none"),
    _field("data", {"anyOf": [ref(noun) for noun in dict.fromkeys(EVENT_TYPES.values())]}, "what it is about"),
), tuple(EVENT_TYPES))  # fmt: skip

NOUNS = {
    noun.name: noun
    for noun in (
        _RUN, _RUNS, _ITERATION, _TURN, _CHECK, _TESTS, _CHECK_COUNTS, _FINDING, _VERDICT, _SCM, _HOOK, _OUTCOME,
        _MONEY, _LIMIT, _SANDBOX, _WAIT, _CHILD, _TASK, _TASKS, _CRITERION, _DEPENDENCY, _STORY, _LANE, _BOARD, _EVENT,
        _NOTICE, _AGENT_EVENT, _AGENT_EVENTS, _TODO, _USAGE, _LOG, _LOGS, _DIFF, _FILE_CHANGE, _PASS_RULE,
        _BASELINE_RESULT, _PROOF, _SUBJECT, _REVIEW, _RECORDS, _VERIFICATION, _RERUN, _SKIPPED_CHECK, _REPORT,
        _MESSAGE, _BUS, _ARCHIVE, _ERROR, _HEALTH, _ANSWER,
    )
}  # fmt: skip


# What is published about the table itself: JSON Schemas, and documentation.


SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def object_schema(noun: Noun, **more: Json) -> Schema:
    """The schema of a noun, with references to others. New fields may come at any time, so others are allowed."""
    type_schema = choice(*noun.types) if noun.types else {"const": noun.name}
    fields = {field.name: {**field.schema, "description": field.about} for field in noun.fields}
    required = ["v", "type", *(field.name for field in noun.fields if not field.optional)]
    return {
        **more, "type": "object", "title": noun.name, "description": noun.about,
        "properties": {"v": {"const": JSON_VERSION}, "type": type_schema, **fields}, "required": required,
    }  # fmt: skip


def json_schema(name: str) -> Schema:
    """The JSON Schema of a noun, complete in itself."""
    reached, ahead = dict[str, None](), [name]
    while ahead:
        noun = ahead.pop()
        if noun not in reached:
            reached[noun] = None
            ahead += [other for field in NOUNS[noun].fields for other in referred_nouns(field.schema)]
    defs = {noun: object_schema(NOUNS[noun]) for noun in sorted(reached)}
    return {"$schema": SCHEMA_DIALECT, "$ref": f"#/$defs/{name}", "$defs": defs}


def referred_nouns(schema: Schema) -> Iterator[str]:
    """The nouns that a schema refers to."""
    if "$ref" in schema:
        yield schema["$ref"].rpartition("/")[2]
    for part in (*schema.get("anyOf", ()), schema.get("items"), schema.get("additionalProperties")):
        if isinstance(part, dict):
            yield from referred_nouns(part)


def describe_type(schema: Schema) -> str:
    """A JSON type for people."""
    match schema:
        case {"$ref": str(noun)}:
            return noun.rpartition("/")[2]
        case {"anyOf": [*parts]}:
            return " or ".join(map(describe_type, parts))
        case {"type": "array", "items": items}:
            return f"list of {describe_type(items)}"
        case {"type": "object", "additionalProperties": inner}:
            return f"object of {describe_type(inner)}"
        case {"format": "date-time"}:
            return "time"
        case _:
            return str(schema.get("type"))


def reference_markdown() -> Iterator[str]:
    """Every noun as a table."""
    for noun in NOUNS.values():
        yield f"## {noun.name}\n\n{noun.about}\n"
        if noun.types:
            yield f"`type` is one of: {', '.join(f'`{name}`' for name in noun.types)}.\n"
        yield "| field | type | meaning |\n|---|---|---|"
        for field in noun.fields:
            about = field.about.replace("|", "&#124;") + (" *(optional)*" if field.optional else "")
            yield f"| `{field.name}` | {describe_type(field.schema)} | {about} |"
        yield ""


def find_faults(data: Json, schema: Schema, place: str) -> Iterator[str]:
    """Where data differ from a schema of the table. Exact: fields that the table does not know are faults."""
    match schema:
        case {"$ref": str(name)}:
            yield from _object_faults(data, NOUNS[name.rpartition("/")[2]], place)
        case {"anyOf": [*parts]}:
            each = [[*find_faults(data, part, place)] for part in parts]
            yield from () if [] in each else max(each, key=len)
        case {"type": "array", "items": items} if isinstance(data, list):
            for number, item in enumerate(data):
                yield from find_faults(item, items, f"{place}[{number}]")
        case {"type": "object"} if isinstance(data, dict):
            inner = schema.get("additionalProperties")
            for name, item in data.items() if inner else ():
                yield from find_faults(item, inner or {}, f"{place}.{name}")
        case {"type": str(kind)}:
            if not _is_type(data, kind) or ("enum" in schema and data not in schema["enum"]):
                yield f"{place} is of another kind than it must be"
        case _:
            pass


MAX_INTEGER = 1 << 60  # no number of ours is so large


def _is_type(data: Json, kind: str) -> bool:
    match kind:
        case "string":
            return isinstance(data, str)
        case "boolean":
            return isinstance(data, bool)
        case "null":
            return data is None
        case "array":
            return isinstance(data, list)
        case "integer":
            return type(data) is int and abs(data) < MAX_INTEGER
        case "number":
            return type(data) in (int, float) and abs(data) < MAX_INTEGER  # type: ignore[arg-type]
        case _:
            return False


def _object_faults(data: Json, noun: Noun, place: str) -> Iterator[str]:
    if not isinstance(data, dict):
        yield f"{place} is no object"
        return
    if data.get("v") != JSON_VERSION or data.get("type") not in (noun.types or (noun.name,)):
        yield f"{place} is of another version or type"
    known = {field.name: field for field in noun.fields}
    for name, field in known.items():
        if name in data:
            yield from find_faults(data[name], field.schema, f"{place}.{name}")
        elif not field.optional:
            yield f"{place} has no {name}"
    for name in data.keys() - known.keys() - {"v", "type"}:
        yield f"{place} has a field that this ralph does not know: {name[:40]!r}"
