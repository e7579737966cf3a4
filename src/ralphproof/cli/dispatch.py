"""Dispatch of a command line to its verb; every error becomes one line and an exit code."""

from __future__ import annotations

import os
import sys

from ralphproof import __version__
from ralphproof.base.errors import RalphError, Refused, wrap_os_error
from ralphproof.base.standard_streams import reopen_closed_streams
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.cli.verbs import USER_ONLY_COMMANDS, VERBS, verb_function

if TYPE_CHECKING:
    from collections.abc import Callable


def dispatch(argv: list[str]) -> int:
    """Run one command line and return its exit code; never raises."""
    reopen_closed_streams()
    return run_to_exit_code(lambda: run_verb(*split_verb(argv)), argv)


def run_to_exit_code(work: Callable[[], int], argv: list[str]) -> int:
    """Run `work`; turn any exception into an error message and its exit code."""
    try:
        return work()
    except RalphError as error:
        return report_error(error, "--json" in argv)
    except KeyboardInterrupt:
        print_error_line("interrupted")
        return 130
    except BrokenPipeError:
        # The reader closed our output; the interpreter must not try to flush it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except OSError as error:
        return report_error(_refusal_for_user_path(error, argv) or wrap_os_error(error), "--json" in argv)
    except Exception as error:  # noqa: BLE001 (an internal error is one clear line too)
        return report_internal_error(error, argv)


def _refusal_for_user_path(error: OSError, argv: list[str]) -> Refused | None:
    """A refusal if the system call failed at or below a path that the user named: another path may work."""
    from ralphproof.base.files import explain_os_error

    if not isinstance(error.filename, str):
        return None
    path = os.path.abspath(error.filename)
    words = [word.partition("=")[2] if word.startswith("-") else word for word in argv]
    words += [os.environ.get(name, "") for name in ("RALPH_STATE_DIR", "RALPH_CONFIG_DIR")]
    user_paths = (os.path.abspath(os.path.expanduser(word)) for word in words if word)
    if not any(path == each or path.startswith(f"{each.rstrip('/')}/") for each in user_paths):
        return None
    explained = explain_os_error(error, error.filename, "name another path")
    return explained if isinstance(explained, Refused) else None


def split_verb(argv: list[str]) -> tuple[str, list[str]]:
    """Split off the verb; common flags may come before it.

    An empty command line, flags alone, and a prompt of several words mean `run`. A single unknown word is a mistyped
    verb.
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
    """The number of words of a common flag including its value; 0 if the word is not one."""
    if word in ("--json", "--no-color", "--no-emoji", "--quiet", "--verbose") or word.startswith("--project-dir="):
        return 1
    if word == "--project-dir":
        return 2
    letters, takes_folder, folder = word[1:].partition("d")
    if word[:1] != "-" or word == "-" or letters.strip("qV"):
        return 0
    return 2 if takes_folder and not folder else 1


def _known_verb(word: str) -> str:
    if word in VERBS:
        return word
    from ralphproof.base.text import did_you_mean

    raise Refused(f"unknown command {word}{did_you_mean(word, VERBS)} (see ralph --help)")


def run_verb(verb: str, argv: list[str]) -> int:
    """Run a verb and flush its output: a closed pipe is noticed here and not at exit."""
    try:
        _refuse_inside_turn(verb, argv)
        code: int = (BUILTIN_VERBS.get(verb) or verb_function(verb, "main"))(argv)
    except SystemExit as error:  # argparse ends --help this way
        code = int(error.code or 0)
    sys.stdout.flush()
    return code


def _refuse_inside_turn(verb: str, argv: list[str]) -> None:
    """Refuse user-only commands inside an agent's turn. If that depends on flags, the verb itself checks."""
    with_subverb = next((f"{verb} {word}" for word in argv if not word.startswith("-")), "")
    command = next((name for name in (verb, with_subverb) if name in USER_ONLY_COMMANDS), "")
    if not command or "-h" in argv or "--help" in argv:
        return
    from ralphproof.runs.open_project import refuse_in_turn

    refuse_in_turn(command)


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


BUILTIN_VERBS = {"help": _help, "version": _version}  # without a module of their own


def report_error(error: RalphError, as_json: bool) -> int:
    """Print an error, one line per problem, and return its exit code."""
    text = f"{error.reason}: {error}" if error.reason else str(error)
    for line in text.splitlines() or [type(error).__name__]:
        print_error_line(line)
    if as_json:
        import json

        try:
            print(json.dumps({"v": 1, "type": "error", "error": str(error), "exitCode": error.exit_code}))
        except OSError:
            pass  # standard output may be what failed
    from ralphproof.base.standard_streams import flush_streams

    flush_streams()
    return error.exit_code


def report_internal_error(error: Exception, argv: list[str]) -> int:
    """Report a bug of this program; -V shows the traceback."""
    if "-V" in argv or "--verbose" in argv:
        import traceback

        traceback.print_exception(error)
    what = f"{type(error).__name__}: {error}"
    return report_error(
        RalphError(f"internal error ({what}); the work and the records are kept, -V shows the traceback"), False
    )


def print_error_line(line: str) -> None:
    from ralphproof.base.escaping import sanitize

    try:
        print(f"ralph: {sanitize(line)}", file=sys.stderr)
    except (OSError, ValueError):
        pass  # standard error is closed


def help_text() -> str:
    verbs = "\n".join(f"  {name:<12} {about}" for name, about in VERBS.items())
    return f"""ralph {__version__}: run a coding agent until checks show that the work is done.

usage: ralph [run] [PROMPT] [flags]
       ralph VERB [arguments]

{verbs}

examples:
  ralph demo
  ralph run -p "make the tests pass"
  ralph run -f prompt.md --check "make test" -m 20 --agent claude
  ralph status

ralph VERB --help shows details. Exit codes: 0 completed, 1 stopped by a limit, 2 refused,
3 internal error, 4 waiting for a person, 130 interrupted or cancelled."""
