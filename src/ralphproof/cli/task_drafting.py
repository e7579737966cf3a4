"""A run whose work is an answer: tasks in the agent's last message, which a check reads, and no file changed."""

from __future__ import annotations

import sys

from ralphproof.check import clip, fenced
from ralphproof.claim import ClaimRule, harmless
from ralphproof.cli.notes import kept_wish
from ralphproof.cli.run import LATEST, given, guarded
from ralphproof.cli.task_answer import Demands, TaskAnswer, answer_in, fences_in
from ralphproof.cli.to_the_end import ANEW, Which, parent_of, to_the_end
from ralphproof.errors import Refused
from ralphproof.ledgers.folder import RunFolder
from ralphproof.phase import Over
from ralphproof.run_hook import HOOKS
from ralphproof.stage import Pipeline
from ralphproof.value import TYPE_CHECKING, replace, value
from ralphproof.verdict import Completed, Failed
from ralphproof.views.project import Project

if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from ralphproof.check import Inspection
    from ralphproof.cli.begin import Begun
    from ralphproof.cli.equipment import Watching
    from ralphproof.cli.order import Order, Wish
    from ralphproof.ledgers.runs import RunRow
    from ralphproof.verdict import Outcome

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
        from ralphproof.config.skills import skill_named

        self.project, self.spec = project, spec
        shown = fences_in(skill_named(project.root, SKILL).body)
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
        wrong = (*_changed(inspection), *self.read(inspection.said).problems)
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
    lines = [clip(" ".join(harmless(f"{id}: {title}").split()), TITLE_CHARS, "head") for id, title in titles[-TOLD:]]
    known = [KNOWN, fenced("\n".join(lines))] if lines else []
    spec = f"\nEvery task has `spec_id: {reader.spec}`." if reader.spec else ""
    return "\n\n".join([ASKED, fenced(text.strip("\n")), *known, HOW.format(spec)])


def wish_of(args: Namespace, prompt: str, reader: Reader) -> Wish:
    """What the command line asks for. A run that is taken up has its prompt, and settings that were not given anew."""
    from ralphproof.checks.callable import CallableCheck
    from ralphproof.cli.order import Wish
    from ralphproof.config.brought import Brought

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
    return Wish(
        (prompt, None), {**given(flags), **fixed}, reader.project.root, guarded=guarded(args),
        hosts=tuple(args.allow_host or ()),
        allow_unknown_cost=args.allow_unknown_cost, verbose=args.verbose, skill=SKILL, type="other", risk="low",
        brought=Brought(checks=(CallableCheck(reader, CHECK),)),
    )  # fmt: skip


def drafted(args: Namespace, text: str, reader: Reader) -> Drafted:
    """Ask the agent until its answer is valid or a limit says stop. What a run came to before is not asked again."""
    from ralphproof.cli.order import prepare

    if args.resume is None:
        return _run(args, prepare(wish_of(args, prompt_of(text, reader), reader)), ANEW)
    from ralphproof.cli.resume_run import wanted

    run = _such(reader.project, args.resume)
    if isinstance((before := _came_to(reader.project, run)).outcome, Completed):
        return before
    row, wish = wanted(reader.project, run, wish_of(args, "", reader))
    return _run(args, prepare(wish), Which(row=row))


def _such(project: Project, name: str) -> str:
    """The run of this kind that is meant: by its id, or the newest one."""
    ledger = project.ledger()
    try:
        rows = ledger.runs() if name == LATEST else [ledger.row(ledger.find(name))]
    finally:
        ledger.close()
    found = next((row.id for row in rows if row is not None and _is_such(project, row)), "")
    if not found:
        raise Refused(NONE_SUCH if name == LATEST else NOT_SUCH.format(name))
    return found


def _is_such(project: Project, row: RunRow) -> bool:
    kept = kept_wish(RunFolder(row.directory, row.id, project.store))
    return kept is not None and kept[1] and kept[0].skill == SKILL


def _run(args: Namespace, order: Order, which: Which) -> Drafted:
    from ralphproof.cli.held import held
    from ralphproof.keeper.client import Keeper

    parent = which.row.parent if which.row else parent_of(order.project)
    if parent:  # before the order is made one for an answer: whoever holds it prepares it anew
        order = held(order, parent)
    order, keeper, runs = _for_an_answer(order), Keeper(), list[str]()
    try:
        outcome = to_the_end(order, keeper, _watching(args, order), lambda *end: _tell(order, runs, *end), which=which)
    finally:
        keeper.close()
    return replace(_came_to(order.project, runs[0]), outcome=outcome)


def _for_an_answer(order: Order) -> Order:
    """The same order as one stage that only looks and needs no claim: a valid answer is enough.

    Its check is asked as judges are, after a turn: before the first one there is no answer to look at.
    """
    assert order.course is not None
    stage, own = order.course.pipeline.stages[0], tuple(check.name for check in order.brought.checks)
    asked = tuple(check for check in stage.checks if check not in own)
    looks = replace(
        stage, name=STAGE, claim=ClaimRule(), checks=asked, judges=(*stage.judges, *own), edits=False, looks=True
    )
    return replace(order, course=replace(order.course, pipeline=Pipeline((looks,))))


def _watching(args: Namespace, order: Order) -> Watching:
    """People look on. Programs get one object at the end."""
    from argparse import Namespace as Flags

    from ralphproof.cli.view import observers

    flags = Flags(**{**vars(args), "json": False})
    return lambda folder, settings: observers(folder, flags, settings, order.project.mask)


def _tell(order: Order, runs: list[str], begun: Begun, outcome: Outcome) -> None:
    from ralphproof.display.clean import clean

    runs.append(begun.run)
    for trouble in begun.tell(outcome):
        print(clean(order.project.mask(trouble)), file=sys.stderr)


def _came_to(project: Project, run: str) -> Drafted:
    """What the record says of such a run."""
    state = project.state(run)
    over = state.phase.outcome if isinstance(state.phase, Over) else NOT_OVER
    if not state.history.iterations:
        return Drafted(run, over)
    last = state.history.latest
    failed = [finding.output for finding in last.report.failed]
    return Drafted(run, over, last.turn.text, tuple("\n".join(failed).splitlines()))
