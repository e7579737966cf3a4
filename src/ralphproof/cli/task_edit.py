"""`ralph task create`, `followup` and `edit`, with the flags that describe a task."""

from __future__ import annotations

import argparse
import os

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.cli.parser import Parser, positive_int
from ralphproof.display.output import print_json, print_lines
from ralphproof.engine.claim import strip_claim_tags
from ralphproof.engine.plan import EXTERNAL
from ralphproof.runs.open_project import open_project
from ralphproof.settings.schema import PIPELINE_STAGES
from ralphproof.store.project import Project
from ralphproof.store.tasks import MAX_INTEGER, SETTABLE_STATUSES
from ralphproof.tasks.draft import TaskDraft, draft_warnings, validate_dependencies
from ralphproof.tasks.store import (
    add_tasks,
    changed_fields,
    default_promises,
    draft_from_row,
    refuse_active_task,
    require_task,
    row_from_draft,
    secret_warnings,
    validate_draft_with_plugins,
)
from ralphproof.views.tasks import TaskView

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable
    from typing import Any

    from ralphproof.base.value import Json
    from ralphproof.store.sqlite_ledger import SqliteLedger


# The flags that describe a task: what it is, and for each stage what done means.


STAGE_FLAGS = (
    "promise", "description", "verify", "verify_cmd", "verify_config", "verify_template", "with", "max_iterations",
)  # fmt: skip


def add_task_flags(parser: Parser) -> None:
    """What a task is."""
    add = parser.add_argument
    add("--outcome", metavar="TEXT", help="one sentence: what is true when it is done, so that it can be measured")
    add("--acceptance", action="append", metavar="TEXT", help="a requirement that can be checked; repeatable")
    add("--description", metavar="TEXT", help="what somebody must know who works on it")
    add("--priority", type=_bounded_int, metavar="N", help="a lower number is worked on first (default: 0)")
    add("--depends-on", action="append", metavar="ID", help="a task that must be done before; repeatable")
    add("--assignee", metavar="NAME", help="whose it is")
    add("--metadata", action="append", metavar="KEY=VALUE", help="whatever else you want kept with it; repeatable")


def add_stage_flags(parser: Parser) -> None:
    """What done means for each stage. The flags of the first one stand in the help for those of all."""
    named = f"{', '.join(PIPELINE_STAGES[1:-1])} and {PIPELINE_STAGES[-1]}"
    group = parser.add_argument_group(
        "what done means for each stage", f"The same with {named} instead of {PIPELINE_STAGES[0]}."
    )
    for stage in PIPELINE_STAGES:

        def add(name: str, help: str, first: bool = stage == PIPELINE_STAGES[0], of: str = stage, **more: Any) -> None:
            group.add_argument(f"--{of}-{name}", help=help if first else argparse.SUPPRESS, **more)

        add("promise", "the word that claims it (default: that of the settings)", metavar="WORD")
        add("description", "what it must achieve", metavar="TEXT")
        add("verify", "string_match, external, semantic, multi_stage, or one that you installed", metavar="METHOD")
        add("verify-cmd", "a command that must succeed; alone it means external", metavar="CMD")
        add("verify-config", "what the method needs to know, as a JSON object", metavar="JSON")
        add("verify-template", "a ready-made way; see ralph task templates", metavar="NAME")
        add("with", "a parameter of the template; repeatable", action="append", metavar="KEY=VALUE")
        add("max-iterations", "how often it may be tried", type=positive_int, metavar="N")


def _bounded_int(text: str) -> int:
    """A whole number that is not beyond all bounds."""
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 16 and abs(int(text)) <= MAX_INTEGER):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def parse_pairs(flag: str, given: list[str] | None, problems: list[str]) -> dict[str, str]:
    """KEY=VALUE, several times. What is none of these is a problem."""
    made: dict[str, str] = {}
    for text in given or ():
        key, equals, inner = text.partition("=")
        if not equals or not key:
            problems.append(f"{flag} {text!r} is no KEY=VALUE")
        made[key] = inner
    return made


def completion_from_flags(
    args: Namespace, before: dict[str, Any], promise: Callable[[str], str], problems: list[str]
) -> dict[str, Any]:
    """A completion spec with what the command line says of it in place of what was there before."""
    made = dict(before)
    if args.outcome is not None:
        made["outcome"] = args.outcome
    if args.acceptance is not None:
        made["acceptance_criteria"] = [text for text in args.acceptance if text]
    for stage in PIPELINE_STAGES:
        given = {what: vars(args)[f"{stage}_{what}"] for what in STAGE_FLAGS}
        if said := {what: text for what, text in given.items() if text is not None}:
            old = made.get(stage)
            made[stage] = _stage_criteria(stage, said, old if isinstance(old, dict) else {}, promise, problems)
    return made


def _stage_criteria(
    stage: str, said: dict[str, Any], before: dict[str, Any], promise: Callable[[str], str], problems: list[str]
) -> dict[str, Any]:
    made: dict[str, Any] = {**before}
    made |= {what: said[what] for what in ("promise", "description", "max_iterations") if what in said}
    made["promise"] = strip_claim_tags(str(made.get("promise") or promise(stage)))
    method, config = _verify_method(stage, said, before, problems)
    if method:
        made = {name: inner for name, inner in made.items() if name not in ("verification_template", "with")}
        made |= {"verification_method": method, "verification_config": config}
    return made


def _verify_method(
    stage: str, said: dict[str, Any], before: dict[str, Any], problems: list[str]
) -> tuple[str, dict[str, Any]]:
    """Method and config."""
    told = _parse_config(stage, said, problems)
    told |= {"command": said["verify_cmd"]} if "verify_cmd" in said else {}
    by_template = "verify_template" in said or "with" in said
    method, config = _template_method(stage, said, problems) if by_template else _method_with_previous(said, before)
    if "verify_cmd" in said and method not in ("", EXTERNAL):
        problems.append(f"--{stage}-verify-cmd is for {EXTERNAL}, not for {method}")
    if told and not method and not by_template:
        problems.append(f"--{stage}-verify-config says nothing without a method: add --{stage}-verify METHOD")
    return method, {**config, **told}


def _method_with_previous(said: dict[str, Any], before: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The method that is meant; where it stays the same, what it was told before stays too."""
    old, config = str(before.get("verification_method") or ""), before.get("verification_config")
    method = said.get("verify") or (EXTERNAL if "verify_cmd" in said else old)
    return method, dict(config) if method == old and isinstance(config, dict) else {}


def _template_method(stage: str, said: dict[str, Any], problems: list[str]) -> tuple[str, dict[str, Any]]:
    if "verify_template" not in said:
        problems.append(f"--{stage}-with goes with --{stage}-verify-template")
        return "", {}
    from ralphproof.settings.verification_templates import expand_template

    name = said["verify_template"]
    try:
        method, config = expand_template(name, _template_arguments(name, stage, said.get("with"), problems))
    except Refused as error:
        problems += [f"--{stage}-verify-template: {line}" for line in str(error).splitlines()]
        return "", {}
    if said.get("verify", method) != method:
        problems.append(f"--{stage}-verify-template {name} is {method}, not {said['verify']}")
    return method, dict(config)


def _template_arguments(name: str, stage: str, given: list[str] | None, problems: list[str]) -> dict[str, Any]:
    """What a template is told, as its parameters want it: numbers, texts, or lists of them."""
    from ralphproof.settings.verification_templates import list_templates

    kinds = {
        one.name: one.kind for template in list_templates() if template.name == name for one in template.parameters
    }
    flag = f"--{stage}-with"
    made: dict[str, Any] = {}
    for key, text in (pair for one in given or () for pair in parse_pairs(flag, [one], problems).items()):
        match kinds.get(key):
            case "percent" | "status" | "seconds":
                made[key] = _parse_number(text)
            case "texts" | "paths":
                made[key] = [*made.get(key, []), text]
            case _:
                made[key] = text
    return made


def _parse_number(text: str) -> int | float | str:
    """A number, where it is one."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def _parse_config(stage: str, said: dict[str, Any], problems: list[str]) -> dict[str, Any]:
    if "verify_config" not in said:
        return {}
    import json

    try:
        found = json.loads(said["verify_config"])
    except (ValueError, RecursionError) as error:
        problems.append(f"--{stage}-verify-config is no JSON: {error}")
        return {}
    if not isinstance(found, dict):
        problems.append(f"--{stage}-verify-config is no JSON object")
    return found if isinstance(found, dict) else {}


CREATE_ABOUT = """make a task, with what done means for it.

An outcome and at least one acceptance criterion are needed. For each stage you may say which word claims it and how
that is verified: --coder-promise and the flags after it are there for reviewer, tester and qa too. Where you say
nothing, coder and tester are verified by the repository's guardrails, the reviewer by a model that judges the
acceptance criteria, qa by both. Either the task is made as you wrote it, or everything that is wrong with it is said,
and nothing is kept (exit code 2)."""
CREATE_EXAMPLES = (
    'ralph task create TASK-001 auth "Implement JWT auth" --outcome "All endpoints require a valid token" \\',
    '    --acceptance "Login returns a token" --acceptance "Invalid tokens return 401" \\',
    "    --coder-promise AUTH_IMPLEMENTED --coder-verify external --coder-verify-cmd \"grep -r 'jwt.verify' src/\" \\",
    '    --tester-verify-cmd "pytest tests/test_auth.py"',
    'ralph task create T-2 auth "Rotate keys" --outcome "Keys rotate daily" --acceptance "Old keys expire" \\',
    "    --depends-on TASK-001 --priority 2 --qa-verify-template pytest",
)


def create_parser() -> Parser:
    parser = Parser("task create", CREATE_ABOUT, CREATE_EXAMPLES)
    parser.add_argument("id", metavar="ID", help="its name, unlike that of any other task")
    parser.add_argument("spec", metavar="SPEC", help="the spec or feature that it belongs to")
    parser.add_argument("title", metavar="TITLE", help="a few words")
    add_task_flags(parser)
    add_stage_flags(parser)
    return parser


def create_main(argv: list[str]) -> int:
    args = create_parser().parse(argv)
    project = open_project(args.project_dir, os.environ)
    problems: list[str] = []
    return save_new_task(project, draft_from_flags(args, args.spec, project, problems), problems, args.json)


def draft_from_flags(args: Namespace, spec: str, project: Project, problems: list[str]) -> TaskDraft:
    """The task that the command line describes; what is wrong with the flags is added to the problems."""
    completion = completion_from_flags(args, {}, default_promises(project.root), problems)
    metadata: dict[str, Json] = {**parse_pairs("--metadata", args.metadata, problems)}
    return TaskDraft(
        args.id, spec, args.title, args.description or "", args.priority or 0, tuple(args.depends_on or ()), "todo",
        args.assignee or "", metadata, completion,
    )  # fmt: skip


def save_new_task(project: Project, draft: TaskDraft, problems: list[str], for_programs: bool) -> int:
    """Keep one new task, or raise Refused with all that is wrong with it; the exit code."""
    ledger = project.ledger(read_only=False)
    try:
        add_tasks(ledger, (draft,), [*problems, *validate_draft_with_plugins(draft)])
        row = ledger.tasks.row(draft.id)
        assert row is not None, "it was kept just now"
        view = TaskView.of(ledger, row, project)
    finally:
        ledger.close()
    told = [*draft_warnings(draft), *secret_warnings((draft,), project)]
    if for_programs:
        print_json("task", {**view.published(), "remarks": [*told]})
    else:
        print_lines(
            f"task {draft.id} is kept; work on it: ralph work {draft.id}", *(f"note: {remark}" for remark in told)
        )
    return 0


EDIT_ABOUT = """change a task, or say how it stands.

What a flag says takes the place of what was there: --acceptance and --depends-on give the whole list anew (one empty
text empties it), --metadata KEY=VALUE sets one entry and KEY= takes it out, a stage keeps what is not said anew.
--status todo opens a task again that has failed or is done. A task that a run works on cannot be changed, and no agent
changes a task."""
EDIT_EXAMPLES = (
    "ralph task edit TASK-001 --priority 1 --acceptance 'Login returns a token' --acceptance 'Logout works'",
    "ralph task edit TASK-001 --tester-verify-cmd 'pytest tests/auth' --clear-qa",
    "ralph task edit TASK-001 --status todo",
)


def edit_parser() -> Parser:
    parser = Parser("task edit", EDIT_ABOUT, EDIT_EXAMPLES)
    parser.add_argument("id", metavar="ID", help="the task")
    parser.add_argument("--title", metavar="TEXT", help="a few words")
    parser.add_argument("--spec", metavar="SPEC", help="the spec or feature that it belongs to")
    parser.add_argument(
        "--status",
        choices=SETTABLE_STATUSES,
        metavar="S",
        help=f"how it stands, by your word: {', '.join(SETTABLE_STATUSES)}",
    )
    add_task_flags(parser)
    for stage in PIPELINE_STAGES:
        help = f"drop what it says of the {stage}; flags of that stage beside it begin anew"
        parser.add_argument(f"--clear-{stage}", action="store_true", help=help)
    add_stage_flags(parser)
    return parser


def edit_main(argv: list[str]) -> int:
    args = edit_parser().parse(argv)
    project = open_project(args.project_dir, os.environ)
    ledger = project.ledger(read_only=False)
    try:
        draft, names = ledger.tasks.together(lambda: _edit_task(ledger, project, args))
        view = TaskView.of(ledger, require_task(ledger, args.id), project)
    finally:
        ledger.close()
    told = [*draft_warnings(draft), *secret_warnings((draft,), project)]
    if args.json:
        print_json("task", {**view.published(), "changed": [*names], "remarks": [*told]})
    else:
        print_lines(f"task {draft.id} is changed: {', '.join(names)}", *(f"note: {remark}" for remark in told))
    return 0


def _edit_task(ledger: SqliteLedger, project: Project, args: Namespace) -> tuple[TaskDraft, tuple[str, ...]]:
    """Change the task, or raise Refused with all that the change would break; what it is now, and what has changed.

    What was wrong before is no reason to refuse: rows of older versions have no completion spec at all.
    """
    row, problems = require_task(ledger, args.id), list[str]()
    refuse_active_task(ledger, project, row.id)
    before, _ = draft_from_row(row)
    after = _changed_draft(before, args, project, problems)
    known = {other.id: other.dependencies for other in ledger.tasks.rows()}
    old = {*validate_draft_with_plugins(before), *validate_dependencies((before,), known)}
    problems += [
        fault
        for fault in (*validate_draft_with_plugins(after), *validate_dependencies((after,), known))
        if fault not in old
    ]
    if problems:
        raise Refused("\n".join(problems))
    fields = changed_fields(row_from_draft(before), row_from_draft(after)) | (
        {"status": args.status} if args.status else {}
    )
    if not fields:
        raise Refused("nothing is to be changed; say what by flags (see ralph task edit --help)")
    ledger.tasks.change(row.id, fields)
    return after, tuple(fields)


def _changed_draft(before: TaskDraft, args: Namespace, project: Project, problems: list[str]) -> TaskDraft:
    cleared = [stage for stage in PIPELINE_STAGES if vars(args)[f"clear_{stage}"]]
    old = {name: inner for name, inner in (before.completion or {}).items() if name not in cleared}
    completion = completion_from_flags(args, old, default_promises(project.root), problems)
    given = {
        "title": args.title, "spec_id": args.spec, "description": args.description, "priority": args.priority,
        "assignee": args.assignee,
    }  # fmt: skip
    said = {name: text for name, text in given.items() if text is not None}
    if args.depends_on is not None:
        said["dependencies"] = tuple(id for id in args.depends_on if id)
    if args.metadata is not None:
        entries = {**before.metadata, **parse_pairs("--metadata", args.metadata, problems)}
        said["metadata"] = {key: text for key, text in entries.items() if text != ""}
    if completion != (before.completion or {}):
        said["completion"] = completion
    return replace(before, **said)


FOLLOWUP_ABOUT = """make a task that comes after another one.

It depends on that one, belongs to the same spec, and remembers it as followup_of. Everything else is as with ralph task
create: an outcome and at least one acceptance criterion are needed."""
FOLLOWUP_EXAMPLES = (
    'ralph task followup TASK-001 TASK-002 "Rotate the signing keys" --outcome "Keys rotate daily" \\',
    '    --acceptance "Tokens of the old key are refused after a day"',
)


def followup_parser() -> Parser:
    parser = Parser("task followup", FOLLOWUP_ABOUT, FOLLOWUP_EXAMPLES)
    parser.add_argument("parent", metavar="PARENT", help="the task that it comes after")
    parser.add_argument("id", metavar="ID", help="its name, unlike that of any other task")
    parser.add_argument("title", metavar="TITLE", help="a few words")
    add_task_flags(parser)
    add_stage_flags(parser)
    return parser


def followup_main(argv: list[str]) -> int:
    args = followup_parser().parse(argv)
    project = open_project(args.project_dir, os.environ)
    ledger = project.ledger()
    try:
        parent = require_task(ledger, args.parent)
    finally:
        ledger.close()
    problems: list[str] = []
    draft = draft_from_flags(args, parent.spec_id, project, problems)
    dependencies = tuple(dict.fromkeys((parent.id, *draft.dependencies)))
    metadata = {**draft.metadata, "followup_of": parent.id}
    return save_new_task(project, replace(draft, dependencies=dependencies, metadata=metadata), problems, args.json)
