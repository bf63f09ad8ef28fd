"""Reading an ``environment.yml`` as conda, mamba and micromamba do, and a ``pixi.toml`` as pixi does."""

from __future__ import annotations

import importlib
import re
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import Specifier
from packaging.utils import canonicalize_name

from envsolve.errors import UsageError
from envsolve.packages.project_files import load_project
from envsolve.packages.project_tools import pixi_names, read_pixi
from envsolve.packages.requirement_files import read_file, read_requirements
from envsolve.packages.requirements import COMMAND_LINE, Asked, Need, combine, wrong
from envsolve.rules.conda import Spec, subdir_of
from envsolve.rules.platform import Environment, admits_python
from envsolve.system.files import parse_toml, read_regular, without_warnings
from envsolve.system.limits import YAML_DEPTH, LimitError, depth


@dataclass(frozen=True, slots=True)
class CondaAsked:
    """The whole request for a conda plan.

    Attributes:
        specs: What must be in it.
        constraints: Constraints on packages that other packages require.
        pip: What pip is to install on top.
        channels: Channels that the inputs name, the preferred first.
        requires_python: What all projects together require, ``>=3.10``; None if they require none.
        notes: What was understood and ignored, in words.
        exclude_newer: The earliest date or time of the projects; files uploaded later are ignored.
    """

    specs: tuple[Spec, ...] = ()
    constraints: tuple[Spec, ...] = ()
    pip: Asked = field(default_factory=Asked)
    channels: tuple[str, ...] = ()
    requires_python: str | None = None
    notes: tuple[str, ...] = ()
    exclude_newer: str | None = None

    def admits_python(self, python: str) -> bool:
        """Return whether projects and ``python`` specs allow a Python; a spec such as ``3.11|3.12`` allows all."""
        own = [spec.version for spec in self.specs if spec.name == "python" and spec.version]
        limits = [f"=={version}" if version[:1].isdigit() else version for version in own]
        return all(admits_python(limit, python) for limit in (self.requires_python, *limits))


# Reading what is asked for: match specs as conda writes them, and PEP 508 requirements as pip does.


_CONDA = re.compile(r"(?:(?P<channel>[^\s:\[]+)::)?(?P<name>[A-Za-z0-9_][A-Za-z0-9_.-]*)\s*(?P<rest>.*)")
_KEY = re.compile(r"""\s*(\w+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s,'"]+))\s*""")
_KEYS = {"version", "build", "channel"}
_VERSION = re.compile(r"[\w.*+!<>=~,|]+")


def read_spec(text: str, origin: str, names: Mapping[str, str]) -> Spec:
    """Read one requirement.

    Args:
        text: A PEP 508 requirement (``torch>=2.5``) or a match spec (``pytorch=2.7.1=cuda*``).
        origin: Where it was written, for messages.
        names: Names on conda-forge by names on the package index, if they differ.

    Raises:
        UsageError: It is neither, or contains what conda does not support: a URL, a variant in the version.
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
        UsageError: It asks for a URL, or for a local version.
    """
    if requirement.url is not None:
        hint = "put it under `pip:` in an environment.yml, or plan with pip or uv"
        raise wrong(origin, f"{requirement.name} is requested by URL, which conda does not support", hint)
    clauses = [_clause(one, requirement, origin) for one in sorted(requirement.specifier, key=str)]
    name = names.get(canonicalize_name(requirement.name), requirement.name.lower())
    return Spec(name, ",".join(clauses) or None, origin=origin)


def _clause(one: Specifier, requirement: Requirement, origin: str) -> str:
    if "+" in one.version:
        version = one.version.partition("+")[0]
        hint = f"write {requirement.name}=={version}, and the variant with --cuda"
        raise wrong(origin, f"{requirement}: conda builds have no local version", hint)
    if one.version.endswith(".*") and one.operator == "==":
        return one.version
    return f"{'==' if one.operator == '===' else one.operator}{one.version}"


def _match_spec(text: str, origin: str) -> Spec:
    match = _CONDA.fullmatch(text)
    if match is None:
        raise wrong(origin, f"{text!r} is not a match spec", "write pytorch, pytorch>=2.7 or pytorch=2.7.1=cuda*")
    rest, channel = match["rest"].strip(), match["channel"]
    if rest.startswith("["):
        keys = _keys(rest, text, origin)
        version, build, channel = keys.get("version"), keys.get("build"), keys.get("channel", channel)
    else:
        version, build = _rest(rest)
    if version and not _VERSION.fullmatch(version):
        raise wrong(origin, f"{text!r} is not a match spec", "write pytorch, pytorch>=2.7 or pytorch=2.7.1=cuda*")
    return Spec(match["name"].lower(), version or None, build or None, channel, origin)


def _keys(rest: str, text: str, origin: str) -> dict[str, str]:
    """``[version='>=2.7', build='cuda*']``: what is not understood is never dropped."""
    inside = rest[1:].removesuffix("]")
    found = {key: a or b or c for key, a, b, c in _KEY.findall(inside)}
    if not rest.endswith("]") or _KEY.sub("", inside).strip(" ,") or not found.keys() <= _KEYS:
        hint = "write pytorch[version='>=2.7', build='cuda*']; only the keys version, build and channel are supported"
        raise wrong(origin, f"{text!r} is not a match spec", hint)
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


# A relative path in a line of a pip list, behind the option or alone.
_RELATIVE = re.compile(r"^(-e\s+|--editable[\s=]+|)(\.[^\s]*)")
SUFFIXES = (".yml", ".yaml")
PIXI = "pixi.toml"
_HINT = "it has a list `channels` and a list `dependencies`, of match specs and one `pip:` list"


def read_environment_file(path: Path, names: Mapping[str, str]) -> CondaAsked:
    """Read one.

    Args:
        path: The file.
        names: Names on conda-forge by names on the package index; only for what is written as PEP 508.

    Raises:
        UsageError: It cannot be read, is not an environment.yml, or ruamel.yaml is not installed.
    """
    table = yaml_table(path)
    channels = table.get("channels") or []
    dependencies = table.get("dependencies") or []
    if not isinstance(channels, list) or not isinstance(dependencies, list) or not dependencies:
        raise wrong(str(path), "this is not an environment.yml", _HINT)
    for channel in channels:
        if not isinstance(channel, str) or not channel.strip():
            raise wrong(
                str(path),
                f"{reprlib.repr(channel)} is not a channel",
                "give the name of a channel, such as conda-forge",
            )
    specs = tuple(_specs(dependencies, path, names))
    lines = [line for entry in dependencies if isinstance(entry, dict) for line in _pip(entry, path)]
    return CondaAsked(
        specs=specs,
        pip=read_pip_part(lines, path),
        channels=tuple(channel for channel in channels if channel != "nodefaults"),
        notes=tuple(_notes(table, path)),
    )


def yaml_table(path: Path, kind: str = "environment.yml") -> dict[str, Any]:
    """Read a YAML file that holds a mapping.

    Raises:
        UsageError: It cannot be read, holds something else, or ruamel.yaml is not installed.
    """
    try:
        yaml = importlib.import_module("ruamel.yaml")
    except ImportError as error:
        hint = "install it into envsolve's environment: pip install 'envsolve[conda]'"
        raise UsageError(
            f"envsolve needs ruamel.yaml to read {path}, and it is not installed ({error})", hint=hint
        ) from error
    try:
        text = read_regular(path).decode("utf-8-sig")
        if depth(text) > YAML_DEPTH:
            raise LimitError(f"its brackets are nested more than {YAML_DEPTH} deep")
        with without_warnings():
            table = yaml.YAML(typ="safe", pure=True).load(text)
    except OSError as error:
        raise wrong(str(path), f"the file cannot be read: {error.strerror}") from None
    except TypeError:
        raise wrong(str(path), "a key is a list or a mapping") from None
    except (ValueError, RecursionError, yaml.error.YAMLError) as error:
        raise wrong(str(path), f"it is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(table, dict):
        raise wrong(
            str(path),
            f"this is not a{'n' if kind[0] in 'aeiou' else ''} {kind}",
            _HINT if kind == "environment.yml" else None,
        )
    return table


def _specs(dependencies: list[Any], path: Path, names: Mapping[str, str]) -> Iterator[Spec]:
    for entry in dependencies:
        if isinstance(entry, str):
            spec = read_spec(entry, str(path), names)
            # Of pip it is the environment that asks; what a plan for it holds is settled without it.
            if spec.name != "pip" or spec.version:
                yield spec
        elif not isinstance(entry, dict) or set(entry) != {"pip"}:
            raise wrong(str(path), f"{reprlib.repr(entry)} is not a dependency", _HINT)


def _pip(entry: dict[str, Any], path: Path) -> Iterator[str]:
    lines = entry.get("pip")
    for line in lines if isinstance(lines, list) else [lines]:
        if not isinstance(line, str):
            hint = "write each package in PEP 508: demo>=1.0"
            raise wrong(str(path), f"pip: {reprlib.repr(line)} is not a requirement", hint)
        yield line


def read_pip_part(lines: Sequence[str], path: Path) -> Asked:
    """Requirements of a ``pip:`` list: conda gives its lines to pip as a requirement file in the file's directory.

    Args:
        lines: Requirements and pip's options.
        path: The file that they are in.

    Raises:
        UsageError: A line, or a file that it names, cannot be read.
    """
    if path.parent != Path():
        # conda runs pip in that directory, so that `-e .` is relative to it.
        lines = [_RELATIVE.sub(lambda match: f"{match[1]}{path.parent}/{match[2]}", line) for line in lines]
    return read_file(path.with_name(f"{path.name} pip:"), text="\n".join(lines))


def _notes(table: Mapping[str, Any], path: Path) -> Iterator[str]:
    if table.get("variables"):
        yield f"{path}: the variables in the file are ignored; a plan sets only variables that its packages require"


# Reading what is asked of a conda plan, from every kind of input, into one value.


def read_asked(
    words: Sequence[str],
    files: Sequence[Path],
    constraints: Sequence[Path],
    names: Mapping[str, str],
    environment: Environment,
    *,
    projects: Sequence[Path] = (),
    extras: Sequence[str] = (),
    groups: Sequence[str] = (),
) -> CondaAsked:
    """All that is asked: by the command line, environment and requirement files, and projects.

    Args:
        words: Of the command line.
        files: Requirement files and environment.yml files.
        constraints: Constraint files.
        names: Names on conda-forge by names on the package index, if they differ.
        environment: What markers are evaluated for.
        projects: Directories or files of projects.
        extras: Extras of the projects.
        groups: Dependency groups of the projects.

    Raises:
        UsageError: Something cannot be read.
    """
    own = tuple(read_spec(word, COMMAND_LINE, names) for word in words)
    environments, groups = _with_pixi(files, projects, groups, environment)
    environments = [*map(partial(read_environment_file, names=names), filter(_is_yaml, files)), *environments]
    files = [path for path in files if path.name != PIXI and not _is_yaml(path)]
    others = read_requirements((), files, constraints, projects=projects, extras=extras, groups=groups)
    needs, holds = (_asked_specs(some, names, environment) for some in (others.needs, others.constraints))
    indexes = (*others.index_urls, *others.extra_index_urls)
    ignored = [f"{index}: a conda plan does not use package indexes" for index in indexes]
    ignored += [
        f"{one.origin}: the override {one.requirement} is not applied to conda packages" for one in others.overrides
    ]
    return CondaAsked(
        specs=(*own, *(spec for file in environments for spec in file.specs), *needs),
        constraints=holds,
        pip=combine(file.pip for file in environments),
        channels=tuple(dict.fromkeys(channel for file in environments for channel in file.channels)),
        requires_python=others.requires_python,
        exclude_newer=others.exclude_newer,
        notes=(*(note for file in environments for note in (*file.notes, *file.pip.notes)), *others.notes, *ignored),
    )


def _is_yaml(path: Path) -> bool:
    return path.suffix in SUFFIXES


def _with_pixi(
    files: Sequence[Path], projects: Sequence[Path], groups: Sequence[str], environment: Environment
) -> tuple[list[CondaAsked], list[str]]:
    """Requirements of pixi's tables, and the groups that are neither environments nor features."""
    found = [*_pixi_tables(files, projects)]
    known = {name for _, table in found for name in pixi_names(table)}
    asked = [_of_pixi(path, table, groups, environment) for path, table in found]
    return asked, [group for group in groups if group not in known]


def _pixi_tables(files: Sequence[Path], projects: Sequence[Path]) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    for path in (path for path in files if path.name == PIXI):
        try:
            table = parse_toml(read_regular(path).decode("utf-8-sig"), path)
        except (OSError, UnicodeDecodeError) as error:
            raise wrong(str(path), f"the file cannot be read: {error}") from None
        yield path, table
    for project in map(load_project, projects):
        if "pixi" in project.tool:
            yield project.path, project.tool["pixi"]


def _of_pixi(path: Path, table: Mapping[str, Any], groups: Sequence[str], environment: Environment) -> CondaAsked:
    chosen = [group for group in groups if group in pixi_names(table)]
    try:
        found = read_pixi(path, table, chosen, subdir_of(environment.platform))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        what = f"a table is not valid for pixi ({type(error).__name__}: {error})"
        raise wrong(str(path), what, "let pixi check it: pixi list") from None
    specs = tuple(_match_spec(text, str(path)) for text in found.conda)
    pip = read_pip_part(found.pip, path)
    return CondaAsked(specs=specs, pip=pip, channels=found.channels, notes=found.notes)


def _asked_specs(needs: Sequence[Need], names: Mapping[str, str], target: Environment) -> tuple[Spec, ...]:
    wanted = (need for need in needs if target.wants(need.requirement.marker))
    return tuple(of_requirement(need.requirement, need.origin, names) for need in wanted)
