"""What verbs hand to git, and what git may run for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.ralph import done, say, write

if TYPE_CHECKING:
    from tests.ralph import Ralph

ODD = (":!x", ":(exclude)y", "*", "[a]", "-n", "'q'\\n")


def test_a_file_is_committed_whatever_it_is_called(ralph: Ralph) -> None:
    """Names that git would take for patterns, or for flags."""
    ralph.write({"a.txt": "a\n", ".gitignore": "ignored*\n"})
    ralph.settings(scm={"command": "git", "tasks": ["commit"]})
    ralph.commit()
    ralph.git("config", "user.name", "u")
    ralph.git("config", "user.email", "u@localhost")
    names = dict.fromkeys((*ODD, "ignored[1]"), "new\n")
    agent = ralph.script([{"write": names}, done()], message=[{"text": "a message"}])
    told = ralph("run", "-p", "x", "--agent", agent, "--check", "true")
    assert told.code == 0, told
    listed = ralph.git("ls-tree", "-z", "--name-only", "HEAD").split("\0")
    assert {*ODD} <= {*listed}, told
    assert "ignored[1]" not in listed
    ralph("branch", "latest", "1", "--name", "new")
    assert {*ODD} <= {*ralph.git("ls-tree", "-z", "--name-only", "new").split("\0")}


def test_no_filter_that_the_repository_itself_names_is_run(ralph: Ralph) -> None:
    ralph.write({".gitattributes": "*.dat filter=up\n*.md filter=up\n", "a.dat": "a\n"})
    for name in ("prd.md", "tasks.json", "progress.txt"):
        ralph.write({f"ralph/{name}": "{}"})
    ralph.git("init", "-q")
    ralph.git("config", "user.name", "u")
    ralph.git("config", "user.email", "u@localhost")
    ralph.commit()
    agent = ralph.script([write(b__dat="b\n", c__txt="c\n"), done()])
    assert ralph("run", "-p", "x", "--agent", agent, "--check", "true").code == 0
    for what in ("clean", "smudge", "process"):
        ralph.git("config", f"filter.up.{what}", "touch ../ran; cat")
    ralph.git("config", "filter.up.required", "true")
    told = ralph("branch", "latest", "1", "--name", "new", "--json")
    assert told.code == 0, told
    assert [one["path"] for one in told.json["leftOut"]] == ["b.dat"]
    assert "filter up" in told.json["leftOut"][0]["why"]
    assert ralph.git("ls-tree", "--name-only", "new").split() == [".gitattributes", "a.dat", "c.txt", "ralph"]
    for argv in (["land", "latest"], ["pr", "latest", "--dry-run"], ["gc", "--dry-run"], ["diff"], ["archive"]):
        ralph(*argv)
    assert ralph("rewind", "latest", "0", "--yes").code == 0
    assert not (ralph.folder / "ran").exists()


def test_a_commit_on_a_branch_that_the_agent_made_is_said_everywhere(ralph: Ralph) -> None:
    ralph.write({"a.txt": "a\n"})
    ralph.settings(scm={"command": "git", "tasks": ["commit"]})
    ralph.git("init", "-q")
    ralph.git("config", "user.name", "u")
    ralph.git("config", "user.email", "u@localhost")
    ralph.commit()
    switch = {"run": ["git", "checkout", "-qb", "sneaky"]}
    agent = ralph.script([switch, say("hm")], [write(b="b\n"), done()], message=[say("a message")])
    told = ralph("run", "-p", "x", "--agent", agent, "--check", "true", "-V")
    assert told.code == 0, told
    assert "the agent switched from branch main to branch sneaky" in told.err
    way = "git switch main && git merge sneaky"
    (concern,) = [
        one for one in ralph.outcome()["concerns"] if one.startswith("scm: committed on branch sneaky, not on main")
    ]
    assert concern.endswith(way)
    assert concern in told.out
    run = ralph.runs()[0].id
    prompt = (ralph.root / f".ralph/runs/{run}/prompt_002.txt").read_text()
    assert "You switched from branch main to branch sneaky" in prompt
    ralph.git("switch", "-q", "main")
    ralph.git("merge", "-q", "sneaky")
    assert (ralph.root / "b").exists()
