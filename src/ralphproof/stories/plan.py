"""The plan of a run by stories, which its agents edit under the rules of the review cycle."""

from __future__ import annotations

from ralphproof.base.errors import RalphError, Refused, StoriesWrong
from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.engine.claim import Claim
from ralphproof.engine.environment import PlanEdits
from ralphproof.engine.outcome import Passed, Retry, SentBack
from ralphproof.engine.plan import STORY_MEMORY_NOTE, Plan
from ralphproof.engine.prompt import HELD_OUT_NOTE, Feedback
from ralphproof.stories import review, schema
from ralphproof.stories.review import approval_concerns, settle_story
from ralphproof.stories.schema import APPROVED
from ralphproof.stories.state import (
    StoryState,
    StoryStorage,
    find_story,
    iteration_of_turn,
    pack_state,
    replace_story,
    summarize_reviews,
    unpack_state,
    update_tally,
    with_decision,
    with_turn_changes,
    without_turn_changes,
)
from ralphproof.stories.workflow import INSTRUCTION_WITHOUT_REVIEW, StoryWorkflow, pinned_fields, tasks_from_stories
from ralphproof.tasks.plans import prompt_digest

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ralphproof.engine.iteration import Iteration
    from ralphproof.engine.metrics import StoryReview
    from ralphproof.engine.outcome import Verdict
    from ralphproof.engine.plan import Job
    from ralphproof.engine.workspace import Change


# What is told of stories: to whoever mends one, and to the user.


MAX_FEEDBACK_CHARS = 4000  # of what failed, in a story's feedback


def failed_checks_text(facts: Iteration) -> str:
    """What the checks found wrong, for whoever mends it; empty where nothing."""
    failed = [one for one in facts.report.failed if one.required]
    return "\n\n".join(
        HELD_OUT_NOTE
        if one.hidden
        else f"{one.command or one.check} failed ({one.why if one.why != 'exit' else f'exit code {one.code}'}):\n"
        f"{one.output.strip()[-MAX_FEEDBACK_CHARS:]}"
        for one in failed
    )


def overruled_notes(
    name: str, written: dict[str, Any], made: dict[str, Any], facts: Iteration, verdict: Verdict
) -> tuple[str, ...]:
    """What the harness decided otherwise than its agent."""
    broken = "a rule was broken" if facts.illegal or facts.sprung.touched else "it was not accepted"
    why = broken if isinstance(verdict, Retry) else "it was not judged"
    why = "the checks are red" if failed_checks_text(facts) else why
    if made["reviewStatus"] == written["reviewStatus"] and made["passes"] == written["passes"]:
        return ()
    if made["reviewStatus"] == APPROVED:
        return (f"story {name} was approved at the review cap; see its reviewFeedback",)
    if written["reviewStatus"] == APPROVED:
        return (f"the approval of story {name} does not stand: {why}",)
    return (f"story {name} stays {made['reviewStatus'] or 'open'}: {why}",)


# The stories of a `tasks.json`: a plan that agents write in, by the rules of the review cycle.
#
# What the harness remembers is the truth. A turn's writing is held against it and is taken over or put back as a whole;
# then only verify commands that are green make it stand.


_NO_NOTES: tuple[str, ...] = ()
FILE_MISSING = "there is no such file, or it cannot be read; a link is none"
COMMANDS_CHANGED = "verifyCommands were changed, and hold for a whole run; begin a new one: ralph run"
EDITED_BETWEEN_RUNS = "was edited while the run rested: the run goes on with what it says now"


class StoryPlan:
    """The plan of a run by stories, and the notebook of its agents."""

    def __init__(
        self, path: str, manner: StoryWorkflow, shelf: StoryStorage, template: Callable[[], str] | None = None
    ) -> None:
        """`path` is the file's, as messages name it. `template` reads the prompt file as it now is."""
        self.path, self._manner, self._shelf, self._template = path, manner, shelf, template
        self._known: StoryState | None = None
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
        tasks = tasks_from_stories(known.good, manner, known.proven)
        return Plan(tasks, capped, why if capped else "", approval_concerns(known.good), prompt_digest(manner.template))

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
        requested = [one for one in document["userStories"] if one["reviewStatus"] == schema.CHANGES_REQUESTED]
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
            "preIterationSnapshot": schema.review_snapshot(good),
            "pinned": {"verifyCommands": good.get("verifyCommands", []), "userStories": pinned_fields(good)},
        }
        self._shelf.light(marker)

    def examine(self, name: str, job: Job, change: Change) -> PlanEdits:
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
        known, told = self._remembered(), _NO_NOTES
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
        return find_story(self._remembered().good, task).get("reviewStatus") or ""

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
            raise Refused(f"{self.path}: {COMMANDS_CHANGED}")
        self._remember(replace(known, good=document, before=document, written=document, proven=False))
        return (f"{self.path} {EDITED_BETWEEN_RUNS}",)

    def _regain_open(self, known: StoryState) -> tuple[str, ...]:
        """Before an iteration was judged, a check that its agent wrote may have done it: that decides nothing.

        The same holds for whatever runs when work is committed.
        """
        found = self._parsed()
        sound = isinstance(found, dict) and not schema.validate_stories(found)
        document = with_turn_changes(known, found) if sound and isinstance(found, dict) else None
        told: tuple[str, ...] = ()
        if document is None or self._manner.idle_faults(known.good, document):
            told = (f"{self.path} was changed before its iteration was judged, and was put back",)
        elif document != known.good:
            before = without_turn_changes(known, document)
            self._remember(replace(known, good=document, before=before, written=document, proven=False))
            told = (f"{self.path} {EDITED_BETWEEN_RUNS}",)
        self._put_over(found)
        return told

    def reviewed(self) -> tuple[StoryReview, ...]:
        """What became of every story. A run that never read its file, or had to give up over it, knows of none."""
        note = self._shelf.noted(STORY_MEMORY_NOTE) if self._known is None else None
        known = unpack_state(note) if isinstance(note, dict) else self._known
        return summarize_reviews(known) if known else ()

    def close(self) -> None:
        """What was not judged does not stand, for whoever begins anew. Who takes the run up knows it."""
        self._shelf.quench()
        if self._known and (self._turning or self._known.open):
            left = without_turn_changes(self._known, self._known.good) if self._known.open else self._known.good
            try:
                if self._parsed() != left:
                    self._shelf.write(schema.serialize_stories(left))
            except RalphError:
                pass  # the end must be told all the same; the next run looks again
        self._turning = False

    # What is known

    def _remembered(self) -> StoryState:
        if self._known is None:
            note = self._shelf.noted(STORY_MEMORY_NOTE)
            self._noted = isinstance(note, dict)
            self._known = unpack_state(note) if isinstance(note, dict) else StoryState(self._valid())
        return self._known

    def _remember(self, known: StoryState) -> None:
        if known != self._known or not self._noted:
            self._shelf.note(STORY_MEMORY_NOTE, pack_state(known))
        self._known, self._noted = known, True

    def _valid(self) -> dict[str, Any]:
        """The file as it stands, whoever wrote it; raises StoriesWrong with all that is wrong with it."""
        document = self._parsed()
        if isinstance(document, schema.UnreadableStories):
            raise StoriesWrong(f"{self.path}: {document.why}")
        faults = schema.validate_stories(document)
        if not faults and not self._manner.skip_review:
            faults = review.check_invariants(document, self._manner.cap, schema.review_snapshot(document))
        if not faults and not document["userStories"]:
            faults = ("there are no stories in it",)
        if faults:
            raise StoriesWrong(f"{self.path}: {'; '.join(faults)}")
        return document

    def _parsed(self) -> dict[str, Any] | schema.UnreadableStories:
        data = self._shelf.look()
        return schema.UnreadableStories(FILE_MISSING) if data is None else schema.parse_stories(data)

    def _put(self) -> None:
        self._shelf.write(schema.serialize_stories(self._remembered().good))

    def _put_over(self, found: dict[str, Any] | schema.UnreadableStories) -> None:
        """Put the file right, unless it is."""
        if found != self._remembered().good:
            self._put()

    def _judged(self, known: StoryState, name: str, job: Job, change: Change) -> StoryState:
        """All turns of an iteration together may do what one may: they are held against what the first one found."""
        again = known.open and iteration_of_turn(known.name) == iteration_of_turn(name)
        before, document = known.before if again else known.good, self._parsed()
        now = replace(known, good=before, before=before, written=before, name=name, story=job.task.id)
        faults: tuple[str, ...] = (
            (f"{self.path}: {document.why}",) if isinstance(document, schema.UnreadableStories) else ()
        )
        if not isinstance(document, schema.UnreadableStories):
            faults = self._manner.faults(before, document, job.stage.name, job.task.id)
        strays = self._manner.strays(change, job.stage.name)
        if strays:
            named = ", ".join(strays[: schema.MAX_NAMED])
            faults += (f"Review iterations do not fix code, and yet these files changed: {named}.",)
        if faults or isinstance(document, schema.UnreadableStories):
            legal = (
                review.MODE_INSTRUCTIONS[job.stage.name] if not self._manner.skip_review else INSTRUCTION_WITHOUT_REVIEW
            )
            committed = change.committed and self.path in change.paths
            told = (f"what the agent committed of {self.path} stays in history; it was not accepted",)
            return replace(now, examined=PlanEdits((*faults, legal), None, strays, told if committed else ()))
        word, remarks = self._manner.word_of(find_story(before, job.task.id), find_story(document, job.task.id))
        claim = Claim(word, source="marker", stamp=name) if word else None
        return replace(now, good=document, written=document, examined=PlanEdits((), claim, remarks=remarks))

    def _unchanged(self) -> tuple[str, ...]:
        """Put back what checks changed of the files that nobody may change; what there is to tell of it."""
        now, told = self._shelf.others() if self._fixed else {}, _NO_NOTES
        for name, data in self._fixed.items():
            if now[name] != data:
                self._shelf.restore(name, data)
                told += (f"{name} was changed while no agent was at work, and was put back",)
        return told

    def _settled(self, known: StoryState, facts: Iteration, verdict: Verdict) -> tuple[StoryState, tuple[str, ...]]:
        """What is known after an iteration was judged, and what the harness decided otherwise than its agent."""
        manner, task, stage = self._manner, facts.job.task.id, facts.job.stage
        if not facts.turn.taken:
            known = replace(known, before=known.good, written=known.good, story=task)
        good, told, tally = known.good, _NO_NOTES, known.tally
        stands, red = isinstance(verdict, Passed | SentBack), failed_checks_text(facts)
        if (before := find_story(known.before, task)) and (written := find_story(known.written, task)):
            asked = {finding.check for finding in facts.report.findings}
            approve = not manner.cap_is_failure and asked.issuperset(stage.checks)
            made = settle_story(written, before, stage.name, stands, red, manner.cap, approve)
            good, told = replace_story(good, task, made), overruled_notes(task, written, made, facts, verdict)
            tally = update_tally(tally, stage.name, before, written, made)
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
        if changed and isinstance(document, dict) and not schema.validate_stories(document):
            document = with_decision(known, document)
            if not self._manner.idle_faults(known.good, document):
                self._remember(replace(known, good=document))
                changed = False
        self._put()
        return (f"{self.path} was changed while no agent was at work, and was put back",) if changed else ()
