"""What verbs hand to git, and what git may run for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.ralph import done

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
