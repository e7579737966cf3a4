"""A project with things in it that no agent may change, and agents that change them."""

from __future__ import annotations

import re
import subprocess

from ralphproof.engine.records import Noticed, Saved
from ralphproof.engine.workspace import TripwireReport
from tests.misbehaviour.agents import seen
from tests.misbehaviour.invariants import hold
from tests.misbehaviour.machine import recorded
from tests.ralph import Ended, Ralph, Step, done

GUARDED = ("src/auth/", "migrations/", ".env")
FILES = {
    "src/auth/a.py": "user = 1\n", "src/auth/deep/b.py": "deep\n", "src/authors.py": "open to all\n",
    "migrations/001.sql": "create;\n", ".env": "SECRET=1\n", ".gitignore": ".env\n__pycache__/\n",
}  # fmt: skip
ASKED: Step = {"record": "../seen"}
CHECK = "echo >> ../checked"  # always green, and it leaves a line each time that it runs


def sh(script: str) -> Step:
    """A step: the agent runs this."""
    return {"run": ["sh", "-ec", script]}


def guarded(ralph: Ralph, setup: str = "", in_git: bool = True) -> None:
    """Lay the project out, commit it where it is in git, and run `setup` in it."""
    ralph.write(FILES)
    if in_git:
        ralph.git("init", "-q")
        ralph.git("config", "user.name", "user")
        ralph.git("config", "user.email", "user@localhost")
        ralph.commit()
    shell(ralph, setup)


def shell(ralph: Ralph, script: str) -> str:
    """What the user's own shell says when it runs this in the project."""
    argv = ["sh", "-ec", script]
    return subprocess.run(argv, cwd=ralph.root, env=ralph.env, capture_output=True, text=True, check=True).stdout


def meddled(ralph: Ralph, script: str, *flags: str, then: Step | None = None) -> Ended:
    """A run whose agent first does this and claims to be done, and in its second turn only claims, or does `then`."""
    agent = ralph.script([ASKED, sh(script), done()], [ASKED, *([then] if then else []), done()])
    ended = ralph("run", "-p", "make it so", "--agent", agent, "--check", CHECK, "-m", "3", *flags)
    hold(ralph, ended)
    assert not watched_copies(ralph), "secrets may be among them"
    return ended


def watched_copies(ralph: Ralph) -> list[str]:
    """What is still kept of all that was watched, in any run."""
    return [path.name for path in ralph.state_dir.glob("repos/*/runs/*/vault/*")]


def protect(*paths: str) -> tuple[str, ...]:
    """The flags that protect these."""
    return tuple(word for path in paths or GUARDED for word in ("--protect", path))


def turns(ralph: Ralph) -> int:
    """How often the agent was asked."""
    return len(seen(ralph))


def checked(ralph: Ralph) -> int:
    """How often the check ran, the first look before the first turn not counted."""
    return len((ralph.folder / "checked").read_text()) - 1


def files(ralph: Ralph, *below: str) -> dict[str, str]:
    """What lies at or below these paths, git's own apart; where a link leads."""
    found = sorted(path for name in below for path in (ralph.root / name, *(ralph.root / name).rglob("*")))
    real = [path for path in found if ".git" not in path.parts and (path.is_symlink() or path.is_file())]
    told = {str(path.relative_to(ralph.root)): path for path in real}
    return {name: str(path.readlink()) if path.is_symlink() else path.read_text() for name, path in told.items()}


def sprung(ralph: Ralph) -> list[TripwireReport]:
    """What the tripwires saw, turn by turn."""
    return [record.sprung for record in recorded(ralph, Saved)]


def touched(ralph: Ralph) -> list[list[tuple[str, str]]]:
    """(path, rule) of what was put back, turn by turn."""
    return [[(one.path, one.rule) for one in each.touched] for each in sprung(ralph)]


def notices(ralph: Ralph) -> list[str]:
    """What the user was told beside the course of things."""
    return [record.message for record in recorded(ralph, Noticed)]


def told_commands(ralph: Ralph, program: str) -> list[str]:
    """The commands of this program that the notices tell the user, as they stand there."""
    found = [re.search(rf": ({program} .+?)(?: \(or each|$)", notice) for notice in notices(ralph)]
    return [match[1] for match in found if match]
