"""The governor as one workflow for the whole namespace, and a submission as the parent of its loops."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import FailureError, is_cancelled_exception

from ralphproof.fleet.governor import Governor
from ralphproof.fleet.hearsay import folded
from ralphproof.fleet.names import (
    ABSENT,
    ANSWER,
    GOVERNING,
    LOOP,
    QUEUE,
    SUBMISSION,
    TOLD,
    UNWANTED,
    branch_of,
    loop_id,
)
from ralphproof.fleet.permit import Answer, Granted
from ralphproof.fleet.progress import LoopProgress, broken, cancelled
from ralphproof.fleet.tempo import Tempo
from ralphproof.fleet.workflows import OFTEN, surely, tell_governor
from ralphproof.value import pack, unpack

AT_ONCE = 500  # a server takes no more than some thousand signals or children of one workflow at a time


@workflow.defn(name=GOVERNING)
class GovernorFlow:
    """Hands out permits for turns until somebody ends it; what it knows is carried from history to history."""

    def __init__(self) -> None:
        self._inbox: list[dict[str, Any]] = []
        self._governor = Governor()
        self._tempo = Tempo()
        self._seen = 0
        self._swept = 0.0
        self._sweeping = False
        self._gone: list[str] = []

    @workflow.signal(name=TOLD)
    def told(self, event: dict[str, Any]) -> None:
        """What a loop, a worker or a submission has to say."""
        self._inbox.append(event)

    @workflow.query
    def books(self) -> dict[str, Any]:
        """Where all spending stands."""
        return {"governor": pack(self._governor)}

    @workflow.run
    async def run(self, given: dict[str, Any]) -> None:
        if given.get("governor"):
            self._governor = unpack(given["governor"])
        self._inbox = [*given.get("inbox", ()), *self._inbox]
        self._gone = list(given.get("gone", ()))
        self._tempo = unpack(given["tempo"]) if given.get("tempo") else Tempo()
        self._swept = workflow.time()
        while True:
            await self._woken()
            again = self._heard()
            gone, self._gone = self._gone, []
            for loop in gone:  # after all that they had said before they went
                self._governor = self._governor.left(loop, workflow.time())
            self._governor, answers = self._governor.answered(workflow.time())
            self._gone += await self._answered([*again, *answers])
            self._sweep()
            long = self._seen >= self._tempo.events or workflow.info().is_continue_as_new_suggested()
            if long and not self._sweeping:
                known = {"governor": pack(self._governor), "tempo": pack(self._tempo)}
                workflow.continue_as_new({**known, "inbox": self._inbox, "gone": self._gone})

    async def _woken(self) -> None:
        """Until something happens, a bound of time is over, or it is time to sweep."""
        now, sweeping = workflow.time(), self._sweeping
        busy = bool(self._governor.wants or self._governor.held)
        looks = [self._swept + self._tempo.sweep_s] if busy and not sweeping else []
        if (at := self._governor.again_at(now)) is not None:
            looks.append(at)
        try:
            await workflow.wait_condition(
                lambda: bool(self._inbox or self._gone) or self._sweeping != sweeping,
                timeout=max(0.0, min(looks) - now) if looks else None,
            )
        except TimeoutError:
            pass

    def _heard(self) -> list[Answer]:
        """Fold in what was told. Whoever asks for what they hold is answered again."""
        again: list[Answer] = []
        inbox, self._inbox = self._inbox, []
        for event in inbox:
            self._seen += 1
            self._fold(event)
            held = self._governor.held.get(event.get("loop", ""))
            if event["what"] == "want" and held is not None and held.want.number == event["number"]:
                again.append(Granted(event["loop"], event["number"], held.reserved))
        return again

    def _fold(self, event: dict[str, Any]) -> None:
        self._governor = folded(self._governor, event, workflow.time())
        if event["what"] == "bounded":
            self._tempo = unpack(event["tempo"])

    async def _answered(self, answers: list[Answer]) -> list[str]:
        """Send all answers; the loops that are gone."""
        sent: list[str] = []
        for at in range(0, len(answers), AT_ONCE):
            sent += await asyncio.gather(*(self._send(answer) for answer in answers[at : at + AT_ONCE]))
        return [loop for loop in sent if loop]

    async def _send(self, answer: Answer) -> str:
        said = pack(answer)
        try:
            await workflow.get_external_workflow_handle(loop_id(answer.loop)).signal(ANSWER, said)
        except FailureError as error:
            if is_cancelled_exception(error):
                raise
            return answer.loop
        return ""

    def _sweep(self) -> None:
        """Now and then, look for loops that have a permit, or want one, and are gone; nobody waits for that."""
        known = [*self._governor.held, *self._governor.wants]
        if self._sweeping or not known or workflow.time() - self._swept < self._tempo.sweep_s:
            return
        self._swept, self._sweeping = workflow.time(), True
        self._task = asyncio.ensure_future(self._absent(known))

    async def _absent(self, known: list[str]) -> None:
        try:
            self._gone += await workflow.execute_activity(
                ABSENT, known, task_queue=QUEUE, result_type=list[str], retry_policy=OFTEN,
                start_to_close_timeout=timedelta(seconds=20), schedule_to_close_timeout=timedelta(minutes=2),
            )  # fmt: skip
        except FailureError as error:
            if is_cancelled_exception(error):
                raise
        finally:
            self._sweeping = False


@workflow.defn(name=SUBMISSION)
class SubmissionFlow:
    """Starts the loops of a submission, each when those that it comes after have completed."""

    def __init__(self) -> None:
        self._ends: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._places = asyncio.Semaphore(AT_ONCE)
        self._unwanted: set[str] = set()

    @workflow.signal(name=UNWANTED)
    def unwanted(self, loop: str) -> None:
        """One loop is not to be begun; one that is at work is cancelled."""
        self._unwanted.add(loop)
        if loop in self._ends:
            self._ends[loop].cancel()

    @workflow.run
    async def run(self, given: dict[str, Any]) -> dict[str, Any]:
        self._given = given
        about = {name: given[name] for name in ("submission", "submitter", "allowance", "tempo")}
        await surely(tell_governor({"what": "bounded", **about}))
        for loop in given["loops"]:
            self._ends[loop["order"]["loop"]] = asyncio.ensure_future(self._one(loop))
        try:
            await asyncio.gather(*self._ends.values(), return_exceptions=True)
        except asyncio.CancelledError:
            pass  # it came to all of them, and they are over
        await surely(tell_governor({"what": "closed", "submission": given["submission"]}))
        return {"submission": given["submission"], "loops": [_told(*one) for one in self._ends.items()]}

    async def _one(self, loop: dict[str, Any]) -> dict[str, Any]:
        order = loop["order"]
        if workflow.cancellation_reason() is not None or order["loop"] in self._unwanted:
            return _not_begun(order["loop"])
        try:
            before = [await asyncio.shield(self._ends[name]) for name in loop["after"]]
        except asyncio.CancelledError:
            return _not_begun(order["loop"])
        if wrong := [one["loop"] for one in before if one["status"] != "COMPLETED"]:
            end = broken(f"not begun: {', '.join(wrong)} did not complete", 1)
            return {"loop": order["loop"], **LoopProgress().ended(end).shown}
        if before:  # so it begins on what those did: on their target, or where the last one ended
            order = {**order, "base": order["target"] or branch_of(before[-1]["loop"])}
        given = {"order": order, **{name: self._given[name] for name in ("submission", "tempo")}, "wish": loop["wish"]}
        try:
            async with self._places:
                return await self._child(given, {**loop["memo"], "submission": self._given["submission"]})
        except (FailureError, asyncio.CancelledError) as error:
            end = cancelled() if is_cancelled_exception(error) else broken(str(error.__cause__ or error))
            return {"loop": order["loop"], **LoopProgress().ended(end).shown}

    async def _child(self, given: dict[str, Any], memo: dict[str, Any]) -> dict[str, Any]:
        """How a loop ended that is begun here."""
        ended: dict[str, Any] = await workflow.execute_child_workflow(
            LOOP, given, id=loop_id(given["order"]["loop"]), result_type=dict[str, Any], memo=memo,
            cancellation_type=workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
            parent_close_policy=workflow.ParentClosePolicy.ABANDON,
        )  # fmt: skip
        return ended


def _told(loop: str, end: asyncio.Future[dict[str, Any]]) -> dict[str, Any]:
    """How a loop ended, which may have been cancelled before anything was done about it."""
    return _not_begun(loop) if end.cancelled() else end.result()


def _not_begun(loop: str) -> dict[str, Any]:
    return {"loop": loop, **LoopProgress().ended(cancelled()).shown}
