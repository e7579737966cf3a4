"""Whose fault a bad turn was. The class decides what follows: try again, wait, or stop and say what to do."""

from __future__ import annotations

from ralphproof.agent import Turn
from ralphproof.event import THE_CONFIGURATION, THE_SERVICE
from ralphproof.value import value


@value
class AgentFault:
    """Its own work failed: feedback goes into the next iteration."""

    message: str


@value
class ServiceFault:
    """The model's service is limited or down: wait, then take the same iteration again. It burns no budget."""

    message: str
    resets_at: float | None = None


@value
class ConfigFault:
    """It cannot start, or not with these settings: stop at once, exit 2."""

    message: str


@value
class SignalFault:
    """We ended it because somebody asked us to."""

    message: str


@value
class HarnessFault:
    """Its keeper died, so how it ended is unknown. Its work is judged all the same."""

    message: str


Fault = AgentFault | ServiceFault | ConfigFault | SignalFault | HarnessFault


def fault_of(turn: Turn) -> Fault | None:
    """Whose fault it is that this turn went wrong; None where it did not."""
    end = turn.exit
    if end.why == "unstartable":
        return ConfigFault(end.error)
    if end.why in ("stopped", "killed"):
        return SignalFault("the agent was ended on request")
    if end.why == "interrupted":
        return HarnessFault(ending(turn) if end.error else "the agent's keeper died in mid-turn")
    if turn.blame == THE_CONFIGURATION:
        return ConfigFault(turn.error or ending(turn))
    if turn.limited is not None and (turn.errored or not turn.text.strip()):  # else it recovered by itself
        return ServiceFault(turn.limited.message.rstrip(" ."), turn.limited.resets_at)  # it is told inside a sentence
    if turn.blame == THE_SERVICE:
        return ServiceFault(turn.error or ending(turn))
    if turn.error is not None:
        return AgentFault(turn.error)
    return None if end.clean else AgentFault(ending(turn))


def ending(turn: Turn) -> str:
    """How the agent's process ended, in words."""
    end = turn.exit
    match end.why:
        case "timeout":
            return "the agent was ended: its time was up (agent.timeoutSeconds)"
        case "idle":
            return "the agent was ended: a long silence (agent.idleTimeoutSeconds)"
        case "stopped" | "killed":
            return "the agent was ended on request"
        case "interrupted":
            return f"the agent was lost: {end.error}" if end.error else "the agent's keeper died, and the agent with it"
        case _ if end.signal is not None:
            return f"the agent died by signal {end.signal}"
        case _:
            return f"the agent exited with code {end.code}"
