"""What a protected path means, and which ones mean nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphproof.base.path_patterns import escape_pattern, explain_bad_pattern, pattern_covers
from ralphproof.workspace.protected_paths import ProtectedPattern, WatchedFolder, reserved_paths

# pattern, what it protects, what it does not
MEANINGS = [
    (
        "src/auth/",
        ["src/auth", "src/auth/a.py", "src/auth/deep/b"],
        ["src/authors.py", "src", "x/src/auth/a", "auth/a"],
    ),
    ("src/auth", ["src/auth", "src/auth/a.py"], ["src/auth2/a", "src/au"]),
    ("./src//auth/.", ["src/auth/a.py"], ["src/a"]),
    (".env", [".env", ".env/x"], [".envrc", ".env.local", "sub/.env", "env"]),
    (".env*", [".env", ".envrc", ".env.local", "sub/.env", "sub/.env.d/x"], ["env", "x.env"]),
    ("*.pem", ["a.pem", "deep/er/a.pem", ".pem", "a.pem/x"], ["a.pemx", "node_modules/x/a.pem", ".venv/a.pem"]),
    ("node_modules/*.pem", ["node_modules/a.pem"], ["node_modules/x/a.pem", "a.pem"]),
    ("**/migrations/", ["migrations/1", "a/migrations/1", "a/b/migrations"], ["migrations2/1", "xmigrations/1"]),
    ("src/*/secret", ["src/a/secret", "src/a/secret/x"], ["src/secret", "src/a/b/secret", "a/src/b/secret"]),
    ("src/**/secret", ["src/secret", "src/a/secret", "src/a/b/secret/x"], ["secret", "src/secrets"]),
    ("src/**", ["src/a", "src/a/b"], ["src", "srcs/a"]),
    ("a**b", ["ab", "a1b", "x/axxb"], ["a/b"]),
    ("f?", ["f1", "fé", "x/f_", "f\udcff"], ["f", "f12", "f/"]),
    ("conf.d/[a]+", ["conf.d/[a]+"], ["conf.d/a", "conf.d/aa"]),
    ("a\\*b", ["a*b"], ["axb"]),
    ("a\\*?", ["a*b", "x/a*c"], ["axb"]),
    ("a\\\\b", ["a\\b"], ["ab"]),
    ("new\nline*", ["new\nline", "new\nlines\nmore"], ["new"]),
    ("**/auth", ["auth", "a/auth/x"], [".git/auth", "sub/.git/auth", ".ralph/runs/auth"]),
    (".ralph/skills/*.md", [".ralph/skills/a.md"], [".ralph/skills/a.txt"]),
    ("src", ["src/a.pyc", "src/__pycache__/x"], ["src/__pycache__/a.pyc", "src/.DS_Store", "src/sub/.git/config"]),
]


@pytest.mark.parametrize(("pattern", "those", "others"), MEANINGS, ids=[one[0] for one in MEANINGS])
def test_a_pattern_means_what_it_says(pattern: str, those: list[str], others: list[str]) -> None:
    assert explain_bad_pattern(pattern) == ""
    assert [path for path in those if not pattern_covers(pattern, path)] == []
    assert [path for path in others if pattern_covers(pattern, path)] == []


BAD = [
    ("", "names nothing"), (".", "names nothing"), ("././", "names nothing"),
    ("/", "is absolute; write it from the project's root: src/auth/"),
    ("/etc/passwd", "is absolute; write it from the project's root: etc/passwd"),
    ("../other", "leads out of the project"), ("src/../../x", "leads out of the project"),
    ("src/..", "leads out of the project"), ("~/.ssh", "leads out of the project"),
    ("src\\auth", "holds a backslash"), ("src/auth\\", "holds a backslash"),
    ("*", "would protect every file"), ("**", "would protect every file"), ("**/*", "would protect every file"),
    (".git", "names .git"), (".git/hooks/", "names .git"), ("sub/.git/config", "names .git"),
    (".ralph", "names .ralph,"), (".ralph/runs/", "names .ralph,"), (".ralph-active", "names .ralph-active"),
    ("a\0b", "holds a NUL"),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "problem"), BAD)
def test_a_pattern_that_means_nothing_is_refused_with_its_reason(pattern: str, problem: str) -> None:
    assert explain_bad_pattern(pattern).startswith(problem)


@pytest.mark.parametrize("pattern", ["..x", "a..b", "src/...", ".gitignore", ".github/", ".ralph/settings.json", "~x"])
def test_a_pattern_that_only_looks_odd_is_good(pattern: str) -> None:
    assert explain_bad_pattern(pattern) == ""


@given(st.lists(st.text(alphabet="ab*?\\[.é\n", min_size=1, max_size=5), min_size=1, max_size=3))
def test_a_literal_pattern_means_one_path_alone(parts: list[str]) -> None:
    path = "/".join(part for part in parts if part not in (".", "..")) or "a"
    assert explain_bad_pattern(escape_pattern(path)) == ""
    assert pattern_covers(escape_pattern(path), path)
    assert pattern_covers(escape_pattern(path), f"{path}/below")
    assert not pattern_covers(escape_pattern(path), f"{path}z")
    assert not pattern_covers(escape_pattern(path), f"z/{path}")


@pytest.mark.parametrize("pattern", [one[0] for one in MEANINGS])
def test_what_is_looked_at_is_what_is_meant(tmp_path: Path, pattern: str) -> None:
    paths = {path.rstrip("/") for _, those, others in MEANINGS for path in (*those, *others)}
    files = {path for path in paths if not any(other.startswith(f"{path}/") for other in paths)}
    for path in files:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path.encode("utf-8", "replace").decode())
    place = WatchedFolder(str(tmp_path), (ProtectedPattern(pattern, "why"),), lambda content: content.decode())
    place.resolve_links()
    assert {os.fsdecode(path) for path in place.scan()} == {path for path in files if pattern_covers(pattern, path)}


@pytest.mark.parametrize(
    ("prompt", "watched"),
    [(None, []), ("PROMPT.md", ["PROMPT.md"]), ("docs/../what*.md", ["what\\*.md"]), ("../PROMPT.md", []),
     ("/etc/passwd", []), ("..prompt", ["..prompt"])],
)  # fmt: skip
def test_the_prompt_is_watched_where_it_lies_in_the_project(
    tmp_path: Path, prompt: str | None, watched: list[str]
) -> None:
    own = reserved_paths(str(tmp_path), {prompt: "the prompt"} if prompt else {})
    assert [one.path for one in own if one.rule == "the prompt"] == watched
    assert ".ralph/settings.json" in [one.path for one in own]


def test_a_prompt_named_by_another_way_to_the_project_is_watched(tmp_path: Path) -> None:
    (tmp_path / "project" / "docs").mkdir(parents=True)
    (tmp_path / "alias").symlink_to("project")
    own = reserved_paths(str(tmp_path / "project"), {str(tmp_path / "alias" / "docs" / "p.md"): "the prompt"})
    assert own[-1].path == "docs/p.md"
