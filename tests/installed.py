"""The model of an environment in which a plan was installed, as its files would say it, without installing anything."""

from __future__ import annotations

from collections.abc import Sequence

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from envsolve.diagnose.environment import diagnose_environment
from envsolve.diagnose.model import Diagnoses
from envsolve.diagnose.report.read import read_report
from envsolve.environment.model import BuildTools, Distribution, Environment, Site, TorchFiles
from envsolve.facts.builds import Build
from envsolve.facts.catalogue import Catalogue
from envsolve.planning.plan import Plan
from envsolve.solve.outcome import PlannedPackage

SITE = "/env/lib/python3.12/site-packages"


def diagnosed(plan: Plan, catalogue: Catalogue) -> Diagnoses:
    """What ``diagnose`` says of a plan once it is installed."""
    report = read_report("", catalogue, machine=plan.machines[0])
    return diagnose_environment(installed(plan.packages, catalogue, plan.python or "3.12"), report, (), catalogue)


def installed(packages: Sequence[PlannedPackage], catalogue: Catalogue, python: str) -> Environment:
    """The environment that installing packages in their order makes."""
    files = {package.name: tuple(_libraries(package, catalogue)) for package in packages}
    owner = {file: name for name, of_package in files.items() for file in of_package}
    distributions = tuple(
        Distribution(
            package.name,
            package.version,
            SITE,
            f"{SITE}/{package.name}-{package.version}.dist-info",
            requires=_build(package, catalogue).requires or package.requires,
            files=files[package.name],
            altered=tuple(file for file in files[package.name] if owner[file] != package.name),
        )
        for package in packages
    )
    torch = next((package for package in packages if package.name == "torch"), None)
    old = {package.name for package in packages if _of_numpy_1(package, catalogue)}
    numpy = next((package.version for package in packages if package.name == "numpy"), "1")
    beside = {name: f"{SITE}/{name}.so" for name in old - {"torch"} if not numpy.startswith("1")}
    return Environment(
        "/env",
        "venv",
        "/env/bin/python",
        f"{python}.1",
        "x86_64",
        "/env",
        (Site(SITE, "environment"),),
        distributions,
        torches=(_torch(torch, catalogue, "torch" in old),) if torch else (),
        extensions=(),
        numpy_1=beside,
        tools=BuildTools(compilers=("/usr/bin/gcc",), python_h="/usr/include/python3.12/Python.h"),
    )


def _torch(package: PlannedPackage, catalogue: Catalogue, of_numpy_1: bool) -> TorchFiles:
    build, version = _build(package, catalogue), Version(package.version)
    cuda = None if package.variant == "cpu" else build.cuda
    label = f"{version.public}+{package.variant}"
    return TorchFiles(SITE, label, cuda, package.variant, build.code, numpy=1 if of_numpy_1 else None)


def _build(package: PlannedPackage, catalogue: Catalogue) -> Build:
    version = Version(package.version).public
    nothing = Build(package.name, version, "any", "any", (), "default", catalogue.builds("torch")[0].evidence, "")
    same = (b for b in catalogue.builds(package.name) if (b.version, b.variant) == (version, package.variant))
    return next((build for build in same if build.filename(build.pythons[0]) and _is_file(build, package)), nothing)


def _is_file(build: Build, package: PlannedPackage) -> bool:
    return package.filename in {build.filename(python) for python in build.pythons}


def _libraries(package: PlannedPackage, catalogue: Catalogue) -> list[str]:
    """A library for each package whose files it installs, itself included."""
    version = Version(package.version)
    shared = [one for one in catalogue.shared_files if one.package == package.name]
    owners = [one.owner for one in shared if version in SpecifierSet(one.versions)]
    return [f"{owner.replace('-', '_')}/lib/lib{owner}.so.1" for owner in dict.fromkeys((*owners, package.name))]


def _of_numpy_1(package: PlannedPackage, catalogue: Catalogue) -> bool:
    version = Version(package.version)
    return any(
        one.package == package.name and one.module == "numpy" and version in SpecifierSet(one.versions)
        for one in catalogue.compiled_against
    )
