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
    from ralphproof.agents.function import AgentContext, AgentReply
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
    from ralphproof.base.errors import (
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
    from ralphproof.engine.agent import Agent
    from ralphproof.engine.check import Check, Finding, Inspection
    from ralphproof.engine.environment import Observer
    from ralphproof.engine.limits import Breach
    from ralphproof.engine.outcome import Aborted, Completed, Failed, Outcome
    from ralphproof.engine.records import (
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
    from ralphproof.engine.state import State
else:  # the public names are loaded when they are first used: `ralph --version` needs none of them
    _PLACES = {
        "engine.agent": "Agent",
        "agents.function": "AgentContext AgentReply",
        "api": "AgentFunction CheckFunction Limit Loop ObserverFunction Options RootFunction run supervise",
        "engine.check": "Check Finding Inspection",
        "base.errors": (
            "AgentUnusable Busy HarnessFailed NotThere RalphError RalphWarning Refused SettingsWrong TaskWrong"
        ),
        "engine.environment": "Observer",
        "engine.limits": "Breach",
        "engine.records": "CheckEnded Judged Noticed Record RunBegan RunEnded TurnBegan TurnEnded Warned",
        "engine.state": "State",
        "engine.outcome": "Aborted Completed Failed Outcome",
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
