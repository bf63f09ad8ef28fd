"""Install commands, the same for pip and uv but for their words.

The plan holds every package, so nothing is left to the installer's resolver (``--no-deps``), and each index has its own
command: no index can supply a package that the plan takes from another.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from envsolve._default_index import DEFAULT_INDEX
from envsolve.plan import Plan, PlannedPackage
from envsolve.render._packages import default_index, installable, is_direct, is_tree


def install_commands(plan: Plan, install: Sequence[str], index_option: str) -> tuple[str, ...]:
    """The commands that install a plan, to be run in order, quoted for a POSIX shell.

    Args:
        plan: The plan.
        install: The words that begin a command: ``("uv", "pip", "install")``.
        index_option: The option that replaces the default index.

    Raises:
        ImpossibleError: Nothing fits.
    """
    packages = installable(plan)
    default = default_index(packages)
    served: dict[str, list[str]] = {}
    for package in packages:
        if not is_direct(package):
            served.setdefault(package.index or default, []).append(f"{package.name}=={package.version}")
    commands: list[list[str]] = []
    # The default index last: what it serves may have to be built, with a torch that is there already.
    for index in sorted(served, key=lambda index: (index == default, index)):
        where = [] if index == DEFAULT_INDEX else [index_option, index]
        commands.append([*install, "--no-deps", *where, *served[index]])
    direct = [package for package in packages if is_direct(package)]
    if files := [_reference(package) for package in direct if not is_tree(package)]:
        commands.append([*install, "--no-deps", *files])
    # What a source tree depends on is known only once it is built.
    if trees := [_reference(package) for package in direct if is_tree(package)]:
        commands.append([*install, *trees])
    return tuple(shlex.join(command) for command in commands)


def _reference(package: PlannedPackage) -> str:
    return f"{package.name} @ {package.url}"
