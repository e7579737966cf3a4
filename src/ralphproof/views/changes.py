"""What a run changed, or one iteration of it, as a bounded patch."""

from __future__ import annotations

from ralphproof.display.stat import counted
from ralphproof.record import Grounded, RunBegan
from ralphproof.value import TYPE_CHECKING
from ralphproof.views.kept import Kept, snapshot_at, snapshots_of

if TYPE_CHECKING:
    from ralphproof.ledgers.runs import RunRow
    from ralphproof.record import Record
    from ralphproof.value import Json
    from ralphproof.views.project import Project
    from ralphproof.workspace import Snapshot

MARGIN_BYTES = 64 * 1024  # behind a cut, so that a secret in it is known as one


def ends(records: tuple[Record, ...], number: int | None, run: str) -> tuple[Snapshot, Snapshot]:
    """The two trees that are compared."""
    snapshots = snapshots_of(records)
    looked = next((record.snapshot for record in records if isinstance(record, Grounded)), None)
    if looked is not None and looked.tree is not None:
        snapshots[0] = looked  # what the checks wrote before the first turn is no iteration's work
    if number is None:
        number, before = max(snapshots, default=0), 0
    else:
        before = max((known for known in snapshots if known < number and snapshots[known].tree), default=0)
    return snapshot_at(snapshots, before, run), snapshot_at(snapshots, number, run)


def kind_of(records: tuple[Record, ...]) -> str:
    """The kind of workspace that a run had."""
    began = next((record for record in records if isinstance(record, RunBegan)), None)
    return str(began.facts.get("workspace", "")) if began else ""


def patch_of(project: Project, row: RunRow, records: tuple[Record, ...], number: int | None) -> bytes:
    """The patch; raises Refused where one of its trees was not saved."""
    before, after = ends(records, number, row.id)
    with Kept(project, row, kind_of(records), own_folder=True) as kept:
        return kept.workspace.diff(before, after)


def diff_json(
    project: Project, row: RunRow, records: tuple[Record, ...], number: int | None, most: int
) -> dict[str, Json]:  # fmt: skip
    """The same for programs that show it."""
    patch = patch_of(project, row, records, number)
    files: list[Json] = [
        {"path": item.path, "added": item.added, "removed": item.removed, "binary": item.binary}
        for item in counted(patch)
    ]
    text = project.mask(patch[: most + MARGIN_BYTES].decode("utf-8", "replace"))[:most]
    return {"run": row.id, "iteration": number, "files": files, "patch": text, "truncated": len(patch) > most}
