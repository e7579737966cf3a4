"""A model as a check. It is asked without tools, in an empty folder, whether work meets criteria."""

from __future__ import annotations

import hashlib
import os

from ralphproof.agent import Agent, Brief
from ralphproof.check import UNREADABLE, Finding, Inspection, Onlooker, clip, slug
from ralphproof.checks.binary import legible
from ralphproof.checks.calls import Adding, Called, Calls, line, trouble
from ralphproof.checks.waiting import Patience, Waiting
from ralphproof.claim import harmless
from ralphproof.errors import RalphError, from_system
from ralphproof.event import Spent
from ralphproof.fingerprint import fingerprint
from ralphproof.judgement import (
    MOST_CRITERIA,
    Judgement,
    Submission,
    Unanswered,
    answer,
    diff_in,
    negative,
    nonce_in,
    question,
    schema,
    told,
    vouched,
)
from ralphproof.ledger import Folder
from ralphproof.plan import Semantic
from ralphproof.sandbox import Sandbox
from ralphproof.value import TYPE_CHECKING, replace
from ralphproof.workspace import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ralphproof.judgement import Ruling

OUTPUT_CHARS = 5000  # of what is told about one question's criteria


def fresh_nonce() -> str:
    """What nobody can know who wrote before now."""
    return os.urandom(16).hex()


def slug_of(name: str) -> str:
    """A judge's name as its calls have it."""
    plain = slug(name)
    return plain if plain == name.lower() else f"{plain or 'judge'}_{_digest(name)[:6]}"


def asked_in(call: str, judges: Iterable[str]) -> str | None:
    """Which of these judges a call of this name asks; None where it asks none of them."""
    kind, _, rest = call.partition("_")
    named = rest.partition("_")[2]
    found = (one for one in judges if named == slug_of(one) or named.startswith(f"{slug_of(one)}-"))
    return max(found, key=lambda one: len(slug_of(one)), default=None) if kind == "judge" else None


class Judge:
    """Asks an agent whether work meets criteria. A pattern in it that refuses it does so without a model.

    The work is everything since the run began. Every call has a name, a prompt and a nonce of its own; one that was
    begun before is taken up, and not paid for again. Patterns that are not found prove nothing: without criteria, a
    finding that passes is not required.
    """

    def __init__(
        self, name: str, semantic: Semantic, agent: Agent | None, sandbox: Sandbox, folder: Folder,
        diff: Callable[[Snapshot, Snapshot], bytes], env: tuple[tuple[str, str], ...], required: bool = True,
        subject: str = "", nonce: Callable[[], str] = fresh_nonce, waiting: Waiting | None = None,
    ) -> None:  # fmt: skip
        self.name, self._semantic, self._agent = name, semantic, agent
        self._sandbox, self._folder, self._diff, self._env = sandbox, folder, diff, env
        self._required, self._subject, self._nonce = required, subject, nonce
        self._waiting = waiting or Waiting()
        asks = (semantic.check_for, semantic.negative_patterns, semantic.model, semantic.agent, agent and agent.name)
        # Patterns cost nothing to look for, and whoever copies an answer may not know that it is not required.
        self.key = _digest(repr(("semantic", *asks, subject, required))) if semantic.check_for else ""
        self._slug = slug_of(name)

    def ask(self, inspection: Inspection, watch: Onlooker) -> Finding:
        """What the patterns say, then what the judge says: never more than one of the two."""
        criteria, patterns = self._semantic.check_for, self._semantic.negative_patterns
        try:
            diff = self._work(inspection)
        except RalphError as error:
            return self._finding(False, why=line(str(error)), errored=True, judged=bool(criteria))
        hidden = tuple(legible(diff)) if patterns else ()
        if hit := negative(patterns, inspection.said, diff, hidden):
            return self._refused(inspection, harmless(hit))
        if not criteria:
            return replace(self._finding(True, output=vouched(patterns, diff)), required=False)
        if self._agent is None:
            return self._finding(False, why="no agent to ask", errored=True, judged=True)
        return self._asked(self._agent, inspection, diff, watch)

    def _work(self, inspection: Inspection) -> str:
        if inspection.began.id is None or inspection.snapshot.id is None:
            raise RalphError("a tree that could not be saved: what was changed is not known")
        return self._diff(inspection.began, inspection.snapshot).decode("utf-8", "replace")

    def _refused(self, inspection: Inspection, hit: str) -> Finding:
        """The work has a pattern in it; the log says which, and where."""
        name = self._called(inspection, 1)
        _write(self._folder.base(name) + ".log", hit + "\n")
        self._folder.publish(name)
        found = self._finding(False, why="a pattern that refuses it", output=hit)
        return replace(found, log=self._shown(name, ".log"), digest=_digest(hit))

    def _asked(self, agent: Agent, inspection: Inspection, diff: str, watch: Onlooker) -> Finding:
        """Ask about all criteria, as many at a time as one question holds."""
        work = Submission(self._subject, diff, inspection.said)
        criteria, left = self._semantic.check_for, inspection.left_micro_usd
        own = self._semantic.most_micro_usd
        most = own if left is None else max(1, min(own, left))

        def call(name: str, batch: tuple[str, ...], left: int, before: Spent) -> Called:
            return self._call(agent, name, batch, work, left, Adding(watch, before))

        patience = Patience(self._waiting, f"{self._folder.run} {self._slug}")
        calls = Calls(call, lambda name: self._folder.prompted(name) is not None, most, patience, watch)
        rulings: list[Ruling] = []
        for part, start in enumerate(range(0, len(criteria), MOST_CRITERIA), 1):
            last = calls.answer(self._called(inspection, part), criteria[start : start + MOST_CRITERIA])
            if last.judgement is None:
                break
            rulings += [replace(ruling, number=start + ruling.number) for ruling in last.judgement.rulings]
            if calls.left_micro_usd <= 0 and len(rulings) < len(criteria):
                last = Called(last.turn, why="no money left for the other criteria")
                break
        notes = (*patience.notes, vouched(self._semantic.negative_patterns, diff))
        return self._ruled(calls, last, Judgement(tuple(rulings)), tuple(harmless(note) for note in notes if note))

    def _called(self, inspection: Inspection, part: int) -> str:
        steps = (("turn", inspection.turn), ("round", inspection.round), ("part", part))
        again = "".join(f"-{what}{n}" for what, n in steps if n > 1)
        return f"judge_{inspection.iteration:03d}_{self._slug}{again}"

    def _call(
        self, agent: Agent, name: str, criteria: tuple[str, ...], work: Submission, left_micro_usd: int, watch: Adding
    ) -> Called:
        """One question, asked or taken up."""
        folder = self._folder
        known = folder.prompted(name)
        path = folder.prompt(name, known or question(criteria, work, self._nonce()))
        asked = folder.prompted(name) or ""  # as the judge reads it: what is secret in the work is masked
        room = folder.base(f"{name}-room")
        brief = Brief(
            asked, path, room, self._env, folder.base(name), folder.turn_file(name), f"{folder.run}/{name}",
            self._semantic.timeout_s, stream=False, taken_up=known is not None, schema=schema(len(criteria)),
            most_micro_usd=left_micro_usd,
        )  # fmt: skip
        _make(room)
        turn = agent.take_turn(brief, self._sandbox, watch)
        _remove(room)
        folder.publish(name)
        if found := trouble(turn, brief):
            return found
        ruled = answer(turn.text, nonce_in(asked), criteria, diff_in(asked), work.message)
        if isinstance(ruled, Unanswered):
            return Called(turn, why=ruled.why, malformed=True)
        return Called(turn, ruled)

    def _ruled(self, calls: Calls, last: Called, found: Judgement, notes: tuple[str, ...]) -> Finding:
        turns = [call.turn for call in calls.made]
        ran = any(turn.exit.why != "unstartable" for turn in turns)
        return replace(
            self._verdict(last, found, notes), judged=True, seconds=sum(turn.exit.seconds for turn in turns),
            runs=len(turns), spent=calls.billed if ran else None, log=self._shown(calls.last, ".ndjson"),
            digest=_digest(last.turn.text),
        )  # fmt: skip

    def _verdict(self, last: Called, found: Judgement, notes: tuple[str, ...]) -> Finding:
        """What follows. No work gets by without an answer that it may itself have spoilt: that is its failure."""
        unmet = [ruling.number for ruling in found.rulings if not ruling.met]
        total = len(self._semantic.check_for)
        gap = f"{len(found.rulings)} of {total} criteria were judged, then there was {_none(last)}"
        lacking = (gap,) if last.judgement is None else ()
        room = OUTPUT_CHARS * (1 + (total - 1) // MOST_CRITERIA)
        ruled = (clip(told(found), room, "head"),) if found.rulings else ()
        output = "\n".join((*ruled, *lacking, *notes))
        if unmet:
            why = f"{len(unmet)} of {total} criteria not met"
            return self._finding(False, why=why, output=output, mark=f"not met: {unmet}")
        if last.judgement is not None:
            return self._finding(True, output=output)
        if last.malformed:
            return self._finding(False, why=UNREADABLE, output=output, mark=UNREADABLE)
        return self._finding(False, why=last.why, output="\n".join(notes), errored=True, mark=last.why)

    def _shown(self, name: str, ending: str) -> str:
        """The log as people find it, from the project's root."""
        return "/".join(self._folder.shown(name).split("/")[-4:]) + ending

    def _finding(
        self, passed: bool, why: str = "exit", output: str = "", errored: bool = False, judged: bool = False,
        mark: str = "",
    ) -> Finding:  # fmt: skip
        failure = "" if passed else fingerprint(self.name, None, mark or output or why)
        return Finding(
            self.name, passed, why=why, output=output, fingerprint=failure, required=self._required, errored=errored,
            judged=judged, key=self.key,
        )  # fmt: skip


def _none(last: Called) -> str:
    return f"{UNREADABLE} ({last.why})" if last.malformed else last.why


def _write(path: str, text: str) -> None:
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(file, "wb") as log:
            log.write(text.encode("utf-8", "replace"))
    except OSError as error:
        raise from_system(error) from error


def _make(room: str) -> None:
    try:
        os.makedirs(room, 0o700, exist_ok=True)
    except OSError as error:
        raise from_system(error) from error


def _remove(room: str) -> None:
    """An empty folder is of no use to anybody; whatever an agent left in one may be."""
    try:
        os.rmdir(room)
    except OSError:
        pass


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
