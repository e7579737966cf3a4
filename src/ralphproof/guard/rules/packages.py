"""Rules on publishing, and on system-wide packages."""

from __future__ import annotations

import re

from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.guard.matching import shown, told
from ralphproof.guard.simple import Simple, has, named, split, value_of
from ralphproof.guard.verdict import Objection, Rule
from ralphproof.guard.web import is_local
from ralphproof.guard.wrap import is_contained

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.guard.matching import Table
    from ralphproof.guard.verdict import Ground

PUBLISH = Rule(
    "publish", "packages", "publishes for everybody to see",
    "build without publishing: `--dry-run`, `npm pack`, `twine check`",
)  # fmt: skip
UNPUBLISH = Rule("unpublish", "packages", "takes back or moves what others depend on", "publish a new version, by hand")
GLOBAL = Rule(
    "global-package", "packages", "installs or removes packages of the whole machine",
    "install into the project: a virtual environment, node_modules",
)  # fmt: skip
SYSTEM_PACKAGE = Rule(
    "system-package", "packages", "changes the packages of the system",
    "say which package is missing",
)  # fmt: skip
SOURCE = Rule(
    "package-source", "packages", "takes packages from another place than the usual one",
    "use the project's own package index",
)  # fmt: skip
RULES = (PUBLISH, UNPUBLISH, GLOBAL, SYSTEM_PACKAGE, SOURCE)
APT = (("install|remove|purge|autoremove|upgrade|dist-upgrade|full-upgrade|reinstall", SYSTEM_PACKAGE),)
RPM = (("install|remove|erase|update|upgrade|downgrade|reinstall|autoremove|group*|swap", SYSTEM_PACKAGE),)
GLOBALLY = (
    ("publish !--dry-run|-n", PUBLISH), ("npm publish", PUBLISH), ("unpublish|deprecate", UNPUBLISH),
    ("dist-tag|tag add|rm|remove", UNPUBLISH),
    ("owner|access add|rm|grant|revoke", UNPUBLISH),
    ("install|i|add|uninstall|un|remove|rm|update|link|ci +-g|--global|--location=global", GLOBAL),
    ("global add|remove|upgrade", GLOBAL),
    ("config|c set registry*|*:registry*", SOURCE), ("login|adduser|logout", UNPUBLISH),
    ("token create|revoke", UNPUBLISH),
)  # fmt: skip
PIP = (
    ("install +--break-system-packages", GLOBAL),
    ("uninstall +--break-system-packages", GLOBAL),
    ("config set *index*", SOURCE),
)
TABLE: Table = {
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), GLOBALLY), **dict.fromkeys(("pip", "uv-pip"), PIP),
    "twine": (("upload", PUBLISH),),
    "cargo": (("publish !--dry-run|-n", PUBLISH), ("yank|owner", UNPUBLISH), ("login", UNPUBLISH)),
    "poetry": (("publish !--dry-run", PUBLISH), ("source add", SOURCE)), "uv": (("publish !--dry-run", PUBLISH),),
    "flit": (("publish", PUBLISH),),
    "hatch": (("publish", PUBLISH),), "pdm": (("publish", PUBLISH),),
    "gem": (("push", PUBLISH), ("yank|owner", UNPUBLISH)), "lerna": (("publish", PUBLISH),),
    "changeset": (("publish", PUBLISH),), "semantic-release": (("!-d|--dry-run", PUBLISH),), "np": (("", PUBLISH),),
    "release-it": (("!--dry-run", PUBLISH),),
    "mvn": (("deploy|*:deploy|release:perform", PUBLISH), ("* deploy", PUBLISH)),
    "gradlew": (("publish*|uploadArchives", PUBLISH),), "gradle": (("publish*|uploadArchives", PUBLISH),),
    "dotnet": (("nuget push|delete", PUBLISH),), "nuget": (("push|delete", PUBLISH),),
    "docker": (("push", PUBLISH), ("image push", PUBLISH), ("compose push", PUBLISH)),
    "podman": (("push", PUBLISH),), "helm": (("push", PUBLISH),), "vsce": (("publish|unpublish", PUBLISH),),
    "ovsx": (("publish", PUBLISH),),
    "goreleaser": (("release !--snapshot|--skip=publish", PUBLISH),),
    "composer": (("global require|remove|update", GLOBAL),), "mix": (("hex.publish", PUBLISH),),
    "luarocks": (("upload", PUBLISH),),
    "pod": (("trunk push|delete", PUBLISH),), "jsr": (("publish !--dry-run", PUBLISH),),
    "deno": (("publish !--dry-run", PUBLISH),), "eas": (("submit", PUBLISH),),
    "fastlane": (("deliver|supply|release", PUBLISH),),
    "dart": (("pub publish !--dry-run", PUBLISH),), "flutter": (("pub publish !--dry-run", PUBLISH),),
    "sbt": (("publish*", PUBLISH),), "conda": (("remove|uninstall +-n", GLOBAL),),
    **dict.fromkeys(("apt", "apt-get", "aptitude"), APT), **dict.fromkeys(("dnf", "yum", "microdnf", "zypper"), RPM),
    "dpkg": (("+-i|-r|-P|--install|--remove|--purge", SYSTEM_PACKAGE),),
    "rpm": (("+-i|-e|-U|-F", SYSTEM_PACKAGE),), "pacman": (("+-S|-R|-U", SYSTEM_PACKAGE),),
    "yay": (("+-S|-R", SYSTEM_PACKAGE),), "apk": (("add|del|upgrade|fix", SYSTEM_PACKAGE),),
    "emerge": (("", SYSTEM_PACKAGE),),
    "snap": (("install|remove|refresh", SYSTEM_PACKAGE),), "flatpak": (("install|uninstall|update", SYSTEM_PACKAGE),),
    "port": (("install|uninstall", SYSTEM_PACKAGE),), "winget": (("install|uninstall", SYSTEM_PACKAGE),),
    "brew": (("install|uninstall|remove|rm|upgrade|tap|untap|cleanup|reinstall|link|unlink", SYSTEM_PACKAGE),),
    "choco": (("install|uninstall", SYSTEM_PACKAGE),), "nix-env": (("+-i|-e|-u", SYSTEM_PACKAGE),),
    "pkg": (("install|remove|delete", SYSTEM_PACKAGE),), "xbps-install": (("", SYSTEM_PACKAGE),),
    "eopkg": (("install|remove", SYSTEM_PACKAGE),), "corepack": (),
}  # fmt: skip
TAKES = {
    "apt-get": "-o -t", "apt": "-o -t", "npm": "-w --workspace --prefix --tag --otp", "yarn": "--cwd",
    "pnpm": "-C --filter -F", "mvn": "-f -P -pl", "cargo": "--manifest-path -p",
    "docker": "-H --context -f", "pip": "-r -c -e", "poetry": "-C -r",
}  # fmt: skip
INDEX = (
    "-i", *(f"--{kind}-url" for kind in ("index", "extra-index")), "--trusted-host", "-f", "--find-links", "--index",
    "--default-index",
)  # fmt: skip
INSTALLERS = ("install", "i", "add", "ci", "download", "wheel", "sync")


def found(one: Simple, _: Ground) -> Iterator[Objection]:
    """What a command publishes, and what it changes for all projects."""
    if is_contained(one):
        return
    one = _as_pip(one)
    yield from told(one, TABLE, TAKES)
    options, words = split(one.words[1:], (*INDEX, "-r", "-c", "--registry"))
    if not set(words[:2]) & set(INSTALLERS):
        return
    if one.name == "pip":
        places = [
            value_of([option], *INDEX) or "x"
            for option in options
            if has([option], *INDEX) and not option.startswith("-f=")
        ]
        if any(not is_local(place) for place in places) or any(re.match(r"https?://", word) for word in words):
            yield SOURCE.about(shown(one))
    elif one.name in ("npm", "pnpm", "yarn", "bun"):
        registry = value_of(options, "--registry")
        if (registry and not is_local(registry)) or any(word.startswith("http://") for word in words):
            yield SOURCE.about(shown(one))


def _as_pip(one: Simple) -> Simple:
    """`python -m pip`, `uv pip` and `pip3` are one program; `python -m twine` is twine."""
    words = one.words
    if one.name == "python" and words[1:2] == ("-m",) and words[2:3]:
        words = words[2:]
    elif one.name == "uv" and words[1:2] == ("pip",):
        words = words[1:]
    return replace(one, words=(named(words[0]), *words[1:])) if words != one.words else one
