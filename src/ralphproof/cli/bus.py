"""`ralph bus`: messages between agents, loops and people."""

from __future__ import annotations

import argparse
import os
import sys

from ralphproof.base.errors import Refused
from ralphproof.base.git_layout import resolve_project_root
from ralphproof.base.standard_streams import read_stdin_bytes
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.cli.parser import Parser, positive_int
from ralphproof.display.output import print_json, print_lines
from ralphproof.store.message_bus import (
    INFO,
    MAX_BODY_BYTES,
    is_message_id,
    open_project_bus,
    open_task_bus,
    parse_message_type,
    unknown_type_message,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ralphproof.base.value import Json
    from ralphproof.store.message_bus import Message, MessageBus


PROJECT_BUS, TASK_BUS_NAME = "project", "task"


class BusSelection:
    """The bus that the flags select, and the tags of new messages."""

    def __init__(self, args: argparse.Namespace, name: str | None) -> None:
        self._args, self._environ = args, os.environ
        if args.task_folder == "":
            raise Refused("--task-folder is empty; name a folder, or leave it out")
        task = args.run or args.task_folder or self._environ.get("TASK_FOLDER")
        self.name = name or (TASK_BUS_NAME if task else PROJECT_BUS)
        self.run, self._run_folder = _find_run(args) if args.run else ("", "")

    def bus(self) -> MessageBus:
        if self.name == PROJECT_BUS:
            return open_project_bus(resolve_project_root(self._args.project_dir), _secret_mask())
        folder = self._run_folder or self._args.task_folder or self._environ.get("TASK_FOLDER")
        if not folder:
            raise Refused("which task? name its run with --run RUN (or latest), or its folder with --task-folder DIR")
        if self._args.task_folder and not os.path.isdir(folder):
            raise Refused(f"{folder} is not a directory; --task-folder names that of a task")
        return open_task_bus(folder, _secret_mask())

    def tags(self) -> dict[str, str]:
        """Run, project and task of the sender; not of the run to whose bus the message is posted."""
        args, environ = self._args, self._environ
        return {
            "run": environ.get("RALPH_RUN_ID") or self.run,
            "project": args.project if args.project is not None else environ.get("RALPH_PROJECT", ""),
            "task": args.task if args.task is not None else environ.get("RALPH_TASK", ""),
        }


def _secret_mask() -> Callable[[str], str]:
    from ralphproof.base.redaction import find_environment_secrets, mask_text

    secrets = find_environment_secrets(os.environ)
    return lambda text: mask_text(text, secrets)


def _find_run(args: argparse.Namespace) -> tuple[str, str]:
    """The id of the selected run, and its task folder."""
    from ralphproof.cli.parser import find_named_run
    from ralphproof.runs.open_project import view_project
    from ralphproof.store.run_state import public_run_folder

    project = view_project(args.project_dir, os.environ)
    with project.ledger() as ledger:
        row = find_named_run(ledger, args.run, args)
        facts = getattr(next(iter(ledger.records(row.id)), None), "facts", {})
        return row.id, str(facts.get("taskFolder") or os.path.join(public_run_folder(project, row), "task"))


ABOUT = """Post and read messages between agents, loops and people, in one file per project and per task.

The project's bus is .ralph/bus/PROJECT-MESSAGE-BUS.md, a task's bus is TASK-MESSAGE-BUS.md in its folder. The task's
bus is used if TASK_FOLDER is set, as it is for agents, or --run or --task-folder is given; else the project's. post
prints the id of the new message. follow runs until Ctrl-C, which is its normal end (exit code 0). Message types: INFO,
FACT, PROGRESS, DECISION, QUESTION, ANSWER, WARNING, ERROR, WAIT. With WAIT an agent asks its run to wait
for a person."""
EXAMPLES = (
    'ralph bus post "the parser is done"',
    'ralph bus post --type question --to project "Which port is free?"',
    'ralph bus post --type answer --to project --reply-to 20261115-210507-048213-k3f9x2ab "8080"',
    'ralph bus post --type wait "waiting for the review"',
    "git log -1 | ralph bus post --type progress -",
    "ralph bus read -n 20",
    "ralph bus read --run latest --type warning --type error --json",
    "ralph bus follow --from project --project calc",
)
POST_FLAGS, READ_FLAGS = (
    ("to", "reply_to"),
    ("from", "since", "n"),
)  # flags that only post, or only read and follow, take


class _BusParser(Parser):
    """A parser that accepts flags between the verb and the text."""

    def parse(self, argv: list[str]) -> argparse.Namespace:
        known, unknown = self.parse_known_intermixed_args(argv)
        if unknown:
            self.error(f"unknown argument {unknown[0]}{self._nearest(unknown[0])}")
        return known


def bus_parser() -> Parser:
    parser = _BusParser("bus", ABOUT, EXAMPLES)
    add = parser.add
    add("what", "post a message; print messages; print messages as they arrive", choices=("post", "read", "follow"))
    add("text", "with post: the message; - reads standard input", nargs="?", metavar="TEXT")
    add("--to", "with post: bus to post to", choices=(PROJECT_BUS, TASK_BUS_NAME))
    add("--from", "with read and follow: bus to read", choices=(PROJECT_BUS, TASK_BUS_NAME))
    add(
        "--type TYPE",
        "with post: message type (default: INFO); else: show only these types",
        action="append",
        type=_message_type,
    )
    add("--reply-to ID", "with post: message that this one answers", action="append", type=_message_id)
    add("--project P", "with post: project name (default: RALPH_PROJECT); else: show only this project")
    add("--task T", "with post: task name (default: RALPH_TASK); else: show only this task")
    which = parser.add_mutually_exclusive_group()
    add("--run RUN", "bus of this run's task; on the project's bus: messages of this run", which)
    add("--task-folder DIR", "bus in this folder (default: TASK_FOLDER)", which)
    add("--since ID", "with read and follow: messages after this one", type=_message_id)
    add("-n N", "with read and follow: only the last N existing messages", type=positive_int)
    return parser


def _message_type(word: str) -> str:
    if known := parse_message_type(word):
        return known
    raise argparse.ArgumentTypeError(unknown_type_message(word))


def _message_id(text: str) -> str:
    if is_message_id(text):
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is no message id; ralph bus read shows them")


def bus_main(argv: list[str]) -> int:
    args = bus_parser().parse(argv)
    _refuse_unused_flags(args)
    if args.what == "post":
        return _post_message(args)
    reader = _MessageReader(args)
    if args.what == "read":
        return reader.read()
    try:
        return reader.follow()
    except KeyboardInterrupt:
        return 0


def _refuse_unused_flags(args: argparse.Namespace) -> None:
    """Refuse flags of the other verbs."""
    for name in READ_FLAGS if args.what == "post" else POST_FLAGS:
        if vars(args)[name] is not None:
            flag = f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"
            raise Refused(f"{flag} does not go with ralph bus {args.what} (see ralph bus --help)")
    if args.what != "post" and args.text is not None:
        raise Refused(f"ralph bus {args.what} takes no text; to post a message: ralph bus post TEXT")
    if args.what == "post" and args.text is None:
        raise Refused("no message; use: ralph bus post TEXT, or - for standard input")
    if args.what == "post" and len(args.type or ()) > 1:
        raise Refused("a message has one type; give --type once")


def _post_message(args: argparse.Namespace) -> int:
    from ralphproof.store.message_bus import post_or_spool

    selection = BusSelection(args, args.to)
    body = args.text
    if body == "-":
        too_long = f"a message has at most {MAX_BODY_BYTES} bytes; standard input has more"
        body = read_stdin_bytes("-", MAX_BODY_BYTES, too_long).decode("utf-8", "replace")
    bus, tags, environ = selection.bus(), selection.tags(), os.environ
    iteration = environ.get("RALPH_ITERATION", "")
    draft = bus.draft(
        (args.type or [INFO])[0], body, **tags, parents=args.reply_to or (),
        iteration=int(iteration) if iteration.isascii() and iteration.isdigit() else None,
    )  # fmt: skip
    message, path = post_or_spool(bus, draft, environ.get("TASK_FOLDER", "") if selection.name == PROJECT_BUS else "")
    spooled = path != bus.path
    if args.json:
        print_json("message", {**message.published(), "path": path, "spooled": spooled})
        return 0
    print_lines(message.id)
    if spooled:
        _print_note(f"the project's bus cannot be written from here; the run will forward the message from {path}")
    return 0


class _MessageReader:
    """Prints the messages that match the flags."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        place = BusSelection(args, vars(args)["from"])
        self._bus = place.bus()
        self._run = place.run if place.name == PROJECT_BUS else ""
        self._last = args.since or ""  # the id of the last message, shown or not

    def read(self) -> int:
        """Print the existing messages."""
        found = self._existing()
        if self._args.json:
            from ralphproof.engine.outcome import published

            messages: list[Json] = [published("message", message.published()) for message in found]
            print_json("bus", {"path": self._bus.path, "messages": messages, "skipped": self._bus.skipped})
            return 0
        for message in found:
            _print_message(message)
        self._report_skipped()
        return 0

    def follow(self) -> int:
        """Print the existing messages, then new ones as they arrive."""
        for message in self._existing():
            self._print(message)
        self._report_skipped()
        for message in self._matching(self._bus.follow(lambda: False, self._last)):
            self._print(message)
        return 0

    def _existing(self) -> Iterable[Message]:
        messages = self._matching(self._track_last(self._bus.messages(self._args.since or "")))
        if self._args.n is None:
            return messages
        from collections import deque

        return deque(messages, maxlen=self._args.n)

    def _track_last(self, messages: Iterator[Message]) -> Iterator[Message]:
        for message in messages:
            self._last = message.id
            yield message

    def _matching(self, messages: Iterable[Message]) -> Iterator[Message]:
        args = self._args
        for message in messages:
            if (
                (not args.type or message.kind in args.type)
                and args.project in (None, message.project)
                and args.task in (None, message.task)
                and self._run in ("", message.run)
            ):
                yield message

    def _print(self, message: Message) -> None:
        if self._args.json:
            print_json("message", message.published())
        else:
            _print_message(message)
        sys.stdout.flush()

    def _report_skipped(self) -> None:
        if (count := self._bus.skipped) and not self._args.quiet:
            _print_note(f"{self._bus.path}: skipped {count} lines that belong to no complete message")


def _print_message(message: Message) -> None:
    from ralphproof.base.escaping import sanitize

    about = [f"run {message.run}"] if message.run else []
    about += [f"iteration {message.iteration}"] if message.iteration is not None else []
    about += [f"{name} {text}" for name, text in (("project", message.project), ("task", message.task)) if text]
    about += [f"answers {' '.join(message.parents)}"] if message.parents else []
    print_lines(f"{message.kind} {message.id}" + (f"  ({', '.join(about)})" if about else ""))
    print_lines(*(f"    {line}".rstrip() for line in sanitize(message.body).split("\n")), "")


def _print_note(line: str) -> None:
    sys.stdout.flush()
    from ralphproof.base.escaping import sanitize

    print(f"ralph: {sanitize(line)}", file=sys.stderr)
