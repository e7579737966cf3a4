"""Configuration files of agents, and the hook commands that agents call."""

from __future__ import annotations

import os

from ralphproof.base.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


MAX_FILE_BYTES = 1 << 20
URL_KEYS = ("baseUrl", "baseURL")


def read_json_setting(file: str, *names: str) -> str | None:
    """The text at this path of keys in a JSON file (`~` is the home folder); None where there is none."""
    found = _load_json(file)
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, str) and found else None


def find_service_urls(file: str) -> tuple[str, ...]:
    """The service addresses that a JSON configuration file names, at any depth."""
    return tuple(dict.fromkeys(text for text in _iter_strings(_load_json(file), URL_KEYS) if "://" in text))


def find_key_variables(file: str, key: str, before: str = "", after: str = "") -> tuple[str, ...]:
    """The environment variables that a JSON file names under this key, each between these two texts."""
    names = (
        text.removeprefix(before).removesuffix(after)
        for text in _iter_strings(_load_json(file), (key,))
        if before in text
    )
    return tuple(dict.fromkeys(name for name in names if name.isidentifier() and name.isupper()))


def _iter_strings(node: Any, keys: tuple[str, ...]) -> Iterator[str]:
    """All texts at these keys, at any depth."""
    items = node.items() if isinstance(node, dict) else ((None, item) for item in node)
    for key, item in items:
        if isinstance(item, str):
            if key in keys:
                yield item
        elif isinstance(item, dict | list):
            yield from _iter_strings(item, keys)


def _load_json(file: str) -> Any:
    """The file's content; an empty object where it cannot be read."""
    import msgspec  # hooks load this module, and must start quickly

    path = os.path.expanduser(file)
    if not os.path.isfile(path):  # opening a pipe would block
        return {}
    try:
        with open(path, "rb") as opened:
            found = msgspec.json.decode(opened.read(MAX_FILE_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict | list) else {}


# Command lines by which agents call the hooks and the command guard.


# Event, verb, module.
HOOK_EVENTS = (
    ("Stop", "stop", "stop"),
    ("PostToolUse", "post-tool-use", "post_tool_use"),
    ("PostToolUseFailure", "post-tool-use-failure", "post_tool_use"),
    ("SessionStart", "session-start", "session_start"),
)
GUARD_VERB = "pre-tool-use"
# Set in every run. The installed plugin does nothing there, because a run passes its own hooks.
HOOKED_VARIABLE = "RALPH_HOOKED"
INSTALLED_GUARD = f"ralphproof hook {GUARD_VERB}"  # as the plugin calls it
# Claude Code 2.1.325 and Codex 0.166 make a tool call whose guard was killed or could not start. So the shell denies
# the call.
GUARD_SHELL_LINE = "{start} || {{ test $? -eq 2 || {{ echo {answer}; echo {why} >&2; }}; exit 2; }}"
GUARD_SILENT = (
    "ralph guard: this call was not made, because the guard gave no answer in time; try it again, or do without it"
)
GUARD_ABSENT = (
    "ralph guard: this call was not made, because the guard gave no answer: is ralphproof on PATH? "
    "ralph plugin uninstall --guard takes the guard away"
)


def hook_commands() -> tuple[tuple[str, str], ...]:
    """For each event the command that agents of a run call, whatever is on their PATH."""
    return tuple((event, _hook_line(module)) for event, _, module in HOOK_EVENTS)


def guard_hook_commands(rules: str) -> tuple[tuple[str, str], ...]:
    """The command that agents without a sandbox call before each tool call; `rules` is the file of the guard's rules.

    It runs in /bin/sh: a user's login shell may be any.
    """
    return (("PreToolUse", _guard_line(_hook_line("pre_tool_use", rules), GUARD_SILENT)),)


def installed_guard_command() -> str:
    """The command that the plugin has agents call before each tool call of the user's own sessions."""
    return _guard_line(INSTALLED_GUARD, GUARD_ABSENT)


def _guard_line(start: str, silent: str) -> str:
    """The shell line that calls a guard, and denies the tool call where the guard gives no answer."""
    import shlex

    from ralphproof.guard.verdict import format_denial

    denial, why = shlex.quote(format_denial(silent)), shlex.quote(silent)
    return shlex.join(("/bin/sh", "-c", GUARD_SHELL_LINE.format(start=start, answer=denial, why=why)))


def _hook_line(module: str, *words: str) -> str:
    """The shell line that calls a hook."""
    import shlex

    from ralphproof.base import interpreter

    return shlex.join(interpreter.module_command(f"ralphproof.hooks.{module}", *words))
