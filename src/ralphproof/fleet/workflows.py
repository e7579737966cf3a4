"""Temporal workflows of a loop, a submission and the governor."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, FailureError, TimeoutType, is_cancelled_exception
from temporalio.exceptions import TimeoutError as TimedOut
from temporalio.workflow import ActivityCancellationType

from ralphproof.base.value import pack, replace, unpack
from ralphproof.engine.limits import Spend
from ralphproof.fleet.governor import Governor, PermitAnswer, TurnGranted, apply_event
from ralphproof.fleet.messages import (
    FAILED_RETRY_MAX_S,
    RETRY_MAX_S,
    RETRY_S,
    FleetTiming,
    LoopProgress,
    cancelled_end,
    cost_between,
    failed_end,
    lost_retry_s,
    out_of_money_end,
    permit_retry_s,
    result_branch,
)

# Names of workflows, task queues and signals, shared by workflows, workers and clients.


TASK_QUEUE = "ralph"
GOVERNOR_ID = "ralph-governor"
LOOP_WORKFLOW, SUBMISSION_WORKFLOW, GOVERNOR_WORKFLOW = "RalphLoop", "RalphSubmission", "RalphGovernor"
CLAIM_ACTIVITY, STEP_ACTIVITY, ABSENT_ACTIVITY, TELL_GOVERNOR_ACTIVITY = "claim", "step", "absent", "tell_governor"
ANSWER_SIGNAL, EVENT_SIGNAL, UNWANTED_SIGNAL = "answer", "event", "unwanted"
# Failure types of a step without a result
STEP_LOST, WORKER_LEFT, SERVER_UNREACHABLE = "StepLost", "WorkerLeft", "Unreachable"


def loop_workflow_id(loop: str) -> str:
    """Id of the workflow that drives a loop."""
    return f"ralph-{loop}"


def submission_workflow_id(submission: str) -> str:
    """Id of the workflow that starts the loops of a submission."""
    return f"ralph-submission-{submission}"


def worker_queue(worker: str) -> str:
    """Task queue of a single worker."""
    return f"ralph@{worker}"


# A loop as a durable workflow: one activity per step, timers for waits, a permit for each turn, takeover of lost steps.
#
# The workflow decides only by the progress that steps report. The work and its records are in git.


STEP_TIMEOUT = timedelta(days=30)
NO_RETRY = RetryPolicy(maximum_attempts=1)
RETRY_POLICY = RetryPolicy(initial_interval=timedelta(seconds=RETRY_S), maximum_interval=timedelta(seconds=RETRY_MAX_S))


async def tell_governor(event: dict[str, Any]) -> None:
    """Send the governor an event; if it is not running, start it with this event."""
    try:
        await workflow.get_external_workflow_handle(GOVERNOR_ID).signal(EVENT_SIGNAL, event)
    except FailureError as error:
        if is_cancelled_exception(error):
            raise
        await workflow.execute_activity(
            TELL_GOVERNOR_ACTIVITY,
            event,
            task_queue=TASK_QUEUE,
            start_to_close_timeout=timedelta(seconds=30),
            retry_policy=RETRY_POLICY,
        )


async def run_shielded(work: Any) -> Any:
    """Run to completion even if the workflow is cancelled meanwhile; the caller checks for cancellation afterwards."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        return await task


@workflow.defn(name=LOOP_WORKFLOW)
class LoopWorkflow:
    """Drives one loop to its end."""

    def __init__(self) -> None:
        self._answers: dict[int, dict[str, Any]] = {}
        self._progress = LoopProgress()
        self._steps = 0
        self._requested_number = 0  # number of the requested or granted permit
        self._step_lost = False
        self._trouble = ""  # the last error, cleared by a successful step

    @workflow.signal(name=ANSWER_SIGNAL)
    def answer(self, answer: dict[str, Any]) -> None:
        """The governor's answer to a request for a turn."""
        self._answers[int(answer["number"])] = answer

    @workflow.run
    async def run(self, message: dict[str, Any]) -> dict[str, Any]:
        self._message, self._spec = message, message["spec"]
        self._timing: FleetTiming = unpack(message["timing"])
        if message.get("progress"):
            self._progress = unpack(message["progress"])
        while self._progress.end is None:
            await self._advance()
            self._update_memo()
            # A cancellation is not carried over to the next history.
            if self._progress.end is None and self._history_is_long() and not self._cancel_requested():
                workflow.continue_as_new({**message, "progress": pack(self._progress)})
        await run_shielded(self._tell("left"))
        return {"loop": self._spec["loop"], **self._progress.published}

    def _history_is_long(self) -> bool:
        return self._steps >= self._timing.steps or workflow.info().is_continue_as_new_suggested()

    def _update_memo(self) -> None:
        """Store the progress in the memo, which can be read without a running worker."""
        workflow.upsert_memo({"progress": {**self._progress.published, "trouble": self._trouble}})

    async def _advance(self) -> None:
        """Take one step, or wait."""
        try:
            if self._cancel_requested():
                await self._cancel()
                return
            if (seconds := self._progress.wait_s(workflow.time())) > 0:
                await workflow.sleep(seconds)
            answer = await self._permit()
            if self._cancel_requested():
                return
            if answer["is"] == "TurnGranted":
                await self._take(answer.get("allot"))
            else:
                await self._end_without_money(answer)
        except (asyncio.CancelledError, FailureError) as error:
            if not is_cancelled_exception(error):
                raise

    def _cancel_requested(self) -> bool:
        return workflow.cancellation_reason() is not None

    async def _permit(self) -> dict[str, Any]:
        """Request permission for the next step. Repeated at intervals, because the governor may have been restarted."""
        number = self._requested_number = self._progress.number
        budget = self._progress.remaining_budget(self._message.get("budget"))
        attempts = 0
        while number not in self._answers:
            await self._tell("want", budget=budget)
            attempts += 1
            try:
                await workflow.wait_condition(lambda: number in self._answers, timeout=permit_retry_s(attempts))
            except TimeoutError:
                continue
        return self._answers[number]

    async def _tell(self, what: str, **more: Any) -> None:
        about = {"loop": self._spec["loop"], "number": self._requested_number, "submitter": self._spec["submitter"]}
        await tell_governor({"what": what, "submission": self._message["submission"], **about, **more})

    async def _take(self, allot: int | None) -> None:
        """Take a step and apply its result."""
        before = self._progress.spend
        done = await self._step(allot)
        self._apply(done)
        micro_usd, tokens = cost_between(before, self._progress.spend)
        await run_shielded(self._tell("settled", microUsd=micro_usd, tokens=tokens))
        self._requested_number, self._step_lost = 0, False

    def _apply(self, done: dict[str, Any]) -> None:
        """Apply a step's result. One that failed has no record of its cost: what its process reported counts."""
        report, self._steps = done["report"], self._steps + 1
        if report["type"] == "rest":
            self._progress = self._progress.after(report)
            return
        reported = Spend(done["microUsd"] or 0, done["tokens"], int(done["microUsd"] is None))
        spend, end = self._progress.spend.plus(reported), failed_end(report["message"], report.get("exitCode", 3))
        self._progress = replace(self._progress, spend=spend).with_end(end)

    async def _end_without_money(self, answer: dict[str, Any]) -> None:
        """End a loop that cannot be paid for. A run that has started takes a last step, so that its record ends
        likewise.
        """
        end = out_of_money_end(answer["reason"], answer["message"])
        if self._progress.head:
            self._apply(await self._step(0))
        self._progress = self._progress.with_end(end)

    async def _cancel(self) -> None:
        """End a loop between steps. A run that has started takes a last step, so that its record ends likewise."""
        if self._step_lost:  # a turn of it was lost sight of: what that cost, nobody knows
            await run_shielded(self._tell("settled", microUsd=None, tokens=0))
        elif self._requested_number:
            await run_shielded(self._tell("released"))
        if self._step_lost or self._progress.head:
            self._apply(await run_shielded(self._step(0)))
        if self._progress.end is None:
            self._progress = self._progress.with_end(cancelled_end())

    async def _step(self, allot: int | None) -> dict[str, Any]:
        """Run the step on the worker that has the loop, else on another one."""
        tries, failures = 0, 0
        while tries <= self._timing.tries:
            try:
                await self._claim()
                done: dict[str, Any] = await self._run_on_worker(allot)
            except ActivityError as error:
                if is_cancelled_exception(error):
                    raise
                tries, self._step_lost = tries + 1, True
                self._trouble = self._handle_lost_step(error)
                self._update_memo()
                await workflow.sleep(lost_retry_s(tries))
                continue
            match done["report"]["type"]:
                case "fenced":
                    self._step_lost = True
                    tries, self._trouble = tries + 1, "another worker has the loop"
                    self._progress = replace(self._progress, epoch=self._progress.epoch + 1)
                case "failed" if done["report"].get("exitCode") not in (2, 130) and failures < self._timing.tries:
                    # The remote is unreachable, or this machine is broken.
                    failures, self._step_lost = failures + 1, True
                    self._trouble = str(done["report"].get("message"))[:500]
                    self._progress = self._progress.without_worker()
                    self._update_memo()
                    await workflow.sleep(min(2.0**failures, FAILED_RETRY_MAX_S))
                case _:
                    self._trouble = ""
                    return done
        report = {"type": "failed", "message": f"the step was lost {tries} times: {self._trouble}", "exitCode": 3}
        return {"report": report, "microUsd": None, "tokens": 0}

    async def _claim(self) -> None:
        """Find a worker; waits until there is one."""
        if self._progress.worker:
            return
        worker = await workflow.execute_activity(
            CLAIM_ACTIVITY, self._spec["loop"], task_queue=TASK_QUEUE, result_type=str,
            start_to_close_timeout=timedelta(seconds=10), retry_policy=RETRY_POLICY,
        )  # fmt: skip
        self._progress = replace(self._progress, worker=worker)
        self._update_memo()

    async def _run_on_worker(self, allot: int | None) -> Any:
        timing, progress = self._timing, self._progress
        request = {
            "spec": self._spec, "epoch": progress.epoch, "allot": allot, "spent": progress.spend.micro_usd,
        }  # fmt: skip
        about = {"number": progress.number, "cancel": self._cancel_requested(), "timing": pack(timing)}
        return await workflow.execute_activity(
            STEP_ACTIVITY, {"request": request, "submission": self._message["submission"], **about},
            task_queue=worker_queue(progress.worker),
            schedule_to_start_timeout=timedelta(seconds=timing.heartbeat_s),
            start_to_close_timeout=STEP_TIMEOUT,
            heartbeat_timeout=timedelta(seconds=timing.heartbeat_s),
            retry_policy=NO_RETRY,
            cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=f"step {progress.number}",
        )  # fmt: skip

    def _handle_lost_step(self, error: ActivityError) -> str:
        """Handle a step without a result; a worker that no longer accepts steps loses the loop."""
        cause = error.cause
        if isinstance(cause, TimedOut):
            gone, trouble = cause.type == TimeoutType.SCHEDULE_TO_START, f"worker {error.identity or ''} is silent"
        else:
            gone = isinstance(cause, ApplicationError) and cause.type == SERVER_UNREACHABLE
            trouble = str(cause or error)[:500]
        if gone:
            self._progress = self._progress.without_worker()
        return trouble


# The governor, one workflow for the namespace; and a submission, the parent of its loops.


MAX_CONCURRENT_CALLS = 500  # the server accepts at most a few thousand pending signals or children of one workflow


@workflow.defn(name=GOVERNOR_WORKFLOW)
class GovernorWorkflow:
    """Grants turns until it is terminated; its state is carried over from history to history."""

    def __init__(self) -> None:
        self._inbox: list[dict[str, Any]] = []
        self._governor = Governor()
        self._timing = FleetTiming()
        self._seen = 0
        self._swept = 0.0
        self._sweeping = False
        self._gone: list[str] = []

    @workflow.signal(name=EVENT_SIGNAL)
    def event(self, event: dict[str, Any]) -> None:
        """An event from a loop, a worker or a submission."""
        self._inbox.append(event)

    @workflow.query
    def state(self) -> dict[str, Any]:
        """The governor's state, for queries."""
        return {"governor": pack(self._governor)}

    @workflow.run
    async def run(self, state: dict[str, Any]) -> None:
        if state.get("governor"):
            self._governor = unpack(state["governor"])
        self._inbox = [*state.get("inbox", ()), *self._inbox]
        self._gone = list(state.get("gone", ()))
        self._timing = unpack(state["timing"]) if state.get("timing") else FleetTiming()
        self._swept = workflow.time()
        while True:
            await self._wait_for_work()
            again = self._apply_inbox()
            gone, self._gone = self._gone, []
            for loop in gone:  # after all events that they sent before
                self._governor = self._governor.remove_loop(loop, workflow.time())
            self._governor, answers = self._governor.grant_turns(workflow.time())
            self._gone += await self._send_answers([*again, *answers])
            self._sweep()
            long = self._seen >= self._timing.events or workflow.info().is_continue_as_new_suggested()
            if long and not self._sweeping:
                known = {"governor": pack(self._governor), "timing": pack(self._timing)}
                workflow.continue_as_new({**known, "inbox": self._inbox, "gone": self._gone})

    async def _wait_for_work(self) -> None:
        """Wait for an event, or the next sweep."""
        sweeping = self._sweeping
        due = bool(self._governor.requests or self._governor.permits) and not sweeping
        try:
            await workflow.wait_condition(
                lambda: bool(self._inbox or self._gone) or self._sweeping != sweeping,
                timeout=max(0.0, self._swept + self._timing.sweep_s - workflow.time()) if due else None,
            )
        except TimeoutError:
            pass

    def _apply_inbox(self) -> list[PermitAnswer]:
        """Apply the received events. A request for a turn that is already granted is answered again."""
        again: list[PermitAnswer] = []
        inbox, self._inbox = self._inbox, []
        for event in inbox:
            self._seen += 1
            self._apply(event)
            permit = self._governor.permits.get(event.get("loop", ""))
            if event["what"] == "want" and permit is not None and permit.request.number == event["number"]:
                again.append(TurnGranted(event["loop"], event["number"], permit.reserved))
        return again

    def _apply(self, event: dict[str, Any]) -> None:
        self._governor = apply_event(self._governor, event, workflow.time())
        if event["what"] == "bounded":
            self._timing = unpack(event["timing"])

    async def _send_answers(self, answers: list[PermitAnswer]) -> list[str]:
        """Send all answers; returns the loops that no longer exist."""
        sent: list[str] = []
        for at in range(0, len(answers), MAX_CONCURRENT_CALLS):
            sent += await asyncio.gather(*(self._send(answer) for answer in answers[at : at + MAX_CONCURRENT_CALLS]))
        return [loop for loop in sent if loop]

    async def _send(self, answer: PermitAnswer) -> str:
        message = pack(answer)
        try:
            await workflow.get_external_workflow_handle(loop_workflow_id(answer.loop)).signal(ANSWER_SIGNAL, message)
        except FailureError as error:
            if is_cancelled_exception(error):
                raise
            return answer.loop
        return ""

    def _sweep(self) -> None:
        """At intervals, look in the background for loops that have or want a permit and no longer exist."""
        known = [*self._governor.permits, *self._governor.requests]
        if self._sweeping or not known or workflow.time() - self._swept < self._timing.sweep_s:
            return
        self._swept, self._sweeping = workflow.time(), True
        self._task = asyncio.ensure_future(self._absent(known))

    async def _absent(self, known: list[str]) -> None:
        try:
            self._gone += await workflow.execute_activity(
                ABSENT_ACTIVITY, known, task_queue=TASK_QUEUE, result_type=list[str], retry_policy=RETRY_POLICY,
                start_to_close_timeout=timedelta(seconds=20), schedule_to_close_timeout=timedelta(minutes=2),
            )  # fmt: skip
        except FailureError as error:
            if is_cancelled_exception(error):
                raise
        finally:
            self._sweeping = False


@workflow.defn(name=SUBMISSION_WORKFLOW)
class SubmissionWorkflow:
    """Starts the loops of a submission, each when the loops it comes after have completed."""

    def __init__(self) -> None:
        self._ends: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._places = asyncio.Semaphore(MAX_CONCURRENT_CALLS)
        self._unwanted: set[str] = set()

    @workflow.signal(name=UNWANTED_SIGNAL)
    def unwanted(self, loop: str) -> None:
        """Do not start this loop; cancel it if it is running."""
        self._unwanted.add(loop)
        if loop in self._ends:
            self._ends[loop].cancel()

    @workflow.run
    async def run(self, message: dict[str, Any]) -> dict[str, Any]:
        self._message = message
        about = {name: message[name] for name in ("submission", "submitter", "allowance", "timing")}
        await run_shielded(tell_governor({"what": "bounded", **about}))
        for loop in message["loops"]:
            self._ends[loop["spec"]["loop"]] = asyncio.ensure_future(self._run_loop(loop))
        try:
            await asyncio.gather(*self._ends.values(), return_exceptions=True)
        except asyncio.CancelledError:
            pass  # the cancellation reached all loops, and they have ended
        await run_shielded(tell_governor({"what": "closed", "submission": message["submission"]}))
        return {"submission": message["submission"], "loops": [_loop_end_report(*one) for one in self._ends.items()]}

    async def _run_loop(self, loop: dict[str, Any]) -> dict[str, Any]:
        spec = loop["spec"]
        if workflow.cancellation_reason() is not None or spec["loop"] in self._unwanted:
            return _not_begun_report(spec["loop"])
        try:
            before = [await asyncio.shield(self._ends[name]) for name in loop["after"]]
        except asyncio.CancelledError:
            return _not_begun_report(spec["loop"])
        if wrong := [one["loop"] for one in before if one["status"] != "COMPLETED"]:
            end = failed_end(f"not begun: {', '.join(wrong)} did not complete", 1)
            return {"loop": spec["loop"], **LoopProgress().with_end(end).published}
        if before:  # so it begins on what those did: on their target, or where the last one ended
            spec = {**spec, "base": spec["target"] or result_branch(before[-1]["loop"])}
        message = {
            "spec": spec,
            **{name: self._message[name] for name in ("submission", "timing")},
            "budget": loop["budget"],
        }
        try:
            async with self._places:
                return await self._start_child(message, {**loop["memo"], "submission": self._message["submission"]})
        except (FailureError, asyncio.CancelledError) as error:
            end = cancelled_end() if is_cancelled_exception(error) else failed_end(str(error.__cause__ or error))
            return {"loop": spec["loop"], **LoopProgress().with_end(end).published}

    async def _start_child(self, message: dict[str, Any], memo: dict[str, Any]) -> dict[str, Any]:
        """Run a loop as a child workflow; returns how it ended."""
        ended: dict[str, Any] = await workflow.execute_child_workflow(
            LOOP_WORKFLOW, message, id=loop_workflow_id(message["spec"]["loop"]), result_type=dict[str, Any], memo=memo,
            cancellation_type=workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
            parent_close_policy=workflow.ParentClosePolicy.ABANDON,
        )  # fmt: skip
        return ended


def _loop_end_report(loop: str, end: asyncio.Future[dict[str, Any]]) -> dict[str, Any]:
    """How a loop ended, including one cancelled before its workflow did anything."""
    return _not_begun_report(loop) if end.cancelled() else end.result()


def _not_begun_report(loop: str) -> dict[str, Any]:
    return {"loop": loop, **LoopProgress().with_end(cancelled_end()).published}
