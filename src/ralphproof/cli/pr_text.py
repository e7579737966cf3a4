"""Title and body of a pull request, from the proof of a run: nothing in it that an agent wrote becomes live."""

from __future__ import annotations

import re

from ralphproof.budget import dollars
from ralphproof.display.words import count, duration
from ralphproof.ink import Markdown, in_line
from ralphproof.proof import without_held_out
from ralphproof.proof_shape import object_in, objects_in
from ralphproof.proof_words import about_integrity, about_reviews, checks_table, listed, verdict
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ralphproof.value import Json

    Object = dict[str, Json]

TITLE_CHARS = 72
BODY_CHARS = 60_000  # GitHub takes 65,536
SPAN_CHARS, LINES, FILES = 300, 40, 60
PLAIN = re.compile(r"[\w ,;()'\"-]*[.]?")  # no sign by which a forge links, closes, mentions or obeys anything
NUMBERED = re.compile(r"\w-\d")  # such words name something too, on most forges
LETTERS = {"A": "new", "M": "changed", "D": "removed"}


class Forge(Markdown):
    """Words on a page where `@name`, `fixes #1` or `/close` would do something: all but plain ones are code."""

    def text(self, words: str) -> str:
        line = in_line(words)
        if PLAIN.fullmatch(line) and not NUMBERED.search(line):
            return super().text(_clipped(line))
        return self.code(line)

    def code(self, words: str) -> str:
        """Clipped before it is put into a span: one that was cut open would let out what it holds."""
        return super().code(_clipped(in_line(words)))


def _clipped(line: str) -> str:
    return line if len(line) <= SPAN_CHARS else f"{line[: SPAN_CHARS - 1]}…"


@value
class Pulled:
    """What a pull request is about: the commit (empty where it is still to be made), and what its tree is.

    `tree` may differ from the one that the checks saw, in what was `left_out` or is stored otherwise than it lies on
    disk. `changes` are letters and paths. `differs` names the paths in which it does, but for what is our own: None
    where nobody knows.
    """

    branch: str
    base: str
    commit: str
    tree: str
    changes: tuple[tuple[str, str], ...]
    left_out: tuple[tuple[str, str], ...] = ()
    differs: tuple[str, ...] | None = None


def title_for(proof: Object, given: str) -> str:
    """The title: what was said, else the task's; one line."""
    line = in_line(given) or in_line(str(object_in(proof, "task")["title"])) or f"Work of run {proof['run']}"
    return line if len(line) <= TITLE_CHARS else f"{line[: TITLE_CHARS - 1].rstrip()}…"


def body_for(proof: Object, pulled: Pulled) -> str:
    """The body, without what held-out checks ask. What does not fit is left out by sections, and that is said."""
    ink, body = Forge(), ""
    # The digest stays that of the whole proof: this is the one that its author exports.
    open_part: Object = {**without_held_out(proof), "digest": proof["digest"]}
    for heading, lines in _sections(open_part, pulled, ink):
        section = "\n".join((f"## {heading}", "", *lines)) + "\n\n"
        if len(body) + len(section) > BODY_CHARS:
            section = f"## {heading}\n\nToo long for this page; the proof has it.\n\n"
        body += section
    return body.rstrip("\n") + "\n"


def _sections(proof: Object, pulled: Pulled, ink: Forge) -> Iterator[tuple[str, list[str]]]:
    checks = objects_in(proof["checks"])[:LINES]
    outcome = object_in(proof, "outcome")
    yield "What was wanted", [ink.text(str(object_in(proof, "task")["title"])) or "The task has no title."]
    yield "What changed", [*_changes(pulled, ink)]
    table = [*checks_table(checks, ink), ""] if checks else ["No check was asked.", ""]
    yield "Evidence", [verdict(proof, ink), "", *table, *_list([*listed(checks, ink)])]
    yield "Concerns", _list(_texts(outcome["concerns"], ink)) or ["None."]
    if reviews := [*about_reviews(objects_in(proof["reviews"])[:LINES], ink)]:
        yield "Reviews", _list(reviews)
    yield "Integrity of the checks", _list([*about_integrity(object_in(proof, "integrity"), ink)])
    yield "Who could have tampered", _list(_texts(proof["tampering"], ink))
    yield "What it took", _list([*_price(proof, outcome, ink)])
    yield "Check it again", [*_how(proof, pulled, ink)]


def _list(lines: Sequence[str]) -> list[str]:
    more = [f"- … and {len(lines) - LINES} more"] if len(lines) > LINES else []
    return [*(f"- {line}" for line in lines[:LINES]), *more]


def _texts(data: Json, ink: Forge) -> list[str]:
    return [ink.text(str(one)) for one in data] if isinstance(data, list) else []


def _changes(pulled: Pulled, ink: Forge) -> Iterator[str]:
    yield f"{count(len(pulled.changes), 'file')}:"
    yield ""
    yield from (f"- {LETTERS[letter]} {ink.code(path)}" for letter, path in pulled.changes[:FILES])
    if len(pulled.changes) > FILES:
        yield f"- … and {len(pulled.changes) - FILES} more"
    if pulled.left_out:
        yield ""
        yield "Not in this branch, although the run left it in its files:"
        yield ""
        yield from _list([f"{ink.code(path)}: {why}" for path, why in pulled.left_out])


def _price(proof: Object, outcome: Object, ink: Forge) -> Iterator[str]:
    cost, seconds = outcome["costUSD"], outcome["durationSeconds"]
    price = dollars(round(cost * 1_000_000)) if isinstance(cost, int | float) else "an unknown price"
    took = duration(float(seconds)) if isinstance(seconds, int | float) else "an unknown time"
    yield f"{count(int(str(outcome['iterations'])), 'iteration')}, {took}, {price}"
    versions, sandbox = object_in(proof, "versions"), object_in(proof, "sandbox")
    agent = f"{versions.get('agent') or 'an agent'} {versions.get('agentVersion') or ''}".strip()
    yield f"agent {ink.code(agent)}, sandbox {ink.code(str(sandbox['name']))} ({ink.text(str(sandbox['strength']))})"


def _how(proof: Object, pulled: Pulled, ink: Forge) -> Iterator[str]:
    subject, run = object_in(proof, "subject"), str(proof["run"])
    checked = str(subject["checked"] or subject["tree"] or "unknown")
    commit = f"commit {ink.code(pulled.commit)}" if pulled.commit else "commit"
    same = not pulled.left_out and (pulled.tree == checked or pulled.differs == ())
    seen = f"where the checks saw {ink.code(checked)}"
    if same:
        seen = "the very tree that the checks saw" if pulled.tree == checked else f"{seen} without ralph's own folder"
    yield f"Branch {ink.code(pulled.branch)}, its {commit} with the tree {ink.code(pulled.tree)}: {seen}."
    yield ""
    if not same:
        yield "This branch differs from what was checked, in:"
        yield ""
        yield from _list([*map(ink.code, _differing(pulled))] or ["nobody knows which files"])
        yield ""
    # Verifying looks for the tree that the proof speaks of, with or without our own folder beside it.
    here = same or pulled.tree == subject["tree"]
    where = "in any clone, on this branch," if here else "where the work of the run is still saved, not by this branch,"
    yield (
        f"The proof of run {ink.code(run)} has the digest {ink.code(str(proof['digest']))}. "
        f"Its author gets the file with {ink.code(f'ralph proof export {run}')}; {where} "
        f"{ink.code('ralph verify FILE')} checks that tree out anew, runs the checks again, and says whether it holds."
    )


def _differing(pulled: Pulled) -> list[str]:
    """The paths in which a branch is not what was checked, as far as known."""
    return sorted({*(pulled.differs or ()), *(path for path, _ in pulled.left_out)})
