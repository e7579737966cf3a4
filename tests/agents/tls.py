"""A certificate that only those trust who are told to, for a model that is asked over TLS."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

CERTIFICATE, KEY = "certificate.pem", "key.pem"


def certified(host: str, folder: Path) -> Path:
    """Make a certificate for this host, and its key, in the folder; the certificate."""
    folder.mkdir(parents=True, exist_ok=True)
    argv = (
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
        "-subj", f"/CN={host}", "-addext", f"subjectAltName=DNS:{host}", "-keyout", folder / KEY, "-out",
        folder / CERTIFICATE,
        "-addext", "basicConstraints=CA:FALSE",  # Codex takes none that could sign others for a server's own (0.166)
    )  # fmt: skip
    subprocess.run(argv, check=True, capture_output=True)
    return folder / CERTIFICATE


def serving(folder: Path | None) -> ssl.SSLContext | None:
    """How a server shows what is in the folder; None without one."""
    if folder is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / CERTIFICATE, folder / KEY)
    return context
