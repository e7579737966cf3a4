"""The integrity of the judge: what decides over a run's checks is remembered at its start, and looked at each turn."""

from __future__ import annotations

from ralphproof.checks.pin_files import ProjectFiles, digest
from ralphproof.checks.pin_memory import Notes, PinsKept, keep, recall
from ralphproof.checks.pin_piece import PACKAGE, PROGRAM, SCRIPT, TARGET, VARIABLE, Piece
from ralphproof.checks.pin_tests import TestTally, asks_less, counted, is_ci, is_test
from ralphproof.pin import Altered
from ralphproof.value import TYPE_CHECKING, replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ralphproof.checks.pin_survey import Survey
    from ralphproof.value import Json
    from ralphproof.workspace import Snapshot, Workspace

MOST = 100  # that are told of one turn
_FOLLOWED = frozenset((SCRIPT, TARGET, VARIABLE, PACKAGE))  # what a command may no longer lead to, and it is there


class CheckPins:
    """The pins of commands, each with its folder from the root, that are run with this environment.

    `allowed` says which paths the user lets the work change. With `protect_tests`, no test of the start may change.
    """

    def __init__(
        self, root: str, commands: tuple[tuple[str, str], ...], env: tuple[tuple[str, str], ...], folder: Notes,
        workspace: Workspace, allowed: Callable[[str], bool] = lambda _: False, protect_tests: bool = False,
    ) -> None:  # fmt: skip
        self._root, self._commands, self._env = root, commands, dict(env)
        self._folder, self._workspace = folder, workspace
        self._allowed, self._protect = allowed, protect_tests

    def begin(self) -> None:
        """Remember what decides over the checks as it now is; what is remembered already stays."""
        if recall(self._folder) is None:
            survey = self._survey(None)
            keep(self._folder, PinsKept(survey.pieces, survey.facts, _manifests(survey.files)))

    def regain(self, paths: tuple[str, ...]) -> None:
        """As these paths are now, they are meant."""
        kept = recall(self._folder) if paths else None
        if kept is None:
            return
        survey, theirs = self._survey(kept.facts), frozenset(paths)
        known = {key: one for key, one in kept.pieces.items() if one.path not in theirs}
        seen = {*kept.pieces, *kept.fresh}  # what is not among it, something leads to since they changed what they did
        touched = {
            key: one
            for key, one in survey.pieces.items()
            if one.path in theirs or _files(one) & theirs or key not in seen
        }
        contents = {path: survey.files.read(path) for path in paths if is_test(path)}
        tests = {path: None if content is None else counted(content) for path, content in contents.items()}
        keep(self._folder, PinsKept(known | touched, survey.facts, kept.manifests, kept.tests | tests, kept.fresh))

    def altered(self, began: Snapshot, now: Snapshot, theirs: frozenset[str]) -> tuple[Altered, ...]:
        """What is not as it was when the run began, what stops a run first."""
        kept = recall(self._folder)
        if kept is None:  # a run of a version that had no pins
            self.begin()
            return ()
        survey = self._survey(kept.facts)
        found = [*self._pieces(kept, survey, began)]
        if began.tree != now.tree or began.left_out != now.left_out:
            change = self._workspace.change(began, now)
            if not change.known and not now.problem:
                found.append(Altered(".", "what changed since the run began cannot be told any more", stops=True))
            changed = [path for path in change.paths if not _own(path)]
            found += self._beside(survey, began, [path for path in changed if path not in theirs])
            known = {one.path for one in found}
            found += (one for one in self._tests(kept.tests, began, now, changed, theirs) if one.path not in known)
            ci = (path for path in changed if is_ci(path) and path not in theirs)
            found += (self._elsewhere(began, now, path) for path in ci)
        told = [replace(one, allowed=True) if self._allowed(one.path) else one for one in dict.fromkeys(found)]
        return tuple(sorted(told, key=lambda one: (one.allowed or not one.stops, one.path, one.what))[:MOST])

    def _pieces(self, kept: PinsKept, survey: Survey, began: Snapshot) -> Iterator[Altered]:
        from ralphproof.checks.pin_compare import Comparison

        known, pieces = kept.pieces, dict(survey.pieces)
        lost = {key: one for key, one in known.items() if key not in pieces and one.kind in _FOLLOWED}
        again = survey.again(lost.values()) if lost else {}
        pieces |= {key: one for key, one in again.items() if key in lost}
        for key in [key for key, one in pieces.items() if key not in known and one.kind != PROGRAM]:
            then = self._workspace.content(began, pieces[key].path)
            if then is not None and then == survey.files.read(pieces[key].path):
                del pieces[key]  # it was there, and only now something leads to it
        fresh = tuple(sorted(key for key in pieces if key not in known))
        if fresh != kept.fresh:
            keep(self._folder, replace(kept, fresh=fresh))
        return Comparison(known, pieces, survey.files, frozenset(kept.manifests)).all()

    def _beside(self, survey: Survey, began: Snapshot, changed: list[str]) -> Iterator[Altered]:
        """Settings of a runner in a folder that no command is started in: somebody may go there all the same."""
        judged = {one.path for one in survey.pieces.values()}
        for path in changed:
            for one in survey.beside(path) if path not in judged else ():
                then = self._workspace.content(began, path)
                yield Altered(path, f"{'new' if then is None else 'was changed'}; it configures {one.runner} there")
                break

    def _tests(
        self,
        noted: dict[str, TestTally | None],
        began: Snapshot,
        now: Snapshot,
        changed: list[str],
        theirs: frozenset[str],
    ) -> Iterator[Altered]:
        paths = [path for path in changed if is_test(path)]
        contents = {path: self._workspace.content(now, path) for path in paths}
        new = {digest(content) for path, content in contents.items() if content is not None}
        for path in paths:
            before, after = self._test_then(noted, began, path, theirs), contents[path]
            if before is None:
                continue
            if after is None:
                moved = before.digest in new and not self._protect
                if not moved:
                    yield Altered(path, "a test was deleted", stops=self._protect)
                continue
            facts = counted(after)
            less = asks_less(before, facts)
            if self._protect and facts.digest != before.digest:
                yield Altered(path, f"a protected test was changed{f': {less}' if less else ''}", stops=True)
            elif facts.digest != before.digest:
                yield Altered(path, less or "a test that was there was changed")

    def _test_then(
        self, noted: dict[str, TestTally | None], began: Snapshot, path: str, theirs: frozenset[str]
    ) -> TestTally | None:
        """What is known of a test as the user last left it."""
        if path in noted or path in theirs:
            return noted.get(path)
        content = self._workspace.content(began, path)
        return None if content is None else counted(content)

    def _elsewhere(self, began: Snapshot, now: Snapshot, path: str) -> Altered:
        then, after = self._workspace.content(began, path), self._workspace.content(now, path)
        how = "new" if then is None else "is gone" if after is None else "was changed"
        return Altered(path, f"{how}; it says what is run elsewhere")

    def _survey(self, facts: Json) -> Survey:
        from ralphproof.checks.pin_survey import Survey

        return Survey(self._root, self._commands, self._env, facts)


def _manifests(files: ProjectFiles) -> tuple[str, ...]:
    """The languages that the project has a manifest of."""
    from ralphproof.checks.pin_runners import MANIFESTS

    return tuple(language for language, names in MANIFESTS.items() if any(files.there(name) for name in names))


def _files(one: Piece) -> frozenset[str]:
    """The files that a piece is made from, where they are more than one."""
    return frozenset(name for name, _ in one.bits) if one.kind in (TARGET, VARIABLE) else frozenset()


def _own(path: str) -> bool:
    return path.startswith((".ralph/", ".git/"))
