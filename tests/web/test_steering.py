"""Steering runs from a page: the same wishes as from another terminal, under the same rules."""

from __future__ import annotations

import json

import pytest

from ralphproof.engine import records
from tests.cli.steering import detached, has, let, over, reached, rests, waits_for
from tests.ralph import Ralph, done
from tests.web.served import Served, Told, serve

JSON = {"Content-Type": "application/json"}


def at_work(ralph: Ralph) -> str:
    """A run that stops in its first iteration, and again in its second, until it is let go."""
    ralph.commit()
    first, second = [waits_for("one"), {"write": {"one": "x"}}], [waits_for("two"), {"text": "on"}]
    return detached(ralph, ralph.script(first, second, [done()]))


def test_a_run_is_paused_told_something_and_resumed(ralph: Ralph) -> None:
    run = at_work(ralph)
    served = serve(ralph, "--control")
    page = served.look_on(f"/api/runs/{run}/events")
    reached(ralph, "one")
    answer = served.steer(run, "pause")
    assert (answer.status, answer.json["type"]) == (200, "answer")
    page.until(lambda told: told.event == "run" and told.data["requested"] == "pause")
    let(ralph, "one")
    rests(ralph, run)
    page.until(lambda told: told.event == "run" and told.data["state"] == "paused")
    assert served.steer("latest", "say", {"text": "leave the interface as it is"}).status == 200
    page.until(lambda told: told.event == "run" and told.data["unreadMessages"] == 1)
    assert served.steer(run[:-1], "resume").status == 200
    reached(ralph, "two")
    assert has(ralph, run, records.UserMessageAdded)
    assert "leave the interface as it is" in (ralph.run_folder(run) / "prompt_002.txt").read_text()
    let(ralph, "two")
    assert over(ralph, run)["status"] == "COMPLETED"


def test_a_run_is_cancelled(ralph: Ralph) -> None:
    run = at_work(ralph)
    served = serve(ralph, "--control")
    page = served.look_on(f"/api/runs/{run}/events")
    reached(ralph, "one")
    assert served.steer(run, "cancel").json["message"]

    def ended(told: Told) -> bool:
        return told.event == "run" and bool(told.data["state"] == "ended")

    assert page.until(ended)[-1].data["reason"] == "CANCELLED"
    assert over(ralph, run)["reason"] == "CANCELLED"
    again = served.steer(run, "cancel")
    assert again.status == 400
    assert again.error


def test_programs_steer_by_the_token_alone(served: Served) -> None:
    """No page of another site can send that header."""
    answer = served.ask("/api/runs/latest/pause", "POST", JSON, b"")
    assert answer.status == 400  # it has ended, which is for the helm to say
    assert answer.error


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"null", b'{"text": ""}', b'{"text": "  "}', b'{"text": 1}', b"{",
                                  b"[" * 50_000, b"\xff"])  # fmt: skip
def test_what_says_nothing_is_refused(served: Served, body: bytes) -> None:
    assert served.ask("/api/runs/latest/say", "POST", JSON, body).status == 400


def test_what_is_too_long_is_refused(served: Served) -> None:
    whole = json.dumps({"text": "x" * 70_000}).encode()
    assert served.ask("/api/runs/latest/say", "POST", JSON, whole).status == 413
    pieces = b"".join(b"%x\r\n%s\r\n" % (4000, b"x" * 4000) for _ in range(20))
    head = f"POST /api/runs/latest/say HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nContent-Type: application/json\r\n"
    head += f"Authorization: Bearer {served.token}\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert served.raw(head.encode() + pieces, whole=False).startswith(b"HTTP/1.1 413 ")
    longest = json.dumps({"text": "x" * (64 * 1024 + 1)}).encode()
    assert served.ask("/api/runs/latest/say", "POST", JSON, longest).status == 400


@pytest.mark.parametrize("wish", ["pause", "resume", "cancel", "say"])
def test_a_run_that_nobody_knows_cannot_be_steered(served: Served, wish: str) -> None:
    assert served.ask(f"/api/runs/nobody/{wish}", "POST", JSON, b'{"text": "x"}').status == 404
