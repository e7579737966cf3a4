"""A loop as a durable workflow: one activity a step, timers for waits, a permit for each turn, takeover of the lost.

Only the fold of what steps report decides here. What steps do lies in git; payloads are light records and digests.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, FailureError, is_cancelled_exception
from temporalio.exceptions import TimeoutError as TimedOut
from temporalio.workflow import ActivityCancellationType

from ralphproof.budget import Spend
from ralphproof.fleet.names import ANSWER, CLAIM, GOVERNOR, LOOP, QUEUE, STEP, TELL, TOLD, UNREACHABLE, queue_of
from ralphproof.fleet.progress import LoopProgress, broken, cancelled, contradiction, cost_between, out_of_money
from ralphproof.fleet.tempo import RETRY_MOST_S, RETRY_S, Tempo, ask_again_s, lost_s
from ralphproof.state import State
from ralphproof.value import pack, replace, unpack

STEP_AT_MOST = timedelta(days=30)
ONCE = RetryPolicy(maximum_attempts=1)
OFTEN = RetryPolicy(initial_interval=timedelta(seconds=RETRY_S), maximum_interval=timedelta(seconds=RETRY_MOST_S))


async def tell_governor(event: dict[str, Any]) -> None:
    """Send the governor a word; where there is none any more, begin one with it."""
    try:
        await workflow.get_external_workflow_handle(GOVERNOR).signal(TOLD, event)
    except FailureError as error:
        if is_cancelled_exception(error):
            raise
        await workflow.execute_activity(
            TELL, event, task_queue=QUEUE, start_to_close_timeout=timedelta(seconds=30), retry_policy=OFTEN
        )


async def surely(work: Any) -> Any:
    """Carry it out to its end, cancelled or not; whoever calls asks afterwards whether it was."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        return await task


@workflow.defn(name=LOOP)
class LoopFlow:
    """Drives one loop to its end."""

    def __init__(self) -> None:
        self._answers: dict[int, dict[str, Any]] = {}
        self._progress = LoopProgress()
        self._state: State | None = State()
        self._doing = "waits for a permit"
        self._steps = 0
        self._asked = 0  # the number of the permit that is asked for or held
        self._dark = False
        self._trouble = ""  # the last one, until a step ends well

    @workflow.signal(name=ANSWER)
    def answer(self, said: dict[str, Any]) -> None:
        """The governor's."""
        self._answers[int(said["number"])] = said

    @workflow.query
    def standing(self) -> dict[str, Any]:
        """Where the loop stands, for whoever asks."""
        return {**self._progress.shown, "doing": self._doing, "trouble": self._trouble}

    @workflow.run
    async def run(self, given: dict[str, Any]) -> dict[str, Any]:
        self._given, self._order = given, given["order"]
        self._tempo: Tempo = unpack(given["tempo"])
        if given.get("progress"):
            self._progress = unpack(given["progress"])
        while self._progress.end is None:
            await self._onward()
            self._remember()
            if self._progress.end is None and self._long() and not self._wished_away():  # no wish is carried over
                carried = replace(self._progress, known=0)  # the records are folded anew
                workflow.continue_as_new({**given, "progress": pack(carried)})
        await surely(self._tell("left"))
        return {"loop": self._order["loop"], **self._progress.shown}

    def _long(self) -> bool:
        return self._steps >= self._tempo.steps or workflow.info().is_continue_as_new_suggested()

    def _remember(self) -> None:
        """For those who look on without a worker being there."""
        workflow.upsert_memo({"progress": {**self._progress.shown, "trouble": self._trouble}})

    async def _onward(self) -> None:
        """One step, or its wait."""
        try:
            if self._wished_away():
                await self._cancelled()
                return
            if (seconds := self._progress.waits(workflow.time())) > 0:
                self._doing = f"{self._progress.next}: waits"
                await workflow.sleep(seconds)
            answer = await self._permit()
            if self._wished_away():
                return
            if answer["is"] == "Granted":
                await self._take(answer.get("allot"))
            else:
                await self._spent_all(answer)
        except (asyncio.CancelledError, FailureError) as error:
            if not is_cancelled_exception(error):
                raise

    def _wished_away(self) -> bool:
        return workflow.cancellation_reason() is not None

    async def _permit(self) -> dict[str, Any]:
        """Leave to take the next step. It is asked for again now and then: a governor may have been begun anew."""
        self._doing = "waits for a permit"
        number = self._asked = self._progress.number
        wish = self._progress.left(self._given.get("wish"))
        asked = 0
        while number not in self._answers:
            await self._tell("want", agent=self._order["agent"], wish=wish)
            asked += 1
            try:
                await workflow.wait_condition(lambda: number in self._answers, timeout=ask_again_s(asked))
            except TimeoutError:
                continue
        return self._answers[number]

    async def _tell(self, what: str, **more: Any) -> None:
        about = {"loop": self._order["loop"], "number": self._asked, "submitter": self._order["submitter"]}
        await tell_governor({"what": what, "submission": self._given["submission"], **about, **more})

    async def _take(self, allot: int | None) -> None:
        """A step, and what follows from it."""
        before = self._progress.spend
        done = await self._step(allot)
        self._fold(done)
        micro_usd, tokens = cost_between(before, self._progress.spend)
        await surely(self._tell("settled", microUsd=micro_usd, tokens=tokens))
        self._asked, self._dark = 0, False

    def _fold(self, done: dict[str, Any]) -> None:
        """What follows from a step. Its records say what it cost; what it said meanwhile counts where they are cut."""
        report, told = done["report"], Spend(done["microUsd"] or 0, done["tokens"], int(done["microUsd"] is None))
        self._steps += 1
        if report["type"] != "rest":
            self._progress = replace(self._progress, spend=self._progress.spend.beside(told))
            self._progress = self._progress.ended(broken(report["message"], report.get("exitCode", 3)))
            return
        self._state = None if report.get("skipped") else self._state
        for record in report["records"] if self._state is not None else ():
            self._state = self._state.after(unpack(record)) if self._state else None
        whole = unpack(report["spend"]) if report.get("spend") else self._progress.spend.beside(told)
        spend = self._state.spend if self._state is not None else whole
        self._progress = self._progress.after(report, spend)
        if self._state is not None and (wrong := contradiction(self._state, report["next"])):
            self._progress = self._progress.ended(broken(wrong))

    async def _spent_all(self, answer: dict[str, Any]) -> None:
        """There is no money. A run that has begun is told so, that its record ends as this does."""
        end = out_of_money(answer["reason"], answer["message"])
        if self._progress.known or self._progress.iterations:
            self._fold(await self._step(0))
        self._progress = self._progress.ended(end)

    async def _cancelled(self) -> None:
        """End a loop that is between steps. A run that has begun is told so."""
        self._doing = "is being cancelled"
        if self._dark:  # a turn of it was lost sight of: what that cost, nobody knows
            await surely(self._tell("settled", microUsd=None, tokens=0))
        elif self._asked:
            await surely(self._tell("released"))
        if self._dark or self._progress.known or self._progress.iterations:
            self._fold(await surely(self._step(0)))
        if self._progress.end is None:
            self._progress = self._progress.ended(cancelled())

    async def _step(self, allot: int | None) -> dict[str, Any]:
        """Have the step taken, by whom ever: first by who has the loop, then by somebody else."""
        tries, failures = 0, 0
        while tries <= self._tempo.tries:
            try:
                await self._claim()
                done: dict[str, Any] = await self._asked_of_worker(allot)
            except ActivityError as error:
                if is_cancelled_exception(error):
                    raise
                tries, self._dark = tries + 1, True
                self._trouble = self._lost(error)
                self._remember()
                await workflow.sleep(lost_s(tries))
                continue
            match done["report"]["type"]:
                case "fenced":
                    self._dark = True
                    tries, self._trouble = tries + 1, "another worker has the loop"
                    self._progress = replace(self._progress, epoch=self._progress.epoch + 1)
                case "failed" if done["report"].get("exitCode") not in (2, 130) and failures < self._tempo.tries:
                    failures, self._dark = failures + 1, True  # the remote is away for a while, or this machine broken
                    self._trouble = str(done["report"].get("message"))[:500]
                    self._progress = replace(self._progress, worker="", epoch=self._progress.epoch + 1)
                    self._remember()
                    await workflow.sleep(min(2.0**failures, 300.0))
                case _:
                    self._trouble = ""
                    return done
        report = {"type": "failed", "message": f"the step was lost {tries} times: {self._trouble}", "exitCode": 3}
        return {"report": report, "microUsd": None, "tokens": 0}

    async def _claim(self) -> None:
        """Have a worker; wait for one where there is none."""
        if self._progress.worker:
            return
        self._doing = "waits for a worker"
        worker = await workflow.execute_activity(
            CLAIM, self._order["loop"], task_queue=QUEUE, result_type=str,
            start_to_close_timeout=timedelta(seconds=10), retry_policy=OFTEN,
        )  # fmt: skip
        self._progress = replace(self._progress, worker=worker)
        self._remember()

    async def _asked_of_worker(self, allot: int | None) -> Any:
        tempo, progress = self._tempo, self._progress
        self._doing = f"a step on {progress.worker}"
        asked = {
            "order": self._order, "epoch": progress.epoch, "allot": allot, "finish": True, "known": progress.known,
            "spent": progress.spend.micro_usd,
        }  # fmt: skip
        about = {"number": progress.number, "cancel": self._wished_away(), "tempo": pack(tempo)}
        return await workflow.execute_activity(
            STEP, {"asked": asked, "submission": self._given["submission"], **about},
            task_queue=queue_of(progress.worker),
            schedule_to_start_timeout=timedelta(seconds=tempo.adopt_s),
            start_to_close_timeout=STEP_AT_MOST,
            heartbeat_timeout=timedelta(seconds=tempo.heartbeat_s),
            retry_policy=ONCE,
            cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=f"step {progress.number}",
        )  # fmt: skip

    def _lost(self, error: ActivityError) -> str:
        """What became of a step without a result; a worker that takes none any more has the loop no longer."""
        cause = error.cause
        if isinstance(cause, TimedOut):
            silent = cause.type is not None and cause.type.name == "SCHEDULE_TO_START"
            if silent:
                self._progress = replace(self._progress, worker="", epoch=self._progress.epoch + 1)
            return f"worker {error.identity or ''} is silent"
        kind = cause.type if isinstance(cause, ApplicationError) else ""
        if kind == UNREACHABLE:
            self._progress = replace(self._progress, worker="", epoch=self._progress.epoch + 1)
        return str(cause or error)[:500]
