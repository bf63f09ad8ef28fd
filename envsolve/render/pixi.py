"""A ``pixi.toml``: the pins of the plan, and the system that they were solved for as system requirements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tomli_w

from envsolve.plan import CondaPin, CondaTerms, Plan
from envsolve.render._conda import activated, conda_terms, heading


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
        manifest["pypi-dependencies"] = {name: f"=={version}" for name, version in map(_parted, terms.pip)}
    if plan.environment:
        manifest["activation"] = {"env": activated(plan)}
    body = tomli_w.dumps({name: table for name, table in manifest.items() if table})
    return "\n".join((*heading(plan), "# make it with: pixi install", "", body))


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


def _parted(line: str) -> tuple[str, str]:
    name, _, version = line.partition("==")
    return name, version
