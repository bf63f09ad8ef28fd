"""Reading what is asked for: match specs as conda writes them, and PEP 508 requirements as pip does."""

from __future__ import annotations

import re
from collections.abc import Mapping

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import Specifier
from packaging.utils import canonicalize_name

from envsolve.conda.model import Spec
from envsolve.resolve.inputs.model import wrong

_CONDA = re.compile(r"(?:(?P<channel>[^\s:\[]+)::)?(?P<name>[A-Za-z0-9_][A-Za-z0-9_.-]*)\s*(?P<rest>.*)")
_KEY = re.compile(r"""\s*(\w+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s,'"]+))\s*""")
_KEYS = {"version", "build", "channel"}
_VERSION = re.compile(r"[\w.*+!<>=~,|]+")


def read_spec(text: str, origin: str, names: Mapping[str, str]) -> Spec:
    """Read one thing that is asked for.

    Args:
        text: A PEP 508 requirement (``torch>=2.5``) or a match spec (``pytorch=2.7.1=cuda*``).
        origin: Where it stands, for messages.
        names: Names on conda-forge by names on the package index, where they differ.

    Raises:
        UsageError: It is neither, or asks for what conda has not: an address, a flavour in the version.
    """
    text = text.strip()
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return _match_spec(text, origin)
    return of_requirement(requirement, origin, names)


def of_requirement(requirement: Requirement, origin: str, names: Mapping[str, str]) -> Spec:
    """A PEP 508 requirement as a match spec; its marker is the caller's to weigh, its extras are dropped.

    Raises:
        UsageError: It asks for an address, or for a local version.
    """
    if requirement.url is not None:
        hint = "put it under `pip:` in an environment.yml, or plan with pip or uv"
        raise wrong(origin, f"{requirement.name} is asked for by address, which conda does not install", hint)
    clauses = [_clause(one, requirement, origin) for one in sorted(requirement.specifier, key=str)]
    name = names.get(canonicalize_name(requirement.name), requirement.name.lower())
    return Spec(name, ",".join(clauses) or None, origin=origin)


def _clause(one: Specifier, requirement: Requirement, origin: str) -> str:
    if "+" in one.version:
        version = one.version.partition("+")[0]
        hint = f"write {requirement.name}=={version}, and the flavour with --cuda"
        raise wrong(origin, f"{requirement}: conda builds carry no local version", hint)
    if one.version.endswith(".*") and one.operator == "==":
        return one.version
    return f"{'==' if one.operator == '===' else one.operator}{one.version}"


def _match_spec(text: str, origin: str) -> Spec:
    match = _CONDA.fullmatch(text)
    if match is None:
        raise wrong(origin, f"{text!r} is no match spec", "write pytorch, pytorch>=2.7 or pytorch=2.7.1=cuda*")
    rest, channel = match["rest"].strip(), match["channel"]
    if rest.startswith("["):
        keys = _keys(rest, text, origin)
        version, build, channel = keys.get("version"), keys.get("build"), keys.get("channel", channel)
    else:
        version, build = _rest(rest)
    if version and not _VERSION.fullmatch(version):
        raise wrong(origin, f"{text!r} is no match spec", "write pytorch, pytorch>=2.7 or pytorch=2.7.1=cuda*")
    return Spec(match["name"].lower(), version or None, build or None, channel, origin)


def _keys(rest: str, text: str, origin: str) -> dict[str, str]:
    """``[version='>=2.7', build='cuda*']``: what is not understood is never dropped."""
    inside = rest[1:].removesuffix("]")
    found = {key: a or b or c for key, a, b, c in _KEY.findall(inside)}
    if not rest.endswith("]") or _KEY.sub("", inside).strip(" ,") or not found.keys() <= _KEYS:
        hint = "write pytorch[version='>=2.7', build='cuda*']; no keys but version, build and channel are taken"
        raise wrong(origin, f"{text!r} is no match spec", hint)
    return found


def _rest(text: str) -> tuple[str | None, str | None]:
    """``=2.7`` (any 2.7), ``=2.7.1=cuda*``, ``==2.7.1``, `` 2.7.1 cuda*``, ``>=2.7,<3``."""
    if " " in text:
        version, _, build = text.replace("= ", "=").partition(" ")
        fuzzy, _ = _rest(version)
        return fuzzy, build.strip()
    if text.startswith("=") and not text.startswith("=="):
        version, _, build = text[1:].partition("=")
        exact = version.endswith("*") or build
        return (None if version in ("", "*") else version if exact else f"{version}.*"), build
    if text.startswith("=="):
        version, _, build = text[2:].partition("=")
        return f"=={version}", build
    return text or None, None
