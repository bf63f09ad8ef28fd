"""Relocating an environment that was made in another directory.

Two kinds of files carry the directory of their environment: scripts in ``bin``, and what a source distribution wrote
into its own files while it was built. Files are replaced, never written in place: uv links them to its cache, and
writing through such a link would change every other environment.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from importlib.metadata import Distribution
from pathlib import Path

from packaging.utils import canonicalize_name

from envsolve.install import record
from envsolve.system.files import real_path
from envsolve.toolchain.model import SITE_PACKAGES

# Linux took at most 127 bytes of a script's first line before 5.1.
_SHEBANG_MAX = 127
_DIRECT_URL = "direct_url.json"

# `#!/path/python` or, for paths that are long or hold spaces, a line that is a command to sh and a string to Python.
_PLAIN_HEAD = re.compile(rb"#!(?P<python>/[^\n]*)\n")
_SHELL_HEAD = re.compile(rb"#!/bin/sh\n'''exec' [^\n]*\n' '''\n")


def relocate(environment: Path, final: Path, built: Iterable[str], cited: Iterable[str] = ()) -> None:
    """Rewrite what names ``environment`` so that it names ``final``, and bring every RECORD up to date.

    Args:
        environment: The environment's current directory.
        final: Its final directory.
        built: Names of the packages that were built from source here; the files of wheels name no directory.
        cited: Those that were requested by a URL which says what they are: a commit of a repository.
    """
    built_names, cited_names = ({canonicalize_name(name) for name in names} for names in (built, cited))
    changed = _rewrite_scripts(environment, final)
    for dist in record.installed(environment):
        if canonicalize_name(dist.name) in built_names:
            changed |= _rewrite_texts(_files_of(dist, environment), environment, final)
        if canonicalize_name(dist.name) not in cited_names:
            _forget_reference(dist)
        _update_record(dist, changed)


def script_head(python: Path) -> bytes:
    """The first lines of a script that runs under ``python``, whatever its path."""
    plain = b"#!" + os.fsencode(python) + b"\n"
    if len(plain) <= _SHEBANG_MAX and not any(space in plain for space in (b" ", b"\t")):
        return plain
    return b"#!/bin/sh\n'''exec' " + os.fsencode(shlex.quote(str(python))) + b' "$0" "$@"\n' + b"' '''\n"


def _rewrite_scripts(environment: Path, final: Path) -> set[Path]:
    """Rewrite the scripts of ``bin``; the paths of those that changed."""
    binaries = environment / "bin"
    scripts = [path for path in binaries.iterdir() if path.is_file() and not path.is_symlink()]
    changed = {path for path in scripts if _rewrite_head(path, binaries, final / "bin")}
    return changed | _rewrite_texts(scripts, environment, final)


def _rewrite_head(script: Path, binaries: Path, final: Path) -> bool:
    content = script.read_bytes()
    if not content.startswith(b"#!"):
        return False
    head = _SHELL_HEAD.match(content) or _PLAIN_HEAD.match(content)
    interpreter = re.search(rb"/(?P<name>python[\d.]*)(?=[\s\"'])", head[0]) if head else None
    if head is None or interpreter is None or not _names(head[0], binaries):
        return False
    _replace(script, script_head(final / os.fsdecode(interpreter["name"])) + content[head.end() :])
    return True


def _names(head: bytes, folder: Path) -> bool:
    """Whether a script's head names ``folder``, as it is or with a quote in it written as shlex does: ``'"'"'``."""
    return any(os.fsencode(folder) in form for form in (head, head.replace(b"""'"'"'""", b"'")))


def _rewrite_texts(paths: Iterable[Path], environment: Path, final: Path) -> set[Path]:
    """Replace one directory by the other in the text files that name it, and return the files that changed."""
    old, new = os.fsencode(environment), os.fsencode(final)
    changed = set()
    for path in paths:
        content = path.read_bytes()
        if old in content and b"\0" not in content:
            _replace(path, content.replace(old, new))
            changed.add(path)
    return changed


def _files_of(dist: Distribution, environment: Path) -> list[Path]:
    """The files of a distribution; its RECORD may name others, outside the environment, which are left alone."""
    paths = (Path(os.path.normpath(str(dist.locate_file(row[0])))) for row in record.rows(record.info_of(dist)))
    files = [path for path in paths if path.is_file() and not path.is_symlink() and path.suffix != ".pyc"]
    within = real_path(environment)
    return [path for path in files if real_path(path).is_relative_to(within)]


def _forget_reference(dist: Distribution) -> None:
    """Drop the note that the package came from a URL (PEP 610).

    The plan chose it by name and version; the URL only pinned the file. With the note, ``pip freeze`` would print
    the URL in place of the version.
    """
    record.info_of(dist).joinpath(_DIRECT_URL).unlink(missing_ok=True)


def _update_record(dist: Distribution, changed: set[Path]) -> None:
    """Bring hashes and sizes up to date, and drop the rows of files that are gone."""
    info = record.info_of(dist)
    rows = record.rows(info)
    base = str(info.parent)
    by_path = {str(path): path for path in changed}
    renewed = []
    for name, digest, size in rows:
        path = by_path.get(os.path.normpath(os.path.join(base, name)))  # noqa: PTH118  (a Path a row is slow for torch)
        if not name.endswith(f"/{_DIRECT_URL}") or Path(base, name).is_file():
            renewed.append((name, *_digest_and_size(path.read_bytes())) if path else (name, digest, size))
    if renewed != rows:
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows(renewed)
        _replace(info / "RECORD", text.getvalue().encode())


def _digest_and_size(content: bytes) -> tuple[str, str]:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"sha256={digest}", str(len(content))


def _replace(path: Path, content: bytes) -> None:
    """Replace a file by new content with the same permissions; other links to the old file keep the old content."""
    fresh = path.with_name(f"{path.name}.envsolve-new")
    fresh.write_bytes(content)
    fresh.chmod(path.stat().st_mode & 0o7777)
    fresh.replace(path)


# The plan's environment variables, seen by a plain ``PREFIX/bin/python``.
#
# Python executes the ``import`` lines of ``.pth`` files at start-up. One such line sets each variable unless the user
# has set it, so that their own setting wins. It requires no activation, and applies to every process that this Python
# starts.

FILENAME = "envsolve_environment.pth"
_AND_PATH = ":$PATH"


def write(site_packages: Path, environment: Mapping[str, str]) -> None:
    """Write the file that sets ``environment`` by default; none if there is nothing to set.

    Args:
        site_packages: The directory of packages, ``PREFIX/lib/python3.12/site-packages``.
        environment: By name; values that begin with ``{site_packages}`` follow the environment where it is moved.
    """
    if environment:
        (site_packages / FILENAME).write_text(
            line(environment, f"lib/{site_packages.parent.name}/site-packages"), "ascii"
        )


def line(environment: Mapping[str, str], site_packages: str) -> str:
    """The one line of the file: ASCII whatever the values, since Pythons differ in how they decode ``.pth`` files.

    Args:
        environment: By name.
        site_packages: The directory of packages, relative to the environment.
    """
    settings = (_setting(name, value, site_packages) for name, value in sorted(environment.items()))
    return f"import os, sys; {'; '.join(settings)}\n"


def _setting(name: str, value: str, site_packages: str) -> str:
    """One statement: a directory goes before those of ``PATH``, once; another variable is set unless it is already."""
    if name == "PATH":
        folder = _expression(value.removesuffix(_AND_PATH), site_packages)
        rest = "*os.environ.get('PATH', os.defpath).split(os.pathsep)"
        return f"os.environ['PATH'] = os.pathsep.join(dict.fromkeys([{folder}, {rest}]))"
    return f"os.environ.setdefault({name!a}, {_expression(value, site_packages)})"


def _expression(value: str, site_packages: str) -> str:
    """A value as Python; what lies in the environment is found from where the environment is at that time."""
    if not value.startswith(f"{SITE_PACKAGES}/"):
        return f"{value!a}"
    return f"os.path.join(sys.prefix, {site_packages + value.removeprefix(SITE_PACKAGES)!a})"
