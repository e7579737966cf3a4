"""A model as a check: criteria, calls to the judge, retries when its service fails."""

from __future__ import annotations

import hashlib
import os
import time

from ralphproof.base.errors import RalphError, wrap_os_error
from ralphproof.base.text import slugify, strip_control_characters, truncate, truncate_middle
from ralphproof.base.value import TYPE_CHECKING, replace, value
from ralphproof.checks.judgement import (
    MAX_CRITERIA,
    InvalidAnswer,
    Judgement,
    Submission,
    answer_schema,
    describe_absent_patterns,
    extract_diff,
    extract_nonce,
    find_negative_pattern,
    format_judgement,
    iter_binary_text,
    judge_prompt,
    parse_answer,
)
from ralphproof.engine.agent import Agent, ServiceFault, Turn, TurnInput, classify_fault
from ralphproof.engine.check import UNREADABLE_ANSWER, CheckWatcher, Finding, Inspection
from ralphproof.engine.environment import RunFiles
from ralphproof.engine.events import Event, Spent, Usage
from ralphproof.engine.failure_fingerprint import failure_fingerprint
from ralphproof.engine.plan import SemanticVerification
from ralphproof.engine.retry import next_retry_at
from ralphproof.engine.sandbox import STOP, Sandbox
from ralphproof.engine.workspace import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ralphproof.checks.judgement import Ruling
    from ralphproof.engine.agent import TurnWatcher


MAX_REASON_CHARS = 300
STOPPED, INTERRUPTED = "stopped", "interrupted"
CUT_SHORT = (STOPPED, "killed", INTERRUPTED)
NOTHING_SPENT = Spent(0, Usage())
MAX_ANSWERS = 2  # calls that may come to an answer; a second one where the first is none
MAX_INTERRUPTIONS = 3  # so often a call is made again that died with its keeper, or with somebody who has left since


@value
class JudgeCall:
    """The result of one call: a judgement, or why there is none."""

    turn: Turn
    judgement: Judgement | None = None
    why: str = ""
    malformed: bool = False
    fault: ServiceFault | None = None


class JudgeCalls:
    """All calls about one tree, with one cost limit.

    `call` makes the call of a name with criteria, a cost limit and the cost so far; `begun` tells whether a call of
    this name was made before.
    """

    def __init__(
        self, call: Callable[[str, tuple[str, ...], int, Spent], JudgeCall], was_started: Callable[[str], bool],
        max_micro_usd: int, retry: ServiceRetry, watch: CheckWatcher,
    ) -> None:  # fmt: skip
        self.calls: list[JudgeCall] = []
        self.last_name = ""  # the name of the last call
        self._already_billed: set[int] = set()  # those that somebody had stopped before: what they cost was told then
        self._call, self._was_started, self._max_micro_usd = call, was_started, max_micro_usd
        self._retry, self._watch = retry, watch

    @property
    def spent(self) -> Spent:
        """The cost of all calls."""
        return _total_spent(self.calls)

    @property
    def billed(self) -> Spent:
        """The same without calls that were stopped earlier: their cost was reported then."""
        return _total_spent([call for place, call in enumerate(self.calls) if place not in self._already_billed])

    def ask(self, name: str, criteria: tuple[str, ...]) -> JudgeCall:
        """Call until there is an answer, as long as another call may bring one."""
        mine: list[JudgeCall] = []
        while True:
            self.last_name = _call_name(name, len(mine) + 1)
            earlier = self._was_started(self.last_name)
            called = self._call(self.last_name, criteria, self.left_micro_usd, self.spent)
            if earlier and called.turn.exit.why in (STOPPED, "killed"):
                self._already_billed.add(len(self.calls))
            mine.append(called)
            self.calls.append(called)
            if not self._should_retry(mine, _call_name(name, len(mine) + 1)):
                return self._final(called)

    @property
    def left_micro_usd(self) -> int:
        """The cost limit of the next call."""
        return self._max_micro_usd - (self.spent.micro_usd or 0)

    def _should_retry(self, mine: list[JudgeCall], following: str) -> bool:
        last = mine[-1]
        if last.fault is None:
            self._retry.reset()
        if last.judgement is not None or self._watch.tick() >= STOP:
            return False
        if last.turn.exit.why in CUT_SHORT:
            return sum(call.turn.exit.why in CUT_SHORT for call in mine) <= MAX_INTERRUPTIONS
        if self.left_micro_usd <= 0:
            return False
        if last.fault is not None:
            return self._retry.wait(last.fault, self._watch, waited=self._was_started(following))
        return last.malformed and sum(call.malformed for call in mine) < MAX_ANSWERS

    def _final(self, last: JudgeCall) -> JudgeCall:
        """The last call; as stopped, where a stop request prevented another one."""
        if (last.malformed or last.fault) and self._watch.tick() >= STOP:
            return replace(last, why=STOPPED, malformed=False)
        return last


def _call_name(name: str, run: int) -> str:
    return name if run == 1 else f"{name}-run{run}"


class CumulativeSpendWatch:
    """Watches a call, with the cost of earlier calls added to its own."""

    def __init__(self, watch: CheckWatcher, before: Spent) -> None:
        self._watch, self._before = watch, before

    def events(self, events: list[Event]) -> None:
        self._watch.events([add_spent(self._before, one) if isinstance(one, Spent) else one for one in events])

    def tick(self) -> int:
        return self._watch.tick()


def _total_spent(calls: list[JudgeCall]) -> Spent:
    total = NOTHING_SPENT
    for call in calls:
        total = add_spent(total, call.turn.spent)
    return total


def add_spent(one: Spent, other: Spent) -> Spent:
    """The sum of two costs."""
    if one is NOTHING_SPENT:
        return other
    return replace(one.plus(other), at_least=one.at_least or other.at_least, notional=one.notional or other.notional)


def find_call_problem(turn: Turn, brief: TurnInput) -> JudgeCall | None:
    """Why a turn has no answer; None where it may have one."""
    fault = classify_fault(turn)
    if isinstance(fault, ServiceFault) and not turn.exit.survivors:
        return JudgeCall(turn, why=short_line(f"an error of the judge: {fault.message}"), fault=fault)
    why = _turn_problem(turn, brief)
    return JudgeCall(turn, why=why) if why else None


def _turn_problem(turn: Turn, brief: TurnInput) -> str:
    end, most = turn.exit, brief.max_micro_usd
    match end.why:
        case "stopped" | "killed":
            return STOPPED
        case "interrupted":
            return INTERRUPTED
        case "timeout":
            return f"a timeout after {brief.timeout_s:g} s"
        case "unstartable":
            return short_line(f"a judge that could not be started: {end.error}")
    if end.survivors:
        return f"processes that could not be ended: {', '.join(map(str, end.survivors))}"
    if turn.errored:
        return short_line(f"an error of the judge: {turn.error or f'its end by {_describe_exit(turn)}'}")
    if most is not None and turn.micro_usd is not None and turn.micro_usd > most:
        spent = f"${turn.micro_usd / 1e6:.4f} of ${most / 1e6:.4f}"
        return f"a judge that spent more than it may: {spent}"
    return ""


def _describe_exit(turn: Turn) -> str:
    return f"signal {turn.exit.signal}" if turn.exit.signal else f"exit code {turn.exit.code}"


def short_line(text: str) -> str:
    """Foreign text as one short line."""
    return truncate_middle(" ".join(strip_control_characters(text).split()), MAX_REASON_CHARS).replace("\n", " ")


MAX_FAILURES = 6  # calls in a row that a service may fail
MAX_WAIT_S = 3600.0  # in all
TICK_S = 0.5


class WaitClock:
    """The time, and waiting; replaced in tests."""

    def now(self) -> float:
        """Epoch seconds."""
        return time.time()

    def sleep(self, until_s: float, watch: TurnWatcher) -> bool:
        """Wait until then; False as soon as the watcher requests a stop."""
        end_s = time.monotonic() + until_s - self.now()
        while watch.tick() < STOP:
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                return True
            time.sleep(min(left_s, TICK_S))
        return False


class ServiceRetry:
    """Waits for a service that fails. `notes` lists the waits."""

    def __init__(self, waiting: WaitClock, seed: str) -> None:
        self.notes: list[str] = []
        self._clock, self._seed = waiting, seed
        self._failures, self._waited_s = 0, 0.0

    def reset(self) -> None:
        """The service answered."""
        self._failures = 0

    def wait(self, fault: ServiceFault, watch: TurnWatcher, waited: bool) -> bool:
        """Wait before the next call, unless that was `waited` for before a crash; False when it is time to give up."""
        self._failures += 1
        if self._failures >= MAX_FAILURES:
            self.notes.append(f"the judge's service was asked {MAX_FAILURES} times in a row: {fault.message}")
            return False
        now_s = self._clock.now()
        until_s = next_retry_at(self._failures, fault.resets_at, now_s, f"{self._seed} {len(self.notes)}")
        left_s = MAX_WAIT_S - self._waited_s
        if not waited and until_s - now_s > left_s:
            self.notes.append(f"the judge's service was not waited for any longer ({until_s - now_s:.0f} s)")
            return False
        if waited or self._clock.sleep(until_s, watch):
            self._waited_s += 0.0 if waited else until_s - now_s
            action = "asked again" if waited else f"waited {until_s - now_s:.0f} s"
            self.notes.append(f"{action}, since the judge's service failed: {fault.message}")
            return True
        return False


# The judge has no tools, and runs in an empty folder.


MAX_OUTPUT_CHARS = 5000  # of what is told about one question's criteria


def create_nonce() -> str:
    """A random token that no earlier text can contain."""
    return os.urandom(16).hex()


def judge_slug(name: str) -> str:
    """A judge's name within the names of its calls."""
    plain = slugify(name)
    return plain if plain == name.lower() else f"{plain or 'judge'}_{_digest(name)[:6]}"


def judge_of_call(call: str, judges: Iterable[str]) -> str | None:
    """The judge that made the call of this name; None where none of these did."""
    kind, _, rest = call.partition("_")
    named = rest.partition("_")[2]
    matching = (one for one in judges if named == judge_slug(one) or named.startswith(f"{judge_slug(one)}-"))
    return max(matching, key=lambda one: len(judge_slug(one)), default=None) if kind == "judge" else None


class Judge:
    """Asks an agent whether work meets criteria. A negative pattern in the work fails it without a model.

    The work is everything since the run began. Every call has a name, a prompt and a nonce of its own; one that was
    started before is resumed, and not paid for again. The absence of patterns proves nothing: without criteria, a
    finding that passes is not required.
    """

    def __init__(
        self, name: str, semantic: SemanticVerification, agent: Agent | None, sandbox: Sandbox, folder: RunFiles,
        diff: Callable[[Snapshot, Snapshot], bytes], env: tuple[tuple[str, str], ...], required: bool = True,
        subject: str = "", nonce: Callable[[], str] = create_nonce, waiting: WaitClock | None = None,
    ) -> None:  # fmt: skip
        self.name, self._semantic, self._agent = name, semantic, agent
        self._sandbox, self._folder, self._diff, self._env = sandbox, folder, diff, env
        self._required, self._subject, self._nonce = required, subject, nonce
        self._clock = waiting or WaitClock()
        asks = (semantic.check_for, semantic.negative_patterns, semantic.model, semantic.agent, agent and agent.name)
        # Without criteria there is no key: patterns cost nothing, and a copied finding would lose that it is not
        # required.
        self.key = _digest(repr(("semantic", *asks, subject, required))) if semantic.check_for else ""
        self._slug = judge_slug(name)

    def run(self, inspection: Inspection, watch: CheckWatcher) -> Finding:
        """Look for the patterns; if there are none, ask the judge."""
        criteria, patterns = self._semantic.check_for, self._semantic.negative_patterns
        try:
            diff = self._work(inspection)
        except RalphError as error:
            return self._finding(False, why=short_line(str(error)), errored=True, judged=bool(criteria))
        hidden = tuple(iter_binary_text(diff)) if patterns else ()
        if hit := find_negative_pattern(patterns, inspection.message, diff, hidden):
            return self._pattern_finding(inspection, strip_control_characters(hit))
        if not criteria:
            return replace(self._finding(True, output=describe_absent_patterns(patterns, diff)), required=False)
        if self._agent is None:
            return self._finding(False, why="no agent to ask", errored=True, judged=True)
        return self._judge(self._agent, inspection, diff, watch)

    def _work(self, inspection: Inspection) -> str:
        if inspection.start.id is None or inspection.snapshot.id is None:
            raise RalphError("a tree that could not be saved: what was changed is not known")
        return self._diff(inspection.start, inspection.snapshot).decode("utf-8", "replace")

    def _pattern_finding(self, inspection: Inspection, hit: str) -> Finding:
        """The finding for a pattern in the work; the log says which, and where."""
        name = self._call_name(inspection, 1)
        _write_log(self._folder.log_base(name) + ".log", hit + "\n")
        self._folder.publish(name)
        finding = self._finding(False, why="a pattern that refuses it", output=hit)
        return replace(finding, log=self._published_log(name, ".log"), digest=_digest(hit))

    def _judge(self, agent: Agent, inspection: Inspection, diff: str, watch: CheckWatcher) -> Finding:
        """Ask about all criteria, in batches."""
        work = Submission(self._subject, diff, inspection.message)
        criteria, left = self._semantic.check_for, inspection.max_micro_usd
        own = self._semantic.most_micro_usd
        most = own if left is None else max(1, min(own, left))

        def call(name: str, batch: tuple[str, ...], left: int, before: Spent) -> JudgeCall:
            return self._call(agent, name, batch, work, left, CumulativeSpendWatch(watch, before))

        retry = ServiceRetry(self._clock, f"{self._folder.run} {self._slug}")
        calls = JudgeCalls(call, lambda name: self._folder.read_prompt(name) is not None, most, retry, watch)
        rulings: list[Ruling] = []
        for part, start in enumerate(range(0, len(criteria), MAX_CRITERIA), 1):
            last = calls.ask(self._call_name(inspection, part), criteria[start : start + MAX_CRITERIA])
            if last.judgement is None:
                break
            rulings += [replace(ruling, number=start + ruling.number) for ruling in last.judgement.rulings]
            if calls.left_micro_usd <= 0 and len(rulings) < len(criteria):
                last = JudgeCall(last.turn, why="no money left for the other criteria")
                break
        notes = (*retry.notes, describe_absent_patterns(self._semantic.negative_patterns, diff))
        return self._to_finding(
            calls, last, Judgement(tuple(rulings)), tuple(strip_control_characters(note) for note in notes if note)
        )

    def _call_name(self, inspection: Inspection, part: int) -> str:
        steps = (("turn", inspection.turn), ("round", inspection.round), ("part", part))
        again = "".join(f"-{what}{n}" for what, n in steps if n > 1)
        return f"judge_{inspection.iteration:03d}_{self._slug}{again}"

    def _call(
        self,
        agent: Agent,
        name: str,
        criteria: tuple[str, ...],
        work: Submission,
        left_micro_usd: int,
        watch: CumulativeSpendWatch,
    ) -> JudgeCall:
        """Make one call, or resume it."""
        folder = self._folder
        known = folder.read_prompt(name)
        path = folder.write_prompt(name, known or judge_prompt(criteria, work, self._nonce()))
        prompt = folder.read_prompt(name) or ""  # as the judge reads it: what is secret in the work is masked
        folder_path = folder.log_base(f"{name}-room")
        brief = TurnInput(
            prompt, path, folder_path, self._env, folder.log_base(name), folder.turn_file(name), f"{folder.run}/{name}",
            self._semantic.timeout_s, stream=False, adopt=known is not None, schema=answer_schema(len(criteria)),
            max_micro_usd=left_micro_usd,
        )  # fmt: skip
        _make_folder(folder_path)
        turn = agent.take_turn(brief, self._sandbox, watch)
        _remove_folder(folder_path)
        folder.publish(name)
        if problem := find_call_problem(turn, brief):
            return problem
        answer = parse_answer(turn.text, extract_nonce(prompt), criteria, extract_diff(prompt), work.message)
        if isinstance(answer, InvalidAnswer):
            return JudgeCall(turn, why=answer.why, malformed=True)
        return JudgeCall(turn, answer)

    def _to_finding(self, calls: JudgeCalls, last: JudgeCall, judgement: Judgement, notes: tuple[str, ...]) -> Finding:
        turns = [call.turn for call in calls.calls]
        ran = any(turn.exit.why != "unstartable" for turn in turns)
        return replace(
            self._verdict(last, judgement, notes), judged=True, seconds=sum(turn.exit.seconds for turn in turns),
            runs=len(turns), spent=calls.billed if ran else None, log=self._published_log(calls.last_name, ".ndjson"),
            digest=_digest(last.turn.text),
        )  # fmt: skip

    def _verdict(self, last: JudgeCall, judgement: Judgement, notes: tuple[str, ...]) -> Finding:
        """The finding. An unreadable answer fails the work, which may itself have caused it."""
        unmet = [ruling.number for ruling in judgement.rulings if not ruling.met]
        total = len(self._semantic.check_for)
        gap = f"{len(judgement.rulings)} of {total} criteria were judged, then there was {_describe_no_answer(last)}"
        lacking = (gap,) if last.judgement is None else ()
        max_chars = MAX_OUTPUT_CHARS * (1 + (total - 1) // MAX_CRITERIA)
        rulings = (truncate(format_judgement(judgement), max_chars, "head"),) if judgement.rulings else ()
        output = "\n".join((*rulings, *lacking, *notes))
        if unmet:
            why = f"{len(unmet)} of {total} criteria not met"
            return self._finding(False, why=why, output=output, mark=f"not met: {unmet}")
        if last.judgement is not None:
            return self._finding(True, output=output)
        if last.malformed:
            return self._finding(False, why=UNREADABLE_ANSWER, output=output, mark=UNREADABLE_ANSWER)
        return self._finding(False, why=last.why, output="\n".join(notes), errored=True, mark=last.why)

    def _published_log(self, name: str, ending: str) -> str:
        """The path of the published log, relative to the project."""
        return "/".join(self._folder.published_path(name).split("/")[-4:]) + ending

    def _finding(
        self, passed: bool, why: str = "exit", output: str = "", errored: bool = False, judged: bool = False,
        mark: str = "",
    ) -> Finding:  # fmt: skip
        failure = "" if passed else failure_fingerprint(self.name, None, mark or output or why)
        return Finding(
            self.name, passed, why=why, output=output, fingerprint=failure, required=self._required, errored=errored,
            judged=judged, key=self.key,
        )  # fmt: skip


def _describe_no_answer(last: JudgeCall) -> str:
    return f"{UNREADABLE_ANSWER} ({last.why})" if last.malformed else last.why


def _write_log(path: str, text: str) -> None:
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(file, "wb") as log:
            log.write(text.encode("utf-8", "replace"))
    except OSError as error:
        raise wrap_os_error(error) from error


def _make_folder(path: str) -> None:
    try:
        os.makedirs(path, 0o700, exist_ok=True)
    except OSError as error:
        raise wrap_os_error(error) from error


def _remove_folder(path: str) -> None:
    """Remove the folder if it is empty: files that an agent left in it may be of interest."""
    try:
        os.rmdir(path)
    except OSError:
        pass


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
