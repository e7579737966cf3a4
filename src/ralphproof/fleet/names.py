"""What workflows, queues and words between them are called: both sides go by it."""

from __future__ import annotations

QUEUE = "ralph"
GOVERNOR = "ralph-governor"
LOOP, SUBMISSION, GOVERNING = "RalphLoop", "RalphSubmission", "RalphGovernor"
CLAIM, STEP, ABSENT, TELL = "claim", "step", "absent", "tell_governor"
ANSWER, TOLD, UNWANTED = "answer", "told", "unwanted"
# Why a step has no result, as the type of a failure.
LOST, LEFT, UNREACHABLE = "StepLost", "WorkerLeft", "Unreachable"


def loop_id(loop: str) -> str:
    """The workflow that drives a loop."""
    return f"ralph-{loop}"


def submission_id(submission: str) -> str:
    """The workflow that starts the loops of a submission."""
    return f"ralph-submission-{submission}"


def queue_of(worker: str) -> str:
    """The queue that one worker alone listens to."""
    return f"ralph@{worker}"


def branch_of(loop: str) -> str:
    """The branch that has a completed loop's work."""
    return f"ralph/{loop}"
