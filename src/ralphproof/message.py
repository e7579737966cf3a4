"""One message of a bus: what it holds, and its form in a file that people read as markdown.

    ### QUESTION 20261115-210507-048213-k3f9x2ab <!-- lines=2 bytes=36 run=20261115-210455-9xq2 iteration=3 -->
    > Which parser?
    > The old one is faster.

Every line of a body is quoted, so none can pass for the beginning of another message. `lines` and `bytes` tell a whole
message from one that was cut off.
"""

from __future__ import annotations

import re

from ralphproof.errors import Refused
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.value import Json

INFO, FACT, PROGRESS, DECISION, QUESTION = "INFO", "FACT", "PROGRESS", "DECISION", "QUESTION"
ANSWER, WARNING, ERROR, WAIT = "ANSWER", "WARNING", "ERROR", "WAIT"
TYPES = (INFO, FACT, PROGRESS, DECISION, QUESTION, ANSWER, WARNING, ERROR, WAIT)
_OTHER_WORDS = {"WAIT_WITHOUT_RESTART": WAIT}

BODY_BYTES = 64 * 1024
HEAD_BYTES = 16 * 1024
TAG_CHARS = 200  # of the names of a run, a project, a task
MOST_PARENTS = 16

_LETTERS = "0123456789abcdefghjkmnpqrstvwxyz"
_ID = r"\d{8}-\d{6}-\d{6}-[0-9a-z]{8}"
_HEAD = rf"### (\w+) ({_ID}) <!-- ((?:[a-z]+=\S* )+)-->"
_PLAIN = "-_.,:/@+"  # of a name, beside letters and digits; whatever else it has is escaped as in an address

# What a terminal would obey, as far as it is more than one character.
_SEQUENCES = r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]"
_SIGNS = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"} | {127: 0x2421}


@value
class Message:
    """Something that was said on a bus. `parents` are the messages that it answers; "" and None are not known.

    The id says when it was posted, so that ids sort by time.
    """

    id: str
    kind: str
    body: str
    run: str = ""
    iteration: int | None = None
    project: str = ""
    task: str = ""
    parents: tuple[str, ...] = ()

    @property
    def at(self) -> str:
        """When it was posted, in UTC."""
        day, clock, part = self.id[:8], self.id[9:15], self.id[16:22]
        return f"{day[:4]}-{day[4:6]}-{day[6:]}T{clock[:2]}:{clock[2:4]}:{clock[4:]}.{part}Z"

    def published(self) -> dict[str, Json]:
        """The message as programs read it."""
        return {
            "id": self.id, "kind": self.kind, "at": self.at, "run": self.run or None, "iteration": self.iteration,
            "project": self.project or None, "task": self.task or None, "parents": [*self.parents], "body": self.body,
        }  # fmt: skip


def new_id(second: str, microsecond: int, random: bytes) -> str:
    """An id, e.g. `20261115-210507-048213-k3f9x2ab`, of a second in UTC and five random bytes."""
    number = int.from_bytes(random[:5], "big")
    letters = "".join(_LETTERS[number >> shift & 31] for shift in range(35, -1, -5))
    return f"{second}-{microsecond:06d}-{letters}"


def is_id(text: str) -> bool:
    """Whether a message could be called so."""
    return re.fullmatch(_ID, text, re.ASCII) is not None


def type_of(word: str) -> str | None:
    """The type that a word means, whatever its case; None where it means none."""
    upper = word.upper()
    return upper if upper in TYPES else _OTHER_WORDS.get(upper)


def unknown_type(word: str) -> str:
    """What to say of a word that is no type."""
    return f"{word!r} is no type of message; there are: {', '.join(TYPES)}"


def drafted(kind: str, body: str, mask: Callable[[str], str] = str) -> Message:
    """A message without an id and tags, fit to be written; refuses what is none."""
    known = type_of(kind)
    if known is None:
        raise Refused(unknown_type(kind))
    text = mask(legible(body)).strip("\n")  # in this order: what is taken out may stand in the middle of a secret
    if not text.strip():
        raise Refused("a message needs a text")
    if (size := len(text.encode())) > BODY_BYTES:
        raise Refused(f"a message holds at most {BODY_BYTES} bytes, and this has {size}; post where a file of it lies")
    return Message("", known, text)


def legible(text: str) -> str:
    """Text that is harmless in a file for people: no escape sequences, a sign for any other control character."""
    one_kind = re.sub(_SEQUENCES, "", text).replace("\r\n", "\n").replace("\r", "\n")
    return re.sub("[\x80-\x9f\ud800-\udfff]", "\ufffd", one_kind.translate(_SIGNS))


def tag(text: str) -> str:
    """A name of something, as a message carries it."""
    return " ".join(legible(text).split())[:TAG_CHARS]


def written(message: Message) -> str:
    """The message as it stands in the file, with the empty line behind it."""
    lines = message.body.split("\n")
    told = {
        "lines": str(len(lines)), "bytes": str(len(message.body.encode())), "run": message.run,
        "iteration": "" if message.iteration is None else str(message.iteration), "project": message.project,
        "task": message.task, "parents": ",".join(message.parents),
    }  # fmt: skip
    meta = "".join(f"{name}={_escaped(text)} " for name, text in told.items() if text)
    quoted = (f"> {line}" if line else ">" for line in lines)
    return "\n".join([f"### {message.kind} {message.id} <!-- {meta}-->", *quoted, "", ""])


def _escaped(text: str) -> str:
    return "".join(letter if letter.isalnum() or letter in _PLAIN else _bytes(letter) for letter in text)


def _bytes(letter: str) -> str:
    return "".join(f"%{byte:02X}" for byte in letter.encode())


def _unescaped(text: str) -> str:
    return re.sub(
        "(?:%[0-9A-F]{2})+", lambda found: bytes.fromhex(found[0].replace("%", "")).decode("utf-8", "replace"), text
    )


class Assembly:
    """Puts messages together from the lines of a file, whoever wrote them. `skipped` counts lines that are of none."""

    def __init__(self) -> None:
        self.skipped = 0
        self._head: tuple[Message, int, int] | None = None  # without its body; its lines and bytes
        self._body: list[bytes] = []
        self._size = -1  # the last line's break is not part of the body

    def feed(self, line: bytes) -> Message | None:
        """The next line without its break; the message that it completes."""
        if self._head is not None and (line == b">" or line.startswith(b"> ")):
            return self._more(line[2:], *self._head)
        self.end()
        if line.startswith(b"### ") and len(line) <= HEAD_BYTES:
            self._head = _head_of(line.decode("utf-8", "replace"))
        if self._head is None and line.strip():
            self.skipped += 1
        return None

    def end(self) -> None:
        """What was begun stays incomplete."""
        if self._head is not None:
            self.skipped += 1 + len(self._body)
        self._head, self._body, self._size = None, [], -1

    def _more(self, line: bytes, head: Message, lines: int, size: int) -> Message | None:
        self._body.append(line)
        self._size += len(line) + 1
        if self._size > size or (len(self._body) == lines and self._size != size):
            self.end()
            return None
        if len(self._body) < lines:
            return None
        body = b"\n".join(self._body).decode("utf-8", "replace")
        self._head, self._body, self._size = None, [], -1
        return Message(head.id, head.kind, body, head.run, head.iteration, head.project, head.task, head.parents)


def _head_of(line: str) -> tuple[Message, int, int] | None:
    found = re.fullmatch(_HEAD, line, re.ASCII)
    kind = type_of(found[1]) if found else None
    if found is None or kind is None:
        return None
    told = dict.fromkeys(("lines", "bytes", "run", "iteration", "project", "task", "parents"), "")
    for word in found[3].split(" "):
        name, _, text = word.partition("=")
        told[name] = _unescaped(text)
    parents = tuple(told["parents"].split(",")) if told["parents"] else ()
    lines, size, iteration = _number(told["lines"]), _number(told["bytes"]), _number(told["iteration"])
    if not lines or not size or size > BODY_BYTES or lines > size + 1 or not all(map(is_id, parents)):
        return None
    run, project, task = (tag(told[name]) for name in ("run", "project", "task"))
    return Message(found[2], kind, "", run, iteration, project, task, parents[:MOST_PARENTS]), lines, size


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
