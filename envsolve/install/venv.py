"""Making an empty virtual environment in one folder whose scripts name another."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from envsolve.install.errors import InstallError, explained
from envsolve.install.files import File
from envsolve.install.interpreters import PROBE_SECONDS, Target
from envsolve.install.process import run
from envsolve.processes import ask

# Run by the base interpreter, so that the environment is laid out as that Python version does it. The activation
# scripts are written last, after the context has been told the final place: they name nothing else. The line of
# pyvenv.cfg with the command that made it is dropped: nothing reads it, and it names a folder that will be gone.
_MAKE = """
import os, sys, venv
staging, final = sys.argv[1:]
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

_BUNDLED_PIP = """
import glob, os, sysconfig
folders = [sysconfig.get_config_var("WHEEL_PKG_DIR")]
try:
    import ensurepip
    folders.append(os.path.join(os.path.dirname(ensurepip.__file__), "_bundled"))
except ImportError:
    pass
print(max((path for folder in folders if folder for path in glob.glob(os.path.join(folder, "pip-*.whl"))), default=""))
"""


def make(target: Target, staging: Path, final: Path) -> None:
    """Make an environment in ``staging`` that will stand at ``final``.

    Raises:
        InstallError: The interpreter lacks the ``venv`` module, or the folder cannot be written.
    """
    command = [str(target.executable), "-I", "-c", _MAKE, str(staging), str(final)]
    made = run(command, environment=os.environ, on_line=lambda line: None)
    if any("No module named" in line for line in made.output):
        raise InstallError(
            f"{target.executable} has no venv module",
            hint="on Debian and Ubuntu it is in the package python3-venv; `uv python install` gives a complete Python",
        )
    if made.code != 0:
        raise explained("python -m venv", made.code, made.output)


def bundled_pip(target: Target) -> File | None:
    """The pip wheel that the interpreter carries for ``ensurepip``; None where its maker removed it.

    An environment gets this pip, so that ``python -m pip`` works in it, unless the plan has one.
    """
    answer = ask([str(target.executable), "-I", "-c", _BUNDLED_PIP], os.environ, limit=PROBE_SECONDS)
    if answer is None:
        return None
    wheel = Path(answer.partition("\n")[0])
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return File("pip", wheel.name.split("-")[1], "wheel", wheel.name, wheel.as_uri(), {"sha256": digest})
