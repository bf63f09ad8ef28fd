"""Git repositories on this machine, made with git itself."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

_IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "me"), ("EMAIL", "me@example.org"), ("DATE", "2026-01-01T00:00:00Z"))
}


def git(folder: Path, *words: str) -> str:
    environment = {**os.environ, **_IDENTITY, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    command = ["git", "-C", str(folder), *words]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.strip()


def repository(folder: Path, files: Mapping[str, str | bytes], *, tag: str | None = None) -> str:
    """Put files into a folder that is a repository, and commit them; the commit."""
    folder.mkdir(exist_ok=True, parents=True)
    if not (folder / ".git").exists():
        git(folder, "init", "--quiet", "--initial-branch=main")
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=more")
    if tag is not None:
        git(folder, "tag", "--annotate", "--message=release", tag)
    return git(folder, "rev-parse", "HEAD")
