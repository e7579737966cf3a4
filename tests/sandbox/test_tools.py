"""Tools that are installed in a home folder: there inside, read-only, without a login among them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralphproof.sandbox.ecosystems import CARGO, ECOSYSTEMS, NPM, PYPI, Ecosystem
from ralphproof.sandbox.host_mounts import filter_mounts, tool_mounts
from ralphproof.sandbox.plan import READ_ONLY
from tests.sandbox.sight import SECRETS, Home, can_read, place_of, seen_at


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.put(*SECRETS)
    return made


# By tool: what there is, what is on PATH, variables, what is seen, and what is not.
LAYOUTS: dict[str, tuple[list[str], list[str], dict[str, str], list[str], list[str]]] = {
    "pyenv": (
        [".pyenv/shims/python", ".pyenv/libexec/pyenv", ".pyenv/versions/3.12/bin/python3",
         ".pyenv/versions/3.12/pip.conf", ".pyenv/versions/3.12/envs/work/pip.conf",
         ".pyenv/versions/3.12/envs/work/bin/python"],
        ["~/.pyenv/shims"], {},
        [".pyenv/shims/python", ".pyenv/libexec/pyenv", ".pyenv/versions/3.12/envs/work/bin/python"],
        [".pyenv/versions/3.12/pip.conf", ".pyenv/versions/3.12/envs/work/pip.conf"],
    ),
    "pyenv elsewhere": (
        ["py/shims/python", "py/libexec/pyenv", "py/versions/3.12/pip.conf"], [], {"PYENV_ROOT": "~/py"},
        ["py/libexec/pyenv"], ["py/versions/3.12/pip.conf"],
    ),
    "an environment in the home": (
        ["venv/bin/python", "venv/bin/pytest", "venv/pyvenv.cfg", "venv/pip.conf",
         "venv/lib/python3.12/site-packages/a.py"],
        ["~/venv/bin"], {},
        ["venv/bin/pytest", "venv/pyvenv.cfg", "venv/lib/python3.12/site-packages/a.py"], ["venv/pip.conf"],
    ),
    "an environment that is switched on": (
        ["work/env/bin/python", "work/env/pip.conf", "work/secret"], [], {"VIRTUAL_ENV": "~/work/env"},
        ["work/env/bin/python"], ["work/env/pip.conf", "work/secret"],
    ),
    "environments by name": (
        [".virtualenvs/a/bin/python", ".virtualenvs/a/pip.conf"], [], {}, [".virtualenvs/a/bin/python"],
        [".virtualenvs/a/pip.conf"],
    ),
    "pipx and uv": (
        [".local/bin/ruff", ".local/share/pipx/venvs/ruff/bin/ruff", ".local/share/pipx/venvs/ruff/pip.conf",
         ".local/share/uv/tools/black/bin/black", ".local/share/uv/python/cpython-3.12/bin/python",
         ".local/share/app/data"],
        ["~/.local/bin"], {},
        [".local/bin/ruff", ".local/share/pipx/venvs/ruff/bin/ruff", ".local/share/uv/tools/black/bin/black",
         ".local/share/uv/python/cpython-3.12/bin/python"],
        [".local/share/pipx/venvs/ruff/pip.conf", ".local/share/app/data"],
    ),
    "nvm": (
        [".nvm/versions/node/v20/bin/node", ".nvm/versions/node/v20/etc/npmrc", ".nvm/.npmrc", ".nvm/alias/default",
         ".nvm/versions/node/v20/lib/node_modules/npm/bin/npm-cli.js"],
        ["~/.nvm/versions/node/v20/bin"], {},
        [".nvm/versions/node/v20/bin/node", ".nvm/versions/node/v20/lib/node_modules/npm/bin/npm-cli.js",
         ".nvm/alias/default"],
        [".nvm/versions/node/v20/etc/npmrc", ".nvm/.npmrc"],
    ),
    "fnm": (
        [".local/share/fnm/node-versions/v20/installation/bin/node",
         ".local/share/fnm/node-versions/v20/installation/etc/npmrc"],
        [], {}, [".local/share/fnm/node-versions/v20/installation/bin/node"],
        [".local/share/fnm/node-versions/v20/installation/etc/npmrc"],
    ),
    "asdf": (
        [".asdf/shims/node", ".asdf/installs/nodejs/20/bin/node", ".asdf/installs/nodejs/20/etc/npmrc",
         ".asdf/installs/python/3.12/pip.conf", ".tool-versions"],
        ["~/.asdf/shims"], {}, [".asdf/shims/node", ".asdf/installs/nodejs/20/bin/node", ".tool-versions"],
        [".asdf/installs/nodejs/20/etc/npmrc", ".asdf/installs/python/3.12/pip.conf"],
    ),
    "npm -g": (
        [".npm-global/bin/tsc", ".npm-global/lib/node_modules/typescript/bin/tsc", ".npm-global/etc/npmrc"],
        ["~/.npm-global/bin"], {}, [".npm-global/lib/node_modules/typescript/bin/tsc"], [".npm-global/etc/npmrc"],
    ),
    "npm in a home": (
        ["node_modules/.bin/tsc", "node_modules/typescript/bin/tsc", "package.json"], ["~/node_modules/.bin"], {},
        ["node_modules/typescript/bin/tsc"], ["package.json"],
    ),
    "rustup and cargo": (
        [".cargo/bin/cargo", ".cargo/registry/cache/a.crate", ".cargo/config.toml",
         ".rustup/toolchains/stable/bin/rustc", ".rustup/settings.toml"],
        ["~/.cargo/bin"], {},
        [".cargo/bin/cargo", ".cargo/registry/cache/a.crate", ".cargo/config.toml", ".rustup/settings.toml",
         ".rustup/toolchains/stable/bin/rustc"], [],
    ),
    "cargo elsewhere": (
        ["rust/bin/cargo", "rust/registry/a", "rust/credentials.toml", "rust/credentials"], ["~/rust/bin"],
        {"CARGO_HOME": "~/rust"}, ["rust/bin/cargo", "rust/registry/a"], ["rust/credentials.toml", "rust/credentials"],
    ),
    "dotnet": (
        [".dotnet/dotnet", ".dotnet/sdk/8/a.dll"], ["~/.dotnet"], {}, [".dotnet/dotnet", ".dotnet/sdk/8/a.dll"], [],
    ),
    "rye": ([".rye/shims/python", ".rye/py/3.12/bin/python"], [], {}, [".rye/py/3.12/bin/python"], []),
    "conda": (
        ["miniconda3/bin/python", "miniconda3/.condarc", "miniconda3/envs/a/pip.conf", "miniconda3/envs/a/bin/python"],
        [], {}, ["miniconda3/envs/a/bin/python"], ["miniconda3/.condarc", "miniconda3/envs/a/pip.conf"],
    ),
    "programs of one's own": (["bin/tool", "lib/x"], ["~/bin"], {}, ["bin/tool"], ["lib/x"]),
    "certificates": (["certs/ca.pem", "certs/key.pem"], [], {"SSL_CERT_FILE": "~/certs/ca.pem"}, ["certs/ca.pem"],
                     ["certs/key.pem"]),
    "wheels": (["wheels/a.whl"], [], {"PIP_FIND_LINKS": "~/wheels"}, ["wheels/a.whl"], []),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_tool_is_there_without_the_logins_among_it(home: Home, name: str) -> None:
    files, path, variables, seen, unseen = LAYOUTS[name]
    home.put(*files)
    mounts = tool_mounts(home.environ(*path, **variables), str(home), (PYPI, NPM, CARGO))
    assert {mount.kind for mount in mounts} <= {READ_ONLY}
    assert [one for one in seen if not can_read(mounts, f"{home}/{one}")] == []
    assert [one for one in (*unseen, *SECRETS) if seen_at(mounts, f"{home}/{one}")] == []


@pytest.mark.parametrize("variable", ["XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"])
def test_what_was_moved_is_seen_where_it_is_looked_for(home: Home, variable: str, tmp_path: Path) -> None:
    usual = {"XDG_CONFIG_HOME": ".config", "XDG_DATA_HOME": ".local/share", "XDG_CACHE_HOME": ".cache"}[variable]
    inner = {"XDG_CONFIG_HOME": "nvm/nvm.sh", "XDG_DATA_HOME": "uv/tools/a/bin/a", "XDG_CACHE_HOME": "pre-commit/db"}[
        variable
    ]
    moved = Home(tmp_path / "moved")
    moved.put(inner, "gh/hosts.yml", "keyrings/login.keyring", "huggingface/token")
    mounts = tool_mounts(home.environ(**{variable: str(moved)}), str(home), (PYPI,))
    assert sorted(seen_at(mounts, moved.path / inner)) == sorted([f"{moved}/{inner}", f"{home}/{usual}/{inner}"])
    for secret in ("gh/hosts.yml", "keyrings/login.keyring", "huggingface/token"):
        assert seen_at(mounts, moved.path / secret) == []


@pytest.mark.parametrize(
    "path",
    [
        "~",
        "~/",
        "/",
        "~/.ssh",
        "~/.config",
        "~/.config/gh",
        "~/.local",
        "~/.aws/..",
        "~/tools",
        ".",
        "",
        "/home",
        "/var",
    ],
)
def test_a_path_that_leads_to_everything_or_to_logins_shows_nothing(home: Home, path: str) -> None:
    home.link("tools", ".ssh")
    mounts = tool_mounts(home.environ(path), str(home), ())
    assert [secret for secret in SECRETS if seen_at(mounts, f"{home}/{secret}")] == []


@pytest.mark.parametrize(
    "variable", ["VIRTUAL_ENV", "PYENV_ROOT", "JAVA_HOME", "NVM_DIR", "SSL_CERT_DIR", "CONDA_PREFIX"]
)
@pytest.mark.parametrize(
    "place", ["/", "~", "/var", "/home", "/tmp", "/srv", "~/.ssh", "~/.config", "~/.aws/credentials"]
)
def test_nor_does_a_variable_that_does(home: Home, variable: str, place: str) -> None:
    mounts = tool_mounts(home.environ(**{variable: place}), str(home), ())
    assert [mount for mount in mounts if mount.host_path == place.replace("~", str(home))] == []
    assert [secret for secret in SECRETS if seen_at(mounts, f"{home}/{secret}")] == []


def test_a_link_to_a_login_among_tools_is_covered_where_it_leads(home: Home) -> None:
    home.put(".nvm/kept/npmrc-of-work")
    home.link(".nvm/.npmrc", "kept/npmrc-of-work")
    home.link(".pyenv", ".ssh")
    mounts = tool_mounts(home.environ(), str(home), ())
    assert seen_at(mounts, f"{home}/.nvm/kept/npmrc-of-work") == []
    assert seen_at(mounts, f"{home}/.ssh/id_ed25519") == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('[build]\ntarget-dir = "/x"\n', True),
        ('[registry]\ntoken = "abc"\n', False),
        ('[registries.work]\nindex = "https://me:pw@registry.test/"\n', False),
        ('[http]\nproxy = "https://proxy.test"\n', True),
    ],
)
def test_settings_of_cargo_are_shown_unless_they_hold_a_login(home: Home, text: str, shown: bool) -> None:
    home.put(".cargo/config.toml", text=text)
    mounts = tool_mounts(home.environ(), str(home), (CARGO,))
    assert bool(seen_at(mounts, f"{home}/.cargo/config.toml")) is shown


def test_caches_are_those_of_the_projects_ecosystems(home: Home) -> None:
    home.put(".npm/_cacache/index", ".npm/_logs/log", ".cargo/registry/a", ".cache/pip/http", ".m2/repository/a.jar")
    shown = tool_mounts(home.environ(), str(home), (NPM,))
    for name, there in ((".npm/_cacache/index", True), (".npm/_logs/log", False), (".cargo/registry/a", False),
                        (".cache/pip/http", False), (".m2/repository/a.jar", False)):  # fmt: skip
        assert can_read(shown, f"{home}/{name}") is there, name


def test_folders_of_other_people_on_PATH_are_passed_over(tmp_path: Path, home: Home) -> None:
    other = Home(tmp_path / "other")
    other.program("bin/tool", "lib/x")
    assert seen_at(tool_mounts(home.environ(f"{other}/bin"), str(home), ()), f"{other}/bin/tool") == []


PARTS = sorted({file for files, *_ in LAYOUTS.values() for file in files})
FOLDERS = [
    "~",
    "/",
    "~/bin",
    "~/.local/bin",
    "~/.ssh",
    "~/.config",
    "~/.cargo/bin",
    "~/.nvm/versions/node/v20/bin",
    "~/link",
]
VARIABLES = [
    "PYENV_ROOT", "NVM_DIR", "CARGO_HOME", "RUSTUP_HOME", "VIRTUAL_ENV", "JAVA_HOME", "XDG_CONFIG_HOME",
    "XDG_DATA_HOME", "XDG_CACHE_HOME", "GOPATH", "npm_config_cache", "SSL_CERT_DIR", "DOTNET_ROOT", "PIPX_HOME",
]  # fmt: skip
PLACES = [
    "~",
    "/",
    "~/.ssh",
    "~/.config",
    "~/.cargo",
    "~/.pyenv",
    "~/.local/share",
    "~/.aws/credentials",
    "~/link",
    "~/.dotnet",
]
TARGETS = [".ssh", ".aws", ".", ".config", ".pyenv", ".cargo", ".local", "/"]


@settings(max_examples=60, deadline=None)
@given(
    st.sets(st.sampled_from(PARTS), max_size=12),
    st.lists(st.sampled_from(FOLDERS), max_size=4),
    st.dictionaries(st.sampled_from(VARIABLES), st.sampled_from(PLACES), max_size=4),
    st.dictionaries(
        st.sampled_from(["link", ".goenv", ".rbenv", "sdk", ".bun", ".nix-profile"]), st.sampled_from(TARGETS)
    ),
    st.lists(st.sampled_from(ECOSYSTEMS), max_size=3),
)
def test_whatever_a_home_is_made_of_no_login_is_seen(
    parts: set[str], path: list[str], variables: dict[str, str], links: dict[str, str], ecosystems: list[Ecosystem]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder) / "home")
        home.put(*SECRETS, *parts)
        for name, target in links.items():
            home.link(name, target)
        environ = home.environ(*path, **variables)
        mounts = tool_mounts(environ, str(home), ecosystems)
        logins = [
            f"{home}/{one}" for one in (*SECRETS, *parts) if os.path.basename(one) in ("pip.conf", ".npmrc", "npmrc")
        ]
        shown = [one for one in (*(f"{home}/{one}" for one in SECRETS), *logins) if seen_at(mounts, one)]
        assert shown == []
        assert {mount.kind for mount in mounts} <= {READ_ONLY}
        kept = filter_mounts(mounts, str(home), environ, ())
        assert [one for one in (*(f"{home}/{one}" for one in SECRETS), *logins) if seen_at(kept, one)] == []
        assert [one.path for one in mounts if place_of(mounts, one.path)[1] != place_of(kept, one.path)[1]] == []
