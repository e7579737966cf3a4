"""Task files: parsing of YAML, JSON and the stories of a tasks.json, validation, import and export."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ralphproof.base.errors import Refused, wrap_os_error
from ralphproof.base.files import NO_SPACE_ERRNOS, replace_file
from ralphproof.base.graph import find_cycles
from ralphproof.base.standard_streams import read_stdin_bytes
from ralphproof.base.value import TYPE_CHECKING, Json, replace, value
from ralphproof.base.yaml_text import dump_yaml, parse_yaml_documents
from ralphproof.checks.methods import validate_completion
from ralphproof.engine.plan import EXTERNAL, MULTI_STAGE, SEMANTIC
from ralphproof.settings.field_rules import (
    KIB,
    any_text,
    boolean,
    choice,
    integer,
    list_of,
    show_value,
    suggest_name,
    text,
    validate_mapping,
)
from ralphproof.store.ledger import SqliteLedger
from ralphproof.store.project import Project
from ralphproof.store.tasks import CANCELLED, DONE, TODO, TaskRow
from ralphproof.tasks.draft import (
    TASK_RULES,
    TaskDraft,
    draft_to_dict,
    find_unserializable,
    task_label,
    task_without_criteria,
    validate_dependencies,
)
from ralphproof.tasks.store import (
    changed_fields,
    draft_from_row,
    refuse_active_task,
    row_from_draft,
    validate_draft_with_plugins,
)

if TYPE_CHECKING:
    from ralphproof.settings.field_rules import Rule


# Stories of a tasks.json as tasks: verify commands become checks, approved stories are done.


_NOTE_RULE = any_text(KIB * KIB, blank=True)
_STORIES_FILE_RULES: dict[str, Rule] = {
    "project": text(200, blank=True), "branchName": text(200, blank=True), "description": _NOTE_RULE,
    "verifyCommands": list_of(any_text(100 * KIB), 99), "userStories": lambda _: iter(()), "$schema": text(2000),
}  # fmt: skip
_STORY_RULES: dict[str, Rule] = {
    "id": text(200), "title": text(500), "description": _NOTE_RULE,
    "acceptanceCriteria": list_of(text(2000, lines=True), 200, least=1), "priority": integer(-(2**31), 2**31 - 1),
    "passes": boolean, "reviewStatus": choice("needs_review", "changes_requested", "approved"),
    "reviewCount": integer(0, 1_000_000), "reviewFeedback": _NOTE_RULE, "notes": _NOTE_RULE,
    "dependsOn": list_of(text(200), 1000),
}  # fmt: skip
_REVIEW_FIELDS = ("reviewStatus", "reviewCount", "reviewFeedback", "notes")
_JUDGE_STAGE = {"name": "acceptance_criteria", "method": SEMANTIC, "config": {"check_for": "{{acceptance_criteria}}"}}


def tasks_from_stories_file(document: dict[str, Any]) -> Iterator[tuple[object, tuple[str, ...]]]:
    """Each story as a task mapping, and its faults in terms of its own file."""
    if wrong := tuple(validate_mapping(document, "", _STORIES_FILE_RULES)):
        yield None, wrong
    stories = document["userStories"]
    if stories is not None and not isinstance(stories, list):
        yield None, ("userStories must be a list",)
        return
    for place, story in enumerate(stories or ()):
        faults = tuple(_story_faults(story, f"userStories[{place}]"))
        if faults and isinstance(story, dict) and isinstance(story.get("id"), str):
            yield {"id": story["id"], "title": story["id"]}, faults  # they are named by it
        else:
            yield (None, faults) if faults else (_task_from_story(story, {} if wrong else document), ())


def _story_faults(story: object, path: str) -> Iterator[str]:
    yield from validate_mapping(story, path, _STORY_RULES, ("id", "title", "acceptanceCriteria"))
    if isinstance(story, dict):
        status = story.get("reviewStatus")
        if (story.get("passes") is True and status not in (None, "approved")) or (
            status == "approved" and story.get("passes") is not True
        ):
            yield f"{path}.passes and {path}.reviewStatus disagree; only what is approved passes"


def _task_from_story(story: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    metadata = {name: story[name] for name in _REVIEW_FIELDS if story.get(name)}
    if document.get("branchName"):
        metadata["branchName"] = document["branchName"]
    description = str(story.get("description") or "").strip()
    return {
        "id": story["id"], "spec_id": document.get("project"), "title": story["title"],
        "description": story.get("description"), "priority": story.get("priority"),
        "dependencies": story.get("dependsOn"), "status": "done" if story.get("passes") else "todo",
        "metadata": metadata,
        "completion": {
            "outcome": story["title"] if list(text(2000, lines=True)(description)) else description,
            "acceptance_criteria": story["acceptanceCriteria"],
            **_stages_from_commands(document.get("verifyCommands") or []),
        },
    }  # fmt: skip


def _stages_from_commands(commands: list[str]) -> dict[str, Any]:
    """The criteria of the stages from verify commands; without any the settings decide."""
    if not commands:
        return {}
    parts = [
        {"name": f"verify_{place}", "method": EXTERNAL, "config": {"command": command}}
        for place, command in enumerate(commands, 1)
    ]
    every = "Every verify command passes"
    if len(commands) == 1:
        checked = {"verification_method": EXTERNAL, "verification_config": parts[0]["config"]}
    else:
        checked = {"verification_method": MULTI_STAGE, "verification_config": {"stages": parts}}
    both = {"verification_method": MULTI_STAGE, "verification_config": {"stages": [*parts, _JUDGE_STAGE]}}
    return {
        "coder": {"promise": "IMPLEMENTATION_COMPLETE", "description": every, **checked},
        "tester": {"promise": "TESTS_PASSED", "description": every, **checked},
        "qa": {"promise": "QA_PASSED", "description": f"{every}, and every acceptance criterion is met", **both},
    }


# Parsing of one task, a list, or the stories of a tasks.json.


_OTHER_NAMES = {"spec": "spec_id", "depends_on": "dependencies", "completion_spec": "completion"}
_IGNORED_FIELDS = ("created_at", "updated_at", "iteration")  # what others keep of a task; ours is in its records


@value
class ParsedTask:
    """One task of a file. With invalid fields there is no draft, and `problems` has everything that is wrong.

    The completion of a draft is validated by `validate_draft`.
    """

    draft: TaskDraft | None
    name: str
    problems: tuple[str, ...] = ()


def parse_tasks(data: bytes, name: str) -> tuple[ParsedTask, ...]:
    """The tasks of a file, YAML or JSON; none where it is empty. Raises Refused where the text cannot be parsed."""
    tasks: list[ParsedTask] = []
    for document in parse_yaml_documents(data, name):
        for raw, item_problems in _split_document(document):
            place = name if raw is None and item_problems else f"task {len(tasks) + 1}"
            tasks.append(_parse_task(raw, item_problems, place))
    return tuple(tasks)


def _split_document(document: object) -> Iterator[tuple[object, tuple[str, ...]]]:
    """Each task as written, and faults around it."""
    if isinstance(document, dict) and "userStories" in document:
        yield from tasks_from_stories_file(document)
    elif isinstance(document, dict) and ("task" in document or "tasks" in document):
        key = "task" if "task" in document else "tasks"
        yield from ((None, (line,)) for line in _unknown_keys(document, key))
        yield from _split_document(document[key]) if key == "task" else _list_items(document[key])
    elif isinstance(document, list):
        yield from _list_items(document)
    elif document is not None:
        yield document, ()


def _list_items(document: object) -> Iterator[tuple[object, tuple[str, ...]]]:
    if isinstance(document, list):
        yield from ((raw, ()) for raw in document)
    elif document is not None:
        yield None, (f"tasks must be a list, not {show_value(document)}",)


def _unknown_keys(document: dict[str, object], key: str) -> Iterator[str]:
    for other in document:
        if other != key:
            yield f"unknown key {show_value(other)[1:-1]} beside {key}{suggest_name(other, (key,))}"


def _parse_task(raw: object, earlier_problems: tuple[str, ...], place: str) -> ParsedTask:
    if not isinstance(raw, dict):
        problems = earlier_problems or (f"must be a mapping with id, title and completion, not {show_value(raw)}",)
        return ParsedTask(None, place, tuple(f"{place}: {line}" for line in problems))
    fields, doubled = _rename_fields(raw)
    name = task_label(fields.get("id"), place)
    problems = (
        *earlier_problems,
        *doubled,
        *validate_mapping(fields, "", TASK_RULES, ("id", "title")),
        *find_unserializable(fields, ""),
    )
    if not problems:
        return ParsedTask(_make_draft(fields), name)
    completion = fields.get("completion")
    if isinstance(completion, dict):  # all at once; which methods plug-ins bring is not known here
        problems += tuple(
            validate_completion(completion, task_without_criteria(TaskDraft("", completion=completion)), lambda _: True)
        )
    return ParsedTask(None, name, tuple(f"{name}: {line}" for line in dict.fromkeys(problems)))


def _rename_fields(raw: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Fields by their canonical names, and conflicts between two names of one field."""
    fields: dict[str, Any] = {}
    wrong: list[str] = []
    for name, inner in raw.items():
        own = _OTHER_NAMES.get(name, name)
        if fields.get(own) is not None and inner is not None and fields[own] != inner:
            other = next(other for other, one in _OTHER_NAMES.items() if one == own)
            wrong.append(f"{own} and {other} differ; give one")
        if fields.get(own) is None:
            fields[own] = inner
    ignored = {name: fields.pop(name) for name in _IGNORED_FIELDS if name in fields}
    ignored = {name: inner for name, inner in ignored.items() if inner is not None}
    if ignored and isinstance(fields.get("metadata") or {}, dict):
        fields["metadata"] = {**ignored, **(fields.get("metadata") or {})}
    return fields, tuple(wrong)


def _make_draft(fields: dict[str, Any]) -> TaskDraft:
    present = {name: inner for name, inner in fields.items() if inner is not None}
    return TaskDraft(**{**present, "dependencies": tuple(present.get("dependencies", ()))})


# Writing, in the order in which people write the keys.


_KEY_ORDER = (
    "outcome", "acceptance_criteria", "coder", "reviewer", "tester", "qa",
    "promise", "name", "description", "verification_template", "template", "with", "verification_method", "method",
    "verification_config", "config", "max_iterations", "required", "depends_on",
    "command", "success_exit_code", "output_contains", "output_not_contains", "timeout", "working_dir",
    "check_for", "negative_patterns", "model", "agent", "max_cost_usd", "require_all", "parallel", "stages",
)  # fmt: skip
_KEY_RANK = {name: place for place, name in enumerate(_KEY_ORDER)}


def write_yaml(drafts: tuple[TaskDraft, ...], shape: str) -> str:
    """The tasks as YAML: in the shape "task" each a document under `task:`, in the shape "list" one list."""
    tasks: list[Json] = [_order_task(draft) for draft in drafts]
    if shape == "list":
        return dump_yaml(tasks)
    return "---\n".join(dump_yaml({"task": task}) for task in tasks)


def _order_task(draft: TaskDraft) -> dict[str, Json]:
    data = draft_to_dict(draft)
    return {name: _sort_keys(inner) if name == "completion" else inner for name, inner in data.items()}


def _sort_keys(data: Json) -> Json:
    if isinstance(data, list):
        return [_sort_keys(inner) for inner in data]
    if isinstance(data, dict):
        return {
            name: _sort_keys(data[name]) for name in sorted(data, key=lambda name: _KEY_RANK.get(name, len(_KEY_RANK)))
        }
    return data


# Reading and validating files.


STDIN = "-"
MAX_FILE_BYTES = 64 << 20


@value
class ValidatedTasks:
    """Valid tasks of some files, and everything that is wrong with the others."""

    good: tuple[TaskDraft, ...]
    problems: tuple[str, ...]


@value
class TaskFileEntry:
    """A task of a file."""

    file: str
    reading: ParsedTask


def read_task_files(names: Iterable[str]) -> tuple[TaskFileEntry, ...]:
    """All tasks in these files; - is standard input. Raises Refused for a file that cannot be read."""
    return tuple(entry for name in names for entry in _read_task_file(name))


def _read_task_file(name: str) -> tuple[TaskFileEntry, ...]:
    shown = "standard input" if name == STDIN else name
    too_much = f"{shown} has more than {MAX_FILE_BYTES >> 20} MiB; tasks of this size are a mistake"
    if name == STDIN:
        data = read_stdin_bytes(STDIN, MAX_FILE_BYTES, too_much)
    else:
        try:
            with open(name, "rb") as source:
                data = source.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise Refused(f"cannot read {shown}: {error.strerror or error}") from error
    if len(data) > MAX_FILE_BYTES:
        raise Refused(too_much)
    return tuple(TaskFileEntry(shown, reading) for reading in parse_tasks(data, shown))


def validate_entries(
    entries: tuple[TaskFileEntry, ...], known: Mapping[str, tuple[str, ...]], update: bool
) -> ValidatedTasks:
    """Separate valid tasks from invalid ones. A task that depends on an invalid one is invalid. With `update` known
    tasks may come again.
    """
    problems: list[str] = []
    good: dict[str, TaskDraft] = {}
    ids = _count_ids(entries)
    for entry in entries:
        draft, wrong = entry.reading.draft, list(entry.reading.problems)
        if draft:
            wrong += validate_draft_with_plugins(draft)
            wrong += [f"{draft.id}: the id is given {ids[draft.id]} times"] if ids[draft.id] > 1 else []
            taken = draft.id in known and not update
            wrong += [f"{draft.id}: there is a task of this id already; --update changes it"] if taken else []
        problems += [f"{entry.file}: {line}" for line in dict.fromkeys(wrong)]
        if draft and not wrong:
            good[draft.id] = draft
    while lost := _broken_dependencies(good, known, ids):
        problems += [line for lines in lost.values() for line in lines]
        for id in lost:
            del good[id]
    return ValidatedTasks(tuple(good.values()), tuple(problems))


def _count_ids(entries: tuple[TaskFileEntry, ...]) -> dict[str, int]:
    """How often each id is given."""
    counts: dict[str, int] = {}
    for draft in (entry.reading.draft for entry in entries):
        if draft:
            counts[draft.id] = counts.get(draft.id, 0) + 1
    return counts


def _broken_dependencies(
    good: dict[str, TaskDraft], known: Mapping[str, tuple[str, ...]], given: Mapping[str, int]
) -> dict[str, list[str]]:  # fmt: skip
    """Tasks with unknown dependencies or in a cycle, and the faults of each."""
    names = {*known, *good}
    lost = [draft for draft in good.values() if not names.issuperset(draft.dependencies)]
    if lost:
        every = dict.fromkeys((*names, *given), ())
        return {
            draft.id: [*_dependency_faults(draft, names, given), *validate_dependencies((draft,), every)]
            for draft in lost
        }
    edges = {**known, **{id: draft.dependencies for id, draft in good.items()}}
    around = {id: circle for circle in find_cycles(edges) for id in circle if id in good}
    return {id: [f"{id}: dependencies go in a circle: {' -> '.join(circle)}"] for id, circle in around.items()}


def _dependency_faults(draft: TaskDraft, names: set[str], given: Mapping[str, int]) -> list[str]:
    bad = [id for id in dict.fromkeys(draft.dependencies) if id in given and id not in names]
    return [f"{draft.id}: it depends on {id}, which is not valid" for id in bad]


def validate_files(ledger: SqliteLedger, entries: tuple[TaskFileEntry, ...]) -> tuple[list[TaskDraft], list[str]]:
    """The readable tasks of files, and all errors."""
    known = {row.id: row.dependencies for row in ledger.tasks.rows()}
    drafts = [entry.reading.draft for entry in entries if entry.reading.draft]
    return drafts, list(validate_entries(entries, known, update=True).problems)


def validate_recorded(ledger: SqliteLedger) -> tuple[list[TaskDraft], list[str]]:
    """The recorded tasks, and all errors in them."""
    drafts: list[TaskDraft] = []
    problems: list[str] = []
    for row in ledger.tasks.rows():
        draft, unread = draft_from_row(row)
        drafts.append(draft)
        problems += [f"{draft.id}: {unread}"] if unread else validate_draft_with_plugins(draft)
    return drafts, [*problems, *validate_dependencies(tuple(drafts), {})]


# Import and export. Of the status only done and cancelled are exchanged.


@value
class ImportResult:
    """Added, changed and unchanged tasks, and all errors."""

    added: tuple[TaskDraft, ...]
    changed: tuple[TaskDraft, ...]
    same: tuple[str, ...]
    problems: tuple[str, ...]


def import_tasks(
    ledger: SqliteLedger,
    project: Project,
    entries: tuple[TaskFileEntry, ...],
    status_of: Callable[[TaskRow], str],
    update: bool,
    partial: bool,
    dry_run: bool,
) -> ImportResult:
    """Add tasks and change existing ones, in one transaction. Raises Refused for invalid ones, unless `partial`."""

    def work() -> ImportResult:
        rows = {row.id: row for row in ledger.tasks.rows()}
        validated = validate_entries(entries, {row.id: row.dependencies for row in rows.values()}, update)
        if validated.problems and not partial:
            raise Refused("\n".join(validated.problems))
        drafts = [replace(draft, status=_exchanged_status(draft.status)) for draft in validated.good]
        added = tuple(draft for draft in drafts if draft.id not in rows)
        changes = {draft.id: _imported_fields(rows[draft.id], draft, status_of) for draft in drafts if draft.id in rows}
        for id, fields in changes.items():
            if fields:
                refuse_active_task(ledger, project, id)
        if not dry_run:
            ledger.tasks.add(map(row_from_draft, added))
            for id, fields in changes.items():
                if fields:
                    ledger.tasks.change(id, fields)
        changed = tuple(draft for draft in drafts if changes.get(draft.id))
        same = tuple(id for id, fields in changes.items() if not fields)
        return ImportResult(added, changed, same, validated.problems)

    return work() if dry_run else ledger.tasks.together(work)


def _exchanged_status(status: str) -> str:
    return status if status in (DONE, CANCELLED) else TODO


def _imported_fields(row: TaskRow, draft: TaskDraft, status_of: Callable[[TaskRow], str]) -> dict[str, object]:
    """The fields that an update changes. `todo` in a file reopens nothing; use `ralph task edit`."""
    before = row_from_draft(draft_from_row(row)[0])
    fields = changed_fields(replace(before, status=row.status), row_from_draft(replace(draft, status=row.status)))
    if draft.status not in (TODO, status_of(row)):
        fields["status"] = draft.status
    return fields


def draft_to_export(row: TaskRow, status: str) -> TaskDraft:
    """The draft of a recorded task, to be written to a file."""
    draft, unread = draft_from_row(row)
    if unread:
        raise Refused(f"task {row.id} cannot be written: {unread}; ralph task show {row.id} shows it")
    return replace(draft, status=_exchanged_status(status))


def write_task_file(path: str, text: str) -> None:
    """Write a file atomically; raises Refused where that fails."""
    try:
        replace_file(path, text.encode("utf-8", "surrogateescape"), private=False)
    except OSError as error:
        if error.errno in NO_SPACE_ERRNOS:
            raise wrap_os_error(error) from error
        raise Refused(f"cannot write {path}: {error.strerror or error}; name another file") from error
