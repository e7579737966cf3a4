"""An environment in which some of our packages are not installed."""

from __future__ import annotations

from tests.ralph import SOURCE, Ralph


def without(ralph: Ralph, *packages: str) -> dict[str, str]:
    """The environment in which the program finds none of these packages."""
    folder = ralph.folder / "lacking"
    folder.mkdir(exist_ok=True)
    hidden = "".join(f"sys.modules[{name!r}] = None\n" for name in packages)
    (folder / "sitecustomize.py").write_text(f"import sys\n\n{hidden}")
    return {"PYTHONPATH": f"{folder}:{SOURCE}"}
