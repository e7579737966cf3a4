"""Rules on bypassing checks, hooks and the guard itself."""

from __future__ import annotations

import re

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.guard.matching import shown, told
from ralphproof.guard.nest import GIT_SHELLS, git_words
from ralphproof.guard.simple import Simple, has, split
from ralphproof.guard.verdict import Objection, Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.guard.matching import Table
    from ralphproof.guard.verdict import Ground

NO_VERIFY = Rule("no-verify", "tampering", "keeps git from running the project's hooks", "make the work pass the hooks")
GIT_RUNS = Rule(
    "git-setting-runs", "tampering", "sets something that git will execute",
    "leave git's settings as they are",
)  # fmt: skip
BLIND = Rule("git-blind", "tampering", "hides changes of a file from git", "commit the change, or leave the file alone")
HOOKS_OFF = Rule("hooks-off", "tampering", "turns the project's hooks off", "make the work pass the hooks")
UNGUARDED = Rule("unguarded-agent", "tampering", "starts an agent without any guard", "do the work yourself")
SEARCH_PATH = Rule(
    "search-path", "tampering", "lets files of the current folder stand in for programs",
    "give the path of the program",
)  # fmt: skip
PRELOAD = Rule("preload", "tampering", "puts other code into every program that it runs", "run the program as it is")
RULES = (NO_VERIFY, GIT_RUNS, BLIND, HOOKS_OFF, UNGUARDED, SEARCH_PATH, PRELOAD)
VERIFYING = {"commit", "push", "merge", "am", "rebase", "cherry-pick", "revert", "pull"}
EXECUTED = re.compile(
    r"core\.(hookspath|fsmonitor|sshcommand|editor|pager|askpass|alternaterefscommand|gitproxy)|alias\..*|diff\.external"
    r"|(credential|gpg|sequence|include|uploadpack|protocol)(\..*)?\.(helper|program|editor|path|packobjectshook|allow)"
    r"|(filter|diff|merge|difftool|mergetool)\..*\.(clean|smudge|process|textconv|command|driver|cmd|path)"
    r"|includeif\..*\.path|url\..*\.insteadof",
    re.IGNORECASE,
)
GIVEN = {
    "HUSKY": ("0",), "HUSKY_SKIP_HOOKS": ("1", "true"), "SKIP": None, "PRE_COMMIT_ALLOW_NO_CONFIG": ("1",),
    "LEFTHOOK": ("0", "false"),
    "GIT_SSH_COMMAND": None, "GIT_EXTERNAL_DIFF": None, "GIT_CONFIG_PARAMETERS": None, "GIT_CONFIG_COUNT": None,
    "GIT_HOOKS_PATH": None,
    "GIT_PROXY_COMMAND": None, "GIT_ASKPASS": None, "GIT_EXEC_PATH": None, "GIT_TEMPLATE_DIR": None,
}  # fmt: skip
PRELOADS = {"LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "DYLD_INSERT_LIBRARIES", "BASH_ENV", "ENV", "PROMPT_COMMAND"}
TABLE: Table = {
    "pre-commit": (("uninstall", HOOKS_OFF),), "husky": (("uninstall", HOOKS_OFF),),
    "lefthook": (("uninstall", HOOKS_OFF),),
    "claude": (
        ("+--dangerously-skip-permissions|--allow-dangerously-skip-permissions", UNGUARDED),
        ("mcp add*|remove", UNGUARDED),
    ),
    "codex": (("+--dangerously-bypass-approvals-and-sandbox|--yolo|--full-auto", UNGUARDED),),
    "gemini": (("+--yolo|-y", UNGUARDED),),
    "qwen": (("+--yolo|-y", UNGUARDED),), "opencode": (("+--yolo|--auto", UNGUARDED),),
    "amp": (("+--dangerously-allow-all", UNGUARDED),),
    "copilot": (("+--allow-all|--allow-all-tools|--yolo", UNGUARDED),), "aider": (("+--yes-always", UNGUARDED),),
    "ralph": (("run|stories|work|supervise|resume +--no-sandbox", UNGUARDED), ("config set", UNGUARDED)),
}  # fmt: skip


def found(one: Simple, _: Ground) -> Iterator[Objection]:
    """What a command goes round."""
    yield from told(one, TABLE, {})
    if one.name == "git":
        yield from _git(one)
    if one.name == "=" and len(one.words) == 3:
        yield from _set(one.words[1], one.words[2], one)
    for name, text in one.given:
        yield from _set(name, text, one)
    if one.name == "git":
        for name, text in one.given:
            wanted = GIVEN.get(name, ())
            if wanted is None or text in wanted:
                yield (GIT_RUNS if name.startswith("GIT_") else NO_VERIFY).about(shown(one))


def _set(name: str, text: str, one: Simple) -> Iterator[Objection]:
    if name == "PATH" and {"", "."} & set(
        text.split(":")[:-1] if text.endswith(":") and text != ":" else text.split(":")
    ):
        yield SEARCH_PATH.about(f"PATH={text}")
    elif name in PRELOADS and text and name not in ("LD_LIBRARY_PATH", "ENV"):
        yield PRELOAD.about(f"{name}={text} {shown(one)}")


def _git(one: Simple) -> Iterator[Objection]:
    words = git_words(one)
    options, rest = split(words[1:], ("-m", "-F", "-C", "-c", "--message", "--author", "-f", "--file"))
    for i, word in enumerate(one.words[1:], 1):
        if (
            one.words[i - 1] in ("-c", "--config-env")
            and EXECUTED.fullmatch(word.partition("=")[0])
            and word != "core.pager=cat"
        ):
            yield GIT_RUNS.about(shown(one))
    if words[:1] and words[0] in VERIFYING:
        short = words[0] == "commit" and has(options, "-n", takes="mFCct")
        if short or any(len(one) > 6 and "--no-verify".startswith(one) for one in options):
            yield NO_VERIFY.about(shown(one))
    elif words[:1] == ["config"]:
        yield from _config(one, options, rest)
    elif words[:1] == ["update-index"] and has(options, "--assume-unchanged", "--skip-worktree"):
        yield BLIND.about(shown(one))


def _config(one: Simple, options: list[str], rest: list[str]) -> Iterator[Objection]:
    if rest[:1] in (["set"], ["unset"], ["get"], ["list"]):
        options, rest = [*options, f"--{rest[0]}"], rest[1:]
    reads = has(options, "--get", "--list", "-l", "--get-all", "--get-regexp", "--show-origin")
    if reads or not rest or (len(rest) < 2 and not has(options, "--unset", "--unset-all")):
        return
    if EXECUTED.fullmatch(rest[0]) or rest[0].lower() in GIT_SHELLS:
        yield GIT_RUNS.about(shown(one))
