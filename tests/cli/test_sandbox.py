"""`ralph sandbox run` and `explain`: by hand, what a run would have."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from ralphproof.cli.sandbox import SOCKET_CAVEAT
from ralphproof.process.tree import list_processes
from tests.boxes import CALL, both, lay, needs, text
from tests.cli.terminal import Terminal
from tests.misbehaviour.machine import command_line
from tests.ralph import Ralph, until

RUN = ("sandbox", "run", "--sandbox=bubblewrap")


@pytest.fixture(autouse=True)
def _project(ralph: Ralph) -> None:
    needs("bubblewrap", "landlock")
    lay(ralph)


def left(ralph: Ralph) -> list[str]:
    """What a command left behind: processes, stand-ins, files of ours."""
    root = os.fsencode(ralph.root)
    alive = [str(pid) for pid in list_processes() if b"bwrap" in command_line(pid) and root in command_line(pid)]
    ghosts = [name for name in (".claude", ".mcp.json", ".envrc", ".codex", ".vscode") if (ralph.root / name).exists()]
    return alive + ghosts + [str(path) for path in ralph.state_dir.rglob("by-hand-*")]


@both
def test_a_command_runs_inside_with_the_streams_of_its_caller(ralph: Ralph, kind: str) -> None:
    script = f"cat; cat {ralph.home}/secret; echo to-err >&2; echo out > {ralph.folder}/escaped; pwd; exit 7"
    ended = ralph("sandbox", "run", f"--sandbox={kind}", "--", "sh", "-c", script, stdin="from outside\n")
    assert ended.code == 7
    assert ended.out == f"from outside\n{ralph.root}\n"
    assert "to-err" in ended.err
    assert "sesame" not in ended.out
    assert not (ralph.folder / "escaped").exists()
    assert left(ralph) == []


@both
@pytest.mark.parametrize(
    ("command", "code"),
    [(("true",), 0), (("sh", "-c", "exit 3"), 3), (("nowhere-to-be-found",), 127), (("/etc/passwd",), 126),
     (("sh", "-c", "kill -9 $$"), 137), (("sh", "-c", "kill -TERM $$"), 143)],
)  # fmt: skip
def test_it_ends_as_the_command_did(ralph: Ralph, kind: str, command: tuple[str, ...], code: int) -> None:
    assert ralph("sandbox", "run", f"--sandbox={kind}", "--", *command).code == code


def test_nobody_inside_gives_a_project_settings_that_it_has_not(ralph: Ralph) -> None:
    """What they name would be run outside, the next time."""
    assert not (ralph.root / ".ralph").exists()
    script = "mkdir -p .ralph; echo '{}' > .ralph/settings.json; mv .ralph x; mkdir .ralph"
    ended = ralph(*RUN, "--", "sh", "-c", script)
    assert ended.code != 0
    assert "Read-only file system" in ended.err
    assert not (ralph.root / ".ralph").exists()


def test_words_behind_the_two_dashes_are_the_commands_own(ralph: Ralph) -> None:
    ended = ralph(*RUN, "--", "printf", "%s|", "--sandbox", "--json", "--", "-h")
    assert (ended.code, ended.out) == (0, "--sandbox|--json|--|-h|")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("sandbox", "run"), "no command; use: ralph sandbox run -- CMD"),
        (("sandbox", "run", "--"), "no command"),
        (("sandbox", "run", "make"), "put the command after --: ralph sandbox run -- make"),
        (("sandbox", "explain", "--", "make"), "explain takes no command"),
        (("sandbox", "rum"), "run"),
        (("sandbox",), "what"),
        (("sandbox", "run", "--sandbux", "--", "true"), "unknown argument --sandbux; did you mean --sandbox?"),
        (("sandbox", "run", "--sandbox=bubblewarp", "--", "true"), "'bubblewarp' is no kind of sandbox"),
        (("sandbox", "run", "--agent", "claud", "--", "true"), "--agent claud is not known; known agents: claude"),
        (("sandbox", "run", "--allow-host", "a/b", "--", "true"), "sandbox.allowHosts[0]"),
        (("sandbox", "run", "--no-sandbox", "--", "true"), "unknown argument --no-sandbox"),
        (
            ("sandbox", "run", "--sandbox=landlock", "--protect", "readme", "--", "sh", "-c", "echo x > readme"),
            "sandbox landlock cannot protect readme; leave out --protect, or use",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(ralph: Ralph, words: tuple[str, ...], said: str) -> None:
    ended = ralph(*words)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert len(ended.err.splitlines()) == 1


def test_in_a_folder_of_the_project_it_stays_there(ralph: Ralph) -> None:
    below = ralph.root / "docs" / "deep"
    below.mkdir(parents=True)
    assert ralph(*RUN, "--", "pwd", cwd=below).out == f"{below}\n"
    assert ralph(*RUN, "-d", str(ralph.root), "--", "pwd", cwd=ralph.folder).out == f"{ralph.root}\n"


def test_with_an_agent_its_state_is_there_and_its_login_can_only_be_read(ralph: Ralph) -> None:
    (ralph.home / ".claude").mkdir()
    (ralph.home / ".claude/.credentials.json").write_text("token\n")
    script = 'cd "$CLAUDE_CONFIG_DIR"; cat .credentials.json; echo x > .credentials.json; echo kept > file'
    ended = ralph(*RUN, "--agent", "claude", "--", "sh", "-c", script)
    assert ended.out == "token\n", ended
    assert (ralph.home / ".claude/.credentials.json").read_text() == "token\n"
    assert not (ralph.home / ".claude/file").exists()
    assert ralph(*RUN, "--agent", "claude", "--", "sh", "-c", 'cat "$CLAUDE_CONFIG_DIR/file"').out == "kept\n"
    assert ralph(*RUN, "--", "sh", "-c", 'echo "$CLAUDE_CONFIG_DIR"').out == "\n"


def test_what_is_blocked_is_said_and_the_log_of_it_is_named(ralph: Ralph) -> None:
    ended = ralph(*RUN, "--", "sh", "-c", CALL)
    assert ended.code != 0
    assert "a.test:80" in ended.err
    (log,) = ralph.state_dir.rglob("by-hand.egress.ndjson")
    assert str(log) in ended.err
    assert log.stat().st_mode & 0o777 == 0o600


def test_what_is_protected_by_settings_or_flags_is_held(ralph: Ralph) -> None:
    ralph.settings(protectedPaths=["readme"])
    ended = ralph(*RUN, "--protect", "other", "--", "sh", "-c", "echo x > readme; echo x > other; echo x > free")
    assert ended.err.count("Read-only file system") == 2, ended
    assert (text(ralph, "readme"), (ralph.root / "other").exists(), text(ralph, "free")) == ("hello\n", False, "x\n")
    assert left(ralph) == []


def test_what_settings_protect_and_a_kind_cannot_hold_is_said(ralph: Ralph) -> None:
    ralph.settings(protectedPaths=["readme"])
    ended = ralph("sandbox", "run", "--sandbox=landlock", "--", "true")
    said = "note: sandbox landlock does not protect readme\n"
    assert (ended.code, ended.err) == (0, said)


@both
def test_what_the_caller_has_open_is_not_open_inside(ralph: Ralph, kind: str) -> None:
    """A descriptor of a folder outside would be a way out."""
    words = ("sandbox", "run", f"--sandbox={kind}", "--", "sh", "-c", "ls /proc/self/fd; cat /proc/self/fd/9/secret")
    ended = ralph(*words, via=("sh", "-c", f'exec 9<{ralph.home} 8<{ralph.home}/secret "$@"', "sh"))
    assert "sesame" not in ended.out
    assert {"8", "9"} & set(ended.out.split()) == set(), ended


@both
def test_a_socket_in_the_project_that_is_served_outside_cannot_be_connected_to(ralph: Ralph, kind: str) -> None:
    """Whoever serves it may have named it from its own folder."""
    (ralph.root / "sub").mkdir()
    here = os.getcwd()
    with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as other:
        os.chdir(ralph.root)
        one.bind("near")
        os.chdir(here)
        other.bind(str(ralph.root / "sub/far"))
        for server in (one, other):
            server.listen()
        call = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
        for name in ("near", "sub/far"):
            assert ralph("sandbox", "run", f"--sandbox={kind}", "--", sys.executable, "-c", call, name).code == 1, name
    assert (ralph.root / "near").is_socket()


# At a terminal


@both
def test_ctrl_c_reaches_the_command_and_what_it_answers_counts(ralph: Ralph, kind: str) -> None:
    script = "trap 'echo heard; exit 9' INT; echo ready; while :; do sleep 0.05; done"
    at = Terminal(ralph, "sandbox", "run", f"--sandbox={kind}", "--", "sh", "-c", script)
    at.expect("ready")
    at.type("\x03")
    at.expect("heard")
    assert at.end() == 9
    assert left(ralph) == []


def test_a_command_at_a_terminal_has_it(ralph: Ralph) -> None:
    at = Terminal(ralph, *RUN, "--", "sh", "-c", 'test -t 0 && test -t 1 && read line && echo "got $line"')
    at.type("hello\n")
    at.expect("got hello")
    assert at.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_passed_on_and_nothing_is_left(ralph: Ralph, number: signal.Signals) -> None:
    script = "trap 'exit 5' TERM HUP; touch ready; while :; do sleep 0.05; done"
    live = ralph.start(*RUN, "--", "sh", "-c", script)
    until((ralph.root / "ready").exists, "the command runs")
    os.kill(live.process.pid, number)
    assert live.end().code == 5
    assert left(ralph) == []


def test_what_a_command_leaves_behind_ends_with_it(ralph: Ralph) -> None:
    marker = f"{ralph.folder.name}-stays"
    ended = ralph(*RUN, "--", "sh", "-c", f"setsid sleep 600 {marker} 2>/dev/null & setsid sleep 601 & exit 0")
    assert ended.code == 0, ended
    assert left(ralph) == []


# Explained


def test_explain_says_the_same_to_people_and_to_programs(ralph: Ralph) -> None:
    ralph.settings(protectedPaths=["readme"], sandbox={"backend": "bubblewrap", "allowHosts": ["pypi", "a.test"]})
    told, shown = ralph("sandbox", "explain", "--json").json, ralph("sandbox", "explain").out
    assert (told["type"], told["name"], told["strength"], told["weak"]) == (
        "sandbox", "bubblewrap", "strong", [SOCKET_CAVEAT],
    )  # fmt: skip
    assert str(ralph.root) in told["writable"]
    assert "readme" in told["protected"]
    assert ".mcp.json" in told["notToComeToBe"]
    assert "a.test" in told["allowHosts"]
    assert len(told["allowHosts"]) > 2, "an ecosystem stands for its registries"
    assert str(ralph.home) in told["fresh"]
    assert not [path for path in told["readable"] if Path(path) == ralph.home]
    for line in ("sandbox bubblewrap, strong", f"  {ralph.root}", "  readme", "may be called: ", "limited: "):
        assert line in shown
    weak = ralph("sandbox", "explain", "--sandbox=landlock")
    assert weak.out.startswith("sandbox landlock, partial\n  weak point: ")


def test_explain_starts_nothing_and_leaves_nothing(ralph: Ralph) -> None:
    before = sorted(ralph.root.glob("*"))
    assert ralph("sandbox", "explain", "--agent", "claude").code == 0
    assert sorted(ralph.root.glob("*")) == before
