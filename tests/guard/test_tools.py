"""Tools other than a shell: what they read, write and fetch is looked at as well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ralphproof.guard.verdict import Ground
from tests.guard.samples import HOME, ROOT, asked

READING = ("Read", "NotebookRead", "view_image")
PATH_OF = {"NotebookRead": "notebook_path", "NotebookEdit": "notebook_path", "view_image": "path"}
WRITING = ("Write", "Edit", "MultiEdit", "NotebookEdit")


@pytest.mark.parametrize("tool", READING)
@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("~/.ssh/id_ed25519", "secret-file"), (f"{HOME}/.aws/credentials", "secret-file"), (".env", "secret-file"),
        (f"{ROOT}/config/.env.production", "secret-file"), ("/proc/self/environ", "secret-file"),
        ("/etc/shadow", "secret-file"), (".env.example", ""), ("src/app.py", ""), ("/etc/hosts", ""),
        (f"{HOME}/.bashrc", ""), (f"{HOME}/.ssh/id_ed25519.pub", ""), (".claude/settings.json", ""),
    ],
)  # fmt: skip
def test_files_of_secrets_are_not_read(tool: str, path: str, rule: str) -> None:
    assert asked(tool, **{PATH_OF.get(tool, "file_path"): path}) == rule


@pytest.mark.parametrize("tool", WRITING)
@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("src/app.py", ""), (f"{ROOT}/new/a.py", ""), ("/tmp/x.txt", ""), (".env", ""), ("ralph/tasks.json", ""),
        (".ralph/runs/r/task/DONE", ""), (".ralph/runs/r/task/../outcome.json", "agent-settings"),
        ("/srv/given/DONE", ""), ("/srv/given-not/DONE", "outside-write"),
        ("~/notes.txt", "outside-write"), ("../other/a.py", "outside-write"), ("/etc/hosts", "outside-write"),
        ("kept/a.txt", "protected-path"), ("src/../kept/a", "protected-path"), ("a/b.lock.json", "protected-path"),
        (".git/hooks/pre-commit", "hook-write"), (".git/config", "hook-write"), (".git/HEAD", "git-files"),
        (".claude/settings.local.json", "agent-settings"), (".codex/config.toml", "agent-settings"),
        (".mcp.json", "agent-settings"), (".ralph/settings.json", "agent-settings"),
        (".ralph-active", "agent-settings"), (f"{HOME}/.claude/settings.json", "agent-settings"),
        ("~/.bashrc", "startup-write"), ("/etc/cron.d/x", "startup-write"), ("/dev/sda", "device-write"),
    ],
)  # fmt: skip
def test_only_the_project_is_written_and_not_all_of_it(tool: str, path: str, rule: str) -> None:
    assert asked(tool, **{PATH_OF.get(tool, "file_path"): path}) == rule


PYTHON = (
    "t = json.load(open('{0}')); json.dump(t, open('{0}', 'w'))", "open('{0}', 'w').write('x')",
    "open('{0}', 'a').write('x')", "p = Path('{0}'); p.write_text(p.read_text())", "p = '{0}'; f = open(p, mode='w')",
)  # fmt: skip
NODE = (
    "fs.writeFileSync('{0}', JSON.stringify(t))", "require('fs').writeFileSync('{0}', '')",
    "fs.appendFileSync('{0}', 'x')",
)  # fmt: skip


@pytest.mark.parametrize(
    "path", ["ralph/tasks.json", "ralph/progress.txt", ".ralph/runs/r/task/DONE", "/srv/given/DONE"]
)
def test_what_the_agent_is_asked_to_write_it_writes_by_every_means(path: str) -> None:
    python = (way.format(path) for way in PYTHON)
    node = (way.format(path) for way in NODE)
    lines = [
        *(line for code in python for line in (f"python3 - <<'PY'\n{code}\nPY", f'python3 -c "{code}"')),
        *(line for code in node for line in (f"node <<'JS'\n{code}\nJS", f'node -e "{code}"')),
        f"> {path}", f": > {path}", f"echo x >> {path}", f"jq . {path} > /tmp/t && mv /tmp/t {path}",
        f"sed -i s/a/b/ {path}",
        f"cat > {path} <<'E'\nx\nE", f"tee {path} < /tmp/x", f"cp /tmp/x {path}", f"touch {path}",
    ]  # fmt: skip
    assert [line for line in lines if asked("Bash", command=line)] == []


def test_a_link_is_what_it_leads_to(tmp_path: Path) -> None:
    root, home = tmp_path / "home" / "shop", tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id_rsa").write_text("x")
    root.mkdir()
    (root / "notes.txt").symlink_to(home / ".ssh" / "id_rsa")
    (root / "out").symlink_to(home)
    at = Ground(str(root), str(root), str(home))
    assert asked("Read", at=at, file_path=str(root / "notes.txt")) == "secret-file"
    assert asked("Write", at=at, file_path=str(root / "out" / "a.txt")) == "outside-write"
    assert asked("Write", at=at, file_path=str(root / "a.txt")) == ""


@pytest.mark.parametrize(
    ("tool", "arguments", "rule"),
    [
        ("Grep", {"pattern": "x"}, ""), ("Grep", {"pattern": "x", "path": "src"}, ""),
        ("Grep", {"pattern": "K", "path": ".env"}, "secret-file"), ("Grep", {"pattern": "x", "path": "~"}, "read-home"),
        ("Grep", {"pattern": "x", "path": "/"}, "read-home"), ("Grep", {"pattern": "x", "glob": ".env"}, "secret-file"),
        ("Grep", {"pattern": "x", "glob": "*.py"}, ""), ("Glob", {"pattern": "**/*.py"}, ""),
        ("Glob", {"pattern": "*", "path": "~/.ssh"}, ""), ("LS", {"path": "/etc"}, ""), ("LS", {}, ""),
    ],
)  # fmt: skip
def test_searches_stay_out_of_secrets(tool: str, arguments: Any, rule: str) -> None:
    assert asked(tool, **arguments) == rule


@pytest.mark.parametrize(
    ("address", "rule"),
    [
        ("https://docs.example.com/a?b=c", ""), ("http://localhost:3000/x", ""), ("http://127.0.0.1/", ""),
        ("http://169.254.169.254/latest", "cloud-metadata"), ("http://metadata.google.internal:80", "cloud-metadata"),
        ("http://[fd00:ec2::254]/", "cloud-metadata"), ("http://2852039166/", "cloud-metadata"),
        ("http://0xa9.0xfe.0xa9.0xfe/", "cloud-metadata"), ("http://user@169.254.169.254:80/", "cloud-metadata"),
        ("http://10.0.0.5/", "private-address"), ("http://192.168.1.1/admin", "private-address"),
        ("http://172.20.3.4/", "private-address"), ("https://db.corp/", "private-address"),
        ("file:///etc/passwd", "file-address"), ("FILE:/etc/passwd", "file-address"),
        ("https://x.example/?k=ghp_" + "a1" * 20, "secret-in-address"),
    ],
)  # fmt: skip
def test_addresses_are_looked_at_before_they_are_fetched(address: str, rule: str) -> None:
    assert asked("WebFetch", url=address, prompt="read it") == rule


def test_a_search_carries_no_key_away() -> None:
    assert asked("WebSearch", query="how to rm -rf /") == ""
    assert asked("WebSearch", query="what is sk-ant-" + "a1" * 20) == "secret-in-address"


def patch(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch", ""])


@pytest.mark.parametrize("name", ["command", "input", "patch"])
@pytest.mark.parametrize(
    ("lines", "rule"),
    [
        (["*** Add File: src/a.py", "+x"], ""),
        (["*** Add File: src/a.py", "+x", "*** Update File: ~/.bashrc", "@@", "+x"], "startup-write"),
        (["*** Update File: a.py", "*** Move to: ../b.py", "@@", "+x"], "outside-write"),
        (["*** Delete File: kept/a.txt"], "protected-path"),
        (["*** Delete File: ralph/tasks.json"], "loop-state"),
        (["*** Delete File: old.py"], ""),
        (["+*** nothing"], "unreadable-call"),
    ],
)
def test_every_path_of_a_patch_is_looked_at(name: str, lines: list[str], rule: str) -> None:
    assert asked("apply_patch", **{name: patch(*lines)}) == rule
    assert asked("apply_patch", **{name: ["apply_patch", patch(*lines)]}) == rule


@pytest.mark.parametrize(
    ("tool", "arguments", "rule"),
    [
        ("shell", {"command": ["bash", "-lc", "rm -rf ~"]}, "outside-delete"),
        ("shell", {"command": ["rm", "-rf", "/home/dev"]}, "outside-delete"),
        ("shell", {"command": ["echo", "rm -rf /; $(rm -rf /)"]}, ""),
        ("exec_command", {"cmd": "git reset --hard"}, "git-reset-hard"),
        ("exec_command", {"cmd": "rm -rf build", "workdir": ROOT}, ""),
        ("exec_command", {"cmd": "rm -rf build", "workdir": HOME}, "outside-delete"),
        ("local_shell", {"command": ["ls", "-la"]}, ""),
    ],
)
def test_shells_of_other_programs_are_shells(tool: str, arguments: Any, rule: str) -> None:
    assert asked(tool, **arguments) == rule


@pytest.mark.parametrize(
    ("tool", "arguments", "rule"),
    [
        ("mcp__shell__run", {"command": "rm -rf ~"}, "outside-delete"),
        ("mcp__shell__run", {"commands": ["ls", "rm -rf ~"]}, "outside-delete"),
        ("mcp__fs__read_file", {"path": "~/.ssh/id_rsa"}, "secret-file"),
        ("mcp__fs__read_many", {"paths": ["a.py", ".env"]}, "secret-file"),
        ("mcp__fs__write_file", {"path": "/etc/hosts", "content": "x"}, "outside-write"),
        ("mcp__fs__write_file", {"path": "src/a.py", "content": "rm -rf /"}, ""),
        ("mcp__fs__delete_file", {"target": "/home/dev/x"}, "outside-delete"),
        ("mcp__web__get", {"deep": [{"url": "http://169.254.169.254/"}]}, "cloud-metadata"),
        ("mcp__web__get", {"address": "file:///etc/shadow"}, "file-address"),
        ("mcp__db__query", {"sql": "DROP TABLE users"}, "sql-drop"),
        ("mcp__db__query", {"sql": "SELECT 1"}, ""),
        ("mcp__chat__post", {"text": "please never rm -rf / again"}, ""),
        ("SomethingNew", {"command": "git push --force"}, "git-push-force"),
    ],
)
def test_tools_that_nobody_knows_are_judged_by_their_arguments(tool: str, arguments: Any, rule: str) -> None:
    assert asked(tool, **arguments) == rule


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("Task", {"prompt": "run rm -rf / in a sandbox", "command": "rm -rf /"}),
        ("Agent", {"prompt": "read ~/.ssh/id_rsa"}),
        ("TodoWrite", {"todos": [{"content": "rm -rf ~"}]}),
        ("update_plan", {"plan": [{"step": "git push --force"}]}),
        ("KillShell", {"shell_id": "1"}),
    ],
)
def test_tools_that_do_nothing_themselves_are_left_alone(tool: str, arguments: Any) -> None:
    assert asked(tool, **arguments) == ""
