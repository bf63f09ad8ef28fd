"""Finding the Python for an environment, inspecting it, and letting it make the environment."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from packaging.markers import Environment
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag, compatible_tags, cpython_tags, platform_tags

from envsolve.errors import UsageError
from envsolve.install.errors import InstallError, explained
from envsolve.system.processes import ask
from envsolve.system.streaming import stream
from envsolve.values import PythonVersion

PROBE_SECONDS = 30.0
"""Seconds in which a program must identify itself, on a busy machine and a cold network disk."""

# Run by the interpreter itself, in isolation; old Pythons included, so it stays within the standard library of 3.8.
# `_base_executable` is the interpreter behind a virtual environment, which may be the very one being replaced. The pip
# that `ensurepip` installs is beside it, or where Debian has put it.
_FACTS = """
import glob, os, platform, sys, sysconfig
folders = [sysconfig.get_config_var("WHEEL_PKG_DIR"), os.path.join(os.path.dirname(os.__file__), "ensurepip/_bundled")]
facts = {
    "base": getattr(sys, "_base_executable", None) or sys.executable,
    "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "pip": max((path for folder in folders if folder for path in glob.glob(folder + "/pip-*.whl")), default=None),
    "markers": {
        "implementation_name": sys.implementation.name,
        "implementation_version": platform.python_version(),
        "os_name": os.name,
        "platform_machine": platform.machine(),
        "platform_python_implementation": platform.python_implementation(),
        "platform_release": platform.release(),
        "platform_system": platform.system(),
        "platform_version": platform.version(),
        "python_full_version": platform.python_version(),
        "python_version": ".".join(platform.python_version_tuple()[:2]),
        "sys_platform": sys.platform,
    },
}
"""
_PROBE = f"{_FACTS}\nimport json\nprint(json.dumps(facts))"


@dataclass(frozen=True, slots=True)
class Target:
    """The interpreter that an environment is made from.

    Attributes:
        executable: The base interpreter, never one of a virtual environment.
        markers: Its values of the environment markers (PEP 508).
        free_threaded: Whether it is a build without the global interpreter lock.
        pip: The pip wheel that it carries for ``ensurepip``; None if its maker removed it.
    """

    executable: Path
    markers: Environment
    free_threaded: bool
    pip: Path | None

    @property
    def version(self) -> str:
        """``3.12.1``."""
        return self.markers["python_full_version"]

    @property
    def tags(self) -> list[Tag]:
        """The wheel tags that it accepts on this machine, best first."""
        major, minor = (int(part) for part in self.markers["python_version"].split("."))
        interpreter = f"cp{major}{minor}"
        abis = [f"{interpreter}{'t' if self.free_threaded else ''}"]
        return [
            *cpython_tags((major, minor), abis, platform_tags()),
            *compatible_tags((major, minor), interpreter, platform_tags()),
        ]


def find(python: str | None, requires: SpecifierSet | None = None, extra: Iterable[str] = ()) -> Target:
    """The first interpreter of this machine that fits.

    Args:
        python: ``3.12``; None takes the first that satisfies ``requires``.
        requires: A lock's ``requires-python``.
        extra: Executables to try before the usual places.

    Raises:
        UsageError: Nothing suitable is installed; the hint says how to get one.
    """
    found = next(fitting(python, requires, extra), None)
    if found is not None:
        return found
    wanted = f"Python {python}" if python else f"a Python that satisfies {requires}"
    asked = python or f"'{requires}'"
    raise UsageError(
        f"{wanted} was not found on this machine",
        hint=f"install one, for example with `uv python install {asked}` or the system's package manager",
    )


def fitting(python: str | None, requires: SpecifierSet | None = None, extra: Iterable[str] = ()) -> Iterator[Target]:
    """Every interpreter of this machine that fits, each once; arguments as in :func:`find`."""
    seen: set[str] = set()
    for executable in chain(extra, _candidates(python)):
        real = os.path.realpath(executable)
        if real in seen:
            continue
        seen.add(real)
        target = probe(executable)
        if target is not None and _fits(target, python, requires):
            yield target


def probe(executable: str) -> Target | None:
    """The interpreter at ``executable``; None if it is not a CPython that runs (a version manager's shim may not)."""
    if _is_this_python(executable):
        facts = _run(_FACTS)["facts"]  # without the 60 ms in which another process starts
    else:
        answer = ask([executable, "-I", "-c", _PROBE], os.environ, limit=PROBE_SECONDS)
        try:
            facts = json.loads((answer or "").partition("\n")[0])
        except (ValueError, RecursionError):
            return None
    if facts["markers"]["implementation_name"] != "cpython":
        return None
    pip = Path(facts["pip"]) if facts["pip"] else None
    return Target(Path(facts["base"]), facts["markers"], facts["free_threaded"], pip)


def _is_this_python(executable: str | Path) -> bool:
    return os.path.realpath(executable) == os.path.realpath(sys.executable)


def _run(source: str) -> dict[str, Any]:
    """Run here what another interpreter would run, and return the names that it defines."""
    names: dict[str, Any] = {}
    exec(source, names)
    return names


def _candidates(python: str | None) -> Iterator[str]:
    """Places where a Python may be, likeliest first; each is probed before it is believed."""
    yield sys.executable
    names = [f"python{python}"] if python else []
    for name in (*names, "python3", "python"):
        path = shutil.which(name)
        if path:
            yield path
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    pattern = f"{python}.*" if python else "3.*"
    yield from sorted((str(path) for path in pyenv.glob(f"versions/{pattern}/bin/python")), reverse=True)
    yield from _uv_pythons(python)


def uv_program() -> str | None:
    """The uv on PATH, otherwise the one that the ``uv`` Python package put beside envsolve, or None."""
    return shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))


def _uv_pythons(python: str | None) -> Iterator[str]:
    uv = uv_program()
    if uv is None:
        return
    command = [uv, "python", "find", "--no-project", "--no-python-downloads", *([python] if python else [])]
    found = ask(command, os.environ, limit=PROBE_SECONDS)
    if found is not None:
        yield found.partition("\n")[0]


def _fits(target: Target, python: str | None, requires: SpecifierSet | None) -> bool:
    if python and target.markers["python_version"] != str(PythonVersion.parse(python)):
        return False
    return not target.free_threaded and (requires is None or requires.contains(target.version, prereleases=True))


# Run by the base interpreter, so that the environment is laid out as that Python version does it. The activation
# scripts are written last, after the context has been told the final place: they name nothing else. The line of
# pyvenv.cfg with the command that made it is dropped: nothing reads it, and it names a directory that will be gone.
_MAKE = """
def make(staging, final):
    import os, venv
    builder = venv.EnvBuilder(symlinks=True, prompt=os.path.basename(final))
    context = builder.ensure_directories(staging)
    builder.create_configuration(context)
    builder.setup_python(context)
    with open(context.cfg_path, encoding="utf-8") as file:
        lines = [line for line in file if not line.startswith("command ")]
    with open(context.cfg_path, "w", encoding="utf-8") as file:
        file.writelines(lines)
    context.env_dir = final
    context.env_exe = os.path.join(final, context.bin_name, os.path.basename(context.env_exe))
    builder.setup_scripts(context)
"""


def make_environment(target: Target, staging: Path, final: Path) -> None:
    """Make an environment in ``staging`` that will be moved to ``final``.

    Raises:
        InstallError: The interpreter lacks the ``venv`` module, or the directory cannot be written.
    """
    if _is_this_python(target.executable):
        try:
            _run(_MAKE)["make"](str(staging), str(final))
        except ModuleNotFoundError as error:
            raise _without_venv(target) from error
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            raise explained("python -m venv", 1, [str(error)]) from error
        return
    source = f"{_MAKE}\nimport sys\nmake(*sys.argv[1:])"
    command = [str(target.executable), "-I", "-c", source, str(staging), str(final)]
    made = stream(command, environ=os.environ, on_line=lambda line: None)
    if any("No module named" in line for line in made.stderr.splitlines()):
        raise _without_venv(target)
    if made.returncode != 0:
        raise explained("python -m venv", made.returncode, made.stderr.splitlines())


def _without_venv(target: Target) -> InstallError:
    return InstallError(
        f"{target.executable} has no venv module",
        hint="on Debian and Ubuntu, install the package python3-venv; or "
        "install a complete Python with `uv python install`",
    )


def made_of(environment: Path) -> dict[Path, os.stat_result | None]:
    """What makes a directory an environment: its interpreter, scripts and settings, as they are now.

    No package may bring any of it: the interpreter runs the checks, and ``pyvenv.cfg`` says where its library is.
    """
    entries = [environment / "pyvenv.cfg", environment / "lib64", *environment.glob("bin/*")]
    return {path: _status(path) for path in entries}


def replaced(made: Mapping[Path, os.stat_result | None]) -> list[Path]:
    """Which of these are not as they were."""
    return [path for path, before in made.items() if _shown(before) != _shown(_status(path))]


def _status(path: Path) -> os.stat_result | None:
    return path.lstat() if os.path.lexists(path) else None


def _shown(status: os.stat_result | None) -> tuple[int, ...] | None:
    return (status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns) if status else None
