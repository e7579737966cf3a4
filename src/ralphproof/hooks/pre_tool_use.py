"""PreToolUse hook: the command guard's decision on a tool call, in a run and in a user's own session. Fails closed."""

from __future__ import annotations

import json
import os
import stat
import sys

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.guard.denial import MAX_REASON_CHARS, format_denial
from ralphproof.hooks import hook_input

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


# Before every tool call of an agent that no sandbox holds: the word of the command guard. Whatever goes wrong, denies.
#
# To Claude Code 2.1.325 and Codex 0.166 every end but a denial and exit code 2 is consent: a guard that crashes or is
# killed lets the call pass. So there is a shell around this one, which makes a 2 of every such end.


if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal

TIME_LIMIT_S = 10.0  # to read and judge a call; their own patience must be longer
MAX_RULES_BYTES = 4 << 20  # of the rules
GUARD_NAME = "ralph guard"
RULE_LISTS = ("allow", "deny", "protected")


class UnusableInput(Exception):
    """The event, or the rules, say nothing that can be judged."""


def main() -> int:
    """Judge a call of a run's agent, by the rules in the file that the one argument names."""
    return judge_tool_call(lambda _: read_run_rules(sys.argv[1:]))


def judge_tool_call(rules_for: Callable[[dict[str, Any]], dict[str, Any]]) -> int:
    """Have no objection (0 and nothing said), or say why the call may not be made; 2 where that is not known."""
    try:
        set_time_limit(TIME_LIMIT_S)
        event = hook_input.read_event_or_none()
        if event is None:
            raise UnusableInput("there is no event on standard input that can be understood")
        why = refusal_reason(event, rules_for(event))
        if why:
            print(format_denial(why), flush=True)
    except Exception as error:  # noqa: BLE001
        fault = str(error) if isinstance(error, UnusableInput) else f"the guard failed: {error!r}"
        return _fail_closed(
            hook_input.to_single_line(f"{GUARD_NAME}: this call was not made, because it could not be judged: {fault}")
        )
    return 0


def set_time_limit(seconds: float) -> None:
    """Let the system end this process after so long, whatever it is at then."""
    _signal.signal(_signal.SIGALRM, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, (_signal.SIGALRM,))
    _signal.setitimer(_signal.ITIMER_REAL, seconds)


def _fail_closed(why: str) -> int:
    """The one exit code that holds a call back, with the reason where each program looks for it."""
    try:
        print(format_denial(why), flush=True)
        print(why[:MAX_REASON_CHARS], file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass  # nobody listens
    return 2


def refusal_reason(event: dict[str, Any], rules: dict[str, Any]) -> str:
    """Why the call of this event may not be made; empty where it may. Raises Unusable."""
    tool, arguments, cwd = (
        hook_input.text_field(event, "tool_name"),
        event.get("tool_input"),
        hook_input.text_field(event, "cwd"),
    )
    if not tool or not isinstance(arguments, dict) or not os.path.isabs(cwd):
        raise UnusableInput("the event must have a tool_name, a tool_input and a cwd")
    from ralphproof.guard.judge import objection
    from ralphproof.guard.verdict import Exceptions, Ground

    allow, deny, protected = (tuple(rules[name]) for name in RULE_LISTS)
    root, here, home = map(os.path.realpath, (rules["root"], cwd, os.path.expanduser("~")))
    ground = Ground(root, here, home, protected, rules.get("taskFolder", ""))
    found = objection(tool, arguments, ground, Exceptions(allow, deny))
    if found is None:
        return ""
    return hook_input.to_single_line(
        f"{GUARD_NAME} [{found.rule}]: {found.what} {found.reason}; instead: {found.instead}"
    )


def read_run_rules(argv: list[str]) -> dict[str, Any]:
    """The rules of the run, from the file that the one argument names. Raises Unusable."""
    if len(argv) != 1:
        raise UnusableInput("the guard takes one argument, the file of its rules")
    try:
        found = json.loads(read_regular_file(argv[0]))
    except OSError as error:
        raise UnusableInput(f"the guard's rules cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UnusableInput("the guard's rules are not valid JSON") from error
    if not isinstance(found, dict) or not _is_text_list(found):
        raise UnusableInput("the guard's rules must have an absolute root, and lists of texts: allow, deny, protected")
    return found


def read_regular_file(path: str, what: str = "the guard's rules") -> bytes:
    """A file to its end, where it is one and not too large; raises Unusable and OSError. No pipe is waited for."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    state = os.fstat(file)
    if not stat.S_ISREG(state.st_mode):
        os.close(file)
        raise UnusableInput(f"{what}: not a regular file")
    if state.st_size > MAX_RULES_BYTES:
        os.close(file)
        raise UnusableInput(f"{what}: larger than {MAX_RULES_BYTES >> 20} MiB")
    with open(file, "rb") as opened:
        return opened.read(MAX_RULES_BYTES)


def _is_text_list(rules: dict[str, Any]) -> bool:
    lists = [rules.get(name) for name in RULE_LISTS]
    texts = all(isinstance(one, list) and all(isinstance(text, str) for text in one) for one in lists)
    folders = isinstance(rules.get("root"), str) and isinstance(rules.get("taskFolder", ""), str)
    return texts and folders and os.path.isabs(rules["root"])


if __name__ == "__main__":
    sys.exit(main())


# The command guard in a user's own session, run or no run: the rules it goes by.
#
# The exceptions are the user's own: `guard.allow` and `guard.deny` of their settings file. A repository is anybody's, so
# its settings may only add: its `guard.deny` and `protectedPaths` count, its `guard.allow` does not. Nothing that the
# repository names is executed.


SETTINGS_FOLDER, SETTINGS_FILES = ".ralph", ("settings.json", "settings.local.json")
NO_PROJECT_ROOT = "/tmp"  # noqa: S108 (everybody may write there anyway: no more than that is the project's)


def read_session_rules(event: dict[str, Any], users_file: str, project_around: Callable[[str], str]) -> dict[str, Any]:
    """What the guard goes by in the session of this event; raises Unusable where a settings file cannot be read."""
    start = os.environ.get("CLAUDE_PROJECT_DIR", "")
    start = start if os.path.isabs(start) else hook_input.text_field(event, "cwd")
    if not os.path.isabs(start):
        raise UnusableInput("the event must have a tool_name, a tool_input and a cwd")
    root, home = project_around(start), os.path.realpath(os.path.expanduser("~"))
    allow, deny, _ = _read_guard_lists(users_file)
    protected: list[str] = []
    for name in SETTINGS_FILES:
        _, denied, paths = _read_guard_lists(os.path.join(root, SETTINGS_FOLDER, name))
        deny, protected = deny + denied, protected + paths
    if f"{home}/".startswith(f"{root.rstrip('/')}/"):  # the home folder is nobody's project: all else is outside of it
        root = NO_PROJECT_ROOT
    return {"root": root, "allow": allow, "deny": deny, "protected": protected}


def _read_guard_lists(path: str) -> tuple[list[str], list[str], list[str]]:
    """What a settings file allows, denies and protects; nothing where there is no such file."""
    try:
        found = json.loads(read_regular_file(path, path))
    except FileNotFoundError:
        return [], [], []
    except OSError as error:
        raise UnusableInput(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UnusableInput(f"{path}: not valid JSON; ralph config show says where") from error
    guard = found.get("guard", {}) if isinstance(found, dict) else None
    if not isinstance(found, dict) or not isinstance(guard, dict):
        raise UnusableInput(f"{path}: the settings, and guard in them, must be objects")
    allow, deny = (_parse_text_list(path, f"guard.{name}", guard.get(name)) for name in ("allow", "deny"))
    if allow or deny:
        from ralphproof.guard.exceptions import allow_entry_problem, deny_entry_problem

        for name, entries, problem_of in (("allow", allow, allow_entry_problem), ("deny", deny, deny_entry_problem)):
            for entry in entries:
                if problem := problem_of(entry):
                    raise UnusableInput(f"{path}: guard.{name}: {entry!r} {problem}")
    return allow, deny, _parse_text_list(path, "protectedPaths", found.get("protectedPaths"))


def _parse_text_list(path: str, key: str, given: object) -> list[str]:
    entries = [] if given is None else given
    if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
        raise UnusableInput(f"{path}: {key} must be a list of texts")
    return entries
