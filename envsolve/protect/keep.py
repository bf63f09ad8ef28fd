"""Constraints in an environment, so that plain installs keep its torch.

pip reads ``pip.conf`` in the environment that it runs in, conda reads ``conda-meta/pinned``. uv reads no file
there; ``UV_CONSTRAINT`` can name the same constraints.
"""

from __future__ import annotations

import configparser
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from envsolve.binaries.names import is_runtime_package
from envsolve.environment.layout import expect_directory
from envsolve.environment.model import Environment, needs, torch_distribution
from envsolve.environment.read import read_outline
from envsolve.errors import EnvsolveError, UsageError
from envsolve.facts.catalogue import Catalogue
from envsolve.install.record import BEGIN, CONFIG, END, without_block
from envsolve.system.files import read_regular, replace_file

# The names of torch on package indexes and on conda channels.
TORCH = frozenset({"torch", "pytorch"})
# conda splits torch into these packages, or chooses its variant by them.
_CONDA = frozenset({"pytorch", "pytorch-gpu", "pytorch-cpu", "pytorch-cuda", "libtorch", "cuda-version"})
DIRECTORY = ".envsolve"
CONSTRAINTS = "constraints.txt"
_OWN_PINS = "conda-pinned.txt"


@dataclass(frozen=True, slots=True)
class Preferences:
    """Changes made to an environment: the files written or cleaned, and what remains for its user to do."""

    files: tuple[str, ...]
    notes: tuple[str, ...] = ()


def write(prefix: Path, catalogue: Catalogue, environ: Mapping[str, str]) -> Preferences:
    """Pin torch, its family and the GPU libraries that it requires to the installed versions.

    Raises:
        UsageError: The environment is missing, has no torch, or its configuration has constraints of its own.
        EnvsolveError: A file cannot be written; the old one is then still there.
    """
    environment = read_outline(prefix, environ)
    wheels = pins_of(environment, catalogue, "pip")
    records = pins_of(environment, catalogue, "conda")
    if not wheels and not records:
        raise UsageError(f"{prefix} has no torch to pin")
    root = Path(environment.prefix)
    files = {}
    if wheels:
        files[root / DIRECTORY / CONSTRAINTS] = _text(f"{name}=={version}" for name, version in wheels.items())
        files[root / CONFIG] = _with_constraint(root)
    if records:
        files |= _pinned(root, records)
    _replace(files)
    return Preferences(tuple(map(str, files)), _notes(root, bool(wheels), environment, environ))


def remove(prefix: Path) -> Preferences:
    """Remove what :func:`write` wrote, and nothing else.

    Raises:
        UsageError: ``prefix`` is not a directory.
        EnvsolveError: A file cannot be changed.
    """
    root = prefix.absolute()
    expect_directory(root)
    files: dict[Path, str] = {}
    config = _read(root / CONFIG)
    if BEGIN in config:
        files[root / CONFIG] = without_block(config)
    own = _read(root / DIRECTORY / _OWN_PINS).splitlines()
    if own:
        lines = _read(root / "conda-meta/pinned").splitlines()
        files[root / "conda-meta/pinned"] = _text(line for line in lines if line not in own)
        files[root / DIRECTORY / _OWN_PINS] = ""
    if _read(root / DIRECTORY / CONSTRAINTS):
        files[root / DIRECTORY / CONSTRAINTS] = ""
    _replace(files)
    for path in files:
        if not _read(path).strip():
            path.unlink(missing_ok=True)
    return Preferences(tuple(map(str, files)), () if files else (f"{root} has no constraints of envsolve",))


def _notes(root: Path, wheels: bool, environment: Environment, environ: Mapping[str, str]) -> tuple[str, ...]:
    notes = []
    if wheels:
        notes.append(
            "uv reads no configuration in an environment. For uv, run: export UV_CONSTRAINT="
            f"{_unbroken(root / DIRECTORY / CONSTRAINTS)}"
        )
    if environ.get("PIP_CONFIG_FILE") or environ.get("PIP_CONSTRAINT"):
        notes.append("This shell sets PIP_CONFIG_FILE or PIP_CONSTRAINT, which override the environment's pip.conf.")
    if environment.kind == "pixi":
        notes.append("pixi rewrites the environment from its manifest: pin pytorch there as well.")
    return tuple(notes)


def _with_constraint(root: Path) -> str:
    """The environment's pip configuration with the constraint in it.

    Raises:
        UsageError: It has a constraint of its own, or cannot be read.
    """
    path = root / CONFIG
    kept = without_block(_read(path))
    parser = configparser.RawConfigParser()
    file = root / DIRECTORY / CONSTRAINTS
    line = f"constraint = {_unbroken(file)}"
    try:
        parser.read_string(kept, str(path))
    except configparser.Error as error:
        raise UsageError(f"{path} cannot be read: {error}", hint="fix the file; pip cannot read it either") from error
    if any(parser.has_option(section, "constraint") for section in ("global", "install")):
        raise UsageError(f"{path} already sets a constraint", hint=f"add {file} to that line yourself")
    if parser.has_section("install"):
        # A second [install] section would be an error for pip, so the line goes into the user's own.
        lines = kept.splitlines()
        at = next(n for n, text in enumerate(lines) if text.strip() == "[install]") + 1
        return _text([*lines[:at], BEGIN, line, END, *lines[at:]])
    return _text([*kept.splitlines(), BEGIN, "[install]", line, END])


def _unbroken(file: Path) -> str:
    """The path as pip and uv read it: both split the value at white space, and accept URLs."""
    # A path with a blank would be read as two files.
    return file.as_uri() if any(character.isspace() for character in str(file)) else str(file)


def _pinned(root: Path, records: Mapping[str, str]) -> dict[Path, str]:
    """conda's file of pins with ours added."""
    # mamba does not support comments in that file, so our lines are also listed in a file of our own.
    path = root / "conda-meta/pinned"
    own = set(_read(root / DIRECTORY / _OWN_PINS).splitlines())
    theirs = [line for line in _read(path).splitlines() if line not in own]
    # A pin of the user's stays in force; a second one for the same package could contradict it.
    held = {line.replace("=", " ").replace(":", " ").split()[0].lower() for line in theirs if line.strip()}
    ours = [f"{name}={version}" for name, version in records.items() if name not in held]
    return {path: _text([*theirs, *ours]), root / DIRECTORY / _OWN_PINS: _text(ours)}


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
    """The names of torch, of the packages that must agree with it, and of its GPU libraries in this environment."""
    own = needs(environment, torch_distribution(environment))
    bound = {name for name in own if is_runtime_package(name)}
    return frozenset({*catalogue.family, *_CONDA, *bound})


def version_of(environment: Environment, name: str, installer: str, *, exact: bool = False) -> str | None:
    """The version of a package that an installer sees in an environment; None if it sees none.

    Args:
        environment: The environment.
        name: Normalised name.
        installer: ``pip`` and ``uv`` see distributions, ``conda`` its own records.
        exact: With the build string, for conda: ``2.7.1=cuda126_py312_200``.
    """
    # An install does not change distributions of other sites, such as PYTHONPATH.
    if installer != "conda":
        return next((d.version for d in environment.named(name) if _is_own(environment, d.site)), None)
    record = next((p for p in environment.conda if canonicalize_name(p.name) == canonicalize_name(name)), None)
    if record is None:
        return None
    return f"{record.version}={record.build}" if exact else record.version


def pins_of(environment: Environment, catalogue: Catalogue, installer: str) -> dict[str, str]:
    """The exact versions of the packages that belong to the environment's torch, by name; empty without a torch."""
    names = sorted(family_of(environment, catalogue))
    found = {name: version for name in names if (version := version_of(environment, name, installer, exact=True))}
    return found if TORCH & found.keys() else {}


def _is_own(environment: Environment, site: str) -> bool:
    found = environment.site(site)
    return found is not None and found.origin in ("environment", "user")
