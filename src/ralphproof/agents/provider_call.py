"""Program that sends one prompt to a model provider: `MODEL [SCHEMA]`, the prompt on standard input.

It prints events in their JSON form, one a line. It imports nothing else of this package, uses whatever pydantic-ai the
interpreter has, and connects only to the service that MODEL names.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic_ai import Agent
    from pydantic_ai.usage import RunUsage

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
