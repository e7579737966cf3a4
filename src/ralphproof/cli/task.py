"""`ralph task`: tasks with what done means for each: made, read from files, shown, and changed."""

from __future__ import annotations

from ralphproof.cli.out import put_json
from ralphproof.cli.parser import Parser, nearest
from ralphproof.errors import Refused
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

ABOUT = """tasks with what done means for each: made, read from files, shown, and changed. ralph work works on them.

{verbs}

ralph task VERB --help says more."""
EXAMPLES = (
    'ralph task create TASK-001 auth "Implement JWT auth" --outcome "All endpoints require a valid token" \\',
    '    --acceptance "Invalid tokens return 401" --tester-verify-cmd "pytest tests/test_auth.py"',
    "ralph task import tasks.yaml",
    "ralph task list",
    "ralph task show TASK-001",
)
VERBS = {
    "create": "make a task",
    "followup": "make a task that comes after another one",
    "generate": "let an agent break a wish or a document into tasks",
    "import": "make tasks from files",
    "export": "write tasks as a file that can be imported",
    "validate": "say what is wrong with tasks, in files or in the record",
    "list": "every task, one line each",
    "show": "all about one task, with every verification of it",
    "edit": "change a task",
    "templates": "ready-made ways to verify a stage",
}


def parser() -> Parser:
    verbs = "\n".join(f"    {name:<10} {about}" for name, about in VERBS.items())
    made = Parser("task", ABOUT.format(verbs=verbs), EXAMPLES)
    made.add_argument("what", choices=tuple(VERBS), metavar="VERB", help="what to do; all of them are said above")
    return made


def parsers() -> dict[str, Parser]:
    """The parser of each verb."""
    return {verb: _module(verb).parser() for verb in VERBS}


def main(argv: list[str]) -> int:
    at = 0
    while at < len(argv) and argv[at].startswith("-"):
        at += _width(argv[at])
    if at >= len(argv):
        return _help(argv)
    verb, rest = argv[at], [*argv[:at], *argv[at + 1 :]]
    if verb not in VERBS:
        raise Refused(f"unknown command task {verb}{nearest(verb, VERBS)} (see ralph task --help)")
    main: Callable[[list[str]], int] = _module(verb).main
    return main(rest)


def _width(flag: str) -> int:
    """How many words a flag is long that every verb takes: one of them names a folder."""
    return 2 if flag == "--project-dir" or (flag.endswith("d") and not flag.startswith("--")) else 1


def _help(argv: list[str]) -> int:
    """Without a verb: what the verbs are. Flags are looked at all the same."""
    made = parser()
    made.parse([*argv, "list"])
    if "--json" in argv:
        put_json("task", {"verbs": dict(VERBS)})
    else:
        print(made.format_help(), end="")
    return 0


def _module(verb: str) -> Any:
    from importlib import import_module

    return import_module(f"ralphproof.cli.task_{verb}")
