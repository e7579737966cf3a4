"""Another site, open in the same browser, reaches nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Response, expect

from tests.browser.looking import Look
from tests.cli.steering import detached, let, over, reached, waits_for
from tests.ralph import Ralph, done, write

ATTACK = (Path(__file__).parent / "elsewhere.html").read_bytes()


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """A page of somebody else's, on another port of this machine."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(ATTACK)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_another_site_can_neither_look_nor_steer(ralph: Ralph, look: Look, elsewhere: str) -> None:
    """WB-03: a form or a script of another site, in a browser that has the cookie."""
    run = detached(ralph, ralph.script([waits_for("one"), write(done="yes"), done()]), "--check", "sh check.sh")
    reached(ralph, "one")
    page = look.open(f"#/run/{run}")
    expect(page.locator(".standing")).to_contain_text("running")
    assert page.context.cookies(), "this browser is let in"
    other = page.context.new_page()
    statuses: dict[str, int] = {}
    origin = look.served.origin
    other.on("response", lambda one: note(one))

    def note(answer: Response) -> None:
        if answer.url.startswith(origin):
            statuses[answer.url] = answer.status

    other.goto(f"{elsewhere}/?target={origin}&run={run}")
    other.wait_for_function("window.told.over")
    told = other.evaluate("window.told")
    told.pop("over")
    assert {name: how for name, how in told.items() if how != "refused"}.keys() <= {"blind pause", "blind cancel"}
    assert statuses, "the server was asked"
    assert set(statuses.values()) <= {401, 403, 405}
    let(ralph, "one")
    assert over(ralph, run)["status"] == "COMPLETED"
    expect(page.locator(".standing")).to_contain_text("verified")


def test_a_name_that_somebody_else_gave_this_machine_is_not_ours(look: Look) -> None:
    """WB-04: what resolves to this machine by another name is another site."""
    look.watch.forgive("status of 40[13]|somebody else: http://evil.localhost")
    page = look.open("#/")
    page.locator("h1").wait_for()
    other = page.context.new_page()
    for path in ("/", "/api/runs", "/api/events", "/health", "/static/js/app.js"):
        answer = other.goto(f"http://evil.localhost:{look.served.port}{path}")
        assert answer is not None
        assert answer.status == 403, path
