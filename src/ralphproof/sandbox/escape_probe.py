"""Program that runs inside a sandbox and tries to escape: `python -I -S escape_probe.py WHAT`; it prints JSON.

WHAT is JSON: `root` (writable), `outside` (a folder), `hidden` (a file), `held` (a read-only file in the root; empty if
the back end cannot protect paths), `port` (of this machine's loopback) and `pid` (of a process outside). The output
names what was open and should be closed, and what was closed and should be open.
"""

from __future__ import annotations

import os
import sys

KERNEL_SETTING = "/proc/sys/kernel/core_pattern"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def main() -> None:
    import json

    what = json.loads(sys.argv[1])
    open_, closed = [], []
    for name, attempt in _find_escapes(what).items():
        if _succeeds(attempt):
            open_.append(name)
    if not _succeeds(lambda: _write(os.path.join(what["root"], "probe"))):
        closed.append("the project may not be written")
    if not _succeeds(lambda: _write(os.path.join(os.environ.get("TMPDIR", "/tmp"), "probe"))):  # noqa: S108
        closed.append("there is no temporary folder")
    os.write(1, json.dumps({"open": open_, "closed": closed}).encode() + b"\n")


def _find_escapes(what: dict[str, str]) -> dict[str, Callable[[], object]]:
    tries: dict[str, Callable[[], object]] = {
        "files outside the project can be written": lambda: _write(os.path.join(what["outside"], "probe")),
        "files outside the project can be read": lambda: _read(what["hidden"]),
        "this machine's ports can be reached": lambda: _connect(int(what["port"])),
        "other processes can be signalled": lambda: os.kill(int(what["pid"]), 0),
        "it has capabilities": _require_capabilities,
        "what the kernel starts by itself can be set": lambda: os.close(os.open(KERNEL_SETTING, os.O_WRONLY)),
    }
    if what["held"]:
        tries["protected paths can be written"] = lambda: _write(what["held"])
    return tries


def _succeeds(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except OSError:
        return False
    return True


def _write(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))


def _read(path: str) -> None:
    file = os.open(path, os.O_RDONLY)
    os.read(file, 1)
    os.close(file)


def _connect(port: int) -> None:
    import _socket

    made = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    made.settimeout(2.0)
    made.connect(("127.0.0.1", port))


def _require_capabilities() -> None:
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        held = next((line.split()[1] for line in file if line.startswith("CapEff")), "0")
    if not int(held, 16):
        raise PermissionError


if __name__ == "__main__":
    main()
