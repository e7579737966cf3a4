"""Host mounts of a sandbox: system folders, programs and tools, without logins and other private places."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping

from ralphproof.base import interpreter
from ralphproof.base.programs import find_program
from ralphproof.base.value import value
from ralphproof.sandbox.ecosystems import DOTNET_FOLDER, Ecosystem, ToolFolder
from ralphproof.sandbox.plan import (
    CERTIFICATE_VARIABLES,
    DEV_NULL,
    EMPTY_FOLDER,
    READ_ONLY,
    Mount,
    expand_home,
    is_within,
)

# In a home folder: never mounted, nor anything below.
PRIVATE_PATHS = (
    ".ssh", ".gnupg", ".aws", ".azure", ".docker", ".kube", ".netrc", ".npmrc", ".pypirc", ".git-credentials",
    ".yarnrc", ".yarnrc.yml", ".condarc", ".bunfig.toml", ".pgpass", ".my.cnf", ".mylogin.cnf", ".boto", ".s3cfg",
    ".vault-token", ".password-store", ".terraformrc", ".terraform.d", ".pulumi", ".mozilla", ".thunderbird", ".pip",
    ".config/pip", ".cargo/credentials", ".cargo/credentials.toml", ".gradle/gradle.properties", ".gradle/init.d",
    ".m2/settings.xml", ".m2/settings-security.xml", ".gem/credentials", ".local/share/gem/credentials",
    ".bundle/config", ".composer/auth.json", ".hex/hex.config", ".nuget/NuGet", ".dotnet/corefx", ".aspnet",
    ".rye/credentials", ".cache/huggingface", ".cache/mozilla", ".local/share/keyrings",
    ".local/share/python_keyring", ".local/share/containers", ".local/share/uv/credentials",
    ".config/composer/auth.json", ".config/gh", ".config/glab-cli", ".config/git", ".config/gcloud", ".config/op",
    ".config/rclone", ".config/sops", ".config/NuGet", ".config/containers", ".config/pypoetry",
    ".config/configstore", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware",
    ".config/microsoft-edge", ".config/systemd", ".bash_history", ".zsh_history", ".python_history",
    ".node_repl_history", ".psql_history", ".mysql_history", "Library/Cookies", "Library/Keychains", "Library/Mail",
    "Library/Messages", "Library/Safari",
)  # fmt: skip
# Variables that relocate such files.
CREDENTIAL_VARIABLES = (
    "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AZURE_CONFIG_DIR", "BOTO_CONFIG", "CLOUDSDK_CONFIG", "CONDARC",
    "DOCKER_CONFIG", "GH_CONFIG_DIR", "GIT_CONFIG_GLOBAL", "GLAB_CONFIG_DIR", "GNUPGHOME",
    "GOOGLE_APPLICATION_CREDENTIALS", "KUBECONFIG", "NETRC", "NPM_CONFIG_GLOBALCONFIG", "NPM_CONFIG_USERCONFIG",
    "PASSWORD_STORE_DIR", "PGPASSFILE", "PIP_CONFIG_FILE", "RCLONE_CONFIG", "npm_config_globalconfig",
    "npm_config_userconfig",
)  # fmt: skip
# Never mounted as a whole, because private files are in them. The first are relative to the home folder.
BROAD_HOME_FOLDERS = (".", ".config", ".local", ".local/share", ".local/state", ".cache", ".var", "snap", "Library",
        "Library/Application Support", "Library/Caches")  # fmt: skip
BROAD_FOLDERS = ("/", "/home", "/root", "/Users", "/proc", "/dev", "/run", "/var", "/var/lib")
# Variables that relocate settings, data and caches.
XDG_VARIABLES = (
    ("~/.config/", "XDG_CONFIG_HOME"), ("~/.local/share/", "XDG_DATA_HOME"), ("~/.local/state/", "XDG_STATE_HOME"),
    ("~/.cache/", "XDG_CACHE_HOME"),
)  # fmt: skip
# Variables that relocate the home of one tool, with the logins in it.
TOOL_HOME_VARIABLES = (
    ("~/.cargo/", "CARGO_HOME"), ("~/.gradle/", "GRADLE_USER_HOME"), ("~/.composer/", "COMPOSER_HOME"),
    ("~/.hex/", "HEX_HOME"), ("~/.bundle/", "BUNDLE_USER_HOME"), ("~/.rye/", "RYE_HOME"),
)  # fmt: skip
MAX_LINKS = 40  # one after another; the kernel follows no more


def home_folder(environ: Mapping[str, str]) -> str:
    """HOME of an environment, or the user's home folder."""
    return environ.get("HOME") or os.path.expanduser("~")


def home_folders(home: str) -> tuple[str, ...]:
    """This home folder and the one of the user database, which may differ; real paths."""
    try:
        import pwd

        known = pwd.getpwuid(os.getuid()).pw_dir
    except (ImportError, KeyError):  # a user without a name
        known = ""
    return tuple(dict.fromkeys(os.path.realpath(one) for one in (home, known) if os.path.isabs(one)))


@value
class HiddenPaths:
    """Real paths that are never mounted as a whole (`wide`), and those of which nothing is mounted (`private`)."""

    wide: tuple[str, ...]
    private: tuple[str, ...]

    def exposed_by(self, path: str) -> str:
        """What of this a path would show; empty where it shows nothing."""
        real = os.path.realpath(path)
        whole = (hidden for hidden in self.wide if is_within(hidden, real))
        return next(whole, "") or self.private_exposed_by(path)

    def private_exposed_by(self, path: str) -> str:
        """What a path would show of that of which nothing is shown; empty where it shows nothing of it."""
        real = os.path.realpath(path)
        return next((hidden for hidden in self.private if is_within(hidden, real) or is_within(real, hidden)), "")


def find_hidden_paths(
    home: str, environ: Mapping[str, str] | None = None, state_dirs: Iterable[str] = ()
) -> HiddenPaths:
    """Hidden paths of a home folder, also where `environ` relocates them, and the state folders of this program, of
    which single files may be mounted.
    """
    environ = environ or {}
    homes = [one for one in home_folders(home) if one != "/"]
    private = [os.path.join(top, name) for top in homes for name in PRIVATE_PATHS]
    wide = [*state_dirs, *BROAD_FOLDERS, *(os.path.join(top, name) for top in homes for name in BROAD_HOME_FOLDERS)]
    for beginning, variable in (*XDG_VARIABLES, *TOOL_HOME_VARIABLES):
        if os.path.isabs(moved := environ.get(variable, "")):
            names = (name.removeprefix(beginning[2:]) for name in PRIVATE_PATHS if name.startswith(beginning[2:]))
            private += [os.path.join(moved, name) for name in names]
            wide += [moved] if (beginning, variable) in XDG_VARIABLES else []
    for variable in CREDENTIAL_VARIABLES:
        private += [one for one in environ.get(variable, "").split(os.pathsep) if os.path.isabs(one)]
    private = [os.path.normpath(one) for one in private if one != os.devnull]
    return HiddenPaths(
        tuple(dict.fromkeys(map(os.path.realpath, wide))),
        tuple(dict.fromkeys((*private, *map(os.path.realpath, private)))),
    )


def mounts_for_path(path: str) -> Iterator[Mount]:
    """Mounts that make an existing file or folder readable by this path and by its real path."""
    real = os.path.realpath(path)
    if os.path.exists(real):
        yield Mount(READ_ONLY, real)
        if path != real:
            yield Mount(READ_ONLY, path, real)


def follow_links(path: str) -> Iterator[str]:
    """A path and every path that it leads to by links, in order; all absolute.

    Where the folder of a link is itself reached through links, the target is resolved from both paths.
    """
    queue, seen = [os.path.abspath(path)], set[str]()
    while queue and len(seen) < MAX_LINKS:
        place = queue.pop(0)
        if place in seen or not os.path.lexists(place):
            continue
        seen.add(place)
        yield place
        folder, name = os.path.split(place)
        real = os.path.join(os.path.realpath(folder), name)
        if os.path.islink(place):
            target = os.readlink(place)
            queue += [os.path.normpath(os.path.join(os.path.dirname(one), target)) for one in (place, real)]
        queue.append(real)


def locate_path(variable: str, usual: str, environ: Mapping[str, str], home: str) -> Iterator[tuple[str, str]]:
    """Host path and inside path of something that its own variable or an XDG variable may relocate."""
    named = environ.get(variable, "") if variable else ""
    if os.path.isabs(named):
        yield named, named
        return
    inside = expand_home(usual, home)
    yield inside, inside
    for beginning, mover in XDG_VARIABLES:
        moved = environ.get(mover, "")
        if usual.startswith(beginning) and os.path.isabs(moved):
            there = os.path.join(moved, usual.removeprefix(beginning))
            yield there, there
            yield there, inside


# Read-only mounts of the host: system, installed tools, programs and this interpreter, with logins covered.


# Logins in mounted folders: files that are covered, and settings that are never mounted.


# Names of files that hold logins, or may.
LOGIN_FILE_NAMES = frozenset((
    ".npmrc", "npmrc", ".yarnrc", ".yarnrc.yml", ".condarc", "condarc", ".netrc", ".pypirc", "pip.conf", "credentials",
    "credentials.toml", "auth.json", "auth.toml", "gradle.properties", "hex.config", ".git-credentials", "bunfig.toml",
    ".bunfig.toml",
))  # fmt: skip
# Large folders of packages; no tool keeps its settings there.
SKIPPED_FOLDERS = frozenset((
    "lib", "lib32", "lib64", "libexec", "include", "share", "bin", "sbin", "shims", "src", "man", "node_modules",
    "site-packages", "__pycache__", ".git", "content-v2", "index-v5", "tmp", "toolchains", "registry", "archive-v0",
    "repository", "mod", "pkgs", "conda-meta", "ssl", "downloads", "sources", "test", "doc", "docs",
))  # fmt: skip
MAX_LOGIN_DEPTH = 6  # ~/.pyenv/versions/3.12/envs/NAME/pip.conf has five
MAX_LOGIN_ENTRIES = 20_000  # entries looked at in one folder of tools, the nearest to its top first
TOOL_SETTINGS_FILES = ("config.toml", "config")  # of cargo: they say how to build, and may hold what is to be kept
SECRET_PATTERN = rb"(?i)token|passw|secret|_auth|://[^/\s\"']*@"
MAX_SETTINGS_BYTES = 1 << 20


def login_covers(mounts: Iterable[Mount]) -> Iterator[Mount]:
    """Covers over login files in mounted folders."""
    for mount in mounts:
        if mount.source != DEV_NULL and os.path.isdir(mount.host_path):
            for file in _find_login_files(mount.host_path):
                yield Mount(READ_ONLY, mount.path.rstrip("/") + file[len(mount.host_path) :], DEV_NULL)


def _find_login_files(top: str) -> Iterator[str]:
    """Files below a folder whose names say that they hold logins; links are resolved."""
    queue, looked_at = [(top, 1)], 0
    for folder, depth in queue:  # which grows meanwhile
        try:
            with os.scandir(folder) as listing:
                entries = list(listing)
        except OSError:
            continue
        looked_at += len(entries)
        if looked_at > MAX_LOGIN_ENTRIES:
            return
        for entry in entries:
            real = os.path.realpath(entry.path) if entry.name in LOGIN_FILE_NAMES else ""
            if real and os.path.isfile(real) and is_within(real, top):
                yield real
            elif depth < MAX_LOGIN_DEPTH and entry.name not in SKIPPED_FOLDERS and entry.is_dir(follow_symlinks=False):
                queue.append((entry.path, depth + 1))


def holds_secrets(path: str) -> bool:
    """Whether a settings file seems to hold secrets."""
    if os.path.basename(path) not in TOOL_SETTINGS_FILES or not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as file:
            return re.search(SECRET_PATTERN, file.read(MAX_SETTINGS_BYTES)) is not None
    except OSError:
        return True


def covers_for_paths(places: Iterable[str], mounts: Iterable[Mount], empty: str = DEV_NULL) -> tuple[Mount, ...]:
    """Covers over these real paths of the host, wherever one of the mounts shows them.

    `empty` is the folder that covers folders.
    """
    there = [(place, kind) for place in places if (kind := _file_type(place))]
    covers = (
        Mount(READ_ONLY, inside, empty if stat.S_ISDIR(kind) else DEV_NULL)
        for mount in mounts
        if mount.kind != EMPTY_FOLDER and mount.source != DEV_NULL
        for place, kind in there
        if is_within(place, mount.host_path)
        for inside in [mount.path.rstrip("/") + place[len(mount.host_path.rstrip("/")) :]]
    )
    return tuple(dict.fromkeys(covers))


def _file_type(path: str) -> int:
    try:
        return stat.S_IFMT(os.lstat(path).st_mode)
    except OSError:
        return 0


# System folders: a list of what programs are installed in, not everything minus exceptions.


# Links into /usr on most systems, folders on others.
TOP_LEVEL_FOLDERS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
SYSTEM_FOLDERS = (
    "/usr", "/etc", "/opt", "/snap", "/nix/store", "/nix/var/nix/profiles", "/gnu/store", "/run/current-system",
    "/var/lib/ca-certificates",  # what /etc/ssl/certs leads to on SUSE
    "/sys/devices/system",  # how many processors there are
)  # fmt: skip
SEARCHED_FOLDERS = ("/etc", "/opt", "/usr/local")  # for what others may not read; the rest comes from packages
MAX_SYSTEM_ENTRIES = (
    50_000  # entries looked at: the nearest to the top first, since settings lie there and not deep below
)
ETC_FOLDER = "/etc"  # where nothing that is not for everybody is needed, whoever may read it
UNIX_SOCKETS_FILE = "/proc/net/unix"


def system_mounts(root_user: bool, empty: str) -> tuple[Mount, ...]:
    """The system, read-only, with sockets and files that only root may read covered.

    Root can read everything, so for root files that others may not read (passwords, keys) are covered. For other users
    these are such files that they may read as members of a group. `empty` is an empty folder.
    """
    mounts = [
        Mount(READ_ONLY, path, _mount_source(path))
        for path in (*TOP_LEVEL_FOLDERS, *SYSTEM_FOLDERS)
        if os.path.isdir(path)
    ]
    searched = [path for path in SEARCHED_FOLDERS if os.path.isdir(path)]
    return (*mounts, *_private_entry_covers(searched, root_user, empty), *socket_covers(mounts))


def _mount_source(path: str) -> str:
    real = os.path.realpath(path)
    return "" if real == path else real


def is_in_system(path: str) -> bool:
    """Whether `system_mounts` shows a path, wherever its links lead."""
    root = next((root for root in (*TOP_LEVEL_FOLDERS, *SYSTEM_FOLDERS) if is_within(path, root)), "")
    return bool(root) and (os.geteuid() != 0 or not _is_covered_for_root(path, root))


def _is_covered_for_root(path: str, root: str) -> bool:
    """Whether a path, or a folder above it, is readable by its owner alone, and so is covered for root."""
    while path != root:
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            return False
        if _is_owner_only(mode):
            return True
        path = os.path.dirname(path)
    return False


def _is_owner_only(mode: int) -> bool:
    """Whether others may not read the file or not enter the folder."""
    return (stat.S_ISREG(mode) and not mode & stat.S_IROTH) or (stat.S_ISDIR(mode) and not mode & stat.S_IXOTH)


def _private_entry_covers(folders: Iterable[str], root_user: bool, empty: str) -> Iterator[Mount]:
    """Covers over private entries, searched from the top down."""
    queue, looked_at = list(folders), 0
    for folder in queue:  # which grows meanwhile
        for entry, mode in _folder_entries(folder):
            looked_at += 1
            if looked_at > MAX_SYSTEM_ENTRIES:
                return
            secret = _is_owner_only(mode) and (
                root_user or (is_within(entry, ETC_FOLDER) and os.access(entry, os.R_OK))
            )
            if stat.S_ISSOCK(mode) or secret:
                yield Mount(READ_ONLY, entry, empty if stat.S_ISDIR(mode) else DEV_NULL)
            elif stat.S_ISDIR(mode):
                queue.append(entry)


def _folder_entries(folder: str) -> Iterator[tuple[str, int]]:
    """Entries of a folder with type and mode; empty if it cannot be read."""
    try:
        with os.scandir(folder) as listing:
            for entry in listing:
                try:
                    yield entry.path, entry.stat(follow_symlinks=False).st_mode
                except OSError:  # it has just gone
                    continue
    except OSError:
        return


def socket_covers(mounts: Iterable[Mount], table: str = UNIX_SOCKETS_FILE, folder: str = "/") -> tuple[Mount, ...]:
    """Covers over sockets that the kernel lists and that could be connected to through one of the mounts.

    A read-only mount does not prevent connecting. A socket may be listed by a path relative to its server's directory:
    that is looked up in `folder`.
    """
    try:
        with open(table, encoding="utf-8", errors="surrogateescape") as file:
            named = [line.rstrip("\n").split(maxsplit=7)[7:] for line in file]
    except OSError:
        return ()
    bound = {os.path.join(folder, name) for names in named for name in names if not name.startswith("@")}
    return covers_for_paths([os.path.realpath(path) for path in sorted(bound) if _is_socket(path)], mounts)


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False


# What a program needs: the links to it, its installation folder and its interpreter.


BINARY_FOLDERS = ("bin", "sbin", ".bin", "shims", "Scripts")  # folders that hold programs and nothing else
NODE_MODULES = "node_modules"
# Entries beside `bin` that mark an installation, and entries that mark a work tree.
INSTALLATION_SIGNS = ("lib", "lib64", "libexec", "share", "pyvenv.cfg", "codex-resources")
PROJECT_SIGNS = (".git", ".hg", ".svn", "package.json", "pyproject.toml", "Cargo.toml", "go.mod", "Makefile")
FIRST_LINE_BYTES = 512
MAX_PROGRAM_PLACES = 64  # places that one program may lead to


def program_mounts(path: str, environ: Mapping[str, str]) -> tuple[Mount, ...]:
    """Everything that a program or plain file needs beyond what the system mounts show.

    Never a folder that holds private files of a home: of such a folder only the file itself is mounted. Logins are
    never mounted: the first line of a program may have been written from inside.
    """
    hidden = find_hidden_paths(home_folder(environ), environ)
    found: dict[Mount, None] = {}
    queue, seen = [os.path.abspath(path)], set[str]()
    while queue and len(seen) < MAX_PROGRAM_PLACES:
        place = queue.pop(0)
        if place in seen:
            continue
        seen.add(place)
        for hop in follow_links(place):
            needed = _paths_needed_by(hop, hidden)
            found |= dict.fromkeys(mounts_for_path(needed) if not hidden.private_exposed_by(needed) else ())
            queue += [interpreter for interpreter in [script_interpreter(hop, environ)] if interpreter]
    kept = [mount for mount in found if not is_in_system(mount.path)]
    return (*kept, *dict.fromkeys((*login_covers(kept), *socket_covers(kept))))


def _paths_needed_by(place: str, hidden: HiddenPaths) -> str:
    """Paths to mount for a program: the folder of a link, so that it stays a link; else the installation."""
    folder = os.path.dirname(place)
    if not os.path.islink(place):
        return installation_folder(place, hidden)
    kept = os.path.basename(folder) in BINARY_FOLDERS and not hidden.exposed_by(folder)
    return installation_folder(folder, hidden) if kept else place


def installation_folder(place: str, hidden: HiddenPaths) -> str:
    """The folder that a program, or a folder of programs, is installed in; the path itself if there is none."""
    parts = place.split("/")
    if NODE_MODULES in parts:  # a package finds others in every such folder above it
        packages = "/".join(parts[: parts.index(NODE_MODULES) + 1])
        return place if hidden.exposed_by(packages) else packages
    folder = place if os.path.isdir(place) else os.path.dirname(place)
    above = os.path.dirname(folder)
    whole = (
        os.path.basename(folder) in BINARY_FOLDERS
        and _has_any_entry(above, INSTALLATION_SIGNS)
        and not _has_any_entry(above, PROJECT_SIGNS)
    )
    return above if whole and not hidden.exposed_by(above) else place


def _has_any_entry(folder: str, names: tuple[str, ...]) -> bool:
    return any(os.path.exists(os.path.join(folder, name)) for name in names)


def script_interpreter(path: str, environ: Mapping[str, str]) -> str:
    """The interpreter in the first line of a script; empty if there is none."""
    words = _read_first_line(path)
    if not words:
        return ""
    if os.path.basename(words[0]) != "env":
        return find_program(words[0], "") or ""
    name = next((word for word in words[1:] if not word.startswith("-") and "=" not in word), "")
    return find_program(name, environ.get("PATH", os.defpath)) or ""


def _read_first_line(path: str) -> list[str]:
    if not os.path.isfile(path):  # a pipe would be waited for
        return []
    try:
        with open(path, "rb") as file:
            line = file.read(FIRST_LINE_BYTES).partition(b"\n")[0]
    except OSError:
        return []
    return line[2:].decode("utf-8", "surrogateescape").split() if line.startswith(b"#!") else []


def path_folders(environ: Mapping[str, str]) -> Iterator[str]:
    """Absolute folders of PATH."""
    for folder in environ.get("PATH", os.defpath).split(os.pathsep):
        if os.path.isabs(folder):
            yield os.path.normpath(folder)


# Tools in the home folder and package caches: read-only, without logins.


# Version managers of interpreters and compilers, whatever ecosystem the project uses.
VERSION_MANAGERS = (
    ToolFolder("~/.pyenv", "PYENV_ROOT"), ToolFolder("~/.local/share/uv/python", "UV_PYTHON_INSTALL_DIR"),
    ToolFolder("~/.local/share/uv/tools", "UV_TOOL_DIR"), ToolFolder("~/.local/pipx", "", ("venvs", "shared")),
    ToolFolder("~/.local/share/pipx", "PIPX_HOME", ("venvs", "shared", "py")),
    ToolFolder("~/.rye", "RYE_HOME", ("py", "self", "shims", "tools", "uv")),
    ToolFolder("~/miniconda3"), ToolFolder("~/anaconda3"), ToolFolder("~/miniforge3"), ToolFolder("~/mambaforge"),
    ToolFolder("~/micromamba", "MAMBA_ROOT_PREFIX"), ToolFolder("~/.conda", "", ("envs", "pkgs")),
    ToolFolder("", "CONDA_PREFIX"), ToolFolder("", "VIRTUAL_ENV"),
    ToolFolder("~/.nvm", "NVM_DIR"), ToolFolder("~/.config/nvm"), ToolFolder("~/.local/share/fnm", "FNM_DIR"),
    ToolFolder("~/.fnm"),
    ToolFolder("~/.volta", "VOLTA_HOME"), ToolFolder("~/.nodenv", "NODENV_ROOT"),
    ToolFolder("~/n", "N_PREFIX", ("bin", "lib", "n")),
    ToolFolder("~/.local/share/pnpm", "PNPM_HOME"), ToolFolder("~/.yarn", "", ("bin", "releases")),
    ToolFolder("~/.npm-global"),
    ToolFolder("~/.config/yarn/global/node_modules"), ToolFolder("~/.bun", "BUN_INSTALL", ("bin", "install/global")),
    ToolFolder("~/.deno", "DENO_INSTALL", ("bin",)),
    ToolFolder("~/.asdf", "ASDF_DATA_DIR"), ToolFolder("~/.asdf", "ASDF_DIR"), ToolFolder("~/.tool-versions"),
    ToolFolder("~/.local/share/mise", "MISE_DATA_DIR"),
    ToolFolder("~/.rustup", "RUSTUP_HOME"), ToolFolder("~/.cargo", "CARGO_HOME", ("bin",)),
    ToolFolder("~/.rbenv", "RBENV_ROOT"),
    ToolFolder("~/.rvm", "", ("bin", "gems", "rubies", "scripts", "environments", "wrappers")),
    ToolFolder("~/.sdkman", "SDKMAN_DIR", ("bin", "candidates", "etc", "src", "var")),
    ToolFolder("~/.jenv", "JENV_ROOT"), ToolFolder("", "JAVA_HOME"),
    ToolFolder("~/.goenv", "GOENV_ROOT"), ToolFolder("~/sdk"), ToolFolder("", "GOROOT"),
    ToolFolder("~/.phpenv", "PHPENV_ROOT"), ToolFolder("~/.ghcup", "", ("bin", "ghc", "cache")),
    ToolFolder("~/.opam", "OPAMROOT"),
    ToolFolder("~/.juliaup"), ToolFolder("~/.julia/juliaup"), DOTNET_FOLDER,
    ToolFolder("/home/linuxbrew/.linuxbrew", "HOMEBREW_PREFIX"),
    ToolFolder("~/.nix-profile"), ToolFolder("~/.local/state/nix/profiles"),
)  # fmt: skip
NON_TOOL_FOLDERS = ("/proc", "/sys", "/dev", "/run", "/tmp", "/var", "/srv", "/mnt", "/media", "/root", "/home")  # noqa: S108


def tool_mounts(environ: Mapping[str, str], home: str, ecosystems: Iterable[Ecosystem]) -> tuple[Mount, ...]:
    """Tools in the home folder, what PATH leads to, and the caches of these ecosystems."""
    hidden = find_hidden_paths(home, environ)
    places = [
        *VERSION_MANAGERS,
        *(place for one in ecosystems for place in one.tool_folders),
        *(ToolFolder("", name) for name in CERTIFICATE_VARIABLES),
    ]
    wanted = [
        *_path_tool_folders(environ, home, hidden),
        *(pair for one in places for pair in _tool_folder_paths(one, environ, home)),
    ]
    seen = [
        mount
        for source, inside in wanted
        if os.path.exists(source) and source not in NON_TOOL_FOLDERS and not hidden.exposed_by(source)
        if not holds_secrets(source)
        for mount in (
            [Mount(READ_ONLY, inside, os.path.realpath(source))] if source != inside else mounts_for_path(source)
        )
        if not is_in_system(mount.path)
    ]
    return tuple(dict.fromkeys((*seen, *login_covers(seen))))


def _path_tool_folders(environ: Mapping[str, str], home: str, hidden: HiddenPaths) -> Iterator[tuple[str, str]]:
    """Folders of PATH that the system mounts do not show, each with its installation."""
    homes = (home, *home_folders(home))
    for folder in path_folders(environ):
        at_home = any(is_within(one, top) for one in (folder, os.path.realpath(folder)) for top in homes)
        if not at_home and any(is_within(folder, top) for top in NON_TOOL_FOLDERS):
            continue
        if not is_in_system(folder) and not hidden.exposed_by(folder):
            whole = installation_folder(folder, hidden)
            yield whole, whole


def _tool_folder_paths(place: ToolFolder, environ: Mapping[str, str], home: str) -> Iterator[tuple[str, str]]:
    for source, inside in locate_path(place.variable, place.folder, environ, home):
        for part in place.shown_parts or ("",):
            yield os.path.normpath(os.path.join(source, part)), os.path.normpath(os.path.join(inside, part))


def interpreter_mounts() -> tuple[Mount, ...]:
    """This interpreter and this package, which our own programs inside need."""
    needed = [
        *program_mounts(interpreter.python_executable(), os.environ),
        *(one for path in _interpreter_folders() for one in mounts_for_path(path)),
    ]
    kept = [mount for mount in needed if not is_in_system(mount.path)]
    return tuple(dict.fromkeys((*kept, *login_covers(kept))))


def _interpreter_folders() -> Iterator[str]:
    """Folders of the interpreter, and the package with what is installed beside it."""
    hidden = find_hidden_paths(os.path.expanduser("~"), os.environ)
    for prefix in dict.fromkeys((sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)):
        if not hidden.exposed_by(prefix):
            yield prefix
        else:  # it was installed among everything else that is at home
            yield os.path.dirname(os.path.abspath(os.__file__))
            yield from _shared_libraries(os.path.join(prefix, "lib"))
    beside = interpreter.ROOT
    yield beside if os.path.basename(beside) in interpreter.SITE_FOLDERS else interpreter.PACKAGE


def _shared_libraries(folder: str) -> Iterator[str]:
    try:
        names = os.listdir(folder)
    except OSError:
        return
    yield from (os.path.join(folder, name) for name in names if name.startswith("libpython"))


def filter_mounts(
    mounts: Iterable[Mount], home: str, environ: Mapping[str, str], state_dirs: Iterable[str]
) -> tuple[Mount, ...]:
    """The mounts without those that show too much and without redundant ones; folders before their contents, sockets
    covered.

    Too much is a home folder, the state of this program, and folders of logins.
    """
    hidden = find_hidden_paths(home, environ, state_dirs)
    named = {
        mount.path: mount for mount in mounts if mount.source == DEV_NULL or not hidden.exposed_by(mount.host_path)
    }
    kept: list[Mount] = []
    for mount in sorted(named.values(), key=lambda one: one.path.count("/")):
        nearest = next((over for over in reversed(kept) if is_within(mount.path, over.path)), None)
        if nearest is None or not _already_shows(nearest, mount):
            kept.append(mount)
    covers = [cover for cover in socket_covers(kept) if cover.path not in named]
    return tuple(sorted((*kept, *covers), key=lambda one: one.path.count("/")))


def system_login_covers(
    mounts: Iterable[Mount], home: str, environ: Mapping[str, str], empty: str
) -> tuple[Mount, ...]:
    """Covers over logins that the system mounts show: a variable may name one anywhere."""
    return covers_for_paths(find_hidden_paths(home, environ).private, mounts, empty)


def _already_shows(over: Mount, mount: Mount) -> bool:
    """Whether the mount of a folder shows what another mount below it does."""
    place = os.path.join(over.host_path, os.path.relpath(mount.path, over.path))
    return over.kind == mount.kind and os.path.realpath(place) == os.path.realpath(mount.host_path)


def read_path_problem(entry: str) -> str:
    """What is wrong with an entry of sandbox.readPaths; empty if nothing is."""
    path, home = os.path.expanduser(entry), os.path.expanduser("~")
    if not os.path.isabs(path):
        return f"{entry!r} is not absolute; write the whole path, or ~/..."
    if is_within(home, os.path.normpath(path)) or is_within(os.path.realpath(home), os.path.realpath(path)):
        return f"{entry!r} holds your home folder; name what is needed in it"
    if secret := find_hidden_paths(home, os.environ).exposed_by(path):
        return f"{entry!r} would show {secret}, which no sandbox shows; name what is needed"
    return ""
