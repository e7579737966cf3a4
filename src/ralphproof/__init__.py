"""ralphproof runs a coding agent on a repository until a machine can show that the work is done."""

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ralphproof.agents.callable import AgentReply as AgentReply
    from ralphproof.agents.root import RootContext as RootContext
    from ralphproof.api import Loop as Loop
    from ralphproof.api import Options as Options
    from ralphproof.api import run as run
    from ralphproof.api import supervise as supervise
    from ralphproof.check import Finding as Finding
    from ralphproof.check import Inspection as Inspection
    from ralphproof.errors import RalphError as RalphError
    from ralphproof.errors import Refused as Refused
    from ralphproof.limit import Breach as Breach
    from ralphproof.verdict import Aborted as Aborted
    from ralphproof.verdict import Completed as Completed
    from ralphproof.verdict import Failed as Failed
    from ralphproof.verdict import Outcome as Outcome

_PLACES = {
    "run": "api", "supervise": "api", "Loop": "api", "Options": "api", "AgentReply": "agents.callable",
    "RootContext": "agents.root", "Finding": "check", "Inspection": "check", "Breach": "limit",
    "RalphError": "errors", "Refused": "errors", "Completed": "verdict", "Aborted": "verdict", "Failed": "verdict",
    "Outcome": "verdict",
}  # fmt: skip
__all__ = [  # noqa: RUF022
    "run", "supervise", "Loop", "Options", "Completed", "Aborted", "Failed", "Outcome", "AgentReply", "RootContext",
    "Finding", "Inspection", "Breach", "RalphError", "Refused",
]  # fmt: skip


def __getattr__(name: str) -> object:
    """The public names, loaded when first used: `ralph --version` needs none of them."""
    if name not in _PLACES:
        raise AttributeError(f"module 'ralphproof' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"ralphproof.{_PLACES[name]}"), name)
