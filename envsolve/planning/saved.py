"""What a plan in a file may hold: names, versions, files and commands as plans have them, whoever wrote the file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from envsolve.planning.lock import Assumptions, Building, unsafe
from envsolve.planning.plan import Plan
from envsolve.solve.outcome import PlannedPackage
from envsolve.toolchain.model import SITE_PACKAGES, Toolchain

# Those of wheels and of conda packages; a leading dot or hyphen would be a directory or an option.
_FORMS = {
    "name": re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*"),
    "version": re.compile(r"[A-Za-z0-9_][A-Za-z0-9._!+~-]*"),
    "filename": re.compile(r"[A-Za-z0-9_][A-Za-z0-9._!+~=-]*"),
    "url": re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s\"'`\\]+"),
    "index": re.compile(r"[^\s\"'`\\-][^\s\"'`\\]*"),
}
_HASH = re.compile(r"[a-z0-9_]+:[0-9a-fA-F]+")
_PATH = re.compile(r"[^\"$`\\]*")
_INSTALLERS = ("sudo apt-get install", "conda create", "mamba create", "micromamba create")


def faults(plan: Plan) -> Iterator[str]:
    """Yield what no plan has, or what could do harm: these become lines, paths and commands."""
    if plan.python is not None and not re.fullmatch(r"\d+\.\d+", plan.python):
        yield f"python is no version such as 3.12: {plan.python!r}"
    if plan.cuda is not None and not re.fullmatch(r"[a-z0-9.]+", plan.cuda):
        yield f"cuda is no variant such as cu126: {plan.cuda!r}"
    for package in plan.packages:
        yield from _of_package(package)
    building = Building()
    if plan.toolchain is not None:
        chain = plan.toolchain
        building = Building(nvcc_from=chain.nvcc_from, cuda_home=chain.CUDA_HOME, environment=chain.environment)
        yield from _of_toolchain(chain)
    yield from unsafe(Assumptions(environment=plan.environment), building)


def _of_package(package: PlannedPackage) -> Iterator[str]:
    for field, form in _FORMS.items():
        value = getattr(package, field)
        if value is not None and not form.fullmatch(value):
            yield f"the {field} of a package is {value!r}"
    for name, digest in package.hashes.items():
        if not _HASH.fullmatch(f"{name}:{digest}"):
            yield f"a hash of {package.name} is {name}:{digest}"


def _of_toolchain(chain: Toolchain) -> Iterator[str]:
    if not _PATH.fullmatch((chain.CUDA_HOME or "").removeprefix(SITE_PACKAGES)):
        yield f"toolchain.CUDA_HOME is {chain.CUDA_HOME!r}"
    if chain.get_nvcc is not None and not _installs(chain.get_nvcc):
        yield f"toolchain.get_nvcc is {chain.get_nvcc!r}, which no plan says"


def _installs(command: str) -> bool:
    """Whether a command installs packages of a package manager and names CUDA_HOME, and does nothing else."""
    install, _, export = command.rpartition(" && ")
    try:
        words = list(shlex.shlex(install, posix=True, punctuation_chars=True))
    except ValueError:
        return False
    names_home = re.fullmatch(r"export CUDA_HOME=[A-Za-z0-9~/._-]+", export)
    # apt-get runs what -o says. A redirection is a word of its own, and in quotes a bound of a version.
    options = set() if install.startswith("sudo") else {"-y", "-p", "-c"}
    plain = (
        word in options if word.startswith("-") else not set(word) & set("$`;&|()\\") and set(word) - set("<>")
        for word in words
    )
    return bool(names_home and install.startswith(_INSTALLERS) and all(plain))
