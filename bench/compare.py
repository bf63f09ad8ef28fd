"""Whether two tools chose the same versions, and where they did not, whether a rule of envsolve's is why."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from packaging.specifiers import SpecifierSet

from envsolve.facts.catalogue import Catalogue

#: Where torch's own choice begins: what goes with it, one variant for all (rule 9 in docs/rules.md).
_PAIRED = ("torch", "torchvision", "torchaudio", "torchcodec", "torchao", "xformers", "triton")


def by_envsolve(output: str) -> dict[str, str]:
    """Versions by name, of a plan in JSON."""
    return {_normal(package["name"]): package["version"] for package in json.loads(output)["packages"]}


def by_pins(output: str) -> dict[str, str]:
    """Versions by name, of pinned requirements, as peers print them."""
    pins = re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;]+)", output, re.MULTILINE)
    return {_normal(name): version for name, version in pins}


def _normal(name: str) -> str:
    """One spelling for both; conda has names that begin with an underscore."""
    return re.sub(r"[-_.]+", "-", name).lower()


def differences(plan: str, pins: str) -> list[dict[str, Any]]:
    """Packages whose versions differ, each with the rule that accounts for it.

    The variant decides over the packages that are made for one, and so over what they alone bring in.

    Args:
        plan: envsolve's plan in JSON.
        pins: The peer's requirements.
    """
    own, other = by_envsolve(plan), by_pins(pins)
    bent = {name for name in _PAIRED if own.get(name) != other.get(name)}
    made = json.loads(plan)
    theirs = bent | _needed_by(bent, made["packages"])
    toolkit = {need for p in made["packages"] if p["name"] == "cuda-toolkit" for need in p["requires"]}
    clash = set(_same_files(other))
    older = _needed_by({*_made_for(other)}, made["packages"])
    found = []
    for name in sorted({*own, *other}):
        if own.get(name) != other.get(name):
            # torch pins the libraries of its CUDA, also those that JAX or TensorFlow need beside it.
            ruled = name in theirs or ("torch" in bent and name.startswith(("nvidia-", "cuda-")))
            rule = "the CUDA variant that all packages agree on (rule 9)" if ruled else None
            if rule is None and name in clash:
                rule = "no file belongs to two packages (rule 9), as the peer's choice has it"
            if rule is None and name in older:
                rule = "what a release is made for, whatever its metadata says (compiled_against.json)"
            if rule is None and made["toolchain"] and name in toolkit:
                rule = "the compiler for what is compiled at install or use: of torch's CUDA (rule 10)"
            found.append({"package": name, "envsolve": own.get(name), "peer": other.get(name), "rule": rule})
    return found


#: What the facts of a refusal say, and the rule behind it.
_REFUSALS = (
    ("installs the files of", "no file belongs to two packages (rule 9)"),
    ("is built for", "what a release is made for, whatever its metadata says (compiled_against.json)"),
    ("for Python", "the Pythons that a release's metadata and files are for (rule 11)"),
    ("requires Python", "the Pythons that a release's metadata and files are for (rule 11)"),
    ("no wheel for cp", "the Pythons that a release's metadata and files are for (rule 11)"),
    ("the machine", "the GPUs, driver and system of the machine (rules 1 to 11)"),
)


def refusal(plan: str) -> str | None:
    """The rule by which a plan in JSON, which messages may precede, is impossible; None if its facts name none."""
    try:
        facts = [fact["fact"] for fact in json.loads(plan[plan.index("{") :])["conflict"]]
    except (ValueError, KeyError, TypeError):
        return None  # an error, not a plan
    return next((rule for words, rule in _REFUSALS if any(words in fact for fact in facts)), None)


def _made_for(chosen: dict[str, str]) -> Iterator[str]:
    """Packages of a choice of which one is not made for the other."""
    for one in Catalogue().compiled_against:
        package, module = chosen.get(one.package), chosen.get(one.module)
        applies = package and module and SpecifierSet(one.versions).contains(package)
        if applies and not SpecifierSet(one.module_versions).contains(module or ""):
            yield from (one.package, one.module)


def _same_files(chosen: dict[str, str]) -> Iterator[str]:
    """Packages of a choice that overwrite one another's files."""
    for shared in Catalogue().shared_files:
        if {shared.owner, shared.package} <= {*chosen} and chosen[shared.package] in SpecifierSet(shared.versions):
            yield from (shared.package, shared.owner)


def _needed_by(names: set[str], packages: list[dict[str, Any]]) -> set[str]:
    """Packages that are there for the sake of some alone."""
    askers: dict[str, set[str]] = {}
    for package in packages:
        for need in package["requires"]:
            askers.setdefault(need, set()).add(package["name"])
    found = set(names)
    while more := {name for name, who in askers.items() if name not in found and who <= found}:
        found |= more
    return found
