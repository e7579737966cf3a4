"""Who could have made a proof say what is not so: plain sentences from what held the agent and how checks were run."""

from __future__ import annotations

from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ralphproof.value import Json

NAMED = 10
UNBOXED = (
    "The agent ran without a sandbox as the same user: it could have changed anything of that user's, this record too."
)
IN_PLACE = "Checks ran in the project's folder: ignored files and what the agent left there could have influenced them."
CLEAN = (
    "The last checks ran in a clean checkout of what would be committed: ignored and left-over files had no part in it."
)
UNPROTECTED = (
    "Tests were not protected: the agent could change them. What changed of that which decides over the checks is part "
    "of the proof."
)
RECORD = (
    "The record lies outside the repository. Each entry is bound to the one before it by a digest, and nothing is "
    "signed: whoever could write as that user could have written all of it anew."
)
JUDGED = "A model's judgement can be swayed by the work that it reads: {}."
UNASKED = "No check looked at the work: nothing but the agent's own word could say that it is done."


def tampering(sandboxes: Sequence[Json], checks: Sequence[Mapping[str, Json]], protects: bool) -> Iterator[str]:
    """Each way that is open, in a sentence; and what was closed."""
    for sandbox in sandboxes:
        yield _held(sandbox) if isinstance(sandbox, dict) else UNBOXED
    commands = [check for check in checks if not check["judged"]]
    again = {check["command"] for check in commands if check["clean"]}
    if any(not check["clean"] and check["command"] not in again for check in commands if check["required"]):
        yield IN_PLACE
    elif again:
        yield CLEAN
    judges = [str(check["name"]) for check in checks if check["judged"]]
    if judges:
        yield JUDGED.format(", ".join(judges[:NAMED]))
    if not checks:
        yield UNASKED
    elif not protects:
        yield UNPROTECTED
    yield RECORD


def _held(sandbox: dict[str, Json]) -> str:
    name, strength = str(sandbox.get("name")), sandbox.get("strength")
    if strength == "strong":
        reach = _listed(sandbox.get("allowHosts"))
        calls = f" It could call {reach}." if reach else " It could call nobody."
        return (
            f"The agent ran in the sandbox {name} (strong): it could write to the project's files, and not to this "
            f"record, to ralph or to anything else of the user's.{calls}"
        )
    if strength == "partial":
        weak = _listed(sandbox.get("weak"))
        known = f" Known weak points: {weak}." if weak else ""
        return f"The agent ran in the sandbox {name}, which holds in part: what it leaves open was open.{known}"
    return UNBOXED


def _listed(data: Json) -> str:
    found = [str(one) for one in data] if isinstance(data, list | tuple) else []
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return ", ".join(found[:NAMED]) + more
