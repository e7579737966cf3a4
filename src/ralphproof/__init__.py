"""ralphproof runs a coding agent on a repository until a machine can show that the work is done."""

__version__ = "0.1.0"

__all__ = [  # noqa: RUF022
    "run", "supervise", "Loop", "Options",
    "Outcome", "Completed", "Aborted", "Failed",
    "Agent", "AgentFunction", "AgentContext", "AgentReply", "RootFunction",
    "Check", "CheckFunction", "Inspection", "Finding",
    "Limit", "State", "Breach",
    "Observer", "ObserverFunction", "Record", "RunBegan", "TurnBegan", "TurnEnded", "CheckEnded", "Judged", "Warned",
    "Noticed", "RunEnded",
    "RalphError", "Refused", "SettingsWrong", "AgentUnusable", "Busy", "NotThere", "TaskWrong", "HarnessFailed",
    "RalphWarning",
]  # fmt: skip

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ralphproof.agent import Agent
    from ralphproof.agents.callable import AgentContext, AgentReply
    from ralphproof.api import (
        AgentFunction,
        CheckFunction,
        Limit,
        Loop,
        ObserverFunction,
        Options,
        RootFunction,
        run,
        supervise,
    )
    from ralphproof.check import Check, Finding, Inspection
    from ralphproof.errors import (
        AgentUnusable,
        Busy,
        HarnessFailed,
        NotThere,
        RalphError,
        RalphWarning,
        Refused,
        SettingsWrong,
        TaskWrong,
    )
    from ralphproof.ledger import Observer
    from ralphproof.limit import Breach
    from ralphproof.record import (
        CheckEnded,
        Judged,
        Noticed,
        Record,
        RunBegan,
        RunEnded,
        TurnBegan,
        TurnEnded,
        Warned,
    )
    from ralphproof.state import State
    from ralphproof.verdict import Aborted, Completed, Failed, Outcome
else:  # the public names are loaded when they are first used: `ralph --version` needs none of them
    _PLACES = {
        "agent": "Agent",
        "agents.callable": "AgentContext AgentReply",
        "api": "AgentFunction CheckFunction Limit Loop ObserverFunction Options RootFunction run supervise",
        "check": "Check Finding Inspection",
        "errors": "AgentUnusable Busy HarnessFailed NotThere RalphError RalphWarning Refused SettingsWrong TaskWrong",
        "ledger": "Observer",
        "limit": "Breach",
        "record": "CheckEnded Judged Noticed Record RunBegan RunEnded TurnBegan TurnEnded Warned",
        "state": "State",
        "verdict": "Aborted Completed Failed Outcome",
    }

    def __getattr__(name):
        for place, names in _PLACES.items():
            if name in names.split():
                from importlib import import_module

                found = globals()[name] = getattr(import_module(f"ralphproof.{place}"), name)
                return found
        raise AttributeError(f"module 'ralphproof' has no attribute {name!r}")

    def __dir__():
        return sorted({*globals(), *__all__})
