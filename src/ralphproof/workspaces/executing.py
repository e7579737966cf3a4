"""Settings of git that execute a program, or lead git to other files. The rest is the agent's to change."""

from __future__ import annotations

import os

from ralphproof.value import TYPE_CHECKING, value
from ralphproof.workspaces.layout import read_small

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.workspaces.gitcall import Reply

    Ask = Callable[..., Reply]
    Listed = list[tuple[str, str | None]]

# As git 2.54 and git-lfs 3.7 know them. `*` stands for whatever is between the first and the last dot, or for nothing.
KEYS = frozenset((
    "core.alternaterefscommand", "core.askpass", "core.editor", "core.fsmonitor", "core.gitproxy", "core.hookspath",
    "core.pager", "core.sshcommand", "credential.*.helper", "diff.*.command", "diff.*.textconv", "diff.external",
    "filter.*.clean", "filter.*.process", "filter.*.smudge", "merge.*.driver", "sequence.editor",
    "browser.*.cmd", "browser.*.path", "difftool.*.cmd", "difftool.*.path", "guitool.*.cmd", "man.*.cmd", "man.*.path",
    "mergetool.*.cmd", "mergetool.*.path", "help.browser", "instaweb.browser", "instaweb.httpd", "web.browser",
    "gpg.*.program", "gpg.*.defaultkeycommand", "hook.*.command", "interactive.difffilter", "tar.*.command",
    "trailer.*.cmd", "trailer.*.command", "gc.recentobjectshook", "uploadpack.packobjectshook", "imap.tunnel",
    "remote.*.receivepack", "remote.*.uploadpack", "remote.*.vcs", "protocol.allow", "protocol.ext.allow",
    "sendemail.*.cccmd", "sendemail.*.headercmd", "sendemail.*.sendmailcmd", "sendemail.*.smtpserver",
    "sendemail.*.tocmd", "lfs.customtransfer.*.path", "lfs.extension.*.clean", "lfs.extension.*.smudge",
    "include.path", "includeif.*.path", "init.templatedir",
))  # fmt: skip
ELSEWHERE = ("core.bare", "core.worktree")  # with these `git clean` and the like work in another folder, or nowhere
MOST_KEYS = 20  # put back one by one; past this the whole file is
UNREADABLE = "git can no longer read it"


def executes(key: str, text: str | None) -> bool:
    """Whether git runs a program because of this setting, or takes such settings from another file."""
    section, _, rest = key.partition(".")
    inner, _, name = rest.rpartition(".")
    marked = (text or "").lstrip().startswith("!")  # what follows is given to a shell
    if section == "alias" or (section == "submodule" and name == "update"):
        return marked
    if section == "lfs":
        return f"lfs.{inner.partition('.')[0]}.*.{name}" in KEYS
    return section == "pager" or key in KEYS or f"{section}.*.{name}" in KEYS


@value
class Mended:
    """A configuration whose executing settings are as they were: why that took a change, and its content then."""

    rules: tuple[str, ...]
    content: bytes


class Configuration:
    """Compares and mends copies of a configuration in a private file; git never writes the repository's own."""

    def __init__(self, ask: Ask, scratch: str) -> None:
        self._ask, self._scratch = ask, scratch

    def mend(self, before: bytes, now: bytes) -> Mended:
        """The present content with what executes put back. One that git cannot read is put back as a whole."""
        was, present = self._listed(before), self._listed(now)
        if present is None:
            return Mended((UNREADABLE,), before) if was is not None else Mended((), now)
        was = was or []
        old, new = _executing(was), _executing(present)
        keys = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
        if not keys:
            return Mended((), now)
        content = before if len(keys) > MOST_KEYS else self._without(keys, was, now)
        if _executing(self._listed(content) or []) != old:
            content = before
        said = {True: "would make git work elsewhere", False: "executes a program"}
        return Mended(tuple(f"{key} {said[key in ELSEWHERE]}" for key in keys), content)

    def _without(self, keys: list[str], was: Listed, now: bytes) -> bytes:
        self._write(now)
        for key in keys:
            self._ask("config", "--file", self._scratch, "--unset-all", key)
            for text in (text for name, text in was if name == key):
                self._ask("config", "--file", self._scratch, "--add", key, "true" if text is None else text)
        return read_small(os.fsencode(self._scratch))

    def _listed(self, content: bytes) -> Listed | None:
        """Every setting in order; None where git cannot read them. A setting without a text is simply true."""
        self._write(content)
        reply = self._ask("config", "--file", self._scratch, "-z", "--list")
        records = reply.out.decode("utf-8", "surrogateescape").split("\0")[:-1]
        pairs = [record.partition("\n") for record in records]
        return [(key, text if has else None) for key, has, text in pairs] if reply.code == 0 else None

    def _write(self, content: bytes) -> None:
        with open(self._scratch, "wb", opener=_private) as file:
            file.write(content)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _executing(listed: Listed) -> dict[str, list[str | None]]:
    found: dict[str, list[str | None]] = {}
    for key, text in listed:
        leads_elsewhere = key in ELSEWHERE and (key, text) != ("core.bare", "false")
        if leads_elsewhere or executes(key, text):
            found.setdefault(key, []).append(text)
    return found
