"""Displays of a run: the preview, the loop in this process, and a run that another process executes."""

from __future__ import annotations

import atexit
import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping

from ralphproof.base.errors import RalphError, Refused
from ralphproof.base.escaping import collapse_lines, sanitize
from ralphproof.base.value import Json, replace
from ralphproof.display import phrases
from ralphproof.display.attempt_log import create_attempt_log
from ralphproof.display.console import ConsoleObserver, VerboseContext, VerboseObserver
from ralphproof.display.output import print_json, print_lines
from ralphproof.display.terminal import DisplayFlags, PrefixedStream, Style, stream_style
from ralphproof.engine.agent import Agent, Event, TurnInput
from ralphproof.engine.environment import Observer
from ralphproof.engine.limits import INTERRUPTED, STEP, WAITING
from ralphproof.engine.outcome import Aborted, Outcome
from ralphproof.engine.plan import Blocked, Job, choose_next_job, turn_file_name
from ralphproof.engine.prompt import Feedback, IterationCount, compose_prompt
from ralphproof.engine.records import Record, RunEnded, TurnBegan
from ralphproof.engine.sandbox import CONTINUE, STOP
from ralphproof.process.keeper_client import KeeperClient, TurnFollower
from ralphproof.runs.context import RunContext
from ralphproof.runs.execute import execute
from ralphproof.runs.preflight import Fitness, FitnessCondition
from ralphproof.runs.request import FitnessRequest, RunTarget, load_request
from ralphproof.runs.spec import RunSpec, prepare_spec
from ralphproof.settings.declarations import Settings
from ralphproof.settings.skills import Skill
from ralphproof.store.project import Project
from ralphproof.store.run_folder import RunFolder
from ralphproof.store.run_state import RUNNING, turn_file_path
from ralphproof.views.events import NdjsonObserver
from ralphproof.views.logs import read_finished_log
from ralphproof.views.run_status import next_step_hint
from ralphproof.views.timeline import RecordTail

# `ralph run --dry-run`: what would be done, without doing any of it.


SANDBOX_NAMES = {None: "none", "auto": "the strongest that holds here"}


def print_dry_run(spec: RunSpec, as_json: bool) -> int:
    """Print the first prompt, the argument lists of all agents and the checks."""
    settings = spec.loaded.settings
    rules = spec.rules
    job, limit = choose_next_job(spec.plan.read(), rules.pipeline, frozenset()), rules.limits.budget.iterations
    if isinstance(job, Blocked):
        raise Refused(f"nothing can be worked on: {job.why}")
    assert isinstance(job, Job)
    exports = {"RALPH_ITERATION": "1", **({"RALPH_MAX_ITERATIONS": str(limit)} if limit is not None else {})}
    prompt = compose_prompt(
        job, Feedback(), IterationCount(1, limit) if rules.prompt.show_count else None, exports=exports
    )
    masked = spec.project.mask(prompt)
    turn_input = TurnInput(prompt, "<prompt file>", spec.project.root, (), "", "", "", 0.0)
    argv, *fallbacks = ([spec.project.mask(part) for part in agent.argv(turn_input)] for agent in spec.agents)
    checks = [spec.project.mask(check) for check in spec.stage_plan.check_labels]
    sandbox = spec.request.sandbox_kind(settings)
    hooks = {hook: [spec.project.mask(one) for one in commands] for hook, commands in settings.on.by_name}
    if as_json:
        data = {
            "prompt": masked,
            "argv": argv,
            "fallbacks": fallbacks,
            "checks": checks,
            "sandbox": sandbox,
            "on": hooks,
        }
        print(json.dumps({"v": 1, "type": "dry-run", **data}))
        return 0
    for remark in spec.remarks:
        print(sanitize(spec.project.mask(remark)), file=sys.stderr)
    print(f"Project: {spec.project.root}")
    for line in (
        *_agent_lines(argv, fallbacks),
        *_check_lines(checks),
        *_hook_lines(hooks),
        f"Sandbox: {SANDBOX_NAMES.get(sandbox, sandbox)}",
    ):
        print(sanitize(line))
    print(f"Prompt of iteration 1 of {settings.maximum_iterations}:\n{sanitize(masked)}")
    return 0


def stages_json(spec: RunSpec) -> list[Json]:
    """The stages that a task would go through, for programs."""
    return [
        {"name": one.name, "promise": one.claim.word, "checks": [*one.checks], "judges": [*one.judges],
         "maxIterations": one.max_iterations, "back": [*one.back]}
        for one in spec.rules.pipeline.stages
    ]  # fmt: skip


def print_stages(spec: RunSpec) -> None:
    """Print the stages that a task would go through: the claim, the checks and the number of attempts of each."""
    task = spec.plan.read().tasks[0]
    for remark in spec.remarks:
        print(sanitize(spec.project.mask(remark)), file=sys.stderr)
    print(sanitize(f"{task.id}: {task.title}"))
    for stage in spec.rules.pipeline.stages:
        verified_by = (
            ", ".join((*stage.checks, *(f"{judge} (judged)" for judge in stage.judges))) or "nothing; its word counts"
        )
        claim = f"says {stage.claim.word}" if stage.claim.word else "single pass"
        print(
            sanitize(
                spec.project.mask(f"  {stage.name}: at most {stage.max_iterations}, {claim}; verified by {verified_by}")
            )
        )
    for line in _hook_lines(dict(spec.loaded.settings.on.by_name)):
        print(sanitize(spec.project.mask(f"  {line}")))


def _agent_lines(argv: list[str], fallbacks: list[list[str]]) -> list[str]:
    listed = [f"  {shlex.join(other)}" for other in fallbacks]
    return [f"Agent: {shlex.join(argv)}", *(["Fallbacks:", *listed] if listed else [])]


def _check_lines(checks: list[str]) -> list[str]:
    if not checks:
        return ["Checks: none; the agent's word alone would end the run"]
    return ["Checks:", *(f"  {check}" for check in checks)]


def _hook_lines(hooks: Mapping[str, Iterable[str]]) -> list[str]:
    return [f"{hook}: {command}" for hook, commands in hooks.items() for command in commands]


# `ralph run --explain`: whether the work may be left to a loop, condition by condition.


REMEDIES = {
    "verification": "name a command that can show it: --check CMD",
    "scope": "ask for one feature, bug or refactor, and say where; --type names it where the guess is wrong",
    "risk": "do it with somebody watching, or say --risk low or --risk medium if that is what it is",
    "skill": "add to the skill what it lacks, or run without --skill",
}


def print_fitness(fitness: Fitness, skill: Skill | None, as_json: bool) -> int:
    """Print each condition, the verdict and the remedies; 0 where the work is fit for a loop, else 1."""
    unmet = [condition for condition in fitness.conditions if not condition.met]
    if as_json:
        print_json("explain", _fitness_json(fitness, skill))
    else:
        print_lines(*(f"{'yes' if each.met else 'no ':<3}  {each.name}: {each.reason}" for each in fitness.conditions))
        print_lines("", fitness_verdict(unmet), *(f"  {REMEDIES[condition.name]}" for condition in unmet))
    return 1 if unmet else 0


def fitness_verdict(unmet: list[FitnessCondition]) -> str:
    """The verdict in one line."""
    if not unmet:
        return "fit for a loop"
    return f"not fit for a loop: {', '.join(condition.name for condition in unmet)}"


def _fitness_json(fitness: Fitness, skill: Skill | None) -> dict[str, Json]:
    conditions: list[Json] = [
        {"name": condition.name, "met": condition.met, "reason": condition.reason} for condition in fitness.conditions
    ]
    data: dict[str, Json] = {"fit": fitness.fit, "taskType": fitness.type, "risk": fitness.risk}
    return data | {"skill": skill.name if skill else None, "conditions": conditions}


def execute_observed(spec: RunSpec, keeper: KeeperClient, flags: DisplayFlags, target: RunTarget) -> Outcome:
    """Run the loop to its end, with the displays that the flags ask for."""
    return execute(
        spec,
        keeper,
        lambda folder, settings: create_observers(folder, flags, settings, spec.project.mask),
        lambda begun, outcome: _report_outcome(begun, outcome, spec, flags),
        target=target,
    )


def _report_outcome(context: RunContext, outcome: Outcome, spec: RunSpec, flags: DisplayFlags) -> None:
    """Print the outcome, and deliver notifications."""
    mask = spec.project.mask
    print_outcome(context.run if context.recorded else "", outcome, flags, mask)
    for trouble in context.notifiers.deliver(outcome):
        print(sanitize(mask(trouble)), file=sys.stderr)


def create_observers(
    folder: RunFolder, flags: DisplayFlags, settings: Settings, mask: Callable[[str], str]
) -> tuple[Observer, ...]:
    """The observers that the flags ask for."""
    console = _create_console(stream_style(sys.stderr, flags, settings), settings, mask)
    atexit.register(console.flush)  # however the program ends, what the agent said last is shown
    observers: list[Observer] = [console]
    if flags.json:
        observers.append(NdjsonObserver(sys.stdout, folder.run, flags.verbose, mask))
    if flags.verbose:
        commands = {guardrail.name: guardrail.shown for guardrail in settings.guardrails}
        context = VerboseContext(settings.maximum_iterations, settings.completion_response, commands)
        observers.append(VerboseObserver(sys.stderr, context, lambda *turn: _read_prompt_start(folder, *turn), mask))
    return tuple(observers)


class PoolDisplay:
    """Displays of parallel runs: lines prefixed with the name of their run."""

    def __init__(self, flags: DisplayFlags) -> None:
        self._flags = flags

    def create_observers(
        self, name: str, folder: RunFolder, settings: Settings, mask: Callable[[str], str]
    ) -> tuple[Observer, ...]:
        style = replace(stream_style(sys.stderr, self._flags, settings), live=False, stream=False)
        console: Observer = ConsoleObserver(PrefixedStream(sys.stderr, name), style, mask)  # type: ignore[arg-type]
        if not self._flags.json:
            return (console,)
        return (console, NdjsonObserver(sys.stdout, folder.run, self._flags.verbose, mask))

    def warn(self, name: str, text: str) -> None:
        print(f"{name}  {sanitize(text)}", file=sys.stderr)


def _create_console(style: Style, settings: Settings, mask: Callable[[str], str]) -> ConsoleObserver:
    """The console: a log of attempts for supervised programs, else iterations."""
    if settings.preset != "supervise":
        return ConsoleObserver(sys.stderr, style, mask)
    return create_attempt_log(sys.stderr, style, mask, settings.agent.timeout_seconds)


def _read_prompt_start(folder: RunFolder, iteration: int, turn: int) -> str:
    """The start of a prompt, from its published file."""
    path = folder.published_path(f"prompt_{turn_file_name(f'{iteration:03d}', turn)}") + ".txt"
    return next(read_finished_log(path), b"")[:4096].decode("utf-8", "replace")


def _next_steps(run: str, outcome: Outcome) -> str:
    """Commands that make sense after this outcome."""
    reason = outcome.reason if isinstance(outcome, Aborted) else ""
    if reason == WAITING:
        return f"run {run} waits; answer with ralph say {run} TEXT, and go on: ralph run --resume {run}"
    if reason == STEP:
        return f"run {run} has taken its step; ralph status, logs and diff say more; go on: {next_step_hint(run)}"
    onward = f"; go on: ralph run --resume {run}" if reason == INTERRUPTED else ""
    return f"run {run} is over; ralph status, logs and diff say more{onward}"


def print_outcome(run: str, outcome: Outcome, flags: DisplayFlags, mask: Callable[[str], str]) -> None:
    """Print the last lines of a run; `run` is empty where it has no record. A closed output is ignored: the exit code
    tells.
    """
    try:
        if flags.json:
            return
        if run and not flags.quiet:
            print(_next_steps(run, outcome), file=sys.stderr)
        for line in phrases.describe_outcome(outcome):
            print(collapse_lines(sanitize(mask(line))), flush=True)
    except OSError:
        pass


# Following a run from another process: its records as they are written, and what its agent says meanwhile.


FOLLOW_POLL_S = 0.2
LIVENESS_CHECK_S = 0.5  # between two checks that the harness of a followed turn lives
MAX_EARLIER_EVENTS = 50  # shown of the events from before we attached


def load_run_spec(project: Project, run: str, directory: str) -> RunSpec | None:
    """How a run was ordered, as far as its agents and its display go; None where that cannot be known any more.

    What only matters to a run that begins is left out, so that it cannot be refused.
    """
    saved = load_request(RunFolder(directory, run, project.store))
    if saved is None or saved[1]:
        return None
    text = "." if saved[0].stories.verify_commands is None else ""  # a story run has no prompt
    request = replace(
        saved[0],
        prompt=(text, None),
        checks=replace(saved[0].checks, commands=("true",)),
        fitness=FitnessRequest(force=saved[0].fitness.force),
        skill="",
        verbose=False,
        allow_unknown_cost=True,
        project_dir=directory,
    )
    try:
        return prepare_spec(request)
    except RalphError:
        return None


class RunFollower:
    """Shows a run to observers until it ends. It only reads: nothing that happens here disturbs the run."""

    def __init__(
        self, records: RecordTail, project: Project, observers: tuple[Observer, ...], agents: tuple[Agent, ...],
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._records, self._project = records, project
        self._observers, self._agents, self._say = observers, agents, say
        self._unreadable_reported = False

    def follow(self) -> Outcome | None:
        """Show the run to its end; its outcome, or None where it lost its harness."""
        state, last = self._records.state, self._records.last
        if isinstance(last, RunEnded):
            return last.outcome
        if state.turn_running:
            self._follow_turn(state.iteration, state.turn, state.agent.name, self._turn_may_begin, late=True)
        while True:
            records = self._records.more()
            for number, record in enumerate(records, 1):
                self._show(record, latest=number == len(records))
                if isinstance(record, RunEnded):
                    return record.outcome
            if not records and not self._is_running() and not self._records.grown:
                return None
            for observer in self._observers:
                observer.tick()
            time.sleep(0.0 if records else FOLLOW_POLL_S)

    def _show(self, record: Record, latest: bool) -> None:
        for observer in self._observers:
            observer.on_record(record)
        if isinstance(record, TurnBegan):
            may_begin = self._turn_may_begin if latest else lambda: False
            self._follow_turn(record.iteration, record.turn, record.agent, may_begin, late=False)

    def _is_running(self) -> bool:
        return self._records.standing(self._project) == RUNNING

    def _turn_may_begin(self) -> bool:
        """Whether the turn that was recorded last may still begin."""
        return self._is_running() and not self._records.grown

    def _follow_turn(self, iteration: int, turn: int, name: str, may_begin: Callable[[], bool], late: bool) -> None:
        """Show the agent's output until its turn is over, if its format is known. `late`: the turn began before."""
        agent = next((agent for agent in self._agents if agent.name == name), None)
        if agent is None:
            if not self._unreadable_reported:
                self._say(f"what {name or 'the agent'} says cannot be shown from here; ralph logs -f shows it raw")
            self._unreadable_reported = True
            return
        file = turn_file_path(self._project, self._records.row.id, turn_file_name(f"agent_{iteration:03d}", turn))
        turn_input = TurnInput(
            "", os.devnull, os.path.dirname(file), (), file.removesuffix(".turn"), file, "", 0.0, adopt=True
        )  # fmt: skip
        relay = EventRelay(self._observers, self._is_running, self._say, late)
        agent.take_turn(turn_input, TurnFollower(may_begin, on_caught_up=relay.catch_up), relay)
        relay.catch_up()


class EventRelay:
    """Passes events of an agent on to observers. Until `catch_up` only the last events are kept, where it is `late`."""

    def __init__(
        self, observers: tuple[Observer, ...], is_running: Callable[[], bool], say: Callable[[str], None], late: bool
    ) -> None:
        self._observers, self._is_running, self._say = observers, is_running, say
        self._earlier: list[Event] | None = [] if late else None
        self._dropped = 0
        self._checked_s = time.monotonic()

    def events(self, events: list[Event]) -> None:
        if self._earlier is not None:
            earlier = [*self._earlier, *events]
            self._dropped += max(0, len(earlier) - MAX_EARLIER_EVENTS)
            self._earlier = earlier[-MAX_EARLIER_EVENTS:]
            return
        for observer in self._observers:
            observer.on_events(events)

    def catch_up(self) -> None:
        """Pass on the last earlier events; all later ones are new."""
        earlier, self._earlier = self._earlier, None
        if self._dropped:
            self._say(f"{self._dropped} earlier things that the agent said and did are in ralph logs")
            self._dropped = 0
        if earlier:
            self.events(earlier)

    def tick(self) -> int:
        for observer in self._observers:
            observer.tick()
        if (now_s := time.monotonic()) - self._checked_s < LIVENESS_CHECK_S:
            return CONTINUE
        self._checked_s = now_s
        return CONTINUE if self._is_running() else STOP
