"""Where an environment keeps its packages: its kind, its Python, and the interpreter's path, only by reading files.

The order is that of Python's ``site`` module: PYTHONPATH; in a virtual environment its own packages, then, if it
sees the system's, the user's and the base Python's; elsewhere the user's before the installation's own. A directory
that a ``.pth`` file names comes after the directory of that file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from envsolve.binaries import elf
from envsolve.environment.model import Kind, Origin, Site
from envsolve.errors import UsageError
from envsolve.machine.tools import find_interpreters
from envsolve.system.files import is_file, is_folder, open_regular, read_regular, real_path

# venv and conda on POSIX, venv on Windows, conda on Windows.
_PROGRAMS = ("bin/python", "bin/python3", "Scripts/python.exe", "python.exe")
_MAKE_ANEW = "Run `envsolve install` again with this --prefix, or name the interpreter with --python."
_MINOR = re.compile(r"(\d+\.\d+)")
_FOLDER = re.compile(r"python(3\.\d+)t?")
#: Levels below a given directory that are looked at.
_DEPTH = 4
#: Directories that hold thousands of others and no environment.
_SKIPPED = frozenset({".git", ".hg", ".tox", ".nox", "node_modules", "__pycache__", "site-packages"})
#: What the kernel shows as files.
_KERNEL = frozenset({"/proc", "/sys", "/dev"})
_CONDA_ROOTS = ("miniconda3", "anaconda3", "miniforge3", "mambaforge", "micromamba", ".conda", "conda")
_CONDA_PYTHON = re.compile(r"python-(3(?:\.\d+)+)-")


@dataclass(frozen=True, slots=True)
class Layout:
    """The frame of an environment; fields as in :class:`Environment`."""

    prefix: Path
    kind: Kind
    program: str | None
    python: str | None
    arch: str | None
    base: Path
    sites: tuple[Site, ...]


def read_layout(prefix: Path, environ: Mapping[str, str]) -> Layout:
    """Read the frame of the environment at ``prefix``.

    Raises:
        UsageError: ``prefix`` is not an environment.
    """
    expect_directory(prefix)
    prefix = prefix.absolute()
    settings = read_settings(prefix / "pyvenv.cfg")
    python = _python(prefix, settings)
    base = _base(prefix, settings, python)
    program = next((str(prefix / name) for name in _PROGRAMS if is_file(prefix / name)), None)
    layout = Layout(
        prefix=prefix,
        kind=_kind(prefix, settings),
        program=program,
        python=python,
        arch=_arch(prefix),
        base=base,
        sites=tuple(_sites(prefix, settings, base, python, environ)),
    )
    if not any(site.origin == "environment" for site in layout.sites) and not is_environment(prefix):
        raise UsageError(
            f"{prefix} is not a Python environment",
            hint="name the root directory of one: it has pyvenv.cfg, conda-meta or a lib/python3.* directory",
        )
    return layout


def is_environment(prefix: Path) -> bool:
    """Whether a directory is the root of a virtual or a conda environment, whole or not."""
    return is_file(prefix / "pyvenv.cfg") or is_folder(prefix / "conda-meta")


def prefix_of(python: Path) -> Path:
    """The root directory of the environment of an interpreter; a virtual environment's is known by its own link.

    Raises:
        UsageError: The file does not exist.
    """
    if not is_file(python):
        raise UsageError(f"there is no interpreter {python}", hint="name an environment's bin/python, or its --prefix")
    # On Windows conda's interpreter stands in the root directory itself.
    near = [python.absolute().parent.parent, python.absolute().parent]
    real = real_path(python)
    return next((root for root in near if is_environment(root)), real.parent.parent)


def read_settings(path: Path) -> Mapping[str, str]:
    """``pyvenv.cfg`` as a mapping with lower-case keys; empty without the file."""
    try:
        text = read_regular(path).decode("utf-8", "replace")
    except OSError:
        return {}
    pairs = (line.partition("=") for line in text.splitlines())
    return {key.strip().lower(): value.strip() for key, equals, value in pairs if equals}


def _kind(prefix: Path, settings: Mapping[str, str]) -> Kind:
    if is_folder(prefix / "conda-meta"):
        return "pixi" if prefix.parent.name == "envs" and prefix.parent.parent.name == ".pixi" else "conda"
    if is_file(prefix / "pipx_metadata.json"):
        return "pipx"
    if is_file(prefix / "uv-receipt.toml"):
        return "uv-tool"
    if not settings:
        return "system"
    in_project = prefix.name == ".venv" and is_file(prefix.parent / "poetry.lock")
    if in_project or (prefix.parent.name == "virtualenvs" and prefix.parent.parent.name == "pypoetry"):
        return "poetry"
    return "uv" if "uv" in settings else "venv"


def _python(prefix: Path, settings: Mapping[str, str]) -> str | None:
    """The interpreter's version: as pyvenv.cfg or conda has it, otherwise the name of its directory.

    A virtual environment that was made anew over another may say one Python and start another: the program decides.
    """
    program = next((real_path(prefix / name).name for name in _PROGRAMS if is_file(prefix / name)), "")
    started = match[1] if (match := _FOLDER.fullmatch(program)) else None
    stated = _stated(prefix, settings)
    return started if started and stated and _minor(stated) != started else stated


def _stated(prefix: Path, settings: Mapping[str, str]) -> str | None:
    for key in ("version_info", "version"):
        if match := re.match(r"\d+(?:\.\d+){1,2}", settings.get(key, "")):
            return match[0]
    for path in sorted(prefix.glob("conda-meta/python-3*.json")):
        if match := _CONDA_PYTHON.match(path.name):
            return match[1]
    names = [match[1] for path in sorted(prefix.glob("lib*/python3*")) if (match := _FOLDER.fullmatch(path.name))]
    return max(names, key=lambda name: int(name.partition(".")[2]), default=None)


def _base(prefix: Path, settings: Mapping[str, str], python: str | None) -> Path:
    """The Python that a virtual environment is made from."""
    home = settings.get("home")
    if home is None:
        return prefix
    real = next((real_path(p) for name in _PROGRAMS if is_file(p := prefix / name)), None)
    folder = f"lib/python{_minor(python)}"
    for candidate in (Path(home), Path(home).parent, *([real.parent.parent] if real else [])):
        if is_file(candidate / folder / "os.py") or is_file(candidate / "Lib" / "os.py"):
            return candidate
    return Path(home).parent if Path(home).name in ("bin", "Scripts") else Path(home)


def _arch(prefix: Path) -> str | None:
    for name in _PROGRAMS:
        try:
            with open_regular(prefix / name) as file:
                machine = elf.read_elf(file, name).machine
        except (OSError, UsageError):
            continue
        return machine if machine in ("x86_64", "aarch64") else None
    return None


def _sites(
    prefix: Path, settings: Mapping[str, str], base: Path, python: str | None, environ: Mapping[str, str]
) -> Iterator[Site]:
    minor = _minor(python)
    own = list(_packages_of(prefix, minor))
    sees_system = settings.get("include-system-site-packages", "").lower() == "true"
    user = _user_folder(minor, environ)
    folders: list[tuple[Path, Origin]] = [
        (Path(entry).absolute(), "PYTHONPATH") for entry in environ.get("PYTHONPATH", "").split(os.pathsep) if entry
    ]
    if settings:
        folders += [(path, "environment") for path in own]
        if sees_system:
            folders += [(path, "user") for path in user]
            folders += [(path, "system") for path in _packages_of(base, minor)]
    else:
        folders += [(path, "user") for path in user]
        folders += [(path, "environment") for path in own]
    seen: set[Path] = set()
    for path, origin in folders:
        for site in (Site(str(path), origin), *([] if origin == "PYTHONPATH" else _named_by_pth(path))):
            real = real_path(Path(site.path))
            if real not in seen and is_folder(real):
                seen.add(real)
                yield site


def _packages_of(prefix: Path, minor: str) -> Iterator[Path]:
    """The directories of packages of a Python, Debian's own first where it has them."""
    if prefix == Path("/usr"):
        yield Path(f"/usr/local/lib/python{minor}/dist-packages")
    places = (
        f"lib/python{minor}/site-packages",
        f"lib/python{minor}t/site-packages",
        f"lib64/python{minor}/site-packages",
        "lib/python3/dist-packages",
        f"lib/python{minor}/dist-packages",
        "Lib/site-packages",
    )
    yield from (prefix / place for place in places)


def _user_folder(minor: str, environ: Mapping[str, str]) -> tuple[Path, ...]:
    if environ.get("PYTHONNOUSERSITE"):
        return ()
    base, home = environ.get("PYTHONUSERBASE"), environ.get("HOME")
    root = Path(base) if base else Path(home) / ".local" if home else None
    return (root / f"lib/python{minor}/site-packages",) if root else ()


def _named_by_pth(site: Path) -> Iterator[Site]:
    """Directories that the ``.pth`` files of a directory name; lines of code in them are not followed."""
    for file in sorted(_listed(site, ".pth")):
        try:
            lines = read_regular(file).decode("utf-8", "replace").splitlines()
        except OSError:
            continue
        for line in lines:
            if (name := line.strip()) and not name.startswith(("#", "import ", "import\t")) and "\0" not in name:
                yield Site(str(site / name), "pth", str(file))


def _listed(folder: Path, suffix: str) -> Iterable[Path]:
    try:
        return [path for path in folder.iterdir() if path.name.endswith(suffix)]
    except OSError:
        return []


def _minor(python: str | None) -> str:
    match = _MINOR.match(python or "")
    return match[1] if match else "3"


def interpreter_of(prefix: Path) -> Path:
    """Find the interpreter of the environment at ``prefix``.

    Links are left as they are: a virtual environment is found through the path by which its Python is called.

    Args:
        prefix: Root directory of a virtual environment or a conda environment.

    Returns:
        The absolute path of its Python.

    Raises:
        UsageError: ``prefix`` is not an environment, or an incomplete one.
    """
    expect_directory(prefix)
    candidates = [prefix.absolute() / name for name in _PROGRAMS]
    found = next((path for path in candidates if is_file(path)), None)
    if found is None:
        raise UsageError(_what_is_wrong(prefix, candidates), hint=_MAKE_ANEW)
    if not os.access(found, os.X_OK):
        raise UsageError(f"{found} is not executable", hint="Check its mode, and whether its disk is mounted noexec.")
    return found


def expect_directory(prefix: Path) -> None:
    """Make sure that a prefix is a directory.

    Raises:
        UsageError: It is not.
    """
    if is_folder(prefix):
        return
    try:
        prefix.stat()
        why = "is not a directory"
    except FileNotFoundError:
        why = "does not exist"
    except OSError as error:  # a directory above it may not be entered, say
        why = f"cannot be read: {error.strerror}"
    raise UsageError(f"{prefix} {why}", hint="--prefix takes the root directory of an environment")


def _what_is_wrong(prefix: Path, candidates: list[Path]) -> str:
    dangling = next((path for path in candidates if path.is_symlink()), None)
    if dangling is not None:
        return f"the Python of {prefix} is missing: {dangling} links to {dangling.readlink()}, which does not exist"
    if (prefix / "conda-meta").is_dir():
        return f"{prefix} is a conda environment without Python"
    if (prefix / "pyvenv.cfg").is_file():
        return f"{prefix} is an incomplete virtual environment: it has no Python"
    return f"{prefix} is not a Python environment"


# Finding the environments of a machine.


def find_environments(folders: Sequence[Path], environ: Mapping[str, str]) -> list[Path]:
    """Root directories of environments, each once: the active one, those of each tool, then those in ``folders``.

    Args:
        directories: Where to look besides, some levels deep.
        environ: HOME, and the variables by which tools move their places.
    """
    found: dict[Path, Path] = {}
    active = (Path(value) for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if (value := environ.get(name)))
    for prefix in (*active, *_of_tools(environ), *(p for f in folders for p in _below(f, _DEPTH))):
        real = real_path(prefix)
        if real not in found and is_environment(real):
            # Not the path behind a link: users know an environment by the path that they work with.
            found[real] = prefix
    return list(found.values())


def find_installations(environ: Mapping[str, str]) -> list[Path]:
    """Root directories of the Pythons on PATH that are not environments, if they have, or their user has, a torch."""
    roots: dict[Path, None] = {}
    for program in find_interpreters(environ):
        root = real_path(program).parent.parent
        if not is_environment(root) and not is_environment(program.parent.parent) and _has_torch(root, environ):
            roots[root] = None
    return list(roots)


def _has_torch(root: Path, environ: Mapping[str, str]) -> bool:
    places = [root, root / "local", *([Path(environ["HOME"]) / ".local"] if environ.get("HOME") else [])]
    return any(True for place in places for _ in place.glob("lib/python3*/*-packages/torch/version.py"))


def _of_tools(environ: Mapping[str, str]) -> Iterator[Path]:
    if not environ.get("HOME"):
        return
    home = Path(environ["HOME"])
    data = Path(environ.get("XDG_DATA_HOME") or home / ".local/share")
    cache = Path(environ.get("XDG_CACHE_HOME") or home / ".cache")
    poetry = Path(environ.get("POETRY_CACHE_DIR") or cache / "pypoetry")
    collections = (
        Path(environ.get("WORKON_HOME") or home / ".virtualenvs"),
        data / "virtualenvs",
        Path(environ.get("POETRY_VIRTUALENVS_PATH") or poetry / "virtualenvs"),
        Path(environ.get("UV_TOOL_DIR") or data / "uv/tools"),
        Path(environ.get("PIPX_HOME") or data / "pipx") / "venvs",
        home / ".local/pipx/venvs",
        Path(environ.get("PIXI_HOME") or home / ".pixi") / "envs",
    )
    for collection in collections:
        yield from _children(collection)
    yield from _conda(home, environ)


def _conda(home: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    """The environments that conda lists, and those beside its usual roots."""
    try:
        listed = read_regular(home / ".conda/environments.txt").decode("utf-8", "replace").splitlines()
    except OSError:
        listed = []
    yield from (Path(line.strip()) for line in listed if line.strip())
    roots = [home / name for name in _CONDA_ROOTS] + [Path("/opt/conda"), Path("/opt/miniconda3")]
    if mamba := environ.get("MAMBA_ROOT_PREFIX"):
        roots.insert(0, Path(mamba))
    if program := environ.get("CONDA_EXE"):
        roots.insert(0, Path(program).parent.parent)
    for root in roots:
        yield root
        yield from _children(root / "envs")


def _below(folder: Path, depth: int) -> Iterator[Path]:
    """The environments in a directory, without looking into them."""
    if is_environment(folder):
        yield folder
        yield from _children(folder / "envs")  # a conda root holds its other environments
        return
    if depth:
        for child in _children(folder):
            if child.name not in _SKIPPED and str(child) not in _KERNEL:
                yield from _below(child, depth - 1)


def _children(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            # Links are left out: one that leads to a directory above would be walked again and again.
            return sorted(folder / e.name for e in entries if e.is_dir(follow_symlinks=False))
    except OSError:
        return []
