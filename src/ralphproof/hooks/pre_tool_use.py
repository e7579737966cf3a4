"""Before every tool call of an agent that no sandbox holds: the word of the command guard. Whatever goes wrong, denies.

To Claude Code 2.1.325 and Codex 0.166 every end but a denial and exit code 2 is consent: a guard that crashes or is
killed lets the call pass. So there is a shell around this one, which makes a 2 of every such end.
"""

from __future__ import annotations

import json
import os
import stat
import sys

from ralphproof.hooks import given
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable
    from typing import Any
else:
    import _signal

LIMIT_S = 10.0  # to read and judge a call; their own patience must be longer
MOST_BYTES = 4 << 20  # of the rules
REASON_CHARS = 2000
NAME = "ralph guard"
RULES = ("allow", "deny", "protected")


class Unusable(Exception):
    """The event, or the rules, say nothing that can be judged."""


def main() -> int:
    """Judge a call of a run's agent, by the rules in the file that the one argument names."""
    return judged(lambda _: rules_in(sys.argv[1:]))


def judged(rules_for: Callable[[dict[str, Any]], dict[str, Any]]) -> int:
    """Have no objection (0 and nothing said), or say why the call may not be made; 2 where that is not known."""
    try:
        end_after(LIMIT_S)
        event = given.understood()
        if event is None:
            raise Unusable("there is no event on standard input that can be understood")
        why = refusal(event, rules_for(event))
        if why:
            print(answer(why), flush=True)
    except Exception as error:  # noqa: BLE001
        fault = str(error) if isinstance(error, Unusable) else f"the guard failed: {error!r}"
        return _failed(given.clean(f"{NAME}: this call was not made, because it could not be judged: {fault}"))
    return 0


def end_after(seconds: float) -> None:
    """Let the system end this process after so long, whatever it is at then."""
    _signal.signal(_signal.SIGALRM, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, (_signal.SIGALRM,))
    _signal.setitimer(_signal.ITIMER_REAL, seconds)


def answer(why: str) -> str:
    """A denial in the form that agents' programs read."""
    denial = {
        "hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": why[:REASON_CHARS],
    }  # fmt: skip
    return json.dumps({"hookSpecificOutput": denial})


def _failed(why: str) -> int:
    """The one exit code that holds a call back, with the reason where each program looks for it."""
    try:
        print(answer(why), flush=True)
        print(why[:REASON_CHARS], file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass  # nobody listens
    return 2


def refusal(event: dict[str, Any], rules: dict[str, Any]) -> str:
    """Why the call of this event may not be made; empty where it may. Raises Unusable."""
    tool, arguments, cwd = given.text(event, "tool_name"), event.get("tool_input"), given.text(event, "cwd")
    if not tool or not isinstance(arguments, dict) or not os.path.isabs(cwd):
        raise Unusable("the event must have a tool_name, a tool_input and a cwd")
    from ralphproof.guard.judge import objection
    from ralphproof.guard.verdict import Exceptions, Ground

    allow, deny, protected = (tuple(rules[name]) for name in RULES)
    root, here, home = map(os.path.realpath, (rules["root"], cwd, os.path.expanduser("~")))
    ground = Ground(root, here, home, protected, rules.get("taskFolder", ""))
    found = objection(tool, arguments, ground, Exceptions(allow, deny))
    if found is None:
        return ""
    return given.clean(f"{NAME} [{found.rule}]: {found.what} {found.reason}; instead: {found.instead}")


def rules_in(argv: list[str]) -> dict[str, Any]:
    """The rules of the run, from the file that the one argument names. Raises Unusable."""
    if len(argv) != 1:
        raise Unusable("the guard takes one argument, the file of its rules")
    try:
        found = json.loads(contents(argv[0]))
    except OSError as error:
        raise Unusable(f"the guard's rules cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise Unusable("the guard's rules are not valid JSON") from error
    if not isinstance(found, dict) or not _sound(found):
        raise Unusable("the guard's rules must have an absolute root, and lists of texts: allow, deny, protected")
    return found


def contents(path: str, what: str = "the guard's rules") -> bytes:
    """A file to its end, where it is one and not too large; raises Unusable and OSError. No pipe is waited for."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    state = os.fstat(file)
    if not stat.S_ISREG(state.st_mode):
        os.close(file)
        raise Unusable(f"{what}: not a regular file")
    if state.st_size > MOST_BYTES:
        os.close(file)
        raise Unusable(f"{what}: larger than {MOST_BYTES >> 20} MiB")
    with open(file, "rb") as opened:
        return opened.read(MOST_BYTES)


def _sound(rules: dict[str, Any]) -> bool:
    lists = [rules.get(name) for name in RULES]
    texts = all(isinstance(one, list) and all(isinstance(text, str) for text in one) for one in lists)
    folders = isinstance(rules.get("root"), str) and isinstance(rules.get("taskFolder", ""), str)
    return texts and folders and os.path.isabs(rules["root"])


if __name__ == "__main__":
    sys.exit(main())
