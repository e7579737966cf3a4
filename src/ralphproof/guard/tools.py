"""The guard's decision on a tool call: what a call of each tool would do, and what speaks against it.

The guard denies what it cannot read, and never raises for what an agent asks.
"""

from __future__ import annotations

import re

from ralphproof.base.shell import repeats_itself, without_marks
from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.guard.command import SQL, SimpleCommand
from ralphproof.guard.line import Line
from ralphproof.guard.paths import (
    holds_secrets,
    locate,
    rule_against_deleting,
    rule_against_reading,
    rule_against_writing,
)
from ralphproof.guard.rule_matching import holds_secret, is_only_searched, objections_to, rule_against_fetching
from ralphproof.guard.rules import RULES
from ralphproof.guard.verdict import Act, Exceptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from ralphproof.guard.verdict import Ground, Objection

NO_EXCEPTIONS = Exceptions()
LAST_CATEGORY = "privilege"  # of several objections to one line the first counts; this one says least
MAX_DEPTH, MAX_VALUES = 12, 2000  # of a tool's arguments
MAX_LINE_CHARS = 50_000  # what is longer is nothing that anybody typed
# Words that mean themselves. Such a line needs no parser, which takes ten times as long to load as all the rest.
PLAIN_LINE = r"[A-Za-z0-9_@%+:,./~-][A-Za-z0-9_@%+:,./~=-]*(?: +[A-Za-z0-9_@%+:,./~*?=-]+)* *"
KEYWORDS = {
    "if", "for", "while", "until", "case", "select", "function", "do", "then", "else", "elif", "fi", "done", "esac",
    "coproc", "time", "declare", "export", "local", "readonly", "typeset", "unset", "unsetenv", "let",
}  # fmt: skip
# Characters that nobody sees: a word with one of them in it is not the word that is read.
INVISIBLE = "[\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff\u00ad\x00-\x08\x0e-\x1a\x1c-\x1f]"
SHELL_TOOLS = {
    "Bash", "shell", "exec_command", "local_shell", "unified_exec", "container.exec", "shell_command", "PowerShell",
}  # fmt: skip
READING_TOOLS = {
    "Read": ("file_path", "path"), "NotebookRead": ("notebook_path",), "view_image": ("path",),
    "read_file": ("file_path", "path"), "LS": ("path",), "Glob": ("path",), "Grep": ("path",),
    "list_dir": ("dir_path", "path"), "grep_files": ("path",),
}  # fmt: skip
LISTING_TOOLS, SEARCHING_TOOLS = (
    {"LS", "Glob", "list_dir"},
    {"Grep", "grep_files"},
)  # without a path: the current folder
WRITING_TOOLS = {
    "Write": ("file_path",), "Edit": ("file_path",), "MultiEdit": ("file_path",), "NotebookEdit": ("notebook_path",),
    "Update": ("file_path",),
}  # fmt: skip
# These do nothing themselves: what they lead to is asked for again.
HARMLESS_TOOLS = {
    "Task", "Agent", "TodoWrite", "TodoRead", "ExitPlanMode", "EnterPlanMode", "AskUserQuestion", "Skill",
    "SlashCommand", "BashOutput", "KillShell", "KillBash", "TaskOutput", "TaskStop", "TaskCreate", "TaskUpdate",
    "TaskList", "TaskGet", "update_plan", "wait", "ToolSearch", "ListMcpResourcesTool", "StructuredOutput",
    "request_user_input",
}  # fmt: skip
PATCHED_FILE = r"(?m)^\*\*\* (Add File|Update File|Delete File|Move to): *(.+?) *$"
# Arguments of tools that nobody knows, by name and shape.
COMMAND_ARGUMENTS = {"command", "cmd", "script", "shell", "commands", "argv", "bash", "commandline", "command_line"}
SQL_ARGUMENTS = {"query", "sql", "statement", "queries"}
ADDRESS_ARGUMENTS = {"url", "uri", "href", "endpoint"}
PATH_ARGUMENTS = r".*(path|file|filename|dir|directory|folder|source|destination|target)s?|from|to|src|dst|dest|cwd"
ADDRESS_TEXT, PATH_TEXT = r"(?i)(https?|ftp|file|wss?|gopher|data|javascript):\S+", r"(/|~/|\.\.?/)\S+"
WRITING_VERB = (
    r"(?i)write|edit|create|move|rename|update|put|append|save|patch|copy|insert|replace|mkdir|touch|download"
)
DELETING_VERB = r"(?i)delete|remove|rmdir|unlink|trash|(^|_)rm(_|$)"


def objection(
    tool: str, arguments: Mapping[str, Any], ground: Ground, lists: Exceptions = NO_EXCEPTIONS
) -> Objection | None:
    """Why a tool call should not be made; None where nothing speaks against it."""
    found: list[Objection] = []
    for act in acts_of_call(tool, arguments, ground):
        objections = act.objections
        if lists != NO_EXCEPTIONS:
            from ralphproof.guard.rules import is_allowed, is_denied, is_waived

            if is_denied(act, lists, ground):
                return RULES["denied-here"].about(" ".join(act.ways[0]))
            if is_allowed(act, lists, ground):
                continue
            objections = tuple(one for one in objections if not is_waived(one, lists))
        found.extend(objections)
    return min(found, key=lambda one: one.category == LAST_CATEGORY, default=None)


def acts_of_call(tool: str, arguments: Mapping[str, Any], at: Ground) -> Iterator[Act]:
    """What a call would do, with what speaks against each of it."""
    texts = _texts_in(arguments)
    if texts is None or not all(map(_is_usable, texts)):
        yield _unusable(tool)
    elif tool in SHELL_TOOLS:
        yield from _shell_call(tool, arguments, at)
    elif tool in READING_TOOLS or tool in WRITING_TOOLS:
        yield from _file_call(tool, arguments, at)
    elif tool == "apply_patch":
        yield from _patch_call(tool, arguments, at)
    elif tool in ("WebFetch", "web_fetch"):
        address = arguments.get("url")
        yield _fetch(tool, address) if isinstance(address, str) and address else _unusable(tool)
    elif tool == "WebSearch":
        query = str(arguments.get("query", ""))
        yield Act(((tool, query),), (RULES["secret-in-address"].about(tool),) if holds_secret(query) else ())
    else:
        yield Act(((tool,),))
        if tool not in HARMLESS_TOOLS:
            yield from _unknown_call(tool, arguments, at)


def _texts_in(given: object, depth: int = 0) -> list[str] | None:
    """Every text in a tool's arguments; None where they are too deep or too many."""
    if isinstance(given, str):
        return [given]
    inner: list[object] = []
    if isinstance(given, dict):
        inner = [*given, *given.values()]
    elif isinstance(given, list | tuple):
        inner = list(given)
    if depth > MAX_DEPTH or len(inner) > MAX_VALUES:
        return None if inner else []
    found: list[str] = []
    for one in inner:
        below = _texts_in(one, depth + 1)
        if below is None or len(found) + len(below) > MAX_VALUES:
            return None
        found.extend(below)
    return found


def _is_usable(text: str) -> bool:
    """Whether a system call could be given the text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def _unusable(tool: str) -> Act:
    return Act(((tool,),), (RULES["unreadable-call"].about(tool),))


# Shells


def _shell_call(tool: str, arguments: Mapping[str, Any], at: Ground) -> Iterator[Act]:
    given = next((arguments[name] for name in ("command", "cmd", "input") if name in arguments), None)
    folder = next((arguments[name] for name in ("workdir", "cwd") if isinstance(arguments.get(name), str)), "")
    where = replace(at, cwd=locate(folder, at.cwd, at).path or at.cwd) if folder else at
    if isinstance(given, str):
        yield from acts_of_line(given, where)
    elif isinstance(given, list) and given and all(isinstance(word, str) for word in given):
        yield from acts_of_words(given, where)
    else:
        yield _unusable(tool)


def acts_of_line(text: str, at: Ground) -> Iterator[Act]:
    """Every command of a line with what the rules object to in it; a line that cannot be read is one of them."""
    text = without_marks(text)
    if len(text) > MAX_LINE_CHARS:
        yield _unreadable(text, f"it has more than {MAX_LINE_CHARS} characters")
        return
    if repeats_itself(text):
        yield _unreadable(text, "it repeats itself")
        return
    visible, line = re.sub(INVISIBLE, "", text), Line(at)
    words = visible.split() if re.fullmatch(PLAIN_LINE, visible) else []
    try:
        if words and words[0] not in KEYWORDS and "=" not in words[0]:
            line.run(SimpleCommand(tuple(words), at.cwd))
        else:
            line.read(visible)
    except RecursionError:
        line.trouble = "it is nested too deeply"
    yield from _acts_of(line, text, at)
    if visible != text:
        yield Act(((text,),), (RULES["odd-spelling"].about(text),))


def acts_of_words(words: Sequence[str], at: Ground) -> Iterator[Act]:
    """The same for a command that no shell has to take apart."""
    line = Line(at)
    line.run(SimpleCommand(tuple(map(without_marks, words)), at.cwd))
    yield from _acts_of(line, " ".join(words), at)


def _acts_of(line: Line, text: str, at: Ground) -> Iterator[Act]:
    for one in line.found:
        objections = [
            found
            for found in objections_to(one, at)
            if found.rule != "print-environment" or not is_only_searched(one, line.found)
        ]
        yield Act((one.words, *one.outer), tuple(objections))
    if line.trouble:
        yield _unreadable(text, line.trouble)
    for broken in line.broken:
        yield _unreadable(broken, "it is no grammar of a shell")


def _unreadable(text: str, why: str) -> Act:
    return Act(((text,),), (RULES["unreadable"].about(text).because(why),))


# Files and addresses


def _file_call(tool: str, arguments: Mapping[str, Any], at: Ground) -> Iterator[Act]:
    optional = tool in LISTING_TOOLS | SEARCHING_TOOLS
    names = READING_TOOLS.get(tool) or WRITING_TOOLS[tool]
    path = next((arguments[name] for name in names if name in arguments), "" if optional else None)
    if not isinstance(path, str) or (not path and not optional):
        yield _unusable(tool)
    elif tool in WRITING_TOOLS:
        yield _write(tool, path, at)
    else:
        yield _read(tool, path or ".", at)
        wanted = arguments.get("glob") if tool == "Grep" else None
        if isinstance(wanted, str):
            yield _read(tool, wanted, at)


def _act_on(tool: str, what: str, rule: str) -> Act:
    return Act(((tool, what),), (RULES[rule].about(f"{tool} {what}"),) if rule else ())


def _read(tool: str, path: str, at: Ground) -> Act:
    place = locate(path, at.cwd, at)
    rule = "" if tool in LISTING_TOOLS else rule_against_reading(place, path, at)
    whole_home = tool in SEARCHING_TOOLS and place.tail != "some" and holds_secrets(place, at)
    return _act_on(tool, path, rule or ("read-home" if whole_home else ""))


def _write(tool: str, path: str, at: Ground) -> Act:
    return _act_on(tool, path, rule_against_writing(locate(path, at.cwd, at), at))


def _delete(tool: str, path: str, at: Ground) -> Act:
    return _act_on(tool, path, rule_against_deleting(locate(path, at.cwd, at, follow=False), at, recursive=True))


def _fetch(tool: str, address: str) -> Act:
    return _act_on(tool, address, rule_against_fetching(address))


def _patch_call(tool: str, arguments: Mapping[str, Any], at: Ground) -> Iterator[Act]:
    given = next((arguments[name] for name in ("command", "input", "patch") if name in arguments), None)
    given = given[-1] if isinstance(given, list) and given else given
    changes = re.findall(PATCHED_FILE, given) if isinstance(given, str) else []
    if not changes:
        yield _unusable(tool)
    for kind, path in changes:
        yield _delete(tool, path, at) if kind == "Delete File" else _write(tool, path, at)


# Tools that nobody knows, such as those of MCP servers


def _unknown_call(tool: str, given: Any, at: Ground, name: str = "") -> Iterator[Act]:
    """What a call would do if each argument means what its name and its shape say."""
    if isinstance(given, dict):
        for key, inner in given.items():
            yield from _unknown_call(tool, inner, at, str(key).lower())
    elif isinstance(given, list | tuple):
        if name in COMMAND_ARGUMENTS and given and all(isinstance(word, str) for word in given):
            yield from acts_of_words(given, at)  # words of one command, or else a list of commands
            given = [word for word in given if " " in word]
        for inner in given:
            yield from _unknown_call(tool, inner, at, name)
    elif isinstance(given, str) and given:
        yield from _unknown_text(tool, given, at, name)


def _unknown_text(tool: str, text: str, at: Ground, name: str) -> Iterator[Act]:
    if name in COMMAND_ARGUMENTS:
        yield from acts_of_line(text, at)
    elif name in SQL_ARGUMENTS:
        yield from acts_of_words([SQL, text], at)
    elif re.fullmatch(ADDRESS_TEXT, text) or name in ADDRESS_ARGUMENTS:
        yield _fetch(tool, text)
    elif re.fullmatch(PATH_ARGUMENTS, name) or re.fullmatch(PATH_TEXT, text):
        verb = tool.rpartition("__")[2]
        if re.search(DELETING_VERB, verb):
            yield _delete(tool, text, at)
        elif re.search(WRITING_VERB, verb):
            yield _write(tool, text, at)
        yield _read(tool, text, at)
