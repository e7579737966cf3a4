"""The places where pull requests are made, by the programs that the user has for them: gh and glab."""

from __future__ import annotations

import os
import re

from ralphproof.value import TYPE_CHECKING, value
from ralphproof.workspaces.gitcall import find_program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ralphproof.workspaces.users_git import UsersGit

TIMEOUT_S = 600.0
SAID_CHARS = 500
GITHUB, GITLAB = "GitHub", "GitLab"
PROGRAMS = {GITHUB: "gh", GITLAB: "glab"}
BRANCH, OPEN = "BRANCH", ("open", "opened")
# How each is asked for the request of a branch, and where in its answer the address is.
VIEWS = {
    GITHUB: (("pr", "view", BRANCH, "--json", "url,state"), "url"),
    GITLAB: (("mr", "view", BRANCH, "--output", "json"), "web_url"),
}
# Where git looks for the repository; a hook that starts us has them set for another one.
PLACES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR", "GIT_NAMESPACE")
ADDRESS = re.compile(r"https?://[^\s\"'<>]+")


@value
class Desk:
    """Who takes a pull request: the place, and the program that hands it in."""

    kind: str
    program: str


@value
class Answered:
    """What a program said, and with which code it ended."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """Its complaint in one line."""
        text = " ".join((self.err.strip() or self.out.strip()).split())
        return text if len(text) <= SAID_CHARS else f"... {text[-SAID_CHARS:]}"


def desk_of(git: UsersGit, remote: str, environ: Mapping[str, str]) -> Desk | None:
    """The desk for a remote; None where its host has none that we know, or the program is missing."""
    written = [git.line("config", f"remote.{remote}.{key}") for key in ("pushurl", "url")]
    hosts = {host_of(url) for url in (*written, git.line("remote", "get-url", "--push", remote))} - {""}
    kind = next((kind for host in sorted(hosts) if (kind := kind_of_host(host, environ))), "")
    program = find_program(PROGRAMS[kind], environ.get("PATH", os.defpath), outside=git.root) if kind else None
    return Desk(kind, program) if program else None


def host_of(url: str) -> str:
    """The host in the address of a remote; empty for a path."""
    found = re.match(r"[a-z][a-z0-9+.-]*://(?:[^/@]*@)?(\[[^]]*\]|[^/:]+)|(?:[^/@:]+@)?([^/:@\\]+):(?!//)", url, re.I)
    return (found[1] or found[2]).lower() if found else ""


def kind_of_host(host: str, environ: Mapping[str, str]) -> str:
    """Which kind of place a host is, by its name or by what the user says of it; empty where nobody knows."""
    named = {environ.get("GH_HOST", "").lower(): GITHUB, host_of_variable(environ.get("GITLAB_HOST", "")): GITLAB}
    if host and host in named:
        return named[host]
    if host in ("github.com", "ssh.github.com") or host.endswith((".github.com", ".ghe.com")):
        return GITHUB
    return GITLAB if host == "gitlab.com" or host.split(".")[0] == "gitlab" else ""


def host_of_variable(text: str) -> str:
    """GITLAB_HOST may hold a host, or an address."""
    return host_of(text) or text.lower()


def pushed(git: UsersGit, remote: str, branch: str, commit: str, environ: Mapping[str, str]) -> tuple[bool, str]:
    """Push exactly this branch, with the user's hooks and credentials and without force, unless it is there.

    Whether anything was pushed, and what went wrong.
    """
    ref = f"refs/heads/{branch}"
    listed = run((git.git, "ls-remote", remote, ref), git.root, environ)
    if listed.code == 0 and listed.out.split("\t")[0] == commit:
        return False, ""
    done = run((git.git, "push", remote, f"{ref}:{ref}"), git.root, environ)
    return done.code == 0, "" if done.code == 0 else done.said or f"git push ended with {done.code}"


def there(desk: Desk, branch: str, root: str, environ: Mapping[str, str]) -> str:
    """The address of a pull request of this branch that is open already; empty where none is known."""
    import json

    asked, key = VIEWS[desk.kind]
    answer = run((desk.program, *(branch if word == BRANCH else word for word in asked)), root, environ)
    try:
        found = json.loads(answer.out) if answer.code == 0 else None
    except (ValueError, RecursionError):
        return ""
    if not isinstance(found, dict) or str(found.get("state")).lower() not in OPEN:
        return ""
    return str(found.get(key) or "")


def create_argv(desk: Desk, texts: tuple[str, str, str], branch: str, base: str, draft: bool) -> tuple[str, ...]:
    """The command that hands it in. `texts` are the title, the body, and the file that has the body."""
    title, body, file = texts
    more = ("--draft",) if draft else ()
    if desk.kind == GITHUB:
        aim = ("--head", branch, "--base", base)
        return (desk.program, "pr", "create", "--title", title, "--body-file", file, *aim, *more)
    aim = ("--source-branch", branch, "--target-branch", base)
    return (desk.program, "mr", "create", "--title", title, "--description", body, *aim, "--yes", *more)


def address_in(answer: Answered) -> str:
    """The address that a program printed last."""
    found = ADDRESS.findall(answer.out) or ADDRESS.findall(answer.err)
    return found[-1] if found else ""


def run(argv: Sequence[str], root: str, environ: Mapping[str, str]) -> Answered:
    """Run a program of the user's in the project to its end. It may ask at the terminal, never on standard input."""
    import subprocess

    env = {name: text for name, text in environ.items() if name not in PLACES}
    env |= {"NO_COLOR": "1", "GH_PROMPT_DISABLED": "1", "GH_NO_UPDATE_NOTIFIER": "1"}
    try:
        done = subprocess.run(
            argv, cwd=root, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return Answered(-1, "", f"it did not finish in {TIMEOUT_S:g} s")
    except OSError as error:
        return Answered(127, "", str(error))
    return Answered(done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"))
