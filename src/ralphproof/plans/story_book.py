"""The stories of a `tasks.json`: a plan that agents write in, by the rules of the review cycle.

What the harness remembers is the truth. A turn's writing is held against it and is taken over or put back as a whole;
then only verify commands that are green make it stand.
"""

from __future__ import annotations

from ralphproof import review, story
from ralphproof.claim import Claim
from ralphproof.errors import RalphError, Refused, StoriesWrong
from ralphproof.feedback import Feedback
from ralphproof.notebook import MEMORY, Examined
from ralphproof.plan import Plan
from ralphproof.plans.inline import digest_of
from ralphproof.plans.story_memory import (
    Remembered,
    Shelf,
    decided,
    iteration_of,
    noted,
    recalled,
    redone,
    story_in,
    undone,
    with_story,
)
from ralphproof.plans.story_tally import counted, reviewed
from ralphproof.plans.story_tasks import HOW_SKIPPED, Manner, spare, tasks_of
from ralphproof.plans.story_words import decided_otherwise, red_in
from ralphproof.settlement import concerns, settled
from ralphproof.value import TYPE_CHECKING, replace
from ralphproof.verdict import Passed, Retry, SentBack

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ralphproof.iteration import Iteration
    from ralphproof.metric import Reviewed
    from ralphproof.stage import Job
    from ralphproof.verdict import Verdict
    from ralphproof.workspace import Change

_NOTHING_TOLD: tuple[str, ...] = ()
GONE = "there is no such file, or it cannot be read; a link is none"
COMMANDS = "verifyCommands were changed, and hold for a whole run; begin a new one: ralph run"
EDITED = "was edited while the run rested: the run goes on with what it says now"


class StoryBook:
    """The plan of a run by stories, and the notebook of its agents."""

    def __init__(self, path: str, manner: Manner, shelf: Shelf, template: Callable[[], str] | None = None) -> None:
        """`path` is the file's, as messages name it. `template` reads the prompt file as it now is."""
        self.path, self._manner, self._shelf, self._template = path, manner, shelf, template
        self._known: Remembered | None = None
        self._noted = False  # whether what is known would outlive a crash
        self._turning = False  # whether a turn began that is not settled
        self._fixed: dict[str, bytes | None] = {}  # what nobody may change, as that turn found it

    @property
    def files(self) -> tuple[str, ...]:
        return self._manner.files

    # The plan

    def read(self) -> Plan:
        """The stories as the harness knows them; raises Refused with all that is wrong with them at the start."""
        known, manner = self._remembered(), self._manner
        manner = replace(manner, template=self._template()) if self._template else manner
        capped = self._capped(known.good)
        why = f"reviewed {self._manner.cap} times and not approved (review.capIsFailure)"
        tasks = tasks_of(known.good, manner, known.proven)
        return Plan(tasks, capped, why if capped else "", concerns(known.good), digest_of(manner.template))

    @property
    def document(self) -> dict[str, Any]:
        """The stories as they are known."""
        return self._remembered().good

    def claim(self, _iteration: int) -> Claim | None:
        """What the file alone claims, where nothing has shown it yet: that all of it is done."""
        known = self._remembered()
        if known.proven or not all(self._manner.done(one) for one in known.good["userStories"]):
            return None
        return Claim(self._manner.word, source="marker", stamp="start")

    def _capped(self, document: dict[str, Any]) -> tuple[str, ...]:
        if not self._manner.cap_is_failure:
            return ()
        requested = [one for one in document["userStories"] if one["reviewStatus"] == story.CHANGES_REQUESTED]
        return tuple(one["id"] for one in requested if one["reviewCount"] >= self._manner.cap)

    # The notebook

    def begin(self, iteration: int, job: Job, window: int | None) -> None:
        """Write the marker that hooks look for, with what the turn finds. What is known is durable before that."""
        known = self._remembered()
        good = known.good
        if not self._noted:
            self._remember(known)
        self._turning, self._fixed = True, self._shelf.others()
        marker: dict[str, Any] = {
            "iteration": iteration,
            "contextWindow": window,
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
        """Make the story say what was judged, once, and the file what is known."""
        known, told = self._remembered(), _NOTHING_TOLD
        before = known.good
        if (known.settled, known.verdict) != (facts.number, type(verdict).__name__):
            known, told = self._settled(known, facts, verdict)
            self._remember(known)
            told += self._unchanged()
        self._turning = False
        return (*told, *self._held(before))

    def forsake(self, name: str, facts: Iteration) -> tuple[str, ...]:
        """Nobody will judge the turn of this name: what it made of its story does not stand."""
        if not self._remembered().name.startswith(name):
            self.examine(name, facts.job, facts.change)
        return self.settle(facts, Retry(Feedback()))

    def restore(self) -> None:
        """Make the file say what is known: nobody examined what a turn wrote there."""
        self._put_over(self._parsed())

    def says(self, task: str) -> str:
        return story_in(self._remembered().good, task).get("reviewStatus") or ""

    def regain(self, busy: bool) -> tuple[str, ...]:
        """What the user wrote while nobody was at work is theirs to write."""
        known = self._remembered()
        if known.open or busy:
            return self._regain_open(known)
        found = self._parsed()
        if found in (known.good, known.written):  # the second where we died before the file said what was judged
            self._put_over(found)
            return ()
        document = self._valid()
        if document.get("verifyCommands", []) != known.good.get("verifyCommands", []):
            raise Refused(f"{self.path}: {COMMANDS}")
        self._remember(replace(known, good=document, before=document, written=document, proven=False))
        return (f"{self.path} {EDITED}",)

    def _regain_open(self, known: Remembered) -> tuple[str, ...]:
        """Before an iteration was judged, a check that its agent wrote may have done it: that decides nothing.

        The same holds for whatever runs when work is committed.
        """
        found = self._parsed()
        sound = isinstance(found, dict) and not story.schema(found)
        document = redone(known, found) if sound and isinstance(found, dict) else None
        told: tuple[str, ...] = ()
        if document is None or self._manner.idle_faults(known.good, document):
            told = (f"{self.path} was changed before its iteration was judged, and was put back",)
        elif document != known.good:
            before = undone(known, document)
            self._remember(replace(known, good=document, before=before, written=document, proven=False))
            told = (f"{self.path} {EDITED}",)
        self._put_over(found)
        return told

    def reviewed(self) -> tuple[Reviewed, ...]:
        """What became of every story. A run that never read its file, or had to give up over it, knows of none."""
        note = self._shelf.noted(MEMORY) if self._known is None else None
        known = recalled(note) if isinstance(note, dict) else self._known
        return reviewed(known) if known else ()

    def close(self) -> None:
        """What was not judged does not stand, for whoever begins anew. Who takes the run up knows it."""
        self._shelf.quench()
        if self._known and (self._turning or self._known.open):
            left = undone(self._known, self._known.good) if self._known.open else self._known.good
            try:
                if self._parsed() != left:
                    self._shelf.write(story.text_of(left))
            except RalphError:
                pass  # the end must be told all the same; the next run looks again
        self._turning = False

    # What is known

    def _remembered(self) -> Remembered:
        if self._known is None:
            note = self._shelf.noted(MEMORY)
            self._noted = isinstance(note, dict)
            self._known = recalled(note) if isinstance(note, dict) else Remembered(self._valid())
        return self._known

    def _remember(self, known: Remembered) -> None:
        if known != self._known or not self._noted:
            self._shelf.note(MEMORY, noted(known))
        self._known, self._noted = known, True

    def _valid(self) -> dict[str, Any]:
        """The file as it stands, whoever wrote it; raises StoriesWrong with all that is wrong with it."""
        document = self._parsed()
        if isinstance(document, story.Unreadable):
            raise StoriesWrong(f"{self.path}: {document.why}")
        faults = story.schema(document)
        if not faults and not self._manner.skip_review:
            faults = review.invariants(document, self._manner.cap, story.snapshot(document))
        if not faults and not document["userStories"]:
            faults = ("there are no stories in it",)
        if faults:
            raise StoriesWrong(f"{self.path}: {'; '.join(faults)}")
        return document

    def _parsed(self) -> dict[str, Any] | story.Unreadable:
        data = self._shelf.look()
        return story.Unreadable(GONE) if data is None else story.read(data)

    def _put(self) -> None:
        self._shelf.write(story.text_of(self._remembered().good))

    def _put_over(self, found: dict[str, Any] | story.Unreadable) -> None:
        """Put the file right, unless it is."""
        if found != self._remembered().good:
            self._put()

    def _judged(self, known: Remembered, name: str, job: Job, change: Change) -> Remembered:
        """All turns of an iteration together may do what one may: they are held against what the first one found."""
        again = known.open and iteration_of(known.name) == iteration_of(name)
        before, document = known.before if again else known.good, self._parsed()
        now = replace(known, good=before, before=before, written=before, name=name, story=job.task.id)
        faults: tuple[str, ...] = (f"{self.path}: {document.why}",) if isinstance(document, story.Unreadable) else ()
        if not isinstance(document, story.Unreadable):
            faults = self._manner.faults(before, document, job.stage.name, job.task.id)
        strays = self._manner.strays(change, job.stage.name)
        if strays:
            named = ", ".join(strays[: story.NAMED])
            faults += (f"Review iterations do not fix code, and yet these files changed: {named}.",)
        if faults or isinstance(document, story.Unreadable):
            legal = review.HOW[job.stage.name] if not self._manner.skip_review else HOW_SKIPPED
            committed = change.committed and self.path in change.paths
            told = (f"what the agent committed of {self.path} stays in history; it was not accepted",)
            return replace(now, examined=Examined((*faults, legal), None, strays, told if committed else ()))
        word, remarks = self._manner.word_of(story_in(before, job.task.id), story_in(document, job.task.id))
        claim = Claim(word, source="marker", stamp=name) if word else None
        return replace(now, good=document, written=document, examined=Examined((), claim, remarks=remarks))

    def _unchanged(self) -> tuple[str, ...]:
        """Put back what checks changed of the files that nobody may change; what there is to tell of it."""
        now, told = self._shelf.others() if self._fixed else {}, _NOTHING_TOLD
        for name, data in self._fixed.items():
            if now[name] != data:
                self._shelf.restore(name, data)
                told += (f"{name} was changed while no agent was at work, and was put back",)
        return told

    def _settled(self, known: Remembered, facts: Iteration, verdict: Verdict) -> tuple[Remembered, tuple[str, ...]]:
        """What is known after an iteration was judged, and what the harness decided otherwise than its agent."""
        manner, task, stage = self._manner, facts.job.task.id, facts.job.stage
        if not facts.turn.taken:
            known = replace(known, before=known.good, written=known.good, story=task)
        good, told, tally = known.good, _NOTHING_TOLD, known.tally
        stands, red = isinstance(verdict, Passed | SentBack), red_in(facts)
        if (before := story_in(known.before, task)) and (written := story_in(known.written, task)):
            asked = {finding.check for finding in facts.report.findings}
            approve = not manner.cap_is_failure and asked.issuperset(stage.checks)
            made = settled(written, before, stage.name, stands, red, manner.cap, approve)
            good, told = with_story(good, task, made), decided_otherwise(task, written, made, facts, verdict)
            tally = counted(tally, stage.name, before, written, made)
        shown = isinstance(verdict, Passed) or (stands and facts.report.verified)
        over: dict[str, Any] = {"settled": facts.number, "verdict": type(verdict).__name__, "tally": tally}
        return replace(known, good=good, proven=known.proven or shown, **over), told

    def _held(self, ours: dict[str, Any]) -> tuple[str, ...]:
        """The file as it is known. What somebody wrote in it since the turn stays where any turn could have done so.

        `ours` is what we knew until now, and may stand there still.
        """
        known, document = self._remembered(), self._parsed()
        if document == known.good:
            return ()
        changed = document not in (known.written, ours)
        if changed and isinstance(document, dict) and not story.schema(document):
            document = decided(known, document)
            if not self._manner.idle_faults(known.good, document):
                self._remember(replace(known, good=document))
                changed = False
        self._put()
        return (f"{self.path} was changed while no agent was at work, and was put back",) if changed else ()
