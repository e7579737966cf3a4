"""Settings of a run request, read from parsed command-line flags."""

from __future__ import annotations

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.engine.claim import is_same_word, strip_claim_tags

if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any


LATEST_RUN = "latest"


def check_settings_from_flags(args: Namespace) -> dict[str, Any]:
    """What these flags say in the settings' own shape; raises Refused where they contradict each other."""
    if args.no_check and args.check:
        raise Refused("--no-check and --check contradict each other; give one of them")
    return {"guardrails": [], "finalChecks": []} if args.no_check else {}


def is_guarded(args: Namespace) -> bool:
    """Whether something is to hold the agent; raises Refused where the flags say both."""
    if args.no_sandbox and (args.sandbox is not None or args.allow_host):
        other = "--sandbox" if args.sandbox is not None else "--allow-host"
        raise Refused(f"--no-sandbox and {other} contradict each other; give one of them")
    return not args.no_sandbox


def settings_from_flags(args: Namespace) -> dict[str, Any]:
    """The flags that are settings, in the settings' own shape; what was not given is not there."""
    settings: dict[str, Any] = {
        "preset": args.preset,
        "maximumIterations": args.maximum_iterations,
        "completionResponse": _completion_word(args.completion_response, args.promise),
        "streamAgentOutput": args.stream_agent_output,
        "agent": {"command": args.agent, "model": args.model},
        "review": {"enabled": False if args.skip_review else None, "cap": args.review_cap},
        "limits": {"maxCostUsd": args.max_cost_usd, "maxMinutes": args.max_minutes, "maxTokens": args.max_tokens},
        "sandbox": {"backend": args.sandbox},
    }
    return drop_unset(settings)


def drop_unset(settings: dict[str, Any]) -> dict[str, Any]:
    """Those settings that hold something."""
    nested = {name: drop_unset(item) if isinstance(item, dict) else item for name, item in settings.items()}
    return {name: item for name, item in nested.items() if item is not None and item != {}}


def _completion_word(response: str | None, promise: str | None) -> str | None:
    if (
        response is not None
        and promise is not None
        and not is_same_word(strip_claim_tags(response), strip_claim_tags(promise))
    ):
        raise Refused("--completion-response and --promise are one setting, and were given two values; give one")
    return response if response is not None else promise
