"""Which commands a file may have run: those of the commit's own settings. All others need somebody's yes."""

from __future__ import annotations

import os

from ralphproof.config.guardrails import guardrails_of
from ralphproof.config.jsontext import MOST_BYTES, Unusable, decode, parse
from ralphproof.config.stage_leaves import inquiry
from ralphproof.errors import HarnessFailed
from ralphproof.plan import External
from ralphproof.proof_shape import sha256
from ralphproof.value import TYPE_CHECKING, replace, value
from ralphproof.workspaces.checkout import Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ralphproof.attested import Attested

SETTINGS, STORIES = ".ralph/settings.json", "ralph/tasks.json"
WITHHELD = "its command is withheld, and not in that commit's settings; ralph proof export has it, where the run was"
# What a guardrail's settings hold where nobody says more.
_USUAL: dict[str, object] = {
    "command": None, "failAction": "APPEND", "hint": "", "name": "", "timeoutSeconds": 600.0, "retries": 0,
    "method": "external", "config": {},
}  # fmt: skip


@value
class Sanction:
    """What a commit's settings let a proof run. `settings` is the digest of its settings file, None where it has none.

    A way is a command, the folder that it runs in, the exit code with which it passes, and what its output must hold
    and lack. `asked` is what the settings want to be asked, `setup` what prepares a checkout.
    """

    settings: str | None
    ways: tuple[tuple[str, str, int, str, str], ...] = ()
    asked: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()

    def covers(self, check: Attested) -> bool:
        """Whether the settings name this command, in this folder, by this rule."""
        rule = check.rule
        way = (os.path.normpath(rule.folder), rule.success_code, rule.contains, rule.lacks)
        return check.command is not None and (check.command, *way) in self.ways

    def found(self, check: Attested) -> Attested:
        """The check with its command, where that is withheld and the settings have it."""
        if check.command is not None:
            return check
        command = next((one for one, *_ in self.ways if sha256(one) == check.digest), None)
        return replace(check, command=command)


def sanction_of(root: str, commit: str, environ: Mapping[str, str]) -> Sanction:
    """What the settings of this commit name. Nothing of it is trusted: what cannot be read names nothing."""
    source = Source(root, environ)
    data = _file(source, commit, SETTINGS)
    settings, stories = _object(data), _object(_file(source, commit, STORIES))
    guardrails = tuple(_guardrails(settings.get("guardrails")))
    final = tuple(_texts(settings.get("finalChecks")))
    plain = (*final, *_texts(stories.get("verifyCommands")))
    ways = (*map(_way, guardrails), *((command, ".", 0, "", "") for command in plain))
    asked = (*(how.command for how in guardrails), *final)
    return Sanction(_digest(data), tuple(dict.fromkeys(ways)), asked, tuple(_texts(settings.get("setup"))))


def _way(how: External) -> tuple[str, str, int, str, str]:
    return (
        how.command, os.path.normpath(how.folder), how.success_exit_code, how.output_contains, how.output_not_contains,
    )  # fmt: skip


def _file(source: Source, commit: str, path: str) -> bytes | None:
    """What a file of the commit holds; None where there is none. A link is none: it would lead out of the commit."""
    row = source.ask("ls-tree", "-z", commit, "--", path).out
    if not row.startswith((b"100644 ", b"100755 ")):
        return None
    reply = source.ask("cat-file", "blob", f"{commit}:{path}")
    if reply.code != 0:
        raise HarnessFailed(f"{path} of commit {commit} is not in this clone: {reply.said}")
    return reply.out


def _digest(data: bytes | None) -> str | None:
    import hashlib

    return None if data is None else hashlib.sha256(data).hexdigest()


def _object(data: bytes | None) -> dict[str, object]:
    text = decode(data) if data is not None and len(data) <= MOST_BYTES else Unusable("")
    found = parse(text).data if isinstance(text, str) else None
    return found if isinstance(found, dict) else {}


def _texts(data: object) -> Iterator[str]:
    yield from (one for one in data if isinstance(one, str)) if isinstance(data, list) else ()


def _guardrails(data: object) -> Iterator[External]:
    """Every command of the guardrails, those of several stages taken to pieces."""
    for item in data if isinstance(data, list) else ():
        if isinstance(item, dict):
            yield from _commands(item)


def _commands(item: dict[str, object]) -> Iterable[External]:
    try:
        (guardrail,) = guardrails_of([_USUAL | item])
        leaves = inquiry(guardrail.name, guardrail.how).leaves
    except (TypeError, ValueError, KeyError, AttributeError):
        return ()  # no run could have begun with such settings
    return tuple(leaf.how for leaf in leaves if isinstance(leaf.how, External) and isinstance(leaf.how.command, str))
