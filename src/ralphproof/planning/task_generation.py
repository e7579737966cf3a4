"""Tasks that an agent writes: the run that asks for them, and parsing of the answer."""

from __future__ import annotations

import re
import sys

from ralphproof.base.errors import Refused
from ralphproof.base.text import MAX_TEXT_CHARS, fence_code, strip_control_characters, strip_escapes, truncate
from ralphproof.base.value import TYPE_CHECKING, replace, value
from ralphproof.engine.claim import ClaimRule
from ralphproof.engine.outcome import Completed, Failed
from ralphproof.engine.plan import Pipeline
from ralphproof.engine.run_hooks import HOOKS
from ralphproof.engine.state import RunOver
from ralphproof.runs.execute import execute
from ralphproof.runs.request import (
    FRESH_RUN,
    LATEST_RUN,
    RunTarget,
    drop_unset,
    find_enclosing_run,
    is_guarded,
    load_request,
)
from ralphproof.store.project import Project
from ralphproof.store.run_folder import RunFolder
from ralphproof.tasks.draft import TaskDraft, validate_dependencies
from ralphproof.tasks.files import parse_tasks
from ralphproof.tasks.store import validate_draft_with_plugins

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Mapping
    from typing import Any

    from ralphproof.engine.check import Inspection
    from ralphproof.engine.outcome import Outcome
    from ralphproof.runs.context import CreateObservers, RunContext
    from ralphproof.runs.request import RunRequest
    from ralphproof.runs.spec import RunSpec
    from ralphproof.store.ledger import RunRow


# Tasks in an agent's message: the one block of YAML in it, and every reason why it cannot be taken.


NAME = "answer"  # how problems call the text that they are in
# As in Markdown: what is indented further is no fence, so a description may hold one.
_FENCE = r" {0,3}(```+(?=[^`]*$)|~~~+)\s*(\S*).*"
LONG = (
    f"the message has more than {MAX_TEXT_CHARS} characters, and its middle is lost; write fewer tasks, or shorter ones"
)
OPEN = "the yaml block is never closed, so its end may be missing; close it with its fence"
NO_BLOCK = "no block of the message is fenced as yaml; put all tasks into one that is"
ECHO = "that is the example; write the tasks that are asked for"
NOTHING = "there is no task in it"


@value
class TaskAnswer:
    """The tasks of a message, or all that is wrong with them."""

    drafts: tuple[TaskDraft, ...] = ()
    problems: tuple[str, ...] = ()


@value
class CodeBlock:
    """A fenced block: the first word behind its fence, in small letters, and what it holds."""

    language: str
    text: str
    closed: bool


@value
class Demands:
    """What tasks are held against.

    `known` are the tasks that there are, and what each depends on; unless it is `renewed`, no answer may name one of
    them as its own. All new tasks belong to the `spec`, where one is given. The `example` is no answer.
    """

    known: Mapping[str, tuple[str, ...]]
    spec: str = ""
    example: str = ""
    renewed: bool = False


def answer_in(message: str, demands: Demands) -> TaskAnswer:
    """The tasks in a message."""
    if len(message) > MAX_TEXT_CHARS:
        return TaskAnswer(problems=(LONG,))
    text, trouble = tasks_text(message)
    if not trouble and demands.example and text.strip() == demands.example.strip():
        trouble = ECHO
    return TaskAnswer(problems=(trouble,)) if trouble else _read(text, demands)


def tasks_text(message: str) -> tuple[str, str]:
    """Where the tasks stand in a message: its one block of YAML, or all of it. Else why they stand nowhere."""
    fences = fences_in(strip_escapes(message))
    if not fences:
        return strip_escapes(message), ""
    named = [fence for fence in fences if fence.language in ("yaml", "yml")]
    blocks = named or [fence for fence in fences if not fence.language]
    if len(blocks) != 1:
        return "", NO_BLOCK if not blocks else f"the message has {len(blocks)} blocks of yaml; put all tasks into one"
    return (blocks[0].text, "") if blocks[0].closed else ("", OPEN)


def fences_in(message: str) -> list[CodeBlock]:
    """Every fenced block; one that is never closed reaches to the end."""
    found: list[CodeBlock] = []
    mark, language, lines = "", "", list[str]()
    for line in message.split("\n"):
        fence = re.fullmatch(_FENCE, line)
        if not mark and fence:
            mark, language, lines = fence[1], fence[2].lower(), []
        elif mark and fence and fence[1].startswith(mark) and not fence[2]:
            found.append(CodeBlock(language, "\n".join(lines), True))
            mark = ""
        elif mark:
            lines.append(line)
    return [*found, CodeBlock(language, "\n".join(lines), False)] if mark else found


def _read(text: str, demands: Demands) -> TaskAnswer:
    try:
        readings = parse_tasks(text.encode("utf-8", "surrogateescape"), NAME)
    except Refused as error:
        return TaskAnswer(problems=tuple(str(error).splitlines()))
    read_ones = (reading.draft for reading in readings if reading.draft is not None)
    drafts = tuple(replace(draft, spec_id=demands.spec or draft.spec_id) for draft in read_ones)
    unread = (problem for reading in readings for problem in reading.problems)
    wrong = tuple(dict.fromkeys((*unread, *_wrong(drafts, demands))))
    if not readings:
        wrong = (NOTHING,)
    return TaskAnswer(problems=wrong) if wrong else TaskAnswer(drafts)


def _wrong(drafts: tuple[TaskDraft, ...], demands: Demands) -> Iterator[str]:
    for draft in drafts:
        yield from validate_draft_with_plugins(draft)
        if draft.id in demands.known and not demands.renewed:
            yield f"{draft.id}: there is a task of this id already; take another one"
        if draft.status != "todo":
            yield f"{draft.id}: how it stands is not yours to say; leave status out"
    yield from validate_dependencies(drafts, demands.known)


# A run whose work is an answer: tasks in the agent's last message, which a check reads, and no file changed.


SKILL, CHECK, STAGE = "tasks", "tasks", "plan"
ITERATIONS = 5
TOLD = 200  # of the tasks that there are, in the prompt
TITLE_CHARS = 120
NAMED = 10  # of files that were changed
NOT_OVER = Failed("the run is not over", 0)
NONE_SUCH = "there is no run of ralph task generate to go on with"
NOT_SUCH = "run {0} was not begun by ralph task generate; go on with it: ralph run --resume {0}"
ASKED = "Break this into tasks. It is what the user wants, and nothing in it says how you are to answer:"
KNOWN = "These tasks exist already. Their ids are taken; new tasks may depend on them:"
HOW = """\
Answer with one block in your final message, fenced as `yaml`, that holds all tasks as one list. Each needs `id`,
`title`, `completion.outcome` and `completion.acceptance_criteria`.{}
Write no file: answer in your message."""


@value
class Drafted:
    """What came of such a run: how it ended, the agent's last message, and why that was refused."""

    run: str
    outcome: Outcome
    said: str = ""
    problems: tuple[str, ...] = ()


class Reader:
    """Reads answers. The tasks that there are may change meanwhile, so they are looked up each time."""

    def __init__(self, project: Project, spec: str) -> None:
        from ralphproof.settings.skills import load_skill

        self.project, self.spec = project, spec
        shown = fences_in(load_skill(project.root, SKILL).body)
        self._example = next((fence.text for fence in shown if fence.language == "yaml"), "")

    def titles(self) -> dict[str, str]:
        """The tasks that there are."""
        ledger = self.project.ledger()
        try:
            return {row.id: row.title for row in ledger.tasks.rows()}
        finally:
            ledger.close()

    def read(self, message: str, renewed: bool = False) -> TaskAnswer:
        """The tasks in a message; `renewed` ones may bear the names of those that there are."""
        ledger = self.project.ledger()
        try:
            known = {row.id: row.dependencies for row in ledger.tasks.rows()}
        finally:
            ledger.close()
        return answer_in(message, Demands(known, self.spec, self._example, renewed))

    def __call__(self, inspection: Inspection) -> tuple[bool, str]:
        """Whether an iteration's answer is one, and all that is wrong with it."""
        wrong = (*_changed(inspection), *self.read(inspection.message).problems)
        return not wrong, "\n".join(wrong)


def _changed(inspection: Inspection) -> list[str]:
    """What the agent did beside answering."""
    change, told = inspection.change, "write nothing; answer in your message"
    paths = change.undone or change.paths
    wrong = [f"you changed {path if path.isprintable() else repr(path)}; {told}" for path in paths[:NAMED]]
    more = [f"you changed {len(paths) - NAMED} more files; {told}"] if len(paths) > NAMED else []
    return [*wrong, *more, *([f"you made a commit; {told}"] if change.committed else [])]


def prompt_of(text: str, reader: Reader) -> str:
    """What the agent is asked, behind the skill. Foreign words are fenced, so that they stay what they are."""
    titles = list(reader.titles().items())
    lines = [
        truncate(" ".join(strip_control_characters(f"{id}: {title}").split()), TITLE_CHARS, "head")
        for id, title in titles[-TOLD:]
    ]
    known = [KNOWN, fence_code("\n".join(lines))] if lines else []
    spec = f"\nEvery task has `spec_id: {reader.spec}`." if reader.spec else ""
    return "\n\n".join([ASKED, fence_code(text.strip("\n")), *known, HOW.format(spec)])


def wish_of(args: Namespace, prompt: str, reader: Reader) -> RunRequest:
    """What the command line asks for. A run that is taken up has its prompt, and settings that were not given anew."""
    from ralphproof.checks.function import FunctionCheck
    from ralphproof.runs.request import CustomComponents, RunRequest

    flags: dict[str, Any] = {
        "maximumIterations": args.maximum_iterations or (None if args.resume is not None else ITERATIONS),
        "agent": {"command": args.agent, "model": args.model},
        "limits": {"maxCostUsd": args.max_cost_usd, "maxMinutes": args.max_minutes},
        "sandbox": {"backend": args.sandbox},
    }
    fixed: dict[str, Any] = {
        "preset": "harness",
        "guardrails": [],
        "scm": None,
        "contextInjection": False,
        "on": {hook: [] for hook in HOOKS},
        "onInternalError": "stop",
    }
    return RunRequest(
        (prompt, None), {**drop_unset(flags), **fixed}, reader.project.root, guarded=is_guarded(args),
        allow_hosts=tuple(args.allow_host or ()),
        allow_unknown_cost=args.allow_unknown_cost, verbose=args.verbose, skill=SKILL, task_type="other", risk="low",
        custom=CustomComponents(checks=(FunctionCheck(reader, CHECK),)),
    )  # fmt: skip


def drafted(args: Namespace, text: str, reader: Reader) -> Drafted:
    """Ask the agent until its answer is valid or a limit says stop. What a run came to before is not asked again."""
    from ralphproof.runs.spec import prepare_spec

    if args.resume is None:
        return _run(args, prepare_spec(wish_of(args, prompt_of(text, reader), reader)), FRESH_RUN)
    from ralphproof.runs.resume import load_resumed_request

    run = _such(reader.project, args.resume)
    if isinstance((before := _came_to(reader.project, run)).outcome, Completed):
        return before
    row, wish = load_resumed_request(reader.project, run, wish_of(args, "", reader))
    return _run(args, prepare_spec(wish), RunTarget(row=row))


def _such(project: Project, name: str) -> str:
    """The run of this kind that is meant: by its id, or the newest one."""
    ledger = project.ledger()
    try:
        rows = ledger.runs() if name == LATEST_RUN else [ledger.row(ledger.find(name))]
    finally:
        ledger.close()
    found = next((row.id for row in rows if row is not None and _is_such(project, row)), "")
    if not found:
        raise Refused(NONE_SUCH if name == LATEST_RUN else NOT_SUCH.format(name))
    return found


def _is_such(project: Project, row: RunRow) -> bool:
    kept = load_request(RunFolder(row.directory, row.id, project.store))
    return kept is not None and kept[1] and kept[0].skill == SKILL


def _run(args: Namespace, order: RunSpec, which: RunTarget) -> Drafted:
    from ralphproof.process.keeper_client import KeeperClient
    from ralphproof.runs.children import apply_parent_constraints

    parent = which.row.parent if which.row else find_enclosing_run(order.project)
    if parent:  # before the order is made one for an answer: whoever holds it prepares it anew
        order = apply_parent_constraints(order, parent)
    order, keeper, runs = _for_an_answer(order), KeeperClient(), list[str]()
    try:
        outcome = execute(order, keeper, _watching(args, order), lambda *end: _tell(order, runs, *end), target=which)
    finally:
        keeper.close()
    return replace(_came_to(order.project, runs[0]), outcome=outcome)


def _for_an_answer(order: RunSpec) -> RunSpec:
    """The same order as one stage that only looks and needs no claim: a valid answer is enough.

    Its check is asked as judges are, after a turn: before the first one there is no answer to look at.
    """
    assert order.stage_plan is not None
    stage, own = order.stage_plan.pipeline.stages[0], tuple(check.name for check in order.custom.checks)
    asked = tuple(check for check in stage.checks if check not in own)
    looks = replace(
        stage, name=STAGE, claim=ClaimRule(), checks=asked, judges=(*stage.judges, *own), edits=False, looks=True
    )
    return replace(order, stage_plan=replace(order.stage_plan, pipeline=Pipeline((looks,))))


def _watching(args: Namespace, order: RunSpec) -> CreateObservers:
    """People look on. Programs get one object at the end."""
    from argparse import Namespace as Flags

    from ralphproof.runs.observers import create_observers

    flags = Flags(**{**vars(args), "json": False})
    return lambda folder, settings: create_observers(folder, flags, settings, order.project.mask)


def _tell(order: RunSpec, runs: list[str], begun: RunContext, outcome: Outcome) -> None:
    from ralphproof.base.escaping import sanitize

    runs.append(begun.run)
    for trouble in begun.notifiers.deliver(outcome):
        print(sanitize(order.project.mask(trouble)), file=sys.stderr)


def _came_to(project: Project, run: str) -> Drafted:
    """What the record says of such a run."""
    state = project.state(run)
    over = state.phase.outcome if isinstance(state.phase, RunOver) else NOT_OVER
    if not state.history.iterations:
        return Drafted(run, over)
    last = state.history.latest
    failed = [finding.output for finding in last.report.failed]
    return Drafted(run, over, last.turn.text, tuple("\n".join(failed).splitlines()))
