"""Loops submitted to the fleet: specification, dependencies and allowance."""

from __future__ import annotations

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING, pack, value
from ralphproof.fleet.connection import FleetTiming
from ralphproof.fleet.governor import Allowance

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ralphproof.base.value import Json


MAX_LOOP_SPEC_BYTES = 8 << 20  # of a spec; a prompt may be long, but is not a repository
NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
MAX_NAME_CHARS = 100
# JSON fields: name, expected value in words and as types, whether optional.
_TEXT, _GROUP = ("a text", str), ("an object", dict)


@value
class LoopSpec:
    """A loop as submitted. It has everything a worker needs; nothing is read from the worker's own settings.

    `loop` is the run's id. `repo` is the URL of the git repository, `base` the branch or commit that the work starts
    from, `target` the branch that it is to land on; if empty, it stays on its own branch. `request` is the run request
    as it is stored with every run, with the prompt as text. `user` has the submitter's user settings: caps, prices and
    limits come from there, never from the worker's user. `artifacts` is the fsspec URL of a folder for logs; empty for
    none. `task` is a task's draft if the loop works on one; `agent` is the name by which rates are limited.
    """

    loop: str
    repo: str
    base: str
    request: dict[str, Json]
    user: dict[str, Json] = {}  # noqa: RUF012 (never changed)
    submitter: str = ""
    artifacts: str = ""
    target: str = ""
    task: dict[str, Json] | None = None
    agent: str = ""


def loop_spec_json(spec: LoopSpec) -> dict[str, Json]:
    """The spec as JSON; `parse_loop_spec` reads it."""
    return {name: getattr(spec, name) for name in LoopSpec.__match_args__}


def parse_loop_spec(data: object) -> LoopSpec:
    """Parse a spec; raises Refused with the first error in one line."""
    if not isinstance(data, dict):
        raise Refused(f"a loop spec is an object, not {_shown_value(data)}")
    known: tuple[str, ...] = LoopSpec.__match_args__
    if unknown := [str(name) for name in data if name not in known]:
        raise Refused(f"a loop spec has no field {unknown[0][:MAX_NAME_CHARS]!r}; it has {', '.join(known)}")
    for name, (words, kind), needed in _FIELDS:
        if name not in data or (data[name] is None and name == "task"):
            if needed:
                raise Refused(f"the loop spec has no {name}")
        elif not isinstance(data[name], kind):
            raise Refused(f"{name} of the loop spec must be {words}, not {_shown_value(data[name])}")
    spec = LoopSpec(**data)
    for look in _RULES:
        if wrong := look(spec):
            raise Refused(wrong)
    return spec


_FIELDS: tuple[tuple[str, tuple[str, type], bool], ...] = (
    ("loop", _TEXT, True), ("repo", _TEXT, True), ("base", _TEXT, True), ("request", _GROUP, True),
    ("user", _GROUP, False), ("submitter", _TEXT, False), ("artifacts", _TEXT, False), ("target", _TEXT, False),
    ("task", _GROUP, False), ("agent", _TEXT, False),
)  # fmt: skip


def _check_loop_name(spec: LoopSpec) -> str:
    if not is_plain_name(spec.loop):
        return f"{spec.loop[:MAX_NAME_CHARS]!r} cannot be the id of a loop: letters, digits, '-', '_' and '.' make one"
    return ""


def _check_repository(spec: LoopSpec) -> str:
    """Reject what git would read as an option, or as a remote helper that runs commands."""
    url = spec.repo
    helper = "::" in url.partition("/")[0]
    if not url or url.startswith("-") or helper or not url.isprintable():
        return f"{without_password(url)[:200]!r} is no address of a repository; file, git, ssh and https are known"
    return ""


def _check_passwords(spec: LoopSpec) -> str:
    """Reject URLs with passwords: specs appear in workflow histories, databases and process lists."""
    for name, url in (("repo", spec.repo), ("artifacts", spec.artifacts)):
        scheme, _, rest = url.partition("://")
        user, _, _ = rest.partition("/")[0].rpartition("@")
        if ":" in user or (user and scheme in ("http", "https")):
            shown = without_password(url)[:200]
            return (
                f"{name} of the loop spec holds a password; write {shown}, and let workers have it (git's credentials)"
            )
    return ""


def _check_refs(spec: LoopSpec) -> str:
    for name, ref in (("base", spec.base), ("target", spec.target)):
        odd = ref.startswith("-") or ".." in ref or any(letter in " ~^:?*[\\@{" for letter in ref)
        if odd or not ref.isprintable() or (name == "base" and not ref):
            return f"{name} of the loop spec must be a branch or a commit, not {ref[:200]!r}"
    return ""


def _check_prompt(spec: LoopSpec) -> str:
    request: Any = spec.request.get("request")
    if not isinstance(request, dict) or not isinstance(spec.request.get("flags"), dict):
        return "request of the loop must hold a request and its flags"
    prompt = request.get("prompt")
    if not isinstance(prompt, list) or len(prompt) != 2 or prompt[1] is not None:
        return "the prompt of a loop spec must be a text; a file is on the submitter's machine alone"
    if spec.request.get("custom"):
        return "functions passed by a program cannot be sent to another machine"
    if spec.task is None and request.get("task_id"):
        return f"the loop spec is for task {str(request['task_id'])[:MAX_NAME_CHARS]!r}, and does not hold it"
    return ""


def _check_texts(spec: LoopSpec) -> str:
    for name in ("submitter", "agent", "artifacts"):
        if not getattr(spec, name).isprintable():
            return f"{name} of the loop spec has characters that cannot be printed"
    return ""


_RULES: tuple[Callable[[LoopSpec], str], ...] = (
    _check_loop_name,
    _check_repository,
    _check_passwords,
    _check_refs,
    _check_prompt,
    _check_texts,
)


def is_plain_name(text: str) -> bool:
    """Whether a text may be part of a ref and of a file name."""
    plain = bool(text) and not set(text) - NAME_CHARACTERS and len(text) <= MAX_NAME_CHARS
    return plain and text[0] not in ".-" and ".." not in text and not text.endswith((".lock", "."))


def without_password(url: str) -> str:
    """A URL without user information, which may include a password."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        return url
    place, slash, path = rest.partition("/")
    return f"{scheme}://{place.rpartition('@')[2]}{slash}{path}"


def _shown_value(data: object) -> str:
    return f"{str(data)[:60]!r}" if isinstance(data, str | int | float | bool) else f"a {type(data).__name__}"


def result_branch(loop: str) -> str:
    """The branch of a completed loop's work."""
    return f"ralph/{loop}"


# A submission: loops, their dependencies, and what they may cost.


MAX_SUBMISSION_BYTES = 1_500_000  # the largest payload that a workflow history accepts
MAX_TITLE_CHARS = 80


@value
class SubmittedLoop:
    """One loop of a submission. It starts when the loops named in `after` have completed.

    `budget` is the most it may cost, in micro-dollars.
    """

    spec: LoopSpec
    title: str = ""
    after: tuple[str, ...] = ()
    budget: int | None = None


@value
class FleetSubmission:
    """Loops submitted together. Only their submitter sets the `allowance`."""

    id: str
    submitter: str
    loops: tuple[SubmittedLoop, ...]
    allowance: Allowance = Allowance()
    timing: FleetTiming = FleetTiming()


def submission_json(submission: FleetSubmission) -> dict[str, Any]:
    """JSON form for the server; raises Refused if it is too large for one message."""
    import json

    packed = {
        "submission": submission.id,
        "submitter": submission.submitter,
        "allowance": pack(submission.allowance),
        "timing": pack(submission.timing),
        "loops": [
            {
                "spec": loop_spec_json(one.spec),
                "after": list(one.after),
                "budget": one.budget,
                "memo": {
                    "title": one.title[:MAX_TITLE_CHARS],
                    "submitter": submission.submitter,
                    "artifacts": one.spec.artifacts,
                },
            }
            for one in submission.loops
        ],
    }
    if (size := len(json.dumps(packed))) > MAX_SUBMISSION_BYTES:
        raise Refused(
            f"the submission has {size} bytes, and at most {MAX_SUBMISSION_BYTES} can be sent; submit it in parts"
        )
    return packed
