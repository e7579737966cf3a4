"""What people see while a run goes."""

from __future__ import annotations

from io import StringIO

import pytest

from ralphproof import record as told
from ralphproof.display import people, words
from ralphproof.display.people import People, Style
from ralphproof.event import Said
from ralphproof.workspace import Committed


def test_a_commit_that_takes_its_time_is_seen_to_live(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(people, "SLOW_S", 0.0)
    out = StringIO()
    shown = People(out, Style(live=True))
    shown.saw(told.ScmBegan(1))
    shown.tick()
    assert "the work is being committed, 0.0 s" in out.getvalue()


def test_the_answer_to_the_question_for_a_message_is_not_streamed_and_what_follows_is() -> None:
    out = StringIO()
    shown = People(out, Style())
    shown.saw(told.ScmBegan(1))
    shown.heard(Said("Fix it"))
    shown.saw(told.ScmEnded(1, Committed("c" * 40), None, "Fix it"))
    shown.heard(Said("working\n"))
    assert out.getvalue() == "  scm: kept in commit cccccccccccc: Fix it\nworking\n"


@pytest.mark.parametrize(
    ("committed", "line"),
    [
        (Committed(), "nothing to commit"),
        (Committed("0123456789abcdef"), "kept in commit 0123456789ab: Fix it"),
        (Committed(error="git commit: no"), "git commit: no"),
        (Committed("0123456789abcdef", "git push: no"), "kept in commit 0123456789ab: Fix it; git push: no"),
        (Committed(left=("a",)), "nothing to commit; left out, because it was not the run's alone: a"),
        (Committed(done=("commit", "push")), "commit, push done"),
        (Committed(None, "hg push: no", (), ("commit",)), "commit done; hg push: no"),
    ],
)
def test_what_came_of_keeping_work_is_one_line(committed: Committed, line: str) -> None:
    assert words.kept(committed, "Fix it\n\nBecause.") == line
