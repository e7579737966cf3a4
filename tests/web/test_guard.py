"""Who is let in: the same rules before every route."""

from __future__ import annotations

import pytest
from starlette.routing import Route

from ralphproof.web.access import AMBIGUOUS_LENGTH, SECURITY_HEADERS, TOKEN_MISSING
from tests.ralph import Ralph
from tests.web.routes import ROUTES, at
from tests.web.served import Served

EVERYWHERE = [*ROUTES, ("GET", "/no/such/page"), ("GET", "/api/"), ("OPTIONS", "/api/runs"), ("HEAD", "/api/events"),
              ("DELETE", "/api/runs/latest"), ("PUT", "/")]  # fmt: skip
NAMES = [f"{method} {path}" for method, path in EVERYWHERE]
JSON = {"Content-Type": "application/json"}
FOREIGN = [
    ("Origin", "https://evil.example"), ("Origin", "null"), ("Origin", "http://localhost:{port}"),
    ("Origin", "https://127.0.0.1:{port}"), ("Origin", "http://127.0.0.1:1"), ("Sec-Fetch-Site", "cross-site"),
    ("Sec-Fetch-Site", "same-site"),
]  # fmt: skip
UNKNOWN = [
    ("X-Ralph-Token", "{token}"), ("Authorization", "Bearer wrong"), ("Authorization", "Bearer "),
    ("Authorization", "Basic {token}"), ("Authorization", "{token}"), ("Authorization", "Bearer {token}x"),
    ("Cookie", "ralph_{port}=wrong"), ("Cookie", "ralph_1={token}"), ("Cookie", "token={token}"),
]  # fmt: skip


def records(place: Ralph) -> int:
    return len(place.records())


@pytest.mark.parametrize(("method", "path"), EVERYWHERE, ids=NAMES)
def test_no_route_answers_to_a_foreign_name(served: Served, method: str, path: str) -> None:
    """WB-04: a name that somebody else makes point here, on every route, those with events too."""
    for host in ("evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "localhost", " "):
        answer = served.ask(at(path), method, host=host.format(port=served.port), headers=JSON)
        assert answer.status == 403, host
        assert served.token not in answer.body.decode()


@pytest.mark.parametrize(("method", "path"), EVERYWHERE, ids=NAMES)
def test_no_route_answers_a_page_of_somebody_else(served: Served, method: str, path: str) -> None:
    """WB-03, WB-04: not even a GET, and not with the token."""
    for name, text in FOREIGN:
        given = {**JSON, "Cookie": served.cookie, name: text.format(port=served.port)}
        assert served.ask(at(path), method, given).status == 403, given


@pytest.mark.parametrize(("method", "path"), EVERYWHERE, ids=NAMES)
def test_nothing_is_told_without_the_token(served: Served, method: str, path: str) -> None:
    """WB-06: but that it is there, which is not to be hidden."""
    for name, text in UNKNOWN:
        given = {**JSON, name: text.format(port=served.port, token=served.token)}
        answer = served.ask(at(path), method, given, known=False)
        if (method, path) == ("GET", "/health"):
            assert (answer.status, answer.body) == (200, b'{"v":1,"type":"health","ok":true}')
        else:
            assert answer.status == 401, given
            assert method == "HEAD" or answer.error == TOKEN_MISSING
        assert served.token not in f"{answer.headers}{answer.body!r}"


@pytest.mark.parametrize("query", ["token=wrong", "token=", "token={token}&token={token}", "token={token}%20",
                                   "a=1&token=wrong"])  # fmt: skip
def test_a_wrong_token_in_the_address_opens_nothing(served: Served, query: str) -> None:
    """WB-06: not even for who has the right cookie."""
    answer = served.ask(f"/?{query.format(token=served.token)}", headers={"Cookie": served.cookie}, known=False)
    assert answer.status == 401
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("path", ["/api/runs", "/static/app.css", "/metrics", "/api/events"])
def test_a_token_in_the_address_of_another_page_is_none(served: Served, path: str) -> None:
    """WB-06: there it would be kept in histories."""
    assert served.ask(f"{path}?token={served.token}", known=False).status == 401


def test_the_printed_address_is_answered_with_a_cookie_and_a_clean_address(served: Served) -> None:
    """WB-06: the token does not stay where others could read it."""
    answer = served.ask(f"/?token={served.token}", known=False)
    assert (answer.status, answer.headers["location"], answer.body) == (303, "/", b"")
    assert answer.headers["set-cookie"] == f"{served.cookie}; Path=/; HttpOnly; SameSite=Strict"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-store"
    inside = served.ask("/", headers={"Cookie": f"other=1; {served.cookie}"}, known=False)
    assert (inside.status, inside.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert served.token not in inside.body.decode()


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "LOCALHOST:{port}", "[::1]:{port}"])
def test_its_own_names_and_pages_are_answered(served: Served, host: str) -> None:
    own = host.format(port=served.port)
    headers = {"Origin": f"http://{own.lower()}", "Sec-Fetch-Site": "same-origin"}
    assert served.ask("/api/runs", headers=headers, host=own).status == 200


def test_two_names_at_once_are_none(served: Served) -> None:
    """WB-04: a second Host header cannot hide behind the first."""
    asked = f"GET /api/runs HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nHost: evil.example\r\nConnection: close\r\n"
    told = served.raw(f"{asked}Authorization: Bearer {served.token}\r\n\r\n".encode())
    assert told.split()[1] in (b"400", b"403")
    old = f"GET /api/runs HTTP/1.0\r\nAuthorization: Bearer {served.token}\r\n\r\n"
    assert served.raw(old.encode()).split()[1] == b"403"


@pytest.mark.parametrize(("method", "path"), [*EVERYWHERE, ("GET", "/static/nothing.js")])
def test_every_answer_says_what_browsers_may_do_with_it(served: Served, method: str, path: str) -> None:
    for known in (True, False):
        answer = served.ask(at(path), method, JSON, known=known)
        assert {name: answer.headers.get(name) for name in SECURITY_HEADERS} == SECURITY_HEADERS
        assert answer.headers["cache-control"] == ("no-cache" if _kept(path) and answer.status == 200 else "no-store")
        assert "server" not in answer.headers


def test_what_is_no_request_at_all_is_answered_in_the_same_way(served: Served) -> None:
    told = served.raw(b"what?\r\n\r\n")
    assert told.startswith(b"HTTP/1.1 400 ")
    assert all(f"{name}: {text}".encode() in told for name, text in SECURITY_HEADERS.items())


@pytest.mark.parametrize("wish", ["pause", "resume", "cancel", "say"])
def test_a_form_of_another_site_moves_nothing(served: Served, place: Ralph, wish: str) -> None:
    """WB-03: a browser sends such a form without asking, cookie and all."""
    before = records(place)
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        headers = {"Origin": "http://evil.example", "Content-Type": kind, "Cookie": served.cookie}
        assert served.ask(f"/api/runs/latest/{wish}", "POST", headers, b'{"text":"x"}', known=False).status == 403
        own = headers | {"Origin": served.origin}
        assert served.ask(f"/api/runs/latest/{wish}", "POST", own, b'{"text":"x"}', known=False).status == 415
    assert records(place) == before


def test_a_cookie_alone_steers_nothing(served: Served) -> None:
    """WB-03: it comes along by itself; where it comes from is what counts."""
    headers = {**JSON, "Cookie": served.cookie}
    assert served.ask("/api/runs/latest/pause", "POST", headers, b"", known=False).status == 403


def test_a_server_that_only_looks_on_steers_nothing(onlooking: Served, place: Ralph) -> None:
    before = records(place)
    for wish in ("pause", "resume", "cancel", "say"):
        answer = onlooking.steer("latest", wish, {"text": "x"})
        assert answer.status == 403
        assert "ralph serve --control" in answer.error
    assert onlooking.ask("/metrics").status == 404
    assert records(place) == before


@pytest.mark.parametrize(("method", "path", "status"), [
    ("POST", "/api/runs", 405), ("GET", "/api/runs/latest/pause", 405), ("OPTIONS", "/", 405), ("PUT", "/", 405),
    ("TRACE", "/api/runs", 405), ("HEAD", "/api/runs", 200), ("HEAD", "/api/events", 200), ("POST", "/nowhere", 404),
])  # fmt: skip
def test_other_methods_are_refused(served: Served, method: str, path: str, status: int) -> None:
    assert served.ask(path, method, JSON, b"" if method == "POST" else None).status == status


def test_the_token_is_in_nothing_that_the_server_says(served: Served) -> None:
    """WB-06: not in its logs, and not in what it says of itself."""
    served.ask(f"/?token={served.token}", known=False)
    served.raw(f"GET /?token={served.token} HTTP/9\r\n\r\n".encode())
    assert served.token not in served.said()
    assert served.token not in served.ask("/health", known=False).body.decode()


def test_every_route_that_there_is_was_asked_here() -> None:
    from tests.web.routes import all_routes

    real = {(method, route.path) for route in all_routes() if isinstance(route, Route)
            for method in (route.methods or ()) if method != "HEAD"}  # fmt: skip
    assert real == set(ROUTES)


def _kept(path: str) -> bool:
    return path == "/" or path.startswith("/static/")


@pytest.mark.parametrize(
    "lengths", ["Content-Length: 5\r\nTransfer-Encoding: chunked", "transfer-encoding: chunked\r\ncontent-length: 0"]
)
def test_a_request_with_two_lengths_is_refused_and_its_connection_closed(served: Served, lengths: str) -> None:
    """What follows could be a second request to one who counts otherwise."""
    known = f"Host: 127.0.0.1:{served.port}\r\nAuthorization: Bearer {served.token}\r\n"
    smuggled = f"GET /health HTTP/1.1\r\n{known}\r\n"
    told = served.raw(f"GET /api/runs HTTP/1.1\r\n{known}{lengths}\r\n\r\n0\r\n\r\n{smuggled}".encode())
    assert told.startswith(b"HTTP/1.1 400 ")
    assert b"connection: close" in told.lower()
    assert told.count(b"HTTP/1.1 ") == 1
    assert AMBIGUOUS_LENGTH.encode() in told
