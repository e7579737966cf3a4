"""A model as a check. It is asked without tools, in an empty folder, whether work meets criteria."""

from __future__ import annotations

import hashlib
import os

from ralphproof.agent import Agent, Brief, Turn, bounded
from ralphproof.check import Finding, Inspection, Onlooker, clip, fingerprint, slug
from ralphproof.claim import harmless
from ralphproof.errors import RalphError, from_system
from ralphproof.event import Event, Spent, Usage
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
)
from ralphproof.ledger import Folder
from ralphproof.plan import Semantic
from ralphproof.sandbox import STOP, Sandbox
from ralphproof.value import TYPE_CHECKING, replace, value
from ralphproof.workspace import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

OUTPUT_CHARS, WHY_CHARS = 5000, 300
STOPPED, INTERRUPTED = "stopped", "interrupted"
NOTHING = Spent(0, Usage())
ANSWERS = 2  # calls that may come to an answer; a second one where the first is none
CUT_OFF = 3  # so often a call is made again that died with its keeper, or with somebody who has left since


def fresh_nonce() -> str:
    """What nobody can know who wrote before now."""
    return os.urandom(16).hex()


@value
class Called:
    """What came of one call: what it ruled, or else why it did not."""

    turn: Turn
    judgement: Judgement | None = None
    why: str = ""
    malformed: bool = False


class Judge:
    """Asks an agent whether work meets criteria. A pattern in it that refuses it does so without a model.

    The work is everything since the run began. Every call has a name, a prompt and a nonce of its own; one that was
    begun before is taken up, and not paid for again.
    """

    def __init__(
        self, name: str, semantic: Semantic, agent: Agent | None, sandbox: Sandbox, folder: Folder,
        diff: Callable[[Snapshot, Snapshot], bytes], env: tuple[tuple[str, str], ...], required: bool = True,
        subject: str = "", nonce: Callable[[], str] = fresh_nonce,
    ) -> None:  # fmt: skip
        self.name, self._semantic, self._agent = name, semantic, agent
        self._sandbox, self._folder, self._diff, self._env = sandbox, folder, diff, env
        self._required, self._subject, self._nonce = required, subject, nonce
        asks = (semantic.check_for, semantic.negative_patterns, semantic.model, semantic.agent, agent and agent.name)
        self.key = _digest(repr(("semantic", *asks, subject, required)))
        plain = slug(name)
        self._slug = plain if plain == name.lower() else f"{plain or 'judge'}_{_digest(name)[:6]}"

    def ask(self, inspection: Inspection, watch: Onlooker) -> Finding:
        """What the patterns say, then what the judge says: never more than one of the two."""
        criteria = self._semantic.check_for
        try:
            diff = self._work(inspection)
        except RalphError as error:
            return self._finding(False, why=_line(str(error)), errored=True, judged=bool(criteria))
        if hit := negative(self._semantic.negative_patterns, inspection.said, diff):
            return self._finding(False, why="a pattern that refuses it", output=harmless(hit))
        if not criteria:
            return self._finding(True, output="none of the patterns was found")
        if self._agent is None or len(criteria) > MOST_CRITERIA:
            lacking = "no agent to ask" if self._agent is None else f"more than {MOST_CRITERIA} criteria"
            return self._finding(False, why=lacking, errored=True, judged=True)
        return self._asked(self._agent, inspection, diff, watch)

    def _work(self, inspection: Inspection) -> str:
        if inspection.began.id is None or inspection.snapshot.id is None:
            raise RalphError("a tree that could not be saved: what was changed is not known")
        return self._diff(inspection.began, inspection.snapshot).decode("utf-8", "replace")

    def _asked(self, agent: Agent, inspection: Inspection, diff: str, watch: Onlooker) -> Finding:
        """Call until there is an answer, as long as another call may bring one."""
        calls: list[Called] = []
        own, left = self._semantic.most_micro_usd, inspection.left_micro_usd
        most = own if left is None else max(1, min(own, left))
        while True:
            spent = _sum([call.turn for call in calls])
            name = self._called(inspection, len(calls) + 1)
            work = Submission(self._subject, diff, inspection.said)
            calls.append(self._call(agent, name, work, most, spent, watch))
            if not self._again(calls, most, watch):
                return self._ruled(calls, name)

    def _called(self, inspection: Inspection, run: int) -> str:
        steps = (("turn", inspection.turn), ("round", inspection.round), ("run", run))
        again = "".join(f"-{what}{n}" for what, n in steps if n > 1)
        return f"judge_{inspection.iteration:03d}_{self._slug}{again}"

    def _again(self, calls: list[Called], most: int, watch: Onlooker) -> bool:
        last = calls[-1]
        if last.judgement is not None or watch.tick() >= STOP:
            return False
        if last.turn.exit.why in (STOPPED, "killed", INTERRUPTED):
            return sum(not call.malformed for call in calls) <= CUT_OFF
        spent = _sum([call.turn for call in calls]).micro_usd or 0
        return last.malformed and spent < most and sum(call.malformed for call in calls) < ANSWERS

    def _call(self, agent: Agent, name: str, work: Submission, most: int, before: Spent, watch: Onlooker) -> Called:
        """One question, asked or taken up."""
        criteria, folder = self._semantic.check_for, self._folder
        known = folder.prompted(name)
        path = folder.prompt(name, known or question(criteria, work, self._nonce()))
        asked = folder.prompted(name) or ""  # as the judge reads it: what is secret in the work is masked
        left = most - (before.micro_usd or 0)
        room = folder.base(f"{name}-room")
        brief = Brief(
            asked, path, room, self._env, folder.base(name), folder.turn_file(name), f"{folder.run}/{name}",
            self._semantic.timeout_s, stream=False, taken_up=known is not None, schema=schema(len(criteria)),
            most_micro_usd=left,
        )  # fmt: skip
        _make(room)
        turn = agent.take_turn(brief, self._sandbox, _Onlooker(watch, before))
        _remove(room)
        folder.publish(name)
        if trouble := _trouble(turn, brief):
            return Called(turn, why=trouble)
        found = answer(turn.text, nonce_in(asked), criteria, diff_in(asked), work.message)
        if isinstance(found, Unanswered):
            return Called(turn, why=found.why, malformed=True)
        return Called(turn, found)

    def _ruled(self, calls: list[Called], name: str) -> Finding:
        last, turns = calls[-1], [call.turn for call in calls]
        ran = any(turn.exit.why != "unstartable" for turn in turns)
        common = {
            "judged": True, "seconds": sum(turn.exit.seconds for turn in turns), "runs": len(calls),
            "spent": _sum(turns) if ran else None, "log": self._shown(name), "digest": _digest(last.turn.text),
        }  # fmt: skip
        if last.judgement is None:
            return replace(self._finding(False, why=last.why, errored=True), **common)
        unmet = [ruling.number for ruling in last.judgement.rulings if not ruling.met]
        output = clip(told(last.judgement), OUTPUT_CHARS, "head")
        why = f"{len(unmet)} of {len(last.judgement.rulings)} criteria not met" if unmet else "exit"
        found = self._finding(not unmet, why=why, output=output, mark=f"not met: {unmet}")
        return replace(found, **common)

    def _shown(self, name: str) -> str:
        """The log as people find it, from the project's root."""
        return "/".join(self._folder.shown(name).split("/")[-4:]) + ".ndjson"

    def _finding(
        self, passed: bool, why: str = "exit", output: str = "", errored: bool = False, judged: bool = False,
        mark: str = "",
    ) -> Finding:  # fmt: skip
        failure = "" if passed else fingerprint(self.name, None, mark or output or why)
        return Finding(
            self.name, passed, why=why, output=output, fingerprint=failure, required=self._required, errored=errored,
            judged=judged, key=self.key,
        )  # fmt: skip


class _Onlooker:
    """Looks on at a call; what was spent on those before it counts too."""

    def __init__(self, watch: Onlooker, before: Spent) -> None:
        self._watch, self._before = watch, before

    def events(self, events: list[Event]) -> None:
        self._watch.events([_both(self._before, one) if isinstance(one, Spent) else one for one in events])

    def tick(self) -> int:
        return self._watch.tick()


def _trouble(turn: Turn, brief: Brief) -> str:
    """Why a turn is none that could hold an answer; empty where it may."""
    end, most = turn.exit, brief.most_micro_usd
    match end.why:
        case "stopped" | "killed":
            return STOPPED
        case "interrupted":
            return INTERRUPTED
        case "timeout":
            return f"a timeout after {brief.timeout_s:g} s"
        case "unstartable":
            return _line(f"a judge that could not be started: {end.error}")
    if end.survivors:
        return f"processes that could not be ended: {', '.join(map(str, end.survivors))}"
    if turn.errored or (turn.limited and not turn.text.strip()):
        said = turn.error or (turn.limited and turn.limited.message) or f"its end by {_end(turn)}"
        return _line(f"an error of the judge: {said}")
    if most is not None and turn.micro_usd is not None and turn.micro_usd > most:
        spent = f"${turn.micro_usd / 1e6:.4f} of ${most / 1e6:.4f}"
        return f"a judge that spent more than it may: {spent}"
    return ""


def _end(turn: Turn) -> str:
    return f"signal {turn.exit.signal}" if turn.exit.signal else f"exit code {turn.exit.code}"


def _sum(turns: list[Turn]) -> Spent:
    total = NOTHING
    for turn in turns:
        total = _both(total, turn.spent)
    return total


def _both(one: Spent, other: Spent) -> Spent:
    if one is NOTHING:
        return other
    return replace(one.plus(other), at_least=one.at_least or other.at_least, notional=one.notional or other.notional)


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


def _line(text: str) -> str:
    return bounded(" ".join(harmless(text).split()), WHY_CHARS).replace("\n", " ")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
