from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ralphproof.workspace.commits import secret_reason
from tests.ralph import Ralph, done, write

KEY = "sk-ant-" + "x1" * 12
FAKE_PEM = "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIE\n"


def finished(ralph: Ralph, *more: str) -> str:
    """A run of two iterations, on files that the user had changed and not committed."""
    ralph.write({"file": "start\n", "other": "kept\n", ".gitignore": "ignored\n", "ignored": "mine\n"})
    ralph.commit()
    ralph.write({"own": "not committed\n", "other": "changed\n"})
    first = {"write": {"file": "first\n", "a b/ü": "1\n"}}
    agent = ralph.script([first], [{"delete": ["a b/ü"]}, write(file="second\n"), done()])
    assert ralph("run", "-p", "make it so\nin two lines", "--agent", agent, *more).code == 0
    return ralph.runs()[0].id


def content(ralph: Ralph, revision: str) -> dict[str, str]:
    names = ralph.git("ls-tree", "-rz", "--name-only", "--full-tree", revision).split("\0")
    return {name: ralph.git("cat-file", "blob", f"{revision}:{name}") for name in names if name}


def standing(ralph: Ralph) -> tuple[str, ...]:
    """What no verb but git's own may change: HEAD, the index, the files, the branches."""
    asked = ("rev-parse HEAD", "ls-files -s", "status --porcelain", "stash list")
    return tuple(ralph.git(*words.split()) for words in asked)


def test_the_branch_has_the_tree_of_the_iteration_on_top_of_the_commit_it_stood_on(ralph: Ralph) -> None:
    run = finished(ralph)
    before, head = standing(ralph), ralph.git("rev-parse", "HEAD").strip()
    told = ralph("branch", run, "1")
    assert told.code == 0, told.err
    name = f"ralph/{run}-1"
    assert content(ralph, name) == {
        "file": "first\n", "other": "changed\n", "own": "not committed\n", "a b/ü": "1\n", ".gitignore": "ignored\n",
    }  # fmt: skip
    assert ralph.git("rev-parse", f"{name}^").strip() == head
    assert standing(ralph) == before
    message = ralph.git("log", "-1", "--format=%B", name)
    assert message.splitlines()[0] == "make it so"
    assert f"iteration 1 of run {run}".lower() in message.lower()
    assert name in told.out


def test_the_start_has_what_the_user_had_not_committed(ralph: Ralph) -> None:
    run = finished(ralph)
    ralph.git("checkout", "-q", ".")
    ralph.git("clean", "-fdq")
    assert ralph("branch", run, "0", "--name", "what-i-had").code == 0
    found = content(ralph, "what-i-had")
    assert (found["own"], found["other"], found["file"]) == ("not committed\n", "changed\n", "start\n")


@pytest.mark.parametrize(
    ("settings", "who"),
    [({"user.name": "A User", "user.email": "a@example.com"}, "A User <a@example.com>"),
     ({}, "ralph <ralph@localhost>"), ({"user.name": "half"}, "ralph <ralph@localhost>")],
    ids=["known", "unknown", "half known"],
)  # fmt: skip
def test_the_commit_is_the_users_where_git_knows_them(ralph: Ralph, settings: dict[str, str], who: str) -> None:
    run = finished(ralph)
    for key, text in settings.items():
        ralph.git("config", key, text)
    assert ralph("branch", run, "2", "--name", "b").code == 0
    assert ralph.git("log", "-1", "--format=%an <%ae>|%cn <%ce>", "b").strip() == f"{who}|{who}"


def test_no_hook_runs(ralph: Ralph) -> None:
    run = finished(ralph)
    for name in ("reference-transaction", "pre-commit", "commit-msg", "post-commit"):
        hook = ralph.root / ".git/hooks" / name
        hook.write_text(f"#!/bin/sh\necho {name} >> {ralph.folder}/hooks\nexit 1\n")
        hook.chmod(0o755)
    assert ralph("branch", run, "1").code == 0
    assert not (ralph.folder / "hooks").exists()


def test_a_branch_that_is_there_is_moved_only_by_force_and_one_checked_out_never(ralph: Ralph) -> None:
    run = finished(ralph)
    ralph.git("branch", "there", "HEAD")
    refused = ralph("branch", run, "1", "--name", "there")
    assert refused.code == 2
    assert "--name" in refused.err
    assert "--force" in refused.err
    assert ralph("branch", run, "1", "--name", "there", "--force").code == 0
    assert content(ralph, "there")["file"] == "first\n"
    before = standing(ralph)
    assert ralph("branch", run, "1", "--name", "main", "--force").code == 2
    ralph.git("worktree", "add", "-q", "../elsewhere", "-b", "elsewhere")
    refused = ralph("branch", run, "1", "--name", "elsewhere", "--force")
    assert (refused.code, standing(ralph)) == (2, before)
    assert str(ralph.folder / "elsewhere") in refused.err


@pytest.mark.parametrize("name", ["", "-x", "a..b", "a b", "x.lock", "HEAD", "a\x1b[2J", "refs/../x", "@{-1}"])
def test_a_name_that_git_does_not_take_is_refused_in_one_line(ralph: Ralph, name: str) -> None:
    run = finished(ralph)
    told = ralph("branch", run, "1", f"--name={name}")
    assert (told.code, told.out, len(told.err.splitlines())) == (2, "", 1)
    assert "\x1b" not in told.err


def test_what_is_not_there_is_refused_in_one_line(ralph: Ralph) -> None:
    run = finished(ralph)
    ralph.git("branch", "ralph", "HEAD")  # a branch in the way of all below it
    lines = [("nothing", "1"), (run, "9"), (run, "-1"), (run, "x"), (run, "²"), (run, "1")]
    for argv in lines:
        told = ralph("branch", "--", *argv)
        assert (told.code, told.out, len(told.err.splitlines())) == (2, "", 1), argv
        assert "Traceback" not in told.err


def test_without_git_there_is_nothing_to_branch_from(ralph: Ralph) -> None:
    agent = ralph.script([write(file="1"), done()])
    assert ralph("run", "-p", "x", "--agent", agent).code == 0
    told = ralph("branch", "latest", "1")
    assert (told.code, len(told.err.splitlines())) == (2, 1)
    assert "without git" in told.err


def test_new_files_that_look_secret_are_left_out_and_named(ralph: Ralph) -> None:
    ralph.write({"file": "start\n", "config/.env": "tracked\n", "fixture": f"key = {KEY}\n"})
    ralph.commit()
    secret = {".env": "A=1\n", "deep/id_ed25519": "x", "notes.txt": f"the key is {KEY}\n", ".npmrc": "_authToken=abc\n"}
    harmless = {".env.example": "A=\n", "fixture": f"key = {KEY}\nmore\n", "config/.env": "still tracked\n"}
    agent = ralph.script([{"write": secret | harmless | {"file": "done\n"}}, done()])
    assert ralph("run", "-p", "x", "--agent", agent).code == 0
    told = ralph("branch", "latest", "1", "--name", "b", "--json")
    assert told.code == 0, told.err
    assert sorted(one["path"] for one in told.json["leftOut"]) == sorted(secret)
    found = content(ralph, "b")
    assert set(found) == {"file", *harmless}
    assert (found["file"], found["config/.env"]) == ("done\n", "still tracked\n")
    shown = ralph("branch", "latest", "1", "--name", "c").out
    assert all(f"  {name}: " in shown for name in secret)
    assert KEY not in shown


def test_files_too_large_to_be_saved_are_named_and_those_of_the_parent_stay(ralph: Ralph) -> None:
    ralph.write({"file": "start\n", "grows": "small\n", ".ralph/settings.json": "{}"})
    ralph.commit()
    grow = "truncate -s 60M grows; truncate -s 60M fresh"
    agent = ralph.script([write(file="done\n"), {"run": ["sh", "-c", grow]}, done()])
    assert ralph("run", "-p", "x", "--agent", agent).code == 0
    told = ralph("branch", "latest", "1", "--name", "b", "--json").json
    assert [one["path"] for one in told["leftOut"]] == ["fresh", "grows"]
    found = content(ralph, "b")
    assert (found["file"], found["grows"], found[".ralph/settings.json"]) == ("done\n", "small\n", "{}")
    assert "fresh" not in found


def test_line_ends_and_filters_are_those_that_git_would_store(ralph: Ralph) -> None:
    ralph.write({".gitattributes": "*.txt text eol=crlf\n*.dat filter=up\n", "a.txt": "1\n", "b.dat": "lower\n"})
    ralph.git("init", "-q")
    ralph.git("config", "--global", "filter.up.clean", "tr a-z A-Z")
    ralph.git("config", "--global", "filter.up.smudge", "tr A-Z a-z")
    ralph.commit()
    for name in ("a.txt", "b.dat"):
        (ralph.root / name).unlink()
    ralph.git("checkout", "-q", ".")
    assert (ralph.root / "a.txt").read_bytes() == b"1\r\n"
    agent = ralph.script([{"write": {"c.txt": "2\r\n", "d.dat": "new\n"}}, done()])
    assert ralph("run", "-p", "x", "--agent", agent).code == 0
    told = ralph("branch", "latest", "1", "--name", "b", "--json").json
    assert told["paths"] == ["c.txt", "d.dat"]
    assert (content(ralph, "b")["c.txt"], content(ralph, "b")["d.dat"]) == ("2\n", "NEW\n")


def test_a_submodule_stays_a_submodule_and_a_nested_repository_stays_out(ralph: Ralph) -> None:
    inner = ralph.folder / "inner"
    inner.mkdir()
    who = ["-c", "user.name=u", "-c", "user.email=u@example.com"]
    for words in (["init", "-q"], [*who, "commit", "-q", "--allow-empty", "-m", "inner"]):
        subprocess.run(["git", *words], cwd=inner, env=ralph.env, check=True)
    ralph.write({"file": "start\n"})
    ralph.commit()
    ralph.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "sub")
    ralph.commit()
    nest = {"run": ["sh", "-c", "git init -q nest; echo 1 > nest/f"]}
    agent = ralph.script([{"write": {"sub/x": "in it\n", "file": "done\n"}}, nest, done()])
    assert ralph("run", "-p", "x", "--agent", agent).code == 0
    told = ralph("branch", "latest", "1", "--name", "b", "--json")
    assert told.code == 0, told.err
    assert [one["path"] for one in told.json["leftOut"]] == ["nest/f"]
    assert told.json["paths"] == ["file"]
    assert ralph.git("ls-tree", "b", "sub").startswith("160000 commit")


def test_history_may_begin_with_it(ralph: Ralph) -> None:
    ralph.git("init", "-q")
    agent = ralph.script([write(file="1\n"), done()])
    assert ralph("run", "-p", "x", "--agent", agent).code == 0
    told = ralph("branch", "latest", "1", "--name", "b", "--json").json
    assert (told["parent"], content(ralph, "b")) == (None, {"file": "1\n"})
    assert ralph.git("log", "--format=%h", "b").count("\n") == 1


def test_where_nothing_differs_the_branch_is_at_the_commit_itself(ralph: Ralph) -> None:
    ralph.write({"file": "1\n"})
    ralph.commit()
    assert ralph("run", "-p", "x", "--agent", ralph.script([done()])).code == 0
    assert ralph("branch", "latest", "1", "--name", "b").code == 0
    assert ralph.git("rev-parse", "b") == ralph.git("rev-parse", "HEAD")


@pytest.mark.parametrize(
    ("path", "content", "before", "secret"),
    [
        (".env", b"A=1", None, True), ("a/.env.local", b"", None, True), (".ENV", b"", None, True),
        (".env.example", b"A=", None, False), (".env.sample", b"", None, False), ("x.template", b"", None, False),
        ("server.pem", b"", None, True), ("my.key", b"", None, True), ("id_rsa", b"", None, True),
        ("id_ed25519.pub", b"", None, False), ("x.p12", b"", None, True), ("x.pfx", b"", None, True),
        ("a.keystore", b"", None, True), ("credentials-prod.json", b"", None, True),
        ("service-account-1.json", b"", None, True), ("terraform.tfstate", b"", None, True),
        ("prod.tfstate", b"", None, True), ("keyboard.py", b"x", None, False), ("monkey.txt", b"", None, False),
        (".npmrc", b"registry=x\n", None, False), (".npmrc", b"//r/:_authToken=abc\n", None, True),
        (".npmrc", b"//r/:_authToken=${NPM_TOKEN}\n", None, False), (".pypirc", b"password = x\n", None, True),
        (".netrc", b"machine h login l password p\n", None, True), ("a.py", KEY.encode(), None, True),
        ("a.py", KEY.encode(), KEY.encode(), False), ("a.py", f"{KEY}\n{KEY}2".encode(), KEY.encode(), True),
        (".env", b"B=2", b"A=1", False), (".env", KEY.encode(), b"A=1", True), ("a.txt", FAKE_PEM.encode(), None, True),
        ("a.txt", FAKE_PEM.encode(), FAKE_PEM.encode(), False), ("image.png", bytes(range(256)) * 9, None, False),
    ],
)  # fmt: skip
def test_what_looks_secret(path: str, content: bytes, before: bytes | None, secret: bool) -> None:
    assert bool(secret_reason(path, content, before)) is secret


def test_nothing_of_ours_is_left_in_the_temporary_folder(ralph: Ralph, tmp_path: Path) -> None:
    run, place = finished(ralph), tmp_path / "temporary"
    place.mkdir()
    assert ralph("branch", run, "1", env={"TMPDIR": str(place)}).code == 0
    assert list(place.iterdir()) == []


def test_work_that_an_agent_swept_away_comes_back_with_the_start(ralph: Ralph) -> None:
    ralph.write({"file": "start\n", ".gitignore": "ignored\n", "ignored": "mine\n"})
    ralph.commit()
    mine = {"file": "edited, not committed\n", "new/deep": "untracked\n", "staged": "added\n"}
    ralph.write(mine)
    ralph.git("add", "staged")
    sweep = {"run": ["sh", "-c", "git checkout -q . && git clean -fdq && git reset -q --hard"]}
    ralph("run", "-p", "x", "--agent", ralph.script([sweep, done()]), "-m", "1")
    ralph.git("gc", "-q", "--prune=now")
    told = ralph("rewind", "latest", "0", "--yes")
    assert told.code == 0, told.err
    assert {name: text_of(ralph.root / name) for name in mine} == mine
    assert text_of(ralph.root / "ignored") == "mine\n"


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_a_file_that_the_user_keeps_out_of_the_work_tree_is_not_removed(ralph: Ralph) -> None:
    ralph.write({"file": "start\n", "sparse/one": "not on disk\n"})
    ralph.commit()
    ralph.git("update-index", "--skip-worktree", "sparse/one")
    (ralph.root / "sparse/one").unlink()
    assert ralph("run", "-p", "x", "--agent", ralph.script([write(file="done\n"), done()])).code == 0
    assert ralph("branch", "latest", "1", "--name", "b", "--json").json["paths"] == ["file"]
    assert content(ralph, "b") == {"file": "done\n", "sparse/one": "not on disk\n"}


def test_a_secret_in_the_prompt_is_in_no_message(ralph: Ralph) -> None:
    ralph.env["MY_TOKEN"] = "hush-hush-hush"
    ralph.write({"file": "start\n"})
    ralph.commit()
    agent = ralph.script([write(file="done\n"), done()])
    assert ralph("run", "-p", f"use hush-hush-hush and {KEY}\x1b[2J", "--agent", agent).code == 0
    assert ralph("branch", "latest", "1", "--name", "b").code == 0
    assert ralph.git("log", "-1", "--format=%s", "b").strip() == "use *** and ***"
