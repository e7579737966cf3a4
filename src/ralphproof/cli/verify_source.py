"""The proof that is to be verified: a file that anybody may have written, or a run of this repository's record."""

from __future__ import annotations

import hashlib
import os
import stat

from ralphproof.config.jsontext import Unusable, contents
from ralphproof.errors import Refused
from ralphproof.proof_shape import objects_in
from ralphproof.secret import secrets_in
from ralphproof.value import TYPE_CHECKING, value
from ralphproof.views.root import root_of

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Mapping

    from ralphproof.ledgers.runs import RunRow
    from ralphproof.value import Json
    from ralphproof.views.project import Project

MOST_MIB = 16
OPEN = "the run has not ended, so it has proved nothing yet"
EDITED = "the page is not the one that its data make: somebody edited what people read, or the data"


@value
class ProofCase:
    """A proof, the project in which it is verified, and what is wrong with it already.

    One that is `ours` comes from this repository's own record: to verify it is consent to its commands. `why` says
    what it is instead of a proof. `told` decides nothing.
    """

    root: str
    secrets: tuple[str, ...]
    proof: dict[str, Json]
    ours: bool = False
    why: str = ""
    faults: tuple[str, ...] = ()
    told: tuple[str, ...] = ()


def is_file(name: str) -> bool:
    """Whether a user who says this means a file, there or not."""
    return "/" in name or name.endswith((".md", ".json")) or os.path.isfile(name)


def case_of_file(path: str, folder: str | None, environ: Mapping[str, str]) -> ProofCase:
    """The proof in a file. Nothing of it is believed that is not shown again."""
    from ralphproof.proof_page import parsed, render

    found = contents(path, MOST_MIB << 20)
    if not isinstance(found, bytes):
        raise Refused(f"{path} {found.why if isinstance(found, Unusable) else 'is not there; name an exported proof'}")
    root, secrets = root_of(folder), secrets_in(environ)
    try:
        text = found.decode("utf-8")
        proof = parsed(text)
    except (Refused, ValueError) as error:
        return ProofCase(root, secrets, {}, why=f"{path} is no proof: {_no_proof(error)}")
    faults = faults_of(proof)
    alone = text.lstrip().startswith("{")
    if not faults and not alone and render(proof) != text:
        faults = (EDITED,)
    return ProofCase(root, secrets, proof, faults=faults)


def case_of_run(args: Namespace, environ: Mapping[str, str]) -> ProofCase:
    """The proof of a run that this repository's record tells of, and whether record and logs are as they were."""
    from ralphproof.cli.named_run import named_run
    from ralphproof.views.project import Project
    from ralphproof.views.proof_of_run import proof_of_run

    project = Project.seen(args.project_dir, environ)
    ledger = project.ledger()
    try:
        row = named_run(ledger, args.what, args, shown=True)
        broken = ledger.verify_chain(row.id)
        if broken:
            return ProofCase(project.root, project.secrets, {"run": row.id}, ours=True, faults=(broken,))
        if not ledger.end_of(row.id):
            return ProofCase(project.root, project.secrets, {"run": row.id}, True, OPEN)
        proof = proof_of_run(project, row, ledger)
    finally:
        ledger.close()
    altered, told = _logs(project, row, proof)
    return ProofCase(project.root, project.secrets, proof, True, "", (*faults_of(proof), *altered), told)


def faults_of(proof: dict[str, Json]) -> tuple[str, ...]:
    """What was altered in it."""
    from ralphproof.proof import faults

    return faults(proof)


def _no_proof(error: Exception) -> str:
    return "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error).removeprefix("it is no proof: ")


def _logs(project: Project, row: RunRow, proof: dict[str, Json]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Which logs of the checks are not as they were written, and which are gone."""
    from ralphproof.views.standing import files_of

    kept, shown = os.path.join(project.store, "runs", row.id), files_of(project, row)
    altered: list[str] = []
    told: list[str] = []
    for name, digest, hidden in _recorded(proof):
        for folder in (kept,) if hidden else (kept, shown):
            path = os.path.join(folder, name)
            now = _digest(path)
            if now is None:
                told.append(f"the log {path} is gone")
            elif now != digest:
                altered.append(f"the log {path} is not as the check wrote it")
    return tuple(altered), tuple(told)


def _recorded(proof: dict[str, Json]) -> Iterator[tuple[str, str, bool]]:
    """The name and the digest of every command's log, and whether no copy of it was shown. A judge's has none."""
    for check in objects_in(proof["checks"]):
        name, digest = str(check["log"]), str(check["output"])
        if name and digest and not check["judged"]:
            yield os.path.basename(name), digest, check["hidden"] is True


def _digest(path: str) -> str | None:
    """The digest of a file's bytes; None where there is none. A link, a pipe or a device is none."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(file, "rb") as log:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return None
        return hashlib.file_digest(log, "sha256").hexdigest()
