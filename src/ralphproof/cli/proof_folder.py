"""The folder `proof/` of a completed run."""

from __future__ import annotations

from ralphproof.ledgers.memory import Memory
from ralphproof.observers.proof import ProofWriter
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from ralphproof.ledgers.folder import RunFolder
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.views.project import Project
    from ralphproof.workspace import Workspace


def proof_writer(
    project: Project, run: str, ledger: Sqlite | Memory, workspace: Workspace, folder: RunFolder
) -> ProofWriter:
    """Writes the folder when the run is completed. A record in memory is gone with the run, and proves nothing."""

    def write() -> None:
        if not isinstance(ledger, Memory):
            from ralphproof.views.publishing import write_proof

            write_proof(project, run, ledger, workspace, folder)

    return ProofWriter(write)
