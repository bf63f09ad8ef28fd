"""The wheels that pip installs on top of conda packages, resolved beforehand.

pip sees what conda installed by its metadata, and replaces what does not suit it: a torch from the package index brings
ten packages of GPU libraries, beside those of conda. So the pip part is resolved here, with what conda has fixed, and
written down exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envsolve.binaries.names import is_toolkit_package
from envsolve.facts.catalogue import Catalogue
from envsolve.packages.client import IndexClient
from envsolve.packages.requirements import Asked, Need
from envsolve.planning.conda import impossible
from envsolve.planning.make import make_plan
from envsolve.planning.plan import Plan
from envsolve.planning.request import Request
from envsolve.solve.outcome import Conflict, ConflictFact, Fix, PlannedPackage, PlanWarning
from envsolve.toolchain.model import about_trees

# conda's torch and the library under it.
_TORCH = ("pytorch", "libtorch")


def with_pip_part(
    plan: Plan, asked: Asked, request: Request, catalogue: Catalogue, client: IndexClient, default: str
) -> Plan:
    """A conda plan with exact requirements for pip; or impossible, if pip would bring what conda has.

    Args:
        plan: Of conda packages.
        asked: What pip should install.
        request: Of the whole plan.
        catalogue: The facts.
        client: The package indexes.
        default: URL of the default one: what is from another is written with its URL.

    Raises:
        IndexUnavailableError: An index that only it can answer for failed.
    """
    if plan.conda is None or plan.status == "impossible":
        return plan
    provided = provided_by_conda(plan, catalogue.conda_names)
    by_conda = [package.name for package in plan.packages if package.name in _TORCH]
    held = tuple(Need(Requirement(f"{name}=={version}"), "conda") for name, version in provided.items())
    question = Request(
        python=plan.python,
        cuda=None if by_conda else request.cuda,
        prereleases=asked.prereleases,
        build_metadata=request.build_metadata,
        environ=request.environ,
    )
    wheels = make_plan(
        replace(asked, constraints=(*asked.constraints, *held), notes=()), plan.machines, question, catalogue, client
    )
    if wheels.status == "impossible":
        facts = tuple(replace(fact, fact=f"packages for pip: {fact.fact}") for fact in wheels.conflict)
        return impossible(plan, Conflict(facts, (_ASK_CONDA, *wheels.remedies)))
    own, met = _closure(_roots(asked, wheels, everything=not by_conda), wheels, provided)
    runtime = _runtime(catalogue)
    if by_conda and (second := sorted(name for name in own if _is_second(name, runtime, catalogue))):
        fact = f"pip would install {', '.join(second)}, in addition to the CUDA and the torch from conda"
        return impossible(plan, Conflict((ConflictFact(fact),), (_ASK_CONDA,)))
    added = [package for package in wheels.packages if package.name in own]
    exact = (*(_exactly(package, default) for package in added), *(f"{name}=={provided[name]}" for name in sorted(met)))
    made = replace(plan, conda=replace(plan.conda, pip=exact))
    return _with_warnings(made, added, catalogue) if by_conda else _of_wheels(made, wheels)


def _roots(asked: Asked, wheels: Plan, *, everything: bool) -> list[str]:
    """Names that pip is asked to install; or also what the plan adds and no package requires, such as a newer ptxas."""
    required = {name for package in wheels.packages for name in package.requires}
    added = [package.name for package in wheels.packages if everything and package.name not in required]
    return [*(canonicalize_name(need.requirement.name) for need in asked.needs), *added]


def _with_warnings(plan: Plan, added: Sequence[PlannedPackage], catalogue: Catalogue) -> Plan:
    """The plan with what is not known of the packages that pip adds beside conda's torch."""
    bound = [p.name for p in added if p.name in catalogue.family or _compiled(p, catalogue)]
    about = (*about_trees(added, catalogue), *_about_bound(bound))
    unread = any(package.tree is not None and package.tree.unread is not None for package in added)
    return replace(plan, status="unknown" if unread else plan.status, warnings=(*plan.warnings, *about))


def _of_wheels(plan: Plan, wheels: Plan) -> Plan:
    """The plan with what the wheels decide if torch, if any, is theirs."""
    return replace(
        plan,
        status=wheels.status if plan.status == "ok" else plan.status,
        cuda=wheels.cuda or plan.cuda,
        support=(*plan.support, *wheels.support),
        driver=wheels.driver or plan.driver,
        environment={**plan.environment, **wheels.environment},
        toolchain=wheels.toolchain,
        warnings=tuple(dict.fromkeys((*plan.warnings, *wheels.warnings))),
    )


_ASK_CONDA = Fix("move it from the pip list to the conda dependencies, or plan everything with pip")


def provided_by_conda(plan: Plan, names: Mapping[str, str]) -> dict[str, str]:
    """Name on the package index and version of every Python package of a plan."""
    back = {conda: project for project, conda in names.items()}
    found = (package for package in plan.packages if "python" in package.requires)
    return {back.get(p.name, canonicalize_name(p.name)): p.version for p in found}


def _closure(roots: Sequence[str], wheels: Plan, provided: Mapping[str, str]) -> tuple[set[str], set[str]]:
    """Packages that pip has to install for roots, and the conda packages at which their requirements end."""
    requires = {package.name: package.requires for package in wheels.packages}
    own: set[str] = set()
    met: set[str] = set()
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name in provided:
            met.add(name)
        elif name not in own:
            own.add(name)
            waiting += requires.get(name, ())
    return own, met


def _is_second(name: str, runtime: frozenset[str], catalogue: Catalogue) -> bool:
    """Whether a package is torch, Triton, what is linked to torch's own code, or a library of the CUDA runtime."""
    member = catalogue.family.get(name)
    return (
        name == "torch"
        or name in runtime
        or (member is not None and member.agrees_on != "major" and not member.optional)
    )


def _runtime(catalogue: Catalogue) -> frozenset[str]:
    """The CUDA libraries that torch's wheels depend on, ``nvidia-cublas-cu12``."""
    lines = {line for build in catalogue.builds("torch") for line in build.requires or ()}
    return frozenset(Requirement(line).name for line in lines if is_toolkit_package(line))


def _exactly(package: PlannedPackage, default: str) -> str:
    """The requirement for pip: an index may have a different package under the name of one requested by URL."""
    by_address = package.index != default and package.url is not None
    return f"{package.name} @ {package.url}" if by_address else f"{package.name}=={package.version}"


def _compiled(package: PlannedPackage, catalogue: Catalogue) -> bool:
    known = any(project.package == package.name for project in catalogue.source_projects)
    return known or (package.tree is not None and package.tree.needs_torch is not False)


def _about_bound(names: Sequence[str]) -> tuple[PlanWarning, ...]:
    if not names:
        return ()
    text = f"pip's build of {', '.join(names)} is made for the torch of the package index, not for conda's torch"
    return (
        PlanWarning(
            "not-judged",
            text,
            "install it from conda, or verify it after the installation: envsolve verify --prefix DIR",
        ),
    )
