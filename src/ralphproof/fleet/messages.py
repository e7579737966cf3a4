"""Values that clients, workflows, workers and steps of a fleet exchange: loop specs, progress, timing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ralphproof.base.errors import Refused
from ralphproof.base.value import Json, replace, unpack, value
from ralphproof.engine.limits import CANCELLED, Spend
from ralphproof.engine.outcome import Aborted, Completed, Failed, Outcome

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
    if the loop works on one.
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
    for problem in _problems(spec):
        raise Refused(problem)
    return spec


def _problems(spec: LoopSpec) -> Iterator[str]:
    if not is_plain_name(spec.loop):
        yield f"{spec.loop[:MAX_NAME_CHARS]!r} cannot be the id of a loop: letters, digits, '-', '_' and '.' make one"
    if not is_repository_address(spec.repo):
        yield bad_address_message(spec.repo)
    for name, url in (("repo", spec.repo), ("artifacts", spec.artifacts)):
        # Specs appear in workflow histories, databases and process lists.
        scheme, _, rest = url.partition("://")
        user, _, _ = rest.partition("/")[0].rpartition("@")
        if ":" in user or (user and scheme in ("http", "https")):
            shown = without_password(url)[:200]
            advice = f"write {shown}, and let workers have it (git's credentials)"
            yield f"{name} of the loop spec holds a password; {advice}"
    for name, ref in (("base", spec.base), ("target", spec.target)):
        odd = ref.startswith("-") or ".." in ref or any(letter in " ~^:?*[\\@{" for letter in ref)
        if odd or not ref.isprintable() or (name == "base" and not ref):
            yield f"{name} of the loop spec must be a branch or a commit, not {ref[:200]!r}"
    request: Any = spec.request.get("request")
    if not isinstance(request, dict) or not isinstance(spec.request.get("flags"), dict):
        yield "request of the loop must hold a request and its flags"
    prompt = request.get("prompt")
    if not isinstance(prompt, list) or len(prompt) != 2 or prompt[1] is not None:
        yield "the prompt of a loop spec must be a text; a file is on the submitter's machine alone"
    if spec.request.get("custom"):
        yield "functions passed by a program cannot be sent to another machine"
    if spec.task is None and request.get("task_id"):
        yield f"the loop spec is for task {str(request['task_id'])[:MAX_NAME_CHARS]!r}, and does not hold it"
    for name in ("submitter", "artifacts"):
        if not getattr(spec, name).isprintable():
            yield f"{name} of the loop spec has characters that cannot be printed"


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


# Progress and end of a loop


MAX_MESSAGE_CHARS = 500
NOT_LANDED = "NOT_LANDED"  # completed, but the work could not land on the target as it is now


@value
class LoopEnd:
    """How a loop ended: its run's outcome words and exit code."""

    status: str
    reason: str = ""
    message: str = ""
    exit_code: int = 0
    proof: str = ""


@value
class LoopProgress:
    """State of a loop between two steps.

    `number` counts steps, and is the number of the next permit. `epoch` identifies the worker that has the loop: each
    takeover increases it. `head` is the commit of its record, empty before the first one. `next` is the action that the
    last step reported as next, not before `until`.
    """

    number: int = 1
    epoch: int = 1
    worker: str = ""
    iterations: int = 0
    spend: Spend = Spend()
    next: str = "PickNextJob"
    until: float | None = None
    head: str = ""
    end: LoopEnd | None = None

    def after(self, report: dict[str, Any]) -> LoopProgress:
        """Progress after a step that rested."""
        fields = ("iterations", "spend", "next", "until", "head", "end")
        return replace(self, number=self.number + 1, **{name: unpack(report[name]) for name in fields})

    def wait_s(self, now: float) -> float:
        """Seconds to wait before the next step."""
        return 0.0 if self.until is None else max(0.0, self.until - now)

    def remaining_budget(self, budget: int | None) -> int | None:
        """What the loop may still spend of its budget."""
        return None if budget is None else max(0, budget - self.spend.micro_usd)

    def with_end(self, end: LoopEnd) -> LoopProgress:
        """The loop after its end."""
        return replace(self, end=end, next="Finish", until=None)

    def without_worker(self) -> LoopProgress:
        """The loop taken away from its worker; the next one has a higher epoch."""
        return replace(self, worker="", epoch=self.epoch + 1)

    @property
    def published(self) -> dict[str, Json]:
        """The JSON form in the command line's and the API's output."""
        end = self.end
        return {
            "iterations": self.iterations,
            "next": self.next,
            "until": self.until,
            "worker": self.worker,
            "head": self.head,
            "costUSD": self.spend.usd,
            "knownCostUSD": self.spend.micro_usd / 1_000_000,
            "tokens": self.spend.tokens,
            "status": end.status if end else "",
            "reason": end.reason if end else "",
            "message": end.message if end else "",
            "proof": end.proof if end else "",
            "exitCode": end.exit_code if end else None,
        }


def loop_end(outcome: Outcome) -> LoopEnd:
    """The end of a loop whose run ended with this outcome."""
    match outcome:
        case Completed():
            return LoopEnd(outcome.status, "", _shorten("; ".join(outcome.concerns)), 0, outcome.proof)
        case Aborted(breach):
            return LoopEnd(outcome.status, breach.reason, _shorten(breach.message), outcome.exit_code)
        case Failed(error):
            return LoopEnd(outcome.status, "", _shorten(error), outcome.exit_code)


def end_after_landing(end: LoopEnd, commit: str, why: str) -> LoopEnd:
    """The end of a completed loop with a target branch: it counts as completed only if the work landed as a commit."""
    if commit:
        return replace(end, message=_shorten(f"landed as {commit[:12]}; {end.message}".rstrip("; ")))
    return LoopEnd("ABORTED", NOT_LANDED, _shorten(why), 1, end.proof)


def _shorten(text: str) -> str:
    return text[:MAX_MESSAGE_CHARS]


def cost_between(before: Spend, after: Spend) -> tuple[int | None, int]:
    """Cost of a step: micro-dollars (None if unknown) and tokens."""
    known = after.unpriced == before.unpriced
    return after.micro_usd - before.micro_usd if known else None, max(0, after.tokens - before.tokens)


def cancelled_end() -> LoopEnd:
    """The end of a loop that was cancelled before it started."""
    return LoopEnd("ABORTED", CANCELLED, "the loop was cancelled", 130)


def out_of_money_end(reason: str, message: str) -> LoopEnd:
    """The end of a loop that cannot be paid for."""
    return LoopEnd("ABORTED", reason, _shorten(message), 1)


def failed_end(message: str, exit_code: int = 3) -> LoopEnd:
    """The end of a loop that could not be continued."""
    return LoopEnd("ERROR", "", _shorten(message), exit_code)


# Timeouts and intervals


HEARTBEAT_S = 30.0
PERMIT_RETRY_S, PERMIT_RETRY_MAX_S = 60.0, 3600.0  # until a waiting loop repeats its request for a permit
CLAIM_TIMEOUT_S, CLAIM_HOLD_S = 5.0, 10.0  # a claim waits this long for a slot; a claimed slot is reserved this long
MAX_CLAIMS = 8  # concurrent claims per worker
RETRY_S, RETRY_MAX_S = 1.0, 10.0  # until a claim or an event to the governor is retried
SPEND_REPORT_S = 5.0  # between two spend reports of a step to the governor
LOST_RETRY_MAX_S = 30.0
FAILED_RETRY_MAX_S = 300.0


@value
class FleetTiming:
    """Timeouts and intervals of a fleet, chosen by the submitter.

    `heartbeat_s` is how long a worker may be silent, and how long after that it may come back, before its turns are
    given to another one; a worker that cannot reach the server for that long ends its agents itself. A cancelled turn
    has `cancel_s` to end gracefully, then it is killed; `kill_s` later its program is abandoned. `tries` is how many
    times in a row a step may be lost before the loop fails. `steps` is the number of steps in one workflow history,
    `events` the number of events in one history of the governor; `sweep_s` is how often the governor looks for loops
    that no longer exist.
    """

    heartbeat_s: float = HEARTBEAT_S
    cancel_s: float = 20.0
    kill_s: float = 10.0
    tries: int = 8
    steps: int = 200
    sweep_s: float = 300.0
    events: int = 2000

    @property
    def beat_s(self) -> float:
        """Seconds between two heartbeats."""
        return max(0.2, min(2.0, self.heartbeat_s / 4))


def permit_retry_s(attempts: int) -> float:
    """Seconds until a loop repeats its request. Backs off: thousands of loops may wait for one governor."""
    return min(PERMIT_RETRY_S * 2.0 ** min(attempts - 1, 16), PERMIT_RETRY_MAX_S)


def lost_retry_s(tries: int) -> float:
    """Seconds until a lost step is retried, by the number of losses in a row."""
    return min(2.0**tries / 4, LOST_RETRY_MAX_S)
