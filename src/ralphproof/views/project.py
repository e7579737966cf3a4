"""A project as the verbs see it: its folder, and where the records of its runs lie."""

from __future__ import annotations

import os

from ralphproof.errors import Refused
from ralphproof.ledgers.connection import REMEDY
from ralphproof.ledgers.files import explain
from ralphproof.ledgers.place import state_dir, state_place
from ralphproof.ledgers.sqlite import Sqlite
from ralphproof.ledgers.unpublished import unpublished
from ralphproof.secret import mask, secrets_in
from ralphproof.state import State, state_of
from ralphproof.value import TYPE_CHECKING, value
from ralphproof.views.root import root_of
from ralphproof.workspaces.identity import known_id, lies_in_project, repository_id

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
        """The project that a folder belongs to; None is the folder we are in."""
        root = root_of(folder)
        _refuse_inside(state_place(environ), root)
        states = state_dir(environ)
        _refuse_inside(states, root)
        try:
            known = repository_id(root, states)
        except OSError as error:
            raise explain(error, states, REMEDY) from error
        return Project(root, states, os.path.join(states, "repos", known), secrets_in(environ)).complete()

    @staticmethod
    def seen(folder: str | None, environ: Mapping[str, str]) -> Project:
        """The same for those who only look: no state is made, and a project without runs has an empty record."""
        root, states = root_of(folder), state_place(environ)
        _refuse_inside(states, root)
        store = os.path.join(states, "repos", known_id(root, states))
        return Project(root, states, store, secrets_in(environ)).complete()

    def complete(self) -> Project:
        """The same, once what dead processes did not come to do is done: files of ended runs are written, and what
        lay in place of absent files in a sandbox is removed."""
        if left := unpublished(self.store):
            from ralphproof.views.publishing import publish_left

            publish_left(self, left)
        if os.path.isdir(os.path.join(self.store, "box")):
            from ralphproof.sandboxes.ghosts import lift_left

            lift_left(self.store)
        return self

    @property
    def mask(self) -> Callable[[str], str]:
        """Takes secrets out of a text."""
        return lambda text: mask(text, self.secrets)

    def ledger(self, read_only: bool = True) -> Sqlite:
        """The record of this project's runs."""
        return Sqlite.open(self.store, self.mask, read_only)

    def state(self, run: str) -> State:
        """Where a run stands."""
        ledger = self.ledger()
        try:
            return state_of(ledger.records(ledger.find(run)))
        finally:
            ledger.close()


def _refuse_inside(states: str, root: str) -> None:
    """Raise Refused for a state folder in the project: it would be saved as work, and agents could reach it."""
    if lies_in_project(states, root):
        raise Refused(
            f"the state folder {states} lies in this project ({root}), where agents and git reach it; "
            "set RALPH_STATE_DIR to a directory outside of it"
        )
