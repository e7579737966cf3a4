"""A finished run, its exported proof, and ways to alter that file."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ralphproof.proof.page import parse_proof, render_page
from ralphproof.proof.schema import chain_digest, proof_digest
from tests.ralph import Ended, Ralph, done, write

Proof = dict[str, Any]
Change = Callable[[Proof], object]
CHECK = "sh check.sh"
TESTS = f"printf -- '{'-' * 70}\\nRan %s tests in 0.1s\\n\\nOK\\n'"
WORKSPACE = "test -d .ralph/runs"  # there during the run, and in no checkout


def begun(ralph: Ralph) -> None:
    """All is committed, by somebody whom git knows."""
    ralph.commit()
    for name in ("name", "email"):
        ralph.git("config", f"user.{name}", "user")


def finished(ralph: Ralph, *flags: str, check: str = CHECK, **settings: Any) -> str:
    """A run that completed: its id. Without settings the check is given by flags; they are committed else."""
    ralph.write({"check.sh": "test -f work && echo 3 files are fine\n", ".gitignore": "ignored\nready\nleft\n"})
    if settings:
        ralph.settings(**settings)
    begun(ralph)
    asked = () if settings else ("--check", check)
    agent = ralph.script([write(work="done\n"), done()], message=[{"text": "work is done"}])
    ended = ralph("run", "-p", "make it so", "--agent", agent, *asked, *flags)
    assert ended.code == 0, ended.err
    return ralph.runs()[0].id


def settled(ralph: Ralph, *checks: Any, **settings: Any) -> str:
    """The same where all is in the committed settings, and the work is committed too."""
    guardrails = [one if isinstance(one, dict) else {"command": one} for one in checks or (CHECK,)]
    return finished(ralph, guardrails=guardrails, scm={"command": "git", "tasks": ["commit"]}, **settings)


def exported(ralph: Ralph, run: str = "latest", name: str = "proof.md") -> Path:
    """The file of a run's proof, outside of the project."""
    path = ralph.folder / name
    ended = ralph("proof", "export", run, "-o", str(path))
    assert ended.code == 0, ended.err
    return path


def clone(ralph: Ralph, name: str = "clone") -> Path:
    """Another clone with the objects that a server would have given."""
    path = ralph.folder / name
    subprocess.run(
        ["git", "clone", "-q", f"file://{ralph.root}", str(path)], env=ralph.env, check=True, capture_output=True
    )
    return path


def elsewhere(ralph: Ralph, path: Path, file: Path, *flags: str) -> Ended:
    """`ralph verify FILE` in another clone, by somebody without any record."""
    env = {"RALPH_STATE_DIR": str(ralph.folder / "none"), "HOME": str(ralph.folder / "empty")}
    return ralph("verify", str(file), *flags, cwd=path, env=env)


def read(path: Path) -> Proof:
    return parse_proof(path.read_text("utf-8"))


def rewritten(path: Path, change: Change, digest: bool = True) -> Path:
    """Another file: the data changed, the page made anew, and with `digest` the digest too."""
    proof = read(path)
    change(proof)
    if digest:
        proof["digest"] = proof_digest(proof)
    other = path.with_name("forged.md")
    other.write_text(render_page(proof), "utf-8")
    return other


def reforged(path: Path, record: Change, change: Change) -> Path:
    """What a careful forger makes: the records changed, their chain reckoned anew, and the fields made to agree."""
    proof = read(path)
    change(proof)
    chain, evidence = proof["records"]["chain"], proof["records"]["evidence"]
    for place in sorted(evidence, key=int):
        at, data = int(place), json.loads(evidence[place])
        record(data)
        evidence[place] = json.dumps(data)
        *row, _ = chain[at]
        chain[at][5] = chain_digest(chain[at - 1][5] if at else "", (proof["run"], *row, evidence[place]))
    proof["records"]["lastDigest"] = chain[-1][5]
    proof["digest"] = proof_digest(proof)
    other = path.with_name("forged.md")
    other.write_text(render_page(proof), "utf-8")
    return other


def with_command(path: Path, command: str) -> Path:
    """A file that is consistent in itself, with another command than the run's."""

    def in_record(data: Any) -> None:
        if isinstance(data, dict):
            if data.get("is") == "Finding":
                data["command"] = command
            for item in data.values():
                in_record(item)
        elif isinstance(data, list):
            for item in data:
                in_record(item)

    def in_fields(proof: Proof) -> None:
        for check in proof["checks"]:
            check |= {"command": command, "commandDigest": hashlib.sha256(command.encode()).hexdigest()}

    return reforged(path, in_record, in_fields)


def listing(folder: Path) -> dict[str, bytes | str]:
    """All that lies in a folder, and what is in it."""
    files = (path for path in sorted(folder.rglob("*")))
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else "" for path in files}


def told_of(folder: Path) -> list[int]:
    """Processes that have this folder in their environment: no other test's have."""
    found = []
    for place in Path("/proc").iterdir() if Path("/proc").is_dir() else ():
        try:
            if (
                place.name.isdigit()
                and int(place.name) != os.getpid()
                and str(folder).encode() in (place / "environ").read_bytes()
            ):
                found.append(int(place.name))
        except OSError:
            continue  # it is gone, or another user's
    return found
