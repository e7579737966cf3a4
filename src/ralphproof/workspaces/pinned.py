"""What a commit or a push would run, fingerprinted, so that a later change is noticed."""

from __future__ import annotations

import os

from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Marks = tuple[tuple[str, str], ...]  # what, digest

COMMIT_KEYS = frozenset((
    "core.hookspath", "core.fsmonitor", "core.attributesfile", "core.worktree", "core.sshcommand", "core.gitproxy",
    "core.askpass", "commit.gpgsign", "commit.template", "user.signingkey", "core.alternaterefscommand",
))  # fmt: skip
COMMIT_SECTIONS = ("gpg.", "filter.", "hook.")
SEND_SECTIONS = ("remote.", "url.", "credential.", "alias.", "push.", "http.", "https.", "protocol.", "ssh.")
HOOK_TOOLS = (".pre-commit-config.yaml", "lefthook.yml", "lefthook.yaml", ".lefthook.yml", ".huskyrc", ".lintstagedrc")
LARGEST_BYTES = 1 << 22


def settings_marks(listed: bytes, sending: bool) -> Marks:
    """Marks of the settings that name a program, or decide where work is sent; from `git config -z --list`."""
    found: dict[str, list[bytes]] = {}
    for record in listed.split(b"\0"):
        name, _, text = record.partition(b"\n")
        key = name.decode("utf-8", "replace")
        if _sends(key) if sending else key in COMMIT_KEYS or key.startswith(COMMIT_SECTIONS):
            found.setdefault(key, []).append(text)
    return tuple((f"setting {key}", _digest(b"\0".join(texts))) for key, texts in sorted(found.items()))


def _sends(key: str) -> bool:
    where = key.startswith("branch.") and key.endswith((".remote", ".pushremote", ".merge"))
    return where or key.startswith(SEND_SECTIONS)


def hook_marks(hooks: str, root: str) -> Marks:
    """Marks of the hooks that git would run, and of the files that well-known hooks take their orders from."""
    marks = dict(_folder_marks(hooks))
    if not marks:
        return ()
    above = os.path.dirname(hooks)
    if os.path.realpath(hooks).startswith(root + "/") and ".git" not in hooks.split("/") and above != root:
        marks |= _folder_marks(above)
    for name in HOOK_TOOLS:
        marks |= _file_mark(os.path.join(root, name))
    return tuple(sorted(marks.items()))


def _folder_marks(folder: str) -> Iterator[tuple[str, str]]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        if not name.endswith(".sample"):
            yield from _file_mark(os.path.join(folder, name)).items()


def program_marks(words: Sequence[str], root: str) -> Marks:
    """Marks of the files of the project that a command names."""
    named = (os.path.normpath(os.path.join(root, word)) for word in words)
    marks: dict[str, str] = {}
    for file in named:
        if file.startswith(root + "/"):
            marks |= _file_mark(file, "program")
    return tuple(sorted(marks.items()))


def _file_mark(file: str, what: str = "hook") -> dict[str, str]:
    """Links are followed: what would run is what they lead to."""
    try:
        if not os.path.isfile(file):
            return {}
        with open(file, "rb") as opened:
            content = opened.read(LARGEST_BYTES)
        runs = b"x" if os.access(file, os.X_OK) else b"-"
    except OSError as error:
        return {f"{what} {file}": f"unreadable {error.errno}"}
    return {f"{what} {file}": _digest(runs + content)}


def _digest(content: bytes) -> str:
    import hashlib

    return hashlib.sha256(content).hexdigest()


def changed(before: Marks, now: Marks) -> list[str]:
    """What is not as it was."""
    return sorted({name for name, _ in set(before) ^ set(now)})
