"""Ecosystems of packages: how a project shows that it is of one, where its packages come from and are kept.

What tools do with a cache that they may only read was measured: pip 23, npm 11, cargo 1.95, Maven 3.8. What is said of
others is from their documentation.
"""

from __future__ import annotations

import os

from ralphproof.sandboxes.places import expanded
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

CACHE = "{cache}"  # in a value: a folder that is the project's own, to be written inside
MOST_ENTRIES = 2000  # of a folder that are looked at
PASSED_OVER = ("node_modules", "vendor", "target", "build", "dist", "venv", "env", "__pycache__")


@value
class Place:
    """A folder that tools keep something in, from the home. `variable` moves it. `parts` are what is shown of it."""

    folder: str
    variable: str = ""
    parts: tuple[str, ...] = ()


@value
class Ecosystem:
    """One ecosystem. An entry of `marks` that begins with a star stands for every name with that end.

    `places` are shown read-only. `variables` stay as the user has set them. `sets` are what its tools are told where
    its registries cannot be called: to make do with what is there. Where they can be, `fetching` is told besides: what
    is fetched has to be written, so the tools then have a cache of their own.
    """

    name: str
    aliases: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    places: tuple[Place, ...] = ()
    variables: tuple[str, ...] = ()
    sets: tuple[tuple[str, str], ...] = ()
    fetching: tuple[tuple[str, str], ...] = ()


DOTNET = Place("~/.dotnet", "DOTNET_ROOT", (
    "dotnet", "host", "library-packs", "metadata", "packs", "sdk", "sdk-manifests", "shared", "templates", "tools",
))  # fmt: skip
BROWSERS = Place("~/.cache/ms-playwright", "PLAYWRIGHT_BROWSERS_PATH")
MAVEN_HOSTS = ("repo.maven.apache.org", "repo1.maven.org")
JVM = ("JAVA_HOME", "JDK_HOME", "MAVEN_HOME", "M2_HOME", "GRADLE_HOME", "KOTLIN_HOME", "SCALA_HOME")

PYPI = Ecosystem(
    "pypi", ("python",),
    (
        "pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "Pipfile", "tox.ini", "pytest.ini", "uv.lock",
        "environment.yml", "conftest.py", ".python-version",
    ),
    ("pypi.org", "files.pythonhosted.org"),
    (
        # Environments outside the project, and what one that was made of links leads to.
        Place("~/.cache/pypoetry", "POETRY_CACHE_DIR", ("virtualenvs",)), Place("~/.virtualenvs"),
        Place("~/.local/share/virtualenvs", "WORKON_HOME"), Place("~/.cache/pre-commit", "PRE_COMMIT_HOME"),
        Place("~/.local/share/hatch", "HATCH_DATA_DIR", ("env", "pythons")), Place("~/.local/lib"),
        Place("~/.cache/uv", "UV_CACHE_DIR", ("archive-v0",)), BROWSERS,
        Place("", "PIP_FIND_LINKS"),
    ),
    (
        "PIP_CERT", "PIP_DEFAULT_TIMEOUT", "PIP_FIND_LINKS", "PIP_NO_INDEX", "UV_PYTHON", "UV_PYTHON_INSTALL_DIR",
        "UV_PROJECT_ENVIRONMENT", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "POETRY_CACHE_DIR", "WORKON_HOME",
        "HATCH_DATA_DIR", "PRE_COMMIT_HOME", "PLAYWRIGHT_BROWSERS_PATH", "PYTEST_ADDOPTS", "PYENV_ROOT",
        "PYENV_VERSION",
    ),
    # pip does not use a cache that it may not write, and uv does not start with one. Neither is shown theirs.
    (
        ("PIP_CACHE_DIR", CACHE + "/pip"), ("PIP_DISABLE_PIP_VERSION_CHECK", "1"), ("UV_CACHE_DIR", CACHE + "/uv"),
        ("UV_LINK_MODE", "copy"), ("UV_PYTHON_DOWNLOADS", "never"),
    ),
)  # fmt: skip
NPM = Ecosystem(
    "npm", ("node",),
    ("package.json", "package-lock.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock", "bun.lockb", ".nvmrc"),
    ("registry.npmjs.org", "registry.yarnpkg.com"),
    (
        # Projects run from Yarn's cache itself. Corepack keeps whole programs in its own.
        Place("~/.npm", "npm_config_cache", ("_cacache",)), Place("~/.yarn/berry", "YARN_GLOBAL_FOLDER"),
        Place("~/.cache/node/corepack", "COREPACK_HOME"), Place("~/.cache/Cypress", "CYPRESS_CACHE_FOLDER"),
        Place("~/.cache/puppeteer", "PUPPETEER_CACHE_DIR"), BROWSERS,
    ),
    (
        "npm_config_cache", "YARN_GLOBAL_FOLDER", "COREPACK_HOME", "CYPRESS_CACHE_FOLDER", "PUPPETEER_CACHE_DIR",
        "PLAYWRIGHT_BROWSERS_PATH", "NODE_ENV", "NODE_PATH", "NVM_DIR", "NVM_BIN", "VOLTA_HOME", "FNM_DIR",
        "FNM_MULTISHELL_PATH", "PNPM_HOME", "BUN_INSTALL", "N_PREFIX",
    ),
    # npm installs from a cache that it may only read, and says nothing of logs that it cannot write.
    (
        ("npm_config_prefer_offline", "true"), ("npm_config_update_notifier", "false"), ("npm_config_audit", "false"),
        ("npm_config_fund", "false"),
    ),
    (
        ("npm_config_cache", CACHE + "/npm"), ("npm_config_store_dir", CACHE + "/pnpm"),
        ("YARN_CACHE_FOLDER", CACHE + "/yarn"), ("YARN_GLOBAL_FOLDER", CACHE + "/yarn"),
        ("BUN_INSTALL_CACHE_DIR", CACHE + "/bun"),
    ),
)  # fmt: skip
CARGO = Ecosystem(
    "cargo", ("rust", "crates"), ("Cargo.toml", "rust-toolchain", "rust-toolchain.toml"),
    ("index.crates.io", "static.crates.io", "crates.io"),
    (Place("~/.cargo", "CARGO_HOME", ("bin", "registry", "git", "config.toml", "config")),),
    ("CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "RUST_BACKTRACE", "RUST_LOG", "RUSTFLAGS", "CARGO_TERM_COLOR"),
    # It builds from a registry that it may only read, as long as everything in it is unpacked. Where something is
    # missing this makes it say so, and not that an index cannot be written.
    (("CARGO_NET_OFFLINE", "true"), ("RUSTUP_AUTO_INSTALL", "0")),
    (("CARGO_NET_OFFLINE", "false"), ("CARGO_HOME", CACHE + "/cargo")),
)  # fmt: skip
GO = Ecosystem(
    "go", ("golang",), ("go.mod", "go.work"), ("proxy.golang.org", "sum.golang.org"),
    (Place("~/go/pkg/mod", "GOMODCACHE"), Place("~/go", "GOPATH", ("bin", "pkg/mod"))),
    ("GOPATH", "GOMODCACHE", "GOROOT", "GOFLAGS", "GOOS", "GOARCH", "CGO_ENABLED", "GO111MODULE"),
    # Modules that are unpacked need no writing. Results of compiling do.
    (("GOCACHE", CACHE + "/go-build"), ("GOPROXY", "off"), ("GOTOOLCHAIN", "local"), ("GOTELEMETRY", "off")),
    (("GOMODCACHE", CACHE + "/go-mod"), ("GOPROXY", "file://{GOMODCACHE}/cache/download,https://proxy.golang.org")),
)  # fmt: skip
MAVEN = Ecosystem(
    "maven", ("java",), ("pom.xml", "mvnw"), MAVEN_HOSTS,
    (Place("~/.m2", "", ("repository", "wrapper")),), (*JVM, "MAVEN_OPTS"),
    # It builds from a repository that it may only read. Since 3.9 what it fetches can go to another one.
    (),
    (("MAVEN_ARGS", f"-Dmaven.repo.local={CACHE}/maven -Dmaven.repo.local.tail={{~/.m2}}/repository"),),
)  # fmt: skip
GRADLE = Ecosystem(
    "gradle", ("java", "kotlin"),
    ("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts", "gradlew"),
    (*MAVEN_HOSTS, "services.gradle.org", "downloads.gradle.org", "plugins.gradle.org", "plugins-artifacts.gradle.org"),
    (Place("~/.gradle", "GRADLE_USER_HOME", ("caches", "wrapper", "jdks")),), JVM,
    # It writes to its home whatever it does. The packages in another one it can be shown.
    (("GRADLE_USER_HOME", CACHE + "/gradle"), ("GRADLE_RO_DEP_CACHE", "{GRADLE_USER_HOME}/caches")),
)  # fmt: skip
RUBYGEMS = Ecosystem(
    "rubygems", ("ruby",), ("Gemfile", "*.gemspec", ".ruby-version"), ("rubygems.org", "index.rubygems.org"),
    (
        Place("~/.gem", "", ("ruby",)), Place("~/.local/share/gem", "", ("ruby",)),
        Place("~/.bundle", "BUNDLE_USER_HOME", ("cache", "plugin")),
    ),
    ("GEM_HOME", "GEM_PATH", "BUNDLE_PATH", "BUNDLE_GEMFILE", "BUNDLE_WITHOUT", "RAILS_ENV", "RACK_ENV", "RBENV_ROOT"),
    (("BUNDLE_USER_HOME", CACHE + "/bundle"),),
    (("BUNDLE_PATH", CACHE + "/gems"),),
)  # fmt: skip
PACKAGIST = Ecosystem(
    "packagist", ("php", "composer"), ("composer.json", "composer.lock"),
    # What it installs comes from where it is developed.
    ("packagist.org", "repo.packagist.org", "api.github.com", "codeload.github.com"),
    (
        Place("~/.cache/composer", "COMPOSER_CACHE_DIR"), Place("~/.composer", "", ("vendor", "cache")),
        Place("~/.config/composer", "COMPOSER_HOME", ("vendor",)),
    ),
    ("COMPOSER_CACHE_DIR", "APP_ENV"),
    (("COMPOSER_HOME", CACHE + "/composer"), ("COMPOSER_CACHE_READ_ONLY", "1")),
    (("COMPOSER_CACHE_READ_ONLY", "0"), ("COMPOSER_CACHE_DIR", CACHE + "/composer-cache")),
)  # fmt: skip
HEX = Ecosystem(
    "hex", ("elixir", "erlang"), ("mix.exs", "rebar.config"), ("hex.pm", "repo.hex.pm", "builds.hex.pm"),
    (Place("~/.mix", "MIX_HOME"), Place("~/.hex", "HEX_HOME", ("packages",))), ("MIX_HOME", "MIX_ENV", "ERL_AFLAGS"),
    (("HEX_OFFLINE", "1"),),
    (("HEX_OFFLINE", "0"), ("HEX_HOME", CACHE + "/hex")),
)  # fmt: skip
NUGET = Ecosystem(
    "nuget", ("dotnet",), ("*.csproj", "*.fsproj", "*.vbproj", "*.sln", "*.slnx", "global.json"),
    ("api.nuget.org", "globalcdn.nuget.org", "www.nuget.org"),
    (Place("~/.nuget/packages", "NUGET_PACKAGES"), DOTNET),
    ("NUGET_PACKAGES", "DOTNET_ROOT", "ASPNETCORE_ENVIRONMENT", "DOTNET_ENVIRONMENT"),
    (
        ("DOTNET_CLI_HOME", CACHE + "/dotnet"), ("DOTNET_CLI_TELEMETRY_OPTOUT", "1"), ("DOTNET_NOLOGO", "1"),
        ("NUGET_HTTP_CACHE_PATH", CACHE + "/nuget-http"),
    ),
    (("NUGET_PACKAGES", CACHE + "/nuget"), ("NUGET_FALLBACK_PACKAGES", "{NUGET_PACKAGES}")),
)  # fmt: skip
DENO = Ecosystem(
    "deno", ("jsr",), ("deno.json", "deno.jsonc", "deno.lock", "jsr.json"),
    ("jsr.io", "npm.jsr.io", "deno.land", "dl.deno.land"),
    (Place("~/.cache/deno", "DENO_DIR"),), ("DENO_DIR", "DENO_INSTALL"),
    (("DENO_NO_UPDATE_CHECK", "1"),),
    (("DENO_DIR", CACHE + "/deno"),),
)  # fmt: skip
# No project shows that it needs this: a place where everybody can put something is opened only by name.
GITHUB = Ecosystem(
    "github", (), (),
    (
        "github.com", "api.github.com", "codeload.github.com", "raw.githubusercontent.com",
        "objects.githubusercontent.com", "release-assets.githubusercontent.com",
    ),
)  # fmt: skip

ECOSYSTEMS = (PYPI, NPM, CARGO, GO, MAVEN, GRADLE, RUBYGEMS, PACKAGIST, HEX, NUGET, DENO, GITHUB)


def hosts_of(entry: str) -> tuple[str, ...]:
    """The hosts that an entry of an allow-list stands for: those of an ecosystem, or itself."""
    name = entry.strip().lower()
    meant = [one.hosts for one in ECOSYSTEMS if name == one.name or name in one.aliases]
    return tuple(dict.fromkeys(host for hosts in meant for host in hosts)) if meant else (entry,)


def found_in(root: str) -> tuple[Ecosystem, ...]:
    """The ecosystems that a project is of, by the names at its top and one folder below."""
    names, folders = _listed(root)
    for folder in folders:
        names |= _listed(os.path.join(root, folder))[0]
    return tuple(one for one in ECOSYSTEMS if any(_marks(mark, names) for mark in one.marks))


def _listed(folder: str) -> tuple[set[str], list[str]]:
    """The names in a folder, and those of its folders that somebody works in."""
    names: set[str] = set()
    folders: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry, _ in zip(entries, range(MOST_ENTRIES), strict=False):
                names.add(entry.name)
                looked_into = entry.name[0] != "." and entry.name not in PASSED_OVER
                if looked_into and entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
    except OSError:
        return names, []
    return names, sorted(folders)


def _marks(mark: str, names: set[str]) -> bool:
    return any(name.endswith(mark[1:]) for name in names) if mark.startswith("*") else mark in names


def kept_for(ecosystems: Iterable[Ecosystem], environ: Mapping[str, str]) -> tuple[str, ...]:
    """The user's variables that tools of these ecosystems are to know. An address may hold a login, so none is."""
    named = dict.fromkeys(name for one in ecosystems for name in one.variables)
    return tuple(name for name in named if "://" not in environ.get(name, ""))


def told(
    ecosystems: Iterable[Ecosystem], hosts: Iterable[str], cache: str, environ: Mapping[str, str], home: str
) -> dict[str, str]:
    """What tools of these ecosystems are told inside, over the user's own variables.

    `hosts` are those that can be called, `cache` is a folder of the project's own that can be written.
    """
    allowed = tuple(hosts)
    said: dict[str, str] = {}
    for one in ecosystems:
        known = {CACHE: cache, **dict(_kept_in(one, environ, home))}
        for name, text in (*one.sets, *(one.fetching if _some_of(one.hosts, allowed) else ())):
            for mark, meant in known.items():
                text = text.replace(mark, meant)
            said[name] = text
    return said


def _some_of(hosts: Iterable[str], allowed: tuple[str, ...]) -> bool:
    """Whether an allow-list has one of these hosts, by its name, with a port, or by a star."""
    plain = [entry.removeprefix("private:").removesuffix(":443") for entry in allowed]
    return any(host == one or (one.startswith("*.") and host.endswith(one[1:])) for host in hosts for one in plain)


def _kept_in(ecosystem: Ecosystem, environ: Mapping[str, str], home: str) -> Iterator[tuple[str, str]]:
    """Where this ecosystem's places are, by their variables and their usual names in braces."""
    for place in ecosystem.places:
        named = environ.get(place.variable, "") if place.variable else ""
        where = named if os.path.isabs(named) else expanded(place.folder, home)
        yield f"{{{place.variable or place.folder}}}", where
