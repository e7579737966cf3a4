"""What people find of a run that ended: `outcome.json`, `proof/`, its line of figures and the report of its day.

All are copies of what the ledger has. A harness that dies right after its run's end is on record writes none of them:
then whoever next opens the project does.
"""

from __future__ import annotations

import os

from ralphproof.errors import RalphError
from ralphproof.ledgers.folder import RunFolder
from ralphproof.ledgers.unpublished import Publishing
from ralphproof.metric import in_full
from ralphproof.record import RunEnded
from ralphproof.value import TYPE_CHECKING
from ralphproof.verdict import Completed, result

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ralphproof.ledgers.runs import RunRow
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.views.project import Project
    from ralphproof.workspace import Workspace


def publish_left(project: Project, runs: Iterable[str]) -> None:
    """Publish what dead processes left of these runs. What cannot be written now is tried again the next time."""
    for run in runs:
        publishing = Publishing(project.store, run)
        if not publishing.take_over():
            continue
        try:
            _publish_end(project, run)
        except (RalphError, OSError):
            continue
        publishing.done()


def _publish_end(project: Project, run: str) -> None:
    ledger = project.ledger()
    try:
        row, ended = ledger.row(run), ledger.end_of(run)
        if row is None or not isinstance(ended, RunEnded) or not os.path.isdir(row.directory):
            return  # it was cut off before its end, or nobody looks there any more
        folder = RunFolder(row.directory, run, project.store, project.mask)
        folder.outcome(in_full(result(ended.outcome), ended.metrics))
        if isinstance(ended.outcome, Completed):
            _prove(project, row, ledger, folder)
        publish_figures(ledger, project, row, ended, once=True)
    finally:
        ledger.close()


def _prove(project: Project, row: RunRow, ledger: Sqlite, folder: RunFolder) -> None:
    from ralphproof.record import RunBegan
    from ralphproof.views.kept import Kept

    began = ledger.of_kind(row.id, "RunBegan")
    kind = str(began[0].facts.get("workspace", "")) if began and isinstance(began[0], RunBegan) else ""
    try:
        with Kept(project, row, kind, own_folder=True) as kept:
            write_proof(project, row.id, ledger, kept.workspace, folder)
    except RalphError:
        pass  # nor could the run's own harness have written it; `ralph proof` says why


def write_proof(project: Project, run: str, ledger: Sqlite, workspace: Workspace, folder: RunFolder) -> None:
    """The proof as a page, and as JSON alone. Agents can read it, so what held-out checks ask is not in it."""
    import json

    from ralphproof.proof import without_held_out
    from ralphproof.proof_page import render
    from ralphproof.views.proof_of_run import proof_from

    proof = without_held_out(proof_from(project, run, ledger, workspace))
    text = json.dumps(proof, sort_keys=True, indent=1)
    folder.prove({"proof.json": text + "\n", "proof.md": render(proof)})


def publish_figures(ledger: Sqlite, project: Project, row: RunRow, ended: RunEnded, once: bool = False) -> None:
    """Publish the figures unless the settings forbid it. With `once`, a line that is there already is not added."""
    from ralphproof.config.load import load
    from ralphproof.ledgers.metrics import MetricsFolder
    from ralphproof.observers.metrics import MetricsLog

    limit = None
    try:
        settings = load(row.directory, os.environ).settings
        if not settings.metrics:
            return
        limit = settings.cost_limit_micro_usd
    except RalphError:
        pass  # wrong settings forbid nothing
    try:
        MetricsLog(MetricsFolder(row.directory, project.mask, once), ledger.figures, limit).saw(ended)
    except RalphError:
        if once:
            raise
