"""The folder `proof/` of a completed run. Agents can read it, so what held-out checks ask is not in it."""

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
            write_proof(project, run, ledger, workspace, folder)

    return ProofWriter(write)


def write_proof(project: Project, run: str, ledger: Sqlite, workspace: Workspace, folder: RunFolder) -> None:
    """The proof as a page, and as JSON alone."""
    import json

    from ralphproof.cli.proof_of_run import proof_from
    from ralphproof.proof import without_held_out
    from ralphproof.proof_page import render

    proof = without_held_out(proof_from(project, run, ledger, workspace))
    text = json.dumps(proof, sort_keys=True, indent=1)
    folder.prove({"proof.json": text + "\n", "proof.md": render(proof)})
