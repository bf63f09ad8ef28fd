"""Validation of a plan read from a file: names, versions, files and commands must be ones that plans can have."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename
from packaging.version import Version

from envsolve.machine.known import faults as machine_faults
from envsolve.packages.urls import safe_join
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
        yield f"python is not a version such as 3.12: {plan.python!r}"
    if plan.cuda is not None and not re.fullmatch(r"[a-z0-9.]+", plan.cuda):
        yield f"cuda is not a variant such as cu126: {plan.cuda!r}"
    for date in (plan.catalogue_date, plan.own_catalogue_date):
        if date is not None and not re.fullmatch(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])", date):
            yield f"a date of the catalogue is {date!r}"
    for machine in plan.machines:
        yield from (f"machines: {path}: {message}" for path, message in machine_faults(machine))
    for package in plan.packages:
        if package.kind == "conda" and plan.conda is None:
            yield f"{package.name} is a conda package, but the plan has wheels"
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
        odd = value is not None and field in ("url", "index") and safe_join("", value) is None
        if odd or (value is not None and not form.fullmatch(value)):
            yield f"the {field} of a package is {value!r}"
    if package.filename is not None and not _is_file(package, package.filename):
        yield f"{package.filename} is not a file of {package.name} {package.version}"
    if package.tree is not None and not (package.tree.commit or package.tree.folder):
        yield f"the source of {package.name} has no commit and no directory"
    for name, digest in package.hashes.items():
        if not _HASH.fullmatch(f"{name}:{digest}"):
            yield f"a hash of {package.name} is {name}:{digest}"


def _is_file(package: PlannedPackage, filename: str) -> bool:
    """Whether a version and a file name can be those of a package of its kind."""
    try:
        if package.kind == "conda":
            return not filename.endswith(".whl")
        whose = canonicalize_name(package.name), Version(package.version)
        if package.kind == "wheel":
            return parse_wheel_filename(filename)[:2] == whose
        # An archive of a URL may have any name.
        named = package.index is None and not filename.endswith(".whl")
        return named or parse_sdist_filename(filename) == whose
    except ValueError:
        return False


def _of_toolchain(chain: Toolchain) -> Iterator[str]:
    if not _PATH.fullmatch((chain.CUDA_HOME or "").removeprefix(SITE_PACKAGES)):
        yield f"toolchain.CUDA_HOME is {chain.CUDA_HOME!r}"
    for line in chain.build_requires:
        try:
            Requirement(line)
        except InvalidRequirement:
            yield f"toolchain.build_requires has {line!r}"
    if chain.get_nvcc is not None and not _installs(chain.get_nvcc):
        yield f"toolchain.get_nvcc is {chain.get_nvcc!r}, which no plan says"


def _installs(command: str) -> bool:
    """Whether a command only installs packages with a package manager and sets CUDA_HOME."""
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
