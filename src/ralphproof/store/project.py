"""A project: its root folder and where the records of its runs are."""

from __future__ import annotations

import os

from ralphproof.base.errors import Refused
from ralphproof.base.files import explain_os_error
from ralphproof.base.git_layout import is_inside_project, resolve_project_root
from ralphproof.base.redaction import find_environment_secrets, mask_text
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.engine.state import State, build_state
from ralphproof.store.database import STATE_DIR_REMEDY
from ralphproof.store.sqlite_ledger import SqliteLedger
from ralphproof.store.state_dir import ensure_state_dir, find_state_dir
from ralphproof.workspace.repository_id import lookup_repository_id, repository_id

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@value
class Project:
    """A project's folder, the user's state folder, and this repository's part of it."""

    root: str
    state_dir: str
    store: str
    secrets: tuple[str, ...]

    @staticmethod
    def at(folder: str | None, environ: Mapping[str, str]) -> Project:
        """The project of a folder (None: the current one), with its state folder made if it was missing.

        Raises Refused for a state folder of another version, before anything is added to it.
        """
        from ralphproof.store.spend import require_spend_version

        root = resolve_project_root(folder)
        _refuse_inside(find_state_dir(environ), root)
        states = ensure_state_dir(environ)
        _refuse_inside(states, root)
        require_spend_version(states)
        try:
            known = repository_id(root, states)
        except OSError as error:
            raise explain_os_error(error, states, STATE_DIR_REMEDY) from error
        return Project(root, states, os.path.join(states, "repos", known), find_environment_secrets(environ))

    @staticmethod
    def seen(folder: str | None, environ: Mapping[str, str]) -> Project:
        """The same for reading: nothing is created, and a project without runs has an empty ledger."""
        root, states = resolve_project_root(folder), find_state_dir(environ)
        _refuse_inside(states, root)
        store = os.path.join(states, "repos", lookup_repository_id(root, states))
        return Project(root, states, store, find_environment_secrets(environ))

    @property
    def mask(self) -> Callable[[str], str]:
        """Masks secrets in a text."""
        return lambda text: mask_text(text, self.secrets)

    def ledger(self, read_only: bool = True) -> SqliteLedger:
        """The ledger of this project's repository."""
        return SqliteLedger.open(self.store, self.mask, read_only)

    def state(self, run: str) -> State:
        """The state of a run, by its records."""
        ledger = self.ledger()
        try:
            return build_state(ledger.records(ledger.find(run)))
        finally:
            ledger.close()


def _refuse_inside(states: str, root: str) -> None:
    """Raise Refused for a state folder in the project: it would be committed as work, and agents could reach it."""
    if is_inside_project(states, root):
        raise Refused(
            f"the state folder {states} lies in this project ({root}), where agents and git reach it; "
            "set RALPH_STATE_DIR to a directory outside of it"
        )
