"""Client of a fleet: connection to the Temporal server; submit, list, wait, cancel."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter
from temporalio.service import RPCError, RPCStatusCode, TLSConfig

from ralphproof.base.errors import HarnessFailed, NotThere, Refused
from ralphproof.base.value import value
from ralphproof.fleet.messages import LoopProgress, failed_end
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

T = TypeVar("T")


# Address and credentials of the server


DEFAULT_ADDRESS, DEFAULT_NAMESPACE = "127.0.0.1:7233", "default"
CONNECT_TIMEOUT_S = 5.0


@value
class TemporalServer:
    """Address and credentials of the server. TLS files may be empty; the API key is never printed."""

    address: str = DEFAULT_ADDRESS
    namespace: str = DEFAULT_NAMESPACE
    cert: str = ""
    key: str = ""
    ca: str = ""
    api_key: str = ""

    @staticmethod
    def of(flags: Mapping[str, str | None], environ: Mapping[str, str]) -> TemporalServer:
        """From flags, else from the environment, else a server on this machine."""

        def option(name: str, default: str = "") -> str:
            return flags.get(name) or environ.get(f"RALPH_FLEET_{name.upper()}") or default

        server = TemporalServer(
            option("address", DEFAULT_ADDRESS), option("namespace", DEFAULT_NAMESPACE),
            option("tls_cert"), option("tls_key"), option("tls_ca"),
            environ.get("TEMPORAL_API_KEY", ""),
        )  # fmt: skip
        host, colon, port = server.address.rpartition(":")
        if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise Refused(f"{server.address!r} is no address of a server; write HOST:PORT, as {DEFAULT_ADDRESS}")
        if bool(server.cert) != bool(server.key):
            raise Refused("--tls-cert and --tls-key are needed both")
        return server


async def connect(server: TemporalServer) -> Client:
    """A client for a server that answers and has the namespace; raises Refused within seconds otherwise."""
    files = [_read_file(path) for path in (server.ca, server.cert, server.key)]
    tls = TLSConfig(server_root_ca_cert=files[0], client_cert=files[1], client_private_key=files[2])
    try:
        client = await Client.connect(
            server.address, namespace=server.namespace, api_key=server.api_key or None,
            tls=tls if any(files) else None, connect_timeout=timedelta(seconds=CONNECT_TIMEOUT_S),
            runtime=_quiet_runtime(),
        )  # fmt: skip
        request = DescribeNamespaceRequest(namespace=server.namespace)
        await client.workflow_service.describe_namespace(request, timeout=timedelta(seconds=CONNECT_TIMEOUT_S))
    except (RuntimeError, RPCError) as error:
        raise Refused(_connection_error(server, error)) from None
    return client


async def run_with_client(server: TemporalServer, work: Callable[[Client], Awaitable[T]]) -> T:
    """Run work with a connected client. Raises HarnessFailed if the connection is lost or the server refuses a call."""
    client = await connect(server)
    try:
        return await work(client)
    except RPCError as error:
        message = " ".join(str(error).split())[:200]
        raise HarnessFailed(f"the server at {server.address} did not do it ({message}); try again") from None


def _quiet_runtime() -> Runtime:
    """The library's default runtime without its log line for each retried call."""
    logging = LoggingConfig(filter=TelemetryFilter(core_level="ERROR", other_level="ERROR"))
    return Runtime(telemetry=TelemetryConfig(logging=logging))


def _connection_error(server: TemporalServer, error: Exception) -> str:
    said = " ".join(str(error).split())[:200]
    said = "connection refused" if "ConnectionRefused" in said else said  # the library's message has 250 characters
    if "not found" in said.lower() and "namespace" in said.lower():
        return f"the server at {server.address} has no namespace {server.namespace!r}; docs/fleet-setup.md says how"
    return f"no Temporal server answers at {server.address} ({said}); start one with ralph fleet dev, or give --address"


def _read_file(path: str) -> bytes | None:
    if not path:
        return None
    try:
        with open(os.path.expanduser(path), "rb") as file:
            return file.read()
    except OSError as error:
        raise Refused(f"{path} cannot be read ({error.strerror})") from None


# Loops and the governor


async def signal_governor(client: Client, event: dict[str, Any]) -> None:
    """Signal the governor; start its workflow with this event if none is running."""
    await client.start_workflow(
        GovernorWorkflow.run, {"timing": event.get("timing")}, id=GOVERNOR_ID, task_queue=TASK_QUEUE,
        start_signal=EVENT_SIGNAL, start_signal_args=[event],
    )  # fmt: skip


RUNNING = WorkflowExecutionStatus.RUNNING
UNAVAILABLE_CODES = (
    RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.RESOURCE_EXHAUSTED,
    RPCStatusCode.CANCELLED, RPCStatusCode.UNKNOWN, RPCStatusCode.NOT_FOUND,
)  # fmt: skip
RETRY_S, MAX_MISSING = 2.0, 5  # seconds between polls; polls for which a new submission may be unknown


async def submit_loops(client: Client, submission: FleetSubmission) -> None:
    """Submit all loops of a submission. When this returns, the server has all of them or none."""
    message = submission_json(submission)
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
    progress = LoopProgress()
    if status not in (RUNNING, WorkflowExecutionStatus.COMPLETED):
        progress = progress.with_end(failed_end(f"not begun: its submission is {_status_text(status)}"))
    about = {"running": status == RUNNING, "submission": memo["submission"], "trouble": ""}
    loops = memo.get("each", ())
    return [about | loop | progress.published | ends.get(loop["loop"], {}) for loop in loops]


async def describe(client: Client, workflow: str) -> WorkflowExecutionDescription | None:
    """The description of a workflow; None if the server does not know it."""
    with ignore_missing():
        return await client.get_workflow_handle(workflow).describe()
    return None


@contextmanager
def ignore_missing() -> Iterator[None]:
    """Suppress the server's answer that it does not know a workflow, or that it has ended."""
    try:
        yield
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise


async def find_loop(client: Client, name: str) -> dict[str, Any]:
    """One loop by its id. One that has no workflow yet is found through its submission."""
    if workflow := await describe(client, loop_workflow_id(name)):
        return _loop_json(workflow.id, workflow.status, await workflow.memo())
    if submission := await describe(client, submission_workflow_id(name.rpartition("-")[0])):
        for loop in await _waiting_loops(client, await submission.memo(), submission.status):
            if loop["loop"] == name:
                return loop
    raise NotThere(f"there is no loop {name!r} in this fleet; ralph fleet status names them")


def _loop_json(id: str, status: WorkflowExecutionStatus | None, memo: Any) -> dict[str, Any]:
    progress = dict(memo.get("progress") or LoopProgress().published)
    if status != RUNNING and not progress["status"]:
        progress = LoopProgress().with_end(failed_end(f"the loop's workflow is {_status_text(status)}")).published
    about = {name: memo.get(name, "") for name in ("title", "submitter", "submission", "artifacts")}
    return {"loop": id.removeprefix("ralph-"), "running": status == RUNNING, **about, "trouble": "", **progress}


def _status_text(status: WorkflowExecutionStatus | None) -> str:
    return status.name.lower() if status else "gone"


async def cancel_loop(client: Client, name: str) -> None:
    """Request cancellation of a loop; it is cancelled once its status says so. An ended loop is left as it is.

    A loop that waits is not started. If its submission has ended, the loop has ended too.
    """
    if not (await find_loop(client, name))["running"]:
        return
    with ignore_missing():
        if await describe(client, loop_workflow_id(name)):
            await client.get_workflow_handle(loop_workflow_id(name)).cancel()
        else:
            submission = submission_workflow_id(name.rpartition("-")[0])
            await client.get_workflow_handle(submission).signal(UNWANTED_SIGNAL, name)


async def cancel_loops(client: Client, names: list[str]) -> list[str]:
    """Cancel these loops; all of them exist, or none is cancelled."""
    for name in names:
        await find_loop(client, name)
    for name in names:
        await cancel_loop(client, name)
    return names


async def cancel_all(client: Client) -> list[str]:
    """Cancel all submissions and loops. Returns the affected loops, including those that have not started."""
    cancelled = [one["loop"] for one in await list_loops(client) if one["running"]]
    async for one in client.list_workflows(
        f"WorkflowType IN ('{SUBMISSION_WORKFLOW}', '{LOOP_WORKFLOW}') AND ExecutionStatus='Running'"
    ):
        with ignore_missing():
            await client.get_workflow_handle(one.id).cancel()
    return cancelled
