"""Whose fault a bad turn was."""

from __future__ import annotations

import pytest

from ralphproof.engine.agent import (
    AgentFault,
    ConfigFault,
    Fault,
    HarnessFault,
    Limited,
    ServiceFault,
    SignalFault,
    Turn,
    classify_fault,
)
from ralphproof.engine.sandbox import Exit

LIMIT = Limited("usage limit reached", 1234.0)


@pytest.mark.parametrize(
    ("turn", "fault"),
    [
        pytest.param(Turn(Exit(0), "x"), None, id="none"),
        pytest.param(Turn(Exit(0), ""), None, id="an empty reply is nobody's fault yet"),
        pytest.param(Turn(Exit(None, "lingered", 15), "x"), None, id="lingering after the result"),
        pytest.param(
            Turn(Exit(None, "unstartable", error="claude: not found")),
            ConfigFault("claude: not found"),
            id="it could not be started",
        ),
        pytest.param(
            Turn(Exit(None, "stopped", 15), error="x"), SignalFault("the agent was ended on request"), id="stopped"
        ),
        pytest.param(
            Turn(Exit(None, "killed", 9), limited=LIMIT), SignalFault("the agent was ended on request"), id="killed"
        ),
        pytest.param(
            Turn(Exit(None, "interrupted")), HarnessFault("the agent's keeper died in mid-turn"), id="its keeper died"
        ),
        pytest.param(
            Turn(Exit(1), limited=LIMIT, error="429"), ServiceFault("usage limit reached", 1234.0), id="a usage limit"
        ),
        pytest.param(Turn(Exit(0), "x", "it broke"), AgentFault("it broke"), id="its own error"),
        pytest.param(Turn(Exit(1), "", "529", blame="service"), ServiceFault("529"), id="an outage"),
        pytest.param(Turn(Exit(1), "", "no key", blame="config"), ConfigFault("no key"), id="not logged in"),
        pytest.param(
            Turn(Exit(1), "", "no key", limited=LIMIT, blame="config"), ConfigFault("no key"), id="no wait would help"
        ),
        pytest.param(
            Turn(Exit(None, "idle", 15), limited=LIMIT), ServiceFault("usage limit reached", 1234.0), id="it hung on it"
        ),
        pytest.param(Turn(Exit(7), "x"), AgentFault("the agent exited with code 7"), id="a bad exit code"),
        pytest.param(Turn(Exit(None, signal=11)), AgentFault("the agent died by signal 11"), id="a signal"),
        pytest.param(
            Turn(Exit(None, "timeout", 15, 3600.4)),
            AgentFault("the agent was ended: its time was up (agent.timeoutSeconds)"),
            id="whose timeout it was is said",
        ),
        pytest.param(
            Turn(Exit(None, "idle", 15, 1000.0)),
            AgentFault("the agent was ended: a long silence (agent.idleTimeoutSeconds)"),
            id="silence",
        ),
    ],
)
def test_a_bad_turn_is_somebodys_fault(turn: Turn, fault: Fault | None) -> None:
    assert classify_fault(turn) == fault
