from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ralphproof.base.value import replace
from ralphproof.engine.records import Noticed, TurnBegan, TurnRetried
from ralphproof.process.tree import become_subreaper
from ralphproof.reports.deliver_notifications import MISSING_APPRISE
from ralphproof.reports.notifications import NotificationObserver
from tests.reports.post import (
    BEFORE,
    ENDED,
    born,
    events,
    need_apprise,
    notify,
    open_to_others,
    running,
    serving,
    until,
    warned,
    writing,
)

SOURCE = Path(__file__).resolve().parents[2] / "src"


@pytest.fixture(autouse=True)
def _known() -> None:
    """Children that were there before a test are none of its own."""
    BEFORE[:] = []
    BEFORE[:] = born()


@pytest.fixture
def nap() -> Iterator[str]:
    """`sleep` for so long is ours alone, and nobody sleeps so any more when a test is over."""
    seconds = f"{os.getpid() + 1000}.{time.monotonic_ns()}"
    yield f"sleep {seconds}"
    assert running(f"sleep {seconds}") == []


def ticked(told: NotificationObserver) -> bool:
    told.tick()
    return True


def test_a_command_gets_the_event_on_standard_input_and_in_its_environment(tmp_path: Path) -> None:
    seen = tmp_path / "env"
    told = notify(writing(tmp_path / "in"), f"sh -c 'env > {seen}; pwd >> {seen}'", root=tmp_path)
    told.on_record(Noticed(1, 1, "nothing to tell"))
    told.on_record(ENDED)
    told.close()
    assert told.failures == []
    (event,) = events(tmp_path / "in")
    assert (event["event"], event["run"], event["project"]) == ("run.ended", "run-1", "calc")
    assert (event["status"], event["iterations"], event["costUSD"], event["exitCode"]) == ("COMPLETED", 3, 0.12, 0)
    env = seen.read_text().splitlines()
    assert {"RALPH_EVENT=run.ended", "RALPH_RUN_ID=run-1", "RALPH_STATUS=COMPLETED"} <= {*env}
    assert {"RALPH_MESSAGE=3 iterations, 12 s, cost $0.12", "RALPH_TITLE=calc: COMPLETED, verified"} <= {*env}
    assert f"PATH={os.environ['PATH']}" in env
    assert env[-1] == str(tmp_path)


def test_no_shell_reads_a_command(tmp_path: Path) -> None:
    told = notify(f"touch '{tmp_path}/a b' '{tmp_path}/$HOME;x'")
    told.on_record(ENDED)
    told.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["$HOME;x", "a b"]


def test_the_end_is_told_once_and_nothing_after_it(tmp_path: Path) -> None:
    told = notify(writing(tmp_path / "in"))
    for record in (ENDED, ENDED, warned(1)):
        told.on_record(record)
    told.close()
    assert [event["event"] for event in events(tmp_path / "in")] == ["run.ended"]


def test_a_webhook_is_posted_to_the_address_as_it_was_given() -> None:
    need_apprise()
    with serving() as server:
        path = "/hooks/a%20b/c%2Fd?Token=1&x=%2F&Token=2&method=GET&flag"
        told = notify(f"http://me:pass%40word@{server.address}{path}")
        told.on_record(ENDED)
        told.close()
    assert told.failures == []
    ((line, headers, body),) = server.asked
    assert line == f"POST {path} HTTP/1.1"
    assert headers["Content-Type"] == "application/json"
    assert headers["Authorization"] == "Basic bWU6cGFzc0B3b3Jk"
    told_at = json.loads(body).pop("at")
    assert told_at.endswith("Z")
    assert json.loads(body) == {
        "v": 1, "event": "run.ended", "at": told_at, "run": "run-1", "project": "calc",
        "title": "calc: COMPLETED, verified",
        "message": "3 iterations, 12 s, cost $0.12", "type": "success", "status": "COMPLETED", "reason": "",
        "iterations": 3, "costUSD": 0.12,
        "cost": {"v": 1, "type": "money", "usd": 0.12, "atLeast": False, "notional": False},
        "durationSeconds": 12.5, "exitCode": 0, "verificationPassed": True,
    }  # fmt: skip


@pytest.mark.parametrize("status", [302, 403, 500])
def test_a_webhook_that_refuses_is_a_failure_without_its_secrets(status: int) -> None:
    need_apprise()
    with serving(status) as server:
        told = notify(f"http://user:hunter22@{server.address}/T0KEN?key=T0KEN")
        told.on_record(ENDED)
        told.close()
    assert told.failures == [f"notify: http://127.0.0.1: answered {status}"]
    assert len(server.asked) == 1


def test_addresses_that_nobody_answers_are_failures_without_their_secrets() -> None:
    need_apprise()
    with serving() as server:
        closed = server.address
    told = notify(f"http://{closed}/T0KEN", "slack://T0KEN", "nosuchscheme://T0KEN")
    told.on_record(ENDED)
    told.close()
    assert told.failures == [
        "notify: http://127.0.0.1: no connection, or no answer in time",
        "notify: slack://…: is unknown to apprise",
        "notify: nosuchscheme://…: is unknown to apprise",
    ]


def test_a_webhook_that_hangs_is_left_when_the_grace_is_over(tmp_path: Path) -> None:
    need_apprise()
    with serving(0) as server:
        told = notify(f"http://{server.address}/", writing(tmp_path / "in"))
        told.on_record(ENDED)
        until(lambda: server.asked and events(tmp_path / "in"))
        told.close(grace_s=0.1)
        assert born() == []
    assert told.failures == ["notify: http://127.0.0.1: was not done when the run was over"]


def test_a_command_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path, nap: str) -> None:
    told = notify(f"sh -c '{nap} & setsid {nap} & trap : TERM; {nap}; {nap}'", writing(tmp_path / "in"))
    told.on_record(ENDED)
    until(lambda: len(running(nap)) > 3 and events(tmp_path / "in"))  # the shell's own arguments count too
    told.close(grace_s=0.1)
    assert running(nap) == []
    assert born() == []
    assert told.failures == ["notify: sh: was not done when the run was over"]


@pytest.mark.parametrize("patience", [[0.0], [9.0, 0.1, 0.1, 9.0]], ids=["none", "a little, from some time on"])
def test_who_loses_patience_is_not_kept_waiting(nap: str, patience: list[float]) -> None:
    told = notify(nap)
    told.on_record(ENDED)
    until(lambda: running(nap))
    told.close(1e9, lambda: patience.pop(0) if len(patience) > 1 else patience[0])
    assert told.failures == ["notify: sleep: was not done when the run was over"]


def test_what_a_command_leaves_running_is_ended_too(tmp_path: Path, nap: str) -> None:
    told = notify(f"sh -c 'setsid {nap} >/dev/null & {nap} & echo > {tmp_path}/left'")
    told.on_record(ENDED)
    until((tmp_path / "left").exists)
    told.close(grace_s=0.1)
    assert running(nap) == []
    assert told.failures == []


def test_a_delivery_that_somebody_kills_leaves_nothing(nap: str) -> None:
    become_subreaper()  # as the harness is
    told = notify(nap)
    told.on_record(ENDED)
    until(lambda: running(nap))
    (child,) = born()
    os.kill(child, signal.SIGKILL)
    until(lambda: ticked(told) and running(nap) == [])
    told.close(grace_s=0.1)
    assert born() == []
    assert told.failures == ["notify: sleep: its delivery was cut off"]


def test_a_delivery_ends_by_itself_even_when_nobody_is_left_to_hear_of_it(nap: str) -> None:
    code = "from ralphproof.reports import deliver_notifications as deliver; deliver.LASTS_S = 1; deliver.main()"
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdout.close()  # as if the harness were gone
    order = {"targets": [f"sh -c 'setsid {nap} & {nap}; {nap}'"], "events": [event_of_a_run()], "root": "/"}
    child.stdin.write(json.dumps(order).encode())
    child.stdin.close()
    until(lambda: running(nap))
    child.wait(20)
    assert running(nap) == []


def event_of_a_run() -> dict[str, str]:
    return dict.fromkeys(("event", "run", "title", "message", "status"), "x")


def test_a_delivery_holds_nothing_open_that_others_left_open(nap: str) -> None:
    read, write = os.pipe()
    os.set_inheritable(write, True)
    told = notify(nap)
    told.on_record(ENDED)
    os.close(write)
    until(lambda: running(nap))
    assert select.select([read], [], [], 0)[0] == [read]  # its end
    os.close(read)
    told.close(grace_s=0.0)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("sh -c 'exit 3' T0KEN", "sh: ended with exit code 3"),
        ("sh -c 'kill -9 $$' T0KEN", "sh: ended by signal 9"),
        ("./nosuchprogram T0KEN", "nosuchprogram: cannot be started: No such file or directory"),
        ("sh -c 'yes T0KEN | head -c 9000000; yes T0KEN | head -c 9000000 >&2; exit 1'", "sh: ended with exit code 1"),
    ],
)
def test_a_command_that_fails_is_a_failure_without_its_arguments(command: str, why: str) -> None:
    told = notify(command)
    told.on_record(ENDED)
    told.close()
    assert told.failures == [f"notify: {why}"]


def test_secrets_of_targets_are_seen_by_nobody(tmp_path: Path, nap: str) -> None:
    environ = {**os.environ, "RALPH__NOTIFY": '["http://x/T0KEN"]'}
    told = notify(
        "http://127.0.0.1:9/T0KEN", "slack://T0KEN/T0KEN/T0KEN", f"sh -c 'env > {tmp_path}/env; {nap}'", environ=environ
    )
    told.on_record(ENDED)
    until(lambda: running(nap))
    family = born()
    for pid in family:
        family += born(pid)
    assert len(family) > 2
    assert [pid for pid in family if b"T0KEN" in open_to_others(pid)] == []
    told.close(grace_s=0.1)
    assert "T0KEN" not in (tmp_path / "env").read_text()
    assert "T0KEN" not in str(told.failures)


def test_a_flood_starts_few_processes_and_the_end_is_told_all_the_same(tmp_path: Path, nap: str) -> None:
    told = notify(f"sh -c 'grep -q run.ended && touch {tmp_path}/end; {nap}'")
    for number in range(100):
        told.on_record(warned(number))
        told.tick()
        assert len(born()) <= 1
    told.on_record(ENDED)
    assert len(born()) == 1
    end = tmp_path / "end"
    told.close(grace_s=30, patience_s=lambda: 0.0 if end.exists() else 30.0)
    assert end.exists()
    assert born() == []
    assert told.failures == ["notify: sh: some were left out: too many at once"]


def test_what_had_to_queue_is_told_in_order_as_soon_as_a_child_ends(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    told = notify(writing(tmp_path / "in", f"read go < {gate}"))
    for number in range(8):
        told.on_record(warned(number))
    assert len(born()) == 1
    keep = os.open(gate, os.O_RDWR)
    os.write(keep, b"go\n" * 8)
    until(lambda: ticked(told) and len(events(tmp_path / "in")) == 8)
    os.close(keep)
    told.close()
    assert [int(event["message"][-1]) for event in events(tmp_path / "in")] == [*range(8)]
    times = [event["at"] for event in events(tmp_path / "in")]
    assert times == sorted(times)
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", at) for at in times)
    assert told.failures == []


def began(place: int) -> TurnBegan:
    return TurnBegan(1, 1, "digest", place=place)


def again(seconds: float, iteration: int = 1) -> TurnRetried:
    """Its `until` is counted from when it happens."""
    return TurnRetried(iteration, 1, False, f"limited for {seconds:g} s", seconds)


OUT = [began(0), again(90), None]  # None: a tick


@pytest.mark.parametrize(
    ("happens", "waits"),
    [
        pytest.param([began(0), again(600), None, None], [600], id="a wait, once"),
        pytest.param([began(0), again(30), None], [], id="a short one"),
        pytest.param([began(0), again(600), began(1), None], [], id="another agent goes on"),
        pytest.param([began(0), again(900), began(1), again(30), None], [], id="the other one is back soon"),
        pytest.param([began(0), again(30), began(1), again(900), None], [], id="the first one is back soon"),
        pytest.param([*OUT, began(0), again(300), None], [90], id="still out"),
        pytest.param([*OUT, began(0), again(7200), None], [90, 7200], id="out for long"),
        pytest.param([*OUT, began(0), again(90, 2), None], [90, 90], id="out again"),
    ],
)
def test_a_wait_is_told_when_nobody_goes_on(
    tmp_path: Path, happens: list[TurnBegan | TurnRetried | None], waits: list[int]
) -> None:
    told = notify(writing(tmp_path / "in"))
    for record in happens:
        match record:
            case None:
                told.tick()
            case TurnRetried(until=seconds):
                told.on_record(replace(record, until=time.time() + seconds))
            case _:
                told.on_record(record)
    told.close()
    found = events(tmp_path / "in")
    assert sorted(int(event["message"].split()[2]) for event in found) == waits
    assert {event["event"] for event in found} <= {"run.waiting"}


HARNESS = """
import os, sys
from ralphproof.reports.notifications import NotificationObserver
from ralphproof.engine.records import RunEnded
from ralphproof.engine.outcome import Failed

told = NotificationObserver(["desktop", "https://127.0.0.1/T0KEN", sys.argv[1]], "run-1", "calc", str, os.environ)
told.on_record(RunEnded(Failed("x", 1)))
told.close()
print(*told.failures, sep="\\n")
"""


def test_from_its_source_and_without_apprise_commands_work_and_the_rest_says_what_to_install(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", tmp_path / "venv"], check=True)
    ran = subprocess.run(
        [tmp_path / "venv/bin/python", "-c", HARNESS, writing(tmp_path / "in")],
        env={**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert ran.stdout.splitlines() == [
        f"notify: desktop: {MISSING_APPRISE}",
        f"notify: https://127.0.0.1: {MISSING_APPRISE}",
    ]
    assert [event["status"] for event in events(tmp_path / "in")] == ["ERROR"]
