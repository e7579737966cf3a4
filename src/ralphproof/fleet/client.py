"""Client of a fleet on Temporal: submit, list, cancel, wait."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from ralphproof.base.errors import NotThere, Refused
from ralphproof.base.value import TYPE_CHECKING, unpack
from ralphproof.fleet.progress import LoopProgress, failed_end
from ralphproof.fleet.submission import FleetSubmission, submission_json
from ralphproof.fleet.workflows import (
    EVENT_SIGNAL,
    GOVERNOR_ID,
    LOOP_WORKFLOW,
    SUBMISSION_WORKFLOW,
    TASK_QUEUE,
    UNWANTED_SIGNAL,
    GovernorWorkflow,
    SubmissionWorkflow,
    loop_workflow_id,
    submission_workflow_id,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ralphproof.fleet.governor import Governor


async def signal_governor(client: Client, event: dict[str, Any]) -> None:
    """Signal the governor; start its workflow with this event if none is running."""
    argument = {"timing": event.get("timing")}
    await client.start_workflow(
        GovernorWorkflow.run,
        argument,
        id=GOVERNOR_ID,
        task_queue=TASK_QUEUE,
        start_signal=EVENT_SIGNAL,
        start_signal_args=[event],
    )


RUNNING = WorkflowExecutionStatus.RUNNING
UNAVAILABLE_CODES = (
    RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.RESOURCE_EXHAUSTED,
    RPCStatusCode.CANCELLED, RPCStatusCode.UNKNOWN, RPCStatusCode.NOT_FOUND,
)  # fmt: skip
RETRY_S, MAX_MISSING = 2.0, 5  # seconds between polls; polls for which a new submission may be unknown
UNKNOWN_LOOP = "there is no loop {!r} in this fleet; ralph fleet status names them"

MAX_CALL_BYTES = 1 << 20  # in one call; the server accepts twice that, and a history holds each spec twice


async def submit_loops(client: Client, submission: FleetSubmission) -> None:
    """Submit all loops of a submission. When this returns, the server has all of them or none."""
    message = submission_json(submission)
    if (size := len(json.dumps(message))) > MAX_CALL_BYTES:
        raise Refused(
            f"{len(submission.loops)} loops are {size >> 10} KiB in words, and a server takes {MAX_CALL_BYTES >> 10}; "
            "hand them in in several parts"
        )
    about = {name: message[name] for name in ("submission", "submitter", "allowance", "timing")}
    await signal_governor(client, {"what": "bounded", **about})
    loops = [{"loop": one["spec"]["loop"], **one["memo"]} for one in message["loops"]]
    memo = {"submission": submission.id, "each": loops}  # lists the loops before a worker starts them
    try:
        await client.start_workflow(
            SubmissionWorkflow.run, message, id=submission_workflow_id(submission.id), task_queue=TASK_QUEUE, memo=memo
        )
    except WorkflowAlreadyStartedError:
        raise Refused(f"submission {submission.id} exists already") from None


async def wait_for_submission(client: Client, submission: str) -> list[dict[str, Any]]:
    """Wait for a submission to end; returns how each of its loops ended."""
    handle, missing = client.get_workflow_handle_for(SubmissionWorkflow.run, submission_workflow_id(submission)), 0
    while True:
        try:
            ended: dict[str, Any] = await handle.result()
        except WorkflowFailureError as error:
            raise Refused(f"submission {submission} was ended from outside ({error.cause})") from None
        except RPCError as error:  # loops outlive their server, and so does whoever waits for them
            missing += error.status == RPCStatusCode.NOT_FOUND  # a server that has just started may not know it yet
            if error.status not in UNAVAILABLE_CODES or missing > MAX_MISSING:
                raise
            await asyncio.sleep(RETRY_S)
        else:
            loops: list[dict[str, Any]] = ended["loops"]
            return loops


async def list_loops(client: Client) -> list[dict[str, Any]]:
    """All loops that the server retains, newest first, including those that wait for others."""
    known = {shown["loop"]: shown async for shown in _listed_loops(client)}
    async for one in client.list_workflows(f"WorkflowType = '{SUBMISSION_WORKFLOW}'"):
        memo = await one.memo()
        if any(about["loop"] not in known for about in memo.get("each", ())):
            known = {shown["loop"]: shown for shown in await _waiting_loops(client, memo, one.status)} | known
    return sorted(known.values(), key=lambda shown: str(shown["submission"]), reverse=True)


async def _listed_loops(client: Client) -> AsyncIterator[dict[str, Any]]:
    async for one in client.list_workflows(f"WorkflowType = '{LOOP_WORKFLOW}'"):
        if one.status != WorkflowExecutionStatus.CONTINUED_AS_NEW:
            yield _loop_json(one.id, one.status, await one.memo())


async def _waiting_loops(client: Client, memo: Any, status: WorkflowExecutionStatus | None) -> list[dict[str, Any]]:
    """The loops of a submission that have no workflow: waiting, or ended with the submission."""
    ends: dict[str, dict[str, Any]] = {}
    if status == WorkflowExecutionStatus.COMPLETED:
        ends = {one["loop"]: one for one in await wait_for_submission(client, memo["submission"])}
    elif status != RUNNING:
        gone = LoopProgress().with_end(
            failed_end(f"not begun: its submission is {status.name.lower() if status else 'gone'}")
        )
        ends = {about["loop"]: gone.published for about in memo.get("each", ())}
    return [
        {
            "running": status == RUNNING,
            "submission": memo["submission"],
            **about,
            "trouble": "",
            **LoopProgress().published,
        }
        | ends.get(about["loop"], {})
        for about in memo.get("each", ())
    ]


async def find_loop(client: Client, name: str) -> dict[str, Any]:
    """One loop by its id."""
    try:
        workflow = await client.get_workflow_handle(loop_workflow_id(name)).describe()
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
        return await _find_waiting_loop(client, name)
    return _loop_json(workflow.id, workflow.status, await workflow.memo())


async def _find_waiting_loop(client: Client, name: str) -> dict[str, Any]:
    """A loop that has no workflow yet, found through its submission."""
    try:
        workflow = await client.get_workflow_handle(submission_workflow_id(name.rpartition("-")[0])).describe()
    except RPCError as error:
        raise _unknown_loop_error(error, name) from None
    for loop in await _waiting_loops(client, await workflow.memo(), workflow.status):
        if loop["loop"] == name:
            return loop
    raise NotThere(UNKNOWN_LOOP.format(name))


def _loop_json(id: str, status: WorkflowExecutionStatus | None, memo: Any) -> dict[str, Any]:
    progress = dict(memo.get("progress") or LoopProgress().published)
    if status != RUNNING and not progress["status"]:
        progress = (
            LoopProgress()
            .with_end(failed_end(f"the loop's workflow is {status.name.lower() if status else 'gone'}"))
            .published
        )
    about = {name: memo.get(name, "") for name in ("title", "submitter", "submission", "artifacts")}
    return {"loop": id.removeprefix("ralph-"), "running": status == RUNNING, **about, "trouble": "", **progress}


async def cancel_loop(client: Client, name: str) -> None:
    """Request cancellation of a loop; it is cancelled once its status says so. An ended loop is left as it is."""
    if not (await find_loop(client, name))["running"]:
        return
    try:
        await client.get_workflow_handle(loop_workflow_id(name)).cancel()
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
        await _cancel_waiting_loop(client, name)


async def _cancel_waiting_loop(client: Client, name: str) -> None:
    """Prevent a waiting loop from starting. If its submission has ended, the loop has ended too."""
    try:
        await client.get_workflow_handle(submission_workflow_id(name.rpartition("-")[0])).signal(UNWANTED_SIGNAL, name)
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise


async def cancel_all(client: Client) -> list[str]:
    """Cancel all submissions and loops. Returns the affected loops, including those that have not started."""
    cancelled = [one["loop"] for one in await list_loops(client) if one["running"]]
    async for one in client.list_workflows(
        f"WorkflowType IN ('{SUBMISSION_WORKFLOW}', '{LOOP_WORKFLOW}') AND ExecutionStatus='Running'"
    ):
        try:
            await client.get_workflow_handle(one.id).cancel()
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
    return cancelled


async def query_governor(client: Client) -> Governor | None:
    """The governor's state; None if no governor is running."""
    handle = client.get_workflow_handle_for(GovernorWorkflow.run, GOVERNOR_ID)
    try:
        state: dict[str, Any] = await handle.query(GovernorWorkflow.state)
    except RPCError:
        return None
    governor: Governor = unpack(state["governor"])
    return governor


def _unknown_loop_error(error: RPCError, name: str) -> Exception:
    if error.status == RPCStatusCode.NOT_FOUND:
        return NotThere(UNKNOWN_LOOP.format(name))
    return error
