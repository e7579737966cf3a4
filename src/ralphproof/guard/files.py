"""Rules on reading, writing and deleting paths."""

from __future__ import annotations

import re

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.guard.place import Spot, below, inner, zone
from ralphproof.guard.secret_paths import is_secret
from ralphproof.guard.verdict import Rule

if TYPE_CHECKING:
    from ralphproof.guard.verdict import Ground


# Whether a path belongs to a protected one, or holds it. The patterns mean what the workspace means by them.


SPECIAL = {"*": "[^/]*", "?": "[^/]"}


def guards(pattern: str, path: str, whole: bool) -> bool:
    """Whether a path from the root is one that the pattern means, or lies below it; `whole` folders also above it."""
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    if not parts or ".git" in path.split("/"):
        return False
    if len(parts) == 1 and any(sign in pattern for sign in SPECIAL):
        parts = ["**", *parts]  # as in a .gitignore: in every folder
    if re.fullmatch(f"{_translated(parts)}(/.*)?", path, re.DOTALL):
        return True
    return whole and _plain(parts).startswith(path + "/")


def _plain(parts: list[str]) -> str:
    return re.sub(r"\\(.)", r"\1", "/".join(parts))


def _translated(parts: list[str]) -> str:
    made = ""
    for place, part in enumerate(parts):
        last = place == len(parts) - 1
        if part == "**":
            made += "[^/]+" if last else "(?:[^/]+/)*"
        else:
            made += _name(part) + ("" if last else "/")
    return made


def _name(part: str) -> str:
    pieces = re.findall(r"\\?.", part, re.DOTALL)
    return "".join(SPECIAL.get(piece) or re.escape(piece[-1]) for piece in pieces)


# What may not be done to a path: read, written or deleted, by whatever tool or command.


OUTSIDE_DELETE = Rule(
    "outside-delete", "outside-project", "deletes what is not part of the project", "delete only files of the project",
)  # fmt: skip
UNKNOWN_DELETE = Rule(
    "unknown-delete", "outside-project", "deletes a folder that is not known before it runs",
    "write the folder out, or `${NAME:?}` behind a check that it is in the project",
)  # fmt: skip
OUTSIDE_WRITE = Rule(
    "outside-write", "outside-project", "writes to a place that is not part of the project",
    "write to the project or the temporary folder",
)  # fmt: skip
ROOT_DELETE = Rule(
    "project-delete", "project-state", "deletes the project as a whole", "name the files or folders that are to go",
)  # fmt: skip
GIT_FILES = Rule(
    "git-files", "project-state", "changes what git keeps in .git", "use git's own commands, and leave .git alone",
)  # fmt: skip
STATE_FILES = Rule(
    "loop-state", "project-state", "removes what the loop that runs you goes by", "leave these files where they are",
)  # fmt: skip
DEVICE_WRITE = Rule("device-write", "disk", "writes to a device of the machine", "write to a file of the project")
STARTUP_WRITE = Rule(
    "startup-write", "persistence", "changes what is run when a user logs in or the machine starts",
    "set what you need for this command alone, or in a script of the project",
)  # fmt: skip
HOOK_WRITE = Rule(
    "hook-write", "tampering", "changes git's hooks or settings, which check the work",
    "leave hooks as they are, and make the work pass them",
)  # fmt: skip
AGENT_WRITE = Rule(
    "agent-settings", "tampering", "changes the settings of the agent or of the loop that runs it",
    "say in your answer which setting should change, and why",
)  # fmt: skip
PROTECTED = Rule(
    "protected-path", "tampering", "changes a path that this project protects",
    "do the work without it, or say in your answer why it should change",
)  # fmt: skip
SECRET_READ = Rule(
    "secret-file", "secrets", "reads a file that holds secrets",
    "ask for the name of the setting, or read an example file such as .env.example",
)  # fmt: skip
RULES = (
    OUTSIDE_DELETE, UNKNOWN_DELETE, OUTSIDE_WRITE, ROOT_DELETE, GIT_FILES, STATE_FILES, DEVICE_WRITE, STARTUP_WRITE,
    HOOK_WRITE, AGENT_WRITE, PROTECTED, SECRET_READ,
)  # fmt: skip

DEVICES = re.compile(
    r"/dev/(?!(null|zero|full|u?random|tty|stdin|stdout|stderr|ptmx)$|(fd|pts|shm|tcp|udp|mqueue)(/|$)).+"
)
STARTUP = re.compile(
    r"\.(bash|zsh|z|ksh|tcsh|csh)?(rc|_profile|_login|_logout|_aliases|env|profile|login|shenv|shrc)|\.profile"
    r"|\.xinitrc|\.xprofile|\.xsession|\.pam_environment|\.gitconfig|\.ssh/(authorized_keys2?|config|rc|environment)"
    r"|\.config/(autostart|systemd|fish|environment\.d|git|direnv)(/.*)?|Library/Launch(Agents|Daemons)(/.*)?"
)
SYSTEM_STARTUP = re.compile(
    r"/(etc/(cron[^/]*|profile(\.d)?|systemd|init\.d|rc\.local|rc\d?\.d|bash\.bashrc|zsh|environment|ld\.so\.preload"
    r"|xdg|ssh|pam\.d|udev)|var/spool/(cron|at)|(usr/)?lib/systemd|Library/Launch(Agents|Daemons))(/.*)?"
)
HOOKS = re.compile(r"\.git/(hooks(/.*)?|config(\.worktree)?|info/attributes)")
HOOK_SETUP = re.compile(r"\.husky(/.*)?|\.pre-commit-config\.yaml|\.?lefthook\.ya?ml")
# Of `.ralph` a run's task folder is the agent's: there it leaves its files.
AGENTS = re.compile(
    r"\.ralph(?!/runs/[^/]+/task(/|$))(/.*)?|\.ralph-active|\.mcp\.json|\.claude/(settings[^/]*\.json|hooks(/.*)?)|\.codex(/.*)?"
    r"|\.gemini/settings\.json|\.qwen/settings\.json|opencode\.json"
)
HOME_AGENTS = re.compile(r"\.(claude|codex|gemini|qwen)(/.*)?|\.claude\.json")
STATE = re.compile(r"\.ralph(?!/runs/[^/]+/task/.)(/.*)?|\.ralph-active|ralph|ralph/tasks\.json")
GIT_OWN = re.compile(r"(.*/)?\.git(/(?!info/exclude$).*)?")


def to_read(spot: Spot, word: str, at: Ground) -> Rule | None:
    """Why a file should not be read."""
    return SECRET_READ if is_secret(spot, word, at) else None


def to_write(spot: Spot, at: Ground) -> Rule | None:
    """Why a file should not be written."""
    if DEVICES.fullmatch(spot.path):
        return DEVICE_WRITE
    if _asked_for(spot, at):
        return None
    within, own = inner(spot, at), _from_home(spot.path, at)
    if HOOKS.fullmatch(within):
        return HOOK_WRITE
    if AGENTS.fullmatch(within) or HOME_AGENTS.fullmatch(own):
        return AGENT_WRITE
    if STARTUP.fullmatch(own) or SYSTEM_STARTUP.fullmatch(spot.path):
        return STARTUP_WRITE
    if within and any(guards(pattern, within, whole=False) for pattern in at.protected):
        return PROTECTED
    if GIT_OWN.fullmatch(within):
        return GIT_FILES
    return OUTSIDE_WRITE if zone(spot, at) == "outside" and not _special(spot.path) else None


def to_delete(spot: Spot, at: Ground, recursive: bool) -> Rule | None:
    """Why a file or a folder should not be deleted."""
    where, within = zone(spot, at), inner(spot, at)
    if _asked_for(spot, at):
        return None
    if where == "unknown":
        return UNKNOWN_DELETE if recursive else None
    if DEVICES.fullmatch(spot.path):
        return DEVICE_WRITE
    if (HOOKS.fullmatch(within) and within != ".git/hooks") or HOOK_SETUP.fullmatch(within):
        return HOOK_WRITE
    if GIT_OWN.fullmatch(within):
        return GIT_FILES
    if STATE.fullmatch(within):
        return STATE_FILES
    if AGENTS.fullmatch(within):
        return AGENT_WRITE
    if where == "root":
        return ROOT_DELETE if recursive or spot.tail else None
    if within and any(guards(pattern, within, recursive) for pattern in at.protected):
        return PROTECTED
    return OUTSIDE_DELETE if where == "outside" and not _special(spot.path) else None


def _asked_for(spot: Spot, at: Ground) -> bool:
    """Whether it lies in the folder that the user chose for the agent's own files, wherever that is."""
    return (
        bool(at.task_folder) and below(spot.path, at.task_folder) and (spot.path != at.task_folder or bool(spot.tail))
    )


def _from_home(path: str, at: Ground) -> str:
    return path[len(at.home) + 1 :] if below(path, at.home) else ""


def _special(path: str) -> bool:
    return path.startswith("/dev/") and not path.startswith("/dev/shm/") and not DEVICES.fullmatch(path)  # noqa: S108
