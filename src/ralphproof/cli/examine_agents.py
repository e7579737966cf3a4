"""What a machine has of the known agents: programs, logins, and what each can and cannot tell. No secret is shown."""

from __future__ import annotations

import os
import sys

from ralphproof.agents.dialect import COMPUTED, REPORTED
from ralphproof.agents.versions import version_of
from ralphproof.cli.examine import NOTE, OK, Item, asked_version
from ralphproof.config.agents import KNOWN, dialect
from ralphproof.errors import AgentUnusable
from ralphproof.value import TYPE_CHECKING, value
from ralphproof.workspaces.gitcall import find_program

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ralphproof.agents.dialect import Dialect
    from ralphproof.value import Json

NEEDED = {
    "msgspec": "known agents cannot be used, since their output cannot be read; plain commands can",
    "genai_prices": "the cost of agents that report tokens alone is unknown, but for models in your own prices",
    "ruamel.yaml": "tasks cannot be read from YAML, nor written to it; ralph task create and ralph work go on",
}
# What the fields of a dialect do not say, by the names of agents.
TELL_NO_TOKENS = ("copilot",)
TELL_COST_AT_THE_END = ("codex", "gemini")  # of a turn: until then a limit on cost has nothing to go by
TELL_RESETS = ("claude", "codex")


@value
class Login:
    """Signs of a login, by the names of variables and files; None where there is no telling."""

    signs: tuple[str, ...] | None
    how: str

    @property
    def text(self) -> str:
        if self.signs is None:
            return "login unknown"
        return f"login: {', '.join(self.signs)}" if self.signs else f"no sign of a login ({self.how})"


def packages() -> Iterator[Item]:
    """Packages of ours that are missing, and what is impossible without them."""
    from importlib.util import find_spec

    for name, lost in NEEDED.items():
        if find_spec(name.partition(".")[0]) is None or find_spec(name) is None:
            yield Item(name.replace("_", "-"), NOTE, f"not installed: {lost} (pip install ralphproof)")


def agents(root: str, environ: Mapping[str, str]) -> Iterator[Item]:
    """The known agents on PATH, never one that the project brings along, and the names of those that are not there."""
    path = environ.get("PATH", os.defpath)
    found = {name: there for name in KNOWN if (there := find_program(name, path, outside=root))}
    items = [_examined(name, program, environ) for name, program in found.items()]
    yield from items
    usable = any(item.data and item.data["guard"] for item in items)
    if not usable:
        yield Item("agents", NOTE, "no known agent with a guard can be used; name one with --agent")
    if absent := ", ".join(name for name in KNOWN if name not in found):
        yield Item("agents", OK if usable else NOTE, f"not on PATH: {absent}")


def _examined(name: str, program: str, environ: Mapping[str, str]) -> Item:
    try:
        spoken = dialect(name)
    except AgentUnusable as error:
        return Item(f"agent {name}", NOTE, f"{program}: {error}")
    version, wrong = _version(program, {**environ, **spoken.updates_off})
    login = _login(spoken, environ)
    parts = (version or "its version is unknown", *filter(None, (wrong,)), login.text, *_abilities(spoken))
    state = NOTE if wrong or login.signs == () or not spoken.guard else OK
    data: dict[str, Json] = {
        "path": program, "version": version or None, "login": None if login.signs is None else list(login.signs),
        "cost": spoken.cost, "tokens": name not in TELL_NO_TOKENS, "live": _tells_cost_live(spoken),
        "guard": spoken.guard or None, "resumes": spoken.resumes, "resets": name in TELL_RESETS,
    }  # fmt: skip
    return Item(f"agent {name}", state, f"{program}; {'; '.join(parts)}", data)


def _version(program: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """Its version, by its package where that tells: some take seconds to say it. Then what went wrong when asked.

    A line without digits and dots is no version, whatever it is.
    """
    import re

    if packaged := version_of(program):
        return packaged, ""
    said, wrong = asked_version(program, environ)
    return said if re.search(r"\d\.\d", said) else "", f"--version failed: {wrong}" if wrong else ""


def _tells_cost_live(spoken: Dialect) -> bool:
    """Whether its cost is known while a turn goes on, so that a limit can end it."""
    return spoken.cost in (REPORTED, COMPUTED) and spoken.name not in TELL_COST_AT_THE_END


def _abilities(spoken: Dialect) -> Iterator[str]:
    """What it can tell and do, and what it cannot."""
    when = "as it goes" if _tells_cost_live(spoken) else "at the end"
    known = {
        f"cost {spoken.cost} {when}": spoken.cost in (REPORTED, COMPUTED),
        "tokens": spoken.name not in TELL_NO_TOKENS,
        f"guarded mode {spoken.guard}".strip(): bool(spoken.guard),
        "resume": spoken.resumes,
        "resets of limits": spoken.name in TELL_RESETS,
    }
    cannot = ["cost" if ability.startswith("cost") else ability for ability, can in known.items() if not can]
    yield f"can: live events, {', '.join(ability for ability, can in known.items() if can)}"
    if cannot:
        yield f"cannot: {', '.join(cannot)}"
    if not spoken.guard:
        yield "needs --sandbox or --no-sandbox"


def _login(spoken: Dialect, environ: Mapping[str, str]) -> Login:
    home = environ.get("HOME") or os.path.expanduser("~")
    signs = tuple(name for name in spoken.credentials if _is_there(name, home, environ))
    kept_elsewhere = sys.platform == "darwin"  # in the keychain, which is not looked into
    return Login(None if not spoken.credentials or (kept_elsewhere and not signs) else signs, spoken.login)


def _is_there(name: str, home: str, environ: Mapping[str, str]) -> bool:
    if "/" not in name:
        return bool(environ.get(name))
    return os.path.exists(os.path.join(home, name[2:]) if name.startswith("~/") else name)
