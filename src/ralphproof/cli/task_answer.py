"""Tasks in an agent's message: the one block of YAML in it, and every reason why it cannot be taken."""

from __future__ import annotations

import re

from ralphproof.agent import TEXT_CHARS
from ralphproof.claim import plain
from ralphproof.cli.task_store import wrong_with
from ralphproof.errors import Refused
from ralphproof.plans.draft import Draft
from ralphproof.plans.graph import tangles
from ralphproof.plans.reading import read
from ralphproof.value import TYPE_CHECKING, replace, value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NAME = "answer"  # how problems call the text that they are in
# As in Markdown: what is indented further is no fence, so a description may hold one.
_FENCE = r" {0,3}(```+(?=[^`]*$)|~~~+)\s*(\S*).*"
LONG = f"the message has more than {TEXT_CHARS} characters, and its middle is lost; write fewer tasks, or shorter ones"
OPEN = "the yaml block is never closed, so its end may be missing; close it with its fence"
NO_BLOCK = "no block of the message is fenced as yaml; put all tasks into one that is"
ECHO = "that is the example; write the tasks that are asked for"
NOTHING = "there is no task in it"


@value
class TaskAnswer:
    """The tasks of a message, or all that is wrong with them."""

    drafts: tuple[Draft, ...] = ()
    problems: tuple[str, ...] = ()


@value
class CodeBlock:
    """A fenced block: the first word behind its fence, in small letters, and what it holds."""

    language: str
    text: str
    closed: bool


@value
class Demands:
    """What tasks are held against.

    `known` are the tasks that there are, and what each depends on; unless it is `renewed`, no answer may name one of
    them as its own. All new tasks belong to the `spec`, where one is given. The `example` is no answer.
    """

    known: Mapping[str, tuple[str, ...]]
    spec: str = ""
    example: str = ""
    renewed: bool = False


def answer_in(message: str, demands: Demands) -> TaskAnswer:
    """The tasks in a message."""
    if len(message) > TEXT_CHARS:
        return TaskAnswer(problems=(LONG,))
    text, trouble = tasks_text(message)
    if not trouble and demands.example and text.strip() == demands.example.strip():
        trouble = ECHO
    return TaskAnswer(problems=(trouble,)) if trouble else _read(text, demands)


def tasks_text(message: str) -> tuple[str, str]:
    """Where the tasks stand in a message: its one block of YAML, or all of it. Else why they stand nowhere."""
    fences = fences_in(plain(message))
    if not fences:
        return plain(message), ""
    named = [fence for fence in fences if fence.language in ("yaml", "yml")]
    blocks = named or [fence for fence in fences if not fence.language]
    if len(blocks) != 1:
        return "", NO_BLOCK if not blocks else f"the message has {len(blocks)} blocks of yaml; put all tasks into one"
    return (blocks[0].text, "") if blocks[0].closed else ("", OPEN)


def fences_in(message: str) -> list[CodeBlock]:
    """Every fenced block; one that is never closed reaches to the end."""
    found: list[CodeBlock] = []
    mark, language, lines = "", "", list[str]()
    for line in message.split("\n"):
        fence = re.fullmatch(_FENCE, line)
        if not mark and fence:
            mark, language, lines = fence[1], fence[2].lower(), []
        elif mark and fence and fence[1].startswith(mark) and not fence[2]:
            found.append(CodeBlock(language, "\n".join(lines), True))
            mark = ""
        elif mark:
            lines.append(line)
    return [*found, CodeBlock(language, "\n".join(lines), False)] if mark else found


def _read(text: str, demands: Demands) -> TaskAnswer:
    try:
        readings = read(text.encode("utf-8", "surrogateescape"), NAME)
    except Refused as error:
        return TaskAnswer(problems=tuple(str(error).splitlines()))
    read_ones = (reading.draft for reading in readings if reading.draft is not None)
    drafts = tuple(replace(draft, spec_id=demands.spec or draft.spec_id) for draft in read_ones)
    unread = (problem for reading in readings for problem in reading.problems)
    wrong = tuple(dict.fromkeys((*unread, *_wrong(drafts, demands))))
    if not readings:
        wrong = (NOTHING,)
    return TaskAnswer(problems=wrong) if wrong else TaskAnswer(drafts)


def _wrong(drafts: tuple[Draft, ...], demands: Demands) -> Iterator[str]:
    for draft in drafts:
        yield from wrong_with(draft)
        if draft.id in demands.known and not demands.renewed:
            yield f"{draft.id}: there is a task of this id already; take another one"
        if draft.status != "todo":
            yield f"{draft.id}: how it stands is not yours to say; leave status out"
    yield from tangles(drafts, demands.known)
