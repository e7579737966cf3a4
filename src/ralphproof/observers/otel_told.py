"""What spans tell of a run: OpenTelemetry's names for generative AI, and `ralph.*` for what those know nothing of.

No prompt, no output and no word of an agent's is among it: only names, figures, and words of our own.
"""

from __future__ import annotations

import os

from ralphproof.budget import Spend
from ralphproof.fault import AgentFault, ConfigFault, HarnessFault, ServiceFault, SignalFault, fault_of
from ralphproof.limit import GOES_ON
from ralphproof.value import TYPE_CHECKING, assert_never
from ralphproof.verdict import Aborted, Completed, Failed, Passed, Retry, SentBack, Stopped, Waiting

if TYPE_CHECKING:
    from ralphproof.agent import Turn
    from ralphproof.check import Finding
    from ralphproof.event import Usage
    from ralphproof.observers.otel_span import Attributes
    from ralphproof.record import ScmEnded
    from ralphproof.value import Json
    from ralphproof.verdict import Outcome, Verdict

ERROR = "error.type"
UNFINISHED: Attributes = {"ralph.unfinished": True}
PROVIDERS = {"claude": "anthropic", "codex": "openai", "gemini": "gcp.gemini"}  # others ask whom they are told to
VERDICTS = {Passed: "passed", Retry: "retry", SentBack: "sentBack", Waiting: "waiting", Stopped: "stopped"}
FAULTS = {
    AgentFault: "agent", ServiceFault: "service", ConfigFault: "config", SignalFault: "signal", HarnessFault: "harness"
}  # fmt: skip


def run_told(run: str, facts: dict[str, Json], session: int) -> Attributes:
    """What is known of a run when it begins, or is taken up."""
    box, directory = facts.get("sandbox"), facts.get("directory")
    held = box if isinstance(box, dict) else {}
    return given({
        "ralph.run.id": run,
        "ralph.session": session,
        "ralph.project": os.path.basename(directory) if isinstance(directory, str) else "",
        "ralph.preset": facts.get("preset"),
        "ralph.agent": facts.get("agent"),
        "ralph.parent.run.id": facts.get("parent"),
        "ralph.sandbox.name": held.get("name"),
        "ralph.sandbox.strength": held.get("strength"),
    })  # fmt: skip


def outcome_told(outcome: Outcome) -> tuple[Attributes, str, bool]:
    """How a run ended: what there is to say of it, the error's class, and whether it went well."""
    told: Attributes = {"ralph.outcome": outcome.status, "ralph.exit_code": outcome.exit_code}
    told |= {"ralph.iterations": outcome.iterations} | cost_told(outcome.spend)
    match outcome:
        case Completed():
            return told | {"ralph.proof": outcome.proof}, "", True
        case Aborted(breach):
            told |= {"ralph.reason": breach.reason, "ralph.checks_passed": outcome.checks_passed}
            return told, "" if breach.reason in GOES_ON else breach.reason, False
        case Failed():
            return told, "config" if outcome.exit_code == 2 else "harness", False
        case _:
            assert_never(outcome)


def asked_told(agent: str, facts: dict[str, Json], place: int) -> Attributes:
    """Who is asked. The model is known where the run has one for all its turns."""
    one = place == 0 and not facts.get("ladder") and not facts.get("rotate")
    return given({
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": agent,
        "gen_ai.provider.name": PROVIDERS.get(agent),
        "gen_ai.request.model": facts.get("model") if one else "",
    })  # fmt: skip


def turn_told(reply: Turn) -> tuple[Attributes, str]:
    """What came of a turn, and whose fault it is that it went wrong."""
    fault = fault_of(reply)
    told = given({
        "gen_ai.agent.version": reply.version,
        "gen_ai.response.model": reply.model,
        "gen_ai.conversation.id": reply.session,
        "ralph.exit.why": reply.exit.why,
        "ralph.exit.code": reply.exit.code,
        "ralph.exit.signal": reply.exit.signal,
        "ralph.tools": reply.tools,
        "ralph.tools.failed": reply.errors,
        "ralph.tools.denied": len(reply.denied),
    })  # fmt: skip
    return told | cost_told(Spend().plus(reply)) | _tokens(reply.usage), FAULTS[type(fault)] if fault else ""


def verdict_told(verdict: Verdict) -> tuple[Attributes, str, bool]:
    """What followed from an iteration, the error's class, and whether it went well. To be tried again is no error."""
    told: Attributes = {"ralph.verdict": VERDICTS[type(verdict)]}
    if isinstance(verdict, Stopped):
        return told | {"ralph.reason": verdict.breach.reason}, verdict.breach.reason, False
    return told, "", isinstance(verdict, Passed)


def check_told(finding: Finding) -> tuple[Attributes, str]:
    """What a check said, and the error's class where it did not pass. No agent may know the name of a held-out one."""
    told = given({
        "ralph.check.name": "" if finding.hidden else finding.check,
        "ralph.check.passed": finding.passed,
        "ralph.check.required": finding.required,
        "ralph.check.judged": finding.judged,
        "ralph.check.held_out": finding.hidden,
        "ralph.check.seconds": finding.seconds,
        "ralph.check.runs": finding.runs,
        "ralph.exit.why": finding.why,
        "ralph.exit.code": finding.code,
    })  # fmt: skip
    told |= cost_told(Spend.of(finding.spent)) if finding.spent else {}
    return told, "" if finding.passed else "errored" if finding.errored else "failed"


def commit_told(record: ScmEnded) -> tuple[Attributes, str]:
    """What came of keeping work in the user's SCM."""
    told = given({"ralph.commit.id": record.committed.commit})
    told |= cost_told(Spend().plus(record.reply)) if record.reply else {}
    return told, "commit" if record.committed.error else ""


def cost_told(spend: Spend) -> Attributes:
    """Dollars. Unknown is not zero, and what is known in part is told as a lower bound."""
    if spend.unpriced and not spend.micro_usd:
        return {}
    told: Attributes = {"ralph.cost.usd": spend.micro_usd / 1_000_000}
    told |= {"ralph.cost.at_least": True} if spend.unpriced else {}
    return told | ({"ralph.cost.notional_usd": spend.notional / 1_000_000} if spend.notional else {})


def _tokens(usage: Usage | None) -> Attributes:
    """Tokens in OpenTelemetry's count: there, input includes what was read from or written to the cache."""
    if usage is None:
        return {}
    return {
        "gen_ai.usage.input_tokens": usage.input + usage.cache_read + usage.cache_write,
        "gen_ai.usage.output_tokens": usage.output,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write,
    }


def given(told: dict[str, Json]) -> Attributes:
    """Those that are known."""
    return {name: one for name, one in told.items() if isinstance(one, str | bool | int | float) and one != ""}
