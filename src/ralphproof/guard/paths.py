"""Where a word of a command points, and which rule speaks against reading, writing or deleting there."""

from __future__ import annotations

import fnmatch
import os.path
import re

from ralphproof.base.redaction import is_harmless_name, is_secret_name
from ralphproof.base.shell import MARKS, SOME, UNKNOWN
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.guard.command import PIECE

if TYPE_CHECKING:
    from ralphproof.guard.verdict import Ground

NO_NAME = {ord(mark): None for mark in MARKS + "\0"}  # characters that are in no name of a file
EVERYTHING = r"\.?(\[!?\.?[^\]]*\]|[*?])*\*"


@value
class Place:
    """A real path, or what is known of it.

    `tail` says what of it is meant: "" the path itself, `some` something below it, `maybe` itself or something below,
    `all` everything in it. `path` is empty where not even a folder is known. `near` is a path written relative to a
    folder of the project.
    """

    path: str
    tail: str = ""
    near: bool = False


def locate(word: str, cwd: str, at: Ground, follow: bool = True) -> Place:
    """Where a word points; `follow` a link in its last part, or mean the link itself."""
    word = _expand_home(word, at)
    relative = not word.startswith("/")
    parts = PIECE.sub(UNKNOWN, word).split("/")
    if word.startswith(UNKNOWN) or (relative and not cwd):
        return Place("", _tail(parts))
    fixed = next((i for i, part in enumerate(parts) if re.search(f"[*?[{UNKNOWN}{SOME}]", part)), len(parts))
    head = "/".join(parts[:fixed]) or ("" if relative else "/")
    return Place(_real_path(os.path.join(cwd, head), follow), _tail(parts[fixed:]), relative and is_below(cwd, at.root))


def _expand_home(word: str, at: Ground) -> str:
    if not word.startswith("~"):
        return word
    user, slash, rest = word[1:].partition("/")
    if user == "+":
        return at.cwd + slash + rest
    return (os.path.join(os.path.dirname(at.home), user) if user else at.home) + slash + rest


def _tail(parts: list[str]) -> str:
    """What the parts mean that are not fixed."""
    kept = [part for part in parts if part not in ("", ".")]
    if not kept or kept == [UNKNOWN]:
        return "maybe" if kept else ""
    if ".." in kept:
        return "all"
    return "all" if all(re.fullmatch(EVERYTHING, part) for part in kept) else "some"


def _real_path(path: str, follow: bool) -> str:
    path = path.translate(NO_NAME).encode("utf-8", "replace").decode()
    if follow:
        return os.path.realpath(path)
    path = os.path.normpath(path) if path.endswith("/") or os.path.basename(path) in (".", "..") else path
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def is_below(path: str, folder: str) -> bool:
    """Whether a path is a folder or something in it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def zone(place: Place, at: Ground) -> str:
    """`unknown`, `root` (the project as a whole), `inside`, `temporary` or `outside`."""
    if not place.path:
        return "unknown"
    if place.path == at.root:
        return "inside" if place.tail == "some" else "root"
    if is_below(place.path, at.root):
        return "inside"
    if place.near or is_below(at.root, place.path):  # `../other` is a neighbour, wherever the project lies
        return "outside"
    for folder in _temporary_folders(at):
        if is_below(place.path, folder) and (place.path != folder or place.tail in ("some", "maybe")):
            return "temporary"
    return "outside"


def _temporary_folders(at: Ground) -> set[str]:
    named = os.environ.get("TMPDIR", "")
    folders = {"/tmp", "/var/tmp", "/dev/shm", *([named] if named.startswith("/") else [])}  # noqa: S108
    real = {os.path.realpath(folder) for folder in folders}
    return {folder for folder in real if not is_below(at.home, folder) and folder != "/"}


def path_in_project(place: Place, at: Ground) -> str:
    """The path from the project's root; empty where it is not in it."""
    inside = is_below(place.path, at.root) and place.path != at.root
    return place.path[len(at.root.rstrip("/")) + 1 :] if inside else ""


# Files that hold secrets, by where they lie and what they are called.

# In the user's home: a file, or a folder with all that is in it.
SECRETS_AT_HOME = (
    ".ssh", ".aws", ".gnupg", ".kube", ".azure", ".docker/config.json", ".config/gh", ".config/hub", ".config/gcloud",
    ".config/op", ".config/rclone", ".config/git/credentials", ".config/doctl", ".config/heroku", ".config/glab-cli",
    ".password-store", ".local/share/keyrings", ".mozilla", ".config/google-chrome", ".config/chromium",
    "Library/Keychains", "Library/Application Support/Google/Chrome", ".netrc", "_netrc", ".pgpass", ".my.cnf",
    ".npmrc", ".yarnrc.yml", ".pypirc", ".git-credentials", ".gem/credentials", ".cargo/credentials",
    ".cargo/credentials.toml", ".m2/settings.xml", ".terraform.d/credentials.tfrc.json", ".vault-token",
    ".claude/.credentials.json", ".claude.json", ".codex/auth.json", ".gemini/oauth_creds.json",
    ".local/share/opencode/auth.json", ".bash_history", ".zsh_history", ".histfile", ".python_history",
    ".psql_history", ".mysql_history", ".node_repl_history", ".local/share/fish/fish_history", ".oci",
    ".config/configstore", ".boto", ".s3cfg", ".fly", ".wrangler",
)  # fmt: skip
SECRETS_OF_THE_SYSTEM = (
    "/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssl/private", "/run/secrets", "/var/run/secrets",
    "/etc/kubernetes", "/etc/security/opasswd",
)  # fmt: skip
PATHS_OF_SECRETS = r"/proc/[^/]+/(environ|mem)|/etc/ssh/ssh_host_\w+_key"
SECRET_NAMES_A_PATTERN_MEANS = (".env", ".env.local", ".netrc", "id_rsa", "id_ed25519")


def rule_against_reading(place: Place, word: str, at: Ground) -> str:
    """The rule against reading a file, by what it really is or by how it is written; empty where none is."""
    return "secret-file" if _is_secret(place, word, at) else ""


def _is_secret(place: Place, word: str, at: Ground) -> bool:
    if place.path and not place.tail and _is_secret_path(place.path, at):
        return True
    if (place.tail and place.path and _is_secret_folder(place.path, at)) or re.fullmatch(PATHS_OF_SECRETS, word):
        return True
    name = word.rstrip("/").rsplit("/", 1)[-1]
    if not re.search(r"[*?\[]", name):
        return is_secret_name(name)
    # A `*` in front stands for no name that begins with a dot.
    meant = [one for one in SECRET_NAMES_A_PATTERN_MEANS if one.startswith(".") == name.startswith(".")]
    return bool(name.strip("*")) and any(fnmatch.fnmatchcase(one, name) for one in meant)


def _is_secret_path(path: str, at: Ground) -> bool:
    name = path.rsplit("/", 1)[-1]
    if is_harmless_name(name) or path == f"{at.home}/.ssh/config":
        return False
    return _is_secret_folder(path, at) or bool(re.fullmatch(PATHS_OF_SECRETS, path)) or is_secret_name(name)


def _is_secret_folder(path: str, at: Ground) -> bool:
    folders = (*(f"{at.home}/{one}" for one in SECRETS_AT_HOME), *SECRETS_OF_THE_SYSTEM)
    return any(is_below(path, folder) for folder in folders)


def holds_secrets(place: Place, at: Ground) -> bool:
    """Whether a folder has the user's secrets somewhere in it."""
    return bool(place.path) and (is_below(at.home, place.path) or is_below(f"{at.home}/.config", place.path))


# Files that are not the agent's to change.

DEVICES = r"/dev/(?!(null|zero|full|u?random|tty|stdin|stdout|stderr|ptmx)$|(fd|pts|shm|tcp|udp|mqueue)(/|$)).+"
STARTUP_AT_HOME = (
    r"\.(bash|zsh|z|ksh|tcsh|csh)?(rc|_profile|_login|_logout|_aliases|env|profile|login|shenv|shrc)|\.profile"
    r"|\.xinitrc|\.xprofile|\.xsession|\.pam_environment|\.gitconfig|\.ssh/(authorized_keys2?|config|rc|environment)"
    r"|\.config/(autostart|systemd|fish|environment\.d|git|direnv)(/.*)?|Library/Launch(Agents|Daemons)(/.*)?"
)
STARTUP_OF_THE_SYSTEM = (
    r"/(etc/(cron[^/]*|profile(\.d)?|systemd|init\.d|rc\.local|rc\d?\.d|bash\.bashrc|zsh|environment|ld\.so\.preload"
    r"|xdg|ssh|pam\.d|udev)|var/spool/(cron|at)|(usr/)?lib/systemd|Library/Launch(Agents|Daemons))(/.*)?"
)
GIT_HOOKS = r"\.git/(hooks(/.*)?|config(\.worktree)?|info/attributes)"
HOOK_SETUP = r"\.husky(/.*)?|\.pre-commit-config\.yaml|\.?lefthook\.ya?ml"
GIT_FOLDER = r"(.*/)?\.git(/(?!info/exclude$).*)?"
# Of `.ralph` a run's task folder is the agent's: there it leaves its files.
AGENT_SETTINGS = (
    r"\.ralph(?!/runs/[^/]+/task(/|$))(/.*)?|\.ralph-active|\.mcp\.json|\.claude/(settings[^/]*\.json|hooks(/.*)?)"
    r"|\.codex(/.*)?|\.gemini/settings\.json|\.qwen/settings\.json|opencode\.json"
)
AGENT_SETTINGS_AT_HOME = r"\.(claude|codex|gemini|qwen)(/.*)?|\.claude\.json"
LOOP_STATE = r"\.ralph(?!/runs/[^/]+/task/.)(/.*)?|\.ralph-active|ralph|ralph/tasks\.json"


def rule_against_writing(place: Place, at: Ground) -> str:
    """The rule against writing a file; empty where none is."""
    if re.fullmatch(DEVICES, place.path):
        return "device-write"
    if _is_in_task_folder(place, at):
        return ""
    inner = path_in_project(place, at)
    at_home = place.path[len(at.home) + 1 :] if is_below(place.path, at.home) else ""
    if re.fullmatch(GIT_HOOKS, inner):
        return "hook-write"
    if re.fullmatch(AGENT_SETTINGS, inner) or re.fullmatch(AGENT_SETTINGS_AT_HOME, at_home):
        return "agent-settings"
    if re.fullmatch(STARTUP_AT_HOME, at_home) or re.fullmatch(STARTUP_OF_THE_SYSTEM, place.path):
        return "startup-write"
    if inner and any(is_protected(pattern, inner) for pattern in at.protected):
        return "protected-path"
    if re.fullmatch(GIT_FOLDER, inner):
        return "git-files"
    return "outside-write" if zone(place, at) == "outside" and not _is_stream(place.path) else ""


def rule_against_deleting(place: Place, at: Ground, recursive: bool) -> str:
    """The rule against deleting a file or a folder; empty where none is."""
    where, inner = zone(place, at), path_in_project(place, at)
    if _is_in_task_folder(place, at):
        return ""
    if where == "unknown":
        return "unknown-delete" if recursive else ""
    if re.fullmatch(DEVICES, place.path):
        return "device-write"
    if (re.fullmatch(GIT_HOOKS, inner) and inner != ".git/hooks") or re.fullmatch(HOOK_SETUP, inner):
        return "hook-write"
    if re.fullmatch(GIT_FOLDER, inner):
        return "git-files"
    if re.fullmatch(LOOP_STATE, inner):
        return "loop-state"
    if re.fullmatch(AGENT_SETTINGS, inner):
        return "agent-settings"
    if where == "root":
        return "project-delete" if recursive or place.tail else ""
    if inner and any(is_protected(pattern, inner, recursive) for pattern in at.protected):
        return "protected-path"
    return "outside-delete" if where == "outside" and not _is_stream(place.path) else ""


def _is_in_task_folder(place: Place, at: Ground) -> bool:
    """Whether it lies in the folder that the user chose for the agent's own files, wherever that is."""
    below = bool(at.task_folder) and is_below(place.path, at.task_folder)
    return below and (place.path != at.task_folder or bool(place.tail))


def _is_stream(path: str) -> bool:
    return path.startswith("/dev/") and not path.startswith("/dev/shm/") and not re.fullmatch(DEVICES, path)  # noqa: S108


def is_protected(pattern: str, path: str, with_parents: bool = False) -> bool:
    """Whether a path from the root is one that a pattern of `protectedPaths` means, or lies below it.

    `with_parents`: folders above it count too. The patterns mean what the workspace means by them.
    """
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    if not parts or ".git" in path.split("/"):
        return False
    if len(parts) == 1 and re.search(r"[*?]", pattern):
        parts = ["**", *parts]  # as in a .gitignore: in every folder
    translated = ""
    for place, part in enumerate(parts):
        last = place == len(parts) - 1
        if part == "**":
            translated += "[^/]+" if last else "(?:[^/]+/)*"
        else:
            pieces = re.findall(r"(?s)\\?.", part)
            special = {"*": "[^/]*", "?": "[^/]"}
            translated += "".join(special.get(piece) or re.escape(piece[-1]) for piece in pieces) + (
                "" if last else "/"
            )
    if re.fullmatch(f"(?s){translated}(/.*)?", path):
        return True
    return with_parents and re.sub(r"\\(.)", r"\1", "/".join(parts)).startswith(path + "/")
