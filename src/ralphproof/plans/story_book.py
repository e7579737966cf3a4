"""The stories of a `tasks.json`: a plan that agents write in, by the rules of the review cycle.

What the harness remembers is the truth. A turn's writing is held against it and is taken over or put back as a whole;
then only verify commands that are green make it stand.
"""

from __future__ import annotations

from ralphproof import review, story
from ralphproof.claim import Claim
from ralphproof.errors import Refused
from ralphproof.notebook import NOTHING, Examined
from ralphproof.plan import Plan
from ralphproof.plans.story_tasks import Manner, spare, tasks_of
from ralphproof.settlement import concerns, settled
from ralphproof.value import TYPE_CHECKING, Protocol, pack, replace, unpack, value
from ralphproof.verdict import Passed, SentBack

if TYPE_CHECKING:
    from typing import Any

    from ralphproof.iteration import Iteration
    from ralphproof.stage import Job
    from ralphproof.value import Json
    from ralphproof.verdict import Verdict
    from ralphproof.workspace import Change

MEMORY = "stories"  # the note that outlives a crash
_NOTHING_TOLD: tuple[str, ...] = ()
RED_CHARS = 4000  # of what failed, in a story's feedback


class Shelf(Protocol):
    """Where the file lies, and what is kept out of the agent's reach."""

    def look(self) -> bytes | None:
        """The file's bytes; None where there is no file that can be read."""

    def write(self, data: bytes) -> None:
        """Put the whole file in its place."""

    def note(self, name: str, data: Json) -> None:
        """Keep something, durably."""

    def noted(self, name: str) -> Json | None:
        """What was kept."""

    def light(self, marker: dict[str, Json]) -> None:
        """Show whoever looks from inside a turn what is asked of it."""

    def quench(self) -> None:
        """Nobody is inside a turn."""


@value
class Remembered:
    """What the harness knows. `good` is the truth; the rest is of the turn that was last examined.

    `before` is what it found, `written` what it left, as far as that was legal. `proven` says that a check, or whatever
    else decides, has seen work of this run pass.
    """

    good: dict[str, Any]
    before: dict[str, Any] = {}  # noqa: RUF012 (never changed)
    written: dict[str, Any] = {}  # noqa: RUF012
    name: str = ""
    examined: Examined = NOTHING
    proven: bool = False


class StoryBook:
    """The plan of a run by stories, and the notebook of its agents."""

    def __init__(self, path: str, manner: Manner, shelf: Shelf) -> None:
        """`path` is the file's, as messages name it."""
        self.path, self._manner, self._shelf = path, manner, shelf
        self._known: Remembered | None = None

    # The plan

    def read(self) -> Plan:
        """The stories as the harness knows them; raises Refused with all that is wrong with them at the start."""
        known = self._remembered()
        capped = self._capped(known.good)
        why = f"reviewed {self._manner.cap} times and not approved (review.capIsFailure)"
        tasks = tasks_of(known.good, self._manner, known.proven)
        return Plan(tasks, capped, why if capped else "", concerns(known.good))

    @property
    def document(self) -> dict[str, Any]:
        """The stories as they are known."""
        return self._remembered().good

    def claim(self, iteration: int) -> Claim | None:
        """What the file alone claims before anybody was asked: that all of it is done."""
        known = self._remembered()
        if iteration or known.proven or not all(self._manner.done(one) for one in known.good["userStories"]):
            return None
        return Claim(self._manner.word, source="marker", stamp="start")

    def _capped(self, document: dict[str, Any]) -> tuple[str, ...]:
        if not self._manner.cap_is_failure:
            return ()
        requested = [one for one in document["userStories"] if one["reviewStatus"] == story.CHANGES_REQUESTED]
        return tuple(one["id"] for one in requested if one["reviewCount"] >= self._manner.cap)

    # The notebook

    def begin(self, iteration: int, job: Job) -> None:
        """Write the marker that hooks look for, with what the turn finds."""
        good = self._remembered().good
        marker: dict[str, Any] = {
            "iteration": iteration,
            "iterationMode": job.stage.name,
            "story": job.task.id,
            "preIterationSnapshot": story.snapshot(good),
            "pinned": {"verifyCommands": good.get("verifyCommands", []), "userStories": spare(good)},
        }
        self._shelf.light(marker)

    def examine(self, name: str, job: Job, change: Change) -> Examined:
        """Take the file over, or put it back as it was. What was found is durable before it is told."""
        known = self._remembered()
        if known.name != name:
            known = self._judged(known, name, job, change)
            self._remember(known)
        if known.examined.meddled:
            self._put()
        return known.examined

    def settle(self, facts: Iteration, verdict: Verdict) -> tuple[str, ...]:
        """Make the story say what was judged, and the file what is known."""
        known, manner, task = self._remembered(), self._manner, facts.job.task.id
        passed = isinstance(verdict, Passed)
        before, written = _story(known.before, task), _story(known.written, task)
        if not facts.turn.taken:
            before = written = _story(known.good, task)
        good, told = known.good, _NOTHING_TOLD
        if before and written:
            red = _red(facts)
            stands = isinstance(verdict, Passed | SentBack)
            made = settled(written, before, facts.job.stage.name, stands, red, manner.cap, not manner.cap_is_failure)
            good, told = _with(good, task, made), _told(task, written, made)
        self._remember(replace(known, good=good, proven=known.proven or passed))
        return (*told, *self._held())

    def regain(self) -> tuple[str, ...]:
        """What the user wrote while nobody was at work is theirs to write."""
        known, document = self._remembered(), self._valid()
        if document == known.good:
            return ()
        self._remember(replace(known, good=document))
        return (f"{self.path} was edited while the run rested: the run goes on with what it says now",)

    def close(self) -> None:
        self._shelf.quench()

    # What is known

    def _remembered(self) -> Remembered:
        if self._known is None:
            noted = self._shelf.noted(MEMORY)
            self._known = _recalled(noted) if isinstance(noted, dict) else Remembered(self._valid())
        return self._known

    def _remember(self, known: Remembered) -> None:
        if known != self._known or known.name:
            self._shelf.note(MEMORY, _noted(known))
        self._known = known

    def _valid(self) -> dict[str, Any]:
        """The file as somebody wrote it who may write everything; raises Refused with all that is wrong with it."""
        document = self._parsed()
        if isinstance(document, story.Unreadable):
            raise Refused(f"{self.path}: {document.why}")
        faults = story.schema(document)
        if not faults and not self._manner.skip_review:
            faults = review.invariants(document, self._manner.cap, story.snapshot(document))
        if faults:
            raise Refused(f"{self.path}: {'; '.join(faults)}")
        return document

    def _parsed(self) -> dict[str, Any] | story.Unreadable:
        data = self._shelf.look()
        return story.Unreadable("there is no such file, or it cannot be read") if data is None else story.read(data)

    def _put(self) -> None:
        self._shelf.write(story.text_of(self._remembered().good))

    def _judged(self, known: Remembered, name: str, job: Job, change: Change) -> Remembered:
        good, document = known.good, self._parsed()
        faults: tuple[str, ...] = (f"{self.path}: {document.why}",) if isinstance(document, story.Unreadable) else ()
        if not isinstance(document, story.Unreadable):
            faults = self._manner.faults(good, document, job.stage.name, job.task.id)
        strays = self._manner.strays(change, job.stage.name)
        if strays:
            named = ", ".join(strays[: story.NAMED])
            faults += (f"Review iterations do not fix code, and yet these files changed: {named}.",)
        if faults or isinstance(document, story.Unreadable):
            legal = review.HOW[job.stage.name] if not self._manner.skip_review else self._manner.how
            return replace(
                known, before=good, written=good, name=name, examined=Examined((*faults, legal), None, strays)
            )
        word = self._manner.word_of(_story(good, job.task.id), _story(document, job.task.id))
        claim = Claim(word, source="marker", stamp=name) if word else None
        return replace(known, good=document, before=good, written=document, name=name, examined=Examined((), claim))

    def _held(self) -> tuple[str, ...]:
        """The file as it is known. What somebody wrote in it since the turn stays where any turn could have done so."""
        known, document = self._remembered(), self._parsed()
        if document == known.good:
            return ()
        if isinstance(document, dict) and not self._manner.idle_faults(known.good, document):
            self._remember(replace(known, good=document))
            return ()
        changed = isinstance(document, story.Unreadable) or document != known.written
        self._put()
        return (f"{self.path} was changed while no agent was at work, and was put back",) if changed else ()


def _story(document: dict[str, Any], name: str) -> dict[str, Any]:
    return next((one for one in document.get("userStories", ()) if one["id"] == name), {})


def _with(document: dict[str, Any], name: str, made: dict[str, Any]) -> dict[str, Any]:
    return document | {"userStories": [made if one["id"] == name else one for one in document["userStories"]]}


def _red(facts: Iteration) -> str:
    """What the checks found wrong, for whoever mends it; empty where nothing."""
    failed = [one for one in facts.report.failed if one.required]
    return "\n\n".join(
        f"{one.command or one.check} failed ({one.why if one.why != 'exit' else f'exit code {one.code}'}):\n"
        f"{one.output.strip()[-RED_CHARS:]}"
        for one in failed
    )


def _told(name: str, written: dict[str, Any], made: dict[str, Any]) -> tuple[str, ...]:
    """What the harness decided otherwise than its agent."""
    if made["reviewStatus"] == written["reviewStatus"] and made["passes"] == written["passes"]:
        return ()
    if made["reviewStatus"] == story.APPROVED:
        return (f"story {name} was approved at the review cap; see its reviewFeedback",)
    if written["reviewStatus"] == story.APPROVED or written["passes"]:
        return (f"the approval of story {name} does not stand: the checks are red",)
    return (f"story {name} stays {made['reviewStatus'] or 'open'}: what was done to it does not stand",)


def _noted(known: Remembered) -> dict[str, Any]:
    """For a note. Documents are anybody's: they stay as they are, and nothing in them is taken for a value of ours."""
    plain = {"good": known.good, "before": known.before, "written": known.written, "name": known.name}
    return {**plain, "examined": pack(known.examined), "proven": known.proven}


def _recalled(noted: dict[str, Any]) -> Remembered:
    return Remembered(**{**noted, "examined": unpack(noted["examined"])})
