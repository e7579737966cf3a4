"""Looking on at runs by events: nothing is missed, and nobody is held up."""

from __future__ import annotations

import os
import signal
import socket
import time
from typing import Any

import pytest

from ralphproof.base.processes import ProcessIdentity
from ralphproof.web.api import READER_THREADS as READERS
from tests.cli.steering import detached, let, over, reached, waits_for
from tests.ralph import Ralph, done, until
from tests.web.served import Onlooker, Served, Told, connections, serve, serve_impatiently

OWN_THREADS = READERS + 2  # those that read, the one that looks for changes, and the server's own
EVENTS = "text/event-stream"
KEPT = {"RALPH_SERVE_TOKEN": "a-token-that-somebody-keeps"}


def numbers(told: list[Told]) -> set[int]:
    """The iterations of which these events tell."""
    return {one["number"] for each in told if each.event == "run" for one in each.data["timeline"]}


def ended(told: Told) -> bool:
    return told.event == "run" and bool(told.data["state"] == "ended")


def judged(number: int) -> Any:
    """Whether an event tells the verdict of this iteration."""

    def tells(told: Told) -> bool:
        there = told.data["timeline"] if told.event == "run" else []
        return any(one["number"] == number and one["verdict"] for one in there)

    return tells


def at_work(ralph: Ralph, *names: str) -> str:
    """A run whose agent stops at each of these names until it is let go; its id."""
    ralph.commit()
    turns = [[waits_for(name), {"text": f"did {name}"}, {"write": {name: "x"}}] for name in names]
    return detached(ralph, ralph.script(*turns, [done()]))


def test_a_run_is_told_as_it_goes_on(ralph: Ralph) -> None:
    run = at_work(ralph, "one", "two")
    served = serve(ralph)
    lines, page = served.look_on("/api/events"), served.look_on(f"/api/runs/{run}/events")
    assert page.response.getheader("content-type") == "text/event-stream; charset=utf-8"
    first = lines.until(lambda told: told.event == "runs")[-1].data
    assert ([line["id"] for line in first["runs"]], first["total"]) == ([run], 1)
    assert (first["complete"], first["project"], first["control"]) == (True, str(ralph.root), False)
    reached(ralph, "one")
    let(ralph, "one")
    seen = page.until(judged(1))
    assert seen[0].data["complete"] is True
    reached(ralph, "two")
    let(ralph, "two")
    seen += page.until(ended)
    assert numbers(seen) == {1, 2, 3}
    assert seen[-1].data["complete"] is False
    assert [int(told.id) for told in seen if told.event == "run"] == sorted(int(told.id) for told in seen if told.id)
    last = lines.until(lambda told: told.data["runs"][0]["state"] == "ended")[-1]
    assert (last.data["runs"][0]["status"], last.data["complete"]) == ("COMPLETED", False)
    over(ralph, run)


def test_what_the_agent_says_is_told_while_it_works(ralph: Ralph) -> None:
    ralph.commit()
    agent = ralph.script([{"text": "I begin"}, waits_for("here"), {"text": "I go on"}, done()])
    run = detached(ralph, agent)
    served = serve(ralph)
    first = served.look_on(f"/api/runs/{run}/events")
    reached(ralph, "here")
    first.until(lambda told: says(told, "I begin"))
    late = served.look_on(f"/api/runs/{run}/events")
    late.until(lambda told: says(told, "I begin"))
    let(ralph, "here")
    for one in (first, late):
        seen = one.until(lambda told: says(told, "I go on"))
        assert all(not told.id and told.data["log"] == "agent_001" for told in seen if told.event == "agent")
        one.close()
    over(ralph, run)


def says(told: Told, text: str) -> bool:
    return told.event == "agent" and any(text == event.get("text") for event in told.data["events"])


def test_who_looks_at_the_runs_is_told_of_tasks_too(ralph: Ralph) -> None:
    served = serve(ralph)
    lines = served.look_on("/api/events")
    lines.until(lambda told: told.event == "runs")
    made = ralph("task", "create", "T-1", "S-1", "a title", "--outcome", "it works", "--acceptance", "it does")
    assert made.code == 0, made
    assert [(told.event, told.data) for told in lines.until(lambda told: told.event == "tasks")] == [("tasks", {})]


def test_a_run_that_nobody_knows_is_gone(onlooking: Served) -> None:
    onlooker = onlooking.look_on("/api/runs/nobody/events", accepts=EVENTS)
    said = "no run is called 'nobody', and none begins so; see: ralph status"
    assert [(told.event, told.data) for told in onlooker] == [("gone", {"error": said})]
    onlooker.close()
    answer = onlooking.ask("/api/runs/nobody/events")
    assert (answer.status, answer.error) == (404, said)


def test_a_beginning_that_several_runs_have_is_refused_before_a_stream_begins(ralph: Ralph) -> None:
    ledger = ralph.project.ledger(read_only=False)
    for run in ("one-a", "one-b"):
        ledger.begin_run(run, str(ralph.root), 0.0, ProcessIdentity(0, "", "", ""))
    ledger.close()
    served = serve(ralph)
    answer = served.ask("/api/runs/one/events")
    assert (answer.status, answer.error) == (400, "several runs begin with 'one': one-a, one-b")
    onlooker = served.look_on("/api/runs/one/events", accepts=EVENTS)
    assert [(told.event, told.data) for told in onlooker] == [("gone", {"error": answer.error})]
    assert served.said() == ""


def test_where_a_page_comes_again_it_is_told_what_came_since(onlooking: Served) -> None:
    """By the number of the last event that it knows; its word counts more than the address that it was given first."""
    page = onlooking.ask("/api/runs/latest").json
    for path, last, there in (
        ("", None, {1, 2}), ("?after=0", None, {1, 2}), ("", page["seq"], set()), ("?after=0", page["seq"], set()),
        (f"?after={page['seq']}", None, set()), ("", 10**12, {1, 2}),
    ):  # fmt: skip
        onlooker = onlooking.look_on(f"/api/runs/latest/events{path}", last)
        told = onlooker.until(lambda told: told.event == "run")
        assert (numbers(told), int(told[-1].id)) == (there, page["seq"]), (path, last)
        onlooker.close()


def test_a_server_that_is_killed_and_started_again_leaves_no_gap(ralph: Ralph) -> None:
    """WB-11: the page comes again with the last number, on the same port, with the same token."""
    run = at_work(ralph, "one", "two", "three")
    served = serve(ralph, env=KEPT)
    page = served.look_on(f"/api/runs/{run}/events")
    reached(ralph, "one")
    let(ralph, "one")
    seen = page.until(judged(1))
    os.kill(served.pid, signal.SIGKILL)
    assert served.live.end().code == -signal.SIGKILL
    page.close()
    reached(ralph, "two")
    let(ralph, "two")
    reached(ralph, "three")
    again = serve(ralph, env=KEPT, port=served.port)
    page = again.look_on(f"/api/runs/{run}/events", last=int(seen[-1].id))
    let(ralph, "three")
    later = page.until(ended)
    assert later[0].data["complete"] is False
    assert numbers(later) >= {2, 3, 4}
    assert sorted(told.data["seq"] for told in later if told.event == "run")[0] > int(seen[-1].id)
    assert over(ralph, run)["iterations"] == 4
    page.close()


def test_one_who_stops_reading_is_let_go_and_the_others_go_on(ralph: Ralph) -> None:
    """WB-08: what waits for it is bounded, the run does not notice, and it may come again."""
    ralph.commit()
    flood = [{"text": f"{number} {'x' * 3900}"} for number in range(1500)]
    agent = ralph.script([waits_for("here"), *flood, waits_for("there"), done()])
    run = detached(ralph, agent)
    served = serve_impatiently(ralph, env={"FAULTS": str(ralph.folder)})
    reached(ralph, "here")
    deaf = served.look_on(f"/api/runs/{run}/events", receive_bytes=4096)
    reader = served.look_on(f"/api/runs/{run}/events")
    reader.until(lambda told: told.event == "run")
    before = resident_kb(served.pid)
    let(ralph, "here")
    reached(ralph, "there")
    reader.until(lambda told: told.event == "agent" and any(event["number"] > 1400 for event in told.data["events"]))
    until(lambda: connections(served) == 1, "the one that does not read is let go")
    assert resident_kb(served.pid) - before < 64 * 1024
    again = served.look_on(f"/api/runs/{run}/events")
    again.until(lambda told: told.event == "run")
    let(ralph, "there")
    for one in (reader, again):
        one.until(ended)
        one.close()
    assert over(ralph, run)["status"] == "COMPLETED"
    deaf.close()


def test_one_who_asks_for_little_very_often_and_reads_nothing_is_let_go(ralph: Ralph) -> None:
    """WB-08: with less in the way than a buffer holds."""
    served = serve_impatiently(ralph, env={"FAULTS": str(ralph.folder)})
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.connect(("127.0.0.1", served.port))
    known = f"Host: 127.0.0.1:{served.port}\r\nAuthorization: Bearer {served.token}\r\n"
    ask = f"GET /static/icon.svg HTTP/1.1\r\n{known}\r\n".encode()
    line.setblocking(False)
    sent, left = 0, memoryview(ask * 800)
    until(lambda: connections(served) == 1, "it is connected")
    while left and sent < len(ask) * 800:
        try:
            sent += (more := line.send(left))
        except BlockingIOError:
            break
        left = left[more:]
    until(lambda: connections(served) == 0, "it is let go")
    assert served.ask("/health", known=False).status == 200
    line.close()


def resident_kb(pid: int) -> int:
    with open(f"/proc/{pid}/status") as status:
        return int(next(line for line in status if line.startswith("VmRSS")).split()[1])


def test_who_leaves_is_forgotten(ralph: Ralph) -> None:
    """WB-08: nothing is kept for those who went away, and nobody is overheard any more."""
    run = at_work(ralph, "one")
    served = serve(ralph)
    reached(ralph, "one")
    for _ in range(20):
        onlooker = served.look_on(f"/api/runs/{run}/events")
        onlooker.until(lambda told: told.event == "run")
        onlooker.close()
    until(lambda: connections(served) == 0, "all connections are closed")
    until(lambda: threads(served.pid) <= OWN_THREADS, "nobody listens")
    let(ralph, "one")
    assert over(ralph, run)["status"] == "COMPLETED"


def threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def test_a_fault_in_its_thread_ends_neither_server_nor_run(ralph: Ralph) -> None:
    """WB-11: it is noted once, the thread begins anew, and those who look on are told when it is over."""
    run = at_work(ralph, "one", "two")
    served = serve_impatiently(ralph, env={"FAULTS": str(ralph.folder)})
    page = served.look_on(f"/api/runs/{run}/events")
    page.until(lambda told: told.event == "run")
    (ralph.folder / "moment").touch()
    until(lambda: "planted in moment" in served.said(), "the fault is noted")
    reached(ralph, "one")
    let(ralph, "one")
    reached(ralph, "two")
    assert served.ask(f"/api/runs/{run}").status == 200
    (ralph.folder / "moment").unlink()
    page.until(judged(1))
    let(ralph, "two")
    page.until(ended)
    assert over(ralph, run)["status"] == "COMPLETED"
    assert served.said() == (
        "ralph: looking for changes failed (ZeroDivisionError: planted in moment); it is tried again\n"
    )
    page.close()


def test_a_fault_in_a_page_costs_that_page_alone(ralph: Ralph) -> None:
    """WB-11: and a stream that it breaks is closed, so that the browser comes again."""
    run = at_work(ralph, "one")
    served = serve_impatiently(ralph, env={"FAULTS": str(ralph.folder)})
    page, lines = served.look_on(f"/api/runs/{run}/events"), served.look_on("/api/events")
    page.until(lambda told: told.event == "run")
    lines.until(lambda told: told.event == "runs")
    (ralph.folder / "run").touch()
    for _ in range(3):
        answer = served.ask(f"/api/runs/{run}")
        assert (answer.status, answer.error) == (500, "a fault of ralph's own; the run is not touched by it")
    reached(ralph, "one")
    let(ralph, "one")
    with pytest.raises((AssertionError, ConnectionError, OSError)):
        page.until(ended)
    lines.until(lambda told: told.data["runs"][0]["state"] == "ended")
    (ralph.folder / "run").unlink()
    assert served.ask(f"/api/runs/{run}").status == 200
    assert served.said() == "ralph: a page failed (ZeroDivisionError: planted in run); the server goes on\n"
    assert over(ralph, run)["status"] == "COMPLETED"
    for one in (page, lines):
        one.close()


def test_it_says_that_it_is_still_there(ralph: Ralph) -> None:
    served = serve_impatiently(ralph, env={"FAULTS": str(ralph.folder)})
    onlooker = served.look_on("/api/events")
    onlooker.until(lambda told: told.event == "runs")
    said = [onlooker.response.readline() for _ in range(3)]
    assert said == [b"event: still\n", b"data: {}\n", b"\n"]  # an event: a page sees no comment
    onlooker.close()


def test_only_so_many_may_look_on(ralph: Ralph) -> None:
    """WB-08: and others are told when to come again."""
    served = serve(ralph, "--max-clients", "8")
    there = [served.look_on("/api/events") for _ in range(4)]
    for one in there:
        one.until(lambda told: told.event == "runs")
    answer = served.ask("/api/events")
    assert (answer.status, answer.headers["retry-after"]) == (503, "2")
    assert served.ask("/api/runs").status == 200
    there[0].close()
    until(lambda: served.ask("/api/events", "HEAD").status == 200, "it has left")
    free = served.look_on("/api/events")
    free.until(lambda told: told.event == "runs")
    for one in (*there, free):
        one.close()


def asks(served: Served, path: str, *headers: str) -> socket.socket:
    """Somebody who asks once, is answered, and stays."""
    line = socket.create_connection(("127.0.0.1", served.port), 20)
    head = [f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{served.port}", *headers]
    line.sendall("\r\n".join([*head, "", ""]).encode())
    assert line.recv(1).startswith(b"H")
    return line


def test_only_so_many_may_be_connected(ralph: Ralph) -> None:
    served = serve(ralph, "--max-clients", "3")
    there = [asks(served, "/static/icon.svg", f"Authorization: Bearer {served.token}") for _ in range(3)]
    answer = served.ask("/api/runs")
    assert (answer.status, answer.headers["retry-after"], answer.headers["connection"]) == (503, "2", "close")
    for one in there:
        one.close()
    until(lambda: connections(served) == 0, "they have left")
    assert served.ask("/api/runs").status == 200


@pytest.mark.parametrize(("path", "headers"), [
    ("/health", ()), ("/api/runs", ()), ("/?token=wrong", ()), ("/api/runs", ("Origin: http://evil.example",)),
])  # fmt: skip
def test_who_has_not_shown_the_token_keeps_no_place(onlooking: Served, path: str, headers: tuple[str, ...]) -> None:
    with asks(onlooking, path, *headers) as line:
        answer = b""
        while piece := line.recv(65536):
            answer += piece
        assert b"\r\nconnection: close\r\n" in answer.lower()


def test_strangers_who_ask_nothing_make_room(ralph: Ralph) -> None:
    """Those who have shown the token stay."""
    served = serve(ralph, "--max-clients", "3")
    token = f"Authorization: Bearer {served.token}"
    known = asks(served, "/static/icon.svg", token)
    idle = [socket.create_connection(("127.0.0.1", served.port), 20) for _ in range(10)]
    until(lambda: connections(served) == 3, "no more than may be there")
    assert served.ask("/api/runs").status == 200
    known.sendall(f"GET /api/runs HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n{token}\r\n\r\n".encode())
    told = b""
    while b'"control"' not in told:
        piece = known.recv(65536)
        assert piece, "it was sent away"
        told += piece
    for one in (known, *idle):
        one.close()


@pytest.mark.parametrize(("before", "sent"), [(False, b""), (False, b"GET / HTTP/1.1\r\nHost: x"), (True, b"GET /")])
def test_one_who_never_comes_to_the_point_is_let_go(ralph: Ralph, before: bool, sent: bytes) -> None:
    """Not even where it has asked something before."""
    served = serve_impatiently(ralph, env={"FAULTS": str(ralph.folder)})
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", served.port), 20) as slow:
        if before:
            slow.sendall(f"GET /health HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n\r\n".encode())
            assert slow.recv(65536).startswith(b"HTTP/1.1 200 ")
        slow.sendall(sent)
        try:
            while slow.recv(65536):
                pass
        except ConnectionError:
            pass
    assert time.monotonic() - began < 10
    assert served.ask("/api/runs").status == 200


def test_one_who_sends_a_body_by_drops_is_let_go(ralph: Ralph) -> None:
    """A body that does not come holds up nobody else."""
    served = serve_impatiently(ralph, "--control", env={"FAULTS": str(ralph.folder)})
    head = f"POST /api/runs/latest/say HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nContent-Type: application/json\r\n"
    head += f"Authorization: Bearer {served.token}\r\nContent-Length: 100\r\n\r\n"
    with socket.create_connection(("127.0.0.1", served.port), 20) as slow:
        slow.sendall(head.encode() + b"{")
        assert served.ask("/api/runs").status == 200
        assert slow.recv(65536).startswith(b"HTTP/1.1 408 ")


def test_those_who_see_the_same_are_sent_the_same(ralph: Ralph) -> None:
    run = at_work(ralph, "one")
    served = serve(ralph)
    pages: list[Onlooker] = [served.look_on(f"/api/runs/{run}/events") for _ in range(5)]
    reached(ralph, "one")
    let(ralph, "one")
    seen = [page.until(ended) for page in pages]
    assert all(numbers(one) == {1, 2} for one in seen)
    assert len({str(one[-1].data["outcome"]) for one in seen}) == 1
    for page in pages:
        page.close()
    over(ralph, run)
