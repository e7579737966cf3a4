"""The place of clean checkouts, and what is kept there of what prepares them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralphproof.base.files import remove_tree
from ralphproof.workspace.checkouts import CheckoutFolder, CheckoutState

if TYPE_CHECKING:
    from tests.workspace.conftest import Repo


class Room:
    """A place for checkouts of a repository, prepared by one command."""

    def __init__(self, repo: Repo, setup: str = "npm ci") -> None:
        self.repo = repo
        self.place = CheckoutFolder(str(repo.base / "state" / "clean"), str(repo.path), repo.environ, (setup,))

    @property
    def tree(self) -> Path:
        return Path(self.place.tree)

    def lay(self) -> bool:
        """A fresh checkout; whether something kept was put back into it."""
        return self.place.create("HEAD").prepared

    def make(self, **files: str) -> None:
        """What setup makes; then it is kept."""
        for name, text in files.items():
            path = self.tree / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.place.setup_done()

    def commit(self, **files: str) -> None:
        for name, text in files.items():
            self.repo.write(name.replace("__", "."), text)
        self.repo.git("add", "-A")
        self.repo.git("commit", "-qm", "more")

    @property
    def names_kept(self) -> list[str]:
        return sorted(os.listdir(Path(self.place.folder) / "cache"))


@pytest.fixture
def room(repo: Repo) -> Room:
    repo.write("package.json", "{}\n")
    made = Room(repo)
    made.commit()
    return made


def test_dependencies_are_put_back_into_any_tree_with_the_same_manifests(room: Room) -> None:
    room.repo.write("packages/b/package.json", "{}\n")
    room.commit()
    assert not room.lay()
    room.make(node_modules__a="1\n", packages__b__node_modules__c="2\n")
    room.commit(source="changed\n")
    assert room.lay()
    assert (room.tree / "node_modules/a").read_text() == "1\n"
    assert (room.tree / "packages/b/node_modules/c").read_text() == "2\n"
    assert (room.tree / "source").exists()
    room.commit(package__json='{"name": "other"}\n')
    assert not room.lay()


def test_changes_of_restored_dependencies_do_not_reach_the_cache(room: Room) -> None:
    room.lay()
    (room.tree / "node_modules").mkdir()
    (room.tree / "node_modules/twin").write_text("1\n")
    os.link(room.tree / "node_modules/twin", room.tree / "node_modules/other")
    (room.tree / "node_modules/link").symlink_to("twin")
    room.make()
    (room.tree / "node_modules/twin").write_text("too late\n")
    for _ in range(2):
        assert room.lay()
        assert (room.tree / "node_modules/twin").read_text() == "1\n"
        assert os.readlink(room.tree / "node_modules/link") == "twin"
        (room.tree / "node_modules/other").write_text("stained\n")


def test_build_results_are_reused_for_the_same_tree_only(room: Room) -> None:
    room.lay()
    room.make(dist__built="1\n", node_modules__a="1\n")
    assert room.lay()
    assert (room.tree / "dist/built").exists()
    room.commit(source="changed\n")
    assert not room.lay()


def test_a_pip_installed_copy_of_the_project_is_reused_for_the_same_tree_only(room: Room) -> None:
    copied = f'{{"dir_info": {{}}, "url": "file://{room.place.tree}"}}'
    for told, fits in ((copied, False), (copied.replace("{}", '{"editable": true}'), True)):
        room.commit(number=told)
        room.lay()
        remove_tree(str(Path(room.place.folder) / "cache"))
        site = room.tree / ".venv/lib/python3/site-packages/it-1.dist-info"
        site.mkdir(parents=True)
        (site / "direct_url.json").write_text(told)
        room.make()
        room.commit(source=told)
        assert room.lay() is fits


def test_files_that_setup_names_count_as_manifests(room: Room) -> None:
    room.commit(Makefile="x:\n")
    room.repo.write("tools/prepare.sh", "1\n")
    room.commit()
    for setup, file in (("sh ./tools/prepare.sh --fast", "tools/prepare.sh"), ("make deps", "Makefile")):
        own = Room(room.repo, setup)
        own.lay()
        own.make(node_modules__a="1\n")
        assert own.lay()
        own.repo.write(file, "2\n")
        own.commit()
        assert not own.lay()


def test_nothing_is_put_where_a_link_leads_elsewhere_or_something_is(room: Room) -> None:
    room.repo.write("inner/readme", "1\n")
    room.commit()
    room.lay()
    room.make(inner__node_modules__a="1\n")
    assert room.lay()
    outside = room.repo.base / "outside"
    outside.mkdir()
    room.repo.sh("rm -r inner")
    (room.repo.path / "inner").symlink_to(outside)
    room.commit()
    assert not room.lay()
    assert list(outside.iterdir()) == []
    (room.repo.path / "inner").unlink()
    room.repo.write("inner/node_modules/a", "tracked\n")
    room.commit()
    assert not room.lay()
    assert (room.tree / "inner/node_modules/a").read_text() == "tracked\n"


def test_a_setup_that_edits_manifests_does_not_poison_the_cache(room: Room) -> None:
    room.commit(package__json='{"scripts": {"postinstall": "cheat"}}\n')
    room.lay()
    honest = room.repo.git("rev-parse", "HEAD~1:package.json")
    room.repo.sh(f"git -C {room.tree} update-index --cacheinfo 100644,{honest},package.json")
    room.make(node_modules__runner="exit 0\n")
    room.repo.git("revert", "--no-edit", "HEAD")
    assert not room.lay()


def test_incomplete_entries_are_not_used_and_the_oldest_are_removed(room: Room) -> None:
    room.lay()
    half = Path(room.place.folder) / "cache" / ".half-1"
    (half / "files/node_modules").mkdir(parents=True)
    assert not room.lay()
    for number in range(3):
        room.commit(package__json=f'{{"number": {number}}}\n')
        assert not room.lay()
        room.make(node_modules__a="1\n")
    assert len(room.names_kept) == 2
    assert not half.exists()
    assert room.lay()


def test_read_only_folders_are_removed(room: Room) -> None:
    room.lay()
    room.make(node_modules__a__b="1\n")
    (room.tree / "node_modules/a").chmod(0o500)
    (room.tree / "node_modules").chmod(0o500)
    room.place.remove()
    assert os.listdir(room.place.folder) == ["cache"]
    remove_tree(str(Path(room.place.folder) / "cache"))
    room.place.remove()
    assert not os.path.exists(room.place.folder)


def test_the_state_of_a_checkout_is_known_while_it_exists(room: Room) -> None:
    assert room.place.state is None
    laid = room.place.create("HEAD", "run 1.1.1 check", 2)
    assert (laid.owner, laid.number, laid.prepared) == ("run 1.1.1 check", 2, False)
    assert room.place.state == laid
    room.place.setup_done()
    assert room.place.state == CheckoutState(laid.owner, 2, True, laid.cache_names)
    os.rename(room.tree, room.tree.parent / "away")
    assert room.place.state is None
    room.place.clear()
    (room.tree.parent / "state.json").write_text('{"owner": 1}')
    assert room.place.state is None


def test_nothing_is_cached_when_setup_creates_no_files_in_the_checkout(room: Room) -> None:
    room.lay()
    room.make()
    assert not (Path(room.place.folder) / "cache").exists() or room.names_kept == []
    assert not room.lay()
