"""Tasks that an agent drafts: the run that asks for them, and parsing of its answer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ralphproof.base.errors import Refused
from ralphproof.base.text import MAX_TEXT_CHARS, fence_code, strip_control_characters, strip_escapes, truncate
from ralphproof.base.value import replace, value
from ralphproof.display.terminal import DisplayFlags
from ralphproof.engine.check import Inspection
from ralphproof.engine.outcome import Completed, Failed, Outcome
from ralphproof.engine.state import RunOver
from ralphproof.planning.drafting import drafting_request, execute_drafting
from ralphproof.runs.children import apply_parent_constraints
from ralphproof.runs.execute import load_resumed_request
from ralphproof.runs.request import (
    FRESH_RUN,
    FitnessRequest,
    RunRequest,
    RunTarget,
    find_enclosing_run,
    load_request,
)
from ralphproof.runs.spec import prepare_spec
from ralphproof.settings.skills import load_skill
from ralphproof.store.ledger import LATEST, RunRow
from ralphproof.store.project import Project
from ralphproof.store.run_folder import RunFolder
from ralphproof.tasks.draft import TaskDraft, validate_dependencies
from ralphproof.tasks.files import parse_tasks
from ralphproof.tasks.store import validate_draft_with_plugins

# Tasks in an agent's message: the one block of YAML in it.


ANSWER = "answer"  # the name of the text in problems
# As in Markdown: what is indented further is no fence, so a description may hold one.
_FENCE = r" {0,3}(```+(?=[^`]*$)|~~~+)\s*(\S*).*"
TOO_LONG = (
    f"the message has more than {MAX_TEXT_CHARS} characters, and its middle is lost; write fewer tasks, or shorter ones"
)
UNCLOSED = "the yaml block is never closed, so its end may be missing; close it with its fence"
NO_BLOCK = "no block of the message is fenced as yaml; put all tasks into one that is"
EXAMPLE_REPEATED = "that is the example; write the tasks that are asked for"
NO_TASK = "there is no task in it"


@value
class TaskAnswer:
    """The tasks of a message, or all that is wrong with them."""

    drafts: tuple[TaskDraft, ...] = ()
    problems: tuple[str, ...] = ()


@value
class CodeBlock:
    """A fenced block of Markdown, with the language behind its fence in small letters."""

    language: str
    text: str
    closed: bool


def parse_answer(
    message: str, known: Mapping[str, tuple[str, ...]], spec: str = "", example: str = "", taken: bool = False
) -> TaskAnswer:
    """The tasks in a message. `known` are existing tasks with their dependencies; with `taken` their ids may be used.

    All new tasks belong to `spec`, where one is given. The `example` is no answer.
    """
    if len(message) > MAX_TEXT_CHARS:
        return TaskAnswer(problems=(TOO_LONG,))
    text, problem = _tasks_text(strip_escapes(message))
    if not problem and example and text.strip() == example.strip():
        problem = EXAMPLE_REPEATED
    if problem:
        return TaskAnswer(problems=(problem,))
    try:
        parsed = parse_tasks(text.encode("utf-8", "surrogateescape"), ANSWER)
    except Refused as error:
        return TaskAnswer(problems=tuple(str(error).splitlines()))
    if not parsed:
        return TaskAnswer(problems=(NO_TASK,))
    drafts = tuple(replace(one.draft, spec_id=spec or one.draft.spec_id) for one in parsed if one.draft is not None)
    unreadable = (problem for one in parsed for problem in one.problems)
    problems = tuple(dict.fromkeys((*unreadable, *_draft_problems(drafts, known, taken))))
    return TaskAnswer(problems=problems) if problems else TaskAnswer(drafts)


def _tasks_text(message: str) -> tuple[str, str]:
    """The one YAML block of a message, or all of it where nothing is fenced; else the problem."""
    fences = find_code_blocks(message)
    if not fences:
        return message, ""
    named = [fence for fence in fences if fence.language in ("yaml", "yml")]
    blocks = named or [fence for fence in fences if not fence.language]
    if len(blocks) != 1:
        return "", NO_BLOCK if not blocks else f"the message has {len(blocks)} blocks of yaml; put all tasks into one"
    return (blocks[0].text, "") if blocks[0].closed else ("", UNCLOSED)


def find_code_blocks(message: str) -> list[CodeBlock]:
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


def _draft_problems(drafts: tuple[TaskDraft, ...], known: Mapping[str, tuple[str, ...]], taken: bool) -> Iterator[str]:
    for draft in drafts:
        yield from validate_draft_with_plugins(draft)
        if draft.id in known and not taken:
            yield f"{draft.id}: there is a task of this id already; take another one"
        if draft.status != "todo":
            yield f"{draft.id}: how it stands is not yours to say; leave status out"
    yield from validate_dependencies(drafts, known)


# The run. Its work is the agent's last message, which the check reads; no file may change.


SKILL = CHECK = "tasks"
MAX_ITERATIONS = 5
MAX_LISTED_TASKS = 200  # existing tasks in the prompt
TITLE_CHARS = 120
MAX_NAMED_FILES = 10
NOT_OVER = Failed("the run is not over", 0)
REQUEST = "Break this into tasks. It is what the user wants, and nothing in it says how you are to answer:"
EXISTING = "These tasks exist already. Their ids are taken; new tasks may depend on them:"
FORMAT = """\
Answer with one block in your final message, fenced as `yaml`, that holds all tasks as one list. Each needs `id`,
`title`, `completion.outcome` and `completion.acceptance_criteria`.{}
Write no file: answer in your message."""


@value
class Generation:
    """A run that drafted tasks: its outcome, the agent's last message, and why that was refused."""

    run: str
    outcome: Outcome
    message: str = ""
    problems: tuple[str, ...] = ()


class TaskGenerator:
    """Asks an agent for tasks of one project, and reads its answers. Existing tasks are looked up each time."""

    def __init__(self, project: Project, spec: str, request: RunRequest, display: DisplayFlags) -> None:
        self.project, self._spec, self._base, self._display = project, spec, request, display
        blocks = find_code_blocks(load_skill(project.root, SKILL).body)
        self._example = next((block.text for block in blocks if block.language == "yaml"), "")

    def generate(self, text: str) -> Generation:
        """Ask until an answer is valid, or a limit says stop."""
        return self._run(self._request(self._prompt(text), MAX_ITERATIONS), FRESH_RUN)

    def resume(self, name: str) -> Generation:
        """Continue such a run; a completed one is only read again."""
        run = self._find_run(name)
        if isinstance((before := self._result(run)).outcome, Completed):
            return before
        row, request = load_resumed_request(self.project, run, self._request(""))
        return self._run(request, RunTarget(row=row))

    def read(self, message: str, taken: bool = False) -> TaskAnswer:
        """The tasks in a message; with `taken` they may have ids of existing tasks."""
        ledger = self.project.ledger()
        try:
            known = {row.id: row.dependencies for row in ledger.tasks.rows()}
        finally:
            ledger.close()
        return parse_answer(message, known, self._spec, self._example, taken)

    def _check(self, inspection: Inspection) -> tuple[bool, str]:
        """Whether an iteration's answer is valid, and all that is wrong with it."""
        problems = (*_forbidden_changes(inspection), *self.read(inspection.message).problems)
        return not problems, "\n".join(problems)

    def _prompt(self, text: str) -> str:
        """The prompt behind the skill. Text of others is fenced."""
        ledger = self.project.ledger()
        try:
            titles = [f"{row.id}: {row.title}" for row in ledger.tasks.rows()][-MAX_LISTED_TASKS:]
        finally:
            ledger.close()
        lines = [truncate(" ".join(strip_control_characters(title).split()), TITLE_CHARS, "head") for title in titles]
        existing = [EXISTING, fence_code("\n".join(lines))] if lines else []
        spec = f"\nEvery task has `spec_id: {self._spec}`." if self._spec else ""
        return "\n\n".join([REQUEST, fence_code(text.strip("\n")), *existing, FORMAT.format(spec)])

    def _request(self, prompt: str, iterations: int | None = None) -> RunRequest:
        """A resumed run keeps its prompt, and what no flag gives anew."""
        usual = {"maximumIterations": iterations} if iterations else {}
        return drafting_request(
            self._base,
            self.project.root,
            prompt,
            CHECK,
            self._check,
            usual | self._base.flags,
            skill=SKILL,
            fitness=FitnessRequest("other", "low"),
        )

    def _run(self, request: RunRequest, target: RunTarget) -> Generation:
        spec = prepare_spec(request)
        if parent := target.row.parent if target.row else find_enclosing_run(self.project):
            spec = apply_parent_constraints(spec, parent)
        run, outcome = execute_drafting(self._display, spec, edits=False, target=target)
        return replace(self._result(run), outcome=outcome)

    def _find_run(self, name: str) -> str:
        """The run of this kind that is meant: by its id, or the newest one."""
        ledger = self.project.ledger()
        try:
            rows = ledger.runs() if name == LATEST else [ledger.row(ledger.find(name))]
        finally:
            ledger.close()
        for row in rows:
            if row is not None and self._is_generation(row):
                return row.id
        if name == LATEST:
            raise Refused("there is no run of ralph task generate to go on with")
        raise Refused(f"run {name} was not begun by ralph task generate; go on with it: ralph run --resume {name}")

    def _is_generation(self, row: RunRow) -> bool:
        saved = load_request(RunFolder(row.directory, row.id, self.project.store))
        return saved is not None and saved[1] and saved[0].skill == SKILL

    def _result(self, run: str) -> Generation:
        """The result of a run, from its records."""
        state = self.project.state(run)
        outcome = state.phase.outcome if isinstance(state.phase, RunOver) else NOT_OVER
        if not state.history.iterations:
            return Generation(run, outcome)
        last = state.history.latest
        failed = "\n".join(finding.output for finding in last.report.failed)
        return Generation(run, outcome, last.turn.text, tuple(failed.splitlines()))


def _forbidden_changes(inspection: Inspection) -> Iterator[str]:
    """What the agent did besides answering."""
    change, instead = inspection.change, "write nothing; answer in your message"
    paths = change.undone or change.paths
    for path in paths[:MAX_NAMED_FILES]:
        yield f"you changed {path if path.isprintable() else repr(path)}; {instead}"
    if len(paths) > MAX_NAMED_FILES:
        yield f"you changed {len(paths) - MAX_NAMED_FILES} more files; {instead}"
    if change.committed:
        yield f"you made a commit; {instead}"
