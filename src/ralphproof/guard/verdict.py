"""Questions to the guard and its answers: rules, objections, exceptions."""

from __future__ import annotations

from ralphproof.base.value import replace, value
from ralphproof.guard.simple import PIECE, SOME

# Name of a category, and what it stands for in the documents.
CATEGORIES = {
    "outside-project": "Deleting or overwriting outside the project",
    "project-state": "Deleting the project itself, its history or the loop's state",
    "disk": "Disks, partitions, file systems",
    "permissions": "Blanket permissions and ownership",
    "privilege": "Privilege escalation",
    "remote-code": "Code from elsewhere into an interpreter",
    "opaque-code": "Code that cannot be read before it runs",
    "secrets": "Reading secrets",
    "exfiltration": "Sending data away",
    "tunnels": "Reverse shells, listeners, tunnels",
    "git-history": "Destroying git history or uncommitted work",
    "git-remote": "Destroying what others see of a repository",
    "tampering": "Going round checks, hooks and this guard",
    "host-control": "Processes and services of the machine",
    "persistence": "Things that outlive the run",
    "database": "Destroying data in databases",
    "infrastructure": "Clouds, clusters, containers",
    "packages": "Publishing, and packages of the whole machine",
}


@value
class Objection:
    """Why a tool call should not happen, and what to do instead."""

    rule: str
    category: str
    reason: str
    instead: str
    what: str

    def because(self, why: str) -> Objection:
        """The same with a closer reason."""
        return replace(self, reason=f"{self.reason}: {why}") if why else self


@value
class Act:
    """One thing that a tool call would do: the ways to say it in words, and what speaks against it."""

    ways: tuple[tuple[str, ...], ...]
    objections: tuple[Objection, ...] = ()


@value
class Standpoint:
    """Where the guard stands: `protected` are paths from the root that nobody may change.

    `task_folder` is a folder outside the usual place in which the user lets the agent leave files; empty for none.
    """

    root: str
    cwd: str
    home: str
    protected: tuple[str, ...] = ()
    task_folder: str = ""


Ground = Standpoint  # callers' name for it; as a value's own name it is taken


@value
class Exceptions:
    """The project's own lists: see `exceptions.py` for what an entry may say."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


@value
class Rule:
    """One thing the guard objects to."""

    id: str
    category: str
    reason: str
    instead: str

    def about(self, what: str) -> Objection:
        """The objection of this rule to one command or path."""
        return Objection(self.id, self.category, self.reason, self.instead, _short(what))


def _short(what: str) -> str:
    """At most 120 printable characters; what could not be resolved is shown as `…`."""
    seen = "".join(one if one.isprintable() else " " for one in _shown(what))
    return seen if len(seen) <= 120 else seen[:119] + "…"


def _shown(what: str) -> str:
    named = PIECE.sub(lambda found: "$" + found[1] if found[1].isidentifier() else "…", what)
    return named.replace(SOME, "…")
