"""The stage gives a command a model and no other network, and ends as the command does."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agents import isolated_network, real_clis
from tests.agents.tls import certified
from tests.needs import require
from tests.ralph import until

PYTHON = sys.executable
REACH = """
import socket, sys
for address in (("127.0.0.1", int(sys.argv[1])), ("192.0.2.1", 80)):
    try:
        socket.create_connection(address, 0.2).close()
        print("reached")
    except OSError:
        print("not reached")
"""
NO_NAMESPACES = (
    "unshare", "--user", "--map-root-user", "sh", "-c",
    'echo 0 >/proc/sys/user/max_net_namespaces && exec "$@"', "sh",
)  # fmt: skip


@pytest.fixture
def on_stage(tmp_path: Path) -> list[str]:
    """Words that put a command on a stage."""
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"turns": [{"text": "x"}]}))
    return isolated_network.via(script, tmp_path / "requests.jsonl")


def run(argv: list[str], **more: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **more}
    return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False, env=env)


def test_the_network_is_private_where_the_machine_allows_it(on_stage: list[str]) -> None:
    allowed = run(["unshare", "--user", "--map-root-user", "--net", "true"]).returncode == 0
    done = run([*on_stage, "cat", "/proc/net/dev"])
    assert (isolated_network.NOT_PRIVATE in done.stderr) is not allowed
    assert not allowed or re.findall(r"\w+(?=:)", done.stdout) == ["lo"]


def test_the_model_is_reached_and_nothing_else(on_stage: list[str]) -> None:
    done = run([*on_stage, PYTHON, "-c", REACH, "{port}"])
    assert done.stdout.split("\n") == ["reached", "not reached", ""]


def test_the_port_is_put_into_words_and_environment(on_stage: list[str]) -> None:
    done = run([*on_stage, "sh", "-c", 'echo "$URL" http://127.0.0.1:{port}/v1'], URL="http://127.0.0.1:{port}/v1")
    in_environment, in_words = done.stdout.split()
    assert in_environment == in_words
    assert "{" not in in_words


def test_without_namespaces_the_command_runs_with_a_proxy_to_nowhere(on_stage: list[str]) -> None:
    refusing = NO_NAMESPACES if run([*NO_NAMESPACES, "true"]).returncode == 0 else ()
    done = run([*refusing, *on_stage, "sh", "-c", f'"{PYTHON}" -c "$0" {{port}}; echo $HTTPS_PROXY $NO_PROXY', REACH])
    assert done.stdout.split()[0] == "reached"
    assert done.stdout.split("\n")[-2] == "http://127.0.0.1:9 127.0.0.1,localhost"
    assert done.stderr.strip() == isolated_network.NOT_PRIVATE


@pytest.mark.parametrize(
    ("words", "code"),
    [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", -signal.SIGTERM), ("kill -KILL $$", -signal.SIGKILL)],
)
def test_the_stage_ends_as_its_command_does(on_stage: list[str], words: str, code: int) -> None:
    assert run([*on_stage, "sh", "-c", words]).returncode == code


def test_a_command_that_is_not_there_is_told_in_one_line(on_stage: list[str]) -> None:
    done = run([*on_stage, "no-such-program"])
    assert done.returncode == 127
    assert done.stderr.splitlines()[-1] == "stage: no-such-program: No such file or directory"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_is_passed_on_once(on_stage: list[str], number: signal.Signals, tmp_path: Path) -> None:
    ready, name = tmp_path / "ready", number.name.removeprefix("SIG")
    waiting = f"for _ in {{1..20}}; do read -t 1 line <> {tmp_path}/fifo; done"
    words = f"trap 'echo got; exit 5' {name}; touch {ready}; {waiting}"
    os.mkfifo(tmp_path / "fifo")
    with subprocess.Popen([*on_stage, "bash", "-c", words], stdout=subprocess.PIPE, text=True) as process:
        until(ready.exists, "the command")
        process.send_signal(number)
        out, _ = process.communicate(timeout=20)
    assert (process.returncode, out) == (5, "got\n")


def test_what_the_command_left_behind_is_left_alone(on_stage: list[str], tmp_path: Path) -> None:
    told = tmp_path / "pid"
    run([*on_stage, "sh", "-c", f"setsid sleep 60 >/dev/null 2>&1 & echo $! > {told}"])
    left = int(told.read_text())
    os.kill(left, signal.SIGKILL)  # it is still there, else this raises


def test_an_agent_on_the_stage_gets_a_home_that_knows_the_port(tmp_path: Path) -> None:
    script, home = tmp_path / "script.json", tmp_path / "home"
    script.write_text('{"turns": []}')
    words = isolated_network.via(
        script, tmp_path / "requests.jsonl", ["claude", "codex"], home, env={"FAKE_KEY": "mine"}
    )
    done = run([*words, "sh", "-c", "echo $ANTHROPIC_BASE_URL {port} $HOME $TMPDIR $FAKE_KEY"])
    url, port, at, temporary, key = done.stdout.split()
    assert (url, at, key) == (f"http://127.0.0.1:{port}", str(home), "mine")
    assert f"http://127.0.0.1:{port}/v1" in (home / ".codex/config.toml").read_text()
    assert not home.is_relative_to(temporary)


ASK = """
import socket, sys, urllib.request
print(socket.gethostbyname("other.test"))
print(urllib.request.urlopen(sys.argv[1] + "/v1/models").status)
"""


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_model_can_have_a_name_and_a_certificate(tmp_path: Path, scheme: str) -> None:
    require(shutil.which("openssl") is not None, "openssl makes a certificate")
    require(run(["unshare", "--user", "--map-root-user", "--net", "--mount", "true"]).returncode == 0, "namespaces")
    script, tls = tmp_path / "script.json", tmp_path / "tls" if scheme == "https" else None
    script.write_text('{"turns": []}')
    trusted = str(certified("model.test", tls)) if tls else ""
    log = tmp_path / "requests.jsonl"
    words = isolated_network.via(
        script, log, ["claude"], tmp_path / "home", hosts=["model.test", "other.test"], tls=tls
    )
    asks = ["sh", "-c", f'exec "$0" -c \'{ASK}\' "$ANTHROPIC_BASE_URL"', PYTHON]
    done = run([*words, *asks], SSL_CERT_FILE=trusted)
    assert done.stdout.split() == ["127.0.0.1", "200"], done.stderr
    (request,) = isolated_network.requests_in(log)
    assert request["path"] == "/v1/models"
    assert run(["getent", "hosts", "other.test"]).returncode != 0, "nobody else knows the name"


NPM = """#!/bin/sh
while [ "$1" != --prefix ]; do shift; done
echo "$3" >> "$NPM_CALLS"
mkdir -p "$2/node_modules/.bin"
[ -z "$NPM_FAILS" ] || { echo "npm error code E404" >&2; exit 1; }
touch "$2/node_modules/.bin/claude"
"""


@pytest.fixture
def agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for agents, and an npm that needs no network."""
    npm = tmp_path / "bin" / "npm"
    npm.parent.mkdir()
    npm.write_text(NPM)
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", str(npm.parent), prepend=os.pathsep)
    monkeypatch.setenv("NPM_CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("RALPH_TEST_AGENTS", str(tmp_path / "agents"))
    return tmp_path / "agents"


def test_an_agent_is_installed_once_in_its_pinned_version(agents: Path, tmp_path: Path) -> None:
    assert real_clis.program("claude") is None
    first, second = real_clis.install("claude"), real_clis.install("claude")
    assert first == second == real_clis.program("claude") == agents / "claude-2.1.325/node_modules/.bin/claude"
    assert (tmp_path / "calls").read_text() == "@anthropic-ai/claude-code@2.1.325\n"


def test_a_failed_install_leaves_nothing(agents: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NPM_FAILS", "yes")
    with pytest.raises(real_clis.NotInstalled, match="claude: npm ended with 1: npm error code E404"):
        real_clis.install("claude")
    assert list(agents.iterdir()) == []


def test_a_machine_without_npm_is_told_so_in_one_line(agents: Path) -> None:
    words = [PYTHON, "-m", "tests.agents.real_clis", "install", "pi"]
    env = {**os.environ, "PATH": ""}
    done = subprocess.run(words, env=env, cwd=isolated_network.ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "pi: npm is not on PATH; install Node.js 20 or newer\n")
