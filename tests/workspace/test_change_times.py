"""The instant that tells a turn's changes from earlier ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ralphproof.workspace.files import ChangeTimes

if TYPE_CHECKING:
    from pathlib import Path


def test_changes_just_before_and_just_after_the_mark_are_separated(tmp_path: Path) -> None:
    """However coarse the clock that stamps files is."""
    project, private = tmp_path / "project", tmp_path / "private"
    project.mkdir()
    private.mkdir()
    since = ChangeTimes(str(project), str(private))
    for turn in range(50):
        (project / "before").write_text(str(turn))
        since.mark_now()
        (project / "after").write_text(str(turn))
        assert since.unchanged_since_mark(("before", "after")) == ("before",)
