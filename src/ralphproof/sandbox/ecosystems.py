"""Package ecosystems: how a project is recognised, its registries, caches and variables.

How tools behave with a read-only cache was measured for pip 23, npm 11, cargo 1.95 and Maven 3.8; for the others it is
from their documentation.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

from ralphproof.base.value import value
from ralphproof.sandbox.plan import expand_home

CACHE_PLACEHOLDER = "{cache}"  # in a value: a folder that is the project's own, to be written inside
MAX_ENTRIES = 2000  # of a folder that are looked at
SKIPPED_FOLDERS = ("node_modules", "vendor", "target", "build", "dist", "venv", "env", "__pycache__")


@value
class ToolFolder:
    """A folder of tools, relative to the home. `variable` relocates it. `shown_parts` are the parts that are mounted;
    empty: all.
    """

    folder: str
    variable: str = ""
    shown_parts: tuple[str, ...] = ()


@value
class Ecosystem:
    """One package ecosystem. An entry of `marker_files` that begins with a star matches every name with that suffix.

    `tool_folders` are mounted read-only. `variables` are passed in as the user has set them. `offline_settings` are set
    always: they make tools use what is installed. `online_settings` are set as well where its registries can be
    reached: downloads must be written somewhere, so tools then get a cache of their own.
    """

    name: str
    aliases: tuple[str, ...] = ()
    marker_files: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    tool_folders: tuple[ToolFolder, ...] = ()
    variables: tuple[str, ...] = ()
    offline_settings: tuple[tuple[str, str], ...] = ()
    online_settings: tuple[tuple[str, str], ...] = ()


DOTNET_FOLDER = ToolFolder("~/.dotnet", "DOTNET_ROOT", (
    "dotnet", "host", "library-packs", "metadata", "packs", "sdk", "sdk-manifests", "shared", "templates", "tools",
))  # fmt: skip
PLAYWRIGHT_BROWSERS = ToolFolder("~/.cache/ms-playwright", "PLAYWRIGHT_BROWSERS_PATH")
MAVEN_HOSTS = ("repo.maven.apache.org", "repo1.maven.org")
JVM_VARIABLES = ("JAVA_HOME", "JDK_HOME", "MAVEN_HOME", "M2_HOME", "GRADLE_HOME", "KOTLIN_HOME", "SCALA_HOME")

PYPI = Ecosystem(
    "pypi", ("python",),
    (
        "pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "Pipfile", "tox.ini", "pytest.ini", "uv.lock",
        "environment.yml", "conftest.py", ".python-version",
    ),
    ("pypi.org", "files.pythonhosted.org"),
    (
        # Environments outside the project, and what one that was made of links leads to.
        ToolFolder("~/.cache/pypoetry", "POETRY_CACHE_DIR", ("virtualenvs",)), ToolFolder("~/.virtualenvs"),
        ToolFolder("~/.local/share/virtualenvs", "WORKON_HOME"), ToolFolder("~/.cache/pre-commit", "PRE_COMMIT_HOME"),
        ToolFolder("~/.local/share/hatch", "HATCH_DATA_DIR", ("env", "pythons")), ToolFolder("~/.local/lib"),
        ToolFolder("~/.cache/uv", "UV_CACHE_DIR", ("archive-v0",)), PLAYWRIGHT_BROWSERS,
        ToolFolder("", "PIP_FIND_LINKS"),
    ),
    (
        "PIP_CERT", "PIP_DEFAULT_TIMEOUT", "PIP_FIND_LINKS", "PIP_NO_INDEX", "UV_PYTHON", "UV_PYTHON_INSTALL_DIR",
        "UV_PROJECT_ENVIRONMENT", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "POETRY_CACHE_DIR", "WORKON_HOME",
        "HATCH_DATA_DIR", "PRE_COMMIT_HOME", "PLAYWRIGHT_BROWSERS_PATH", "PYTEST_ADDOPTS", "PYENV_ROOT",
        "PYENV_VERSION",
    ),
    # pip ignores a cache that it may not write, and uv does not start with one: neither gets the user's.
    (
        ("PIP_CACHE_DIR", CACHE_PLACEHOLDER + "/pip"), ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
        ("UV_CACHE_DIR", CACHE_PLACEHOLDER + "/uv"),
        ("UV_LINK_MODE", "copy"), ("UV_PYTHON_DOWNLOADS", "never"),
    ),
)  # fmt: skip
NPM = Ecosystem(
    "npm", ("node",),
    ("package.json", "package-lock.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock", "bun.lockb", ".nvmrc"),
    ("registry.npmjs.org", "registry.yarnpkg.com"),
    (
        # Projects run from Yarn's cache itself. Corepack keeps whole programs in its own.
        ToolFolder("~/.npm", "npm_config_cache", ("_cacache",)), ToolFolder("~/.yarn/berry", "YARN_GLOBAL_FOLDER"),
        ToolFolder("~/.cache/node/corepack", "COREPACK_HOME"), ToolFolder("~/.cache/Cypress", "CYPRESS_CACHE_FOLDER"),
        ToolFolder("~/.cache/puppeteer", "PUPPETEER_CACHE_DIR"), PLAYWRIGHT_BROWSERS,
    ),
    (
        "npm_config_cache", "YARN_GLOBAL_FOLDER", "COREPACK_HOME", "CYPRESS_CACHE_FOLDER", "PUPPETEER_CACHE_DIR",
        "PLAYWRIGHT_BROWSERS_PATH", "NODE_ENV", "NODE_PATH", "NVM_DIR", "NVM_BIN", "VOLTA_HOME", "FNM_DIR",
        "FNM_MULTISHELL_PATH", "PNPM_HOME", "BUN_INSTALL", "N_PREFIX",
    ),
    # npm installs from a read-only cache, and does not complain about logs that it cannot write.
    (
        ("npm_config_prefer_offline", "true"), ("npm_config_update_notifier", "false"), ("npm_config_audit", "false"),
        ("npm_config_fund", "false"),
    ),
    (
        ("npm_config_cache", CACHE_PLACEHOLDER + "/npm"), ("npm_config_store_dir", CACHE_PLACEHOLDER + "/pnpm"),
        ("YARN_CACHE_FOLDER", CACHE_PLACEHOLDER + "/yarn"), ("YARN_GLOBAL_FOLDER", CACHE_PLACEHOLDER + "/yarn"),
        ("BUN_INSTALL_CACHE_DIR", CACHE_PLACEHOLDER + "/bun"),
    ),
)  # fmt: skip
CARGO = Ecosystem(
    "cargo", ("rust", "crates"), ("Cargo.toml", "rust-toolchain", "rust-toolchain.toml"),
    ("index.crates.io", "static.crates.io", "crates.io"),
    (ToolFolder("~/.cargo", "CARGO_HOME", ("bin", "registry", "git", "config.toml", "config")),),
    ("CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "RUST_BACKTRACE", "RUST_LOG", "RUSTFLAGS", "CARGO_TERM_COLOR"),
    # Builds from a read-only registry if everything in it is unpacked. Where something is missing, this setting makes
    # the error message say so, instead of that an index cannot be written.
    (("CARGO_NET_OFFLINE", "true"), ("RUSTUP_AUTO_INSTALL", "0")),
    (("CARGO_NET_OFFLINE", "false"), ("CARGO_HOME", CACHE_PLACEHOLDER + "/cargo")),
)  # fmt: skip
GO = Ecosystem(
    "go", ("golang",), ("go.mod", "go.work"), ("proxy.golang.org", "sum.golang.org"),
    (ToolFolder("~/go/pkg/mod", "GOMODCACHE"), ToolFolder("~/go", "GOPATH", ("bin", "pkg/mod"))),
    ("GOPATH", "GOMODCACHE", "GOROOT", "GOFLAGS", "GOOS", "GOARCH", "CGO_ENABLED", "GO111MODULE"),
    # Unpacked modules are only read; the build cache is written.
    (("GOCACHE", CACHE_PLACEHOLDER + "/go-build"), ("GOPROXY", "off"), ("GOTOOLCHAIN", "local"),
     ("GOTELEMETRY", "off")),
    (("GOMODCACHE", CACHE_PLACEHOLDER + "/go-mod"), ("GOPROXY", "file://{GOMODCACHE}/cache/download,https://proxy.golang.org")),
)  # fmt: skip
MAVEN = Ecosystem(
    "maven", ("java",), ("pom.xml", "mvnw"), MAVEN_HOSTS,
    (ToolFolder("~/.m2", "", ("repository", "wrapper")),), (*JVM_VARIABLES, "MAVEN_OPTS"),
    # Builds from a read-only repository. Since 3.9 downloads can go to another one.
    (),
    (("MAVEN_ARGS", f"-Dmaven.repo.local={CACHE_PLACEHOLDER}/maven -Dmaven.repo.local.tail={{~/.m2}}/repository"),),
)  # fmt: skip
GRADLE = Ecosystem(
    "gradle", ("java", "kotlin"),
    ("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts", "gradlew"),
    (*MAVEN_HOSTS, "services.gradle.org", "downloads.gradle.org", "plugins.gradle.org", "plugins-artifacts.gradle.org"),
    (ToolFolder("~/.gradle", "GRADLE_USER_HOME", ("caches", "wrapper", "jdks")),), JVM_VARIABLES,
    # Always writes to its home; packages of another home can be used read-only.
    (("GRADLE_USER_HOME", CACHE_PLACEHOLDER + "/gradle"), ("GRADLE_RO_DEP_CACHE", "{GRADLE_USER_HOME}/caches")),
)  # fmt: skip
RUBYGEMS = Ecosystem(
    "rubygems", ("ruby",), ("Gemfile", "*.gemspec", ".ruby-version"), ("rubygems.org", "index.rubygems.org"),
    (
        ToolFolder("~/.gem", "", ("ruby",)), ToolFolder("~/.local/share/gem", "", ("ruby",)),
        ToolFolder("~/.bundle", "BUNDLE_USER_HOME", ("cache", "plugin")),
    ),
    ("GEM_HOME", "GEM_PATH", "BUNDLE_PATH", "BUNDLE_GEMFILE", "BUNDLE_WITHOUT", "RAILS_ENV", "RACK_ENV", "RBENV_ROOT"),
    (("BUNDLE_USER_HOME", CACHE_PLACEHOLDER + "/bundle"),),
    (("BUNDLE_PATH", CACHE_PLACEHOLDER + "/gems"),),
)  # fmt: skip
PACKAGIST = Ecosystem(
    "packagist", ("php", "composer"), ("composer.json", "composer.lock"),
    # Packages are downloaded from their source repositories.
    ("packagist.org", "repo.packagist.org", "api.github.com", "codeload.github.com"),
    (
        ToolFolder("~/.cache/composer", "COMPOSER_CACHE_DIR"), ToolFolder("~/.composer", "", ("vendor", "cache")),
        ToolFolder("~/.config/composer", "COMPOSER_HOME", ("vendor",)),
    ),
    ("COMPOSER_CACHE_DIR", "APP_ENV"),
    (("COMPOSER_HOME", CACHE_PLACEHOLDER + "/composer"), ("COMPOSER_CACHE_READ_ONLY", "1")),
    (("COMPOSER_CACHE_READ_ONLY", "0"), ("COMPOSER_CACHE_DIR", CACHE_PLACEHOLDER + "/composer-cache")),
)  # fmt: skip
HEX = Ecosystem(
    "hex", ("elixir", "erlang"), ("mix.exs", "rebar.config"), ("hex.pm", "repo.hex.pm", "builds.hex.pm"),
    (ToolFolder("~/.mix", "MIX_HOME"), ToolFolder("~/.hex", "HEX_HOME", ("packages",))),
    ("MIX_HOME", "MIX_ENV", "ERL_AFLAGS"),
    (("HEX_OFFLINE", "1"),),
    (("HEX_OFFLINE", "0"), ("HEX_HOME", CACHE_PLACEHOLDER + "/hex")),
)  # fmt: skip
NUGET = Ecosystem(
    "nuget", ("dotnet",), ("*.csproj", "*.fsproj", "*.vbproj", "*.sln", "*.slnx", "global.json"),
    ("api.nuget.org", "globalcdn.nuget.org", "www.nuget.org"),
    (ToolFolder("~/.nuget/packages", "NUGET_PACKAGES"), DOTNET_FOLDER),
    ("NUGET_PACKAGES", "DOTNET_ROOT", "ASPNETCORE_ENVIRONMENT", "DOTNET_ENVIRONMENT"),
    (
        ("DOTNET_CLI_HOME", CACHE_PLACEHOLDER + "/dotnet"), ("DOTNET_CLI_TELEMETRY_OPTOUT", "1"),
        ("DOTNET_NOLOGO", "1"),
        ("NUGET_HTTP_CACHE_PATH", CACHE_PLACEHOLDER + "/nuget-http"),
    ),
    (("NUGET_PACKAGES", CACHE_PLACEHOLDER + "/nuget"), ("NUGET_FALLBACK_PACKAGES", "{NUGET_PACKAGES}")),
)  # fmt: skip
DENO = Ecosystem(
    "deno", ("jsr",), ("deno.json", "deno.jsonc", "deno.lock", "jsr.json"),
    ("jsr.io", "npm.jsr.io", "deno.land", "dl.deno.land"),
    (ToolFolder("~/.cache/deno", "DENO_DIR"),), ("DENO_DIR", "DENO_INSTALL"),
    (("DENO_NO_UPDATE_CHECK", "1"),),
    (("DENO_DIR", CACHE_PLACEHOLDER + "/deno"),),
)  # fmt: skip
# Never detected: a site where anybody can publish is opened only by name.
GITHUB = Ecosystem(
    "github", (), (),
    (
        "github.com", "api.github.com", "codeload.github.com", "raw.githubusercontent.com",
        "objects.githubusercontent.com", "release-assets.githubusercontent.com",
    ),
)  # fmt: skip

ECOSYSTEMS = (PYPI, NPM, CARGO, GO, MAVEN, GRADLE, RUBYGEMS, PACKAGIST, HEX, NUGET, DENO, GITHUB)


def expand_host_entry(entry: str) -> tuple[str, ...]:
    """Hosts of an allow-list entry: those of the named ecosystem, or the entry itself."""
    name = entry.strip().lower()
    meant = [one.hosts for one in ECOSYSTEMS if name == one.name or name in one.aliases]
    return tuple(dict.fromkeys(host for hosts in meant for host in hosts)) if meant else (entry,)


def detect_ecosystems(root: str) -> tuple[Ecosystem, ...]:
    """Ecosystems of a project, by file names at its top and one folder below."""
    names, folders = _project_names(root)
    for folder in folders:
        names |= _project_names(os.path.join(root, folder))[0]
    return tuple(one for one in ECOSYSTEMS if any(_has_mark(mark, names) for mark in one.marker_files))


def _project_names(folder: str) -> tuple[set[str], list[str]]:
    """Names in a folder, and its sub-folders that may hold source files."""
    names: set[str] = set()
    folders: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry, _ in zip(entries, range(MAX_ENTRIES), strict=False):
                names.add(entry.name)
                looked_into = entry.name[0] != "." and entry.name not in SKIPPED_FOLDERS
                if looked_into and entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
    except OSError:
        return names, []
    return names, sorted(folders)


def _has_mark(mark: str, names: set[str]) -> bool:
    return any(name.endswith(mark[1:]) for name in names) if mark.startswith("*") else mark in names


def ecosystem_variables(ecosystems: Iterable[Ecosystem], environ: Mapping[str, str]) -> tuple[str, ...]:
    """The user's variables for these ecosystems; a value with a URL is left out, since it may hold credentials."""
    named = dict.fromkeys(name for one in ecosystems for name in one.variables)
    return tuple(name for name in named if "://" not in environ.get(name, ""))


def ecosystem_settings(
    ecosystems: Iterable[Ecosystem], hosts: Iterable[str], cache: str, environ: Mapping[str, str], home: str
) -> dict[str, str]:
    """Variables that are set for tools of these ecosystems.

    `hosts` is the allow-list, `cache` a writable folder of the project.
    """
    allowed = tuple(hosts)
    said: dict[str, str] = {}
    for one in ecosystems:
        known = {CACHE_PLACEHOLDER: cache, **dict(_folder_placeholders(one, environ, home))}
        for name, text in (
            *one.offline_settings,
            *(one.online_settings if _allows_any_host(one.hosts, allowed) else ()),
        ):
            for mark, meant in known.items():
                text = text.replace(mark, meant)
            said[name] = text
    return said


def _allows_any_host(hosts: Iterable[str], allowed: tuple[str, ...]) -> bool:
    """Whether an allow-list has one of these hosts, by name, with a port or by a wildcard."""
    plain = [entry.removeprefix("private:").removesuffix(":443") for entry in allowed]
    return any(host == one or (one.startswith("*.") and host.endswith(one[1:])) for host in hosts for one in plain)


def _folder_placeholders(ecosystem: Ecosystem, environ: Mapping[str, str], home: str) -> Iterator[tuple[str, str]]:
    """Actual paths of the tool folders, by `{variable}` or `{usual path}`."""
    for place in ecosystem.tool_folders:
        named = environ.get(place.variable, "") if place.variable else ""
        where = named if os.path.isabs(named) else expand_home(place.folder, home)
        yield f"{{{place.variable or place.folder}}}", where
