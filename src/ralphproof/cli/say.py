"""`ralph say`: tell a run something; its agent reads it in the next prompt, once."""

from __future__ import annotations

import os

from ralphproof.cli.named_run import named_run
from ralphproof.cli.out import put, put_json
from ralphproof.cli.parser import Parser
from ralphproof.cli.standard_input import read_bytes
from ralphproof.errors import Refused
from ralphproof.state import state_of
from ralphproof.value import TYPE_CHECKING
from ralphproof.views.onward import take_up
from ralphproof.views.project import Project
from ralphproof.views.standing import ENDED, RUNNING, standing

if TYPE_CHECKING:
    from ralphproof.ledgers.runs import RunRow
    from ralphproof.ledgers.sqlite import Sqlite

ABOUT = """tell a run something; its agent reads it in the next prompt, once.

The words are kept in the run's record, and the prompt says that they are yours. A turn that runs now does not hear
them. A run that waits for somebody, or was cut off, reads them when it is resumed. Agents and checks are refused: see
docs/steering.md. Exit codes: 0 kept, 2 the run is over for good, or there is nothing to say, or an agent says it."""
EXAMPLES = (
    'ralph say latest "leave the public interface as it is"',
    "ralph say 20261115-21 - < remarks.md",
)
MOST_BYTES = 64 * 1024
TOO_MUCH = f"that is more than {MOST_BYTES // 1024} KiB; put it into a file of the project, and name it"


def parser() -> Parser:
    made = Parser("say", ABOUT, EXAMPLES)
    made.add_argument("run", metavar="RUN", help="an id, its beginning, or latest")
    made.add_argument("text", nargs="+", metavar="TEXT", help="what to say; - is standard input")
    return made


def main(argv: list[str]) -> int:
    args = parser().parse(argv)
    project = Project.at(args.project_dir, os.environ)
    ledger = project.ledger(read_only=False)
    try:
        row = named_run(ledger, args.run, args, shown=True)
        refuse_deaf(ledger, row)
        number, where, told = kept_words(ledger, row, text_of(args.text), project)
    finally:
        ledger.close()
    if args.json:
        put_json("say", {"run": row.id, "number": number, "state": where, "kept": where != RUNNING})
    else:
        put(told)
    return 0


def kept_words(ledger: Sqlite, row: RunRow, text: str, project: Project) -> tuple[int, str, str]:
    """Keep what is said to a run: its number, how the run stands, and what becomes of it in a sentence.

    Raises Refused where the run is over for good.
    """
    refuse_deaf(ledger, row)
    number = ledger.say(row.id, text)
    row = ledger.row(row.id) or row
    refuse_deaf(ledger, row)  # it may have ended meanwhile
    where = standing(ledger, row, project)
    return number, where, _told(row.id, where)


def refuse_deaf(ledger: Sqlite, row: RunRow) -> None:
    """Raise Refused where a run is over for good: nobody would ever read it."""
    from ralphproof.views.onward import refuse_final

    if row.ended:
        refuse_final(state_of(ledger.records(row.id)), row.id, "it has no next prompt that could carry your words")


def text_of(words: list[str]) -> str:
    """What is to be said; raises Refused where that is nothing, or too much."""
    return sound_text(
        read_bytes("-", MOST_BYTES, TOO_MUCH) if words == ["-"] else " ".join(words).encode("utf-8", "surrogateescape")
    )


def sound_text(data: bytes) -> str:
    """The same for text that came in any other way."""
    if len(data) > MOST_BYTES:
        raise Refused(TOO_MUCH)
    text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace").strip()
    if not text:
        raise Refused("there is nothing to say; give a text, or - and standard input")
    if "\0" in text:
        raise Refused("the text holds a NUL byte, which no prompt may; take it out")
    return text


def _told(run: str, where: str) -> str:
    if where == RUNNING:
        return f"run {run} reads it in its next prompt"
    if where == ENDED:
        return f"kept; run {run} reads it when it goes on: ralph run --resume {run}"
    return f"kept; run {run} lost its harness, and reads it when it is taken up; {take_up(run)}"
