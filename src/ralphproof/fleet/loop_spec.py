"""The specification of a loop: everything that a worker needs to know of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ralphproof.base.errors import Refused
from ralphproof.base.value import Json, value

MAX_LOOP_SPEC_BYTES = 8 << 20  # a prompt may be long, but is not a repository
NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
MAX_NAME_CHARS = 100
REQUIRED_FIELDS = ("loop", "repo", "base", "request")


@value
class LoopSpec:
    """A loop as submitted. Nothing else is read from the settings of the worker's user.

    `loop` is the run's id. `repo` is the URL of the git repository, `base` the branch or commit that the work starts
    from, `target` the branch that it is to land on; if empty, it stays on its own branch. `request` is the run request
    as it is stored with every run, with the prompt as text. `user` has the submitter's user settings: caps, prices and
    limits come from there. `artifacts` is the fsspec URL of a folder for logs; empty for none. `task` is a task's draft
    if the loop works on one; `agent` is the name by which rates are limited.
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
    if missing := [name for name in REQUIRED_FIELDS if name not in data]:
        raise Refused(f"the loop spec has no {missing[0]}")
    example = LoopSpec("", "", "", {}, task={})
    for name, item in data.items():
        if name not in LoopSpec.__match_args__:
            known = ", ".join(LoopSpec.__match_args__)
            raise Refused(f"a loop spec has no field {str(name)[:MAX_NAME_CHARS]!r}; it has {known}")
        kind = type(getattr(example, name))
        if not isinstance(item, kind) and not (name == "task" and item is None):
            wanted = "a text" if kind is str else "an object"
            raise Refused(f"{name} of the loop spec must be {wanted}, not {_shown_value(item)}")
    spec = LoopSpec(**data)
    for check in _CHECKS:
        if wrong := check(spec):
            raise Refused(wrong)
    return spec


def _check_loop_name(spec: LoopSpec) -> str:
    if not is_plain_name(spec.loop):
        return f"{spec.loop[:MAX_NAME_CHARS]!r} cannot be the id of a loop: letters, digits, '-', '_' and '.' make one"
    return ""


def _check_repository(spec: LoopSpec) -> str:
    return "" if is_repository_address(spec.repo) else bad_address_message(spec.repo)


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


_CHECKS: tuple[Callable[[LoopSpec], str], ...] = (
    _check_loop_name, _check_repository, _check_passwords, _check_refs, _check_prompt, _check_texts,
)  # fmt: skip


def is_plain_name(text: str) -> bool:
    """Whether a text may be part of a ref and of a file name."""
    plain = bool(text) and not set(text) - NAME_CHARACTERS and len(text) <= MAX_NAME_CHARS
    return plain and text[0] not in ".-" and ".." not in text and not text.endswith((".lock", "."))


def is_repository_address(url: str) -> bool:
    """Whether git reads it as an address; not as an option, nor as a remote helper that runs commands."""
    return bool(url) and not url.startswith("-") and "::" not in url.partition("/")[0] and url.isprintable()


def bad_address_message(url: str) -> str:
    return f"{without_password(url)[:200]!r} is no address of a repository; file, git, ssh and https are known"


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
