"""A model's own service as an agent, through pydantic-ai: it only answers. Each call is a process of its own."""

from __future__ import annotations

from ralphproof import interpreter
from ralphproof.agent import Brief, Turn, TurnWatch
from ralphproof.agents.ear import Ear
from ralphproof.agents.scripted import event_in
from ralphproof.errors import AgentUnusable
from ralphproof.event import Event, Spent, Usage
from ralphproof.sandbox import Command, Lodging, Sandbox
from ralphproof.value import TYPE_CHECKING, replace

if TYPE_CHECKING:
    from collections.abc import Callable

# Whatever else is installed beside it: nobody is told of a call but the service itself.
QUIET = {"PYDANTIC_DISABLE_PLUGINS": "__all__", "OTEL_SDK_DISABLED": "true", "LOGFIRE_SEND_TO_LOGFIRE": "false"}


class Provider:
    """Asks a model by `SERVICE:MODEL`, such as `anthropic:claude-haiku-4-5`. `cost` prices its tokens.

    Its key, and another address than the service's own, are in the variables that the service's own library reads.
    """

    def __init__(self, model: str, cost: Callable[[str | None, Usage], int | None] = lambda *_: None) -> None:
        service, colon, self._priced_as = model.partition(":")
        if not service or not colon or not self._priced_as or model.startswith("-"):
            raise AgentUnusable(f"model {model!r} is not of the form SERVICE:MODEL, as in anthropic:claude-haiku-4-5")
        if not _installed():
            raise AgentUnusable(
                f"model {model}: to ask a service directly needs pydantic-ai: pip install 'ralphproof[llm]'"
            )
        self.name = self._model = model
        self.lodging = _lodging(service)
        self._cost = cost

    @property
    def reports_cost(self) -> bool:
        """Whether a limit on cost can be held: its tokens have a price."""
        return self._cost(self._priced_as, Usage(1, 1)) is not None

    def argv(self, brief: Brief) -> tuple[str, ...]:
        return interpreter.module("ralphproof.agents.provider_call", self._model, *filter(None, (brief.schema,)))

    def take_turn(self, brief: Brief, sandbox: Sandbox, watch: TurnWatch) -> Turn:
        """Ask once, and wait for the answer."""
        command = Command(
            self.argv(brief), brief.cwd, tuple({**dict(brief.env), **QUIET}.items()), out=brief.base + ".ndjson",
            err=brief.base + ".stderr.log", stdin=brief.prompt_file, turn_file=brief.turn_file, mark=brief.mark,
            timeout_s=brief.timeout_s, idle_s=brief.idle_s, taken_up=brief.taken_up, agent=self.name,
        )  # fmt: skip
        ear = Ear(watch)
        ear.listen(lambda line: ear.tell(self._priced(event_in(line))))
        end = sandbox.run(command, ear)
        ear.finish()
        return ear.fold.turn(end)

    def _priced(self, event: Event) -> Event:
        if not isinstance(event, Spent) or event.usage is None:
            return event
        return replace(event, micro_usd=self._cost(self._priced_as, event.usage))


def _lodging(service: str) -> Lodging:
    """What a call of this service needs; of one that is not known, only its variables."""
    upper = service.upper().replace("-", "_")
    hosts = {"anthropic": ("api.anthropic.com",), "openai": ("api.openai.com",)}.get(service, ())
    return Lodging(hosts=hosts, addresses=(f"{upper}_BASE_URL",), variables=(f"{upper}_*", *QUIET))


def _installed() -> bool:
    from importlib.util import find_spec

    return find_spec("pydantic_ai") is not None
