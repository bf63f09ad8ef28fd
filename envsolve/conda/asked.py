"""Reading what is asked of a conda plan, from every kind of input, into one value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from envsolve.conda.environment_file import SUFFIXES, read_environment_file
from envsolve.conda.model import CondaAsked, Spec
from envsolve.conda.spec import of_requirement, read_spec
from envsolve.resolve.environment import Environment
from envsolve.resolve.requirements import Need, read_requirements

_COMMAND_LINE = "command line"


def read_asked(
    words: Sequence[str],
    files: Sequence[Path],
    constraints: Sequence[Path],
    names: Mapping[str, str],
    target: Environment,
    *,
    projects: Sequence[Path] = (),
    extras: Sequence[str] = (),
    groups: Sequence[str] = (),
) -> CondaAsked:
    """All that is asked: by the command line, environment and requirement files, and projects.

    Raises:
        UsageError: Something cannot be read.
    """
    own = tuple(read_spec(word, _COMMAND_LINE, names) for word in words)
    environments = [read_environment_file(path, names) for path in files if path.suffix in SUFFIXES]
    files = [path for path in files if path.suffix not in SUFFIXES]
    others = read_requirements((), files, constraints, projects=projects, extras=extras, groups=groups)
    needs, holds = (_specs(some, names, target) for some in (others.needs, others.constraints))
    indexes = (*others.index_urls, *others.extra_index_urls)
    ignored = (f"{index}: package indexes play no part in a conda plan" for index in indexes)
    return CondaAsked(
        specs=(*own, *(spec for file in environments for spec in file.specs), *needs),
        constraints=holds,
        pip=tuple(line for file in environments for line in file.pip),
        channels=tuple(dict.fromkeys(channel for file in environments for channel in file.channels)),
        notes=(*(note for file in environments for note in file.notes), *others.notes, *ignored),
    )


def _specs(needs: Sequence[Need], names: Mapping[str, str], target: Environment) -> tuple[Spec, ...]:
    wanted = (need for need in needs if target.wants(need.requirement.marker))
    return tuple(of_requirement(need.requirement, need.origin, names) for need in wanted)
