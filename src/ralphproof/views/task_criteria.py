"""What is known of each acceptance criterion of a task: what the last judgement says that names it."""

from __future__ import annotations

import re

from ralphproof.claim import harmless
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ralphproof.value import Json
    from ralphproof.views.task_history import Passage

# As `judgement.told` writes it. Of a long criterion it has the beginning.
_RULING = r"(NOT met|met): \d+\. (.*)"
_WHY = " | why: "
NAMED_CHARS = 300


@value
class Ruled:
    """What a judge said of one criterion, and where."""

    met: bool
    why: str
    run: str
    iteration: int

    def __str__(self) -> str:
        return f"{'met' if self.met else 'not met'} (run {self.run}, iteration {self.iteration}: {self.why})"


def acceptance_of(completion: dict[str, Json]) -> list[str]:
    """The acceptance criteria of a completion spec, whatever else is wrong with it."""
    listed = completion.get("acceptance_criteria")
    return [str(criterion) for criterion in listed] if isinstance(listed, list) else []


def ruled(criterion: str, history: Iterable[Passage]) -> Ruled | None:
    """What the last judgement says of a criterion; None where none names it."""
    name = " ".join(harmless(criterion).split()).replace("`", "'")[:NAMED_CHARS]
    last = None
    for passage in history:
        for answer in passage.answers:
            if not answer.finding.judged or answer.finding.errored:
                continue
            for met, why in _rulings(answer.finding.output, name):
                last = Ruled(met, why, passage.run, passage.iteration)
    return last


def _rulings(output: str, name: str) -> Iterator[tuple[bool, str]]:
    for line in output.split("\n"):
        found = re.fullmatch(_RULING, line)
        if found is None or not found[2].startswith(name):
            continue
        cut, why, reason = found[2][len(name) :].partition(_WHY)
        if why and (not cut or len(name) == NAMED_CHARS):
            yield found[1] == "met", reason.partition(" | quoted: ")[0]


def criteria_lines(completion: dict[str, Json], history: tuple[Passage, ...]) -> Iterator[str]:
    """One line for each criterion; a question mark where nobody has judged it."""
    for criterion in acceptance_of(completion):
        known = ruled(criterion, history)
        yield f"[{'?' if not known else 'x' if known.met else ' '}] {criterion}" + (f": {known}" if known else "")


def published_criteria(completion: dict[str, Json], history: tuple[Passage, ...]) -> Iterator[Json]:
    """The same for programs; `met` is null where nobody has judged it."""
    for criterion in acceptance_of(completion):
        known = ruled(criterion, history)
        where: dict[str, Json] = {"run": known.run, "iteration": known.iteration, "why": known.why} if known else {}
        yield {"criterion": criterion, "met": known.met if known else None, **where}
