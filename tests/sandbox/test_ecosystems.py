"""Package ecosystems: how they are recognised, their registries and caches, and the environment inside."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphproof.sandbox.ecosystems import (
    CACHE_PLACEHOLDER,
    CARGO,
    ECOSYSTEMS,
    GO,
    GRADLE,
    MAVEN,
    MAX_ENTRIES,
    NPM,
    PYPI,
    Ecosystem,
    detect_ecosystems,
    ecosystem_settings,
    ecosystem_variables,
    expand_host_entry,
)
from ralphproof.sandbox.egress_rules import allow_list_entry_problem
from ralphproof.sandbox.plan import ALLOWED_VARIABLES, CERTIFICATE_VARIABLES, filter_environment

URL = "_".join(("INDEX", "URL"))
KEYS = (
    "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
    "GITHUB_TOKEN", "GH_TOKEN", "NPM_TOKEN", "NODE_AUTH_TOKEN", "npm_config__auth", "TWINE_PASSWORD",
    "UV_PUBLISH_TOKEN", *(f"{one}_{URL}" for one in ("PIP", "PIP_EXTRA", "UV")), "POETRY_HTTP_BASIC_X_PASSWORD",
    "CARGO_REGISTRY_TOKEN",
    "CARGO_REGISTRIES_X_TOKEN", "GOPROXY", "GOPRIVATE", "BUNDLE_RUBYGEMS__PKG__GITHUB__COM", "COMPOSER_AUTH",
    "HEX_API_KEY", "NUGET_API_KEY", "DATABASE_URL", "PGPASSWORD", "MYSQL_PWD", "VAULT_TOKEN", "KUBECONFIG",
    "GOOGLE_APPLICATION_CREDENTIALS", "SLACK_WEBHOOK", "HTTP_PROXY", "https_proxy", "ALL_PROXY", "SSH_AUTH_SOCK",
    "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST", "XDG_RUNTIME_DIR", "DISPLAY", "WAYLAND_DISPLAY",
    "LD_PRELOAD", "LD_LIBRARY_PATH", "BASH_ENV", "ENV", "PROMPT_COMMAND", "PYTHONSTARTUP", "PYTHONHOME", "NODE_OPTIONS",
    "PERL5OPT", "RUBYOPT", "JAVA_TOOL_OPTIONS", "GIT_SSH_COMMAND", "GIT_ASKPASS", "GIT_DIR", "GIT_CONFIG_PARAMETERS",
    "RUSTC_WRAPPER", "RALPH_STATE_DIR", "RALPH_NOTIFY", "DYLD_INSERT_LIBRARIES",
)  # fmt: skip
EVERYTHING = (*ALLOWED_VARIABLES, *ecosystem_variables(ECOSYSTEMS, {}))


@pytest.mark.parametrize("name", KEYS)
def test_no_key_no_socket_and_no_other_program_comes_inside(name: str) -> None:
    assert filter_environment({name: "x", "PATH": "/bin"}, EVERYTHING) == {"PATH": "/bin"}


@pytest.mark.parametrize(
    "name", ["PATH", "HOME", "LANG", "LC_ALL", "LC_TIME", "TERM", "TZ", "CI", "RALPH_STORY_ID", *CERTIFICATE_VARIABLES]
)
def test_how_programs_work_stays(name: str) -> None:
    assert filter_environment({name: "x"}, ALLOWED_VARIABLES) == {name: "x"}


NAMES = st.text("ABC_", min_size=1, max_size=4)


@given(st.dictionaries(NAMES, st.text(max_size=3)), st.lists(st.builds(str.__add__, NAMES, st.sampled_from(["", "*"]))))
def test_what_stays_is_on_the_list_and_is_all_of_it(env: dict[str, str], keeps: list[str]) -> None:
    meant = {
        name: text
        for name, text in env.items()
        if any(name == keep or (keep.endswith("*") and name.startswith(keep[:-1])) for keep in keeps)
    }
    assert filter_environment(env, keeps) == meant


@pytest.mark.parametrize(
    ("text", "stays"),
    [
        ("/opt/wheels", True),
        ("", True),
        ("https://me:secret@wheels.test/", False),
        ("/opt/wheels https://x.test", False),
    ],
)
def test_an_address_that_may_hold_a_login_does_not_stay(text: str, stays: bool) -> None:
    assert ("PIP_FIND_LINKS" in ecosystem_variables(ECOSYSTEMS, {"PIP_FIND_LINKS": text})) is stays


@pytest.mark.parametrize(
    ("files", "names"),
    [
        (["pyproject.toml"], ["pypi"]),
        (["requirements.txt", "package.json"], ["pypi", "npm"]),
        (["backend/setup.py", "frontend/package.json", "core/Cargo.toml"], ["pypi", "npm", "cargo"]),
        (["App.csproj"], ["nuget"]),
        (["src/App/App.fsproj"], []),  # two folders down
        (["pom.xml"], ["maven"]), (["build.gradle.kts"], ["gradle"]), (["go.mod"], ["go"]),
        (["x.gemspec"], ["rubygems"]), (["composer.json"], ["packagist"]), (["mix.exs"], ["hex"]),
        (["deno.json"], ["deno"]),
        # What was installed says nothing of the project.
        (["node_modules/x/package.json", "node_modules/package.json", "vendor/go.mod", "target/Cargo.toml"], []),
        ([".hidden/Cargo.toml", "README.md", "Cargo.toml.bak", "my-package.json"], []),
    ],
)  # fmt: skip
def test_a_project_shows_what_it_is_of(tmp_path: Path, files: list[str], names: list[str]) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert [one.name for one in detect_ecosystems(str(tmp_path))] == names


def test_a_folder_with_very_many_entries_and_one_that_is_not_there_are_no_problem(tmp_path: Path) -> None:
    for number in range(MAX_ENTRIES + 10):
        (tmp_path / f"{number}.csproj").touch()
    (tmp_path / "loop").symlink_to(tmp_path)
    assert [one.name for one in detect_ecosystems(str(tmp_path))] == ["nuget"]
    assert detect_ecosystems(str(tmp_path / "gone")) == ()


@pytest.mark.parametrize(
    ("entry", "hosts"),
    [
        ("pypi", PYPI.hosts), ("python", PYPI.hosts), ("npm", NPM.hosts), ("Node", NPM.hosts), ("crates", CARGO.hosts),
        ("cargo", CARGO.hosts), ("rust", CARGO.hosts), (" go ", GO.hosts),
        ("java", tuple(dict.fromkeys((*MAVEN.hosts, *GRADLE.hosts)))),
        ("example.org", ("example.org",)), ("*.example.org:8443", ("*.example.org:8443",)), ("pypi.org", ("pypi.org",)),
    ],
)  # fmt: skip
def test_a_name_stands_for_the_registries_of_its_ecosystem(entry: str, hosts: tuple[str, ...]) -> None:
    assert expand_host_entry(entry) == hosts


def test_what_names_stand_for_can_be_called() -> None:
    names = [name for one in ECOSYSTEMS for name in (one.name, *one.aliases)]
    assert [(name, host) for name in names for host in expand_host_entry(name) if allow_list_entry_problem(host)] == []
    assert all(one.hosts for one in ECOSYSTEMS)


def test_no_project_opens_a_place_where_everybody_can_put_something(tmp_path: Path) -> None:
    assert [one.name for one in ECOSYSTEMS if not one.marker_files] == ["github"]


@pytest.mark.parametrize("one", ECOSYSTEMS, ids=lambda one: one.name)
@pytest.mark.parametrize("fetches", [False, True])
def test_every_value_is_filled_in_and_what_is_written_goes_to_the_projects_own_cache(
    one: Ecosystem, fetches: bool
) -> None:
    said = ecosystem_settings([one], one.hosts if fetches else (), "/own", {}, "/h")
    assert not [text for text in said.values() if re.search(r"[{}~]", text)]
    wanted = (*one.offline_settings, *(one.online_settings if fetches else ()))
    assert {name for name, text in said.items() if "/own/" in text} == {
        name for name, text in dict(wanted).items() if CACHE_PLACEHOLDER in text
    }


@pytest.mark.parametrize(
    ("hosts", "offline"),
    [
        ((), "true"), (CARGO.hosts, "false"), (("index.crates.io",), "false"), (("*.crates.io",), "false"),
        (("index.crates.io:443",), "false"), (("example.org", "*.example.org"), "true"),
        (("index.crates.io.evil",), "true"),
    ],
)  # fmt: skip
def test_tools_make_do_with_what_is_there_unless_a_registry_can_be_called(hosts: tuple[str, ...], offline: str) -> None:
    assert ecosystem_settings([CARGO], hosts, "/c", {}, "/h")["CARGO_NET_OFFLINE"] == offline


def test_a_moved_cache_is_named_where_it_is() -> None:
    said = ecosystem_settings([GO], GO.hosts, "/c", {"GOMODCACHE": "/mods"}, "/h")
    assert said["GOPROXY"].startswith("file:///mods/cache/download,")
    assert ecosystem_settings([GO], GO.hosts, "/c", {}, "/h")["GOPROXY"].startswith(
        "file:///h/go/pkg/mod/cache/download,"
    )
