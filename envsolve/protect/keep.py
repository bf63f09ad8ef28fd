"""Constraints left in an environment, so that plain installs keep its torch; and taken out again.

pip reads ``pip.conf`` in the environment that it runs in, conda ``conda-meta/pinned``. uv reads nothing there: the same
file of constraints is for its ``UV_CONSTRAINT``.
"""

from __future__ import annotations

import configparser
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from envsolve.environment.layout import expect_directory
from envsolve.environment.model import Environment, needs, torch_distribution
from envsolve.environment.read import read_outline
from envsolve.errors import EnvsolveError, UsageError
from envsolve.facts.catalogue import Catalogue
from envsolve.install.record import BEGIN, CONFIG, END, without_block
from envsolve.system.files import read_regular, replace_file

#: torch itself by its names on package indexes and conda channels.
TORCH = frozenset({"torch", "pytorch"})
#: What decides a conda torch's flavour, or is a part of it.
_CONDA = frozenset({"pytorch", "pytorch-gpu", "pytorch-cpu", "pytorch-cuda", "libtorch", "cuda-version"})
FOLDER = ".envsolve"
CONSTRAINTS = "constraints.txt"
_OWN_PINS = "conda-pinned.txt"


@dataclass(frozen=True, slots=True)
class Kept:
    """What was done to an environment: the files written or cleaned, and what remains for its user to do."""

    files: tuple[str, ...]
    notes: tuple[str, ...] = ()


def write(prefix: Path, catalogue: Catalogue, environ: Mapping[str, str]) -> Kept:
    """Hold torch, its family and what it needs of NVIDIA at the versions that are installed.

    Raises:
        UsageError: There is no environment, no torch in it, or its configuration has constraints of its own.
        EnvsolveError: A file cannot be written; each is whole, the old one or the new one.
    """
    environment = read_outline(prefix, environ)
    wheels = pins_of(environment, catalogue, "pip")
    records = pins_of(environment, catalogue, "conda")
    if not wheels and not records:
        raise UsageError(f"there is no torch in {prefix} that could be kept")
    root = Path(environment.prefix)
    files = {}
    if wheels:
        files[root / FOLDER / CONSTRAINTS] = _text(f"{name}=={version}" for name, version in wheels.items())
        files[root / CONFIG] = _with_constraint(root)
    if records:
        files |= _pinned(root, records)
    _replace(files)
    return Kept(tuple(map(str, files)), _notes(root, bool(wheels), environment, environ))


def remove(prefix: Path) -> Kept:
    """Take out what :func:`write` left, and nothing else.

    Raises:
        UsageError: There is no folder at ``prefix``.
        EnvsolveError: A file cannot be changed.
    """
    root = prefix.absolute()
    expect_directory(root)
    files: dict[Path, str] = {}
    config = _read(root / CONFIG)
    if BEGIN in config:
        files[root / CONFIG] = without_block(config)
    own = _read(root / FOLDER / _OWN_PINS).splitlines()
    if own:
        lines = _read(root / "conda-meta/pinned").splitlines()
        files[root / "conda-meta/pinned"] = _text(line for line in lines if line not in own)
        files[root / FOLDER / _OWN_PINS] = ""
    if _read(root / FOLDER / CONSTRAINTS):
        files[root / FOLDER / CONSTRAINTS] = ""
    _replace(files)
    for path in files:
        if not _read(path).strip():
            path.unlink(missing_ok=True)
    return Kept(tuple(map(str, files)), () if files else (f"{root} has no constraints of envsolve",))


def _notes(root: Path, wheels: bool, environment: Environment, environ: Mapping[str, str]) -> tuple[str, ...]:
    notes = []
    if wheels:
        notes.append(
            "uv reads no configuration in an environment. It honours: export UV_CONSTRAINT="
            f"{_unbroken(root / FOLDER / CONSTRAINTS)}"
        )
    if environ.get("PIP_CONFIG_FILE") or environ.get("PIP_CONSTRAINT"):
        notes.append(
            "This shell sets PIP_CONFIG_FILE or PIP_CONSTRAINT, which pip heeds before the environment's file."
        )
    if environment.kind == "pixi":
        notes.append("pixi writes the environment anew from its manifest: pin pytorch there, too.")
    return tuple(notes)


def _with_constraint(root: Path) -> str:
    """The environment's pip configuration with the constraint in it.

    Raises:
        UsageError: It has a constraint of its own, or cannot be read.
    """
    path = root / CONFIG
    kept = without_block(_read(path))
    parser = configparser.RawConfigParser()
    file = root / FOLDER / CONSTRAINTS
    line = f"constraint = {_unbroken(file)}"
    try:
        parser.read_string(kept, str(path))
    except configparser.Error as error:
        raise UsageError(f"{path} cannot be read: {error}", hint="mend it; pip reads it the same way") from error
    if any(parser.has_option(section, "constraint") for section in ("global", "install")):
        raise UsageError(f"{path} has a constraint of its own", hint=f"add {file} to that line yourself")
    if parser.has_section("install"):
        lines = kept.splitlines()
        at = next(n for n, text in enumerate(lines) if text.strip() == "[install]") + 1
        return _text([*lines[:at], BEGIN, line, END, *lines[at:]])
    return _text([*kept.splitlines(), BEGIN, "[install]", line, END])


def _unbroken(file: Path) -> str:
    """A path as pip and uv take it among others: both split the value at white space, and take addresses, too."""
    return file.as_uri() if any(character.isspace() for character in str(file)) else str(file)


def _pinned(root: Path, records: Mapping[str, str]) -> dict[Path, str]:
    """conda's file of pins with ours added; which lines are ours is kept beside, for mamba knows no comments there."""
    path = root / "conda-meta/pinned"
    own = set(_read(root / FOLDER / _OWN_PINS).splitlines())
    theirs = [line for line in _read(path).splitlines() if line not in own]
    held = {line.replace("=", " ").replace(":", " ").split()[0].lower() for line in theirs if line.strip()}
    ours = [f"{name}={version}" for name, version in records.items() if name not in held]
    return {path: _text([*theirs, *ours]), root / FOLDER / _OWN_PINS: _text(ours)}


def _text(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _read(path: Path) -> str:
    try:
        return read_regular(path).decode("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise EnvsolveError(f"cannot read {path}: {error}") from error


def _replace(files: Mapping[Path, str]) -> None:
    for path, text in files.items():
        try:
            path.parent.mkdir(exist_ok=True)
            replace_file(path, text)
        except OSError as error:
            raise EnvsolveError(f"cannot write {path}: {error.strerror or error}") from error


# The packages that belong to the torch of an environment, and their installed versions.


def family_of(environment: Environment, catalogue: Catalogue) -> frozenset[str]:
    """The names of torch, of what must agree with it, and of what it needs of NVIDIA and Triton in this environment."""
    own = needs(environment, torch_distribution(environment))
    bound = {name for name in own if name.startswith(("nvidia-", "triton", "pytorch-triton"))}
    return frozenset({*catalogue.family, *_CONDA, *bound})


def version_of(environment: Environment, name: str, installer: str, *, exact: bool = False) -> str | None:
    """The version of a package that an installer sees in an environment; None where it sees none.

    Args:
        environment: The environment.
        name: Normalised name.
        installer: ``pip`` and ``uv`` see distributions, ``conda`` its own records.
        exact: With the build string, for conda: ``2.7.1=cuda126_py312_200``.
    """
    if installer != "conda":
        return next((d.version for d in environment.named(name) if _is_own(environment, d.site)), None)
    record = next((p for p in environment.conda if canonicalize_name(p.name) == canonicalize_name(name)), None)
    if record is None:
        return None
    return f"{record.version}={record.build}" if exact else record.version


def pins_of(environment: Environment, catalogue: Catalogue, installer: str) -> dict[str, str]:
    """The exact versions of what belongs to the environment's torch, by name; empty where it has no torch."""
    names = sorted(family_of(environment, catalogue))
    found = {name: version for name in names if (version := version_of(environment, name, installer, exact=True))}
    return found if TORCH & found.keys() else {}


def _is_own(environment: Environment, site: str) -> bool:
    found = environment.site(site)
    return found is not None and found.origin in ("environment", "user")
