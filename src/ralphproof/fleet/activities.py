"""What a worker does for workflows: says that it is free, takes steps, and speaks to the server for them."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from ralphproof.fleet.governing import GovernorFlow
from ralphproof.fleet.names import (
    ABSENT,
    CLAIM,
    GOVERNOR,
    LEFT,
    LOST,
    QUEUE,
    STEP,
    TELL,
    TOLD,
    UNREACHABLE,
    loop_id,
)
from ralphproof.fleet.running import RunningStep, StepDone, StepLost
from ralphproof.fleet.tempo import CLAIM_S, PROMISE_S, TELL_S, Tempo
from ralphproof.fleet.workplace import Workplace
from ralphproof.value import unpack

MOST_BYTES = 500_000  # of a result
KEPT = ("Judged", "RunEnded")
AWAY_S = 5.0  # a server that is silent for so long is told of


class Lease:
    """When the server was last reached. A worker that is alone too long must not let its agents work on."""

    def __init__(self) -> None:
        self.heard = time.monotonic()
        self._away = False

    async def keep(self, client: Client, every_s: float) -> None:
        """Ask the server again and again; never ends by itself."""
        from datetime import timedelta

        while True:
            try:
                await client.service_client.check_health(retry=False, timeout=timedelta(seconds=every_s))
                self.heard = time.monotonic()
                self._tell(away=False)
            except (RPCError, RuntimeError):
                self._tell(away=self.over(AWAY_S))
            await asyncio.sleep(every_s)

    def _tell(self, away: bool) -> None:
        """One line when it goes, and one when it is back."""
        if away != self._away:
            self._away = away
            said = "does not answer; what is at work goes on for the heartbeat" if away else "answers again"
            print(f"ralph: the server {said}", file=sys.stderr, flush=True)

    def over(self, after_s: float) -> bool:
        return time.monotonic() - self.heard > after_s


class Activities:
    """A worker's activities."""

    def __init__(self, client: Client, place: Workplace, lease: Lease) -> None:
        self._client, self._place, self._lease = client, place, lease
        self.leaving = asyncio.Event()

    @activity.defn(name=CLAIM)
    async def claim(self, loop: str) -> str:
        """This worker's name, when it has a slot free; where it gets none soon, another worker is asked."""
        deadline = time.monotonic() + CLAIM_S
        while not self._place.promise(loop, time.monotonic(), PROMISE_S):
            if time.monotonic() > deadline or self.leaving.is_set():
                raise ApplicationError("no slot is free", type="Busy")
            await asyncio.sleep(0.1)
        return self._place.name

    @activity.defn(name=STEP)
    async def step(self, given: dict[str, Any]) -> dict[str, Any]:
        """Take one step of a loop, or listen to it where it is at work already."""
        tempo: Tempo = unpack(given["tempo"])
        asked, number, me = given["asked"], given["number"], object()
        loop = asked["order"]["loop"]
        step = self._place.step(asked, number, me)
        if given["cancel"]:
            step.say("cancel")
        try:
            done = await self._through(step, given, tempo)
        except asyncio.CancelledError:
            done = await self._taken_away(step, loop, number, me, tempo)
        except StepLost as error:
            raise ApplicationError(str(error), type=LOST, non_retryable=True) from None
        self._place.over(loop, number)
        return {"report": slim(done.report), "microUsd": done.micro_usd, "tokens": done.tokens}

    async def _through(self, step: RunningStep, given: dict[str, Any], tempo: Tempo) -> StepDone:
        told_s, cancelled_s = time.monotonic(), time.monotonic() if given["cancel"] else 0.0
        told = given["asked"]["allot"] or 0  # what was set aside counts as spent already
        while not step.done.done():
            activity.heartbeat()
            await asyncio.wait([step.done], timeout=tempo.beat_s)
            if self._lease.over(tempo.heartbeat_s):
                await step.end(tempo.cancel_s, tempo.kill_s, "kill")
                raise ApplicationError("the server could not be reached", type=UNREACHABLE, non_retryable=True)
            if cancelled_s and time.monotonic() - cancelled_s > tempo.cancel_s:
                return await step.end(0, tempo.kill_s, "kill") or lost_when_cancelled(step)
            spent = (step.spent[0] if step.spent else None) or 0
            if spent > told and time.monotonic() - told_s > TELL_S:
                told, told_s = spent, time.monotonic()
                about = {"loop": given["asked"]["order"]["loop"], "number": given["number"], "microUsd": spent}
                await self._whisper({"what": "spending", **about})
        return step.done.result()

    async def _whisper(self, event: dict[str, Any]) -> None:
        """Tell the governor something that it can do without."""
        from datetime import timedelta

        try:
            handle = self._client.get_workflow_handle(GOVERNOR)
            await handle.signal(TOLD, event, rpc_timeout=timedelta(seconds=2))
        except RPCError:
            pass

    async def _taken_away(self, step: RunningStep, loop: str, number: int, me: object, tempo: Tempo) -> StepDone:
        """The activity is cancelled: by the loop's wish, by a server that gave it up, or because the worker leaves."""
        details = activity.cancellation_details()
        if details is not None and details.cancel_requested:
            beating = asyncio.create_task(_beating(tempo.beat_s))
            try:
                return await step.end(tempo.cancel_s, tempo.kill_s) or lost_when_cancelled(step)
            finally:
                beating.cancel()
        if self.leaving.is_set() or (details is not None and details.worker_shutdown):
            step.leave()
            raise ApplicationError("the worker leaves", type=LEFT, non_retryable=True)
        # The server no longer waits for this: it may ask again here, and then that one has the step.
        for _ in range(20):
            await asyncio.sleep(tempo.adopt_s / 40)
            if not self._place.listens(loop, number, me):
                raise ApplicationError("asked for anew", type=LEFT, non_retryable=True)
        await step.end(tempo.cancel_s, tempo.kill_s, "kill")
        self._place.over(loop, number)
        raise ApplicationError("given to another worker", type=LEFT, non_retryable=True)

    @activity.defn(name=ABSENT)
    async def absent(self, loops: list[str]) -> list[str]:
        """Those loops of which no workflow is at work."""
        gone = [loop for loop in loops if not await self._lives(loop_id(loop))]
        if gone and not await self._lives(GOVERNOR):  # who asks is at work: a server that has just begun knows nobody
            raise ApplicationError("the server does not know its workflows yet", type="NotYet")
        return gone

    async def _lives(self, workflow: str) -> bool:
        try:
            described = await self._client.get_workflow_handle(workflow).describe()
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return False
            raise
        return described.status == WorkflowExecutionStatus.RUNNING

    @activity.defn(name=TELL)
    async def tell_governor(self, event: dict[str, Any]) -> None:
        """Tell the governor something, and begin it where there is none."""
        await tell_or_begin(self._client, event)


async def tell_or_begin(client: Client, event: dict[str, Any]) -> None:
    """Signal the governor; where none is at work, begin one with this word."""
    given = {"tempo": event.get("tempo")}
    await client.start_workflow(
        GovernorFlow.run, given, id=GOVERNOR, task_queue=QUEUE, start_signal=TOLD, start_signal_args=[event]
    )


async def _beating(every_s: float) -> None:
    while True:
        activity.heartbeat()
        await asyncio.sleep(every_s)


def lost_when_cancelled(step: RunningStep) -> StepDone:
    """The result of a step that was killed without a word."""
    report = {"type": "failed", "message": "killed when it was cancelled", "exitCode": 130}
    return StepDone(report, *step.cost(report))


def slim(report: dict[str, Any]) -> dict[str, Any]:
    """A report that a history can hold: of too many records only those that say how it goes."""
    if report["type"] != "rest" or len(json.dumps(report)) <= MOST_BYTES:
        return report
    records = [one for one in report["records"] if one.get("is") in KEPT][-50:]
    return {**report, "records": records, "skipped": len(report["records"])}
