"""No run begins in a project whose work cannot be saved."""

from __future__ import annotations

import shutil

from tests.ralph import Ralph, done, write


def test_a_run_without_a_place_for_snapshots_is_refused(ralph: Ralph) -> None:
    ralph.write({"kept.txt": "x"})
    ralph.commit()
    objects = ralph.root / ".git" / "objects"
    shutil.rmtree(objects)
    objects.write_text("no folder any more")
    ended = ralph("run", "-p", "go", "--agent", ralph.script([write(made="x"), done()]), "--check", "true")
    assert ended.code == 2, ended
    assert "cannot be saved" in ended.out + ended.err
    assert not (ralph.root / "made").exists()
    assert "Traceback" not in ended.err


def test_a_user_command_that_removes_the_repository_ends_the_run(ralph: Ralph) -> None:
    ralph.settings(on={"afterIteration": "rm -rf .git"})
    ralph.commit()
    ended = ralph("run", "-p", "go", "--agent", ralph.script([write(made="x")]), "--check", "false")
    assert ended.code == 2, ended
    why = f"No such file or directory: {ralph.root}/.git/HEAD"
    assert ralph.outcome()["error"] == f"afterIteration left the project so that it cannot be saved: {why}"
    assert ralph("restore").code == 0, ended
    assert ralph.git("log", "--format=%s") == "a state of the project\n"
