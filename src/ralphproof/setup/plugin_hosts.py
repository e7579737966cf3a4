"""Installation of our plugin in Claude Code and Codex by their own commands."""

from __future__ import annotations

import os

from ralphproof import __version__
from ralphproof.base.errors import AgentUnusable
from ralphproof.base.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    Show = Callable[[tuple[str, ...]], None]  # is told each command that changes something, before it runs

PLUGIN_NAME, MARKETPLACE = "ralph", "ralphproof"
PLUGIN, GUARD_PLUGIN = f"{PLUGIN_NAME}@{MARKETPLACE}", f"{PLUGIN_NAME}-guard@{MARKETPLACE}"
PROGRAM = "ralphproof"  # what hooks call: others have programs called ralph too
PLUGIN_FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "plugin")
TIMEOUT_S = 120.0  # some of them look for news first, and wait for a network that is not there
MAX_REPLY_BYTES = 8 << 20
MAX_MESSAGE_CHARS = 300
LIST_PLUGINS = ("plugin", "list", "--json")
LIST_MARKETPLACES = ("plugin", "marketplace", "list", "--json")


@value
class PluginHost:
    """A program that takes plugins: its words for it, and what its user has to know afterwards."""

    name: str
    title: str
    add: str
    remove: str
    update: str  # a newer version; empty where `add` brings that too
    afterwards: str
    asks_trust: bool = False  # runs no hook that its user has not trusted
    forgetful: bool = False  # lists no plugin whose marketplace is gone, and keeps it all the same


CLAUDE = PluginHost(
    "claude", "Claude Code", "install", "uninstall", "update", "new sessions have it; /reload-plugins in others"
)
CODEX = PluginHost(
    "codex", "Codex", "add", "remove", "",
    "new sessions have its skills; its hooks run once you trust them: codex asks at its start, /hooks shows them",
    asks_trust=True, forgetful=True,
)  # fmt: skip
HOSTS = {host.name: host for host in (CLAUDE, CODEX)}


@value
class InstalledPlugin:
    """The plugin as a program has it."""

    version: str
    enabled: bool
    fault: str = ""

    @property
    def is_ours(self) -> bool:
        """Whether it is on, whole, and of this version."""
        return self.enabled and not self.fault and self.version == __version__


class PluginInstaller:
    """One such program on this machine."""

    def __init__(self, host: PluginHost, program: str, env: Mapping[str, str], show: Show) -> None:
        self.host, self.program = host, program
        self._env, self._show = dict(env), show

    def install(self, plugin: str = PLUGIN) -> InstalledPlugin:
        """Have a plugin in this version, on; raises AgentUnusable. What is so already stays as it is."""
        self._drop_what_is_gone()
        self._point()
        there, host = self.copy(plugin), self.host
        if there is None or not there.enabled or not host.update:
            self._tell("plugin", host.add, plugin)
        elif not there.is_ours:
            self._tell("plugin", host.update, plugin)
        now = self.copy(plugin)
        if now is None or not now.is_ours:
            wanted = f"version {__version__}, switched on"
            raise AgentUnusable(f"{host.title} was told, and has {_describe_plugin(now)}; it should have {wanted}")
        return now

    def uninstall(self) -> bool:
        """Have neither plugin nor their marketplace; False where there was nothing of them. Raises AgentUnusable."""
        dropped, place = self._drop_what_is_gone(), self.place()
        removed = [self._remove(plugin) for plugin in (GUARD_PLUGIN, PLUGIN)]
        if place is not None:
            self._tell("plugin", "marketplace", "remove", MARKETPLACE)
        return dropped or place is not None or any(removed)

    def uninstall_guard(self) -> bool:
        """Have the guard no more; False where it was not there. Raises AgentUnusable."""
        self._drop_what_is_gone()
        return self._remove(GUARD_PLUGIN)

    def _remove(self, plugin: str) -> bool:
        there = self.copy(plugin)
        if there is not None or (self.host.forgetful and plugin == PLUGIN):
            self._tell("plugin", self.host.remove, plugin)
        if (left := self.copy(plugin)) is not None:
            raise AgentUnusable(f"{self.host.title} still has {_describe_plugin(left)}")
        return there is not None

    def copy(self, plugin: str = PLUGIN) -> InstalledPlugin | None:
        """A plugin as this program has it for all of the user's projects; None where it has none."""
        told = self._asked(*LIST_PLUGINS)
        rows = told.get("installed") if isinstance(told, dict) else told
        for row in _json_objects(rows):
            if plugin in (row.get("id"), row.get("pluginId")) and row.get("scope", "user") == "user":
                faults = [str(one) for one in row.get("errors") or ()]
                return InstalledPlugin(str(row.get("version", "")), row.get("enabled") is True, "; ".join(faults))
        return None

    def place(self) -> str | None:
        """Where this program looks for our plugin; None where it does not look. Empty is elsewhere than in a folder."""
        told = self._asked(*LIST_MARKETPLACES)
        rows = told.get("marketplaces") if isinstance(told, dict) else told
        for row in _json_objects(rows):
            if row.get("name") == MARKETPLACE:
                return str(row.get("path") or row.get("root") or "")
        return None

    def _drop_what_is_gone(self) -> bool:
        """Codex 0.166 lists nothing at all once a marketplace's folder is gone, as ours is when ralph has moved."""
        try:
            self.place()
        except AgentUnusable as unlisted:
            drop = ("plugin", "marketplace", "remove", MARKETPLACE)
            try:
                self._run(drop)
            except AgentUnusable:
                raise unlisted from None  # it was not ours
            self._show((self.host.name, *drop))
            return True
        return False

    def _point(self) -> None:
        """Have it look here. Codex 0.166 takes no other folder under a name that it knows; the older one goes first."""
        place = self.place()
        if place is not None and os.path.realpath(place) == os.path.realpath(PLUGIN_FOLDER):
            return
        if place is not None:
            self._tell("plugin", "marketplace", "remove", MARKETPLACE)
        self._tell("plugin", "marketplace", "add", PLUGIN_FOLDER)

    def _tell(self, *words: str) -> None:
        self._show((self.host.name, *words))
        self._run(words)

    def _asked(self, *words: str) -> Any:
        import json

        try:
            return json.loads(self._run(words))
        except (ValueError, RecursionError) as error:
            raise AgentUnusable(f"{self._named(words)} gave no JSON; it may be too old for plugins") from error

    def _run(self, words: tuple[str, ...]) -> bytes:
        from ralphproof.base.run_program import run_program

        reply = run_program([self.program, *words], self._env, timeout_s=TIMEOUT_S, most_bytes=MAX_REPLY_BYTES)
        if reply.code:
            said = _error_line(reply.err) or _error_line(reply.out) or f"exit code {reply.code}"
            raise AgentUnusable(f"{self._named(words)} failed: {said}")
        return reply.out

    def _named(self, words: tuple[str, ...]) -> str:
        return " ".join((self.host.name, *words))


def _json_objects(rows: object) -> list[dict[str, Any]]:
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _describe_plugin(copy: InstalledPlugin | None) -> str:
    if copy is None:
        return "none"
    state = copy.fault or ("" if copy.enabled else "switched off")
    return f"version {copy.version or 'unknown'}" + (f" ({state})" if state else "")


def _error_line(said: bytes) -> str:
    """What a program says is wrong, in one line and without its own decoration; what follows is most often a trace."""
    from ralphproof.base.escaping import collapse_lines, sanitize

    lines = sanitize(said.decode("utf-8", "replace")).strip().splitlines()
    first = " ".join(lines[:2] if lines and lines[0].rstrip().endswith(":") else lines[:1])
    return collapse_lines(first.strip().removeprefix("✘ ").removeprefix("Error: "))[:MAX_MESSAGE_CHARS]
