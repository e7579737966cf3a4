"""Which rule speaks against asking an address: local, private, or carrying data away."""

from __future__ import annotations

import re

from ralphproof.base.shell import UNKNOWN

ADDRESS = re.compile(r"(?:([a-zA-Z][\w+.-]*):/{1,3})?(?:[^@/\s]*@)?(\[[^\]]*\]|[^:/?#\s]*)", re.DOTALL)
METADATA_HOSTS = {
    "169.254.169.254", "169.254.170.2", "metadata.google.internal", "metadata", "100.100.100.200", "fd00:ec2::254",
    "instance-data",
}  # fmt: skip
LOCAL_HOSTS = r"localhost|.*\.localhost|127(\.\d+){1,3}|::1|0|0\.0\.0\.0|host\.docker\.internal|.*\.test"
PRIVATE_HOSTS = (
    r"10(\.\d+){3}|192\.168(\.\d+){2}|172\.(1[6-9]|2\d|3[01])(\.\d+){2}|169\.254(\.\d+){2}|f[cd][0-9a-f]{2}:.*|fe80:.*"
    r"|.*\.(internal|local|lan|corp|intranet)"
)


def split_address(address: str) -> tuple[str, str]:
    """(scheme, host) of an address as somebody wrote it."""
    found = ADDRESS.match(address.strip())
    scheme, host = (found[1] or "", found[2]) if found else ("", "")
    return scheme.lower(), _usual_form(host.strip("[]").lower().rstrip("."))


def _usual_form(host: str) -> str:
    """A host that is written as one number, or with hexadecimal or octal parts, as four decimal numbers."""
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
    return bool(re.fullmatch(LOCAL_HOSTS, split_address(address)[1]))


def rule_against_fetching(address: str) -> str:
    """The rule against asking an address; empty where none is."""
    scheme, host = split_address(address)
    if host in METADATA_HOSTS:
        return "cloud-metadata"
    if scheme in ("file", "view-source", "data", "javascript"):
        return "file-address"
    if re.fullmatch(PRIVATE_HOSTS, host):
        return "private-address"
    return "secret-in-address" if holds_secret(address) or UNKNOWN in host else ""


def holds_secret(text: str) -> bool:
    """Whether a text has the shape of a known kind of secret in it."""
    from ralphproof.base.redaction import mask_text

    return mask_text(text, ()) != text
