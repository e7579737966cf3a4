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
from ralphproof.settings.keys import PIPELINE_STAGES
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
    from ralphproof.store.ledger import SqliteLedger


STAGE_FLAGS = (
    "promise", "description", "verify", "verify_cmd", "verify_config", "verify_template", "with", "max_iterations",
)  # fmt: skip


def add_task_flags(parser: Parser) -> None:
    """Add the flags that describe a task."""
    add = parser.add_argument
    add("--outcome", metavar="TEXT", help="one measurable sentence: what is true when the task is done")
    add("--acceptance", action="append", metavar="TEXT", help="requirement that can be checked; repeatable")
    add("--description", metavar="TEXT", help="background for whoever works on the task")
    add("--priority", type=_bounded_int, metavar="N", help="lower numbers come first (default: 0)")
    add("--depends-on", action="append", metavar="ID", help="task that must be done before; repeatable")
    add("--assignee", metavar="NAME", help="name of the assignee")
    add("--metadata", action="append", metavar="KEY=VALUE", help="additional data; repeatable")


def add_stage_flags(parser: Parser) -> None:
    """Add the criteria flags of each stage; the help shows only those of the first stage."""
    named = f"{', '.join(PIPELINE_STAGES[1:-1])} and {PIPELINE_STAGES[-1]}"
    group = parser.add_argument_group(
        "completion criteria of each stage", f"The same flags exist with {named} instead of {PIPELINE_STAGES[0]}."
    )
    for stage in PIPELINE_STAGES:

        def add(name: str, help: str, first: bool = stage == PIPELINE_STAGES[0], of: str = stage, **more: Any) -> None:
            group.add_argument(f"--{of}-{name}", help=help if first else argparse.SUPPRESS, **more)

        add("promise", "word that claims completion (default: that of the settings)", metavar="WORD")
        add("description", "what the stage must achieve", metavar="TEXT")
        add("verify", "string_match, external, semantic, multi_stage, or an installed plugin", metavar="METHOD")
        add("verify-cmd", "command that must succeed; implies external", metavar="CMD")
        add("verify-config", "configuration of the method, a JSON object", metavar="JSON")
        add("verify-template", "verification template; see ralph task templates", metavar="NAME")
        add("with", "template parameter; repeatable", action="append", metavar="KEY=VALUE")
        add("max-iterations", "most tries", type=positive_int, metavar="N")


def _bounded_int(text: str) -> int:
    """A whole number within the bounds of the store."""
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 16 and abs(int(text)) <= MAX_INTEGER):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def parse_pairs(flag: str, texts: list[str] | None, problems: list[str]) -> dict[str, str]:
    """Parse KEY=VALUE texts; invalid ones are added to the problems."""
    pairs: dict[str, str] = {}
    for text in texts or ():
        key, equals, text_value = text.partition("=")
        if not equals or not key:
            problems.append(f"{flag} {text!r} is not KEY=VALUE")
        pairs[key] = text_value
    return pairs


def completion_from_flags(
    args: Namespace, before: dict[str, Any], promise: Callable[[str], str], problems: list[str]
) -> dict[str, Any]:
    """The completion spec `before`, updated by the flags."""
    completion = dict(before)
    if args.outcome is not None:
        completion["outcome"] = args.outcome
    if args.acceptance is not None:
        completion["acceptance_criteria"] = [text for text in args.acceptance if text]
    for stage in PIPELINE_STAGES:
        stage_flags = {what: vars(args)[f"{stage}_{what}"] for what in STAGE_FLAGS}
        if flags := {what: text for what, text in stage_flags.items() if text is not None}:
            old = completion.get(stage)
            completion[stage] = _stage_criteria(stage, flags, old if isinstance(old, dict) else {}, promise, problems)
    return completion


def _stage_criteria(
    stage: str, flags: dict[str, Any], before: dict[str, Any], promise: Callable[[str], str], problems: list[str]
) -> dict[str, Any]:
    criteria: dict[str, Any] = {**before}
    criteria |= {what: flags[what] for what in ("promise", "description", "max_iterations") if what in flags}
    criteria["promise"] = strip_claim_tags(str(criteria.get("promise") or promise(stage)))
    method, config = _verify_method(stage, flags, before, problems)
    if method:
        criteria = {name: inner for name, inner in criteria.items() if name not in ("verification_template", "with")}
        criteria |= {"verification_method": method, "verification_config": config}
    return criteria


def _verify_method(
    stage: str, flags: dict[str, Any], before: dict[str, Any], problems: list[str]
) -> tuple[str, dict[str, Any]]:
    """Verification method and its configuration."""
    extra = _parse_config(stage, flags, problems)
    extra |= {"command": flags["verify_cmd"]} if "verify_cmd" in flags else {}
    by_template = "verify_template" in flags or "with" in flags
    method, config = _template_method(stage, flags, problems) if by_template else _method_with_previous(flags, before)
    if "verify_cmd" in flags and method not in ("", EXTERNAL):
        problems.append(f"--{stage}-verify-cmd is for {EXTERNAL}, not for {method}")
    if extra and not method and not by_template:
        problems.append(f"--{stage}-verify-config needs a method: add --{stage}-verify METHOD")
    return method, {**config, **extra}


def _method_with_previous(flags: dict[str, Any], before: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The method; if it stays the same, its configuration stays too."""
    old, config = str(before.get("verification_method") or ""), before.get("verification_config")
    method = flags.get("verify") or (EXTERNAL if "verify_cmd" in flags else old)
    return method, dict(config) if method == old and isinstance(config, dict) else {}


def _template_method(stage: str, flags: dict[str, Any], problems: list[str]) -> tuple[str, dict[str, Any]]:
    if "verify_template" not in flags:
        problems.append(f"--{stage}-with needs --{stage}-verify-template")
        return "", {}
    from ralphproof.settings.verification_templates import expand_template

    name = flags["verify_template"]
    try:
        method, config = expand_template(name, _template_arguments(name, stage, flags.get("with"), problems))
    except Refused as error:
        problems += [f"--{stage}-verify-template: {line}" for line in str(error).splitlines()]
        return "", {}
    if flags.get("verify", method) != method:
        problems.append(f"--{stage}-verify-template {name} is {method}, not {flags['verify']}")
    return method, dict(config)


def _template_arguments(name: str, stage: str, texts: list[str] | None, problems: list[str]) -> dict[str, Any]:
    """The template's arguments, converted to the types of its parameters."""
    from ralphproof.settings.verification_templates import list_templates

    kinds = {
        one.name: one.kind for template in list_templates() if template.name == name for one in template.parameters
    }
    flag = f"--{stage}-with"
    arguments: dict[str, Any] = {}
    for key, text in (pair for one in texts or () for pair in parse_pairs(flag, [one], problems).items()):
        match kinds.get(key):
            case "percent" | "status" | "seconds":
                arguments[key] = _parse_number(text)
            case "texts" | "paths":
                arguments[key] = [*arguments.get(key, []), text]
            case _:
                arguments[key] = text
    return arguments


def _parse_number(text: str) -> int | float | str:
    """A number if the text is one, else the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def _parse_config(stage: str, flags: dict[str, Any], problems: list[str]) -> dict[str, Any]:
    if "verify_config" not in flags:
        return {}
    import json

    try:
        config = json.loads(flags["verify_config"])
    except (ValueError, RecursionError) as error:
        problems.append(f"--{stage}-verify-config is not JSON: {error}")
        return {}
    if not isinstance(config, dict):
        problems.append(f"--{stage}-verify-config is not a JSON object")
    return config if isinstance(config, dict) else {}


CREATE_ABOUT = """Create a task with its completion criteria.

An outcome and at least one acceptance criterion are required. For each stage you can set the word that claims
completion and how the claim is verified: --coder-promise and the flags after it also exist for reviewer, tester and
qa. By default coder and tester are verified by the repository's guardrails, the reviewer by a model that judges the
acceptance criteria, qa by both. An invalid task is refused with all its errors, and nothing is saved (exit code 2)."""
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
    parser.add_argument("id", metavar="ID", help="unique id of the new task")
    parser.add_argument("spec", metavar="SPEC", help="spec or feature that the task belongs to")
    parser.add_argument("title", metavar="TITLE", help="short title")
    add_task_flags(parser)
    add_stage_flags(parser)
    return parser


def create_main(argv: list[str]) -> int:
    args = create_parser().parse(argv)
    project = open_project(args.project_dir, os.environ)
    problems: list[str] = []
    return save_new_task(project, draft_from_flags(args, args.spec, project, problems), problems, args.json)


def draft_from_flags(args: Namespace, spec: str, project: Project, problems: list[str]) -> TaskDraft:
    """The task that the flags describe; invalid flags are added to the problems."""
    completion = completion_from_flags(args, {}, default_promises(project.root), problems)
    metadata: dict[str, Json] = {**parse_pairs("--metadata", args.metadata, problems)}
    return TaskDraft(
        args.id, spec, args.title, args.description or "", args.priority or 0, tuple(args.depends_on or ()), "todo",
        args.assignee or "", metadata, completion,
    )  # fmt: skip


def save_new_task(project: Project, draft: TaskDraft, problems: list[str], for_programs: bool) -> int:
    """Save a new task and print it; refuses an invalid one with all its errors."""
    ledger = project.ledger(read_only=False)
    try:
        add_tasks(ledger, (draft,), [*problems, *validate_draft_with_plugins(draft)])
        row = ledger.tasks.row(draft.id)
        assert row is not None, "it was just added"
        view = TaskView.of(ledger, row, project)
    finally:
        ledger.close()
    warnings = [*draft_warnings(draft), *secret_warnings((draft,), project)]
    if for_programs:
        print_json("task", {**view.published(), "remarks": [*warnings]})
    else:
        print_lines(
            f"task {draft.id} is kept; work on it: ralph work {draft.id}", *(f"note: {remark}" for remark in warnings)
        )
    return 0


EDIT_ABOUT = """Change a task or set its state.

A flag replaces the old value: --acceptance and --depends-on give the whole list (one empty text empties it),
--metadata KEY=VALUE sets one entry and KEY= removes it; a stage keeps what no flag names. --status todo reopens a
failed or done task. A task that a run works on cannot be changed, and agents cannot change tasks."""
EDIT_EXAMPLES = (
    "ralph task edit TASK-001 --priority 1 --acceptance 'Login returns a token' --acceptance 'Logout works'",
    "ralph task edit TASK-001 --tester-verify-cmd 'pytest tests/auth' --clear-qa",
    "ralph task edit TASK-001 --status todo",
)


def edit_parser() -> Parser:
    parser = Parser("task edit", EDIT_ABOUT, EDIT_EXAMPLES)
    parser.add_argument("id", metavar="ID", help="task id")
    parser.add_argument("--title", metavar="TEXT", help="short title")
    parser.add_argument("--spec", metavar="SPEC", help="spec or feature that the task belongs to")
    parser.add_argument(
        "--status",
        choices=SETTABLE_STATUSES,
        metavar="S",
        help=f"set the state: {', '.join(SETTABLE_STATUSES)}",
    )
    add_task_flags(parser)
    for stage in PIPELINE_STAGES:
        help = f"remove the criteria of the {stage}; flags of that stage then start from nothing"
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
    warnings = [*draft_warnings(draft), *secret_warnings((draft,), project)]
    if args.json:
        print_json("task", {**view.published(), "changed": [*names], "remarks": [*warnings]})
    else:
        print_lines(f"task {draft.id} is changed: {', '.join(names)}", *(f"note: {remark}" for remark in warnings))
    return 0


def _edit_task(ledger: SqliteLedger, project: Project, args: Namespace) -> tuple[TaskDraft, tuple[str, ...]]:
    """Change the task; returns it with the names of the changed fields. Refuses changes that add errors.

    Errors that existed before are no reason to refuse: rows of older versions have no completion spec.
    """
    row, problems = require_task(ledger, args.id), list[str]()
    refuse_active_task(ledger, project, row.id)
    before, _ = draft_from_row(row)
    after = _changed_draft(before, args, project, problems)
    known = {other.id: other.dependencies for other in ledger.tasks.rows()}
    known_faults = {*validate_draft_with_plugins(before), *validate_dependencies((before,), known)}
    problems += [
        fault
        for fault in (*validate_draft_with_plugins(after), *validate_dependencies((after,), known))
        if fault not in known_faults
    ]
    if problems:
        raise Refused("\n".join(problems))
    fields = changed_fields(row_from_draft(before), row_from_draft(after)) | (
        {"status": args.status} if args.status else {}
    )
    if not fields:
        raise Refused("nothing to change; use flags (see ralph task edit --help)")
    ledger.tasks.change(row.id, fields)
    return after, tuple(fields)


def _changed_draft(before: TaskDraft, args: Namespace, project: Project, problems: list[str]) -> TaskDraft:
    cleared = [stage for stage in PIPELINE_STAGES if vars(args)[f"clear_{stage}"]]
    old = {name: inner for name, inner in (before.completion or {}).items() if name not in cleared}
    completion = completion_from_flags(args, old, default_promises(project.root), problems)
    flags = {
        "title": args.title, "spec_id": args.spec, "description": args.description, "priority": args.priority,
        "assignee": args.assignee,
    }  # fmt: skip
    changes = {name: text for name, text in flags.items() if text is not None}
    if args.depends_on is not None:
        changes["dependencies"] = tuple(id for id in args.depends_on if id)
    if args.metadata is not None:
        entries = {**before.metadata, **parse_pairs("--metadata", args.metadata, problems)}
        changes["metadata"] = {key: text for key, text in entries.items() if text != ""}
    if completion != (before.completion or {}):
        changes["completion"] = completion
    return replace(before, **changes)


FOLLOWUP_ABOUT = """Create a task that depends on another one.

It belongs to the same spec, and its metadata names the other one as followup_of. Everything else is as with ralph task
create: an outcome and at least one acceptance criterion are required."""
FOLLOWUP_EXAMPLES = (
    'ralph task followup TASK-001 TASK-002 "Rotate the signing keys" --outcome "Keys rotate daily" \\',
    '    --acceptance "Tokens of the old key are refused after a day"',
)


def followup_parser() -> Parser:
    parser = Parser("task followup", FOLLOWUP_ABOUT, FOLLOWUP_EXAMPLES)
    parser.add_argument("parent", metavar="PARENT", help="task that the new one depends on")
    parser.add_argument("id", metavar="ID", help="unique id of the new task")
    parser.add_argument("title", metavar="TITLE", help="short title")
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
