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
from ralphproof.stories.workflow import (
    INSTRUCTION_WITHOUT_REVIEW,
    StoryState,
    StoryStorage,
    StoryWorkflow,
    find_story,
    iteration_of_turn,
    pack_state,
    pinned_fields,
    replace_story,
    summarize_reviews,
    tasks_from_stories,
    unpack_state,
    update_tally,
    with_decision,
    with_turn_changes,
    without_turn_changes,
)
from ralphproof.tasks.plans import prompt_digest

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ralphproof.engine.outcome import StoryReview, Verdict
    from ralphproof.engine.plan import Iteration, Job
    from ralphproof.engine.workspace import Change


# Texts about stories, for agents and for the user.


MAX_FEEDBACK_CHARS = 4000  # of what failed, in a story's feedback


def failed_checks_text(facts: Iteration) -> str:
    """The output of failed required checks, for the agent that fixes them; empty where none failed."""
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
    """Notices about decisions that differ from what the agent wrote."""
    broken = "a rule was broken" if facts.plan_violations or facts.tripwires.touched else "it was not accepted"
    why = broken if isinstance(verdict, Retry) else "it was not judged"
    why = "the checks are red" if failed_checks_text(facts) else why
    if made["reviewStatus"] == written["reviewStatus"] and made["passes"] == written["passes"]:
        return ()
    if made["reviewStatus"] == APPROVED:
        return (f"story {name} was approved at the review cap; see its reviewFeedback",)
    if written["reviewStatus"] == APPROVED:
        return (f"the approval of story {name} does not stand: {why}",)
    return (f"story {name} stays {made['reviewStatus'] or 'open'}: {why}",)


# The plan. The harness's own state is authoritative: what a turn writes into the file is compared with it, and accepted
# or reverted as a whole; then only passing verify commands make it final.


_NO_NOTES: tuple[str, ...] = ()
FILE_MISSING = "there is no such file, or it cannot be read; a link is none"
COMMANDS_CHANGED = "verifyCommands were changed, and hold for a whole run; begin a new one: ralph run"
EDITED_BETWEEN_RUNS = "was edited while the run rested: the run goes on with what it says now"


class StoryPlan:
    """The plan of a run by stories, which agents edit."""

    def __init__(
        self, path: str, workflow: StoryWorkflow, storage: StoryStorage, template: Callable[[], str] | None = None
    ) -> None:
        """`path` is the file's name in messages. `template` reads the prompt file as it is now."""
        self.path, self._workflow, self._storage, self._template = path, workflow, storage, template
        self._state: StoryState | None = None
        self._state_saved = False  # whether what is known would outlive a crash
        self._turn_open = False  # whether a turn began that is not settled
        self._read_only: dict[str, bytes | None] = {}  # what nobody may change, as that turn found it

    @property
    def files(self) -> tuple[str, ...]:
        return self._workflow.files

    # The plan

    def read(self) -> Plan:
        """The stories as tasks; raises Refused with everything that is wrong with the file at the start."""
        known, workflow = self._load_state(), self._workflow
        workflow = replace(workflow, template=self._template()) if self._template else workflow
        capped = self._capped(known.good)
        why = f"reviewed {self._workflow.cap} times and not approved (review.capIsFailure)"
        tasks = tasks_from_stories(known.good, workflow, known.proven)
        return Plan(
            tasks, capped, why if capped else "", approval_concerns(known.good), prompt_digest(workflow.template)
        )

    @property
    def document(self) -> dict[str, Any]:
        """The stories document that the harness goes by."""
        return self._load_state().good

    def claim(self, _iteration: int) -> Claim | None:
        """The claim that all stories are done, where the file says so and no check has shown it yet."""
        known = self._load_state()
        if known.proven or not all(self._workflow.done(one) for one in known.good["userStories"]):
            return None
        return Claim(self._workflow.word, source="marker", stamp="start")

    def _capped(self, document: dict[str, Any]) -> tuple[str, ...]:
        if not self._workflow.cap_is_failure:
            return ()
        requested = [one for one in document["userStories"] if one["reviewStatus"] == schema.CHANGES_REQUESTED]
        return tuple(one["id"] for one in requested if one["reviewCount"] >= self._workflow.cap)

    # Edits by agents

    def begin_turn(self, iteration: int, job: Job, window: int | None) -> None:
        """Write the marker that hooks read. The state is durable before that."""
        known = self._load_state()
        good = known.good
        if not self._state_saved:
            self._save_state(known)
        self._turn_open, self._read_only = True, self._storage.read_only_files()
        marker: dict[str, Any] = {
            "iteration": iteration,
            "contextWindow": window,
            "iterationMode": job.stage.name,
            "story": job.task.id,
            "preIterationSnapshot": schema.review_snapshot(good),
            "pinned": {"verifyCommands": good.get("verifyCommands", []), "userStories": pinned_fields(good)},
        }
        self._storage.write_marker(marker)

    def review_edits(self, name: str, job: Job, change: Change) -> PlanEdits:
        """Accept what a turn wrote, or revert it. The result is durable before it is returned."""
        known = self._load_state()
        if known.name != name:
            known = self._examine(known, name, job, change)
            self._save_state(known)
        if known.examined.has_reverted:
            self._write_file()
        return known.examined

    def apply_verdict(self, facts: Iteration, verdict: Verdict) -> tuple[str, ...]:
        """Record the verdict in the story, once, and write the file accordingly."""
        known, told = self._load_state(), _NO_NOTES
        before = known.good
        if (known.settled, known.verdict) != (facts.number, type(verdict).__name__):
            known, told = self._apply(known, facts, verdict)
            self._save_state(known)
            told += self._restore_read_only_files()
        self._turn_open = False
        return (*told, *self._write_settled(before))

    def revert_turn(self, name: str, facts: Iteration) -> tuple[str, ...]:
        """Revert what the turn of this name made of its story: no verdict will come."""
        if not self._load_state().name.startswith(name):
            self.review_edits(name, facts.job, facts.change)
        return self.apply_verdict(facts, Retry(Feedback()))

    def restore(self) -> None:
        """Write the file from the known state: what a turn wrote was not examined."""
        self._write_if_different(self._parse_file())

    def status_word(self, task: str) -> str:
        return find_story(self._load_state().good, task).get("reviewStatus") or ""

    def accept_user_changes(self, busy: bool) -> tuple[str, ...]:
        """Accept what the user wrote while no agent ran."""
        known = self._load_state()
        if known.open or busy:
            return self._accept_changes_before_verdict(known)
        found = self._parse_file()
        if found in (known.good, known.written):  # the second where we died before the file said what was judged
            self._write_if_different(found)
            return ()
        document = self._valid_document()
        if document.get("verifyCommands", []) != known.good.get("verifyCommands", []):
            raise Refused(f"{self.path}: {COMMANDS_CHANGED}")
        self._save_state(replace(known, good=document, before=document, written=document, proven=False))
        return (f"{self.path} {EDITED_BETWEEN_RUNS}",)

    def _accept_changes_before_verdict(self, known: StoryState) -> tuple[str, ...]:
        """Accept edits before an iteration was judged only where they decide nothing.

        A check that the agent wrote, or whatever runs at a commit, may have made them.
        """
        found = self._parse_file()
        sound = isinstance(found, dict) and not schema.validate_stories(found)
        document = with_turn_changes(known, found) if sound and isinstance(found, dict) else None
        told: tuple[str, ...] = ()
        if document is None or self._workflow.idle_faults(known.good, document):
            told = (f"{self.path} was changed before its iteration was judged, and was put back",)
        elif document != known.good:
            before = without_turn_changes(known, document)
            self._save_state(replace(known, good=document, before=before, written=document, proven=False))
            told = (f"{self.path} {EDITED_BETWEEN_RUNS}",)
        self._write_if_different(found)
        return told

    def story_reviews(self) -> tuple[StoryReview, ...]:
        """The review results of every story; empty where the run never read its file."""
        note = self._storage.noted(STORY_MEMORY_NOTE) if self._state is None else None
        known = unpack_state(note) if isinstance(note, dict) else self._state
        return summarize_reviews(known) if known else ()

    def close(self) -> None:
        """Remove the marker, and revert in the file what was not judged. A resumed run still knows it."""
        self._storage.remove_marker()
        if self._state and (self._turn_open or self._state.open):
            left = without_turn_changes(self._state, self._state.good) if self._state.open else self._state.good
            try:
                if self._parse_file() != left:
                    self._storage.write(schema.serialize_stories(left))
            except RalphError:
                pass  # the end must be told all the same; the next run looks again
        self._turn_open = False

    # State

    def _load_state(self) -> StoryState:
        if self._state is None:
            note = self._storage.noted(STORY_MEMORY_NOTE)
            self._state_saved = isinstance(note, dict)
            self._state = unpack_state(note) if isinstance(note, dict) else StoryState(self._valid_document())
        return self._state

    def _save_state(self, known: StoryState) -> None:
        if known != self._state or not self._state_saved:
            self._storage.note(STORY_MEMORY_NOTE, pack_state(known))
        self._state, self._state_saved = known, True

    def _valid_document(self) -> dict[str, Any]:
        """The file as it is; raises StoriesWrong with everything that is wrong with it."""
        document = self._parse_file()
        if isinstance(document, schema.UnreadableStories):
            raise StoriesWrong(f"{self.path}: {document.why}")
        faults = schema.validate_stories(document)
        if not faults and not self._workflow.skip_review:
            faults = review.check_invariants(document, self._workflow.cap, schema.review_snapshot(document))
        if not faults and not document["userStories"]:
            faults = ("there are no stories in it",)
        if faults:
            raise StoriesWrong(f"{self.path}: {'; '.join(faults)}")
        return document

    def _parse_file(self) -> dict[str, Any] | schema.UnreadableStories:
        data = self._storage.read()
        return schema.UnreadableStories(FILE_MISSING) if data is None else schema.parse_stories(data)

    def _write_file(self) -> None:
        self._storage.write(schema.serialize_stories(self._load_state().good))

    def _write_if_different(self, found: dict[str, Any] | schema.UnreadableStories) -> None:
        """Write the file, unless it is right already."""
        if found != self._load_state().good:
            self._write_file()

    def _examine(self, known: StoryState, name: str, job: Job, change: Change) -> StoryState:
        """Compare with the state before the iteration: all its turns together may do what one may."""
        again = known.open and iteration_of_turn(known.name) == iteration_of_turn(name)
        before, document = known.before if again else known.good, self._parse_file()
        now = replace(known, good=before, before=before, written=before, name=name, story=job.task.id)
        faults: tuple[str, ...] = (
            (f"{self.path}: {document.why}",) if isinstance(document, schema.UnreadableStories) else ()
        )
        if not isinstance(document, schema.UnreadableStories):
            faults = self._workflow.faults(before, document, job.stage.name, job.task.id)
        strays = self._workflow.strays(change, job.stage.name)
        if strays:
            named = ", ".join(strays[: schema.MAX_NAMED])
            faults += (f"Review iterations do not fix code, and yet these files changed: {named}.",)
        if faults or isinstance(document, schema.UnreadableStories):
            legal = (
                review.MODE_INSTRUCTIONS[job.stage.name]
                if not self._workflow.skip_review
                else INSTRUCTION_WITHOUT_REVIEW
            )
            committed = change.committed and self.path in change.paths
            told = (f"what the agent committed of {self.path} stays in history; it was not accepted",)
            return replace(now, examined=PlanEdits((*faults, legal), None, strays, told if committed else ()))
        word, remarks = self._workflow.word_of(find_story(before, job.task.id), find_story(document, job.task.id))
        claim = Claim(word, source="marker", stamp=name) if word else None
        return replace(now, good=document, written=document, examined=PlanEdits((), claim, remarks=remarks))

    def _restore_read_only_files(self) -> tuple[str, ...]:
        """Restore read-only files that checks changed; the notices about it."""
        now, told = self._storage.read_only_files() if self._read_only else {}, _NO_NOTES
        for name, data in self._read_only.items():
            if now[name] != data:
                self._storage.restore(name, data)
                told += (f"{name} was changed while no agent was at work, and was put back",)
        return told

    def _apply(self, known: StoryState, facts: Iteration, verdict: Verdict) -> tuple[StoryState, tuple[str, ...]]:
        """The state after a verdict, and notices about decisions that differ from what the agent wrote."""
        workflow, task, stage = self._workflow, facts.job.task.id, facts.job.stage
        if not facts.turn.taken:
            known = replace(known, before=known.good, written=known.good, story=task)
        good, told, tally = known.good, _NO_NOTES, known.tally
        stands, red = isinstance(verdict, Passed | SentBack), failed_checks_text(facts)
        if (before := find_story(known.before, task)) and (written := find_story(known.written, task)):
            asked = {finding.check for finding in facts.report.findings}
            approve = not workflow.cap_is_failure and asked.issuperset(stage.checks)
            made = settle_story(written, before, stage.name, stands, red, workflow.cap, approve)
            good, told = replace_story(good, task, made), overruled_notes(task, written, made, facts, verdict)
            tally = update_tally(tally, stage.name, before, written, made)
        shown = isinstance(verdict, Passed) or (stands and facts.report.verified)
        over: dict[str, Any] = {"settled": facts.number, "verdict": type(verdict).__name__, "tally": tally}
        return replace(known, good=good, proven=known.proven or shown, **over), told

    def _write_settled(self, ours: dict[str, Any]) -> tuple[str, ...]:
        """Write the file from the known state. Edits since the turn are kept where any turn could have made them.

        `ours` is the state until now, which the file may still have.
        """
        known, document = self._load_state(), self._parse_file()
        if document == known.good:
            return ()
        changed = document not in (known.written, ours)
        if changed and isinstance(document, dict) and not schema.validate_stories(document):
            document = with_decision(known, document)
            if not self._workflow.idle_faults(known.good, document):
                self._save_state(replace(known, good=document))
                changed = False
        self._write_file()
        return (f"{self.path} was changed while no agent was at work, and was put back",) if changed else ()
