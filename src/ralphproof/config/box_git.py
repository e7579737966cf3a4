"""The user's own settings of git inside a box: their name in commits and what they ignore everywhere, nothing else."""

from __future__ import annotations

import os

from ralphproof.config.box_project import write
from ralphproof.sandboxes.box import READ, Mount
from ralphproof.sandboxes.places import expanded, placed
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

IGNORED = "~/.config/git/ignore"
ASKED = r"^(user\.(name|email)|core\.excludesfile)$"


def git_settings(environ: Mapping[str, str], home: str, private: str) -> Iterator[Mount]:
    """What lies in the home folder for git; `private` is a folder for a file of ours."""
    file, said = os.path.join(private, "gitconfig"), _said(environ)
    lines = [f"\t{key} = {_quoted(said[f'user.{key}'])}\n" for key in ("name", "email") if said.get(f"user.{key}")]
    write(file, "[user]\n" + "".join(lines) + "[safe]\n\tdirectory = *\n")
    yield Mount(READ, os.path.join(home, ".gitconfig"), file)
    named = said.get("core.excludesfile", "")
    usual = [source for source, _ in placed("", IGNORED, environ, home)]
    ignored = [expanded(named, home)] if named else usual
    if found := next((one for one in reversed(ignored) if os.path.isfile(one)), ""):
        yield Mount(READ, expanded(IGNORED, home), os.path.realpath(found))


def _said(environ: Mapping[str, str]) -> dict[str, str]:
    """The user's own settings, whatever a project says."""
    from ralphproof.workspaces.gitcall import call, find_program, plain_environment

    git = find_program("git", environ.get("PATH", os.defpath))
    reply = call([git, "config", "--global", "-z", "--get-regexp", ASKED], plain_environment(environ)) if git else None
    entries = reply.out.decode("utf-8", "surrogateescape").split("\0") if reply and reply.code == 0 else []
    return {key: text for key, _, text in (entry.partition("\n") for entry in entries)}


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") + '"'
