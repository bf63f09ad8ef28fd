"""From what an environment holds now back to a saved state, through the installer that it has."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from envsolve.catalogue.load import Catalogue
from envsolve.diagnose.environment.commands import in_environment
from envsolve.diagnose.environment.model import Environment
from envsolve.diagnose.environment.read import read_outline
from envsolve.errors import EnvsolveError, VerificationError
from envsolve.mend.state import Package, State, packages_of
from envsolve.mend.steps import carry_out, steps_of

_FLAVOUR = re.compile(r"\+(cpu|cu\d+)$")


def restoring(state: State, environment: Environment, catalogue: Catalogue) -> tuple[str, ...]:
    """The commands that put a state back; none where it is there.

    Packages of a CUDA flavour come from PyTorch's own index, as their version says; all others from the user's.
    """
    now = {package.name: package for package in packages_of(environment)}
    then = {package.name: package for package in state.packages}
    extra = [name for name in now if name not in then]
    groups: dict[str, list[str]] = {}
    for name, package in then.items():
        if now.get(name) != package:
            groups.setdefault(_index(package, catalogue), []).append(shlex.quote(_requirement(package)))
    commands = [f"pip uninstall -y {' '.join(map(shlex.quote, extra))}"] if extra else []
    commands += [f"pip install --force-reinstall --no-deps {' '.join(n)}{index}" for index, n in groups.items()]
    return tuple(in_environment(command, environment) for command in commands)


def put_back(
    state: State, catalogue: Catalogue, environ: Mapping[str, str], on_line: Callable[[str], None]
) -> tuple[str, ...]:
    """Put a state back, and look whether it is there.

    Returns:
        The names of what was put back or removed.

    Raises:
        VerificationError: It could not be; the hint says exactly what to run.
    """
    prefix = Path(state.prefix)
    environment = read_outline(prefix, environ)
    commands = restoring(state, environment, catalogue)
    before = packages_of(environment)
    try:
        for command in commands:
            carry_out(steps_of(command, environment.prefix, environ), environ, on_line)
    except EnvsolveError as error:
        raise VerificationError(
            f"the earlier state of {prefix} could not be put back: {error.message}", hint=_by_hand(commands)
        ) from error
    after = read_outline(prefix, environ)
    remain = restoring(state, after, catalogue)
    if remain:
        wrong = ", ".join(_differences(state, packages_of(after)))
        raise VerificationError(
            f"the earlier state of {prefix} is not back: {wrong} differ, though the installer was content",
            hint=_by_hand(remain),
        )
    return tuple(_differences(state, before))


def _differences(state: State, packages: tuple[Package, ...]) -> Iterator[str]:
    now, then = ({p.name: p for p in side} for side in (packages, state.packages))
    yield from (name for name in sorted({**now, **then}) if now.get(name) != then.get(name))


def _by_hand(commands: tuple[str, ...]) -> str:
    return f"run: {' && '.join(commands)}"


def _requirement(package: Package) -> str:
    return package.source or f"{package.name}=={package.version}"


def _index(package: Package, catalogue: Catalogue) -> str:
    match = _FLAVOUR.search(package.version or "")
    place = catalogue.indexes.get("pytorch")
    if match is None or place is None or package.source:
        return ""
    return f" --index-url {place.url.format(variant=match[1])}"
