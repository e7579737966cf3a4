"""A worker: takes steps of loops on this machine, as many at once as it has slots, until it is asked to leave."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import TYPE_CHECKING

from temporalio.client import Client
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from ralphproof.fleet.activities import Activities, Lease
from ralphproof.fleet.governing import GovernorFlow, SubmissionFlow
from ralphproof.fleet.names import QUEUE, queue_of
from ralphproof.fleet.tempo import CLAIMS
from ralphproof.fleet.workflows import LoopFlow
from ralphproof.fleet.workplace import Workplace

if TYPE_CHECKING:
    from collections.abc import Callable

THROTTLE = timedelta(seconds=2)  # so late at most a cancellation reaches a step
STICKY = timedelta(seconds=2)  # so long a history waits for the worker that has it in memory, which may be dead
LEASE_S = 2.0
# The ground floor is pure and the same for every history: to load it anew for each would cost a second each time.
RUNNER = SandboxedWorkflowRunner(restrictions=SandboxRestrictions.default.with_passthrough_modules("ralphproof"))


async def serve(
    client: Client, place: Workplace, grace_s: float, leave: asyncio.Event, ready: Callable[[], None]
) -> None:
    """Work until `leave` is set; steps then have `grace_s` to end, and are left adoptable after that."""
    lease = Lease()
    activities = Activities(client, place, lease)
    keeping = asyncio.create_task(lease.keep(client, LEASE_S))
    common = Worker(
        client, task_queue=QUEUE, workflows=[LoopFlow, GovernorFlow, SubmissionFlow], workflow_runner=RUNNER,
        activities=[activities.claim, activities.absent, activities.tell_governor], max_concurrent_activities=CLAIMS,
        sticky_queue_schedule_to_start_timeout=STICKY,
    )  # fmt: skip
    own = Worker(
        client, task_queue=queue_of(place.name), activities=[activities.step], max_concurrent_activities=place.slots,
        graceful_shutdown_timeout=timedelta(seconds=grace_s), max_heartbeat_throttle_interval=THROTTLE,
        default_heartbeat_throttle_interval=THROTTLE,
    )  # fmt: skip
    try:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(common)
            await stack.enter_async_context(own)
            ready()
            await leave.wait()
            activities.leaving.set()
    finally:
        keeping.cancel()
        for step in place.running():
            step.leave()
