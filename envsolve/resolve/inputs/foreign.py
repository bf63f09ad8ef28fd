"""Files of other tools that are named where a requirements file is meant: what each is, and what takes it. Pure."""

from __future__ import annotations

from pathlib import PurePath

_OWN = "name a requirements file, a pyproject.toml or an environment.yml"


def other_file(path: PurePath, text: str = "") -> tuple[str, str] | None:
    """What a file is and what to do with it, where that can be told by its name or by a line of it; else None."""
    installed = f"install it: envsolve install {path} --prefix DIR"
    if "\n@EXPLICIT" in f"\n{text}" or (path.name.startswith("conda-") and path.suffix == ".lock"):
        return "it is an explicit lock of conda packages, not a list of requirements", installed
    if path.suffix == ".toml" and path.name.startswith("pylock."):
        return "it is a lock, not a list of requirements", installed
    if path.name == "uv.lock":
        return "it is uv's lock, not a list of requirements", f"uv export writes one; or {_OWN}"
    if path.name == "poetry.lock":
        return "it is Poetry's lock, not a list of requirements", f"poetry export writes one; or {_OWN}"
    if path.suffix == ".toml":
        return "it is no list of requirements", _OWN
    return None
