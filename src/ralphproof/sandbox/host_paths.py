"""Paths of the host: links, home folders, and private places that no sandbox shows."""

from __future__ import annotations

import os

from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.sandbox.plan import READ_ONLY, Mount

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

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


def is_within(path: str, folder: str) -> bool:
    """Whether a path is this folder or below it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


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


def expand_home(path: str, home: str) -> str:
    """A path that may begin with `~/`."""
    return os.path.normpath(os.path.join(home, path.removeprefix("~/")))
