"""The tables of a ``pyproject.toml`` with which ``uv sync`` installs the builds of the plan: pins, sources, indexes.

``render`` prints them; ``edit`` changes a project's own file and leaves the rest of it as it is, comments included.
Several plans for one system become extras that conflict with each other; plans for different systems get markers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import tomli_w
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envsolve.errors import UsageError
from envsolve.formats._project import (
    OF_VARIANT,
    Part,
    as_list,
    environments,
    extras_of,
    part_of,
    pin_in,
    pin_lines,
    pinned,
    places_in,
)
from envsolve.formats._toml_edit import as_entry, inline, lines_of, list_in, table_in, tables_in
from envsolve.planning.plan import Plan
from envsolve.system.files import parse_toml

NAME = "uv-project"
FILENAMES: tuple[str, ...] = ()
FAMILY = "wheels"
HOLDS_SEVERAL = False
NEEDS_HASHES = False
#: The file that ``edit`` changes.
EDITS = ("pyproject.toml",)
MARK = "[tool.uv"

#: An override with which uv does not install a package that others require.
_NEVER = "{}; sys_platform == 'never'"
_HINT = "correct the file, or copy the tables of --format uv-project without --write"


def next_step(extra: str | None) -> str:
    """The commands that lock and install a changed project."""
    return "uv lock && uv sync" + (f" --extra {extra}" if extra else "")


def render(plan: Plan) -> str:
    """The tables, to be merged into a project.

    Raises:
        ImpossibleError: Nothing fits.
    """
    part = part_of(plan, None, {}, exact=True)
    indexes: list[dict[str, Any]] = [{"name": name, "url": url, "explicit": True} for url, name in part.indexes.items()]
    if part.default is not None:
        indexes.append({"url": part.default, "default": True})
    pins = [name if version is None else f"{name}=={version}" for name, version in part.pins.items()]
    uv: dict[str, Any] = {"environments": environments(plan), "sources": part.sources, "index": indexes}
    uv["override-dependencies"] = [_NEVER.format(name) for name in part.replaced]
    project = {"requires-python": f"=={plan.python}.*", "dependencies": pins}
    tables = {"project": project, "tool": {"uv": {key: value for key, value in uv.items() if value}}}
    return f"# to be merged into pyproject.toml; then: {next_step(None)}\n{tomli_w.dumps(tables)}"


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
        raise UsageError(
            "the dependencies of pyproject.toml are dynamic, so they are defined in another file", hint=_HINT
        )
    file = _File(document)
    extras = extras_of(plans, names) if len(plans) > 1 or file.has_extras(pinned(plans)) else {}
    parts = [part_of(plan, extras.get(place), file.names, exact=False) for place, plan in enumerate(plans)]
    file.require_python(parts)
    file.require(line for plan in plans for line in plan.requirements)
    (file.pin_in_extras if extras else file.pin)(parts)
    file.leave_out(sorted({name for part in parts for name in part.replaced}))
    file.set_sources(parts)
    file.set_indexes(parts)
    return extras


def also_asked(text: str) -> tuple[str, ...]:
    """The packages that the project takes from another index in each extra, which its requirements do not name."""
    table = parse_toml(text, Path(EDITS[0]))
    sources = table.get("tool", {}).get("uv", {}).get("sources", {})
    of_extras = (name for name, entries in sources.items() if any("extra" in one for one in as_list(entries)))
    base = table.get("project", {}).get("dependencies", ())
    return tuple(name for name in of_extras if not places_in(base, canonicalize_name(name)))


class _File:
    """The document of a ``pyproject.toml``; every method changes only what is not yet correct."""

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
        return any("extra" in entry for name in names for entry in as_list(sources.get(name, ())))

    def require_python(self, parts: Sequence[Part]) -> None:
        """Name the Python if the project names none: uv assumes the current one."""
        pythons = sorted({part.python for part in parts if part.python})
        if "requires-python" not in self._project and len(pythons) == 1:
            self._project["requires-python"] = f"=={pythons[0]}.*"

    def require(self, lines: Iterable[str]) -> None:
        """Add the requirements of the plans on packages that the project does not name."""
        for line in dict.fromkeys(lines):
            name = canonicalize_name(Requirement(line).name)
            if not any(places_in(listed, name) for listed in self._lists()):
                list_in(self._project, "dependencies").append(line)

    def pin(self, parts: Sequence[Part]) -> None:
        """Pin packages in the requirements that name them, whichever list these are in, or add them."""
        for name in sorted({name for part in parts for name in part.pins}):
            lines = list(dict.fromkeys(pin_lines(name, parts)))
            lists = [listed for listed in self._lists() if places_in(listed, name)]
            for listed in lists or [list_in(self._project, "dependencies")]:
                pin_in(listed, name, lines, ())

    def _lists(self) -> Iterator[Any]:
        yield from (self._project[key] for key in ("dependencies",) if key in self._project)
        for table in (self._project.get("optional-dependencies", {}), self._document.get("dependency-groups", {})):
            yield from table.values()

    def pin_in_extras(self, parts: Sequence[Part]) -> None:
        """Move packages from the requirements of every installation into one extra for each plan."""
        base = list_in(self._project, "dependencies")
        asked: dict[str, Sequence[Requirement]] = {}
        for name in {name for part in parts for name in part.pins}:
            for place in reversed(places_in(base, name)):
                asked[name] = [Requirement(base[place])]
                del base[place]
        optional = table_in(self._project, "optional-dependencies")
        for part in parts:
            listed = list_in(optional, str(part.extra))
            for name, version in part.pins.items():
                pin_in(listed, name, [name if version is None else f"{name}=={version}"], asked.get(name, ()))
        names = {name for part in parts for name in part.pins}
        ours = [extra for extra, lines in optional.items() if any(places_in(lines, name) for name in names)]
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
            if not places_in(overrides, name):
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
                    one for one in as_list(table.get(key, ())) if one.get("extra", next(iter(extras))) not in extras
                ]
            if not new:
                table.pop(key, None)
                continue
            sources = table_in(self._uv_table(), "sources")
            old = [dict(one) for one in as_list(sources.get(key, ()))]
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
            elif OF_VARIANT.search(one.get("url", "")) and one.get("name") not in self._used():
                del listed[place]
        if "index" in self._uv and not listed:
            del self._uv["index"]

    def _used(self) -> Iterator[str]:
        for entries in self._uv.get("sources", {}).values():
            yield from (str(one["index"]) for one in as_list(entries) if "index" in one)


def _set(table: Any, key: str, value: object, old: object) -> None:
    if old != value:
        table[key] = value


def _entry(part: Part, name: str) -> dict[str, str]:
    entry = dict(part.sources[name])
    if part.extra:
        entry["extra"] = part.extra
    if part.marker:
        entry["marker"] = part.marker
    return entry
