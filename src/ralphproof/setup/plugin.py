"""Installation of our plugin in Claude Code and Codex by their own commands."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ralphproof import __version__
from ralphproof.agents.environment import check_environment
from ralphproof.base.errors import AgentUnusable
from ralphproof.base.escaping import collapse_lines, sanitize
from ralphproof.base.git_layout import resolve_project_root
from ralphproof.base.programs import find_program, run_program
from ralphproof.base.value import Json, value

Show = Callable[[tuple[str, ...]], None]  # called with each changing command before it runs


PLUGIN_NAME, MARKETPLACE = "ralph", "ralphproof"
PLUGIN, GUARD_PLUGIN = f"{PLUGIN_NAME}@{MARKETPLACE}", f"{PLUGIN_NAME}-guard@{MARKETPLACE}"
PROGRAM = "ralphproof"  # what hooks call: other programs are called ralph too
PLUGIN_FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "plugin")
TIMEOUT_S = 120.0  # some check for updates first, and wait for a missing network
MAX_REPLY_BYTES = 8 << 20
MAX_MESSAGE_CHARS = 300
ALL_AGENTS = "all"
REMOVE_GUARD_COMMAND = "ralph plugin uninstall --guard"
LIST_PLUGINS = ("plugin", "list", "--json")
LIST_MARKETPLACES = ("plugin", "marketplace", "list", "--json")


@value
class PluginHost:
    """A program that takes plugins: its subcommands, and a note for the user after installation."""

    name: str
    title: str
    add: str
    remove: str
    update: str  # updates to a newer version; empty if `add` does that too
    afterwards: str
    asks_trust: bool = False  # runs hooks only after the user trusts them
    forgetful: bool = False  # keeps a plugin whose marketplace is gone, but does not list it


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
    """The state of a plugin in a program."""

    version: str
    enabled: bool
    fault: str = ""

    @property
    def is_current(self) -> bool:
        """Whether it is enabled, without errors, and of this version."""
        return self.enabled and not self.fault and self.version == __version__


class PluginInstaller:
    """Installs and removes our plugins in one program of this machine."""

    def __init__(self, host: PluginHost, program: str, env: Mapping[str, str], show: Show) -> None:
        self.host, self.program = host, program
        self._env, self._show = dict(env), show

    def install(self, plugin: str = PLUGIN) -> InstalledPlugin:
        """Install or update a plugin and enable it, unless it is current; raises AgentUnusable."""
        self._remove_stale_marketplace()
        self._add_marketplace()
        there, host = self.installed(plugin), self.host
        if there is None or not there.enabled or not host.update:
            self._change("plugin", host.add, plugin)
        elif not there.is_current:
            self._change("plugin", host.update, plugin)
        now = self.installed(plugin)
        if now is None or not now.is_current:
            wanted = f"version {__version__}, switched on"
            raise AgentUnusable(f"{host.title} is updated, but has {_describe_plugin(now)}; it should have {wanted}")
        return now

    def uninstall(self) -> bool:
        """Remove both plugins and their marketplace; False if there was nothing. Raises AgentUnusable."""
        dropped, place = self._remove_stale_marketplace(), self.marketplace_folder()
        removed = [self._remove(plugin) for plugin in (GUARD_PLUGIN, PLUGIN)]
        if place is not None:
            self._change("plugin", "marketplace", "remove", MARKETPLACE)
        return dropped or place is not None or any(removed)

    def uninstall_guard(self) -> bool:
        """Remove the guard; False if it was not installed. Raises AgentUnusable."""
        self._remove_stale_marketplace()
        return self._remove(GUARD_PLUGIN)

    def _remove(self, plugin: str) -> bool:
        there = self.installed(plugin)
        if there is not None or (self.host.forgetful and plugin == PLUGIN):
            self._change("plugin", self.host.remove, plugin)
        if (left := self.installed(plugin)) is not None:
            raise AgentUnusable(f"{self.host.title} still has {_describe_plugin(left)}")
        return there is not None

    def installed(self, plugin: str = PLUGIN) -> InstalledPlugin | None:
        """The plugin installed for all of the user's projects, if any."""
        told = self._query(*LIST_PLUGINS)
        rows = told.get("installed") if isinstance(told, dict) else told
        for row in _json_objects(rows):
            if plugin in (row.get("id"), row.get("pluginId")) and row.get("scope", "user") == "user":
                faults = [str(one) for one in row.get("errors") or ()]
                return InstalledPlugin(str(row.get("version", "")), row.get("enabled") is True, "; ".join(faults))
        return None

    def marketplace_folder(self) -> str | None:
        """The folder of our marketplace; None if it is not configured, empty if it is not a folder."""
        told = self._query(*LIST_MARKETPLACES)
        rows = told.get("marketplaces") if isinstance(told, dict) else told
        for row in _json_objects(rows):
            if row.get("name") == MARKETPLACE:
                return str(row.get("path") or row.get("root") or "")
        return None

    def _remove_stale_marketplace(self) -> bool:
        """Remove our marketplace if its folder is gone, as after moving ralph: Codex 0.166 then lists nothing."""
        try:
            self.marketplace_folder()
        except AgentUnusable as unlisted:
            drop = ("plugin", "marketplace", "remove", MARKETPLACE)
            try:
                self._run(drop)
            except AgentUnusable:
                raise unlisted from None  # the cause was not our marketplace
            self._show((self.host.name, *drop))
            return True
        return False

    def _add_marketplace(self) -> None:
        """Configure our folder as marketplace. Codex 0.166 refuses another folder under a known name."""
        place = self.marketplace_folder()
        if place is not None and os.path.realpath(place) == os.path.realpath(PLUGIN_FOLDER):
            return
        if place is not None:
            self._change("plugin", "marketplace", "remove", MARKETPLACE)
        self._change("plugin", "marketplace", "add", PLUGIN_FOLDER)

    def _change(self, *words: str) -> None:
        self._show((self.host.name, *words))
        self._run(words)

    def _query(self, *words: str) -> Any:
        try:
            return json.loads(self._run(words))
        except (ValueError, RecursionError) as error:
            raise AgentUnusable(f"{self._command_text(words)} gave no JSON; it may be too old for plugins") from error

    def _run(self, words: tuple[str, ...]) -> bytes:
        reply = run_program([self.program, *words], self._env, timeout_s=TIMEOUT_S, most_bytes=MAX_REPLY_BYTES)
        if reply.code:
            said = _error_line(reply.err) or _error_line(reply.out) or f"exit code {reply.code}"
            raise AgentUnusable(f"{self._command_text(words)} failed: {said}")
        return reply.out

    def _command_text(self, words: tuple[str, ...]) -> str:
        return " ".join((self.host.name, *words))


def _json_objects(rows: object) -> list[dict[str, Any]]:
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _describe_plugin(copy: InstalledPlugin | None) -> str:
    if copy is None:
        return "none"
    state = copy.fault or ("" if copy.enabled else "switched off")
    return f"version {copy.version or 'unknown'}" + (f" ({state})" if state else "")


def _error_line(said: bytes) -> str:
    """The first line of an error message without decoration; the rest is most often a trace."""
    lines = sanitize(said.decode("utf-8", "replace")).strip().splitlines()
    first = " ".join(lines[:2] if lines and lines[0].rstrip().endswith(":") else lines[:1])
    return collapse_lines(first.strip().removeprefix("✘ ").removeprefix("Error: "))[:MAX_MESSAGE_CHARS]


# Installing in all programs that are there.


@value
class PluginResult:
    """The result for one agent program: whether it has the plugin and the guard now, or an error."""

    host: PluginHost
    program: str
    installed: bool
    guarded: bool
    commands: tuple[tuple[str, ...], ...]
    error: str = ""

    def published(self) -> dict[str, Json]:
        return {
            "agent": self.host.name, "program": self.program or None, "installed": self.installed,
            "guard": self.guarded, "commands": [list(one) for one in self.commands], "error": self.error or None,
        }  # fmt: skip


def change_hosts(
    agent: str | None, folder: str | None, install: bool, guard: bool, tell: Callable[[str], None], quiet: bool
) -> list[PluginResult]:
    """Install or uninstall in one agent program, in all, or (None) in those on PATH; raises AgentUnusable for none.

    A failure in one does not stop the next one. `tell` is given each step; the commands too, unless `quiet`.
    """
    hosts = _select_hosts(agent, folder)
    home = os.path.expanduser("~")
    os.chdir(home if os.path.isdir(home) else os.sep)  # no settings or files of a project may count
    return [_change_host(host, program, install, guard, tell, quiet) for host, program in hosts]


def missing_program_notes(results: list[PluginResult]) -> list[str]:
    """Warnings where the hooks cannot find this program."""
    if _find_on_path(PROGRAM):
        return []
    notes = [f"{PROGRAM} is not on your PATH, and the hooks need it: until it is, they do nothing"]
    if any(one.guarded for one in results):
        notes.append(f"{PROGRAM} is not on your PATH, and the guard needs it: until it is, every tool call is denied")
    return notes


def _select_hosts(agent: str | None, folder: str | None) -> list[tuple[PluginHost, str]]:
    """The selected agent programs and their paths; an empty path if one was named and is missing."""
    root, home = resolve_project_root(folder), os.path.realpath(os.path.expanduser("~"))
    # A program inside the project is not the user's; but the home folder is no project.
    outside = "" if f"{home}/".startswith(f"{root.rstrip('/')}/") else root
    wanted = [host for host in HOSTS.values() if agent in (None, ALL_AGENTS, host.name)]
    found = [(host, _find_on_path(host.name, outside)) for host in wanted]
    if agent is None:
        found = [each for each in found if each[1]]
    if not found:
        raise AgentUnusable(f"neither {' nor '.join(HOSTS)} is on PATH; ralph plugin path prints its folder")
    return found


def _find_on_path(program: str, outside: str = "") -> str:
    return find_program(program, os.environ.get("PATH", os.defpath), outside) or ""


def _change_host(
    host: PluginHost, program: str, install: bool, guard: bool, tell: Callable[[str], None], quiet: bool
) -> PluginResult:
    if not program:
        return PluginResult(host, program, False, False, (), f"{host.name} is not on PATH")
    commands: list[tuple[str, ...]] = []

    def show(command: tuple[str, ...]) -> None:
        commands.append(command)
        if not quiet:
            tell(f"{host.title}: {' '.join(command)}")

    # Without the variables of an agent that this may run inside.
    installer = PluginInstaller(host, program, dict(check_environment(os.environ)), show)
    installed, guarded, error = False, False, ""
    try:
        for line in (_install if install else _uninstall)(installer, guard):
            tell(f"{host.title}: {line}")
        installed, guarded = installer.installed() is not None, installer.installed(GUARD_PLUGIN) is not None
    except AgentUnusable as unusable:
        error = str(unusable)
    return PluginResult(host, program, installed, guarded, tuple(commands), error)


def _install(installer: PluginInstaller, guard: bool) -> Iterator[str]:
    """Install the plugin; an installed guard is updated too. Yields what was done."""
    yield f"{PLUGIN_NAME} {installer.install().version} is installed; {installer.host.afterwards}"
    if guard or installer.installed(GUARD_PLUGIN) is not None:
        installer.install(GUARD_PLUGIN)
        trusted = ", once you trust its hook" if installer.host.asks_trust else ""
        yield f"the command guard judges every tool call of new sessions{trusted}; to remove it: {REMOVE_GUARD_COMMAND}"


def _uninstall(installer: PluginInstaller, guard: bool) -> Iterator[str]:
    if guard:
        yield (
            "the command guard is uninstalled" if installer.uninstall_guard() else "the command guard was not installed"
        )
    else:
        yield f"{PLUGIN_NAME} is uninstalled" if installer.uninstall() else f"{PLUGIN_NAME} was not installed"
