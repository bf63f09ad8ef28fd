"""Plan formats: each module here without a leading underscore is one, found by its name.

A format module declares what it is and renders plans:

* ``NAME``: ``environment-yml``, after ``--format``.
* ``FILENAMES``: patterns of file names that select it after ``-o``, its own file's name first; may be empty.
* ``FAMILY``: ``wheels``, ``conda`` or ``container``: which plans it can hold. ``any`` holds wheels and conda packages.
* ``HOLDS_SEVERAL``: whether ``render_plans(plans, *, sources)`` writes several plans as one text.
* ``NEEDS_HASHES``: whether every package needs a hash.
* ``EDITS``, ``MARK``, ``edit``, ``also_asked`` and ``next_step``, if it can change a file of a project: the names of
  such files, the header of the tool's tables, the change, what an earlier change moved out of its requirements, and
  the commands that install it.
* ``BUILDERS``, for containers only: the names after ``--for``.
* ``render(plan)``: the text.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Literal, Protocol, cast

from msgspec.structs import replace

from envsolve.errors import UsageError
from envsolve.formats._packages import in_a_line, public, warning_lines
from envsolve.machine.model import Machine, Platform
from envsolve.planning.plan import Plan

if TYPE_CHECKING:
    from envsolve.planning.groups import Plans


class Format(Protocol):
    """The attributes of a format module."""

    NAME: str
    FILENAMES: tuple[str, ...]
    FAMILY: Literal["wheels", "conda", "container", "any"]
    HOLDS_SEVERAL: bool
    NEEDS_HASHES: bool
    render: Callable[[Plan], str]


def formats() -> tuple[str, ...]:
    """Return the names of all formats, sorted."""
    names = (module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))
    return tuple(sorted(name.replace("_", "-") for name in names))


def format_named(name: str) -> Format:
    """Return a format.

    Raises:
        UsageError: The format is unknown.
    """
    if name not in formats():
        raise UsageError(f"--format {name}: unknown plan format", hint=f"formats: {', '.join(formats())}")
    return cast("Format", importlib.import_module(f"{__name__}.{name.replace('-', '_')}"))


# Of files with text for people, besides names without a suffix.
_TEXT_SUFFIXES = ("", ".md", ".log", ".out")


def format_for(output: PurePath | None) -> str:
    """Return the name of the format for a file name; ``summary`` if it matches none.

    Raises:
        UsageError: The name looks like that of a lock, and installers would not recognize it; or no format has files
            with its suffix.
    """
    name = output.name if output else ""
    found = [
        (len(pattern.strip("*")), form)
        for form in (formats() if name else ())
        for pattern in format_named(form).FILENAMES
        if fnmatchcase(name, pattern) or fnmatchcase(name.lower(), pattern)
    ]
    if not found and name.endswith(".toml"):
        from envsolve.formats.pylock import check_path

        check_path(Path(name))
    if not found and PurePath(name).suffix.lower() not in _TEXT_SUFFIXES:
        hint = "use a file name such as pylock.toml, requirements.txt or plan.json; or use --format NAME"
        raise UsageError(
            f"-o {output}: there is no plan format for files with the suffix {PurePath(name).suffix}", hint=hint
        )
    return max(found, default=(0, "summary"))[1]


def format_built_by(builder: str) -> str:
    """Return the name of the container format that a builder reads.

    Raises:
        UsageError: The builder is unknown.
    """
    builders = {name: form for form in formats() for name in getattr(format_named(form), "BUILDERS", ())}
    if builder not in builders:
        raise UsageError(f"--for {builder}: unknown builder", hint=f"builders: {', '.join(sorted(builders))}")
    return builders[builder]


def render(plan: Plan, format: str) -> str:
    """Write a plan in one of :func:`formats`.

    Raises:
        UsageError: The format is unknown.
        ImpossibleError: The plan is impossible, and the format cannot say so.
        IndexUnavailableError: The format requires hashes that the plan lacks.
    """
    return format_named(format).render(public(plan))


def render_plans(plans: Plans, format: str, *, sources: bool = False) -> str:
    """Write several plans as one text, in a format that holds several.

    Args:
        plans: The plans.
        format: The format's name.
        sources: In a summary, also print where the facts of a conflict were read.

    Raises:
        EnvsolveError: A plan is impossible or cannot be locked.
    """
    text: str = vars(format_named(format))["render_plans"](plans, sources=sources)
    return text


def files(plans: Plans, format: str) -> Mapping[str, str]:
    """Return the text of every plan by the name of its file; plans that fit no machine have none.

    Raises:
        EnvsolveError: As :func:`render`.
    """
    own = PurePath(next(iter(format_named(format).FILENAMES), f"{format}.txt"))
    names = group_names(plans)
    return {
        f"{own.stem}.{name}{own.suffix}": render(plan, format) for name, plan in zip(names, plans.plans, strict=True)
    }


def edits(file: Path, format: str | None, text: str = "") -> str:
    """Return the name of the format that changes a project's file: of several, that of the tool it has tables of.

    Raises:
        UsageError: No format does, or the named one does not.
    """
    able = [vars(one) for one in map(format_named, formats()) if hasattr(one, "EDITS")]
    fitting = {str(one["NAME"]): one["MARK"] for one in able if file.name in one["EDITS"]}
    if not fitting or format not in (None, *fitting):
        who = f"--format {format} cannot" if format else "no format can"
        hint = f"files that can be changed: {', '.join(sorted({name for one in able for name in one['EDITS']}))}"
        raise UsageError(f"--write {file}: {who} change it", hint=hint)
    if format is not None:
        return format
    # uv's tables come first: a project that moved to uv may have kept the others.
    order = sorted(fitting, key=lambda name: name != "uv-project")
    return next((name for name in order if fitting[name] in text), order[0])


def next_step(format: str, extra: str | None) -> str:
    """Return the commands that install a changed project with an extra or environment of it."""
    return str(vars(format_named(format))["next_step"](extra))


def also_asked(text: str, format: str) -> tuple[str, ...]:
    """Return the packages that an earlier change moved out of the requirements of a project's file."""
    return vars(format_named(format))["also_asked"](text)  # type: ignore[no-any-return]


def edited(text: str, plans: Plans, format: str, project: str) -> tuple[str, Mapping[int, str]]:
    """Return the text of a project's file with the plans in it, and by the plan's place the extra that installs it.

    Raises:
        EnvsolveError: The file cannot be changed.
    """
    from envsolve.formats._toml_edit import finished, parsed

    module = vars(format_named(format))
    document = parsed(text, module["EDITS"][0])
    extras = module["edit"](document, [*map(public, plans.plans)], group_names(plans), project)
    return finished(document, text, module["EDITS"][0]), extras


def group_names(plans: Plans) -> tuple[str, ...]:
    """Name each plan after its variant and GPUs, ``cu126-sm70-sm90``; a number makes equal names unique."""
    names: list[str] = []
    for plan in plans.plans:
        name = _group_name(plan)
        taken = sum(re.fullmatch(rf"{re.escape(name)}(-\d+)?", other) is not None for other in names)
        names.append(f"{name}-{taken + 1}" if taken else name)
    return tuple(names)


def _group_name(plan: Plan) -> str:
    systems = {(m.platform.os, m.platform.arch) for m in plan.machines if m.platform}
    odd = sorted(part for os, arch in systems for part in (os, arch) if part not in (None, "linux", "x86_64"))
    gpus = sorted({gpu.cc for machine in plan.machines for gpu in machine.gpus or () if gpu.cc})
    return "-".join([plan.cuda or "any", *(cc.sm.replace("_", "") for cc in gpus), *filter(None, odd)])


def remarks(plan: Plan) -> Iterator[str]:
    """Yield what to print beside a plan that is written for a program: what was chosen, then every warning."""
    plan = public(plan)
    yield in_a_line(plan)
    yield from warning_lines(plan)


def in_containers(machines: Sequence[Machine]) -> tuple[Machine, ...]:
    """Return machines as a container on them sees them: their drivers and GPUs, but its own libc, compilers, toolkits.

    The libc is that of the oldest official image of Python, unless the machine has a newer one.
    """
    from envsolve.facts.catalogue import Catalogue
    from envsolve.rules.platform import libc_of, libc_text

    catalogue = Catalogue()
    images = {image.distribution for image in catalogue.images if image.repository == "python"}
    bases = [libc_of(Platform(libc=catalogue.distributions[name].libc)) for name in images]
    oldest = min(filter(None, bases))
    seen = []
    for machine in machines:
        platform = machine.platform or Platform()
        libc = libc_of(platform)
        own = libc if libc and libc[0] == oldest[0] and libc > oldest else oldest
        if platform.os != "windows" and not platform.jetson:
            machine = replace(
                machine, platform=replace(platform, libc=libc_text(own)), host_compilers=None, toolkits=None
            )
        seen.append(machine)
    return tuple(seen)
