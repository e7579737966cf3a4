"""Paths that hold secrets, such as private keys and .env files."""

from __future__ import annotations

import fnmatch
import re

from ralphproof.base.secret_references import HARMLESS_NAMES, is_secret_name
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.guard.place import Spot, below

if TYPE_CHECKING:
    from ralphproof.guard.verdict import Ground


# Files that hold secrets, by where they lie and what they are called.


# In the user's home: a file, or a folder with all that is in it.
AT_HOME = (
    ".ssh", ".aws", ".gnupg", ".kube", ".azure", ".docker/config.json", ".config/gh", ".config/hub", ".config/gcloud",
    ".config/op", ".config/rclone", ".config/git/credentials", ".config/doctl", ".config/heroku", ".config/glab-cli",
    ".password-store", ".local/share/keyrings", ".mozilla", ".config/google-chrome", ".config/chromium",
    "Library/Keychains", "Library/Application Support/Google/Chrome", ".netrc", "_netrc", ".pgpass", ".my.cnf",
    ".npmrc",
    ".yarnrc.yml", ".pypirc", ".git-credentials", ".gem/credentials", ".cargo/credentials", ".cargo/credentials.toml",
    ".m2/settings.xml", ".terraform.d/credentials.tfrc.json", ".vault-token", ".claude/.credentials.json",
    ".claude.json",
    ".codex/auth.json", ".gemini/oauth_creds.json", ".local/share/opencode/auth.json", ".bash_history", ".zsh_history",
    ".histfile", ".python_history", ".psql_history", ".mysql_history", ".node_repl_history",
    ".local/share/fish/fish_history",
    ".oci", ".config/configstore", ".boto", ".s3cfg", ".fly", ".wrangler",
)  # fmt: skip
ANYWHERE = (
    "/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssl/private", "/run/secrets", "/var/run/secrets",
    "/etc/kubernetes", "/etc/security/opasswd",
)  # fmt: skip
PATHS = re.compile(r"/proc/[^/]+/(environ|mem)|/etc/ssh/ssh_host_\w+_key")
SPELLED = (".env", ".env.local", ".netrc", "id_rsa", "id_ed25519")  # that a pattern of names may stand for


def is_secret(place: Spot, word: str, at: Ground) -> bool:
    """Whether a path, by what it really is or by how it is written, holds secrets."""
    if place.path and not place.tail and _secret_path(place.path, at):
        return True
    if place.tail and place.path and _secret_folder(place.path, at):
        return True
    name = word.rstrip("/").rsplit("/", 1)[-1]
    if re.search(r"[*?\[]", name):
        return bool(name.strip("*")) and any(fnmatch.fnmatchcase(one, name) for one in SPELLED if _dotted(one, name))
    return is_secret_name(name)


def _dotted(one: str, pattern: str) -> bool:
    """A `*` in front stands for no name that begins with a dot."""
    return one.startswith(".") == pattern.startswith(".")


def _secret_path(path: str, at: Ground) -> bool:
    name = path.rsplit("/", 1)[-1]
    if HARMLESS_NAMES.fullmatch(name) or path == f"{at.home}/.ssh/config":
        return False
    return _secret_folder(path, at) or bool(PATHS.fullmatch(path)) or is_secret_name(name)


def _secret_folder(path: str, at: Ground) -> bool:
    return any(below(path, f"{at.home}/{one}") for one in AT_HOME) or any(below(path, one) for one in ANYWHERE)


def holds_secrets(place: Spot, at: Ground) -> bool:
    """Whether a folder has the user's secrets somewhere in it."""
    return bool(place.path) and (below(at.home, place.path) or below(f"{at.home}/.config", place.path))
