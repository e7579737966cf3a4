"""Which files must not leave this machine in a commit: those that look like secrets, by name or by what they hold."""

from __future__ import annotations

import fnmatch
import re

from ralphproof.guard.secret_paths import HARMLESS, secret_name
from ralphproof.secret import Masker

NAMES = (
    "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "credentials*.json", "service[-_]account*.json",
    "*.tfstate", "*.tfstate.backup", "id_ecdsa_sk", "id_ed25519_sk",
)  # fmt: skip
TOKEN_FILES = (".npmrc", ".pypirc", ".netrc", "_netrc", ".yarnrc.yml")  # often without one, and then harmless
TOKEN = re.compile(rb"(?im)(?:_auth(?:token)?|_password|npmAuthToken|password|passwd)[\"']?\s*[=:\s]\s*[\"']?[^\s\"'$]")
PRIVATE_KEY = re.compile(rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----")
BY_NAME, BY_TOKEN, BY_KEY = "its name is that of a secret", "it holds a token or a password", "it holds a key"


def why_secret(path: str, content: bytes, before: bytes | None) -> str:
    """Why a file looks secret; empty where it does not. `before` is what the parent commit has there.

    A file that is tracked already is judged by what it newly holds: its name was the user's choice.
    """
    name = path.rsplit("/", 1)[-1].lower()
    if name in TOKEN_FILES:
        return BY_TOKEN if _tokens(content) - _tokens(before or b"") else _by_key(content, before or b"")
    if before is None and _secret_by_name(name):
        return BY_NAME
    return _by_key(content, before or b"")


def _secret_by_name(name: str) -> bool:
    ours = any(fnmatch.fnmatchcase(name, one) for one in NAMES) and not HARMLESS.fullmatch(name)
    return ours or secret_name(name)


def _tokens(content: bytes) -> set[bytes]:
    return {line for line in content.splitlines() if TOKEN.search(line)}


def _by_key(content: bytes, before: bytes) -> str:
    """A key that stood in the file before, as in the fixture of a test, is no news."""
    if PRIVATE_KEY.search(content) and not PRIVATE_KEY.search(before):
        return BY_KEY
    return BY_KEY if _keys(content) - _keys(before) else ""


def _keys(content: bytes) -> set[bytes]:
    """The lines that hold a text shaped like a well-known key."""
    if not content or Masker(()).flush(content) == content:
        return set()
    return {line for line in content.split(b"\n") if Masker(()).flush(line) != line}
