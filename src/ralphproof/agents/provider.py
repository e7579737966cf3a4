"""The provider agent: a call of a model provider through pydantic-ai, each in a process of its own."""

from __future__ import annotations

from collections.abc import Callable

from ralphproof.agents.event_collector import run_event_program, turn_command
from ralphproof.base import interpreter
from ralphproof.base.errors import AgentUnusable
from ralphproof.base.value import replace
from ralphproof.engine.agent import Event, Spent, Turn, TurnInput, TurnWatcher, Usage
from ralphproof.engine.sandbox import AgentRequirements, Sandbox

# Turns off the telemetry of other installed packages.
QUIET_ENVIRONMENT = {
    "PYDANTIC_DISABLE_PLUGINS": "__all__",
    "OTEL_SDK_DISABLED": "true",
    "LOGFIRE_SEND_TO_LOGFIRE": "false",
}


class ProviderAgent:
    """Asks a model by `SERVICE:MODEL`, such as `anthropic:claude-haiku-4-5`. `cost` prices its tokens.

    The API key, and a base URL other than the default, come from the variables that the provider's own library reads.
    """

    def __init__(self, model: str, cost: Callable[[str | None, Usage], int | None] = lambda *_: None) -> None:
        service, colon, self._priced_model = model.partition(":")
        if not service or not colon or not self._priced_model or model.startswith("-"):
            raise AgentUnusable(f"model {model!r} is not of the form SERVICE:MODEL, as in anthropic:claude-haiku-4-5")
        if not _has_pydantic_ai():
            raise AgentUnusable(
                f"model {model}: to ask a service directly needs pydantic-ai: pip install 'ralphproof[llm]'"
            )
        self.name = self._model = model
        self.requirements = _provider_requirements(service)
        self._cost = cost

    @property
    def reports_cost(self) -> bool:
        """Whether a cost limit can be enforced: its tokens have a price."""
        return self._cost(self._priced_model, Usage(1, 1)) is not None

    def argv(self, brief: TurnInput) -> tuple[str, ...]:
        return interpreter.module_command(
            "ralphproof.agents.provider_call", self._model, *filter(None, (brief.schema,))
        )

    def take_turn(self, brief: TurnInput, sandbox: Sandbox, watch: TurnWatcher) -> Turn:
        """Ask once, and wait for the answer."""
        env = tuple({**dict(brief.env), **QUIET_ENVIRONMENT}.items())
        command = replace(turn_command(self.name, self.argv(brief), brief), env=env)
        return run_event_program(command, sandbox, watch, self._with_cost)

    def _with_cost(self, event: Event) -> Event:
        if not isinstance(event, Spent) or event.usage is None:
            return event
        return replace(event, micro_usd=self._cost(self._priced_model, event.usage))


def _provider_requirements(service: str) -> AgentRequirements:
    """What a call of this service needs; for an unknown service, only its variables."""
    upper = service.upper().replace("-", "_")
    hosts = {"anthropic": ("api.anthropic.com",), "openai": ("api.openai.com",)}.get(service, ())
    return AgentRequirements(
        hosts=hosts, addresses=(f"{upper}_BASE_URL",), variables=(f"{upper}_*", *QUIET_ENVIRONMENT)
    )


def _has_pydantic_ai() -> bool:
    from importlib.util import find_spec

    return find_spec("pydantic_ai") is not None
