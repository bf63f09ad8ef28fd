"""The tables of a ``pyproject.toml`` with which Poetry installs the builds of the plan: pins, sources, extras.

Several plans for one system become extras, of which Poetry installs one: each source has a marker that excludes the
other extras. Source: Poetry documentation, "Dependency specification, Exclusive extras".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envsolve._default_index import DEFAULT_INDEX
from envsolve.errors import UsageError
from envsolve.formats._project import OF_VARIANT, Part, as_list, extras_of, part_of, pin_in, places_in
from envsolve.formats._toml_edit import as_entry, inline, lines_of, list_in, table_at, tables_in
from envsolve.planning.plan import Plan
from envsolve.system.files import parse_toml

NAME = "poetry-project"
FILENAMES: tuple[str, ...] = ()
FAMILY = "wheels"
HOLDS_SEVERAL = False
NEEDS_HASHES = False
#: The file that ``edit`` changes, and what it contains if it is for this tool.
EDITS = ("pyproject.toml",)
MARK = "[tool.poetry"

_OTHER = "mirror"


def next_step(extra: str | None) -> str:
    """The commands that lock and install a changed project."""
    return "poetry lock && poetry sync" + (f" --extras {extra}" if extra else "")


def render(plan: Plan) -> str:
    """The tables, to be merged into a project.

    Raises:
        ImpossibleError: Nothing fits.
    """
    part = part_of(plan, None, {}, exact=True)
    entries = {name: {"version": version, **_place(part, name)} for name, version in part.pins.items()}
    table = {name: {key: value for key, value in entry.items() if value} for name, entry in entries.items()}
    sources = [{"name": name, "url": url, "priority": "explicit"} for url, name in part.indexes.items()]
    poetry = {"dependencies": {"python": f"~{plan.python}", **table}, "source": sources}
    text = tomli_w.dumps({"tool": {"poetry": {key: value for key, value in poetry.items() if value}}})
    return f"# to be merged into pyproject.toml; then: {next_step(None)}\n{text}"


def edit(document: Any, plans: Sequence[Plan], names: Sequence[str], project: str) -> dict[int, str]:
    """Change a project so that Poetry installs the builds of some plans on their machines.

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
        document["project"] = {"name": project, "version": "0.1.0", "dependencies": []}
        table_at(document, "tool", "poetry")["package-mode"] = False
    if "dependencies" in document.get("project", {}).get("dynamic", ()) and "dependencies" not in _poetry(document):
        hint = "correct the file, or copy the tables of --format poetry-project without --write"
        raise UsageError(
            "the dependencies of pyproject.toml are dynamic, so they are defined in another file", hint=hint
        )
    extras = extras_of(plans, names) if len(plans) > 1 or also_asked(document.as_string()) else {}
    urls = {one["url"].rstrip("/"): one["name"] for one in _poetry(document).get("source", ()) if "url" in one}
    parts = [part_of(plan, extras.get(place), urls, exact=bool(extras)) for place, plan in enumerate(plans)]
    # Poetry 2 has the dependencies in [project], and in its own table only where they come from.
    standard = "dependencies" in document.get("project", {}) or "dependencies" not in _poetry(document)
    file = (_Standard if standard else _Own)(document, parts)
    file.require_python()
    file.require(line for plan in plans for line in plan.requirements)
    for name in sorted({name for part in parts for name in part.pins}):
        file.pin(name)
    _set_sources(document, parts)
    return extras


def also_asked(text: str) -> tuple[str, ...]:
    """The packages that the project takes only with extras, from a source for each."""
    table = _poetry(parse_toml(text, Path(EDITS[0])))
    entries = ((name, one) for name, found in table.get("dependencies", {}).items() for one in _listed(found))
    return tuple(dict.fromkeys(name for name, one in entries if "extra" in one.get("markers", "")))


def _poetry(document: Mapping[str, Any]) -> Any:
    return document.get("tool", {}).get("poetry", {})


def _listed(found: Any) -> Sequence[Any]:
    """The entries of one dependency; a version alone is none."""
    return [one for one in as_list(found) if isinstance(one, dict)] if not isinstance(found, str) else []


def _place(part: Part, name: str) -> dict[str, str]:
    source = part.sources.get(name, {})
    return {"source": source["index"]} if "index" in source else dict(source)


class _Standard:
    """A project with a ``[project]`` table."""

    def __init__(self, document: Any, parts: Sequence[Part]) -> None:
        self._document, self._parts = document, parts
        self._project = document.setdefault("project", {})

    @property
    def _own(self) -> Any:
        return table_at(self._document, "tool", "poetry", "dependencies")

    def require_python(self) -> None:
        """Name the Python if the project names none."""
        named = "requires-python" in self._project or "python" in _poetry(self._document).get("dependencies", {})
        if not named and (python := _python(self._parts)):
            self._project["requires-python"] = f"=={python}.*"

    def require(self, lines: Iterable[str]) -> None:
        """Add the requirements of the plans on packages that the project does not name."""
        for line in dict.fromkeys(lines):
            name = canonicalize_name(Requirement(line).name)
            if not any(places_in(listed, name) for listed in self._lists()):
                list_in(self._project, "dependencies").append(line)

    def _lists(self) -> Iterator[Any]:
        yield self._project.get("dependencies", ())
        yield from self._project.get("optional-dependencies", {}).values()

    def pin(self, name: str) -> None:
        """Pin a package, and say where it comes from."""
        its = [part for part in self._parts if name in part.pins]
        base = list_in(self._project, "dependencies")
        if any(part.extra for part in its):
            asked = [Requirement(base[place]) for place in places_in(base, name)]
            for place in reversed(places_in(base, name)):
                del base[place]
            optional = table_at(self._document, "project", "optional-dependencies")
            for part in its:
                pin_in(list_in(optional, str(part.extra)), name, [_pin(part, name)], asked)
        else:
            lists = [listed for listed in self._lists() if places_in(listed, name)]
            versions = {part.pins[name] for part in its}
            lines = [_pin(part, name) + ("" if len(versions) == 1 else f" ; {part.marker}") for part in its]
            for listed in lists or [base]:
                pin_in(listed, name, list(dict.fromkeys(lines)), ())
        _set(self._own, name, list(_entries(self._parts, name, versions=False)))


class _Own:
    """A project of Poetry 1, with everything in Poetry's own tables."""

    def __init__(self, document: Any, parts: Sequence[Part]) -> None:
        self._document, self._parts = document, parts
        self._own = table_at(document, "tool", "poetry", "dependencies")

    def require_python(self) -> None:
        """Name the Python if the project names none."""
        if "python" not in self._own and (python := _python(self._parts)):
            self._own["python"] = f"~{python}"

    def require(self, lines: Iterable[str]) -> None:
        """Add the requirements of the plans on packages that the project does not name."""
        groups = _poetry(self._document).get("group", {}).values()
        tables = [self._own, *(group.get("dependencies", {}) for group in groups)]
        known = {canonicalize_name(name) for table in tables for name in table}
        for line in dict.fromkeys(lines):
            asked = Requirement(line)
            if canonicalize_name(asked.name) not in known:
                version = str(asked.specifier) or "*"
                extras = {"version": version, "extras": sorted(asked.extras)}
                self._own[asked.name] = inline(extras) if asked.extras else version

    def pin(self, name: str) -> None:
        """Pin a package, and say where it comes from."""
        _set(self._own, name, list(_entries(self._parts, name, versions=True)))
        extras = [part.extra for part in self._parts if part.extra and name in part.pins]
        for extra in extras:
            listed = list_in(table_at(self._document, "tool", "poetry", "extras"), extra)
            if name not in listed:
                listed.append(name)


def _python(parts: Sequence[Part]) -> str | None:
    pythons = {part.python for part in parts if part.python}
    return pythons.pop() if len(pythons) == 1 else None


def _pin(part: Part, name: str) -> str:
    version = part.pins[name]
    return name if version is None else f"{name}=={version}"


def _entries(parts: Sequence[Part], name: str, *, versions: bool) -> Iterator[dict[str, Any]]:
    """Entries of a package in Poetry's own table: an entry for each extra or system, and one for all other systems.

    Args:
        parts: The plans.
        name: The package.
        versions: Whether the versions are here too, and not in ``[project]``.
    """
    its = [part for part in parts if name in part.pins]
    extras = [part.extra for part in its if part.extra]
    pin = {"version": its[0].pins[name]} if versions and its[0].pins[name] else {}
    for part in its:
        entry: dict[str, Any] = {**pin, "version": part.pins[name]} if pin else {}
        entry |= _place(part, name)
        entry |= {"optional": True} if versions and extras else {}
        if entry:
            yield entry | _markers(part, extras)
    others = " and ".join(f"({_without(part.marker)})" for part in its if part.marker)
    if others and not extras and any(part.sources.get(name) for part in its):
        yield {**pin, "source": _OTHER if its[0].default else "pypi", "markers": others}


def _markers(part: Part, extras: Sequence[str]) -> dict[str, str]:
    """When a plan's entry holds: with its extra and no other, or else on its systems."""
    if extras:
        return {"markers": " and ".join(f"extra {'==' if one == part.extra else '!='} '{one}'" for one in extras)}
    return {"markers": part.marker} if part.marker else {}


def _without(marker: str) -> str:
    """The opposite of the marker of some systems."""
    systems = (system.split(" and ") for system in marker.split(" or "))
    return " and ".join(f"({' or '.join(one.replace('==', '!=') for one in parts)})" for parts in systems)


def _set(table: Any, name: str, entries: Sequence[Mapping[str, Any]]) -> None:
    """Set the entries of a package, in its spelling; what it asks for of extras and other sources' markers stays."""
    key = next((key for key in table if canonicalize_name(key) == name), name)
    old = table.get(key)
    kept = {k: v for one in _listed(old or "")[:1] for k, v in one.items() if k in ("extras", "allow-prereleases")}
    new = [{**entry, **kept} for entry in entries]
    if not new:
        if isinstance(old, dict) and "source" in old:
            del table[key]
        return
    if old is not None and [dict(one) for one in _listed(old)] == new:
        return
    plain = len(new) == 1 and set(new[0]) == {"version"}
    table[key] = new[0]["version"] if plain else inline(new[0]) if len(new) == 1 else lines_of(new)


def _set_sources(document: Any, parts: Sequence[Part]) -> None:
    """Name the indexes as explicit sources; drop a source of a variant that no dependency names any more."""
    wanted = {name: {"url": url, "priority": "explicit"} for part in parts for url, name in part.indexes.items()}
    defaults = {part.default for part in parts if part.default and part.default != DEFAULT_INDEX}
    listed = _poetry(document).get("source")
    if defaults and not any(one.get("priority", "primary") in ("primary", "default") for one in listed or ()):
        wanted[_OTHER] = {"url": min(defaults), "priority": "primary"}
    _keep_sources(document, listed or [], wanted)
    if wanted and listed is None:
        listed = tables_in(table_at(document, "tool", "poetry"), "source")
    for name, values in wanted.items():
        listed.append(as_entry({"name": name, **values}, listed))


def _keep_sources(document: Any, listed: Any, wanted: dict[str, dict[str, str]]) -> None:
    """Correct the sources that are there, and take their names out of those that are wanted."""
    used = {one.get("source") for table in _tables(document) for found in table.values() for one in _listed(found)}
    for place in reversed(range(len(listed))):
        one = listed[place]
        if (new := wanted.pop(one.get("name"), None)) is not None:
            changed = {key: value for key, value in new.items() if one.get(key, "").rstrip("/") != value.rstrip("/")}
            one.update(changed)
        elif OF_VARIANT.search(one.get("url", "")) and one.get("name") not in used:
            del listed[place]


def _tables(document: Any) -> Iterator[Any]:
    yield _poetry(document).get("dependencies", {})
    yield from (group.get("dependencies", {}) for group in _poetry(document).get("group", {}).values())
