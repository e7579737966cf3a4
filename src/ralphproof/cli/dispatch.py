"""From the command line to the exit code of a verb."""

from __future__ import annotations

import os
import sys

from ralphproof import __version__
from ralphproof.base.errors import RalphError, Refused, wrap_os_error
from ralphproof.base.standard_streams import reopen_closed_streams
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.cli.verbs import VERBS
from ralphproof.runs.agent_restrictions import USER_ONLY_COMMANDS

if TYPE_CHECKING:
    from collections.abc import Callable


# From words on the command line to a verb's exit code. The only place that turns exceptions into messages.


def dispatch(argv: list[str]) -> int:
    """Carry out one command line; never raises."""
    reopen_closed_streams()
    return run_to_exit_code(lambda: run_verb(*split_verb(argv)), argv)


def run_to_exit_code(work: Callable[[], int], argv: list[str]) -> int:
    """The exit code of some work, of whatever went wrong with it too; that is said."""
    try:
        return work()
    except RalphError as error:
        return report_error(error, "--json" in argv)
    except KeyboardInterrupt:
        print_error_line("interrupted")
        return 130
    except BrokenPipeError:
        # Whoever read our output has left. Nothing more can be said, and the interpreter must not try at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except OSError as error:
        return report_error(_refusal_for_user_path(error, argv) or wrap_os_error(error), "--json" in argv)
    except Exception as error:  # noqa: BLE001 (a fault of our own is one clear line too)
        return report_internal_error(error, argv)


def _refusal_for_user_path(error: OSError, argv: list[str]) -> Refused | None:
    """A refusal where the system failed at a path that the user named, or below it: another one would do."""
    from ralphproof.base.files import explain_os_error

    if not isinstance(error.filename, str):
        return None
    path = os.path.abspath(error.filename)
    words = [word.partition("=")[2] if word.startswith("-") else word for word in argv]
    words += [os.environ.get(name, "") for name in ("RALPH_STATE_DIR", "RALPH_CONFIG_DIR")]
    named = (os.path.abspath(os.path.expanduser(word)) for word in words if word)
    if not any(path == one or path.startswith(f"{one.rstrip('/')}/") for one in named):
        return None
    found = explain_os_error(error, error.filename, "name another path")
    return found if isinstance(found, Refused) else None


def split_verb(argv: list[str]) -> tuple[str, list[str]]:
    """The verb and its arguments. Flags that every verb takes may stand before it.

    Nothing is `run`, flags alone are `run`'s, and so is a prompt of several words. One word that is no verb is a slip.
    """
    at = 0
    while at < len(argv) and (width := _common_flag_width(argv[at])):
        at += width
    common, word, rest = argv[:at], argv[at] if at < len(argv) else "", argv[at + 1 :]
    if word == "help" and rest and rest[0] != "help":
        return _known_verb(rest[0]), ["--help"]
    if word in ("-h", "--help", "help"):
        return "help", []
    if word in ("-v", "--version"):
        return "version", common
    if not word or word.startswith("-") or any(character.isspace() for character in word):
        return "run", argv
    return _known_verb(word), [*common, *rest]


def _common_flag_width(word: str) -> int:
    """How many words a flag that every verb takes is long, its value included; 0 where the word is no such flag."""
    if word in ("--json", "--no-color", "--no-emoji", "--quiet", "--verbose") or word.startswith("--project-dir="):
        return 1
    if word == "--project-dir":
        return 2
    letters, takes, folder = word[1:].partition("d")
    if word[:1] != "-" or word == "-" or letters.strip("qV"):
        return 0
    return 2 if takes and not folder else 1


def _known_verb(word: str) -> str:
    if word in VERBS:
        return word
    from ralphproof.base.text import did_you_mean

    raise Refused(f"unknown command {word}{did_you_mean(word, VERBS)} (see ralph --help)")


def run_verb(verb: str, argv: list[str]) -> int:
    """The verb's exit code, once all that it said is written: a reader that left is noticed here, not at exit."""
    try:
        _refuse_inside_turn(verb, argv)
        code = _load_main(verb)(argv)
    except SystemExit as left:  # so argparse ends a --help
        code = int(left.code or 0)
    sys.stdout.flush()
    return code


def _refuse_inside_turn(verb: str, argv: list[str]) -> None:
    """Raise Refused inside a turn for what only the user may do. Where that depends on flags, the verb itself looks."""
    words = next((f"{verb} {word}" for word in argv if not word.startswith("-")), "")
    what = verb if verb in USER_ONLY_COMMANDS else words if words in USER_ONLY_COMMANDS else ""
    if not what or "-h" in argv or "--help" in argv:
        return
    from ralphproof.runs.agent_restrictions import refuse_in_turn

    refuse_in_turn(what)


def _load_main(verb: str) -> Callable[[list[str]], int]:
    from importlib import import_module

    if verb in BUILTIN_VERBS:
        return BUILTIN_VERBS[verb]
    main: Callable[[list[str]], int] = import_module(f"ralphproof.cli.{verb}").main
    return main


def _help(_: list[str]) -> int:
    print(help_text())
    return 0


def _version(argv: list[str]) -> int:
    from ralphproof.display.output import print_json, print_lines

    if "--json" in argv:
        print_json("version", {"version": __version__})
    else:
        print_lines(f"ralph {__version__}")
    return 0


BUILTIN_VERBS = {"help": _help, "version": _version}  # what needs no module


def report_error(error: RalphError, as_json: bool) -> int:
    """Say what went wrong, one line a problem."""
    text = f"{error.reason}: {error}" if error.reason else str(error)
    for line in text.splitlines() or [type(error).__name__]:
        print_error_line(line)
    if as_json:
        import json

        try:
            print(json.dumps({"v": 1, "type": "error", "error": str(error), "exitCode": error.exit_code}))
        except OSError:
            pass  # it may be what went wrong: standard output takes nothing
    from ralphproof.base.standard_streams import flush_streams

    flush_streams()
    return error.exit_code


def report_internal_error(error: Exception, argv: list[str]) -> int:
    """Something that must not happen did. Whoever wants to mend it asks again with -V."""
    if "-V" in argv or "--verbose" in argv:
        import traceback

        traceback.print_exception(error)
    what = f"{type(error).__name__}: {error}"
    return report_error(
        RalphError(f"a fault of ralph's own ({what}); the work and the record are kept, -V shows where"), False
    )


def print_error_line(line: str) -> None:
    from ralphproof.base.escaping import sanitize

    try:
        print(f"ralph: {sanitize(line)}", file=sys.stderr)
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
  ralph run -p "make the tests pass"
  ralph run -f prompt.md --check "make test" -m 20 --agent claude
  ralph status

ralph VERB --help says more. Exit codes: 0 completed, 1 a limit or a tripwire ended it, 2 refused,
3 a fault of ralph's own, 4 waiting for somebody, 130 interrupted or cancelled."""
