"""One run in figures: what is left of it when nobody wants the details."""

from __future__ import annotations

from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from ralphproof.value import Json

COMPLETED, ABORTED, ERROR = "COMPLETED", "ABORTED", "ERROR"


@value
class Metrics:
    """The figures of one run. None is unknown, never zero.

    `micro_usd` is None where a part of the cost is not known; `at_least` is what is known of it. `tests_fixed` is how
    many tests fewer fail now than before the first iteration. `saved_micro_usd` is how much more the run would have
    cost with the last model of its ladder alone.
    """

    run: str
    began_s: float
    ended_s: float
    status: str
    reason: str = ""
    skill: str = ""
    task_type: str = ""
    agent: str = ""
    model: str = ""
    preset: str = ""
    iterations: int = 0
    seconds: float = 0.0
    micro_usd: int | None = None
    at_least_micro_usd: int = 0
    tokens: int = 0
    files: int = 0
    tests_fixed: int | None = None
    claimed: bool = False
    verified: bool = False
    saved_micro_usd: int | None = None

    def published(self) -> dict[str, Json]:
        """The line that programs read."""
        import time
        from uuid import NAMESPACE_URL, uuid5

        def moment(epoch_s: float) -> str:
            return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch_s))

        return {
            "loopId": str(uuid5(NAMESPACE_URL, f"ralphproof:{self.run}")),
            "run": self.run,
            "skill": self.skill,
            "taskType": self.task_type,
            "agent": self.agent,
            "model": self.model,
            "preset": self.preset,
            "startTime": moment(self.began_s),
            "endTime": moment(self.ended_s),
            "status": self.status,
            **({"abortReason": self.reason} if self.reason else {}),
            "iterations": self.iterations,
            "costUSD": None if self.micro_usd is None else self.micro_usd / 1_000_000,
            "atLeastUSD": self.at_least_micro_usd / 1_000_000,
            "tokens": self.tokens,
            "durationSeconds": round(self.seconds, 3),
            "filesModified": self.files,
            "testsFixed": self.tests_fixed,
            "completionPromiseDetected": self.claimed,
            "verificationPassed": self.verified,
            "savedUSD": None if self.saved_micro_usd is None else self.saved_micro_usd / 1_000_000,
        }
