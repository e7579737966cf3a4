"""From words on the command line to a verb's exit code. The only place that turns exceptions into messages."""

from __future__ import annotations

import os
import sys

from ralphproof import __version__
from ralphproof.cli.verbs import USERS_OWN, VERBS
from ralphproof.errors import RalphError, Refused, from_system
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def dispatch(argv: list[str]) -> int:
    """Carry out one command line; never raises."""
    hold_streams()
    return coded(lambda: run_verb(*verb_of(argv)), argv)


def coded(work: Callable[[], int], argv: list[str]) -> int:
    """The exit code of some work, of whatever went wrong with it too; that is said."""
    try:
        return work()
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
        return fail(_named_by_user(error, argv) or from_system(error), "--json" in argv)
    except Exception as error:  # noqa: BLE001 (a fault of our own is one clear line too)
        return own_fault(error, argv)


def _named_by_user(error: OSError, argv: list[str]) -> Refused | None:
    """A refusal where the system failed at a path that the user named, or below it: another one would do."""
    from ralphproof.ledgers.files import explain

    if not isinstance(error.filename, str):
        return None
    path = os.path.abspath(error.filename)
    words = [word.partition("=")[2] if word.startswith("-") else word for word in argv]
    words += [os.environ.get(name, "") for name in ("RALPH_STATE_DIR", "RALPH_CONFIG_DIR")]
    named = (os.path.abspath(os.path.expanduser(word)) for word in words if word)
    if not any(path == one or path.startswith(f"{one.rstrip('/')}/") for one in named):
        return None
    found = explain(error, error.filename, "name another path")
    return found if isinstance(found, Refused) else None


def hold_streams() -> None:
    """Let output go nowhere where it was closed: else the next file that is opened, the ledger say, would get it."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
            os.set_inheritable(number, True)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 (it stays open)
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # LC_ALL=C has no words for some letters


def verb_of(argv: list[str]) -> tuple[str, list[str]]:
    """The verb and its arguments. Flags that every verb takes may stand before it.

    Nothing is `run`, flags alone are `run`'s, and so is a prompt of several words. One word that is no verb is a slip.
    """
    at = 0
    while at < len(argv) and (width := _common_flag(argv[at])):
        at += width
    common, word, rest = argv[:at], argv[at] if at < len(argv) else "", argv[at + 1 :]
    if word == "help" and rest and rest[0] != "help":
        return _known(rest[0]), ["--help"]
    if word in ("-h", "--help", "help"):
        return "help", []
    if word in ("-v", "--version"):
        return "version", common
    if not word or word.startswith("-") or any(character.isspace() for character in word):
        return "run", argv
    return _known(word), [*common, *rest]


def _common_flag(word: str) -> int:
    """How many words a flag that every verb takes is long, its value included; 0 where the word is no such flag."""
    if word in ("--json", "--no-color", "--no-emoji", "--quiet", "--verbose") or word.startswith("--project-dir="):
        return 1
    if word == "--project-dir":
        return 2
    letters, takes, folder = word[1:].partition("d")
    if word[:1] != "-" or word == "-" or letters.strip("qV"):
        return 0
    return 2 if takes and not folder else 1


def _known(word: str) -> str:
    if word in VERBS:
        return word
    from ralphproof.cli.parser import nearest

    raise Refused(f"unknown command {word}{nearest(word, VERBS)} (see ralph --help)")


def run_verb(verb: str, argv: list[str]) -> int:
    """The verb's exit code, once all that it said is written: a reader that left is noticed here, not at exit."""
    try:
        _refuse_agents(verb, argv)
        code = _main_of(verb)(argv)
    except SystemExit as left:  # so argparse ends a --help
        code = int(left.code or 0)
    sys.stdout.flush()
    return code


def _refuse_agents(verb: str, argv: list[str]) -> None:
    """Raise Refused inside a turn for what only the user may do. Where that depends on flags, the verb itself looks."""
    words = next((f"{verb} {word}" for word in argv if not word.startswith("-")), "")
    what = verb if verb in USERS_OWN else words if words in USERS_OWN else ""
    if not what or "-h" in argv or "--help" in argv:
        return
    from ralphproof.cli.in_turn import refuse_in_turn

    refuse_in_turn(what)


def _main_of(verb: str) -> Callable[[list[str]], int]:
    from importlib import import_module

    if verb in OWN:
        return OWN[verb]
    main: Callable[[list[str]], int] = import_module(f"ralphproof.cli.{verb}").main
    return main


def _help(_: list[str]) -> int:
    print(help_text())
    return 0


def _version(argv: list[str]) -> int:
    from ralphproof.cli.out import put, put_json

    if "--json" in argv:
        put_json("version", {"version": __version__})
    else:
        put(f"ralph {__version__}")
    return 0


OWN = {"help": _help, "version": _version}  # what needs no module


def fail(error: RalphError, as_json: bool) -> int:
    """Say what went wrong, one line a problem."""
    text = f"{error.reason}: {error}" if error.reason else str(error)
    for line in text.splitlines() or [type(error).__name__]:
        say(line)
    if as_json:
        import json

        try:
            print(json.dumps({"v": 1, "type": "error", "error": str(error), "exitCode": error.exit_code}))
        except OSError:
            pass  # it may be what went wrong: standard output takes nothing
    from ralphproof.cli.out import let_go

    let_go()
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
  ralph run -p "make the tests pass"
  ralph run -f prompt.md --check "make test" -m 20 --agent claude
  ralph status

ralph VERB --help says more. Exit codes: 0 completed, 1 a limit or a tripwire ended it, 2 refused,
3 a fault of ralph's own, 4 waiting for somebody, 130 interrupted or cancelled."""
