"""An explicit lock for ``conda create --file`` (CEP 23): packages by URL and hash, in the order of installation."""

from __future__ import annotations

import json
from collections.abc import Iterator

from envsolve.errors import IndexUnavailableError, UsageError
from envsolve.formats._packages import activated, conda_heading, conda_terms
from envsolve.planning.lock import EXPLICIT_NOTE, assumptions_of
from envsolve.planning.plan import Plan
from envsolve.solve.outcome import PlannedPackage

NAME = "conda-lock"
FILENAMES = ("conda-linux-64.lock", "conda-*.lock")
FAMILY = "conda"
HOLDS_SEVERAL = False
NEEDS_HASHES = True


def render(plan: Plan) -> str:
    """The file's text.

    Raises:
        ImpossibleError: Nothing fits.
        IndexUnavailableError: A channel gives no hash of a package.
        UsageError: It is a plan of wheels, or pip has to install a part of it.
    """
    terms = conda_terms(plan)
    if terms.pip:
        hint = "use the format environment-yml"
        raise UsageError(f"an explicit conda lock cannot contain pip packages: {', '.join(terms.pip)}", hint=hint)
    lines = [*conda_heading(plan), f"# platform: {terms.subdir}", *_comments(plan), "@EXPLICIT"]
    return "\n".join((*lines, *map(_line, in_order(plan.packages)))) + "\n"


def in_order(packages: tuple[PlannedPackage, ...]) -> tuple[PlannedPackage, ...]:
    """Packages with those that they depend on before them."""
    by_name = {package.name: package for package in packages}
    done: dict[str, PlannedPackage] = {}

    def visit(package: PlannedPackage, trail: frozenset[str]) -> None:
        if package.name in done or package.name in trail:
            return  # conda packages may depend on each other in a circle, as pip and python do
        for name in sorted(package.requires):
            visit(by_name[name], trail | {package.name})
        done[package.name] = package

    for package in packages:
        visit(package, frozenset())
    return tuple(done.values())


def _comments(plan: Plan) -> Iterator[str]:
    yield "# install it with: envsolve install FILE --prefix DIR"
    # Source of the version: conda's changelog, 24.9.0; 24.7.1 says that it could not parse an explicit URL.
    yield "# or, with conda 24.9 or newer, which reads sha256: conda create --prefix DIR --file FILE"
    yield f"{EXPLICIT_NOTE}{json.dumps(assumptions_of(plan).to_table())}"
    for name, value in activated(plan).items():
        yield f"# set at run time: {name}={value}"


def _line(package: PlannedPackage) -> str:
    digest = package.hashes.get("sha256") or package.hashes.get("md5")
    if digest is None:
        hint = "ask the owner of the channel for hashes, or use the format environment-yml"
        raise IndexUnavailableError(f"{package.index} publishes no hash of {package.filename}", hint=hint)
    return f"{package.url}#{'sha256:' if 'sha256' in package.hashes else ''}{digest}"
