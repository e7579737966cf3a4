"""The proof of a run, from its record, the repository, and what this machine is."""

from __future__ import annotations

import os
import re
import sys

from ralphproof.errors import HarnessFailed, LedgerBroken
from ralphproof.ledgers.folder import RunFolder
from ralphproof.proof import Provable, RunPast, Subject, proof_of, saved_of
from ralphproof.record import RunBegan
from ralphproof.value import TYPE_CHECKING, replace
from ralphproof.views.kept import Kept
from ralphproof.workspace import Snapshot
from ralphproof.workspaces.git import Git
from ralphproof.workspaces.objects import ObjectMissing

if TYPE_CHECKING:
    from ralphproof.ledgers.runs import RunRow
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.state import State
    from ralphproof.value import Json
    from ralphproof.views.project import Project
    from ralphproof.workspace import Workspace

SETTINGS = ".ralph/settings.json"
COUNT = re.compile(r"Iteration \d+.*")
TITLE_CHARS = 80
OURS = (".ralph/", ".ralph-active")  # no save holds them, and no check's work is in them


def proof_of_run(project: Project, row: RunRow, ledger: Sqlite) -> dict[str, Json]:
    """The proof of a run of this repository, looked at without touching anything; raises where the record is damaged.

    Of a run that was not completed it tells what is known.
    """
    began = ledger.of_kind(row.id, "RunBegan")
    kind = str(began[0].facts.get("workspace", "")) if began and isinstance(began[0], RunBegan) else ""
    with Kept(project, row, kind, own_folder=True) as kept:
        return proof_from(project, row.id, ledger, kept.workspace)


def proof_from(project: Project, run: str, ledger: Sqlite, workspace: Workspace) -> dict[str, Json]:
    """The same with a workspace at hand."""
    broken = ledger.verify_chain(run)
    if broken:
        raise LedgerBroken(f"{broken}: nothing is proved by it")
    past = RunPast.of(ledger.chain(run))
    state = past.state
    place = str(state.labels.get("directory") or project.root)
    subject = _subject(workspace, state) if isinstance(workspace, Git) else _files(saved_of(state))
    facts = Provable(
        past, os.path.basename(place), subject, _settings(workspace, subject, saved_of(state)), _versions(workspace),
        _first_line(RunFolder(project.root, run, project.store).prompted("prompt_001") or ""),
    )  # fmt: skip
    return proof_of(facts, project.mask)


def _first_line(prompt: str) -> str:
    """What a task may be called that has no title: how its first prompt begins, the loop's own count aside."""
    lines = (line.strip().lstrip("#").strip() for line in prompt.split("\n"))
    return next((line for line in lines if line and not COUNT.fullmatch(line)), "")[:TITLE_CHARS]


def _files(saved: Snapshot) -> Subject:
    """Without git nobody else can have the tree; its digest tells whether they have the same."""
    return Subject("files", None, saved.tree)


def _subject(git: Git, state: State) -> Subject:
    """The SCM's commit, or HEAD where it holds what was checked, or else the commit that saves the tree."""
    saved, made = saved_of(state), state.committed.commit
    if made and not state.unkept and (differs := differing(git, made, saved)) is not None:
        return Subject("commit", made, _tree(git, made), differs)
    if saved.head and differing(git, saved.head, saved) == ():
        return Subject("commit", saved.head, _tree(git, saved.head))
    return Subject("tree", saved.id, saved.tree)


def _tree(git: Git, commit: str) -> str | None:
    try:
        return git.commits.header(commit, b"tree ")[0]
    except (ObjectMissing, IndexError):
        return None


def differing(git: Git, commit: str, saved: Snapshot) -> tuple[str, ...] | None:
    """The paths in which a commit is not what was saved; of what was too large to be saved nobody knows.

    None where one of them is not there, or cannot be read: then they may differ in anything.
    """
    try:
        paths = git.uncommitted(replace(saved, head=commit))
    except HarnessFailed:
        return None
    return tuple(path for path in paths if not path.startswith(OURS) and path not in saved.left_out)


def _settings(workspace: Workspace, subject: Subject, saved: Snapshot) -> str | None:
    """The digest of the settings file of the commit; a saved tree holds none, so of the one that it stood on."""
    import hashlib

    commit = saved.head if subject.kind == "tree" else subject.commit
    found = workspace.content(Snapshot(commit, subject.tree), SETTINGS) if commit else None
    return None if found is None else hashlib.sha256(found).hexdigest()


def _versions(workspace: Workspace) -> dict[str, str]:
    """What this machine has, where the record does not tell what the run's had."""
    system = os.uname()
    told = {
        "python": ".".join(map(str, sys.version_info[:3])),
        "system": f"{system.sysname} {system.release} {system.machine}",
        "git": "",
    }
    if isinstance(workspace, Git):
        said = workspace.commits.ask("version").out.decode("utf-8", "replace")
        told["git"] = said.removeprefix("git version ").strip()[:100]
    return told
