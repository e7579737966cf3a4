"""`ralph proof` after real runs: what it says of each kind, where it is written, and when there is none."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ralphproof.proof.page import parse_proof, render_page
from ralphproof.proof.source import find_proof_faults
from tests.needs import require
from tests.ralph import Ended, Ralph, Step, done, say, until, write

SCM = {"scm": {"command": "git", "tasks": ["commit"]}}
YES: list[Step] = [{"judge": "yes"}]


def repository(ralph: Ralph, **settings: Any) -> None:
    ralph.write({"kept.txt": "as it was\n", ".gitignore": "ignored\n"})
    if settings:
        ralph.settings(**settings)
    ralph.commit()
    ralph.git("config", "user.name", "user")
    ralph.git("config", "user.email", "user@localhost")


def run(ralph: Ralph, agent: str, *flags: str, check: str = "test -f made", **env: str) -> Ended:
    asked = ("--check", check) if check else ()
    ended = ralph("run", "-p", "Make the file", "--agent", agent, *asked, *flags, env=env)
    assert ended.code == 0, ended
    return ended


def shown(ralph: Ralph, *argv: str) -> Any:
    told = ralph("proof", "show", *argv, "--json")
    assert told.code == 0, told.err
    assert find_proof_faults(told.json) == ()
    return told.json


def exported(ralph: Ralph) -> str:
    told = ralph("proof", "export", "-o", "-")
    assert (told.code, told.err) == (0, "")
    return told.out


# What each kind of run proves


def committed(ralph: Ralph) -> None:
    repository(ralph, **SCM)
    run(ralph, ralph.script([write(made="yes\n"), done()], message=[say("Add made")]))


def uncommitted(ralph: Ralph) -> None:
    repository(ralph)
    run(ralph, ralph.script([write(made="yes\n"), done()]))


def committed_by_the_agent(ralph: Ralph) -> None:
    repository(ralph)
    commit = [{"git": ["add", "made"]}, {"git": ["commit", "-qm", "Add made"]}]
    run(ralph, ralph.script([write(made="yes\n"), *commit, done()]))


def unchanged(ralph: Ralph) -> None:
    repository(ralph)
    run(ralph, ralph.script([done()]), check="test -f kept.txt")


@pytest.mark.parametrize(
    ("world", "kind", "commit"),
    [
        (committed, "commit", "HEAD"),
        (committed_by_the_agent, "commit", "HEAD"),
        (unchanged, "commit", "HEAD"),
        (uncommitted, "tree", "refs/ralph/{}/1"),
    ],
)
def test_the_proof_speaks_of_a_commit_with_what_the_checks_saw(
    ralph: Ralph, world: Callable[[Ralph], None], kind: str, commit: str
) -> None:
    world(ralph)
    run_id = ralph.runs()[0].id
    proof = shown(ralph, run_id)
    subject = proof["subject"]
    assert subject["kind"] == kind
    assert subject["commit"] == ralph.git("rev-parse", commit.format(run_id)).strip()
    assert subject["tree"] == ralph.git("rev-parse", f"{subject['commit']}^{{tree}}").strip()
    assert (subject["ref"], subject["differs"]) == (f"refs/ralph/{run_id}/1", [])
    assert subject["checked"] == ralph.git("rev-parse", f"{subject['ref']}^{{tree}}").strip()
    assert subject["head"] == ralph.git("rev-parse", "HEAD").strip()
    assert (proof["outcome"]["proof"], proof["title"]) == ("verified", "Make the file")
    (check,) = proof["checks"]
    assert (check["passed"], check["exitCode"], check["rule"]["folder"], check["hidden"]) == (True, 0, ".", False)
    assert check["before"] is not None
    assert (proof["sandbox"]["strength"], proof["project"]) == ("none", "project")
    assert proof["versions"]["git"]
    settings = ralph.root / ".ralph/settings.json"
    assert (proof["settingsFileDigest"] is not None) == settings.exists()


def test_what_the_commit_does_not_hold_of_the_work_is_named(ralph: Ralph) -> None:
    repository(ralph, **SCM)
    ralph.write({"kept.txt": "mine\n"})
    run(ralph, ralph.script([write(made="yes\n", kept__txt="theirs\n"), done()], message=[say("Add made")]))
    assert shown(ralph)["subject"]["differs"] == ["kept.txt"]
    assert "not as the checks saw it: kept.txt" in ralph("proof", "show").out


def test_work_after_the_last_commit_makes_the_saved_tree_the_subject(ralph: Ralph) -> None:
    repository(ralph, **SCM)
    hook = ralph.root / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    run(ralph, ralph.script([write(made="yes\n"), done()], message=[say("Add made")]))
    proof = shown(ralph)
    assert proof["subject"]["kind"] == "tree"
    assert any(one.startswith("scm: ") for one in proof["outcome"]["concerns"])


def test_a_claim_alone_is_said_to_prove_nothing(ralph: Ralph) -> None:
    repository(ralph)
    run(ralph, ralph.script([write(made="yes\n"), done()]), check="")
    told = ralph("proof", "show")
    assert told.code == 0
    first = "Claimed, not verified. The agent said that the work is done, and nothing verified it. It speaks of "
    assert told.out.split("\n")[1].startswith(first)
    assert exported(ralph).split("\n")[2].startswith("**Claimed, not verified.**")
    assert shown(ralph)["checks"] == []


def test_a_judges_word_is_told_as_a_judges(ralph: Ralph) -> None:
    repository(ralph)
    run(ralph, ralph.script([write(made="yes\n"), done()], answer=YES), "--judge", "it is neat", check="")
    proof = shown(ralph)
    (check,) = proof["checks"]
    assert (check["judged"], check["command"], check["commandDigest"]) == (True, None, None)
    assert [(one["result"], one["reviewer"].startswith("judge ")) for one in proof["reviews"]] == [("passed", True)]
    assert "Judged, not verified by a machine. 1 model's judgement passed the work." in ralph("proof", "show").out


def test_a_folder_without_git_has_a_proof_of_its_files(ralph: Ralph) -> None:
    ralph.write({"kept.txt": "as it was\n"})
    run(ralph, ralph.script([write(made="yes\n"), done()]))
    subject = shown(ralph)["subject"]
    assert (subject["kind"], subject["commit"], subject["tree"]) == ("files", None, subject["checked"])
    assert "files that no commit holds" in ralph("proof", "show").out
    assert (ralph.run_folder() / "proof/proof.md").exists()


def test_a_run_by_stories_tells_their_reviews(ralph: Ralph) -> None:
    def story(status: str | None, count: int = 0) -> dict[str, Any]:
        return {
            "id": "A", "title": "Make A", "acceptanceCriteria": ["made"], "priority": 1, "reviewStatus": status,
            "passes": status == "approved", "reviewCount": count, "reviewFeedback": "", "notes": "made",
        }  # fmt: skip

    def tasks(*stories: dict[str, Any]) -> str:
        about = {"project": "p", "branchName": "b", "description": "d", "verifyCommands": ["test -f made"]}
        return json.dumps({**about, "userStories": list(stories)})

    ralph.write({"ralph/tasks.json": tasks(story(None)), "ralph/prd.md": "# What\n", "ralph/progress.txt": "# P\n"})
    repository(ralph)
    agent = ralph.script(
        [{"write": {"ralph/tasks.json": tasks(story("needs_review")), "made": "yes"}}, say("ok")],
        [{"write": {"ralph/tasks.json": tasks(story("approved", 1))}}, say("ok")],
    )
    ended = ralph("run", "--preset", "stories", "--agent", agent)
    assert ended.code == 0, ended
    proof = shown(ralph)
    assert [one["command"] for one in proof["checks"]] == ["test -f made"]
    assert (proof["outcome"]["proof"], proof["title"]) == ("verified", "Make A")
    assert ("story A Make A", "approved", "reviews: 1") in [
        (one["reviewer"], one["result"], one["text"]) for one in proof["reviews"]
    ]
    assert any(one["reviewer"].startswith("stage review of Make A") for one in proof["reviews"])


# Where it is written


def test_a_completed_run_has_a_folder_with_its_proof(ralph: Ralph) -> None:
    committed(ralph)
    folder = ralph.run_folder() / "proof"
    page, data = (folder / "proof.md").read_text(), (folder / "proof.json").read_text()
    assert sorted(os.listdir(folder)) == ["proof.json", "proof.md"]
    assert parse_proof(page) == parse_proof(data) == json.loads(data)
    assert find_proof_faults(json.loads(data)) == ()
    assert render_page(parse_proof(page)) == page
    assert "**Verified.** 1 check passed, on commit" in page
    assert json.loads(data)["records"]["count"] == len(ralph.records())


def test_a_run_that_was_not_completed_has_no_folder(ralph: Ralph) -> None:
    ended = ralph("run", "-p", "x", "--agent", ralph.script([done()]), "--check", "false", "-m", "1")
    assert ended.code == 1
    assert not (ralph.run_folder() / "proof").exists()


def test_a_proof_folder_that_cannot_be_written_stops_nothing(ralph: Ralph) -> None:
    repository(ralph)
    agent = ralph.script([write(made="yes\n"), {"run": ["touch", f"{ralph.root}/.ralph/latest/proof"]}, done()])
    run(ralph, agent)
    assert (ralph.run_folder() / "proof").is_file()
    assert ralph.outcome()["status"] == "COMPLETED"
    assert shown(ralph)["outcome"]["status"] == "COMPLETED"


def test_held_out_checks_are_in_the_exported_file_and_withheld_in_the_folder(ralph: Ralph) -> None:
    repository(ralph, finalChecks=["grep -q yes made && echo the-answer"])
    run(ralph, ralph.script([write(made="yes\n"), done()]))
    for file in (ralph.run_folder() / "proof").iterdir():
        text = file.read_text()
        assert "grep -q yes" not in text
        assert "the-answer" not in text
        found = parse_proof(text)
        assert find_proof_faults(found) == ()
        assert isinstance(found["checks"], list)
        assert [(one["command"], one.get("withheld"), one["hidden"]) for one in found["checks"]] == [
            ("test -f made", None, False),
            (None, True, True),
        ]
    proof: Any = parse_proof(exported(ralph))
    assert [one["command"] for one in proof["checks"]] == ["test -f made", "grep -q yes made && echo the-answer"]
    assert any("the-answer" in check["output"] for check in proof["checks"] if check["hidden"])


def test_a_file_for_anybody_is_written_once(ralph: Ralph) -> None:
    committed(ralph)
    run_id, place = ralph.runs()[0].id, ralph.root
    told = ralph("proof", "export")
    file = place / f"ralph-proof-{run_id}.md"
    assert (told.code, told.err) == (0, "")
    assert f"ralph verify ralph-proof-{run_id}.md" in told.out
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    page = file.read_text()
    assert render_page(parse_proof(page)) == page == exported(ralph)
    again = ralph("proof", "export")
    assert (again.code, again.out) == (2, "")
    assert again.err == f"ralph: {file.name} exists; name another file with -o, or use --force\n"
    file.write_text("mine")
    assert ralph("proof", "export", "--force").code == 0
    assert file.read_text() == page
    told = ralph("proof", "export", run_id, "-o", str(ralph.folder / "p.md"), "--json")
    assert told.json == {
        "v": 1, "type": "proofFile", "run": run_id, "file": str(ralph.folder / "p.md"),
        "digest": parse_proof(page)["digest"],
    }  # fmt: skip
    assert (ralph.folder / "p.md").read_text() == page
    assert [name for name in os.listdir(place) if name.endswith(".tmp")] == []


def test_who_exports_held_out_checks_is_told_to_keep_the_file_from_agents(ralph: Ralph) -> None:
    repository(ralph, finalChecks=["grep -q yes made", "grep -q e made"])
    run(ralph, ralph.script([write(made="yes\n"), done()]))
    told = ralph("proof", "export", "-o", str(ralph.folder / "p.md"))
    assert (told.code, told.err) == (0, "")
    assert told.out.split("\n")[2] == "It names 2 held-out checks: keep it where no agent reads it."


def judged(ralph: Ralph) -> None:
    repository(ralph)
    run(ralph, ralph.script([write(made="yes\n"), done()], answer=YES), "--judge", "it is neat", check="")


def claimed(ralph: Ralph) -> None:
    repository(ralph)
    run(ralph, ralph.script([write(made="yes\n"), done()]), check="")


def without_git(ralph: Ralph) -> None:
    ralph.write({"kept.txt": "as it was\n"})
    run(ralph, ralph.script([write(made="yes\n"), done()]))


@pytest.mark.parametrize(
    ("world", "why"),
    [
        (judged, "only a model judged the work: there is no command to run again"),
        (claimed, "the agent's word alone ended the run: there is nothing to ask again"),
        (without_git, "the run had no git repository: no commit holds its files"),
    ],
)
def test_nobody_is_told_to_verify_what_cannot_be_verified(
    ralph: Ralph, world: Callable[[Ralph], None], why: str
) -> None:
    world(ralph)
    told = ralph("proof", "export", "-o", "p.md")
    assert told.code == 0
    assert told.out.split("\n")[1:] == [f"ralph verify cannot check it again: {why}", ""]
    assert f"- `ralph verify` cannot: {why}\n" in (ralph.root / "p.md").read_text()
    assert "in a clone of the project" not in (ralph.root / "p.md").read_text() + ralph("proof", "show").out
    assert ralph("verify", "p.md").code == 2, "which is so"


@pytest.mark.parametrize("force", [(), ("--force",)], ids=["", "force"])
@pytest.mark.parametrize("kind", ["link", "loose link", "pipe"])
def test_what_is_no_file_stays_whatever_is_said(ralph: Ralph, kind: str, force: tuple[str, ...]) -> None:
    uncommitted(ralph)
    target, place = ralph.folder / "precious", ralph.root / "p.md"
    if kind == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to(target)
    if kind == "link":
        target.write_text("mine")
    told = ralph("proof", "export", "-o", "p.md", *force)
    what = "no regular file" if kind == "pipe" else "a symbolic link"
    why = f"p.md is {what}, which is never overwritten; name a file with -o (-o - is standard output)"
    assert (told.code, told.out, told.err) == (2, "", f"ralph: {why}\n")
    assert place.is_fifo() if kind == "pipe" else place.is_symlink()
    assert target.exists() == (kind == "link")
    assert kind != "link" or target.read_text() == "mine"


@pytest.mark.parametrize("where", ["none/p.md", "."])
def test_a_place_that_takes_no_file_is_refused_in_one_line(ralph: Ralph, where: str) -> None:
    uncommitted(ralph)
    told = ralph("proof", "export", "-o", where, "--force")
    assert (told.code, told.out, told.err.count("\n")) == (2, "", 1)
    assert "name a" in told.err


# When there is none


def test_a_run_that_was_not_completed_proves_nothing(ralph: Ralph) -> None:
    agent = ralph.script([done()])
    assert ralph("run", "-p", "x", "--agent", agent, "--check", "echo no; false", "-m", "1").code == 1
    run_id = ralph.runs()[0].id
    told = ralph("proof", "show")
    assert (told.code, told.err) == (1, "")
    assert told.out.split("\n")[0] == f"run {run_id} proved nothing: ABORTED MAX_ITERATIONS"
    assert "failed  echo no; false" in told.out
    as_json = ralph("proof", "show", "--json")
    assert (as_json.code, as_json.json["outcome"]["reason"]) == (1, "MAX_ITERATIONS")
    told = ralph("proof", "export")
    assert (told.code, told.out) == (2, "")
    assert told.err == f"ralph: run {run_id} proved nothing: ABORTED MAX_ITERATIONS\n"
    assert list(ralph.root.glob("ralph-proof-*")) == []


def test_a_run_that_tripped_before_any_check_tells_of_none(ralph: Ralph) -> None:
    ralph.write({"check.sh": "test -f made\n"})
    repository(ralph)
    agent = ralph.script([write(check__sh="true\n"), done()])
    ended = ralph("run", "-p", "x", "--agent", agent, "--check", "sh check.sh")
    assert (ended.code, ralph.outcome()["reason"]) == (1, "CHECKS_WEAKENED"), ended
    told = ralph("proof", "show")
    assert told.code == 1
    assert "that the checks saw" not in told.out
    assert "the tree as the agent left it, which no check saw: " in told.out
    assert "No check looked at the work: nothing but the agent's own word could say that it is done." in told.out
    assert "ralph verify cannot: the run was not completed: it ended ABORTED CHECKS_WEAKENED" in told.out
    assert "  check.sh: " in told.out, "what tripped it is told"


def test_a_run_that_goes_on_is_refused(ralph: Ralph) -> None:
    repository(ralph)
    go = ralph.folder / "go"
    live = ralph.start("run", "-p", "x", "--agent", ralph.script([write(begun="x"), {"until": str(go)}, done()]))
    until((ralph.root / "begun").exists, "its turn")
    for verb in ("show", "export"):
        told = ralph("proof", verb)
        assert (told.code, told.out) == (2, "")
        assert told.err == f"ralph: run {ralph.runs()[0].id} has not ended, so it has proved nothing yet\n"
    go.touch()
    assert live.end().code == 0


@pytest.mark.parametrize("column", ["data", "kind", "at"])
def test_a_record_that_was_changed_proves_nothing(ralph: Ralph, column: str) -> None:
    uncommitted(ralph)
    (ledger,) = Path(ralph.state_dir).rglob("ledger.db")
    with sqlite3.connect(ledger) as database:
        new = {
            "data": "replace(data, '\"passed\": true', '\"passed\": true ')",
            "kind": "'CheckEnded '",
            "at": "at + 1",
        }
        where = "seq = (SELECT max(seq) FROM record WHERE kind = 'CheckEnded')"
        database.execute("DROP TRIGGER IF EXISTS record_stays")
        assert database.execute(f"UPDATE record SET {column} = {new[column]} WHERE {where}").rowcount == 1
    database.close()
    for verb in ("show", "export"):
        told = ralph("proof", verb)
        assert (told.code, told.out, told.err.count("\n")) == (3, "", 1), told
        assert "of iteration 1) was changed, or one before it is missing: nothing is proved by it" in told.err
    assert list(ralph.root.glob("ralph-proof-*")) == []


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        ([], "the following arguments are required: what"),
        (["shwo"], "argument what: invalid choice: 'shwo' (choose from 'show', 'export')"),
        (["show"], "no run yet"),
        (["show", "-o", "x"], "ralph proof show writes no file"),
        (["export", "-o", "-", "--json"], "standard output takes either"),
        (["show", "nosuch"], "nosuch"),
    ],
)
def test_a_slip_is_one_line(ralph: Ralph, argv: list[str], why: str) -> None:
    told = ralph("proof", *argv)
    assert (told.code, told.err.count("\n")) == (2, 1), told
    assert why in told.err


FULL = ["sh", "-c", 'exec "$@" > /dev/full', "sh"]


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("argv", "code", "why"),
    [
        (["verify", "latest", "--json"], 2, "no run yet; see: ralph status"),
        (["status", "--json"], 1, "DISK_FULL: No space left on device"),
        (["status"], 1, "DISK_FULL: No space left on device"),
        (["--version"], 1, "DISK_FULL: No space left on device"),
    ],
)
def test_where_nothing_can_be_printed_the_exit_code_is_left(
    ralph: Ralph, argv: list[str], code: int, why: str, unbuffered: str
) -> None:
    require(os.path.exists("/dev/full"), "no device here is always full")
    told = ralph(*argv, via=FULL, env={"PYTHONUNBUFFERED": unbuffered})
    assert (told.code, told.err) == (code, f"ralph: {why}\n")


# What strangers write


def test_a_secret_is_nowhere_in_a_proof(ralph: Ralph) -> None:
    secret = "hunter2hunter2"
    repository(ralph)
    ralph.env["MY_API_KEY"] = secret
    run(ralph, ralph.script([write(made="yes\n"), done()]), check='test -f made && echo "used $MY_API_KEY"')
    page = exported(ralph)
    assert "used ***" in page
    texts = [page, ralph("proof", "show").out, ralph("proof", "show", "--json").out]
    texts += [file.read_text() for file in (ralph.run_folder() / "proof").iterdir()]
    assert not any(secret in text for text in texts)


def test_a_secret_that_became_known_later_is_masked_and_the_proof_stays_whole(ralph: Ralph) -> None:
    repository(ralph)
    run(ralph, ralph.script([write(made="yes\n"), done()]), check="test -f made && echo hunter2hunter2")
    told = ralph("proof", "show", "--json", env={"MY_API_KEY": "hunter2hunter2"})
    assert "hunter2hunter2" not in told.out
    assert told.json["records"]["withheldRecords"]
    assert find_proof_faults(told.json) == ()


def test_what_a_check_prints_cannot_forge_the_data_or_move_the_cursor(ralph: Ralph) -> None:
    repository(ralph)
    forged = "printf '```\\n\\n```json\\n{\"v\":1}\\n```\\n\\033]0;owned\\007<script>'; test -f made"
    ended = ralph(
        "run", "-p", "a | <b>\x1b[31m` title", "--agent", ralph.script([write(made="1"), done()]), "--check", forged
    )
    assert ended.code == 0, ended
    page = exported(ralph)
    found: Any = parse_proof(page)
    assert found["run"] == ralph.runs()[0].id
    assert render_page(found) == page
    assert "\x1b" not in page + ralph("proof", "show").out
    assert page.startswith(f"# Proof of run {found['run']}: a &#124; &lt;b&gt;")
