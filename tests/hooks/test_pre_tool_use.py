"""The PreToolUse hook asks the command guard: no output allows a call, and every failure denies it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ralphproof.agents.hook_commands import GUARD_SILENT, guard_hook_commands
from tests.hooks.session import CLAUDE, CODEX, RALPH, TIMEOUT_S, Answer, Json, Session
from tests.hooks.test_quick import SLOW, loaded

MODULE = [sys.executable, "-I", "-m", "ralphproof.hooks.pre_tool_use"]
IN_VAIN = "ralph guard: this call was not made, because it could not be judged: "


class Guarded(Session):
    """A session whose every tool call the guard looks at."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.home, self.rules = folder / "home", folder / "the user's rules.json"
        self.rule()

    def rule(self, **other: Any) -> None:
        """Write the rules of the run."""
        usual = {"root": str(self.root), "allow": [], "deny": [], "protected": []}
        self.rules.write_text(json.dumps(usual | other), "utf-8")

    def calls(self, tool: str = "Bash", agent: str = CLAUDE, **arguments: Any) -> Json:
        """The event of a call, as a real program tells it, with these arguments."""
        return self.event(agent, "PreToolUse", tool_name=tool, tool_input=arguments)

    def judged(self, event: Json | bytes, **given: Any) -> Answer:
        return self.call([*MODULE, str(self.rules)], event, **given)

    def through_the_shell(self, event: Json | bytes) -> Answer:
        """As a run has its agents call it."""
        ((name, command),) = guard_hook_commands(str(self.rules))
        assert name == "PreToolUse"
        return self.call(["/bin/sh", "-c", command], event)


@pytest.fixture
def guarded(tmp_path: Path) -> Guarded:
    return Guarded(tmp_path)


def why(answer: Answer) -> str:
    """Why a call was denied, in the form that both programs read; empty where nothing was said."""
    assert answer.code == 0, answer
    return reason(answer) if answer.out else ""


def reason(answer: Answer) -> str:
    said = json.loads(answer.out)
    assert set(said) == {"hookSpecificOutput"}
    denial = said["hookSpecificOutput"]
    assert (denial["hookEventName"], denial["permissionDecision"]) == ("PreToolUse", "deny")
    return str(denial["permissionDecisionReason"])


def failed(answer: Answer) -> str:
    """Why a call could not be judged: it is held back by the exit code, and both forms of a reason say the same."""
    assert answer.code == 2, answer
    assert answer.err.splitlines()[-1] == reason(answer)
    return reason(answer)


RECORDED = [(CLAUDE, "Bash", True), (CLAUDE, "Read", True), (CLAUDE, "Write", False), (CODEX, "Bash", True),
            (CODEX, "view_image", False), (CODEX, "apply_patch", False)]  # fmt: skip


@pytest.mark.parametrize(("agent", "tool", "dangerous"), RECORDED)
def test_what_real_programs_say_is_understood(guarded: Guarded, agent: str, tool: str, dangerous: bool) -> None:
    events = (guarded.event(agent, "PreToolUse", at) for at in range(4 if agent == CLAUDE else 3))
    text = json.dumps(next(one for one in events if one["tool_name"] == tool))
    event = json.loads(text.replace("{project}", str(guarded.root)).replace("{home}", str(guarded.home)))
    said = why(guarded.judged(event))
    assert said.startswith("ralph guard [") is dangerous, said
    assert ("; instead: " in said) is dangerous


@pytest.mark.parametrize("command", ["git status", "make test 2>&1 | tail -5", "rm -rf build", "echo 'rm -rf ~'"])
def test_to_a_harmless_command_nothing_is_said(guarded: Guarded, command: str) -> None:
    assert guarded.judged(guarded.calls(command=command)) == Answer(0, "", "")
    assert guarded.through_the_shell(guarded.calls(command=command)) == Answer(0, "", "")


def test_a_denial_is_one_line_that_no_terminal_obeys(guarded: Guarded) -> None:
    said = why(guarded.judged(guarded.calls(command="rm -rf ~/x\x1b[2J\n\n")))
    assert said.startswith("ralph guard [")
    assert said.isprintable()


def test_a_call_is_judged_where_it_would_be_made(guarded: Guarded) -> None:
    event = guarded.calls(command="rm -rf build")
    assert why(guarded.judged(event)) == ""
    assert why(guarded.judged({**event, "cwd": str(guarded.home)})) != ""


def test_protected_paths_of_the_run_reach_the_guard(guarded: Guarded) -> None:
    event = guarded.calls("Write", file_path=str(guarded.root / "kept" / "a.txt"), content="x")
    assert why(guarded.judged(event)) == ""
    guarded.rule(protected=["kept/"])
    assert why(guarded.judged(event)) != ""


def test_lists_of_the_project_reach_the_guard(guarded: Guarded) -> None:
    harmless, dangerous = guarded.calls(command="make deploy"), guarded.calls(command="rm -rf ~/x")
    assert why(guarded.judged(harmless)) == ""
    guarded.rule(allow=["rm -rf ~/x"], deny=["make deploy"])
    assert why(guarded.judged(harmless)) != ""
    assert why(guarded.judged(dangerous)) == ""


def test_a_guard_is_not_silent_where_installed_hooks_are(guarded: Guarded) -> None:
    assert why(guarded.judged(guarded.calls(command="rm -rf ~/x"), env={"RALPH_HOOKED": "1"})) != ""


# Whatever fails, denies


def changed(**fields: Any) -> Callable[[Guarded], Json]:
    return lambda guarded: {**guarded.calls(command="ls"), **fields}


@pytest.mark.parametrize(
    "event",
    [
        b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b" " * (32 << 20) + b"{}", {},
        changed(tool_name=None), changed(tool_name=""), changed(tool_name=["Bash"]), changed(tool_input=None),
        changed(tool_input="ls"), changed(tool_input=["ls"]), changed(cwd=None), changed(cwd="here"),
        changed(cwd="/\0"),
    ],
    ids=lambda event: event[:8].decode("latin-1") if isinstance(event, bytes) else "",
)  # fmt: skip
def test_an_event_that_makes_no_sense_denies(guarded: Guarded, event: Any) -> None:
    said = failed(guarded.judged(event(guarded) if callable(event) else event))
    assert said.startswith(f"{IN_VAIN}th")


def no_rules(path: Path) -> None:
    path.unlink()


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def large(path: Path) -> None:
    path.write_bytes(b" " * (5 << 20) + path.read_bytes())


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (no_rules, " cannot be read: No such file or directory"),
        (a_folder, " cannot be read: it is no file"),
        (a_pipe, " cannot be read: it is no file"),
        (large, ": larger than 4 MiB"),
    ],
)
def test_rules_that_cannot_be_read_deny(guarded: Guarded, spoil: Callable[[Path], None], says: str) -> None:
    spoil(guarded.rules)
    assert failed(guarded.judged(guarded.calls(command="ls"))) == f"{IN_VAIN}the guard's rules{says}"


RULES: Json = {"root": "/p", "allow": [], "deny": [], "protected": []}


@pytest.mark.parametrize(
    "rules",
    [
        b"", b"{", [], {}, RULES | {"root": "p"}, RULES | {"root": None}, RULES | {"allow": "ls"},
        RULES | {"deny": [1]}, {name: rule for name, rule in RULES.items() if name != "protected"},
    ],
)  # fmt: skip
def test_rules_that_make_no_sense_deny(guarded: Guarded, rules: Any) -> None:
    guarded.rules.write_bytes(rules if isinstance(rules, bytes) else json.dumps(rules).encode())
    assert failed(guarded.judged(guarded.calls(command="ls"))).startswith(f"{IN_VAIN}the guard's rules ")


@pytest.mark.parametrize("words", [[], ["a.json", "b.json"]])
def test_a_guard_that_is_called_wrongly_denies(guarded: Guarded, words: list[str]) -> None:
    assert "one argument" in failed(guarded.call([*MODULE, *words], guarded.calls(command="ls")))


@pytest.mark.parametrize(("without", "command"), [("tree_sitter", "ls | wc"), ("ralphproof.guard.tools", "ls")])
def test_a_guard_without_its_parser_denies(guarded: Guarded, without: str, command: str) -> None:
    start = (
        f"import sys; sys.modules[{without!r}] = None; from ralphproof.hooks.pre_tool_use import main; sys.exit(main())"
    )
    said = failed(guarded.call([sys.executable, "-I", "-c", start, str(guarded.rules)], guarded.calls(command=command)))
    assert said.startswith(f"{IN_VAIN}the guard failed: ")


def test_a_guard_that_takes_too_long_is_ended(guarded: Guarded) -> None:
    """By the system: what takes long may be no Python. Nobody ever closes its standard input here."""
    start = "import sys, ralphproof.hooks.pre_tool_use as h; h.TIME_LIMIT_S = 0.2; sys.exit(h.main())"
    reader, writer = os.pipe()
    try:
        argv = [sys.executable, "-I", "-c", start, str(guarded.rules)]
        ended = subprocess.run(argv, stdin=reader, capture_output=True, timeout=TIMEOUT_S, check=False)
    finally:
        os.close(reader)
        os.close(writer)
    assert (ended.returncode, ended.stdout) == (-signal.SIGALRM, b"")


@pytest.mark.parametrize("ends", ["exit 1", "exit 3", "kill -9 $$", "kill -ALRM $$", "exec /no/such/program"])
def test_a_guard_that_ends_without_an_answer_denies(
    guarded: Guarded, ends: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{ends}\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    assert failed(guarded.through_the_shell(guarded.calls(command="ls"))) == GUARD_SILENT


def test_a_guard_that_cannot_be_started_denies(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    assert failed(guarded.through_the_shell(guarded.calls(command="ls"))) == GUARD_SILENT


def test_the_shell_around_it_hands_its_answer_on(guarded: Guarded) -> None:
    assert why(guarded.through_the_shell(guarded.calls(command="rm -rf ~/x"))).startswith("ralph guard [")
    assert failed(guarded.through_the_shell(b"{")).startswith(IN_VAIN)


# It runs before every tool call


@pytest.mark.parametrize("arguments", [{"tool": "Read", "file_path": "/etc/hosts"}, {"command": "make test"}])
def test_what_needs_no_parser_loads_none_and_nothing_slow(guarded: Guarded, arguments: Json) -> None:
    event = guarded.calls(**arguments)
    before = loaded(guarded, event, "-c", "pass")
    after = loaded(guarded, event, "-m", "ralphproof.hooks.pre_tool_use", str(guarded.rules))
    assert "ralphproof.guard.tools" in after
    assert (after - before) & {*SLOW, "tree_sitter"} == set()


# The user's own sessions


class Own(Guarded):
    """A session of the user's, with no run anywhere: the installed hook, and settings of the user and the project."""

    def settings(self, where: str, text: str | None = None, **keys: Any) -> None:
        path = {"user": self.home / ".config/ralphproof", "project": self.root / ".ralph"}[where] / "settings.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(keys) if text is None else text, "utf-8")

    def judged(self, event: Json | bytes, **given: Any) -> Answer:
        return self.call([RALPH, "hook", "pre-tool-use"], event, **given)


@pytest.fixture
def own(tmp_path: Path) -> Own:
    made = Own(tmp_path)
    made.git("init", "-q")
    return made


def test_every_call_of_a_session_is_judged_run_or_no_run(own: Own) -> None:
    dangerous = own.calls(command="rm -rf ~/x")
    assert why(own.judged(own.calls(command="rm -rf build"))) == ""
    assert why(own.judged(dangerous)).startswith("ralph guard [outside-delete]: ")
    assert why(own.judged(dangerous, env={"RALPH_HOOKED": "1", "RALPH_RUN_ID": "r"})) != ""
    assert why(own.judged({**own.calls(agent=CODEX, command="rm -rf ~/x"), "cwd": str(own.root)})) != ""
    at_home = {**own.calls(command="rm -rf notes"), "cwd": str(own.home)}
    assert why(own.judged(at_home)) != "", "the home folder is nobody's project"


def test_exceptions_are_the_users_and_a_repository_only_adds(own: Own) -> None:
    dangerous, harmless = own.calls(command="rm -rf ~/x"), own.calls(command="make deploy")
    own.settings("project", guard={"allow": ["outside-delete", "rm -rf ~/x"], "deny": ["make deploy"]})
    assert why(own.judged(dangerous)) != "", "a repository is anybody's"
    assert "[denied-here]" in why(own.judged(harmless))
    own.settings("user", guard={"allow": ["rm -rf ~/x", "make deploy"]})
    assert why(own.judged(dangerous)) == ""
    assert "[denied-here]" in why(own.judged(harmless))
    own.settings("project", protectedPaths=["kept/"])
    assert why(own.judged(own.calls("Write", file_path=str(own.root / "kept/a"), content="x"))) != ""
    assert why(own.judged(harmless)) == ""


@pytest.mark.parametrize("where", ["user", "project"])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON"), ("[]", "must be objects"), ('{"guard": 1}', "must be objects"),
        ('{"guard": {"deny": "x"}}', "guard.deny must be a list of texts"),
        ('{"guard": {"allow": ["*"]}}', "turns the guard off"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_read_hold_every_call_back(own: Own, where: str, text: str, message: str) -> None:
    own.settings(where, text)
    said = failed(own.judged(own.calls(command="ls")))
    assert said.startswith(IN_VAIN)
    assert message in said
    assert "settings.json" in said


@pytest.mark.parametrize("event", [b"", b"[]", {}])
def test_an_event_that_makes_no_sense_is_held_back_in_a_session_too(own: Own, event: Json | bytes) -> None:
    assert failed(own.judged(event)).startswith(IN_VAIN)


def test_the_installed_guard_loads_nothing_slow(own: Own) -> None:
    own.settings("user", guard={"allow": ["outside-delete"]})
    event = own.calls(command="make test")
    before = loaded(own, event, "-c", "pass")
    after = loaded(
        own,
        event,
        "-c",
        "import sys; sys.argv[1:] = ['hook', 'pre-tool-use']; import ralphproof.__main__ as m; m.main()",
    )
    assert "ralphproof.hooks.pre_tool_use" in after
    assert (after - before) & SLOW == set()
