"""What can be seen through mounts, and homes of users to look at."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ralphproof.sandbox.plan import DEV_NULL, EMPTY_FOLDER, READ_ONLY, WRITABLE, Mount, is_within

# What no sandbox may show of a home.
SECRETS = (
    ".ssh/id_ed25519", ".gnupg/private-keys-v1.d/key", ".aws/credentials", ".azure/token", ".kube/config",
    ".docker/config.json", ".netrc", ".npmrc", ".yarnrc.yml", ".pypirc", ".git-credentials", ".pgpass", ".condarc",
    ".pip/pip.conf", ".config/pip/pip.conf", ".config/gh/hosts.yml", ".config/gcloud/credentials.db",
    ".config/git/credentials", ".config/pypoetry/auth.toml", ".config/composer/auth.json", ".composer/auth.json",
    ".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials", ".bundle/config", ".hex/hex.config",
    ".m2/settings.xml", ".gradle/gradle.properties", ".nuget/NuGet/NuGet.Config", ".rye/credentials",
    ".dotnet/corefx/cryptography/x509stores/my/key.pfx", ".local/share/keyrings/login.keyring",
    ".local/share/python_keyring/keyring_pass.cfg", ".local/share/uv/credentials/credentials.toml",
    ".mozilla/firefox/logins.json", ".bash_history", "Library/Keychains/login.keychain-db", "notes.txt", "other/.env",
)  # fmt: skip


def place_of(mounts: Sequence[Mount], path: str) -> tuple[str, str]:
    """How a path is seen inside (read, write, empty, or nothing), and what of the machine it is."""
    for mount in reversed(mounts):
        if is_within(path, mount.path):
            if mount.kind == EMPTY_FOLDER or mount.source == DEV_NULL:
                return (EMPTY_FOLDER if path == mount.path else ""), ""
            return mount.kind, mount.host_path.rstrip("/") + path[len(mount.path.rstrip("/")) :]
    return "", ""


def seen_at(mounts: Sequence[Mount], file: str | Path) -> list[str]:
    """Every path at which a file of the machine can be read."""
    real = os.path.realpath(file)
    shown = [one for one in mounts if one.kind != EMPTY_FOLDER and is_within(real, one.host_path)]
    paths = dict.fromkeys(one.path.rstrip("/") + real[len(one.host_path.rstrip("/")) :] for one in shown)
    return [path for path in paths if place_of(mounts, path)[1] == real]


def can_write(mounts: Sequence[Mount], path: str | Path) -> bool:
    return place_of(mounts, str(path))[0] == WRITABLE


def can_read(mounts: Sequence[Mount], path: str | Path) -> bool:
    kind, real = place_of(mounts, str(path))
    return kind in (READ_ONLY, WRITABLE) and os.path.exists(real)


class Home:
    """A home folder in a test; names in it are told from there."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        folder.mkdir(parents=True, exist_ok=True)

    def put(self, *names: str, text: str = "x", mode: int = 0o644) -> None:
        for name in names:
            file = self.path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            file.chmod(mode)

    def program(self, *names: str, text: str = "\x7fELF") -> None:
        self.put(*names, text=text, mode=0o755)

    def link(self, name: str, target: str) -> None:
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        (self.path / name).symlink_to(target)

    def environ(self, *path: str, **more: str) -> dict[str, str]:
        """With these folders on PATH, `~/` aside those of the system, and variables in which `~` stands for home."""
        folders = [one.replace("~", str(self.path), 1) for one in path]
        named = {name: text.replace("~", str(self.path)) for name, text in more.items()}
        return {"HOME": str(self.path), "PATH": ":".join([*folders, "/usr/bin", "/bin"]), **named}

    def __str__(self) -> str:
        return str(self.path)
