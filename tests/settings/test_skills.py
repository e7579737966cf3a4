"""Where skills are found, which of them wins, and what becomes of files that cannot be used."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ralphproof.base.errors import Refused
from ralphproof.checks.discovery import resolve_skill_checks
from ralphproof.settings.skills import (
    MAX_SKILL_BYTES,
    Skill,
    SkillCatalog,
    find_skills,
    load_skill,
    missing_skill_parts,
)

OWN = ["code-cleanup", "systematic-debugging", "tasks", "tdd"]
SECTIONS = """
## Ralph Integration

<promise>SHIPPED</promise>

## Completion Criteria

- [ ] It works.

## Self-Correction

Try again.
"""


def put(root: Path, name: str, text: str | bytes = "# A skill\n", folder: str = ".ralph/skills") -> Path:
    path = root / folder / name / "SKILL.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def names(found: SkillCatalog) -> list[str]:
    return [skill.name for skill in found.skills]


# Reading


def test_everything_is_read_from_front_matter(tmp_path: Path) -> None:
    put(tmp_path, "mine", (
        "\ufeff---\r\nname: mine\r\ndescription: >\r\n  Does it\r\n  well.\r\nallowed-tools: [Read, Bash(npm:*)]\r\n"
        "license: MIT\r\nmetadata:\r\n  version: '1'\r\n  tags: {a: b}\r\npromise: <promise>OK</promise>\r\n"
        "verification:\r\n  - npm test\r\n  - npm run lint\r\ncriteria: [all, \"of, it\"]\r\n---\r\n\r\n# Mine\r\n"
    ))  # fmt: skip
    assert load_skill(str(tmp_path), "mine") == Skill(
        name="mine",
        description="Does it well.",
        promise="OK",
        verification=("npm test", "npm run lint"),
        criteria=("all", "of, it"),
        body="# Mine",
        source=".ralph/skills/mine/SKILL.md",
    )


def test_what_front_matter_does_not_say_is_read_from_the_text(tmp_path: Path) -> None:
    put(tmp_path, "mine", SECTIONS)
    skill = load_skill(str(tmp_path), "mine")
    assert (skill.name, skill.promise, skill.criteria) == ("mine", "SHIPPED", ("It works.",))
    assert [lack.partition(":")[0] for lack in missing_skill_parts(skill)] == ["no verification"]


def test_a_skill_of_another_program_is_listed_and_not_ready(tmp_path: Path) -> None:
    put(tmp_path, "pdf", "---\nname: pdf\ndescription: Reads PDF: all of it\n---\n# PDF\n", ".claude/skills")
    found = find_skills(str(tmp_path))
    assert found.skills[0].description == "Reads PDF: all of it"
    assert len(missing_skill_parts(found.skills[0])) == 4


@pytest.mark.parametrize(
    ("written", "commands"),
    [
        ("auto", ("auto",)),
        ("'make test'", ("make test",)),
        ("[make lint, make test]", ("make lint", "make test")),
        ("|\n  make lint\n  make test\n", ("make lint", "make test")),
        ("", ()),
        ("['', ' ']", ()),
    ],
)
def test_verification_is_a_text_or_a_list(tmp_path: Path, written: str, commands: tuple[str, ...]) -> None:
    put(tmp_path, "mine", f"---\nverification: {written}\n---\n")
    assert load_skill(str(tmp_path), "mine").verification == commands


# Finding


def test_the_project_comes_first_then_the_other_program_then_what_comes_along(tmp_path: Path) -> None:
    put(tmp_path, "tdd", "from .ralph\n")
    put(tmp_path, "tdd", "from .claude\n", ".claude/skills")
    put(tmp_path, "extra", "from .claude\n", ".claude/skills")
    found = find_skills(str(tmp_path))
    assert names(found) == ["tdd", "extra", "code-cleanup", "systematic-debugging", "tasks"]
    assert [skill.source for skill in found.skills[:2]] == [
        ".ralph/skills/tdd/SKILL.md", ".claude/skills/extra/SKILL.md",
    ]  # fmt: skip
    assert [skill.source for skill in found.shadowed] == [".claude/skills/tdd/SKILL.md", "comes with ralph"]
    assert load_skill(str(tmp_path), "tdd").body == "from .ralph"


def test_a_project_without_skills_has_those_that_come_along(tmp_path: Path) -> None:
    assert find_skills(str(tmp_path)) == find_skills(str(tmp_path / "nowhere"))
    assert names(find_skills(str(tmp_path))) == OWN


def test_what_is_no_skill_is_passed_over_in_silence(tmp_path: Path) -> None:
    put(tmp_path, "mine")
    (tmp_path / ".ralph/skills/README.md").write_text("x")
    (tmp_path / ".ralph/skills/empty").mkdir()
    found = find_skills(str(tmp_path))
    assert (names(found), found.problems) == (["mine", *OWN], ())


def test_one_folder_that_is_a_link_to_the_other_shadows_nothing(tmp_path: Path) -> None:
    put(tmp_path, "mine", folder=".claude/skills")
    (tmp_path / ".ralph").mkdir()
    (tmp_path / ".ralph/skills").symlink_to("../.claude/skills")
    found = find_skills(str(tmp_path))
    assert (names(found), found.shadowed, found.problems) == (["mine", *OWN], (), ())


# What cannot be used


def linked_outside(path: Path) -> None:
    outside = path.parents[4] / "outside.md"
    outside.write_text("secret")
    path.symlink_to(outside)


def folder_linked_outside(path: Path) -> None:
    outside = path.parents[4] / "outside"
    outside.mkdir()
    (outside / "SKILL.md").write_text("secret")
    path.parent.rmdir()
    path.parent.symlink_to(outside)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (linked_outside, "leads out of the project"),
        (folder_linked_outside, "leads out of the project"),
        (lambda path: path.symlink_to(path), "is a link that leads to itself"),
        (lambda path: path.symlink_to("missing"), "is a link to a file that does not exist"),
        (lambda path: path.mkdir(), "is a directory"),
        (lambda path: os.mkfifo(path), "is not a regular file"),
        (lambda path: path.write_bytes(b"\xff\xfe\xfd"), "is UTF-16"),
        (lambda path: path.write_bytes(b"caf\xe9"), "is not UTF-8"),
        (lambda path: path.write_bytes(b"text \0"), "holds a NUL byte"),
        (lambda path: path.write_bytes(b"x" * (MAX_SKILL_BYTES + 1)), "is larger than 256 KiB"),
        (lambda path: path.write_bytes(b"x" * (2 << 20)), "is larger than 256 KiB"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_problem_and_the_others_are_listed(
    tmp_path: Path, spoil: Callable[[Path], None], why: str
) -> None:
    root = tmp_path / "project"
    put(root, "good")
    path = root / ".ralph/skills/bad/SKILL.md"
    path.parent.mkdir()
    spoil(path)
    found = find_skills(str(root))
    assert names(found) == ["good", *OWN]
    assert len(found.problems) == 1
    assert found.problems[0].startswith(".ralph/skills/bad/SKILL.md: ")
    assert why in found.problems[0]
    with pytest.raises(Refused, match="skill bad cannot be used"):
        load_skill(str(root), "bad")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("---\nname: other\n---\n", "its name is 'other' and its folder's is 'bad'"),
        ("---\nname: [bad]\n---\n", "name is a list; a text is wanted"),
        ("---\nname: bad\nname: bad\n---\n", "line 3: the key name is given twice"),
        ("---\nname: bad\n", "line 1: the front matter has no end"),
        ("---\npromise: [A, B]\n---\n", "promise is a list"),
        ("---\npromise: |\n  A\n  B\n---\n", "its promise must be a word or a few"),
        (f"---\npromise: {'A' * 201}\n---\n", "its promise must be a word or a few"),
        ("---\npromise: <b>A</b>\n---\n", "its promise must be a word or a few"),
        (f"---\npromise: DONE\n---\n{SECTIONS}", "promises 'DONE' and its text 'SHIPPED'"),
        ("---\nverification:\n  - |\n    a\n    b\n---\n", "has several lines"),
    ],
)
def test_a_skill_that_contradicts_itself_is_one_problem(tmp_path: Path, text: str, why: str) -> None:
    put(tmp_path, "bad", text)
    found = find_skills(str(tmp_path))
    assert names(found) == OWN
    assert len(found.problems) == 1
    assert why in found.problems[0]


def test_the_case_of_a_promise_does_not_matter(tmp_path: Path) -> None:
    put(tmp_path, "mine", f"---\npromise: shipped\n---\n{SECTIONS}")
    assert find_skills(str(tmp_path)).problems == ()


@pytest.mark.parametrize("name", ["Mine", "my_skill", "-x", "a b", "é", "a" * 65, ".hidden"])
def test_a_folder_must_be_called_like_a_skill(tmp_path: Path, name: str) -> None:
    put(tmp_path, name)
    found = find_skills(str(tmp_path))
    assert names(found) == OWN
    assert "has no name for a skill" in found.problems[0]


def test_a_broken_skill_is_never_replaced_by_another_of_its_name(tmp_path: Path) -> None:
    put(tmp_path, "tdd", b"\xff")
    found = find_skills(str(tmp_path))
    assert "tdd" not in names(found)
    assert [(skill.name, skill.source) for skill in found.shadowed] == [("tdd", "comes with ralph")]
    with pytest.raises(Refused, match="is not UTF-8"):
        load_skill(str(tmp_path), "tdd")


def test_a_folder_of_skills_outside_the_project_is_not_followed(tmp_path: Path) -> None:
    put(tmp_path / "elsewhere", "tdd", "strange\n", "skills")
    root = tmp_path / "project"
    (root / ".claude").mkdir(parents=True)
    (root / ".claude/skills").symlink_to(tmp_path / "elsewhere/skills")
    found = find_skills(str(root))
    assert found.problems == (".claude/skills: is a link that leads out of the project, and was not followed",)
    assert load_skill(str(root), "tdd").source == "comes with ralph"


def test_a_folder_of_skills_that_is_a_file_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude/skills").write_text("x")
    found = find_skills(str(tmp_path))
    assert (names(found), len(found.problems)) == (OWN, 1)


def test_a_project_that_is_reached_by_a_link_has_its_skills(tmp_path: Path) -> None:
    put(tmp_path / "real", "mine")
    (tmp_path / "link").symlink_to("real")
    assert names(find_skills(str(tmp_path / "link"))) == ["mine", *OWN]


@pytest.mark.parametrize(
    ("name", "meant"),
    [("tddd", "; did you mean tdd?"), ("xyz", ""), ("../../etc", ""), ("TDD", "; did you mean tdd?"), ("", "")],
)
def test_a_name_that_nobody_has_is_answered_with_those_that_there_are(tmp_path: Path, name: str, meant: str) -> None:
    with pytest.raises(Refused) as refused:
        load_skill(str(tmp_path), name)
    assert str(refused.value) == f"no skill is called {name!r}; there are: {', '.join(OWN)}{meant}"


# What it is verified by


def verified(root: Path, own: tuple[str, ...], *words: str) -> tuple[tuple[str, ...], int]:
    found = resolve_skill_checks(Skill("x", verification=words), str(root), own)
    return found.commands, len(found.missing)


@pytest.mark.parametrize(
    ("own", "words", "commands", "missing"),
    [
        ((), ("npm test",), ("npm test",), 0),
        ((), ("auto",), ("make lint", "make test"), 0),
        ((), ("auto:lint",), ("make lint",), 0),
        ((), ("auto:lint", "auto", "extra"), ("make lint", "make test", "extra"), 0),
        (("./verify",), ("auto",), ("./verify",), 0),
        (("./verify",), ("auto:lint", "auto"), ("make lint", "./verify"), 0),
        (("npx eslint .", "go vet"), ("auto:lint",), ("npx eslint .", "go vet"), 0),
        ((), (), (), 0),
    ],
)
def test_auto_stands_for_the_checks_that_the_project_has(
    tmp_path: Path, own: tuple[str, ...], words: tuple[str, ...], commands: tuple[str, ...], missing: int
) -> None:
    (tmp_path / "Makefile").write_text("lint:\n\ttrue\ntest:\n\ttrue\n")
    assert verified(tmp_path, own, *words) == (commands, missing)


def test_a_word_that_stands_for_nothing_is_told(tmp_path: Path) -> None:
    assert verified(tmp_path, (), "auto") == ((), 1)
    (tmp_path / "Makefile").write_text("test:\n\ttrue\n")
    found = resolve_skill_checks(Skill("x", verification=("auto:lint", "auto")), str(tmp_path))
    assert found.commands == ("make test",)
    assert found.missing == ("skill x: auto:lint found no linter in this project; name one: --check CMD",)


def test_the_skill_in_the_documentation_is_ready(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/skills.md").read_text("utf-8")
    put(tmp_path, "changelog", page.partition("````markdown\n")[2].partition("````")[0])
    skill = load_skill(str(tmp_path), "changelog")
    assert (skill.promise, missing_skill_parts(skill), len(skill.criteria)) == ("CHANGELOG_DONE", (), 2)
