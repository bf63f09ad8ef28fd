"""Dependencies in the ``[tool]`` tables of Poetry, PDM, hatch and pixi."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace
from packaging.utils import canonicalize_name

from envsolve.packages.requirements import Source

# As PEP 508: those of Poetry before its release 2, PDM's development dependencies and the environments of hatch.


class Declared(msgspec.Struct, frozen=True):
    """Dependencies that the tables of tools declare.

    Attributes:
        dependencies: None if no tool declares any.
        notes: What has no form in PEP 508.
        group_notes: What is set aside of a group, by its normalised name.
    """

    dependencies: tuple[str, ...] | None = None
    requires_python: str | None = None
    extras: dict[str, tuple[str, ...]] = {}
    groups: dict[str, list[Any]] = {}
    notes: tuple[str, ...] = ()
    group_notes: dict[str, tuple[str, ...]] = {}


def declared(tool: Mapping[str, Any], name: str) -> Declared:
    """The dependencies in the tables of tools.

    Args:
        tool: The ``[tool]`` table.
        name: Of the project; hatch's environments install it with features.
    """
    groups = {key: list(lines) for key, lines in tool.get("pdm", {}).get("dev-dependencies", {}).items()}
    environments = tool.get("hatch", {}).get("envs", {})
    notes: dict[str, tuple[str, ...]] = {}
    for key in environments:
        environment = _inherited(key, environments)
        groups[key] = [
            *environment.get("dependencies", ()),
            *environment.get("extra-dependencies", ()),
            *(f"{name}[{feature}]" for feature in environment.get("features", ()) if name),
        ]
        notes[canonicalize_name(key)] = tuple(
            f"[tool.hatch.envs.{key}] {unread} is ignored: the plan has what applies to all of it"
            for unread in ("matrix", "overrides")
            if unread in environment
        )
    found = _of_poetry(tool["poetry"], groups) if "poetry" in tool else Declared(groups=groups)
    return replace(found, group_notes=notes)


def _inherited(key: str, environments: Mapping[str, Any]) -> Mapping[str, Any]:
    """An environment of hatch with the options of its template: its own in place of those of equal names.

    Source: hatch documentation, "Environment configuration, Inheritance": the template is ``default`` unless named.
    """
    chain: list[str] = []
    while key not in chain and key in environments:
        chain.append(key)
        own = environments[key]
        key = key if own.get("detached") else own.get("template", "default")
    merged: dict[str, Any] = {}
    for one in reversed(chain):
        merged |= environments[one]
    return merged


def _of_poetry(poetry: Mapping[str, Any], groups: dict[str, list[Any]]) -> Declared:
    notes: list[str] = []
    own = dict(poetry.get("dependencies", {}))
    python = own.pop("python", None)
    by_extra = poetry.get("extras", {})
    lines = {key: tuple(_poetry_lines(key, entry, notes)) for key, entry in own.items()}
    optional = {one for one, entry in own.items() if isinstance(entry, dict) and entry.get("optional")}
    named = {one for names in by_extra.values() for one in names}
    notes += [f"{one} is optional and not part of an extra, so it is not installed" for one in sorted(optional - named)]
    # poetry-core puts what an extra names under that extra, whether or not it is optional.
    left = optional | named
    return Declared(
        dependencies=tuple(line for key in own if key not in left for line in lines[key]) if own else None,
        requires_python=_poetry_version(str(python), "python", notes) if python else None,
        extras={key: tuple(line for one in names for line in lines.get(one, ())) for key, names in by_extra.items()},
        groups=groups | _poetry_groups(poetry, notes),
        notes=tuple(notes),
    )


def _poetry_groups(poetry: Mapping[str, Any], notes: list[str]) -> dict[str, list[Any]]:
    tables = {key: group.get("dependencies", {}) for key, group in poetry.get("group", {}).items()}
    tables |= {"dev": poetry["dev-dependencies"]} if "dev-dependencies" in poetry else {}
    return {
        key: [line for one, entry in table.items() for line in _poetry_lines(one, entry, notes)]
        for key, table in tables.items()
    }


def _poetry_lines(name: str, entry: Any, notes: list[str]) -> Iterator[str]:
    """One dependency of Poetry's; a list holds one line for each environment."""
    for one in entry if isinstance(entry, list) else [entry]:
        table = one if isinstance(one, dict) else {"version": one}
        if local := table.get("path") or table.get("file"):
            notes.append(f"{name} is the local directory {local}; give it as a project to also plan its requirements")
            continue
        extras = f"[{','.join(table['extras'])}]" if table.get("extras") else ""
        markers = [f"({table['markers']})"] if table.get("markers") else []
        if python := table.get("python"):
            limits = _poetry_version(str(python), "python", notes).split(",")
            markers += [re.sub(r"([<>=!~]+)\s*(.+)", r"python_version \1 '\2'", limit) for limit in limits if limit]
        if system := table.get("platform"):
            markers.append(f"sys_platform == '{system}'")
        if place := _poetry_place(table):
            what = f" @ {place}"
        else:
            what = _poetry_version(str(table.get("version", "*")), name, notes)
        yield f"{name}{extras}{what}" + (f" ; {' and '.join(markers)}" if markers else "")


def _poetry_place(table: Mapping[str, Any]) -> str | None:
    if "git" in table:
        revision = next((table[key] for key in ("rev", "tag", "branch") if key in table), None)
        part = f"#subdirectory={table['subdirectory']}" if "subdirectory" in table else ""
        return f"git+{table['git']}" + (f"@{revision}" if revision else "") + part
    return table.get("url")


def _poetry_version(text: str, name: str, notes: list[str]) -> str:
    """Poetry's version constraint as specifiers of PEP 440: ``^1.2`` is ``>=1.2,<2``, ``~1.2`` is ``>=1.2,<1.3``."""
    if "|" in text:
        notes.append(f"{name}: {text!r} cannot be written as a PEP 508 specifier, so every version is allowed")
        return ""
    clauses = [re.sub(r"\s+", "", part) for part in re.split(r",|(?<=[\w*])\s+(?=[<>=!~^])", text) if part.strip()]
    return ",".join(specifier for clause in clauses for specifier in _poetry_clause(clause))


def _poetry_clause(clause: str) -> Sequence[str]:
    if clause in ("*", ""):
        return ()
    if clause[0] == "^" or (clause[0] == "~" and clause[1:2] != "="):
        lower = clause[1:].lstrip(">=")
        parts = [int(part) for part in re.findall(r"\d+", re.split(r"[a-z+-]", lower)[0])]
        # A caret keeps the first number that is not zero; a tilde the minor version, or the major if it stands alone.
        caret = next((place for place, part in enumerate(parts) if part), len(parts) - 1)
        kept = caret if clause[0] == "^" else min(1, len(parts) - 1)
        upper = [*parts[:kept], parts[kept] + 1]
        return f">={lower}", f"<{'.'.join(map(str, upper))}"
    if clause[0] in "<>!=~":
        return (f"={clause}" if re.match(r"=\d", clause) else clause,)
    return (f"=={clause}",)


def beside(
    sources: Sequence[Source], entries: Sequence[Mapping[str, Any]], indexes: Mapping[str, str]
) -> tuple[Source, ...]:
    """Sources with the indexes of other extras and groups."""
    others = [
        (f"--{kind} {entry[kind]}", indexes[entry["index"]])
        for entry in entries
        for kind in ("extra", "group")
        if kind in entry and entry.get("index") in indexes
    ]
    return tuple(replace(one, others=tuple(other for other in others if other[1] != one.url)) for one in sources)


# pixi: conda packages, and what pip installs over them, by feature and platform.


class Pixi(msgspec.Struct, frozen=True):
    """Dependencies of a ``pixi.toml``, or of ``[tool.pixi]``, on one platform.

    Attributes:
        conda: Match specs.
        pip: Requirements in PEP 508.
    """

    conda: tuple[str, ...]
    pip: tuple[str, ...]
    channels: tuple[str, ...]
    notes: tuple[str, ...]


def pixi_names(table: Mapping[str, Any]) -> frozenset[str]:
    """The names of its environments and features, but for the default ones."""
    return frozenset({*table.get("environments", {}), *table.get("feature", {})}) - {"default"}


def read_pixi(path: Path, table: Mapping[str, Any], chosen: Sequence[str], subdir: str) -> Pixi:
    """The packages that pixi installs on a platform.

    Args:
        path: The file, for messages.
        table: The whole ``pixi.toml``, or ``[tool.pixi]``.
        chosen: Environments and features beside the default feature.
        subdir: ``linux-64``.
    """
    workspace = table.get("workspace") or table.get("project") or {}
    features = _pixi_features(table, chosen)
    channels = [*_listed(features, "channels"), *workspace.get("channels", ())]
    parts = [one for feature in features for one in (feature, *_pixi_targets(feature, subdir))]
    notes: list[str] = []
    conda = [line for part in parts for line in _pixi_specs(part.get("dependencies", {}), notes)]
    pip = [line for part in parts for line in _pixi_pip(part.get("pypi-dependencies", {}), notes)]
    notes += [
        f"system requirement {name} {value}: pixi refuses machines with an older version"
        for part in parts
        for name, value in part.get("system-requirements", {}).items()
    ]
    if options := list(_listed(parts, "pypi-options")):
        notes.append(f"pypi-options {', '.join(options)}: plans take the index of pip's or uv's configuration")
    if "exclude-newer" in workspace:
        notes.append(f"exclude-newer is ignored; plan with --exclude-newer {workspace['exclude-newer']}")
    platforms = workspace.get("platforms", ())
    if platforms and subdir not in platforms:
        notes.append(f'platforms has no {subdir}, so pixi does not lock for it; write "{subdir}" there')
    return Pixi(
        tuple(conda),
        tuple(pip),
        tuple(dict.fromkeys(one if isinstance(one, str) else one["channel"] for one in channels)),
        tuple(f"{path}: {note}" for note in notes),
    )


def _pixi_features(table: Mapping[str, Any], chosen: Sequence[str]) -> Sequence[Mapping[str, Any]]:
    """The tables of the features of some environments; a name that is not an environment is a feature."""
    named, environments = table.get("feature", {}), table.get("environments", {})
    names, default = dict[str, None](), True
    for name in chosen or ["default"]:
        entry = environments.get(name, [] if name == "default" else [name])
        names |= dict.fromkeys(entry if isinstance(entry, list) else entry.get("features", ()))
        default = default and not (isinstance(entry, dict) and entry.get("no-default-feature"))
    return [*([table] if default else []), *(named[name] for name in names if name in named)]


def _listed(parts: Sequence[Mapping[str, Any]], key: str) -> Iterator[Any]:
    for part in parts:
        yield from part.get(key, ())


def _pixi_targets(part: Mapping[str, Any], subdir: str) -> Iterator[Mapping[str, Any]]:
    system = subdir.partition("-")[0]
    means = {subdir, system, *(() if system == "win" else ("unix",))}
    yield from (target for name, target in part.get("target", {}).items() if name in means)


def _pixi_specs(listed: Mapping[str, Any], notes: list[str]) -> Iterator[str]:
    for name, entry in listed.items():
        table = entry if isinstance(entry, dict) else {"version": entry}
        if left := sorted(table.keys() - {"version", "build", "channel"}):
            notes.append(f"{name}: {', '.join(left)} is ignored; the plan uses the package of a channel")
        version = re.sub(r"\s+", "", str(table.get("version", "*")))
        keys = {"version": version, **{key: table[key] for key in ("build", "channel") if key in table}}
        yield f"{name}[{', '.join(f'{key}={value!r}' for key, value in keys.items())}]"


def _pixi_pip(listed: Mapping[str, Any], notes: list[str]) -> Iterator[str]:
    for name, entry in listed.items():
        table = entry if isinstance(entry, dict) else {"version": entry}
        if "path" in table:
            notes.append(
                f"{name} is the local directory {table['path']}; give it as a project to also plan its requirements"
            )
            continue
        if "index" in table:
            notes.append(f"{name} is not taken from {table['index']}; to use this index, add --extra-index-url")
        extras = f"[{','.join(table['extras'])}]" if table.get("extras") else ""
        version, place = str(table.get("version", "*")), _poetry_place(table)
        limit = "" if version == "*" else f"=={version}" if version[:1].isdigit() else version
        what = f" @ {place}" if place else limit
        yield f"{name}{extras}{what}" + (f" ; {table['env-markers']}" if table.get("env-markers") else "")
