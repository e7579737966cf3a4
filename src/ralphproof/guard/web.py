"""Rules on addresses: local, private, or carrying data away."""

from __future__ import annotations

import re

from ralphproof.guard.simple import UNKNOWN
from ralphproof.guard.verdict import Rule

METADATA = Rule(
    "cloud-metadata", "secrets", "asks a cloud's metadata service, which hands out credentials",
    "do without it",
)  # fmt: skip
LOCAL_FILE = Rule(
    "file-address", "secrets", "reads a file of the machine by its address",
    "read files of the project by path",
)  # fmt: skip
PRIVATE = Rule(
    "private-address", "exfiltration", "asks an address of the private network around this machine",
    "use public addresses, or localhost for what you have started yourself",
)  # fmt: skip
CARRIES = Rule("secret-in-address", "exfiltration", "carries a secret away in an address", "leave the secret out")
RULES = (METADATA, LOCAL_FILE, PRIVATE, CARRIES)
ADDRESS = re.compile(r"(?:([a-zA-Z][\w+.-]*):/{1,3})?(?:[^@/\s]*@)?(\[[^\]]*\]|[^:/?#\s]*)", re.DOTALL)
METADATA_HOSTS = {
    "169.254.169.254", "169.254.170.2", "metadata.google.internal", "metadata", "100.100.100.200", "fd00:ec2::254",
    "instance-data",
}  # fmt: skip
LOCAL = re.compile(r"localhost|.*\.localhost|127(\.\d+){1,3}|::1|0|0\.0\.0\.0|host\.docker\.internal|.*\.test")
PRIVATE_HOSTS = re.compile(
    r"10(\.\d+){3}|192\.168(\.\d+){2}|172\.(1[6-9]|2\d|3[01])(\.\d+){2}|169\.254(\.\d+){2}|f[cd][0-9a-f]{2}:.*|fe80:.*"
    r"|.*\.(internal|local|lan|corp|intranet)"
)  # fmt: skip


def parts(address: str) -> tuple[str, str]:
    """(scheme, host) of an address as somebody wrote it."""
    found = ADDRESS.match(address.strip())
    scheme, host = (found[1] or "", found[2]) if found else ("", "")
    return scheme.lower(), number(host.strip("[]").lower().rstrip("."))


def number(host: str) -> str:
    """An address that is written as one number, or with hexadecimal or octal parts, in its usual form."""
    if not re.fullmatch(r"(0x[0-9a-f]+|\d+)(\.(0x[0-9a-f]+|\d+)){0,3}", host) or len(host) > 60:
        return host.removeprefix("::ffff:")
    pieces = [
        int(one, 16) if one.startswith("0x") else int(one, 8) if re.fullmatch("0[0-7]+", one) else int(one)
        for one in host.split(".")
    ]
    if any(piece > 255 for piece in pieces[:-1]) or pieces[-1] >= 256 ** (5 - len(pieces)):
        return host
    whole = sum(piece << (8 * (3 - place)) for place, piece in enumerate(pieces[:-1])) + pieces[-1]
    return ".".join(str(whole >> shift & 255) for shift in (24, 16, 8, 0))


def is_local(address: str) -> bool:
    """Whether an address is this machine's own."""
    return bool(LOCAL.fullmatch(parts(address)[1]))


def to_fetch(address: str) -> Rule | None:
    """Why an address should not be asked."""
    scheme, host = parts(address)
    if host in METADATA_HOSTS:
        return METADATA
    if scheme in ("file", "view-source", "data", "javascript"):
        return LOCAL_FILE
    if PRIVATE_HOSTS.fullmatch(host):
        return PRIVATE
    from ralphproof.base.redaction import mask_text

    return CARRIES if mask_text(address, ()) != address or UNKNOWN in host else None
