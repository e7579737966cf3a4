"""How spans are brought to their receiver, and what an address may be."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec

import pytest

from ralphproof.reports import otel
from ralphproof.reports.addresses import otel_endpoint_problem, redact_otel_endpoint
from ralphproof.reports.otel import (
    OtlpExporter,
    TraceSpan,
    otel_endpoint_secrets,
    parse_otel_headers,
    span_id,
    trace_id,
)
from tests.needs import require
from tests.reports.otlp import CLIENT, ERROR, INTERNAL, OK, UNSET, told, told_in
from tests.reports.post import serving, until

require(find_spec("opentelemetry") is not None, "opentelemetry")


def span(name: str = "a span", **told: str | bool | int | float) -> TraceSpan:
    return TraceSpan(name, trace_id("run-1"), span_id("run-1", name), b"", 1, 2, told)


def sender(address: str, environ: Mapping[str, str] | None = None, mask: Callable[[str], str] = str) -> OtlpExporter:
    return OtlpExporter(address, mask, environ or {})


def close(post: OtlpExporter, seconds: float = 10.0, patience_s: float = 100.0) -> None:
    post.close(seconds, lambda: patience_s)


@pytest.mark.parametrize(
    ("address", "path"),
    [("", "/v1/traces"), ("/", "/v1/traces"), ("/v1/traces", "/v1/traces"), ("/base/", "/base/v1/traces"),
     ("/v1/traces?key=1", "/v1/traces?key=1")],
)  # fmt: skip
def test_spans_are_posted_to_the_traces_of_an_address(address: str, path: str) -> None:
    with serving(200) as server:
        post = sender(f"http://{server.address}{address}")
        post.put(span())
        close(post)
    ((line, headers, body),) = server.asked
    assert (line, headers["Content-Type"]) == (f"POST {path} HTTP/1.1", "application/x-protobuf")
    assert [one.name for one in told_in(body)] == ["a span"]
    assert post.failures == []


def test_what_a_span_is_made_of_arrives() -> None:
    with serving(200) as server:
        post = sender(f"http://{server.address}")
        post.put(
            TraceSpan(
                "bad",
                b"t" * 16,
                b"b" * 8,
                b"p" * 8,
                5,
                9,
                {"n": 1, "x": 0.5, "yes": True, "s": "é"},
                "failed",
                client=True,
            )
        )
        post.put(TraceSpan("good", b"t" * 16, b"g" * 8, b"", 6, 9, good=True, after=b"b" * 8))
        post.put(span("neither", huge=2**70, long="x" * 500, odd="a\udc80b"))
        close(post)
    neither, bad, good = told(server)
    assert (bad.trace, bad.id, bad.parent, bad.kind, bad.status) == (b"t" * 16, b"b" * 8, b"p" * 8, CLIENT, ERROR)
    assert bad.attributes == {"n": 1, "x": 0.5, "yes": True, "s": "é", "error.type": "failed"}
    assert (bad.start, bad.end, bad.links) == (5, 9, [])
    assert (good.status, good.kind, good.links) == (OK, INTERNAL, [b"b" * 8])
    assert neither.status == UNSET
    assert neither.attributes == {"huge": 2**63 - 1, "long": "x" * 199 + "…", "odd": "a?b"}


def test_every_text_goes_through_the_mask() -> None:
    with serving(200) as server:
        post = sender(f"http://{server.address}", mask=lambda text: text.replace("hunter22", "***"))
        post.put(span("execute_tool hunter22", tool="hunter22", n=1))
        close(post)
    (found,) = told(server)
    assert (found.name, found.attributes["tool"]) == ("execute_tool ***", "***")
    assert b"hunter22" not in server.asked[0][2]


def test_headers_of_the_variable_and_a_password_of_the_address_are_sent() -> None:
    with serving(200) as server:
        headers = {"OTEL_EXPORTER_OTLP_HEADERS": "api-key=a%20b, x-team = red ,bad name=1,=2,ctl=%0d%0aX: y"}
        post = sender(f"http://me:pass%40word@{server.address}", headers)
        post.put(span())
        close(post)
    sent = server.asked[0][1]
    assert (sent["api-key"], sent["x-team"]) == ("a b", "red")
    assert sent["Authorization"] == "Basic bWU6cGFzc0B3b3Jk"
    assert not {"bad name", "ctl", "X"} & set(sent)


@pytest.mark.parametrize("status", [302, 307, 400, 404])
def test_a_refusal_is_told_once_and_a_redirect_is_not_followed(status: int) -> None:
    with serving(status) as server:
        post = sender(f"http://user:hunter22@{server.address}/T0KEN?key=T0KEN")
        for number in range(otel.BATCH_SPANS + 1):
            post.put(span(str(number)))
        close(post)
    assert post.failures == [f"otel: http://{server.address}/…: 513 spans were not sent: it answered {status}"]
    assert len(server.asked) == 2


def test_no_proxy_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(200) as server, serving(200) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://{proxy.address}")
        post = sender(f"http://{server.address}")
        post.put(span())
        close(post)
    assert (len(server.asked), proxy.asked) == (1, [])


def test_a_receiver_that_is_not_there_is_told_in_a_line() -> None:
    with serving() as server:
        closed = server.address
    post = sender(f"http://{closed}")
    post.put(span())
    close(post)
    assert post.failures == [f"otel: http://{closed}: a span was not sent: no connection"]


def test_a_receiver_that_is_busy_is_asked_again_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otel, "RETRY_DELAY_S", 0.01)
    monkeypatch.setattr(otel, "BATCH_DELAY_S", 0.0)
    with serving(503) as server:
        post = sender(f"http://{server.address}")
        post.put(span())
        until(lambda: len(server.asked) > 2)
        server.status = 200
        close(post)
    assert post.failures == []
    assert {body for _, _, body in server.asked} == {server.asked[0][2]}


def test_a_receiver_that_hangs_is_waited_for_no_longer_than_that() -> None:
    with serving(0) as server:
        post = sender(f"http://{server.address}")
        began = time.monotonic()
        for number in range(3):
            post.put(span(str(number)))
        assert time.monotonic() - began < 0.5
        post.close(0.2, lambda: 100.0)
        assert time.monotonic() - began < 2
        assert post.failures == [f"otel: http://{server.address}: 3 spans were not sent: no answer before the end"]
        until(lambda: "ralph-otel" not in [thread.name for thread in threading.enumerate()], 5)  # it does not stay


@pytest.mark.parametrize("patience", [[0.0], [9.0, 0.1, 0.1, 9.0]], ids=["none", "a little, from some time on"])
def test_who_loses_patience_is_not_kept_waiting(patience: list[float]) -> None:
    with serving(0) as server:
        post = sender(f"http://{server.address}")
        post.put(span())
        post.close(1e9, lambda: patience.pop(0) if len(patience) > 1 else patience[0])
        assert post.failures == [f"otel: http://{server.address}: a span was not sent: no answer before the end"]


def test_of_a_flood_the_last_spans_are_kept_and_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otel, "MAX_QUEUED_SPANS", 10)
    with serving(200) as server:
        post = sender(f"http://{server.address}")
        for number in range(otel.BATCH_SPANS + 5):
            post.put(span(str(number)))
        close(post)
    names = [one.name for one in told(server)]
    assert names[-1] == str(otel.BATCH_SPANS + 4)
    lost = otel.BATCH_SPANS + 5 - len(names)
    assert post.failures == [f"otel: http://{server.address}: {lost} spans were not sent: too many waited"]


def test_a_sender_without_spans_starts_nothing() -> None:
    post = sender("http://127.0.0.1:9")
    assert "ralph-otel" not in [thread.name for thread in threading.enumerate()]
    close(post)
    assert post.failures == []


# Addresses.


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("http://127.0.0.1:4318", ""),
        ("https://otel.example/v1/traces", ""),
        ("http://[::1]:4318", ""),
        ("localhost:4318", "is no http:// or https:// address"),
        ("grpc://localhost:4317", "is no http:// or https:// address"),
        ("collector", "is no http:// or https:// address"),
        ("http://", "names no host, or a port that there is not"),
        ("http://:4318", "names no host, or a port that there is not"),
        ("http://x:99999", "names no host, or a port that there is not"),
        ("http://x:0", "names no host, or a port that there is not"),
        ("http://[::1", "names no host, or a port that there is not"),
        ("http://x\n.example", "holds a control character"),
        ("http://x/a b", "holds a space, or a letter that is not ASCII"),
        ("http://ünder/", "holds a space, or a letter that is not ASCII"),
    ],
)
def test_an_address_that_cannot_work_is_refused(address: str, why: str) -> None:
    assert otel_endpoint_problem(address) == why


@pytest.mark.parametrize(
    ("address", "seen"),
    [
        ("http://127.0.0.1:4318", "http://127.0.0.1:4318"),
        ("http://x/v1/traces", "http://x/v1/traces"),
        ("https://me:hunter22@x:1/", "https://x:1/"),
        ("https://x/T0KEN/v1/traces", "https://x/…"),
        ("https://x/v1/traces?key=T0KEN", "https://x/…"),
    ],
)
def test_an_address_is_shown_without_secrets(address: str, seen: str) -> None:
    assert redact_otel_endpoint(address) == seen


def test_what_of_an_address_is_secret() -> None:
    environ = {"OTEL_EXPORTER_OTLP_HEADERS": "api-key=abcdefgh,x=1"}
    assert otel_endpoint_secrets("http://127.0.0.1:4318", {}) == ()
    assert set(otel_endpoint_secrets("https://me:hunter22@x/?key=T0KEN", environ)) == {
        "https://me:hunter22@x/?key=T0KEN", "me:hunter22", "hunter22", "key=T0KEN", "abcdefgh",
    }  # fmt: skip
    assert parse_otel_headers(environ) == {"api-key": "abcdefgh", "x": "1"}
