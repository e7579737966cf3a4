"""What people want of a fleet on Temporal: submit, look, cancel, wait."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from ralphproof.errors import NotThere, Refused
from ralphproof.fleet.activities import tell_or_begin
from ralphproof.fleet.governing import GovernorFlow, SubmissionFlow
from ralphproof.fleet.names import GOVERNOR, LOOP, QUEUE, SUBMISSION, UNWANTED, loop_id, submission_id
from ralphproof.fleet.progress import LoopProgress, broken
from ralphproof.fleet.submission import FleetSubmission, packed_submission
from ralphproof.value import unpack

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ralphproof.fleet.governor import Governor

RUNNING = WorkflowExecutionStatus.RUNNING
AWAY = (
    RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.RESOURCE_EXHAUSTED,
    RPCStatusCode.CANCELLED, RPCStatusCode.UNKNOWN, RPCStatusCode.NOT_FOUND,
)  # fmt: skip
AGAIN_S, MISSING = 2.0, 5  # until somebody who waits asks again; so often a submission may be unknown
UNKNOWN = "there is no loop {!r} in this fleet; ralph fleet status names them"

MOST_BYTES = 1 << 20  # in one call; a server takes two, and a history holds each order twice


async def submit(client: Client, submission: FleetSubmission) -> None:
    """Hand in all loops at once: all of them are known to the server when this returns, or none."""
    given = packed_submission(submission)
    if (size := len(json.dumps(given))) > MOST_BYTES:
        raise Refused(
            f"{len(submission.loops)} loops are {size >> 10} KiB in words, and a server takes {MOST_BYTES >> 10}; "
            "hand them in in several parts"
        )
    about = {name: given[name] for name in ("submission", "submitter", "allowance", "tempo")}
    await tell_or_begin(client, {"what": "bounded", **about})
    loops = [{"loop": one["order"]["loop"], **one["memo"]} for one in given["loops"]]
    memo = {"submission": submission.id, "each": loops}  # so they are known before a worker begins them
    try:
        await client.start_workflow(
            SubmissionFlow.run, given, id=submission_id(submission.id), task_queue=QUEUE, memo=memo
        )
    except WorkflowAlreadyStartedError:
        raise Refused(f"submission {submission.id} exists already") from None


async def outcome(client: Client, submission: str) -> list[dict[str, Any]]:
    """How each loop of a submission ended; waits for it."""
    handle, missing = client.get_workflow_handle_for(SubmissionFlow.run, submission_id(submission)), 0
    while True:
        try:
            ended: dict[str, Any] = await handle.result()
        except WorkflowFailureError as error:
            raise Refused(f"submission {submission} was ended from outside ({error.cause})") from None
        except RPCError as error:  # loops outlive their server, and so does whoever waits for them
            missing += error.status == RPCStatusCode.NOT_FOUND  # one that has just begun knows nobody
            if error.status not in AWAY or missing > MISSING:
                raise
            await asyncio.sleep(AGAIN_S)
        else:
            loops: list[dict[str, Any]] = ended["loops"]
            return loops


async def loops(client: Client) -> list[dict[str, Any]]:
    """Every loop that the server remembers, the newest first; those that are not begun too."""
    known = {shown["loop"]: shown async for shown in _listed(client)}
    async for one in client.list_workflows(f"WorkflowType = '{SUBMISSION}'"):
        memo = await one.memo()
        if any(about["loop"] not in known for about in memo.get("each", ())):
            known = {shown["loop"]: shown for shown in await _waiting(client, memo, one.status)} | known
    return sorted(known.values(), key=lambda shown: str(shown["submission"]), reverse=True)


async def _listed(client: Client) -> AsyncIterator[dict[str, Any]]:
    async for one in client.list_workflows(f"WorkflowType = '{LOOP}'"):
        if one.status != WorkflowExecutionStatus.CONTINUED_AS_NEW:
            yield _shown(one.id, one.status, await one.memo())


async def _waiting(client: Client, memo: Any, status: WorkflowExecutionStatus | None) -> list[dict[str, Any]]:
    """The loops of a submission as it knows them: each waits, or ended as the submission says."""
    ends: dict[str, dict[str, Any]] = {}
    if status == WorkflowExecutionStatus.COMPLETED:
        ends = {one["loop"]: one for one in await outcome(client, memo["submission"])}
    elif status != RUNNING:
        gone = LoopProgress().ended(broken(f"not begun: its submission is {status.name.lower() if status else 'gone'}"))
        ends = {about["loop"]: gone.shown for about in memo.get("each", ())}
    return [
        {"running": status == RUNNING, "submission": memo["submission"], **about, "trouble": "", **LoopProgress().shown}
        | ends.get(about["loop"], {})
        for about in memo.get("each", ())
    ]


async def loop(client: Client, name: str) -> dict[str, Any]:
    """One loop, by its id."""
    try:
        found = await client.get_workflow_handle(loop_id(name)).describe()
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
        return await _not_begun(client, name)
    return _shown(found.id, found.status, await found.memo())


async def _not_begun(client: Client, name: str) -> dict[str, Any]:
    """A loop that its submission alone knows of."""
    try:
        found = await client.get_workflow_handle(submission_id(name.rpartition("-")[0])).describe()
    except RPCError as error:
        raise _unknown(error, name) from None
    for shown in await _waiting(client, await found.memo(), found.status):
        if shown["loop"] == name:
            return shown
    raise NotThere(UNKNOWN.format(name))


def _shown(id: str, status: WorkflowExecutionStatus | None, memo: Any) -> dict[str, Any]:
    progress = dict(memo.get("progress") or LoopProgress().shown)
    if status != RUNNING and not progress["status"]:
        progress = (
            LoopProgress().ended(broken(f"the loop's workflow is {status.name.lower() if status else 'gone'}")).shown
        )
    about = {name: memo.get(name, "") for name in ("title", "submitter", "submission", "artifacts")}
    return {"loop": id.removeprefix("ralph-"), "running": status == RUNNING, **about, "trouble": "", **progress}


async def cancel(client: Client, name: str) -> None:
    """Ask a loop to end; it has ended when it says so. One that is over stays as it is."""
    if not (await loop(client, name))["running"]:
        return
    try:
        await client.get_workflow_handle(loop_id(name)).cancel()
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
        await _unwanted(client, name)


async def _unwanted(client: Client, name: str) -> None:
    """Have a loop not begun; where its submission is over by now, so is the loop."""
    try:
        await client.get_workflow_handle(submission_id(name.rpartition("-")[0])).signal(UNWANTED, name)
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise


async def cancel_all(client: Client) -> list[str]:
    """Ask every submission and every loop to end; those loops that were asked, or will not be begun."""
    asked = [one["loop"] for one in await loops(client) if one["running"]]
    async for one in client.list_workflows(f"WorkflowType IN ('{SUBMISSION}', '{LOOP}') AND ExecutionStatus='Running'"):
        try:
            await client.get_workflow_handle(one.id).cancel()
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
    return asked


async def books(client: Client) -> Governor | None:
    """What the governor knows; None where there is none."""
    handle = client.get_workflow_handle_for(GovernorFlow.run, GOVERNOR)
    try:
        told: dict[str, Any] = await handle.query(GovernorFlow.books)
    except RPCError:
        return None
    governor: Governor = unpack(told["governor"])
    return governor


def _unknown(error: RPCError, name: str) -> Exception:
    if error.status == RPCStatusCode.NOT_FOUND:
        return NotThere(UNKNOWN.format(name))
    return error
