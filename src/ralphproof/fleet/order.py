"""What a machine needs to know of a loop to take a step of it: all of it is in the order, nothing on the machine."""

from __future__ import annotations

from ralphproof.errors import Refused
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ralphproof.value import Json

MOST_BYTES = 8 << 20  # of an order; a prompt may be long, but it is no repository
PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
NAME_CHARS = 100
# Fields in JSON: the name, what it must be, in words and by type, and whether it may be left out.
_TEXT, _GROUP = ("a text", str), ("an object", dict)


@value
class LoopOrder:
    """A loop of the fleet, as somebody submitted it.

    `loop` is the run's id. `repo` is the URL of the git repository, `base` the branch or commit that the work begins
    on, `target` the branch that it is to land on; empty: it stays on a branch of its own. `wish` is what is asked for,
    as it is noted beside every run, with the prompt as text. `user` are settings of the submitter's own: caps, prices
    and limits come from there, never from whoever runs the machine. `artifacts` is a folder, by an fsspec URL, for
    logs; empty for none. `task` is a task's draft, where the loop works on one; `agent` the name by which rates are
    limited.
    """

    loop: str
    repo: str
    base: str
    wish: dict[str, Json]
    user: dict[str, Json] = {}  # noqa: RUF012 (never changed)
    submitter: str = ""
    artifacts: str = ""
    target: str = ""
    task: dict[str, Json] | None = None
    agent: str = ""


def packed_order(order: LoopOrder) -> dict[str, Json]:
    """The order as JSON; `order_of` reads it."""
    return {name: getattr(order, name) for name in LoopOrder.__match_args__}


def order_of(data: object) -> LoopOrder:
    """The order behind its JSON; raises Refused with the first thing that is wrong with it, in one line."""
    if not isinstance(data, dict):
        raise Refused(f"an order is an object, not {_shown(data)}")
    known: tuple[str, ...] = LoopOrder.__match_args__
    if unknown := [str(name) for name in data if name not in known]:
        raise Refused(f"an order has no field {unknown[0][:NAME_CHARS]!r}; it has {', '.join(known)}")
    for name, (words, kind), needed in _FIELDS:
        if name not in data or (data[name] is None and name == "task"):
            if needed:
                raise Refused(f"the order has no {name}")
        elif not isinstance(data[name], kind):
            raise Refused(f"{name} of the order must be {words}, not {_shown(data[name])}")
    order = LoopOrder(**data)
    for look in _RULES:
        if wrong := look(order):
            raise Refused(wrong)
    return order


_FIELDS: tuple[tuple[str, tuple[str, type], bool], ...] = (
    ("loop", _TEXT, True), ("repo", _TEXT, True), ("base", _TEXT, True), ("wish", _GROUP, True),
    ("user", _GROUP, False), ("submitter", _TEXT, False), ("artifacts", _TEXT, False), ("target", _TEXT, False),
    ("task", _GROUP, False), ("agent", _TEXT, False),
)  # fmt: skip


def _loop(order: LoopOrder) -> str:
    if not is_name(order.loop):
        return f"{order.loop[:NAME_CHARS]!r} cannot be the id of a loop: letters, digits, '-', '_' and '.' make one"
    return ""


def _repo(order: LoopOrder) -> str:
    """Git takes more than addresses where it takes one: options, and helpers that run commands."""
    url = order.repo
    helper = "::" in url.partition("/")[0]
    if not url or url.startswith("-") or helper or not url.isprintable():
        return f"{without_password(url)[:200]!r} is no address of a repository; file, git, ssh and https are known"
    return ""


def _passwords(order: LoopOrder) -> str:
    """An order stands in histories, books and lists of processes."""
    for name, url in (("repo", order.repo), ("artifacts", order.artifacts)):
        scheme, _, rest = url.partition("://")
        user, _, _ = rest.partition("/")[0].rpartition("@")
        if ":" in user or (user and scheme in ("http", "https")):
            shown = without_password(url)[:200]
            return f"{name} of the order holds a password; write {shown}, and let workers have it (git's credentials)"
    return ""


def _refs(order: LoopOrder) -> str:
    for name, ref in (("base", order.base), ("target", order.target)):
        odd = ref.startswith("-") or ".." in ref or any(letter in " ~^:?*[\\@{" for letter in ref)
        if odd or not ref.isprintable() or (name == "base" and not ref):
            return f"{name} of the order must be a branch or a commit, not {ref[:200]!r}"
    return ""


def _prompt(order: LoopOrder) -> str:
    wish: Any = order.wish.get("wish")
    if not isinstance(wish, dict) or not isinstance(order.wish.get("flags"), dict):
        return "wish of the order must hold a wish and its flags"
    prompt = wish.get("prompt")
    if not isinstance(prompt, list) or len(prompt) != 2 or prompt[1] is not None:
        return "the prompt of an order must be a text; a file is on the submitter's machine alone"
    if order.wish.get("brought"):
        return "functions that a program brought along cannot be sent to another machine"
    if order.task is None and wish.get("work"):
        return f"the order is for task {str(wish['work'])[:NAME_CHARS]!r}, and does not hold it"
    return ""


def _texts(order: LoopOrder) -> str:
    for name in ("submitter", "agent", "artifacts"):
        if not getattr(order, name).isprintable():
            return f"{name} of the order has characters that cannot be printed"
    return ""


_RULES: tuple[Callable[[LoopOrder], str], ...] = (_loop, _repo, _passwords, _refs, _prompt, _texts)


def is_name(text: str) -> bool:
    """Whether a text may be part of a ref, of a path and of a file's name."""
    plain = bool(text) and not set(text) - PLAIN and len(text) <= NAME_CHARS
    return plain and text[0] not in ".-" and ".." not in text and not text.endswith((".lock", "."))


def without_password(url: str) -> str:
    """An address without whatever stands before the host: that may be a password."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        return url
    place, slash, path = rest.partition("/")
    return f"{scheme}://{place.rpartition('@')[2]}{slash}{path}"


def _shown(data: object) -> str:
    return f"{str(data)[:60]!r}" if isinstance(data, str | int | float | bool) else f"a {type(data).__name__}"
