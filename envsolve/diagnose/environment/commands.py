"""Commands that reach the environment itself, through the installer that it has."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path

from envsolve.diagnose.environment.model import Environment
from envsolve.diagnose.model import Diagnoses, Remedy
from envsolve.diagnose.remedies.torch import as_uv_takes_it
from envsolve.files import is_folder

_PIP = re.compile(r"(?<![\w./-])(?:uv pip|(?:python3? -m )?pip3?) (?P<verb>install|uninstall)\b(?P<rest>[^&|;]*)")
_CONDA = re.compile(r"(?<![\w./-])conda (install|remove)\b")


def addressed(found: Diagnoses, environment: Environment) -> Diagnoses:
    """Diagnoses whose commands name the environment, whichever shell they are run in."""

    def at(remedies: tuple[Remedy, ...]) -> tuple[Remedy, ...]:
        return tuple(Remedy(r.text, in_environment(r.command, environment) if r.command else None) for r in remedies)

    diagnoses = tuple(replace(diagnosis, remedies=at(diagnosis.remedies)) for diagnosis in found.diagnoses)
    return replace(found, diagnoses=diagnoses, next_steps=at(found.next_steps))


def in_environment(command: str, environment: Environment) -> str:
    """``pip install X``, ``conda install X``, ``--prefix DIR`` as they must be written for this environment."""
    command = _PIP.sub(lambda match: _pip(environment, match["verb"], match["rest"]), command)
    command = command.replace("--prefix DIR", f"--prefix {shlex.quote(environment.prefix)}")
    return _CONDA.sub(lambda match: f"conda {match[1]} -p {shlex.quote(environment.prefix)}", command)


def _pip(environment: Environment, verb: str, rest: str) -> str:
    prefix = environment.prefix
    own = any(d.name == "pip" and _is_own(environment, d.site) for d in environment.distributions)
    if environment.kind == "pipx":
        return f"pipx runpip {shlex.quote(Path(prefix).name)} {verb}{rest}"
    if own and environment.kind not in ("uv", "uv-tool"):
        python = Path(prefix) / ("Scripts/python.exe" if is_folder(Path(prefix) / "Scripts") else "bin/python")
        return f"{shlex.quote(str(python))} -m pip {verb}{rest}"
    # uv asks nothing, and says so where it is told not to.
    return as_uv_takes_it(f"uv pip {verb} --python {shlex.quote(prefix)}{rest.replace(' -y ', ' ')}")


def _is_own(environment: Environment, site: str) -> bool:
    found = environment.site(site)
    return found is not None and found.origin == "environment"
