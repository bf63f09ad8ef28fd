"""Common parts of the formats that change a project's file: the entries of a plan, and requirements in lists."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from envsolve._default_index import DEFAULT_INDEX
from envsolve.formats._packages import default_index, installable, is_direct, is_tree
from envsolve.planning.plan import Plan

_SYSTEMS = {"linux": "linux", "windows": "win32"}
_MACHINES = {("windows", "x86_64"): "AMD64"}
#: The URL of an index with one variant of PyTorch's packages.
OF_VARIANT = re.compile(r"/(?:cu\d{2,3}|cpu|xpu|rocm[\d.]+)/?$")


class Part(msgspec.Struct, frozen=True):
    """One plan's entries in a project.

    Attributes:
        extra: The extra that installs it; None if every installation does.
        marker: Of its systems; None if they are not known.
        pins: Versions by package; None for a package that is requested by URL.
        sources: By package, ``{"index": name}`` or ``{"url": ...}``.
        indexes: Names by URL.
        default: The default index, if it is another one than uv's.
        python: ``3.12``.
        replaced: Packages that others require and that another package of the plan replaces.
    """

    extra: str | None
    marker: str | None
    pins: Mapping[str, str | None]
    sources: Mapping[str, Mapping[str, str]]
    indexes: Mapping[str, str]
    default: str | None
    python: str | None
    replaced: tuple[str, ...]


def part_of(plan: Plan, extra: str | None, names: Mapping[str, str], *, exact: bool) -> Part:
    """A plan's entries in a project.

    Args:
        plan: The plan.
        extra: The extra for it.
        names: Those that indexes have already, by URL.
        exact: Whether a pin has the variant in it. Without it, it also holds on systems that take their builds from the
            default index.
    """
    packages = [package for package in installable(plan) if not is_tree(package)]
    default = default_index(packages)
    sources: dict[str, dict[str, str]] = {}
    indexes: dict[str, str] = {}
    for package in packages:
        if is_direct(package):
            sources[package.name] = {"url": str(package.url)}
        elif package.index not in (None, default):
            url = str(package.index)
            of_variant = OF_VARIANT.search(url)
            new = f"pytorch-{of_variant[0].strip('/')}" if of_variant else f"index-{len(names) + len(indexes) + 1}"
            sources[package.name] = {"index": indexes.setdefault(url, names.get(url.rstrip("/"), new))}
    # uv takes a source for direct dependencies only, so whatever has one is pinned here.
    pins = {
        one.name: None if is_direct(one) else one.version if exact else Version(one.version).public
        for one in packages
        if one.variant or one.name in sources
    }
    marker = " or ".join(environments(plan)) or None
    other = None if default == DEFAULT_INDEX else default
    replaced = tuple(sorted({name for one in packages for name in one.stands_in_for}))
    return Part(extra, marker, pins, sources, indexes, other, plan.python, replaced)


def environments(plan: Plan) -> list[str]:
    """The systems of the machines as markers, so that uv locks for no others."""
    platforms = [machine.platform for machine in plan.machines if machine.platform]
    systems = sorted({(str(one.os), str(one.arch)) for one in platforms if one.os in _SYSTEMS and one.arch})
    return [
        f"sys_platform == '{_SYSTEMS[os]}' and platform_machine == '{_MACHINES.get((os, arch), arch)}'"
        for os, arch in systems
    ]


def pinned(plans: Iterable[Plan]) -> set[str]:
    """The packages of the plans that have a variant."""
    return {package.name for plan in plans for package in installable(plan) if package.variant}


def extras_of(plans: Sequence[Plan], names: Sequence[str]) -> dict[int, str]:
    """The extra of each plan, named after its variant if that is unique; none if the systems distinguish the plans."""
    systems = [set(environments(plan)) for plan in plans]
    if len(plans) > 1 and all(systems) and sum(map(len, systems)) == len(set().union(*systems)):
        return {}
    variants = [plan.cuda or "any" for plan in plans]
    return {i: v if variants.count(v) == 1 else names[i] for i, v in enumerate(variants)}


def pin_lines(name: str, parts: Sequence[Part]) -> Iterator[str]:
    """The pin of a package, with a marker for each system if the plans pin different versions."""
    its = [part for part in parts if name in part.pins]
    same = len({part.pins[name] for part in its}) == 1 and len(its) == len(parts)
    for part in its:
        pin = name if part.pins[name] is None else f"{name}=={part.pins[name]}"
        yield pin if same or part.marker is None else f"{pin} ; {part.marker}"


def with_pin(old: Requirement, line: str) -> str:
    """A pin with the extras, the marker and the spelling of the requirement that it replaces."""
    new = Requirement(line)
    new.name, new.extras = old.name, old.extras
    if new.marker is None:
        new.marker = old.marker
    return str(new).replace('"', "'")


def places_in(listed: Any, name: str) -> list[int]:
    """The places of the requirements on a package; included groups are not followed."""
    found = []
    for place, line in enumerate(listed):
        try:
            if isinstance(line, str) and canonicalize_name(Requirement(line).name) == name:
                found.append(place)
        except InvalidRequirement:
            continue
    return found


def pin_in(listed: Any, name: str, lines: Sequence[str], asked: Sequence[Requirement]) -> None:
    """Pin a package in a list of requirements: in place of the one that names it, or at the end.

    Args:
        listed: The requirements.
        name: The package.
        lines: Its pin, or one for each system.
        asked: How the project asked for it in another list.
    """
    if places := places_in(listed, name):
        old = Requirement(listed[places[0]])
        replace_at(listed, places[0], [with_pin(old, line) for line in lines])
        return
    for line in lines:
        listed.append(with_pin(asked[0], line) if asked else line)


def replace_at(listed: Any, place: int, lines: Sequence[str]) -> None:
    """Replace a requirement by others, if it is not one of them already."""
    if listed[place] != lines[0] and Requirement(listed[place]) != Requirement(lines[0]):
        listed[place] = lines[0]
    for line in reversed(lines[1:]):
        if line not in listed:
            listed.insert(place + 1, line)


def as_list(entries: Any) -> Sequence[Any]:
    """The entries of a source; a single one may be written without a list."""
    return [entries] if isinstance(entries, dict) else list(entries)
