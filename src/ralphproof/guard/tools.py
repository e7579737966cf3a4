"""The tools of agents, and what a call of each would do."""

from __future__ import annotations

import re

from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.guard.place import spot
from ralphproof.guard.verdict import Act, Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from ralphproof.guard.verdict import Ground

UNUSABLE = Rule(
    "unreadable-call", "opaque-code", "has arguments that cannot be judged",
    "call the tool with plain text",
)  # fmt: skip
DEEPEST, MOST = 12, 2000  # levels and values of a tool's arguments
SHELLS = {
    "Bash",
    "shell",
    "exec_command",
    "local_shell",
    "unified_exec",
    "container.exec",
    "shell_command",
    "PowerShell",
}
READS = {
    "Read": ("file_path", "path"), "NotebookRead": ("notebook_path",), "view_image": ("path",),
    "read_file": ("file_path", "path"),
    "LS": ("path",), "Glob": ("path",), "Grep": ("path",), "list_dir": ("dir_path", "path"), "grep_files": ("path",),
}  # fmt: skip
OPTIONAL = {"LS", "Glob", "Grep", "list_dir", "grep_files"}  # without a path they mean the current folder
WRITES = {
    "Write": ("file_path",), "Edit": ("file_path",), "MultiEdit": ("file_path",), "NotebookEdit": ("notebook_path",),
    "Update": ("file_path",),
}  # fmt: skip
# These do nothing themselves: what they lead to is asked for again.
HARMLESS = {
    "Task", "Agent", "TodoWrite", "TodoRead", "ExitPlanMode", "EnterPlanMode", "AskUserQuestion", "Skill",
    "SlashCommand",
    "BashOutput", "KillShell", "KillBash", "TaskOutput", "TaskStop", "TaskCreate", "TaskUpdate", "TaskList", "TaskGet",
    "update_plan", "wait", "ToolSearch", "ListMcpResourcesTool", "StructuredOutput", "request_user_input",
}  # fmt: skip
PATCHED = re.compile(r"^\*\*\* (Add File|Update File|Delete File|Move to): *(.+?) *$", re.MULTILINE)


def acts(tool: str, arguments: Mapping[str, Any], at: Ground) -> Iterator[Act]:
    """What a call would do, with what speaks against each of it."""
    texts = _texts(arguments)
    if texts is None or not all(map(_usable, texts)):
        yield Act(((tool,),), (UNUSABLE.about(tool),))
    elif tool in SHELLS:
        yield from _shell(tool, arguments, at)
    elif tool in READS or tool in WRITES:
        yield from _file(tool, arguments, at)
    elif tool in OTHERS:
        yield from OTHERS[tool](tool, arguments, at)
    elif tool not in HARMLESS:
        from ralphproof.guard.foreign_tools import guessed

        yield Act(((tool,),))
        yield from guessed(tool, arguments, at)
    else:
        yield Act(((tool,),))


def _texts(given: object, depth: int = 0) -> list[str] | None:
    """Every text in a tool's arguments; None where they are too deep or too many."""
    if isinstance(given, str):
        return [given]
    inner = (
        list(given) + list(given.values())
        if isinstance(given, dict)
        else given
        if isinstance(given, list | tuple)
        else []
    )
    if depth > DEEPEST or len(inner) > MOST:
        return None if inner else []
    found: list[str] = []
    for one in inner:
        below = _texts(one, depth + 1)
        if below is None or len(found) + len(below) > MOST:
            return None
        found.extend(below)
    return found


def _usable(text: str) -> bool:
    """Whether a system call could be given the text."""
    try:
        return "\0" not in text and bool(text.encode() or True)
    except UnicodeEncodeError:
        return False


def unusable(tool: str) -> Act:
    """A call that cannot be judged."""
    return Act(((tool,),), (UNUSABLE.about(tool),))


def _shell(tool: str, arguments: Mapping[str, Any], at: Ground) -> Iterator[Act]:
    from ralphproof.guard.lines import acts_of, words_of

    given = next((arguments[name] for name in ("command", "cmd", "input") if name in arguments), None)
    folder = next((arguments[name] for name in ("workdir", "cwd") if isinstance(arguments.get(name), str)), "")
    where = replace(at, cwd=spot(folder, at.cwd, at).path or at.cwd) if folder else at
    if isinstance(given, str):
        yield from acts_of(given, where)
    elif isinstance(given, list) and given and all(isinstance(word, str) for word in given):
        yield from words_of(given, where)
    else:
        yield unusable(tool)


def _file(tool: str, arguments: Mapping[str, Any], at: Ground) -> Iterator[Act]:
    names = READS.get(tool) or WRITES[tool]
    path = next((arguments[name] for name in names if name in arguments), "" if tool in OPTIONAL else None)
    if not isinstance(path, str) or (not path and tool not in OPTIONAL):
        yield unusable(tool)
    elif tool in WRITES:
        yield written(tool, path, at)
    else:
        yield looked_at(tool, path or ".", at, searches=tool in ("Grep", "grep_files"))
        wanted = arguments.get("glob") if tool == "Grep" else None
        if isinstance(wanted, str):
            yield looked_at(tool, wanted, at)


def looked_at(tool: str, path: str, at: Ground, searches: bool = False) -> Act:
    """A file that is read, or a folder that is searched."""
    from ralphproof.guard.files import to_read
    from ralphproof.guard.secret_paths import holds_secrets

    place = spot(path, at.cwd, at)
    rule = None if tool in ("LS", "Glob", "list_dir") else to_read(place, path, at)
    if rule is None and searches and holds_secrets(place, at):
        from ralphproof.guard.rules.secrets import WHOLE_HOME

        rule = WHOLE_HOME
    return Act(((tool, path),), (rule.about(f"{tool} {path}"),) if rule else ())


def written(tool: str, path: str, at: Ground) -> Act:
    """A file that is written, or changed."""
    from ralphproof.guard.files import to_write

    rule = to_write(spot(path, at.cwd, at), at)
    return Act(((tool, path),), (rule.about(f"{tool} {path}"),) if rule else ())


def deleted(tool: str, path: str, at: Ground) -> Act:
    """A file or folder that is deleted."""
    from ralphproof.guard.files import to_delete

    rule = to_delete(spot(path, at.cwd, at, follow=False), at, recursive=True)
    return Act(((tool, path),), (rule.about(f"{tool} {path}"),) if rule else ())


def _patch(tool: str, arguments: Mapping[str, Any], at: Ground) -> Iterator[Act]:
    given = next((arguments[name] for name in ("command", "input", "patch") if name in arguments), None)
    given = given[-1] if isinstance(given, list) and given else given
    changes = PATCHED.findall(given) if isinstance(given, str) else []
    if not changes:
        yield unusable(tool)
    for kind, path in changes:
        yield deleted(tool, path, at) if kind == "Delete File" else written(tool, path, at)


def _fetch(tool: str, arguments: Mapping[str, Any], _: Ground) -> Iterator[Act]:
    address = arguments.get("url")
    yield fetched(tool, address) if isinstance(address, str) and address else unusable(tool)


def fetched(tool: str, address: str) -> Act:
    """An address that is asked."""
    from ralphproof.guard.web import to_fetch

    rule = to_fetch(address)
    return Act(((tool, address),), (rule.about(f"{tool} {address}"),) if rule else ())


def _search(tool: str, arguments: Mapping[str, Any], _: Ground) -> Iterator[Act]:
    from ralphproof.base.redaction import mask_text
    from ralphproof.guard.web import CARRIES

    text = str(arguments.get("query", ""))
    yield Act(((tool, text),), (CARRIES.about(tool),) if mask_text(text, ()) != text else ())


OTHERS: dict[str, Callable[[str, Mapping[str, Any], Ground], Iterator[Act]]] = {
    "apply_patch": _patch, "WebFetch": _fetch, "WebSearch": _search, "web_fetch": _fetch,
}  # fmt: skip
