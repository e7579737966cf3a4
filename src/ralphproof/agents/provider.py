"""The provider agent: a call of a model provider through pydantic-ai, each in a process of its own.

That process is this module as a program: `MODEL [SCHEMA]`, the prompt on standard input. It prints events in their JSON
form, one a line, and connects only to the service that MODEL names.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ralphproof.agents.event_collector import run_event_program, turn_command
from ralphproof.base import interpreter
from ralphproof.base.errors import AgentUnusable
from ralphproof.base.value import replace
from ralphproof.engine.agent import Event, Spent, Turn, TurnInput, TurnWatcher, Usage
from ralphproof.engine.sandbox import AgentRequirements, Sandbox

if TYPE_CHECKING:
    from pydantic_ai import Agent
    from pydantic_ai.usage import RunUsage

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
        return interpreter.module_command("ralphproof.agents.provider", self._model, *filter(None, (brief.schema,)))

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


# The program that sends one prompt.


MAX_TOKENS = 16_384  # of an answer
MAX_REQUESTS = 2  # the second where the first answer did not match the schema
SYSTEM_PROMPT = "Answer in the form that you are asked for, and in no other."


def print_event(kind: str, **fields: object) -> None:
    sys.stdout.write(json.dumps({"is": kind, **fields}) + "\n")
    sys.stdout.flush()


def create_agent(model: str, schema: str) -> Agent[object, Any]:
    """An agent without tools. With a schema, its answers must match it."""
    from pydantic_ai import Agent, StructuredDict

    output_type: Any = StructuredDict(json.loads(schema), name="answer") if schema else str
    return Agent(
        model,
        output_type=output_type,
        instructions=SYSTEM_PROMPT,
        retries=MAX_REQUESTS - 1,
        model_settings={"max_tokens": MAX_TOKENS},
    )


def print_spent(usage: RunUsage) -> None:
    """Report the usage. The input count includes tokens read from a cache and written to one."""
    read, write = usage.cache_read_tokens, usage.cache_write_tokens
    uncached = max(0, usage.input_tokens - read - write)
    counts = {"input": uncached, "output": usage.output_tokens, "cache_read": read, "cache_write": write}
    print_event("Spent", micro_usd=None, usage={"is": "Usage", **counts})


def print_failure(kind: type[BaseException], error: BaseException, *_: object) -> None:
    """Report why there is no answer, in place of a traceback."""
    blame = "config" if issubclass(kind, ImportError) else classify_error(error)
    print_event("Ended", ok=False, text="", error=f"{kind.__name__}: {error}", blame=blame)


def classify_error(error: BaseException) -> str:
    """The cause of an error of pydantic-ai, as in `Ended.blame`; empty where it is not known."""
    from pydantic_ai import exceptions as known

    if isinstance(error, known.UserError | known.ModelAuthenticationError | known.ModelNotFoundError):
        return "config"
    service = (
        known.ModelRateLimitError, known.ModelQuotaExceededError, known.ModelServerError, known.ModelOverloadedError,
        known.ModelConnectionError, known.ModelTimeoutError,
    )  # fmt: skip
    return "service" if isinstance(error, service) else ""


def ask_model(model: str, schema: str, prompt: str) -> None:
    """Send the prompt, and report usage and answer."""
    from pydantic_ai import UsageLimits
    from pydantic_ai.exceptions import ModelRateLimitError
    from pydantic_ai.usage import RunUsage

    agent = create_agent(model, schema)
    usage, limits = RunUsage(), UsageLimits(request_limit=MAX_REQUESTS)
    try:
        answer = agent.run_sync(prompt, usage=usage, usage_limits=limits).output
    except ModelRateLimitError as error:
        print_event("Limited", message=str(error))
        raise
    finally:
        print_spent(usage)
    text = json.dumps(answer) if schema else str(answer)
    print_event("Said", text=text)
    print_event("Ended", ok=True, text=text)


def main() -> None:
    sys.excepthook = print_failure
    model, schema = sys.argv[1], "".join(sys.argv[2:3])
    prompt = sys.stdin.buffer.read().decode("utf-8", "replace")
    print_event("Started", model=model.partition(":")[2])
    ask_model(model, schema, prompt)
