"""What an agent in a sandbox may ask for: nothing that the harness would read, load or start outside of it."""

from __future__ import annotations

import os
import stat

from ralphproof.agents.command import words
from ralphproof.config.box_project import OURS
from ralphproof.errors import RalphError, Refused
from ralphproof.value import TYPE_CHECKING, replace

if TYPE_CHECKING:
    from typing import Any

    from ralphproof.cli.order import Wish

MOST_BYTES = 16 << 20
_AS_IT_STANDS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# Settings that say what is asked and how often, and start nothing but what runs inside.
OPEN = frozenset((
    "preset", "maximumIterations", "completionResponse", "outputTruncateChars", "outputTruncateMode",
    "streamAgentOutput", "includeIterationCountInPrompt", "contextInjection", "checksWhen", "requireProof", "limits",
    "protectedPaths", "review", "supervise", "guardrails", "agent", "sandbox",
))  # fmt: skip
OF_AGENTS = frozenset(("command", "flags", "model", "timeoutSeconds", "idleTimeoutSeconds", "retries"))
OF_CHECKS = frozenset(("command", "failAction", "hint", "name", "timeoutSeconds", "retries"))


def unfit(wish: Wish, root: str, task_folder: str) -> str:
    """Why a wish may not leave the sandbox, in one clause; empty where it may. `sandbox` settings are ours anyway."""
    for name, path in (("its prompt", wish.prompt[1]), ("its task folder", wish.task_folder)):
        if path and not _within(os.path.join(root, path), (root, task_folder)):
            return f"{name} lies outside of the sandbox"
    task = os.path.join(root, wish.task_folder)
    if _within(task, (os.path.join(root, OURS),)) and not _within(task, (task_folder,)):
        return f"its task folder lies in {OURS}, which is held"
    if not _within(os.path.join(root, wish.folder or ""), (root,)):
        return "its project lies outside of the sandbox"
    closed = sorted(set(wish.flags) - OPEN)
    closed += [f"agent.{name}" for name in sorted(set(_table(wish.flags.get("agent"))) - OF_AGENTS)]
    checks = wish.flags.get("guardrails")
    for check in checks if isinstance(checks, list) else ():
        closed += [f"guardrails.{name}" for name in sorted(set(_table(check)) - OF_CHECKS)]
    if closed:
        return f"{closed[0]} is for the user to set"
    return _unloadable(_table(wish.flags.get("agent")).get("command"))


def enclosed(wish: Wish, root: str, task_folder: str) -> Wish:
    """The same with what its prompt's file says now: whoever asks is still at work, and may put a link there later."""
    if not wish.prompt[1]:
        return wish
    real = os.path.realpath(os.path.join(root, wish.prompt[1]))
    tops = [top for top in map(os.path.realpath, (root, task_folder)) if real.startswith(top + "/")]
    try:
        text = _text(tops[0], os.path.relpath(real, tops[0]).split("/")) if tops else None
    except OSError:
        text = None
    if text is None:
        raise Refused("its prompt cannot be read")
    return replace(wish, prompt=(text.decode("utf-8", "replace"), None))


def _text(top: str, names: list[str]) -> bytes | None:
    """What a plain file says that no link leads to; None where it is none."""
    place = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for name in names:
        above = place
        try:
            place = os.open(name, _AS_IT_STANDS, dir_fd=above)
        finally:
            os.close(above)
    with open(place, "rb") as file:
        return file.read(MOST_BYTES) if stat.S_ISREG(os.fstat(place).st_mode) else None


def _unloadable(command: object) -> str:
    """An agent that is a function would be loaded into the harness."""
    try:
        program = words(command, ())[0] if isinstance(command, str) and command.strip() else ""
    except RalphError:
        return "its agent cannot be understood"
    return "its agent would be loaded outside of the sandbox" if ":" in program and "/" not in program else ""


def _table(item: object) -> dict[str, Any]:
    return item if isinstance(item, dict) else {}


def _within(path: str, folders: tuple[str, ...]) -> bool:
    real = os.path.realpath(path)
    return any((real + "/").startswith(os.path.realpath(folder) + "/") for folder in folders)
