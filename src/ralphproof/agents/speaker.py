"""An agent whose program speaks a dialect that we know: started anew for every turn, its lines read as events."""

from __future__ import annotations

import os
import time

from ralphproof.agent import Brief, Turn, TurnWatch
from ralphproof.agents.complaint import LIMIT, LOGIN, OUTAGE, Complaint, asks_for_login, complaint_in, failed
from ralphproof.agents.dialect import COMPUTED, REPORTED, Call, Dialect, Hearing, one_line
from ralphproof.agents.ear import Ear
from ralphproof.event import Ended, Limited, Spent, Usage
from ralphproof.sandbox import Command, Exit, Lodging, Sandbox
from ralphproof.value import TYPE_CHECKING, replace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

STDERR_BYTES = 16 * 1024  # of its end, looked at when a turn went wrong
OVERHEARD_BYTES = 1 << 20  # of its end, where a program says there what its stream does not
NOTHING_SPENT = Spent(0, Usage())


class Speaker:
    """A program, the user's flags for it, and its dialect. `cost` prices tokens; `guarded` keeps its own guard on."""

    def __init__(
        self, dialect: Dialect, program: str, flags: tuple[str, ...] = (), *, model: str | None = None,
        guarded: bool = True, cost: Callable[[str | None, Usage], int | None] = lambda *_: None,
        now: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self.name = dialect.name
        self._dialect, self._program, self._flags, self._model = dialect, program, flags, model
        self._guarded, self._cost, self._now = guarded, cost, now

    @property
    def lodging(self) -> Lodging:
        """What it needs of the machine, as far as its dialect tells."""
        lodging: Lodging = getattr(self._dialect, "lodging", Lodging())
        return lodging

    @property
    def reports_cost(self) -> bool:
        """Whether a limit on cost can be held: it says what it costs, or its tokens have a price."""
        if self._dialect.cost == COMPUTED:
            return self._cost(self._dialect.model(self._flags, self._model), Usage(1, 1)) is not None
        return self._dialect.cost == REPORTED

    def argv(self, brief: Brief) -> tuple[str, ...]:
        return (self._program, *self._dialect.arguments(self._call(brief)))

    def attended(self, brief: Brief, again: bool) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]] | None:
        """Arguments and environment of a session with somebody at a terminal, who sees the prompt as its first message.

        One that is held `again` goes on with the brief's session where the program can. None: nobody knows how.
        """
        if not hasattr(self._dialect, "interactive"):
            return None
        call = self._call(brief)
        env = {**self._dialect.updates_off, **dict(brief.env), **self._dialect.environment(call)}
        return (self._program, *self._dialect.interactive(call, again)), tuple(env.items())

    def take_turn(self, brief: Brief, sandbox: Sandbox, watch: TurnWatch) -> Turn:
        """Run the program to its end. It succeeded only if it says so itself and everything else agrees."""
        call, ear = self._call(brief), Ear(watch)
        if problem := self._lay_out(call):
            return Turn(Exit(None, why="unstartable", error=problem))
        billed = (call.brief.session and brief.billed) or NOTHING_SPENT
        model = self._dialect.model(self._flags, self._model)
        hearing = Hearing(ear.tell, self._cost, self._now, billed, model, ear.pause)
        reader = self._dialect.reader(hearing)
        ear.listen(reader.hear, lambda line: self._ask_nobody(ear, line))
        env = {**self._dialect.updates_off, **dict(brief.env), **self._dialect.environment(call)}
        command = Command(
            self.argv(brief), brief.cwd, tuple(env.items()), out=brief.base + ".ndjson",
            err=brief.base + ".stderr.log", stdin=brief.prompt_file, turn_file=brief.turn_file, mark=brief.mark,
            timeout_s=brief.timeout_s, idle_s=brief.idle_s, taken_up=brief.taken_up, agent=self.name,
            reads=(self._program, *(brief.base + ending for ending in self._beside(call))),
        )  # fmt: skip
        end = sandbox.run(command, ear)
        ear.finish()
        reader.close(end)
        self._overhear(ear, brief.base + ".stderr.log")
        ear.hand_on()
        self._explain(ear, end, brief.base + ".stderr.log")
        ear.hand_on()
        return ear.fold.turn(end)

    def _call(self, brief: Brief) -> Call:
        kept = brief if self._dialect.resumes else replace(brief, session=None)
        return Call(kept, self._flags, self._model, self._guarded)

    def _beside(self, call: Call) -> Mapping[str, str]:
        beside: Callable[[Call], Mapping[str, str]] = getattr(self._dialect, "beside", lambda _: {})
        return beside(call)

    def _lay_out(self, call: Call) -> str:
        """Write what the program reads beside its prompt, by the ending of each file; why that failed, if it did."""
        for ending, text in self._beside(call).items():
            try:
                with open(call.brief.base + ending, "w", encoding="utf-8", opener=_for_the_owner) as file:
                    file.write(text)
            except OSError as error:
                return f"{call.brief.base}{ending} cannot be written: {error.strerror}"
        return ""

    def _ask_nobody(self, ear: Ear, line: bytes) -> None:
        """A question for a login, which nobody will answer, ends the turn."""
        if asks_for_login(line):
            ear.tell(failed(self._dialect, Complaint(LOGIN, "it asks somebody to log in")))

    def _overhear(self, ear: Ear, stderr: str) -> None:
        """Tell what the program said beside its stream."""
        if hasattr(self._dialect, "overheard"):
            for event in self._dialect.overheard(_end_of(stderr, OVERHEARD_BYTES)):
                ear.tell(event)

    def _explain(self, ear: Ear, end: Exit, stderr: str) -> None:
        """Say why a turn went wrong where its structure did not: by its final message, else by the end of stderr."""
        last, complained = ear.ended, _end_of(stderr)
        if end.why in ("idle", "timeout") and last is None and asks_for_login(complained.encode()):
            ear.tell(failed(self._dialect, Complaint(LOGIN, "it asks somebody to log in")))
        if end.why not in ("exit", "lingered") or (last is not None and (last.blame or (last.ok and end.clean))):
            return
        said = (last.error or "") if last else ear.unread  # without a result, what it printed last is its message
        found = complaint_in(said, self._now()) or complaint_in(complained, self._now())
        if found is not None:
            if found.kind == LIMIT or (found.kind == OUTAGE and found.resets_at is not None):
                ear.tell(Limited(found.message, found.resets_at))
            ear.tell(failed(self._dialect, found, last.text if last else None))
        elif last is None and not (ear.silent and end.clean):  # that is an empty reply, which is asked for again
            ear.tell(Ended(False, None, self._unexplained(ear.fold.turn(end), complained or ear.unread)))

    def _unexplained(self, turn: Turn, complained: str) -> str:
        """What is known of a turn that ended without its result."""
        end = turn.exit
        how = f"by signal {end.signal}" if end.signal else f"with exit code {end.code or 0}"
        understood = not turn.unparsed or turn != Turn(end, unparsed=turn.unparsed)
        foreign = "" if understood else f"; what it printed is not what {self.name} prints"
        last = next((line for line in reversed(complained.splitlines()) if line.strip()), "")
        return f"the agent ended {how} and without its result{foreign}" + (f": {one_line(last)}" if last else "")


def _for_the_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _end_of(path: str, most_bytes: int = STDERR_BYTES) -> str:
    """The end of a log; empty where there is none."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - most_bytes))
            return file.read(most_bytes).decode("utf-8", "replace")
    except OSError:
        return ""
