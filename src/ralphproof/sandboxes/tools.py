"""Tools that are installed in a home folder, and caches of packages: shown read-only, without the logins among them."""

from __future__ import annotations

import os

from ralphproof.sandboxes.box import READ, Mount
from ralphproof.sandboxes.ecosystems import DOTNET, Place
from ralphproof.sandboxes.logins import logins_in, tells_logins
from ralphproof.sandboxes.places import hidden, homes_of, placed, shown, within
from ralphproof.sandboxes.programs import folders_of, installation
from ralphproof.sandboxes.roots import in_system
from ralphproof.sandboxes.variables import TRUSTED
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ralphproof.sandboxes.ecosystems import Ecosystem
    from ralphproof.sandboxes.places import Hidden

# What keeps versions of interpreters and compilers, whatever the project is of.
KEEPERS = (
    Place("~/.pyenv", "PYENV_ROOT"), Place("~/.local/share/uv/python", "UV_PYTHON_INSTALL_DIR"),
    Place("~/.local/share/uv/tools", "UV_TOOL_DIR"), Place("~/.local/pipx", "", ("venvs", "shared")),
    Place("~/.local/share/pipx", "PIPX_HOME", ("venvs", "shared", "py")),
    Place("~/.rye", "RYE_HOME", ("py", "self", "shims", "tools", "uv")),
    Place("~/miniconda3"), Place("~/anaconda3"), Place("~/miniforge3"), Place("~/mambaforge"),
    Place("~/micromamba", "MAMBA_ROOT_PREFIX"), Place("~/.conda", "", ("envs", "pkgs")), Place("", "CONDA_PREFIX"),
    Place("", "VIRTUAL_ENV"),
    Place("~/.nvm", "NVM_DIR"), Place("~/.config/nvm"), Place("~/.local/share/fnm", "FNM_DIR"), Place("~/.fnm"),
    Place("~/.volta", "VOLTA_HOME"), Place("~/.nodenv", "NODENV_ROOT"), Place("~/n", "N_PREFIX", ("bin", "lib", "n")),
    Place("~/.local/share/pnpm", "PNPM_HOME"), Place("~/.yarn", "", ("bin", "releases")), Place("~/.npm-global"),
    Place("~/.config/yarn/global/node_modules"), Place("~/.bun", "BUN_INSTALL", ("bin", "install/global")),
    Place("~/.deno", "DENO_INSTALL", ("bin",)),
    Place("~/.asdf", "ASDF_DATA_DIR"), Place("~/.asdf", "ASDF_DIR"), Place("~/.tool-versions"),
    Place("~/.local/share/mise", "MISE_DATA_DIR"),
    Place("~/.rustup", "RUSTUP_HOME"), Place("~/.cargo", "CARGO_HOME", ("bin",)),
    Place("~/.rbenv", "RBENV_ROOT"),
    Place("~/.rvm", "", ("bin", "gems", "rubies", "scripts", "environments", "wrappers")),
    Place("~/.sdkman", "SDKMAN_DIR", ("bin", "candidates", "etc", "src", "var")), Place("~/.jenv", "JENV_ROOT"),
    Place("", "JAVA_HOME"),
    Place("~/.goenv", "GOENV_ROOT"), Place("~/sdk"), Place("", "GOROOT"),
    Place("~/.phpenv", "PHPENV_ROOT"), Place("~/.ghcup", "", ("bin", "ghc", "cache")), Place("~/.opam", "OPAMROOT"),
    Place("~/.juliaup"), Place("~/.julia/juliaup"), DOTNET,
    Place("/home/linuxbrew/.linuxbrew", "HOMEBREW_PREFIX"),
    Place("~/.nix-profile"), Place("~/.local/state/nix/profiles"),
)  # fmt: skip
ELSEWHERE = ("/proc", "/sys", "/dev", "/run", "/tmp", "/var", "/srv", "/mnt", "/media", "/root", "/home")  # noqa: S108


def tools(environ: Mapping[str, str], home: str, ecosystems: Iterable[Ecosystem]) -> tuple[Mount, ...]:
    """What is installed in the home folder, what PATH leads to, and the caches of these ecosystems."""
    out_of_sight = hidden(home, environ)
    places = [*KEEPERS, *(place for one in ecosystems for place in one.places), *(Place("", name) for name in TRUSTED)]
    wanted = [*_on_path(environ, home, out_of_sight), *(pair for one in places for pair in _kept(one, environ, home))]
    seen = [
        mount
        for source, inside in wanted
        if os.path.exists(source) and source not in ELSEWHERE and not out_of_sight.in_(source)
        if not tells_logins(source)
        for mount in ([Mount(READ, inside, os.path.realpath(source))] if source != inside else shown(source))
        if not in_system(mount.path)
    ]
    return tuple(dict.fromkeys((*seen, *logins_in(seen))))


def _on_path(environ: Mapping[str, str], home: str, out_of_sight: Hidden) -> Iterator[tuple[str, str]]:
    """Folders of programs that the system does not show, each with what is installed around it."""
    homes = (home, *homes_of(home))
    for folder in folders_of(environ):
        at_home = any(within(one, top) for one in (folder, os.path.realpath(folder)) for top in homes)
        if not at_home and any(within(folder, top) for top in ELSEWHERE):
            continue
        if not in_system(folder) and not out_of_sight.in_(folder):
            whole = installation(folder, out_of_sight)
            yield whole, whole


def _kept(place: Place, environ: Mapping[str, str], home: str) -> Iterator[tuple[str, str]]:
    for source, inside in placed(place.variable, place.folder, environ, home):
        for part in place.parts or ("",):
            yield os.path.normpath(os.path.join(source, part)), os.path.normpath(os.path.join(inside, part))
