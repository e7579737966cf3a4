"""From words on the command line to a verb's exit code. The only place that turns exceptions into messages."""

from __future__ import annotations

import os
import sys

from ralphproof import __version__
from ralphproof.cli.verbs import VERBS
from ralphproof.errors import RalphError, Refused, from_system
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def dispatch(argv: list[str]) -> int:
    """Carry out one command line; never raises."""
    try:
        verb, rest = verb_of(argv)
        return run_verb(verb, rest)
    except RalphError as error:
        return fail(error, "--json" in argv)
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    except BrokenPipeError:
        # Whoever read our output has left. Nothing more can be said, and the interpreter must not try at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except OSError as error:
        return fail(from_system(error), "--json" in argv)
    except Exception as error:  # noqa: BLE001 (a fault of our own is one clear line too)
        return own_fault(error, argv)


def verb_of(argv: list[str]) -> tuple[str, list[str]]:
    """The verb and its arguments. Nothing is `run`, flags alone are `run`'s, and so is a prompt of several words."""
    if not argv:
        return "run", []
    first = argv[0]
    if first in ("-h", "--help", "help"):
        return "help", []
    if first in VERBS:
        return first, argv[1:]
    if first.startswith("-") or any(character.isspace() for character in first):
        return "run", argv
    from ralphproof.cli.parser import nearest

    raise Refused(f"unknown command {first}{nearest(first, VERBS)} (see ralph --help)")


def run_verb(verb: str, argv: list[str]) -> int:
    """The verb's exit code, once all that it said is written: a reader that left is noticed here, not at exit."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.reconfigure(errors="replace")  # LC_ALL=C has no words for some letters
    try:
        code = _main_of(verb)(argv)
    except SystemExit as left:  # so argparse ends a --help
        code = int(left.code or 0)
    if sys.stdout is not None:
        sys.stdout.flush()
    return code


def _main_of(verb: str) -> Callable[[list[str]], int]:
    from importlib import import_module

    if verb == "help":
        return _help
    main: Callable[[list[str]], int] = import_module(f"ralphproof.cli.{verb}").main
    return main


def _help(_: list[str]) -> int:
    print(help_text())
    return 0


def fail(error: RalphError, as_json: bool) -> int:
    """Say what went wrong, one line a problem."""
    text = f"{error.reason}: {error}" if error.reason else str(error)
    for line in text.splitlines() or [type(error).__name__]:
        say(line)
    if as_json:
        import json

        print(json.dumps({"v": 1, "type": "error", "error": str(error), "exitCode": error.exit_code}))
    return error.exit_code


def own_fault(error: Exception, argv: list[str]) -> int:
    """Something that must not happen did. Whoever wants to mend it asks again with -V."""
    if "-V" in argv or "--verbose" in argv:
        import traceback

        traceback.print_exception(error)
    what = f"{type(error).__name__}: {error}"
    return fail(RalphError(f"a fault of ralph's own ({what}); the work and the record are kept, -V shows where"), False)


def say(line: str) -> None:
    from ralphproof.display.clean import clean

    try:
        print(f"ralph: {clean(line)}", file=sys.stderr)
    except (OSError, ValueError):
        pass  # nobody listens


def help_text() -> str:
    verbs = "\n".join(f"  {name:<12} {about}" for name, about in VERBS.items())
    return f"""ralph {__version__}: runs a coding agent until a machine can show that the work is done.

usage: ralph [run] [PROMPT] [flags]
       ralph VERB [arguments]

{verbs}

examples:
  ralph demo
  ralph run -p "make the tests pass" --check auto
  ralph run -f prompt.md --check "make test" -m 20 --agent claude
  ralph status

ralph VERB --help says more. Exit codes: 0 completed, 1 a limit or a tripwire ended it, 2 refused,
3 a fault of ralph's own, 4 waiting for somebody, 130 interrupted or cancelled."""
