"""The checks that a project's settings name, as values."""

from __future__ import annotations

from ralphproof.plan import EXTERNAL, External, Task, Verification
from ralphproof.value import TYPE_CHECKING, replace, value

if TYPE_CHECKING:
    from typing import Any


@value
class GuardrailSettings:
    """One check. Its name is unlike that of any other; one that is no command has an empty `command`."""

    name: str
    command: str
    fail_action: str
    hint: str
    timeout_s: float
    retries: int
    how: Verification

    @property
    def shown(self) -> str:
        """How it is called in lists: by its command, else by its name."""
        return self.command or self.name


def guardrails_of(items: list[dict[str, Any]]) -> tuple[GuardrailSettings, ...]:
    """The values behind checked settings that hold every key."""
    return tuple(
        GuardrailSettings(
            name=name,
            command=item["command"] or "",
            fail_action=item["failAction"],
            hint=item["hint"],
            timeout_s=float(item["timeoutSeconds"]),
            retries=item["retries"],
            how=_how(item),
        )
        for name, item in zip(names_of(items), items, strict=True)
    )


def _how(item: dict[str, Any]) -> Verification:
    """How it is verified. A plain command, which most of them are, needs no reading; none has places to fill."""
    command, timeout_s = item["command"], float(item["timeoutSeconds"])
    if item["method"] == EXTERNAL and not item["config"]:
        return External(command, timeout_s=timeout_s)
    from ralphproof.plans.task import way

    how = way(item["method"], config_of(item), Task("", ""))
    return replace(how, command=command, timeout_s=timeout_s) if isinstance(how, External) else how


def config_of(item: dict[str, Any]) -> dict[str, Any]:
    """What its method is told, as a task would have it; a command has a key of its own."""
    own = {"command": item.get("command")} if item["method"] == EXTERNAL else {}
    return {**item["config"], **own}


def names_of(items: list[dict[str, Any]]) -> tuple[str, ...]:
    """The name of each: its own, else its command, else its method, with a number where two would be the same."""
    taken = {item["name"] for item in items if item["name"]}
    made: list[str] = []
    for item in items:
        usual = item["command"] or item["method"]
        name, number = usual, 1
        while name in taken:
            number += 1
            name = f"{usual} ({number})"
        made.append(item["name"] or name)
        taken.add(made[-1])
    return tuple(made)
