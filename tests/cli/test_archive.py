"""`ralph archive`: stories are put away, whole, and fresh ones take their place."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ralphproof.planning.archive import read_overview, safe_label, summary_page
from ralphproof.stories.story_folder import scaffold_files
from ralphproof.views.published_json import find_faults, ref
from tests.ralph import Ended, Ralph, done, until

TODAY = time.strftime("%Y-%m-%d")
FRESH = scaffold_files("project", [], TODAY)
MOVED = ("prd.md", "progress.txt", "tasks.json")
CAPPED = "[AUTO-APPROVED AT CAP] the error path is untested"


def story(id: str, **more: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "id": id, "title": f"Title of {id}", "description": "", "acceptanceCriteria": ["it works"], "priority": 1,
        "passes": False, "reviewStatus": None, "reviewCount": 0, "reviewFeedback": "", "notes": "", "dependsOn": [],
    }  # fmt: skip
    return usual | more


def approved(id: str, reviews: int, feedback: str = "") -> dict[str, Any]:
    done = {"passes": True, "reviewStatus": "approved", "reviewCount": reviews, "notes": "done"}
    return story(id, **done, reviewFeedback=feedback)


STORIES = [
    approved("US-001", 1),
    approved("US-002", 5, CAPPED),
    story("US-003", reviewStatus="changes_requested", reviewCount=2, reviewFeedback="handle empty input"),
    story("US-004"),
]


def tasks(*stories: dict[str, Any], branch: str = "ralph/login") -> str:
    document = {"project": "Shop", "branchName": branch, "description": "d", "userStories": list(stories or STORIES)}
    return json.dumps(document, indent=2)


def project(ralph: Ralph, git: bool = True, **files: str) -> dict[str, str]:
    """A project whose stories were worked on; what they say."""
    old = {
        "prd.md": "# PRD: Shop\nAll that is wanted.\n", "tasks.json": tasks(),
        "progress.txt": "# Ralph Progress Log\nStarted: 2026-01-02\nPRD: Shop\n\n## Entries\n", "prompt.md": "mine\n",
    } | {name.replace("__", "."): text for name, text in files.items()}  # fmt: skip
    ralph.write({f"ralph/{name}": text for name, text in old.items()})
    ralph.write({"README": "A project.\n", "staged": "1\n", "dirty": "1\n"})
    if git:
        ralph.commit()
        ralph.git("config", "user.name", "user")
        ralph.git("config", "user.email", "user@localhost")
    return {name: text for name, text in old.items() if name in MOVED}


def in_folder(ralph: Ralph, folder: str = "ralph") -> dict[str, str]:
    place = ralph.root / folder
    return {path.name: path.read_text() for path in place.iterdir()} if place.is_dir() else {}


def archives(ralph: Ralph) -> list[str]:
    place = ralph.root / "ralph-archive"
    return sorted(path.name for path in place.iterdir()) if place.is_dir() else []


def archived(ralph: Ralph, name: str = f"{TODAY}-login") -> dict[str, str]:
    return {key: text for key, text in in_folder(ralph, f"ralph-archive/{name}").items() if key != "summary.md"}


def page(ralph: Ralph, name: str = f"{TODAY}-login") -> str:
    return in_folder(ralph, f"ralph-archive/{name}")["summary.md"]


def whole(ralph: Ralph) -> dict[str, Any]:
    """All files of a project, its index and its history."""
    inner = {str(path.relative_to(ralph.root)): path for path in sorted(ralph.root.rglob("*")) if path.is_file()}
    found: dict[str, Any] = {name: path.read_bytes() for name, path in inner.items() if not name.startswith(".git/")}
    if (ralph.root / ".git").exists():
        found |= {words: ralph.git(*words.split()) for words in ("ls-files -s", "rev-parse HEAD", "status --porcelain")}
    return found


def is_fresh(ralph: Ralph) -> bool:
    return all(in_folder(ralph).get(name) == FRESH[name].decode() for name in MOVED)


def hook(ralph: Ralph, name: str, text: str) -> None:
    path = ralph.root / ".git/hooks" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def refused(told: Ended, *words: str) -> None:
    assert (told.code, told.out, len(told.err.splitlines())) == (2, "", 1), told
    assert all(word in told.err for word in words), told.err


# Away


@pytest.mark.parametrize("git", [True, False], ids=["git", "plain"])
def test_stories_are_moved_summed_up_and_replaced_by_fresh_ones(ralph: Ralph, git: bool) -> None:
    old = project(ralph, git)
    inodes = {name: (ralph.root / "ralph" / name).stat().st_ino for name in MOVED}
    told = ralph("archive")
    assert told.code == 0, told.err
    assert archives(ralph) == [f"{TODAY}-login"]
    assert archived(ralph) == old
    assert {name: (ralph.root / f"ralph-archive/{TODAY}-login" / name).stat().st_ino for name in MOVED} == inodes
    assert is_fresh(ralph)
    assert in_folder(ralph)["prompt.md"] == "mine\n"
    assert in_folder(ralph).keys() == {*MOVED, "prompt.md"}
    assert f"ralph-archive/{TODAY}-login contains the stories: 2 of 4 stories completed" in told.out
    if git:
        assert ralph.git("status", "--porcelain") == ""
        assert ralph.git("log", "-1", "--format=%s") == "chore: archive ralph stories (login)\n"


def test_the_summary_tells_of_stories_reviews_dates_and_concerns(ralph: Ralph) -> None:
    project(ralph)
    assert ralph("archive").code == 0
    text = page(ralph)
    assert text.startswith(
        f"# Archive: login\n\n- Project: Shop\n- Branch: ralph/login\n- Dates: 2026-01-02 to {TODAY}\n"
        "- Stories: 2 of 4 completed\n- Files: tasks.json, prd.md, progress.txt\n"
    )
    assert "| US-001 | Title of US-001 | approved | 1 |\n" in text
    assert "| US-002 | Title of US-002 | approved at the review cap | 5 |\n" in text
    assert "| US-003 | Title of US-003 | changes requested | 2 |\n" in text
    assert "| US-004 | Title of US-004 | not begun | 0 |\n" in text
    assert "- story US-002 was approved at the review cap: the error path is untested\n" in text
    assert "- story US-003 is not completed (changes requested): handle empty input\n" in text
    assert "malformed" not in text


def test_without_a_date_in_the_log_the_oldest_file_tells_when_it_began(ralph: Ralph) -> None:
    project(ralph, progress__txt="no date\n")
    at = time.mktime(time.strptime("2026-03-04 12", "%Y-%m-%d %H"))
    os.utime(ralph.root / "ralph/prd.md", (at, at))
    assert ralph("archive").code == 0
    assert f"- Dates: 2026-03-04 to {TODAY}\n" in page(ralph)


def test_what_stories_say_cannot_break_the_page() -> None:
    nasty = "a | b\n<!-- ralph-archive {} -->\x1b[31m `c`"
    document = {"project": nasty, "branchName": nasty, "userStories": [story("x|y", title=nasty, passes=True)]}
    text = summary_page("x", read_overview(json.dumps(document).encode()), "a", "b", ())
    row = next(line for line in text.splitlines() if line.startswith("| x"))
    assert row == "| x\\|y | a \\| b &lt;!-- ralph-archive {} --> `c` | done, not reviewed | 0 |"
    assert "\x1b" not in text
    assert "<!--" not in text


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("{not json", "not valid JSON"),
        ("[]", "no JSON object"),
        ('{"userStories": {}}', "userStories"),
        ('{"userStories": [1, {"id": 7, "reviewCount": "x", "passes": 1, "reviewFeedback": []}]}', "userStories[0]"),
        ('{"a": 1, "a": 2}', "the key a is given twice"),
        ("", "not valid JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"userStories": [{"id": "A", "reviewCount": -1, "title": null}]}', "Story A"),
    ],
    ids=["text", "list", "object", "rubbish", "twice", "empty", "deep", "number"],
)
def test_a_malformed_file_is_archived_as_it_is_and_the_summary_says_so(ralph: Ralph, text: str, word: str) -> None:
    old = project(ralph, tasks__json=text)
    told = ralph("archive", "--label", "broken")
    assert told.code == 0, told.err
    assert archived(ralph, f"{TODAY}-broken") == old
    assert "tasks.json is malformed; it is archived as it was found" in page(ralph, f"{TODAY}-broken")
    assert word in page(ralph, f"{TODAY}-broken")
    assert is_fresh(ralph)


def test_what_is_missing_is_not_archived_and_there_again_fresh(ralph: Ralph) -> None:
    old = project(ralph)
    (ralph.root / "ralph/tasks.json").unlink()
    assert ralph("archive", "--label", "x").code == 0
    assert archived(ralph, f"{TODAY}-x") == {name: old[name] for name in ("prd.md", "progress.txt")}
    assert is_fresh(ralph)
    assert ralph.git("status", "--porcelain") == ""


def test_a_file_that_is_no_text_is_moved_all_the_same(ralph: Ralph) -> None:
    project(ralph, git=False)
    (ralph.root / "ralph/tasks.json").write_bytes(b"\xff\xfe\x00binary")
    assert ralph("archive", "--label", "x").code == 0
    assert (ralph.root / f"ralph-archive/{TODAY}-x/tasks.json").read_bytes() == b"\xff\xfe\x00binary"
    assert "not UTF-8" in (ralph.root / f"ralph-archive/{TODAY}-x/summary.md").read_text()


# The name


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("login", "login"),
        ("Log in, please!", "Log-in-please"),
        ("../../etc/passwd", "etc-passwd"),
        ("a/b\\c:d", "a-b-c-d"),
        (".hidden.", "hidden"),
        ("-rf", "rf"),
        ("größe", "größe"),
        ("gro\u0308ße", "größe"),
        ("ö" * 200, "ö" * 50),
        ("a\nb\x00c", "a-b-c"),
        ("...", ""),
        ("/", ""),
    ],
)
def test_a_label_is_made_safe_for_a_folder(label: str, name: str) -> None:
    assert safe_label(label) == name


@pytest.mark.parametrize("label", ["", "...", "///"])
def test_a_label_of_which_nothing_is_left_is_refused(ralph: Ralph, label: str) -> None:
    project(ralph)
    before = whole(ralph)
    refused(ralph("archive", "--label", label), "--label", "nothing in it that a folder can be called")
    assert whole(ralph) == before


def test_a_name_that_is_taken_gets_a_number(ralph: Ralph) -> None:
    names = []
    for number in range(3):
        project(ralph, prd__md=f"number {number}\n")
        names.append(ralph("archive", "--json").json["archive"])
    assert names == [f"ralph-archive/{TODAY}-login{end}" for end in ("", "-2", "-3")]
    assert [archived(ralph, Path(name).name)["prd.md"] for name in names] == [f"number {n}\n" for n in range(3)]
    ralph.write({f"ralph-archive/{TODAY}-x": "a file\n", "ralph/prd.md": "again\n"})
    assert ralph("archive", "--label", "x", "--json").json["archive"] == f"ralph-archive/{TODAY}-x-2"


@pytest.mark.parametrize(
    ("branch", "here", "name"),
    [
        ("ralph/login", "main", "login"),
        ("feature/a b", "main", "feature-a-b"),
        ("ralph/feature-name", "ralph/basket", "basket"),
        ("", "main", "main"),
        ("///", "topic/x", "topic-x"),
        ("", None, "stories"),
    ],
)
def test_without_a_label_the_branch_names_it(ralph: Ralph, branch: str, here: str | None, name: str) -> None:
    project(ralph, git=here is not None, tasks__json=tasks(branch=branch))
    if here is not None:
        ralph.git("checkout", "-q", "-B", here)
    assert ralph("archive").code == 0
    assert archives(ralph) == [f"{TODAY}-{name}"]


# The commit


def test_exactly_these_paths_are_committed_and_all_else_stays_as_it_is(ralph: Ralph) -> None:
    project(ralph)
    ralph.write({"staged": "2\n", "dirty": "2\n", "new": "1\n", "newly staged": "1\n", "ralph/prompt.md": "changed\n"})
    ralph.write({"ralph/prd.md": "staged\n"})
    ralph.git("add", "staged", "newly staged", "ralph/prd.md")
    ralph.write({"ralph/prd.md": "changed since\n", "staged": "3\n"})
    assert ralph("archive", "--label", "x").code == 0
    changed = ralph.git("show", "--name-only", "--format=", "--no-renames", "HEAD").splitlines()
    assert sorted(changed) == sorted(
        [*(f"ralph/{name}" for name in MOVED), *(f"ralph-archive/{TODAY}-x/{name}" for name in (*MOVED, "summary.md"))]
    )
    assert ralph.git("show", f"HEAD:ralph-archive/{TODAY}-x/prd.md") == "changed since\n"
    assert ralph.git("status", "--porcelain").splitlines() == [
        " M dirty", 'A  "newly staged"', " M ralph/prompt.md", "MM staged", "?? new",
    ]  # fmt: skip
    assert ralph.git("show", ":staged") == "2\n"


def test_it_runs_no_hooks_and_no_signing_program(ralph: Ralph) -> None:
    project(ralph)
    for name in ("pre-commit", "prepare-commit-msg", "commit-msg", "post-commit", "reference-transaction"):
        hook(ralph, name, "touch ../ran; exit 1")
    ralph.git("config", "commit.gpgSign", "true")
    ralph.git("config", "gpg.program", str(ralph.root / ".git/hooks/pre-commit"))
    assert ralph("archive").code == 0
    assert ralph.git("log", "-1", "--format=%s") == "chore: archive ralph stories (login)\n"
    assert not (ralph.folder / "ran").exists()


def no_identity(ralph: Ralph) -> None:
    for key in ("user.name", "user.email"):
        ralph.git("config", "--unset", key)
    ralph.git("config", "user.useConfigOnly", "true")


def test_without_an_identity_it_commits_as_ralph(ralph: Ralph) -> None:
    project(ralph)
    no_identity(ralph)
    assert ralph("archive").code == 0
    assert ralph.git("log", "-1", "--format=%an") == "ralph\n"


def test_where_git_does_not_commit_the_next_call_does(ralph: Ralph) -> None:
    old = project(ralph)
    head = ralph.git("rev-parse", "HEAD")
    reference = ralph.root / ".git" / ralph.git("symbolic-ref", "HEAD").strip()
    blocked = reference.with_name(f"{reference.name}.lock")
    blocked.touch()
    refused(ralph("archive"), f"the stories are in ralph-archive/{TODAY}-login, not committed yet", "--no-commit")
    assert archived(ralph) == old | {".unfinished": "ralph"}
    assert is_fresh(ralph)
    told = ralph("archive", "--no-commit", "--json").json
    assert told["commit"] is None
    assert [*find_faults(told, ref("archive"), "archive")] == []
    assert ralph.git("rev-parse", "HEAD") == head
    assert archived(ralph) == old
    ralph.write({"ralph/prd.md": "again\n"})
    refused(ralph("archive", "--label", "x"), "not committed yet")
    blocked.unlink()
    assert ralph("archive", "--json").json["action"] == "finished"
    assert archived(ralph, f"{TODAY}-x").keys() == {*MOVED}


def test_who_commits_may_be_said_by_the_environment(ralph: Ralph) -> None:
    project(ralph)
    no_identity(ralph)
    who = {f"GIT_{role}_{what}": f"ci{what[0]}" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    assert ralph("archive", env=who).code == 0
    assert ralph.git("log", "-1", "--format=%an %ce") == "ciN ciE\n"


def test_a_merge_in_progress_is_seen_before_anything_is_moved(ralph: Ralph) -> None:
    project(ralph)
    (ralph.root / ".git/MERGE_HEAD").write_text(ralph.git("rev-parse", "HEAD"))
    before = whole(ralph)
    refused(ralph("archive"), "in progress (MERGE_HEAD); finish it first")
    assert whole(ralph) == before
    (ralph.root / ".git/MERGE_HEAD").unlink()
    (ralph.root / ".git/index.lock").touch()
    refused(ralph("archive"), "another git process seems to be at work")
    (ralph.root / ".git/index.lock").unlink()
    assert whole(ralph) == before


@pytest.mark.parametrize(
    ("rules", "committed"),
    [("ralph-archive/\n", {"ralph"}), ("ralph/\nralph-archive/\n", set()), ("", {"ralph", "ralph-archive"})],
)
def test_what_the_user_ignores_is_moved_and_not_committed(ralph: Ralph, rules: str, committed: set[str]) -> None:
    ralph.write({".gitignore": rules})
    project(ralph)
    head = ralph.git("rev-parse", "HEAD")
    told = ralph("archive")
    assert told.code == 0, told.err
    assert is_fresh(ralph)
    changed = ralph.git("diff", "--name-only", head.strip(), "HEAD").splitlines()
    assert {path.split("/")[0] for path in changed} == committed
    assert ("Note: git has nothing to commit" in told.out) == (not committed)
    alone = f"Note: git ignores ralph-archive/{TODAY}-login: it is on this disk alone\n"
    assert (alone in told.out) == (committed == {"ralph"})


def test_the_first_commit_of_a_repository_may_be_an_archive(ralph: Ralph) -> None:
    ralph.git("init", "-q")
    project(ralph, git=False)
    ralph.git("config", "user.name", "user")
    ralph.git("config", "user.email", "user@localhost")
    ralph.git("add", "staged")
    told = ralph("archive")
    assert told.code == 0, told.err
    assert ralph.git("rev-list", "--count", "HEAD") == "1\n"
    assert ralph.git("status", "--porcelain").splitlines() == [
        "A  staged",
        "?? README",
        "?? dirty",
        "?? ralph/prompt.md",
    ]


def test_a_linked_worktree_has_its_own(ralph: Ralph) -> None:
    project(ralph)
    ralph.git("worktree", "add", "-q", "../other", "-b", "other")
    told = ralph("archive", "-d", "../other", "--label", "x")
    assert told.code == 0, told.err
    assert (ralph.folder / f"other/ralph-archive/{TODAY}-x/prd.md").is_file()
    assert ralph.git("log", "-1", "--format=%s", "other") == "chore: archive ralph stories (x)\n"
    assert archives(ralph) == []
    assert ralph.git("status", "--porcelain") == ""


def test_a_folder_of_a_repository_is_archived_without_a_commit(ralph: Ralph) -> None:
    project(ralph)
    ralph.write({"part/.ralph/settings.json": "{}", "part/ralph/prd.md": "words\n"})
    head = ralph.git("rev-parse", "HEAD")
    told = ralph("archive", "-d", "part", "--label", "x")
    assert told.code == 0, told.err
    assert f"Note: nothing was committed: the project is a folder of the repository at {ralph.root}\n" in told.out
    assert (ralph.root / f"part/ralph-archive/{TODAY}-x/prd.md").read_text() == "words\n"
    assert ralph.git("rev-parse", "HEAD") == head


def test_a_revert_of_the_commit_brings_the_stories_back(ralph: Ralph) -> None:
    project(ralph)
    before = in_folder(ralph)
    assert ralph("archive").code == 0
    ralph.git("revert", "--no-edit", "HEAD")
    assert in_folder(ralph) == before
    assert archives(ralph) == []


# What cannot be


def test_untouched_templates_are_nothing_to_archive(ralph: Ralph) -> None:
    assert ralph("init", "--preset", "stories", "--yes", "--agent", "tool", "--name", "x").code == 0
    before = whole(ralph)
    refused(ralph("archive"), "there is nothing to archive: ralph says no more than its templates")
    (ralph.root / "ralph/prd.md").unlink()
    refused(ralph("archive"), "nothing to archive")
    ralph.write({"ralph/prd.md": before["ralph/prd.md"].decode()})
    ralph.write({"ralph/prompt.md": "customised\n"})
    refused(ralph("archive"), "nothing to archive")
    assert not (ralph.root / "ralph-archive").exists()


def test_without_a_folder_there_is_nothing_and_the_way_to_one_is_said(ralph: Ralph) -> None:
    refused(ralph("archive"), "there is no folder ralph with stories; make one: ralph init --preset stories")
    refused(ralph("archive", "--ralph-dir", ".."), "must be a folder inside the project")


@pytest.mark.parametrize("what", ["file", "directory", "folder", "archives", "archives are a file"])
def test_links_and_other_odd_things_are_refused_and_nothing_is_moved(ralph: Ralph, what: str) -> None:
    project(ralph, git=False)
    elsewhere = ralph.folder / "elsewhere"
    elsewhere.mkdir()
    path = ralph.root / "ralph/prd.md"
    match what:
        case "file":
            path.rename(elsewhere / "prd.md")
            path.symlink_to(elsewhere / "prd.md")
        case "directory":
            path.unlink()
            path.mkdir()
        case "folder":
            (ralph.root / "ralph").rename(elsewhere / "ralph")
            (ralph.root / "ralph").symlink_to(elsewhere / "ralph")
        case "archives":
            (ralph.root / "ralph-archive").symlink_to(elsewhere)
        case _:
            (ralph.root / "ralph-archive").write_text("x")
    before = whole(ralph), sorted(path.name for path in elsewhere.rglob("*"))
    remedy = "ralph-archive must be a folder of its own; move what is there away"
    refused(ralph("archive"), *([remedy] if what.startswith("archives") else []))
    assert (whole(ralph), sorted(path.name for path in elsewhere.rglob("*"))) == before


def test_a_loop_at_work_is_not_disturbed(ralph: Ralph) -> None:
    project(ralph)
    agent = ralph.script([{"run": ["touch", "../working"]}, {"until": "../go"}, done()])
    live = ralph.start("run", "-p", "x", "--agent", agent)
    until((ralph.folder / "working").exists, "the agent is at work")
    refused(ralph("archive"), f"run {ralph.runs()[0].id}", "ralph cancel")
    os.kill(live.process.pid, signal.SIGKILL)
    live.end()
    refused(ralph("archive"), "is still at work here; end it: ralph cancel")
    (ralph.folder / "go").touch()
    run = ralph.runs()[0].id
    until(lambda: "still at work" not in ralph("archive", "--label", "...").err, "the agent has ended")
    told = ralph("archive")
    assert told.code == 0, told.err
    assert f"Note: run {run} was cut off and is not closed; end it: ralph cancel {run}\n" in told.out


def test_a_live_marker_refuses_and_a_stale_one_is_removed(ralph: Ralph) -> None:
    project(ralph)
    marker = ralph.root / ".ralph-active"
    marker.write_text(json.dumps({"pid": os.getpid(), "run": "elsewhere"}))
    refused(ralph("archive"), f".ralph-active says that a loop is at work here (pid {os.getpid()})")
    dead = subprocess.Popen(["true"])
    dead.wait()
    marker.write_text(json.dumps({"pid": dead.pid, "run": "elsewhere"}))
    told = ralph("archive")
    assert told.code == 0, told.err
    assert f"(pid {dead.pid}); it was removed" in told.out
    assert not marker.exists()


def test_another_folder_than_the_usual_one(ralph: Ralph) -> None:
    project(ralph)
    (ralph.root / "ralph").rename(ralph.root / "docs")
    assert ralph("archive", "--ralph-dir", "docs").code == 0
    assert not (ralph.root / "ralph").exists()
    assert in_folder(ralph, "docs")["prd.md"] == FRESH["prd.md"].decode()


def test_for_programs(ralph: Ralph) -> None:
    project(ralph)
    told = ralph("archive", "--json").json
    head = ralph.git("rev-parse", "HEAD").strip()
    assert told == {
        "v": 1, "type": "archive", "action": "archived", "archive": f"ralph-archive/{TODAY}-login", "folder": "ralph",
        "commit": head, "completed": 2, "total": 4, "remarks": [],
        "concerns": [
            "story US-002 was approved at the review cap: the error path is untested",
            "story US-003 is not completed (changes requested): handle empty input",
            "story US-004 is not completed (not begun)",
        ],
    }  # fmt: skip
    assert ralph("archive", "--json").json["error"].startswith("there is nothing to archive")


# Cut off


NEW = {"ralph/prd.md": "the next feature\n", "ralph/tasks.json": tasks(story("US-009"), branch="ralph/next")}


def archive_killed_at(ralph: Ralph, step: int) -> list[str]:
    """Kill an archive before this step; its steps so far. 0 kills nothing."""
    log = ralph.folder / "log"
    ended = ralph("archive", "--label", "x", dies=(str(log), "steps", str(step)))
    assert ended.code == (-signal.SIGKILL if step else 0), ended
    return log.read_text().splitlines()


def steps_of_an_archive(folder: Path) -> tuple[list[str], dict[str, Any]]:
    ralph = Ralph(folder)
    try:
        project(ralph)
        return archive_killed_at(ralph, 0), result(ralph)
    finally:
        ralph.close()


def result(ralph: Ralph) -> dict[str, Any]:
    return {name: content for name, content in whole(ralph).items() if name != "rev-parse HEAD"}


def walk(folder: Path, wanted: Callable[[str], bool]) -> int:
    """Kill an archive before every wanted step, call it again, and expect what comes of one that is not killed."""
    did, end = steps_of_an_archive(folder / "whole")
    numbers = [number for number, what in enumerate(did, 1) if wanted(what)]
    for number in numbers:
        ralph = Ralph(folder / str(number))
        try:
            old = project(ralph)
            what = archive_killed_at(ralph, number)[-1]
            for name, text in old.items():
                places = [in_folder(ralph), *(in_folder(ralph, f"ralph-archive/{one}") for one in archives(ralph))]
                assert any(place.get(name) == text for place in places), (number, what, name)
            again = ralph("archive", "--label", "x")
            assert again.code == 0 or "there is nothing to archive" in again.err, (number, what, again)
            assert result(ralph) == end, f"killed before step {number}: {what}"
        finally:
            ralph.close()
    return len(numbers)


TELLING = ("os.rename '.staged'", "os.rename 'prd.md'", "os.link", "os.posix_spawn", "os.remove '.unfinished'")


def test_killed_where_it_matters_it_is_finished_by_the_next_call(tmp_path: Path) -> None:
    seen: list[str] = []

    def first_of_its_kind(what: str) -> bool:
        kind = next((kind for kind in TELLING if what.startswith(kind)), "")
        seen.append(kind)
        return bool(kind) and seen.count(kind) == 1

    assert walk(tmp_path, first_of_its_kind) >= 4


@pytest.mark.thorough
def test_killed_at_any_step_it_is_finished_by_the_next_call(tmp_path: Path) -> None:
    assert walk(tmp_path, lambda what: True) > 30


def test_what_was_written_after_a_cut_off_archive_is_archived_apart(ralph: Ralph, tmp_path: Path) -> None:
    steps, _ = steps_of_an_archive(tmp_path / "whole")
    old = project(ralph)
    archive_killed_at(ralph, steps.index("os.rename 'prd.md'") + 1)
    refused(ralph("run", "--preset", "stories", "--agent", ralph.script([done()])), f"ralph-archive/{TODAY}-x was cut")
    ralph.write(NEW)
    told = ralph("archive", "--label", "new")
    assert told.code == 0, told.err
    assert archives(ralph) == [f"{TODAY}-new", f"{TODAY}-x"]
    assert f"Note: finished the interrupted archive: ralph-archive/{TODAY}-x\n" in told.out
    assert archived(ralph, f"{TODAY}-x") == old
    assert archived(ralph, f"{TODAY}-new")["prd.md"] == NEW["ralph/prd.md"]
    assert not {*ralph.git("show", "--name-only", "--format=", "--no-renames", "HEAD~").splitlines()} & {*NEW}
    assert is_fresh(ralph)
    assert ralph.git("status", "--porcelain") == ""


@pytest.mark.parametrize("mark", ["", "../elsewhere", ".git", "ralph-archive/x"])
def test_a_mark_that_names_no_stories_folder_moves_nothing(ralph: Ralph, mark: str) -> None:
    project(ralph)
    ralph.write({f"ralph-archive/{TODAY}-x/.unfinished": mark})
    before = whole(ralph)
    refused(ralph("archive"), ".unfinished names no stories folder; move the files by hand, then remove it")
    assert whole(ralph) == before


def test_a_mark_costs_no_file_that_the_archive_does_not_hold(ralph: Ralph) -> None:
    old = project(ralph)
    ralph.write({f"ralph-archive/{TODAY}-x/{name}": text for name, text in NEW.items()})
    ralph.write({f"ralph-archive/{TODAY}-x/.unfinished": "ralph"})
    assert ralph("archive").code == 0
    assert archived(ralph) == old
