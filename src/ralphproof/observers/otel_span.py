"""A span as a value, and ids that every process of the same run finds again."""

from __future__ import annotations

from hashlib import sha256

from ralphproof.value import value

Attributes = dict[str, str | bool | int | float]


@value
class TraceSpan:
    """One thing that took time. It is open while `end_ns` is 0; times are in nanoseconds since the epoch.

    `error` is the class of what went wrong. One that is `good` is known to have gone well; most are neither. `client`
    says that another process did the work. `after` is a span that this one goes on after.
    """

    name: str
    trace: bytes
    id: bytes
    parent: bytes
    start_ns: int
    end_ns: int = 0
    attributes: Attributes = {}  # noqa: RUF012 (never changed)
    error: str = ""
    good: bool = False
    client: bool = False
    after: bytes = b""


def trace_id(run: str) -> bytes:
    """That of all spans of a run, whichever process sends them."""
    return sha256(f"ralph run {run}".encode("utf-8", "surrogatepass")).digest()[:16]


def span_id(run: str, *key: object) -> bytes:
    """That of the span with this key in a run."""
    return sha256(repr((run, *key)).encode("utf-8", "surrogatepass")).digest()[:8]
