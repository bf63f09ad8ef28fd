"""A ``pixi.toml``: the pins of the plan, and the system that they were solved for as system requirements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tomli_w

from envsolve.formats._packages import activated, conda_heading, conda_terms
from envsolve.packages.urls import local_path, read_address
from envsolve.planning.plan import CondaPin, CondaTerms, Plan
from envsolve.solve.files import file_at

NAME = "pixi"
FILENAMES = ("pixi.toml",)
FAMILY = "conda"
HOLDS_SEVERAL = False
NEEDS_HASHES = False


def render(plan: Plan) -> str:
    """The file's text.

    Raises:
        ImpossibleError: Nothing fits.
        UsageError: It is a plan of wheels.
    """
    terms = conda_terms(plan)
    manifest: dict[str, Any] = {
        "workspace": {"name": "envsolve", "channels": list(terms.channels), "platforms": [terms.subdir]},
        "system-requirements": _system(terms),
        "dependencies": {pin.name: _dependency(pin) for pin in terms.pins},
    }
    if terms.pip:
        manifest["dependencies"]["pip"] = "*"
        manifest["pypi-dependencies"] = dict(map(_of_pip, terms.pip))
    if plan.environment:
        manifest["activation"] = {"env": activated(plan)}
    body = tomli_w.dumps({name: table for name, table in manifest.items() if table})
    return "\n".join((*conda_heading(plan), "# create the environment with: pixi install", "", body))


def _system(terms: CondaTerms) -> Mapping[str, Any]:
    """The target's driver and libc: pixi solves for them, whatever the machine that solves has."""
    found: dict[str, Any] = {}
    if "__cuda" in terms.virtual:
        found["cuda"] = terms.virtual["__cuda"]
    if "__glibc" in terms.virtual:
        found["libc"] = {"family": "glibc", "version": terms.virtual["__glibc"]}
    return found


def _dependency(pin: CondaPin) -> str | dict[str, str]:
    version = pin.version if pin.version.endswith("*") else f"=={pin.version}"
    return {"version": version, "build": pin.build} if pin.build else version


def _of_pip(line: str) -> tuple[str, str | dict[str, str]]:
    """An exact requirement as pixi has it. Source: pixi documentation, "The pypi-dependencies table"."""
    name, at, address = line.partition(" @ ")
    if not at:
        name, _, version = line.partition("==")
        return name, f"=={version}"
    if file_at(address) is not None:
        return name, {"path": str(local_path(address))} if address.startswith("file:") else {"url": address}
    tree = read_address(address)
    where = {"path": tree.folder, "git": tree.repository, "rev": tree.revision, "subdirectory": tree.subdirectory}
    return name, {key: value for key, value in where.items() if value is not None}
