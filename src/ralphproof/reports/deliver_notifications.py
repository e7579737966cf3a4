"""Program that delivers notifications in a process of its own; it reads the order from standard input.

Targets hold secrets, so they are not arguments, which every user of the machine can see. Whatever happens to the
harness, the program and its children end after `TIME_LIMIT_S` and `EXIT_GRACE_S`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from signal import SIGKILL
from typing import Any, NoReturn

from ralphproof.reports.addresses import DESKTOP_TARGET, WEB_SCHEMES, needs_apprise, url_scheme

Event = dict[str, Any]


TIME_LIMIT_S = 10
EXIT_GRACE_S = 2
END_OF_REPORT = b"."  # shows that the report is complete
MISSING_APPRISE = "needs apprise; pip install 'ralphproof[notify]'"
APPRISE_TYPES = {"COMPLETED": "success", "ABORTED": "failure", "ERROR": "failure"}
DESKTOP_SERVICES = {"darwin": ("macosx://",), "win32": ("windows://",)}
LINUX_DESKTOP_SERVICES = ("dbus://", "glib://", "gnome://")  # the first one whose Python packages are installed is used
EVENT_VARIABLES = {"EVENT": "event", "RUN_ID": "run", "TITLE": "title", "MESSAGE": "message", "STATUS": "status"}
_SUBREAPER = 36


def apprise_services(target: str, event: Event, platform: str) -> tuple[Any, ...]:
    """Candidate services for apprise, the best first."""
    if target == DESKTOP_TARGET:
        return DESKTOP_SERVICES.get(platform, LINUX_DESKTOP_SERVICES)
    return (webhook_service(target, event),) if url_scheme(target) in WEB_SCHEMES else (target,)


def webhook_service(target: str, event: Event) -> dict[str, Any]:
    """A POST of the event to exactly this address: a json:// address would lose its query."""
    from urllib.parse import urlsplit

    parts = urlsplit(target)
    host = parts.hostname or ""
    return {
        "schema": "jsons" if parts.scheme == "https" else "json",
        "host": f"[{host}]" if ":" in host else host,
        "port": parts.port,
        "user": parts.username,
        "password": parts.password,
        "fullpath": (parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
        "redirect": "no",  # a redirected POST becomes a GET without its body
        "payload": {name: field for name, field in event.items() if name not in ("title", "message")}
        | {"version": "", "attachments": ""},  # empty: apprise leaves them out
    }


def send_by_apprise(target: str, events: list[Event]) -> str:
    """Send the events; the reason if one failed. Messages of apprise are not used: they may hold the address."""
    try:
        import apprise
    except ImportError:
        return MISSING_APPRISE
    asset = apprise.AppriseAsset(app_id="ralph", app_desc="ralph", async_mode=False)
    why = ""
    for event in events:
        candidates = apprise_services(target, event, sys.platform)
        services = (apprise.Apprise.instantiate(candidate, asset) for candidate in candidates)
        service = next(filter(None, services), None)
        if service is None and target == DESKTOP_TARGET:
            return f"apprise can use none of {', '.join(candidates)} here"
        if service is None:
            return "is unknown to apprise"
        sender, kind = apprise.Apprise(service, asset=asset), APPRISE_TYPES.get(event["status"], "warning")
        with apprise.LogCapture(level=apprise.logging.WARNING) as log:  # type: ignore[no-untyped-call]
            sent = sender.notify(event["message"], event["title"], kind, apprise.NotifyFormat.TEXT)
            why = why if sent else _failure_reason(log.getvalue())
    return why


def _failure_reason(log: str) -> str:
    if found := re.search(r"error=(\d{3})\b", log):
        return f"answered {found[1]}"
    return "no connection, or no answer in time" if "onnection" in log else "apprise could not deliver it"


def run_notify_command(command: str, events: list[Event]) -> str:
    """Run the command for each event; the reason if one failed."""
    program, *rest = shlex.split(command)
    quiet, why = subprocess.DEVNULL, ""
    for event in events:
        env = os.environ | {f"RALPH_{name}": str(event[key]) for name, key in EVENT_VARIABLES.items()}
        argv, payload = [os.path.expanduser(program), *rest], json.dumps(event).encode()
        try:
            code = subprocess.run(argv, input=payload, env=env, stdout=quiet, stderr=quiet, check=False).returncode
        except OSError as error:
            return f"cannot be started: {error.strerror}"
        why = (f"ended with exit code {code}" if code > 0 else f"ended by signal {-code}") if code else why
    return why


class DeliveryStopped(Exception):
    """The time is up, or the harness asked to stop."""


def main() -> NoReturn:
    """Deliver the order, report failures on standard output, and leave no process behind."""

    def stop(number: int, _: object) -> None:
        raise DeliveryStopped(
            f"took longer than {TIME_LIMIT_S} s" if number == signal.SIGALRM else "was not done when the run was over"
        )

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGALRM, stop)
    signal.alarm(TIME_LIMIT_S)
    os.closerange(3, 1 + max(map(int, os.listdir("/dev/fd"))))  # files that were inherited from the harness
    report_fd = os.dup(1)
    os.dup2(2, 1)
    order = json.loads(sys.stdin.buffer.read())
    if os.path.isdir(order["root"]):
        os.chdir(order["root"])
    faults = _deliver(order["targets"], order["events"], report_fd)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(EXIT_GRACE_S)  # even if a child cannot be ended
    for place, why in faults.items():
        _write_report(report_fd, f"{place} {why}\n".encode())
    _write_report(report_fd, END_OF_REPORT)
    _end_children()
    os.killpg(0, signal.SIGKILL)
    raise SystemExit


def _deliver(targets: list[str], events: list[Event], report_fd: int) -> dict[int, str]:
    """Start a process for each target, so that none waits for another; the failures that they did not report."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)  # processes that commands leave behind become our children
    working: dict[int, int] = {}
    faults: dict[int, str] = {}
    try:
        for place, target in enumerate(targets):
            working[_start_target(place, target, events, report_fd)] = place
        while True:
            pid, status = os.waitpid(-1, 0)
            place = working.pop(pid, -1)
            if status and place >= 0:
                faults[place] = "the delivery itself broke down"
    except ChildProcessError:
        return faults
    except DeliveryStopped as reason:
        return faults | dict.fromkeys(working.values(), str(reason))


def _start_target(place: int, target: str, events: list[Event], report_fd: int) -> int:
    if pid := os.fork():
        return pid
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        if why := (send_by_apprise if needs_apprise([target]) else run_notify_command)(target, events):
            _write_report(report_fd, f"{place} {why}\n".encode())
        code = 0
    finally:
        os._exit(code)


def _write_report(report_fd: int, text: bytes) -> None:
    try:
        os.write(report_fd, text)
    except OSError:
        return  # the harness is gone


def _end_children() -> None:
    """Kill the processes that commands left, in any process group, until no more become our children."""
    while left := _children():
        for pid in left:
            os.kill(pid, SIGKILL)
            os.waitpid(pid, 0)


def _children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as listing:
            return [int(pid) for pid in listing.read().split()]
    except OSError:
        return []  # without /proc only our process group is ended
