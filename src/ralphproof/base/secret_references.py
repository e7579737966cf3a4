"""Secrets in stored texts, replaced by references to environment variables, and names of secret files."""

from __future__ import annotations

import fnmatch
import re

from ralphproof.base.errors import Refused
from ralphproof.base.redaction import find_environment_secrets
from ralphproof.base.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ralphproof.base.value import Json


REFERENCE_DELIMITER = "\x1a"  # no command line and no prompt holds it


def replace_secrets(data: Json, environ: Mapping[str, str], mask: Callable[[str], str]) -> Json:
    """The value without secrets: those of the environment become references that can be resolved, others are masked."""
    names = {
        secret: reference
        for secret in find_environment_secrets(environ)
        if (reference := _make_reference(secret, environ))
    }

    def hide(text: str) -> str:
        for secret, reference in names.items():
            text = text.replace(secret, reference)
        return mask(text)

    return map_strings(data, hide)


def resolve_secrets(data: Json, environ: Mapping[str, str]) -> Json:
    """The value with references resolved from the present environment; raises Refused where a variable is missing."""

    def reveal(text: str) -> str:
        pieces = text.split(REFERENCE_DELIMITER)
        return "".join(_resolve_reference(piece, environ) if place % 2 else piece for place, piece in enumerate(pieces))

    return map_strings(data, reveal)


def _make_reference(secret: str, environ: Mapping[str, str]) -> str:
    """A reference to the variable whose value is the secret or contains it."""
    for name, text in environ.items():
        if text.strip() == secret:
            return f"{REFERENCE_DELIMITER}{name}{REFERENCE_DELIMITER}"
    for name, text in environ.items():
        if (at := text.find(secret)) >= 0:
            return f"{REFERENCE_DELIMITER}{name}:{at}:{len(secret)}{REFERENCE_DELIMITER}"
    return ""


def _resolve_reference(reference: str, environ: Mapping[str, str]) -> str:
    name, _, part = reference.partition(":")
    if name not in environ:
        raise Refused(f"this run was begun with the value of {name}, which is not set now; set it")
    at, _, length = part.partition(":")
    if not (at.isdigit() and length.isdigit()):
        return environ[name].strip()
    return environ[name][int(at) : int(at) + int(length)]


def map_strings(data: Json, change: Callable[[str], str]) -> Json:
    """The value with every string in it mapped; keys stay."""
    if isinstance(data, str):
        return change(data)
    if isinstance(data, list):
        return [map_strings(item, change) for item in data]
    return {name: map_strings(item, change) for name, item in data.items()} if isinstance(data, dict) else data


SECRET_NAMES = (
    ".env", ".env.*", "*.env", ".envrc", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "*_rsa", "*_ed25519", ".netrc",
    ".pgpass", ".git-credentials", ".htpasswd", "master.key", "credentials.key", "*.kdbx", "*.p12", "*.pfx",
    "*.keystore",
    "*-key.pem", "*_key.pem", "*.ppk", "private*.pem", "private*.key", "service-account*.json", "terraform.tfstate",
    "*.tfvars.secret", "credentials.json", "client_secret*.json", "secrets.yml", "secrets.yaml", "secrets.json",
    "secrets.toml", ".pypirc", ".dockercfg",
)  # fmt: skip
HARMLESS_NAMES = re.compile(
    r".*\.(pub|example|sample|template|tmpl|dist|defaults?|schema|md|d\.ts)|known_hosts.*|example\.env"
)


def is_secret_name(name: str) -> bool:
    """Whether a file of this name holds secrets, in any folder."""
    return not HARMLESS_NAMES.fullmatch(name) and any(fnmatch.fnmatchcase(name, one) for one in SECRET_NAMES)
