"""Detection of files that look like secrets, by name or content."""

from __future__ import annotations

import fnmatch
import re

from ralphproof.base.redaction import StreamMasker
from ralphproof.base.secret_references import HARMLESS_NAMES, is_secret_name

SECRET_FILE_PATTERNS = (
    "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "credentials*.json", "service[-_]account*.json",
    "*.tfstate", "*.tfstate.backup", "id_ecdsa_sk", "id_ed25519_sk",
)  # fmt: skip
TOKEN_FILES = (".npmrc", ".pypirc", ".netrc", "_netrc", ".yarnrc.yml")  # often without one, and then harmless
TOKEN_PATTERN = re.compile(
    rb"(?im)(?:_auth(?:token)?|_password|npmAuthToken|password|passwd)[\"']?\s*[=:\s]\s*[\"']?[^\s\"'$]"
)
PRIVATE_KEY_PATTERN = re.compile(rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----")
SECRET_NAME, CONTAINS_TOKEN, CONTAINS_KEY = (
    "its name is that of a secret",
    "it holds a token or a password",
    "it holds a key",
)


def secret_reason(path: str, content: bytes, before: bytes | None) -> str:
    """Why a file looks secret; empty where it does not. `before` is its content in the parent commit.

    A tracked file is judged by its new content only: its name was the user's choice.
    """
    name = path.rsplit("/", 1)[-1].lower()
    if name in TOKEN_FILES:
        return (
            CONTAINS_TOKEN
            if _token_lines(content) - _token_lines(before or b"")
            else _key_reason(content, before or b"")
        )
    if before is None and _has_secret_name(name):
        return SECRET_NAME
    return _key_reason(content, before or b"")


def _has_secret_name(name: str) -> bool:
    ours = any(fnmatch.fnmatchcase(name, one) for one in SECRET_FILE_PATTERNS) and not HARMLESS_NAMES.fullmatch(name)
    return ours or is_secret_name(name)


def _token_lines(content: bytes) -> set[bytes]:
    return {line for line in content.splitlines() if TOKEN_PATTERN.search(line)}


def _key_reason(content: bytes, before: bytes) -> str:
    """A key that the file had before, as in a test fixture, does not count."""
    if PRIVATE_KEY_PATTERN.search(content) and not PRIVATE_KEY_PATTERN.search(before):
        return CONTAINS_KEY
    return CONTAINS_KEY if _key_lines(content) - _key_lines(before) else ""


def _key_lines(content: bytes) -> set[bytes]:
    """The lines that contain something shaped like a well-known key."""
    if not content or StreamMasker(()).flush(content) == content:
        return set()
    return {line for line in content.split(b"\n") if StreamMasker(()).flush(line) != line}
