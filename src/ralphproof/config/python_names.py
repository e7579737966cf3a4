"""What flags and settings are called for who uses this from Python: one table, for every message that names them."""

from __future__ import annotations

import re

from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

SETTINGS = "settings"  # how messages name the place that arguments come from

# Arguments that are settings, and where they stand there.
RUN = {
    "preset": "preset", "model": "agent.model", "max_iterations": "maximumIterations",
    "max_cost_usd": "limits.maxCostUsd", "daily_cost_usd": "limits.dailyCostUsd", "max_tokens": "limits.maxTokens",
    "max_minutes": "limits.maxMinutes", "completion_promise": "completionResponse",
    "stall_detection_threshold": "limits.stallIterations", "same_error_threshold": "limits.sameErrorIterations",
    "escalate_to_deep_debug": "limits.escalateToDeepDebug", "context_injection": "contextInjection",
    "review": "review.enabled", "review_cap": "review.cap",
}  # fmt: skip
SUPERVISE = {
    "max_restarts": "supervise.maxRestarts", "restart_delay_s": "supervise.restartDelaySeconds",
    "wait_timeout_s": "supervise.waitTimeoutSeconds", "poll_interval_s": "supervise.pollIntervalSeconds",
}  # fmt: skip
_OTHERS = {"agent": "agent.command", "protect": "protectedPaths", "checks": "guardrails"}

# Flags, and what says the same here; one that ends with `=` takes a value.
_FLAGS = {
    "--project-dir": "project_dir=", "--agent": "agent=", "--model": "model=", "--check": "checks=",
    "--judge": "judge=", "--protect": "protect=",
    "--skill": "skill=", "--preset": "preset=", "--type": "task_type=", "--risk": "risk=", "--resume": "resume=",
    "--max-iterations": "max_iterations=", "--max-cost-usd": "max_cost_usd=",
    "--max-tokens": "max_tokens=", "--max-minutes": "max_minutes=",
    "--task-folder": "run_dir=", "--ralph-dir": "ralph_dir=", "--review-cap": "review_cap=",
    "--skip-review": "review=False", "--force": "force=True", "--allow-unknown-cost": "allow_unknown_cost=True",
    "--allow-missing-check": "allow_missing_check=True", "--no-check": "checks=()", "--no-sandbox": "guarded=False",
    "--explain": "ralph run --explain",
    "--sandbox": 'settings={"sandbox": {"backend": "auto"}}', "--allow-host": 'settings={"sandbox": {"allowHosts": …}}',
}  # fmt: skip
_COMMAND = r"\bralph [a-z]+(?: [^;,()\n]*)?"  # for a terminal: left as it is, and so is what is quoted
_QUOTED = r"(?<!\w)'[^'\n]*'|(?<!\w)\"[^\"\n]*\""
_FLAG = rf"(?<![\w-])(?P<flag>--[a-z][a-z-]*)(?: (?P<value>[A-Z][A-Z.]*\b|auto\b|stories\b|{_QUOTED}))?(?![\w-])"
_NAMES = re.compile(f"{_COMMAND}|{_QUOTED}|{_FLAG}")


class Names:
    """Python's names for flags and settings. Those `given` as settings keep the names that the caller used."""

    def __init__(self, given: object, supervised: bool = False) -> None:
        arguments = SUPERVISE if supervised else RUN
        named = {path: name for name, path in (arguments | _OTHERS).items()}
        named |= {"maximumIterations": "max_restarts"} if supervised else {}  # one limit
        self._named = {path: name for path, name in named.items() if not _has(given, path.split("."))}

    def said(self, text: str) -> str:
        """A message in these names."""
        paths = "|".join(re.escape(path) for path in sorted(self._named, key=len, reverse=True))
        if paths:
            setting = rf"(?:\b{SETTINGS}: )?(?<![\w.])({paths})(?!\w|\.\w)"
            text = re.sub(setting, lambda found: self._named[found[1]], text)
        return _NAMES.sub(_named, text)


def _named(found: re.Match[str]) -> str:
    argument = _FLAGS.get(found["flag"] or "")
    if argument is None:
        return found[0]
    value = found["value"]
    if value is None:
        return argument
    return argument + (value if value[0] in "'\"" else f'"{value}"')


def _has(given: Any, path: Iterable[str]) -> bool:
    """Whether settings say something at a path."""
    for name in path:
        if not isinstance(given, dict) or name not in given:
            return False
        given = given[name]
    return True
