"""The user's uncommitted work: what was there when the run began, in no commit, and is there no more."""

from __future__ import annotations

from ralphproof.value import TYPE_CHECKING
from ralphproof.workspaces.files import Files, Unreadable
from ralphproof.workspaces.objects import ObjectMissing
from ralphproof.workspaces.trees import decode

if TYPE_CHECKING:
    from ralphproof.workspaces.commits import Commits
    from ralphproof.workspaces.trees import Entry

    Ids = tuple[str | None, str | None]  # mode and id
    Work = dict[str, tuple[str | None, ...]]  # path: HEAD's mode and id of the time, if any; the user's mode and id

START = "0"
MOST_EDITED, MOST_NEW = 500, 1500  # files that are watched: enough to see that work was swept away
MOST_TOLD = 10
POINTER = b"version https://git-lfs"


class Uncommitted:
    """Watches uncommitted work by content."""

    def __init__(self, commits: Commits, root: str, run: str) -> None:
        self._commits, self._run = commits, run
        self._files = Files(root, self._name)

    def _name(self, content: bytes) -> str:
        """As git names the content of a file."""
        import hashlib

        return hashlib.new(self._commits.folders.algorithm, b"blob %d\0%s" % (len(content), content)).hexdigest()

    def at_start(self) -> Work:
        """What the user had not committed when the run began; their deletions are no work that could be lost."""
        differing = self._commits.uncommitted(self._run, START)
        mine = [(path, head, saved) for path, (head, saved) in sorted(differing.items()) if saved is not None]
        new = [(path, head, saved) for path, head, saved in mine if head is None][:MOST_NEW]
        edited = [(path, head, saved) for path, head, saved in mine if head is not None][:MOST_EDITED]
        kept = new + [(path, head, saved) for path, head, saved in edited if not self._converted(head[1], saved[1])]
        return {decode(path): (*_mode_and_id(head), *_mode_and_id(saved)) for path, head, saved in kept}

    def _converted(self, head: str, saved: str) -> bool:
        """Whether git itself made the difference, when it checked the file out."""
        try:
            theirs, ours = self._commits.blob(head), self._commits.blob(saved)
        except ObjectMissing:
            return False
        return theirs.startswith(POINTER) or theirs == ours.replace(b"\r\n", b"\n")

    def still(self, work: Work) -> Work:
        """What of it is still to be watched: not what was swept away when no agent was at work."""
        swept = set(self.swept(work))
        return {path: ids for path, ids in work.items() if path not in swept}

    def swept(self, work: Work) -> list[str]:
        """Those files of it that are gone, or are again as HEAD had them."""
        self._files.begin()
        return [path for path, ids in work.items() if self._is_swept(path.encode("utf-8", "surrogateescape"), ids)]

    def _is_swept(self, path: bytes, ids: tuple[str | None, ...]) -> bool:
        try:
            now = _mode_and_id(self._files.look(path))
        except (Unreadable, OSError):
            return False
        return now in ((None, None), ids[:2]) and now != ids[2:] and path not in self._files.large

    def remark(self, paths: list[str]) -> str:
        """What to tell the user of them."""
        import shlex

        more = f" and {len(paths) - MOST_TOLD} more" if len(paths) > MOST_TOLD else ""
        return (
            f"your uncommitted work in {', '.join(paths[:MOST_TOLD])}{more} is gone from the project; it is saved, get "
            f"it back: git restore --source=refs/ralph/{self._run}/{START} -- {shlex.quote(paths[0])} (or each other "
            f"path), or with everything else that the run did undone: ralph rewind {self._run} {START}"
        )


def _mode_and_id(entry: Entry | None) -> Ids:
    return (entry[0].decode(), entry[1]) if entry else (None, None)
