"""Publishing what an ended run leaves for people: `outcome.json`, `proof/`, metrics and the daily report."""

from __future__ import annotations

import os

from ralphproof.base.errors import RalphError
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.engine.metrics import outcome_with_metrics
from ralphproof.engine.outcome import Completed, outcome_json
from ralphproof.engine.records import RunEnded
from ralphproof.store.memory_ledger import MemoryLedger
from ralphproof.store.run_folder import PublicationLock, RunFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ralphproof.engine.events import Event
    from ralphproof.engine.records import Record
    from ralphproof.engine.workspace import Workspace
    from ralphproof.store.project import Project
    from ralphproof.store.runs import RunRow
    from ralphproof.store.sqlite_ledger import SqliteLedger


# Writing the proof at the end of a run.


class ProofWriter:
    """An observer that calls `write` when the run is completed: its records are durable then."""

    def __init__(self, write: Callable[[], None]) -> None:
        self._write = write

    def on_record(self, record: Record) -> None:
        """A record that is now durable."""
        if isinstance(record, RunEnded) and isinstance(record.outcome, Completed):
            self._write()

    def on_events(self, events: list[Event]) -> None:
        """Not used."""

    def tick(self) -> None:
        """Not used."""


def make_proof_writer(
    project: Project, run: str, ledger: SqliteLedger | MemoryLedger, workspace: Workspace, folder: RunFolder
) -> ProofWriter:
    """An observer that writes the folder `proof/`. A ledger in memory proves nothing."""

    def write() -> None:
        if not isinstance(ledger, MemoryLedger):
            write_proof(project, run, ledger, workspace, folder)

    return ProofWriter(write)


# `outcome.json`, `proof/`, metrics and the daily report are copies of what the ledger has. A harness that dies right
# after the end of its run writes none of them: whoever opens the project next does.


def publish_unfinished(project: Project, runs: Iterable[str]) -> None:
    """Publish ended runs whose harness died. What cannot be written is tried again the next time."""
    for run in runs:
        publishing = PublicationLock(project.store, run)
        if not publishing.take_over():
            continue
        try:
            _publish_ended_run(project, run)
        except (RalphError, OSError):
            continue
        publishing.done()


def _publish_ended_run(project: Project, run: str) -> None:
    ledger = project.ledger()
    try:
        row, ended = ledger.row(run), ledger.run_end(run)
        if row is None or not isinstance(ended, RunEnded) or not os.path.isdir(row.directory):
            return  # it was cut off before its end, or nobody looks there any more
        folder = RunFolder(row.directory, run, project.store, project.mask)
        folder.write_outcome(outcome_with_metrics(outcome_json(ended.outcome), ended.metrics))
        if isinstance(ended.outcome, Completed):
            _publish_proof(project, row, ledger, folder)
        publish_metrics(ledger, project, row, ended, once=True)
    finally:
        ledger.close()


def _publish_proof(project: Project, row: RunRow, ledger: SqliteLedger, folder: RunFolder) -> None:
    from ralphproof.engine.records import RunBegan
    from ralphproof.views.snapshots import SavedWorkspace

    began = ledger.records_of_kind(row.id, "RunBegan")
    kind = str(began[0].facts.get("workspace", "")) if began and isinstance(began[0], RunBegan) else ""
    try:
        with SavedWorkspace(project, row, kind, own_folder=True) as kept:
            write_proof(project, row.id, ledger, kept.workspace, folder)
    except RalphError:
        pass  # nor could the run's own harness have written it; `ralph proof` says why


def write_proof(project: Project, run: str, ledger: SqliteLedger, workspace: Workspace, folder: RunFolder) -> None:
    """Write the proof as a page and as JSON, without the content of held-out checks: agents can read it."""
    import json

    from ralphproof.proof.builder import build_proof_in_workspace, redact_held_out
    from ralphproof.proof.page import render_page

    proof = redact_held_out(build_proof_in_workspace(project, run, ledger, workspace))
    text = json.dumps(proof, sort_keys=True, indent=1)
    folder.prove({"proof.json": text + "\n", "proof.md": render_page(proof)})


def publish_metrics(ledger: SqliteLedger, project: Project, row: RunRow, ended: RunEnded, once: bool = False) -> None:
    """Publish the metrics unless the settings forbid it. With `once`, an existing line is not added again."""
    from ralphproof.reports.metrics import MetricsFolder, MetricsObserver
    from ralphproof.settings.loader import load_settings

    limit = None
    try:
        settings = load_settings(row.directory, os.environ).settings
        if not settings.metrics:
            return
        limit = settings.cost_limit_micro_usd
    except RalphError:
        pass  # wrong settings forbid nothing
    try:
        MetricsObserver(MetricsFolder(row.directory, project.mask, once), ledger.statistics, limit).on_record(ended)
    except RalphError:
        if once:
            raise
