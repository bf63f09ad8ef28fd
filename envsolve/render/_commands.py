"""Install commands, the same for pip and uv but for their words.

The plan holds every package, so nothing is left to the installer's resolver (``--no-deps``), and each index has its own
command: no index can supply a package that the plan takes from another.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

import msgspec

from envsolve._default_index import DEFAULT_INDEX
from envsolve.plan import Plan, PlannedPackage
from envsolve.render._packages import default_index, installable, is_direct, is_tree
from envsolve.render._sources import is_compiled, prepare


class Words(msgspec.Struct, frozen=True):
    """An installer's words.

    Attributes:
        install: Those that begin a command: ``("uv", "pip", "install")``.
        index: The option that replaces the default index.
        unisolated: The options that build in the environment itself, and take no wheel that was built before.
        python: The environment's Python, in the shell's words.
    """

    install: Sequence[str]
    index: str
    unisolated: Sequence[str]
    python: str


def install_commands(plan: Plan, words: Words) -> tuple[str, ...]:
    """The commands that install a plan, to be run in order in one POSIX shell.

    Raises:
        ImpossibleError: Nothing fits.
    """
    packages, install = installable(plan), words.install
    compiled = [package for package in packages if is_compiled(package, plan)]
    default = default_index(packages)
    served: dict[str, list[str]] = {}
    for package in (package for package in packages if package not in compiled):
        if not is_direct(package):
            served.setdefault(package.index or default, []).append(f"{package.name}=={package.version}")
    commands: list[list[str]] = []
    # The default index last: what it serves may have to be built, with a torch that is there already.
    for index in sorted(served, key=lambda index: (index == default, index)):
        where = [] if index == DEFAULT_INDEX else [words.index, index]
        commands.append([*install, "--no-deps", *where, *served[index]])
    direct = [package for package in packages if is_direct(package) and package not in compiled]
    if files := [_reference(package) for package in direct if not is_tree(package)]:
        commands.append([*install, "--no-deps", *files])
    commands += [[*install, *trees] for trees in _trees(direct)]
    return (*map(shlex.join, commands), *_compile(plan, compiled, default, words))


def _compile(plan: Plan, compiled: Sequence[PlannedPackage], default: str, words: Words) -> Iterator[str]:
    """Last of all, what is compiled against the rest."""
    if not compiled or plan.toolchain is None:
        return
    yield from prepare(plan.toolchain, words.python)
    where = [] if default == DEFAULT_INDEX else [words.index, default]
    begin = [*words.install, *words.unisolated]
    known = [package for package in compiled if not is_tree(package)]
    if known:
        named = [_reference(p) if is_direct(p) else f"{p.name}=={p.version}" for p in known]
        yield shlex.join([*begin, "--no-deps", *where, *named])
    yield from (shlex.join([*begin, *trees]) for trees in _trees(compiled))


def _trees(packages: Sequence[PlannedPackage]) -> Iterator[list[str]]:
    """Source trees: those whose dependencies are known, and in the plan; then those whose are not."""
    trees = [package for package in packages if is_tree(package)]
    known = [_reference(package) for package in trees if package.tree and package.tree.exact]
    others = [_reference(package) for package in trees if not (package.tree and package.tree.exact)]
    if known:
        yield ["--no-deps", *known]
    if others:
        yield others


def _reference(package: PlannedPackage) -> str:
    return f"{package.name} @ {package.url}"
