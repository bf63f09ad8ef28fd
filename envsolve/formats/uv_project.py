"""The tables of a ``pyproject.toml`` with which ``uv sync`` installs the builds of the plan: pins, sources, indexes."""

from __future__ import annotations

from typing import Any

import tomli_w

from envsolve._default_index import DEFAULT_INDEX
from envsolve.formats._packages import default_index, installable, is_direct, is_tree
from envsolve.planning.plan import Plan

NAME = "uv-project"
FILENAMES: tuple[str, ...] = ()
FAMILY = "wheels"
HOLDS_SEVERAL = False
NEEDS_HASHES = False

_SYSTEMS = {"linux": "linux", "windows": "win32"}
_MACHINES = {("windows", "x86_64"): "AMD64"}


def render(plan: Plan) -> str:
    """The tables, to be merged into a project.

    Raises:
        ImpossibleError: Nothing fits.
    """
    packages = [package for package in installable(plan) if not is_tree(package)]
    default = default_index(packages)
    sources: dict[str, Any] = {}
    names: dict[str, str] = {}
    for package in packages:
        if is_direct(package):
            sources[package.name] = {"url": package.url}
        elif package.index not in (None, default):
            name = f"pytorch-{plan.cuda}" if not names else f"index-{len(names) + 1}"
            sources[package.name] = {"index": names.setdefault(str(package.index), name)}
    indexes: list[dict[str, Any]] = [{"name": name, "url": url, "explicit": True} for url, name in names.items()]
    if default != DEFAULT_INDEX:
        indexes.append({"url": default, "default": True})
    # uv takes a source for direct dependencies only, so whatever has one is pinned here.
    asked = {package.name for package in packages if package.variant or package.name in sources}
    pins = [f"{one.name}=={one.version}" if not is_direct(one) else one.name for one in packages if one.name in asked]
    uv: dict[str, Any] = {
        "environments": _environments(plan),
        "sources": sources,
        "index": indexes,
    }
    project = {"requires-python": f"=={plan.python}.*", "dependencies": pins}
    tables = {"project": project, "tool": {"uv": {key: value for key, value in uv.items() if value}}}
    return "# to be merged into pyproject.toml; then: uv lock && uv sync\n" + tomli_w.dumps(tables)


def _environments(plan: Plan) -> list[str]:
    """The systems of the machines as markers, so that uv locks for no others."""
    platforms = [machine.platform for machine in plan.machines if machine.platform]
    systems = sorted({(str(one.os), str(one.arch)) for one in platforms if one.os in _SYSTEMS and one.arch})
    return [
        f"sys_platform == '{_SYSTEMS[os]}' and platform_machine == '{_MACHINES.get((os, arch), arch)}'"
        for os, arch in systems
    ]
