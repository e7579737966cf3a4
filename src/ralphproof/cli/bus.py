"""`ralph bus`: messages between agents, loops and people, in a file for the project and one for each task."""

from __future__ import annotations

import argparse
import os
import sys

from ralphproof.cli.bus_place import PROJECT, TASK, Place
from ralphproof.cli.out import put, put_json
from ralphproof.cli.parser import Parser, positive
from ralphproof.cli.standard_input import read_bytes
from ralphproof.errors import Refused
from ralphproof.message import BODY_BYTES, INFO, is_id, type_of, unknown_type
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Iterator

    from ralphproof.message import Message
    from ralphproof.value import Json

ABOUT = """messages between agents, loops and people, in a file for the project and one for each task.

The project's bus is .ralph/bus/PROJECT-MESSAGE-BUS.md, a task's is TASK-MESSAGE-BUS.md in its folder. Which one is
meant: the task's where TASK_FOLDER is set, as it is for agents, or --run or --task-folder is given; else the project's.
post prints the id of the new message. follow goes on until Ctrl-C, which is its normal end (exit code 0).
A message has a type: INFO, FACT, PROGRESS, DECISION, QUESTION, ANSWER, WARNING, ERROR or WAIT. By the last an agent
says that its run is to wait for somebody."""
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
POSTING, READING = ("to", "reply_to"), ("from", "since", "n")  # what only one of them takes


class _Words(Parser):
    """Flags may stand between the verb and the text."""

    def parse(self, argv: list[str]) -> Namespace:
        known, unknown = self.parse_known_intermixed_args(argv)
        if unknown:
            self.error(f"unknown argument {unknown[0]}{self._nearest(unknown[0])}")
        return known


def parser() -> Parser:
    made = _Words("bus", ABOUT, EXAMPLES)
    add = made.add_argument
    add("what", choices=("post", "read", "follow"), help="say something; show what was said; show it as it comes")
    add("text", nargs="?", metavar="TEXT", help="with post: what to say; - reads standard input")
    add("--to", choices=(PROJECT, TASK), help="with post: the bus to post to")
    add("--from", choices=(PROJECT, TASK), help="with read and follow: the bus to read")
    add("--type", action="append", type=_type, metavar="TYPE", help="its type (default: INFO); to read: of these alone")
    add("--reply-to", action="append", type=_id, metavar="ID", help="with post: a message that this one answers")
    add("--project", metavar="P", help="the project's name (default: RALPH_PROJECT); to read: of this project alone")
    add("--task", metavar="T", help="the task's name (default: RALPH_TASK); to read: of this task alone")
    which = made.add_mutually_exclusive_group()
    which.add_argument("--run", metavar="RUN", help="the bus of this run's task; of the project's: what this run said")
    which.add_argument("--task-folder", metavar="DIR", help="the bus in this folder (default: TASK_FOLDER)")
    add("--since", type=_id, metavar="ID", help="with read and follow: what came after this message")
    add("-n", type=positive, metavar="N", help="with read and follow: the last N that are there already")
    return made


def _type(word: str) -> str:
    if known := type_of(word):
        return known
    raise argparse.ArgumentTypeError(unknown_type(word))


def _id(text: str) -> str:
    if is_id(text):
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is no message's id; ralph bus read shows them")


def main(argv: list[str]) -> int:
    args = parser().parse(argv)
    _must_fit(args)
    if args.what == "post":
        return _post(args)
    reading = _Reading(args)
    if args.what == "read":
        return reading.read()
    try:
        return reading.follow()
    except KeyboardInterrupt:
        return 0


def _must_fit(args: Namespace) -> None:
    """Refuse flags that mean nothing with this verb."""
    for name in READING if args.what == "post" else POSTING:
        if vars(args)[name] is not None:
            flag = f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"
            raise Refused(f"{flag} does not go with ralph bus {args.what} (see ralph bus --help)")
    if args.what != "post" and args.text is not None:
        raise Refused(f"ralph bus {args.what} takes no text; to say something: ralph bus post TEXT")
    if args.what == "post" and args.text is None:
        raise Refused("what is to be said? ralph bus post TEXT, or - for standard input")
    if args.what == "post" and len(args.type or ()) > 1:
        raise Refused("a message has one type; --type is given several times")


def _post(args: Namespace) -> int:
    from ralphproof.ledgers.spool import post_or_spool

    place = Place(args, args.to)
    body = args.text
    if body == "-":
        too_much = f"a message holds at most {BODY_BYTES} bytes, and standard input has more"
        body = read_bytes("-", BODY_BYTES, too_much).decode("utf-8", "replace")
    bus, tags, environ = place.bus(), place.tags(), os.environ
    iteration = environ.get("RALPH_ITERATION", "")
    draft = bus.draft(
        (args.type or [INFO])[0], body, **tags, parents=args.reply_to or (),
        iteration=int(iteration) if iteration.isascii() and iteration.isdigit() else None,
    )  # fmt: skip
    message, path = post_or_spool(bus, draft, environ.get("TASK_FOLDER", "") if place.name == PROJECT else "")
    spooled = path != bus.path
    if args.json:
        put_json("message", {**message.published(), "path": path, "spooled": spooled})
        return 0
    put(message.id)
    if spooled:
        _say(f"the project's bus cannot be written from here; the loop passes the message on from {path}")
    return 0


class _Reading:
    """Shows messages, those alone that were asked for."""

    def __init__(self, args: Namespace) -> None:
        self._args = args
        place = Place(args, vars(args)["from"])
        self._bus = place.bus()
        self._run = place.run if place.name == PROJECT else ""
        self._last = args.since or ""  # the id of the last message, shown or not

    def read(self) -> int:
        """What is there."""
        told = self._there()
        if self._args.json:
            messages: list[Json] = [message.published() for message in told]
            put_json("bus", {"path": self._bus.path, "messages": messages, "skipped": self._bus.skipped})
            return 0
        for message in told:
            _show(message)
        self._tell_skipped()
        return 0

    def follow(self) -> int:
        """What is there, and what comes."""
        for message in self._there():
            self._tell(message)
        self._tell_skipped()
        for message in self._wanted(self._bus.follow(lambda: False, self._last)):
            self._tell(message)
        return 0

    def _there(self) -> Iterable[Message]:
        messages = self._wanted(self._seen(self._bus.messages(self._args.since or "")))
        if self._args.n is None:
            return messages
        from collections import deque

        return deque(messages, maxlen=self._args.n)

    def _seen(self, messages: Iterator[Message]) -> Iterator[Message]:
        for message in messages:
            self._last = message.id
            yield message

    def _wanted(self, messages: Iterable[Message]) -> Iterator[Message]:
        args = self._args
        for message in messages:
            if (
                (not args.type or message.kind in args.type)
                and args.project in (None, message.project)
                and args.task in (None, message.task)
                and self._run in ("", message.run)
            ):
                yield message

    def _tell(self, message: Message) -> None:
        if self._args.json:
            put_json("message", message.published())
        else:
            _show(message)
        sys.stdout.flush()

    def _tell_skipped(self) -> None:
        if (count := self._bus.skipped) and not self._args.quiet:
            _say(f"{self._bus.path}: lines that belong to no whole message: {count}")


def _show(message: Message) -> None:
    from ralphproof.display.clean import clean

    about = [f"run {message.run}"] if message.run else []
    about += [f"iteration {message.iteration}"] if message.iteration is not None else []
    about += [f"{name} {text}" for name, text in (("project", message.project), ("task", message.task)) if text]
    about += [f"answers {' '.join(message.parents)}"] if message.parents else []
    put(f"{message.kind} {message.id}" + (f"  ({', '.join(about)})" if about else ""))
    put(*(f"    {line}".rstrip() for line in clean(message.body).split("\n")), "")


def _say(line: str) -> None:
    sys.stdout.flush()
    from ralphproof.display.clean import clean

    print(f"ralph: {clean(line)}", file=sys.stderr)
