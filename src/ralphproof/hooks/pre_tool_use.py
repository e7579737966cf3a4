"""PreToolUse hook: the command guard's decision on a tool call, in a run and in a user's own session. Fails closed.

Claude Code 2.1.325 and Codex 0.166 allow the call unless the hook prints a denial or exits with 2: a guard that crashes
or is killed would let the call pass. `agents.hook_commands` therefore wraps it in a shell that turns every other ending
into a 2.
"""

from __future__ import annotations

import json
import os
import sys

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.guard.verdict import MAX_REASON_CHARS, format_denial
from ralphproof.hooks.session import read_event_or_none, read_regular_file, text_field, to_single_line

if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable
    from typing import Any
else:
    import _signal  # `signal` would import `enum`

TIME_LIMIT_S = 10.0  # to read and judge a call; the hook timeout set in the agent must be longer
MAX_RULES_BYTES = 4 << 20
GUARD_NAME = "ralph guard"
RULE_LISTS = ("allow", "deny", "protected")
SETTINGS_FOLDER, SETTINGS_FILES = ".ralph", ("settings.json", "settings.local.json")
# The project root where there is no project: the first of these that does not hold the home folder. Everybody may write
# to the first anyway, the second is empty.
NO_PROJECT_ROOTS = ("/tmp", "/var/empty")  # noqa: S108


class UnusableInput(Exception):
    """The event or the rules cannot be understood, so the call cannot be judged."""


def main() -> int:
    """Judge a tool call of a run's agent by the rules file named as the only argument."""
    return judge_tool_call(lambda _: read_run_rules(sys.argv[1:]))


def judge_tool_call(rules_for: Callable[[dict[str, Any]], dict[str, Any]]) -> int:
    """Print a denial if the call must not be made. Return 0, or 2 where the call could not be judged."""
    try:
        set_time_limit(TIME_LIMIT_S)
        event = read_event_or_none()
        if event is None:
            raise UnusableInput("there is no event on standard input that can be understood")
        reason = refusal_reason(event, rules_for(event))
        if reason:
            print(format_denial(reason), flush=True)
    except Exception as error:  # noqa: BLE001
        fault = str(error) if isinstance(error, UnusableInput) else f"the guard failed: {error!r}"
        return _fail_closed(
            to_single_line(f"{GUARD_NAME}: this call was not made, because it could not be judged: {fault}")
        )
    return 0


def set_time_limit(seconds: float) -> None:
    """Have the kernel end this process by SIGALRM after so many seconds, even inside native code."""
    _signal.signal(_signal.SIGALRM, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, (_signal.SIGALRM,))
    _signal.setitimer(_signal.ITIMER_REAL, seconds)


def _fail_closed(reason: str) -> int:
    """Return the exit code that blocks a call; print the reason on both streams, since agents read either."""
    try:
        print(format_denial(reason), flush=True)
        print(reason[:MAX_REASON_CHARS], file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass  # the reader is gone
    return 2


def refusal_reason(event: dict[str, Any], rules: dict[str, Any]) -> str:
    """Why this tool call must not be made; empty where it may. Raises UnusableInput."""
    tool, arguments, cwd = (
        text_field(event, "tool_name"),
        event.get("tool_input"),
        text_field(event, "cwd"),
    )
    if not tool or not isinstance(arguments, dict) or not os.path.isabs(cwd):
        raise UnusableInput("the event must have a tool_name, a tool_input and a cwd")
    from ralphproof.guard.tools import objection
    from ralphproof.guard.verdict import Exceptions, Ground

    allow, deny, protected = (tuple(rules[name]) for name in RULE_LISTS)
    root, here, home = map(os.path.realpath, (rules["root"], cwd, os.path.expanduser("~")))
    ground = Ground(root, here, home, protected, rules.get("taskFolder", ""))
    denial = objection(tool, arguments, ground, Exceptions(allow, deny))
    if denial is None:
        return ""
    return to_single_line(f"{GUARD_NAME} [{denial.rule}]: {denial.what} {denial.reason}; instead: {denial.instead}")


def read_run_rules(argv: list[str]) -> dict[str, Any]:
    """The rules of the run, from the file named as the only argument. Raises UnusableInput."""
    if len(argv) != 1:
        raise UnusableInput("the guard takes one argument, the file of its rules")
    try:
        rules = json.loads(_read_limited(argv[0], "the guard's rules"))
    except OSError as error:
        raise UnusableInput(f"the guard's rules cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UnusableInput("the guard's rules are not valid JSON") from error
    if not isinstance(rules, dict) or not _are_valid_rules(rules):
        raise UnusableInput("the guard's rules must have an absolute root, and lists of texts: allow, deny, protected")
    return rules


def _read_limited(path: str, what: str) -> bytes:
    """The content of a file of limited size. Raises UnusableInput and OSError."""
    data = read_regular_file(path, MAX_RULES_BYTES)
    if len(data) > MAX_RULES_BYTES:
        raise UnusableInput(f"{what}: larger than {MAX_RULES_BYTES >> 20} MiB")
    return data


def _are_valid_rules(rules: dict[str, Any]) -> bool:
    lists = [rules.get(name) for name in RULE_LISTS]
    texts = all(isinstance(entries, list) and all(isinstance(entry, str) for entry in entries) for entries in lists)
    folders = isinstance(rules.get("root"), str) and isinstance(rules.get("taskFolder", ""), str)
    return texts and folders and os.path.isabs(rules["root"])


def read_session_rules(
    event: dict[str, Any], user_settings: str, find_project_root: Callable[[str], str]
) -> dict[str, Any]:
    """The rules for a user's own session. Raises UnusableInput where a settings file cannot be read.

    `guard.allow` counts only in the user's own settings. A repository's settings are not trusted, so they can only add
    `guard.deny` and `protectedPaths`; nothing that the repository names is executed.
    """
    start = os.environ.get("CLAUDE_PROJECT_DIR", "")
    start = start if os.path.isabs(start) else text_field(event, "cwd")
    if not os.path.isabs(start):
        raise UnusableInput("the event must have a tool_name, a tool_input and a cwd")
    root, home = find_project_root(start), os.path.realpath(os.path.expanduser("~"))
    allow, deny, _ = _read_guard_lists(user_settings)
    protected: list[str] = []
    for name in SETTINGS_FILES:
        _, denied, paths = _read_guard_lists(os.path.join(root, SETTINGS_FOLDER, name))
        deny, protected = deny + denied, protected + paths
    if _is_below(home, root):  # the home folder is no project
        root = next(folder for folder in NO_PROJECT_ROOTS if not _is_below(home, folder))
    return {"root": root, "allow": allow, "deny": deny, "protected": protected}


def _is_below(path: str, folder: str) -> bool:
    return f"{path}/".startswith(f"{folder.rstrip('/')}/")


def _read_guard_lists(path: str) -> tuple[list[str], list[str], list[str]]:
    """`guard.allow`, `guard.deny` and `protectedPaths` of a settings file; empty where it does not exist."""
    try:
        settings = json.loads(_read_limited(path, path))
    except FileNotFoundError:
        return [], [], []
    except OSError as error:
        raise UnusableInput(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UnusableInput(f"{path}: not valid JSON; ralph config show says where") from error
    guard = settings.get("guard", {}) if isinstance(settings, dict) else None
    if not isinstance(settings, dict) or not isinstance(guard, dict):
        raise UnusableInput(f"{path}: the settings, and guard in them, must be objects")
    allow, deny = (_parse_text_list(path, f"guard.{name}", guard.get(name)) for name in ("allow", "deny"))
    if allow or deny:
        from ralphproof.guard.rules import allow_entry_problem, deny_entry_problem

        for name, entries, problem_of in (("allow", allow, allow_entry_problem), ("deny", deny, deny_entry_problem)):
            for entry in entries:
                if problem := problem_of(entry):
                    raise UnusableInput(f"{path}: guard.{name}: {entry!r} {problem}")
    return allow, deny, _parse_text_list(path, "protectedPaths", settings.get("protectedPaths"))


def _parse_text_list(path: str, key: str, setting: object) -> list[str]:
    entries = [] if setting is None else setting
    if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
        raise UnusableInput(f"{path}: {key} must be a list of texts")
    return entries


if __name__ == "__main__":
    sys.exit(main())
