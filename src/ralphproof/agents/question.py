"""A turn that is one question: no tool, no file, no session that stays, and no customisation that steers the answer."""

from __future__ import annotations

from ralphproof.agents.dialect import MICRO, Call
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

MANNER = (
    "You judge work that others did. You have no tools. Answer in the form that you are asked for, and in no other."
)
SCHEMA = ".schema.json"
# Small models, by what each agent's own list or help calls them. The others have no name for one that always holds.
SMALL: Mapping[str, str] = {"claude": "haiku", "codex": "gpt-6-luna", "gemini": "flash-lite", "amp": "rush"}


def small_model(name: str) -> str:
    """The small model of an agent, as its `--model` takes it; empty where its own default must do."""
    if name == "codex":
        from ralphproof.agents.codex import bought_elsewhere

        return "" if bought_elsewhere() else SMALL[name]
    return SMALL.get(name, "")


def only(flags: tuple[str, ...], *names: str, bare: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Of the user's own flags these options with their values, and those that have none: the rest could loosen it."""
    kept: list[str] = []
    words = iter(flags)
    for flag in words:
        name, equals, _ = flag.partition("=")
        if name in bare:
            kept.append(flag)
        elif name in names:
            kept += [flag] if equals else [flag, *(word for word in [next(words, None)] if word is not None)]
    return tuple(kept)


def dollars(call: Call) -> str | None:
    """What the question may cost; None where nobody says."""
    most = call.brief.most_micro_usd
    return None if most is None else f"{most / MICRO:f}"
