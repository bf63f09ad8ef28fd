"""The tables of a ``pixi.toml`` with which pixi installs the wheels of the plan: features, indexes, environments.

Several plans for one system become features with an environment each; plans for different systems get targets.
Source: pixi documentation, "PyTorch integration" and "Multi environment".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envsolve.errors import UsageError
from envsolve.formats._project import Part, extras_of, part_of
from envsolve.formats._toml_edit import inline, list_in, table_at
from envsolve.planning.plan import Plan
from envsolve.rules.conda import subdir_of
from envsolve.system.files import parse_toml

NAME = "pixi-project"
FILENAMES: tuple[str, ...] = ()
FAMILY = "wheels"
HOLDS_SEVERAL = False
NEEDS_HASHES = False
#: The files that ``edit`` changes, and what a file of several tools contains if it is for this one.
EDITS = ("pixi.toml", "pyproject.toml")
MARK = "[tool.pixi"

_WHEELS = "pypi-dependencies"


def next_step(extra: str | None) -> str:
    """The command that locks and installs a changed project."""
    return "pixi install" + (f" --environment {extra}" if extra else "")


def render(plan: Plan) -> str:
    """The tables, to be merged into a manifest.

    Raises:
        ImpossibleError: Nothing fits.
    """
    part = part_of(plan, None, {}, exact=True)
    tables: dict[str, Any] = {
        "workspace": {"channels": ["conda-forge"], "platforms": _platforms(plan)},
        "system-requirements": _system(plan),
        "dependencies": {"python": f"{plan.python}.*"},
        _WHEELS: {name: _entry(part, name) for name in part.pins},
    }
    text = tomli_w.dumps({key: value for key, value in tables.items() if value})
    return f"# to be merged into pixi.toml; then: {next_step(None)}\n{text}"


def edit(document: Any, plans: Sequence[Plan], names: Sequence[str], project: str) -> dict[int, str]:
    """Change a workspace so that pixi installs the wheels of some plans on their machines.

    Args:
        document: The ``pixi.toml``, or a ``pyproject.toml`` with its tables; empty for a new workspace.
        plans: No machine is in two of them.
        names: A name for each, unique.
        project: The name of a new workspace.

    Returns:
        The environment of each plan, by its place; none if targets distinguish the plans.

    Raises:
        UsageError: The workspace takes torch from conda.
        ImpossibleError: A plan is impossible.
    """
    if not document:
        document["workspace"] = {"name": project, "channels": ["conda-forge"], "platforms": []}
    root = _root(document)
    if taken := [name for name in root.get("dependencies", {}) if name.partition("-")[0] in ("pytorch", "torchvision")]:
        what = f"the workspace takes {taken[0]} from conda, but this plan contains wheels"
        raise UsageError(
            what, hint=f"plan conda packages (--manager conda --format pixi), or remove {taken[0]} from the file"
        )
    extras = extras_of(plans, names) if len(plans) > 1 or _features(root) else {}
    parts = [part_of(plan, extras.get(place), {}, exact=True) for place, plan in enumerate(plans)]
    _workspace(root, plans)
    _require(root, plans)
    for part, plan in zip(parts, plans, strict=True):
        by_target = not extras and len(plans) > 1
        where = ["feature", part.extra] if part.extra else ["target", *_platforms(plan)] if by_target else []
        table = table_at(root, *map(str, where), _WHEELS)
        for name in sorted(part.pins):
            _set(table, name, _entry(part, name))
        if where:
            _drop(root, part.pins)
        system = _system(plan) if not by_target else {}
        for key, value in system.items():
            table_at(root, *map(str, where), "system-requirements").setdefault(key, value)
        if part.extra:
            table_at(root, "environments").setdefault(part.extra, inline({"features": [part.extra]})["features"])
    return extras


def also_asked(text: str) -> tuple[str, ...]:
    """The wheels that the workspace takes only in features, from an index each."""
    root = _root(parse_toml(text, Path(EDITS[0])))
    return tuple(dict.fromkeys(name for table in _features(root).values() for name in table))


def _root(document: Any) -> Any:
    return document.get("tool", {}).get("pixi") or document


def _features(root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The features that take wheels from an index of their own."""
    tables = {name: feature.get(_WHEELS, {}) for name, feature in root.get("feature", {}).items()}
    found = {
        name: {key: one for key, one in table.items() if isinstance(one, dict) and "index" in one}
        for name, table in tables.items()
    }
    return {name: table for name, table in found.items() if table}


def _platforms(plan: Plan) -> list[str]:
    return sorted({subdir_of(machine.platform) for machine in plan.machines})


def _system(plan: Plan) -> dict[str, str]:
    """What pixi requires of the machine before it installs: a driver of the builds' CUDA major."""
    cuda = plan.cuda or ""
    return {"cuda": f"{cuda[2:-1]}.0"} if cuda.startswith("cu") and cuda[2:].isdigit() else {}


def _entry(part: Part, name: str) -> Any:
    version, source = part.pins[name], part.sources.get(name, {})
    if version is None:
        return dict(source)
    index = next((url for url, key in part.indexes.items() if key == source.get("index")), part.default)
    return {"version": f"=={version}", "index": index} if index else f"=={version}"


def _workspace(root: Any, plans: Sequence[Plan]) -> None:
    """Add the platforms of the machines, and the Python if none is named."""
    key = "project" if "project" in root and "workspace" not in root else "workspace"
    listed = list_in(table_at(root, key), "platforms")
    for platform in sorted({platform for plan in plans for platform in _platforms(plan)}):
        if platform not in listed:
            listed.append(platform)
    pythons = {plan.python for plan in plans if plan.python}
    if len(pythons) == 1 and "python" not in root.get("dependencies", {}):
        table_at(root, "dependencies")["python"] = f"{pythons.pop()}.*"


def _require(root: Any, plans: Sequence[Plan]) -> None:
    """Add the requirements of the plans on packages that the workspace does not name."""
    known = {canonicalize_name(name) for table in _tables(root) for name in table}
    for line in dict.fromkeys(line for plan in plans for line in plan.requirements):
        asked = Requirement(line)
        if canonicalize_name(asked.name) in known or asked.url:
            continue
        version = str(asked.specifier) or "*"
        entry = {"version": version, "extras": sorted(asked.extras)}
        table_at(root, _WHEELS)[asked.name] = inline(entry) if asked.extras else version


def _tables(root: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    places: Iterable[Mapping[str, Any]] = (root, *root.get("feature", {}).values(), *root.get("target", {}).values())
    for place in places:
        yield from (place.get(key, {}) for key in ("dependencies", _WHEELS))


def _set(table: Any, name: str, entry: Any) -> None:
    """Set an entry in its existing spelling, with the requested extras."""
    key = next((key for key in table if canonicalize_name(key) == name), name)
    old = table.get(key)
    if isinstance(old, dict) and "extras" in old:
        entry = {**({"version": entry} if isinstance(entry, str) else entry), "extras": list(old["extras"])}
    if old is None or (dict(old) if isinstance(old, dict) else old) != entry:
        table[key] = inline(entry) if isinstance(entry, dict) else entry


def _drop(root: Any, names: Iterable[str]) -> None:
    """Remove packages from the wheels of every environment."""
    table = root.get(_WHEELS, {})
    for key in [key for key in table if canonicalize_name(key) in {*names}]:
        del table[key]
    if _WHEELS in root and not table:
        del root[_WHEELS]
