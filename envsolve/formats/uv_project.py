"""The tables of a ``pyproject.toml`` with which ``uv sync`` installs the builds of the plan: pins, sources, indexes.

``render`` prints them; ``edit`` changes a project's own file and leaves the rest of it as it is, comments included.
Several plans for one system become extras that conflict with each other; plans for different systems get markers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import tomli_w
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from envsolve._default_index import DEFAULT_INDEX
from envsolve.errors import UsageError
from envsolve.formats._packages import default_index, installable, is_direct, is_tree
from envsolve.formats._toml_edit import as_entry, inline, lines_of, list_in, table_in, tables_in
from envsolve.planning.plan import Plan
from envsolve.system.files import parse_toml

NAME = "uv-project"
FILENAMES: tuple[str, ...] = ()
FAMILY = "wheels"
HOLDS_SEVERAL = False
NEEDS_HASHES = False
#: The file that ``edit`` changes.
EDITS = "pyproject.toml"

_SYSTEMS = {"linux": "linux", "windows": "win32"}
_MACHINES = {("windows", "x86_64"): "AMD64"}
_OF_VARIANT = re.compile(r"/(?:cu\d{2,3}|cpu|xpu|rocm[\d.]+)/?$")
#: An override with which uv does not install a package that others require.
_NEVER = "{}; sys_platform == 'never'"
_HINT = "correct the file, or copy the tables of --format uv-project without --write"


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
        replaced: Packages that others require, and in whose place the plan has another one.
    """

    extra: str | None
    marker: str | None
    pins: Mapping[str, str | None]
    sources: Mapping[str, Mapping[str, str]]
    indexes: Mapping[str, str]
    default: str | None
    python: str | None
    replaced: tuple[str, ...]


def render(plan: Plan) -> str:
    """The tables, to be merged into a project.

    Raises:
        ImpossibleError: Nothing fits.
    """
    part = _part(plan, None, {}, exact=True)
    indexes: list[dict[str, Any]] = [{"name": name, "url": url, "explicit": True} for url, name in part.indexes.items()]
    if part.default is not None:
        indexes.append({"url": part.default, "default": True})
    pins = [name if version is None else f"{name}=={version}" for name, version in part.pins.items()]
    uv: dict[str, Any] = {"environments": _environments(plan), "sources": part.sources, "index": indexes}
    uv["override-dependencies"] = [_NEVER.format(name) for name in part.replaced]
    project = {"requires-python": f"=={plan.python}.*", "dependencies": pins}
    tables = {"project": project, "tool": {"uv": {key: value for key, value in uv.items() if value}}}
    return "# to be merged into pyproject.toml; then: uv lock && uv sync\n" + tomli_w.dumps(tables)


def _part(plan: Plan, extra: str | None, names: Mapping[str, str], *, exact: bool) -> Part:
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
            of_variant = _OF_VARIANT.search(url)
            new = f"pytorch-{of_variant[0].strip('/')}" if of_variant else f"index-{len(names) + len(indexes) + 1}"
            sources[package.name] = {"index": indexes.setdefault(url, names.get(url.rstrip("/"), new))}
    # uv takes a source for direct dependencies only, so whatever has one is pinned here.
    pins = {
        one.name: None if is_direct(one) else one.version if exact else Version(one.version).public
        for one in packages
        if one.variant or one.name in sources
    }
    marker = " or ".join(_environments(plan)) or None
    other = None if default == DEFAULT_INDEX else default
    replaced = tuple(sorted({name for one in packages for name in one.stands_in_for}))
    return Part(extra, marker, pins, sources, indexes, other, plan.python, replaced)


def _environments(plan: Plan) -> list[str]:
    """The systems of the machines as markers, so that uv locks for no others."""
    platforms = [machine.platform for machine in plan.machines if machine.platform]
    systems = sorted({(str(one.os), str(one.arch)) for one in platforms if one.os in _SYSTEMS and one.arch})
    return [
        f"sys_platform == '{_SYSTEMS[os]}' and platform_machine == '{_MACHINES.get((os, arch), arch)}'"
        for os, arch in systems
    ]


# A project's own file, changed.


def edit(document: Any, plans: Sequence[Plan], names: Sequence[str], project: str) -> dict[int, str]:
    """Change a project so that ``uv sync`` installs the builds of some plans on their machines.

    Args:
        document: The ``pyproject.toml``; empty for a new project.
        plans: No machine is in two of them.
        names: A name for each, unique.
        project: The name of a new project.

    Returns:
        The extra that installs each plan, by its place; no extras if markers distinguish the plans.

    Raises:
        UsageError: The file does not say what the project requires.
        ImpossibleError: A plan is impossible.
    """
    if not document:
        document["project"] = {"name": project, "version": "0.1.0"}
    if "project" not in document:
        raise UsageError("pyproject.toml has no [project] table, so uv cannot install it", hint=_HINT)
    if "dependencies" in document["project"].get("dynamic", ()):
        raise UsageError("the dependencies of pyproject.toml are dynamic: they are in another file", hint=_HINT)
    file = _File(document)
    extras = _extras(plans, names) if len(plans) > 1 or file.has_extras(_pinned(plans)) else {}
    parts = [_part(plan, extras.get(place), file.names, exact=False) for place, plan in enumerate(plans)]
    file.require_python(parts)
    file.require(line for plan in plans for line in plan.requirements)
    (file.pin_in_extras if extras else file.pin)(parts)
    file.leave_out(sorted({name for part in parts for name in part.replaced}))
    file.set_sources(parts)
    file.set_indexes(parts)
    return extras


def also_asked(text: str) -> tuple[str, ...]:
    """The packages that the project takes from another index in each extra, which its requirements do not name."""
    table = parse_toml(text, Path(EDITS))
    sources = table.get("tool", {}).get("uv", {}).get("sources", {})
    of_extras = (name for name, entries in sources.items() if any("extra" in one for one in _as_list(entries)))
    base = table.get("project", {}).get("dependencies", ())
    return tuple(name for name in of_extras if not _places(base, canonicalize_name(name)))


def _pinned(plans: Iterable[Plan]) -> set[str]:
    return {package.name for plan in plans for package in installable(plan) if package.variant}


def _extras(plans: Sequence[Plan], names: Sequence[str]) -> dict[int, str]:
    """The extra of each plan, named after its variant if that is unique; none if the systems distinguish the plans."""
    systems = [set(_environments(plan)) for plan in plans]
    if len(plans) > 1 and all(systems) and sum(map(len, systems)) == len(set().union(*systems)):
        return {}
    variants = [plan.cuda or "any" for plan in plans]
    return {i: v if variants.count(v) == 1 else names[i] for i, v in enumerate(variants)}


class _File:
    """The document of a ``pyproject.toml``; every method changes what is not yet as it must be, and nothing else."""

    def __init__(self, document: Any) -> None:
        self._project = document["project"]
        self._document = document
        listed = self._uv.get("index", ())
        self.names = {one["url"].rstrip("/"): one["name"] for one in listed if "name" in one and "url" in one}

    @property
    def _uv(self) -> Any:
        return self._document.get("tool", {}).get("uv", {})

    def _uv_table(self) -> Any:
        return table_in(table_in(self._document, "tool"), "uv")

    def has_extras(self, names: Iterable[str]) -> bool:
        """Whether the project takes a package from different indexes in different extras."""
        sources: dict[str, Any] = {canonicalize_name(key): found for key, found in self._uv.get("sources", {}).items()}
        return any("extra" in entry for name in names for entry in _as_list(sources.get(name, ())))

    def require_python(self, parts: Sequence[Part]) -> None:
        """Name the Python if the project names none: uv assumes the one at hand."""
        pythons = sorted({part.python for part in parts if part.python})
        if "requires-python" not in self._project and len(pythons) == 1:
            self._project["requires-python"] = f"=={pythons[0]}.*"

    def require(self, lines: Iterable[str]) -> None:
        """Add the requirements of the plans on packages that the project does not name."""
        for line in dict.fromkeys(lines):
            name = canonicalize_name(Requirement(line).name)
            if not any(_places(listed, name) for listed in self._lists()):
                list_in(self._project, "dependencies").append(line)

    def pin(self, parts: Sequence[Part]) -> None:
        """Pin packages in the requirements that name them, whichever list these are in, or add them."""
        for name in sorted({name for part in parts for name in part.pins}):
            lines = list(dict.fromkeys(_lines(name, parts)))
            found = False
            for listed in self._lists():
                for place in _places(listed, name):
                    old = Requirement(listed[place])
                    _replace(listed, place, [_with(old, line) for line in lines])
                    found = True
                    break  # the others are of the same package
            if not found:
                for line in lines:
                    list_in(self._project, "dependencies").append(line)

    def _lists(self) -> Iterator[Any]:
        yield from (self._project[key] for key in ("dependencies",) if key in self._project)
        for table in (self._project.get("optional-dependencies", {}), self._document.get("dependency-groups", {})):
            yield from table.values()

    def pin_in_extras(self, parts: Sequence[Part]) -> None:
        """Move packages from the requirements of every installation into one extra for each plan."""
        base = list_in(self._project, "dependencies")
        asked: dict[str, Requirement] = {}
        for name in {name for part in parts for name in part.pins}:
            for place in reversed(_places(base, name)):
                asked[name] = Requirement(base[place])
                del base[place]
        optional = table_in(self._project, "optional-dependencies")
        for part in parts:
            listed = list_in(optional, str(part.extra))
            for name, version in part.pins.items():
                line = _with(asked.get(name) or Requirement(name), name if version is None else f"{name}=={version}")
                places = _places(listed, name)
                if places:
                    _replace(listed, places[0], [_with(Requirement(listed[places[0]]), line)])
                else:
                    listed.append(line)
        names = {name for part in parts for name in part.pins}
        ours = [extra for extra, lines in optional.items() if any(_places(lines, name) for name in names)]
        self._exclude(ours)

    def _exclude(self, extras: Sequence[str]) -> None:
        """Declare that extras conflict, so that uv resolves each apart."""
        if len(extras) < 2:
            return
        conflicts = list_in(self._uv_table(), "conflicts")
        for listed in conflicts:
            have = {one.get("extra") for one in listed}
            if have & {*extras}:
                for extra in extras:
                    if extra not in have:
                        listed.append(inline({"extra": extra}))
                return
        conflicts.append(lines_of([{"extra": extra} for extra in extras]))

    def leave_out(self, names: Iterable[str]) -> None:
        """Keep packages from being installed although others require them."""
        for name in names:
            overrides = list_in(self._uv_table(), "override-dependencies")
            if not _places(overrides, name):
                overrides.append(_NEVER.format(name))

    def set_sources(self, parts: Sequence[Part]) -> None:
        """Say which index or URL each package comes from; entries for other extras stay."""
        extras = {part.extra for part in parts if part.extra}
        for name in sorted({name for part in parts for name in part.pins}):
            new = [_entry(part, name) for part in parts if name in part.sources]
            table = self._uv.get("sources", {})
            key = next((key for key in table if canonicalize_name(key) == name), name)
            if extras:
                new += [
                    one for one in _as_list(table.get(key, ())) if one.get("extra", next(iter(extras))) not in extras
                ]
            if not new:
                table.pop(key, None)
                continue
            sources = table_in(self._uv_table(), "sources")
            old = [dict(one) for one in _as_list(sources.get(key, ()))]
            if old == [dict(one) for one in new]:
                continue
            sources[key] = inline(new[0]) if len(new) == 1 else lines_of(new)

        if not self._uv.get("sources", True):
            del self._uv["sources"]

    def set_indexes(self, parts: Sequence[Part]) -> None:
        """Name the indexes of sources, as explicit ones; drop an index of a variant that no source names any more."""
        wanted = {name: url for part in parts for url, name in part.indexes.items()}
        self._keep_indexes(wanted)
        listed = self._uv.get("index")
        new: list[dict[str, Any]] = [{"name": name, "url": url, "explicit": True} for name, url in wanted.items()]
        defaults = {part.default for part in parts if part.default}
        if defaults and not any(one.get("default") for one in listed or ()):
            new += [{"url": url, "default": True} for url in sorted(defaults)[:1]]
        if new and listed is None:
            listed = tables_in(self._uv_table(), "index")
        for one in new:
            listed.append(as_entry(one, listed))

    def _keep_indexes(self, wanted: dict[str, str]) -> None:
        """Correct the indexes that are there, and take their names out of those that are wanted."""
        listed = self._uv.get("index", [])
        for place in reversed(range(len(listed))):
            one = listed[place]
            if url := wanted.pop(one.get("name"), None):
                _set(one, "url", url.rstrip("/"), one["url"].rstrip("/"))
                _set(one, "explicit", True, one.get("explicit"))
            # Not explicit, it would go before the default index for all packages.
            elif _OF_VARIANT.search(one.get("url", "")) and one.get("name") not in self._used():
                del listed[place]
        if "index" in self._uv and not listed:
            del self._uv["index"]

    def _used(self) -> Iterator[str]:
        for entries in self._uv.get("sources", {}).values():
            yield from (str(one["index"]) for one in _as_list(entries) if "index" in one)


def _set(table: Any, key: str, value: object, old: object) -> None:
    if old != value:
        table[key] = value


def _lines(name: str, parts: Sequence[Part]) -> Iterator[str]:
    """The pin of a package, with a marker for each system if the plans pin different versions."""
    its = [part for part in parts if name in part.pins]
    same = len({part.pins[name] for part in its}) == 1 and len(its) == len(parts)
    for part in its:
        pin = name if part.pins[name] is None else f"{name}=={part.pins[name]}"
        yield pin if same or part.marker is None else f"{pin} ; {part.marker}"


def _entry(part: Part, name: str) -> dict[str, str]:
    entry = dict(part.sources[name])
    if part.extra:
        entry["extra"] = part.extra
    if part.marker:
        entry["marker"] = part.marker
    return entry


def _with(old: Requirement, line: str) -> str:
    """A pin with the extras and the marker of the requirement that it replaces, in that one's spelling."""
    new = Requirement(line)
    new.name, new.extras = old.name, old.extras
    if new.marker is None:
        new.marker = old.marker
    return str(new).replace('"', "'")


def _places(listed: Any, name: str) -> list[int]:
    """The places of the requirements on a package; includes of groups are none."""
    found = []
    for place, line in enumerate(listed):
        try:
            if isinstance(line, str) and canonicalize_name(Requirement(line).name) == name:
                found.append(place)
        except InvalidRequirement:
            continue
    return found


def _replace(listed: Any, place: int, lines: Sequence[str]) -> None:
    if listed[place] != lines[0] and Requirement(listed[place]) != Requirement(lines[0]):
        listed[place] = lines[0]
    for line in reversed(lines[1:]):
        if line not in listed:
            listed.insert(place + 1, line)


def _as_list(entries: Any) -> Sequence[Any]:
    return [entries] if isinstance(entries, dict) else list(entries)
