from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralphproof.engine.outcome import finding_json
from ralphproof.proof.pull_request import (
    MAX_BODY_CHARS,
    ForgeMarkdown,
    PullRequestFacts,
    forge_kind,
    host_of_url,
    pull_request_body,
    pull_request_title,
)
from tests.cli.terminal import Terminal
from tests.needs import require
from tests.ralph import Ralph, done, write

if TYPE_CHECKING:
    from ralphproof.base.value import Json

GITHUB, GITLAB = "https://github.com/me/it.git", "git@gitlab.example.org:me/it.git"
NUMBERED = "GH" + "-2"
EVIL = f"fixes #1, @everyone, {NUMBERED}, see https://evil.example/1 <img src=x> `code` | !3 /close www.evil.example"
CHECK: dict[str, Json] = {
    "name": "tests", "command": "sh check.sh", "commandDigest": "0" * 64, "state": "passed", "required": True,
    "judged": False, "hidden": False, "passed": True, "exitCode": 0, "exitReason": "exit", "durationSeconds": 1.25,
    "attempts": 1, "failedAttempts": 0, "outputDigest": "0" * 64, "output": "", "log": "x",
    "rule": {"folder": ".", "successCode": 0, "contains": "", "lacks": "", "timeoutSeconds": 60, "clean": False},
    "before": {"passed": False, "failing": ["test_one"]},
    "tests": {"runner": "pytest", "passedCount": 12, "failedCount": 0, "skippedCount": 1, "expectedFailureCount": 0},
    "oldFailures": [], "newFailures": [],
}  # fmt: skip
PROOF: dict[str, Json] = {
    "v": 1, "type": "proof", "run": "20261115-210507-k3f9", "project": "it", "startedAt": "2026-11-15T21:05:07.000Z",
    "endedAt": "2026-11-15T21:06:07.000Z", "title": "Make the login work", "promptDigest": "0" * 64,
    "outcome": {
        "status": "COMPLETED", "proof": "verified", "iterations": 3, "costUSD": 1.5, "durationSeconds": 61.0,
        "concerns": [EVIL],
    },
    "subject": {
        "kind": "tree", "commit": "c" * 40, "tree": "a" * 40, "ref": None, "head": None, "base": None,
        "checked": "a" * 40, "differs": [], "leftOut": [],
    },
    "checks": [CHECK], "verifyIn": "here", "setup": [], "protectTests": True, "mayChange": [],
    "findings": [finding_json("checkInput", f"conftest.py: {EVIL}", "conftest.py"), finding_json("weakerCheck", EVIL)],
    "settingsDigest": "0" * 64, "settingsFileDigest": None,
    "versions": {"ralph": "1", "agent": EVIL, "agentVersion": "2"}, "sandbox": {"name": "none", "strength": "none"},
    "caveats": ["The agent could reach the checks."], "reviews": [{"reviewer": "judge", "result": "yes", "text": EVIL}],
    "records": {"chain": [], "evidence": {}, "withheldRecords": [], "count": 9, "lastDigest": "1" * 64},
    "digest": "d" * 64,
}  # fmt: skip
PULLED = PullRequestFacts("ralph/x", "main", "b" * 40, "a" * 40, (("M", "file"), ("A", EVIL)), ((".env", "a secret"),))
# gh and glab as their manuals have them: view tells of a request that is there, create makes one, and says where.
STUB = """#!/bin/sh
printf '%s\\n' "---" "$@" >> "{log}"
while [ $# -gt 1 ] && [ "$2" != view ] && [ "$2" != create ]; do shift; done
case "$2" in
view) test -f "{log}.made" || exit 1; cat "{log}.made";;
create) {create}
esac
"""


def forge(ralph: Ralph, url: str, create: str = "") -> Path:
    """A real bare repository that stands behind an address of a forge, and a stub of its program; the stub's log."""
    bare, log = ralph.folder / "bare.git", ralph.folder / "forge.log"
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(bare)], check=True, env=ralph.env)
    ralph.git("config", f"url.{bare}.insteadOf", url)
    ralph.git("remote", "add", "origin", url)
    ralph.git("push", "-q", "origin", "main")
    name, key, state = ("gh", "url", "OPEN") if url == GITHUB else ("glab", "web_url", "opened")
    made = f'while [ $# -gt 0 ]; do [ "$1" = --body-file ] && cp "$2" "{log}.body"; shift; done\n'
    told = json.dumps({key: "https://forge.example/7", "state": state})
    made += f"echo '{told}' > '{log}.made'; echo https://forge.example/7 ;;"
    ralph.program(name, STUB.format(log=log, create=create or made))
    return log


def called(log: Path) -> list[list[str]]:
    """The command lines of the stub."""
    return [part.splitlines() for part in log.read_text().split("---\n")[1:]] if log.exists() else []


def remote(ralph: Ralph) -> dict[str, str]:
    """Every ref of the bare repository, and what it names."""
    listed = ralph.git("ls-remote", str(ralph.folder / "bare.git")).splitlines()
    return {name: commit for commit, name in (line.split("\t") for line in listed) if name != "HEAD"}


def completed(ralph: Ralph, **files: str) -> str:
    """A run that a check verified."""
    agent = ralph.script([{"write": {"file": "done\n", **files}}, done()])
    check = "grep -q done file"
    told = ralph("run", "-p", "make it so, @all\nand more", "--agent", agent, "--check", check)
    assert told.code == 0, told.err
    return ralph.runs()[0].id


@pytest.fixture
def project(ralph: Ralph) -> Ralph:
    ralph.write({"file": "start\n"})
    ralph.commit()
    return ralph


@pytest.mark.parametrize("url", [GITHUB, GITLAB], ids=["gh", "glab"])
def test_exactly_the_branch_is_pushed_and_the_request_made_once(project: Ralph, url: str) -> None:
    log, run = forge(project, url), completed(project)
    told = project("pr", run, "--draft")
    assert told.code == 0, told.err
    assert "https://forge.example/7" in told.out
    branch = f"ralph/{run}"
    assert remote(project).keys() == {"refs/heads/main", f"refs/heads/{branch}"}
    assert project.git("show", f"{branch}:file") == "done\n"
    words = called(log)[-1]
    if url == GITHUB:
        file = words[words.index("--body-file") + 1]
        assert words == ["pr", "create", "--title", "make it so, @all", "--body-file", file, "--head", branch,
                         "--base", "main", "--draft"]  # fmt: skip
        body = Path(f"{log}.body").read_text()
    else:
        at, until = words.index("--description") + 1, words.index("--source-branch")
        assert words[:at] == ["mr", "create", "--title", "make it so, @all", "--description"]
        assert words[until:] == ["--source-branch", branch, "--target-branch", "main", "--yes", "--draft"]
        body = "\n".join(words[at:until])
    assert "grep -q done file" in body
    assert "@" not in re.sub(r"`[^`\n]*`|<code>.*?</code>", "", body)
    before = remote(project)
    hook = project.root / ".git/hooks/pre-push"
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    again = project("pr", run)
    assert again.code == 0, again.out
    assert "https://forge.example/7" in again.out
    assert remote(project) == before
    assert len([words for words in called(log) if "create" in words]) == 1


def test_without_a_program_for_it_title_and_body_are_in_a_file(project: Ralph) -> None:
    forge(project, GITHUB)
    (project.bin / "gh").unlink()
    run = completed(project)
    env = {"PATH": f"{project.bin}:/usr/bin:/bin"}
    told = project("pr", run, env=env)
    assert told.code == 0, told.err
    assert f"git push origin ralph/{run}" in told.out
    text = (project.root / f"ralph-pr-{run}.md").read_text()
    assert text.startswith("make it so, @all\n\n## What was wanted\n")
    assert f"refs/heads/ralph/{run}" not in remote(project)
    assert project.git("show", f"ralph/{run}:file") == "done\n"
    assert project("pr", run, env=env).code == 0
    project.write({f"ralph-pr-{run}.md": "mine now"})
    refused = project("pr", run, env=env)
    assert refused.code == 2
    assert "-o" in refused.err
    assert project("pr", run, "-o", "other.md", "--title", "Another", env=env).code == 0
    assert (project.root / "other.md").read_text().startswith("Another\n")


def test_a_dry_run_shows_the_text_and_changes_nothing(project: Ralph) -> None:
    log, run = forge(project, GITHUB), completed(project)
    before = project.git("for-each-ref"), remote(project), sorted(project.root.iterdir())
    told = project("pr", run, "--dry-run")
    assert told.code == 0, told.err
    assert f"ralph/{run}" in told.out
    assert "## Evidence" in told.out
    assert (project.git("for-each-ref"), remote(project), sorted(project.root.iterdir())) == before
    assert called(log) == []


def test_the_commit_of_the_run_is_offered_on_its_own_branch(project: Ralph) -> None:
    forge(project, GITHUB)
    project.git("config", "user.name", "u")
    project.git("config", "user.email", "u@example.com")
    project.settings(scm={"command": "git", "tasks": ["commit"]})
    project.git("checkout", "-q", "-b", "feature")
    project.write({"theirs": "not committed\n"})
    agent = project.script([write(file="done\n"), done()], message=[{"text": "did it"}])
    assert project("run", "-p", "x", "--agent", agent, "--check", "grep -q done file").code == 0
    told = project("pr", "latest", "--json").json
    assert (told["branch"], told["base"], told["pushed"]) == ("feature", "main", True)
    assert remote(project)["refs/heads/feature"] == project.git("rev-parse", "feature").strip()
    assert "theirs" not in project.git("ls-tree", "--name-only", "feature")


def test_a_commit_on_the_base_itself_gets_a_branch(project: Ralph) -> None:
    forge(project, GITHUB)
    project.git("config", "user.name", "u")
    project.git("config", "user.email", "u@example.com")
    project.settings(scm={"command": "git", "tasks": ["commit"]})
    agent = project.script([write(file="done\n"), done()], message=[{"text": "did it"}])
    assert project("run", "-p", "x", "--agent", agent, "--check", "grep -q done file").code == 0
    run = project.runs()[0].id
    told = project("pr", run, "--json").json
    assert told["branch"] == f"ralph/{run}"
    assert remote(project)[f"refs/heads/ralph/{run}"] == project.git("rev-parse", "main").strip()
    assert remote(project)["refs/heads/main"] != told["commit"]
    project.git("push", "-q", "origin", "main")
    assert "nothing to pull" in project("pr", run).err


def test_secrets_are_never_pushed(project: Ralph) -> None:
    log = forge(project, GITHUB)
    run = completed(project, **{".env": "A=1\n"})
    told = project("pr", run)
    assert told.code == 0, told.err
    assert "  .env: " in told.out
    assert project.git("ls-tree", "-r", "--name-only", f"ralph/{run}").split() == ["file"]
    assert "`.env`" in Path(f"{log}.body").read_text()


def test_a_commit_with_a_secret_in_it_is_not_pushed_though_a_later_one_removes_it(project: Ralph) -> None:
    log = forge(project, GITHUB)
    commit = "git add -A; git -c user.name=a -c user.email=a@example.com commit -qm"
    steps = f"echo x > server.pem; {commit} one; rm server.pem; echo done > file; {commit} two"
    agent = project.script([{"run": ["sh", "-c", steps]}, done()])
    assert project("run", "-p", "x", "--agent", agent, "--check", "grep -q done file").code == 0
    before = remote(project)
    told = project("pr", "latest")
    assert (told.code, remote(project), called(log)) == (2, before, [])
    assert "server.pem" in told.err


def test_a_refused_push_is_said_and_nothing_is_made(project: Ralph) -> None:
    log, run = forge(project, GITHUB), completed(project)
    hook = project.folder / "bare.git/hooks/pre-receive"
    hook.write_text("#!/bin/sh\necho no entry >&2; exit 1\n")
    hook.chmod(0o755)
    told = project("pr", run)
    assert told.code == 1
    assert "no entry" in told.out
    assert called(log) == []
    hook.unlink()
    assert project("pr", run).code == 0
    assert f"refs/heads/ralph/{run}" in remote(project)


def test_where_the_program_fails_the_branch_is_pushed_and_the_next_call_goes_on(project: Ralph) -> None:
    log = forge(project, GITHUB, create=f'test -f "{project.folder}/in" && echo https://forge.example/8 && exit 0\n'
                "echo 'not logged in' >&2; exit 4;;")  # fmt: skip
    run = completed(project)
    told = project("pr", run, "--json")
    assert (told.code, told.json["pushed"], told.json["address"]) == (1, True, None)
    assert "not logged in" in told.json["error"]
    (project.folder / "in").touch()
    again = project("pr", run, "--json").json
    assert (again["pushed"], again["address"]) == (False, "https://forge.example/8")
    assert len([words for words in called(log) if "create" in words]) == 2


def test_what_the_user_had_not_committed_is_named_first_and_needs_a_yes(project: Ralph) -> None:
    log, named = forge(project, GITHUB), "had not committed when the run began: mine"
    project.write({"mine": "half done\n"})
    run = completed(project)
    before = remote(project), project.git("for-each-ref")
    assert named in project("pr", run, "--dry-run").out
    assert project("pr", run, "--dry-run", "--json").json["uncommitted"] == ["mine"]
    for flags in ((), ("--json",)):
        told = project("pr", run, *flags, stdin="y\n")
        assert (told.code, len(told.err.splitlines())) == (2, 1)
        assert "mine" in told.err
        assert "--yes" in told.err
    at = Terminal(project, "pr", run)
    at.answer(("(y/N): ", "n"))
    assert at.end() == 0
    assert named in at.shown
    assert (remote(project), project.git("for-each-ref"), called(log)) == (*before, [])
    at = Terminal(project, "pr", run)
    at.answer(("(y/N): ", "y"))
    assert at.end() == 0
    assert f"refs/heads/ralph/{run}" in remote(project)
    again = project("pr", run, "--yes")
    assert (again.code, again.out.count(named)) == (0, 1)


def test_the_branch_is_not_said_to_be_what_was_checked_where_it_is_not(project: Ralph) -> None:
    log = forge(project, GITHUB)
    project.write({".gitattributes": "*.txt text\n"})
    project.commit()
    run = completed(project, **{".env": "A=1\n", "a.txt": "one\r\n"})
    assert project("pr", run).code == 0
    how = Path(f"{log}.body").read_text().partition("## Check it again")[2]
    assert "in any clone" not in how
    assert "differs from what was checked" in how
    assert "`.env`" in how
    assert "`a.txt`" in how
    assert "`file`" not in how


def test_only_a_branch_with_all_that_was_checked_is_said_to_be_that() -> None:
    whole, less = (
        pull_request_body(PROOF, PullRequestFacts("b", "main", "", "a" * 40, (), out))
        for out in ((), (("big", "too large"),))
    )
    assert "the very tree that the checks saw" in whole
    assert "differs" not in whole.partition("## Check it again")[2]
    assert "the very tree" not in less
    assert "differs from what was checked, in:\n\n- `big`" in less
    unknown = pull_request_body(PROOF, PullRequestFacts("b", "main", "", "e" * 40, ()))
    assert "in any clone" not in unknown


def test_a_branch_that_has_our_settings_beside_the_work_is_what_was_checked(project: Ralph) -> None:
    log = forge(project, GITHUB)
    project.settings(limits={"stallIterations": 3})
    project.git("add", "-f", ".ralph/settings.json")
    project.commit()
    run = completed(project)
    assert project("pr", run).code == 0
    assert ".ralph/settings.json" in project.git("ls-tree", "-r", "--name-only", f"ralph/{run}")
    how = Path(f"{log}.body").read_text().partition("## Check it again")[2]
    assert "in any clone" in how
    assert "differs from" not in how


def test_what_git_complains_of_is_said(project: Ralph) -> None:
    require(os.geteuid() == 0, "only root can give files away")
    run = completed(project)
    for place in (project.root, project.root / ".git"):
        os.chown(place, 12345, 12345)
    told = project("pr", run)
    assert (told.code, len(told.err.splitlines())) == (2, 1)
    assert "dubious ownership" in told.err


@pytest.mark.parametrize(
    ("argv", "why"),
    [(["nothing"], "no run is called"), (["latest", "--base", "nowhere"], "--base"), ([], "RUN"),
     (["latest", "--force"], "unknown argument")],
)  # fmt: skip
def test_bad_input_is_refused_in_one_line(project: Ralph, argv: list[str], why: str) -> None:
    completed(project)
    told = project("pr", *argv)
    assert (told.code, told.out, len(told.err.splitlines())) == (2, "", 1)
    assert why in told.err


def test_only_a_completed_run_has_evidence(project: Ralph) -> None:
    agent = project.script([write(file="half\n")])
    assert project("run", "-p", "x", "--agent", agent, "-m", "1", "--check", "false").code == 1
    told = project("pr", "latest")
    assert (told.code, len(told.err.splitlines())) == (2, 1)
    assert "was not completed" in told.err
    assert "refs/heads/ralph" not in project.git("for-each-ref")


def test_without_git_there_is_nothing_to_pull(ralph: Ralph) -> None:
    assert ralph("run", "-p", "x", "--agent", ralph.script([done()]), "--check", "true").code == 0
    told = ralph("pr", "latest")
    assert (told.code, len(told.err.splitlines())) == (2, 1)


def live(body: str) -> str:
    """What of a page is not code."""
    return re.sub(r"`[^`\n]*`|<code>.*?</code>", "", body)


def test_the_body_tells_all_and_nothing_that_an_agent_wrote_is_live() -> None:
    body = pull_request_body(PROOF, PULLED)
    for heading in ("What was wanted", "What changed", "Evidence", "Concerns", "Reviews", "Integrity of the checks",
                    "Who could have tampered", "What it took", "Check it again"):  # fmt: skip
        assert f"## {heading}\n" in body
    for told in ("Make the login work", "`sh check.sh`", "12 passed", "failed, 1 test of it", "3 iterations", "1 m",
                 "The agent could reach the checks.", "d" * 64, "ralph verify FILE", "- changed `file`",
                 "`.env`"):  # fmt: skip
        assert told in body, told
    rest = live(body)
    for sign in ("@everyone", "#1", NUMBERED, "evil", "<", "/close", "!3", "fixes"):
        assert sign not in rest, sign
    assert "\n/" not in body
    assert "everyone" in body


@pytest.mark.parametrize("text", [EVIL, "`" * 9 + "@me", "a\n/close\n#1", "\\`@me\\`", "</code>@me", "`" * 999 + "@me"])
def test_words_of_others_stay_in_their_span(text: str) -> None:
    for shown in (ForgeMarkdown().text(text), ForgeMarkdown().code(text)):
        assert "\n" not in shown
        assert live(shown) == ""
        assert len(shown) < 3000


@pytest.mark.parametrize("text", ["plain words, and more.", "a well-known thing (really)", "snake_case"])
def test_plain_words_stay_plain(text: str) -> None:
    assert ForgeMarkdown().text(text).replace("\\", "") == text


def test_a_held_out_check_is_not_told_to_whoever_reads_the_request() -> None:
    hidden = {**CHECK, "name": "final", "command": "sh secret-answer.sh", "hidden": True, "contains": "the answer"}
    body = pull_request_body({**PROOF, "checks": [CHECK, hidden]}, PULLED)
    assert "secret-answer" not in body
    assert "the answer" not in body
    assert "withheld" in body


def test_a_held_out_command_is_in_no_name_and_no_remark() -> None:
    name = "final: sh /x/acc.sh"
    hidden = {**CHECK, "name": name, "command": "sh /x/acc.sh", "hidden": True}
    outcome = PROOF["outcome"]
    assert isinstance(outcome, dict)
    told: dict[str, Json] = {
        "checks": [CHECK, hidden],
        "outcome": {**outcome, "concerns": [f"{name} was flaky"]},
        "findings": [finding_json("weakerCheck", f"{name} shows less")],
    }
    body = pull_request_body({**PROOF, **told}, PULLED)
    assert "acc.sh" not in body
    assert "`sh check.sh`" in body
    assert "d" * 64 in body, "the digest is that of the proof that the author exports"


def test_the_body_is_bounded_and_no_span_is_cut_open() -> None:
    many: list[Json] = [{**CHECK, "name": f"n{number}", "command": "|" * 9000} for number in range(300)]
    concerns: list[Json] = ["`@me " * 500] * 500
    outcome = PROOF["outcome"]
    assert isinstance(outcome, dict)
    big = {**PROOF, "checks": many, "outcome": {**outcome, "concerns": concerns}}
    body = pull_request_body(
        big, PullRequestFacts("b", "main", "", "a" * 40, tuple(("A", "@x/" * 400) for _ in range(500)))
    )
    assert len(body) <= MAX_BODY_CHARS
    assert "@" not in live(body)
    assert "ralph verify FILE" in body


def test_the_title_is_one_short_line() -> None:
    long: dict[str, Json] = {**PROOF, "title": "a\nb " + "c" * 200}
    assert len(pull_request_title(long, "")) == 72
    assert pull_request_title(long, " said\totherwise ") == "said otherwise"
    assert pull_request_title({**PROOF, "title": ""}, "") == "Work of run 20261115-210507-k3f9"


@pytest.mark.parametrize(
    ("url", "host"),
    [("https://github.com/a/b.git", "github.com"), ("git@github.com:a/b.git", "github.com"), ("/srv/git/a.git", ""),
     ("ssh://git@GitHub.com:22/a/b", "github.com"), ("https://user:pw@gitlab.com/a", "gitlab.com"), ("../a", ""),
     ("file:///srv/a.git", ""), ("github.com:a/b", "github.com"), ("", ""), ("./a:b", "")],
)  # fmt: skip
def test_the_host_of_an_address(url: str, host: str) -> None:
    assert host_of_url(url) == host


@pytest.mark.parametrize(
    ("host", "env", "kind"),
    [("github.com", {}, "GitHub"), ("notgithub.com", {}, ""), ("github.com.evil.example", {}, ""),
     ("git.example.org", {"GH_HOST": "git.example.org"}, "GitHub"), ("gitlab.com", {}, "GitLab"),
     ("gitlab.example.org", {}, "GitLab"), ("g.example.org", {"GITLAB_HOST": "https://g.example.org"}, "GitLab"),
     ("", {}, ""), ("it.ghe.com", {}, "GitHub")],
)  # fmt: skip
def test_the_kind_of_a_host(host: str, env: dict[str, str], kind: str) -> None:
    assert forge_kind(host, env) == kind


def test_json_has_all_that_was_done(project: Ralph) -> None:
    forge(project, GITHUB)
    run = completed(project)
    told = json.loads(project("pr", run, "--json").out)
    assert (told["type"], told["run"], told["remote"], told["error"]) == ("pr", run, "origin", None)
    assert told["commit"] == project.git("rev-parse", f"ralph/{run}").strip()
